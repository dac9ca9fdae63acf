"""``agg`` and ``distinct``: built-in aggregates, by kernels that process all versions of a group at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ddcore import encoding, kernels
from ddcore.errors import DiffOverflow
from ddcore.operators.base import Step
from ddcore.operators.reduction import Evaluations, Reduction, ReductionStep, Targets, decode_key
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

    @classmethod
    def of(cls, schema: Schema, allow_negative: bool) -> Distinct:
        """For an input of this schema."""
        return cls(schema, str(bool(allow_negative)), tuple(schema), bool(allow_negative))

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

    def evaluate(self, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> Targets:
        """The aggregates of each group that is not empty, once."""
        words, tables = self._rank_strings(history.words)
        results, present, error = kernels.aggregating.aggregate(
            self.inputs, loops, self._kinds, self._columns, history.offsets, words, history.times, history.diffs,
            evaluations.offsets, evaluations.versions, self.allow_negative,
        )  # fmt: skip
        self.raise_if(error, evaluations, loops)
        evals = np.flatnonzero(present)
        results = np.take(results, evals, axis=1)
        self._check_digits(results, evaluations, evals)
        for place, table in tables.items():
            valid = results[place] != encoding.NULL
            results[place, valid] = table[results[place, valid]]
        return Targets(evals, results, np.ones(len(evals), dtype=np.int64))

    def _check_digits(self, results: np.ndarray, at: Evaluations, evals: np.ndarray) -> None:
        """Raises DiffOverflow for a sum of decimals with too many digits; the kernel checks int64 only."""
        for place, (name, kind, _) in enumerate(self.aggregates):
            dtype = self.result[name]
            if kind != "sum" or dtype.name != "decimal":
                continue
            beyond = np.flatnonzero(np.abs(results[place]) >= 10**dtype.precision)
            if len(beyond):
                key = decode_key(self.port, at.keys, int(at.key_of()[evals[beyond[0]]]))
                raise DiffOverflow(f"{self.label}: key {key!r}: {name} has too many digits for {dtype}")

    def _rank_strings(self, words: np.ndarray) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        """Words in which string arguments of min and max are ordered as strings.

        Also returns the tables from ranks to words, by aggregate.
        """
        tables: dict[int, np.ndarray] = {}
        types = [self.port.schema[name] for name in self.port.values]
        by_column: dict[int, np.ndarray] = {}
        for place, (kind, column) in enumerate(zip(self._kinds, self._columns, strict=True)):
            if kind not in (kernels.aggregating.MIN, kernels.aggregating.MAX):
                continue
            if column not in by_column:
                ranks, table = encoding.rank_words(words[column], types[column])
                if table is None:
                    continue
                words = words.copy() if not by_column else words
                words[column], by_column[column] = ranks, table
            tables[place] = by_column[column]
        return words, tables

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
