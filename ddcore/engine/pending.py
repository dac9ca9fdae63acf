"""Pending times: (key, time) pairs at which a block has to be evaluated later."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ddcore.base.lazy import numpy as np
from ddcore.traces import ranges
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.columns import Columns, Plain
from ddcore.traces.consolidation import arrange_all
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch


def joined(batches: Sequence[SortedBatch], budget: Budget = ALONE) -> SortedBatch:
    """Several batches of pending times as one, each (key, time) once; in ranges of keys where memory is limited."""
    some = [batch for batch in batches if len(batch)] or batches[:1]
    if len(some) == 1:
        return some[0]
    return ranges.combined(
        [batch.columns() for batch in some], some[0].width, partial(once_each, budget=budget), budget
    )


def once_each(pieces: Sequence[Columns], width: int, budget: Budget = ALONE) -> SortedBatch:
    """The (key, time) pairs of several pieces, with ``width`` key words, each once and with diff 1."""
    ones = [Plain([*list(piece)[:-1], np.ones(len(piece), dtype=np.int64)]) for piece in pieces]
    table = arrange_all(ones, width, budget=budget).decompress().table
    return ColumnBatch.of(np.concatenate([table[:-1], np.ones((1, table.shape[1]), dtype=np.int64)]), width)
