"""Dates, timestamps and durations in expressions: a result outside of the calendar is an error, never null or another
time.

Polars computes with the numbers behind times. They wrap around, and functions of the calendar give null, or panic, some
260,000 years from now. So every operation that computes with a time is guarded: the time must lie within 100,000 years
of 1970 (nanoseconds: 146 years), before and after. Sums of two such numbers cannot wrap around. Comparing and choosing
times works for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.expressions import polars_json, syntax, texts
from ddcore.expressions.branches import scopes
from ddcore.expressions.syntax import Tree

if TYPE_CHECKING:
    from ddcore.expressions.terms import Term

_DAYS = 36_525_000
_PER_DAY = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_LIMITS = {"ms": _DAYS * _PER_DAY["ms"], "us": _DAYS * _PER_DAY["us"], "ns": 2**62}
_PARTS = [604_800_000_000, 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000, 1_000, 1, 0.001]  # microseconds
_PASSING = {
    "Choice", "Coalesce", "FillNull", "MaxHorizontal", "MinHorizontal", "Clip", "Eq", "NotEq", "Lt", "LtEq", "Gt",
    "GtEq", "EqValidity", "NotEqValidity", "Boolean.IsBetween", "Boolean.IsIn", "Boolean.IsNull", "Boolean.IsNotNull",
    "Alias", "RepeatBy", "Replace", "ReplaceStrict", "ToPhysical", "ListExpr.Concat", "ListExpr.Contains",
}  # fmt: skip
_NULL_FOR_NONE = {"TemporalExpr.ReplaceTimeZone", "TemporalExpr.Replace"}
_BY_TEXT = {"TemporalExpr.OffsetBy", "TemporalExpr.Truncate", "TemporalExpr.Round"}
_STEP = (
    r"^-?(\d{1,6}y)?(\d{1,6}q)?(\d{1,7}mo)?(\d{1,7}w)?(\d{1,8}d)?(\d{1,5}h)?(\d{1,7}m)?(\d{1,9}s)?(\d{1,12}ms)?"
    r"(\d{1,15}us)?(\d{1,18}ns)?$"
)
_OUTSIDE = "a date, timestamp or duration lies beyond 100,000 years (nanoseconds: 146 years)"


@dataclass(slots=True)
class Guard:
    """A tree that is true for a row outside of the limits, and the reason. Lower levels must be checked first."""

    level: int
    tree: Tree
    reason: str


def guards(term: Term, form: Callable[[Term], Tree]) -> list[Guard]:
    """The guards of all parts of a term, each once, lowest levels first. ``form`` gives the tree of a part.

    Raises ProgramError for operations on times that nothing can guard.
    """
    order = syntax.nodes(term, lambda inner: inner.parts)
    if not any(is_temporal(inner.dtype) for inner in order):
        return []
    around = scopes([inner.tree for inner in order[::-1]], [term.tree])
    by_tree = {id(inner.tree): inner for inner in order}
    conditions: dict[int, Tree] = {}
    levels: dict[int, int] = {}
    result: dict[tuple[int, str], Guard] = {}
    for inner in order:
        level = levels[id(inner)] = max((levels[id(part)] for part in inner.parts), default=-1)
        for tree, above, reason in _guarded(inner, form):
            levels[id(inner)] = level + 2
            scope, text = around[id(inner.tree)], texts.text(tree)
            if not any((id(outer), text) in result for outer in scope.outwards()):
                within = scope.within(tree, lambda node: form(by_tree[id(node)]), conditions)
                result[id(scope), text] = Guard(level + above, within, reason)
    return sorted(result.values(), key=lambda guard: guard.level)


def _guarded(term: Term, form: Callable[[Term], Tree]) -> Iterator[tuple[Tree, int, str]]:
    """The guards of a term by itself: what must not be true, how much above the levels of its parts, and the reason."""
    timed = [part for part in term.parts if is_temporal(part.dtype)]
    operation = syntax.operation(term.tree)
    if (not timed and not is_temporal(term.dtype)) or isinstance(term.tree, syntax.Column | syntax.Literal):
        return
    types = {str(operand.dtype) for operand in (*timed, *([term] if is_temporal(term.dtype) else []))}
    if (operation in _PASSING and len(types) == 1) or (operation == "Cast" and term.dtype.is_integer()):
        return
    _require_known(term, operation)
    for part in timed:
        yield _outside(form(part), part.dtype), 1, _OUTSIDE
    scaled = _scaled(term, operation, form)
    if scaled is not None:
        yield scaled, 1, _OUTSIDE
    bad_step = _bad_step(term, operation, form)
    if bad_step is not None:
        yield bad_step, 1, "the text is no step such as 1y, 3mo, 1d12h or -15m"
    if is_temporal(term.dtype):
        yield _outside(form(term), term.dtype), 2, _OUTSIDE
    loses = operation.startswith("TemporalExpr.") and operation not in _NULL_FOR_NONE
    if (loses or operation in ("Plus", "Minus")) and not any(map(_is_null, term.parts)):
        yield _lost(term, form), 2, "there is no such date or time"


def is_temporal(dtype: pl.DataType) -> bool:
    """Whether values are dates, timestamps or durations (a time of day has no limits)."""
    return isinstance(dtype, pl.Date | pl.Datetime | pl.Duration)


def _require_known(term: Term, operation: str) -> None:
    dtypes = [part.dtype for part in term.parts]
    durations = [isinstance(dtype, pl.Duration) for dtype in dtypes]
    wrong = operation in ("TrueDivide", "FloorDivide", "TruncDivide", "Modulus", "Sql.Div", "Sql.IntDiv", "Sql.Rem")
    wrong |= operation in ("Multiply", "Sql.Mul") and not any(dtype.is_integer() for dtype in dtypes)
    wrong |= operation in ("Plus", "Minus", "Sql.Plus") and not all(map(is_temporal, dtypes))
    if wrong and not (operation == "TrueDivide" and all(durations) and len({str(dtype) for dtype in dtypes}) == 1):
        raise ProgramError(
            f"the expression {texts.display(term.tree)} computes with durations where digits would be lost",
            "take whole units first, for example with dt.total_microseconds()",
        )


def _outside(tree: Tree, dtype: pl.DataType) -> Tree:
    limit = _limit(dtype)
    number = syntax.Cast(syntax.call("ToPhysical", tree), pl.Int64())
    return syntax.call("Or", syntax.call("Lt", number, _integer(-limit)), syntax.call("Gt", number, _integer(limit)))


def _limit(dtype: pl.DataType) -> int:
    return _LIMITS[dtype.time_unit] if isinstance(dtype, pl.Datetime | pl.Duration) else _DAYS


def _per_day(dtype: pl.DataType) -> int:
    return _PER_DAY[dtype.time_unit] if isinstance(dtype, pl.Datetime | pl.Duration) else 1


def _scaled(term: Term, operation: str, form: Callable[[Term], Tree]) -> Tree | None:
    """True where a multiplication inside Polars would exceed the limits, computed in floating point."""
    parts = term.parts
    match operation:
        case "Cast" if is_temporal(term.dtype) and (is_temporal(parts[0].dtype) or parts[0].dtype.is_numeric()):
            factor = _per_day(term.dtype) / _per_day(parts[0].dtype) if is_temporal(parts[0].dtype) else 1
            return _beyond([(form(parts[0]), factor)], _limit(term.dtype))
        case "TemporalExpr.CastTimeUnit":
            return _beyond([(form(parts[0]), _per_day(term.dtype) / _per_day(parts[0].dtype))], _limit(term.dtype))
        case "TemporalExpr.TimeStamp":
            unit = polars_json.time_unit(term.tree)
            return _beyond([(form(parts[0]), _PER_DAY[unit] / _per_day(parts[0].dtype))], _LIMITS[unit])
        case "TemporalExpr.Duration":
            unit = polars_json.time_unit(term.tree)
            scale = _PER_DAY[unit] / _PER_DAY["us"]
            sizes = [(form(part), size * scale) for part, size in zip(parts, _PARTS, strict=True)]
            return _beyond(sizes, _LIMITS[unit])
        case "Multiply" | "Sql.Mul":
            product = syntax.call("Multiply", *(_size(form(part)) for part in parts))
            return _not(syntax.call("LtEq", product, _float(_limit(term.dtype))))
    return None


def _beyond(sizes: list[tuple[Tree, float]], limit: int) -> Tree:
    """True where the sum of the parts' absolute numbers, each times its factor, is more than the limit, or NaN."""
    total = syntax.call("Multiply", _size(sizes[0][0]), _float(sizes[0][1]))
    for tree, factor in sizes[1:]:
        total = syntax.call("Plus", total, syntax.call("Multiply", _size(tree), _float(factor)))
    return _not(syntax.call("LtEq", total, _float(limit)))


def _bad_step(term: Term, operation: str, form: Callable[[Term], Tree]) -> Tree | None:
    if operation not in _BY_TEXT or len(term.parts) < 2:
        return None
    match form(term.parts[1]):
        case syntax.Literal("String" | "Str", text):
            if not re.match(_STEP, text) or not text.strip("-"):
                raise ProgramError(
                    f"the expression {texts.display(term.tree)} has the step {text!r}",
                    "give units from large to small, for example 1y, 3mo, 1d12h or -15m",
                )
            return None
        case step:
            return _not(syntax.call("And", _contains(step, _STEP), _contains(step, r"\d")))


def _contains(text: Tree, pattern: str) -> Tree:
    return polars_json.applied(lambda texts: texts.str.contains(pattern), text)


def _lost(term: Term, form: Callable[[Term], Tree]) -> Tree:
    """True where the result is null and no part is."""
    lost = syntax.call("Boolean.IsNull", form(term))
    for part in term.parts:
        if not isinstance(part.tree, syntax.Literal):
            lost = syntax.call("And", lost, syntax.call("Boolean.IsNotNull", form(part)))
    return lost


def _is_null(term: Term) -> bool:
    return isinstance(term.tree, syntax.Literal) and term.tree.dtype == "Null"


def _size(tree: Tree) -> Tree:
    return syntax.call("Abs", syntax.Cast(syntax.call("ToPhysical", tree), pl.Float64()))


def _not(tree: Tree) -> Tree:
    return syntax.call("Boolean.Not", tree)


def _integer(value: int) -> Tree:
    return syntax.Literal("Int64", value)


def _float(value: float) -> Tree:
    return syntax.Literal("Float64", float(value))
