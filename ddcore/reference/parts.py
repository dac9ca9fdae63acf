"""The parts of an expression, each computed once from the values of those inside it.

So the cost is linear in the parts, also where many share others, which Polars has no form for.
"""

from __future__ import annotations

import math

import polars as pl

from ddcore.expressions import polars_json, syntax
from ddcore.expressions.syntax import Alias, Choice, Column, Tree

_FEW = 30  # parts: what reads no column stays as it is inside others, if it has so few
_MANY = 10_000  # parts, shared ones counted as often as they are named: expressions of more are computed by parts


def is_large(tree: Tree) -> bool:
    """Whether an expression has too many parts, or is too deep, to be written for Polars as a whole."""
    size = syntax.fold(tree, lambda node, sizes: 1 + sum(sizes))
    return size > _MANY or polars_json.is_deeper(tree, polars_json.DEEPEST)


class Parts:
    """The values of expressions in a frame of one row; or, in one without rows, their types."""

    def __init__(self, frame: pl.DataFrame, types: Parts | None = None) -> None:
        self._frame, self._types = frame, types
        self._values: dict[int, pl.Series | pl.exceptions.PolarsError] = {}
        self._sizes: dict[int, float] = {}  # without end where a column is read
        self._trees: list[Tree] = []  # none loses its identity to another

    def __call__(self, tree: Tree) -> pl.Series:
        """The value of an expression. What a choice does not take may fail."""
        self._trees.append(tree)
        for node in syntax.nodes(tree, self._unknown):
            sizes = [self._sizes[id(child)] for child in syntax.children(node)]
            self._sizes[id(node)] = math.inf if isinstance(node, Column) else 1 + sum(sizes)
            try:
                self._values[id(node)] = self._computed(node)
            except pl.exceptions.PolarsError as error:
                self._values[id(node)] = error
        return self._value(tree)

    def _unknown(self, node: Tree) -> list[Tree]:
        return [child for child in syntax.children(node) if id(child) not in self._values]

    def _value(self, node: Tree) -> pl.Series:
        value = self._values[id(node)]
        if isinstance(value, Exception):
            raise value
        return value

    def _computed(self, node: Tree) -> pl.Series:
        """A part, with columns in place of those inside it. Literals stay: Polars gives them the types of others."""
        columns: dict[str, pl.Series] = {}
        inner: list[Tree] = []
        for child in syntax.children(node):
            name, result = f"={len(inner)}", syntax.result_name(child)
            if self._sizes[id(child)] <= _FEW or result is None:
                inner.append(child)
            else:
                columns[name] = self._taken(node, child)
                inner.append(Alias(Column(name), result) if syntax.operation(node) == "AsStruct" else Column(name))
        frame = self._frame.with_columns(**columns)
        value = polars_json.build(syntax.with_children(node, inner))
        return frame.select(value).to_series().head(len(frame))

    def _taken(self, node: Tree, child: Tree) -> pl.Series:
        """The value of a part inside another; null for a branch that fails and that a choice does not take."""
        if isinstance(self._values[id(child)], Exception) and isinstance(node, Choice) and child is not node.predicate:
            taken = node.truthy if self._value(node.predicate)[0] is True else node.falsy
            if self._types is not None and child is not taken:
                return pl.Series([None], dtype=self._types(child).dtype)
        return self._value(child)
