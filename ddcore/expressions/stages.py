"""Expressions in stages: what is shared is computed once, and what is nested deeply is cut, each part as a column.

Polars has no name for a part of an expression, needs time cubic in the depth of one, and reads 127 brackets of JSON. So
parts that several others name, and parts of deep expressions, become columns that the next stage reads. A part of a
branch of a choice is null, not computed, in the rows that do not take the branch, as in Polars: it could fail there.
Expressions of ordinary size are left whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import polars as pl

from ddcore.base.record import record
from ddcore.expressions import branches, polars_json, syntax
from ddcore.expressions.branches import Scope, scopes
from ddcore.expressions.syntax import Tree

_CUT = 60  # brackets: expressions deeper than polars_json.DEEPEST are cut into pieces of this depth
_SMALL = 4  # nodes: what has fewer is computed again where it is named again
_FEW = 100  # nodes: so many more an expression may have when shared parts are written out


@record
class Staged:
    """Expressions, and the columns that they read beside those of the frame, stage by stage."""

    stages: tuple[tuple[pl.Expr, ...], ...]
    exprs: tuple[pl.Expr, ...]

    def prepared(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame with the columns that the expressions read."""
        for stage in self.stages:
            frame = frame.with_columns(stage)
        return frame


def together(parts: Sequence[Staged]) -> Staged:
    """The expressions of all parts, whose stages have different names."""
    stages = zip_longest(*(part.stages for part in parts), fillvalue=())
    exprs = tuple(expr for part in parts for expr in part.exprs)
    return Staged(tuple(tuple(expr for some in stage for expr in some) for stage in stages), exprs)


# -- cutting ----------------------------------------------------------------------------------------------------------


def staged(trees: Sequence[Tree], name: str) -> Staged:
    """Trees, ready to run; ``name`` is a prefix for the columns of stages."""
    everywhere = f"={name}=true"
    whole = trees[0] if len(trees) == 1 else syntax.call("AsStruct", *trees)  # what they share stays shared
    guarded = branches.guarded(whole, everywhere)
    trees = [guarded] if len(trees) == 1 else syntax.children(guarded)
    known = {} if guarded is whole else {everywhere: syntax.TRUE}
    if not all(map(_is_ordinary, trees)):
        return _Cutter(trees, name, dict.fromkeys(known, 1), list(known.items())).staged()
    stage = tuple(polars_json.build(tree).alias(column) for column, tree in known.items())
    return Staged((stage,) if stage else (), tuple(map(polars_json.build, trees)))


def _is_ordinary(tree: Tree) -> bool:
    sizes: dict[int, int] = {}
    for node in syntax.every(tree):
        sizes[id(node)] = 1 + sum(sizes[id(child)] for child in syntax.children(node))
    return sizes[id(tree)] <= len(sizes) + _FEW and not polars_json.is_deeper(tree, polars_json.DEEPEST)


@dataclass
class _Cutter:
    trees: Sequence[Tree]
    name: str
    levels: dict[str, int] = field(default_factory=dict)
    parts: list[tuple[str, Tree]] = field(default_factory=list)

    def staged(self) -> Staged:
        whole = syntax.call("AsStruct", *self.trees)
        nodes = syntax.nodes(whole, syntax.children)[:-1]
        self._scopes = scopes(nodes[::-1], self.trees)
        self._conditions: dict[int, Tree] = {}
        self._results: dict[int, Tree] = {}
        self._depths: dict[int, int] = {}
        is_shared = _shared(nodes)
        untyped: set[int] = set()
        is_named = {
            id(named)
            for node in nodes
            if syntax.operation(node) == "AsStruct"
            for child in syntax.children(node)
            for named in syntax.namers(child)
        }
        for node in nodes:
            inner = syntax.children(node)
            result = syntax.with_children(node, [self._results[id(child)] for child in inner])
            depth = polars_json.own_depth(node, [self._depths[id(child)] for child in inner])
            if syntax.is_untyped(node, untyped):
                untyped.add(id(node))
            elif (id(node) in is_shared or depth > _CUT) and self._may_be_column(node, is_named):
                result, depth = self._column(result, self._scopes[id(node)]), 5
            self._results[id(node)], self._depths[id(node)] = result, depth
        exprs = tuple(polars_json.build(self._results[id(tree)]) for tree in self.trees)
        stages: list[list[pl.Expr]] = [[] for _ in range(max(self.levels.values(), default=0))]
        for name, tree in self.parts:
            stages[self.levels[name] - 1].append(polars_json.build(tree).alias(name))
        return Staged(tuple(map(tuple, stages)), exprs)

    def _may_be_column(self, node: Tree, is_named: set[int]) -> bool:
        """Whether the result of a column in the place of a node is the same: a struct has the names of its parts."""
        return bool(syntax.children(node)) and id(node) not in is_named and not isinstance(node, syntax.Alias)

    def _column(self, tree: Tree, scope: Scope) -> Tree:
        """A part as a column, computed in the rows of its scope."""
        condition = self._condition(scope)
        return self._added(tree if condition is None else syntax.Choice(condition, tree, branches.NULL))

    def _added(self, tree: Tree) -> Tree:
        name = f"={self.name}={len(self.levels)}"  # no name of a column begins like this
        self.levels[name] = 1 + max((self.levels.get(column, 0) for column in syntax.columns(tree)), default=0)
        self.parts.append((name, tree))
        return syntax.Column(name)

    def _condition(self, scope: Scope) -> Tree | None:
        """The condition of a scope as a column, None where it has all rows."""
        path = []
        while scope.around is not None and id(scope) not in self._conditions:
            path.append(scope)
            scope = scope.around
        condition, depth = (self._conditions[id(scope)] if scope.around is not None else None), 0
        for number, step in enumerate(reversed(path), 1):
            predicate = syntax.children(step.choice)[0]
            depth = max(depth, self._depths[id(predicate)]) + 4
            condition = step.condition(self._results[id(predicate)], condition)
            if depth > _CUT or number == len(path):
                condition, depth = self._added(condition), 5
                self._conditions[id(step)] = condition
        return condition


def _shared(nodes: Sequence[Tree]) -> set[int]:
    """The nodes that several others name, where computing them once is worth a column."""
    sizes: dict[int, int] = {}
    named: dict[int, int] = {}
    for node in nodes:
        inner = syntax.children(node)
        sizes[id(node)] = 1 + sum(sizes[id(child)] for child in inner)
        for child in inner:
            named[id(child)] = named.get(id(child), 0) + 1
    return {id(node) for node in nodes if named.get(id(node), 0) > 1 and sizes[id(node)] >= _SMALL}
