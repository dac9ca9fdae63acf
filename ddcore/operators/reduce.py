"""``reduce``: a user's function of the rows of each group and their counts (seed 000's group)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddcore import encoding
from ddcore.functions import name_of
from ddcore.operators.base import Step
from ddcore.operators.calling import Frames, call
from ddcore.operators.reduction import Evaluations, Reduction, ReductionStep, Targets
from ddcore.schema import Schema
from ddcore.trace import Rows

if TYPE_CHECKING:
    from ddcore.plan import Block, Plan

__all__ = ["Reduce"]


@dataclass(frozen=True, eq=False)
class Reduce(Reduction):
    """The rows that ``function`` gives for each group; ``result`` are its columns, beside the key."""

    name = "reduce"
    function: Frames
    result: Schema

    @property
    def label(self) -> str:
        """With the function's name."""
        return f"reduce {name_of(self.function)}"

    def step(self, plan: Plan, block: Block) -> Step:
        """The work of a reduce block."""
        return _ReduceStep(self, plan, block)


class _ReduceStep(ReductionStep):
    def __init__(self, reduce: Reduce, plan: Plan, block: Block) -> None:
        super().__init__(reduce, plan, block)
        self.function, self.result = reduce.function, reduce.result

    def evaluate(self, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> Targets:
        """Call the user's function once on all groups of the step."""
        evals, rows, counts = self.accumulate(evaluations, history, loops)
        if len(evals) == 0:
            return Targets(evals, np.empty((len(self.result), 0), np.int64), counts)
        values: Schema = {name: self.port.schema[name] for name in self.port.values}
        columns = encoding.decode_frame(list(np.take(history.words, rows, axis=1)), values)
        frame = pl.DataFrame([pl.Series("group", evals), *columns, pl.Series("count", counts)])
        result = call(self.function, frame.sort("group", *values), self.result, "group", self.block.place)
        result = result.sort("group", maintain_order=True)
        words = encoding.encode_frame(result, self.result)
        stacked = np.stack(words) if words else np.empty((0, len(result)), dtype=np.int64)
        counts = result["count"].to_numpy() if "count" in result.columns else np.ones(len(result), dtype=np.int64)
        return Targets(result["group"].to_numpy(), stacked, counts)
