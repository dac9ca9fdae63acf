"""``dd show``: an output as of a version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ddcore.cli.completion import version_names
from ddcore.cli.options import (
    ON_TERMINAL,
    DebugOption,
    JsonOption,
    LimitOption,
    OrBeforeOption,
    OutputArgument,
    ProjectOption,
    VerticalOption,
    WarehouseOption,
    open_project,
)
from ddcore.cli.output import SCHEMA_VERSION, Output
from ddcore.cli.text import cell, count, laid_out, plain
from ddcore.io.times import Time, json_time

if TYPE_CHECKING:
    import polars as pl

    from ddcore.io.folded import FoldedLog

__all__ = ["show"]


def show(
    output: OutputArgument,
    *,
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="V",
            help="As of this version, inclusive: a number, latest, an offset: -1, a label, or a date: 2026-11-19, "
            "yesterday. With several time dimensions: day=7,revision=1.",
            autocompletion=version_names,
        ),
    ] = "latest",
    or_before: OrBeforeOption = False,
    limit: LimitOption = None,
    vertical: VerticalOption = False,
    as_json: JsonOption = False,
    project: ProjectOption = None,
    warehouse: WarehouseOption = None,
    debug: DebugOption = False,
) -> int:
    """Show the rows of OUTPUT as of a version, sorted, with a count where rows occur several times.

    A value of more than 1,000 characters is cut, except with --json.
    """
    out = Output(json=as_json)
    from ddcore.io.folded import output_log

    log = output_log(open_project(project, warehouse=warehouse), output)
    time = log.readable.time(at, "--at", or_before=or_before)
    rows = log.accumulate(time)
    if out.json:
        _json_rows(out, log, rows, time, limit)
    else:
        _text_rows(out, log, rows, time, limit, vertical=vertical)
    return 0


def _json_rows(out: Output, log: FoldedLog, rows: pl.DataFrame, time: Time, limit: int | None) -> None:
    schema = {name: str(kind) for name, kind in log.schema.items()}
    out.record(schema_version=SCHEMA_VERSION, output=log.name, schema=schema)
    out.record(at=json_time(time, log.log.dims), **log.names.fields(time), rows=len(rows))
    names = list(log.schema)
    for row in _first(rows, names, limit or 0).iter_rows():
        if out.unread:
            return
        out.record(row={name: plain(value) for name, value in zip(names, row[:-1], strict=True)}, count=row[-1])


def _text_rows(
    out: Output, log: FoldedLog, rows: pl.DataFrame, time: Time, limit: int | None, *, vertical: bool
) -> None:
    limit = (ON_TERMINAL if out.on_terminal else 0) if limit is None else limit
    names = list(log.schema)
    part = _first(rows, names, limit)
    out.data((log.heading, "bold"))
    out.data(f"at {log.names.shown(time)}  {count(len(rows))} {'row' if len(rows) == 1 else 'rows'}")
    if not len(part):
        return
    repeated = bool((rows["diff"] != 1).any())
    cells = [[*map(cell, row[:-1]), *([count(row[-1])] if repeated else [])] for row in part.iter_rows()]
    headers = [*names, *(["times" if "count" in names else "count"] if repeated else [])]
    out.data()
    for place, line in laid_out(headers, cells, [*log.numbers, len(names)], out.width, vertical=vertical):
        out.data((line, "dim" if place is None else ""))
    if len(rows) > len(part):
        out.say(f"... and {count(len(rows) - len(part))} more; all of them with --limit 0")


def _first(rows: pl.DataFrame, names: list[str], limit: int) -> pl.DataFrame:
    """The first ``limit`` rows (0: all) of the sorted ones. O(n log n): Polars' ``bottom_k`` puts nulls elsewhere."""
    ordered = rows.sort(names)
    return ordered.head(limit) if limit else ordered
