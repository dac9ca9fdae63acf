"""Digests of updates: by them a source is recognised when it comes again.

The digest of a multiset of updates is a sum of keyed hashes, one for each (row, time). A hash is SipHash (sources:
Aumasson 2012) of a message that says which values are null, then what each column holds. For columns of given types
different rows are different messages: a number is one word, or two if it has more than 18 digits, a text its length and
its bytes. So without the key
nobody can construct other rows of the same digest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import MOST_DIGITS, WORD_DIGITS
from ddcore.data import wide
from ddcore.data.nested import entries
from ddcore.io.logs.updates import DIFF
from ddcore.io.project.times import Time

# A limb (in bits) times half of a hash's word, summed over so many rows, fits into int64.
_LIMB, _MOST_SUMMED = 10, 1 << 20
_BLOCK = 1 << 14  # messages that are hashed side by side: their states fit into a core's cache


@dataclass(frozen=True)
class Digest:
    """A digest of a multiset of updates: the sum, over (row, time), of a keyed hash of 128 bits times the diff.

    The sum is over the integers, without a modulus, so that large diffs cause no collisions. It does not depend on the
    order of updates, on their batches, or on whether they are consolidated: equal contents have equal digests, in
    whatever files. The digests of parts add up to the digest of the whole. Without the key nobody can construct other
    rows with the same digest. Only digests under the same key can be compared.
    """

    total: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(self.total + other.total)

    def __bool__(self) -> bool:
        return self.total != 0

    def __str__(self) -> str:
        return f"{self.total:x}"

    @classmethod
    def parse(cls, text: str) -> Digest:
        """The digest that ``str`` wrote as ``text``. Raises ValueError for other text."""
        return cls(int(text, 16))


def digests(updates: pl.DataFrame, dims: Sequence[str], hashes: np.ndarray) -> dict[Time, Digest]:
    """The digest of the updates at each time, of which ``hashes`` are the :func:`row_hashes`.

    O(n), and a sort of the times where they are not in order.
    """
    total: dict[Time, Digest] = {}
    for start in range(0, len(updates), _MOST_SUMMED):
        part = hashes[:, start : start + _MOST_SUMMED]
        for time, digest in _part_digests(updates[start : start + _MOST_SUMMED], dims, part).items():
            total[time] = total.get(time, Digest()) + digest
    return total


def _part_digests(updates: pl.DataFrame, dims: Sequence[str], hashes: np.ndarray) -> dict[Time, Digest]:
    from ddcore.kernels import siphash

    diffs, times = updates[DIFF].cast(pl.Int64).to_numpy(), [updates[dim].to_numpy() for dim in dims]
    moving = [column for column in times if column[0] != column[-1] or column.min() != column.max()]
    if len(moving) > 1 or (moving and (moving[0][1:] < moving[0][:-1]).any()):
        order = np.lexsort(moving[::-1])
        diffs, times = diffs[order], [column[order] for column in times]
        hashes, moving = hashes[:, order], [column[order] for column in moving]
    begins = np.zeros(len(diffs), dtype=bool)
    begins[0] = True
    for column in moving:
        begins[1:] |= column[1:] != column[:-1]
    starts, hashes = np.flatnonzero(begins), np.ascontiguousarray(hashes)
    totals = [0] * len(starts)
    for shift, limb in _limbs(diffs):
        sums = np.zeros((4, len(starts)), dtype=np.int64)
        siphash.weighted_sums(sums, hashes, limb, starts)
        for number, parts in enumerate(sums.tolist()):
            totals = [total + (part << (32 * number + shift)) for total, part in zip(totals, parts, strict=True)]
    heads = zip(*(column[starts].tolist() for column in times), strict=True)
    return {Time(head): Digest(total) for head, total in zip(heads, totals, strict=True)}


def _limbs(diffs: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """``diffs`` as sums of ``limb << shift`` with limbs of 10 bits: almost always one limb, the diffs themselves."""
    if int(diffs.max()) < 2**_LIMB and int(diffs.min()) > -(2**_LIMB):
        yield 0, diffs
        return
    sign, rest, shift = np.sign(diffs), np.abs(diffs), 0  # a diff is never -2^63
    while rest.any():
        yield shift, (rest & (2**_LIMB - 1)) * sign
        rest, shift = rest >> _LIMB, shift + _LIMB


def row_hashes(updates: pl.DataFrame, dims: Sequence[str], key: bytes) -> np.ndarray:
    """128 bits for each (row, time), uint64[2, n]: SipHash-1-3 of its message under ``key`` (16 bytes), the same in
    every process and release. O(bytes).

    The times, which are in ``dims``, are the begin of the message, because they are the same for many rows.
    """
    names = [*dims, *(name for name in updates.columns if name not in (*dims, DIFF))]
    return _hashes([updates[name] for name in names], key)


def _hashes(columns: Sequence[pl.Series], key: bytes) -> np.ndarray:
    from ddcore.kernels import siphash

    parts = _parts_of(columns, key)
    words, count = sum(not isinstance(part, _Texts) for part in parts), len(columns[0])
    hashes = np.empty((2, count), dtype=np.uint64)
    common, parts = _common(parts)
    begin = _start(key)
    for word in common:
        siphash.absorb(begin, word)
    begin = np.repeat(begin, _BLOCK, axis=1)
    state = np.empty_like(begin)
    for start in range(0, count, _BLOCK):
        stop = min(start + _BLOCK, count)
        if stop - start < _BLOCK:
            begin = np.ascontiguousarray(begin[:, : stop - start])
            state = np.empty_like(begin)
        state[:] = begin
        for part in parts:
            if isinstance(part, _Texts):
                siphash.absorb_texts(state, part.views[start:stop], part.starts, part.data)
            else:
                siphash.absorb(state, part[start:stop])
        siphash.finish(state, words, hashes, start)
    return hashes


def _common(parts: list[_Part]) -> tuple[list[np.ndarray], list[_Part]]:
    """The words with which all messages begin, each an array of one; and the other parts. So what is null nowhere and a
    version of all rows are hashed once.
    """
    common = []
    for part in parts:
        if isinstance(part, _Texts) or not len(part) or part[0] != part[-1] or (part != part[0]).any():
            break
        common.append(np.ascontiguousarray(part[:1]))
    return common, parts[len(common) :]


def _start(key: bytes) -> np.ndarray:
    """The state before the first word."""
    low, high = (int.from_bytes(key[start : start + 8], "little") for start in (0, 8))
    words = (low ^ 0x736F6D6570736575, high ^ 0x646F72616E646F6D ^ 0xEE, low ^ 0x6C7967656E657261,
             high ^ 0x7465646279746573)  # fmt: skip
    return np.array([*words, 0], dtype=np.uint64)[:, None]


# --- messages ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Texts:
    """The texts of a column as Polars holds them: views, uint64[n, 2], and the bytes of those that are long, of several
    buffers one after another, which begin at ``starts``.
    """

    views: np.ndarray
    starts: np.ndarray
    data: np.ndarray


_Part: TypeAlias = "np.ndarray | _Texts"


def _parts_of(columns: Sequence[pl.Series], key: bytes) -> list[_Part]:
    """What columns add to messages: which of them are null, then for each a word, uint64[n], or a text."""
    return [*_null_words(columns), *(part for column in columns for part in _parts(column, key))]


def _null_words(columns: Sequence[pl.Series]) -> list[np.ndarray]:
    """Which columns are null, as bits: one word for 64 columns. They make null differ from every value."""
    words = []
    for start in range(0, len(columns), 64):
        word = np.zeros(len(columns[0]), dtype=np.uint64)
        for number, column in enumerate(columns[start : start + 64]):
            if column.null_count():
                word |= column.is_null().to_numpy().astype(np.uint64) << np.uint64(number)
        words.append(word)
    return words


def _parts(values: pl.Series, key: bytes) -> list[_Part]:
    """What a column adds: the bits of numbers, or texts. A struct adds what its fields do; a list is the text of the
    hashes of its elements.
    """
    if isinstance(values.dtype, pl.Struct):
        return _parts_of(values.struct.unnest().get_columns(), key)
    if isinstance(values.dtype, pl.Map):
        values = entries(values)  # in the order of keys, as all rows of a log have them
    if isinstance(values.dtype, pl.List):
        return [_list_texts(values, key)]
    if values.dtype in (pl.String, pl.Binary):
        return [_texts(values)]
    if isinstance(values.dtype, pl.Decimal) and (values.dtype.precision or MOST_DIGITS) > WORD_DIGITS:
        both = wide.halves(values.fill_null(0) if values.null_count() else values)
        return [np.ascontiguousarray(half).view(np.uint64) for half in both.T]
    words = values if values.dtype == pl.Float64 else values.to_physical().cast(pl.Int64)
    return [(words.fill_null(0) if words.null_count() else words).to_numpy().view(np.uint64)]


def _texts(values: pl.Series) -> _Texts:
    if values.null_count():
        values = values.fill_null("" if values.dtype == pl.String else b"")
    texts = values.to_arrow(compat_level=pl.CompatLevel.newest())
    if len(texts) == 0:  # Arrow may have an offset, and no buffer
        return _Texts(np.empty((0, 2), np.uint64), np.empty(0, np.uint64), np.empty(0, np.uint8))
    _, offsets, *buffers = texts.buffers()
    views = np.frombuffer(offsets, dtype=np.uint64, count=2 * len(texts), offset=16 * texts.offset)
    parts = [np.frombuffer(buffer, dtype=np.uint8) for buffer in buffers]
    starts = np.cumsum([0, *map(len, parts)]).astype(np.uint64)
    data = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint8), *parts])
    return _Texts(views.reshape(-1, 2), starts, data)


def _list_texts(values: pl.Series, key: bytes) -> _Texts:
    elements = values.drop_nulls().explode(empty_as_null=False, keep_nulls=False)
    hashes = np.ascontiguousarray(_hashes([elements], key).T).view(np.uint8).reshape(-1)
    sizes = values.list.len().fill_null(0).cast(pl.UInt64).to_numpy() * 16
    begins = np.cumsum(sizes) - sizes
    views = np.stack([sizes, begins << 32 | begins >> 32], axis=1)  # as if a buffer had 4 GiB
    return _Texts(views, np.arange((len(hashes) >> 32) + 1, dtype=np.uint64) << 32, hashes)
