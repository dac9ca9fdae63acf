"""Functions of lists in SQL: what is added, taken out, put in order, or compared as sets."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type
from ddcore.sql import arrays, texts
from ddcore.sql.arrays import list_and_element
from ddcore.sql.comparisons import has_interval
from ddcore.sql.dialects import SPARKS
from ddcore.sql.source import given
from ddcore.sql.types import BOOL, INT
from ddcore.sql.values import Named, Rule, Value, Values, aligned, as_type, constant, function, same, shared


def _empty(element: pl.Expr) -> pl.Expr:
    """A list without elements, of the type of this value."""
    return pl.concat_list([element]).list.head(0)


def _of_one_type(values: Values, node: exp.Expr, parts: list[exp.Expr]) -> tuple[list[Value], Type]:
    """Lists of the same type."""
    found = [list_and_element(values, part)[0] for part in parts]
    exprs, kind = aligned(values.source, found, node)
    return [Value(expr, kind, value.node) for expr, value in zip(exprs, found, strict=True)], kind


def added(*, first: bool, null_is_empty: bool) -> Rule:
    """The rule of a list with one more element, as its ``first`` or as its last one. ``null_is_empty``: a list that is
    null has no elements; else the result is null.
    """

    def rule(values: Values, node: exp.Expr) -> Value:
        some, element = list_and_element(values, node.this)
        new = values.cast(values.of(node.expression), element)

        def together(some: Value, new: Value) -> pl.Expr:
            one = pl.concat_list([new.expr])
            known = pl.when(some.expr.is_null()).then(_empty(new.expr)).otherwise(some.expr)
            whole = pl.concat_list([one, known] if first else [known, one])
            return whole if null_is_empty else pl.when(some.expr.is_not_null()).then(whole)

        return Value(shared([some, new], together), some.type, node)

    return rule


def concatenated(values: Values, node: exp.Expr, parts: list[exp.Expr], *, skips_nulls: bool) -> Value:
    """Lists, one behind the other. ``skips_nulls``: those that are null are left out; else the result is null."""
    found, kind = _of_one_type(values, node, parts)
    if not skips_nulls:
        return Value(pl.concat_list([value.expr for value in found]), kind, node)

    def together(*parts: Value) -> pl.Expr:
        inner = kind.polars
        empty = pl.lit(None, dtype=inner.inner)  # type: ignore[attr-defined]
        lists = [pl.when(part.expr.is_null()).then(_empty(empty)).otherwise(part.expr) for part in parts]
        return pl.when(pl.any_horizontal(part.expr.is_not_null() for part in parts)).then(pl.concat_list(lists))

    return Value(shared(found, together), kind, node)


def together(*, skips_nulls: bool) -> Rule:
    """The rule of lists, one behind the other: see :func:`concatenated`."""
    return lambda values, node: concatenated(values, node, given(node), skips_nulls=skips_nulls)


def sliced(
    values: Values, node: exp.Expr, some: exp.Expr, begin: exp.Expr | None, end: exp.Expr | None, *, step: bool
) -> Value:
    """The elements from one number to another, both counted from 1; without a number from the first, or to the last
    one. Numbers below 0 count from the end in DuckDB, and are before the first in PostgreSQL.
    """
    if step:
        values.source.refuse(node, "a slice of a list with a step", "list[2:3]")
    value, _ = list_and_element(values, some)
    ends = (constant(1, node) if begin is None else values.of(begin), values.of(end) if end is not None else None)
    numbers = [values.require(bound, "int64") for bound in ends if bound is not None]
    from_end = values.source.dialect == "duckdb"

    def part(value: Value, begin: Value, end: Value | None = None) -> pl.Expr:
        size = value.expr.list.len().cast(pl.Int64)

        def from_begin(number: pl.Expr) -> pl.Expr:
            return pl.when(number < 0).then(size + number + 1).otherwise(number) if from_end else number

        start = from_begin(begin.expr).clip(lower_bound=1) - 1
        stop = size if end is None else from_begin(end.expr)
        found = value.expr.list.slice(start, (pl.min_horizontal(stop, size) - start).clip(lower_bound=0))
        known = [bound.expr.is_not_null() for bound in (begin, end) if bound is not None and bound.literal is None]
        return pl.when(pl.all_horizontal(known)).then(found) if known else found

    return Value(shared([value, *numbers], part), value.type, node)


REVERSED = function(lambda some: some.list.reverse(), same, "list")
"""The rule of the elements in the other order."""


def refuse_order(values: Values, node: exp.Expr, element: Type) -> None:
    """Raises ProgramError for elements without an order here: in Spark lists and structs have the engine's own."""
    if has_interval(element) or (element.is_nested and values.source.dialect not in SPARKS):
        hint = "list_transform() and struct_extract() take the part out that has one"
        values.source.refuse(node, f"the order of {element}", hint)


def in_order(values: Values, some: exp.Expr, node: exp.Expr, *, descending: bool, nulls_last: bool) -> Value:
    """The elements in their order."""
    value, element = list_and_element(values, some)
    refuse_order(values, node, element)
    return Value(value.expr.list.sort(descending=descending, nulls_last=nulls_last), value.type, node)


def extreme(*, greatest: bool) -> Rule:
    """The rule of the greatest or the least element."""

    def rule(values: Values, node: exp.Func) -> Value:
        some, element = list_and_element(values, node.this)
        refuse_order(values, node, element)
        if element.is_nested:
            first = some.expr.list.sort(descending=greatest, nulls_last=True).list.get(0, null_on_oob=True)
            return Value(first, element, node)
        return Value(some.expr.list.max() if greatest else some.expr.list.min(), element, node)

    return rule


def _beside(values: Values, some: Value, others: list[Value], element: Type) -> tuple[pl.Expr, pl.Expr, list[pl.Expr]]:
    """A list, its element, and values for each element: literals as they are, others stand beside each element."""
    exprs = [as_type(values.source, value, element) for value in others]
    if all(value.literal is not None for value in others):
        return some.expr, pl.element(), exprs
    names = [f"c{number}" for number in range(len(exprs))]
    kinds = element, Type("struct", fields=tuple((name, element) for name in names))
    outer = pl.struct([expr.alias(name) for expr, name in zip(exprs, names, strict=True)]).repeat_by(
        some.expr.list.len()
    )
    whole = arrays.side_by_side(some.expr, outer, kinds)
    beside = pl.element().struct.field("value").struct
    return whole, pl.element().struct.field("key"), [beside.field(name) for name in names]


def position(*, none: int | None) -> Rule:
    """The rule of the number of the first element that is equal to a value, counted from 1. ``none``: where there is
    none.
    """

    def rule(values: Values, node: exp.Expr) -> Value:
        some, part = given(node)
        value, element = list_and_element(values, some)
        wanted = values.of(part)

        def number(value: Value) -> pl.Expr:
            whole, own, (sought,) = _beside(values, value, [wanted], element)
            same = own.eq_missing(sought) if none is None else (own == sought).fill_null(False)
            met = whole.list.eval(same.cast(pl.Int64))
            found = met.list.arg_max().cast(pl.Int64) + 1
            missing = pl.lit(none, dtype=pl.Int64)
            known = value.expr.is_not_null()
            if none == 0 and wanted.literal is None:  # Spark looks for no null
                known &= wanted.expr.is_not_null()
            return pl.when(known).then(pl.when(met.list.max() == 1).then(found).otherwise(missing))

        return Value(shared([value], number), INT, node)

    return rule


def _without(values: Values, node: exp.ArrayRemove) -> Value:
    """The elements that are not equal to a value; nulls stay."""
    value, element = list_and_element(values, node.this)
    gone = values.of(node.expression)

    def rest(value: Value) -> pl.Expr:
        whole, own, (sought,) = _beside(values, value, [gone], element)
        kept = whole.list.eval(pl.element().filter(own.ne_missing(sought)))
        kept = kept if gone.literal is not None else kept.list.eval(own)
        is_spark = values.source.dialect in SPARKS
        return pl.when(gone.expr.is_not_null()).then(kept) if is_spark and gone.literal is None else kept

    return Value(shared([value], rest), value.type, node)


def _replaced(values: Values, node: exp.Anonymous) -> Value:
    some, *parts = node.expressions
    value, element = list_and_element(values, some)
    others = [values.of(part) for part in parts]

    def changed(value: Value) -> pl.Expr:
        whole, own, (old, new) = _beside(values, value, others, element)
        return whole.list.eval(pl.when(own.eq_missing(old)).then(new).otherwise(own))

    return Value(shared([value], changed), value.type, node)


Combine = Callable[[pl.Expr, pl.Expr], pl.Expr]


def of_sets(combine: Combine, *, known: Callable[[pl.Expr, pl.Expr], pl.Expr] | None = None) -> Rule:
    """The rule of a truth about two lists as sets without nulls: ``known`` tells where it is no null."""

    def rule(values: Values, node: exp.Expr) -> Value:
        sides, _ = _of_one_type(values, node, given(node))

        def truth(one: Value, other: Value) -> pl.Expr:
            met = combine(one.expr, other.expr)
            both = one.expr.is_not_null() & other.expr.is_not_null()
            return pl.when(both if known is None else both & known(one.expr, other.expr)).then(met)

        return Value(shared(sides, truth), BOOL, node)

    return rule


def has_null(some: pl.Expr) -> pl.Expr:
    """Whether a list has an element that is null."""
    return some.list.drop_nulls().list.len() < some.list.len()


def overlaps(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Whether lists have an element in common that is no null."""
    return one.list.drop_nulls().list.set_intersection(other.list.drop_nulls()).list.len() > 0


def contains_all(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Whether the first list has every element of the other one; it never has a null."""
    lacks = other.list.drop_nulls().list.set_difference(one.list.drop_nulls()).list.len() > 0
    return ~(lacks | has_null(other))


def union(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """The different elements of both lists."""
    return pl.concat_list([one, other]).list.unique(maintain_order=True)


def difference(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """The different elements of the first list that the other one lacks: they stand behind those of the other one."""
    return union(other, one).list.slice(other.list.unique(maintain_order=True).list.len())


def intersection(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """The different elements that both lists have."""
    return difference(one, difference(one, other))


def as_sets(combine: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Rule:
    """A list of different elements of two lists, in the order in which they come."""

    def rule(values: Values, node: exp.Expr) -> Value:
        if len(given(node)) != 2:
            values.source.refuse(node, "sets of another number of lists than two")
        sides, kind = _of_one_type(values, node, given(node))
        return Value(shared(sides, lambda one, other: combine(one.expr, other.expr)), kind, node)

    return rule


def element_or_slice(element: Rule) -> Rule:
    """The rule of brackets behind a list: ``element`` is that of one number in them. sqlglot leaves the numbers of a
    slice, ``list[2:3]``, as they are.
    """

    def rule(values: Values, node: exp.Bracket) -> Value:
        (part,) = node.expressions
        if not isinstance(part, exp.Slice):
            return element(values, node)
        return sliced(values, node, node.this, part.this, part.expression, step=bool(part.args.get("step")))

    return rule


def for_lists(of_lists: Rule, plain: Rule) -> Rule:
    """The rule of a function of lists, where its first argument is one, and of anything else."""

    def rule(values: Values, node: exp.Expr) -> Value:
        first = given(node)[:1]
        return (of_lists if first and values.peek(first[0]).is_a("list") else plain)(values, node)

    return rule


def concatenation(plain: Rule) -> Rule:
    """The rule of ``||``, by which lists and elements are put together, too; ``plain`` is that of texts."""
    before, behind = (added(first=first, null_is_empty=True) for first in (True, False))

    def rule(values: Values, node: exp.DPipe) -> Value:
        left, right = (values.peek(side).is_a("list") for side in (node.this, node.expression))
        if left and right:
            return concatenated(values, node, given(node), skips_nulls=True)
        if left:
            return behind(values, node)
        return (
            before(values, exp.ArrayPrepend(this=node.expression, expression=node.this))
            if right
            else plain(values, node)
        )

    return rule


RULES: dict[type[exp.Expr], Rule] = {
    exp.ArrayAppend: added(first=False, null_is_empty=True),
    exp.ArrayPrepend: added(first=True, null_is_empty=True),
    exp.ArrayConcat: together(skips_nulls=True),
    exp.ArrayPosition: position(none=None),
    exp.ArrayRemove: _without,
    exp.ArrayContainsAll: of_sets(contains_all),
    exp.ArrayContainedBy: of_sets(lambda one, other: contains_all(other, one)),
    exp.ArrayOverlaps: of_sets(overlaps),
    exp.Bracket: element_or_slice(arrays.RULES[exp.Bracket]),
    exp.DPipe: concatenation(texts.RULES[exp.DPipe]),
}
NAMED: dict[str, Named] = {"array_replace": (3, _replaced)}
