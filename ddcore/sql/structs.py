"""Structs in SQL: their fields by name, and structs that are written out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type
from ddcore.sql.names import is_named
from ddcore.sql.source import shown
from ddcore.sql.types import TEXT
from ddcore.sql.values import Named, Rule, Value, Values, as_type
from ddcore.text.wording import listed, meant


def with_fields(queries: Sequence[exp.Expr], columns: Iterable[str]) -> None:
    """Names of several parts whose first is a column, and no table, name a field of it: ``t.s.f``, ``s.f``.

    ``columns``: those of all inputs; aliases of the queries are added. Queries are changed in place.
    """
    tables, names = set[str](), {name.casefold() for name in columns}
    qualified: list[exp.Column] = []
    for query in queries:
        for node in query.find_all(exp.Table, exp.TableAlias, exp.Alias, exp.Column):
            if isinstance(node, exp.Alias):
                names.add(node.alias.casefold())
            elif not isinstance(node, exp.Column):
                tables.add(node.name.casefold())
                names |= {name.name.casefold() for name in node.args.get("columns") or []}
            elif node.args.get("table") is not None and not isinstance(node.this, exp.Star):
                qualified.append(node)
    for node in qualified:
        parts = [node.args[key] for key in ("catalog", "db", "table") if node.args.get(key)] + [node.this]
        first, count = parts[0].name.casefold(), len(parts)
        behind_table = first in tables
        if count > (2 if behind_table else 1) and (behind_table or first in names):
            node.replace(_field(parts, 2 if behind_table else 1))


def _field(parts: list[exp.Identifier], count: int) -> exp.Expr:
    """The column that the first parts name, and the fields of it that the others do."""
    found: exp.Expr = exp.Column(this=parts[count - 1], table=parts[0] if count == 2 else None)
    for part in parts[count:]:
        found = exp.Dot(this=found, expression=part)
    return found


def field(values: Values, node: exp.Expr, some: exp.Expr, name: exp.Expr) -> Value:
    """A field of a struct. Raises ProgramError where it has none of this name."""
    value = values.of(some)
    if value.type is None or value.type.name != "struct":
        raise values.source.error(
            node, f"{shown(some)} is {value.name}, not a struct", "a name before a point is a table or a struct"
        )
    wanted = name if isinstance(name, exp.Identifier) else exp.to_identifier(name.name)
    found = [inner for inner in value.type.fields if is_named(wanted, inner[0])]
    if not found:
        names = [inner for inner, _ in value.type.fields]
        raise values.source.error(
            node, f"{shown(some)} has no field {wanted.name}; there are: {listed(names)}",
            meant(wanted.name, names) or "name one of these",
        )  # fmt: skip
    return Value(value.expr.struct.field(found[0][0]), found[0][1], node)


def _dot(values: Values, node: exp.Dot) -> Value:
    if not isinstance(node.expression, exp.Identifier):
        values.source.refuse(node, "this expression")
    return field(values, node, node.this.unnest(), node.expression)


def made(values: Values, node: exp.Expr, names: Sequence[str], parts: Sequence[exp.Expr]) -> Value:
    """A struct of these values."""
    if not parts or len({name.casefold() for name in names}) < len(names):
        values.source.refuse(node, "a struct without fields, or with two of one name")
    found = [values.of(part) for part in parts]
    kinds = [value.type or TEXT for value in found]
    exprs = [as_type(values.source, value, kind) for value, kind in zip(found, kinds, strict=True)]
    fields = [expr.alias(name) for expr, name in zip(exprs, names, strict=True)]
    return Value(pl.struct(fields), Type("struct", fields=tuple(zip(names, kinds, strict=True))), node)


def _written(values: Values, node: exp.Struct) -> Value:
    """``{'a': x}`` and ``struct_pack(a := x)`` in DuckDB, ``struct(x, y AS b)`` in Spark."""
    names, parts = [], []
    for number, part in enumerate(node.expressions, 1):
        is_named_part = isinstance(part, exp.PropertyEQ | exp.Alias)
        inner = part.expression if isinstance(part, exp.PropertyEQ) else part.this if is_named_part else part
        own = part.this.name if isinstance(part, exp.PropertyEQ) else part.alias if is_named_part else ""
        names.append(own or (inner.name if isinstance(inner, exp.Column) else f"col{number}"))
        parts.append(inner)
    return made(values, node, names, parts)


def _by_pairs(values: Values, node: exp.Anonymous) -> Value:
    """``named_struct('a', x, 'b', y)``."""
    names, parts = node.expressions[::2], node.expressions[1::2]
    if len(names) != len(parts) or not all(isinstance(name, exp.Literal) and name.is_string for name in names):
        values.source.refuse(node, "named_struct() of what is not texts, each with a value behind it")
    return made(values, node, [name.name for name in names], parts)


RULES: dict[type[exp.Expr], Rule] = {exp.Dot: _dot}
WRITTEN: dict[type[exp.Expr], Rule] = {exp.Struct: _written}
"""Structs that are written out: PostgreSQL has them as rows only."""
OF_DUCKDB: dict[type[exp.Expr], Rule] = {
    **WRITTEN,
    exp.StructExtract: lambda values, node: field(values, node, node.this, node.expression),
}
BY_PAIRS: dict[str, Named] = {"named_struct": (-1, _by_pairs)}
