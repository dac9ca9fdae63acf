"""Frontiers between complete and open times: since and upper of a warehouse, and the window between two of them.

A frontier is an antichain of coordinate tuples. Times at or beyond it are open, all others are complete. A run
completes boxes: every time at or before one corner. Its upper is the frontier of what is complete after it.

Must not import anything heavy: every command reads the ledger first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddcore.base.lattice import Frontier, frontier, is_beyond, join, le, meet
from ddcore.base.record import record
from ddcore.io.project.times import Time, json_time, named, shown

if TYPE_CHECKING:
    import polars as pl

_UNBOUNDED = 2**63 - 1


def nothing_closed(dims: Sequence[str]) -> Frontier:
    """The frontier at which every time is open."""
    return ((0,) * len(dims),)


def close(upper: Frontier, time: tuple[int, ...]) -> Frontier:
    """The frontier after every time at or before ``time`` is complete as well.

    >>> close(((0, 0),), (7, 1)), close(((0, 2), (8, 0)), (9, 0))
    (((0, 2), (8, 0)), ((0, 2), (8, 1), (10, 0)))
    """
    after = [tuple(c + 1 if i == number else 0 for i in range(len(time))) for number, c in enumerate(time)]
    return close_both(upper, after)


def close_both(a: Iterable[tuple[int, ...]], b: Iterable[tuple[int, ...]]) -> Frontier:
    """The frontier of the times that are open at both: complete is what is complete at either."""
    others = list(b)
    return frontier(join(one, other) for one in a for other in others)


def up_to(time: tuple[int, ...]) -> Frontier:
    """The frontier at which the times at or before ``time`` are complete, and no others."""
    return close(((0,) * len(time),), time)


def is_open(time: tuple[int, ...], upper: Iterable[tuple[int, ...]]) -> bool:
    """Whether a time is at or beyond an element of a frontier."""
    return any(le(element, time) for element in upper)


def corners(upper: Frontier) -> list[Time]:
    """The greatest complete times, sorted: every complete time is at or before one of them.

    >>> corners(((0, 2), (8, 1), (10, 0)))
    [(7, 1), (9, 0)]
    """
    count = len(upper[0])
    tops = [(_UNBOUNDED,) * count]
    for element in upper:
        sides = [
            tuple(c - 1 if i == number else _UNBOUNDED for i in range(count))
            for number, c in enumerate(element)
            if c > 0
        ]
        tops = _maximal(meet(top, side) for top in tops for side in sides)
    return [Time(top) for top in tops]


def _maximal(times: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    negated = frontier(tuple(-c for c in time) for time in times)
    return sorted(tuple(-c for c in time) for time in negated)


def shown_frontier(elements: Iterable[tuple[int, ...]], dims: Sequence[str]) -> str:
    """A frontier for messages: ``{day=0,revision=2; day=8,revision=0}``; with one dimension ``version 6``."""
    elements = list(elements)
    if len(dims) == 1 and len(elements) == 1:
        return named(elements[0], dims)
    return "{" + "; ".join(shown(element, dims) for element in elements) + "}"


def frontier_json(elements: Iterable[tuple[int, ...]], dims: Sequence[str]) -> list[Any]:
    """A frontier in a command's JSON: a list of times."""
    return [json_time(element, dims) for element in elements]


@record
class Window:
    """The times at or beyond the frontier ``lower`` and not at or beyond ``upper``: those that a run completes."""

    lower: Frontier
    upper: Frontier

    def __contains__(self, time: tuple[int, ...]) -> bool:
        return is_open(time, self.lower) and not is_open(time, self.upper)

    def condition(self, dims: Sequence[str]) -> pl.Expr:
        """Whether the time of an update is in the window."""
        import polars as pl

        if len(dims) == 1:
            return pl.col(dims[0]).is_between(self.lower[0][0], self.upper[0][0] - 1)
        return is_beyond(dims, self.lower) & ~is_beyond(dims, self.upper)

    def may_meet(self, least: Mapping[str, Any], most: Mapping[str, Any], dims: Sequence[str]) -> bool:
        """Whether updates whose coordinates are between these bounds may be in the window; a bound may be unknown."""
        low = tuple(least.get(dim, 0) for dim in dims)
        high = tuple(most.get(dim, _UNBOUNDED) for dim in dims)
        return any(le(element, high) for element in self.lower) and not any(le(element, low) for element in self.upper)


def versions(first: Time, last: Time) -> Window:
    """The versions ``first`` to ``last``, with one dimension."""
    return Window((first,), up_to(last))
