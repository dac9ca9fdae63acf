"""Numbers of distinct values of all rows up to each: a row counts where its value appears first.

First appearances are the work of an ``over`` of their own, by group and value: a row that comes or goes changes its own
mark and that of the next row with its value. Their sums are a running total of another ``over``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import polars as pl

from ddcore.base.schema import Schema
from ddcore.operators import arguments
from ddcore.operators.frame import TO_PEERS
from ddcore.operators.order import Order
from ddcore.operators.over import Over
from ddcore.operators.select import Select
from ddcore.operators.window import Window
from ddcore.program.linear import C
from ddcore.text.wording import fresh


@dataclass(frozen=True)
class Appearance:
    """The column ``mark`` for the values of ``argument``: of the first row with a value -1; or, with ``backwards``, of
    the last one 1. Else 0.

    So of equal rows the marks ascend in the order in which these stand, whichever it is that appears.
    """

    argument: str
    backwards: bool
    mark: str

    def of(self, window: Window) -> bool:
        """Whether its sums are the result of a window."""
        return window.argument == self.argument and _direction(window) is self.backwards

    def summed(self, window: Window) -> Window:
        """The window over marks."""
        return replace(window, kind="sum", argument=self.mark)


def appearances(windows: Sequence[Window], schema: Schema) -> list[Appearance]:
    """The marks for all windows that count distinct values from the first row on or to the last one."""
    taken = {*schema, *(window.name for window in windows)}
    marks = fresh("_mark_", taken)
    wanted = {(str(window.argument), way): None for window in windows if (way := _direction(window)) is not None}
    return [Appearance(argument, way, next(marks)) for argument, way in wanted]


def _direction(window: Window) -> bool | None:
    """Whether a number of distinct values is of the rows to the end, not from the first one on; else None."""
    frame = window.frame
    if window.kind != "count_distinct" or frame.exclude != "nothing":
        return None
    return {(None, 0): False, (0, None): True}.get((frame.start, frame.end))


def marked(rows: C, keys: Sequence[str], order: Order, marks: Sequence[Appearance], *, allow_negative: bool) -> C:
    """Rows with the marks. Raises ProgramError."""
    for appearance in marks:
        value, nothing, new = islice(fresh("_of_mark_", rows.schema), 3)
        argument, mark = pl.col(appearance.argument), 1 if appearance.backwards else -1
        number = pl.when(argument.is_null()).then(pl.lit(0, pl.Int64)).otherwise(pl.lit(mark, pl.Int64))
        exprs = arguments.kept(rows.schema) | {value: argument, nothing: pl.lit(0, pl.Int64), new: number}
        columns = [*rows.schema, appearance.mark]
        prepared = rows._add(Select.of(rows.schema, exprs, "over"))
        kind = "lead" if appearance.backwards else "lag"
        window = Window(appearance.mark, kind, nothing, new, 1, ignore_nulls=False, frame=TO_PEERS)
        over = Over.of(
            prepared.schema, [*rows.schema], (*keys, value), order, windows=(window,), allow_negative=allow_negative
        )
        rows = prepared._add(over)._add(Select.only(over.schema, columns, {}))
    return rows
