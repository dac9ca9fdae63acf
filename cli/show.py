"""``dd show``: an output as of a version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ddcore.cli.options import (
    DebugOption,
    JsonOption,
    LimitOption,
    ProjectOption,
    WarehouseOption,
    filled,
    open_project,
)
from ddcore.cli.output import SCHEMA_VERSION, Output, aligned, cell, count, plain
from ddcore.cli.versions import one_version

if TYPE_CHECKING:
    import polars as pl

    from ddcore.cli.folded import OutputLog

__all__ = ["show"]

ON_TERMINAL = 100  # rows that a person is shown unless --limit says otherwise


def show(
    output: Annotated[
        str, typer.Argument(metavar="OUTPUT", parser=filled, help="The output's name.", show_default=False)
    ],
    *,
    at: Annotated[
        str,
        typer.Option("--at", metavar="V", help="As of this version, inclusive. A number, latest, or an offset: -1."),
    ] = "latest",
    limit: LimitOption = None,
    as_json: JsonOption = False,
    project: ProjectOption = None,
    warehouse: WarehouseOption = None,
    debug: DebugOption = False,
) -> int:
    """Show OUTPUT as of a version: its rows, and how often each is there where that is not once."""
    out = Output(json=as_json)
    from ddcore.cli.folded import output_log

    log = output_log(open_project(project, warehouse=warehouse), output)
    version = one_version(at, log.latest, "--at")
    rows = log.accumulate(version)
    if out.json:
        _json_rows(out, log, rows, version, limit)
    else:
        _text_rows(out, log, rows, version, limit)
    return 0


def _json_rows(out: Output, log: OutputLog, rows: pl.DataFrame, version: int, limit: int | None) -> None:
    schema = {name: str(kind) for name, kind in log.schema.items()}
    out.record(schema_version=SCHEMA_VERSION, output=log.name, schema=schema)
    out.record(at=version, rows=len(rows))
    names = list(log.schema)
    for row in _first(rows, names, limit or 0).iter_rows():
        out.record(row={name: plain(value) for name, value in zip(names, row[:-1], strict=True)}, count=row[-1])


def _text_rows(out: Output, log: OutputLog, rows: pl.DataFrame, version: int, limit: int | None) -> None:
    limit = (ON_TERMINAL if out.on_terminal else 0) if limit is None else limit
    names = list(log.schema)
    shown = _first(rows, names, limit)
    columns = ", ".join(f"{name} {kind}" for name, kind in log.schema.items())
    out.data(out.painted(f"{log.name} ({columns})", "bold"))
    out.data(f"at {version}  {count(len(rows))} {'row' if len(rows) == 1 else 'rows'}")
    if not len(shown):
        return
    counted = bool((rows["count"] != 1).any())
    table = [[*names, *(["count"] if counted else [])]]
    for row in shown.iter_rows():
        table.append([*map(cell, row[:-1]), *([count(row[-1])] if counted else [])])
    numbers = [place for place, kind in enumerate(log.schema.values()) if kind.name in ("int64", "float64", "decimal")]
    out.data("")
    for place, line in enumerate(aligned(table, right=[*numbers, len(names)], width=out.width)):
        out.data(line if place else out.painted(line, "dim"))
    if len(rows) > len(shown):
        out.say(f"... and {count(len(rows) - len(shown))} more; all of them with --limit 0")


def _first(rows: pl.DataFrame, names: list[str], limit: int) -> pl.DataFrame:
    return rows.bottom_k(limit, by=names).sort(names) if 0 < limit < len(rows) else rows.sort(names)
