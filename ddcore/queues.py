"""Updates that wait before an arrangement, in the order of its columns and in few bytes."""

from __future__ import annotations

from collections.abc import Sequence

from ddcore.batch import Batch, concatenate
from ddcore.consolidation import arrange, arrange_all
from ddcore.encoding import key_codes
from ddcore.libraries import numpy as np
from ddcore.narrow import NarrowBatch
from ddcore.plan import Arrangement
from ddcore.schema import Type
from ddcore.sorted_batch import SortedBatch

__all__ = ["columns_of", "consolidated", "narrowed", "types_of", "whole", "widened"]

_NARROW_FROM = 1 << 14  # updates of a batch


def consolidated(arrangement: Arrangement, queued: Sequence[Batch | NarrowBatch]) -> SortedBatch:
    """The queued updates of an arrangement as one batch, sorted and consolidated.

    A transient arrangement is not looked up by key, so its codes are 0. Raises DiffOverflow.
    """
    some = [each for each in queued if len(each)]
    if some and not any(isinstance(each, Batch) and each.high is not None for each in some):
        pieces = [each if isinstance(each, NarrowBatch) else columns_of(arrangement, each) for each in some]
        return arrange_all(pieces, _width(arrangement), _hashed(arrangement))
    batch = whole(arrangement, queued)
    *columns, diffs = columns_of(arrangement, batch)
    types, words = _hashed(arrangement), _width(arrangement)
    codes = key_codes(columns[: len(types)], types, len(batch)) if types else columns.pop(0)
    return arrange(codes, columns[:words], columns[words:], diffs, batch.high)


def columns_of(arrangement: Arrangement, batch: Batch) -> list[np.ndarray]:
    """The columns of updates in the order of a sorted batch: code, unless it is a hash, words, times, diff.

    A code that is the key comes in the place of the key's word.
    """
    if not arrangement.key or arrangement.transient:
        return [np.zeros(len(batch), np.int64), *batch.words, *batch.times, batch.diffs]
    columns = dict(zip(arrangement.collection, batch.words, strict=True))
    return [*(columns[name] for name in arrangement.schema), *batch.times, batch.diffs]


def types_of(arrangement: Arrangement) -> list[Type | None]:
    """The types of those columns up to the words; None: a number that is no word."""
    if not arrangement.key or arrangement.transient:
        return [None, *arrangement.collection.values()]
    return list(arrangement.schema.values())


def _hashed(arrangement: Arrangement) -> list[Type]:
    """The types of the key columns whose hash is the key code; none where the code is the key, or always 0."""
    return [] if arrangement.direct or arrangement.transient else arrangement.key_types


def _width(arrangement: Arrangement) -> int:
    """How many columns of a sorted batch are words."""
    return len(arrangement.values if arrangement.direct and not arrangement.transient else arrangement.collection)


def narrowed(arrangement: Arrangement, batch: Batch) -> Batch | NarrowBatch:
    """Updates that wait for their position, in few bytes where there are many."""
    if len(batch) < _NARROW_FROM or batch.high is not None:
        return batch
    return NarrowBatch.of(columns_of(arrangement, batch), _width(arrangement))


def whole(arrangement: Arrangement, queued: Sequence[Batch | NarrowBatch]) -> Batch:
    """All queued updates of an arrangement, not consolidated."""
    return concatenate([widened(arrangement, each) for each in queued])


def widened(arrangement: Arrangement, queued: Batch | NarrowBatch) -> Batch:
    """Updates as :func:`narrowed` was given them."""
    if isinstance(queued, Batch):
        return queued
    *columns, diffs = queued
    width = len(arrangement.collection)
    if not arrangement.key or arrangement.transient:
        return Batch(columns[1 : 1 + width], columns[1 + width :], diffs)
    words = dict(zip(arrangement.schema, columns[:width], strict=True))
    return Batch([words[name] for name in arrangement.collection], columns[width:], diffs)
