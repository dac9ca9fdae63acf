"""The results of windows over the sorted rows of partitions, with the states beside them, of all rows at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ddcore import kernels
from ddcore.base.errors import DiffOverflow
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, Type
from ddcore.data import encoding
from ddcore.operators.aggregates import AGGREGATES
from ddcore.operators.gathering import GATHERED
from ddcore.operators.order import sortable
from ddcore.operators.partitions import Partitions, Spans
from ddcore.operators.running import States, running
from ddcore.operators.window import LISTS, SHARES, Window
from ddcore.operators.window_functions import WINDOW_FUNCTIONS
from ddcore.operators.window_lists import OwnOrder, lists
from ddcore.operators.window_picks import PICKED, at_end, bits, picked
from ddcore.operators.window_reach import goes_on, kernel_kind
from ddcore.operators.window_statistics import Known, is_statistic, statistics
from ddcore.operators.window_values import extreme, last_values, neighbour, nth_value, number, share, value


@dataclass(frozen=True)
class First:
    """The first rows of groups whose rows before are missing: their places, and their results by window."""

    positions: np.ndarray
    results: Mapping[str, np.ndarray]

    def added(self, window: Window, numbers: np.ndarray, rows: Partitions) -> np.ndarray:
        """Numbers that count rows, with those before."""
        before = np.zeros(int(rows.partition[-1]) + 1, np.int64)
        before[rows.partition[self.positions]] = self.results[window.name] - numbers[self.positions]
        result: np.ndarray = numbers + before[rows.partition]
        return result

    def filled(self, window: Window, values: np.ndarray, rows: Partitions) -> np.ndarray:
        """Values of which the first of each group stands for all before it, and for its peers where the frame has
        these.
        """
        values = self.emptied(window, values, rows)
        values[self.positions] = self.results[window.name]
        return values

    def emptied(self, window: Window, values: np.ndarray, rows: Partitions) -> np.ndarray:
        """Values without those that are in the results of the first of each group."""
        return np.where(self.stands_for(window, rows), encoding.NULL, values)

    def stands_for(self, window: Window, rows: Partitions) -> np.ndarray:
        """Which rows are in the results of the first of each group."""
        those = np.zeros(len(rows.positions), np.bool_)
        those[self.positions] = True
        if window.frame.unit != "rows":
            those = those[rows.peers[0]] | those
        return those


@dataclass(frozen=True)
class Results:
    """What windows give for ``rows``, whose ``words`` are int64 (columns, n) with these ``columns``.

    ``types``: of the rows' columns; ``schema``: of the results, too; ``order``: of the order's first column, None
    without one. ``states``: the columns with what some results go on from. ``first``: what the first rows stand for.
    ``where``: of a row by its number, what messages say of its place.
    """

    types: Schema
    schema: Schema
    order: Type | None
    states: States
    columns: Sequence[str]
    rows: Partitions
    words: np.ndarray
    first: First | None
    where: Callable[[int], str]

    def of(self, window: Window) -> dict[str, np.ndarray]:
        """The words of one result, and of its state, by column. Raises DiffOverflow."""
        if window.name not in self.states:
            return {window.name: self._result(window)}
        names, first = (window.name, *self.states[window.name]), self.first
        positions, known = np.zeros(0, np.int64), list[np.ndarray]()
        if first is not None:
            positions, known = first.positions, [first.results[name] for name in names]
        found: Sequence[np.ndarray]
        if window.kind in SHARES:
            found = share(window, self.rows, positions, known)
        elif window.kind in ("nth_value", "last_value"):
            is_inside = np.zeros(len(self.rows.positions), np.bool_)
            inside = is_inside if first is None else first.stands_for(window, self.rows)
            computed = nth_value if window.kind == "nth_value" else last_values
            ends = self._spans(window)[1][0]
            found = computed(window, self.rows, self._column(window.argument), ends, (positions, inside, known))
        else:
            values = self._column(window.argument)
            values = values if first is None else first.emptied(window, values, self.rows)
            results, states = self._added_up(window, values, positions, known)
            found = results, *states
        return dict(zip(names, found, strict=True))

    def _column(self, name: str | None) -> np.ndarray:
        column: np.ndarray = self.words[self.columns.index(str(name))]
        return column

    def _spans(self, window: Window) -> Spans:
        if not window.frame.has_distance or self.order is None:
            return self.rows.spans(window.frame, (None, None), of_floats=False)
        words = window.frame.words(self.order)
        return self.rows.spans(window.frame, words, of_floats=self.order.name == "float64")

    def _added_up(
        self, window: Window, values: np.ndarray, positions: np.ndarray, known: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """A statistic, a mean or a sum of floats of all rows from the first one on, and its state."""
        if is_statistic(window):
            return self._statistics(window, values, (positions, known[1:]), has_state=True)
        ends = self.rows.whole[0], self._spans(window)[1][0]
        scale = self.types[str(window.argument)].scale
        return running(kernel_kind(window, self.types), values, scale, ends, (positions, known))

    def _statistics(
        self, window: Window, values: np.ndarray, known: Known, *, has_state: bool
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """The words of a statistic and the columns of its state, of these words of its argument."""
        arguments = [(values, self.types[str(window.argument)])]
        if window.second is not None:
            arguments.append((self._column(window.second), self.types[window.second]))
        return statistics(window, arguments, self._spans(window), known, has_state=has_state)

    def _result(self, window: Window) -> np.ndarray:
        """The words of one result without a state."""
        if is_statistic(window):
            return self._statistics(
                window, self._column(window.argument), (np.zeros(0, np.int64), []), has_state=False
            )[0]
        first = self.first if self.first is not None and goes_on(window, self.types, self.schema) else None
        if window.kind in LISTS:
            return self._listed(window, first)
        if window.argument is None and window.kind in WINDOW_FUNCTIONS:
            positions = number(window, self.rows)
            return positions if first is None else first.added(window, positions, self.rows)
        values = np.zeros(len(self.rows.positions), np.int64)
        if window.argument is not None:
            values = self._column(window.argument)
            values = values if first is None else first.filled(window, values, self.rows)
        if window.kind in ("lag", "lead"):
            default = encoding.NULL if window.second is None else self._column(window.second)
            return neighbour(window, self.rows, values, default)
        spans = self._spans(window)
        if window.kind in WINDOW_FUNCTIONS:
            results = value(window, values, spans)
        elif window.kind in GATHERED:
            results = self._picked(window, values, spans)
        else:
            results = self._aggregate(window, values, spans)
        is_number = window.argument is None and first is not None
        return first.added(window, results, self.rows) if first is not None and is_number else results

    def _listed(self, window: Window, first: First | None) -> np.ndarray:
        """The words of lists or texts."""
        argument, kind = str(window.argument), self.schema[window.name]
        values, positions, known = self._column(argument), np.zeros(0, np.int64), np.zeros(0, np.int64)
        counts = values != encoding.NULL if window.kind == "string_agg" else np.ones(len(values), np.bool_)
        if window.second is not None:
            counts = self._column(window.second) == 1
        if first is not None:
            counts &= ~first.stands_for(window, self.rows)
            positions, known = first.positions, first.results[window.name]
        series = encoding.decode(values, self.types[argument])
        results = (positions, encoding.decode(known, kind))
        own = OwnOrder.of(window, self._sortable, values)
        return encoding.encode(lists(window, series, counts, self._spans(window), results, own=own), kind)

    def _sortable(self, name: str, down: bool, first: bool) -> tuple[np.ndarray, np.ndarray]:
        return sortable(self._column(name), self.types[name], down=down, first=first)

    def _picked(self, window: Window, values: np.ndarray, spans: Spans) -> np.ndarray:
        """The words of an aggregate that picks a value, or of bits. Raises DiffOverflow."""
        dtype = self.types[str(window.argument)]
        if window.kind in PICKED:
            return picked(window, values, dtype, self.rows.whole[0], spans)
        if window.second is not None:
            sides = values, self._column(window.second)
            return at_end(window.kind, sides, (dtype, self.types[window.second]), spans)[0]
        results, is_there = bits(window.kind, values, spans)
        beyond = np.flatnonzero(is_there & (results == encoding.NULL))
        if len(beyond):
            raise self._too_large(window, "a result", int(beyond[0]))
        return results

    def _aggregate(self, window: Window, values: np.ndarray, spans: Spans) -> np.ndarray:
        """Raises DiffOverflow."""
        dtype = Type("int64") if window.argument is None else self.types[window.argument]
        kind = AGGREGATES[window.kind].kind(dtype)
        if kind in ("MIN", "MAX"):
            return extreme(kind, values, dtype, spans)
        distinct, numbers = np.zeros(0, np.int64), self.rows.positions
        if kind == "COUNT_DISTINCT" or window.distinct:
            distinct, numbers = np.unique(values, return_inverse=True)
        results: np.ndarray
        results, beyond = kernels.windows.slide(
            getattr(kernels.aggregating, kind), 10**dtype.scale, np.ascontiguousarray(values),
            np.ascontiguousarray(numbers), len(distinct), self.rows.whole[0],
            np.ascontiguousarray(spans[0]), np.ascontiguousarray(spans[1]),
        )  # fmt: skip
        wide = self.schema[window.name]
        if beyond < 0 and kind == "SUM" and wide.name == "decimal":
            beyond = int(np.append(np.flatnonzero(np.abs(results) >= 10**wide.precision), -1)[0])
        if beyond >= 0:
            raise self._too_large(window, "a sum", beyond)
        return results

    def _too_large(self, window: Window, what: str, row: int) -> DiffOverflow:
        holds = self.schema[window.name]
        return DiffOverflow(f"{self.where(row)}: {window.name}: {what} is more than {holds} holds")
