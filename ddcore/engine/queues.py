"""Updates that wait before an arrangement, in the order of its columns and in few bytes.

Where memory is limited, many of them are sorted and consolidated while they wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Type
from ddcore.data.encoding import key_codes
from ddcore.operators.arrangement import Arrangement
from ddcore.traces import ranges, spilling
from ddcore.traces.batch import Batch, concatenate
from ddcore.traces.compressed import NarrowBatch
from ddcore.traces.consolidation import arrange, arrange_all
from ddcore.traces.sorted_batch import SortedBatch

__all__ = [
    "Queued", "columns_of", "consolidated", "least_times", "narrowed", "sorted_run", "types_of", "whole", "widened",
    "width_of",
]  # fmt: skip

_NARROW_FROM = 1 << 14  # updates of a batch
_NARROW_EARLIER_FROM = 1 << 10  # where memory is limited

Queued = Batch | NarrowBatch | SortedBatch
"""Updates that wait: as they came, in few bytes, or sorted for the arrangement."""


def consolidated(arrangement: Arrangement, queued: Sequence[Queued]) -> SortedBatch:
    """The queued updates of an arrangement as one batch, sorted and consolidated.

    A transient arrangement is not looked up by key, so its codes are 0. Raises DiffOverflow.
    """
    some = [each for each in queued if len(each)]
    spill = spilling.current()
    if spill is None:
        return _consolidated(arrangement, queued, some)
    if sum(map(len, some)) > spill.rows and (runs := _runs(arrangement, some, spill.rows)) is not None:
        return ranges.combined(runs, _summed)
    return ranges.at_rest(_consolidated(arrangement, queued, some))


def sorted_run(arrangement: Arrangement, queued: Sequence[Queued]) -> SortedBatch | None:
    """Queued updates sorted and consolidated for their arrangement, at rest. None: their diffs need 128 bits."""
    if any(map(_is_wide, queued)):
        return None
    run = _consolidated(arrangement, queued, [each for each in queued if len(each)])
    return ranges.at_rest(run) if run.high is None else None


def _runs(arrangement: Arrangement, queued: Sequence[Queued], rows: int) -> list[SortedBatch] | None:
    """The queued updates as sorted batches of about so many rows; None where some diffs need 128 bits."""
    runs = [each for each in queued if isinstance(each, SortedBatch)]
    group: list[Queued] = []
    rest = [each for each in queued if not isinstance(each, SortedBatch)]
    for number, each in enumerate(rest, 1):
        group.append(each)
        if number == len(rest) or sum(map(len, group)) + len(rest[number]) > rows:
            run = sorted_run(arrangement, group)
            if run is None:
                return None
            runs.append(run)
            group = []
    return runs


def _summed(parts: Sequence[SortedBatch]) -> SortedBatch:
    """Sorted batches as one, with exact sums."""
    pieces = [[part.codes, *part.words, *part.times, part.diffs] for part in parts if len(part)]
    return arrange_all(pieces, len(parts[0].words)) if pieces else parts[0]


def _consolidated(arrangement: Arrangement, queued: Sequence[Queued], some: Sequence[Queued]) -> SortedBatch:
    if some and not any(map(_is_wide, some)):
        pieces = [
            each if isinstance(each, NarrowBatch) else columns_of(arrangement, widened(arrangement, each))
            for each in some
        ]
        return arrange_all(pieces, width_of(arrangement), _hashed(arrangement))
    batch = whole(arrangement, queued)
    *columns, diffs = columns_of(arrangement, batch)
    types, words = _hashed(arrangement), width_of(arrangement)
    codes = key_codes(columns[: len(types)], types, len(batch)) if types else columns.pop(0)
    return arrange(codes, columns[:words], columns[words:], diffs, batch.high)


def _is_wide(queued: Queued) -> bool:
    return not isinstance(queued, NarrowBatch) and queued.high is not None


def columns_of(arrangement: Arrangement, batch: Batch) -> list[np.ndarray]:
    """The columns of updates in the order of a sorted batch: code, unless it is a hash, words, times, diff.

    A code that is the key comes in the place of the key's word.
    """
    if not arrangement.key or arrangement.transient:
        return [np.zeros(len(batch), np.int64), *batch.words, *batch.times, batch.diffs]
    words = batch.words
    return [*(words[number] for number in arrangement.stored_order), *batch.times, batch.diffs]


def types_of(arrangement: Arrangement) -> list[Type | None]:
    """The types of those columns up to the words; None: a number that is no word."""
    if not arrangement.key or arrangement.transient:
        return [None, *arrangement.collection.values()]
    return list(arrangement.schema.values())


def _hashed(arrangement: Arrangement) -> list[Type]:
    """The types of the key columns whose hash is the key code; none where the code is the key, or always 0."""
    return [] if arrangement.direct or arrangement.transient else arrangement.key_types


def width_of(arrangement: Arrangement) -> int:
    """How many columns of a sorted batch are words."""
    return len(arrangement.values if arrangement.direct and not arrangement.transient else arrangement.collection)


def narrowed(arrangement: Arrangement, batch: Batch) -> Batch | NarrowBatch:
    """Updates that wait for their position, in few bytes where there are many."""
    few = _NARROW_FROM if spilling.current() is None else _NARROW_EARLIER_FROM
    if len(batch) < few or batch.high is not None:
        return batch
    return NarrowBatch.of(columns_of(arrangement, batch), width_of(arrangement))


def whole(arrangement: Arrangement, queued: Sequence[Queued]) -> Batch:
    """All queued updates of an arrangement, not consolidated."""
    return concatenate([widened(arrangement, each) for each in queued])


def least_times(arrangement: Arrangement, queued: Queued, inputs: int) -> list[int]:
    """The least of each of the first ``inputs`` coordinates of updates, or less; there are some."""
    if isinstance(queued, NarrowBatch):
        first = len(arrangement.collection) + (not arrangement.key or arrangement.transient)
        return [least for least, _ in queued.bounds()[first : first + inputs]]
    return [int(queued.times[c].min()) for c in range(inputs)]


def widened(arrangement: Arrangement, queued: Queued) -> Batch:
    """Updates as :func:`narrowed` was given them."""
    if isinstance(queued, Batch):
        return queued
    if isinstance(queued, SortedBatch) and not arrangement.transient:
        return arrangement.batch_of(queued)
    if isinstance(queued, SortedBatch):
        return Batch(list(queued.words), list(queued.times), queued.diffs, queued.high)
    *columns, diffs = queued
    width = len(arrangement.collection)
    if not arrangement.key or arrangement.transient:
        return Batch(columns[1 : 1 + width], columns[1 + width :], diffs)
    return Batch([columns[number] for number in arrangement.collection_order], columns[width:], diffs)
