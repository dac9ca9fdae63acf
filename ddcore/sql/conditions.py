"""Literals, columns, conditions and choices of SQL: for each kind of sqlglot's nodes, the value it makes."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import reduce

import polars as pl
from sqlglot import exp

from ddcore.base.schema import MOST_DIGITS
from ddcore.sql import intervals, zeros
from ddcore.sql.comparisons import EQUAL_PARTS, compared, has_interval, parts_of, rows_compared
from ddcore.sql.quantifiers import any_element, items_of, quantified
from ddcore.sql.types import BOOL, INTERVAL
from ddcore.sql.values import Rule, Value, Values, aligned, constant, merged, null, shared


def _literal(values: Values, node: exp.Literal) -> Value:
    if node.is_string:
        return constant(node.this, node)
    text = node.this
    if re.fullmatch(r"\d+", text) and int(text) < 2**63:
        return constant(int(text), node)
    if "e" in text.lower():
        return constant(float(text), node)
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise values.source.error(node, f"{text} is no number", "write digits with at most one point") from None
    if max(len(number.as_tuple().digits), -int(number.as_tuple().exponent)) > MOST_DIGITS:
        raise values.source.error(
            node, f"the literal {text} has more than {MOST_DIGITS} digits", "write it as 1.5e0: a float64"
        )
    return constant(number, node)


def _logic(combine: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Rule:
    def rule(values: Values, node: exp.Connector) -> Value:
        where = node.key.upper()
        return Value(combine(values.truth(node.left, where), values.truth(node.right, where)), BOOL, node)

    return rule


def _comparison(compare: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Rule:
    def rule(values: Values, node: exp.Binary) -> Value:
        row = parts_of(values, node.this)
        if row is not None and parts_of(values, node.expression) is not None:
            rows = rows_compared(values, compare, list(map(values.of, row)), node.expression, node)
            return Value(rows, BOOL, node)
        if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any):
            return any_element(values, values.of(node.this), node.expression.this)
        if (items := items_of(node.expression)) is not None:
            return quantified(values, node, items[0], whole=items[1])
        return compared(values, compare, values.of(node.this), values.of(node.expression), node)

    return rule


def _distinct_from(*, equal: bool) -> Rule:
    def rule(values: Values, node: exp.Binary) -> Value:
        (left, right), kind = aligned(values.source, [values.of(node.this), values.of(node.expression)], node)
        if has_interval(kind):
            values.source.refuse(node, f"comparing {kind}", EQUAL_PARTS)
        same = left.eq_missing(right)
        if kind == INTERVAL:  # equal where they are equally long
            lengths = intervals.compared(pl.Expr.eq, left, right)
            same = (left.is_null() & right.is_null()) | lengths.fill_null(False)
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
    if (row := parts_of(values, node.this)) is not None and not node.args.get("symmetric"):

        def inside(*row: Value) -> pl.Expr:
            above = rows_compared(values, pl.Expr.ge, row, node.args["low"], node)
            return above & rows_compared(values, pl.Expr.le, row, node.args["high"], node)

        return Value(shared(list(map(values.of, row)), inside), BOOL, node)
    low, high = values.of(node.args["low"]), values.of(node.args["high"])

    def both(value: Value, low: Value, high: Value) -> pl.Expr:
        above = compared(values, pl.Expr.ge, value, low, node).expr
        return above & compared(values, pl.Expr.le, value, high, node).expr

    def either(value: Value, low: Value, high: Value) -> pl.Expr:
        return both(value, low, high) | both(value, high, low)

    rule = either if node.args.get("symmetric") else both
    return Value(shared([values.of(node.this)], lambda value: rule(value, low, high)), BOOL, node)


def _in(values: Values, node: exp.In) -> Value:
    if node.args.get("query") is not None or node.args.get("unnest") is not None:
        values.source.refuse(node, "a subquery in this place")
    if not node.expressions:
        if values.source.dialect == "duckdb":
            known = values.of(node.this).expr.is_not_null()
            return Value(pl.when(known).then(pl.lit(False)), BOOL, node)
        values.source.refuse(node, "IN without values", "FALSE is the condition that no row meets")
    if (parts := parts_of(values, node.this)) is not None:

        def any_row(*row: Value) -> pl.Expr:
            rows = [rows_compared(values, pl.Expr.eq, row, expression, node) for expression in node.expressions]
            return reduce(operator.or_, rows)

        return Value(shared(list(map(values.of, parts)), any_row), BOOL, node)
    value = values.of(node.this)
    others = [values.of(expression) for expression in node.expressions]
    is_interval = intervals.is_interval(value)
    if (
        all(other.literal is not None for other in others)
        and value.type is not None
        and len(others) > 1
        and not is_interval
    ):
        exprs, kind = aligned(values.source, [value, *others], node)
        wanted = pl.select([expr.alias(str(number)) for number, expr in enumerate(exprs[1:])]).row(0)
        return Value(exprs[0].is_in(pl.lit(list(wanted), dtype=pl.List(kind.polars))), BOOL, node)

    def any_value(value: Value) -> pl.Expr:
        return reduce(operator.or_, [compared(values, pl.Expr.eq, value, other, node).expr for other in others])

    return Value(shared([value], any_value), BOOL, node)


def like(escape: str) -> Rule:
    """The rule of LIKE and ILIKE without ESCAPE; ``escape`` may be empty."""
    return lambda values, node: _matching(values, node, escape, small=isinstance(node, exp.ILike))


def _escape(values: Values, node: exp.Escape) -> Value:
    if not isinstance(node.this, exp.Like | exp.ILike) or not isinstance(node.expression, exp.Literal):
        values.source.refuse(node, "this ESCAPE")
    return like(node.expression.name)(values, node.this)


def _matching(values: Values, node: exp.Binary, escape: str, *, small: bool) -> Value:
    """LIKE, or ILIKE where ``small``; ``escape`` may be empty."""
    if isinstance(node.expression, exp.Any | exp.All):
        return _like_some(values, node, escape, small=small)
    text, pattern = values.require(values.of(node.this), "string"), values.of(node.expression)
    if pattern.type is None:
        return Value(null(BOOL), BOOL, node)
    pattern, case = values.require(pattern, "string"), "(?i)" if small else ""
    if pattern.literal is not None:
        met = text.expr.str.contains(case + _like_pattern(pattern.literal, escape))
    else:
        met = shared([text, pattern], lambda text, pattern: _like_of_rows(text, pattern, escape, case))
    return Value(~met if node.args.get("negate") else met, BOOL, node)


def _like_of_rows(text: Value, pattern: Value, escape: str, case: str) -> pl.Expr:
    """LIKE with a pattern of each row; the row fails where an escape ends it."""
    regex = _like_patterns(pattern.expr, escape)
    ends = zeros.failing_where(pattern.expr.is_not_null() & regex.is_null(), "the pattern ends with its escape")
    return pl.when((text.expr.is_not_null() & pattern.expr.is_not_null()) & (ends == 0)).then(
        text.expr.str.contains(pl.lit(case) + regex)
    )


def _like_pattern(pattern: str, escape: str) -> str:
    """The regular expression of a pattern of LIKE."""
    parts, number = [], 0
    while number < len(pattern):
        letter = pattern[number]
        if escape and letter == escape and number + 1 < len(pattern):
            number += 1
            parts.append(re.escape(pattern[number]))
        else:
            parts.append({"%": ".*", "_": "."}.get(letter) or re.escape(letter))
        number += 1
    return f"(?s)^{''.join(parts)}$"


def _like_patterns(patterns: pl.Expr, escape: str) -> pl.Expr:
    """The regular expressions of patterns of LIKE that are values of rows; null where an escape ends one."""
    letter = pl.element()
    one = pl.when(letter == "%").then(pl.lit(".*")).when(letter == "_").then(pl.lit("."))
    token = "(?s)."
    if escape:
        token = f"(?s){re.escape(escape)}.|."
        escaped = letter.str.starts_with(escape)
        kept = pl.when(letter.str.len_chars() > 1).then(letter.str.slice(1).str.escape_regex())
        one = pl.when(escaped).then(kept).when(letter == "%").then(pl.lit(".*")).when(letter == "_").then(pl.lit("."))
    parts = patterns.str.extract_all(token).list.eval(one.otherwise(letter.str.escape_regex()))
    return pl.lit("(?s)^") + parts.list.join("", ignore_nulls=False) + pl.lit("$")


def _like_some(values: Values, node: exp.Binary, escape: str, *, small: bool) -> Value:
    """``x LIKE ANY (ARRAY['a%', 'b%'])``."""
    patterns = node.expression.this.unnest()
    if not isinstance(patterns, exp.Array | exp.Tuple) or not patterns.expressions:
        values.source.refuse(node, "LIKE ANY of what is not written out", "x LIKE ANY (ARRAY['a%', 'b%'])")
    text = values.of(node.this)
    rows = [
        exp.Like(this=node.this, expression=pattern, negate=node.args.get("negate")) for pattern in patterns.expressions
    ]
    combine = operator.or_ if isinstance(node.expression, exp.Any) else operator.and_

    def met(text: Value) -> pl.Expr:
        found = []
        for row in rows:
            values.ready(node.this, text)
            found.append(_matching(values, row, escape, small=small).expr)
        return reduce(combine, found)

    return Value(shared([text], met), BOOL, node)


_BY_CODES = ("c", "posix", "ucs_basic", "binary", "utf8_binary")
"""Orders of texts by their letters' numbers, as it is here."""


def _collated(values: Values, node: exp.Collate) -> Value:
    if node.expression.name.lower() not in _BY_CODES:
        hint = 'texts are compared by the numbers of their letters, as COLLATE "C" says; lower(x) leaves capitals out'
        values.source.refuse(node, "another order of texts", hint)
    return values.require(values.of(node.this), "string")


def _row(values: Values, node: exp.Tuple) -> Value:
    hint = "compare it with another, (x, y) = (1, 2), or write its parts by themselves"
    values.source.refuse(node, "a row as a value", hint)


def _case(values: Values, node: exp.Case) -> Value:
    branches = node.args["ifs"]
    results = [values.of(branch.args["true"]) for branch in branches]
    default = node.args.get("default")
    results.append(values.of(default) if default is not None else Value(pl.lit(None), None, node))
    exprs, kind = merged(values.source, results, "CASE")

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


def _coalesce(values: Values, node: exp.Coalesce) -> Value:
    parts = [values.of(expression) for expression in [node.this, *node.expressions]]
    exprs, kind = merged(values.source, parts, "COALESCE")
    choice = exprs[-1]
    for part, expr in zip(reversed(parts[:-1]), reversed(exprs[:-1]), strict=True):
        choice = shared(
            [replace(part, expr=expr)],
            lambda value, rest=choice: pl.when(value.expr.is_not_null()).then(value.expr).otherwise(rest),
        )
    return Value(choice, kind, node)


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
        exprs, kind = merged(
            values.source, [values.of(expression) for expression in [node.this, *node.expressions]], node
        )
        if kind.is_nested or kind.name in ("interval", "binary"):
            values.source.refuse(node, f"{node.sql_name().lower()} of {kind}")
        if kind.name in ("string", "bool", "time", "uuid"):
            return Value(horizontal(exprs), kind, node)
        parts = [Value(expr, kind, node) for expr in exprs]
        return values.typed(horizontal, parts, node)

    return rule


RULES: dict[type[exp.Expr], Rule] = {
    exp.Literal: _literal,
    exp.ByteString: lambda values, node: constant(node.name, node),  # E'...'
    exp.Boolean: lambda values, node: constant(bool(node.this), node),
    exp.Null: lambda values, node: Value(pl.lit(None), None, node),
    exp.Column: Values.column,
    exp.Tuple: _row,
    exp.Collate: _collated,
    exp.Paren: lambda values, node: values.of(node.this),
    exp.And: _logic(lambda a, b: a & b),
    exp.Or: _logic(lambda a, b: a | b),
    exp.Not: lambda values, node: Value(~values.truth(node.this, "NOT"), BOOL, node),
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
    **dict.fromkeys((exp.Like, exp.ILike), like("\\")),
    exp.Escape: _escape,
    exp.Case: _case,
    exp.If: lambda values, node: _case(values, exp.Case(ifs=[node], default=node.args.get("false"))),
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Greatest: _extreme(pl.max_horizontal),
    exp.Least: _extreme(pl.min_horizontal),
}
