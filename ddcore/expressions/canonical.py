"""The canonical text of an expression: equal for equal expressions in every process, for plans and fingerprints."""

from __future__ import annotations

import polars as pl

from ddcore.expressions import polars_json, syntax, texts

__all__ = ["canonical", "identity"]


def canonical(expr: pl.Expr) -> str:
    """The text of an expression, equal for equal expressions in every process; the name of the result is no part of it.

    Raises ProgramError for an expression that has none, because it calls a Python function.
    """
    return texts.text(syntax.bare(polars_json.read(expr)))


def identity(expr: pl.Expr) -> list[str]:
    """Parts of a digest that distinguish an expression: its canonical text, and which literals have a type.

    A literal without one takes that of its neighbours, which are not always int64 and float64: ``cast(pl.Float32) *
    0.1`` is another number than ``cast(pl.Float32) * pl.lit(0.1, dtype=pl.Float64)``.
    """
    tree = syntax.bare(polars_json.read(expr))
    return [texts.text(tree), *texts.literals(tree)]
