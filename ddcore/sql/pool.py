"""The tables of a FROM that are still to be joined, and the conditions still to be met: how they become one."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ddcore.base.schema import Schema
from ddcore.base.source_line import planning
from ddcore.program.estimates import estimate_of
from ddcore.sql import subqueries
from ddcore.sql.between import Between, Comparison, Range, comparisons, ranges
from ddcore.sql.join_conditions import Compared, Condition, met, part_of, range_of, sides_of
from ddcore.sql.join_order import GAIN, Equality, ordered
from ddcore.sql.names import Column, Mentions, Relation, types
from ddcore.sql.pairs import Pair, paired
from ddcore.sql.told import Joins
from ddcore.sql.values import Value, Values

if TYPE_CHECKING:
    from ddcore.sql.env import Env, Queries


@dataclass
class Pool:
    """Collections that are still to be joined, all their columns, and conditions still to be met.

    ``later``: the parts of the SELECT that name columns once all is joined.
    """

    queries: Queries
    env: Env
    select: exp.Select
    later: list[exp.Expr]
    pool: list[Any] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    single: set[str] = field(default_factory=set)
    """The keys of columns of tables with one row at most."""

    def __post_init__(self) -> None:
        self.told = Joins(self.queries.source, self.columns)
        self.mentions = Mentions()

    @property
    def schema(self) -> Schema:
        """The columns of all collections."""
        schema: Schema = {}
        for rows in self.pool:
            schema |= types(rows)
        return schema

    @property
    def carried(self) -> tuple[str, ...]:
        """The keys of the columns of the query around."""
        return tuple(column.key for column in self.env.outer.columns) if self.env.outer else ()

    def joined(self, *, final: bool, keep: Iterable[exp.Expr] = (), keys: Iterable[str] = ()) -> Relation:
        """The relations of the pool as one, with every condition that they can meet."""
        rest = list(self.pool)
        wanted = [*keep, *self.later, *([] if final else [self.select])]
        kept = {*keys, *self.carried}
        told = len(rest) > 1 or not final
        is_ordered = (order := self._order(rest)) is not None
        rest = rest if order is None else [rest[table] for table in order]
        rows = self._met(rest.pop(0), keyless=final, told=told)
        while rest:
            other = self._met(rest.pop(0 if is_ordered else self._next(rows, rest)), told=told)
            rows = self._met(self._narrow(self._both(rows, other, wanted, kept), [], wanted, kept))
        assert not (final and self.conditions), "a condition was not met"
        if final:
            self.told.tell(self.select)
        return Relation(rows, tuple(self.columns), self.carried)

    def _next(self, rows: Any, rest: Sequence[Any]) -> int:
        """The place of the first of the others with an equality, else of the first one with a range, else 0."""
        names = types(rows).keys()
        of_rest = [types(other).keys() for other in rest]
        place_of = {key: number for number, keys in enumerate(of_rest) for key in keys}
        found = len(rest)
        for condition in self.conditions:
            for side in condition.sides(self.queries, self.env) if condition.is_equality else ():
                number = place_of.get(next(iter(side)), found) if side else found
                if number < found and condition.is_between(self.queries, self.env, names, of_rest[number]):
                    found = number
        if found < len(rest):
            return found
        return next((number for number, other in enumerate(rest) if self._range(rows, other)), 0)

    def _order(self, rest: Sequence[Any]) -> tuple[int, ...] | None:
        """The numbers of the collections in an order by their sizes; None where it is that of the text."""
        sizes = [estimate_of(rows) for rows in rest] if len(rest) > 2 else []
        known = [size for size in sizes if size is not None]
        if len(known) < len(rest):
            return None
        place_of = {key: number for number, rows in enumerate(rest) for key in types(rows)}
        equalities, others = list[Equality](), list[frozenset[int]]()
        for condition in self.conditions:
            tables = frozenset(place_of[key] for key in condition.keys if key in place_of)
            if len(tables) == 1:
                (table,) = tables
                known[table] = known[table].filtered(part_of(condition, known[table]))
            elif condition.is_equality:
                left, right = (frozenset(side) for side in condition.sides(self.queries, self.env))
                of_left, of_right = (frozenset(place_of.get(key, -1) for key in side) for side in (left, right))
                equalities.append(Equality(of_left, of_right, left, right))
            elif tables:
                others.append(tables)
        as_written, found = ordered(known, equalities, others)
        if found.rows * GAIN > as_written.rows:
            return None
        self.told.order([rest[table] for table in found.tables], found.rows, as_written.rows)
        return found.tables

    def _both(self, rows: Any, other: Any, wanted: list[exp.Expr], kept: set[str]) -> Any:
        """Rows joined with others by the equalities and the range between them, which are met then."""
        equal = self._equalities(rows, other)
        found = self._range(rows, other)
        used = {id(condition) for condition, _ in equal} | (
            {id(condition_met) for condition_met in found.met} if found else set()
        )
        pairs = [pair for _, pair in equal]
        met = [condition for condition in self.conditions if id(condition) in used]
        self.told.joined(rows, other, "JOIN" if used else "CROSS JOIN", met)
        self.conditions = [condition for condition in self.conditions if id(condition) not in used]
        node = equal[0][0].node if equal else found.met[0].node if found and found.met else self.select
        with planning(self.queries.source.where(node)):
            if found is None:
                sides = [self._narrow(side, equal, wanted, kept) for side in (rows, other)]
                return paired(sides[0], sides[1], pairs)
            return found.joined(
                rows, other, pairs, [*self._needed(rows, wanted, kept), *self._needed(other, wanted, kept)]
            )

    def _range(self, rows: Any, other: Any) -> Compared | None:
        return range_of(self.queries, self.env, self.conditions, rows, other, single=self.single)

    def _needed(self, rows: Any, wanted: list[exp.Expr], kept: set[str]) -> list[str]:
        """The columns of rows that something needs yet."""
        schema = types(rows)
        needed = self.mentions.keys([column for column in self.columns if column.key in schema], wanted) | kept
        for condition in self.conditions:
            needed |= condition.keys
        needed |= {column.key for column in self.columns if not column.table}
        return [name for name in schema if name in needed]

    def _narrow(
        self, rows: Any, equal: Sequence[tuple[Condition, Pair]], wanted: list[exp.Expr], kept: set[str]
    ) -> Any:
        """The rows without columns that nothing needs any more."""
        left = self._needed(rows, wanted, kept.union(*(condition.keys for condition, _ in equal)))
        return rows if len(left) == len(types(rows)) or not left else rows.select(*left)

    def _met(self, rows: Any, *, keyless: bool = False, told: bool = False) -> Any:
        """The rows that meet every condition on their own columns, or if ``keyless`` on none."""
        while True:
            own = types(rows).keys()
            ready = [
                condition for condition in self.conditions if condition.keys <= own and (condition.keys or keyless)
            ]
            if not ready:
                return rows
            done = {id(condition) for condition in ready}
            self.conditions = [condition for condition in self.conditions if id(condition) not in done]
            if told:
                self.told.filtered(rows, ready)
            plain = [condition for condition in ready if not condition.asks]
            for condition in plain:
                with planning(self.queries.source.where(condition.node)):
                    rows = met(self.queries, self.env, rows, condition)
            rows, compared = self._within(rows, [condition for condition in ready if condition.asks])
            for condition_met in ready:
                if not any(condition_met is one for one in (*plain, *compared)):
                    with planning(self.queries.source.where(condition_met.node)):
                        rows = met(self.queries, self.env, rows, condition_met)

    def _within(self, rows: Any, conditions: Iterable[Condition]) -> tuple[Any, list[Condition]]:
        """The rows that meet comparisons with subqueries that are the same for all rows, and the conditions that these
        are: the rows between two values of a subquery are found by their order.
        """
        known, schema = self.queries.known(self.env), types(rows)
        fitting: list[tuple[Condition, Comparison]] = []
        for condition in conditions:
            for one in comparisons(condition.node):
                for comparison in (one, one.reversed):
                    is_same = not subqueries.names_in(comparison.end, known) and not subqueries.subqueries_in(
                        [comparison.value]
                    )
                    if is_same and subqueries.names_in(comparison.value, known):
                        fitting.append((condition, comparison))
        compared: list[Condition] = []
        for found in ranges(comparison for _, comparison in fitting):
            used = [
                next(condition for condition, comparison in fitting if comparison is one) for one in found.comparisons
            ]
            met = [comparison for comparison in used if found.meets(comparison.node)]
            if len(met) < len(used):
                continue
            with planning(self.queries.source.where(used[0].node)):
                ends, end_of = self._ends(found)
                value = Values(self.queries.source, used[0].columns, schema)
                between = Between.of(self.queries.source, found, value.of, end_of)
                if between is not None:
                    rows = between.joined(rows, ends, [], list(schema))
                    compared += met
        return rows, compared

    def _ends(self, found: Range) -> tuple[Any, Callable[[exp.Expr], Value]]:
        """One row with the subqueries of a range's ends, and what gives the values of ends there."""
        nodes = [comparison.end for comparison in found.comparisons]
        relation, known = subqueries.attached(self.queries, Relation(self.queries.unit, ()), nodes, self.env)
        values = Values(self.queries.source, (), relation.types, lambda _, part: known.get(id(part)))
        return relation.rows, values.of

    def _equalities(self, rows: Any, other: Any) -> list[tuple[Condition, Pair]]:
        """The conditions that say that a value of one side equals a value of the other."""
        one_side, other_side = types(rows), types(other)
        found: list[tuple[Condition, Pair]] = []
        for condition in self.conditions:
            sides = sides_of(self.queries, self.env, condition, one_side, other_side)
            if sides is not None:
                found.append((condition, sides))
        return found


def unused_key(name: str, table: str, taken: Container[str]) -> str:
    """A key for a column: its name, else with its table's, else with a number."""
    key, number = name, 1
    while key in taken or key in ("count", "diff"):
        key = f"{table}.{name}" if number == 1 else f"{table}.{name} {number}"
        number += 1
    return key
