"""``dd ingest``: appends a source's versions to an input's change log."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import UsageError
from ddcore.base.lattice import Frontier
from ddcore.cli.completion import input_names, version_names
from ddcore.cli.options import LABEL, LATE, SKIP_CODE, Call, argument, command, flag, option, whole_number
from ddcore.cli.output import Output, count
from ddcore.io.ledger.labels import label_text
from ddcore.io.project.frontiers import shown_frontier
from ddcore.io.project.project import FILE_NAME
from ddcore.io.project.times import named, span
from ddcore.jobs.report import spelled
from ddcore.text.wording import counted, listed, meant

if TYPE_CHECKING:
    from ddcore.io.project.ingest_settings import IngestSettings
    from ddcore.io.project.project import Project
    from ddcore.jobs.ingest import IngestReport
    from ddcore.jobs.undo import UndoReport

_FOR_ALL = ("version", "late", "allow_gap", "label", "new_warehouse")  # options that fit several inputs


@command("engine master json quiet project")
def ingest(
    call: Call,
    input_name: str | None = argument(
        "INPUT", "The input's name in dd.toml. Default: each with a declared source.", complete=input_names
    ),
    sources: list[str] | None = argument(
        "SOURCE",
        "Parquet, CSV or JSON lines files, folders of them, quoted globs, or Delta tables. Default: what dd.toml "
        "declares.",
    ),
    *,
    append: bool = flag("The sources hold rows to insert, at the next version if they have none."),
    snapshot: bool = flag(
        "Each source is the whole content of the input at one version, the next one: a file, a folder, or a "
        "Delta table, also TABLE@v3 or TABLE@v3..v7. What it changes is ingested."
    ),
    feed: bool = flag(
        "Each source is a Delta table; the changes of its commits since the last ingest are taken in, at the "
        "commits' numbers."
    ),
    upsert: bool = flag(
        "Each row is the newest value of its key; where all other columns are null, the key is deleted."
    ),
    op: str | None = option(
        "COLUMN", "The sources hold events, and this column says what each does: I, U, D, c, u, d, insert, ..."
    ),
    debezium: bool = flag(
        "The sources hold Debezium's events: columns op, before and after, or one column with them as JSON."
    ),
    op_values: list[str] | None = option(
        "KIND=VALUE,...",
        "Other values of the operation column: insert=A,update=B,delete=C; also before=, after= for updates "
        "in two events. May be repeated.",
    ),
    key: str | None = option(
        "COLUMN,...", "The columns by which events say which row they change. Default: the key of the input in dd.toml."
    ),
    order_by: str | None = option(
        "COLUMN,...",
        "The columns that say which of several events of one key and version is the last. Default: their "
        "places in the sources.",
    ),
    version: str | None = option(
        "N|LABEL|next",
        "The version of every row, if the sources have no version column: a number, the label of a version, "
        "or the next version of the input. With several time dimensions the whole time: day=7,revision=1.",
    ),
    diff: int | None = option(
        "N", "The diff of every row, if the sources have no diff column: 1 inserts.", whole_number(1 - 2**63)
    ),
    column: list[str] | None = option(
        "OURS=THEIRS", "A column that has another name in the sources; also for version and diff. May be repeated."
    ),
    format: str | None = option(
        "NAME",
        "Read the sources as Spark reads this format: orc, text, xml, or that of a package. With the engine "
        "spark only.",
    ),
    option: list[str] | None = option("KEY=VALUE", "An option for --format. May be repeated."),
    late: str | None = LATE,
    restate: str | None = option(
        "V|first",
        "Replace the input's history from version V on, or from the sources' first version on, by the "
        "sources. V may be a label, or a date, whose first version it is. With several time dimensions V is a "
        "time: day=3,revision=0.",
        complete=version_names,
    ),
    allow_gap: bool = flag("Accept a version far beyond all others, which is usually a typo."),
    label: list[str] | None = LABEL,
    undo: int | None = option(
        "N",
        "Undo ingest N instead, if none of its versions is folded or it restated. For numbers: ddcore log.",
        whole_number(1),
    ),
    new_warehouse: bool = flag("Create a warehouse in a folder outside of the project's."),
    skip_code: int | None = SKIP_CODE,
) -> int:
    """Append SOURCE's versions to the change log of INPUT: all of it or nothing.

    A source has the input's columns, a version column (or one for each time dimension) and a diff column (1 for an
    inserted row, -1 for a deleted one). Without SOURCE it is the one that dd.toml declares for INPUT, and without INPUT
    each declared one in turn, after what [inputs] from has ingested since. The same content again, under
    any name, changes nothing, and the command says so. The last line of stdout is a JSON object with the result (on a
    terminal: with --json).
    """
    out = call.output
    opened = call.opened()
    options = {
        "append": append, "snapshot": snapshot, "feed": feed, "upsert": upsert, "op": op, "debezium": debezium,
        "op_values": op_values, "key": key, "order_by": order_by, "version": version, "diff": diff,
        "column": column, "format": format, "option": option, "late": late,
        "restate": restate, "allow_gap": allow_gap, "label": label, "new_warehouse": new_warehouse,
    }  # fmt: skip
    if undo is not None:
        from ddcore.io.project.ingest_settings import IngestSettings

        IngestSettings.of(options).check(opened.engine)
        if restate is not None:
            raise UsageError("--undo and --restate: only one of them", "to take a restatement back: --undo N")
        if label:
            raise UsageError("--undo and --label: only one of them", "the labels of an undone ingest go with it")
        _undo(out, opened, undo, input_name, sources, restate=late == "restate")
        return 0
    start = time.monotonic()
    if input_name is not None:
        opened.check_own_input("ingest", input_name)
    taken = None
    if opened.upstream is not None and input_name is None:
        taken = _take_over(out, opened, new_warehouse=new_warehouse)
    ingests = [] if taken is not None and not opened.sources else _ingests(opened, input_name, sources, options)
    for name, paths, settings in ingests:
        settings.check(opened.engine)
        _check_input(opened, name, paths, debezium=settings.form == "debezium", op=settings.op or "")
    from ddcore.cli.notices import notices
    from ddcore.jobs import ingest as job

    results = []
    for name, paths, settings in ingests:
        with out.claimed(), out.progress() as progress, notices(out, progress):
            report = job.ingest(opened, name, paths, settings, engine=opened.engine, listener=progress)
        tell_ingest(out, report, opened.dims, of_several=len(ingests) > 1)
        results.append(spelled(vars(report), opened.dims))
    nothing_new = not taken and all(result["nothing_new"] for result in results)
    if input_name is None:
        over = {} if taken is None else {"taken_over": taken}
        took = round(time.monotonic() - start, 3)
        out.result("ingest", ingests=results, **over, nothing_new=nothing_new, took=took)
    else:
        out.result("ingest", **results[0])
    return skip_code if nothing_new and skip_code is not None else 0


def _take_over(out: Output, project: Project, *, new_warehouse: bool) -> int:
    """Take over what the project has that ingests inputs for this one; return how many changes."""
    from ddcore.cli.notices import notices
    from ddcore.jobs.upstream import take_over

    assert project.upstream is not None
    with out.claimed(), notices(out):
        taken = take_over(project, new_warehouse=new_warehouse)
    what = f"took over {counted(len(taken), 'change')} of inputs" if taken else "nothing new"
    out.say(f"{what} from {project.upstream.root}")
    return len(taken)


def _ingests(
    project: Project, name: str | None, sources: Sequence[str] | None, options: Mapping[str, Any]
) -> list[tuple[str, Sequence[str], IngestSettings]]:
    """What is to be ingested: an input, its sources, and how they are read; of declared ones if none is named."""
    from ddcore.io.project.ingest_settings import IngestSettings

    if name is not None and sources:
        return [(name, sources, IngestSettings.of(options))]
    if name is not None:
        project.input_schema(name)
    names = list(project.sources) if name is None else [name]
    if not names or (name is not None and name not in project.sources):
        raise UsageError(
            f"missing argument '{'INPUT' if name is None else 'SOURCE'}': "
            f"{FILE_NAME} declares no source{'' if name is None else f' for {name}'}",
            f"say: ddcore ingest {name or 'INPUT'} SOURCE...; or declare it: "
            f'[inputs.{name or "INPUT"}] source = {{ path = "..." }}',
        )
    said = [option for option, value in options.items() if value and option not in _FOR_ALL]
    if len(names) > 1 and said:
        raise UsageError(
            f"--{said[0].replace('_', '-')}: says how one input is read",
            f"say which: ddcore ingest INPUT; there are: {listed(names)}",
        )
    return [(name, project.sources[name].locations, project.sources[name].settings(options)) for name in names]


def _check_input(project: Project, name: str, sources: Sequence[str], *, debezium: bool, op: str) -> None:
    """Raise UsageError for an input that ``dd.toml`` lacks. The hint has the schema that the sources look like."""
    try:
        project.input_schema(name)
    except UsageError as error:
        from ddcore.io.sources.guessing import guessed_schema

        line, close = guessed_schema(sources, project.dims, debezium=debezium, op=op), meant(name, project.inputs)
        if not line:
            raise
        hint = f"add a section [inputs.{name}] with its schema, which may be: {line}"
        hint = f"{close} or {hint}" if close else hint
        raise UsageError(error.message, hint) from None


def _undo(
    out: Output, project: Project, number: int, input_name: str | None, sources: list[str] | None, *, restate: bool
) -> None:
    if sources:
        raise UsageError("--undo takes a whole ingest back, not a source", f"say: ddcore ingest --undo {number}")
    if input_name is not None:
        project.input_schema(input_name)
    from ddcore.cli.notices import notices
    from ddcore.jobs import undo as job

    with notices(out):
        report = job.undo(project, number, input_name, restate=restate)
    out.say(
        f"undone: ingest={report.ingest} input={report.input} {_times(report, project.dims)} "
        f"out=+{report.plus}/-{report.minus} took={report.took:.1f}s"
    )
    if report.restates:
        out.say(folds_again(report.restates, project.dims))
    out.result("undo", **spelled(vars(report), project.dims))


def tell_ingest(out: Output, report: IngestReport, dims: Sequence[str], *, of_several: bool = False) -> None:
    """What an ingest did, for people; ``of_several``: the input is named where nothing was new, too."""
    nothing_new = f"nothing new{f' for {report.input}' * of_several}"
    for note in report.notes:
        out.say(("note: ", "yellow"), f"{report.input}: {note}" if of_several else note)
    if report.nothing_new and report.replaces is not None:
        out.say(f"{nothing_new}: the history from {named(report.replaces, dims)} on is the same already")
        return
    if report.nothing_new:
        before = f"ingest {report.ingest} took in the same rows" if report.ingest else "the rows change nothing"
        out.say(f"{nothing_new}: {before}")
        return
    out.say(
        f"ingest={report.ingest} input={report.input} {_times(report, dims)} "
        f"in=+{report.plus}/-{report.minus} rows={report.rows} took={report.took:.1f}s"
    )
    if report.moved:
        rows = "late row was" if report.moved == 1 else "late rows were"
        where = f"version {report.first}" if len(dims) == 1 else "the next open times"
        out.say(f"{count(report.moved)} {rows} moved to {where}")
    if report.restated:
        rows, own = ("late row is", "its") if report.restated == 1 else ("late rows are", "their")
        out.say(f"{count(report.restated)} {rows} at {own} own {'version' if len(dims) == 1 else 'time'}")
    if report.replaces is not None:
        rows = "row was" if report.removed == 1 else "rows were"
        out.say(f"from {named(report.replaces, dims)} on, {count(report.removed)} {rows} replaced by these")
    if report.restates:
        out.say(folds_again(report.restates, dims))


def folds_again(restates: Frontier, dims: Sequence[str]) -> str:
    """From which folded times on the next run folds again, for people."""
    where = named(restates[0], dims) if len(restates) == 1 else shown_frontier(restates, dims)
    return f"the next run folds again from {where} on"


def _times(report: IngestReport | UndoReport, dims: Sequence[str]) -> str:
    """The times of an ingest, and the label of its only version, for people."""
    assert report.first is not None and report.last is not None
    label = getattr(report, "label", None) if report.first == report.last else None
    times = f"{span(report.first, report.last, dims)}{f' ({label_text(label)})' if label else ''}"
    return f"times: {times}" if len(dims) > 1 else f"versions={times}"
