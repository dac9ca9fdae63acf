"""The join: new updates of one side against everything on the other (the patent's Join.

Bilinear, so differences suffice).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ddcore.batch import Batch
from ddcore.kernels import joining
from ddcore.plan import Arrangement, Block
from ddcore.trace import Run, distinct_keys

_CHUNK = 1 << 22  # pairs made at a time; one key's pairs are made together, however many they are


@dataclass(frozen=True)
class JoinStep:
    """Where the columns of the result come from, worked out once per block."""

    block: Block
    coordinates: int  # of the result's times
    columns: tuple[tuple[str, int], ...]  # (key | left | right, place among the key or value columns)

    @classmethod
    def of(cls, block: Block, inputs: int) -> JoinStep:
        """The step of a join block; ``inputs`` is the number of input coordinates."""
        left, right = block.ports
        names = block.node.settings.right_names
        columns: list[tuple[str, int]] = []
        for name in block.node.inputs[0].schema:
            columns.append(("key", left.key.index(name)) if name in left.key else ("left", left.values.index(name)))
        for name in block.node.inputs[1].schema:
            if name in names:
                columns.append(("right", right.values.index(name)))
        return cls(block, inputs + block.depth, tuple(columns))

    def run(
        self, new_left: Run | None, new_right: Run | None, all_right: Sequence[Run], old_left: Sequence[Run]
    ) -> Iterator[Batch]:
        """Batches of dL x R and of L' x dR, where R is new already and L' still old: every pair exactly once.

        A pair lands at the join of its times, which may be a later round.
        """
        if new_left is not None:
            yield from self._pairs(new_left, all_right, self.block.ports[0], swapped=False)
        if new_right is not None:
            yield from self._pairs(new_right, old_left, self.block.ports[1], swapped=True)

    def _pairs(self, new: Run, others: Sequence[Run], side: Arrangement, *, swapped: bool) -> Iterator[Batch]:
        keys, starts = distinct_keys(new, side.key_words)
        for other in others:
            lo, hi = other.locate(keys.codes)
            ends = joining.pair_starts(new.codes, new.words, starts, side.key_words, lo, hi, other.words)
            for first, last in _chunks(ends):
                left, right, times, diffs, overflow = joining.pairs(
                    starts[first : last + 1], new.words, new.times, new.diffs, side.key_words,
                    ends[first : last + 1] - ends[first], lo[first:last], hi[first:last],
                    other.words, other.times, other.diffs, self.coordinates,
                )  # fmt: skip
                high = None
                if overflow:
                    diffs, high = joining.products(new.diffs[left], other.diffs[right])
                yield Batch(self._words((new, left), (other, right), side, swapped=swapped), list(times), diffs, high)

    def _words(
        self, mine: tuple[Run, np.ndarray], theirs: tuple[Run, np.ndarray], side: Arrangement, *, swapped: bool
    ) -> list[np.ndarray]:
        (new, here), (other, there) = mine, theirs
        words = []
        for source, place in self.columns:
            if source == "key":
                words.append(new.codes[here] if side.direct else new.words[place][here])
            elif (source == "left") != swapped:
                words.append(new.words[side.key_words + place][here])
            else:
                words.append(other.words[side.key_words + place][there])
        return words


def _chunks(ends: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges of keys with about ``_CHUNK`` pairs each, and at least one key."""
    first, keys = 0, len(ends) - 1
    if ends[-1] == 0:
        return
    while first < keys:
        last = int(np.searchsorted(ends, ends[first] + _CHUNK, side="right")) - 1
        last = min(max(last, first + 1), keys)
        if ends[last] > ends[first]:
            yield first, last
        first = last
