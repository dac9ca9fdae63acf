"""The page of ``dd diff --html``: what changed in an output, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ddcore.cli.charts import bars
from ddcore.cli.page import Html, figure, page, section, tag, tiles
from ddcore.cli.text import count
from ddcore.io.project.times import shown
from ddcore.io.reading.diff_table import diff_table
from ddcore.io.reading.pairs import changes_of, number_of_changes

if TYPE_CHECKING:
    from ddcore.io.project.times import Time
    from ddcore.io.reading.folded import FoldedLog
    from ddcore.io.reading.pairs import Change
    from ddcore.io.reading.sorted_rows import SortedRows
    from ddcore.program.condition import Condition

MOST = 10_000  # rows of a page
_STEPS = 40  # versions that are drawn


def diff_page(
    log: FoldedLog, span: tuple[Time | None, Time], rows: SortedRows, keys: Sequence[str], limit: int, *,
    where: Condition | None,
) -> str:  # fmt: skip
    """The page for the changes in a range, paired by key; at most ``limit`` rows are listed."""
    (start, end), (plus, minus), names = span, rows.sizes(), list(log.schema)
    begin = "nothing" if start is None else log.names.shown(start)
    listed = list(islice(changes_of(rows, [names.index(name) for name in keys]), limit))
    more = number_of_changes(rows, keys, len(rows)) - len(listed)
    tops = [("after", begin, ""), ("up to", log.names.shown(end), ""), ("inserted", f"+{count(plus)}", "")]
    tops.append(("deleted", f"-{count(minus)}", ""))
    about = [log.heading, *([] if where is None else [f"where {where.text}"])]
    lines = [tag("p", text, class_="dim mono") for text in about]
    head = tag("header", tag("h1", log.name), *lines, tiles(tops))
    title = f"{log.name} {begin}..{log.names.shown(end)}"
    return page(title, head, *_steps(log, start, end, where), _rows(log, listed, more))


def _steps(log: FoldedLog, start: Time | None, end: Time, where: Condition | None) -> Iterable[Html]:
    steps = log.steps(start, end, where)
    if 1 < len(steps) <= _STEPS:
        values = [(shown(time, log.log.dims), plus + minus) for time, plus, minus in steps]
        yield section("Versions", "", figure("updates at each version", bars("updates at each version", values)))


def _rows(log: FoldedLog, changes: Sequence[Change], more: int) -> Html:
    if not changes:
        return section("Rows", "Nothing changed.")
    about = "Inserted rows have a +, deleted ones a -, changed ones a ~ with the cells before and after."
    about += f" {count(more)} more rows are not listed." if more else ""
    return section("Rows", about, diff_table(list(log.schema), log.numbers, changes))
