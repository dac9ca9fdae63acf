"""What a query may name, and what its parts may ask of the planner of queries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore.program.constants import constant
from ddcore.sql.names import Known, Relation
from ddcore.sql.source import Source


@dataclass(frozen=True)
class Env:
    """What a query may name: the bindings of WITH, and the columns of the query around, of which ``outer`` has the
    distinct values.
    """

    bindings: Mapping[str, Relation] = field(default_factory=dict)
    outer: Relation | None = None

    @property
    def alone(self) -> Env:
        """Without the query around."""
        return replace(self, outer=None)

    def inside(self, outer: Relation | None) -> Env:
        """In a subquery."""
        return replace(self, outer=outer)

    def binding(self, name: str, relation: Relation) -> Env:
        """With one more binding."""
        return replace(self, bindings={**self.bindings, name: relation})


class _Names(Mapping[str, Sequence[str]]):
    """The column names of tables and bindings: each condition asks for a few of them."""

    def __init__(self, tables: Mapping[str, Relation], bindings: Mapping[str, Relation]) -> None:
        self._tables, self._bindings = tables, bindings

    def __getitem__(self, name: str) -> Sequence[str]:
        found = self._bindings.get(name)
        return (self._tables[name] if found is None else found).names

    def __iter__(self) -> Iterator[str]:
        return iter({**self._tables, **self._bindings})

    def __len__(self) -> int:
        return len({**self._tables, **self._bindings})


class Queries(ABC):
    """Queries over the inputs and the views that they name: a query inside of another is planned like any.

    ``bounds``: what the query around bounds from above, of the columns of a subquery in FROM, by the subquery's
    identity.
    """

    source: Source
    tables: dict[str, Relation]
    bounds: dict[int, list[tuple[exp.Expr, int]]]

    @cached_property
    def unit(self) -> Any:
        """One row: what constants and sums of nothing rest on."""
        return constant(pl.DataFrame({"unit": [1]}))

    def known(self, env: Env) -> Known:
        """The column names of all tables that a query may name."""
        return _Names(self.tables, env.bindings)

    @abstractmethod
    def table(self, node: exp.Table, env: Env) -> Relation:
        """A binding, a view or an input. Raises ProgramError for another name."""

    @abstractmethod
    def query(self, node: exp.Expr, env: Env) -> Relation:
        """The rows of a query, with the columns that its SELECT names and those that correlate it."""

    @abstractmethod
    def expanded(self, node: exp.Select, relation: Relation) -> list[exp.Expr]:
        """The columns of a SELECT, with all those that a star stands for."""

    @abstractmethod
    def from_where(self, select: exp.Select, env: Env, skip: Sequence[exp.Expr] = ()) -> Relation:
        """The rows of FROM that meet WHERE, without the conditions in ``skip``."""
