"""The operators and functions of SQL: for each kind of sqlglot's nodes, the value it makes."""

from __future__ import annotations

import calendar
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial, reduce
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore import syntax
from ddcore.schema import Type
from ddcore.sql.source import shown
from ddcore.sql.values import (
    BOOL,
    DATE,
    FLOAT,
    INT,
    TEXT,
    TIMESTAMP,
    Value,
    Values,
    aligned,
    as_type,
    constant,
    declared_type,
    like_pattern,
    null,
    shared,
)

__all__ = ["ARGUMENTS", "NEEDED", "RULES"]

Rule = Callable[[Values, Any], Value]

# -- literals, columns, logic -----------------------------------------------------------------------------------------


def _literal(values: Values, node: exp.Literal) -> Value:
    if node.is_string:
        return constant(node.this, node)
    text = node.this
    if re.fullmatch(r"\d+", text):
        if int(text) >= 2**63:
            raise values.source.error(node, f"the literal {text} is beyond int64", "write it with a point, or as 1e20")
        return constant(int(text), node)
    if "e" in text.lower():
        return constant(float(text), node)
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise values.source.error(node, f"{text} is no number", "write digits with at most one point") from None
    if len(number.as_tuple().digits) > 18:
        raise values.source.error(node, f"the literal {text} has more than 18 digits", "write it as 1.5e0: a float64")
    return constant(number, node)


def _boolean(values: Values, node: exp.Boolean) -> Value:
    return constant(bool(node.this), node)


def _null(values: Values, node: exp.Null) -> Value:
    return Value(pl.lit(None), None, node)


def _paren(values: Values, node: exp.Paren) -> Value:
    return values.of(node.this)


def _logic(combine: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Rule:
    def rule(values: Values, node: exp.Connector) -> Value:
        where = node.key.upper()
        return Value(combine(values.truth(node.left, where), values.truth(node.right, where)), BOOL, node)

    return rule


def _not(values: Values, node: exp.Not) -> Value:
    return Value(~values.truth(node.this, "NOT"), BOOL, node)


def _comparison(compare: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Rule:
    def rule(values: Values, node: exp.Binary) -> Value:
        if isinstance(node.this, exp.Tuple) and isinstance(node.expression, exp.Tuple):
            return _rows_equal(values, node)
        return compared(values, compare, values.of(node.this), values.of(node.expression), node)

    return rule


def compared(
    values: Values, compare: Callable[[pl.Expr, pl.Expr], pl.Expr], left: Value, right: Value, node: exp.Expr
) -> Value:
    """Two values compared: null where one is null."""
    (mine, theirs), kind = aligned(values.source, [left, right], node)
    if kind.is_nested:
        values.source.refuse(node, "comparing lists and structs")
    if left.type is None or right.type is None:
        return Value(null(BOOL), BOOL, node)
    return Value(compare(mine, theirs), BOOL, node)


def _rows_equal(values: Values, node: exp.Binary) -> Value:
    if not isinstance(node, exp.EQ | exp.NEQ):
        values.source.refuse(node, "comparing these rows")
    equal = _row_equals(values, list(map(values.of, node.this.expressions)), node.expression, node)
    return Value(~equal if isinstance(node, exp.NEQ) else equal, BOOL, node)


def _row_equals(values: Values, row: Sequence[Value], other: exp.Expr, node: exp.Expr) -> pl.Expr:
    if not isinstance(other, exp.Tuple) or len(row) != len(other.expressions):
        values.source.refuse(node, "comparing these rows")
    equal = pl.lit(True)
    for left, right in zip(row, other.expressions, strict=True):
        equal = equal & compared(values, pl.Expr.eq, left, values.of(right), node).expr
    return equal


def _distinct_from(*, equal: bool) -> Rule:
    def rule(values: Values, node: exp.Binary) -> Value:
        (mine, theirs), _ = aligned(values.source, [values.of(node.this), values.of(node.expression)], node)
        same = mine.eq_missing(theirs)
        return Value(same if equal else ~same, BOOL, node)

    return rule


def _is(values: Values, node: exp.Is) -> Value:
    value, other = values.of(node.this), node.expression
    if isinstance(other, exp.Null):
        found = pl.lit(True) if value.type is None else value.expr.is_null()
    elif isinstance(other, exp.Boolean):
        found = values.truth(node.this, "IS").eq_missing(pl.lit(bool(other.this)))
    else:
        values.source.refuse(node, "this IS")
    return Value(~found if node.args.get("negate") else found, BOOL, node)


def _between(values: Values, node: exp.Between) -> Value:
    low, high = values.of(node.args["low"]), values.of(node.args["high"])

    def both(value: Value) -> pl.Expr:
        above = compared(values, pl.Expr.ge, value, low, node).expr
        return above & compared(values, pl.Expr.le, value, high, node).expr

    return Value(shared([values.of(node.this)], both), BOOL, node)


def _in(values: Values, node: exp.In) -> Value:
    if node.args.get("query") is not None or node.args.get("unnest") is not None:
        values.source.refuse(node, "a subquery in this place")
    if not node.expressions:
        values.source.refuse(node, "IN without values")
    if isinstance(node.this, exp.Tuple):
        row = list(map(values.of, node.this.expressions))

        def any_row(*row: Value) -> pl.Expr:
            return reduce(operator.or_, [_row_equals(values, row, each, node) for each in node.expressions])

        return Value(shared(row, any_row), BOOL, node)
    value = values.of(node.this)
    others = [values.of(each) for each in node.expressions]
    if all(each.literal is not None for each in others) and value.type is not None and len(others) > 1:
        exprs, kind = aligned(values.source, [value, *others], node)
        wanted = pl.select([expr.alias(str(number)) for number, expr in enumerate(exprs[1:])]).row(0)
        return Value(exprs[0].is_in(pl.lit(list(wanted), dtype=pl.List(kind.polars))), BOOL, node)

    def any_value(value: Value) -> pl.Expr:
        return reduce(operator.or_, [compared(values, pl.Expr.eq, value, each, node).expr for each in others])

    return Value(shared([value], any_value), BOOL, node)


def _like(*, small: bool) -> Rule:
    def rule(values: Values, node: exp.Binary) -> Value:
        return _matching(values, node, "\\", small)

    return rule


def _escape(values: Values, node: exp.Escape) -> Value:
    if not isinstance(node.this, exp.Like | exp.ILike) or not isinstance(node.expression, exp.Literal):
        values.source.refuse(node, "this ESCAPE")
    return _matching(values, node.this, node.expression.name, isinstance(node.this, exp.ILike))


def _matching(values: Values, node: exp.Binary, escape: str, small: bool) -> Value:
    text, pattern = values.require(values.of(node.this), "string"), values.of(node.expression)
    if pattern.type is None:
        return Value(null(BOOL), BOOL, node)
    if not isinstance(pattern.literal, str):
        values.source.refuse(node, "LIKE with a pattern that is no literal")
    regex = like_pattern(pattern.literal, escape)
    met = text.expr.str.contains(f"(?i){regex}" if small else regex)
    return Value(~met if node.args.get("negate") else met, BOOL, node)


def _case(values: Values, node: exp.Case) -> Value:
    branches = node.args["ifs"]
    results = [values.of(branch.args["true"]) for branch in branches]
    default = node.args.get("default")
    results.append(values.of(default) if default is not None else Value(pl.lit(None), None, node))
    exprs, kind = aligned(values.source, results, "CASE")

    def choice(conditions: Sequence[pl.Expr]) -> pl.Expr:
        chosen = exprs[-1]
        for condition, expr in zip(reversed(conditions), reversed(exprs[:-1]), strict=True):
            chosen = pl.when(condition).then(expr).otherwise(chosen)
        return chosen

    if node.this is None:
        return Value(choice([values.truth(branch.this, "CASE WHEN") for branch in branches]), kind, node)
    others = [values.of(branch.this) for branch in branches]

    def of_subject(subject: Value) -> pl.Expr:
        return choice([compared(values, pl.Expr.eq, subject, other, node).expr for other in others])

    return Value(shared([values.of(node.this)], of_subject), kind, node)


def _if(values: Values, node: exp.If) -> Value:
    default = node.args.get("false")
    results = [
        values.of(node.args["true"]),
        values.of(default) if default is not None else Value(pl.lit(None), None, node),
    ]
    (yes, no), kind = aligned(values.source, results, "IF")
    return Value(pl.when(values.truth(node.this, "IF")).then(yes).otherwise(no), kind, node)


def _coalesce(values: Values, node: exp.Coalesce) -> Value:
    parts = [values.of(each) for each in [node.this, *node.expressions]]
    exprs, kind = aligned(values.source, parts, "COALESCE")
    choice = exprs[-1]
    for part, expr in zip(reversed(parts[:-1]), reversed(exprs[:-1]), strict=True):
        choice = shared([replace(part, expr=expr)], partial(_first, otherwise=choice))
    return Value(choice, kind, node)


def _first(value: Value, otherwise: pl.Expr) -> pl.Expr:
    return pl.when(value.expr.is_not_null()).then(value.expr).otherwise(otherwise)


def _nullif(values: Values, node: exp.Nullif) -> Value:
    value, other = values.of(node.this), values.of(node.expression)
    if value.type is None:
        return value
    nothing = null(value.type)

    def unless_same(value: Value) -> pl.Expr:
        return pl.when(compared(values, pl.Expr.eq, value, other, node).expr).then(nothing).otherwise(value.expr)

    return Value(shared([value], unless_same), value.type, node)


def _extreme(horizontal: Callable[..., pl.Expr]) -> Rule:
    def rule(values: Values, node: exp.Func) -> Value:
        exprs, kind = aligned(values.source, [values.of(each) for each in [node.this, *node.expressions]], node)
        if kind.name not in ("int64", "float64", "date", "timestamp", "decimal"):
            values.source.refuse(node, f"{node.sql_name().lower()} of {kind}")
        parts = [Value(expr, kind, node) for expr in exprs]
        return values.typed(horizontal, parts, node)

    return rule


# -- numbers ----------------------------------------------------------------------------------------------------------


def _arithmetic(name: str, combine: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Rule:
    def rule(values: Values, node: exp.Binary) -> Value:
        left, right = values.of(node.this), values.of(node.expression)
        if isinstance(right.literal, Interval) or isinstance(left.literal, Interval) or _is_day(left) or _is_day(right):
            return _on_days(values, node, left, right, name)
        left, right = values.number(left), values.number(right)
        if FLOAT in (left.type, right.type):
            return Value(
                combine(as_type(values.source, left, FLOAT), as_type(values.source, right, FLOAT)), FLOAT, node
            )
        return values.typed(combine, [left, right], node)

    return rule


def _divided(values: Values, node: exp.Div) -> Value:
    left, right = values.number(values.of(node.this)), values.number(values.of(node.expression))
    if left.type == INT and right.type == INT:
        return Value(left.expr.truncdiv(right.expr), INT, node)
    mine, theirs = (as_type(values.source, each, FLOAT) for each in (left, right))
    divisor = replace(right, expr=theirs, type=FLOAT)
    return Value(mine / shared([divisor], _null_for_zero), FLOAT, node)


def _null_for_zero(value: Value) -> pl.Expr:
    return pl.when(value.expr != 0).then(value.expr).otherwise(null(FLOAT))


def _remainder(values: Values, node: exp.Mod) -> Value:
    left, right = (values.require(values.of(each), "int64") for each in (node.this, node.expression))
    return Value(syntax.called({"Sql": {"Binary": "Rem"}}, [left.expr, right.expr]), INT, node)


def _negative(values: Values, node: exp.Neg) -> Value:
    value = values.number(values.of(node.this))
    if isinstance(value.literal, int | float | Decimal):
        return constant(-value.literal, node)
    return values.typed(operator.neg, [value], node)


def _absolute(values: Values, node: exp.Abs) -> Value:
    return values.typed(pl.Expr.abs, [values.number(values.of(node.this))], node)


def _rounded(values: Values, node: exp.Round) -> Value:
    value = values.number(values.of(node.this))
    places = node.args.get("decimals")
    digits = values.of(places).literal if places is not None else 0
    if not isinstance(digits, int) or digits < 0:
        values.source.refuse(node, "round() to a number of digits that is no literal of at least 0")
    if value.type == INT:
        return value
    rounded = value.expr.round(digits, mode="half_away_from_zero")
    assert value.type is not None
    if value.type.name == "decimal":
        kind = Type("decimal", 18, min(digits, value.type.scale))
        return Value(rounded.cast(kind.polars), kind, node)
    return Value(rounded, value.type, node)


def _of_float(compute: Callable[[pl.Expr], pl.Expr]) -> Rule:
    def rule(values: Values, node: exp.Func) -> Value:
        return Value(compute(as_type(values.source, values.number(values.of(node.this)), FLOAT)), FLOAT, node)

    return rule


def _whole(compute: Callable[[pl.Expr], pl.Expr]) -> Rule:
    def rule(values: Values, node: exp.Func) -> Value:
        value = values.number(values.of(node.this))
        if value.type == INT:
            return value
        return Value(compute(as_type(values.source, value, FLOAT)), FLOAT, node)

    return rule


def _power(values: Values, node: exp.Pow) -> Value:
    base, exponent = (
        as_type(values.source, values.number(values.of(each)), FLOAT) for each in (node.this, node.expression)
    )
    return Value(base.pow(exponent), FLOAT, node)


# -- text -------------------------------------------------------------------------------------------------------------


def _of_text(compute: Callable[[pl.Expr], pl.Expr], kind: Type = TEXT) -> Rule:
    def rule(values: Values, node: exp.Func) -> Value:
        return Value(compute(values.require(values.of(node.this), "string").expr), kind, node)

    return rule


def _concatenated(values: Values, node: exp.DPipe) -> Value:
    parts = [values.of(each) for each in (node.this, node.expression)]
    texts = [_text_of(values, each) for each in parts]
    return Value(texts[0] + texts[1], TEXT, node)


def _concat(values: Values, node: exp.Concat) -> Value:
    texts = [_text_of(values, values.of(each)) for each in node.expressions]
    joined = pl.lit("")
    for text in texts:
        joined = joined + text.fill_null("")
    return Value(joined, TEXT, node)


def _text_of(values: Values, value: Value) -> pl.Expr:
    if value.type in (None, TEXT):
        return as_type(values.source, value, TEXT)
    return cast(values, value, TEXT, value.node).expr


def _substring(values: Values, node: exp.Substring) -> Value:
    text = values.require(values.of(node.this), "string").expr
    start = values.require(values.of(node.args["start"]), "int64")
    length = node.args.get("length")
    count = values.require(values.of(length), "int64") if length is not None else None
    if start.literal is not None and (count is None or count.literal is not None):
        first = int(start.literal)
        if count is None:
            return Value(text.str.slice(max(first - 1, 0)), TEXT, node)
        if int(count.literal) < 0:
            raise values.source.error(node, f"the length is negative: {shown(node)}", "give a length of at least 0")
        end = first - 1 + int(count.literal)
        return Value(text.str.slice(max(first - 1, 0), max(end - max(first - 1, 0), 0)), TEXT, node)
    if count is None:
        return Value(text.str.slice((start.expr - 1).clip(lower_bound=0)), TEXT, node)

    def part(start: Value, count: Value) -> pl.Expr:
        begin = (start.expr - 1).clip(lower_bound=0)
        length = (start.expr - 1 + count.expr - begin).clip(lower_bound=0)
        return pl.when(count.expr.is_not_null()).then(text.str.slice(begin, length)).otherwise(null(TEXT))

    return Value(shared([start, count], part), TEXT, node)


def _trim(values: Values, node: exp.Trim) -> Value:
    text = values.require(values.of(node.this), "string").expr
    letters = values.of(node.expression).literal if node.expression is not None else " "
    if not isinstance(letters, str):
        values.source.refuse(node, "trim() of letters that are no literal")
    side = str(node.args.get("position") or "BOTH").upper()
    strip = {"LEADING": text.str.strip_chars_start, "TRAILING": text.str.strip_chars_end}.get(
        side, text.str.strip_chars
    )
    return Value(strip(letters), TEXT, node)


def _position(values: Values, node: exp.StrPosition) -> Value:
    text = values.require(values.of(node.this), "string")
    part = values.require(values.of(node.args["substr"]), "string")
    if not isinstance(part.literal, str) or node.args.get("position") is not None:
        values.source.refuse(node, "position() of text that is no literal")
    pattern = f"(?s)^(.*?){re.escape(part.literal)}"

    def found(text: Value) -> pl.Expr:
        before = text.expr.str.extract(pattern, 1).str.len_chars().cast(pl.Int64)
        return pl.when(text.expr.is_not_null()).then((before + 1).fill_null(0)).otherwise(null(INT))

    return Value(shared([text], found), INT, node)


def _replace(values: Values, node: exp.Replace) -> Value:
    text = values.require(values.of(node.this), "string").expr
    old, new = (
        values.of(node.args[key]).literal if node.args.get(key) else "" for key in ("expression", "replacement")
    )
    if not isinstance(old, str) or not isinstance(new, str):
        values.source.refuse(node, "replace() of text that is no literal")
    return Value(text.str.replace_all(old, new, literal=True) if old else text, TEXT, node)


def _side(name: str) -> Rule:
    def rule(values: Values, node: exp.Func) -> Value:
        text = values.require(values.of(node.this), "string").expr
        count = values.of(node.expression).literal
        if not isinstance(count, int) or count < 0:
            values.source.refuse(node, f"{name}() with a length that is no literal of at least 0")
        return Value(text.str.head(count) if name == "left" else text.str.tail(count), TEXT, node)

    return rule


def _starts(values: Values, node: exp.StartsWith) -> Value:
    text, part = (values.require(values.of(each), "string").expr for each in (node.this, node.expression))
    return Value(text.str.starts_with(part), BOOL, node)


# -- casts ------------------------------------------------------------------------------------------------------------


def _cast(values: Values, node: exp.Cast) -> Value:
    kind = node.to
    value = values.of(node.this)
    if kind.this == exp.DType.INTERVAL:
        return _interval(values, exp.Interval(this=node.this))
    return cast(values, value, declared_type(values.source, kind), node)


def cast(values: Values, value: Value, wanted: Type, node: exp.Expr) -> Value:  # noqa: PLR0911  (one case, one return)
    """The value as another type, as CAST makes it. Raises ProgramError where there is no such cast."""
    if value.type is None:
        return Value(null(wanted), wanted, node)
    if value.type == wanted:
        return Value(value.expr, wanted, node, value.literal)
    if isinstance(value.literal, str):
        return Value(as_type(values.source, value, wanted), wanted, node)
    pair = (value.type.name, wanted.name)
    if pair == ("float64", "int64"):
        return Value(value.expr.round(0, mode="half_to_even").cast(wanted.polars), wanted, node)
    if pair in (("decimal", "int64"), ("decimal", "decimal")):
        places = 0 if wanted == INT else wanted.scale
        rounded = _half_away(value.expr, places) if value.type.scale > places else value.expr
        return Value(rounded.cast(wanted.polars), wanted, node)
    if pair in (("float64", "decimal"), ("string", "decimal")):  # a float as it is written, not as it is stored
        written = value.expr.cast(pl.String).cast(_MOST_DIGITS)
        return Value(_half_away(written, wanted.scale).cast(wanted.polars), wanted, node)
    if pair == ("string", "date"):
        return Value(value.expr.str.to_date("%Y-%m-%d"), wanted, node)
    if pair == ("timestamp", "date"):
        return Value(value.expr.dt.date(), wanted, node)
    allowed = {
        ("int64", "float64"), ("int64", "decimal"), ("int64", "string"), ("int64", "bool"), ("bool", "int64"),
        ("bool", "string"), ("decimal", "float64"), ("decimal", "string"), ("string", "int64"), ("string", "float64"),
        ("date", "timestamp"), ("date", "string"),
    }  # fmt: skip
    if pair not in allowed:
        values.source.refuse(node, f"a cast from {value.name} to {wanted}")
    return Value(value.expr.cast(wanted.polars), wanted, node)


_MOST_DIGITS = pl.Decimal(38, 20)


def _half_away(number: pl.Expr, places: int) -> pl.Expr:
    return number.round(places, mode="half_away_from_zero")


# -- dates and times --------------------------------------------------------------------------------------------------


class Interval:
    """A length of time: whole months, and microseconds, of which whole days are counted apart."""

    def __init__(self, months: int, days: int, microseconds: int) -> None:
        self.months, self.days, self.microseconds = months, days, microseconds

    def __neg__(self) -> Interval:
        return Interval(-self.months, -self.days, -self.microseconds)


_MONTHS = {"YEAR": 12, "MONTH": 1, "QUARTER": 3, "DECADE": 120, "CENTURY": 1200}
_DAYS = {"DAY": 1, "WEEK": 7}
_MICROSECONDS = {
    "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000, "MILLISECOND": 1_000, "MICROSECOND": 1,
}  # fmt: skip
_SHORT = {"MIN": "MINUTE", "SEC": "SECOND", "HR": "HOUR", "MON": "MONTH", "CENTURIE": "CENTURY"}
_PART = re.compile(r"\s*([+-]?\d+)\s*([A-Za-z]+)")


def _interval(values: Values, node: exp.Interval) -> Value:
    amount = node.this
    text = amount.name if isinstance(amount, exp.Literal) else shown(amount).strip("'() ")
    unit = node.args.get("unit")
    parts = [(text.strip(), unit.name)] if unit is not None else _PART.findall(text)
    total = Interval(0, 0, 0)
    rest = "" if unit is not None else _PART.sub("", text).strip()
    for number, unit_name in parts:
        name = unit_name.upper().removesuffix("S")
        name = _SHORT.get(name, name)
        if not re.fullmatch(r"[+-]?\d+", number) or name not in _MONTHS | _DAYS | _MICROSECONDS:
            values.source.refuse(node, "this interval", "write whole units: interval '1 year 3 days'")
        total.months += int(number) * _MONTHS.get(name, 0)
        total.days += int(number) * _DAYS.get(name, 0)
        total.microseconds += int(number) * _MICROSECONDS.get(name, 0)
    if rest or not parts:
        values.source.refuse(node, "this interval", "write whole units: interval '1 year 3 days'")
    return Value(pl.lit(None), None, node, total)


def _is_day(value: Value) -> bool:
    return value.type in (DATE, TIMESTAMP)


def _on_days(values: Values, node: exp.Binary, left: Value, right: Value, sign: str) -> Value:
    """Dates and timestamps plus and minus lengths, and the days between dates."""
    if sign == "+" and not _is_day(left):
        left, right = right, left
    if isinstance(left.literal, str) and isinstance(right.literal, Interval):
        left = Value(as_type(values.source, left, TIMESTAMP), TIMESTAMP, left.node)
    if isinstance(right.literal, Interval) and _is_day(left) and sign in "+-":
        return _moved(values, left, right.literal if sign == "+" else -right.literal, node)
    if left.type == DATE and right.type == INT and sign in "+-":
        if isinstance(left.literal, date) and isinstance(right.literal, int):
            return constant(left.literal + timedelta(right.literal if sign == "+" else -right.literal), node)
        days = right.expr if sign == "+" else 0 - right.expr
        return Value(left.expr.dt.offset_by(days.cast(pl.String) + "d"), DATE, node)
    if left.type == DATE and sign == "-" and (right.type == DATE or isinstance(right.literal, str)):
        return Value((left.expr - as_type(values.source, right, DATE)).dt.total_days(), INT, node)
    values.source.refuse(node, f"{left.name} {sign} {right.name}")


def _moved(values: Values, moment: Value, by: Interval, node: exp.Expr) -> Value:
    """A date moved by whole days, months and years is a date, as comparisons want it; else a timestamp."""
    kind = DATE if moment.type == DATE and not by.microseconds else TIMESTAMP
    if isinstance(moment.literal, date) and not isinstance(moment.literal, datetime) and kind == DATE:
        try:
            return constant(_in_months(moment.literal, by.months) + timedelta(by.days), node)
        except (ValueError, OverflowError):
            raise values.source.error(node, f"{shown(node)} is no date", "stay within the years 1 to 9999") from None
    expr = moment.expr if moment.type == kind else moment.expr.cast(kind.polars)
    for amount, unit in ((by.months, "mo"), (by.days, "d"), (by.microseconds, "us")):
        if amount:
            expr = expr.dt.offset_by(f"{amount}{unit}")
    return Value(expr, kind, node)


def _in_months(day: date, months: int) -> date:
    number = day.year * 12 + day.month - 1 + months
    year, month = divmod(number, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def _extract(values: Values, node: exp.Extract) -> Value:
    moment = values.require(values.of(node.expression), "date", "timestamp")
    unit = node.this.name.upper()
    on, dated = moment.expr.dt, {
        "YEAR": "year", "MONTH": "month", "DAY": "day", "QUARTER": "quarter", "WEEK": "week", "DOY": "ordinal_day",
        "ISODOW": "weekday", "ISOYEAR": "iso_year",
    }  # fmt: skip
    timed = {"HOUR": "hour", "MINUTE": "minute"}
    if unit in dated or (unit in timed and moment.type == TIMESTAMP):
        return Value(getattr(on, dated.get(unit) or timed[unit])().cast(pl.Int64), INT, node)
    if unit == "DOW":
        return Value(on.weekday().cast(pl.Int64) % 7, INT, node)
    values.source.refuse(node, f"extract({unit.lower()}) of {moment.name}")


def _unit(field: str) -> Rule:
    def rule(values: Values, node: exp.Func) -> Value:
        return _extract(values, exp.Extract(this=exp.Var(this=field), expression=node.this))

    return rule


def _truncated(values: Values, node: exp.Func) -> Value:
    moment = values.require(values.of(node.this), "timestamp", "date")
    units = {"YEAR": "1y", "QUARTER": "1q", "MONTH": "1mo", "WEEK": "1w", "DAY": "1d", "HOUR": "1h", "MINUTE": "1m",
             "SECOND": "1s"}  # fmt: skip
    unit = node.args["unit"].name.upper()
    if unit not in units:
        values.source.refuse(node, f"date_trunc('{unit.lower()}')")
    return Value(as_type(values.source, moment, TIMESTAMP).dt.truncate(units[unit]), TIMESTAMP, node)


def _refused(what: str, hint: str) -> Rule:
    def rule(values: Values, node: exp.Expr) -> Value:
        raise values.source.error(node, f"{what}: {shown(node)}", hint)

    return rule


_CLOCK = _refused(
    "a program may not read the clock", "a program must mean the same in every run: give times in columns"
)

RULES: dict[type[exp.Expr], Rule] = {
    exp.Literal: _literal,
    exp.Boolean: _boolean,
    exp.Null: _null,
    exp.Column: Values.column,
    exp.Paren: _paren,
    exp.And: _logic(lambda a, b: a & b),
    exp.Or: _logic(lambda a, b: a | b),
    exp.Not: _not,
    exp.EQ: _comparison(pl.Expr.eq),
    exp.NEQ: _comparison(pl.Expr.ne),
    exp.LT: _comparison(pl.Expr.lt),
    exp.LTE: _comparison(pl.Expr.le),
    exp.GT: _comparison(pl.Expr.gt),
    exp.GTE: _comparison(pl.Expr.ge),
    exp.NullSafeEQ: _distinct_from(equal=True),
    exp.NullSafeNEQ: _distinct_from(equal=False),
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _like(small=False),
    exp.ILike: _like(small=True),
    exp.Escape: _escape,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Greatest: _extreme(pl.max_horizontal),
    exp.Least: _extreme(pl.min_horizontal),
    exp.Add: _arithmetic("+", lambda a, b: a + b),
    exp.Sub: _arithmetic("-", lambda a, b: a - b),
    exp.Mul: _arithmetic("*", lambda a, b: a * b),
    exp.Div: _divided,
    exp.Mod: _remainder,
    exp.Neg: _negative,
    exp.Abs: _absolute,
    exp.Round: _rounded,
    exp.Floor: _whole(lambda x: x.floor()),
    exp.Ceil: _whole(lambda x: x.ceil()),
    exp.Sqrt: _of_float(lambda x: x.sqrt()),
    exp.Exp: _of_float(lambda x: x.exp()),
    exp.Ln: _of_float(lambda x: x.log()),
    exp.Pow: _power,
    exp.DPipe: _concatenated,
    exp.Concat: _concat,
    exp.Upper: _of_text(lambda x: x.str.to_uppercase()),
    exp.Lower: _of_text(lambda x: x.str.to_lowercase()),
    exp.Length: _of_text(lambda x: x.str.len_chars().cast(pl.Int64), INT),
    exp.Reverse: _of_text(lambda x: x.str.reverse()),
    exp.Substring: _substring,
    exp.Trim: _trim,
    exp.StrPosition: _position,
    exp.Replace: _replace,
    exp.Left: _side("left"),
    exp.Right: _side("right"),
    exp.StartsWith: _starts,
    exp.Cast: _cast,
    exp.TryCast: _refused("TRY_CAST is not supported", "use CAST: what does not fit is an error of its row"),
    exp.Interval: _interval,
    exp.Extract: _extract,
    exp.Year: _unit("YEAR"),
    exp.Month: _unit("MONTH"),
    exp.Day: _unit("DAY"),
    exp.TimestampTrunc: _truncated,
    exp.DateTrunc: _truncated,
    exp.Any: _refused("ANY of what is no subquery is not supported", "write IN (...)"),
    exp.All: _refused("ALL of what is no subquery is not supported", "write NOT IN (...)"),
    exp.CurrentTimestamp: _CLOCK,
    exp.CurrentDate: _CLOCK,
    exp.CurrentTime: _CLOCK,
    exp.Localtimestamp: _CLOCK,
    exp.Localtime: _CLOCK,
    exp.Rand: _refused("a program may not draw random numbers", "a program must mean the same in every run"),
}

ARGUMENTS: dict[type[exp.Expr], set[str]] = {
    exp.Literal: {"is_string"}, exp.Column: {"table", "db", "catalog"}, exp.Is: {"negate"}, exp.Like: {"negate"},
    exp.ILike: {"negate"}, exp.Case: {"ifs", "default"}, exp.If: {"true", "false"}, exp.Between: {"low", "high"},
    exp.In: {"query", "unnest"}, exp.Cast: {"to"}, exp.Interval: {"unit"}, exp.Substring: {"start", "length"},
    exp.Trim: {"position"}, exp.StrPosition: {"substr"}, exp.Replace: {"replacement"}, exp.TimestampTrunc: {"unit"},
    exp.DateTrunc: {"unit"}, exp.Round: {"decimals"}, exp.Div: {"typed", "safe"}, exp.DPipe: {"safe"},
    exp.Concat: {"safe", "coalesce"}, exp.Greatest: {"ignore_nulls"}, exp.Least: {"ignore_nulls"},
    exp.Count: {"big_int"},
}  # fmt: skip
"""What the rules read of a node beside ``this``, ``expression`` and ``expressions``. Anything else is refused."""

NEEDED: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Floor: ("this",), exp.Ceil: ("this",), exp.Substring: ("this", "start"), exp.Count: ("this",),
}  # fmt: skip
"""The arguments that a rule reads and that sqlglot does not ask for."""
