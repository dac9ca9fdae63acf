"""Loops: a body applied until it returns its arguments, and which loops a collection is in."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from ddcore.base.errors import Diverged
from ddcore.reference.expressions import expression_of
from ddcore.reference.multiset import C, in_loops
from ddcore.reference.records import Record, recorders
from ddcore.reference.rows import Rows


def fixed_points(
    collections: Mapping[str, C],
    body: Callable[..., Mapping[str, C]],
    max_rounds: int,
    at_limit: str,
) -> dict[str, C]:
    """The body applied to these, then to its results, until it returns its arguments; each is in one more loop."""
    record, before = recorders[-1], dict(collections)
    loops = len(record.rounds) + 1
    current = {name: in_loops(collection, collection.rows, loops) for name, collection in collections.items()}
    record.numbers[-1] += 1
    for number in range(max_rounds):
        with record.round(number):
            following = _following(current, body)
        if all(following[name].rows == rows.rows for name, rows in current.items()):
            return following
        current, before = following, current
    if at_limit == "return":
        return current
    moving = sum(
        current[name].rows[row] != rows.rows[row]
        for name, rows in before.items()
        for row in {*rows.rows, *current[name].rows}
    )
    raise Diverged(getattr(body, "__name__", "iterate"), (0, max_rounds), max_rounds, moving)


def _following(current: Mapping[str, C], body: Callable[..., Mapping[str, C]]) -> dict[str, C]:
    """The variables of the next round."""
    returned = body(**current)
    return {name: in_loops(rows, dict(returned[name].in_order_of(rows)), rows.loops) for name, rows in current.items()}


def by_priority(
    collections: Mapping[str, C],
    body: Callable[..., Mapping[str, C]],
    priority: Mapping[str, Any],
    max_rounds: int,
) -> None:
    """Record what the body inspects, if rows enter by priority: first those without one, then those with the least, and
    so on, each time beside the fixed point of those before.
    """
    entering: defaultdict[tuple[int, int], dict[str, Rows]] = defaultdict(dict)
    for name, collection in collections.items():
        expr = priority.get(name)
        values = collection.map({"priority": pl.col(expr) if isinstance(expr, str) else expression_of(expr)})[1]
        for (row, count), (value,) in zip(collection.rows.items(), values, strict=True):
            entering[(0, 0) if value is None else (1, value)].setdefault(name, Counter())[row] = count
    outer = recorders[-1]
    record = Record(outer.rounds)
    recorders.append(record)
    try:
        current = {name: in_loops(collection, {}, len(outer.rounds) + 1) for name, collection in collections.items()}
        for level in sorted({(0, 0), *entering}):
            for name, rows in entering[level].items():
                current[name] = current[name].concat(in_loops(current[name], rows, 0))
            for number in range(max_rounds):
                with record.round((*level, number)):
                    following = _following(current, body)
                if all(following[name].rows == collection.rows for name, collection in current.items()):
                    break
                current = following
    finally:
        recorders.pop()
    for name, points in record.inspected.items():
        outer.inspected.setdefault(name, {}).update(points)
