"""Pools: the distinct values of one type that vary in width, each with a dense id that stands for it in the engine.

Ids differ between processes. The hash of a value (:attr:`Pool.hashes`) is the same in every process and release.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache, cached_property
from threading import RLock
from typing import Any, Generic, TypeVar

import polars as pl
import polars_hash as plh

from ddcore import kernels
from ddcore.base.lazy import numpy as np
from ddcore.data.arrow import series_of_numbers

_FIRST_CAPACITY = 1024
_GOLDEN = 0x9E3779B97F4A7C15

V = TypeVar("V")
"""Values of the pool's type, as many as the ids that they get."""


class Pool(ABC, Generic[V]):
    """Distinct values with dense ids, shared by every collection of a process.

    Interning is injective: if two values have the same 64-bit hash, the second one is looked up by value, so a
    collision costs time and never changes a result. Ids are never removed. Several threads may use a pool.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._size = 0
        self._collided: dict[Any, int] = {}

    @cached_property
    def _hashes(self) -> np.ndarray:
        return np.zeros(_FIRST_CAPACITY, dtype=np.int64)

    @cached_property
    def _slots(self) -> np.ndarray:
        return np.full(4 * _FIRST_CAPACITY, -1, dtype=np.int64)

    def __len__(self) -> int:
        return self._size

    @property
    def hashes(self) -> np.ndarray:
        """The stable 64-bit hash of each pooled value, by id."""
        return self._hashes[: self._size]

    def intern(self, values: V) -> np.ndarray:
        """Ids of non-null values: int64[n]. New values are added in order of first appearance."""
        hashes = self._hash(values)
        if len(hashes) == 0:
            return hashes
        with self._lock:
            return self._ids(values, hashes)

    def _ids(self, values: V, hashes: np.ndarray) -> np.ndarray:
        ids: np.ndarray = kernels.hashing.probe(hashes, self._slots, self._hashes)
        missing = np.flatnonzero(ids < 0)
        if len(missing):
            rows = kernels.hashing.firsts(hashes, missing)
            self._add(self._take(values, rows), hashes[rows])
            ids[missing] = kernels.hashing.probe(hashes[missing], self._slots, self._hashes)
        for row in np.flatnonzero(self._differ(ids, values)):  # two values with the same 64-bit hash: rare
            ids[row] = self._intern_collided(self._take(values, np.array([row])), hashes[row : row + 1])
        return ids

    def _add(self, values: V, hashes: np.ndarray, *, indexed: bool = True) -> None:
        start, self._size = self._size, self._size + len(hashes)
        if self._size > len(self._hashes):
            self._hashes = np.resize(self._hashes, 2 * self._size)
        self._hashes[start : self._size] = hashes
        if 2 * self._size > len(self._slots):
            self._slots = np.full(1 << (4 * self._size).bit_length(), -1, dtype=np.int64)
            indexed_ids = np.ones(self._size, dtype=bool)
            indexed_ids[list(self._collided.values())] = False
            kernels.hashing.insert(np.flatnonzero(indexed_ids), self._slots, self._hashes)
        elif indexed:
            kernels.hashing.insert(np.arange(start, self._size, dtype=np.int64), self._slots, self._hashes)
        self._append(values)

    def _intern_collided(self, one: V, code: np.ndarray) -> int:
        key = self._key(one)
        if key not in self._collided:
            self._collided[key] = self._size
            self._add(one, code, indexed=False)
        return self._collided[key]

    @abstractmethod
    def _hash(self, values: V) -> np.ndarray:
        """Stable hashes: int64[n]."""

    @abstractmethod
    def _take(self, values: V, rows: np.ndarray) -> V:
        """The values at these positions."""

    @abstractmethod
    def _differ(self, ids: np.ndarray, values: V) -> np.ndarray:
        """Where a pooled value is another than the one given: bool[n]."""

    @abstractmethod
    def _append(self, values: V) -> None:
        """Store values, which get the next ids."""

    @abstractmethod
    def _key(self, one: V) -> Any:
        """A single value as Python can look it up."""


class Strings(Pool[pl.Series]):
    """Distinct strings."""

    def __init__(self) -> None:
        super().__init__()
        self._chunks: list[pl.Series] = []

    def strings(self, ids: np.ndarray) -> pl.Series:
        """The strings of valid ids: a series of n strings."""
        with self._lock:
            if not self._chunks:
                return pl.Series([], dtype=pl.String)
            if len(self._chunks) > 1 and len(ids) > self._size // 8:  # many strings are worth a copy of all
                self._chunks = [pl.concat(self._chunks, rechunk=True)]
            strings = pl.concat(self._chunks, rechunk=False)
        return _taken(strings, ids)

    def _hash(self, values: pl.Series) -> np.ndarray:
        return _string_hashes(values)

    def _take(self, values: pl.Series, rows: np.ndarray) -> pl.Series:
        return _taken(values, rows)

    def _differ(self, ids: np.ndarray, values: pl.Series) -> np.ndarray:
        return (self.strings(ids) != values).to_numpy()

    def _append(self, values: pl.Series) -> None:
        self._chunks.append(values)
        while len(self._chunks) > 1 and 2 * len(self._chunks[-1]) >= len(self._chunks[-2]):
            last = self._chunks.pop()
            self._chunks[-1] = pl.concat([self._chunks[-1], last], rechunk=True)

    def _key(self, one: pl.Series) -> str:
        return str(one[0])


@dataclass(slots=True)
class Words:
    """Sequences of words, one after another: ``lengths`` int64[n], ``words`` and their stable ``hashes`` int64[m].

    A hash need not tell two words apart; equal words have equal ones.
    """

    lengths: np.ndarray
    words: np.ndarray
    hashes: np.ndarray


class Sequences(Pool[Words]):
    """Distinct sequences of words: the elements of a list, or the fields of a struct."""

    def __init__(self) -> None:
        super().__init__()
        self._words = np.empty(_FIRST_CAPACITY, dtype=np.int64)
        self._ends = np.zeros(_FIRST_CAPACITY + 1, dtype=np.int64)  # sequence i is words[ends[i]:ends[i + 1]]

    def sequences(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lengths of the sequences of valid ids, int64[n], and their words, one sequence after another."""
        starts = self._ends[ids]
        lengths = self._ends[ids + 1] - starts
        return lengths, self._words[_positions(starts, lengths)]

    def _hash(self, values: Words) -> np.ndarray:
        ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(values.lengths)])
        position = np.arange(1, len(values.words) + 1) - np.repeat(ends[:-1], values.lengths)
        mixed = _scramble(values.hashes.view(np.uint64) + position.view(np.uint64) * _GOLDEN)
        sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(mixed)])  # modulo 2**64
        return _scramble(sums[ends[1:]] - sums[ends[:-1]] + values.lengths.view(np.uint64)).view(np.int64)

    def _take(self, values: Words, rows: np.ndarray) -> Words:
        starts, lengths = np.cumsum(values.lengths) - values.lengths, values.lengths[rows]
        positions = _positions(starts[rows], lengths)
        return Words(lengths, values.words[positions], values.hashes[positions])

    def _differ(self, ids: np.ndarray, values: Words) -> np.ndarray:
        lengths, words = self.sequences(ids)
        differ: np.ndarray = lengths != values.lengths
        if differ.any():
            alike = np.flatnonzero(~differ)
            differ[alike] = self._differ(ids[alike], self._take(values, alike))
        else:
            differ[np.repeat(np.arange(len(ids)), lengths)[words != values.words]] = True
        return differ

    def _append(self, values: Words) -> None:
        count = len(values.lengths)
        first, begin = self._size - count, int(self._ends[self._size - count])
        end = begin + len(values.words)
        if self._size + 1 > len(self._ends):
            self._ends = np.resize(self._ends, 2 * self._size + 1)
        if end > len(self._words):
            self._words = np.resize(self._words, 2 * end)
        self._ends[first + 1 : self._size + 1] = begin + np.cumsum(values.lengths)
        self._words[begin:end] = values.words

    def _key(self, one: Words) -> bytes:
        return one.words.tobytes()


class Halves(Pool[Any]):
    """Distinct numbers of 128 bits: int64 (n, 2), the lower half and the upper one."""

    @cached_property
    def _halves(self) -> np.ndarray:
        return np.zeros((_FIRST_CAPACITY, 2), dtype=np.int64)

    def halves(self, ids: np.ndarray) -> np.ndarray:
        """The numbers of valid ids: int64 (n, 2)."""
        return np.take(self._halves, ids, axis=0)

    def _hash(self, values: np.ndarray) -> np.ndarray:
        low, high = (half.view(np.uint64) for half in np.ascontiguousarray(values.T))
        return _scramble(low + _scramble(high) * _GOLDEN).view(np.int64)

    def _take(self, values: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.take(values, rows, axis=0)

    def _differ(self, ids: np.ndarray, values: np.ndarray) -> np.ndarray:
        own = self.halves(ids)
        differ: np.ndarray = (own[:, 0] != values[:, 0]) | (own[:, 1] != values[:, 1])
        return differ

    def _append(self, values: np.ndarray) -> None:
        if self._size > len(self._halves):
            self._halves = np.resize(self._halves, (2 * self._size, 2))
        self._halves[self._size - len(values) : self._size] = values

    def _key(self, one: np.ndarray) -> bytes:
        return one.tobytes()


def _positions(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The positions ``start, start + 1, ...`` of runs, one after another: int64[sum of lengths]."""
    ends = np.cumsum(lengths)
    positions: np.ndarray = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)
    return positions


def _scramble(words: np.ndarray) -> np.ndarray:
    """A bijection of 64 bits in which every input bit moves about half of the output bits: uint64[n]."""
    words = words ^ (words >> np.uint64(30))
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    scrambled: np.ndarray = words
    return scrambled


def _taken(values: pl.Series, rows: np.ndarray) -> pl.Series:
    """The values at these positions. ``Series.gather`` plans a query, and an index of another type is converted."""
    return values[series_of_numbers(rows.astype(_index_type()))]


@cache
def _index_type() -> str:
    return "uint64" if pl.get_index_type() == pl.UInt64 else "uint32"


def _string_hashes(values: pl.Series) -> np.ndarray:
    hashes: np.ndarray = values.to_frame("value").select(_hash_of_value())["value"].to_numpy().view(np.int64)
    return hashes


@cache
def _hash_of_value() -> Any:
    """An expression for the hash of the column ``value``."""
    return plh.col("value").nchash.xxh3_64()
