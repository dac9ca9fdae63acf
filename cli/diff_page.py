"""The page of ``dd diff --html``: what changed in an output, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from ddcore.cli.charts import bars
from ddcore.cli.page import Html, figure, joined, page, scrolling, section, tag, tiles
from ddcore.cli.text import cell, count
from ddcore.io.times import shown

if TYPE_CHECKING:
    from ddcore.io.folded import OutputLog
    from ddcore.io.pairs import Change
    from ddcore.io.times import Time

__all__ = ["diff_page"]

MOST = 10_000  # rows of a page
_STEPS = 40  # versions that are drawn


def diff_page(
    log: OutputLog, span: tuple[Time | None, Time], counts: tuple[int, int], changes: Iterable[Change], limit: int
) -> str:
    """The page for the changes in a range; at most ``limit`` rows are listed."""
    (start, end), (plus, minus) = span, counts
    begin = "nothing" if start is None else log.names.shown(start)
    left = iter(changes)
    listed = list(islice(left, limit))
    more = sum(1 for _ in left)
    tops = [("after", begin, ""), ("up to", log.names.shown(end), ""), ("inserted", f"+{count(plus)}", "")]
    tops.append(("deleted", f"-{count(minus)}", ""))
    head = tag("header", tag("h1", log.name), tag("p", log.heading, class_="dim mono"), tiles(tops))
    return page(f"{log.name} {begin}..{log.names.shown(end)}", head, *_steps(log, start, end), _rows(log, listed, more))


def _steps(log: OutputLog, start: Time | None, end: Time) -> Iterable[Html]:
    steps = log.steps(start, end)
    if 1 < len(steps) <= _STEPS:
        values = [(shown(time, log.log.dims), plus + minus) for time, plus, minus in steps]
        yield section("Versions", "", figure("updates at each version", bars("updates at each version", values)))


def _rows(log: OutputLog, changes: Sequence[Change], more: int) -> Html:
    if not changes:
        return section("Rows", "Nothing changed.")
    numbers = set(log.numbers)
    sides = ["right" if place in numbers else "wrap" for place in range(len(log.schema))]
    headers = [tag("th", name, scope="col", class_=side) for name, side in zip(log.schema, sides, strict=True)]
    head = tag("thead", tag("tr", tag("th", tag("span", "change", class_="dim")), *headers))
    table = tag("table", head, tag("tbody", *(_row(change, sides) for change in changes)))
    about = "Inserted rows have a +, deleted ones a -, changed ones a ~ with the cells before and after."
    about += f" {count(more)} more rows are not listed." if more else ""
    return section("Rows", about, scrolling(table, "changed rows"))


def _row(change: Change, sides: Sequence[str]) -> Html:
    before, after = change.before, change.after
    kind, sign = ("plus", "+") if before is None else ("minus", "-") if after is None else ("change", "~")
    times = "" if change.times == 1 else count(change.times)
    word = {"plus": "inserted", "minus": "deleted", "change": "changed"}[kind]
    first = tag("td", tag("span", sign, class_="sign", role="img", aria_label=word), times, class_="narrow")
    cells = [_cell(before, after, place) for place in range(len(sides))]
    columns = (tag("td", text, class_=side) for text, side in zip(cells, sides, strict=True))
    return tag("tr", first, *columns, class_=kind)


def _cell(before: tuple[Any, ...] | None, after: tuple[Any, ...] | None, place: int) -> Html:
    if before is None or after is None:
        return joined([cell((after or before or ())[place])])
    old, new = cell(before[place]), cell(after[place])
    return joined([new]) if old == new else joined([tag("del", old), " ", tag("ins", new)])
