"""``dd diff``: what changed in an output between two versions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import UsageError
from ddcore.cli.completion import branch_names, key_names, version_names
from ddcore.cli.options import (
    LIMIT,
    ON_TERMINAL,
    OR_BEFORE,
    OUTPUT,
    VERTICAL,
    WHERE,
    Call,
    argument,
    command,
    flag,
    option,
)
from ddcore.cli.output import SCHEMA_VERSION, Output
from ddcore.cli.report import write_page
from ddcore.cli.text import aligned, count, laid_out, plain
from ddcore.io.project.times import Time, json_time, shown
from ddcore.io.reading.pairs import cells_of, first_changes, number_of_changes, sign
from ddcore.io.storage import branches
from ddcore.io.storage.branches import MAIN
from ddcore.text.wording import meant

if TYPE_CHECKING:
    from ddcore.io.reading.folded import FoldedLog
    from ddcore.io.reading.pairs import Change
    from ddcore.io.reading.sorted_rows import SortedRows
    from ddcore.program.condition import Condition

LINES = 10_000  # changes of a table that are aligned together

_COLORS = {"+": "green", "-": "red", "~": "yellow"}


@command("json project")
def diff(
    call: Call,
    output: str = OUTPUT,
    a: str | None = argument(
        "A",
        "A version, exclusive, or A..B: a number, latest, an offset: -1, a label, or a date: 2026-11-19, "
        "yesterday. With several time dimensions: day=7,revision=1. With --against: the version to compare at.",
        complete=version_names,
    ),
    b: str | None = argument("B", "A version, inclusive.", complete=version_names),
    *,
    against: str | None = option(
        "NAME",
        "Compare with the same output of a branch, at one version: + rows are only there, - rows only here. main is "
        "the warehouse itself. Default version: the last that both have folded.",
        complete=branch_names,
    ),
    or_before: bool = OR_BEFORE,
    stat: bool = flag("Counts only, version by version."),
    where: str | None = WHERE,
    limit: int | None = LIMIT,
    key: list[str] | None = option(
        "COLUMN",
        "Pair deletes with inserts of the same key, cell by cell. Several: --key a --key b, or a,b. "
        "Default: the output's key in dd.toml, except with --json; --key '' pairs nothing.",
        str,
        complete=key_names,
    ),
    exit_code: bool = flag("Exit with 3 when there are differences."),
    vertical: bool = VERTICAL,
    html: bool = flag("Write a page of HTML, with the rows in a table."),
    file: Path | None = option(
        "FILE", "With --html: write to FILE instead of diff.html; - for stdout.", names=("--output", "-o")
    ),
) -> int:
    """Show what changed in OUTPUT after version A, up to and including version B; or, with --against, how the output
    of a branch differs.

    First the schema, then the counts, then the rows: + inserted, - deleted, ~ changed. A range may be open: `..B`
    begins with nothing, `A..` ends at latest. With A later than B it shows the way back. A value of more than 1,000
    characters is cut, except with --json. With --where it is the difference of the rows that meet the condition, also
    for the counts and for --exit-code. Longer tables are aligned in parts of 10,000 changes.
    """
    out = call.output
    if file is not None and not html:
        raise UsageError("--output: only a page is written to a file", "add --html")
    if html and (out.json or stat):
        raise UsageError("--html: it does not go with --json or --stat", "leave one of them out")
    if against is not None and (html or stat or b is not None):
        extra = "--html" if html else "--stat" if stat else "a second version"
        raise UsageError(f"--against: {extra} does not go with it", "compare at one version: dd diff OUTPUT VERSION")
    if a is None and against is None:
        raise UsageError("diff needs two versions", f"for example: ddcore diff {output} -1 latest")
    from ddcore.io.reading.compared import ComparedRows
    from ddcore.io.reading.folded import output_log

    settings = call.opened()
    log = output_log(settings, output)
    condition = log.condition(where, "--where")
    # The shape of JSON lines follows from the command line alone, not from dd.toml.
    configured = settings.outputs[output].key if output in settings.outputs and not out.json else ()
    keys = _keys(configured, key, log)
    if against is not None:
        branches.check_name(against, "--against")
        branches.require(settings.home, against, "--against")
        sides = settings.branch or MAIN, against
        other = output_log(call.other(against), output)
        time = _common(log, other, sides, a, or_before=or_before)
        rows: SortedRows = ComparedRows(log, other, time, where=condition, by=keys)
        _head(out, log, *_words_at(log, time, sides), rows.sizes())
    else:
        assert a is not None
        start, end = log.readable.range(a, b, or_before=or_before)
        rows = log.rows(start, end, condition, keys)
        if html:
            from ddcore.cli.diff_page import MOST, diff_page

            limit = MOST if limit is None else limit or len(rows)
            write_page(out, file, "diff.html", diff_page(log, (start, end), rows, keys, limit, where=condition))
            return 3 if exit_code and len(rows) else 0
        _head(out, log, *_words_between(log, start, end), rows.sizes())
        if stat:
            _stat(out, log, start, end, condition)
    if not stat and out.json:
        _json_rows(out, log, rows, keys, limit)
    elif not stat:
        _text_rows(out, log, rows, keys, limit, vertical=vertical)
    return 3 if exit_code and any(rows.sizes()) else 0


def _common(log: FoldedLog, other: FoldedLog, sides: tuple[str, str], version: str | None, *, or_before: bool) -> Time:
    """The time at which the output of two branches is compared: by default the last that both have folded."""
    from ddcore.io.reading.compared import check_columns, common_time

    check_columns(log, other, sides)
    if version is None:
        time = common_time(log, other)
    else:
        time = log.readable.time(version, "version", or_before=or_before)
        other.readable.check(time, sides[1])
    log.check(time)
    other.check(time)
    return time


def _keys(configured: Sequence[str], option: list[str] | None, log: FoldedLog) -> list[str]:
    """The key columns; UsageError for a column that does not exist."""
    names = [name.strip() for text in option or [] for name in text.split(",") if name.strip()]
    if option is None:
        names = list(configured)
    columns = list(log.schema)
    for name in names:
        if name not in columns:
            setting = "--key" if option is not None else f"dd.toml: [outputs.{log.name}] key"
            raise UsageError(
                f"{setting}: {log.name} has no column {name!r}; it has: {', '.join(columns)}",
                meant(name, columns),
            )
    return list(dict.fromkeys(names))


def _head(out: Output, log: FoldedLog, said: dict[str, Any], words: str, sizes: tuple[int, int]) -> None:
    """What is compared, in JSON and in words, and how many rows came and went."""
    plus, minus = sizes
    if out.json:
        schema = {name: str(kind) for name, kind in log.schema.items()}
        out.record(schema_version=SCHEMA_VERSION, output=log.name, schema=schema)
        out.record(**said, plus=plus, minus=minus)
        return
    out.data((log.heading, "bold"))
    out.data(f"{words}  ", (f"+{count(plus)}", "green"), " ", (f"-{count(minus)}", "red"))


def _words_between(log: FoldedLog, start: Time | None, end: Time) -> tuple[dict[str, Any], str]:
    said: dict[str, Any] = {"from": json_time(start, log.log.dims), "to": json_time(end, log.log.dims)}
    before, after = log.names.fields(start), log.names.fields(end)
    said |= {name: {"from": before[name], "to": after[name]} for name in after}
    return said, f"{'' if start is None else log.names.shown(start)}..{log.names.shown(end)}"


def _words_at(log: FoldedLog, time: Time, sides: tuple[str, str]) -> tuple[dict[str, Any], str]:
    said = {"at": json_time(time, log.log.dims), **log.names.fields(time), "branch": sides[0], "against": sides[1]}
    return said, f"{sides[0]}..{sides[1]} at {log.names.named(time)}"


def _stat(out: Output, log: FoldedLog, start: Time | None, end: Time, where: Condition | None) -> None:
    steps, dims = log.steps(start, end, where), log.log.dims
    name = "version" if len(dims) == 1 else "time"
    if out.json:
        for version, plus, minus in steps:
            out.record(**{name: json_time(version, dims)}, **log.names.fields(version), plus=plus, minus=minus)
        return
    if steps:
        labels = ["label", *(log.names.label(version) for version, *_ in steps)]
        table = [[name, "inserted", "deleted"]]
        table += [[shown(version, dims), f"+{count(plus)}", f"-{count(minus)}"] for version, plus, minus in steps]
        if any(labels[1:]):
            table = [[*row, label] for row, label in zip(table, labels, strict=True)]
        out.data()
        for line in aligned(table, right=(0, 1, 2), width=out.width):
            out.data(line)


def _json_rows(out: Output, log: FoldedLog, rows: SortedRows, keys: list[str], limit: int | None) -> None:
    names = list(log.schema)

    def named(row: tuple[Any, ...] | None) -> dict[str, Any] | None:
        return None if row is None else {name: plain(value) for name, value in zip(names, row, strict=True)}

    for change in first_changes(rows, keys, limit or 0):
        if out.unread:
            return
        if keys:
            out.record(before=named(change.before), after=named(change.after), count=change.times)
        else:
            sign = 1 if change.before is None else -1
            out.record(row=named(change.after if change.before is None else change.before), diff=sign * change.times)


def _text_rows(
    out: Output, log: FoldedLog, rows: SortedRows, keys: list[str], limit: int | None, *, vertical: bool
) -> None:
    limit = (ON_TERMINAL if out.on_terminal else 0) if limit is None else limit
    changes, shown, times = first_changes(rows, keys, limit and limit + 1), 0, 0
    while part := list(islice(changes, min(LINES, limit - shown) if limit else LINES)):
        if out.unread:
            return
        _table(out, log, part, follows=bool(shown), vertical=vertical)
        shown, times = shown + len(part), times + sum(change.times for change in part)
    if limit and next(changes, None):
        out.rest(_rest(rows, keys, shown, times))


def _rest(rows: SortedRows, keys: list[str], shown: int, times: int) -> str:
    """How many changes there are beyond some, which stand for ``times`` rows. Sorts no rows to say it."""
    if not keys:  # as in the heading, each row as often as it occurs
        return f"{count(sum(rows.sizes()) - times)} more"
    return f"{count(number_of_changes(rows, keys, len(rows)) - shown)} more" if rows.is_known else "more"


def _table(out: Output, log: FoldedLog, changes: Sequence[Change], *, follows: bool, vertical: bool) -> None:
    """Some changes; ``follows``: after others."""
    cells = [[sign(change), *cells_of(change)] for change in changes]
    numbers = [1 + number for number in log.numbers]
    lines = laid_out(["", *log.schema], cells, numbers, out.width, vertical=vertical)
    if follows and not vertical:
        next(lines)  # the header
    else:
        out.data()
    for row, line in lines:
        out.data((line, "dim" if row is None else _COLORS[cells[row][0][0]]))
