"""The product order of times, on tuples of ints, on columns and in Polars: comparison, joins, meets, and frontiers.

A time is the input coordinates, then one coordinate per enclosing loop. Coordinates are Python ints here and int64 in
columns; rounds may exceed 2**31. A *frontier* is a set of mutually incomparable times; what is at or
beyond one of them is still open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

Time = tuple[int, ...]
Frontier = tuple[Time, ...]


def le(a: Time, b: Time) -> bool:
    """Whether ``a`` is at or before ``b``: an update at ``a`` counts at ``b``.

    >>> le((0, 3), (1, 3)), le((0, 3), (1, 2))
    (True, False)
    """
    return len(a) == len(b) and all(x <= y for x, y in zip(a, b, strict=True))


def join(a: Time, b: Time) -> Time:
    """The least time at or after both.

    >>> join((0, 3), (1, 2))
    (1, 3)
    """
    return tuple(max(x, y) for x, y in zip(a, b, strict=True))


def meet(a: Time, b: Time) -> Time:
    """The greatest time at or before both.

    >>> meet((0, 3), (1, 2))
    (0, 2)
    """
    return tuple(min(x, y) for x, y in zip(a, b, strict=True))


def frontier(times: Iterable[Time]) -> Frontier:
    """The minimal elements of some times, sorted: O(n**2).

    >>> frontier([(2, 0), (0, 2), (2, 2)])
    ((0, 2), (2, 0))
    """
    least: list[Time] = []
    for time in sorted(set(times)):
        if not any(le(other, time) for other in least):
            least.append(time)
    return tuple(least)


def is_before(dims: Sequence[str], time: Time) -> pl.Expr:
    """Whether the time in the columns ``dims`` is at or before ``time``: a bool for each row."""
    import polars as pl

    return pl.all_horizontal(pl.col(dim) <= last for dim, last in zip(dims, time, strict=True))


def is_beyond(dims: Sequence[str], elements: Iterable[Time]) -> pl.Expr:
    """Whether the time in the columns ``dims`` is at or beyond an element of a frontier: a bool for each row."""
    import polars as pl

    return pl.any_horizontal(
        pl.all_horizontal(pl.col(dim) >= least for dim, least in zip(dims, element, strict=True))
        for element in elements
    )


def beyond(times: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Which times (coordinates, n) are at or beyond an element of a frontier (coordinates, elements), that is, still
    open: bool[n].

    >>> import numpy as np
    >>> beyond(np.array([[2, 1], [0, 2]]), np.array([[1], [1]])).tolist()
    [False, True]
    """
    late: np.ndarray = times[0] != times[0]  # false everywhere; commands that only compare tuples do without NumPy
    for element in upper.T:
        late |= (times >= element[:, None]).all(axis=0)
    return late


def advance(times: np.ndarray, frontier: np.ndarray) -> np.ndarray:
    """The representatives of times (coordinates, n) for whoever compares only with times at or beyond a frontier
    (coordinates, elements): int64[coordinates, n].

    A time and its representative are before the same times there and have the same joins with them, and two times that
    agree in this have one representative: the meet of its joins with the elements. An empty frontier changes nothing.

    >>> import numpy as np
    >>> advance(np.array([[0, 6], [0, 1]]), np.array([[4, 5], [8, 3]])).tolist()
    [[4, 6], [3, 3]]
    """
    import numpy as np

    if frontier.shape[1] == 0:
        return times
    least: np.ndarray = np.maximum(times, frontier[:, :1])
    for element in range(1, frontier.shape[1]):
        np.minimum(least, np.maximum(times, frontier[:, element : element + 1]), out=least)
    return least
