"""Totals: aggregates that add up, kept without the rows of their groups.

A row adds to the totals of its group: to the number of rows, to sums, to numbers of nulls. So rows become updates of
*components* of totals, linearly: a row of the key and a component's number, with what is added as the diff. They are
added up by key and time before they go on. The reduction evaluates the totals of a changed key, a handful of
components, and needs no tree for large groups. What a component is: :mod:`ddcore.kernels.totals`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from ddcore import kernels
from ddcore.aggregates import AGGREGATES
from ddcore.batch import Batch
from ddcore.digests import Part, digest
from ddcore.libraries import numpy as np
from ddcore.operators.agg import Aggregation, Named, ResultStep
from ddcore.operators.base import Linear, State
from ddcore.operators.reduction import Changes, Evaluations, Portion, Targets
from ddcore.schema import Schema, Type
from ddcore.trace import Rows

if TYPE_CHECKING:
    from ddcore.plan import Block, Plan

__all__ = ["Contributions", "TotalsStep", "contributions"]

_FLOATS = ("FLOATS", "INFINITE", "BELOW_ALL", "UNDEFINED")
_QUANTITIES: Mapping[str, tuple[str, ...]] = {
    "count": ("ROWS",),
    "sum": ("VALUES",),
    "mean": ("VALUES", "NULLS"),
    "any": ("TRUES", "NULLS"),
    "all": ("TRUES", "NULLS"),
}
"""The quantities of which an aggregate is computed; of floats ``_FLOATS`` in the place of ``VALUES``."""

Quantity = tuple[str, str | None]
"""A kind in :mod:`ddcore.kernels.totals`, and its column."""


@dataclass(frozen=True, eq=False)
class Contributions(Linear):
    """What rows add to the totals of their groups: the key and a component, as often as is added to it."""

    name = "contributions"
    inner = True
    source: Schema
    keys: tuple[str, ...]
    quantities: tuple[Quantity, ...]

    @property
    def carried(self) -> Mapping[str, str]:
        """The key columns."""
        return {name: name for name in self.keys}

    def place(self, kind: str, column: str | None) -> int:
        """The number of a quantity."""
        return self.quantities.index((kind, column))

    @property
    def kinds(self) -> np.ndarray:
        """The kind of each quantity."""
        return np.array([getattr(kernels.totals, kind) for kind, _ in self.quantities], dtype=np.int64)

    def apply(self, batch: Batch, place: str) -> Batch:
        """Rows are added up by key and time, so that many become few updates: linear in the rows."""
        columns = dict(zip(self.source, batch.words, strict=True))
        names = [name for name in self.source if name not in self.keys]
        keys = [columns[name] for name in self.keys]
        numbers, heads = kernels.totals.group_rows(np.stack([*keys, *batch.times]))
        words = np.stack([columns[name] for name in names]) if names else np.empty((0, len(batch)), dtype=np.int64)
        places = [0 if column is None else names.index(column) for _, column in self.quantities]
        rows, components, diffs = kernels.totals.contributions(
            numbers, heads, words, np.ascontiguousarray(batch.diffs),
            np.empty(0, np.int64) if batch.high is None else batch.high, self.kinds, np.array(places, dtype=np.int64),
        )  # fmt: skip
        return Batch([*(key[rows] for key in keys), components], [time[rows] for time in batch.times], diffs)


def contributions(whole: Aggregation, source: Schema, *, nonnegative: bool) -> Contributions | None:
    """What the rows of an aggregation add to its totals; None where it needs the rows.

    Totals do not say whether a row has a negative count: with ``nonnegative`` none has. With ``allow_negative`` they are
    enough for sums and counts alone, as a value that is no number counts by the sign of each of its rows. A number of
    rows alone is its own total: rows of equal keys are one row.
    """
    kinds = {kind for _, kind, _ in whole.aggregates}
    arguments = [source[argument] for _, _, argument in whole.aggregates if argument is not None]
    exact = kinds <= {"count", "sum", "mean"} and all(each.name != "float64" for each in arguments)
    if not arguments or not kinds <= _QUANTITIES.keys() or not (nonnegative or (whole.allow_negative and exact)):
        return None
    quantities: dict[Quantity, None] = {("ROWS", None): None}
    for _, kind, argument in whole.aggregates:
        quantities |= dict.fromkeys(_quantities(kind, argument, source))
    parts: list[Part] = [[kind, column or []] for kind, column in quantities]
    component = next(name for number in count() if (name := f"_component_{number}") not in source)
    schema = {key: source[key] for key in whole.group} | {component: Type("int64")}
    return Contributions(schema, digest(whole.group, parts), source, whole.group, tuple(quantities))


def _quantities(kind: str, argument: str | None, source: Schema) -> Sequence[Quantity]:
    """The quantities of an aggregate, the first one first."""
    is_float = argument is not None and source[argument].name == "float64"
    each = [name for name in _QUANTITIES[kind] for name in (_FLOATS if is_float and name == "VALUES" else (name,))]
    return [(name, argument) for name in each]


class TotalsStep(ResultStep):
    """The work of an aggregation over its totals."""

    def __init__(self, aggregation: Aggregation, plan: Plan, block: Block) -> None:
        super().__init__(aggregation, plan, block)
        operator = plan.nodes[self.port.node].operator
        assert isinstance(operator, Contributions)
        aggregates = [self._aggregate(operator, *named) for named in self.aggregates]
        self._kinds, self._firsts, self._nulls, self._units = np.array(aggregates, dtype=np.int64).T.copy()
        self._quantities = operator.kinds
        self._is_short = self.inputs == 1 and all(kind not in _FLOATS for kind, _ in operator.quantities)

    def changes(self, part: Portion, history: Rows, before: Rows, upper: np.ndarray, loops: np.ndarray) -> Changes:
        """In one pass for keys with short histories and totals of one word."""
        if not (self.short and self._is_short) or upper.shape[1]:
            return super().changes(part, history, before, upper, loops)
        return self.in_one_pass(
            (self._kinds, self._firsts, self._nulls, self._units, len(self._quantities)),
            part, history, before, upper, loops,
        )  # fmt: skip

    def evaluate(self, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> Targets:
        """The aggregates of each group that has rows, once."""
        results, present, error = kernels.totals.aggregate(
            self.inputs, loops, self._quantities, self._kinds, self._firsts, self._nulls, self._units, history.offsets,
            np.ascontiguousarray(history.words[0]), history.times, history.diffs, evaluations.offsets,
            evaluations.versions,
        )  # fmt: skip
        self.raise_if(error, evaluations, loops)
        evals = np.flatnonzero(present)
        results = np.take(results, evals, axis=1)
        self.check_digits(results, evaluations, evals)
        return Targets(evals, results, np.ones(len(evals), dtype=np.int64))

    def _aggregate(self, operator: Contributions, name: str, kind: str, argument: str | None) -> tuple[int, ...]:
        """The kernel's kind of an aggregate, the number of its first quantity and that of its nulls (-1: none), and the
        word of 1 in its column.
        """
        dtype = operator.source[argument] if argument is not None else Type("int64")
        own = _quantities(kind, argument, operator.source)
        number = getattr(kernels.totals, kind.upper() if kind in ("any", "all") else AGGREGATES[kind].kind(dtype))
        nulls = operator.place("NULLS", argument) if ("NULLS", argument) in own else -1
        return number, operator.place(*own[0]), nulls, 10**dtype.scale
