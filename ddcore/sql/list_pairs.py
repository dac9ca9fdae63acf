"""Functions of SQL that put the elements of two lists, or of a list and numbers, side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type
from ddcore.sql import maps, zeros
from ddcore.sql.arrays import list_and_element, list_of, padded, side_by_side
from ddcore.sql.source import called, given
from ddcore.sql.types import FLOAT, INT
from ddcore.sql.values import Named, Rule, Value, Values, as_type, column_value, shared

_KEY, _VALUE = (pl.element().struct.field(name) for name in ("key", "value"))


def _with_parameters(values: Values, node: exp.Expr, function: exp.Expr, kinds: tuple[Type, Type]) -> Value:
    """The value of ``(x, y) -> ...`` of the two parts of an element."""
    names = [name.name for name in function.expressions] if isinstance(function, exp.Lambda) else []
    if len(names) != 2:
        values.source.refuse(node, "a function that does not take two values", "write (x, y) -> ...")

    def found(_: Values, part: exp.Expr) -> Value | None:
        if isinstance(part, exp.Identifier | exp.Column) and part.name in names:
            number = names.index(part.name)
            return Value((_KEY, _VALUE)[number], kinds[number], part)
        if isinstance(part, exp.Column):
            values.source.refuse(part, "a column in a function of two values", "join with it, or explode the list")
        return None

    return column_value(Values(values.source, (), {}, found), function.this)


def _pairs(values: Values, one: exp.Expr, other: exp.Expr) -> tuple[pl.Expr, tuple[Type, Type]]:
    """Two lists side by side, with nulls behind the shorter one."""
    (left, first), (right, second) = (list_and_element(values, side) for side in (one, other))

    def together(left: Value, right: Value) -> pl.Expr:
        lengths = [side.expr.list.len().cast(pl.Int64) for side in (left, right)]
        most = pl.when(lengths[0] >= lengths[1]).then(lengths[0]).otherwise(lengths[1])
        sides = padded(left.expr, most, first), padded(right.expr, most, second)
        return side_by_side(*sides, (first, second))

    return shared([left, right], together), (first, second)


def _zipped_with(values: Values, node: exp.Anonymous) -> Value:
    """``zip_with(a, b, (x, y) -> x || y)``."""
    one, other, function = node.expressions
    pairs, kinds = _pairs(values, one, other)
    new = _with_parameters(values, node, function, kinds)
    assert new.type is not None
    return Value(pairs.list.eval(new.expr), list_of(new.type), node)


def _zipped(values: Values, node: exp.ArraysZip) -> Value:
    """``arrays_zip(a, b)``: structs with the names of the columns, or the numbers from 0 of what is none."""
    if len(node.expressions) != 2:
        values.source.refuse(node, "arrays_zip() of another number of lists than two")
    pairs, kinds = _pairs(values, *node.expressions)
    names = [part.name if isinstance(part, exp.Column) else str(at) for at, part in enumerate(node.expressions)]
    made = Type("struct", fields=tuple(zip(names, kinds, strict=True)))
    return Value(pairs.list.eval(pl.element().struct.rename_fields(names)), list_of(made), node)


def _where(values: Values, node: exp.Anonymous) -> Value:
    """``list_where(list, truths)``: nulls stand behind the shorter one."""
    pairs, (element, kind) = _pairs(values, *node.expressions)
    if kind.name != "bool":
        values.source.refuse(node, f"{node.name.lower()}() by a list of {kind}")
    kept = pairs.list.eval(pl.element().filter(_VALUE.fill_null(False)))
    return Value(kept.list.eval(_KEY), list_of(element), node)


def _of_numbers(compute: Callable[[pl.Expr], pl.Expr]) -> Rule:
    """A double of two lists of as many numbers; the row fails where they are not, and for a null in them."""

    def rule(values: Values, node: exp.Expr) -> Value:
        sides = []
        for part in given(node):
            some, element = list_and_element(values, part)
            if element.name not in ("int64", "float64"):
                values.source.refuse(node, f"{called(node)}() of a list of {element}", "cast its elements")
            sides.append(replace(some, expr=some.expr.cast(pl.List(pl.Float64))))

        def whole(left: Value, right: Value) -> pl.Expr:
            differ = left.expr.list.len() != right.expr.list.len()
            has_null = [side.expr.list.drop_nulls().list.len() < side.expr.list.len() for side in (left, right)]
            wrong = zeros.failing_where(
                differ | has_null[0] | has_null[1], "lists are not equally long, or have a null"
            )
            pairs = side_by_side(pl.when(wrong == 0).then(left.expr), right.expr, (FLOAT, FLOAT))
            return shared([Value(pairs, None, node)], lambda pairs: compute(pairs.expr))

        return Value(shared(sides, whole), FLOAT, node)

    return rule


def _total(pairs: pl.Expr, part: pl.Expr) -> pl.Expr:
    return pairs.list.eval(part).list.sum()


def _product(pairs: pl.Expr) -> pl.Expr:
    return _total(pairs, _KEY * _VALUE)


def _distance(pairs: pl.Expr) -> pl.Expr:
    return _total(pairs, (_KEY - _VALUE) * (_KEY - _VALUE)).sqrt()


def _cosine(pairs: pl.Expr) -> pl.Expr:
    lengths = (_total(pairs, _KEY * _KEY) * _total(pairs, _VALUE * _VALUE)).sqrt()
    return (_product(pairs) / lengths).clip(-1.0, 1.0)


def positions(values: Values, node: exp.Anonymous) -> Value:
    """``array_positions(list, x)``: the numbers of all elements that are equal, counted from 1; null equals null."""
    some, element = list_and_element(values, node.expressions[0])
    wanted = values.cast(values.of(node.expressions[1]), element)
    kind = Type("struct", fields=(("c0", element), ("c1", INT)))

    def numbers(some: Value, wanted: Value) -> pl.Expr:
        length = some.expr.list.len().cast(pl.Int64)
        inner = side_by_side(wanted.expr.repeat_by(length), pl.int_ranges(1, length + 1), (element, INT))
        named = inner.list.eval(pl.element().struct.rename_fields(["c0", "c1"]))
        whole = side_by_side(some.expr, named, (element, kind))
        met = _KEY.eq_missing(_VALUE.struct.field("c0"))
        return whole.list.eval(pl.element().filter(met)).list.eval(_VALUE.struct.field("c1"))

    return Value(shared([some, wanted], numbers), list_of(INT), node)


def resized(values: Values, node: exp.Anonymous) -> Value:
    """``list_resize(list, n)``: cut, or with nulls or another value behind it."""
    some, element = list_and_element(values, node.expressions[0])
    count = values.require(values.of(node.expressions[1]), "int64")
    fill = values.cast(
        values.of(node.expressions[2]) if node.expressions[2:] else Value(pl.lit(None), None, node), element
    )

    def sized(some: Value, count: Value, fill: Value) -> pl.Expr:
        wanted = count.expr.fill_null(0)
        more = (wanted - some.expr.list.len().cast(pl.Int64)).clip(lower_bound=0)
        return pl.concat_list([some.expr.list.head(wanted), fill.expr.repeat_by(more)])

    return Value(shared([some, count, fill], sized), some.type, node)


def selected(values: Values, node: exp.Anonymous) -> Value:
    """``list_select(list, numbers)``: null for a number of no element."""
    (some, element), (numbers, _) = (list_and_element(values, side) for side in node.expressions)
    indexes = numbers.expr.list.eval(pl.when(pl.element() >= 0).then(pl.element()))
    whole = pl.concat_list([pl.lit(None, dtype=element.polars), some.expr])  # so that the first one has number 1
    return Value(whole.list.gather(indexes, null_on_oob=True), list_of(element), node)


def _of_entries(change: str) -> Rule:
    """``map_filter``, ``transform_keys`` and ``transform_values`` of a map and ``(k, v) -> ...``."""

    def rule(values: Values, node: exp.Anonymous) -> Value:
        some, key, inner = maps.parts(values, node.expressions[0])
        new = _with_parameters(values, node, node.expressions[1], (key, inner))
        assert new.type is not None
        entries = some.expr.map.entries()
        if change == "filter":
            kept = entries.list.eval(pl.element().filter(values.require(new, "bool").expr.fill_null(False)))
            return maps.of_entries(kept, key, inner, node)
        parts = {"key": _KEY, "value": _VALUE} | {change: new.expr}
        kinds = {"key": key, "value": inner} | {change: new.type}
        return maps.of_entries(
            entries.list.eval(pl.struct([part.alias(name) for name, part in parts.items()])),
            kinds["key"],
            kinds["value"],
            node,
        )

    return rule


def folded(values: Values, node: exp.Reduce) -> Value:
    """``aggregate(list, 0, (acc, x) -> acc + x)``, the sum: null where an element is."""
    some, element = list_and_element(values, node.this)
    merge, start = node.args["merge"], values.number(values.of(node.args["initial"]))
    names = [name.name for name in merge.expressions] if isinstance(merge, exp.Lambda) else []
    body = merge.this if names else None
    sides = [body.this.name, body.expression.name] if isinstance(body, exp.Add) else []
    if node.args.get("finish") or sorted(sides) != sorted(names) or len(names) != 2 or element not in (INT, FLOAT):
        values.source.refuse(
            node, "aggregate() by anything but a sum", "(acc, x) -> acc + x; explode the list, and group"
        )

    def total(some: Value) -> pl.Expr:
        known = some.expr.list.drop_nulls().list.len() == some.expr.list.len()
        return pl.when(known).then(some.expr.list.sum() + as_type(values.source, start, element))

    return Value(shared([some], total), element, node)


OF_SPARK: dict[type[exp.Expr], Rule] = {exp.ArraysZip: _zipped, exp.Reduce: folded}
SPARK: dict[str, Named] = {
    "zip_with": (3, _zipped_with),
    "map_filter": (2, _of_entries("filter")),
    "transform_keys": (2, _of_entries("key")),
    "transform_values": (2, _of_entries("value")),
}
_PRODUCTS = {
    "dot_product": _product, "inner_product": _product, "negative_dot_product": lambda pairs: -_product(pairs),
    "negative_inner_product": lambda pairs: -_product(pairs), "cosine_similarity": _cosine,
}  # fmt: skip
OF_DUCKDB: dict[type[exp.Expr], Rule] = {
    exp.EuclideanDistance: _of_numbers(_distance),
    exp.CosineDistance: _of_numbers(lambda pairs: 1.0 - _cosine(pairs)),
}
DUCKDB: dict[str, Named] = {
    **{f"list_{name}": (2, _of_numbers(compute)) for name, compute in _PRODUCTS.items()},
    **{f"{kind}_where": (2, _where) for kind in ("list", "array")},
    **{f"{kind}_select": (2, selected) for kind in ("list", "array")},
    **{f"{kind}_resize": (-1, resized) for kind in ("list", "array")},
}
NAMED: dict[str, Named] = {"array_positions": (2, positions)}
