"""``over`` as one operator or several: windows that together would cost a partition, and alone their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddcore.operators.over import Order, Over
from ddcore.operators.select import Select
from ddcore.operators.window import Window
from ddcore.operators.window_reach import together
from ddcore.program.linear import C

__all__ = ["Windows"]


@dataclass(frozen=True)
class Windows:
    """The keys and the columns of the rows, the order, and what ``allow_negative`` says."""

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    order: Order
    allow_negative: bool

    def of(self, rows: C, windows: tuple[Window, ...]) -> C:
        """Rows with the results of windows; ``rows`` has the columns and the arguments. Raises ProgramError.

        Every operator but the last keeps the arguments of those behind it.
        """
        whole = self._operator(rows, self.columns, self.order, windows)
        if not self.order.by:
            return rows._add(whole)
        kind = rows.schema[self.order.by[0]]
        groups, backwards = together(windows, rows.schema, whole.schema, kind)
        steps = [(self.order, group) for group in groups]
        if backwards:
            mirrored = [mirror for window in backwards if (mirror := window.mirrored) is not None]
            steps.append((self.order.reversed(self._rest(rows) if _are_of_places(mirrored) else ()), mirrored))
        if len(steps) == 1 and not backwards:
            return rows._add(whole)
        arguments = [name for name in rows.schema if name not in (*self.keys, *self.columns)]
        columns = [*self.columns, *arguments]
        for order, step in steps:
            rows = rows._add(self._operator(rows, columns, order, step))
            columns += [window.name for window in step]
        return rows._add(Select.only(rows.schema, [*whole.schema], {}))

    def _operator(self, rows: C, columns: Sequence[str], order: Order, windows: Sequence[Window]) -> Over:
        return Over.of(
            rows.schema, columns, self.keys, order, windows=tuple(windows), allow_negative=self.allow_negative
        )

    def _rest(self, rows: C) -> list[str]:
        """The columns that decide among rows that are equal in the order."""
        return [name for name in self.columns if name not in (*self.order.by, *self.keys)]


def _are_of_places(windows: Sequence[Window]) -> bool:
    return any(window.is_of_places for window in windows)
