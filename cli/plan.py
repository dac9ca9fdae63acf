"""``dd plan``: the dataflow of the program, as text, JSON, Mermaid or SVG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import UsageError
from ddcore.cli.completion import one_of
from ddcore.cli.operators import entered, loops_around
from ddcore.cli.options import DebugOption, JsonOption, ProjectOption, WarehouseOption, open_project, option
from ddcore.cli.output import SCHEMA_VERSION, Output, write_file
from ddcore.cli.text import aligned, count, json_text
from ddcore.cli.text import size as size_text
from ddcore.text.wording import meant

if TYPE_CHECKING:
    from ddcore.drawing.diagram import Box, Diagram, Edge
    from ddcore.io.project.project import Project
    from ddcore.planning.plan import Plan

__all__ = ["plan"]

FORMATS = ("text", "mermaid", "svg", "json")
_ENDINGS = {".svg": "svg", ".mmd": "mermaid", ".json": "json"}
WIDTH = 100  # columns, where no terminal says otherwise

Extent = tuple[int, int]  # updates and bytes of a table


def plan(
    *,
    form: str | None = option(
        "|".join(FORMATS),
        "A listing for people, a drawing for Mermaid or as SVG, or one JSON line. Default: what the file is "
        "called, .svg, .mmd or .json; else text.",
        names=["--format"],
        complete=one_of(*FORMATS),
    ),
    file: Path | None = option("FILE", "Write to FILE instead of stdout.", names=("--output", "-o")),
    as_json: JsonOption = False,
    project: ProjectOption = None,
    warehouse: WarehouseOption = None,
    debug: DebugOption = False,
) -> int:
    """Show the dataflow: operators and their lines in the program, loops, and the arrangements that are stored.

    It loads the program and reads no data. If there is a warehouse, the listing has the size of each arrangement.
    """
    form = "json" if as_json else form or _ENDINGS.get("" if file is None else file.suffix.lower(), "text")
    if form not in FORMATS:
        raise UsageError(f"--format {form!r}: there is no such format", meant(form, FORMATS) or ", ".join(FORMATS))
    out = Output(json=form == "json")
    settings = open_project(project, warehouse=warehouse)
    from ddcore.drawing.diagram import diagram
    from ddcore.io.project.program import load_plan

    with out.claimed():
        built = load_plan(settings)
    drawing = diagram(built)
    if form == "json" and file is None:
        out.record(**_record(settings, built, drawing, _extents(settings, drawing)))
        return 0
    lines = _rendered(form, settings, built, drawing, (out.width or WIDTH) if file is None else WIDTH)
    if file is not None:
        write_file(file, "".join(f"{line}\n" for line in lines))
        return 0
    for line in lines:
        out.data(line)
    return 0


def _rendered(form: str, project: Project, built: Plan, drawing: Diagram, width: int) -> Iterable[str]:
    if form == "mermaid":
        from ddcore.drawing.mermaid import mermaid

        return mermaid(drawing).splitlines()
    if form == "svg":
        from ddcore.drawing.svg import svg

        return svg(drawing, project.program).splitlines()
    sizes = _extents(project, drawing)
    if form == "json":
        return [json_text(_record(project, built, drawing, sizes))]
    return _listing(project, built, drawing, sizes, width)


def _extents(project: Project, drawing: Diagram) -> dict[str, Extent]:
    """The updates and bytes of the arrangements that the newest run has, by table; it reads Delta logs alone."""
    from ddcore.io.delta.tables import live_files
    from ddcore.io.ledger.ledger import Ledger
    from ddcore.io.storage.store import is_folder
    from ddcore.io.storage.warehouse import Warehouse

    place = Warehouse(project.warehouse)
    live = Ledger.load(place).tables() if is_folder(place.ledger) else {}
    stored = [each.table for each in drawing.indexes if each.table in live]
    files = {table: live_files(place.table(table), live[table]) for table in stored}
    return {table: (sum(each.rows for each in of), sum(each.size for each in of)) for table, of in files.items()}


# --- text -------------------------------------------------------------------------------------------------------------


def _listing(project: Project, built: Plan, drawing: Diagram, sizes: dict[str, Extent], width: int) -> Iterator[str]:
    counts = {
        "input": built.inputs, "output": built.outputs, "operator": built.operators, "loop": built.loops,
        "stored arrangement": drawing.indexes,
    }  # fmt: skip
    yield f"{project.program}  program {built.fingerprint[:8]}"
    yield ", ".join(_several(len(things), word) for word, things in counts.items())
    yield ""
    frames = {frame.scope: frame for frame in drawing.frames}
    parents = {frame.scope: frame.parent for frame in drawing.frames}
    rows = [["", "operators", "read", "from", "columns"]]
    open_: list[int] = []
    for box in drawing.boxes:
        around = loops_around(parents, box.loop)
        for depth, scope in entered(open_, around):
            name, _, place = frames[scope].name.rpartition(" (")
            rows.append(["", f"{'│ ' * depth}loop {name}", "", place.rstrip(")"), frames[scope].limit])
        open_ = around
        reads = ", ".join(map(_read, drawing.reads(box)))
        rows.append([str(box.number), "│ " * len(around) + box.title, reads, box.place, ", ".join(box.columns)])
    yield from aligned(rows, [0], width, header=True)
    if not drawing.indexes:
        return
    yield ""
    rows = [["", "arrangement of", "key", "read by", "updates", "size", "table"]]
    for index in drawing.indexes:
        updates, size = sizes.get(index.table, (None, None))
        users = "itself" if index.own and not index.readers else ", ".join(str(box.number) for box in index.readers)
        rows.append([
            index.label, f"{index.box.number} {index.box.title}", index.key_text, users,
            "-" if updates is None else count(updates), "-" if size is None else size_text(size), index.table,
        ])  # fmt: skip
    yield from aligned(rows, [4, 5], width, header=True)


def _read(edge: Edge) -> str:
    index = "" if edge.index is None else f" {edge.index.label}"
    return f"{'next round: ' if edge.feedback else ''}{edge.source.number}{index}"


def _several(number: int, word: str) -> str:
    return f"{count(number)} {word}{'' if number == 1 else 's'}"


# --- JSON -------------------------------------------------------------------------------------------------------------


def _record(project: Project, built: Plan, drawing: Diagram, sizes: dict[str, Extent]) -> dict[str, Any]:
    """All that the listing has, uncut."""
    return {
        "schema_version": SCHEMA_VERSION,
        "program": project.program,
        "fingerprint": built.fingerprint,
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
        "operator": box.number, "kind": box.kind, "title": box.title, "places": list(box.places),
        "columns": list(box.columns), "loop": box.loop or None,
        "reads": [
            {
                "from": edge.source.number, "next_round": edge.feedback,
                "arrangement": None if edge.index is None else edge.index.label,
            }
            for edge in drawing.reads(box)
        ],
    }  # fmt: skip
