"""Functions of Spark's dialect: of texts, numbers and lists, which :mod:`ddcore.sql.spark` has not."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce

import polars as pl
from sqlglot import exp

from ddcore.sql import lambdas, letters, list_functions, numbers, regexes, texts, whole_numbers, zeros
from ddcore.sql.arrays import list_and_element, list_of
from ddcore.sql.regexes import JAVA
from ddcore.sql.values import (
    FLOAT,
    INT,
    TEXT,
    Named,
    Rule,
    Value,
    Values,
    aligned,
    as_type,
    function,
    shared,
)  # fmt: skip

# -- text -------------------------------------------------------------------------------------------------------------


def _formatted(values: Values, node: exp.Expr, pattern: exp.Expr, rest: list[exp.Expr]) -> Value:
    """``format_string('%s is %d', a, n)``: a null is written as ``null``."""
    return Value(texts.printed(values, node, pattern, rest, null="null"), TEXT, node)


def _every_match(values: Values, node: exp.RegexpExtractAll) -> Value:
    """What a group of each match matched, 0 for all of it; 1 where none is named."""
    text, pattern = values.require(values.of(node.this), "string").expr, node.expression
    group = values.of(node.args["group"]).literal if node.args.get("group") else 1
    regex, count = regexes.translated(values, node, pattern, JAVA)
    if not isinstance(group, int) or not 0 <= group <= count:
        values.source.refuse(node, "regexp_extract_all() of a group that the pattern has not", "0 is all of it")
    found = text.str.extract_all(regex)
    if group:
        if re.search(r"[\^$]|\\[bB]", re.sub(r"\[[^]]*\]", "", str(values.of(pattern).literal))):
            values.source.refuse(node, "a group of each match of a pattern with ends of words or lines", "group 0")
        found = found.list.eval(pl.element().str.extract(regex, group))
    return Value(found, list_of(TEXT), node)


def _of_matches(compute: Callable[[pl.Expr, str], pl.Expr], values: Values, node: exp.Func) -> pl.Expr:
    text = values.require(values.of(node.this), "string").expr
    return compute(text, regexes.translated(values, node, node.expression, JAVA)[0])


def _chosen(values: Values, node: exp.Elt) -> Value:
    """``elt(n, a, b)``: the n-th of the texts; the row fails where there is none."""
    number = values.require(values.of(node.this), "int64")
    exprs, kind = aligned(values.source, [values.of(each) for each in node.expressions], node)

    def choice(number: Value) -> pl.Expr:
        wrong = zeros.failing_where(~number.expr.is_between(1, len(exprs)), "is the number of no value of elt()")
        pairs = list(enumerate(exprs, 1))
        found = reduce(lambda rest, pair: pl.when(number.expr == pair[0]).then(pair[1]).otherwise(rest), pairs[::-1],
                       pl.lit(None, dtype=kind.polars))  # fmt: skip
        return pl.when(wrong == 0).then(found)

    return Value(shared([number], choice), kind, node)


# -- numbers ----------------------------------------------------------------------------------------------------------


def _quotient(values: Values, node: exp.SafeDivide) -> Value:
    """``try_divide``: null where the divisor is 0."""
    left, right = values.arguments(node, "number", "number")
    if any(side.type is not None and side.type.name == "decimal" for side in (left, right)):
        values.source.refuse(node, "try_divide() of decimals", "CASE WHEN b <> 0 THEN a / b END")
    sides = [Value(as_type(values.source, side, FLOAT), FLOAT, side.node) for side in (left, right)]
    return Value(shared(sides, lambda a, b: a.expr / pl.when(b.expr != 0).then(b.expr)), FLOAT, node)


def _or_zero(values: Values, node: exp.Anonymous) -> Value:
    value = values.number(values.of(node.expressions[0]))
    exprs, kind = aligned(values.source, [value, values.of(exp.Literal.number(0))], node)
    return Value(exprs[0].fill_null(exprs[1]), kind, node)


def _unless_zero(values: Values, node: exp.Anonymous) -> Value:
    value = values.number(values.of(node.expressions[0]))
    return Value(shared([value], lambda x: pl.when(x.expr != 0).then(x.expr)), value.type, node)


def _sign_kept(values: Values, node: exp.Anonymous) -> Value:
    value = values.number(values.of(node.expressions[0]))
    return Value(value.expr, value.type, node)


def _factorial(values: Values, node: exp.Factorial) -> Value:
    """Null for what has none in 64 bits."""
    number = values.require(values.of(node.this), "int64")
    inside = Value(pl.when(number.expr.is_between(0, 20)).then(number.expr), INT, number.node)
    return whole_numbers.factorial(values, node, inside)


# -- lists ------------------------------------------------------------------------------------------------------------


def concat(plain: Rule) -> Rule:
    """Texts, or lists; null where one is."""

    def rule(values: Values, node: exp.Concat) -> Value:
        if node.expressions and list_functions.is_list(values.peek(node.expressions[0])):
            return list_functions.concatenated(values, node, node.expressions, skips_nulls=False)
        return plain(values, node)

    return rule


def _reverse(plain: Rule) -> Rule:
    def rule(values: Values, node: exp.Reverse) -> Value:
        if list_functions.is_list(values.peek(node.this)):
            return list_functions.reversed_list(values.of(node.this), node)
        return plain(values, node)

    return rule


def _sorted(values: Values, node: exp.ArraySort) -> Value:
    """``sort_array`` has nulls first, or last where it is descending; ``array_sort`` has them last."""
    way, nulls = node.args.get("asc"), node.args.get("nulls_first")
    if node.expression is not None:
        values.source.refuse(node, "array_sort() by a function", "sort_array(list, false) is descending")
    descending = isinstance(way, exp.Boolean) and not way.this
    nulls_first = isinstance(nulls, exp.Boolean) and bool(nulls.this)
    return list_functions.in_order(values, node.this, node, descending=descending, nulls_last=not nulls_first)


def _slice(values: Values, node: exp.ArraySlice) -> Value:
    """``slice(list, start, length)``; a negative start counts from the end."""
    some, _ = list_and_element(values, node.this)
    start, length = (values.of(node.args[key]).literal for key in ("start", "end"))
    if not isinstance(start, int) or not isinstance(length, int) or start == 0 or length < 0:
        values.source.refuse(node, "slice() whose start or length is no literal, or 0", "the first element is 1")
    if start > 0:
        return Value(some.expr.list.slice(start - 1, length), some.type, node)

    def cut(some: Value) -> pl.Expr:
        there = some.expr.list.slice(start, length)
        return pl.when(some.expr.list.len() >= -start).then(there).otherwise(some.expr.list.head(0))

    return Value(shared([some], cut), some.type, node)


def _union(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    return pl.concat_list([one, other]).list.unique(maintain_order=True)


def _except(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """The different elements of the first list that the other one lacks: they stand behind those of the other one."""
    return _union(other, one).list.slice(other.list.unique(maintain_order=True).list.len())


def _as_sets(combine: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Rule:
    """A list of different elements of two lists, in the order in which they come."""

    def rule(values: Values, node: exp.Expr) -> Value:
        parts = node.expressions or [node.this, node.expression]
        if len(parts) != 2:
            values.source.refuse(node, "sets of another number of lists than two")
        exprs, kind = aligned(values.source, [list_and_element(values, part)[0] for part in parts], node)
        sides = [Value(expr, kind, node) for expr in exprs]
        return Value(shared(sides, lambda one, other: combine(one.expr, other.expr)), kind, node)

    return rule


def _decided(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Whether it is known that lists overlap: one of two without nulls, or an element in common."""
    nulls = [side.list.drop_nulls().list.len() < side.list.len() for side in (one, other)]
    empty = (one.list.len() == 0) | (other.list.len() == 0)
    return list_functions.overlaps(one, other) | empty | ~(nulls[0] | nulls[1])


def _repeated(values: Values, node: exp.Anonymous) -> Value:
    value, count = values.of(node.expressions[0]), values.of(node.expressions[1]).literal
    if value.type is None or not isinstance(count, int) or not 1 <= count <= 100:
        values.source.refuse(node, "array_repeat() of a number of times that is no literal from 1 to 100")
    return Value(pl.concat_list([value.expr] * count), list_of(value.type), node)


def _sequence(values: Values, node: exp.GenerateSeries) -> Value:
    """Whole numbers from one to another, up or down."""
    if node.args.get("step") is not None:
        values.source.refuse(node, "sequence() with a step", "sequence(a, b) goes up or down by 1")
    bounds = [values.require(values.of(node.args[key]), "int64") for key in ("start", "end")]

    def counted(start: Value, end: Value) -> pl.Expr:
        up = pl.int_ranges(start.expr, end.expr + 1)
        down = pl.int_ranges(end.expr, start.expr + 1).list.reverse()
        return pl.when(start.expr <= end.expr).then(up).otherwise(down)

    return Value(shared(bounds, counted), list_of(INT), node)


def _element_or_null(values: Values, node: exp.Anonymous) -> Value:
    """``get(list, 0)``."""
    some, element = list_and_element(values, node.expressions[0])
    number = values.of(node.expressions[1]).literal
    if not isinstance(number, int):
        values.source.refuse(node, "the element of a list by a number that is no literal")
    found = (
        some.expr.list.get(number, null_on_oob=True) if number >= 0 else some.expr.list.get(2**31 - 1, null_on_oob=True)
    )
    return Value(found, element, node)


def _flat(values: Values, node: exp.Flatten) -> Value:
    """Lists that are written out, one behind the other."""
    inner = node.this.unnest()
    if not isinstance(inner, exp.Array) or not inner.expressions:
        values.source.refuse(node, "flatten() of what is no array(...) that is written out", "concat(a, b)")
    return list_functions.concatenated(values, node, inner.expressions, skips_nulls=False)


RULES: dict[type[exp.Expr], Rule] = {
    exp.Ascii: letters.RULES[exp.Ascii],
    exp.Hex: letters.digits_of,
    exp.ToBase64: function(lambda x: x.str.encode("base64"), TEXT, "string"),
    exp.Format: lambda values, node: _formatted(values, node, node.this, node.expressions),
    exp.Elt: _chosen,
    exp.RegexpExtractAll: _every_match,
    exp.RegexpCount: lambda values, node: Value(
        _of_matches(lambda x, regex: x.str.count_matches(regex).cast(pl.Int64), values, node), INT, node
    ),
    exp.RegexpSubstr: lambda values, node: Value(
        _of_matches(lambda x, regex: x.str.extract(regex, 0), values, node), TEXT, node
    ),
    **{
        kind: numbers.RULES[kind]
        for kind in (exp.Sinh, exp.Cosh, exp.Tanh, exp.Cot, exp.Asinh, exp.Acosh, exp.Atanh, exp.BitwiseRightShift)
    },
    exp.BitwiseLeftShift: whole_numbers.RULES[exp.BitwiseLeftShift],
    exp.BitwiseCount: function(whole_numbers.count_of_ones, INT, "int64"),
    exp.Rint: function(lambda x: x.round(0, mode="half_to_even"), FLOAT, "float64"),
    exp.Nanvl: function(lambda x, y: pl.when(x.is_nan()).then(y).otherwise(x), FLOAT, "float64", "float64"),
    exp.SafeDivide: _quotient,
    exp.Factorial: _factorial,
    exp.Negative: lambda values, node: values.of(exp.Neg(this=node.this)),
    exp.EqualNull: lambda values, node: values.of(exp.NullSafeEQ(this=node.this, expression=node.expression)),
    exp.Reverse: _reverse(texts.RULES[exp.Reverse]),
    exp.ArrayAppend: list_functions.added(first=False, null_is_empty=False),
    exp.ArrayPrepend: list_functions.added(first=True, null_is_empty=False),
    exp.ArrayPosition: lambda values, node: list_functions.place(values, node, node.this, node.expression, none=0),
    exp.ArrayRemove: list_functions.RULES[exp.ArrayRemove],
    exp.ArrayCompact: lambda values, node: list_functions.without_nulls(values, node, node.this),
    exp.ArrayExcept: _as_sets(_except),
    exp.ArrayIntersect: _as_sets(lambda one, other: _except(one, _except(one, other))),
    exp.ArraySort: _sorted,
    exp.ArraySlice: _slice,
    exp.GenerateSeries: _sequence,
    exp.Flatten: _flat,
    **lambdas.RULES,
}
NAMED: dict[str, Named] = {
    "bin": (1, function(letters.binary_digits, TEXT, "int64", repeats=True)),
    "printf": (-1, lambda values, node: _formatted(values, node, node.expressions[0], node.expressions[1:])),
    "log1p": (1, function(lambda x: pl.when(x > -1).then(x.log1p()), FLOAT, "float64")),
    "hypot": (2, function(lambda x, y: (x * x + y * y).sqrt(), FLOAT, "float64", "float64")),
    "positive": (1, _sign_kept),
    "zeroifnull": (1, _or_zero),
    "nullifzero": (1, _unless_zero),
    "array_union": (2, _as_sets(_union)),
    "arrays_overlap": (2, list_functions.of_sets(list_functions.overlaps, known=_decided)),
    "array_repeat": (2, _repeated),
    "get": (2, _element_or_null),
    **lambdas.NAMED,
}
