"""Pairs of rows by the keys that a condition compares, and the terms of conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore.sql.names import types
from ddcore.sql.source import parts
from ddcore.sql.values import is_plain

__all__ = ["Pair", "conjuncts", "key_of", "paired", "placed"]

Pair = tuple[pl.Expr, pl.Expr, bool]
"""The left and the right value of a key, and whether null equals null."""


_ZERO = pl.lit(0, dtype=pl.Int64)


def paired(rows: Any, other: Any, pairs: Sequence[Pair], how: str = "inner") -> Any:
    """``rows`` joined with ``other`` on ``pairs``; without any, each row with each. All columns of both stay.

    ``how`` is inner, left, semi or anti. The columns of the two have different names.
    """
    ours: dict[str, pl.Expr] = {}
    others: dict[str, pl.Expr] = {}
    on: dict[str, str] = {}
    restored: dict[str, pl.Expr] = {}
    for number, (left, right, safe) in enumerate(pairs or [(_ZERO, _ZERO, False)]):
        name, partner = (None, None) if safe else (is_plain(left), is_plain(right))
        if name is None or name in on:
            name = f"key {number}"
            ours[name] = key_of(left, safe)
        if partner is None or partner in on.values() or how == "left":
            partner = f"match {number}"
            others[partner] = key_of(right, safe)
        elif how == "inner":
            restored[partner] = pl.col(name)
        on[name] = partner
    left_rows = rows.with_columns(**ours) if ours else rows
    right_rows = other.with_columns(**others) if others else other
    if how in ("semi", "anti"):
        right_rows = right_rows.select(*on.values())
    joined = left_rows.join(right_rows, on=on, how=how)
    keep = {name: pl.col(name) for name in types(joined) if name not in ours}
    return joined.select(**keep, **restored) if ours or restored else joined


def placed(pairs: Sequence[Pair], prefix: str) -> tuple[dict[str, pl.Expr], list[Pair]]:
    """The right values of pairs under names that begin with ``prefix``, and the pairs with columns of these names."""
    exprs = {f"{prefix} key {number}": right for number, (_, right, _) in enumerate(pairs)}
    return exprs, [(left, pl.col(name), safe) for name, (left, _, safe) in zip(exprs, pairs, strict=True)]


def key_of(expr: pl.Expr, safe: bool) -> pl.Expr:
    """What is compared by equality; if ``safe``, null equals null: a struct with a null is no null."""
    return pl.struct(expr).struct.rename_fields(["key"]) if safe else expr


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """The conditions of a clause that must all hold; what all sides of an OR share is one by itself."""
    found: list[exp.Expr] = []
    node = node.this if isinstance(node, exp.Where | exp.Having | exp.Qualify) else node
    for term in _terms(node, exp.And) if node is not None else []:
        found += [*_shared(term), term] if isinstance(term, exp.Or) else [term]
    return found


def _terms(node: exp.Expr, kind: type[exp.Connector]) -> list[exp.Expr]:
    """What a chain of ANDs, or of ORs, connects."""

    def inside(part: exp.Expr) -> list[exp.Expr]:
        if isinstance(part, exp.Paren):
            return [part.this]
        return [part.left, part.right] if isinstance(part, kind) else []

    return [part for part in parts([node], inside) if not isinstance(part, exp.Paren | kind)]


def _shared(node: exp.Or) -> list[exp.Expr]:
    """Equalities that all sides of an OR have: a join needs them."""
    shared: dict[str, exp.Expr] | None = None
    for side in _terms(node, exp.Or):
        found: dict[str, exp.Expr] = {
            equality.sql(): equality for equality in conjuncts(side) if isinstance(equality, exp.EQ)
        }
        shared = found if shared is None else {text: equality for text, equality in shared.items() if text in found}
        if not shared:
            break
    return [*(shared or {}).values()]
