"""What a user writes where an expression is expected: an expression of Polars, SQL text or a value of Python."""

from __future__ import annotations

import re
import sys
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import MOST_DIGITS, WORD_DIGITS
from ddcore.expressions.failures import FAILURES, reason_of
from ddcore.expressions.intervals import GREATEST, LEAST
from ddcore.text.wording import brief

__all__ = ["parse"]

_QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"")
_CLOCK = re.compile(r"\b(?:now\s*\(|current_(?:timestamp|date|time)\b|localtime(?:stamp)?\b)", re.IGNORECASE)


def parse(value: Any, *, bare_string: Literal["column", "sql"]) -> pl.Expr:
    """The expression that a user's argument stands for.

    Text is a column's name or SQL, by ``bare_string``; integers are int64, decimals decimal(18, scale), or with more
    digits decimal(38, scale). Raises
    ProgramError for text that is no SQL, for text that reads the clock, and for values that no column can hold.
    """
    if isinstance(value, pl.Expr):
        return value
    if isinstance(value, str):
        return pl.col(value) if bare_string == "column" else _sql(value)
    is_numpy = "numpy" in sys.modules and isinstance(value, np.generic)  # which is then not imported for this
    return _literal(value.item() if is_numpy else value)


def _sql(text: str) -> pl.Expr:
    if _CLOCK.search(_QUOTED.sub("", text)):
        raise ProgramError(
            f"the SQL text {text!r} reads the clock",
            "it must mean the same in every run; dd.now() has the instant of the version, for join_between()",
        )
    try:
        return pl.sql_expr(text)
    except FAILURES as failure:
        reason = reason_of(failure)
        raise ProgramError(
            f"cannot read the SQL text {text!r}" + ("" if reason.startswith("unable to parse") else f": {reason}"),
            "text is SQL here; for a string value write pl.lit(...)",
        ) from None


def _literal(value: Any) -> pl.Expr:
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if not LEAST < value <= GREATEST:
            raise ProgramError(f"the literal {value} is beyond int64", "use a float or a decimal")
        return pl.lit(value, dtype=pl.Int64)
    if value is None or isinstance(value, bool | float | bytes | date | datetime | timedelta):
        return pl.lit(value)
    raise ProgramError(
        f"{type(value).__name__} is no expression: {brief(value)}",
        'give a Polars expression such as col("a") + 1, SQL text or a value',
    )


def _decimal(value: Decimal) -> pl.Expr:
    exponent = value.as_tuple().exponent
    scale = max(-exponent, 0) if isinstance(exponent, int) else 0
    before = value.adjusted() + 1 if value.is_finite() and value else 0
    digits = WORD_DIGITS if max(before, 0) + scale <= WORD_DIGITS else MOST_DIGITS
    if not value.is_finite() or max(before, 0) + scale > MOST_DIGITS:
        raise ProgramError(f"the literal {value} is no decimal of {MOST_DIGITS} digits", "use fewer digits or a float")
    return pl.lit(value, dtype=pl.Decimal(digits, scale))
