"""Exact arithmetic in expressions: in Polars integers wrap around silently, here overflow is an error.

Each batch is evaluated in one of two ways with the same result. *Directly*, when the least and greatest values of its
columns prove that no intermediate integer overflows int64. Otherwise *widely*, with the integer operations in Int128
and the results cast back to int64, which fails if one does not fit. Intervals decide between the two: the interval of
an operation contains every result for operands in the operands' intervals.

Intermediate values may be as large as 126 bits; one beyond that is an error of its row. For decimals see
:mod:`ddcore.decimals`, for dates and times :mod:`ddcore.temporal`.

Floats are IEEE's and depend on the row alone. To divide a column by a single value, Polars multiplies by its
reciprocal, except for a column of one row; so every divisor becomes a full column, and each quotient is rounded once in
every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from ddcore import decimals, syntax, temporal, vocabulary
from ddcore.errors import ProgramError
from ddcore.syntax import Tree
from ddcore.temporal import Guard

Interval = tuple[int, int]
Intervals = Mapping[str, Interval]

LEAST, GREATEST = -(2**63), 2**63 - 1
_GUARDED = 2**126
_MOST_POWER = 128
_COMPARISONS = {
    "Eq", "NotEq", "Lt", "LtEq", "Gt", "GtEq", "EqValidity", "NotEqValidity", "TrueDivide", "Sql.Div",
    "Sql.Eq", "Sql.EqMissing", "Sql.Lt", "Sql.LtEq", "Sql.Gt", "Sql.GtEq", "Boolean.IsBetween", "Boolean.IsNull",
    "Boolean.IsNotNull",
}  # fmt: skip
_SQL = {"Sql.Plus": "Plus", "Sql.Minus": "Minus", "Sql.Mul": "Multiply", "Sql.IntDiv": "TruncDivide"}
_ORDERED = {
    "Lt", "LtEq", "Gt", "GtEq", "Sql.Lt", "Sql.LtEq", "Sql.Gt", "Sql.GtEq", "Boolean.IsBetween", "MaxHorizontal",
    "MinHorizontal", "Clip",
}  # fmt: skip
_ON_LISTS = {"Plus", "Minus", "Multiply", "FloorDivide", "TruncDivide", "Modulus", "TrueDivide"}
_ASCENDING = {
    "descending": False, "nulls_last": False, "multithreaded": False, "maintain_order": False, "limit": None,
}  # fmt: skip
_DIVISIONS = {"TrueDivide", "FloorDivide", "TruncDivide", "Modulus", "Sql.Div", "Sql.Rem", "Sql.IntDiv"}
_OF_FLOATS = {"ListExpr.Mean", "ListExpr.Median", "ListExpr.Std", "ListExpr.Var"}


class Types(Protocol):
    """Tells the types of trees over rows of one schema."""

    def __call__(self, trees: list[Tree]) -> list[pl.DataType]:
        """The types of the trees. Raises ProgramError where types do not meet."""
        ...

    def inside(self, dtype: pl.DataType) -> Types:
        """The same for trees over the elements of a list, as a column whose name is empty."""
        ...


@dataclass(slots=True)
class Term:
    """A node with its type. ``op`` is what it does to integers, or empty where it does no integer arithmetic.

    ``interval`` bounds the values of an integer that is not computed by ``op``; a column's comes with the batch.
    """

    tree: Tree
    dtype: pl.DataType
    op: str = ""
    parts: list[Term] = field(default_factory=list)
    interval: Interval | None = None
    computes: bool = False

    @property
    def is_int(self) -> bool:
        """Whether the values are integers (a bare null counts as one)."""
        return self.dtype.is_integer() or self.dtype == pl.Null()


class Overflow(Exception):
    """Some intermediate value may be outside of int64."""


# -- intervals --------------------------------------------------------------------------------------------------------


def _hull(*parts: Interval) -> Interval:
    return min(low for low, _ in parts), max(high for _, high in parts)


def _times(left: Interval, right: Interval) -> Interval:
    corners = [one * other for one in left for other in right]
    return min(corners), max(corners)


def _quotient(left: Interval, right: Interval) -> Interval:
    """Floored or truncated; dividing never makes an integer larger, and by zero it gives null."""
    most = max(abs(left[0]), abs(left[1]))
    return (0 if left[0] >= 0 and right[0] >= 0 else -most), most


def _remainder(left: Interval, right: Interval) -> Interval:
    """With the sign of the divisor (Polars) or of the dividend (SQL)."""
    most = max(abs(right[0]), abs(right[1]), 1) - 1
    return (0 if left[0] >= 0 and right[0] >= 0 else -most), most


def _absolute(part: Interval) -> Interval:
    low, high = part
    return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _power(base: Interval, exponent: Interval) -> Interval:
    """Polars refuses negative exponents. A huge exponent is cut: any power that matters is out of range by then."""
    most = max(abs(base[0]), abs(base[1]), 1) ** min(max(exponent[1], 0), _MOST_POWER)
    return (0 if base[0] >= 0 else -most), most


def _sum(*parts: Interval) -> Interval:
    return sum(min(low, 0) for low, _ in parts), sum(max(high, 0) for _, high in parts)


_INTERVALS: dict[str, Callable[..., Interval]] = {
    "Plus": lambda left, right: (left[0] + right[0], left[1] + right[1]),
    "Minus": lambda left, right: (left[0] - right[1], left[1] - right[0]),
    "Multiply": _times,
    "FloorDivide": _quotient,
    "TruncDivide": _quotient,
    "Modulus": _remainder,
    "Sql.Rem": _remainder,
    "Negate": lambda part: (-part[1], -part[0]),
    "Abs": _absolute,
    "Sign": lambda _: (-1, 1),
    "Pow.Generic": _power,
    "SumHorizontal": _sum,
    "Ternary": lambda _, *parts: _hull(*parts),
    "FillNull": _hull,
    "Coalesce": _hull,
    "MaxHorizontal": _hull,
    "MinHorizontal": _hull,
    "Clip": _hull,
    "Alias": _hull,
}
_GROWING = {"Plus", "Minus", "Multiply", "Pow.Generic", "SumHorizontal"}


def bound(term: Term, columns: Intervals, limit: int | None = GREATEST) -> Interval:
    """The interval of a term's values for columns in these intervals: O(size of the term).

    Raises Overflow when any integer inside may leave ``[-limit - 1, limit]``. Terms that are no integers give (0, 0).
    """
    inner = [bound(part, columns, limit) for part in term.parts]
    if not term.op:
        if term.interval is not None:
            return term.interval
        return columns.get(term.tree["Column"], (0, 0)) if syntax.kind(term.tree) == "Column" else (0, 0)
    low, high = _INTERVALS[term.op](*inner)
    if limit is not None and (low < -limit - 1 or high > limit):
        raise Overflow
    return low, high


# -- from trees to terms ----------------------------------------------------------------------------------------------


def analyse(tree: Tree, types: Types) -> Term:
    """The term of a tree: literals as int64, narrow integers widened, decimals scaled, every node typed.

    Raises ProgramError for arithmetic whose overflow cannot be detected (on whole lists and structs, on elements of
    lists) and for operations on decimals and durations that lose digits.
    """
    tree = _int64(syntax.rewrite(tree, _with_int64_literals))
    tree = _with_lists(tree, types)
    tree = decimals.exact(tree, types)
    tree = _widen(tree, _types_of(tree, types))
    return _type(_fill_divisors(tree, types), types)


def _with_lists(tree: Tree, types: Types) -> Tree:
    """The tree with the expressions inside of lists prepared like the rest."""
    parts = [_with_lists(part, types) for part in syntax.children(tree)]
    tree = syntax.with_children(tree, parts)
    if syntax.kind(tree) != "Eval":
        return tree
    body = tree["Eval"]
    element = decimals.element(types(parts)[0])
    if element is None:
        raise ProgramError(
            f"the expression {syntax.display(tree)} is not applied to a list", "split or concat_list first"
        )
    inside = types.inside(element)
    _, elements = vocabulary.inside_list(body)
    new = [_element(tree, part, inside) for part in elements]
    return {"Eval": body | {"evaluation": vocabulary.with_inside(body, new)}}


def _element(tree: Tree, part: Tree, types: Types) -> Tree:
    """The expression for each element: no arithmetic that could overflow, because the error could not name a row."""
    term = analyse(syntax.rewrite(part, _element_to_column), types)
    try:
        bound(term, {"": (LEAST, GREATEST)})
    except Overflow:
        raise _out_of_sight(tree) from None
    if temporal.guards(term, _own_tree):
        raise _out_of_sight(tree)
    return syntax.rewrite(term.tree, _column_to_element)


def _element_to_column(node: Tree) -> Tree:
    return {"Column": ""} if node == "Element" else node


def _column_to_element(node: Tree) -> Tree:
    return "Element" if node == {"Column": ""} else node


def _own_tree(term: Term) -> Tree:
    return term.tree


def _fill_divisors(tree: Tree, types: Types) -> Tree:
    """The tree with the divisors of floats as full columns.

    A divisor that is one value for all rows (a literal, or a choice that takes one branch in this batch) would make
    the result depend on the batch. Adding a zero computed from a column gives it its full length. This turns -0.0 into
    0.0, as everywhere here.
    """
    divisions = [node for node in syntax.walk(tree) if syntax.operation(node) in _DIVISIONS]
    if not divisions:
        return tree
    floats = {id(node) for node, dtype in zip(divisions, types(divisions), strict=True) if dtype.is_float()}

    def change(node: Tree) -> Tree:
        parts = [change(part) for part in syntax.children(node)]
        names = syntax.columns(node)
        if id(node) in floats and names and syntax.kind(parts[1]) != "Column":
            zero = syntax.binary("Multiply", syntax.cast(_is_null(names[0]), "Float64"), _number(0.0))
            parts[1] = syntax.binary("Plus", syntax.cast(parts[1], "Float64"), zero)
        return syntax.with_children(node, parts)

    return change(tree)


def _is_null(name: str) -> Tree:
    return syntax.boolean("IsNull", {"Column": name})


def _number(value: float) -> Tree:
    return {"Literal": {"Scalar": {"Float64": value}}}


def _with_int64_literals(node: Tree) -> Tree:
    """Polars guesses a type for a Python integer; ours is int64. Options of functions are left as they are."""
    operation = syntax.operation(node)
    takes_values = operation in _INTERVALS or operation.startswith(("Boolean.", "Sql."))
    if syntax.kind(node) == "Function" and not takes_values:
        return node
    return syntax.with_children(node, [_int64(child) for child in syntax.children(node)])


def _int64(node: Tree) -> Tree:
    match node:
        case {"Literal": {"Dyn": {"Int": int(value)}}}:
            return {"Literal": {"Scalar": {"Int64": value}}}
    return node


def _types_of(tree: Tree, types: Types) -> dict[int, pl.DataType]:
    nodes = list(syntax.walk(tree))
    return dict(zip(map(id, nodes), types(nodes), strict=True))


def _widen(tree: Tree, types: dict[int, pl.DataType]) -> Tree:
    """The tree with every integer as Int64, so that no arithmetic happens in a narrower type."""
    dtype, op = types[id(tree)], syntax.operation(tree)
    inner = syntax.children(tree)
    parts = [_widen(child, types) for child in inner]
    if dtype.is_integer() and op in _INTERVALS:
        bools = [types[id(child)] == pl.Boolean() for child in inner]
        first = 1 if op == "Ternary" else 0
        parts[first:] = [
            syntax.cast(part, "Int64") if is_bool else part
            for part, is_bool in zip(parts[first:], bools[first:], strict=True)
        ]
    result = syntax.with_children(tree, parts)
    if dtype.is_integer() and op in _SQL:
        return syntax.binary(_SQL[op], *parts)
    if op in _ORDERED and any(types[id(child)].is_nested() for child in inner):
        raise ProgramError(
            f"the expression {syntax.display(tree)} compares lists or structs, which have no order",
            "compare a field or an element, or ask for equality",
        )
    special = _special(result, dtype, op, parts, [types[id(child)] for child in inner])
    if special is not None:
        return special
    if (
        op == "Cast"
        and tree["Cast"]["options"] == "Strict"
        and dtype == pl.Int64()
        and types[id(inner[0])].is_integer()
    ):
        return parts[0]  # already widened to int64
    return syntax.cast(result, "Int64") if dtype.is_integer() and dtype != pl.Int64() else result


def _special(tree: Tree, dtype: pl.DataType, op: str, parts: list[Tree], inner: list[pl.DataType]) -> Tree | None:
    """Functions that Polars computes in too narrow a type, or with results in no fixed order; None for the rest."""
    element = decimals.element(inner[0]) if inner else None
    if _is_unwatched(dtype, op, element):
        raise _out_of_sight(tree)
    if op == "ListExpr.Sum" and dtype.is_integer():
        return syntax.cast(syntax.with_children(tree, [syntax.cast(parts[0], {"List": "Int128"})]), "Int64")
    if op in _OF_FLOATS and element is not None and not element.is_float():
        return syntax.with_children(tree, [syntax.cast(parts[0], {"List": "Float64"})])
    if op == "MeanHorizontal":
        return _mean(tree, parts, inner)
    if op == "ListExpr.SetOperation":
        return {"Function": {"input": [tree], "function": {"ListExpr": {"Sort": _ASCENDING}}}}
    if op == "TrueDivide" and all(isinstance(each, pl.Duration) for each in inner) and inner[0] == inner[1]:
        return syntax.with_children(tree, [syntax.function("ToPhysical", part) for part in parts])
    return None


def _mean(tree: Tree, parts: list[Tree], inner: list[pl.DataType]) -> Tree:
    """A mean without wrapping: of integers by their exact sum, of anything else in floats."""
    if not all(each.is_integer() or each == pl.Boolean() for each in inner):
        return syntax.with_children(tree, [syntax.cast(part, "Float64") for part in parts])

    def add_up(values: list[Tree]) -> Tree:
        return {"Function": {"input": values, "function": {"SumHorizontal": syntax.named(tree)[1]}}}

    count = add_up([syntax.cast(syntax.boolean("IsNotNull", part), "Int64") for part in parts])
    none: Tree = {"Literal": {"Scalar": {"Int64": 0}}}
    total = add_up(
        [part if each.is_integer() else syntax.cast(part, "Int64") for part, each in zip(parts, inner, strict=True)]
    )
    empty = syntax.binary("EqValidity", count, none)
    null: Tree = {"Literal": {"Scalar": {"Null": "Int64"}}}
    return syntax.binary("TrueDivide", total, syntax.ternary(empty, null, count))


def _is_unwatched(dtype: pl.DataType, op: str, element: pl.DataType | None) -> bool:
    if dtype.is_nested() and op in _ON_LISTS:
        return True
    if op == "RoundSF" and dtype.is_integer():
        return True
    timed = element is not None and temporal.is_temporal(element)
    return timed and op in {"ListExpr.Sum", *_OF_FLOATS}


def _out_of_sight(tree: Tree) -> ProgramError:
    return ProgramError(
        f"the expression {syntax.display(tree)} computes where overflow cannot be detected",
        "take lists apart with flat_map() first, round in float64, or compute with columns",
    )


_NARROW: dict[pl.DataType, Interval] = {
    pl.Int8(): (-(2**7), 2**7), pl.Int16(): (-(2**15), 2**15), pl.Int32(): (-(2**31), 2**31),
    pl.UInt8(): (0, 2**8), pl.UInt16(): (0, 2**16), pl.UInt32(): (0, 2**32), pl.Boolean(): (0, 1),
}  # fmt: skip


def _type(tree: Tree, types: Types) -> Term:
    dtypes = _types_of(tree, types)

    def term(node: Tree) -> Term:
        result = Term(node, dtypes[id(node)], parts=[term(child) for child in syntax.children(node)])
        op = syntax.operation(node)
        values = result.parts[1:] if op == "Ternary" else result.parts
        if op in _INTERVALS and result.dtype.is_integer() and all(part.is_int for part in values):
            result.op = op
        elif result.dtype.is_integer() and syntax.kind(node) != "Column":
            result.interval = _leaf(node, result.parts)
        result.computes = bool(result.op) or any(part.computes for part in result.parts)
        return result

    return term(tree)


def _leaf(node: Tree, parts: list[Term]) -> Interval:
    match node:
        case {"Literal": {"Scalar": {"Int64": int(value)}}}:
            return value, value
        case {"Cast": _}:
            return _NARROW.get(parts[0].dtype, (LEAST, GREATEST))
    return LEAST, GREATEST


# -- the wide way -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Wide:
    """A tree that computes in Int128, and guards for the rows where even that is too narrow."""

    tree: Tree
    guards: list[Guard]


def widen(term: Term) -> Wide:
    """The wide form of a term. An integer's is an Int128 column, whose range the caller checks."""
    vast: list[Tree] = []
    tree = _wide(term, vast) if term.op else _exact(term, vast)
    guards = [Guard(0, tree, "an intermediate integer has more than 126 bits") for tree in vast]
    return Wide(tree, guards + temporal.guards(term, lambda part: _exact(part, [])))


def _wide(term: Term, guards: list[Tree]) -> Tree:
    """An integer term as Int128."""
    if not term.op:
        return syntax.cast(_exact(term, guards), "Int128")
    if term.op == "Ternary":
        parts = [_exact(term.parts[0], guards), *(_wide(part, guards) for part in term.parts[1:])]
    else:
        parts = [_wide(part, guards) for part in term.parts]
    if term.op in _GROWING and _is_vast(term):
        guards.append(_guard(term.op, parts))
    if term.op == "Negate":  # Polars has no negation of Int128
        return syntax.binary("Minus", syntax.cast({"Literal": {"Scalar": {"Int64": 0}}}, "Int128"), parts[0])
    return syntax.with_children(term.tree, parts)


def _exact(term: Term, guards: list[Tree]) -> Tree:
    """A term of any type, computed from wide integers if it has integer operands, in its own type."""
    if not term.computes:
        return term.tree
    if term.op:
        return syntax.cast(_wide(term, guards), "Int64")
    parts, operation = term.parts, syntax.operation(term.tree)
    if operation in _COMPARISONS and all(part.is_int for part in parts):
        return syntax.with_children(term.tree, [_wide(part, guards) for part in parts])
    if operation == "Boolean.IsIn" and parts[0].is_int:
        return syntax.with_children(term.tree, [_wide(parts[0], guards), _exact(parts[1], guards)])
    if operation == "Cast" and (term.dtype.is_numeric() or term.dtype in (pl.String(), pl.Boolean())):
        return syntax.with_children(term.tree, [(_wide if part.op else _exact)(part, guards) for part in parts])
    to_float = any(part.dtype.is_float() for part in parts) and (
        syntax.kind(term.tree) == "BinaryExpr" or operation.startswith("Sql.")
    )
    return syntax.with_children(
        term.tree,
        [
            syntax.cast(_wide(part, guards), "Float64") if to_float and part.op else _exact(part, guards)
            for part in parts
        ],
    )


def _is_vast(term: Term) -> bool:
    low, high = bound(term, dict.fromkeys(syntax.columns(term.tree), (LEAST, GREATEST)), None)
    return low < -_GUARDED or high > _GUARDED


def _guard(op: str, parts: list[Tree]) -> Tree:
    """True where the operation on these Int128 parts may overflow Int128, computed in floating point."""
    sizes = [syntax.function("Abs", syntax.cast(part, "Float64")) for part in parts]
    total = sizes[0]
    for size in sizes[1:]:
        if op == "Pow.Generic":
            total = {"Function": {"input": [total, size], "function": {"Pow": "Generic"}}}
        else:
            total = syntax.binary("Multiply" if op == "Multiply" else "Plus", total, size)
    return syntax.binary("GtEq", total, {"Literal": {"Scalar": {"Float64": float(_GUARDED)}}})
