"""Statistics from exact sums of values, of their squares and of their products.

A value is a whole number times a power of two, and so are squares and products. Each is cut into *digits* of 32 bits at
the places of their lowest bits. Digits are added up by group, quantity and place, like any sum: linear in the rows.
From the sums of a changed group the statistics are computed as quotients of whole numbers, which are rounded once.

Workers run this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import MOST_DIGITS, WORD_DIGITS
from ddcore.data import wide

ROWS, NUMBER, UNDEFINED, X, Y, XX, YY, XY = range(8)
QUANTITIES = {1: (X, XX), 2: (X, Y, XX, YY, XY)}
"""The sums of a statistic, by the number of its fields."""
_LOW = (1 << 32) - 1
_HALF = 32
_FRACTION = 53


@dataclass(frozen=True)
class Moment:
    """One statistic: the column of its result, its kind and options, the columns of its fields and of its condition.

    The first field is ``y`` where there are two. ``scales``: the digits behind the point of each field.
    """

    result: str
    kind: str
    options: tuple[Any, ...]
    fields: tuple[str, ...]
    scales: tuple[int, ...]
    there: str | None


# -- digits of rows ---------------------------------------------------------------------------------------------------


def digits(moments: Sequence[Moment], keys: Sequence[str]) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """A function for ``flat_map``: digits of quantities, beside the keys. Of each row one says that it is there."""
    return partial(_cut, tuple(moments), tuple(keys))


def _cut(moments: Sequence[Moment], keys: Sequence[str], frame: pl.DataFrame) -> pl.DataFrame:
    every = np.arange(len(frame))
    pieces = [_piece(every, 0, ROWS, np.zeros(len(frame), np.int64), np.ones(len(frame), np.int64))]
    for number, moment in enumerate(moments):
        pieces += [_piece(rows, number, *rest) for rows, *rest in _quantities(frame, moment)]
    rows, numbers, quantities, positions, values = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
    chosen = frame.select("row", *keys)[pl.Series(rows, dtype=pl.UInt32)]
    return chosen.with_columns(moment=numbers, quantity=quantities, place=positions, value=values)


def _piece(rows: Any, number: int, quantity: int, positions: Any, values: Any) -> tuple[Any, ...]:
    return rows, np.full(len(rows), number), np.full(len(rows), quantity), positions, values


def _quantities(frame: pl.DataFrame, moment: Moment) -> Iterator[tuple[Any, ...]]:
    """Rows, and of each a quantity, a place and a digit that is not 0."""
    columns = [frame[name] for name in moment.fields]
    used = np.ones(len(frame), dtype=bool)
    for column in columns:
        used &= column.is_not_null().to_numpy()
    if moment.there is not None:
        used &= frame[moment.there].fill_null(value=False).to_numpy()
    rows = np.flatnonzero(used)
    found = [whole_numbers(column[pl.Series(rows, dtype=pl.UInt32)]) for column in columns]
    parts = [part for part, _ in found]
    yield rows, NUMBER, np.zeros(len(rows), np.int64), np.ones(len(rows), np.int64)
    finite = np.ones(len(rows), dtype=bool)
    for _, is_finite in found:
        finite &= is_finite
    odd = rows[~finite]
    yield odd, UNDEFINED, np.zeros(len(odd), np.int64), np.ones(len(odd), np.int64)
    rows, parts = rows[finite], [part.of(finite) for part in parts]
    y, x = parts[0], parts[-1]
    for quantity, part in ((X, x), (Y, y))[: len(parts)]:
        yield from _digits(rows, quantity, part.signs, enumerate(part.limbs), part.powers)
    for quantity, one, other in ((XX, x, x), (YY, y, y), (XY, x, y))[: 3 if len(parts) > 1 else 1]:
        yield from _digits(rows, quantity, one.signs * other.signs, _product(one, other), one.powers + other.powers)


@dataclass(frozen=True)
class Whole:
    """Whole numbers times powers of two: signs, and limbs of 32 bits, the lowest first. int64 and uint64 of n each."""

    signs: Any
    limbs: Sequence[Any]
    powers: Any

    def of(self, chosen: Any) -> Whole:
        """Some of them."""
        return Whole(self.signs[chosen], [limb[chosen] for limb in self.limbs], self.powers[chosen])


def whole_numbers(column: pl.Series) -> tuple[Whole, Any]:
    """Values, and which of them are finite. Of decimals the digits without their point."""
    finite = np.ones(len(column), dtype=bool)
    powers = np.zeros(len(column), np.int64)
    if isinstance(column.dtype, pl.Decimal) and (column.dtype.precision or MOST_DIGITS) > WORD_DIGITS:
        low, high = wide.halves(column).T
        negative = high < 0
        low = np.where(negative, -low, low).view(np.uint64)  # wraps around, as it has to
        high = np.where(negative, ~high + (low == 0), high).view(np.uint64)
        return Whole(np.where(negative, -1, 1), [*_cut_in_two(low), *_cut_in_two(high)], powers), finite
    if column.dtype == pl.Float64:
        values = column.to_numpy()
        finite = np.isfinite(values)
        share, power = np.frexp(np.where(finite, values, 0.0))
        whole, powers = np.ldexp(share, _FRACTION).astype(np.int64), power.astype(np.int64) - _FRACTION
    else:
        physical = column.to_physical() if isinstance(column.dtype, pl.Decimal) else column
        whole = physical.cast(pl.Int64).to_numpy()
    return Whole(np.sign(whole), _cut_in_two(np.abs(whole).astype(np.uint64)), powers), finite


def _cut_in_two(numbers: Any) -> list[Any]:
    return [numbers & np.uint64(_LOW), numbers >> np.uint64(_HALF)]


def _product(one: Whole, other: Whole) -> Iterator[tuple[int, Any]]:
    """The absolute products of limbs, each with the limb that it begins at: less than 64 bits."""
    for position, limb in enumerate(one.limbs):
        for more, factor in enumerate(other.limbs):
            yield position + more, limb * factor


def _digits(
    rows: Any, quantity: int, signs: Any, numbers: Iterable[tuple[int, Any]], powers: Any
) -> Iterator[tuple[Any, ...]]:
    for position, number in numbers:
        for half, digit in enumerate(_cut_in_two(number)):
            some = np.flatnonzero(digit)
            values = digit[some].astype(np.int64) * signs[some]
            yield rows[some], quantity, powers[some] + _HALF * (position + half), values


# -- statistics of groups ---------------------------------------------------------------------------------------------


def statistics(moments: Sequence[Moment]) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """A function for ``reduce``: the statistics of each group from its sums of digits."""
    return partial(_results, tuple(moments))


def _results(moments: Sequence[Moment], frame: pl.DataFrame) -> pl.DataFrame:
    groups = frame.select(pl.col("group").unique(maintain_order=True))
    columns = [
        pl.Series(
            moment.result,
            computed(moment, *_sums(moment, frame.filter(pl.col("moment") == number), groups)),
            pl.Float64,
        )
        for number, moment in enumerate(moments)
    ]
    return groups.with_columns(columns)


def _sums(moment: Moment, frame: pl.DataFrame, groups: pl.DataFrame) -> tuple[dict[int, Any], int]:
    """What :func:`computed` takes, of each group."""
    positions = frame["place"]
    least = min(0, int(positions.min() or 0))  # type: ignore[arg-type]
    least -= least % 2  # squares have twice the power of their values
    totals = frame["total"].to_numpy().astype(object) << (positions.to_numpy() - least).astype(object)
    rows, quantities = groups["group"].search_sorted(frame["group"]).to_numpy(), frame["quantity"].to_numpy()
    sums = {}
    for quantity in (NUMBER, UNDEFINED, *QUANTITIES[len(moment.fields)]):
        own, sums[quantity] = quantities == quantity, np.zeros(len(groups), dtype=object)
        np.add.at(sums[quantity], rows[own], totals[own])
    unit = 1 << -least
    return {**sums, NUMBER: sums[NUMBER] // unit, UNDEFINED: sums[UNDEFINED] // unit}, unit


def _ratio(numerator: int, denominator: int) -> float | None:
    """A quotient, rounded once; None where it is not defined."""
    if denominator == 0:
        return None
    try:
        return numerator / denominator + 0.0
    except OverflowError:
        return math.inf if (numerator > 0) == (denominator > 0) else -math.inf


def _root(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


def _correlation(product: int, squares: int) -> float | None:
    root = _root(_ratio(product * product, squares))
    return -root if root is not None and product < 0 else root


def _fit(xx: int, yy: int, xy: int) -> float | None:
    return 1.0 if xx and not yy else _ratio(xy * xy, xx * yy)


_fits = np.frompyfunc(_fit, 3, 1)
_ratios, _roots = np.frompyfunc(_ratio, 2, 1), np.frompyfunc(_root, 1, 1)
_correlations = np.frompyfunc(_correlation, 2, 1)


def computed(moment: Moment, sums: Mapping[int, Any], unit: int) -> Any:
    """The statistic of each group, None where it has none.

    ``sums``: by quantity an array of Python's integers, a number for each group: of values as whole numbers of
    ``1 / unit``, as those of squares are, too; ``NUMBER`` and ``UNDEFINED`` count rows.
    """
    number = sums[NUMBER]
    y_scale, x_scale = 10 ** moment.scales[0], 10 ** moment.scales[-1]
    x, xx = sums[X], number * sums[XX] * unit - sums[X] * sums[X]  # number ** 2 times the variance, in units
    if len(moment.fields) == 1:
        found = _spread(moment, number, xx, unit * x_scale, unit * x_scale)
        found = _roots(found) if moment.kind == "stddev" else found
    else:
        y = sums[Y]
        yy, xy = number * sums[YY] * unit - y * y, number * sums[XY] * unit - x * y
        if moment.kind == "covariance":
            found = _spread(moment, number, xy, unit * x_scale, unit * y_scale)
        elif moment.kind == "corr":
            found = _correlations(xy, xx * yy)
        else:
            found = _line(moment.options[0], number, (x, y), (xx, yy, xy), (unit * x_scale, unit * y_scale))
    undefined = sums[UNDEFINED] > 0
    return [math.nan if bad else value for bad, value in zip(undefined, found, strict=True)]


def _spread(moment: Moment, number: Any, product: Any, one: int, other: int) -> Any:
    population = moment.options[0]
    return _ratios(product, number * (number if population else number - 1) * (one * other))


def _line(of: str, number: Any, sums: Any, spreads: Any, units: tuple[int, int]) -> Any:
    """What the line through the points has; in units of ``x`` and ``y``."""
    (x, y), (xx, yy, xy), (x_unit, y_unit) = sums, spreads, units
    if of == "slope":
        return _ratios(xy * x_unit, xx * y_unit)
    if of == "intercept":
        return _ratios(y * xx - x * xy, number * xx * y_unit)
    if of == "r2":
        return _fits(xx, yy, xy)
    product, unit = {"sxx": (xx, x_unit * x_unit), "syy": (yy, y_unit * y_unit), "sxy": (xy, x_unit * y_unit)}[of]
    return _ratios(product, number * unit)
