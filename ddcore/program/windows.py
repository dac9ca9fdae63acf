"""``over`` as one operator or several: windows that together would cost a partition, and alone their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from ddcore.base.schema import Schema, Type
from ddcore.operators.over import Order, Over
from ddcore.operators.select import Select
from ddcore.operators.window import Window
from ddcore.operators.window_reach import reach_beside, together
from ddcore.program.appearances import Appearance, appearances, marked
from ddcore.program.linear import C

__all__ = ["Windows"]

_Step = tuple[Order, Sequence[Window]]
"""The windows of one operator, and the order that they are in there."""


@dataclass(frozen=True)
class Windows:
    """The keys and the columns of the rows, the order, and what ``allow_negative`` says."""

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    order: Order
    allow_negative: bool

    def of(self, rows: C, windows: tuple[Window, ...]) -> C:
        """Rows with the results of windows; ``rows`` has the columns and the arguments. Raises ProgramError."""
        marks = appearances(windows, rows.schema) if self.order.by else []
        if marks:
            result = self._by_marks(rows, windows, marks)
            if result is not None:
                return result
        steps = self._steps(rows.schema, windows) or [(self.order, windows)]
        return self._only(self._in_steps(rows, steps), [window.name for window in windows], {})

    def _by_marks(self, rows: C, windows: Sequence[Window], marks: Sequence[Appearance]) -> C | None:
        """Rows with results, of which distinct numbers are sums of marks; None where a change would cost the partition
        in any case.
        """
        of_window = {window.name: mark for window in windows for mark in marks if mark.of(window)}
        summed = [of_window[window.name].summed(window) if window.name in of_window else window for window in windows]
        inner = replace(self, columns=(*self.columns, *(mark.mark for mark in marks)))
        steps = inner._steps(rows.schema | {mark.mark: Type("int64") for mark in marks}, summed)
        if steps is None:
            return None
        rows = marked(rows, self.keys, self.order, marks, allow_negative=self.allow_negative)
        counted = {name: -pl.col(name) for name, mark in of_window.items() if not mark.backwards}
        return self._only(inner._in_steps(rows, steps), [window.name for window in windows], counted)

    def _steps(self, schema: Schema, windows: Sequence[Window]) -> list[_Step] | None:
        """The operators by which a change costs less than its partition; None where there are none. Raises
        ProgramError.
        """
        types = self._operator(schema, self.columns, self.order, windows).schema
        if not self.order.by:
            return None
        kind = schema[self.order.by[0]]
        groups, backwards = together(windows, schema, types, kind)
        if any(reach_beside(group, schema, types, kind) is None for group in groups):
            return None
        steps: list[_Step] = [(self.order, group) for group in groups]
        if backwards:
            mirrored = [mirror for window in backwards if (mirror := window.mirrored) is not None]
            steps.append((self.order.reversed(self._rest() if _are_of_places(mirrored) else ()), mirrored))
        return steps

    def _in_steps(self, rows: C, steps: Sequence[_Step]) -> C:
        """One operator behind the other; each but the last keeps the arguments of those behind it."""
        arguments = [name for name in rows.schema if name not in (*self.keys, *self.columns)]
        columns = [*self.columns]
        for number, (order, windows) in enumerate(steps):
            kept = arguments if number < len(steps) - 1 else []
            operator = self._operator(rows.schema, [*columns, *kept], order, windows)
            rows = rows._add(operator)
            if kept and operator.states:
                rows = rows._add(Select.only(operator.schema, operator.seen, {}))
            columns += [window.name for window in windows]
        return rows

    def _only(self, rows: C, results: Sequence[str], computed: dict[str, pl.Expr]) -> C:
        """The columns of the rows and the results, of which some are computed from what they are so far."""
        names = [*dict.fromkeys([*self.keys, *self.columns, *results])]
        if [*rows.schema] == names and not computed:
            return rows
        return rows._add(Select.of(rows.schema, {name: computed.get(name, pl.col(name)) for name in names}, "over"))

    def _operator(self, schema: Schema, columns: Sequence[str], order: Order, windows: Sequence[Window]) -> Over:
        return Over.of(schema, columns, self.keys, order, windows=tuple(windows), allow_negative=self.allow_negative)

    def _rest(self) -> list[str]:
        """The columns that decide among rows that are equal in the order."""
        return [name for name in self.columns if name not in (*self.order.by, *self.keys)]


def _are_of_places(windows: Sequence[Window]) -> bool:
    return any(window.is_of_places for window in windows)
