"""``dd.now``: a collection of one row, the instant of the version, which whoever folds brings with the inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ddcore.base.instants import NOW, Moved
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Type
from ddcore.operators.base import Operator
from ddcore.traces.batch import Batch


@dataclass(frozen=True, eq=False)
class Clock(Operator):
    """The instants of the coordinates of a time: a row for each time dimension in which there is one."""

    name = "now"
    signs = "positive"

    @classmethod
    def of(cls) -> Clock:
        """The only one of a program."""
        return cls({NOW: Type("timestamp")}, "")

    @staticmethod
    def batch(updates: Iterable[Moved], dims: int) -> Batch:
        """Updates of the collection: the words of timestamps are their microseconds."""
        rows = [(instant, *time, diff) for instant, time, diff in updates]
        words, *times, diffs = np.array(rows, dtype=np.int64).reshape(len(rows), dims + 2).T.copy()
        return Batch([words], times, diffs)
