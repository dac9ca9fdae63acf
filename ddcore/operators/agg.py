"""``agg`` and ``distinct``: built-in aggregates, by kernels that go through the versions of a group at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ddcore import encoding, kernels
from ddcore.errors import DiffOverflow
from ddcore.operators.base import Step
from ddcore.operators.reduction import Evaluations, Reduction, ReductionStep, Wanted, decode_key
from ddcore.schema import Schema
from ddcore.trace import Rows

if TYPE_CHECKING:
    from ddcore.plan import Block, Plan

__all__ = ["Aggregation", "Distinct"]


@dataclass(frozen=True, eq=False)
class Aggregation(Reduction):
    """One row per group: its key and the aggregates: by result name the kind and the argument column."""

    name = "agg"
    aggregates: tuple[tuple[str, str, str | None], ...] = ()
    result: Schema = field(default_factory=dict)

    def step(self, plan: Plan, block: Block) -> Step:
        """The work of an agg block."""
        return _AggregationStep(self, plan, block)


@dataclass(frozen=True, eq=False)
class Distinct(Reduction):
    """One of each row whose count is positive: an aggregation by all columns, without aggregates."""

    name = "distinct"

    def step(self, plan: Plan, block: Block) -> Step:
        """The work of a distinct block."""
        return _AggregationStep(self, plan, block)


class _AggregationStep(ReductionStep):
    quantity = "a sum or a count"

    def __init__(self, reduction: Aggregation | Distinct, plan: Plan, block: Block) -> None:
        super().__init__(reduction, plan, block)
        self.aggregates = reduction.aggregates if isinstance(reduction, Aggregation) else ()
        self.result: Schema = reduction.result if isinstance(reduction, Aggregation) else {}
        self._kinds, self._columns = self._arguments()

    def evaluate(self, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> Wanted:
        """The aggregates of each group that is not empty, once."""
        words, back = self._ranked(history.words)
        results, present, wrong = kernels.aggregating.aggregate(
            self.inputs, loops, self._kinds, self._columns, history.offsets, words, history.times, history.diffs,
            evaluations.offsets, evaluations.versions, self.allow_negative,
        )  # fmt: skip
        self.raise_if(wrong, evaluations, loops)
        there = np.flatnonzero(present)
        results = np.take(results, there, axis=1)
        self._check_digits(results, evaluations, there)
        for place, table in back.items():
            found = results[place] != encoding.NULL
            results[place, found] = table[results[place, found]]
        return Wanted(there, results, np.ones(len(there), dtype=np.int64))

    def _check_digits(self, results: np.ndarray, at: Evaluations, evals: np.ndarray) -> None:
        """A sum of decimals has the digits its type has, or is an error; the kernel only knows of int64."""
        for place, (name, kind, _) in enumerate(self.aggregates):
            made = self.result[name]
            if kind != "sum" or made.name != "decimal":
                continue
            beyond = np.flatnonzero(np.abs(results[place]) >= 10**made.precision)
            if len(beyond):
                key = decode_key(self.port, at.keys, int(at.key_of()[evals[beyond[0]]]))
                raise DiffOverflow(f"{self.label}: key {key!r}: {name} has too many digits for {made}")

    def _ranked(self, words: np.ndarray) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        """Words in which string arguments of min and max are ordered as strings.

        And the tables that lead back, by aggregate.
        """
        back: dict[int, np.ndarray] = {}
        types = [self.port.schema[name] for name in self.port.values]
        done: dict[int, np.ndarray] = {}
        for place, (kind, column) in enumerate(zip(self._kinds, self._columns, strict=True)):
            if kind not in (kernels.aggregating.MIN, kernels.aggregating.MAX):
                continue
            if column not in done:
                ranks, table = encoding.rank_words(words[column], types[column])
                if table is None:
                    continue
                words = words.copy() if not done else words
                words[column], done[column] = ranks, table
            back[place] = done[column]
        return words, back

    def _arguments(self) -> tuple[np.ndarray, np.ndarray]:
        kinds, columns = [], []
        for _, kind, argument in self.aggregates:
            place = self.port.values.index(argument) if argument is not None else 0
            floats = argument is not None and self.port.schema[argument].name == "float64"
            kinds.append(
                kernels.aggregating.FLOAT_SUM
                if kind == "sum" and floats
                else getattr(kernels.aggregating, kind.upper())
            )
            columns.append(place)
        return np.array(kinds, dtype=np.int64), np.array(columns, dtype=np.int64)
