"""A program's views, one after another, each over the inputs and the views before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import polars as pl

from ddcore.errors import DdError
from ddcore.place import planning
from ddcore.sql.names import Column, Relation, is_named
from ddcore.sql.parsing import View
from ddcore.sql.queries import Env, Queries
from ddcore.sql.recursion import renamed
from ddcore.sql.source import Source
from ddcore.wording import described

__all__ = ["Outputs", "outputs"]


class Outputs(dict[str, Any]):
    """The collections of a program's views by name; those that are no outputs are in ``temporary``."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary: dict[str, Any] = {}


def outputs(views: Sequence[View], source: Source, inputs: Mapping[str, Any]) -> Outputs:
    """The collections of the views. Raises ProgramError."""
    queries = Queries(source, inputs)
    results = Outputs()
    for view in views:
        source.start = view.start
        if any(is_named(view.name, name) for name in queries.tables):
            raise source.error(view.node, f"there is a table or view {view.name} already", "give the view another name")
        with planning(source.place(view.node)), _one_line(source, view):
            relation = renamed(queries, queries.query(view.query, Env()), view.columns, view.node)
            queries.tables[view.name] = _named(queries, view, relation)
        (results.temporary if view.temporary else results)[view.name] = queries.tables[view.name].rows
    return results


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


def _named(queries: Queries, view: View, relation: Relation) -> Relation:
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
    rows = relation.rows
    names = {each.key: each.name for each in relation.own}
    if list(names) != list(names.values()) or list(rows.schema) != list(names):
        rows = rows.select(**{name: pl.col(key) for key, name in names.items()})
    return Relation(rows, tuple(Column("", name, name) for name in names.values()), single=relation.single)
