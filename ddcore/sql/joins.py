"""FROM, JOIN and WHERE: the rows that a SELECT computes with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from ddcore.sql import subqueries, time_windows, windows
from ddcore.sql.asof import asof_joined
from ddcore.sql.elements import with_elements
from ddcore.sql.join_conditions import Condition, keys_in
from ddcore.sql.names import (
    Column,
    Relation,
    candidates,
    free,
    function_of,
    is_bracket,
    is_comma,
    is_named,
    pivoted_name,
    require_names,
    tables_in,
    tables_of,
    types,
    unwrapped,
)
from ddcore.sql.outer_joins import OuterJoin
from ddcore.sql.pairs import conjuncts, paired
from ddcore.sql.pivots import query_of_pivot
from ddcore.sql.pool import Pool, unused_key
from ddcore.sql.values import Value, aligned, selected

if TYPE_CHECKING:
    from ddcore.sql.env import Env, Queries

_PIVOTED = "the table of a pivot"
Shared = tuple[Column, Column]
"""The left and the right column that USING or NATURAL makes one."""


@dataclass
class _From(Pool):
    """FROM under way, and all its columns.

    A comma begins a join item, for JOIN binds tighter. ``earlier`` are the relations of the items before the one under
    way, ``start`` is the place of its first column. ``fused``: a lateral subquery has joined it with items before it.
    """

    merged: set[str] = field(default_factory=set)
    natural: bool = False
    earlier: list[Any] = field(default_factory=list)
    start: int = 0
    fused: bool = False
    where: list[exp.Expr] = field(default_factory=list)
    """The conditions of WHERE that are not planned yet."""
    taken: set[str] = field(default_factory=set)
    """The keys of columns around, if it is in parentheses."""

    @property
    def item(self) -> list[Any]:
        """The relations of the join item under way."""
        return [rows for rows in self.pool if not any(rows is one for one in self.earlier)]

    @property
    def visible(self) -> list[Column]:
        """The columns that ON may name: those of its join item and of the query around."""
        return [column for number, column in enumerate(self.columns) if number >= self.start or column.outer]

    # -- tables -------------------------------------------------------------------------------------------------------

    def scan(self, table: exp.Expr) -> tuple[Any, list[Column]]:
        """The rows of a table or a derived table with the columns that the SELECT mentions, under keys of their own."""
        source = self.queries.source
        if isinstance(table, exp.Table) and not isinstance(table.this, exp.Identifier):
            source.refuse(table, "a function in FROM")
        if isinstance(table, exp.Table):
            relation = self.queries.table(table, self.env)
            if "window" in table.meta:
                relation = time_windows.in_windows(self.queries, table, relation)
        elif is_bracket(table):
            return self._bracket(table)
        elif isinstance(table, exp.Subquery | exp.Values):
            query = unwrapped(table)
            conditions = conjuncts(self.select.args.get("where"))
            self.queries.bounds[id(query)] = windows.bounds(
                condition for condition in conditions if self._is_of(condition.this, table)
            )
            relation = self.queries.query(query, self.env.alone)
        else:
            source.refuse(table, "this kind of table in FROM", "write plain tables, subqueries and JOIN ... ON")
        if table.args.get("sample"):
            source.refuse(table, "a sample", "write a condition that always takes the same rows: id % 10 = 0")
        for pivot in table.args.get("pivots") or []:
            query = query_of_pivot(source, [column.name for column in relation.own], pivot, _PIVOTED)
            query.parent = pivot
            relation = self.queries.query(query, self.env.alone.binding(_PIVOTED, relation))
        return self._renamed(table, relation)

    def _bracket(self, table: exp.Expr) -> tuple[Any, list[Column]]:
        """A join in parentheses: joined before those around it, with the names of its tables, or of its own."""
        taken = {*self.taken, *self.schema, *(column.key for column in self.columns)}
        inner = _From(self.queries, self.env.alone, self.select, self.later, taken=taken)
        inner.merged, inner.natural = self.merged, self.natural or bool(table.alias)
        for inner_table, join in tables_in(table):
            inner.add(inner_table, join)
        keys = {column.key for column in inner.columns if not column.absent} if table.alias else ()
        joined = inner.joined(final=False, keys=keys)
        assert not inner.conditions, "a condition was not met"
        self.told.absorb(inner.told)
        self.single |= inner.single
        if table.alias:
            return self._renamed(table, joined)
        names = {column.table for column in self.columns if column.table and not column.outer}
        for name in dict.fromkeys(column.table for column in joined.columns if column.table):
            if any(is_named(name, other) for other in names):
                raise self.queries.source.error(table, f"two tables are called {name}", f"{name} AS other_name")
        return joined.rows, list(joined.columns)

    def _is_of(self, node: Any, table: exp.Expr) -> bool:
        """Whether a part of WHERE is a column of this subquery, of which no join may make another."""
        alias = table.args.get("alias")
        is_alone = len(tables_of(self.select)) == 1
        if not isinstance(node, exp.Column) or not is_alone or (alias and alias.args.get("columns")):
            return False
        return node.args.get("table") is None or is_named(node.args["table"], table.alias)

    def _renamed(self, table: exp.Expr, relation: Relation) -> tuple[Any, list[Column]]:
        named = [table, *(pivot for pivot in table.args.get("pivots") or [] if pivot.args.get("alias"))][-1]
        alias = named.args.get("alias")
        name = pivoted_name(table) or (table.name if isinstance(table, exp.Table) else "")
        if name and any(column.table and is_named(name, column.table) for column in self.columns if not column.outer):
            raise self.queries.source.error(table, f"two tables are called {name}", f"{name} AS other_name")
        columns = (alias.args.get("columns") or []) if isinstance(alias, exp.TableAlias) else []
        require_names(self.queries.source, columns)
        names = [column.name for column in columns]
        own = relation.own
        if len(names) > len(own):
            raise self.queries.source.error(
                table, f"{name} has {len(own)} columns, and {len(names)} are named", "name fewer of them"
            )
        new = names + [column.name for column in own[len(names) :]]
        columns = [Column(name, other, column.key) for column, other in zip(own, new, strict=True)]
        wanted = self.mentions.keys(columns, [self.select])
        wanted |= {column.key for column in columns if any(is_named(column.name, used) for used in self.merged)}
        kept = [column for column in columns if column.key in wanted or self.natural]
        taken = {*self.taken, *self.schema, *(column.key for column in self.columns)}
        placed = []
        for kept_column in kept:
            placed.append(replace(kept_column, key=unused_key(kept_column.name or kept_column.key, name, taken)))
            taken.add(placed[-1].key)
        exprs = {new.key: pl.col(old.key) for old, new in zip(kept, placed, strict=True)}
        exprs |= {key: pl.col(key) for key in relation.carried}
        if not exprs:
            exprs = {unused_key("row", name, taken): pl.lit(1, dtype=pl.Int64)}
        rows = selected(relation.rows, exprs)
        if relation.single:
            self.single.update(types(rows))
        return rows, [*placed, *(replace(column, key="", absent=True) for column in columns if column not in kept)]

    # -- joins --------------------------------------------------------------------------------------------------------

    def add(self, table: exp.Expr, join: exp.Join | None = None) -> None:
        """One more table, by the join before it."""
        if is_comma(join):
            self.earlier, self.start, self.fused = list(self.pool), len(self.columns), False
        if function_of(table) is not None:
            self._elements(table, join)
            return
        if isinstance(table, exp.Lateral) or self.is_correlated(table):
            self._lateral(table, join)
            return
        source = self.queries.source
        side = (join.side if join else "") or ""
        if join and (join.kind in ("SEMI", "ANTI") or join.method not in ("", "NATURAL", "ASOF")):
            source.refuse(join, f"{join.method or ''} {join.kind or ''} JOIN".replace("  ", " ").strip())
        rows, columns = self.scan(table)
        shared = self._shared(join, columns) if join else []
        self.columns += columns
        nodes = conjuncts(join.args.get("on")) if join else []
        if join is not None and join.method == "ASOF":
            self._asof(rows, nodes, shared, join)
        elif side:
            assert join is not None
            self._outer(side, rows, nodes, shared=shared, join=join)
        else:
            self.pool.append(rows)
            self._inner(nodes, shared, join)
        self._merge(shared, side)

    def _inner(self, nodes: Iterable[exp.Expr], shared: Iterable[Shared], join: exp.Join | None) -> None:
        """The conditions of an inner join. One that names no column is met by its table, before any later join."""
        last = next(iter(types(self.pool[-1])))
        conditions = [self._condition(node, join) for node in nodes]
        self.conditions += [replace(condition, keys=condition.keys or {last}) for condition in conditions]
        self.conditions += [self._equal(pair, join or self.select) for pair in shared]

    def _condition(self, node: exp.Expr, join: exp.Join | None = None) -> Condition:
        """A condition of WHERE, or of a join's ON, which may name the tables of its own join item only."""
        columns = self.columns if join is None else self.visible
        names = subqueries.names_in(node, self.queries.known(self.env))
        for name in names if self.start else []:
            if not candidates(columns, name) and candidates(self.columns, name):
                raise self.queries.source.error(
                    name, f"ON names {name.sql()}, which a comma separates from this JOIN: JOIN binds tighter",
                    "write CROSS JOIN in place of the comma, or move the condition to WHERE",
                )  # fmt: skip
        return Condition(node, keys_in(self.queries, self.env, node, columns), tuple(columns))

    def _equal(self, pair: Shared, around: exp.Expr) -> Condition:
        left, right = pair
        return Condition(around, {left.key, right.key}, equal=(left.key, right.key))

    def _shared(self, join: exp.Join, columns: Sequence[Column]) -> list[Shared]:
        """The pairs of columns that USING or NATURAL makes one."""
        source = self.queries.source
        named: list[Any] = list(join.args.get("using") or [])
        visible = [column for column in self.columns[self.start :] if not column.hidden and not column.outer]
        if join.method == "NATURAL":
            named = [column.name for column in visible if any(is_named(column.name, other.name) for other in columns)]
        visible = [column for column in visible if not column.absent]
        pairs: list[Shared] = []
        for name in named:
            text = name.name if isinstance(name, exp.Expr) else name
            on_left = [column for column in visible if is_named(name, column.name)]
            on_right = [column for column in columns if is_named(name, column.name)]
            if len(on_left) != 1 or len(on_right) != 1:
                what = "NATURAL JOIN, column" if join.method == "NATURAL" else "USING"
                before = any(is_named(name, column.name) for column in self.columns[: self.start] if not column.outer)
                hint = "JOIN binds tighter than a comma: write CROSS JOIN in place of the comma"
                raise source.error(
                    join, f"{what} ({text}): {len(on_left)} columns on the left, {len(on_right)} on the right",
                    hint if before and not on_left else "name a column that both sides have once",
                )  # fmt: skip
            if (on_left[0], on_right[0]) in pairs:
                raise source.error(join, f"USING names {text} twice", "name it once")
            pairs.append((on_left[0], on_right[0]))
        return pairs

    def _merge(self, shared: Sequence[Shared], side: str) -> None:
        """One visible column in place of each two, before all others of the join item."""
        merged = [Column("", left.name, self._merged_key(left, right, side)) for left, right in shared]
        both = {column for pair in shared for column in pair}
        rest = [replace(column, hidden=True) if column in both else column for column in self.columns[self.start :]]
        self.columns[self.start :] = [*merged, *(column for column in rest if column.table or not column.hidden)]

    def _merged_key(self, left: Column, right: Column, side: str) -> str:
        """The key of one column in place of two: that of a side that is null only where both are, in both's type."""
        kinds = self.schema
        first, second = (right, left) if side == "RIGHT" else (left, right)
        if side != "FULL" and kinds[left.key] == kinds[right.key]:
            return first.key
        values = [Value(pl.col(column.key), kinds[column.key], self.select) for column in (first, second)]
        (one, other), _ = aligned(self.queries.source, values, f"USING ({left.name})")
        key = unused_key(f"using {left.name}", "", {*kinds, *self.taken})
        expr = pl.when(one.is_not_null()).then(one).otherwise(other) if side == "FULL" else one
        position = next(number for number, rows in enumerate(self.pool) if first.key in types(rows))
        self.pool[position] = self.pool[position].with_columns(**{key: expr})
        return key

    def is_correlated(self, table: exp.Expr) -> bool:
        """Whether a subquery in FROM names columns of the query around."""
        if self.env.outer is None or not isinstance(table, exp.Subquery):
            return False
        return any(True for _ in free(unwrapped(table), self.queries.known(self.env)))

    def names_around(self, tables: Iterable[tuple[exp.Expr, exp.Join | None]]) -> bool:
        """Whether a table or an ON of FROM names columns of the query around."""
        names = {id(column) for column in free(self.select, self.queries.known(self.env))}
        inside = [table for table, _ in tables if isinstance(table, exp.Lateral) or function_of(table) is not None]
        inside += [join.args["on"] for _, join in tables if join is not None and join.args.get("on") is not None]
        named = any(id(column) in names for part in inside for column in part.find_all(exp.Column))
        return named or any(self.is_correlated(table) for table, _ in tables)

    def _lateral(self, table: exp.Expr, join: exp.Join | None) -> None:
        """A subquery that may name what stands before it, or if it is not LATERAL the query around."""
        hint = "CROSS JOIN LATERAL, or LEFT JOIN LATERAL ... ON true"
        side = self._side_of_rows(table, join, "this kind of lateral join", hint)
        query = unwrapped(table.this)
        if not self.pool:
            self.pool.append(self.queries.unit)
        before = self.joined(final=False)
        if not isinstance(table, exp.Lateral):
            before = replace(before, columns=tuple(column for column in before.columns if column.outer))
        outer, correlated = subqueries.correlated(self.queries, before, query, self.env)
        relation = self.queries.query(query, self.env.inside(outer))
        rows, columns = self._renamed(table, relation)
        pairs = [(left, right, True) for left, right, _ in correlated]
        joined = paired(before.rows, rows, pairs, "left" if side else "inner")
        self.fused = bool(self.earlier)
        if relation.carried:
            joined = joined.select(*(name for name in types(joined) if name not in relation.carried))
        self.pool = [joined]
        self._with_columns(columns, join, side)

    def _elements(self, table: exp.Expr, join: exp.Join | None) -> None:
        """A function that gives rows, of what stands before it."""
        side = self._side_of_rows(table, join, "this join with a function", "CROSS JOIN, or LEFT JOIN ... ON true")
        before = Relation(self.queries.unit, ())
        is_lateral = bool(side) or bool(subqueries.names_in(function_of(table) or table, self.queries.known(self.env)))
        if is_lateral:
            self.pool = self.pool or [self.queries.unit]
            before = self.joined(final=False)
            self.fused = bool(self.earlier)
        taken = {*self.taken, *self.schema, *before.types, *(column.key for column in self.columns)}
        rows, keys = with_elements(
            self.queries, before, table, lambda name: unused_key(name, table.alias, taken), keep_empty=bool(side)
        )
        if is_lateral:
            self.pool = [rows]
        else:
            self.pool.append(rows.select(*keys.values()))
        self._with_columns([Column(table.alias, name, key) for name, key in keys.items()], join, side)

    def _side_of_rows(self, table: exp.Expr, join: exp.Join | None, what: str, hint: str) -> str:
        """The side of a join with rows of what stands before it. Raises ProgramError where it has a condition."""
        side, on = (join.side if join else "") or "", join.args.get("on") if join else None
        if side not in ("", "LEFT") or (side and not (isinstance(on, exp.Boolean) and on.this)):
            self.queries.source.refuse(join or table, what, hint)
        return side

    def _with_columns(self, columns: list[Column], join: exp.Join | None, side: str) -> None:
        """The columns of rows that are joined, and the conditions of the join."""
        shared = self._shared(join, columns) if join else []
        self.columns += columns
        if not side:
            self._inner(conjuncts(join.args.get("on") if join else None), shared, join)
            self._merge(shared, side)

    def _outer(
        self, side: str, rows: Any, nodes: Sequence[exp.Expr], *, shared: Sequence[Shared], join: exp.Join
    ) -> None:
        """LEFT, RIGHT and FULL: pairs, and the rows of one side or both that are in none."""
        if side != "LEFT" and set(self.carried) & set(self.schema):
            self.queries.source.refuse(
                join, f"a {side} JOIN in a FROM that names the query around", "compute the join in a view"
            )
        if side != "LEFT" and self.fused:
            self.queries.source.refuse(
                join, f"a {side} JOIN behind a comma and LATERAL", "compute the join in a subquery"
            )
        if side == "LEFT":
            self.conditions += self._before()
        conditions, needed = self._on(rows, nodes, shared, join)
        picked = self.item
        if side == "LEFT":
            picked = [rows for rows in self.pool if needed & set(types(rows))] or picked[-1:]
        left, rest = self._left(picked, conditions, needed)
        after = self._needed(rows, self._after(join), set(self.carried)) if side == "LEFT" else list(types(rows))
        self.told.joined(left, rows, f"{side} JOIN", conditions)
        both = OuterJoin(self.queries, self.env, self.single, left, rows, conditions, join)
        self.pool = [*rest, both.result(side, after)]

    def _on(
        self, rows: Any, nodes: Iterable[exp.Expr], shared: Iterable[Shared], join: exp.Join
    ) -> tuple[list[Condition], set[str]]:
        """The conditions of a join with ``rows``, and the keys of the columns of the other side that they need."""
        conditions = [self._condition(node, join) for node in nodes] + [self._equal(pair, join) for pair in shared]
        return conditions, set[str]().union(*(condition.keys for condition in conditions)) - set(types(rows))

    def _left(self, picked: list[Any], conditions: Iterable[Condition], needed: set[str]) -> tuple[Any, list[Any]]:
        """Some collections of the pool as one, with what the conditions of a join need of them, and the others."""
        rest = [rows for rows in self.pool if not any(rows is one for one in picked)]
        self.pool = picked
        nodes = [condition.node for condition in conditions if condition.equal is None]
        return self.joined(final=False, keep=nodes, keys=needed).rows, rest

    def _before(self) -> list[Condition]:
        """The conditions of WHERE on tables so far, of which a LEFT JOIN drops no row and changes none: they are met
        before it. Names without a table may turn out to be ambiguous.
        """
        own = {column.table for column in self.columns if column.table and not column.outer}
        found = []
        for node in self.where:
            names = subqueries.names_in(node, self.queries.known(self.env))
            tables = [name.args.get("table") for name in names]
            if names and all(
                inner_table is not None and any(is_named(inner_table, name) for name in own) for inner_table in tables
            ):
                found.append(node)
        self.where = [node for node in self.where if not any(node is one for one in found)]
        return [self._condition(node) for node in found]

    def _asof(self, rows: Any, nodes: Sequence[exp.Expr], shared: Sequence[Shared], join: exp.Join) -> None:
        """Each row of the join item so far with the nearest of a table."""
        if join.side not in ("", "LEFT"):
            self.queries.source.refuse(join, f"an ASOF {join.side} JOIN", "write ASOF JOIN or ASOF LEFT JOIN")
        conditions, needed = self._on(rows, nodes, shared, join)
        left, rest = self._left(self.item, conditions, needed)
        self.pool = [*rest, asof_joined(self.queries, self.env, (left, rows), conditions, join)]

    def _after(self, join: exp.Join) -> list[exp.Expr]:
        """The parts of the SELECT that may name columns, without the ON of a join."""
        where, others = self.select.args.get("where"), [item for item in tables_of(self.select) if item[1] is not join]
        parts = [part for table, item in others for part in (table, item.args.get("on") if item is not None else None)]
        return [item for item in (*self.later, where, join.this, *parts) if item is not None]


def _every(tables: Iterable[tuple[exp.Expr, exp.Join | None]]) -> Iterator[tuple[exp.Expr, exp.Join | None]]:
    """The tables of FROM, and those in parentheses."""
    for table, join in tables:
        yield table, join
        if is_bracket(table):
            yield from _every(tables_in(table))


def from_where(queries: Queries, select: exp.Select, env: Env, skip: Sequence[exp.Expr] = ()) -> Relation:
    """The rows of FROM that meet WHERE, without the conditions in ``skip``."""
    skipped = {id(item) for item in skip}
    tables = tables_of(select)
    joins = [join for _, join in _every(tables) if join is not None]
    later = [
        item
        for key, value in select.args.items()
        if key not in ("from_", "joins", "where", "with_")
        for item in (value if isinstance(value, list) else [value])
        if isinstance(item, exp.Expr)
    ]
    start = _From(queries, env, select, [*later, *skip])
    start.merged = {name.name for join in joins for name in join.args.get("using") or []}
    start.natural = any(join.method == "NATURAL" for join in joins)
    conditions = [node for node in conjuncts(select.args.get("where")) if id(node) not in skipped]
    is_kept = not any(join.side in ("RIGHT", "FULL") for join in joins)  # which add rows that WHERE then drops
    start.where = [node for node in conditions if is_kept and not subqueries.subqueries_in([node])]
    later_ones = [node for node in conditions if not any(node is one for one in start.where)]
    outer = [env.outer] if env.outer is not None and env.outer.columns else []
    start.columns += [column for part in outer for column in part.columns]
    first = bool(outer) and start.names_around(tables)
    if first:
        start.pool += [part.rows for part in outer]
    for table, join in tables:
        start.add(table, join)
    if not first:
        start.pool += [part.rows for part in outer]
    if not start.pool:
        start.pool.append(queries.unit)
    left = {id(node) for node in (*start.where, *later_ones)}
    start.conditions += [start._condition(node) for node in conditions if id(node) in left]
    return start.joined(final=True)
