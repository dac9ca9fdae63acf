"""Pending times: (key, time) pairs at which a block has to be evaluated later."""

from __future__ import annotations

from collections.abc import Sequence

from ddcore.base.lazy import numpy as np
from ddcore.traces.consolidation import arrange
from ddcore.traces.sorted_batch import SortedBatch

__all__ = ["joined", "once_each"]


def joined(batches: Sequence[SortedBatch]) -> SortedBatch:
    """Several batches of pending times as one, each (key, time) once."""
    batches = [batch for batch in batches if len(batch)] or batches[:1]
    return batches[0] if len(batches) == 1 else once_each(batches)


def once_each(batches: Sequence[SortedBatch]) -> SortedBatch:
    """The (key, time) pairs of several batches, each once and with diff 1."""
    merged = arrange(
        np.concatenate([batch.codes for batch in batches]),
        list(np.concatenate([batch.words for batch in batches], axis=1)),
        list(np.concatenate([batch.times for batch in batches], axis=1)),
        np.ones(sum(len(batch) for batch in batches), dtype=np.int64),
    )
    return SortedBatch(merged.codes, merged.words, merged.times, np.ones(len(merged), dtype=np.int64))
