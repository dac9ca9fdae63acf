"""Texts of literals, read as values of their types."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timezone
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import polars as pl

from ddcore.base.schema import MOST_DIGITS, Type
from ddcore.data.forms import canonical_uuids, intervals_of

UTC = timezone.utc  # noqa: UP017  (Polars compares with this one)
_EXACT = Context(prec=MOST_DIGITS)  # Python's own has 28 digits
_TRUTHS = dict.fromkeys(("true", "t", "yes", "on", "1"), True) | dict.fromkeys(("false", "f", "no", "off", "0"), False)


def read(text: str, wanted: Type) -> Any:
    """The value of a text. Raises ValueError, or an ArithmeticError, where it is none of this type."""
    if wanted.name == "decimal":
        return to_scale(Decimal(text), wanted.scale)
    if wanted.name not in _READERS:
        raise ValueError(text)
    return _READERS[wanted.name](text)


def to_scale(number: Decimal, scale: int) -> Decimal:
    """A number with so many digits after the point. Raises an ArithmeticError where it then has too many."""
    return number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)


def _date(text: str) -> date:
    """A date as ISO has it, also without the zeros before a month and a day."""
    parts = text.split("-")
    return date(*map(int, parts)) if len(parts) == 3 and len(parts[0]) == 4 else date.fromisoformat(text)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise ValueError(text)
    return _TRUTHS[text.lower()]


def _by(parse: Callable[[pl.Series], pl.Series]) -> Callable[[str], Any]:
    """The reader of one text by what reads a column, which has null for what is none."""

    def reader(text: str) -> Any:
        value = parse(pl.Series([text]))[0]
        if value is None:
            raise ValueError(text)
        return value

    return reader


_READERS: dict[str, Callable[[str], Any]] = {
    "date": _date, "int64": int, "float64": float, "timestamp": _moment, "bool": _truth, "time": time.fromisoformat,
    "uuid": _by(canonical_uuids), "interval": _by(intervals_of),
}  # fmt: skip
