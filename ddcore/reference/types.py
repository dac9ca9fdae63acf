"""The types of columns, by their names, and what a function returned as the types that it declared."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import polars as pl

from ddcore.base.errors import ExpressionError

Columns = dict[str, pl.DataType]
INTERVAL = pl.Struct({"months": pl.Int32(), "days": pl.Int32(), "microseconds": pl.Int64()})
"""What intervals are in Polars."""
UUID = pl.Extension("ddcore.uuid", pl.String())
"""The type of columns of UUIDs, whose values are texts."""


def as_declared(frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """What a function returned, as the declared types. A value that another type would not hold exactly is an error."""
    for name, dtype in columns.items():
        series = frame[name]
        if isinstance(dtype, pl.List | pl.Struct):
            _exactly_inside(series, dtype)
            continue
        if isinstance(dtype, pl.Datetime) and isinstance(series.dtype, pl.Datetime):
            parts = {"ms": Fraction(1000), "us": Fraction(1), "ns": Fraction(1, 1000)}[series.dtype.time_unit]
            exact = all(
                unit is None or ((unit * parts).denominator == 1 and abs(unit * parts) < 2**63)
                for unit in series.to_physical()
            )
        elif isinstance(dtype, pl.Datetime | pl.Date | pl.Time | pl.Map | pl.String | pl.Binary | pl.Boolean):
            alike = dtype == pl.String and isinstance(series.dtype, pl.Categorical | pl.Enum)
            exact = alike or series.dtype in (dtype, pl.Null())
        else:
            exact = all(value is None or _is_exactly(value, dtype, name) for value in series)
        if not exact:
            raise ExpressionError(f"the function returned a column {name} that {dtype} does not hold exactly")
    return frame.cast(pl.Schema(columns))


def _exactly_inside(series: pl.Series, dtype: pl.List | pl.Struct) -> None:
    """Raise ExpressionError where something inside a list or struct is not exactly of the declared type."""
    if series.dtype == pl.Null():
        return
    if type(series.dtype) is not type(dtype):
        raise ExpressionError(f"the function returned a column {series.name} that is no {dtype}")
    if isinstance(dtype, pl.List):
        values = [element for of_row in series.to_list() for element in of_row or []]
        as_declared(pl.DataFrame({"": pl.Series(values, dtype=inner(series.dtype), strict=False)}), {"": inner(dtype)})
        return
    fields = {field.name: instance(field.dtype) for field in dtype.fields}
    if {*series.struct.fields} != fields.keys():
        raise ExpressionError(f"the function returned a column {series.name} with other fields than {dtype}")
    as_declared(series.struct.unnest(), fields)


def _is_exactly(value: Any, dtype: pl.DataType, name: str) -> bool:
    """Whether a number type holds exactly this value."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return False
    if dtype == pl.Float64:
        return isinstance(value, float) or (isinstance(value, int) and Fraction(float(value)) == value)
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if isinstance(dtype, pl.Decimal):
        unscaled = Fraction(value) * 10**dtype.scale
        return not isinstance(value, float) and unscaled.denominator == 1 and abs(unscaled) < 10**dtype.precision
    least = -(2**63) if name == "count" else -(2**63) + 1
    return Fraction(value).denominator == 1 and least <= value < 2**63


def columns_of(schema: Mapping[str, Any]) -> Columns:
    """Names to Polars types, from names to our names of types (or to Polars types)."""
    return {name: _dtype(kind) for name, kind in schema.items()}


def _dtype(name: Any) -> pl.DataType:
    if isinstance(name, pl.DataType):
        return widened(name)
    if str(name).startswith("list["):
        return pl.List(_dtype(str(name)[5:-1]))
    if str(name).startswith("struct["):
        fields = (field.split(":", 1) for field in _outermost(str(name)[7:-1]))
        return pl.Struct({field.strip(): _dtype(kind.strip()) for field, kind in fields})
    if str(name).startswith("map["):
        key, value = _outermost(str(name)[4:-1])
        return pl.Map(_dtype(key.strip()), _dtype(value.strip()))
    decimal = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", str(name))
    if decimal:
        return pl.Decimal(int(decimal[1]), int(decimal[2]))
    types: Columns = {
        "int64": pl.Int64(),
        "float64": pl.Float64(),
        "bool": pl.Boolean(),
        "string": pl.String(),
        "binary": pl.Binary(),
        "date": pl.Date(),
        "timestamp": pl.Datetime("us", "UTC"),
        "time": pl.Time(),
        "uuid": UUID,
        "interval": INTERVAL,
    }
    return types[str(name)]


def type_name(dtype: Any) -> str:
    """The name that ``dd.toml`` has for a column's type."""
    if isinstance(dtype, pl.List):
        return f"list[{type_name(inner(dtype))}]"
    if isinstance(dtype, pl.Map):
        return f"map[{type_name(dtype.key)}, {type_name(dtype.value)}]"
    if dtype in (INTERVAL, UUID):
        return "interval" if dtype == INTERVAL else "uuid"
    if isinstance(dtype, pl.Struct):
        return f"struct[{', '.join(f'{field.name}: {type_name(instance(field.dtype))}' for field in dtype.fields)}]"
    if isinstance(dtype, pl.Decimal):
        return f"decimal({dtype.precision},{dtype.scale})"
    names = {"Int64": "int64", "Float64": "float64", "Boolean": "bool", "Datetime": "timestamp"}
    kind = str(dtype.base_type())
    return names.get(kind, kind.lower())


def held(dtype: Any) -> Any:
    """The type of the values of a column."""
    return pl.String() if dtype == UUID else dtype


def _outermost(text: str) -> list[str]:
    """The parts of a text between commas that no brackets enclose."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def instance(dtype: Any) -> pl.DataType:
    """A type that is given as its class or as an instance."""
    return dtype if isinstance(dtype, pl.DataType) else dtype()


def widened(dtype: pl.DataType) -> pl.DataType:
    """The type a column of ``dtype`` has here: one width of each kind."""
    if dtype.is_integer() or dtype.is_float():
        return pl.Float64() if dtype.is_float() else pl.Decimal(20, 0) if dtype == pl.UInt64 else pl.Int64()
    if isinstance(dtype, pl.Datetime):
        return pl.Datetime("us", "UTC")
    if isinstance(dtype, pl.Decimal):
        return pl.Decimal(dtype.precision, dtype.scale)
    if isinstance(dtype, pl.Map):
        return pl.Map(widened(instance(dtype.key)), widened(instance(dtype.value)))
    if isinstance(dtype, pl.Struct) and dtype != INTERVAL:
        return pl.Struct({field.name: widened(instance(field.dtype)) for field in dtype.fields})
    return pl.List(inner(dtype)) if isinstance(dtype, pl.List) else dtype


def narrowed(dtype: pl.DataType) -> pl.DataType:
    """The type of a result that is computed from decimals of up to 18 digits: it has as many, if its scale allows."""
    if isinstance(dtype, pl.Decimal) and dtype.scale <= 18:
        return pl.Decimal(min(dtype.precision, 18), dtype.scale)
    if isinstance(dtype, pl.Struct) and dtype != INTERVAL:
        return pl.Struct({field.name: narrowed(instance(field.dtype)) for field in dtype.fields})
    return pl.List(narrowed(inner(dtype))) if isinstance(dtype, pl.List) else dtype


def inner(dtype: pl.DataType) -> pl.DataType:
    """The type of the elements of a list."""
    assert isinstance(dtype, pl.List), f"{dtype} is no list"
    return widened(instance(dtype.inner))
