"""A program's views, each over the inputs and other views, in whatever order they are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import polars as pl
from sqlglot import exp

import ddcore.sql.functions  # noqa: F401  (fills in the rules of values)
from ddcore.base.errors import DdError
from ddcore.base.source_line import planning
from ddcore.expressions.formulas import written
from ddcore.sql.clock import CLOCK, clock
from ddcore.sql.env import Env
from ddcore.sql.mutual import Binding, fixed_points, inferred, named_of
from ddcore.sql.names import Column, Relation, is_named, types
from ddcore.sql.parsing import Table, View
from ddcore.sql.queries import QueryPlanner
from ddcore.sql.recursion import renamed
from ddcore.sql.source import Source, shown
from ddcore.sql.structs import with_fields
from ddcore.sql.types import declared_type
from ddcore.sql.values import selected
from ddcore.text.wording import described, listed, meant


class Outputs(dict[str, Any]):
    """The collections of a program's views by name; those that are no outputs are in ``temporary``."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary: dict[str, Any] = {}


def outputs(views: Sequence[View], tables: Sequence[Table], source: Source, inputs: Mapping[str, Any]) -> Outputs:
    """The collections of the views. ``tables``: inputs as the program declares them. Raises ProgramError."""
    queries = QueryPlanner(source, inputs)
    for table in tables:
        _check_table(source, table, inputs)
    taken = {name.casefold() for name in inputs}
    for view in views:
        if view.name.casefold() in taken:
            source.start = view.start
            raise source.error(view.node, f"there is a table or view {view.name} already", "give the view another name")
        taken.add(view.name.casefold())
    named = [[*view.query.find_all(exp.Table)] for view in views]
    if any(table.name == CLOCK for tables_of_view in named for table in tables_of_view):
        queries.tables[CLOCK] = clock()
    with_fields([view.query for view in views], (name for rows in inputs.values() for name in types(rows)))
    with written(source.casts):
        for group, is_loop in _in_order(views, named):
            queries.tables |= _planned(queries, group, is_loop=is_loop)
    results = Outputs()
    for view in views:
        (results.temporary if view.temporary else results)[view.name] = queries.tables[view.name].rows
    return results


def _planned(queries: QueryPlanner, group: Sequence[View], *, is_loop: bool) -> dict[str, Relation]:
    """The views of a group: one, or several that name each other. A view that names itself is a loop, too."""
    if not is_loop:
        (view,) = group
        relation = _view(queries, view, view.query, Env())
        columns = tuple(replace(column, untyped=False) for column in relation.columns)
        return {view.name: replace(relation, columns=columns)}

    def unknown(view: View) -> Binding:
        return Binding(view.name, view.node, view.query, lambda query, env: _view(queries, view, query, env))

    queries.source.start = group[0].start
    return fixed_points(queries, inferred(queries, [unknown(view) for view in group], Env()), Env())


def _view(queries: QueryPlanner, view: View, query: exp.Expr, env: Env) -> Relation:
    """The rows of a view, whose query may be a part of it."""
    source = queries.source
    source.start = view.start
    with planning(source.where(view.node)), _one_line(source, view):
        return _named(queries, view, renamed(queries, queries.query(query, env), view.columns, view.node))


def _in_order(views: Sequence[View], tables: Sequence[Sequence[exp.Table]]) -> list[tuple[list[View], bool]]:
    """The views in groups, each behind those that it names; views that name each other, in a circle, are one group,
    and whether there is such a circle. ``tables``: what each view names.

    Tarjan's strongly connected components, which come in this order.
    """
    named = {view.name.casefold(): position for position, view in enumerate(views)}
    numbers: dict[int, int] = {}
    lowest: dict[int, int] = {}
    around: list[int] = []
    groups: list[tuple[list[View], bool]] = []
    loops: set[int] = set()
    names = [view.name for view in views]

    def add(position: int) -> None:
        numbers[position] = lowest[position] = len(numbers)
        around.append(position)
        for table in named_of(tables[position], names):
            other = named[table.name.casefold()]
            if other == position:
                loops.add(position)
            if other not in numbers:
                add(other)
                lowest[position] = min(lowest[position], lowest[other])
            elif other in around:
                lowest[position] = min(lowest[position], numbers[other])
        if lowest[position] == numbers[position]:
            start = around.index(position)
            members = sorted(around[start:])
            groups.append(([views[member] for member in members], len(members) > 1 or position in loops))
            del around[start:]

    for position in range(len(views)):
        if position not in numbers:
            add(position)
    return groups


def _check_table(source: Source, table: Table, inputs: Mapping[str, Any]) -> None:
    """Raises ProgramError where a declared table is not an input with these columns."""
    found = [name for name in inputs if is_named(table.node.this, name)]
    if not found:
        raise source.error(
            table.node, f"there is no input {table.name}; there are: {listed(inputs)}",
            meant(table.name, inputs) or f"declare its columns in dd.toml, under [inputs.{table.name}]",
        )  # fmt: skip
    schema = types(inputs[found[0]])
    for column in table.columns:
        own = [name for name in schema if is_named(column.this, name)]
        kind = declared_type(source, column.args["kind"])
        if not own:
            raise source.error(
                column, f"the input {found[0]} has no column {column.name}", meant(column.name, schema) or "see dd.toml"
            )
        if schema[own[0]] != kind:
            what = f"column {column.name} is {kind} here and {schema[own[0]]} in dd.toml"
            raise source.error(column, what, "declare it in the same way in both")
    for part in table.unchecked:
        source.note(
            part, f"{shown(part)} is left out: rows of {found[0]} are taken as they come, and data tests check them"
        )


@contextmanager
def _one_line(source: Source, view: View) -> Iterator[None]:
    """Errors that are not our own become one line that names the view."""
    try:
        yield
    except DdError:
        raise
    except RecursionError:
        raise source.error(
            view.node, f"the view {view.name} is nested too deeply", "write it as several views"
        ) from None
    except Exception as error:
        raise source.error(
            view.node, f"the view {view.name} cannot be planned: {described(error)}", "write it in simpler parts"
        ) from error


def _named(queries: QueryPlanner, view: View, relation: Relation) -> Relation:
    """The rows of a view with its columns under their own names."""
    seen: set[str] = set()
    for number, column in enumerate(relation.own, 1):
        if not column.name:
            raise queries.source.error(
                view.node, f"column {number} of the view {view.name} has no name", "name it: SELECT ... AS name"
            )
        if column.name.casefold() in seen:
            raise queries.source.error(
                view.node, f"two columns of the view {view.name} are called {column.name}", "rename one: AS other_name"
            )
        seen.add(column.name.casefold())
    names = {column.name: pl.col(column.key) for column in relation.own}
    columns = tuple(Column("", column.name, column.name, untyped=column.untyped) for column in relation.own)
    return Relation(selected(relation.rows, names), columns, single=relation.single)
