"""The functions of ``group_by(keys).over(...)`` that are no aggregates: what each takes and gives, and its name for
programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.base.schema import Type
from ddcore.base.source_line import caller
from ddcore.expressions.parsing import parse
from ddcore.operators.arguments import checked, flag
from ddcore.operators.frame import Framed
from ddcore.text.wording import brief

WINDOW_FUNCTIONS: Mapping[str, Type | None] = {
    **dict.fromkeys(("lag", "lead", "first_value", "last_value", "nth_value")),
    **dict.fromkeys(("row_number", "rank", "dense_rank", "ntile"), Type("int64")),
    **dict.fromkeys(("percent_rank", "cume_dist"), Type("float64")),
}
"""The functions by name, with the type of the result; None: that of the argument."""


@dataclass(frozen=True, eq=False)
class WindowFunction(Framed):
    """One function: ``kind`` is its name in :data:`WINDOW_FUNCTIONS`, ``expr`` its argument.

    ``number``: of rows before or after, of the value, or of the parts. ``default``: where there is no such row.
    """

    kind: str
    expr: pl.Expr | None = None
    number: int = 1
    default: pl.Expr | None = None
    ignore_nulls: bool = False

    def __bool__(self) -> bool:
        """No value yet."""
        raise ProgramError(
            f"{caller()}: the window function {self.kind} has no truth value, because its rows come when the program"
            " runs",
            "compute it with over(name=...), and go on with the column: where(), select()",
        )


def _of(kind: str, expr: Any, *, number: Any = 1, default: Any = None, ignore_nulls: Any = False) -> WindowFunction:
    """Raises ProgramError."""
    least = 0 if kind in ("lag", "lead") else 1
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number < 2**40:
        raise ProgramError(f"{caller()}: {kind}: {brief(number)} is no number of rows", f"give {least} or more")
    other = None if default is None else checked(parse, default, bare_string="sql")
    nulls = flag(ignore_nulls, f"{kind}: ignore_nulls")
    return WindowFunction(kind, checked(parse, expr, bare_string="column"), number, other, nulls)


def lag(expr: Any, offset: int = 1, *, default: Any = None, ignore_nulls: bool = False) -> WindowFunction:
    """The value of ``expr`` in the row ``offset`` rows before; ``default``, of the current row, where there is none.

    Of the type of ``expr``; null without a default. ``ignore_nulls``: rows in which it is null are not counted. A bare
    string is a column; as a default it is SQL. Raises ProgramError for an offset that is no number of rows.
    """
    return _of("lag", expr, number=offset, default=default, ignore_nulls=ignore_nulls)


def lead(expr: Any, offset: int = 1, *, default: Any = None, ignore_nulls: bool = False) -> WindowFunction:
    """The value of ``expr`` in the row ``offset`` rows after; otherwise like :func:`lag`."""
    return _of("lead", expr, number=offset, default=default, ignore_nulls=ignore_nulls)


def first_value(expr: Any, *, ignore_nulls: bool = False) -> WindowFunction:
    """The value of ``expr`` in the first row of the frame, with ``ignore_nulls`` the first that is not null.

    Of the type of ``expr``; null where the frame has no such row. A bare string is a column.
    """
    return _of("first_value", expr, ignore_nulls=ignore_nulls)


def last_value(expr: Any, *, ignore_nulls: bool = False) -> WindowFunction:
    """The value of ``expr`` in the last row of the frame, with ``ignore_nulls`` the last that is not null; else as
    :func:`first_value`.
    """
    return _of("last_value", expr, ignore_nulls=ignore_nulls)


def nth_value(expr: Any, n: int, *, ignore_nulls: bool = False) -> WindowFunction:
    """The value of ``expr`` in row number ``n`` of the frame, from 1; null where it has fewer.

    ``ignore_nulls``: rows in which it is null are not counted. A bare string is a column. Raises ProgramError for an
    ``n`` below 1.
    """
    return _of("nth_value", expr, number=n, ignore_nulls=ignore_nulls)


def row_number() -> WindowFunction:
    """The number of the row in its partition, from 1 (int64). Equal rows have different numbers."""
    return WindowFunction("row_number")


def rank() -> WindowFunction:
    """One more than the number of rows before this row and its peers, those that are equal to it in the order (int64):
    1, 2, 2, 4.
    """
    return WindowFunction("rank")


def dense_rank() -> WindowFunction:
    """The number of the row's group of peers in its partition, from 1 (int64): 1, 2, 2, 3."""
    return WindowFunction("dense_rank")


def ntile(n: int) -> WindowFunction:
    """The number, from 1, of the row's part where the partition is cut into ``n`` parts as equal as can be (int64); the
    first ones are the longer ones. Raises ProgramError for an ``n`` below 1.
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 0 < n < 2**40:
        raise ProgramError(f"{caller()}: ntile: {brief(n)} is no number of parts", "give 1 or more")
    return WindowFunction("ntile", number=n)


def percent_rank() -> WindowFunction:
    """``(rank - 1) / (rows - 1)`` (float64), 0 for the only row of a partition."""
    return WindowFunction("percent_rank")


def cume_dist() -> WindowFunction:
    """The part of the partition's rows that are before the row or its peers (float64)."""
    return WindowFunction("cume_dist")
