"""Casts that lose nothing: a column is cast if the type holds each of its values exactly, and refused otherwise.

Numbers go to numbers: an integer to a wider one, 2.0 to int64, a decimal to one with more digits. A float never becomes
a decimal nor the reverse, because a decimal fraction is hardly ever a float. Text is never parsed, and neither dates
nor bools are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from ddcore.base.schema import INTERVAL_PARTS, Type, uuid_mark
from ddcore.data import forms, nested

_RESERVED = -(2**63)
_GREATEST = 2**63 - 1
_WIDEST = 2**127
_WIDEST_FLOAT = 2**53  # up to here every integer is a float
_X = pl.col("x")


class InexactCast(Exception):
    """A column that the type cannot hold; the text says what it has instead.

    ``path`` is where that is inside a list or struct, such as ``[].zip``.
    """

    path = ""


def exact_cast(values: pl.Series, kind: Type, *, reserved: bool = True) -> pl.Series:
    """The column with the declared type, each value exactly what it was: O(n).

    ``reserved``: whether -2**63 is refused where it would stand for null. Raises InexactCast naming a value or the
    column's type.
    """
    if values.dtype == pl.Null():
        return values.cast(kind.polars)
    if kind.is_nested:
        return _inside(values, kind)
    if values.dtype.is_numeric() and kind.name in ("int64", "float64", "decimal"):
        return _numbers(values, kind, reserved=reserved)
    if kind.name in _FORMS or (kind.name == "timestamp" and isinstance(values.dtype, pl.Datetime)):
        return _FORMS.get(kind.name, _timestamps)(values, kind)
    if kind.name == "string" and isinstance(values.dtype, pl.Categorical | pl.Enum):
        return values.cast(pl.String)
    if values.dtype != kind.polars:
        raise InexactCast(f"is {values.dtype}, not {kind}")
    return values


def _inside(values: pl.Series, kind: Type) -> pl.Series:
    """A list, struct or map, each column inside it cast by itself. The order of a struct's fields may differ."""
    if isinstance(values.dtype, pl.Array):
        values = values.arr.to_list()
    names = {field.name for field in values.dtype.fields} if isinstance(values.dtype, pl.Struct) else set()
    own = {name for name, _ in kind.fields} if kind.name == "struct" else set()
    shape = {"list": pl.List, "map": pl.Map, "struct": pl.Struct}[kind.name]
    if not isinstance(values.dtype, shape) or names != own:
        raise InexactCast(f"is {values.dtype}, not {kind}")
    inside = []
    for (part, inner), (suffix, _) in zip(nested.parts(values, kind), kind.inner, strict=True):
        try:
            inside.append(exact_cast(part, inner))
        except InexactCast as error:
            error.path = suffix + error.path
            raise
    return nested.together(values, kind, inside)


def _times(values: pl.Series, kind: Type) -> pl.Series:
    """Times of day of whole microseconds."""
    if values.dtype != pl.Time():
        raise InexactCast(f"is {values.dtype}, not {kind}")
    _refuse(values, values.to_physical() % 1000 != 0, kind)
    return values


def _uuids(values: pl.Series, kind: Type) -> pl.Series:
    """UUIDs in their usual form, from texts, from their 16 bytes, and from what is marked as UUIDs."""
    if values.dtype == uuid_mark():
        values = values.ext.storage()
    texts = values.bin.encode("hex") if values.dtype == pl.Binary() else values
    if texts.dtype != pl.String():
        raise InexactCast(f"is {values.dtype}, not {kind}")
    usual = forms.canonical_uuids(texts)
    _refuse(values, usual.is_null() & values.is_not_null(), kind)
    return usual


def _intervals(values: pl.Series, kind: Type) -> pl.Series:
    """Intervals from structs of months, days and microseconds of any width, and from durations."""
    valid = values.is_not_null().to_numpy() if values.null_count() else None
    if isinstance(values.dtype, pl.Duration):
        length = values.cast(pl.Duration("us"))
        _refuse(values, values != length, kind)
        zeros = pl.Series([0], dtype=pl.Int64).new_from_index(0, len(values))
        parts = {"months": zeros, "days": zeros, "microseconds": length.to_physical().fill_null(0)}
        return nested.structs(parts, valid).cast(kind.polars).alias(values.name)
    if not isinstance(values.dtype, pl.Struct) or {field.name for field in values.dtype.fields} != {*INTERVAL_PARTS}:
        raise InexactCast(f"is {values.dtype}, not {kind}")
    parts = {name: values.struct.field(name) for name in INTERVAL_PARTS}
    for name, part in parts.items():
        bits = 31 if name != "microseconds" else 63
        if not part.dtype.is_integer():
            raise InexactCast(f"is {values.dtype}, not {kind}")
        if part.dtype not in (pl.Int32(), pl.Int64()) or bits == 31:
            _refuse(part, _mask(_integers(part), _outside(_X, -(2**bits) + 1, 2**bits - 1)), kind)
        if values.filter(values.is_not_null() & part.is_null()).len():
            raise InexactCast(f"has an interval whose {name} are null")
    return nested.structs(parts, valid).cast(kind.polars).alias(values.name)


_FORMS: Mapping[str, Callable[[pl.Series, Type], pl.Series]] = {"time": _times, "uuid": _uuids, "interval": _intervals}


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
        unit = _wide(10**values.dtype.scale)
        return _mask(values.to_physical(), (_X % unit != 0) | _outside(_X // unit, least, _GREATEST))
    return _mask(_integers(values), _outside(_X, least, _GREATEST))


def _between_floats(values: pl.Series) -> pl.Series:
    """Which integers no float is equal to."""
    wide = _integers(values)
    large = _mask(wide, _outside(_X, -_WIDEST_FLOAT, _WIDEST_FLOAT))
    if not large.any():
        return large
    again = values.cast(pl.Float64).cast(pl.Int128, strict=False)
    return large & (again.is_null() | (again != wide))


def _beyond_decimal(values: pl.Series, kind: Type) -> pl.Series:
    """Which numbers have more digits, before the point or after it, than the decimal type."""
    scale = values.dtype.scale if isinstance(values.dtype, pl.Decimal) else 0
    unscaled = values.to_physical() if values.dtype.is_decimal() else _integers(values)
    most = min(10 ** (kind.precision - kind.scale + scale), _WIDEST) - 1
    cut = _wide(10 ** max(scale - kind.scale, 0))
    return _mask(unscaled, _outside(_X, -most, most) | (_X % cut != 0))


def _mask(values: pl.Series, bad: pl.Expr) -> pl.Series:
    return values.alias("x").to_frame().select(bad).to_series()


def _wide(number: int) -> pl.Expr:
    return pl.lit(number, dtype=pl.Int128)


def _outside(number: pl.Expr, least: int, greatest: int) -> pl.Expr:
    return (number < _wide(least)) | (number > _wide(greatest))


def _integers(values: pl.Series) -> pl.Series:
    """Integers in 128 bits, where every bound can be compared; what does not fit becomes the greatest of them."""
    if values.dtype == pl.UInt128():
        values = values.clip(upper_bound=2**127 - 1)
    return values.cast(pl.Int128)


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
    position = bad.arg_max() if bad.any() else None
    if position is None:
        return
    if isinstance(values.dtype, pl.Datetime) and values.dtype.time_unit != "ns":
        value = f"the physical value {values.to_physical()[position]}"  # outside of the calendar, where Polars panics
    else:
        value = values.gather([position]).cast(pl.String)[0] if values.dtype.is_temporal() else str(values[position])
    raise InexactCast(f"has {value}, which {kind} does not hold exactly")
