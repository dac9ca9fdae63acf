"""What changed in an output as a table of HTML, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ddcore.text.cells import cell, count
from ddcore.text.markup import Html, joined, scrolling, tag

if TYPE_CHECKING:
    from ddcore.io.reading.pairs import Change


def diff_table(names: Sequence[str], numbers: Iterable[int], changes: Iterable[Change]) -> Html:
    """Inserted rows have a +, deleted ones a -, changed ones a ~ with the cells before and after.

    ``numbers``: the places of the columns of numbers.
    """
    right = set(numbers)
    sides = ["right" if column in right else "wrap" for column in range(len(names))]
    headers = [tag("th", name, scope="col", class_=side) for name, side in zip(names, sides, strict=True)]
    head = tag("thead", tag("tr", tag("th", tag("span", "change", class_="dim")), *headers))
    return scrolling(tag("table", head, tag("tbody", *(_row(change, sides) for change in changes))), "changed rows")


def _row(change: Change, sides: Sequence[str]) -> Html:
    before, after = change.before, change.after
    kind, sign = ("plus", "+") if before is None else ("minus", "-") if after is None else ("change", "~")
    times = "" if change.times == 1 else count(change.times)
    word = {"plus": "inserted", "minus": "deleted", "change": "changed"}[kind]
    first = tag("td", tag("span", sign, class_="sign", role="img", aria_label=word), times, class_="narrow")
    cells = [_cell(before, after, column) for column in range(len(sides))]
    columns = (tag("td", text, class_=side) for text, side in zip(cells, sides, strict=True))
    return tag("tr", first, *columns, class_=kind)


def _cell(before: tuple[Any, ...] | None, after: tuple[Any, ...] | None, column: int) -> Html:
    if before is None or after is None:
        return joined([cell((after or before or ())[column])])
    old, new = cell(before[column]), cell(after[column])
    return joined([new]) if old == new else joined([tag("del", old), " ", tag("ins", new)])
