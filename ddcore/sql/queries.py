"""Queries: SELECT, set operations, VALUES and WITH, each as a collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore.base.source_line import planning
from ddcore.sql import frames, grouping, joins, ordering, recursion, subqueries, time_windows, windows
from ddcore.sql.clock import CLOCK
from ddcore.sql.env import Env, Queries
from ddcore.sql.grouping_sets import grouping_of
from ddcore.sql.names import Column, Relation, excepted, first_named, is_named, types, unwrapped
from ddcore.sql.pairs import conjuncts
from ddcore.sql.source import Source, shown
from ddcore.sql.values import Value, Values, merged, selected
from ddcore.text.wording import listed, meant

_PARTS = {
    "expressions", "from_", "joins", "where", "group", "having", "distinct", "order", "limit", "offset", "with_",
    "qualify", "windows", "kind", "hint",
}  # fmt: skip

_LEFT_OUT = {
    "locks": ("FOR UPDATE or FOR SHARE", "leave it out: a view reads its tables as they are at each version"),
}
"""Parts of a SELECT that there are not, as people know them, and what to write."""


class QueryPlanner(Queries):
    """Plans queries over the inputs and the views that they name."""

    def __init__(self, source: Source, inputs: Mapping[str, Any]) -> None:
        self.source = source
        self.tables = {
            name: Relation(rows, tuple(Column("", kind, kind) for kind in types(rows))) for name, rows in inputs.items()
        }
        self.bounds: dict[int, list[tuple[exp.Expr, int]]] = {}

    def table(self, node: exp.Table, env: Env) -> Relation:
        """A binding, a view or an input. Raises ProgramError for another name."""
        if node.args.get("db") is None:
            for tables in (env.bindings, self.tables):
                name = first_named(node.this, tables)
                if name is not None:
                    return tables[name]
        names = [name for name in (*env.bindings, *self.tables) if name != CLOCK]
        raise self.source.error(
            node, f"there is no table {shown(node)}; there are: {listed(names)}",
            meant(node.name, names) or "tables are the inputs of dd.toml and the views of this program",
        )  # fmt: skip

    def query(self, node: exp.Expr, env: Env) -> Relation:
        """The rows of a query, with the columns that its SELECT names and those that correlate it."""
        node = unwrapped(node)
        if node.args.get("with_") is not None:
            node, env = recursion.bound(self, node, env)
        with planning(self.source.where(node)):
            if isinstance(node, exp.Select):
                return self._select(node, env)
            if isinstance(node, exp.SetOperation):
                return ordering.limited(self, node, self._combined(node, env))
            if isinstance(node, exp.Values):
                return self._values(node, env)
            if isinstance(node, exp.Subquery):
                return ordering.limited(self, node, self.query(node.this, env))
        self.source.refuse(node, f"{node.key.upper()} as a query")

    def from_where(self, select: exp.Select, env: Env, skip: Sequence[exp.Expr] = ()) -> Relation:
        """The rows of FROM that meet WHERE, without the conditions in ``skip``."""
        return joins.from_where(self, select, env, skip)

    # -- SELECT -------------------------------------------------------------------------------------------------------

    def _select(self, node: exp.Select, env: Env) -> Relation:
        frames.resolved(self.source, node)
        for key, value in node.args.items():
            if value and key not in _PARTS:
                what, hint = _LEFT_OUT.get(key, (key.strip("_").upper(), "write a SELECT without it"))
                self.source.refuse(node, f"{what} in a SELECT", hint)
        relation = joins.from_where(self, node, env)
        node, relation = time_windows.grouped(self, node, relation)
        columns = self.expanded(node, relation)
        before: dict[int, Value] = {}
        if grouping.is_grouped(node):
            group = grouping_of(self, node, relation, columns, grouping.has_aggregate)
            parts_before = [*grouping.aggregates_in(node), *(group.keys if group else ())]
            relation, before = subqueries.attached(self, relation, parts_before, env)
            relation, replaced = grouping.grouped(self, node, relation, env, before, grouping=group)
            for condition in conjuncts(node.args.get("having")):
                relation = self._having(relation, condition, replaced, env, before)
        else:
            replaced = None
        order = node.args.get("order")
        parts = [*columns, *(order.expressions if order else []), *filter(None, [node.args.get("qualify")])]
        relation, known = subqueries.attached(self, relation, parts, env, before)

        def value_of(values: Values, part: exp.Expr) -> Value | None:
            return known.get(id(part)) or (replaced(values, part) if replaced else None)

        relation, numbers = windows.windowed(self, node, relation, parts, value_of)
        known |= numbers
        if node.args.get("qualify") is not None:
            relation = self._qualified(node, relation, value_of)
        projected = ordering.projected(self, node, relation, columns, value_of)
        return replace(projected, single=env.outer is None and grouping.is_global(node))

    def _qualified(self, node: exp.Select, relation: Relation, value_of: ordering.Replace) -> Relation:
        """The rows that meet QUALIFY, which may name columns of the SELECT."""
        results = {
            expression.alias.casefold(): expression.this
            for expression in node.expressions
            if isinstance(expression, exp.Alias)
        }

        def named_too(values: Values, part: exp.Expr) -> Value | None:
            if isinstance(part, exp.Column) and part.args.get("table") is None and part.name.casefold() in results:
                return values.of(results[part.name.casefold()])
            return value_of(values, part)

        return self._meeting(relation, node.args["qualify"].this, "QUALIFY", named_too)

    def _meeting(self, relation: Relation, condition: exp.Expr, clause: str, value_of: ordering.Replace) -> Relation:
        """The rows that meet a condition of a clause behind GROUP BY."""
        with planning(self.source.where(condition)):
            values = Values(self.source, relation.columns, relation.types, value_of)
            return replace(relation, rows=relation.rows.where(values.truth(condition, clause)))

    def _having(
        self, relation: Relation, condition: exp.Expr, replaced: Any, env: Env, before: Mapping[int, Value]
    ) -> Relation:
        relation, known = subqueries.attached(self, relation, [condition], env, before)
        return self._meeting(relation, condition, "HAVING", lambda v, part: known.get(id(part)) or replaced(v, part))

    def expanded(self, node: exp.Select, relation: Relation) -> list[exp.Expr]:
        """The columns of a SELECT, with all those that a star stands for."""
        columns: list[exp.Expr] = []
        for expression in node.expressions:
            star = (
                expression.this
                if isinstance(expression, exp.Column) and isinstance(expression.this, exp.Star)
                else expression
            )
            if not isinstance(star, exp.Star):
                columns.append(expression)
                continue
            if any(star.args.get(key) for key in ("replace", "rename")):
                self.source.refuse(expression, "REPLACE or RENAME of a star", "name the columns")
            table = expression.args.get("table") if star is not expression else None
            own = relation.columns if table is not None else relation.own
            chosen = [column for column in own if not column.outer and (table is None or is_named(table, column.table))]
            if not chosen:
                raise self.source.error(expression, f"{shown(expression)} stands for no column", "name a table of FROM")
            for name in excepted(star):
                if not any(is_named(name, column.name) for column in chosen):
                    names = [column.name for column in chosen]
                    raise self.source.error(
                        expression, f"{shown(expression)}: there is no column {name.name}; there are: {listed(names)}",
                        meant(name.name, names) or "name one of these",
                    )  # fmt: skip
                chosen = [column for column in chosen if not is_named(name, column.name)]
            if not chosen:
                raise self.source.error(expression, f"{shown(expression)} leaves no column", "leave one")
            columns += [_of_star(column, expression) for column in chosen]
        return columns

    # -- VALUES and set operations ------------------------------------------------------------------------------------

    def _values(self, node: exp.Values, env: Env) -> Relation:
        values = Values(self.source, (), {})
        rows = [[values.of(expression) for expression in row.expressions] for row in node.expressions]
        if len({len(row) for row in rows}) != 1:
            raise self.source.error(node, "the rows of VALUES differ in length", "give each row as many values")
        sides = []
        columns = list(zip(*rows, strict=True))
        typed = [merged(self.source, column, "VALUES")[0] for column in columns]
        base = env.outer.rows if env.outer else self.unit
        carried = tuple(column.key for column in env.outer.columns) if env.outer else ()
        for number in range(len(rows)):
            exprs = {f"column{position}": column[number] for position, column in enumerate(typed, 1)}
            sides.append(base.select(*carried, **exprs))
        result = sides[0].concat(*sides[1:]) if len(sides) > 1 else sides[0]
        names = tuple(Column("", f"column{position}", f"column{position}") for position in range(1, len(typed) + 1))
        return Relation(result, names, carried)

    def _combined(self, node: exp.SetOperation, env: Env) -> Relation:
        chain = [node]
        more = ("with_", "order", "limit", "offset")  # than two sides
        while isinstance(chain[-1].this, exp.SetOperation) and not any(map(chain[-1].this.args.get, more)):
            chain.append(chain[-1].this)  # as deeply nested on its left side as it is long
        left = self.query(chain[-1].this, env)
        for operation in reversed(chain):
            left = self._both(operation, left, self.query(operation.expression, env))
        return left

    def _both(self, node: exp.SetOperation, left: Relation, right: Relation) -> Relation:
        if node.args.get("by_name") or node.args.get("side") or node.args.get("on"):
            self.source.refuse(node, "a set operation by names")
        if len(left.own) != len(right.own):
            raise self.source.error(
                node, f"{node.key.upper()}: {len(left.own)} columns on the left, {len(right.own)} on the right",
                "select as many on both sides",
            )  # fmt: skip
        ours, others = self._met(left, right, node)
        distinct = bool(node.args.get("distinct"))
        if isinstance(node, exp.Union):
            both = ours.concat(others)
            rows = both.distinct() if distinct else both
        else:
            if distinct:
                ours, others = ours.distinct(), others.distinct()
            rows = ours.intersect(others) if isinstance(node, exp.Intersect) else ours.except_(others)
        columns = tuple(
            replace(column, table="", untyped=column.untyped and other.untyped)
            for column, other in zip(left.own, right.own, strict=True)
        )
        return Relation(rows, columns, left.carried)

    def _met(self, left: Relation, right: Relation, node: exp.SetOperation) -> tuple[Any, Any]:
        """Two results with the columns of the left one, by place, in types that hold both."""
        kinds, others = left.types, right.types
        left_exprs: dict[str, pl.Expr] = {key: pl.col(key) for key in left.carried}
        right_exprs: dict[str, pl.Expr] = {key: pl.col(key) for key in left.carried}
        for one, other in zip(left.own, right.own, strict=True):
            pair = [
                Value(pl.col(one.key), None if one.untyped else kinds[one.key], node),
                Value(pl.col(other.key), None if other.untyped else others[other.key], node),
            ]
            (left_exprs[one.key], right_exprs[one.key]), _ = merged(
                self.source, pair, f"{node.key.upper()}, column {one.name}"
            )
        return selected(left.rows, left_exprs), selected(right.rows, right_exprs)


def _of_star(column: Column, star: exp.Expr) -> exp.Column:
    """A column that a star stands for, at the place of the star."""
    node = exp.column(exp.to_identifier(column.name), exp.to_identifier(column.table) if column.table else None)
    starts = [part.meta["start"] for part in star.walk() if "start" in part.meta]
    node.meta.update(key=column.key, star=shown(star), **({"start": min(starts)} if starts else {}))
    node.parent = star.parent
    return node
