"""Rows as int64 words: the encoding of values for the kernels.

Every value is one 64-bit word. Words are equal exactly if the values are, so kernels compare and move integers
only. Fixed-width types are mapped one to one; strings and binaries get an id in a
process-wide :class:`Pool`. A null is the word ``NULL`` in every type, which costs int64 one value: -2**63.

Words of strings differ between processes. The *key code* (:func:`key_codes`), by which arrangements are sorted and
divided between workers, is the same in all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import polars_hash as plh

from ddcore import kernels
from ddcore.casts import InexactCast, exact_cast
from ddcore.errors import DataError
from ddcore.schema import Schema, Type, is_direct

NULL = -(2**63)
_NAN_WORD = 0x7FF8000000000000
_POOLED = ("string", "binary")
_FIRST_CAPACITY = 1024


class Pool:
    """Distinct strings with dense ids, shared by every collection of a process.

    Interning is injective: if two strings have the same 64-bit hash, the second one is looked up by value, so
    a collision costs time and never changes a result. Ids are never removed.
    """

    def __init__(self) -> None:
        self._chunks: list[pl.Series] = []
        self._size = 0
        self._hashes = np.zeros(_FIRST_CAPACITY, dtype=np.int64)
        self._slots = np.full(4 * _FIRST_CAPACITY, -1, dtype=np.int64)
        self._collided: dict[str, int] = {}

    def __len__(self) -> int:
        return self._size

    @property
    def hashes(self) -> np.ndarray:
        """The stable 64-bit hash of each pooled string, by id."""
        return self._hashes[: self._size]

    def intern(self, values: pl.Series) -> np.ndarray:
        """Ids of non-null strings: int64[n]. New strings are added in order of first appearance."""
        if len(values) == 0:
            return np.empty(0, dtype=np.int64)
        hashes = _string_hashes(values)
        ids: np.ndarray = kernels.hashing.probe(hashes, self._slots, self._hashes)
        missing = np.flatnonzero(ids < 0)
        if len(missing):
            fresh = pl.DataFrame({"value": values.gather(missing), "hash": hashes[missing]}).unique(
                "hash", keep="first", maintain_order=True
            )
            self._add(fresh["value"], fresh["hash"].to_numpy())
            ids[missing] = kernels.hashing.probe(hashes[missing], self._slots, self._hashes)
        collisions = np.flatnonzero((self._gather(ids) != values).to_numpy())
        for row in collisions:  # two strings with the same 64-bit hash: rare
            ids[row] = self._intern_collided(str(values[int(row)]), int(hashes[row]))
        return ids

    def strings(self, ids: np.ndarray) -> pl.Series:
        """The strings of valid ids: a series of n strings."""
        return self._gather(ids)

    def _gather(self, ids: np.ndarray) -> pl.Series:
        if not self._chunks:
            return pl.Series([], dtype=pl.String)
        if len(self._chunks) > 1 and len(ids) > self._size // 8:  # many strings are worth a copy of all
            self._chunks = [pl.concat(self._chunks, rechunk=True)]
        return pl.concat(self._chunks, rechunk=False).gather(ids)

    def _add(self, values: pl.Series, hashes: np.ndarray, *, indexed: bool = True) -> None:
        start, self._size = self._size, self._size + len(values)
        if self._size > len(self._hashes):
            self._hashes = np.resize(self._hashes, 2 * self._size)
        self._hashes[start : self._size] = hashes
        if 2 * self._size > len(self._slots):
            self._slots = np.full(1 << (4 * self._size).bit_length(), -1, dtype=np.int64)
            collided_ids = np.fromiter(self._collided.values(), dtype=np.int64)
            other_ids = np.setdiff1d(np.arange(self._size, dtype=np.int64), collided_ids)
            kernels.hashing.insert(other_ids, self._slots, self._hashes)
        elif indexed:
            kernels.hashing.insert(np.arange(start, self._size, dtype=np.int64), self._slots, self._hashes)
        self._chunks.append(values)
        while len(self._chunks) > 1 and 2 * len(self._chunks[-1]) >= len(self._chunks[-2]):
            last = self._chunks.pop()
            self._chunks[-1] = pl.concat([self._chunks[-1], last], rechunk=True)

    def _intern_collided(self, value: str, code: int) -> int:
        if value not in self._collided:
            self._collided[value] = self._size
            self._add(pl.Series([value]), np.array([code]), indexed=False)
        return self._collided[value]


POOL = Pool()


def encode(series: pl.Series, kind: Type) -> np.ndarray:
    """Words of a series: int64[n].

    Raises DataError for a value that the type does not hold, and for the one word that stands for null.
    """
    name = series.name
    if series.dtype != kind.polars:
        try:
            series = exact_cast(series, kind)
        except InexactCast as error:
            raise DataError(f"column {name} {error}", "cast it first") from None
    if kind.name in _POOLED:
        return _encode_pooled(series, kind)
    nulls = series.is_null().to_numpy() if series.null_count() else None
    if kind.name == "float64":
        words = _ordered(series.fill_null(0.0).to_numpy())
    else:
        physical = series if kind.name in ("int64", "bool") else series.to_physical()
        words = physical.cast(pl.Int64).fill_null(0).to_numpy()
        if kind.name in ("int64", "timestamp") and len(words) and words.min() == NULL:
            raise DataError(
                f"column {name}: the {kind} value {NULL} is reserved", "use a value from -9223372036854775807 upwards"
            )
    if nulls is not None:
        words = np.where(nulls, NULL, words)
    return np.ascontiguousarray(words, dtype=np.int64)


def decode(words: np.ndarray, kind: Type, name: str = "") -> pl.Series:
    """The series of n values that :func:`encode` turned into ``words``."""
    nulls = words == NULL
    some = bool(nulls.any())
    safe = np.where(nulls, 0, words) if some else words
    if kind.name in _POOLED:
        series = _decode_pooled(safe, kind)
    elif kind.name == "float64":
        series = pl.Series(_unordered(safe))
    elif kind.name == "bool":
        series = pl.Series(safe != 0)
    elif kind.name == "date":
        series = pl.Series(safe).cast(pl.Int32).cast(pl.Date)
    elif kind.name == "timestamp":
        series = pl.Series(safe).cast(kind.polars)
    elif kind.name == "decimal":
        series = _decimal(safe, kind)
    else:
        series = pl.Series(safe)
    if some:
        series = series.zip_with(
            pl.Series(~nulls), pl.Series([None], dtype=series.dtype).new_from_index(0, len(series))
        )
    return series.alias(name)


def encode_frame(frame: pl.DataFrame, schema: Schema) -> list[np.ndarray]:
    """Words of the columns of ``schema``, in its order."""
    return [encode(frame[name], kind) for name, kind in schema.items()]


def decode_frame(words: Sequence[np.ndarray], schema: Schema) -> pl.DataFrame:
    """The frame with the columns of ``schema`` that ``words`` (one array per column) stand for."""
    return pl.DataFrame(
        [decode(column, kind, name) for column, (name, kind) in zip(words, schema.items(), strict=True)]
    )


def key_codes(words: Sequence[np.ndarray], kinds: Sequence[Type], rows: int) -> np.ndarray:
    """Codes of ``rows`` keys: int64[rows], the same in every process and version.

    The word itself for a direct key, else a 64-bit hash of the values. Equal keys have equal codes; unequal keys may
    share a code when hashed, so code that groups by key code must also compare the key's words.
    """
    if is_direct(kinds):
        return words[0]
    codes = np.zeros(rows, dtype=np.int64)
    for column, kind in zip(words, kinds, strict=True):
        if kind.name in _POOLED:
            kernels.hashing.mix_pooled(codes, column, pool_of(kind).hashes)
        else:
            kernels.hashing.mix(codes, column)
    return codes


def rank_words(words: np.ndarray, kind: Type) -> tuple[np.ndarray, np.ndarray | None]:
    """Words whose integer order is the order of the values, and the table from ranks to words (or None).

    Fixed-width words are ordered as they are. Pooled words become positions among the distinct strings present,
    in byte order: O(n log n) string comparisons.
    """
    if kind.name not in _POOLED:
        return words, None
    distinct, inverse = np.unique(words, return_inverse=True)
    present = distinct[distinct != NULL]
    order = pool_of(kind).strings(present).arg_sort().to_numpy()
    back = present[order]
    rank = np.empty(len(distinct), dtype=np.int64)
    rank[len(distinct) - len(present) :][order] = np.arange(len(present))
    if len(present) < len(distinct):
        rank[0] = NULL
    return rank[inverse], back


_BINARIES = Pool()


def is_pooled(kind: Type) -> bool:
    """Whether words of this type are ids in a pool."""
    return kind.name in _POOLED


def pool_of(kind: Type) -> Pool:
    """The pool that holds values of a pooled type."""
    return POOL if kind.name == "string" else _BINARIES


def _encode_pooled(series: pl.Series, kind: Type) -> np.ndarray:
    text = series if kind.name == "string" else series.bin.encode("hex")
    pool = pool_of(kind)
    if text.null_count() == 0:
        return pool.intern(text)
    present = text.is_not_null().to_numpy()
    words = np.full(len(text), NULL, dtype=np.int64)
    words[present] = pool.intern(text.drop_nulls())
    return words


def _decode_pooled(words: np.ndarray, kind: Type) -> pl.Series:
    pool = pool_of(kind)
    text = pool.strings(words) if len(pool) else pl.Series([None] * len(words), dtype=pl.String)  # nulls only
    return text if kind.name == "string" else text.str.decode("hex")


def _string_hashes(values: pl.Series) -> np.ndarray:
    hashed = pl.DataFrame({"value": values}).select(plh.col("value").nchash.xxh3_64())
    return hashed["value"].to_numpy().view(np.int64)


def _ordered(values: np.ndarray) -> np.ndarray:
    """Floats as integers in the same order; one NaN, above all numbers; one zero."""
    bits = (values + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
    words = np.where(bits >= 0, bits, bits ^ np.int64(0x7FFFFFFFFFFFFFFF))
    return np.where(np.isnan(values), _NAN_WORD, words)


def _unordered(words: np.ndarray) -> np.ndarray:
    bits = np.where(words >= 0, words, words ^ np.int64(0x7FFFFFFFFFFFFFFF))
    return np.ascontiguousarray(bits).view(np.float64)


def _decimal(unscaled: np.ndarray, kind: Type) -> pl.Series:
    """Decimals from unscaled integers, by their 128-bit little-endian form: no arithmetic, so nothing is rounded."""
    import pyarrow as pa

    wide = np.empty((len(unscaled), 2), dtype=np.int64)
    wide[:, 0], wide[:, 1] = unscaled, unscaled >> 63
    buffers = [None, pa.py_buffer(wide)]
    series = pl.from_arrow(pa.Array.from_buffers(kind.arrow, len(unscaled), buffers))
    assert isinstance(series, pl.Series)
    return series
