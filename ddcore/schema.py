"""Column types and schemas: the few types that rows are made of, and how foreign types widen to them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcore.errors import ProgramError

if TYPE_CHECKING:
    import pyarrow as pa

_NAMES = ("int64", "float64", "bool", "string", "binary", "date", "timestamp", "decimal")
_WIDENED = {
    "int8": "int64", "int16": "int64", "int32": "int64", "uint8": "int64", "uint16": "int64", "uint32": "int64",
    "float32": "float64",
}  # fmt: skip
_PYTHON = {
    int: "int64", float: "float64", bool: "bool", str: "string", bytes: "binary", date: "date", datetime: "timestamp",
}  # fmt: skip
_TOO_WIDE = (pl.UInt64(), pl.UInt128(), pl.Int128())
_MOST_DIGITS = 18
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")


@dataclass(frozen=True, slots=True)
class Type:
    """A column type. ``precision`` and ``scale`` belong to decimals only; a timestamp is microseconds in UTC."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.name == "decimal" else self.name

    @property
    def polars(self) -> pl.DataType:
        """The Polars type of a column of this type."""
        if self.name == "decimal":
            return pl.Decimal(self.precision, self.scale)
        if self.name == "timestamp":
            return pl.Datetime("us", "UTC")
        plain = {
            "int64": pl.Int64(), "float64": pl.Float64(), "bool": pl.Boolean(), "string": pl.String(),
            "binary": pl.Binary(), "date": pl.Date(),
        }  # fmt: skip
        return plain[self.name]

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of a column of this type."""
        import pyarrow as pa

        if self.name == "decimal":
            return pa.decimal128(self.precision, self.scale)
        if self.name == "timestamp":
            return pa.timestamp("us", tz="UTC")
        plain = {
            "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_(), "string": pa.string(),
            "binary": pa.binary(), "date": pa.date32(),
        }  # fmt: skip
        return plain[self.name]


Schema = dict[str, Type]


def parse_type(kind: Any) -> Type:
    """A type from its name (``int64``, ``decimal(10,2)``), a Polars type (``pl.Int64``) or a Python type (``int``).

    Narrow numbers widen. Raises ProgramError.
    """
    if isinstance(kind, Type):
        return kind
    if isinstance(kind, pl.DataType) or (isinstance(kind, type) and issubclass(kind, pl.DataType)):
        return type_of(kind)
    name = kind.strip() if isinstance(kind, str) else _PYTHON.get(kind, "") if isinstance(kind, type) else ""
    match = _DECIMAL.fullmatch(name)
    if match:
        return _decimal(int(match[1]), int(match[2]), name)
    name = _WIDENED.get(name, name)
    if name not in _NAMES or name == "decimal":
        raise ProgramError(
            f"there is no type {kind!r}", f"types are {', '.join(_NAMES[:-1])} and decimal(precision,scale)"
        )
    return Type(name)


def type_of(dtype: pl.DataType | type[pl.DataType]) -> Type:
    """The type that holds every value of a Polars type. Raises ProgramError where there is none."""
    if isinstance(dtype, type):
        if dtype.is_nested():
            raise _unsupported(dtype)
        dtype = dtype()
    if dtype.is_integer() and dtype not in _TOO_WIDE:
        return Type("int64")
    if dtype.is_float():
        return Type("float64")
    if isinstance(dtype, pl.Decimal):
        return _decimal(dtype.precision or 38, dtype.scale, str(dtype))
    if isinstance(dtype, pl.Datetime):
        return Type("timestamp")
    plain = {
        pl.Boolean(): "bool", pl.String(): "string", pl.Binary(): "binary", pl.Date(): "date",
    }  # fmt: skip
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return Type("string")
    if dtype in plain:
        return Type(plain[dtype])
    raise _unsupported(dtype)


def parse_schema(columns: Mapping[str, Any]) -> Schema:
    """A schema from column names and types, as :func:`parse_type` takes them. Raises ProgramError naming the column."""
    if not isinstance(columns, Mapping):
        raise ProgramError(f"a schema is a dict, not {columns!r:.60}", 'for example {"town": "string", "km": "int64"}')
    schema: Schema = {}
    for name, kind in columns.items():
        try:
            schema[name] = parse_type(kind)
        except ProgramError as error:
            raise ProgramError(f"column {name}: {error.message}", error.hint) from None
    return schema


def is_direct(kinds: Sequence[Type]) -> bool:
    """Whether a key of columns of these types is its own code: one column of fixed width."""
    return len(kinds) == 1 and kinds[0].name not in ("string", "binary")


def check_names(schema: Schema, dims: Sequence[str]) -> None:
    """Raises ProgramError for column names that change logs need for themselves."""
    for name in schema:
        if not name:
            raise ProgramError("a column has no name", "name each column of the input")
        if name in (*dims, "diff") or name.startswith("_"):
            raise ProgramError(
                f"a column may not be called {name}: change logs use that name themselves",
                "rename the column with select()",
            )


def _unsupported(dtype: pl.DataType | type[pl.DataType]) -> ProgramError:
    return ProgramError(f"columns of type {dtype} are not supported", f"cast to one of {', '.join(_NAMES)}")


def _decimal(precision: int, scale: int, text: str) -> Type:
    if not 0 < precision <= _MOST_DIGITS or scale > precision:
        raise ProgramError(f"{text}: decimals have 1 to {_MOST_DIGITS} digits", "cast to fewer digits")
    return Type("decimal", precision, scale)
