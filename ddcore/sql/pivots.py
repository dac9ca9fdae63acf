"""PIVOT and UNPIVOT of a table in FROM: the queries that they stand for, and the columns of these."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from sqlglot import exp

from ddcore.sql.source import Source

_FORM = "write PIVOT (sum(x) FOR y IN (1, 2)) or UNPIVOT (value FOR name IN (x, y))"


def columns_of_pivot(columns: Sequence[str], pivot: exp.Pivot) -> list[str]:
    """The columns of a table with these columns behind its PIVOT or UNPIVOT."""
    return [*_keys(columns, pivot), *_results(pivot)]


def query_of_pivot(source: Source, columns: Sequence[str], pivot: exp.Pivot, table: str) -> exp.Query:
    """The query over ``table`` that a PIVOT or UNPIVOT stands for. Raises ProgramError for what is not supported."""
    if not pivot.expressions or not pivot.args.get("fields") or pivot.args.get("default_on_null"):
        raise source.error(pivot, "this pivot is not supported", _FORM)
    return (_unpivoted if pivot.args.get("unpivot") else _pivoted)(source, columns, pivot, table)


def _fields(pivot: exp.Pivot) -> list[tuple[str, list[exp.Expr]]]:
    """What stands before IN, and behind it."""
    return [(field.this.name, list(field.expressions)) for field in pivot.args["fields"] if isinstance(field, exp.In)]


def _keys(columns: Sequence[str], pivot: exp.Pivot) -> list[str]:
    """The columns that stay: those that it does not name, or those of its GROUP BY."""
    group = pivot.args.get("group")
    if group is not None:
        return [expression.name for expression in group.expressions]
    read = [pivot.args["fields"]] if pivot.args.get("unpivot") else [pivot.expressions, pivot.args["fields"]]
    used = {name.name.casefold() for nodes in read for node in nodes for name in node.find_all(exp.Column)}
    return [name for name in columns if name.casefold() not in used]


def _results(pivot: exp.Pivot) -> list[str]:
    if pivot.args.get("unpivot"):
        return [name for name, _ in _fields(pivot)] + [expression.name for expression in pivot.expressions]
    return [column.name for column in pivot.args.get("columns") or []]


def _column(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))


def _from(table: str) -> exp.From:
    return exp.From(this=exp.Table(this=exp.to_identifier(table, quoted=True)))


def _pivoted(source: Source, columns: Sequence[str], pivot: exp.Pivot, table: str) -> exp.Select:
    """Each aggregate for each choice of values, of the rows that have these."""
    keys, names = _keys(columns, pivot), _results(pivot)
    conditions = [[_equal(name, value) for value in values] for name, values in _fields(pivot)]
    wanted = [(expression, chosen) for chosen in product(*conditions) for expression in pivot.expressions]
    if len(wanted) != len(names) or len({name.casefold() for name in (*keys, *names)}) < len(keys) + len(names):
        what = "two columns of this pivot have one name, or one has none"
        raise source.error(pivot, what, "give names: IN (1 AS one, 2 AS two)")
    results = []
    for (part, chosen), name in zip(wanted, names, strict=True):
        aggregate = (part.this if isinstance(part, exp.Alias) else part).copy()
        if not isinstance(aggregate, exp.AggFunc):
            source.refuse(part, "this aggregate of a pivot", _FORM)
        where = exp.Where(this=exp.and_(*(condition.copy() for condition in chosen)))
        filtered = exp.Filter(this=aggregate, expression=where)
        results.append(exp.alias_(filtered, exp.to_identifier(name, quoted=True)))
    query = exp.Select(expressions=[*map(_column, keys), *results])
    query.set("from_", _from(table))
    if keys:
        query.set("group", exp.Group(expressions=[*map(_column, keys)]))
    return query


def _equal(name: str, value: exp.Expr) -> exp.Expr:
    value = value.this if isinstance(value, exp.PivotAlias) else value
    kind = exp.Is if isinstance(value, exp.Null) else exp.EQ
    return kind(this=_column(name), expression=value.copy())


def _unpivoted(source: Source, columns: Sequence[str], pivot: exp.Pivot, table: str) -> exp.Query:
    """A row for each of some columns: its name and its value, of those that are not null."""
    fields = _fields(pivot)
    if len(fields) != 1 or len(pivot.expressions) != 1:
        raise source.error(pivot, "an UNPIVOT to several values is not supported", _FORM)
    ((name, unpivoted),) = fields
    keys, value = _keys(columns, pivot), pivot.expressions[0].name
    sides: list[exp.Query] = []
    for part in unpivoted:
        of = part.this if isinstance(part, exp.PivotAlias) else part
        label = part.args["alias"].name if isinstance(part, exp.PivotAlias) else of.name
        if not isinstance(of, exp.Column):
            source.refuse(part, "this part of an UNPIVOT", _FORM)
        own = next((column for column in columns if column.casefold() == of.name.casefold()), of.name)
        results = [
            exp.alias_(exp.Literal.string(label), exp.to_identifier(name, quoted=True)),
            exp.alias_(of.copy(), exp.to_identifier(value, quoted=True)),
        ]
        query = exp.Select(expressions=[*map(_column, keys), *results])
        query.set("from_", _from(table))
        if not pivot.args.get("include_nulls"):
            query.set("where", exp.Where(this=exp.Not(this=exp.Is(this=_column(own), expression=exp.Null()))))
        sides.append(query)
    whole = sides[0]
    for side in sides[1:]:
        whole = exp.Union(this=whole, expression=side, distinct=False)
    return whole
