"""Conditions of joins: the columns that they need, and what they are between two relations: equalities, or a range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Schema
from ddcore.program.estimates import FILTERED, Estimate
from ddcore.sql import subqueries
from ddcore.sql.between import Between, Comparison, comparisons, ranges
from ddcore.sql.names import Column, Relation, resolve, types
from ddcore.sql.pairs import Pair
from ddcore.sql.quantifiers import items_of
from ddcore.sql.source import shown
from ddcore.sql.values import Value, Values, aligned

if TYPE_CHECKING:
    from ddcore.sql.env import Env, Queries

_SIDES = ("this", "expression")  # of an equality, as sqlglot names them


@dataclass
class Condition:
    """A condition of WHERE or ON, the keys of the columns that it needs, and the columns that it may name.

    ``equal`` are the two keys of a column of USING; ``node`` is then the join, and no condition itself.
    """

    node: exp.Expr
    keys: set[str]
    columns: Sequence[Column] = ()
    equal: tuple[str, str] | None = None
    _sides: tuple[AbstractSet[str], AbstractSet[str]] | None = None

    @cached_property
    def asks(self) -> bool:
        """Whether there is a subquery in it."""
        return self.equal is None and bool(subqueries.subqueries_in([self.node]))

    @cached_property
    def is_equality(self) -> bool:
        """Whether it says that two values are equal, which may be of two tables."""
        is_one = isinstance(self.node, exp.EQ) and not isinstance(self.node.this, exp.Tuple)
        is_one = is_one and items_of(self.node.expression) is None
        return self.equal is not None or (is_one and not self.asks)

    def sides(self, queries: Queries, env: Env) -> tuple[AbstractSet[str], AbstractSet[str]]:
        """Of an equality, the keys of the columns that its two sides name."""
        if self.equal is not None:
            return {self.equal[0]}, {self.equal[1]}
        if self._sides is None:
            left, right = (keys_in(queries, env, self.node.args[side], self.columns) for side in _SIDES)
            self._sides = left, right
        return self._sides

    def is_between(self, queries: Queries, env: Env, one_side: AbstractSet[str], other_side: AbstractSet[str]) -> bool:
        """Whether it says that a value of one collection equals one of another, of which these are the columns."""
        if not self.is_equality or self.keys.isdisjoint(other_side):
            return False
        left, right = self.sides(queries, env)
        one_way, other_way = left <= one_side and right <= other_side, left <= other_side and right <= one_side
        return bool(left and right and (one_way or other_way))


def keys_in(queries: Queries, env: Env, node: exp.Expr, columns: Sequence[Column]) -> set[str]:
    """The keys of the columns that a part names."""
    names = subqueries.names_in(node, queries.known(env))
    return {resolve(queries.source, columns, name).key for name in names}


def part_of(condition: Condition, rows: Estimate) -> float:
    """The part of the rows of a collection that meets a condition on it, as far as its kind tells."""
    node, keys = condition.node, condition.keys
    if len(keys) != 1 or condition.asks or not isinstance(node, exp.EQ | exp.In):
        return FILTERED
    return min(1.0, (len(node.expressions) if isinstance(node, exp.In) else 1) / rows.values(keys))


def sides_of(queries: Queries, env: Env, condition: Condition, one_side: Schema, other_side: Schema) -> Pair | None:
    """The values of either side that a condition says are equal; None for another condition."""
    node = condition.node
    if not condition.is_between(queries, env, one_side.keys(), other_side.keys()):
        return None
    is_turned = not condition.sides(queries, env)[0] <= one_side.keys()
    if condition.equal is not None:
        first, second = reversed(condition.equal) if is_turned else condition.equal
        values = [Value(pl.col(first), one_side[first], node), Value(pl.col(second), other_side[second], node)]
    else:
        one, two = (node.args[side] for side in (_SIDES[::-1] if is_turned else _SIDES))
        of_sides = ((one_side, one), (other_side, two))
        values = [Values(queries.source, condition.columns, side).of(part) for side, part in of_sides]
    (a, b), _ = aligned(queries.source, values, shown(node))
    return a, b, False


def _truth(values: Values, condition: Condition) -> pl.Expr:
    """A condition as an expression."""
    if condition.equal is not None:
        one, other = (Value(pl.col(key), values.schema[key], condition.node) for key in condition.equal)
        (left, right), _ = aligned(values.source, [one, other], "USING")
        return left == right
    return values.truth(condition.node, "this condition")


def met(queries: Queries, env: Env, rows: Any, condition: Condition) -> Any:
    """The rows that meet a condition on their columns."""
    schema = types(rows)
    if not condition.asks:
        return rows.where(_truth(Values(queries.source, condition.columns, schema), condition))
    own = tuple(column for column in condition.columns if column.key in schema)
    return subqueries.filtered(queries, Relation(rows, own), condition.node, env)


def range_of(
    queries: Queries, env: Env, conditions: Iterable[Condition], rows: Any, other: Any, *, single: AbstractSet[str]
) -> Compared | None:
    """Comparisons by which rows of one side are found for each row of the other, if there are any.

    Intervals are the side of one row at most, whose columns are ``single``; else the value with two ends is looked up,
    else the first.
    """
    sides = types(rows), types(other)
    there = sides[0].keys() | sides[1].keys()
    by_side: dict[bool, list[tuple[Condition, Comparison]]] = {False: [], True: []}
    for condition in conditions:
        if condition.equal is None and condition.keys <= there and not condition.asks:
            for one in comparisons(condition.node):
                for comparison in (one, one.reversed):
                    value, end = (
                        keys_in(queries, env, part, condition.columns) for part in (comparison.value, comparison.end)
                    )
                    for swapped in (False, True):
                        of_values, of_ends = sides[::-1] if swapped else sides
                        if value and end and value <= of_values.keys() and end <= of_ends.keys():
                            by_side[swapped].append((condition, comparison))
    best: list[tuple[tuple[bool, bool, bool], Compared]] = []
    for swapped, pairs in by_side.items():
        for found in ranges(comparison for _, comparison in pairs):
            conditions_of = {id(comparison): condition for condition, comparison in pairs}
            used = [conditions_of[id(comparison)] for comparison in found.comparisons]
            of_values, of_ends = sides[::-1] if swapped else sides
            values, ends = (Values(queries.source, used[0].columns, side) for side in (of_values, of_ends))
            between = Between.of(queries.source, found, values.of, ends.of)
            if between is not None:
                met = [condition for condition in used if found.meets(condition.node)]
                rank = (set(of_ends) <= single, not set(of_values) <= single, len(found.comparisons) > 1)
                best.append(
                    (rank, Compared(between, list({id(condition): condition for condition in met}.values()), swapped))
                )
    return max(best, key=lambda ranked: ranked[0])[1] if best else None


@dataclass(frozen=True)
class Compared:
    """A range between two sides, the conditions that it meets, and whether the values are those of the second."""

    between: Between
    met: Sequence[Condition]
    swapped: bool

    def joined(self, rows: Any, other: Any, pairs: Sequence[Pair], kept: Sequence[str]) -> Any:
        """Both sides, joined by keys and by the range, with the columns ``kept``, or with one if there are none."""
        if not self.swapped:
            return self.between.joined(rows, other, pairs, kept or list(types(rows))[:1])
        turned = [(right, left, safe) for left, right, safe in pairs]
        return self.between.joined(other, rows, turned, kept or list(types(other))[:1])
