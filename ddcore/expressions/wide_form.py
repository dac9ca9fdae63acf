"""The wide form of an expression: its integers in Int128, with guards for the rows where even that is too narrow."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from ddcore.expressions import syntax, temporal
from ddcore.expressions.intervals import GREATEST, LEAST, Bounds, terms
from ddcore.expressions.syntax import Tree
from ddcore.expressions.temporal import Guard
from ddcore.expressions.terms import Term

_GUARDED = 2**126
_WITHIN = {*syntax.COMPARISONS, "TrueDivide", "Sql.Div", "Boolean.IsNull", "Boolean.IsNotNull"}
"""What is no integer, and is computed of integers in Int128."""
_GROWING = {"Plus", "Minus", "Multiply", "Pow.Generic", "SumHorizontal"}


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
        if operation in _WITHIN and all(part.is_int for part in parts):
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
    return syntax.call("GtEq", total, syntax.Literal("Float64", float(_GUARDED)))
