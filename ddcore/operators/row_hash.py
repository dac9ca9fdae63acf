"""Ids of rows by hash: specified, and the same in every process, on every platform and in every release.

The id of a row is a function of its values in the order of its columns, of a round, and of the number of bits. It does
not depend on names of columns. ``docs/programs.md`` has the specification. Ids are part of stored state and of outputs,
so it must never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
import polars_hash as plh

from ddcore import kernels
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, Type
from ddcore.data import encoding
from ddcore.data.pools import Strings
from ddcore.operators.base import Linear
from ddcore.traces.batch import Batch

MOST_BITS = 63  # so that ids are not negative


@dataclass(frozen=True, eq=False)
class RowHash(Linear):
    """Each row with one more column before the others: its id in ``bits`` bits.

    The column ``round`` of the row selects one of many hash functions of the other columns.
    """

    name = "row_hash"
    signs = "kept"
    source: Schema
    round: str
    bits: int

    @property
    def carried(self) -> Mapping[str, str]:
        """All columns but the id."""
        return {name: name for name in self.source}

    def apply(self, batch: Batch, source_line: str) -> Batch:
        """Cost: linear; only for rows at rounds above 0 strings are hashed again."""
        words = dict(zip(self.source, batch.words, strict=True))
        rounds = words.pop(self.round)
        kinds = [self.source[name] for name in words]
        return batch.of([row_hashes(list(words.values()), kinds, rounds, self.bits), *batch.words])


def row_hashes(words: list[np.ndarray], kinds: list[Type], rounds: np.ndarray, bits: int) -> np.ndarray:
    """The ids of n rows given as words, at these rounds: int64[n], from 0 to 2**bits - 1."""
    states = np.array(rounds, dtype=np.int64)
    for column, kind in zip(words, (kind.base for kind in kinds), strict=True):
        if kind.is_wide:
            nulls = column == encoding.NULL
            for half in encoding.halves_of_ids(np.where(nulls, 0, column)).T:
                kernels.hashing.mix(states, np.where(nulls, encoding.NULL, half))
        elif kind.is_pooled:
            kernels.hashing.mix_pooled(states, *_text_hashes(column, kind, rounds))
        else:
            kernels.hashing.mix(states, column)
    ids: np.ndarray = (states.view(np.uint64) >> np.uint64(64 - bits)).view(np.int64)
    return ids


def _text_hashes(column: np.ndarray, kind: Type, rounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each text the number of its hash, or NULL, and the hashes: XXH3 with the round as its seed.

    The hashes at round 0 are those of the pool. Other seeds separate texts whose hashes are equal there.
    """
    pool = encoding.pool_of(kind)
    assert isinstance(pool, Strings)  # Numbering.check refuses lists and structs
    hashes = pool.hashes
    later = np.flatnonzero((rounds != 0) & (column != encoding.NULL))
    if len(later) == 0:
        return column, hashes
    numbers, seeded = column.copy(), np.empty(len(later), dtype=np.int64)
    texts = pool.strings(column[later])
    for seed in np.unique(rounds[later]):
        there = np.flatnonzero(rounds[later] == seed)
        frame = pl.DataFrame({"text": texts.gather(there)})
        found = frame.select(plh.col("text").nchash.xxh3_64(seed=int(seed)))["text"]
        seeded[there] = found.to_numpy().view(np.int64)
    numbers[later] = len(hashes) + np.arange(len(later))
    return numbers, np.concatenate([hashes, seeded])
