"""``top_k``: the first rows of each group, by some of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

from ddcore.base.digests import digest
from ddcore.base.errors import ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema
from ddcore.base.source_line import caller
from ddcore.operators import arguments
from ddcore.operators.evaluations import Evaluations, Targets
from ddcore.operators.order import Order, sortable
from ddcore.operators.reduction import Reduction, ReductionStep
from ddcore.operators.tree import Tree
from ddcore.text.wording import brief
from ddcore.traces.trace import Rows

if TYPE_CHECKING:
    from ddcore.operators.base import Dataflow
    from ddcore.operators.block import Block

Ties = Literal["cut", "rank"]


@dataclass(frozen=True, eq=False)
class TopK(Reduction):
    """The first ``k`` rows of each group, ordered by the columns ``by``, each ascending or ``descending``.

    Nulls come last either way. With ``ties`` "cut" there are k rows at most, and the other columns, ascending, decide
    between equal ones; with "rank" the result has every row that has fewer than k others before it.
    """

    name = "top_k"
    signs = "positive"
    k: int
    by: tuple[str, ...]
    descending: tuple[bool, ...]
    ties: str

    @classmethod
    def of(
        cls,
        schema: Schema,
        keys: Sequence[str],
        *,
        k: int,
        by: str | Sequence[str],
        descending: bool | Sequence[bool],
        ties: Ties,
        allow_negative: bool,
    ) -> TopK:
        """For groups by ``keys`` of an input of this schema. Raises ProgramError."""
        order = Order.of(schema, keys, by, descending, where="top_k")
        negative = arguments.flag(allow_negative, "top_k: allow_negative")
        if not order.by:
            raise ProgramError(f"{caller()}: top_k: there is no column to order by", "name one or more")
        if isinstance(k, bool) or not isinstance(k, int) or not 0 < k < 2**31:
            raise ProgramError(f"{caller()}: top_k: k is {brief(k)}", "give a positive whole number")
        arguments.choice(ties, get_args(Ties), "top_k: ties")
        columns = {name: schema[name] for name in (*keys, *schema)}
        text = digest(str(k), ties, str(negative), keys, order.by, map(str, order.downs))
        return cls(columns, text, tuple(keys), negative, k, order.by, order.downs, ties)

    def tree(self, source: Schema) -> Tree | None:
        """The first rows of parts of a group, of which its first rows are some."""
        hashed = [name for name in source if name not in self.group]
        if self.allow_negative or not hashed:
            return None
        level = partial(_Level.above, self)
        return Tree.over(source, self.group, hashed, self.text, level, level, self)

    def step_at(self, plan: Dataflow, block: Block, port: int) -> ReductionStep:
        """The work of a top_k block."""
        return _TopKStep(self, plan, block, port)


@dataclass(frozen=True, eq=False)
class _Level(TopK):
    """The first rows of each bucket of a group."""

    inner = in_tree = True

    @classmethod
    def above(cls, whole: TopK, source: Schema, group: tuple[str, ...], text: str) -> _Level:
        """For an input of the schema ``source``."""
        columns = {name: source[name] for name in (*group, *source)}
        return cls(columns, text, group, False, whole.k, whole.by, whole.descending, whole.ties)


class _TopKStep(ReductionStep):
    def __init__(self, top: TopK, plan: Dataflow, block: Block, port: int) -> None:
        super().__init__(top, plan, block, port)
        self.top = top
        rest = [name for name in self.port.values if name not in top.by]
        self.order = [*zip(top.by, top.descending, strict=True), *((name, False) for name in rest)]

    def evaluate(self, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> Targets:
        """Sorts the rows of all groups at once and takes the first ones of each."""
        evals, rows, counts = self.accumulate(evaluations, history, loops)
        present = np.flatnonzero(counts > 0)
        evals, rows, counts = evals[present], rows[present], counts[present]
        words = np.take(history.words, rows, axis=1)
        values, types = self.port.values, self.port.schema
        sorts = [sortable(words[values.index(name)], types[name], down=down, first=False) for name, down in self.order]
        columns = [column for sort in sorts for column in sort]
        order = np.lexsort([*columns[::-1], evals])
        evals, counts, words = evals[order], counts[order], np.take(words, order, axis=1)
        tied = [column[order] for column in columns[: 2 * len(self.top.by)]]
        before = self._before(evals, np.minimum(counts, self.top.k), tied)
        if self.top.ties == "cut":
            counts = np.clip(self.top.k - before, 0, counts)
        else:
            counts = np.where(before < self.top.k, counts, 0)
        nonzero = np.flatnonzero(counts)
        return Targets(evals[nonzero], np.take(words, nonzero, axis=1), counts[nonzero])

    def _before(self, evals: np.ndarray, counts: np.ndarray, tied: list[np.ndarray]) -> np.ndarray:
        """How many rows of the same group come before each, counted up to k: int64[rows].

        With ``ties`` "rank" equal rows do not come before each other.
        """
        total = np.cumsum(counts) - counts
        starts = np.ones(len(evals), dtype=bool)
        starts[1:] = evals[1:] != evals[:-1]
        first = np.maximum.accumulate(np.where(starts, np.arange(len(evals)), 0))
        before: np.ndarray = total - total[first]
        if self.top.ties == "cut":
            return before
        for column in tied:
            starts[1:] |= column[1:] != column[:-1]
        leader = np.maximum.accumulate(np.where(starts, np.arange(len(evals)), 0))
        result: np.ndarray = before[leader]
        return result
