"""Expressions as trees of our own: columns, literals, calls, casts, choices. They are checked, typed, rewritten, and
written as text by :mod:`ddcore.expressions.texts`.

:mod:`ddcore.expressions.polars_json` reads them from Polars' expressions and lowers them to such.

A part that several others name is one node with several parents. All functions here visit it once, and none of them
recurses: their cost is linear in the nodes, however deep a tree is.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Container, Iterator
from operator import is_
from typing import Any, NamedTuple, TypeVar

import polars as pl

OPERATORS = {
    "Plus": "+", "Minus": "-", "Multiply": "*", "TrueDivide": "/", "FloorDivide": "//", "TruncDivide": "div",
    "Modulus": "%", "Eq": "=", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">=", "EqValidity": "==",
    "NotEqValidity": "!==", "And": "and", "Or": "or", "Xor": "xor", "LogicalAnd": "and", "LogicalOr": "or",
}  # fmt: skip
"""Calls of two arguments that are written between them, and how."""
ORDERINGS = {"Lt", "LtEq", "Gt", "GtEq", "Sql.Lt", "Sql.LtEq", "Sql.Gt", "Sql.GtEq", "Boolean.IsBetween"}
COMPARISONS = {*ORDERINGS, "Eq", "NotEq", "EqValidity", "NotEqValidity", "Sql.Eq", "Sql.EqMissing"}
"""Calls whose result is a truth about the order of values, or about their equality too."""

_T = TypeVar("_T")


class Column(NamedTuple):
    """A column by its name."""

    name: str


class Literal(NamedTuple):
    """A value. ``dtype``: the name of its type; ``is_typed``: whether it keeps that beside values of other types, which
    Python's numbers and texts in an expression do not.

    A list is the bytes of an Arrow stream of one column, a timestamp (ticks, unit, zone), a decimal (unscaled, digits,
    scale), null the type that it has.
    """

    dtype: str
    value: Any
    is_typed: bool = True


class Call(NamedTuple):
    """A function or operator by its name, ``Family.Name`` for those that are kept in families. ``options``: what is the
    same for all rows, as :mod:`ddcore.expressions.polars_json` has read it; an empty tuple for none.
    """

    name: str
    args: tuple[Tree, ...]
    options: Any = ()


class Cast(NamedTuple):
    """A value as another type; ``mode``: ``Strict`` (what does not fit is an error), ``NonStrict``, ``Overflowing``."""

    expr: Tree
    dtype: pl.DataType
    mode: str = "Strict"


class Choice(NamedTuple):
    """When a predicate is true, then one value, otherwise another; each is evaluated for the rows that take it."""

    predicate: Tree
    truthy: Tree
    falsy: Tree


class Alias(NamedTuple):
    """A value with a name."""

    expr: Tree
    name: str


class Renamed(NamedTuple):
    """A value whose name follows from others by a rule."""

    expr: Tree
    rule: Any


class Eval(NamedTuple):
    """An expression of the elements of each list: ``part`` for each element, then ``whole`` (``Unique``, ``Any``, ...;
    empty: nothing) on all of them. ``variant``: whether the result is a list.
    """

    expr: Tree
    part: Tree
    whole: str
    options: Any
    variant: Any


class Element(NamedTuple):
    """The element of the list, in the part of an :class:`Eval`."""


class Foreign(NamedTuple):
    """What is no expression of single rows: a sum, a window, a selector. ``shown``: as a message names it."""

    kind: str
    body: Any
    shown: str


Tree = Column | Literal | Call | Cast | Choice | Alias | Renamed | Eval | Element | Foreign
"""A node, with all that is below it: immutable, and told from others by identity. Named tuples: frozen dataclasses take
five times as long to be defined, when a command starts.
"""
TRUE, FALSE = Literal("Boolean", True), Literal("Boolean", False)


def call(name: str, *args: Tree) -> Tree:
    """A call without options, for example ``call("Plus", left, right)``."""
    return Call(name, args)


def is_operator(tree: Tree) -> bool:
    """Whether a node is a call that is written between its arguments."""
    return isinstance(tree, Call) and tree.name in OPERATORS


def is_function(tree: Tree) -> bool:
    """Whether a node is any other call."""
    return isinstance(tree, Call) and tree.name not in OPERATORS


def is_selector(tree: Tree) -> bool:
    """Whether a node may stand for any number of columns."""
    return isinstance(tree, Foreign) and tree.kind == "Selector"


_CHILDREN: dict[type, Callable[[Any], list[Tree]]] = {
    Call: lambda call: list(call.args),
    Choice: lambda choice: [choice.predicate, choice.truthy, choice.falsy],
    **dict.fromkeys((Cast, Alias, Renamed, Eval), lambda node: [node.expr]),
}


def children(tree: Tree) -> list[Tree]:
    """The subtrees from whose values, row by row, a node's value is computed."""
    inner = _CHILDREN.get(type(tree))
    return [] if inner is None else inner(tree)


def with_children(tree: Tree, new: list[Tree]) -> Tree:
    """The node with other subtrees in the places of :func:`children`."""
    if all(map(is_, children(tree), new)):
        return tree
    match tree:
        case Call():
            return Call(tree.name, tuple(new), tree.options)
        case Choice():
            return Choice(*new)
        case Cast() | Alias() | Renamed() | Eval():
            return tree._replace(expr=new[0])
    return tree


def nodes(tree: _T, inner: Callable[[_T], list[_T]]) -> list[_T]:
    """Every node once, children before parents."""
    found: list[_T] = []
    done: set[int] = set()
    waiting: list[tuple[_T, list[_T] | None]] = [(tree, None)]
    while waiting:
        node, below = waiting.pop()
        if id(node) in done:
            continue
        if below is None and (below := inner(node)):
            waiting.append((node, below))
            waiting += [(child, None) for child in below[::-1] if id(child) not in done]
        else:
            done.add(id(node))
            found.append(node)
    return found


_LATEST: dict[int, tuple[Tree, list[Tree]]] = {}
"""Trees by what Python calls their identity, which is theirs as long as they are here, and their nodes."""
_MOST_KEPT = 4096


def every(tree: Tree) -> list[Tree]:
    """Every node once, children before parents. Planning goes through a tree some fifteen times, one soon after the
    other: those of the latest trees are kept, and must not be changed.
    """
    known = _LATEST.get(id(tree))
    if known is not None:
        return known[1]
    if len(_LATEST) >= _MOST_KEPT:
        _LATEST.clear()
    found = nodes(tree, children)
    _LATEST[id(tree)] = tree, found
    return found


def fold(tree: Tree, change: Callable[[Tree, list[Any]], _T]) -> _T:
    """What ``change`` makes of the tree, from each node and the results of its children."""
    results: dict[int, _T] = {}
    for node in every(tree):
        results[id(node)] = change(node, [results[id(child)] for child in children(node)])
    return results[id(tree)]


def walk(tree: Tree) -> Iterator[Tree]:
    """Every node once, parents before children."""
    seen: set[int] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting += reversed(children(node))


def rewrite(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """The tree with ``change`` applied to every node, children first."""
    return fold(tree, lambda node, parts: change(with_children(node, parts)))


def bare(tree: Tree) -> Tree:
    """The tree without the names its top gives to the result."""
    while isinstance(tree, Alias | Renamed):
        tree = tree.expr
    return tree


def operation(tree: Tree) -> str:
    """The operation of a node: the name of a call, else the kind of the node."""
    return tree.name if isinstance(tree, Call) else tree.kind if isinstance(tree, Foreign) else type(tree).__name__


def columns(tree: Tree) -> list[str]:
    """Names of the columns a tree reads, sorted."""
    if isinstance(tree, Column):
        return [tree.name]
    return sorted({node.name for node in every(tree) if isinstance(node, Column)})


def namers(tree: Tree) -> Iterator[Tree]:
    """A tree and the nodes in it, from the top, from which Polars takes the name of its result."""
    while True:
        yield tree
        match tree:
            case Column() | Alias() | Call("StructExpr.FieldByName"):
                return
            case Choice():
                tree = tree.truthy
            case _:
                inner = children(tree)
                if not inner:
                    return
                tree = inner[0]


def result_name(tree: Tree) -> str | None:
    """What Polars calls the result of a tree, where that does not depend on a rule for names."""
    for node in namers(tree):
        match node:
            case Column(name) | Alias(_, name):
                return name
            case Call("StructExpr.FieldByName"):
                return str(node.options)
            case Renamed():
                return None
    return "literal" if isinstance(node, Literal) else None


def is_untyped(node: Tree, known: Container[int]) -> bool:
    """Whether a node may take its type from its neighbours, as literals of Python do.

    ``known``: the nodes inside it that do, by identity.
    """
    match node:
        case Literal():
            return not node.is_typed or (node.dtype, node.value) == ("Null", "Null")
        case Choice():
            return id(node.truthy) in known and id(node.falsy) in known
        case Call() | Alias():
            return all(id(child) in known for child in children(node))
    return False


# -- text -------------------------------------------------------------------------------------------------------------
def values(literal: Literal) -> pl.Series:
    """The values of a list."""
    return pl.read_ipc_stream(io.BytesIO(literal.value)).to_series()
