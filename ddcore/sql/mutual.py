"""Queries that name each other: one loop, in which each is computed anew from the newest rows of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Schema, Type, uuid_mark
from ddcore.base.source_line import planning
from ddcore.program.constants import constant
from ddcore.program.several import iterate
from ddcore.sql.names import Column, Relation, is_named, result_name, unwrapped
from ddcore.sql.source import Loop
from ddcore.sql.types import TEXT
from ddcore.sql.values import Value, aligned, as_type

if TYPE_CHECKING:
    from ddcore.sql.env import Env, Queries

Plan = Callable[[exp.Expr, "Env"], Relation]
"""Plans a query where these names are known."""


@dataclass(frozen=True)
class Binding:
    """A query under a name, with its columns and their types, once they are known. ``plan``: how it is planned."""

    name: str
    node: exp.Expr
    query: exp.Expr
    plan: Plan
    names: tuple[str, ...] = ()
    kinds: tuple[Type, ...] = ()

    def relation(self, rows: Any) -> Relation:
        """Rows under the binding's columns."""
        return Relation(rows, tuple(Column("", name, name) for name in self.names))

    @property
    def empty(self) -> Any:
        """No rows of these columns."""
        return _no_rows(dict(zip(self.names, self.kinds, strict=True)))


def _no_rows(columns: Schema) -> Any:
    """No rows of these columns. The type of a UUID in Polars does not tell that it is one; its mark does."""
    kinds = {name: uuid_mark() if kind.name == "uuid" else kind.polars for name, kind in columns.items()}
    return constant(pl.DataFrame(schema=kinds))


def fixed_points(
    queries: Queries, bindings: Sequence[Binding], env: Env, loop: Loop | None = None
) -> dict[str, Relation]:
    """All bindings start empty. In each round each is computed anew, in order, from the newest of those it names."""
    loop = loop or Loop()

    def body(**rows: Any) -> Mapping[str, Any]:
        inside, results = env.alone, {}
        for binding in bindings:
            inside = inside.binding(binding.name, binding.relation(rows[binding.name]))
        for binding in bindings:
            results[binding.name] = _declared_rows(queries, binding, binding.plan(binding.query, inside))
            inside = inside.binding(binding.name, binding.relation(results[binding.name]))
        return results

    body.__name__ = "_".join(binding.name for binding in bindings)
    limits: dict[str, Any] = {"max_rounds": loop.rounds} if loop.rounds else {}
    with planning(queries.source.where(bindings[0].node)):
        empty = {binding.name: binding.empty for binding in bindings}
        results = iterate(empty, body, at_limit="return" if loop.returns else "fail", **limits)
    return {binding.name: binding.relation(results[binding.name]) for binding in bindings}


def _declared_rows(queries: Queries, binding: Binding, relation: Relation) -> Any:
    """The rows of a binding in its declared columns."""
    source, own = queries.source, relation.own
    if len(own) != len(binding.names):
        raise source.error(
            binding.node, f"{binding.name} has {len(binding.names)} columns and its query {len(own)}",
            "select as many as are declared",
        )  # fmt: skip
    typed = SimpleNamespace(schema=dict(zip(binding.names, binding.kinds, strict=True)))  # columns, and no rows
    target = binding.relation(typed)
    return relation.rows.select(**fitting(queries, relation, target, binding.node, ("as declared", "in the query")))


def fitting(
    queries: Queries,
    step: Relation,
    start: Relation,
    node: exp.Expr,
    sides: tuple[str, str] = ("at the start", "in the step"),
) -> dict[str, pl.Expr]:
    """The columns of the step in the types of the start; ``sides`` names both in messages."""
    exprs = {}
    kinds, wanted = step.types, start.types
    for own, other in zip(start.own, step.own, strict=True):
        target = wanted[own.key]
        kind = None if other.untyped else kinds[other.key]
        if kind is not None and not _widens(kind, target):
            raise queries.source.error(
                node, f"column {own.name} is {target} {sides[0]} and {kind} {sides[1]}",
                "cast it: CAST(x AS type)",
            )  # fmt: skip
        exprs[own.key] = as_type(queries.source, Value(pl.col(other.key), kind, node), target)
    return exprs


def _widens(kind: Type, target: Type) -> bool:
    if kind == target or (kind.name, target.name) in (
        ("int64", "float64"),
        ("decimal", "float64"),
        ("int64", "decimal"),
    ):
        return True
    is_decimal = kind.name == target.name == "decimal"
    return is_decimal and kind.scale <= target.scale and kind.is_wide <= target.is_wide


# -- types that nobody declared ---------------------------------------------------------------------------------------

Columns = tuple[tuple[str, Type | None], ...]
"""Names and types; None for what is a bare NULL so far."""


def inferred(queries: Queries, unknown: Sequence[Binding], env: Env) -> list[Binding]:
    """The bindings with the columns that their queries have.

    A query first says its columns without the sides of UNION that name what is not known yet. Then the whole queries
    are planned over no rows, until no type is widened. Raises ProgramError where no side is without such a name.
    """
    columns: dict[str, Columns] = {}
    while len(columns) < len(unknown):
        before = len(columns)
        for view in unknown:
            missing = [other.name for other in unknown if other.name not in columns]
            query = _without(view.query, missing)
            if view.name in missing and query is not None:
                columns[view.name] = _columns(view.plan(query, _known(env, columns)))
        if len(columns) == before:
            raise queries.source.error(
                unknown[0].node, f"the columns of {unknown[0].name} depend on themselves",
                f"begin with rows that do not: SELECT ... UNION SELECT ... FROM {unknown[0].name} ...",
            )  # fmt: skip
    for _ in unknown:  # a type travels along the names, each round to the next view
        wider = {view.name: _wider(queries, view, columns, env) for view in unknown}
        if wider == columns:
            break
        columns = wider
    return [
        replace(
            view,
            names=tuple(name for name, _ in columns[view.name]),
            kinds=tuple(kind or TEXT for _, kind in columns[view.name]),
        )
        for view in unknown
    ]


def _columns(relation: Relation) -> Columns:
    kinds = relation.types
    return tuple((column.name, None if column.untyped else kinds[column.key]) for column in relation.own)


def _known(env: Env, columns: Mapping[str, Columns]) -> Env:
    """With no rows under each name whose columns are known."""
    for name, own in columns.items():
        rows = _no_rows({column: kind or TEXT for column, kind in own})
        env = env.binding(
            name,
            Relation(rows, tuple(Column("", column_name, column_name, untyped=not kind) for column_name, kind in own)),
        )
    return env


def _wider(queries: Queries, view: Binding, columns: Mapping[str, Columns], env: Env) -> Columns:
    """The columns of a whole query, in types that hold what was known before."""
    before, now = columns[view.name], _columns(view.plan(view.query, _known(env, columns)))
    if len(before) != len(now):
        return before  # of which the query's own error comes when it is planned
    wider = []
    for (name, old), (_, new) in zip(before, now, strict=True):
        values = [Value(pl.col(name), kind, view.node) for kind in (old, new)]
        both = None if old is new is None else aligned(queries.source, values, f"{view.name}, column {name}")[1]
        wider.append((name, both))
    return tuple(wider)


def _without(query: exp.Expr, names: Sequence[str]) -> exp.Expr | None:
    """A query without those sides of set operations that name any of ``names``; None where others do."""
    query = query.copy()
    root = exp.Subquery(this=query)
    for node in [*query.find_all(exp.SetOperation)][::-1]:
        left, right = (_depends(side, names) for side in (node.this, node.expression))
        if right and not left:
            node.replace(_alone(node, node.this))
        elif left and not right and isinstance(node, exp.Union):
            node.replace(_alone(node, node.expression))
    left_over: exp.Expr = root.this
    for bindings in [*left_over.find_all(exp.With)]:
        _drop_unused(bindings)
    return None if names_of(left_over, names) else left_over


def _depends(part: exp.Expr, names: Sequence[str], around: tuple[exp.Expr, ...] = ()) -> bool:
    """Whether a part names any of these, itself or by a binding of a WITH around it."""
    if names_of(part, names):
        return True
    bindings = [binding for table in part.find_all(exp.Table) if (binding := _binding(table)) is not None]
    return any(
        _depends(inner.this, names, (*around, inner)) for inner in bindings if all(inner is not one for one in around)
    )


def _drop_unused(bindings: exp.With) -> None:
    """Leave out bindings of a WITH that nothing names any more, the last ones first."""
    query = bindings.parent
    assert query is not None
    for binding in bindings.expressions[::-1]:
        own = {id(table) for table in binding.find_all(exp.Table)}
        others = (table for table in query.find_all(exp.Table) if id(table) not in own)
        if not any(is_named(table.this, binding.alias) for table in others):
            bindings.set(
                "expressions", [expression for expression in bindings.expressions if expression is not binding]
            )
    if not bindings.expressions:
        query.set("with_", None)


def _alone(node: exp.SetOperation, side: exp.Expr) -> exp.Expr:
    """One side of a set operation, with the WITH of both and the names of the first."""
    if node.args.get("with_") is not None and side.args.get("with_") is None:
        side.set("with_", node.args["with_"])
    first, second = unwrapped(node.this), unwrapped(side)
    while isinstance(first, exp.SetOperation):
        first = unwrapped(first.this)
    if isinstance(first, exp.Select) and isinstance(second, exp.Select) and first is not second:
        names = [result_name(column) for column in first.expressions]
        if len(names) == len(second.expressions) and not any(column.is_star for column in first.expressions):
            columns = [column.this if isinstance(column, exp.Alias) else column for column in second.expressions]
            second.set(
                "expressions", [exp.alias_(column_name, name) for column_name, name in zip(columns, names, strict=True)]
            )
    return side


def names_of(query: exp.Expr, names: Sequence[str]) -> list[exp.Table]:
    """The places at which a query names one of these, other than a binding of its WITH."""
    return named_of(query.find_all(exp.Table), names)


def named_of(tables: Iterable[exp.Table], names: Sequence[str]) -> list[exp.Table]:
    """Those of the tables of a query."""
    exact, folded = {*names}, {name.casefold() for name in names}

    def is_one(name: exp.Expr) -> bool:
        is_quoted = isinstance(name, exp.Identifier) and name.quoted
        return name.name in exact if is_quoted else name.name.casefold() in folded

    return [table for table in tables if is_one(table.this) and not table.args.get("db") and _binding(table) is None]


def _binding(table: exp.Table) -> exp.CTE | None:
    """The binding of a WITH around it that a name stands for."""
    around: exp.Expr | None = table
    while around is not None:
        bindings = around.args.get("with_")
        for binding in bindings.expressions if bindings is not None else ():
            if is_named(table.this, binding.alias):
                found: exp.CTE = binding
                return found
        around = around.parent
    return None
