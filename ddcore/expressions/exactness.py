"""Exact arithmetic in expressions: in Polars integers wrap around silently, here overflow is an error.

Each batch is evaluated in one of two ways with the same result. *Directly*, when the least and greatest values of its
columns prove that no intermediate integer overflows int64. Otherwise *widely*, with the integer operations in Int128
and the results cast back to int64, which fails if one does not fit. Intervals decide between the two: the interval of
an operation contains every result for operands in the operands' intervals.

Intermediate values may be as large as 126 bits; one beyond that is an error of its row. For decimals see
:mod:`ddcore.expressions.decimals`, for dates and times :mod:`ddcore.expressions.temporal`.

Floats are IEEE's and depend on the row alone. To divide a column by a single value, Polars multiplies by its
reciprocal, except for a column of one row; so every divisor becomes a full column, and each quotient is rounded once in
every batch.
"""

from __future__ import annotations

from typing import Protocol

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.expressions import decimals, polars_json, syntax, temporal, texts
from ddcore.expressions.intervals import GREATEST, INTERVALS, LEAST, Bounds, Overflow
from ddcore.expressions.syntax import Tree
from ddcore.expressions.terms import Interval, Term

DEEPEST_LITERAL = 40
"""How many brackets of JSON an expression of literals may have to be typed as a whole, by its neighbours."""
_SQL = {"Sql.Plus": "Plus", "Sql.Minus": "Minus", "Sql.Mul": "Multiply", "Sql.IntDiv": "TruncDivide"}
_ORDERED = {*syntax.ORDERINGS, "MaxHorizontal", "MinHorizontal", "Clip"}
_ON_LISTS = {"Plus", "Minus", "Multiply", "FloorDivide", "TruncDivide", "Modulus", "TrueDivide"}
_DIVISIONS = {"TrueDivide", "FloorDivide", "TruncDivide", "Modulus", "Sql.Div", "Sql.Rem", "Sql.IntDiv"}
_OF_FLOATS = {"ListExpr.Mean", "ListExpr.Median", "ListExpr.Std", "ListExpr.Var"}


class Types(Protocol):
    """Tells the types of trees over rows of one schema."""

    def __call__(self, trees: list[Tree]) -> list[pl.DataType]:
        """The types of the trees. Raises ProgramError where types do not meet."""
        ...

    def inside(self, dtype: pl.DataType) -> Types:
        """The types for trees over the elements of a list, which are a column whose name is empty."""
        ...


def analyse(tree: Tree, types: Types) -> Term:
    """The term of a tree: literals as int64, narrow integers widened, decimals scaled, every node typed.

    Raises ProgramError for arithmetic whose overflow cannot be detected (on whole lists and structs, on elements of
    lists) and for operations on decimals and durations that lose digits.
    """
    tree = _int64(syntax.rewrite(tree, _with_int64_literals))
    tree = _with_types_of_literals(tree)
    if any(isinstance(node, syntax.Eval) for node in syntax.every(tree)):
        tree = syntax.rewrite(tree, lambda node: _with_lists(node, types))
    tree = decimals.exact(tree, types)
    tree = _widen(tree, types)
    return _type(_fill_divisors(tree, types), types)


def _with_lists(tree: Tree, types: Types) -> Tree:
    """The node with the expressions inside of its list prepared like the rest."""
    if not isinstance(tree, syntax.Eval):
        return tree
    element = decimals.element(types(syntax.children(tree))[0])
    if element is None:
        raise ProgramError(
            f"the expression {texts.display(tree)} is not applied to a list", "split or concat_list first"
        )
    inside = types.inside(element)
    result = tree._replace(part=_element(tree, tree.part, inside))
    if polars_json.own_depth(result, []) > polars_json.DEEPEST:  # a part of it cannot become a column
        raise polars_json.too_deep(tree)
    return result


def _element(tree: Tree, part: Tree, types: Types) -> Tree:
    """The expression for each element: no arithmetic that could overflow, because the error could not name a row."""
    term = analyse(
        syntax.rewrite(part, lambda node: syntax.Column("") if isinstance(node, syntax.Element) else node), types
    )
    try:
        Bounds.of(term).bound({"": (LEAST, GREATEST)})
    except Overflow:
        raise _out_of_sight(tree) from None
    if temporal.guards(term, lambda inner: inner.tree):
        raise _out_of_sight(tree)
    return syntax.rewrite(term.tree, lambda node: syntax.Element() if node == syntax.Column("") else node)


def _fill_divisors(tree: Tree, types: Types) -> Tree:
    """The tree with the divisors of floats as full columns.

    A divisor that is one value for all rows (a literal, or a choice that takes one branch in this batch) would make
    the result depend on the batch. Adding a zero computed from a column gives it its full length. This turns -0.0 into
    0.0, as everywhere here.
    """
    divisions = [node for node in syntax.every(tree) if syntax.operation(node) in _DIVISIONS]
    if not divisions:
        return tree
    floats = {id(node) for node, dtype in zip(divisions, types(divisions), strict=True) if dtype.is_float()}

    least: dict[int, str | None] = {}

    def change(node: Tree, parts: list[Tree]) -> Tree:
        inner = syntax.children(node)
        names = [node.name] if isinstance(node, syntax.Column) else [least[id(child)] for child in inner]
        # the column of the elements inside of a list has the empty name
        name = least[id(node)] = min((candidate for candidate in names if candidate is not None), default=None)
        if id(node) in floats and name is not None and not isinstance(parts[1], syntax.Column):
            is_null = syntax.call("Boolean.IsNull", syntax.Column(name))
            zero = syntax.call("Multiply", syntax.Cast(is_null, pl.Float64()), syntax.Literal("Float64", 0.0))
            parts[1] = syntax.call("Plus", syntax.Cast(parts[1], pl.Float64()), zero)
        return syntax.with_children(node, parts)

    return syntax.fold(tree, change)


def _is_float_literal(node: Tree) -> bool:
    return any(isinstance(inner, syntax.Literal) and inner.dtype == "Float" for inner in syntax.every(node))


def _with_int64_literals(node: Tree) -> Tree:
    """Polars guesses a type for a Python integer; ours is int64. Options of functions are left as they are."""
    operation = syntax.operation(node)
    takes_values = operation in INTERVALS or operation.startswith(("Boolean.", "Sql."))
    if syntax.is_function(node) and not takes_values:
        return node
    return syntax.with_children(node, [_int64(child) for child in syntax.children(node)])


def _int64(node: Tree) -> Tree:
    match node:
        case syntax.Literal("Int", value):
            return syntax.Literal("Int64", value)
    return node


def _with_types_of_literals(tree: Tree) -> Tree:
    """The tree with a type for what has none because it is made of literals only, where that is deep.

    Such a part takes the type of its neighbours as a whole, so it cannot be typed, or computed, in pieces.
    """
    if not polars_json.is_deeper(tree, DEEPEST_LITERAL):
        return tree
    untyped: dict[int, int] = {}  # and their depths

    def change(node: Tree, parts: list[Tree]) -> Tree:
        result = syntax.with_children(node, parts)
        if syntax.is_untyped(node, untyped):
            depth = polars_json.own_depth(node, [untyped.get(id(child), 5) for child in syntax.children(node)])
            if depth > DEEPEST_LITERAL and _is_float_literal(node):
                return syntax.Cast(result, pl.Float64())
            untyped[id(node)] = depth
        return result

    return syntax.fold(tree, change)


def _widen(tree: Tree, types: Types) -> Tree:
    """The tree with every integer as Int64, so that no arithmetic happens in a narrower type."""
    types([tree])  # and so of all in it

    def change(node: Tree, parts: list[Tree]) -> Tree:
        dtype, *inner = types([node, *syntax.children(node)])
        return _widened(node, parts, dtype, inner)

    return syntax.fold(tree, change)


def _widened(tree: Tree, parts: list[Tree], dtype: pl.DataType, inner: list[pl.DataType]) -> Tree:
    """A node widened whose parts are widened already; ``inner``: the types of its children before that."""
    op = syntax.operation(tree)
    if dtype.is_integer() and op in INTERVALS:
        first = 1 if op == "Choice" else 0
        parts[first:] = [
            syntax.Cast(part, pl.Int64()) if kind == pl.Boolean() else part
            for part, kind in zip(parts[first:], inner[first:], strict=True)
        ]
    result = syntax.with_children(tree, parts)
    if dtype.is_integer() and op in _SQL:
        return syntax.call(_SQL[op], *parts)
    if op in _ORDERED and any(dtype.is_nested() for dtype in inner):
        raise ProgramError(
            f"the expression {texts.display(tree)} compares lists or structs, which have no order",
            "compare a field or an element, or ask for equality",
        )
    special = _special(result, dtype, op, parts, inner)
    if special is not None:
        return special
    if isinstance(tree, syntax.Cast) and tree.mode == "Strict" and dtype == pl.Int64() and inner[0].is_integer():
        return parts[0]  # already widened to int64
    return syntax.Cast(result, pl.Int64()) if dtype.is_integer() and dtype != pl.Int64() else result


def _special(tree: Tree, dtype: pl.DataType, op: str, parts: list[Tree], inner: list[pl.DataType]) -> Tree | None:
    """Functions that Polars computes in too narrow a type, or with results in no fixed order; None for the rest."""
    element = decimals.element(inner[0]) if inner else None
    if _is_unwatched(dtype, op, element):
        raise _out_of_sight(tree)
    if op == "ListExpr.Sum" and dtype.is_integer():
        return syntax.Cast(syntax.with_children(tree, [syntax.Cast(parts[0], pl.List(pl.Int128))]), pl.Int64())
    if op in _OF_FLOATS and element is not None and not element.is_float():
        return syntax.with_children(tree, [syntax.Cast(parts[0], pl.List(pl.Float64))])
    if isinstance(tree, syntax.Call) and op == "MeanHorizontal":
        return _mean(tree, parts, inner)
    if op == "ListExpr.SetOperation":
        return polars_json.applied(lambda lists: lists.list.sort(), tree)
    if op == "TrueDivide" and all(isinstance(dtype, pl.Duration) for dtype in inner) and inner[0] == inner[1]:
        return syntax.with_children(tree, [syntax.call("ToPhysical", part) for part in parts])
    return None


def _mean(tree: syntax.Call, parts: list[Tree], inner: list[pl.DataType]) -> Tree:
    """A mean without wrapping: of integers by their exact sum, of anything else in floats."""
    if not all(dtype.is_integer() or dtype == pl.Boolean() for dtype in inner):
        return syntax.with_children(tree, [syntax.Cast(part, pl.Float64()) for part in parts])

    def add_up(values: list[Tree]) -> Tree:
        return syntax.Call("SumHorizontal", tuple(values), tree.options)

    count = add_up([syntax.Cast(syntax.call("Boolean.IsNotNull", part), pl.Int64()) for part in parts])
    total = add_up(
        [part if kind.is_integer() else syntax.Cast(part, pl.Int64()) for part, kind in zip(parts, inner, strict=True)]
    )
    empty = syntax.call("EqValidity", count, syntax.Literal("Int64", 0))
    null = syntax.Literal("Null", "Int64")
    return syntax.call("TrueDivide", total, syntax.Choice(empty, null, count))


def _is_unwatched(dtype: pl.DataType, op: str, element: pl.DataType | None) -> bool:
    if dtype.is_nested() and op in _ON_LISTS:
        return True
    if op == "RoundSF" and dtype.is_integer():
        return True
    timed = element is not None and temporal.is_temporal(element)
    return timed and op in {"ListExpr.Sum", *_OF_FLOATS}


def _out_of_sight(tree: Tree) -> ProgramError:
    return ProgramError(
        f"the expression {texts.display(tree)} computes where overflow cannot be detected",
        "take lists apart with flat_map() first, round in float64, or compute with columns",
    )


_NARROW: dict[pl.DataType, Interval] = {
    pl.Int8(): (-(2**7), 2**7), pl.Int16(): (-(2**15), 2**15), pl.Int32(): (-(2**31), 2**31),
    pl.UInt8(): (0, 2**8), pl.UInt16(): (0, 2**16), pl.UInt32(): (0, 2**32), pl.Boolean(): (0, 1),
}  # fmt: skip


def _type(tree: Tree, types: Types) -> Term:
    types([tree])  # and so of all in it

    def term(node: Tree, parts: list[Term]) -> Term:
        result = Term(node, types([node])[0], parts=parts)
        op = syntax.operation(node)
        values = result.parts[1:] if op == "Choice" else result.parts
        if op in INTERVALS and result.dtype.is_integer() and all(part.is_int for part in values):
            result.op = op
        elif result.dtype.is_integer() and not isinstance(node, syntax.Column):
            result.interval = _leaf(node, result.parts)
        result.computes = bool(result.op) or any(part.computes for part in result.parts)
        return result

    return syntax.fold(tree, term)


def _leaf(node: Tree, parts: list[Term]) -> Interval:
    match node:
        case syntax.Literal("Int64", value):
            return value, value
        case syntax.Cast():
            return _NARROW.get(parts[0].dtype, (LEAST, GREATEST))
    return LEAST, GREATEST
