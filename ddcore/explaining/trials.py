"""Trials: the program on some of the input rows, and whether what is to be explained is still there.

A trial is a version: one fold has as many trials as it likes, and each costs only what it changes. The state is
in memory and goes on from fold to fold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from ddcore.base.errors import FoldError
from ddcore.base.lazy import numpy as np
from ddcore.base.threads import available
from ddcore.engine.worker import Worker
from ddcore.explaining.watching import run
from ddcore.planning.plan import Plan
from ddcore.traces.batch import Batch, concatenate
from ddcore.traces.budget import Budget

Counts = dict[tuple[int, ...], int]
"""The count of rows of the output, by their words."""


@dataclass(frozen=True)
class Goal:
    """What a trial looks for: ``watched`` tells which rows of the output count, given their words, and ``holds``
    whether all is as wanted with such rows.
    """

    watched: Callable[[list[np.ndarray]], np.ndarray]
    holds: Callable[[Counts], bool]


_PARTS = 256  # into which many rows are divided, to be removed part by part


class Elements:
    """Rows of inputs, numbered from 0 through all inputs: per input words, and as diffs the counts."""

    def __init__(self, inputs: Mapping[str, Batch]) -> None:
        self.inputs = {name: batch for name, batch in inputs.items() if len(batch)}
        ends = np.cumsum([len(batch) for batch in self.inputs.values()], dtype=np.int64)
        self.starts = dict(zip(self.inputs, [0, *ends.tolist()], strict=False))
        self.number = int(ends[-1]) if len(ends) else 0

    def batches(self, elements: np.ndarray, versions: np.ndarray, signs: np.ndarray) -> dict[str, Batch]:
        """Updates that add (sign 1) or remove (-1) elements at versions."""
        batches = {}
        for name, batch in self.inputs.items():
            start = self.starts[name]
            own = (elements >= start) & (elements < start + len(batch))
            if own.any():
                part = batch.take(elements[own] - start)
                batches[name] = Batch(part.words, [versions[own]], part.diffs * signs[own])
        return batches

    def taken(self, elements: Sequence[int]) -> dict[str, Batch]:
        """These elements, by input."""
        chosen = np.array(sorted(elements), dtype=np.int64)
        return {
            name: batch.take(chosen[(chosen >= self.starts[name]) & (chosen < self.starts[name] + len(batch))] - start)
            for name, batch in self.inputs.items()
            for start in [self.starts[name]]
        }


class Trials:
    """The program's ``output`` on ``base`` and any of the ``elements``; all of them to begin with.

    The ``plan`` has one time dimension. A trial in which the program fails, as a loop without a fixed point does, does
    not hold.
    """

    def __init__(
        self, plan: Plan, output: str, elements: Elements, goal: Goal, base: Mapping[str, Batch] | None = None
    ) -> None:
        self._plan, self.output, self.elements, self.goal = plan, output, elements, goal
        self.base = {
            name: batch.at([np.zeros(len(batch), dtype=np.int64)]) for name, batch in (base or {}).items() if len(batch)
        }
        self.present = np.ones(elements.number, dtype=bool)
        self.counts: Counts = {}
        self._version = 0
        self._worker: Worker | None = None
        self._broken = False

    @property
    def failed(self) -> bool:
        """Whether the program failed in a trial."""
        return self._broken

    def all_hold(self) -> bool:
        """Whether it is as wanted with all present elements."""
        return self.folded_apart([np.flatnonzero(self.present)])[0] if self._broken else self._started()

    def without_each(self, parts: Sequence[np.ndarray]) -> list[bool]:
        """For each part: whether it is as wanted with the present elements but for this part."""
        steps = [[(part, -1)] if not at else [(parts[at - 1], 1), (part, -1)] for at, part in enumerate(parts)]
        results = self._tried(steps)
        if results is None:
            left = [np.setdiff1d(np.flatnonzero(self.present), part) for part in parts]
            return self.folded_apart(left)
        self._tried([[(parts[-1], 1)]])
        return results

    def without_first(self, parts: Sequence[np.ndarray]) -> int:
        """The greatest n for which it is as wanted without the first n parts; these are removed."""
        results = self._tried([[(part, -1)] for part in parts])
        if results is None:
            left = np.flatnonzero(self.present)
            removed = [np.concatenate(parts[: at + 1]) for at in range(len(parts))]
            results = self.folded_apart([np.setdiff1d(left, rows) for rows in removed])
            number = max((at + 1 for at, result in enumerate(results) if result), default=0)
        else:
            number = max((at + 1 for at, result in enumerate(results) if result), default=0)
            if number < len(parts):
                self._tried([[(np.concatenate(parts[number:]), 1)]])
        for part in parts[:number]:
            self.present[part] = False
        return number

    def _tried(self, steps: Sequence[Sequence[tuple[np.ndarray, int]]]) -> list[bool] | None:
        """Whether each of some trials holds that go on from one another; None where the program fails in one."""
        if self._broken:
            return None
        if self._worker is None and not self._started():
            return None
        first = self._version + 1
        elements = np.concatenate([part for step in steps for part, _ in step])
        signs = np.concatenate([np.full(len(part), sign) for step in steps for part, sign in step])
        versions = np.concatenate([np.full(len(p), first + at) for at, step in enumerate(steps) for p, _ in step])
        self._version = first + len(steps) - 1
        return self._folded(self.elements.batches(elements, versions, signs), first, len(steps))

    def _folded(self, batches: Mapping[str, Batch], first: int, trials: int) -> list[bool] | None:
        assert self._worker is not None
        try:
            updates = run(self._worker, batches, is_first=first == 0).get(self.output)
        except FoldError:
            self._worker, self._broken = None, True
            return None
        return self._results(updates, first, trials)

    def _results(self, updates: Batch | None, first: int, trials: int) -> list[bool]:
        changes: list[tuple[int, tuple[int, ...], int]] = []
        if updates is not None:
            some = updates.take(np.flatnonzero(self.goal.watched(updates.words)))
            rows = list(zip(*(words.tolist() for words in some.words), strict=True)) or [()] * len(some)
            changes = sorted(zip(some.times[0].tolist(), rows, some.diffs.tolist(), strict=True))
        results, current, at = list[bool](), self.goal.holds(self.counts), first
        for version, group in groupby(changes, key=lambda change: change[0]):
            results += [current] * (version - at)
            for _, row, diff in group:
                total = self.counts.pop(row, 0) + diff
                if total:
                    self.counts[row] = total
            current, at = self.goal.holds(self.counts), version
        return results + [current] * (first + trials - at)

    def _started(self) -> bool:
        """Fold the base and the present elements as version 0; whether it is as wanted then."""
        self._worker, self._version, self.counts = Worker(self._plan, budget=Budget(threads=available())), 0, {}
        chosen = np.flatnonzero(self.present)
        zeros = np.zeros(len(chosen), dtype=np.int64)
        batches = self.elements.batches(chosen, zeros, zeros + 1)
        for name, batch in self.base.items():
            batches[name] = concatenate([batches[name], batch]) if name in batches else batch
        results = self._folded(batches, 0, 1)
        return bool(results and results[0])

    def folded_apart(self, sets: Sequence[np.ndarray]) -> list[bool]:
        """Whether each of some sets of elements holds; each is folded from nothing, as the program may fail in some."""
        before, results = self.present, []
        for chosen in sets:
            self.present = np.zeros(self.elements.number, dtype=bool)
            self.present[chosen] = True
            results.append(self._started())
        self.present, self._worker, self._broken = before, None, True
        return results


def minimal(trials: Trials) -> np.ndarray:
    """Elements with which the trials hold, and without any one of which they do not. All must hold to begin with.

    First whole parts are removed, then single elements. Each pass tries every part by itself, then removes those that
    can go, one after the other, as far as it still holds. Cost: about as many folds as elements remain of those that
    can be replaced by others; in most cases a few.
    """
    size = max(1, int(trials.present.sum()) // _PARTS)
    while True:
        left = np.flatnonzero(trials.present)
        if len(left) == 0:
            return left
        parts = np.array_split(left, max(1, -(-len(left) // size)))
        loose = [part for part, holds in zip(parts, trials.without_each(parts), strict=True) if holds]
        if loose:
            if trials.without_first(loose) == 0:  # only where a trial fails that did not before
                trials.present[loose[0]] = False
        elif size == 1:
            return left
        else:
            size = max(1, min(size // 4, len(left) // 4))
