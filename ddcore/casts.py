"""Casts that lose nothing: a column becomes another type where that type holds each of its values, or is refused.

Numbers go to numbers: an integer to a wider one, 2.0 to int64, a decimal to one with more digits. A float never becomes
a decimal nor the reverse, because a decimal fraction is hardly ever a float. Text is never parsed, and neither dates
nor bools are numbers.
"""

from __future__ import annotations

import polars as pl

from ddcore.schema import Type

__all__ = ["InexactCast", "exact_cast"]

_RESERVED = -(2**63)
_GREATEST = 2**63 - 1
_WIDEST_FLOAT = 2**53  # up to here every integer is a float


class InexactCast(Exception):
    """A column that the type cannot hold; the text says what it has instead."""


def exact_cast(values: pl.Series, kind: Type, *, reserved: bool = True) -> pl.Series:
    """The column with the declared type, each value exactly what it was: O(n).

    ``reserved``: whether -2**63 is refused where it would stand for null. Raises InexactCast naming a value or the
    column's type.
    """
    if values.dtype == pl.Null():
        return values.cast(kind.polars)
    if kind.name == "timestamp" and isinstance(values.dtype, pl.Datetime):
        return _timestamps(values, kind)
    if values.dtype.is_numeric() and kind.name in ("int64", "float64", "decimal"):
        return _numbers(values, kind, reserved=reserved)
    if kind.name == "string" and isinstance(values.dtype, pl.Categorical | pl.Enum):
        return values.cast(pl.String)
    if values.dtype != kind.polars:
        raise InexactCast(f"is {values.dtype}, not {kind}")
    return values


def _numbers(values: pl.Series, kind: Type, *, reserved: bool) -> pl.Series:
    if (values.dtype.is_decimal() and kind.name == "float64") or (values.dtype.is_float() and kind.name == "decimal"):
        raise InexactCast(f"is {values.dtype}, not {kind}")
    if kind.name == "int64":
        _refuse(values, _beyond_int64(values, reserved=reserved), kind)
        return values.cast(pl.Int64)
    if kind.name == "float64":
        if values.dtype.is_integer():
            _refuse(values, _between_floats(values), kind)
        return values.cast(pl.Float64)
    _refuse(values, _beyond_decimal(values, kind), kind)
    return values.cast(kind.polars)


def _beyond_int64(values: pl.Series, *, reserved: bool) -> pl.Series:
    least = _RESERVED + 1 if reserved else _RESERVED
    if values.dtype.is_float():
        # 2.0**63 is a float and 2**63 - 1 is not: the least that is too large is 2.0**63. NaN is above all numbers.
        low = values <= float(_RESERVED) if reserved else values < float(_RESERVED)
        return low | (values >= 2.0**63) | (values != values.floor())
    if isinstance(values.dtype, pl.Decimal):
        unscaled, unit = values.to_physical(), 10**values.dtype.scale
        whole = unscaled // unit
        return (unscaled % unit != 0) | (whole < least) | (whole > _GREATEST)
    return _outside(values, least, _GREATEST)


def _outside(values: pl.Series, least: int, greatest: int) -> pl.Series:
    """Which integers lie outside of [least, greatest], compared in 128 bits: no bound fits into every type."""
    if values.dtype == pl.UInt128():
        return values > greatest
    wide = values.cast(pl.Int128)
    return (wide < least) | (wide > greatest)


def _between_floats(values: pl.Series) -> pl.Series:
    """Which integers no float is equal to."""
    large = _outside(values, -_WIDEST_FLOAT, _WIDEST_FLOAT)
    if not large.any():
        return large
    again = values.cast(pl.Float64).cast(pl.Int128, strict=False)
    return large & (again.is_null() | (again != values.cast(pl.Int128, strict=False)))


def _beyond_decimal(values: pl.Series, kind: Type) -> pl.Series:
    """Which numbers have more digits, before the point or after it, than the decimal type."""
    scale = values.dtype.scale if isinstance(values.dtype, pl.Decimal) else 0
    least = 10 ** (kind.precision - kind.scale + scale)
    unscaled = values.to_physical() if scale or values.dtype.is_decimal() else values
    beyond = _outside(unscaled, 1 - least, least - 1)
    if scale > kind.scale:
        beyond |= unscaled % 10 ** (scale - kind.scale) != 0
    return beyond


def _timestamps(values: pl.Series, kind: Type) -> pl.Series:
    """Microseconds in UTC; a timestamp without a zone is in UTC already."""
    assert isinstance(values.dtype, pl.Datetime)
    units = values.to_physical()
    if values.dtype.time_unit == "ns":
        _refuse(values, units % 1000 != 0, kind)
    elif values.dtype.time_unit == "ms":
        most = _GREATEST // 1000
        _refuse(values, (units > most) | (units < -most), kind)
    else:
        _refuse(values, units == _RESERVED, kind)
    return values.cast(pl.Datetime("us", values.dtype.time_zone)).cast(kind.polars)


def _refuse(values: pl.Series, bad: pl.Series, kind: Type) -> None:
    """Raise InexactCast for the first value under the mask, if there is one (null is not bad)."""
    place = bad.arg_max() if bad.any() else None
    if place is None:
        return
    try:
        shown = values.gather([place]).cast(pl.String)[0]
    except (pl.exceptions.PolarsError, ValueError, OverflowError):  # a timestamp outside of the calendar
        shown = f"the physical value {values.to_physical()[place]}"
    raise InexactCast(f"has {shown}, which {kind} does not hold exactly")
