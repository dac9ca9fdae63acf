"""Failures of expressions: which errors Polars raises on values, the row that fails, and how messages tell both."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal

import polars as pl

from ddcore.base.lazy import numpy as np
from ddcore.base.record import record
from ddcore.base.schema import type_of
from ddcore.data import nested
from ddcore.expressions import polars_json, stages, syntax, temporal, texts
from ddcore.expressions.stages import Staged
from ddcore.expressions.syntax import Tree

FAILURES = (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, TypeError, ArithmeticError)
"""What Polars raises where it cannot compute, or type, an expression."""
_COUNTED = re.compile(r" in column '.*' for \d+ out of \d+ values")
_CONVERSION = re.compile(r"conversion from `str` to `(.*)` failed: \[\"(.*)\"\]")
MARKING = "Extension.To"
_NAMES = {"i64": "int64", "f64": "float64", "datetime[μs, UTC]": "timestamp"}


@record
class Written:
    """A conversion in the user's own words: its place, its text, the type it is to, the value it is of, its result."""

    source_line: str
    text: str
    kind: str
    given: pl.Expr
    result: pl.Expr

    def wrong(self, frame: pl.DataFrame) -> str:
        """The message for the only row of a frame."""
        return (
            f"{self.source_line}: {self.text}: {value_text(frame.select(self.given).to_series(), 0)} is no {self.kind}"
        )


def failing_row(frame: pl.DataFrame, parts: list[Staged]) -> int | None:
    """A row that Polars cannot evaluate the expressions on by itself, by halving; None where every half can.

    Cost: that of evaluating two more frames of this size.
    """
    start, size = 0, len(frame)
    while size > 1:
        half = size // 2
        if _fails(frame[start : start + half], parts):
            size = half
        else:
            start, size = start + half, size - half
    return start if size and _fails(frame[start : start + 1], parts) else None


def _fails(frame: pl.DataFrame, parts: list[Staged]) -> bool:
    try:
        for part in parts:
            select(frame, part)
    except FAILURES:
        return True
    return False


def select(frame: pl.DataFrame, staged: Staged) -> pl.DataFrame:
    """The values of the expressions, as many as ``frame`` has rows, even where there is one value for all rows.

    That is so without columns, and may be with them: Polars finds out by itself that ``a > a`` is false.
    """
    values = staged.prepared(frame).select(staged.exprs)
    return values if values.height == frame.height else values[np.zeros(frame.height, dtype=np.int64)]


def row_text(frame: pl.DataFrame, row: int) -> str:
    """A row for a message, without the columns whose names begin with an underscore."""
    columns = [name for name in frame.columns if name[0] != "_"]
    return "in the row " + ", ".join(f"{name}={value_text(frame[name], row)}" for name in columns)


def value_text(column: pl.Series, row: int) -> str:
    """A value for a message: as Python writes it, cut at 40 characters; the number of a time beyond Python's years."""
    value = column[row : row + 1]
    if not _is_pythons(value):
        return str(value.to_physical().to_list()[0])
    only = value.to_list()[0]
    return repr(only) if isinstance(only, Decimal) else f"{only!r:.40}"


def _is_pythons(value: pl.Series) -> bool:
    """Whether Python has the dates and timestamps: it has the years 1 to 9999 (Polars panics on some others)."""
    if value.dtype in (pl.List, pl.Struct):
        return all(_is_pythons(part) for part, _ in nested.parts(value, type_of(value.dtype)))
    if not temporal.is_temporal(value.dtype):
        return True
    per_day = 1 if value.dtype == pl.Date() else 86_400_000_000
    days = value.to_physical().cast(pl.Int64) // per_day
    return bool(days.is_between(-719_000, 2_932_000).all())


def cause(frame: pl.DataFrame, tree: Tree, written: Iterable[Written]) -> Written | None:
    """The conversion by which an expression fails on the only row of a frame; None where it is none of these.

    One that fails by itself may stand in a branch that the row does not take: the expression must fail although all
    others that fail are nulls. Parts come before what they are in.
    """
    inside = {texts.text(part) for part in syntax.nodes(tree, syntax.children)}
    failing: dict[str, Written] = {}
    for conversion in written:
        text = texts.text(unmarked(syntax.bare(polars_json.read(conversion.result))))
        if text in inside and _is_wrong(frame, conversion.result) and not _is_wrong(frame, conversion.given):
            failing.setdefault(text, conversion)
    for own, conversion in failing.items():
        others = failing.keys() - {own}
        if _fails(frame, [stages.staged([_with_nulls(tree, others)], "cause")]):
            return conversion
    return None


def unmarked(tree: Tree) -> Tree:
    """A tree without marks, which change no value: see :func:`ddcore.data.forms.marked`."""
    return syntax.bare(syntax.rewrite(tree, lambda node: node.args[0] if syntax.operation(node) == MARKING else node))  # type: ignore[union-attr]


def _with_nulls(tree: Tree, gone: Iterable[str]) -> Tree:
    """A tree in which parts with these texts are null."""
    nothing = set(gone)
    null = syntax.Literal("Null", "Null")
    return syntax.rewrite(tree, lambda node: null if nothing and texts.text(node) in nothing else node)


def _is_wrong(frame: pl.DataFrame, expr: pl.Expr) -> bool:
    try:
        frame.select(expr)
    except FAILURES:
        return True
    return False


def reason_of(failure: BaseException, tree: Tree | None = None) -> str:
    """The first line of what Polars says, without what it says about the other rows of the batch. Of text that is no
    value of a type, that it is none; of a text that stands in the expression itself, which is a reason to fail, that.
    """
    reason = _COUNTED.sub("", str(failure).strip().partition("\n")[0])
    found = _CONVERSION.fullmatch(reason)
    if found is None or tree is None:
        return reason
    texts_inside = (node.value for node in syntax.walk(tree) if isinstance(node, syntax.Literal) and node.value)
    for text in texts_inside:
        if isinstance(text, str) and text.startswith(found[2].removesuffix("…")):
            return text
    return f"{found[2]!r} is no {_NAMES.get(found[1], found[1])}"
