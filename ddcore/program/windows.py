"""``over`` as one operator or several: windows that together would cost a partition, and alone their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

import polars as pl

from ddcore.base.schema import Schema, Type
from ddcore.operators.frame import WHOLE
from ddcore.operators.order import Order
from ddcore.operators.over import Over
from ddcore.operators.select import Select
from ddcore.operators.window import SHARES, Window
from ddcore.operators.window_reach import reach_of, together
from ddcore.program.appearances import appearances, marked
from ddcore.program.linear import C
from ddcore.program.shifts import shifts

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
        names = [window.name for window in windows]
        if self.order.by:
            found = self._by_steps(rows, windows)
            if found is not None:
                return self._only(*found, names)
        return self._only(self._in_steps(rows, [(self.order, windows)]), {}, names)

    def _by_steps(self, rows: C, windows: Sequence[Window]) -> tuple[C, dict[str, pl.Expr]] | None:
        """Rows with the columns that results are computed from, by operators of which a change costs less than its
        partition, and how they are computed; None where there are none. Raises ProgramError.
        """
        kind = rows.schema[self.order.by[0]]
        far = [window for window in windows if reach_of([window], kind) is None]
        moved = shifts(far, rows.schema | {window.name: Type("int64") for window in windows})
        scattered = [window for window in windows if window.kind in ("ntile", *SHARES)]
        own = [moved[window.name].inner if window.name in moved else window for window in windows]
        marks = appearances(own, rows.schema)
        of_window = {window.name: mark for window in own for mark in marks if mark.of(window)}
        summed = [of_window[window.name].summed(window) if window.name in of_window else window for window in own]
        inner = replace(self, columns=(*self.columns, *(mark.mark for mark in marks)))
        schema = rows.schema | {mark.mark: Type("int64") for mark in marks}
        results = self._operator(rows.schema, self.columns, self.order, own).schema
        between = {window.name: results[window.name] for window in own}
        outer = [
            *(shift.outer for shift in moved.values()),
            *scattered,
        ]  # which change far from the row, so they are last
        first = [window for window in summed if window not in scattered]
        steps, last = inner._steps(schema, first), inner._steps(schema | between, outer)
        if steps is None or last is None:
            return None
        rows = marked(rows, self.keys, self.order, marks, allow_negative=self.allow_negative)
        defaults = [shift.default for shift in moved.values() if shift.default is not None]
        computed = dict[str, pl.Expr]()
        for window, before in zip(windows, own, strict=True):
            counts = before.name in of_window and not of_window[before.name].backwards
            found = -pl.col(window.name) if counts else pl.col(window.name)
            computed[window.name] = moved[window.name].result(found, results) if window.name in moved else found
        return inner._in_steps(rows, [*steps, *last], defaults), computed

    def _steps(self, schema: Schema, windows: Sequence[Window]) -> list[_Step] | None:
        """The operators by which a change costs less than its partition; None where there are none. Raises
        ProgramError.
        """
        if not windows:
            return []
        types = self._operator(schema, self.columns, self.order, windows).schema
        found = together(windows, schema, types, schema[self.order.by[0]])
        if found is None:
            return None
        groups, backwards = found
        steps: list[_Step] = [(self.order, group) for group in groups]
        if backwards:
            mirrored = [mirror for window in backwards if (mirror := window.mirrored) is not None]
            steps.append((self.order.reversed(), mirrored))
        return steps

    def _in_steps(self, rows: C, steps: Sequence[_Step], defaults: Sequence[str] = ()) -> C:
        """One operator behind the other; each but the last keeps the arguments of those behind it, and the last
        ``defaults``. Where several tell copies of rows apart, these are numbered first.
        """
        arguments = [name for name in rows.schema if name not in (*self.keys, *self.columns)]
        columns = [*self.columns]
        if sum(any(window.tells_copies for window in windows) for _, windows in steps) > 1:
            name = next(name for number in count() if (name := f"_copy_{number}") not in rows.schema)
            window = Window(name, "row_number", None, None, 1, ignore_nulls=False, frame=WHOLE)
            copies = replace(self, keys=tuple(dict.fromkeys((*self.keys, *columns))))
            rows = rows._add(copies._operator(rows.schema, arguments, Order(), [window]))
            columns.append(name)
        for number, (order, windows) in enumerate(steps):
            kept = arguments if number < len(steps) - 1 else [name for name in arguments if name in defaults]
            operator = self._operator(rows.schema, [*columns, *kept], order, windows)
            rows = rows._add(operator)
            if kept and operator.states:
                rows = rows._add(Select.only(operator.schema, operator.seen, {}))
            columns += [window.name for window in windows]
        return rows

    def _only(self, rows: C, computed: dict[str, pl.Expr], results: Sequence[str]) -> C:
        """The columns of the rows and the results, of which some are computed from what they are so far."""
        names = [*dict.fromkeys([*self.keys, *self.columns, *results])]
        if [*rows.schema] == names:
            return rows
        return rows._add(Select.of(rows.schema, {name: computed.get(name, pl.col(name)) for name in names}, "over"))

    def _operator(self, schema: Schema, columns: Sequence[str], order: Order, windows: Sequence[Window]) -> Over:
        return Over.of(schema, columns, self.keys, order, windows=tuple(windows), allow_negative=self.allow_negative)
