"""Numbers as text and text as numbers, by PostgreSQL's patterns: ``to_char`` and ``to_number``."""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl
from sqlglot import exp

from ddcore.base.schema import MOST_DIGITS, WORD_DIGITS, Type
from ddcore.sql import zeros
from ddcore.sql.types import FLOAT, TEXT
from ddcore.sql.values import Rule, Value, Values, shared

_PATTERN = re.compile(r"(FM)?([90,]*)(?:\.([90]*))?")
_HINT = "patterns of numbers have 9 and 0 before the point, a comma, one point, and FM in front"


@dataclass(frozen=True)
class _Pattern:
    """``before`` and ``behind`` the point; ``is_short``: without what only fills the width."""

    before: str
    behind: str
    has_point: bool
    is_short: bool

    @property
    def digits(self) -> int:
        """How many there are before the point."""
        return len(self.before.replace(",", ""))


def _pattern(values: Values, node: exp.Func) -> _Pattern:
    text = node.args["format"].name if isinstance(node.args["format"], exp.Literal) else ""
    found = _PATTERN.fullmatch(text)
    if not text or found is None or not found[2] or found[2].startswith(",") or text.endswith("."):
        values.source.refuse(node, f"a pattern of {node.sql_name().lower()}() that is not of these", _HINT)
    pattern = _Pattern(found[2], found[3] or "", found[3] is not None, bool(found[1]))
    if pattern.digits + len(pattern.behind) > WORD_DIGITS:
        values.source.refuse(node, f"a pattern of more than {WORD_DIGITS} digits", "use fewer digits")
    return pattern


def written(values: Values, node: exp.Func, value: Value) -> Value:
    """A number as text: ``to_char(n, 'FM999,990.00')``. One with too many digits is all ``#``."""
    pattern = _pattern(values, node)
    if value.type == FLOAT:
        values.source.refuse(node, "to_char() of a double precision", "cast it to a decimal: CAST(x AS decimal(18, 2))")
    places = len(pattern.behind)
    kind = pl.Decimal(MOST_DIGITS, places)
    number = value.expr.cast(pl.Decimal(MOST_DIGITS, value.type.scale if value.type else 0))
    rounded = Value(number.round(places, mode="half_away_from_zero").cast(kind), Type("decimal", 38, places), node)
    return Value(shared([rounded], lambda x: _text(x.expr, pattern)), TEXT, node)


def _text(number: pl.Expr, pattern: _Pattern) -> pl.Expr:
    digits, places = pattern.digits, len(pattern.behind)
    plain = number.cast(pl.String).str.strip_chars_start("-")
    whole = plain.str.split(".").list.first()
    fits = whole.str.strip_chars_start("0").str.len_chars() <= digits
    is_zero = number == 0
    padded = whole.str.strip_chars_start("0").str.zfill(digits)
    body = pl.concat_str(_before(padded, pattern, is_zero))
    if pattern.has_point:
        body = body + pl.lit(".") + (_behind(plain, pattern) if places else pl.lit(""))
    sign = pl.when(number < 0).then(pl.lit("-")).otherwise(pl.lit("" if pattern.is_short else " "))
    text = sign + body.str.strip_chars_start(" ")
    marks = re.sub("[90]", "#", pattern.before) + ("." + "#" * places if pattern.has_point else "")
    other = pl.when(number < 0).then(pl.lit("-" + marks)).otherwise(pl.lit(("" if pattern.is_short else " ") + marks))
    width = len(pattern.before) + places + pattern.has_point + 1
    shown = pl.when(fits).then(text if pattern.is_short else text.str.pad_start(width)).otherwise(other)
    return pl.when(number.is_not_null()).then(shown)


def _before(padded: pl.Expr, pattern: _Pattern, is_zero: pl.Expr) -> list[pl.Expr]:
    """The parts before the point: a digit is left out where only zeros stand before it and no ``0`` in the pattern."""
    parts, number, is_shown = list[pl.Expr](), 0, False
    for letter in pattern.before:
        if letter == ",":
            there = pl.lit(True) if is_shown else padded.str.head(number).str.contains("[1-9]")
            parts.append(pl.when(there).then(pl.lit(",")).otherwise(pl.lit(" ")))
            continue
        is_shown = is_shown or letter == "0"
        number += 1
        digit = padded.str.slice(number - 1, 1)
        there = pl.lit(True) if is_shown else padded.str.head(number).str.contains("[1-9]")
        if number == pattern.digits and not pattern.has_point:
            there = there | is_zero
        parts.append(pl.when(there).then(digit).otherwise(pl.lit(" ")))
    return parts


def _behind(plain: pl.Expr, pattern: _Pattern) -> pl.Expr:
    digits = plain.str.split(".").list.last()
    if not pattern.is_short:
        return digits
    kept = pattern.behind.rfind("0") + 1  # what stands behind the last 0 of the pattern goes where it is 0
    return digits.str.head(kept) + digits.str.slice(kept).str.strip_chars_end("0")


def _read(values: Values, node: exp.ToNumber) -> Value:
    """Text that fits a pattern as a decimal with its digits behind the point; the row fails for other text."""
    text, pattern = values.require(values.of(node.this), "string"), _pattern(values, node)
    kind = Type("decimal", WORD_DIGITS, len(pattern.behind))
    grouped = r"\d{1,3}(?:,\d{3})*" if "," in pattern.before else r"\d+"
    form = rf"^[+-]?(?:{grouped}|\d+)?(?:\.\d{{0,{len(pattern.behind)}}})?$"

    def number(text: Value) -> pl.Expr:
        trimmed = text.expr.str.strip_chars(" ")
        plain = trimmed.str.replace_all(",", "", literal=True)
        digits = plain.str.strip_chars_start("+-").str.split(".").list.first().str.len_chars()
        fits = trimmed.str.contains(form) & trimmed.str.contains(r"\d") & (digits <= pattern.digits)
        wrong = zeros.failing_where(~fits, "does not fit the pattern of to_number()")
        return plain.str.strip_chars_end(".").cast(kind.polars) + wrong.cast(kind.polars)

    return Value(shared([text], number), kind, node)


RULES: dict[type[exp.Expr], Rule] = {exp.ToNumber: _read}
