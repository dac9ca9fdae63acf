"""Partial aggregates: the levels of a tree below ``agg``. A group's rows become a few that stand for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ddcore import kernels
from ddcore.base.digests import digest
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, Type
from ddcore.operators.aggregation import Aggregation, AggregationStep, Named
from ddcore.operators.evaluations import Evaluations, Targets
from ddcore.operators.reduction import ReductionStep
from ddcore.operators.tree import Tree
from ddcore.traces.trace import Rows

if TYPE_CHECKING:
    from ddcore.operators.base import Dataflow
    from ddcore.operators.block import Block

__all__ = ["PartialAggregation", "TreeAggregation", "tree"]

_DISTINCT = "count_distinct"


@dataclass(frozen=True, eq=False)
class TreeAggregation(Aggregation):
    """An aggregation whose large groups have a tree of partial results."""

    def tree(self, source: Schema) -> Tree | None:
        """Partial aggregates."""
        return tree(self, source)


@dataclass(frozen=True, eq=False)
class PartialAggregation(Aggregation):
    """For each group a few rows, with a column for each aggregate: all aggregates of several groups together can be
    had from these rows, the number of rows included.
    """

    name = "partial"
    inner = in_tree = True

    @classmethod
    def below(cls, aggregates: tuple[Named, ...], source: Schema, keys: Sequence[str], text: str) -> PartialAggregation:
        """For groups by ``keys`` of an input with the arguments of the aggregates, none of which counts rows."""
        columns = {name: _type(kind, source[str(argument)]) for name, kind, argument in aggregates}
        return cls({key: source[key] for key in keys} | columns, text, tuple(keys), False, aggregates, columns)

    def step_at(self, plan: Dataflow, block: Block, port: int) -> ReductionStep:
        """The work of a level."""
        return _PartialStep(self, plan, block, port)

    @property
    def label(self) -> str:
        """Messages name the operator whose level this is."""
        return "agg"


def tree(whole: Aggregation, source: Schema) -> Tree | None:
    """The levels below an aggregation, or None where it has none.

    With ``allow_negative`` there is nothing that few rows could stand for. Distinct values are counted
    where all rows with one value are in one bucket, so only those of one column.
    """
    distinct = {argument for _, kind, argument in whole.aggregates if kind == _DISTINCT}
    if whole.allow_negative or len(distinct) > 1:
        return None
    hashed = [str(column) for column in distinct] or [name for name in source if name not in whole.group]
    if not hashed:
        return None  # equal rows are one
    parts = [(f"_part_{number}", kind, argument) for number, (_, kind, argument) in enumerate(whole.aggregates)]
    first = tuple((name, kind, argument) for name, kind, argument in parts if argument is not None)
    later = tuple((name, _above(kind), name) for name, kind, _ in first)
    whole_from_parts = tuple(
        (name, _above(kind), part if argument is not None else None)
        for (name, _, argument), (part, kind, _) in zip(whole.aggregates, parts, strict=True)
    )
    text = digest(digest("tree", whole.text), "root")
    root = type(whole)(whole.schema, text, whole.group, False, whole_from_parts, whole.result)
    leaf, branch = (partial(PartialAggregation.below, level) for level in (first, later))
    return Tree.over(source, whole.group, hashed, whole.text, leaf, branch, root)


def _type(kind: str, argument: Type) -> Type:
    if kind == _DISTINCT:
        return Type("int64")
    return Type("decimal", 18, argument.scale) if argument.name == "decimal" and kind in ("sum", "mean") else argument


def _above(kind: str) -> str:
    """The aggregate of partial results that gives that of the rows."""
    return "sum" if kind == _DISTINCT else kind


class _PartialStep(AggregationStep):
    short = False  # a group has one row there, but as many as it needs here

    def __init__(self, level: PartialAggregation, plan: Dataflow, block: Block, port: int) -> None:
        super().__init__(level, plan, block, port)
        most = [10**18 - 1 if kind.name == "decimal" else 2**63 - 1 for kind in level.result.values()]
        self._most = np.array(most, dtype=np.int64)

    def evaluate(self, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> Targets:
        """The rows that stand for each group that is not empty."""
        words, tables = self._rank_strings(history.words)
        evals, counts, results, error = kernels.partials.summarise(
            self.inputs, loops, self._kinds, self._columns, self._most, history.offsets, words, history.times,
            history.diffs, evaluations.offsets, evaluations.versions,
        )  # fmt: skip
        self.raise_if(error, evaluations, loops)
        self._unrank(results, tables)
        return Targets(evals, results, counts)
