"""Aggregates: each by its definition, of values with counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import polars as pl

from ddcore.reference.rows import order_of, require_value
from ddcore.reference.types import INTERVAL

Values = list[tuple[Any, int]]
"""Values that are not null, with counts."""


class Meaning(NamedTuple):
    """An aggregate: ``value`` of the values and the result's type; the result's ``dtype`` by that of the argument.

    ``linear``: whether it adds up, so that values with negative counts are subtracted; else these are no values.
    """

    linear: bool
    dtype: Callable[[pl.DataType], pl.DataType]
    value: Callable[[Values, pl.DataType], Any]


def _number(values: Values, dtype: pl.DataType) -> int:
    return require_value(sum(count for _, count in values))


def _distinct(values: Values, dtype: pl.DataType) -> int:
    counts: Counter[Any] = Counter()
    for value, count in values:
        counts[value] += count
    return sum(count > 0 for count in counts.values())


def _mean(values: Values, dtype: pl.DataType) -> float | None:
    number = sum(count for _, count in values)
    if number == 0:
        return None
    unusual = [value * math.copysign(1, count) for value, count in values if not math.isfinite(value)]
    if unusual:
        return math.copysign(1, number) * float(sum(unusual))
    return _float(sum((Fraction(value) * count for value, count in values), Fraction(0)) / number)


def _order(dtype: pl.DataType) -> Callable[[Any], Any]:
    """The order of values of a type. Intervals are compared by their lengths, with months of 30 days."""
    if dtype != INTERVAL:
        return order_of
    return lambda parts: ((parts[0] * 30 + parts[1]) * 86_400_000_000 + parts[2], *parts)


def least(values: Values, dtype: pl.DataType) -> Any:
    """The least value that is there."""
    return min((value for value, count in values if count > 0), key=_order(dtype), default=None)


def _greatest(values: Values, dtype: pl.DataType) -> Any:
    return max((value for value, count in values if count > 0), key=_order(dtype), default=None)


def _some(values: Values, dtype: pl.DataType) -> bool | None:
    present = [value for value, count in values if count > 0]
    return any(present) if present else None


def _every(values: Values, dtype: pl.DataType) -> bool | None:
    present = [value for value, count in values if count > 0]
    return all(present) if present else None


def is_absent(linear: Sequence[bool], counts: Sequence[int]) -> bool:
    """Whether a group is none: it counts and adds up to nothing, or has no row with a value that could be picked."""
    return (sum(counts) == 0 and any(linear)) or (max(counts) <= 0 and not all(linear))


def _exact_sum(values: Values, dtype: pl.DataType) -> Any:
    """The exact sum; a float is rounded once, at the end. 0 without values."""
    unusual = [value * math.copysign(1, count) for value, count in values if not math.isfinite(value)]
    if unusual:
        return sum(unusual)
    total = sum((Fraction(value) * count for value, count in values), Fraction(0))
    if isinstance(dtype, pl.Decimal):
        digits = _widest(dtype).precision
        return Decimal(f"{require_value(int(total * 10**dtype.scale), 10**digits - 1)}e-{dtype.scale}")
    if dtype == pl.Int64:
        return require_value(int(total))
    return _float(total)


def _float(number: Fraction) -> float:
    """The float next to a number, ties to even."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _widest(dtype: pl.DataType) -> Any:
    """Decimals of up to 18 digits add up to 18, larger ones to 38."""
    return pl.Decimal(18 if dtype.precision <= 18 else 38, dtype.scale) if isinstance(dtype, pl.Decimal) else dtype


MEANINGS = {
    "count": Meaning(True, lambda dtype: pl.Int64(), _number),
    "count_distinct": Meaning(False, lambda dtype: pl.Int64(), _distinct),
    "sum": Meaning(True, _widest, _exact_sum),
    "mean": Meaning(True, lambda dtype: pl.Float64(), _mean),
    "min": Meaning(False, lambda dtype: dtype, least),
    "max": Meaning(False, lambda dtype: dtype, _greatest),
    "any": Meaning(False, lambda dtype: dtype, _some),
    "all": Meaning(False, lambda dtype: dtype, _every),
}
"""The aggregates by name."""
