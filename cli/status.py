"""``dd status``: what is folded, what is waiting, and how big everything is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import DdError
from ddcore.base.record import record
from ddcore.cli.options import Call, command, flag
from ddcore.cli.output import SCHEMA_VERSION, Output
from ddcore.cli.text import aligned, count, size
from ddcore.io.ledger.history import moment
from ddcore.io.project.frontiers import corners, frontier_json, is_open, nothing_closed, shown_frontier
from ddcore.io.project.times import Time, greatest, json_time, least, named, shown, span
from ddcore.io.storage import branches, readers
from ddcore.jobs.publishing import tables_of
from ddcore.jobs.report import spelled
from ddcore.program.data_tests import is_test
from ddcore.text.wording import counted, listed

if TYPE_CHECKING:
    from ddcore.io.delta.table_files import TableState
    from ddcore.io.ledger.freshness import Freshness
    from ddcore.io.ledger.ledger import Ledger
    from ddcore.io.ledger.version_names import VersionNames
    from ddcore.io.project.project import Project
    from ddcore.io.state.layout import Use
    from ddcore.io.storage.readers import Hold
    from ddcore.io.storage.store import Location


@record
class _Table:
    """One table at its newest version: ``kind`` is input, output or state; ``columns`` are those of a row.

    A table of state has the ``operator`` that needs it, the operator's ``source_line`` in the program, and what it
    ``holds``; empty where the program is not the folded one.
    """

    kind: str
    name: str
    through: Time | None
    waits: int
    rows: int
    files: int
    bytes: int
    columns: tuple[str, ...]
    operator: str = ""
    source_line: str = ""
    holds: str = ""


@command("json project")
def status(
    call: Call,
    *,
    state: bool = flag("List the tables of state, too; --json always has them."),
) -> int:
    """Show what is folded, which versions are waiting, how big all tables are, and who holds the lock."""
    from ddcore.io.reading.folded import ledger_of

    out = call.output
    settings = call.opened()
    ledger = ledger_of(settings)
    summary, names = _summary(settings, ledger), ledger.version_names(settings.dims)
    is_there = not (summary["upstream"] or {}).get("problem")
    tables = [*(_inputs(settings, ledger) if is_there else ()), *_of_run(settings, ledger)]
    if out.json:
        records = [{**vars(table), "through": json_time(table.through, settings.dims)} for table in tables]
        out.record(schema_version=SCHEMA_VERSION, **_spelled(summary, names), tables=records)
    else:
        _tell(out, settings, ledger, summary, tables, names=names, state=state)
    return 0


def _summary(project: Project, ledger: Ledger) -> dict[str, Any]:
    from ddcore.io.ledger.freshness import freshness
    from ddcore.io.ledger.left_out import left_out

    run, intent, holder = ledger.current_run(), ledger.open_intent(), ledger.warehouse.holder()
    return {
        "project": str(project.root),
        "program": project.program,
        "warehouse": str(ledger.warehouse.root),
        "upstream": _upstream(project, ledger),
        "readers": [{"name": name, **vars(hold), "lost": hold.is_lost} for name, hold in _holds(project).items()],
        "branch": project.branch or None,
        "branches": branches.names(project.home),
        "origin": dict(project.origin),
        "engine": project.engine,
        **_frontiers(ledger, project.dims),
        "waiting": _waiting(ledger, _concerned(project, ledger)),
        "left_out": left_out(ledger, project),
        "restated": frontier_json(ledger.restated(), project.dims),
        "corrections": [] if run is None else run.waiting_corrections,
        "ahead": _ahead(ledger, project.dims),
        "last_run": None
        if run is None
        else {
            "run": run.run,
            "at": moment(run.at),
            "program": run.fingerprint,
            "workers": {"number": run.parallelism, "why": run.why, "sent": run.sent},
        },
        "unfinished": None if intent is None else {"run": intent.run, "first": intent.first, "last": intent.last},
        "sources": freshness(project, ledger),
        "published": [
            {"output": name, "path": str(address), "run": None if there is None else there.run}
            for name, address, there in tables_of(project, ledger)
        ],
        "holder": None if holder is None else str(holder),
    }


def _upstream(project: Project, ledger: Ledger) -> dict[str, Any] | None:
    """The project whose inputs are read, and how many changes of them wait; -1 where they cannot be looked at."""
    if project.upstream is None:
        return None
    from ddcore.jobs.upstream import waiting

    try:
        many, problem = waiting(project, ledger), None
    except DdError as error:
        many, problem = -1, error.message
    where = {"project": str(project.upstream.root), "warehouse": str(project.upstream.warehouse)}
    return {**where, "waiting": many, "problem": problem}


def _holds(project: Project) -> dict[str, Hold]:
    """The projects that read the inputs of this one; a branch has none."""
    return {} if project.branch else readers.holds(project.warehouse)


def _ahead(ledger: Ledger, dims: tuple[str, ...]) -> dict[str, Any]:
    """The outputs that a run of some alone folded beyond the others, with their greatest complete times."""
    part = ledger.ahead()
    uppers = {} if part is None else part.uppers
    return {name: frontier_json(corners(of), dims) for name, of in sorted(uppers.items()) if not is_test(name)}


def _frontiers(ledger: Ledger, dims: tuple[str, ...]) -> dict[str, Any]:
    """The greatest complete times, and the frontiers between which reads lie; with one dimension only ``since``."""
    nothing, since = nothing_closed(dims), ledger.since()
    upper = ledger.upper() or nothing
    if len(dims) == 1:
        return {"folded": corners(upper), **({"since": since} if since else {})}
    return {"folded": corners(upper), "since": since or nothing, "upper": upper}


def _spelled(summary: dict[str, Any], names: VersionNames) -> dict[str, Any]:
    """The summary with its times as in JSON, and the labels and instants of those that are folded."""
    dims = names.dims
    times: dict[str, Any] = {
        name: frontier_json(summary[name], dims) for name in ("folded", "since", "upper", "waiting") if name in summary
    }
    fields = [names.fields(time) for time in summary["folded"]]
    labels: dict[str, Any] = {name: [field[name] for field in fields] for name in ("label", "instant")}
    if len(dims) == 1:  # there is at most one
        times |= {name: next(iter(times[name]), None) for name in ("folded", "since") if name in times}
        labels = fields[0] if fields else names.fields(None)
    unfinished = summary["unfinished"] and spelled(summary["unfinished"], dims)
    sources = [source.record for source in summary["sources"]]
    return {**summary, **times, **labels, "sources": sources, "unfinished": unfinished}


def _concerned(project: Project, ledger: Ledger) -> Sequence[str]:
    """The inputs whose versions a run folds: of those of another project what the program of the last run read."""
    run = None if project.upstream is None else ledger.current_run()
    return ledger.inputs() if run is None else run.program_inputs


def _waiting(ledger: Ledger, names: Collection[str]) -> list[Time]:
    """The times that were ingested and not folded, of some inputs."""
    upper = ledger.upper()
    times = {time for record in ledger.waiting() if record.input in names for time in record.counts}
    return sorted(time for time in times if upper is None or is_open(time, upper))


def _inputs(project: Project, ledger: Ledger) -> list[_Table]:
    tables, concerned = [], _concerned(project, ledger)
    for name in dict.fromkeys([*project.inputs, *ledger.inputs(with_rows=True)]):
        rows, files, size, columns = _extent(ledger.warehouse.input(name), ledger.input_table(name), project.dims)
        if (stored := project.stored.get(name)) is not None:
            known = stored.columns_of(columns)
            columns = tuple(column for column in project.inputs[name] if column in known)
        latest, waiting = ledger.latest_ingested([name]), len(_waiting(ledger, {name} & {*concerned}))
        tables.append(_Table("input", name, latest, waiting, rows, files, size, columns))
    return tables


def _of_run(project: Project, ledger: Ledger) -> list[_Table]:
    run, ahead = ledger.current_run(), ledger.ahead()
    if run is None:
        return []
    from ddcore.io.reading.published import output_names

    kinds, outputs, uses = {"outputs": "output", "state": "state"}, output_names(run), _uses(project)
    return [
        _Table(
            kinds[folder],
            name,
            ahead.last if folder == "outputs" and ahead is not None and name in ahead.tables else run.last,
            0,
            *_extent(ledger.warehouse.table(table), state, project.dims),
            *(vars(uses[table]).values() if table in uses else ()),
        )
        for table, state in sorted((ledger.tables() | ledger.tables_ahead()).items())
        for folder, _, name in [table.partition("/")]
        if folder in kinds and (folder == "state" or name in outputs)
    ]


def _uses(project: Project) -> dict[str, Use]:
    """What the tables of state are for, by table; nothing where the program cannot be planned."""
    from ddcore.io.project.kept_plans import kept_plan, planned
    from ddcore.io.state.layout import uses_of

    try:
        return uses_of(planned(project, kept_plan(project)).plan)
    except DdError:
        return {}


def _extent(folder: Location, state: TableState | None, dims: tuple[str, ...]) -> tuple[int, int, int, tuple[str, ...]]:
    """Rows, files, bytes and row columns of a table; it reads the Delta log alone."""
    from ddcore.io.delta.open_tables import open_table
    from ddcore.io.delta.tables import live_files

    if state is None:
        return 0, 0, 0, ()
    files = live_files(folder, state)
    table = open_table(folder, state.version)
    ours = {*dims, "diff", *table.metadata().partition_columns}
    names = [field.name for field in table.schema().fields]
    columns = tuple(name for name in names if name not in ours and not name.startswith("_"))
    return sum(file.rows for file in files), len(files), sum(file.size for file in files), columns


def _tell(
    out: Output,
    project: Project,
    ledger: Ledger,
    summary: dict[str, Any],
    tables: list[_Table],
    *,
    names: VersionNames,
    state: bool,
) -> None:
    run, waiting, unfinished = summary["last_run"], summary["waiting"], summary["unfinished"]
    where = project.origin.get("warehouse", "")
    origin = "" if where in ("", "dd.toml", "default") else f"  (from {'--warehouse' if where == 'flag' else where})"
    lines = [
        ["project", summary["project"]],
        ["warehouse", summary["warehouse"] + origin],
        *_branches(project, summary),
        *_of_readers(project, summary),
    ]
    folded = "nothing yet"
    if run is not None:
        through = " and ".join(names.named(top) for top in summary["folded"])
        folded = f"through {through}  (run {run['run']}, {run['at']}, program {run['program'][:8]})"
    lines.append(["folded", folded])
    lines += _workers(run)
    lines.append(["waiting", f"{_spans(waiting, names)}  (ddcore run)" if waiting else "nothing"])
    if rowless := ledger.without_rows(project.inputs):
        command = f"  (ddcore ingest {rowless[0]} SOURCE)" if len(rowless) == 1 else "  (ddcore ingest INPUT SOURCE)"
        lines.append(["no rows", ", ".join(rowless) + command])
    for name, columns in summary["left_out"].items():
        lines.append(["left out", f"{name}: {', '.join(columns)}  (in dd.toml: declare them, or ignore = [...])"])
    lines += _of_sources(summary["sources"], ledger, project)
    lines += [["table", text] for text in _published(ledger, project)]
    if summary["ahead"]:
        lines.append(["ahead", f"{listed(summary['ahead'])}, by a run of some outputs alone  (all: ddcore run)"])
    if summary["corrections"]:
        following = summary["folded"][0].version + 1
        outputs = ", ".join(summary["corrections"]).replace("outputs/", "")
        lines.append(["corrections", f"of {outputs}, for version {following}  (ddcore run --to-version {following})"])
    if summary["restated"]:
        restated = ledger.restated()
        where = named(restated[0], project.dims) if len(restated) == 1 else shown_frontier(restated, project.dims)
        lines.append(["restated", f"what was folded from {where} on is folded again  (ddcore run)"])
    if unfinished:
        spans = f"versions {unfinished['first']}..{unfinished['last']}"
        if len(project.dims) > 1:
            spans = f"times to {shown(unfinished['last'], project.dims)}"
        lines.append(["unfinished", f"run {unfinished['run']}, {spans}; the next run resumes it"])
    if summary["holder"]:
        lines.append(["in use by", summary["holder"]])
    for line in aligned(lines, width=out.width):
        out.data(line)
    if tables:
        out.data()
        _tell_tables(out, [table for table in tables if table.kind != "state" or state], project.dims)
    parts = [table for table in tables if table.kind == "state"]
    if parts and not state:
        rows, files, bytes_ = (sum(getattr(part, name) for part in parts) for name in ("rows", "files", "bytes"))
        many = f"{count(len(parts))} table{'s' * (len(parts) != 1)}"
        out.data(
            f"state   {many}, {count(rows)} updates in {count(files)} files, {size(bytes_)}  (ddcore status --state)"
        )


def _branches(project: Project, summary: dict[str, Any]) -> Iterator[list[str]]:
    """The branch that this is, and the others."""
    if project.branch:
        yield ["branch", f"{project.branch} of {project.home}"]
    if others := [name for name in summary["branches"] if name != project.branch]:
        yield ["branches", f"{', '.join(others)}  (ddcore branch)"]


def _workers(run: dict[str, Any] | None) -> Iterator[list[str]]:
    """How many workers the last run had, and why."""
    if run is not None and run["workers"]["why"]:
        workers = run["workers"]
        between = f"; {size(workers['sent'])} between them" if workers["sent"] else ""
        yield ["workers", f"{workers['number']}: {workers['why']}{between}"]


def _of_readers(project: Project, summary: dict[str, Any]) -> Iterator[list[str]]:
    """Whose inputs these are, and who reads them."""
    if (upstream := summary["upstream"]) is not None:
        waits = (
            f"{counted(upstream['waiting'], 'change')} of inputs to take over  (ddcore run)"
            if upstream["waiting"]
            else "nothing new"
        )
        yield ["inputs of", f"{upstream['project']}: {upstream['problem'] or waits}"]
    for reader in summary["readers"]:
        tops = " and ".join(named(tuple(top), project.dims) for top in reader["folded"])
        through = f"through {tops}" if tops else "nothing folded yet"
        lost = "  (its warehouse is gone: ddcore readers --forget)" if reader["lost"] else ""
        yield ["read by", f"{reader['project']}: {through}{lost}"]


def _of_sources(fresh: Sequence[Freshness], ledger: Ledger, project: Project) -> list[list[str]]:
    """A line for each declared source, and one where their inputs end at different versions."""
    lines = [["source", f"{one.input}: {one.source.shown}: {one.sentence}{'  (late)' * one.is_late}"] for one in fresh]
    ends = {one.input: ledger.latest_ingested([one.input]) for one in fresh}
    if len(project.dims) == 1 and len({*ends.values()}) > 1:
        told = (f"{name} {'-' if end is None else shown(end, project.dims)}" for name, end in ends.items())
        lines.append(["ends", f"inputs end at different versions: {', '.join(told)}"])
    return lines


def _published(ledger: Ledger, project: Project) -> list[str]:
    """Where each published table is, and of which run."""
    lines = []
    for name, address, there in tables_of(project, ledger):
        run = ledger.run_of(name)
        waits = run is not None and (there is None or there.run != run or not there.is_newest)
        what = "not written yet" if there is None else f"of run {there.run}"
        lines.append(f"{name}: {address}: {what}{'  (ddcore run)' * waits}")
    return lines


def _tell_tables(out: Output, tables: list[_Table], dims: tuple[str, ...]) -> None:
    rows = [["", "", "through", "waiting", "updates", "files", "size", "columns", "state of"]]
    for table in tables:
        name = table.name[:12] if table.kind == "state" else table.name
        through = "-" if table.through is None else shown(table.through, dims)
        waits = count(table.waits) if table.waits else "-"
        extent = [count(table.rows), count(table.files), size(table.bytes)]
        use = f"{table.operator} {table.source_line}: {table.holds}" if table.operator else ""
        rows.append([table.kind, name, through, waits, *extent, ", ".join(table.columns), use])
    if not any(row[-1] for row in rows[1:]):
        rows = [row[:-1] for row in rows]
    for number, line in enumerate(aligned(rows, range(2, 7), out.width, header=True)):
        out.data((line, "" if number else "dim"))


def _spans(times: list[Time], names: VersionNames) -> str:
    """``version 7`` or ``40 versions, 8..47``; with several dimensions ``4 times, day=8..9,revision=0..1``."""
    if len(times) == 1:
        return names.named(times[0])
    first, last = least(times), greatest(times)
    labels = f" ({names.span(first, last)})" if names.span(first, last) else ""
    what = "versions" if len(names.dims) == 1 else "times"
    return f"{count(len(times))} {what}, {span(first, last, names.dims)}{labels}"
