"""``dd show``: an output as of a version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcore.cli.completion import version_names
from ddcore.cli.options import (
    LIMIT,
    ON_TERMINAL,
    OR_BEFORE,
    OUTPUT,
    VERTICAL,
    WHERE,
    Call,
    command,
    option,
)
from ddcore.cli.output import SCHEMA_VERSION, Output
from ddcore.cli.text import cell, count, laid_out, plain
from ddcore.io.project.times import Time, json_time

if TYPE_CHECKING:
    import polars as pl

    from ddcore.io.reading.folded import FoldedLog
    from ddcore.io.reading.sorted_rows import SortedRows

LINES = 10_000  # rows of a table that are aligned together


@command("json project")
def show(
    call: Call,
    output: str = OUTPUT,
    *,
    at: str = option(
        "V",
        "As of this version, inclusive: a number, latest, an offset: -1, a label, or a date: 2026-11-19, "
        "yesterday. With several time dimensions: day=7,revision=1.",
        default="latest",
        complete=version_names,
    ),
    or_before: bool = OR_BEFORE,
    where: str | None = WHERE,
    limit: int | None = LIMIT,
    vertical: bool = VERTICAL,
) -> int:
    """Show the rows of OUTPUT as of a version, sorted, with a count where rows occur several times.

    A value of more than 1,000 characters is cut, except with --json. Into a pipe or a file rows are written as they are
    read: a table is aligned in parts of 10,000 rows, and longer ones always have the count.
    """
    out = call.output
    from ddcore.io.reading.folded import output_log

    log = output_log(call.opened(), output)
    condition = log.condition(where, "--where")
    time = log.readable.time(at, "--at", or_before=or_before)
    rows = log.rows(None, time, condition)
    if out.json:
        _json_rows(out, log, rows, time, limit)
    else:
        _text_rows(out, log, rows, time, limit, vertical=vertical)
    return 0


def _json_rows(out: Output, log: FoldedLog, rows: SortedRows, time: Time, limit: int | None) -> None:
    schema = {name: str(kind) for name, kind in log.schema.items()}
    out.record(schema_version=SCHEMA_VERSION, output=log.name, schema=schema)
    out.record(at=json_time(time, log.log.dims), **log.names.fields(time), rows=rows.total())
    names = list(log.schema)
    for part in rows.parts(LINES, limit or 0):
        for row in part.iter_rows():
            if out.unread:
                return
            out.record(row={name: plain(value) for name, value in zip(names, row[:-1], strict=True)}, count=row[-1])


def _text_rows(out: Output, log: FoldedLog, rows: SortedRows, time: Time, limit: int | None, *, vertical: bool) -> None:
    limit = (ON_TERMINAL if out.on_terminal else 0) if limit is None else limit
    total = rows.total()
    out.data((log.heading, "bold"))
    out.data(f"at {log.names.shown(time)}  {count(total)} {'row' if total == 1 else 'rows'}")
    shown, times, repeated, is_cut = 0, 0, False, False
    for part in rows.parts(LINES, limit and limit + 1):
        is_cut = 0 < limit < shown + len(part)
        listed = part.head(limit - shown) if is_cut else part
        if not shown:  # when the header is written, no more than this part is known
            repeated = len(part) == LINES or bool((listed["diff"] != 1).any())
        if len(listed) and not out.unread:
            _table(out, log, listed, repeated=repeated, follows=bool(shown), vertical=vertical)
        if out.unread:
            return
        shown, times = shown + len(listed), times + sum(listed["diff"].to_list())
    if is_cut:
        out.rest(f"{count(total - times)} more" if total > times else "more")


def _table(out: Output, log: FoldedLog, part: pl.DataFrame, *, repeated: bool, follows: bool, vertical: bool) -> None:
    """Some rows; ``repeated``: with their counts; ``follows``: after others."""
    names = list(log.schema)
    cells = [[*map(cell, row[:-1]), *([count(row[-1])] if repeated else [])] for row in part.iter_rows()]
    headers = [*names, *(["times" if "count" in names else "count"] if repeated else [])]
    lines = laid_out(headers, cells, [*log.numbers, len(names)], out.width, vertical=vertical)
    if follows and not vertical:
        next(lines)  # the header
    else:
        out.data()
    for number, line in lines:
        out.data((line, "dim" if number is None else ""))
