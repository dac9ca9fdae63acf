"""A program's views, each over the inputs and other views, in whatever order they are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import polars as pl
from sqlglot import exp

import ddcore.sql.functions  # noqa: F401  (fills in the rules of values)
from ddcore.base.errors import DdError
from ddcore.base.source_line import planning
from ddcore.sql.env import Env
from ddcore.sql.names import Column, Relation, is_named, types
from ddcore.sql.parsing import Table, View
from ddcore.sql.queries import QueryPlanner
from ddcore.sql.recursion import renamed
from ddcore.sql.source import Source
from ddcore.sql.values import declared_type, selected
from ddcore.text.wording import described, listed, meant

__all__ = ["Outputs", "outputs"]


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
    for view in _in_order(views, source):
        source.start = view.start
        if any(is_named(view.name, name) for name in queries.tables):
            raise source.error(view.node, f"there is a table or view {view.name} already", "give the view another name")
        with planning(source.place(view.node)), _one_line(source, view):
            relation = renamed(queries, queries.query(view.query, Env()), view.columns, view.node)
            queries.tables[view.name] = _named(queries, view, relation)
    results = Outputs()
    for view in views:
        (results.temporary if view.temporary else results)[view.name] = queries.tables[view.name].rows
    return results


def _in_order(views: Sequence[View], source: Source) -> list[View]:
    """The views, each behind those that it names. Raises ProgramError where views name each other."""
    named = {view.name.casefold(): view for view in views}
    ordered: list[View] = []
    around: list[View] = []

    def add(view: View) -> None:
        if view in ordered:
            return
        around.append(view)
        for table in view.query.find_all(exp.Table):
            other = named.get(table.name.casefold())
            if other is None or not is_named(table.this, other.name) or _is_bound(table):
                continue
            if other in around:
                source.start = view.start
                names = [each.name for each in around[around.index(other) :]]
                what = (
                    f"the views {listed(names)} name each other"
                    if len(names) > 1
                    else f"the view {names[0]} names itself"
                )
                raise source.error(
                    table, what, "write one view: WITH MUTUALLY RECURSIVE name (column type, ...) AS (...)"
                )
            add(other)
        around.pop()
        ordered.append(view)

    for view in views:
        add(view)
    return ordered


def _is_bound(table: exp.Table) -> bool:
    """Whether a name is that of a WITH around it."""
    around: exp.Expr | None = table
    while around is not None:
        bindings = around.args.get("with_")
        if bindings is not None and any(is_named(table.this, each.alias) for each in bindings.expressions):
            return True
        around = around.parent
    return False


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
        mine = [name for name in schema if is_named(column.this, name)]
        kind = declared_type(source, column.args["kind"])
        if not mine:
            raise source.error(
                column, f"the input {found[0]} has no column {column.name}", meant(column.name, schema) or "see dd.toml"
            )
        if schema[mine[0]] != kind:
            what = f"column {column.name} is {kind} here and {schema[mine[0]]} in dd.toml"
            raise source.error(column, what, "declare it in the same way in both")


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
    names = {each.name: pl.col(each.key) for each in relation.own}
    return Relation(
        selected(relation.rows, names), tuple(Column("", name, name) for name in names), single=relation.single
    )
