"""``dd plan``: the dataflow of the program, as text, JSON, Mermaid or SVG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import UsageError
from ddcore.base.record import record
from ddcore.cli.completion import one_of
from ddcore.cli.operators import entered, loops_around
from ddcore.cli.options import SELECT, Call, command, flag, option, whole_number
from ddcore.cli.output import SCHEMA_VERSION, Output, write_file
from ddcore.cli.text import aligned, count, json_text, titled
from ddcore.cli.text import size as size_text
from ddcore.io.project.times import named
from ddcore.text.wording import meant

if TYPE_CHECKING:
    from ddcore.drawing.diagram import Box, Diagram, Edge
    from ddcore.io.project.project import Project
    from ddcore.planning.plan import Plan
    from ddcore.sql.source import Decision

FORMATS = ("text", "mermaid", "svg", "json")
_ENDINGS = {".svg": "svg", ".mmd": "mermaid", ".json": "json"}
WIDTH = 100  # columns, where no terminal says otherwise
_ROWS = 20  # of each output that --rows shows

Extent = tuple[int, int]  # updates and bytes of a table


@command("json project")
def plan(
    call: Call,
    *,
    form: str | None = option(
        "|".join(FORMATS),
        "A listing for people, a drawing for Mermaid or as SVG, or one JSON line. Default: what the file is "
        "called, .svg, .mmd or .json; else text.",
        names=["--format"],
        complete=one_of(*FORMATS),
    ),
    select: list[str] | None = SELECT,
    file: Path | None = option("FILE", "Write to FILE instead of stdout.", names=("--output", "-o")),
    against: str | None = option(
        "last|RUN|VERSION|PATH",
        "Compare with an earlier program: that of the last run, of run RUN, of the run that folded a version (a label "
        "or a date), or of the file or the project at PATH. Says what becomes of each output and arrangement.",
    ),
    rows: bool = flag(
        "With --against last: also what will change in the present contents of each output. The program is evaluated "
        "on the inputs from nothing, in this process, as verify does; nothing is written."
    ),
    limit: int | None = option(
        "N", f"With --rows: at most N rows of each output; 0 for all. Default: {_ROWS}.", whole_number(0)
    ),
    exit_code: bool = flag("With --against: exit with 3 when an output changes."),
) -> int:
    """Show the dataflow: operators and their lines in the program, loops, and the arrangements that are stored.

    It loads the program and reads no data. If there is a warehouse, the listing has the size of each arrangement. With
    --against it shows what a changed program will do, before it is run.
    """
    form = "json" if call.as_json else form or _ENDINGS.get("" if file is None else file.suffix.lower(), "text")
    if form not in FORMATS:
        raise UsageError(f"--format {form!r}: there is no such format", meant(form, FORMATS) or ", ".join(FORMATS))
    out = Output(json=form == "json")
    if against is not None:
        if file is not None or form not in ("text", "json"):
            raise UsageError("--against: it is text or JSON, and on stdout", "leave --output and --format out")
        if select:
            raise UsageError("--select: --against compares whole programs", "leave one of the two out")
        if rows and against != "last":
            raise UsageError(f"--rows: what changes beside run {against} is not known by rows", "say --against last")
        return _against(out, call.opened(), against, rows=rows, limit=_ROWS if limit is None else limit,
                        exit_code=exit_code)  # fmt: skip
    if rows or exit_code or limit is not None:
        raise UsageError("--rows, --limit and --exit-code: only with --against", "say --against last")
    settings = call.opened()
    from ddcore.drawing.diagram import diagram
    from ddcore.io.project.program import load, outputs_named, plan_of

    with out.claimed():
        program = load(settings)
        built = plan_of(program, settings)
        if select:
            built = plan_of(program, settings, outputs_named(program, settings, built, select))
    for note in program.notes:
        out.say(f"note: {note}")
    sheet = _Sheet(settings, built, diagram(built), program.comments, tuple(program.decisions))
    if form == "json" and file is None:
        out.record(**_record(sheet))
        return 0
    lines = _rendered(form, sheet, (out.width or WIDTH) if file is None else WIDTH)
    if file is not None:
        write_file(file, "".join(f"{line}\n" for line in lines))
        return 0
    for line in lines:
        out.data(line)
    return 0


def _against(out: Output, settings: Project, text: str, *, rows: bool, limit: int, exit_code: bool) -> int:
    """Tell what becomes of outputs and arrangements, beside an earlier program."""
    from ddcore.cli.comparison import tell_comparison, tell_rows
    from ddcore.io.ledger.ledger import Ledger
    from ddcore.io.project.program import load, plan_of
    from ddcore.io.storage.store import is_folder
    from ddcore.jobs.comparison import compared, former_of

    folder = settings.tables
    ledger = Ledger.load(folder) if is_folder(folder.ledger) else None
    with out.claimed():
        former = former_of(settings, ledger, text)
        built = plan_of(load(settings), settings)
    comparison = compared(built, former)
    notes = _next_run(settings) if text == "last" and comparison.fingerprint != former.fingerprint else []
    fields: dict[str, Any] = {**comparison.fields(), "next_run": notes}
    if not out.json:
        same = "" if comparison.fingerprint != former.fingerprint else ": it is the same one"
        run = former.run
        through = "" if run is None else f", folded through {named(run.last, settings.dims)}"
        what = f"program {built.fingerprint[:8]} beside program {former.fingerprint[:8]} of {former.name}"
        out.data(f"{what}{through}{same}")
        for note in notes:
            out.data(note)
        tell_comparison(out, comparison, out.data, counted=not notes)
    if rows:
        from ddcore.jobs.forecast import Forecast

        with out.claimed():
            forecast = Forecast(replace(settings, engine="inline"))
            found = [*forecast.rows()]
        number, by, took = forecast.evaluated
        at = named(forecast.time, settings.dims)
        if not out.json:
            out.data("")
        fields["rows"] = tell_rows(out, found, out.data, limit=limit)
        fields["evaluated"] = {"rows": number, "by": by, "took": round(took, 3)}
        if not out.json:
            out.data(
                f"evaluated on {count(number)} rows of inputs at {at}, by {by} in {took:.1f}s; nothing was written"
            )
    if out.json:
        out.record(schema_version=SCHEMA_VERSION, **fields)
    return 3 if exit_code and comparison.changed else 0


def _next_run(settings: Project) -> list[str]:
    """What the next run does about the change, in the words of ``run --dry-run``."""
    from ddcore.base.errors import ProgramChanged
    from ddcore.jobs import replay

    try:
        return replay.run(settings, dry_run=True).notes
    except ProgramChanged as error:
        return [f"the next run is refused: {error.message}", error.hint]


@record
class _Sheet:
    """A plan to show: ``comments`` are those of the program's text, by view, ``decisions`` what planning of SQL decided
    about joins.
    """

    project: Project
    built: Plan
    drawing: Diagram
    comments: Mapping[str, str]
    decisions: Sequence[Decision]

    @property
    def columns_of_inputs(self) -> Iterator[tuple[str, list[str], list[str]]]:
        """The inputs, with the columns that something reads, and the others."""
        for name, schema in self.built.inputs.items():
            read = self.built.read[name]
            yield (
                name,
                [column for column in schema if column in read],
                [column for column in schema if column not in read],
            )

    @property
    def shared(self) -> Iterator[tuple[Box, Sequence[str]]]:
        """The operators that stand at several places of the program, and are computed once for all of them."""
        by_node = self.drawing.by_node
        boxes = {by_node[node]: lines for node, lines in self.built.again.items() if node in by_node}
        return ((box, boxes[box]) for box in self.drawing.boxes if box in boxes)

    @cached_property
    def sizes(self) -> dict[str, Extent]:
        """The extents of stored arrangements by table."""
        return _extents(self.project, self.drawing)


def _rendered(form: str, sheet: _Sheet, width: int) -> Iterable[str]:
    if form == "mermaid":
        from ddcore.drawing.mermaid import mermaid

        return mermaid(sheet.drawing).splitlines()
    if form == "svg":
        from ddcore.drawing.svg import svg

        return svg(sheet.drawing, sheet.project.program).splitlines()
    if form == "json":
        return [json_text(_record(sheet))]
    return _listing(sheet, width)


def _extents(project: Project, drawing: Diagram) -> dict[str, Extent]:
    """The updates and bytes of the arrangements that the newest run has, by table; it reads Delta logs alone."""
    from ddcore.io.delta.tables import live_files
    from ddcore.io.ledger.ledger import Ledger
    from ddcore.io.storage.store import is_folder

    folder = project.tables
    live = Ledger.load(folder).tables() if is_folder(folder.ledger) else {}
    stored = [index.table for index in drawing.indexes if index.table in live]
    files = {table: live_files(folder.table(table), live[table]) for table in stored}
    return {table: (sum(file.rows for file in of), sum(file.size for file in of)) for table, of in files.items()}


# --- text -------------------------------------------------------------------------------------------------------------


def _listing(sheet: _Sheet, width: int) -> Iterator[str]:
    project, built, drawing, sizes = sheet.project, sheet.built, sheet.drawing, sheet.sizes
    counts = {
        "input": built.inputs, "output": built.outputs, "operator": built.operators, "loop": built.loops,
        "stored arrangement": drawing.indexes,
    }  # fmt: skip
    yield f"{project.program}  program {built.fingerprint[:8]}"
    yield ", ".join(f"{count(len(of))} {word}{'s' * (len(of) != 1)}" for word, of in counts.items())
    yield ""
    frames = {frame.scope: frame for frame in drawing.frames}
    parents = {frame.scope: frame.parent for frame in drawing.frames}
    rows = [["", "operators", "read", "from", "columns"]]
    open_: list[int] = []
    for box in drawing.boxes:
        around = loops_around(parents, box.loop)
        for depth, scope in entered(open_, around):
            name, _, source_line = frames[scope].name.rpartition(" (")
            rows.append(["", f"{'│ ' * depth}loop {name}", "", source_line.rstrip(")"), frames[scope].limit])
        open_ = around
        reads = ", ".join(map(_read, drawing.reads(box)))
        rows.append([str(box.number), "│ " * len(around) + box.title, reads, box.source_line, ", ".join(box.columns)])
    yield from aligned(rows, [0], width, header=True)
    yield from _done(sheet, width)
    rows = [[name, " ".join(comment.split())] for name, comment in sheet.comments.items()]
    yield from titled(["view", "comment in the program"], rows, width)
    rows = []
    for index in drawing.indexes:
        updates, size = sizes.get(index.table, (None, None))
        users = "itself" if index.own and not index.readers else ", ".join(str(box.number) for box in index.readers)
        rows.append([
            index.label, f"{index.box.number} {index.box.title}", index.key_text, users,
            "-" if updates is None else count(updates), "-" if size is None else size_text(size), index.table,
        ])  # fmt: skip
    yield from titled(["", "arrangement of", "key", "read by", "updates", "size", "table"], rows, width, [4, 5])


def _done(sheet: _Sheet, width: int) -> Iterator[str]:
    """What planning made of the program: less columns, fewer operators, joins in an order."""
    read = ([name, ", ".join(read), ", ".join(others)] for name, read, others in sheet.columns_of_inputs)
    yield from titled(["input", "columns read", "not read"], read, width)
    decided = ([one.source_line, one.what, one.text] for one in sheet.decisions)
    yield from titled(["from", "", "joins and conditions of SQL"], decided, width)
    shared = ([str(box.number), box.title, ", ".join(lines)] for box, lines in sheet.shared)
    yield from titled(["", "computed once", "also for"], shared, width, [0])


def _read(edge: Edge) -> str:
    index = "" if edge.index is None else f" {edge.index.label}"
    return f"{'next round: ' if edge.feedback else ''}{edge.source.number}{index}"


# --- JSON -------------------------------------------------------------------------------------------------------------


def _record(sheet: _Sheet) -> dict[str, Any]:
    """All that the listing has, uncut."""
    project, built, drawing, sizes = sheet.project, sheet.built, sheet.drawing, sheet.sizes
    return {
        "schema_version": SCHEMA_VERSION,
        "program": project.program,
        "fingerprint": built.fingerprint,
        "comments": dict(sheet.comments),
        "inputs": [
            {"input": name, "columns_read": read, "columns_not_read": others}
            for name, read, others in sheet.columns_of_inputs
        ],
        "decisions": [{"source_line": one.source_line, "kind": one.what, "text": one.text} for one in sheet.decisions],
        "shared": [{"operator": box.number, "also_at": list(lines)} for box, lines in sheet.shared],
        "operators": [_operator(drawing, box) for box in drawing.boxes],
        "loops": [
            {
                "loop": frame.scope, "in": frame.parent or None, "name": frame.name, "max_rounds": frame.max_rounds,
                "at_limit": "return" if frame.returns else "fail", "priorities": frame.prioritized,
            }
            for frame in drawing.frames
        ],
        "arrangements": [
            {
                "arrangement": index.label, "of": index.box.number, "key": list(index.key),
                "columns": list(index.columns), "own": index.own, "read_by": [box.number for box in index.readers],
                "table": index.table, "updates": sizes.get(index.table, (None, None))[0],
                "bytes": sizes.get(index.table, (None, None))[1],
            }
            for index in drawing.indexes
        ],
    }  # fmt: skip


def _operator(drawing: Diagram, box: Box) -> dict[str, Any]:
    return {
        "operator": box.number, "kind": box.kind, "title": box.title, "source_lines": list(box.source_lines),
        "columns": list(box.columns), "loop": box.loop or None,
        "reads": [
            {
                "from": edge.source.number, "next_round": edge.feedback,
                "arrangement": None if edge.index is None else edge.index.label,
            }
            for edge in drawing.reads(box)
        ],
    }  # fmt: skip
