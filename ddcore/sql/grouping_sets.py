"""What GROUP BY groups by: keys, and with GROUPING SETS, ROLLUP and CUBE several sets of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcore.sql.names import Column, Relation, is_named
from ddcore.sql.ordering import numbered

if TYPE_CHECKING:
    from ddcore.sql.env import Queries

_MOST = 4096  # sets, as in PostgreSQL
Set = tuple[int, ...]


@dataclass(frozen=True)
class Grouping:
    """The keys of GROUP BY, and the sets of them by their places; without GROUPING SETS there is one set of all."""

    keys: tuple[exp.Expr, ...]
    sets: tuple[Set, ...]

    @property
    def is_plain(self) -> bool:
        """Whether all rows of the result have all keys."""
        return len(self.sets) == 1 and len(self.sets[0]) == len(self.keys) > 0


def grouping_of(
    queries: Queries,
    query: exp.Select,
    relation: Relation,
    columns: Sequence[exp.Expr],
    has_aggregate: Callable[[exp.Expr], bool],
) -> Grouping | None:
    """What a SELECT groups by; None without GROUP BY. A number or an alias stands for one of ``columns``."""
    group = query.args.get("group")
    if group is None:
        return None
    for key in ("grouping_sets", "cube", "rollup", "totals"):
        if group.args.get(key):
            queries.source.refuse(
                group, f"GROUP BY ... {key.upper().replace('_', ' ')}", "write GROUP BY ROLLUP (a, b)"
            )
    items = list(group.expressions)
    if group.args.get("all"):
        items = [_plain(column) for column in columns if not has_aggregate(column)]
    reader = _Reader(queries, relation, columns)
    parts = [reader.sets(item) for item in items]
    number = 1
    for part in parts:
        number *= len(part)
        if number > _MOST:
            queries.source.refuse(group, f"more than {_MOST} sets of groups", "write fewer of them")
    sets = [_joined(chosen) for chosen in itertools.product(*parts)]
    if group.args.get("all") is False:  # GROUP BY DISTINCT
        sets = list(dict.fromkeys(tuple(sorted(keys)) for keys in sets))
    return Grouping(tuple(reader.keys), tuple(sets))


def _joined(sets: Sequence[Set]) -> Set:
    return tuple(dict.fromkeys(key for keys in sets for key in keys))


def _plain(column: exp.Expr) -> exp.Expr:
    inner: exp.Expr = column.this if isinstance(column, exp.Alias) else column
    return inner


@dataclass
class _Reader:
    """The keys that have been read so far; equal ones are one."""

    queries: Queries
    relation: Relation
    columns: Sequence[exp.Expr]

    def __post_init__(self) -> None:
        self.keys: list[exp.Expr] = []
        self._positions: dict[tuple[str, str | None], int] = {}

    def sets(self, node: exp.Expr) -> list[Set]:
        """The sets of one item of GROUP BY."""
        if isinstance(node, exp.Rollup | exp.Cube):
            items = [self._together(expression) for expression in node.expressions]
            if isinstance(node, exp.Rollup):
                return [_joined(items[:number]) for number in range(len(items), -1, -1)]
            if 2 ** len(items) > _MOST:
                self.queries.source.refuse(node, f"more than {_MOST} sets of groups", "write fewer of them")
            choices = (itertools.combinations(items, number) for number in range(len(items), -1, -1))
            return [_joined(chosen) for choice in choices for chosen in choice]
        if isinstance(node, exp.GroupingSets):
            return [keys for item in node.expressions for keys in self.sets(item)]
        return [self._together(node)]

    def _together(self, node: exp.Expr) -> Set:
        """The keys of one item that are grouped by together: ``a`` or ``(a, b)``."""
        if isinstance(node, exp.Tuple):
            return _joined([self._together(expression) for expression in node.expressions])
        if isinstance(node, exp.Paren):
            return self._together(node.this)
        if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
            self.queries.source.refuse(node, "this kind of GROUP BY", "GROUPING SETS may hold ROLLUP and CUBE")
        key = self._meant(node)
        text = (key.sql(), key.meta.get("key"))  # columns of a star may share their names
        if text not in self._positions:
            self._positions[text] = len(self.keys)
            self.keys.append(key)
        return (self._positions[text],)

    def _meant(self, node: exp.Expr) -> exp.Expr:
        """The column of the SELECT for which a number or an alias stands."""
        if (number := numbered(self.queries.source, node, "GROUP BY", len(self.columns))) is not None:
            return _plain(self.columns[number])
        if isinstance(node, exp.Column) and node.args.get("table") is None:
            own: list[Column] = [column for column in self.relation.columns if is_named(node.this, column.name)]
            if not own:
                aliases = [column for column in self.columns if isinstance(column, exp.Alias)]
                meant: list[exp.Expr] = [alias.this for alias in aliases if is_named(node.this, alias.alias)]
                return meant[0] if meant else node
        return node
