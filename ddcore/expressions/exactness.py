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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.expressions import decimals, polars_json, syntax, temporal
from ddcore.expressions.syntax import Tree
from ddcore.expressions.temporal import Guard
from ddcore.expressions.terms import Interval, Term

Intervals = Mapping[str, Interval]

LEAST, GREATEST = -(2**63), 2**63 - 1
_GUARDED = 2**126
_VAST = 2**256  # where intervals end: beyond the guards, one is as good as another
DEEPEST_LITERAL = 40
"""How many brackets of JSON an expression of literals may have to be typed as a whole, by its neighbours."""
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
    "Choice": lambda _, *parts: _hull(*parts),
    "FillNull": _hull,
    "Coalesce": _hull,
    "MaxHorizontal": _hull,
    "MinHorizontal": _hull,
    "Clip": _hull,
    "Alias": _hull,
}
_GROWING = {"Plus", "Minus", "Multiply", "Pow.Generic", "SumHorizontal"}


@dataclass(frozen=True, slots=True)
class Bounds:
    """How the intervals of a term and of all in it follow from those of columns: steps, parts first.

    Each has the operation on integers, or an empty text; the numbers of the steps that it needs; and without an
    operation the interval or the column.
    """

    steps: tuple[tuple[str, tuple[int, ...], Interval, str | None], ...]

    @classmethod
    def of(cls, term: Term) -> Bounds:
        """Those of a term: O(its size)."""
        numbers: dict[int, int] = {}
        steps: list[tuple[str, tuple[int, ...], Interval, str | None]] = []
        for inner in terms(term):
            numbers[id(inner)] = len(steps)
            column = inner.tree.name if isinstance(inner.tree, syntax.Column) else None
            parts = tuple(numbers[id(part)] for part in inner.parts) if inner.op else ()
            steps.append((inner.op, parts, inner.interval or (0, 0), column))
        return cls(tuple(steps))

    def intervals(self, columns: Intervals) -> Iterator[tuple[bool, Interval]]:
        """For each step whether it computes integers, and its interval. What is no integer has (0, 0)."""
        known: list[Interval] = []
        for op, parts, interval, column in self.steps:
            if op:
                low, high = _INTERVALS[op](*(known[part] for part in parts))
                known.append((max(low, -_VAST), min(high, _VAST)))
            else:
                known.append(interval if column is None else columns.get(column, (0, 0)))
            yield bool(op), known[-1]

    def bound(self, columns: Intervals) -> Interval:
        """The interval of the term for columns in these intervals: O(size of the term).

        Raises Overflow when any integer inside may leave int64. A term that is no integer gives (0, 0).
        """
        interval = 0, 0
        for computes, interval in self.intervals(columns):
            if computes and (interval[0] < LEAST or interval[1] > GREATEST):
                raise Overflow
        return interval


def terms(term: Term) -> list[Term]:
    """A term and all in it, each once, parts first."""
    return syntax.nodes(term, lambda part: part.parts)


# -- from trees to terms ----------------------------------------------------------------------------------------------


def analyse(tree: Tree, types: Types) -> Term:
    """The term of a tree: literals as int64, narrow integers widened, decimals scaled, every node typed.

    Raises ProgramError for arithmetic whose overflow cannot be detected (on whole lists and structs, on elements of
    lists) and for operations on decimals and durations that lose digits.
    """
    tree = _int64(syntax.rewrite(tree, _with_int64_literals))
    tree = _with_types_of_literals(tree)
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
            f"the expression {syntax.display(tree)} is not applied to a list", "split or concat_list first"
        )
    inside = types.inside(element)
    result = tree._replace(part=_element(tree, tree.part, inside))
    if polars_json.own_depth(result, []) > polars_json.DEEPEST:  # a part of it cannot become a column
        raise polars_json.too_deep(tree)
    return result


def _element(tree: Tree, part: Tree, types: Types) -> Tree:
    """The expression for each element: no arithmetic that could overflow, because the error could not name a row."""
    term = analyse(syntax.rewrite(part, _element_to_column), types)
    try:
        Bounds.of(term).bound({"": (LEAST, GREATEST)})
    except Overflow:
        raise _out_of_sight(tree) from None
    if temporal.guards(term, _own_tree):
        raise _out_of_sight(tree)
    return syntax.rewrite(term.tree, _column_to_element)


def _element_to_column(node: Tree) -> Tree:
    return syntax.Column("") if isinstance(node, syntax.Element) else node


def _column_to_element(node: Tree) -> Tree:
    return syntax.Element() if isinstance(node, syntax.Column) and not node.name else node


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

    least: dict[int, str | None] = {}

    def change(node: Tree, parts: list[Tree]) -> Tree:
        inner = syntax.children(node)
        names = [node.name] if isinstance(node, syntax.Column) else [least[id(child)] for child in inner]
        # the column of the elements inside of a list has the empty name
        name = least[id(node)] = min((candidate for candidate in names if candidate is not None), default=None)
        if id(node) in floats and name is not None and not isinstance(parts[1], syntax.Column):
            zero = syntax.call("Multiply", syntax.Cast(_is_null(name), pl.Float64()), _number(0.0))
            parts[1] = syntax.call("Plus", syntax.Cast(parts[1], pl.Float64()), zero)
        return syntax.with_children(node, parts)

    return syntax.fold(tree, change)


def _is_float_literal(node: Tree) -> bool:
    return any(isinstance(inner, syntax.Literal) and inner.dtype == "Float" for inner in syntax.walk(node))


def _is_null(name: str) -> Tree:
    return syntax.call("Boolean.IsNull", syntax.Column(name))


def _number(value: float) -> Tree:
    return syntax.Literal("Float64", value)


def _with_int64_literals(node: Tree) -> Tree:
    """Polars guesses a type for a Python integer; ours is int64. Options of functions are left as they are."""
    operation = syntax.operation(node)
    takes_values = operation in _INTERVALS or operation.startswith(("Boolean.", "Sql."))
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
    if polars_json.depth(tree) <= DEEPEST_LITERAL:
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
    types(list(syntax.walk(tree)))

    def change(node: Tree, parts: list[Tree]) -> Tree:
        dtype, *inner = types([node, *syntax.children(node)])
        return _widened(node, parts, dtype, inner)

    return syntax.fold(tree, change)


def _widened(tree: Tree, parts: list[Tree], dtype: pl.DataType, inner: list[pl.DataType]) -> Tree:
    """A node widened whose parts are widened already; ``inner``: the types of its children before that."""
    op = syntax.operation(tree)
    if dtype.is_integer() and op in _INTERVALS:
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
            f"the expression {syntax.display(tree)} compares lists or structs, which have no order",
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
        f"the expression {syntax.display(tree)} computes where overflow cannot be detected",
        "take lists apart with flat_map() first, round in float64, or compute with columns",
    )


_NARROW: dict[pl.DataType, Interval] = {
    pl.Int8(): (-(2**7), 2**7), pl.Int16(): (-(2**15), 2**15), pl.Int32(): (-(2**31), 2**31),
    pl.UInt8(): (0, 2**8), pl.UInt16(): (0, 2**16), pl.UInt32(): (0, 2**32), pl.Boolean(): (0, 1),
}  # fmt: skip


def _type(tree: Tree, types: Types) -> Term:
    types(list(syntax.walk(tree)))

    def term(node: Tree, parts: list[Term]) -> Term:
        result = Term(node, types([node])[0], parts=parts)
        op = syntax.operation(node)
        values = result.parts[1:] if op == "Choice" else result.parts
        if op in _INTERVALS and result.dtype.is_integer() and all(part.is_int for part in values):
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


# -- the wide way -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Wide:
    """A tree that computes in Int128, and guards for the rows where even that is too narrow."""

    tree: Tree
    guards: list[Guard]


def widen(term: Term) -> Wide:
    """The wide form of a term. An integer's is an Int128 column, whose range the caller checks."""
    forms = _Forms({}, {})
    vast: list[Tree] = []
    columns = dict.fromkeys(syntax.columns(term.tree), (LEAST, GREATEST))
    for inner, (_, (low, high)) in zip(terms(term), Bounds.of(term).intervals(columns), strict=True):
        parts = forms.add(inner)
        if inner.op in _GROWING and (low < -_GUARDED or high > _GUARDED):
            vast.append(_guard(inner.op, parts))
    tree = (forms.wide if term.op else forms.exact)[id(term)]
    guards = [Guard(0, tree, "an intermediate integer has more than 126 bits") for tree in vast]
    return Wide(tree, guards + temporal.guards(term, lambda part: forms.exact[id(part)]))


@dataclass(slots=True)
class _Forms:
    """Terms, by identity, with wide integers inside: as Int128 (integers only), and in their own types."""

    wide: dict[int, Tree]
    exact: dict[int, Tree]

    def add(self, term: Term) -> list[Tree]:
        """Add a term whose parts are there; returns the parts of its wide form."""
        key, parts = id(term), term.parts
        if not term.computes:
            self.exact[key] = term.tree
        elif term.op:
            first = 1 if term.op == "Choice" else 0
            inner = [self.exact[id(part)] for part in parts[:first]] + [self.wide[id(part)] for part in parts[first:]]
            self.wide[key] = _operation(term, inner)
            self.exact[key] = syntax.Cast(self.wide[key], pl.Int64())
            return inner
        else:
            self.exact[key] = syntax.with_children(term.tree, self._operands(term))
        if term.is_int:
            self.wide[key] = syntax.Cast(self.exact[key], pl.Int128())
        return []

    def _operands(self, term: Term) -> list[Tree]:
        """The operands of a term that is no integer arithmetic but has some inside."""
        parts, operation = term.parts, syntax.operation(term.tree)
        if operation in _COMPARISONS and all(part.is_int for part in parts):
            return [self.wide[id(part)] for part in parts]
        if operation == "Boolean.IsIn" and parts[0].is_int:
            return [self.wide[id(parts[0])], self.exact[id(parts[1])]]
        if operation == "Cast" and (term.dtype.is_numeric() or term.dtype in (pl.String(), pl.Boolean())):
            return [(self.wide if part.op else self.exact)[id(part)] for part in parts]
        to_float = any(part.dtype.is_float() for part in parts) and (
            syntax.is_operator(term.tree) or operation.startswith("Sql.")
        )
        return [
            syntax.Cast(self.wide[id(part)], pl.Float64()) if to_float and part.op else self.exact[id(part)]
            for part in parts
        ]


def _operation(term: Term, parts: list[Tree]) -> Tree:
    if term.op == "Negate":  # Polars has no negation of Int128
        return syntax.call("Minus", syntax.Cast(syntax.Literal("Int64", 0), pl.Int128()), parts[0])
    return syntax.with_children(term.tree, parts)


def _guard(op: str, parts: list[Tree]) -> Tree:
    """True where the operation on these Int128 parts may overflow Int128, computed in floating point."""
    sizes = [syntax.call("Abs", syntax.Cast(part, pl.Float64())) for part in parts]
    total = sizes[0]
    for size in sizes[1:]:
        if op == "Pow.Generic":
            total = syntax.call("Pow.Generic", total, size)
        else:
            total = syntax.call("Multiply" if op == "Multiply" else "Plus", total, size)
    return syntax.call("GtEq", total, _number(float(_GUARDED)))
