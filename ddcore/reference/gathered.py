"""Aggregates of several values of a row, or of values in an order: each by its definition.

An argument is a tuple of fields, of a single value or of two, or of a value and what orders it. A row that an
aggregate leaves out has no argument.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import polars as pl

from ddcore.reference.rows import order_of, require_value

Arguments = list[tuple[tuple[Any, ...], int]]
"""Tuples of fields, with counts."""


class Definition:
    """An aggregate: the result's type by the field's, and its value of arguments and options."""

    linear = False

    def __init__(self, dtype: Callable[[pl.DataType], pl.DataType], value: Callable[..., Any]) -> None:
        self._dtype, self._value = dtype, value

    def dtype(self, argument: pl.DataType) -> pl.DataType:
        """The type of the result for a struct of fields."""
        assert isinstance(argument, pl.Struct)
        field: Any = argument.fields[0].dtype
        return self._dtype(field)

    def value(self, arguments: Arguments, options: tuple[Any, ...]) -> Any:
        """The result."""
        return self._value([value for fields, number in arguments for value in [fields] * number], *options)


def _float(_: pl.DataType) -> pl.DataType:
    return pl.Float64()


def _same(dtype: pl.DataType) -> pl.DataType:
    return dtype


def _values(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The values that are not null, in order."""
    return sorted((row[0] for row in rows if row[0] is not None), key=order_of)


def _quotient(numerator: Fraction, denominator: Fraction | int) -> float | None:
    if denominator == 0:
        return None
    try:
        return float(numerator / denominator)
    except OverflowError:
        return math.inf if (numerator > 0) == (denominator > 0) else -math.inf


def _points(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]] | None:
    """The rows without a null as exact numbers; None where one is not finite."""
    there = [row for row in rows if None not in row]
    if any(not math.isfinite(value) for row in there for value in row):
        return None
    return [tuple(map(Fraction, row)) for row in there]


def _around(points: list[tuple[Any, ...]], one: int, other: int) -> Fraction:
    """The sum of the products of distances from the means."""
    number = len(points)
    if not number:
        return Fraction(0)
    means = [sum(point[position] for point in points) / number for position in (one, other)]
    return sum(((point[one] - means[0]) * (point[other] - means[1]) for point in points), Fraction(0))


def _spread(rows: list[tuple[Any, ...]], population: bool) -> float | None:
    points = _points(rows)
    if points is None:
        return math.nan
    return _quotient(_around(points, 0, -1), len(points) if population else len(points) - 1) if points else None


def _stddev(rows: list[tuple[Any, ...]], population: bool) -> float | None:
    value = _spread(rows, population)
    return None if value is None else math.sqrt(value)


def _corr(rows: list[tuple[Any, ...]]) -> float | None:
    points = _points(rows)
    if points is None:
        return math.nan
    both = _around(points, 0, 1)
    square = _quotient(both * both, _around(points, 0, 0) * _around(points, 1, 1))
    return None if square is None else math.sqrt(square) * (-1 if both < 0 else 1)


def _regression(rows: list[tuple[Any, ...]], of: str) -> float | None:
    points = _points(rows)
    if points is None:
        return math.nan
    if not points:
        return None
    yy, xx, xy = _around(points, 0, 0), _around(points, 1, 1), _around(points, 0, 1)
    mean_y, mean_x = (sum(point[position] for point in points) / len(points) for position in (0, 1))
    if of in ("sxx", "syy", "sxy"):
        return _quotient({"sxx": xx, "syy": yy, "sxy": xy}[of], 1)
    if of == "slope":
        return _quotient(xy, xx)
    if of == "intercept":
        return _quotient(mean_y - xy / xx * mean_x, 1) if xx else None
    return None if xx == 0 else 1.0 if yy == 0 else _quotient(xy * xy, xx * yy)


def _median(rows: list[tuple[Any, ...]], fraction: float) -> float | None:
    values = [float(value) for value in _values(rows)]
    if not values:
        return None
    position = fraction * (len(values) - 1)
    least, most = values[math.floor(position)], values[math.ceil(position)]
    share = position - math.floor(position)
    return least if share == 0 else least + (most - least) * share


def _quantile(rows: list[tuple[Any, ...]], fraction: float) -> Any:
    values = _values(rows)
    return values[max(math.ceil(fraction * len(values)), 1) - 1] if values else None


def _mode(rows: list[tuple[Any, ...]]) -> Any:
    values = _values(rows)
    counts = Counter(values)
    return max(values, key=lambda value: counts[value], default=None)  # the first of several


def _by(rows: list[tuple[Any, ...]], *, greatest: bool) -> Any:
    there = sorted((row for row in rows if None not in row), key=lambda row: order_of(row[0]))
    ends = (max if greatest else min)((order_of(by) for _, by in there), default=None)
    return next((value for value, by in there if order_of(by) == ends), None)


def _bits(rows: list[tuple[Any, ...]], combine: Callable[[int, int], int]) -> int | None:
    values = _values(rows)
    return require_value(functools.reduce(combine, values)) if values else None


def _null_or(value: Any) -> tuple[bool, Any]:
    return (value is None, (False, 0) if value is None else order_of(value))


def _in_order(rows: list[tuple[Any, ...]], order: tuple[tuple[bool, bool], ...], distinct: bool) -> list[Any]:
    """The values in an order, equal ones in their own, nulls last in it."""
    if distinct:
        first: dict[Any, tuple[Any, ...]] = {}
        for row in sorted(rows, key=lambda row: [_null_first(value) for value in row]):
            first.setdefault(row[0], row)
        rows = list(first.values())
    rows = sorted(rows, key=lambda row: _null_or(row[0]))
    for position, (down, nulls_first) in reversed([*enumerate(order, 1)]):
        nulls = [row for row in rows if row[position] is None]
        others = [(order_of(row[position]), row) for row in rows if row[position] is not None]
        others.sort(key=lambda pair: pair[0], reverse=down)
        rows = [*(nulls if nulls_first else []), *(row for _, row in others), *([] if nulls_first else nulls)]
    return [row[0] for row in rows]


def _null_first(value: Any) -> tuple[bool, Any]:
    return (value is not None, (False, 0) if value is None else order_of(value))


def _string_agg(
    rows: list[tuple[Any, ...]], order: tuple[tuple[bool, bool], ...], distinct: bool, separator: str
) -> str | None:
    texts = _in_order([row for row in rows if row[0] is not None], order, distinct)
    return separator.join(texts) if texts else None


def _array_agg(
    rows: list[tuple[Any, ...]], order: tuple[tuple[bool, bool], ...], distinct: bool
) -> tuple[Any, ...] | None:
    return tuple(_in_order(rows, order, distinct)) or None


DEFINITIONS = {
    "variance": Definition(_float, _spread),
    "stddev": Definition(_float, _stddev),
    "covariance": Definition(_float, _spread),
    "corr": Definition(_float, _corr),
    "regression": Definition(_float, _regression),
    "median": Definition(_float, _median),
    "quantile": Definition(_same, _quantile),
    "mode": Definition(_same, _mode),
    "min_by": Definition(_same, functools.partial(_by, greatest=False)),
    "max_by": Definition(_same, functools.partial(_by, greatest=True)),
    "bit_and": Definition(_same, functools.partial(_bits, combine=int.__and__)),
    "bit_or": Definition(_same, functools.partial(_bits, combine=int.__or__)),
    "bit_xor": Definition(_same, functools.partial(_bits, combine=int.__xor__)),
    "string_agg": Definition(_same, _string_agg),
    "array_agg": Definition(pl.List, _array_agg),
}
"""The aggregates by name."""
