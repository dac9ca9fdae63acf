"""``over``: each row of a group with columns that look at the rows around it, in an order.

Where one of its rows changed, a group is evaluated: its rows are sorted, and the differences are those of the rows
whose results differ. Of a large group only the rows near the changes are read if all functions look a few rows away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddcore.base.digests import digest
from ddcore.base.errors import DiffOverflow, ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, Type
from ddcore.base.source_line import caller
from ddcore.operators import arguments
from ddcore.operators.aggregates import AGGREGATES
from ddcore.operators.evaluations import Changes, Evaluations, Portion, Targets
from ddcore.operators.gathering import GATHERED
from ddcore.operators.nearby import found_near, gathered_between
from ddcore.operators.onwards import Onwards, Sources, begun, found_onwards
from ddcore.operators.order import Order, sortable
from ddcore.operators.partitions import Partitions
from ddcore.operators.reduction import Reduction, ReductionStep
from ddcore.operators.running import States, flags_of, is_cut, state_type, states_of
from ddcore.operators.segments import Counted, Segments, found_segments
from ddcore.operators.window import SHARES, Window
from ddcore.operators.window_functions import WINDOW_FUNCTIONS
from ddcore.operators.window_reach import goes_on, reach_beside
from ddcore.operators.window_results import First, Results
from ddcore.traces.trace import Rows

if TYPE_CHECKING:
    from ddcore.operators.base import Dataflow, State
    from ddcore.operators.block import Block, Rounds
    from ddcore.traces.sorted_batch import ColumnBatch

NOTHING_BEFORE: Mapping[int, np.ndarray] = {}
_MOST_COPIES = 2**24
"""How often one row may occur: each copy is numbered."""


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
    if window.kind in WINDOW_FUNCTIONS:
        return WINDOW_FUNCTIONS[window.kind] or argument
    return AGGREGATES[window.kind].result(argument)


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
        if self.goes_on:
            return self._onwards(state, part, self.reach.rows)
        budget = state.budget
        history, part.near = found_near(
            state.trace(self.port).batches, part.keys, len(self.values),
            reach=self.reach, around=part.around, since=part.since, budget=budget,
        )  # fmt: skip
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

    def _onwards(self, state: State, part: Portion, reach: int) -> tuple[Rows, Rows]:
        """What is behind the changes; ``part.again`` reads more of it, as often as the numbers it is given say."""
        sources = self._sources(state, flags_of(self.over.states, self.over.windows, self.types))
        settings: dict[str, Any] = {
            "reach": reach, "down": self.over.order.downs[0], "around": part.around, "since": part.since,
            "budget": state.budget,
        }  # fmt: skip
        stays = part.keeps_size if any(window.kind in SHARES for window in self.over.windows) else None
        start = begun(sources, part.keys, stays=stays, **settings)

        def read(tries: np.ndarray) -> tuple[Rows, Rows]:
            history, before, part.near = found_onwards(sources, part.keys, start, tries=tries, **settings)
            return history, before

        part.again = read
        return read(np.zeros(len(part.keys), np.int64))

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
        sorts = [
            sortable(words[self.values.index(name)], self.types[name], down=down, first=first)
            for name, down, first in self.sorts
        ]
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

        def located(row: int) -> str:
            evaluation = int(evals[row])
            return self._where(np.array([evaluations.key_of()[evaluation], evaluation]), evaluations, loops)

        kind = self.types[self.over.order.by[0]] if self.over.order.by else None
        of_windows = Results(
            self.types, self.over.schema, kind, self.over.states, self.values, partitions, words, first, located
        )
        found = [of_windows.of(window) for window in self.over.windows] if len(evals) else []
        by_name = {name: column for columns in found for name, column in columns.items()}
        results = [by_name.get(name, evals) for name in self.results]
        return Targets(evals, np.stack([*words[self.kept], *results]), np.ones(len(evals), np.int64))

    def _first(
        self, evals: np.ndarray, kept: np.ndarray, at: Evaluations, anchors: Mapping[int, np.ndarray]
    ) -> First | None:
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
        return First(np.array(positions), dict(zip(self.results, np.stack(results).T, strict=True)))
