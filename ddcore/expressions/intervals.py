"""Intervals of integers: those of a computed value follow from those of the columns, and tell whether it can overflow.

The interval of an operation contains every result for operands in the operands' intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ddcore.expressions import syntax
from ddcore.expressions.terms import Interval, Term

__all__ = ["GREATEST", "INTERVALS", "LEAST", "Bounds", "Overflow", "terms"]

LEAST, GREATEST = -(2**63), 2**63 - 1
_VAST = 2**256  # where intervals end: beyond the guards, one is as good as another
_MOST_POWER = 128


class Overflow(Exception):
    """Some intermediate value may be outside of int64."""


def _hull(*parts: Interval) -> Interval:
    return min(low for low, _ in parts), max(high for _, high in parts)


def _times(left: Interval, right: Interval) -> Interval:
    corners = [one * other for one in left for other in right]
    return min(corners), max(corners)


def _quotient(left: Interval, right: Interval) -> Interval:
    """Floored or truncated; dividing never makes an integer larger, and by zero it gives null."""
    most = max(abs(left[0]), abs(left[1]))
    return (0 if left[0] >= 0 and right[0] >= 0 else -most), most


def _remainder(left: Interval, right: Interval) -> Interval:
    """With the sign of the divisor (Polars) or of the dividend (SQL)."""
    most = max(abs(right[0]), abs(right[1]), 1) - 1
    return (0 if left[0] >= 0 and right[0] >= 0 else -most), most


def _absolute(part: Interval) -> Interval:
    low, high = part
    return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _power(base: Interval, exponent: Interval) -> Interval:
    """Polars refuses negative exponents. A huge exponent is cut: any power that matters is out of range by then."""
    most = max(abs(base[0]), abs(base[1]), 1) ** min(max(exponent[1], 0), _MOST_POWER)
    return (0 if base[0] >= 0 else -most), most


def _sum(*parts: Interval) -> Interval:
    return sum(min(low, 0) for low, _ in parts), sum(max(high, 0) for _, high in parts)


INTERVALS: dict[str, Callable[..., Interval]] = {
    "Plus": lambda left, right: (left[0] + right[0], left[1] + right[1]),
    "Minus": lambda left, right: (left[0] - right[1], left[1] - right[0]),
    "Multiply": _times,
    "FloorDivide": _quotient,
    "TruncDivide": _quotient,
    "Modulus": _remainder,
    "Sql.Rem": _remainder,
    "Negate": lambda part: (-part[1], -part[0]),
    "Abs": _absolute,
    "Sign": lambda _: (-1, 1),
    "Pow.Generic": _power,
    "SumHorizontal": _sum,
    "Choice": lambda _, *parts: _hull(*parts),
    "FillNull": _hull,
    "Coalesce": _hull,
    "MaxHorizontal": _hull,
    "MinHorizontal": _hull,
    "Clip": _hull,
    "Alias": _hull,
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """How the intervals of a term and of all in it follow from those of columns: steps, parts first.

    Each has the operation on integers, or an empty text; the numbers of the steps that it needs; and without an
    operation the interval or the column.
    """

    steps: tuple[tuple[str, tuple[int, ...], Interval, str | None], ...]

    @classmethod
    def of(cls, term: Term) -> Bounds:
        """Those of a term: O(its size)."""
        numbers: dict[int, int] = {}
        steps: list[tuple[str, tuple[int, ...], Interval, str | None]] = []
        for inner in terms(term):
            numbers[id(inner)] = len(steps)
            column = inner.tree.name if isinstance(inner.tree, syntax.Column) else None
            parts = tuple(numbers[id(part)] for part in inner.parts) if inner.op else ()
            steps.append((inner.op, parts, inner.interval or (0, 0), column))
        return cls(tuple(steps))

    def intervals(self, columns: Mapping[str, Interval]) -> Iterator[tuple[bool, Interval]]:
        """For each step whether it computes integers, and its interval. What is no integer has (0, 0)."""
        known: list[Interval] = []
        for op, parts, interval, column in self.steps:
            if op:
                low, high = INTERVALS[op](*(known[part] for part in parts))
                known.append((max(low, -_VAST), min(high, _VAST)))
            else:
                known.append(interval if column is None else columns.get(column, (0, 0)))
            yield bool(op), known[-1]

    def bound(self, columns: Mapping[str, Interval]) -> Interval:
        """The interval of the term for columns in these intervals: O(size of the term).

        Raises Overflow when any integer inside may leave int64. A term that is no integer gives (0, 0).
        """
        interval = 0, 0
        for computes, interval in self.intervals(columns):
            if computes and (interval[0] < LEAST or interval[1] > GREATEST):
                raise Overflow
        return interval


def terms(term: Term) -> list[Term]:
    """A term and all in it, each once, parts first."""
    return syntax.nodes(term, lambda part: part.parts)
