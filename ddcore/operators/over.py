"""``over``: each row of a group with columns that look at the rows around it, in an order.

Where one of its rows changed, a group is evaluated: its rows are sorted, and the differences are those of the rows
whose results differ. Of a large group only the rows near the changes are read if all functions look a few rows away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddcore import kernels
from ddcore.base.digests import digest
from ddcore.base.errors import DiffOverflow, ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, Type
from ddcore.base.source_line import caller
from ddcore.data import encoding
from ddcore.operators import arguments
from ddcore.operators.aggregates import AGGREGATES
from ddcore.operators.evaluations import Changes, Evaluations, Portion, Targets
from ddcore.operators.gathering import GATHERED
from ddcore.operators.nearby import found_near, gathered_between
from ddcore.operators.onwards import Onwards, Sources, begun, found_onwards
from ddcore.operators.partitions import Partitions, Spans
from ddcore.operators.reduction import Reduction, ReductionStep
from ddcore.operators.running import States, flags_of, is_cut, running, state_type, states_of
from ddcore.operators.segments import Counted, Segments, found_segments
from ddcore.operators.window import LISTS, SHARES, Window
from ddcore.operators.window_functions import WINDOW_FUNCTIONS
from ddcore.operators.window_lists import OwnOrder, lists
from ddcore.operators.window_picks import PICKED, at_end, bits, picked
from ddcore.operators.window_reach import goes_on, kernel_kind, reach_beside
from ddcore.operators.window_statistics import Known, is_statistic, statistics
from ddcore.operators.window_values import extreme, last_values, neighbour, nth_value, number, share, value
from ddcore.text.wording import brief
from ddcore.traces.trace import Rows

if TYPE_CHECKING:
    from ddcore.operators.base import Dataflow, State
    from ddcore.operators.block import Block, Rounds
    from ddcore.traces.sorted_batch import ColumnBatch

NOTHING_BEFORE: Mapping[int, np.ndarray] = {}
_MOST_COPIES = 2**24
"""How often one row may occur: each copy is numbered."""


@dataclass(frozen=True)
class Order:
    """An order by columns: each ascending or descending, with nulls last or first.

    The other columns decide among equal rows, ascending with nulls last; if it is ``turned``, the other way round.
    """

    by: tuple[str, ...] = ()
    downs: tuple[bool, ...] = ()
    firsts: tuple[bool, ...] = ()
    turned: bool = False

    @classmethod
    def of(cls, schema: Schema, keys: Sequence[str], by: Any, descending: Any, nulls_first: Any) -> Order:
        """Raises ProgramError."""
        names = arguments.names_of(by, "over")
        for name in names:
            arguments.require(schema, name, "over")
            if name in keys:
                raise ProgramError(f"{caller()}: over: {name} is a key", "order by other columns")
            if schema[name].is_nested:
                raise ProgramError(
                    f"{caller()}: over: {name} is {schema[name]}: lists and structs have no order",
                    "order by a column, or by one computed from a field with with_columns()",
                )
        downs, firsts = (cls._flags(value, len(names), what) for value, what in
                         ((descending, "descending"), (nulls_first, "nulls_first")))  # fmt: skip
        return cls(tuple(names), downs, firsts)

    def reversed(self) -> Order:
        """The same from its end."""
        downs, firsts = (tuple(not flag for flag in flags) for flags in (self.downs, self.firsts))
        return Order(self.by, downs, firsts, turned=not self.turned)

    @staticmethod
    def _flags(value: Any, number: int, what: str) -> tuple[bool, ...]:
        flags = [value] * number if isinstance(value, bool) else value
        if not isinstance(flags, list | tuple) or not all(isinstance(flag, bool) for flag in flags):
            raise ProgramError(f"{caller()}: over: {what} is {brief(value)}", "give True or False, or a list")
        if len(flags) != number:
            raise ProgramError(
                f"{caller()}: over: {number} columns, and {what} has {len(flags)}", "give one for each column"
            )
        return tuple(flags)


@dataclass(frozen=True, eq=False)
class Over(Reduction):
    """The rows of each group with one more column for each of ``windows``; ``columns``: those of the rows.

    ``states``: the columns with what some of the results go on from; nobody behind a ``select`` sees them.
    """

    name = "over"
    signs = "positive"
    order: Order
    columns: tuple[str, ...]
    windows: tuple[Window, ...]
    states: States

    @classmethod
    def of(
        cls, source: Schema, columns: Sequence[str], keys: Sequence[str], order: Order, *,
        windows: tuple[Window, ...], allow_negative: bool,
    ) -> Over:  # fmt: skip
        """For an input with the columns and the arguments. Raises ProgramError."""
        negative = arguments.flag(allow_negative, "over: allow_negative")
        schema = {name: source[name] for name in (*keys, *columns)}
        for window in windows:
            if window.frame.has_distance:
                if len(order.by) != 1:
                    raise ProgramError(
                        f"{caller()}: over({window.name}=...): a range by distance needs an order by one column",
                        f"it has {len(order.by)}: use rows_between() or groups_between()",
                    )
                window.frame.words(source[order.by[0]])
            schema[window.name] = _result_type(window, source)
        states = states_of(windows, source, schema, source[order.by[0]]) if order.by else {}
        kinds = {window.name: state_type(window, source) for window in windows}
        schema |= {column: kinds[name] for name, several in states.items() for column in several}
        flags = [map(str, order.downs), map(str, order.firsts), *(["turned"] if order.turned else [])]
        text = digest(columns, keys, order.by, *flags, [window.text for window in windows], str(negative))
        return cls(schema, text, tuple(keys), negative, order, tuple(columns), windows, states)

    @property
    def seen(self) -> list[str]:
        """The columns of rows and results."""
        states = {name for several in self.states.values() for name in several}
        return [name for name in self.schema if name not in states]

    def step_at(self, plan: Dataflow, block: Block, port: int) -> ReductionStep:
        """The work of an over block."""
        return _OverStep(self, plan, block, port)


def _result_type(window: Window, source: Schema) -> Type:
    argument = source[window.argument] if window.argument is not None else Type("int64")
    if window.kind in GATHERED:
        return GATHERED[window.kind].result({"value": argument})
    return (WINDOW_FUNCTIONS.get(window.kind) or AGGREGATES[window.kind].result)(argument)


class _OverStep(ReductionStep):
    def __init__(self, over: Over, plan: Dataflow, block: Block, port: int) -> None:
        super().__init__(over, plan, block, port)
        self.over, self.types, self.values = over, self.port.schema, self.port.values
        order = over.order
        rest = [name for name in over.columns if name not in (*over.group, *order.by)]
        self.sorts = [
            *zip(order.by, order.downs, order.firsts, strict=True),
            *((name, order.turned, order.turned) for name in rest),
        ]
        known = self.types, over.schema
        self.reach = reach_beside(over.windows, *known, self.types[order.by[0]]) if order.by else None
        self.is_cut = is_cut(over.windows, over.states)
        self.goes_on = any(goes_on(window, *known) for window in over.windows)
        self.results = [
            *(window.name for window in over.windows),
            *(name for of in over.states.values() for name in of),
        ]
        assert not order.by or self.values[0] == self.output.values[0] == order.by[0]
        self.kept = [self.values.index(name) for name in over.schema if name in self.values]

    def contested(self, state: State, rounds: Rounds, part: Portion, new: ColumnBatch) -> Portion:
        """All keys, with the values of the order at which they change."""
        if (self.reach is not None or self.is_cut) and not rounds and self.inputs == 1 and len(new):
            part.changed = np.stack([new.words[self.port.key_words], new.diffs])
        return part

    def histories(self, state: State, rounds: Rounds, part: Portion) -> tuple[Rows, Rows]:
        """Of large groups only what is near the changes, where the functions look only so far."""
        if part.changed is None:
            return super().histories(state, rounds, part)
        if self.is_cut:
            return self._cut(state, part)
        assert self.reach is not None
        since, budget = part.since, state.budget
        if self.goes_on:
            return self._onwards(state, part, self.reach.rows, part.around, since)(np.zeros(len(since), np.int64))
        history, part.near = found_near(
            state.trace(self.port).batches,
            part.keys,
            len(self.values),
            reach=self.reach,
            around=part.around,
            since=since,
            budget=budget,
        )
        batches = state.trace(self.output).batches
        return history, gathered_between(batches, part.keys, len(self.output.values), part.near, budget)

    def _sources(self, state: State, columns: Sequence[str]) -> Sources:
        inputs, outputs = (state.trace(port).batches for port in (self.port, self.output))
        flags = [self.output.values.index(name) for name in columns]
        return Sources(inputs, outputs, len(self.values), len(self.output.values), flags)

    def _cut(self, state: State, part: Portion) -> tuple[Rows, Rows]:
        """What is near the changes and the cuts of large groups; its segments become the keys of the part."""
        (window,), down = self.over.windows, self.over.order.downs[0]
        sources = self._sources(state, self.results)
        history, before, near = found_segments(sources, part, window.number, down=down, budget=state.budget)
        some = part.of(near.keys)
        part.keys, part.offsets, part.times, part.changed = some.keys, some.offsets, some.times, some.changed
        part.near = near
        return history, before

    def _onwards(
        self, state: State, part: Portion, reach: int, around: np.ndarray, since: np.ndarray
    ) -> Callable[[np.ndarray], tuple[Rows, Rows]]:
        """A function that reads what is behind the changes, as often as the numbers it is given say."""
        sources = self._sources(state, flags_of(self.over.states, self.over.windows, self.types))
        down, budget = self.over.order.downs[0], state.budget
        stays = part.keeps_size if any(window.kind in SHARES for window in self.over.windows) else None
        start = begun(
            sources, part.keys, reach=reach, down=down, around=around, since=since, budget=budget, stays=stays
        )

        def read(tries: np.ndarray) -> tuple[Rows, Rows]:
            history, before, part.near = found_onwards(
                sources, part.keys, start, reach=reach, down=down, around=around, since=since, tries=tries,
                budget=budget,
            )  # fmt: skip
            return history, before

        part.again = read
        return read

    def changes(self, part: Portion, history: Rows, before: Rows, state: State, loops: np.ndarray) -> Changes:
        """With more rows behind the changes, until results are again what they were."""
        tries = np.zeros(len(part.keys), np.int64)
        while True:
            changes = super().changes(part, history, before, state, loops)
            if not isinstance(part.near, Onwards) or part.again is None or not part.near.open.any():
                return changes
            tries += part.near.open
            history, before = part.again(tries)

    def targets(self, part: Portion, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> Targets:
        """Without the rows whose results do not change, of which the rows around may be missing."""
        anchors = part.near.anchors if isinstance(part.near, Onwards) else {}
        counted = part.near.at(evaluations, part) if isinstance(part.near, Segments) else None
        targets = self.evaluate(evaluations, history, loops, anchors, counted)
        if part.near is None:
            return targets
        keys = evaluations.key_of()[targets.evals]
        if isinstance(part.near, Onwards):
            part.near.compare(keys, targets.evals, targets.words)
        rows = np.flatnonzero(part.near.holds(keys, targets.words[0]))
        return Targets(targets.evals[rows], np.take(targets.words, rows, axis=1), targets.counts[rows])

    def evaluate(
        self,
        evaluations: Evaluations,
        history: Rows,
        loops: np.ndarray,
        anchors: Mapping[int, np.ndarray] = NOTHING_BEFORE,
        counted: Counted | None = None,
    ) -> Targets:
        """Sorts the rows of all groups at once, and computes each result for all of them. ``anchors``: by the number of
        a key the results of its first rows, of which the rows before are missing; ``counted``: the number of these.
        """
        evals, rows, counts = self.accumulate(evaluations, history, loops)
        present = np.flatnonzero(counts > 0)
        evals, rows, counts = evals[present], rows[present], counts[present]
        if len(counts) and counts.max() > _MOST_COPIES:
            position = evaluations.key_of()[evals[counts.argmax()]], evals[counts.argmax()]
            where = self._where(np.array(position), evaluations, loops)
            raise DiffOverflow(f"{where}: a row occurs {counts.max()} times, and over numbers {_MOST_COPIES} at most")
        words = np.take(history.words, rows, axis=1)
        sorts = [self._sortable(words, *sort) for sort in self.sorts]
        order = np.lexsort([column for pair in sorts[::-1] for column in pair[::-1]] + [evals])
        order = np.repeat(order, counts[order])  # each copy is a row
        evals, words = evals[order], np.take(words, order, axis=1)
        by = [(nulls[order], column[order]) for nulls, column in sorts[: len(self.over.order.by)]]
        partitions = Partitions(evals, by, self.over.order.firsts, self.over.order.downs)
        first = self._first(evals, words[self.kept], evaluations, anchors)
        if self.is_cut:
            start, end = partitions.whole
            counted = counted or Counted.not_at_all(int(evaluations.offsets[-1]))
            columns = counted.tiles(self.over.windows[0].number, evals, partitions.positions - start, end - start)
            return Targets(evals, np.stack([*words[self.kept], *columns]), np.ones(len(evals), np.int64))
        found = [self._words(window, partitions, words, at=evaluations, loops=loops, first=first)
                 for window in self.over.windows] if len(evals) else []  # fmt: skip
        by_name = {name: column for columns in found for name, column in columns.items()}
        results = [by_name.get(name, evals) for name in self.results]
        return Targets(evals, np.stack([*words[self.kept], *results]), np.ones(len(evals), np.int64))

    def _sortable(self, words: np.ndarray, name: str, down: bool, first: bool) -> tuple[np.ndarray, np.ndarray]:
        """Whether nulls keep each back, and integers that ascend in the requested order."""
        column = words[self.values.index(name)]
        ranks, _ = encoding.rank_words(column, self.types[name])
        nulls = column == encoding.NULL
        return nulls != first, np.where(nulls, 0, ~ranks if down else ranks)

    def _first(
        self, evals: np.ndarray, kept: np.ndarray, at: Evaluations, anchors: Mapping[int, np.ndarray]
    ) -> _First | None:
        """The results of the first rows of groups without the rows before; ``kept``: the columns of rows that stay."""
        if not anchors or not len(evals):
            return None
        starts = np.flatnonzero(np.concatenate([np.ones(1, bool), evals[1:] != evals[:-1]]))
        keys = at.key_of()[evals[starts]]
        positions, results = [], []
        for position, key in zip(starts.tolist(), keys.tolist(), strict=True):
            if key in anchors:
                columns = anchors[key]
                (row,) = np.flatnonzero((columns[: len(kept)] == kept[:, position : position + 1]).all(axis=0))
                positions.append(position)
                results.append(columns[len(kept) :, row])
        if not positions:
            return None
        return _First(np.array(positions), dict(zip(self.results, np.stack(results).T, strict=True)))

    def _words(
        self, window: Window, rows: Partitions, words: np.ndarray, *, at: Evaluations, loops: np.ndarray,
        first: _First | None,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """The words of one result, and of its state, by column."""
        if window.name not in self.over.states:
            return {window.name: self._result(window, rows, words, at=at, loops=loops, first=first)}
        argument, names = str(window.argument), (window.name, *self.over.states[window.name])
        positions, known = np.zeros(0, np.int64), list[np.ndarray]()
        if window.kind in (*SHARES, "nth_value", "last_value"):
            inside = np.zeros(len(rows.positions), np.bool_)
            if first is not None:
                positions, known = first.positions, [first.results[name] for name in names]
                inside = first.stands_for(window, rows)
            if window.kind in SHARES:
                return dict(zip(names, share(window, rows, positions, known), strict=True))
            values, ends = words[self.values.index(argument)], self._spans(window, rows)[1][0]
            found = nth_value if window.kind == "nth_value" else last_values
            return dict(zip(names, found(window, rows, values, ends, (positions, inside, known)), strict=True))
        values = words[self.values.index(argument)]
        if first is not None:
            values, positions = first.emptied(window, values, rows), first.positions
            known = [first.results[name] for name in names]
        if is_statistic(window):
            results, states = self._statistics(
                window, values, rows, words, known=(positions, known[1:]), has_state=True
            )
        else:
            ends = rows.whole[0], self._spans(window, rows)[1][0]
            kind = kernel_kind(window, self.types)
            results, states = running(kind, values, self.types[argument].scale, ends, (positions, known))
        return dict(zip(names, (results, *states), strict=True))

    def _statistics(
        self, window: Window, values: np.ndarray, rows: Partitions, words: np.ndarray, *, known: Known, has_state: bool
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """The words of a statistic and the columns of its state, of these words of its argument."""
        arguments = [(values, self.types[str(window.argument)])]
        if window.second is not None:
            arguments.append((words[self.values.index(window.second)], self.types[window.second]))
        return statistics(window, arguments, self._spans(window, rows), known, has_state=has_state)

    def _listed(self, window: Window, rows: Partitions, words: np.ndarray, first: _First | None) -> np.ndarray:
        """The words of lists or texts."""
        argument, kind = str(window.argument), self.over.schema[window.name]
        values, positions, known = words[self.values.index(argument)], np.zeros(0, np.int64), np.zeros(0, np.int64)
        counts = values != encoding.NULL if window.kind == "string_agg" else np.ones(len(values), np.bool_)
        if window.second is not None:
            counts = words[self.values.index(window.second)] == 1
        if first is not None and goes_on(window, self.types, self.over.schema):
            counts &= ~first.stands_for(window, rows)
            positions, known = first.positions, first.results[window.name]
        series = encoding.decode(values, self.types[argument])
        results = (positions, encoding.decode(known, kind))
        own = OwnOrder.of(window, lambda *sort: self._sortable(words, *sort), values)
        return encoding.encode(lists(window, series, counts, self._spans(window, rows), results, own=own), kind)

    def _result(
        self, window: Window, rows: Partitions, words: np.ndarray, *, at: Evaluations, loops: np.ndarray,
        first: _First | None,
    ) -> np.ndarray:  # fmt: skip
        """The words of one result."""
        if is_statistic(window):
            values, nothing = words[self.values.index(str(window.argument))], np.zeros(0, np.int64)
            return self._statistics(window, values, rows, words, known=(nothing, []), has_state=False)[0]
        if window.kind in LISTS:
            return self._listed(window, rows, words, first)
        continues = first is not None and goes_on(window, self.types, self.over.schema)
        if window.argument is None and window.kind in WINDOW_FUNCTIONS:
            positions = number(window, rows)
            return first.added(window, positions, rows) if first is not None and continues else positions
        values = np.zeros(len(rows.positions), np.int64)
        if window.argument is not None:
            values = words[self.values.index(window.argument)]
            if first is not None and continues:
                values = first.filled(window, values, rows)
        if window.kind in ("lag", "lead"):
            default = encoding.NULL if window.second is None else words[self.values.index(window.second)]
            return neighbour(window, rows, values, default)
        spans = self._spans(window, rows)
        if window.kind in WINDOW_FUNCTIONS:
            results = value(window, values, spans)
        elif window.kind in GATHERED:
            results = self._picked(window, rows, words, values, spans, at=at, loops=loops)
        else:
            results = self._aggregate(window, rows, values, spans, at=at, loops=loops)
        is_number = window.argument is None and first is not None and continues
        return first.added(window, results, rows) if first is not None and is_number else results

    def _picked(
        self, window: Window, rows: Partitions, words: np.ndarray, values: np.ndarray, spans: Spans, *,
        at: Evaluations, loops: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        """The words of an aggregate that picks a value, or of bits. Raises DiffOverflow."""
        dtype = self.types[str(window.argument)]
        if window.kind in PICKED:
            return picked(window, values, dtype, rows.whole[0], spans)
        if window.second is not None:
            by = words[self.values.index(window.second)]
            return at_end(window.kind, (values, by), (dtype, self.types[window.second]), spans)[0]
        results, is_there = bits(window.kind, values, spans)
        beyond = np.flatnonzero(is_there & (results == encoding.NULL))
        if len(beyond):
            raise self._too_large(window, "a result", rows, int(beyond[0]), at=at, loops=loops)
        return results

    def _spans(self, window: Window, rows: Partitions) -> Spans:
        frame = window.frame
        if not frame.has_distance:
            return rows.spans(frame, (None, None), of_floats=False)
        kind = self.types[self.over.order.by[0]]
        return rows.spans(frame, frame.words(kind), of_floats=kind.name == "float64")

    def _aggregate(
        self, window: Window, rows: Partitions, values: np.ndarray, spans: Spans, *, at: Evaluations, loops: np.ndarray
    ) -> np.ndarray:
        """Raises DiffOverflow."""
        dtype = Type("int64") if window.argument is None else self.types[window.argument]
        kind = AGGREGATES[window.kind].kind(dtype)
        if kind in ("MIN", "MAX"):
            return extreme(kind, values, dtype, spans)
        distinct, numbers = np.zeros(0, np.int64), rows.positions
        if kind == "COUNT_DISTINCT" or window.distinct:
            distinct, numbers = np.unique(values, return_inverse=True)
        results: np.ndarray
        results, beyond = kernels.windows.slide(
            getattr(kernels.aggregating, kind), 10**dtype.scale, np.ascontiguousarray(values),
            np.ascontiguousarray(numbers), len(distinct), rows.whole[0],
            np.ascontiguousarray(spans[0]), np.ascontiguousarray(spans[1]),
        )  # fmt: skip
        wide = self.over.schema[window.name]
        if beyond < 0 and kind == "SUM" and wide.name == "decimal":
            beyond = int(np.append(np.flatnonzero(np.abs(results) >= 10**wide.precision), -1)[0])
        if beyond >= 0:
            raise self._too_large(window, "a sum", rows, beyond, at=at, loops=loops)
        return results

    def _too_large(
        self, window: Window, what: str, rows: Partitions, row: int, *, at: Evaluations, loops: np.ndarray
    ) -> DiffOverflow:
        evaluation = int(rows.partition[row])
        where = self._where(np.array([at.key_of()[evaluation], evaluation]), at, loops)
        return DiffOverflow(f"{where}: {window.name}: {what} is more than {self.over.schema[window.name]} holds")


@dataclass(frozen=True)
class _First:
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
