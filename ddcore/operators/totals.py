"""Totals: aggregates that add up, kept without the rows of their groups.

A row adds to the totals of its group: to the number of rows, to sums, to numbers of nulls. So rows become updates of
*components* of totals, linearly: a row of the key and a component's number, with what is added as the diff. They are
added up by key and time before they go on. The reduction evaluates the totals of a changed key, a handful of
components, and needs no tree for large groups. What a component is: :mod:`ddcore.kernels.totals`.

Distinct values are counted as rows of a ``distinct`` of keys and values. Aggregates that pick a value are computed from
rows with only their columns, by an aggregation of their own; its results are rows among the components, which have no
number of a component.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ddcore import kernels
from ddcore.base.digests import Part, digest
from ddcore.base.lazy import numpy as np
from ddcore.base.record import record
from ddcore.base.schema import Schema, Type
from ddcore.data import encoding
from ddcore.operators.aggregates import AGGREGATES
from ddcore.operators.aggregation import Aggregation, Distinct, Named, ResultStep
from ddcore.operators.base import Keeping, Linear, Operator
from ddcore.operators.evaluations import Evaluations, Targets
from ddcore.operators.partial import TreeAggregation
from ddcore.text.wording import fresh
from ddcore.traces.batch import Batch
from ddcore.traces.trace import Rows

if TYPE_CHECKING:
    from ddcore.operators.base import Dataflow
    from ddcore.operators.block import Block

_FLOATS = ("FLOATS", "INFINITE", "BELOW_ALL", "UNDEFINED")
_QUANTITIES: Mapping[str, tuple[str, ...]] = {
    "count": ("ROWS",),
    "count_distinct": ("DISTINCT",),
    "sum": ("VALUES",),
    "mean": ("VALUES", "NULLS"),
    "any": ("TRUES", "NULLS"),
    "all": ("TRUES", "NULLS"),
}
"""The quantities of which an aggregate is computed; of floats ``_FLOATS`` in the place of ``VALUES``."""

_PICKED = -1  # in the place of a component: results of the aggregates that pick a value

Quantity = tuple[str, str | None]
"""A kind in :mod:`ddcore.kernels.contributions`, or DISTINCT, and its column."""


@dataclass(frozen=True, eq=False)
class Sums(Keeping):
    """All totals of an aggregation by key and component; and what other aggregates gave, in columns of their own.

    ``quantities``: the totals; ``picked``: the columns of other aggregates.
    """

    name = "totals"
    inner = True
    quantities: tuple[Quantity, ...]
    picked: tuple[str, ...]

    def apply(self, batch: Batch, source_line: str) -> Batch:
        """The batch as it is."""
        return batch


@dataclass(frozen=True, eq=False)
class Contributions(Linear):
    """What rows add to the totals of their groups: the key and a component, as often as is added to it.

    ``kinds``: of each quantity what these rows add to, which may be nothing, and its column.
    """

    name = "contributions"
    inner = True
    source: Schema
    keys: tuple[str, ...]
    kinds: tuple[Quantity, ...]

    @property
    def carried(self) -> Mapping[str, str]:
        """The key columns."""
        return {name: name for name in self.keys}

    @cached_property
    def _names(self) -> list[str]:
        return [name for name in self.source if name not in self.keys]

    def apply(self, batch: Batch, source_line: str) -> Batch:
        """Rows are added up by key and time, so that many become few updates: linear in the rows."""
        columns = dict(zip(self.source, batch.words, strict=True))
        keys = [columns[name] for name in self.keys]
        numbers, heads = kernels.contributions.group_rows(np.stack([*keys, *batch.times]))
        values = [columns[name] for name in self._names]
        positions = [0 if column is None else self._names.index(column) for _, column in self.kinds]
        rows, components, diffs = kernels.contributions.of_groups(
            numbers, heads, np.stack(values) if values else np.empty((0, len(batch)), dtype=np.int64),
            np.ascontiguousarray(batch.diffs),
            np.empty(0, np.int64) if batch.high is None else np.ascontiguousarray(batch.high),
            _kernel_kinds(self.kinds), np.array(positions, dtype=np.int64),
        )  # fmt: skip
        nothing = [np.full(len(rows), encoding.NULL)] * (len(self.schema) - len(keys) - 1)
        return Batch([*(key[rows] for key in keys), components, *nothing], [time[rows] for time in batch.times], diffs)


@dataclass(frozen=True, eq=False)
class Columns(Keeping):
    """Some columns of rows. ``without_nulls``: of the rows that have a value in the last one."""

    name = "columns"
    inner = True
    source: Schema
    without_nulls: bool

    @classmethod
    def of(cls, source: Schema, names: Sequence[str], *, without_nulls: bool = False) -> Columns:
        """The columns ``names`` of rows with the schema ``source``."""
        schema = {name: source[name] for name in names}
        return cls(schema, digest(names, str(without_nulls)), source, without_nulls)

    def apply(self, batch: Batch, source_line: str) -> Batch:
        """Linear."""
        columns = dict(zip(self.source, batch.words, strict=True))
        rows = batch.of([columns[name] for name in self.schema])
        return rows.take(rows.words[-1] != encoding.NULL) if self.without_nulls else rows


@dataclass(frozen=True, eq=False)
class Values(Distinct):
    """The distinct values of a column in each group."""

    inner = True

    @property
    def label(self) -> str:
        """Messages name the operator that this is a part of."""
        return "agg"


@dataclass(frozen=True, eq=False)
class Picks(TreeAggregation):
    """The aggregates of a group that pick a value."""

    name = "agg"
    inner = True


@dataclass(frozen=True, eq=False)
class Picked(Linear):
    """Results of aggregates that pick a value, as rows among components."""

    name = "picked"
    inner = True
    keys: tuple[str, ...]

    @property
    def carried(self) -> Mapping[str, str]:
        """The key columns."""
        return {name: name for name in self.keys}

    def apply(self, batch: Batch, source_line: str) -> Batch:
        """Linear."""
        width = len(self.keys)
        return batch.of([*batch.words[:width], np.full(len(batch), _PICKED), *batch.words[width:]])


@record
class Totals:
    """The operators from the rows of an aggregation to its totals.

    ``chains``: each begins at the rows, and each operator's input is the one before it; ``sums`` has all their ends.
    """

    chains: tuple[tuple[Operator, ...], ...]
    sums: Sums


def totals_of(whole: Aggregation, source: Schema, *, nonnegative: bool) -> Totals | None:
    """The totals of an aggregation of rows with the schema ``source``; None where it needs the rows.

    Totals do not say whether a row has a negative count: with ``nonnegative`` none has. With ``allow_negative`` they
    are enough for sums and counts alone, as a value that is no number counts by the sign of each of its rows. A number
    of rows alone is its own total: rows of equal keys are one row. Rows that are needed anyway, for other aggregates of
    the same columns, are enough.
    """
    picks = [aggregate for aggregate in whole.aggregates if aggregate[1] not in _QUANTITIES]
    added = [aggregate for aggregate in whole.aggregates if aggregate[1] in _QUANTITIES]
    if not {argument for *_, argument in added} - {argument for *_, argument in picks} - {None}:
        return None
    if not nonnegative and not (whole.allow_negative and not picks and _adds_up(added, source)):
        return None
    quantities: dict[Quantity, None] = {("ROWS", None): None}
    for _, kind, argument in added:
        quantities |= dict.fromkeys(_quantities(kind, argument, source))
    component = next(fresh("_component_", source))
    names = [f"{component}_{number}" for number in range(len(picks))]
    schema = {key: source[key] for key in whole.group} | {component: Type("int64")}
    schema |= {name: whole.result[result] for name, (result, *_) in zip(names, picks, strict=True)}
    chains: list[tuple[Operator, ...]] = [(_contributions(schema, source, whole.group, [*quantities]),)]
    for number, (kind, argument) in enumerate(quantities):
        if kind == "DISTINCT" and argument is not None:
            values = Columns.of(source, [*whole.group, argument], without_nulls=True)
            once = Values.of(values.schema, allow_negative=False)
            kinds: list[Quantity] = [("NOTHING", None)] * len(quantities)
            kinds[number] = ("ROWS", None)
            chains.append((values, once, _contributions(schema, once.schema, whole.group, kinds)))
    if picks:
        chains.append(_picked(whole, source, picks, schema))
    return Totals(tuple(chains), Sums(schema, digest([*map(_part, quantities)]), tuple(quantities), tuple(names)))


def _adds_up(aggregates: Sequence[Named], source: Schema) -> bool:
    """Whether these are sums and counts of integers."""
    kinds = {kind for _, kind, _ in aggregates}
    arguments = (source[argument] for *_, argument in aggregates if argument is not None)
    return kinds <= {"count", "sum", "mean"} and all(argument.name != "float64" for argument in arguments)


def _quantities(kind: str, argument: str | None, source: Schema) -> Sequence[Quantity]:
    """The quantities of an aggregate, the first one first."""
    is_float = argument is not None and source[argument].name == "float64"
    names = [name for name in _QUANTITIES[kind] for name in (_FLOATS if is_float and name == "VALUES" else (name,))]
    return [(name, argument) for name in names]


def _contributions(schema: Schema, source: Schema, keys: tuple[str, ...], quantities: list[Quantity]) -> Contributions:
    kinds = tuple(("NOTHING", None) if kind == "DISTINCT" else (kind, column) for kind, column in quantities)
    return Contributions(schema, digest(keys, [*map(_part, kinds)]), source, keys, kinds)


def _picked(
    whole: Aggregation, source: Schema, picks: Sequence[Named], schema: Schema
) -> tuple[Columns, Picks, Picked]:
    """From the rows to the results of aggregates that pick a value."""
    arguments = dict.fromkeys(str(argument) for *_, argument in picks)
    rows = Columns.of(source, [*whole.group, *(name for name in arguments if name not in whole.group)])
    part = Aggregation.of(rows.schema, whole.group, tuple(picks), allow_negative=False)
    results = Picks(part.schema, part.text, part.group, part.allow_negative, part.aggregates, part.result)
    return rows, results, Picked(schema, digest(whole.group), whole.group)


def _part(quantity: Quantity) -> Part:
    kind, column = quantity
    return [kind, column or []]


def _kernel_kinds(quantities: Sequence[Quantity]) -> np.ndarray:
    numbers = [getattr(kernels.contributions, "ROWS" if kind == "DISTINCT" else kind) for kind, _ in quantities]
    return np.array(numbers, dtype=np.int64)


class TotalsStep(ResultStep):
    """The work of an aggregation over its totals."""

    def __init__(self, aggregation: Aggregation, plan: Dataflow, block: Block, port: int) -> None:
        super().__init__(aggregation, plan, block, port)
        sums = plan.nodes[self.port.node].operator
        assert isinstance(sums, Sums)
        (rows,) = plan.nodes[block.node].inputs
        source = plan.nodes[rows].schema
        self._picked = len(sums.picked)
        self._is_added = {number: kind in _QUANTITIES for number, (_, kind, _) in enumerate(self.aggregates)}
        added = [
            _aggregate(sums, source, *aggregate[1:]) for aggregate in self.aggregates if aggregate[1] in _QUANTITIES
        ]
        self._kinds, self._firsts, self._nulls, self._units = np.array(added, dtype=np.int64).T.copy()
        self._quantities = _kernel_kinds(sums.quantities)
        floats = any(kind in _FLOATS for kind, _ in sums.quantities)
        if not floats and not self._picked:
            self.one_pass = self._kinds, self._firsts, self._nulls, self._units, len(self._quantities)

    def evaluate(self, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> Targets:
        """The aggregates of each group that has rows, once."""
        results, present, error = kernels.totals.aggregate(
            self.inputs, loops, self._quantities, self._kinds, self._firsts, self._nulls, self._units, history.offsets,
            np.ascontiguousarray(history.words[0]), history.times, history.diffs, evaluations.offsets,
            evaluations.versions,
        )  # fmt: skip
        self.raise_if(error, evaluations, loops)
        if self._picked:
            results = self._with_picked(results, evaluations, history, loops)
        evals = np.flatnonzero(present)
        results = np.take(results, evals, axis=1)
        self.check_digits(results, evaluations, evals)
        return Targets(evals, results, np.ones(len(evals), dtype=np.int64))

    def _with_picked(self, added: np.ndarray, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> np.ndarray:
        """The results of totals and those of other aggregates, which are rows of the history, in their order."""
        chosen = history.words[0] == _PICKED
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(chosen)])[history.offsets]
        words, times = (np.compress(chosen, array, axis=1) for array in (history.words[1:], history.times))
        rows = self.accumulate(evaluations, Rows(offsets, words, times, history.diffs[chosen]), loops)
        picked = np.full((self._picked, added.shape[1]), encoding.NULL)
        picked[:, rows[0]] = words[:, rows[1]]
        sides = {True: iter(added), False: iter(picked)}
        return np.stack([next(sides[is_added]) for is_added in self._is_added.values()])


def _aggregate(sums: Sums, source: Schema, kind: str, argument: str | None) -> tuple[int, ...]:
    """Of an aggregate the kernel's kind, the number of its first quantity and that of its nulls (-1: none), and the
    word of 1 in its column.
    """
    dtype = source[argument] if argument is not None else Type("int64")
    own = _quantities(kind, argument, source)
    number = getattr(kernels.totals, kind.upper() if kind in ("any", "all") else AGGREGATES[kind].kind(dtype))
    nulls = sums.quantities.index(("NULLS", argument)) if ("NULLS", argument) in own else -1
    return number, sums.quantities.index(own[0]), nulls, 10**dtype.scale
