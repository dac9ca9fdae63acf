"""Functions of Spark's dialect: of texts, numbers and lists, which :mod:`ddcore.sql.spark` has not."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import reduce

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type
from ddcore.sql import (
    arrays,
    json_paths,
    lambdas,
    letters,
    list_functions,
    numbers,
    patterns,
    regexes,
    spark,
    texts,
    whole_numbers,
    zeros,
)
from ddcore.sql.arrays import list_and_element, list_of
from ddcore.sql.regexes import JAVA
from ddcore.sql.source import called
from ddcore.sql.types import BINARY, DATE, FLOAT, INT, TEXT
from ddcore.sql.values import Interval, Named, Rule, Value, Values, aligned, as_type, element_of, function, same, shared

# -- text -------------------------------------------------------------------------------------------------------------


def _letter(number: pl.Expr) -> pl.Expr:
    """The letter with the code of the last 8 bits; empty below 0."""
    code = number % 256
    plain = letters.letter(pl.when(code > 0).then(code))
    return pl.when(number < 0).then(pl.lit("")).when(code == 0).then(pl.lit("\0")).otherwise(plain)


def _grouped(values: Values, node: exp.Anonymous) -> Value:
    """``format_number(x, 2)``: with commas between thousands; of two nearest numbers the even one."""
    value, digits = values.number(values.of(node.expressions[0])), values.of(node.expressions[1]).literal
    if not isinstance(digits, int) or not 0 <= digits <= 18:
        values.source.refuse(node, "format_number() by what is no literal number of digits", "format_number(x, 2)")
    kind = pl.Decimal(38, digits)
    exact = value.expr.cast(pl.String).cast(pl.Decimal(38, 20)) if value.type == FLOAT else value.expr

    def text(x: Value) -> pl.Expr:
        written = x.expr.round(digits, mode="half_to_even").cast(kind).cast(pl.String)
        front = written.str.extract(r"^-?(\d+)").str.reverse().str.replace_all(r"(\d{3})", "${1},")
        sign = pl.when(written.str.starts_with("-")).then(pl.lit("-")).otherwise(pl.lit(""))
        return sign + front.str.reverse().str.strip_chars_start(",") + written.str.extract(r"(\.\d+)?$").fill_null("")

    return Value(shared([Value(exact, value.type, node)], text), TEXT, node)


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


def _of_matches(compute: Callable[[pl.Expr, str], pl.Expr], kind: Type) -> Rule:
    """What is computed of the parts of a text that match."""

    def rule(values: Values, node: exp.Func) -> Value:
        text, (regex, _) = values.arguments(node, "string")[0], regexes.translated(values, node, node.expression, JAVA)
        return Value(compute(text.expr, regex), kind, node)

    return rule


def _chosen(values: Values, node: exp.Elt) -> Value:
    """``elt(n, a, b)``: the n-th of the texts; the row fails where there is none."""
    number = values.require(values.of(node.this), "int64")
    exprs, kind = aligned(values.source, [values.of(part) for part in node.expressions], node)

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
    sides = [values.cast(side, FLOAT) for side in (left, right)]
    return Value(shared(sides, lambda a, b: a.expr / pl.when(b.expr != 0).then(b.expr)), FLOAT, node)


def _unless_too_large(combine: Callable[[pl.Expr, pl.Expr], pl.Expr], fits: Callable[..., pl.Expr]) -> Rule:
    """``try_add`` and its like: null for what int64 cannot hold, as ``fits`` says of the two sides."""

    def rule(values: Values, node: exp.Func) -> Value:
        left, right = values.arguments(node, "number", "number")
        if left.type == right.type == INT:
            whole = shared([left, right], lambda a, b: pl.when(fits(a.expr, b.expr)).then(combine(a.expr, b.expr)))
            return Value(whole, INT, node)
        if FLOAT not in (left.type, right.type):
            values.source.refuse(node, f"{called(node)}() of decimals", "cast them to double or bigint")
        return Value(combine(*(as_type(values.source, side, FLOAT) for side in (left, right))), FLOAT, node)

    return rule


def _sum_fits(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    return pl.when(b >= 0).then(a <= _MOST - b).otherwise(a >= -_MOST - b)


def _difference_fits(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    return pl.when(b >= 0).then(a >= b - _MOST).otherwise(a <= _MOST + b)


def _product_fits(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    most = pl.lit(_MOST, dtype=pl.Int64).truncdiv(pl.when(b != 0).then(b.abs()))
    return a.is_not_null() & (b == 0) | (a.abs() <= most)


_MOST = 2**63 - 1


def _without_sign(number: pl.Expr, by: int) -> pl.Expr:
    """``shiftrightunsigned(n, 2)``: zeros come from the left."""
    moved: pl.Expr = number // 2**by
    return moved & (2 ** (64 - by) - 1) if by else moved


def _sign_kept(values: Values, node: exp.Anonymous) -> Value:
    value = values.number(values.of(node.expressions[0]))
    return Value(value.expr, value.type, node)


# -- lists ------------------------------------------------------------------------------------------------------------


def _sorted(values: Values, node: exp.ArraySort) -> Value:
    """``sort_array`` has nulls first, or last where it is descending; ``array_sort`` has them last."""
    way, nulls = node.args.get("asc"), node.args.get("nulls_first")
    if node.expression is not None:
        values.source.refuse(node, "array_sort() by a function", "sort_array(list, false) is descending")
    descending = isinstance(way, exp.Boolean) and not way.this
    nulls_first = isinstance(nulls, exp.Boolean) and bool(nulls.this)
    return list_functions.in_order(values, node.this, node, descending=descending, nulls_last=not nulls_first)


def _slice(values: Values, node: exp.ArraySlice) -> Value:
    """``slice(list, start, length)``; a negative start counts from the end. The row fails for start 0."""
    some, _ = list_and_element(values, node.this)
    bounds = [values.require(values.of(node.args[key]), "int64") for key in ("start", "end")]

    def cut(some: Value, start: Value, length: Value) -> pl.Expr:
        size = some.expr.list.len().cast(pl.Int64)
        begin = pl.when(start.expr > 0).then(start.expr - 1).otherwise(size + start.expr)
        wrong = zeros.failing_where(
            (start.expr == 0) | (length.expr < 0), "slice() counts from 1, and takes no less than 0"
        )
        there = pl.when(begin >= 0).then(some.expr.list.slice(begin, length.expr)).otherwise(some.expr.list.head(0))
        return pl.when(start.expr.is_not_null() & length.expr.is_not_null() & (wrong == 0)).then(there)

    return Value(shared([some, *bounds], cut), some.type, node)


def _decided(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Whether it is known that lists overlap: one of two without nulls, or an element in common."""
    empty = (one.list.len() == 0) | (other.list.len() == 0)
    return (
        list_functions.overlaps(one, other) | empty | ~(list_functions.has_null(one) | list_functions.has_null(other))
    )


def _repeated(values: Values, node: exp.Anonymous) -> Value:
    value, count = values.of(node.expressions[0]), values.require(values.of(node.expressions[1]), "int64")
    kind = value.type or TEXT
    value = Value(as_type(values.source, value, kind), kind, node)
    many = shared([value, count], lambda value, count: value.expr.repeat_by(count.expr.clip(lower_bound=0)))
    return Value(many, list_of(kind), node)


def _inserted(values: Values, node: exp.ArrayInsert) -> Value:
    """``array_insert(list, 2, x)``, with nulls where the list ends before; -1 is behind the last one."""
    some, element = list_and_element(values, node.this)
    position = values.of(node.args["position"]).literal
    if not isinstance(position, int) or position == 0 or position < -1:
        values.source.refuse(
            node, "array_insert() at what is no literal of at least 1, nor -1", "array_insert(l, 1, x)"
        )
    new = values.cast(values.of(node.expression), element)

    def whole(some: Value, new: Value) -> pl.Expr:
        if position == -1:
            return pl.concat_list([some.expr, pl.concat_list([new.expr])])
        front = arrays.padded(some.expr.list.head(position - 1), pl.lit(position - 1, dtype=pl.Int64), element)
        return pl.concat_list([front, pl.concat_list([new.expr]), some.expr.list.slice(position - 1)])

    return Value(shared([some, new], whole), some.type, node)


def _days(values: Values, node: exp.GenerateSeries) -> Value:
    step = values.of(node.args["step"]).literal
    start, end = (values.of(node.args[key]) for key in ("start", "end"))
    length = step.days if isinstance(step, Interval) and not step.months and not step.microseconds else 0
    if length < 1 or start.type != DATE or end.type != DATE:
        hint = "sequence(a, b) of whole numbers goes up or down by 1, and of dates takes INTERVAL 1 DAY"
        values.source.refuse(node, "sequence() with this step", hint)

    def counted(start: Value, end: Value) -> pl.Expr:
        wrong = zeros.failing_where(start.expr > end.expr, "begins after its end")
        return pl.when(wrong == 0).then(pl.date_ranges(start.expr, end.expr, interval=f"{length}d"))

    return Value(shared([start, end], counted), list_of(DATE), node)


def _sequence(values: Values, node: exp.GenerateSeries) -> Value:
    """Whole numbers from one to another, up or down; dates with a literal step of days, up."""
    if node.args.get("step") is not None:
        return _days(values, node)
    bounds = [values.require(values.of(node.args[key]), "int64") for key in ("start", "end")]

    def counted(start: Value, end: Value) -> pl.Expr:
        up = pl.int_ranges(start.expr, end.expr + 1)
        down = pl.int_ranges(end.expr, start.expr + 1).list.reverse()
        return pl.when(start.expr <= end.expr).then(up).otherwise(down)

    return Value(shared(bounds, counted), list_of(INT), node)


def _element_or_null(some: pl.Expr, at: pl.Expr) -> pl.Expr:
    """``get(list, 0)``."""
    return some.list.get(pl.when(at >= 0).then(at), null_on_oob=True)


def _flat(values: Values, node: exp.Flatten) -> Value:
    """Lists that are written out, one behind the other."""
    inner = node.this.unnest()
    if not isinstance(inner, exp.Array) or not inner.expressions:
        values.source.refuse(node, "flatten() of what is no array(...) that is written out", "concat(a, b)")
    return list_functions.concatenated(values, node, inner.expressions, skips_nulls=False)


RULES: dict[type[exp.Expr], Rule] = {
    exp.Hex: letters.digits_of,
    exp.ToBase64: function(lambda x: x.str.encode("base64"), TEXT, "string"),
    exp.Format: texts.printed(null="null"),
    exp.Elt: _chosen,
    exp.RegexpExtractAll: _every_match,
    exp.RegexpCount: _of_matches(lambda x, regex: x.str.count_matches(regex).cast(pl.Int64), INT),
    exp.RegexpInstr: _of_matches(patterns.position_of, INT),
    exp.RegexpSubstr: _of_matches(lambda x, regex: x.str.extract(regex, 0), TEXT),
    exp.BitwiseCount: function(whole_numbers.count_of_ones, INT, "int64"),
    exp.Rint: function(lambda x: x.round(0, mode="half_to_even"), FLOAT, "float64"),
    exp.Nanvl: function(lambda x, y: pl.when(x.is_nan()).then(y).otherwise(x), FLOAT, "float64", "float64"),
    exp.SafeDivide: _quotient,
    exp.Factorial: function(
        lambda n: whole_numbers.factorial(pl.when(n.is_between(0, 20)).then(n)), INT, "int64", repeats=True
    ),  # null for what has none in 64 bits
    exp.WidthBucket: numbers.RULES[exp.WidthBucket],
    exp.SafeAdd: _unless_too_large(operator.add, _sum_fits),
    exp.SafeSubtract: _unless_too_large(operator.sub, _difference_fits),
    exp.SafeMultiply: _unless_too_large(operator.mul, _product_fits),
    exp.Chr: function(_letter, TEXT, "int64", repeats=True),
    exp.Encode: letters.in_charset,
    exp.Decode: letters.in_charset,
    exp.FromBase64: function(lambda x: x.str.decode("base64"), BINARY, "string"),
    exp.Unhex: function(lambda x: x.str.decode("hex"), BINARY, "string"),
    exp.Reverse: list_functions.for_lists(list_functions.REVERSED, texts.RULES[exp.Reverse]),
    exp.Concat: list_functions.for_lists(list_functions.together(skips_nulls=False), spark.RULES[exp.Concat]),
    exp.ArrayAppend: list_functions.added(first=False, null_is_empty=False),
    exp.ArrayPrepend: list_functions.added(first=True, null_is_empty=False),
    exp.ArrayPosition: list_functions.position(none=0),
    exp.ArrayRemove: list_functions.RULES[exp.ArrayRemove],
    exp.ArrayCompact: function(lambda some: some.list.drop_nulls(), same, "list"),
    exp.ArrayExcept: list_functions.as_sets(list_functions.difference),
    exp.ArrayIntersect: list_functions.as_sets(list_functions.intersection),
    exp.ArraySort: _sorted,
    exp.ArraySlice: _slice,
    exp.ArrayInsert: _inserted,
    exp.JSONFormat: json_paths.whole,
    exp.GenerateSeries: _sequence,
    exp.Flatten: _flat,
    **lambdas.RULES,
}
NAMED: dict[str, Named] = {
    "bin": (1, function(letters.binary_digits, TEXT, "int64", repeats=True)),
    "printf": (-1, texts.printed(null="null")),
    "log1p": (1, function(lambda x: pl.when(x > -1).then(x.log1p()), FLOAT, "float64")),
    "hypot": (2, function(lambda x, y: (x * x + y * y).sqrt(), FLOAT, "float64", "float64")),
    "positive": (1, _sign_kept),
    "json_array_length": (1, function(json_paths.count_or_null, INT, "string", repeats=True)),
    "url_encode": (1, function(letters.url_encoded("A-Za-z0-9.*_-", "+"), TEXT, "string")),
    "url_decode": (1, function(letters.url_decoded(" "), TEXT, "string")),
    "bround": (-1, numbers.to_even),
    "shiftrightunsigned": (2, whole_numbers.shift("shiftrightunsigned()", _without_sign)),
    "format_number": (2, _grouped),
    "array_union": (2, list_functions.as_sets(list_functions.union)),
    "arrays_overlap": (2, list_functions.of_sets(list_functions.overlaps, known=_decided)),
    "array_repeat": (2, _repeated),
    "get": (2, function(_element_or_null, element_of, "list", "int64", repeats=True)),
    **lambdas.NAMED,
}
