"""Branches of choices that must not fail in the rows that take another.

Polars computes a branch for all rows, and takes the columns in it for null where a row takes another branch. Most of
what can fail gives null for null. What makes a value of null does not, and could fail in a row that has nothing to do
with it: ``when(size > 0).then(name.fill_null("none").cast(int64))``. So what may fail is given null there, and knows
those rows by a column that is true: it too is null in them. Inside of lists Polars computes both branches for all
elements as they are; there what may fail is given null where the conditions around it say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import polars as pl

from ddcore.expressions import polars_json, syntax
from ddcore.expressions.syntax import Tree

NULL = syntax.Literal("Null", "Null")
_OF_NULLS = {"AsStruct", "Boolean.IsNotNull", "Boolean.IsNull", "EqValidity", "NotEqValidity", "Sql.EqMissing"}
"""Calls that have a value where all arguments are null."""
_ACROSS = ("Horizontal", ".Concat", ".Format")
"""How the names of others of these end, which put values together."""
_NULL_FOR_ONE = {*syntax.OPERATORS, "Boolean.IsBetween"} - {"And", "Or", "LogicalAnd", "LogicalOr", *_OF_NULLS}
"""Calls that are null where one argument is."""
_FIRST_OF = {"Coalesce", "FillNull"}
_NO_REASON = syntax.Literal("String", "0")
"""What a row has that does not fail; others have the reason in its place, which is no number and fails as one."""
_NEVER_FAIL = {*syntax.COMPARISONS, "And", "Or", "LogicalAnd", "LogicalOr", "Xor", *_OF_NULLS, *_FIRST_OF}
_ALWAYS_FIT = (pl.String, pl.Struct)
"""A cast to text does not fail; what structs are of has casts of its own."""


@dataclass(eq=False)
class Scope:
    """The rows that take one branch of a choice, of those of the scope around it."""

    around: Scope | None = None
    choice: Tree = syntax.TRUE
    taken: bool = True
    depth: int = 0

    def outwards(self) -> Iterator[Scope]:
        """This scope and those around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.around

    def within(
        self, tree: Tree, form: Callable[[Tree], Tree], conditions: dict[int, Tree], other: Tree = syntax.FALSE
    ) -> Tree:
        """A tree in the rows of the scope, and ``other`` in others.

        ``form``: what to compute for a predicate. ``conditions``: those of scopes met so far, by identity.
        """
        path = [outward for outward in self.outwards() if outward.around is not None]
        outer: Tree | None = None
        for scope in reversed(path):
            if id(scope) not in conditions:
                conditions[id(scope)] = scope.condition(form(syntax.children(scope.choice)[0]), outer)
            outer = conditions[id(scope)]
        return tree if outer is None else syntax.Choice(outer, tree, other)

    def condition(self, predicate: Tree, outer: Tree | None) -> Tree:
        """True for its rows and false for all others; ``outer``: the same of the scope around, None for all rows."""
        yes, no = (syntax.TRUE, syntax.FALSE) if self.taken else (syntax.FALSE, syntax.TRUE)
        here = syntax.Choice(predicate, yes, no)
        return here if outer is None else syntax.Choice(outer, here, syntax.FALSE)


def scopes(order: Sequence[Tree], roots: Sequence[Tree]) -> dict[int, Scope]:
    """For each node, by identity, the least scope with all rows that need it. ``order``: parents before children."""
    everything = Scope()
    found: dict[int, Scope] = {id(root): everything for root in roots}
    for node in order:
        scope = found[id(node)]
        for number, child in enumerate(syntax.children(node)):
            inner = scope
            if number and isinstance(node, syntax.Choice):
                inner = Scope(scope, node, number == 1, scope.depth + 1)
            known = found.get(id(child))
            found[id(child)] = inner if known is None else _common(known, inner)
    return found


def _common(one: Scope, other: Scope) -> Scope:
    while one is not other:
        if one.depth < other.depth:
            one, other = other, one
        assert one.around is not None  # only the outermost scope has the depth 0
        one = one.around
    return one


class _Value(IntEnum):
    """What a part is where all columns are null: null, a value that is the same in all rows anyway, or not known."""

    NULL = 0
    CONSTANT = 1
    UNKNOWN = 2


def guarded(tree: Tree, column: str) -> Tree:
    """The tree, in whose branches nothing fails in rows that do not take them. ``column``: the name of a column that is
    true in all rows; the tree reads it where there is something to guard.
    """
    nodes = syntax.every(tree)
    if any(isinstance(node, syntax.Eval) for node in nodes):
        tree = syntax.rewrite(tree, _inside_lists)
        nodes = syntax.every(tree)
    inside = _inside(nodes)
    if not any(id(node) in inside and _may_fail(node) for node in nodes):
        return tree
    here = syntax.Column(column)

    def guard(node: Tree, value: _Value, part: Tree) -> Tree:
        return syntax.Choice(here, part, NULL) if id(node) in inside and value != _Value.NULL else part

    return _changed(tree, guard, {})


def _inside_lists(node: Tree) -> Tree:
    """The node; if that is an expression of the elements of a list, with its branches guarded."""
    if not isinstance(node, syntax.Eval) or not any(isinstance(part, syntax.Choice) for part in syntax.walk(node.part)):
        return node
    part = syntax.rewrite(node.part, _inside_lists)
    around = scopes(syntax.every(part)[::-1], [part])
    conditions: dict[int, Tree] = {}
    ready: dict[int, Tree] = {}

    def guard(node: Tree, _: _Value, part: Tree) -> Tree:
        return around[id(node)].within(part, lambda predicate: ready[id(predicate)], conditions, NULL)

    result = node._replace(part=_changed(part, guard, ready))
    if polars_json.own_depth(result, []) > polars_json.DEEPEST:
        raise polars_json.too_deep(node)
    return result


def _changed(tree: Tree, guard: Callable[[Tree, _Value, Tree], Tree], ready: dict[int, Tree]) -> Tree:
    """The tree with guards around what calls and casts are given that may fail. ``guard``: a part in its guard, of the
    node that reads it and the value of that; ``ready``: what was made of each node so far, by identity.
    """
    values: dict[int, _Value] = {}
    for node in syntax.every(tree):
        inner = syntax.children(node)
        value = values[id(node)] = _value(node, [values[id(child)] for child in inner])
        parts = [ready[id(child)] for child in inner]
        if _may_fail(node):
            parts = [
                guard(node, value, part) if values[id(child)] == _Value.UNKNOWN else part
                for part, child in zip(parts, inner, strict=True)
            ]
        ready[id(node)] = syntax.with_children(node, parts)
    return ready[id(tree)]


def _inside(nodes: Sequence[Tree]) -> set[int]:
    """The nodes in branches, by identity. ``nodes``: children before parents."""
    found = {id(branch) for node in nodes if isinstance(node, syntax.Choice) for branch in (node.truthy, node.falsy)}
    if found:
        for node in reversed(nodes):
            if id(node) in found:
                found.update(map(id, syntax.children(node)))
    return found


def _value(node: Tree, inner: list[_Value]) -> _Value:
    match node:
        case syntax.Column():
            return _Value.NULL
        case syntax.Literal():
            return _Value.NULL if node.dtype == "Null" else _Value.CONSTANT
        case syntax.Choice():
            is_fine = inner[0] == _Value.NULL and node.falsy == _NO_REASON
            taken = inner[2:] if inner[0] == _Value.NULL else inner[1:]
            return _Value.CONSTANT if is_fine else _Value.UNKNOWN if any(taken) else _Value.NULL
        case syntax.Cast(expr) if _is_truth(expr):
            return _Value.CONSTANT  # one of two numbers, which do not fail for being one or the other
        case syntax.Call():
            return _value_of_call(node.name, inner)
    return max(inner, default=_Value.UNKNOWN)


def _value_of_call(name: str, inner: list[_Value]) -> _Value:
    if name in _OF_NULLS or name.endswith(_ACROSS):
        return _Value.UNKNOWN
    if name in _FIRST_OF:
        return _Value.UNKNOWN if any(inner) else _Value.NULL
    if name in _NULL_FOR_ONE and _Value.NULL in inner:
        return _Value.NULL
    if "." in name and inner[:1] == [_Value.NULL]:
        return _Value.NULL  # functions of a text, a date, a list, which are null where that is
    values = set(inner)
    return values.pop() if len(values) == 1 else _Value.UNKNOWN


def _may_fail(node: Tree) -> bool:
    match node:
        case syntax.Cast(expr, dtype, mode):
            return mode == "Strict" and not isinstance(dtype, _ALWAYS_FIT) and not _is_truth(expr)
        case syntax.Call():
            return node.name not in _NEVER_FAIL and not (
                node.name.endswith(_ACROSS) or node.name.startswith(("Boolean.", "MapExpr.", "StructExpr."))
            )
    return False


def _is_truth(node: Tree) -> bool:
    return isinstance(node, syntax.Call) and (node.name.startswith("Boolean.") or node.name in syntax.COMPARISONS)
