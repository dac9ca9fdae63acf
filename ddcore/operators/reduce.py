"""``reduce``: a user's function of the rows of each group and their counts (sources: McSherry 2015, group)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcore.base.digests import digest
from ddcore.base.errors import ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, parse_schema, shape
from ddcore.base.source_line import caller
from ddcore.data import encoding
from ddcore.operators import arguments
from ddcore.operators.calling import Frames, call_checked, checks_functions
from ddcore.operators.evaluations import Evaluations, Targets
from ddcore.operators.function_fingerprint import name_of, text_of
from ddcore.operators.reduction import Reduction, ReductionStep, decode_key
from ddcore.traces.trace import Rows

if TYPE_CHECKING:
    from ddcore.operators.base import Dataflow
    from ddcore.operators.block import Block


@dataclass(frozen=True, eq=False)
class Reduce(Reduction):
    """The rows that ``function`` gives for each group; ``result`` are its columns, beside the key."""

    name = "reduce"
    function: Frames
    result: Schema
    checked: bool

    @classmethod
    def of(
        cls, source: Schema, keys: Sequence[str], function: Frames, schema: Mapping[str, Any], allow_negative: bool
    ) -> Reduce:
        """For groups by ``keys`` of an input with the schema ``source``; ``schema`` is the result's, without the keys.

        Raises ProgramError.
        """
        arguments.require_function(function, "reduce")
        result = arguments.checked(parse_schema, schema)
        for name in [*(set(source) - set(keys)), *result]:
            if name in ("group", "count"):
                raise ProgramError(f"{caller()}: reduce: a column is called {name}", "rename it with select() first")
        for name in result:
            if name in keys:
                raise ProgramError(f"{caller()}: reduce: {name} is a key already", "choose another name in schema=")
        negative = arguments.flag(allow_negative, "reduce: allow_negative")
        text = digest(keys, shape(result), str(negative), arguments.checked(text_of, function))
        columns = {key: source[key] for key in keys} | result
        return cls(columns, text, tuple(keys), negative, function, result, checks_functions())

    @property
    def label(self) -> str:
        """With the function's name."""
        return f"reduce {name_of(self.function)}"

    def step_at(self, plan: Dataflow, block: Block, port: int) -> ReductionStep:
        """The work of a reduce block."""
        return _ReduceStep(self, plan, block, port)


class _ReduceStep(ReductionStep):
    in_parts = False  # a user's function is called once, on all groups of the step, unless memory is limited

    def __init__(self, reduce: Reduce, plan: Dataflow, block: Block, port: int) -> None:
        super().__init__(reduce, plan, block, port)
        self.function, self.result, self.checked = reduce.function, reduce.result, reduce.checked

    def evaluate(self, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> Targets:
        """Call the user's function once on all groups of the step."""
        evals, rows, counts = self.accumulate(evaluations, history, loops)
        if len(evals) == 0:
            return Targets(evals, np.empty((len(self.result), 0), np.int64), counts)
        values: Schema = {name: self.port.schema[name] for name in self.port.values}
        columns = encoding.decode_frame(list(np.take(history.words, rows, axis=1)), values)
        frame = pl.DataFrame([pl.Series("group", evals), *columns, pl.Series("count", counts)])
        result = self._call(frame.sort("group", *values), evaluations)
        result = result.sort("group", maintain_order=True)
        words = encoding.encode_frame(result, self.result)
        stacked = np.stack(words) if words else np.empty((0, len(result)), dtype=np.int64)
        counts = result["count"].to_numpy() if "count" in result.columns else np.ones(len(result), dtype=np.int64)
        return Targets(result["group"].to_numpy(), stacked, counts)

    def _call(self, frame: pl.DataFrame, evaluations: Evaluations) -> pl.DataFrame:
        def shown(number: int) -> str:
            key = decode_key(self.port, evaluations.keys, int(evaluations.key_of()[number]))
            return f"the group {dict(zip(self.port.key, key, strict=True))!r}"

        return call_checked(
            self.function, frame, self.result, "group", self.block.source_line,
            twice=self.checked, operator="reduce", shown=shown,
        )  # fmt: skip
