"""Functions of SQL that are others of the same dialect put together: a text of SQL for each, whose columns are the
arguments: ``_1``, ``_2``.
"""

from __future__ import annotations

from functools import lru_cache

import polars as pl
from sqlglot import exp, parse_one

from ddcore.base.schema import Type
from ddcore.sql.source import given, shown
from ddcore.sql.types import TEXT
from ddcore.sql.values import Named, Rule, Value, Values, column_value, shared

POSTGRES = {
    "array_dims": "CASE WHEN cardinality(_1) > 0 THEN '[1:' || cardinality(_1) || ']' END",
    "array_ndims": "CASE WHEN cardinality(_1) > 0 THEN 1 END",
    "array_upper": "array_length(_1, _2)",
    "array_lower": "CASE WHEN array_length(_1, _2) > 0 THEN 1 END",
    "textcat": "_1 || _2",
}
_CODES = (
    "translate(concat(left(_1, 1), regexp_replace(substr(_1, 2), '[HWhw]', '')), "
    "'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz', '0123012702245501262301720201230127022455012623017202')"
)
_RUNS = f"regexp_replace({_CODES}, '[^0-9]', '0')"
_RUNS = f"regexp_replace({_RUNS}, '(1)1*|(2)2*|(3)3*|(4)4*|(5)5*|(6)6*', '$1$2$3$4$5$6')"
_SOUNDEX = (
    "CASE WHEN _1 RLIKE '^[a-zA-Z]' THEN concat(upper(left(_1, 1)), rpad(left(replace(substr("
    f"{_RUNS}, 2), '0', ''), 3), 3, '0')) ELSE _1 END"
)
"""The first letter, and the codes of others: of letters with one code in a row one, also with H and W between."""
SPARK = {
    "find_in_set": "array_position(split(_2, ','), _1)",
    "datepart": "date_part(_1, _2)",
    "regexp": "_1 RLIKE _2",
    "try_mod": "CASE WHEN _2 <> 0 THEN _1 % _2 END",
    "try_to_date": "try_cast(_1 AS date)",
    "isnull": "_1 IS NULL",
    "isnotnull": "_1 IS NOT NULL",
    "zeroifnull": "coalesce(_1, 0)",
    "nullifzero": "nullif(_1, 0)",
}
DUCKDB = {
    "make_timestamp_ms": "epoch_ms(_1)",
    "microsecond": "epoch_us(_1) % 60000000",
    "millisecond": "epoch_us(_1) % 60000000 // 1000",
    "signbit": "_1 < 0",
    "add": "_1 + _2",
    "subtract": "_1 - _2",
    "multiply": "_1 * _2",
    "divide": "_1 // _2",
    "yearweek": "isoyear(_1) * 100 + week(_1)",
}


@lru_cache
def _read(text: str, dialect: str) -> exp.Expr:
    tree = parse_one(text, read=dialect)
    for part in tree.walk():
        part.meta.clear()  # of places in this text, which are none of the program's
    return tree


def by_text(text: str) -> Rule:
    """The rule of a function that means what this SQL means. Its literal arguments stay literals; messages show the
    arguments in their places.
    """

    def rule(values: Values, node: exp.Expr) -> Value:
        arguments = given(node)
        numbers: dict[int, int] = {}

        def in_place(part: exp.Expr) -> exp.Expr:
            if not isinstance(part, exp.Column):
                return part
            number = int(part.name.removeprefix("_")) - 1
            copy = arguments[number].copy()
            numbers[id(copy)] = number
            return copy

        tree = _read(text, values.source.dialect).transform(in_place)
        tree.parent = node
        kinds: list[Type] = []

        def whole(*parts: Value) -> pl.Expr:
            def found(_: Values, part: exp.Expr) -> Value | None:
                return parts[numbers[id(part)]] if id(part) in numbers else None

            value = column_value(Values(values.source, (), {}, found), tree)
            kinds.append(value.type or TEXT)
            return value.expr

        return Value(shared([values.of(part) for part in arguments], whole), kinds[-1], node)

    return rule


def named(texts: dict[str, str]) -> dict[str, Named]:
    """The functions of a table of texts, each with as many arguments as its text names."""
    counts = {
        name: max(number for number in range(9) if number == 0 or f"_{number}" in text) for name, text in texts.items()
    }
    return {name: (counts[name], by_text(text)) for name, text in texts.items()}


def other_name(name: str, *parts: str) -> Rule:
    """The rule of a function that is another one of the same dialect, whose first arguments are these texts."""

    def rule(values: Values, node: exp.Anonymous) -> Value:
        first = map(exp.Literal.string, parts)
        return values.of(exp.func(name, *first, *node.expressions, dialect=values.source.dialect))

    return rule


def node_of(kind: type[exp.Expr], *keys: str) -> Rule:
    """The rule of a function that sqlglot has a kind for, but not by this name. ``keys``: where its arguments go."""
    return lambda values, node: values.of(kind(**dict(zip(keys, node.expressions, strict=False))))


OF_SPARK: dict[type[exp.Expr], Rule] = {
    exp.Getbit: by_text("(_1 >> _2) & 1"),
    exp.Soundex: by_text(_SOUNDEX),
    exp.Negative: lambda values, node: values.of(exp.Neg(this=node.this)),  # of a literal one
    exp.EqualNull: by_text("_1 <=> _2"),
}
OF_DUCKDB: dict[type[exp.Expr], Rule] = {exp.DateAdd: by_text("_1 + _2")}


def masked(values: Values, node: exp.Anonymous) -> Value:
    """``mask(text, upper, lower, digit)``: the letters that take the place of others, by default X, x and n."""
    usual = [exp.Literal.string(letter) for letter in "Xxn"]
    parts = [*node.expressions, *usual[len(node.expressions) - 1 :]]
    letters = [values.of(part).literal for part in parts[1:]]
    if len(parts) != 4 or not all(isinstance(char, str) and len(char) == 1 for char in letters):
        values.source.refuse(node, f"mask() by what is no literal letter: {shown(node)}", "mask(x, 'X', 'x', 'n')")
    text, (upper, lower, digit) = values.require(values.of(parts[0]), "string").expr, letters
    one = pl.element()
    changed = (
        pl.when(one.str.contains(r"^\p{Lu}$")).then(pl.lit(upper))
        .when(one.str.contains(r"^\p{Ll}$")).then(pl.lit(lower))
        .when(one.str.contains("^[0-9]$")).then(pl.lit(digit)).otherwise(one)
    )  # fmt: skip
    return Value(text.str.extract_all("(?s).").list.eval(changed).list.join(""), TEXT, node)
