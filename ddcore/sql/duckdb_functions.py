"""Functions of DuckDB's dialect: of lists, maps, intervals and text, which :mod:`ddcore.sql.duckdb` has not."""

from __future__ import annotations

import polars as pl
from sqlglot import exp

from ddcore.sql import (
    arrays,
    dates,
    duckdb,
    intervals,
    json_paths,
    lambdas,
    letters,
    list_functions,
    macros,
    maps,
    regexes,
    structs,
    texts,
    whole_numbers,
)
from ddcore.sql.arrays import list_and_element, list_of
from ddcore.sql.regexes import RE2
from ddcore.sql.source import given
from ddcore.sql.types import BOOL, FLOAT, INT, TEXT, TIMESTAMP
from ddcore.sql.values import (
    Interval,
    Named,
    Rule,
    Value,
    Values,
    as_type,
    element_of,
    function,
    literal_interval,
    null,
    same,
    shared,
)

# -- lists ------------------------------------------------------------------------------------------------------------


def _concatenated(values: Values, node: exp.Expr) -> Value:
    """Without elements where all lists are null."""
    whole = list_functions.concatenated(values, node, given(node), skips_nulls=True)
    assert whole.type is not None and whole.type.element is not None
    empty = pl.concat_list([null(whole.type.element)]).list.head(0)
    return Value(
        shared([whole], lambda some: pl.when(some.expr.is_null()).then(empty).otherwise(some.expr)), whole.type, node
    )


def _sorted(values: Values, node: exp.ArraySort) -> Value:
    way = node.args.get("asc")
    descending = isinstance(way, exp.Boolean) and not way.this
    if node.expression is not None or set(node.args) - {"this", "expression", "asc", "nulls_first"}:
        values.source.refuse(node, "list_sort() with options", "list_reverse_sort()")
    return list_functions.in_order(values, node.this, node, descending=descending, nulls_last=True)


def _has_all(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Nulls are not looked for."""
    return other.list.drop_nulls().list.set_difference(one.list.drop_nulls()).list.len() == 0


def _code(text: pl.Expr) -> pl.Expr:
    return pl.when(text == "").then(-1).otherwise(letters.code(text))


def _binned(values: Values, node: exp.DateBin) -> Value:
    """``time_bucket``: one of the stretches of time starts on a Monday."""
    if not any(node.args.get(key) for key in ("unit", "origin", "zone")):
        monday = exp.Cast(this=exp.Literal.string("2000-01-03"), to=exp.DataType.build("timestamp"))
        node = exp.DateBin(this=node.this, expression=node.expression, origin=monday)
    return dates.RULES[exp.DateBin](values, node)


def _count_of_different(some: pl.Expr) -> pl.Expr:
    return some.list.drop_nulls().list.unique().list.len().cast(pl.Int64)


def _sum(values: Values, node: exp.Anonymous) -> Value:
    """Null of no elements but nulls."""
    some, element = list_and_element(values, node.expressions[0])
    if element not in (INT, FLOAT):
        values.source.refuse(node, f"list_sum() of {element}")
    there = some.expr.list.drop_nulls()
    return Value(pl.when(there.list.len() > 0).then(there.list.sum()), element, node)


def _slice(values: Values, node: exp.Expr) -> Value:
    """``list_slice(list, 2, 3)``: both ends belong to it."""
    parts = node.expressions if isinstance(node, exp.Anonymous) else [node.this, node.args["start"], node.args["end"]]
    some, begin, end, *step = parts
    return list_functions.sliced(values, node, some, begin, end, step=bool(step))


def _element(values: Values, node: exp.Anonymous) -> Value:
    """``list_extract(list, 1)``."""
    some, number = node.expressions
    return arrays.numbered(values, node, some, values.require(values.of(number), "int64"))


def _series(values: Values, node: exp.GenerateSeries) -> Value:
    """``generate_series(a, b)`` with its end, ``range(a, b)`` without."""
    if node.args.get("step") is not None:
        values.source.refuse(node, "a series with a step")
    bounds = [values.require(values.of(node.args[key]), "int64") for key in ("start", "end")]
    more = 0 if node.args.get("is_end_exclusive") else 1

    def counted(start: Value, end: Value) -> pl.Expr:
        behind = pl.max_horizontal(start.expr, end.expr + more)
        known = start.expr.is_not_null() & end.expr.is_not_null()
        return pl.when(known).then(pl.int_ranges(start.expr, behind))

    return Value(shared(bounds, counted), list_of(INT), node)


def _bracket(values: Values, node: exp.Bracket) -> Value:
    """An element or a slice of a list, the value of a key of a map, or a field of a struct."""
    some, inside = values.peek(node.this), node.expressions[0]
    if some.is_a("map"):
        return maps.element(values, node.this, inside)
    if some.is_a("struct") and inside.is_string:
        return structs.field(values, node, node.this, inside)
    return _BRACKETS(values, node)


_COMMON = list_functions.as_sets(lambda one, other: list_functions.intersection(one, other).list.drop_nulls())
_BRACKETS = list_functions.element_or_slice(arrays.element_or_null)


def _map(values: Values, node: exp.ToMap) -> Value:
    """``map {'a': x}``, also with a key in brackets behind it."""
    inner = node.this
    if isinstance(inner, exp.Bracket):
        return maps.element(values, exp.ToMap(this=inner.this), inner.expressions[0])
    pairs = inner.expressions if isinstance(inner, exp.Struct) else []
    keys = [pair.this if not isinstance(pair.this, exp.Identifier) else exp.Literal.string(pair.name) for pair in pairs]
    return maps.of_parts(values, node, keys, [pair.expression for pair in pairs])


# -- intervals --------------------------------------------------------------------------------------------------------


def _interval(values: Values, node: exp.Interval) -> Value:
    """A literal one, or ``INTERVAL (n) DAY`` of a value."""
    amount = node.this
    if isinstance(amount, exp.Literal) or node.args.get("unit") is None:
        return dates.interval(values, node)
    if isinstance(amount.unnest(), exp.Literal | exp.Neg):
        return dates.interval(values, node)
    one = dates.interval(values, exp.Interval(this=exp.Literal.string("1"), unit=node.args["unit"]))
    return intervals.times(values, node, one, values.require(values.of(amount), "int64"))


def _of_units(months: int, days: int, microseconds: int) -> Rule:
    """``to_days(n)``."""

    def rule(values: Values, node: exp.Expr) -> Value:
        one = literal_interval(Interval(months, days, microseconds), node)
        return intervals.times(values, node, one, values.require(values.of(given(node)[0]), "int64"))

    return rule


_UNITS = {
    "millennia": (12_000, 0, 0), "centuries": (1200, 0, 0), "decades": (120, 0, 0), "years": (12, 0, 0),
    "quarters": (3, 0, 0), "months": (1, 0, 0), "weeks": (0, 7, 0), "hours": (0, 0, 3_600_000_000),
    "minutes": (0, 0, 60_000_000), "seconds": (0, 0, 1_000_000), "milliseconds": (0, 0, 1_000),
    "microseconds": (0, 0, 1),
}  # fmt: skip
"""The months, days and microseconds of one: ``to_years(n)``."""


def _split(values: Values, node: exp.Expr) -> Value:
    """``regexp_split_to_array``."""
    some, pattern = given(node)
    text = values.require(values.of(some), "string")
    return regexes.split(values, node, text, regexes.translated(values, node, pattern, RE2)[0], "string_split(x, ',')")


def _every_match(values: Values, node: exp.RegexpExtractAll) -> Value:
    group = values.of(node.args["group"]).literal if node.args.get("group") else 0
    if group != 0:
        values.source.refuse(node, "regexp_extract_all() of a group", "group 0 is all of each match")
    regex, _ = regexes.translated(values, node, node.expression, RE2)
    return Value(values.require(values.of(node.this), "string").expr.str.extract_all(regex), list_of(TEXT), node)


def _of_epoch(values: Values, node: exp.UnixToTime) -> Value:
    """``to_timestamp(seconds)``, ``make_timestamp(microseconds)`` and ``epoch_ms(milliseconds)``."""
    scale = int(node.args["scale"].name) if node.args.get("scale") else 0
    if dates.is_day(values.peek(node.this)):
        values.source.refuse(node, "epoch_ms() of a timestamp", "epoch_us(ts) // 1000")
    if not scale:
        return dates.RULES[exp.UnixToTime](values, node)
    number = values.require(values.of(node.this), "int64").expr * 10 ** (6 - scale)
    return Value(number.cast(TIMESTAMP.polars), TIMESTAMP, node)


def _aggregated(values: Values, node: exp.Anonymous) -> Value:
    """``list_aggregate(list, 'sum')``."""
    name = values.of(node.expressions[1]).literal
    if name not in ("sum", "avg", "min", "max", "count", "first", "last"):
        values.source.refuse(node, f"list_aggregate() by {name}", "sum, avg, min, max, count, first and last")
    return values.of(exp.func(f"list_{name}", node.expressions[0], dialect="duckdb"))


def _to_even(values: Values, node: exp.Anonymous) -> Value:
    """``round_even(x, 1)``, which computes in doubles."""
    digits = values.of(node.expressions[1]).literal if len(node.expressions) == 2 else None
    if not isinstance(digits, int) or not 0 <= digits <= 18:
        values.source.refuse(node, f"{node.name.lower()}() to what is no literal number of digits", "round_even(x, 2)")
    number = as_type(values.source, values.number(values.of(node.expressions[0])), FLOAT)
    return Value((number * 10.0**digits).round(0, mode="half_to_even") / 10.0**digits, FLOAT, node)


def _without_accents(text: pl.Expr) -> pl.Expr:
    return text.str.normalize("NFD").str.replace_all(r"\p{Mn}", "").str.normalize("NFC")


RULES: dict[type[exp.Expr], Rule] = {
    exp.Unicode: function(_code, INT, "string", repeats=True),
    exp.Hex: letters.digits_of,
    exp.IsInf: function(lambda x: x.is_infinite(), BOOL, "float64"),
    exp.DPipe: list_functions.for_lists(list_functions.together(skips_nulls=False), texts.RULES[exp.DPipe]),
    exp.Bracket: _bracket,
    exp.ArrayConcat: _concatenated,
    exp.ArrayIntersect: _COMMON,
    # Without nulls; the order is that of the list, where DuckDB has any.
    exp.ArrayDistinct: function(lambda some: some.list.drop_nulls().list.unique(maintain_order=True), same, "list"),
    exp.ArrayReverse: list_functions.REVERSED,
    exp.ArraySort: _sorted,
    exp.ArrayMax: list_functions.extreme(greatest=True),
    exp.ArrayMin: list_functions.extreme(greatest=False),
    exp.ArraySlice: _slice,
    exp.ArrayOverlaps: list_functions.of_sets(list_functions.overlaps),
    exp.ArrayContainsAll: list_functions.of_sets(_has_all),
    exp.GenerateSeries: _series,
    exp.ToMap: _map,
    exp.Map: maps.RULES[exp.Map],
    exp.MapKeys: maps.RULES[exp.MapKeys],
    exp.MapFromEntries: maps.RULES[exp.MapFromEntries],
    exp.Interval: _interval,
    exp.ToDays: _of_units(0, 1, 0),
    exp.DateBin: _binned,
    exp.RegexpSplit: _split,
    exp.RegexpExtractAll: _every_match,
    exp.UnixToTime: _of_epoch,
    exp.Week: duckdb.RULES[exp.WeekOfYear],
    exp.ArrayPosition: list_functions.RULES[exp.ArrayPosition],
    exp.JSONObject: json_paths.compact_object,
    exp.JSONArray: json_paths.array(","),
    **lambdas.RULES,
}


_NAMES = {

    "array_extract": "list_extract", "array_has_any": "list_has_any", "array_indexof": "list_position",
    "array_transform": "list_transform", "array_unique": "list_unique", "array_aggregate": "list_aggregate",
    "datepart": "date_part", "array_aggr": "list_aggregate", "list_aggr": "list_aggregate", "list_pack": "list_value",
    "array_apply": "list_transform", "list_apply": "list_transform", "str_split_regex": "string_split_regex",
}  # fmt: skip
"""Functions that have another name, too."""
NAMED: dict[str, Named] = {
    **{name: (-1, macros.other_name(usual)) for name, usual in _NAMES.items()},
    **whole_numbers.NAMED,
    "greatest_common_divisor": whole_numbers.NAMED["gcd"],
    "least_common_multiple": whole_numbers.NAMED["lcm"],
    **{name: (-1, _to_even) for name in ("round_even", "roundbankers")},
    "json_valid": (1, function(json_paths.is_valid, BOOL, "string", repeats=True)),
    "to_json": (1, json_paths.whole),
    "url_encode": (1, function(letters.url_encoded("A-Za-z0-9_.~-", "%20"), TEXT, "string")),
    "url_decode": (1, function(letters.url_decoded("+"), TEXT, "string")),
    "strip_accents": (1, function(_without_accents, TEXT, "string")),
    "nfc_normalize": (1, function(lambda x: x.str.normalize("NFC"), TEXT, "string")),
    "regexp_escape": (
        1,
        function(lambda x: x.str.replace_all(r"([\x00-\x7F&&[^A-Za-z0-9_]])", r"\${1}"), TEXT, "string"),
    ),
    "list_intersect": (2, _COMMON),
    "list_avg": (1, function(lambda some: some.list.mean(), FLOAT, "list")),
    "list_aggregate": (2, _aggregated),
    "epoch_us": (1, function(lambda x: x.dt.epoch("us"), INT, "moment")),
    "epoch_ns": (1, function(lambda x: x.dt.epoch("us") * 1_000, INT, "moment")),
    **{f"to_{unit}": (1, _of_units(*length)) for unit, length in _UNITS.items()},
    "printf": (-1, texts.printed(null=None)),
    "json_array_length": json_paths.NAMED["json_array_length"],
    "map_entries": maps.NAMED["map_entries"],
    "map_contains": (2, lambda values, node: maps.contains(values, node, *node.expressions)),
    "bin": (1, function(letters.binary_digits, TEXT, "int64", repeats=True)),
    "ord": (1, function(_code, INT, "string", repeats=True)),
    "bit_count": (1, function(whole_numbers.count_of_ones, INT, "int64")),
    "isfinite": (1, function(lambda x: x.is_finite(), BOOL, "float64")),
    "list_cat": (-1, _concatenated),
    "list_reverse": (1, macros.other_name("array_reverse")),
    "list_position": (2, list_functions.RULES[exp.ArrayPosition]),
    "list_indexof": (2, list_functions.RULES[exp.ArrayPosition]),
    "list_sum": (1, _sum),
    "list_count": (1, function(lambda some: some.list.drop_nulls().list.len().cast(pl.Int64), INT, "list")),
    "list_unique": (1, function(_count_of_different, INT, "list")),
    "list_first": (1, function(lambda some: some.list.first(), element_of, "list")),
    "list_last": (1, function(lambda some: some.list.last(), element_of, "list")),
    "list_slice": (3, _slice),
    "list_extract": (2, _element),
    "list_element": (2, _element),
    "list_has_all": (2, list_functions.of_sets(_has_all)),
    "cardinality": (1, maps.SIZE),
    "map_values": maps.NAMED["map_values"],
    "age": (2, intervals.NAMED["age"][1]),
    "regexp_split_to_array": (2, _split),
    "even": (1, function(lambda x: (x.abs() / 2.0).ceil() * 2.0 * x.sign(), FLOAT, "float64")),
    "map_extract_value": (2, lambda values, node: maps.element(values, *node.expressions)),
    **{unit: (1, dates.OF_MOMENTS.rule(unit.upper())) for unit in ("millennium", "century", "decade", "isoyear")},
    "weekday": (1, dates.OF_MOMENTS.rule("DOW")),
    "array_length": (1, arrays.COUNT),
}
