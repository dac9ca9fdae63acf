"""Updates as frames: consolidation, counts and digests, which an ingest needs before it stores rows.

A frame of updates has the columns of the rows, the time columns and ``diff``, as :func:`ddcore.io.checks.normalise`
returns them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import Any

import polars as pl
import polars_hash as plh

from ddcore.errors import DataError
from ddcore.io.checks import DIFF
from ddcore.io.times import Time, ordered, time_of
from ddcore.libraries import numpy as np

__all__ = [
    "Counts", "Digest", "RowCount", "accumulate_counts", "consolidate", "digests", "first_count", "merge_counts",
    "running_counts",
]  # fmt: skip

# A limb (in bits) times half of a hash's word, summed over so many rows, fits into int64.
_LIMB, _MOST_SUMMED = 10, 1 << 20
_SIP_ROWS = 1 << 14  # hashed at a time: their words fit into a core's cache
_LOW = 0xFFFF_FFFF
_MOST_CELLS = 1 << 22  # of the grids of rows that are added up at a time


def consolidate(updates: pl.DataFrame, dims: Sequence[str]) -> pl.DataFrame:
    """The same updates with one per (row, time) and no diff of 0, sorted by time, then row.

    Nulls are equal to each other, as are NaNs. The order of the result depends on the contents alone.
    O(n log n). Raises DataError when the diffs of one row at one time add up beyond int64.
    """
    if updates.is_empty():
        return updates
    moving = [dim for dim in dims if updates[dim].min() != updates[dim].max()]
    order = [*moving, *(name for name in updates.columns if name not in (*dims, DIFF))]
    ordered = updates.sort(order)
    begins = _differs_from_previous(ordered, order)
    if begins.all():
        return ordered
    starts = begins.arg_true().to_numpy()
    diffs = _group_sums(ordered[DIFF].to_numpy(), starts, ordered)
    summed = ordered[starts].with_columns(pl.Series(DIFF, diffs))
    return summed.filter(pl.col(DIFF) != 0)


def _group_sums(diffs: np.ndarray, starts: np.ndarray, ordered: pl.DataFrame) -> np.ndarray:
    """Sums of the diffs of groups that begin at ``starts``, int64[groups]. DataError if one does not fit."""
    # In halves of 32 bits, whose sums cannot leave int64. So every overflow is found.
    low = np.add.reduceat(diffs & 0xFFFF_FFFF, starts)
    high = np.add.reduceat(diffs >> 32, starts) + (low >> 32)
    beyond = (high < -(2**31)) | (high >= 2**31)
    if beyond.any():
        group = int(np.flatnonzero(beyond)[0])
        total = (int(high[group]) << 32) + int(low[group] & 0xFFFF_FFFF)
        row = ordered.drop(DIFF).row(int(starts[group]), named=True)
        raise DataError(f"the diffs of {row} add up to {total}, beyond int64", "fix the diffs at the source")
    sums: np.ndarray = (high << 32) + (low & 0xFFFF_FFFF)
    return sums


# --- digests ----------------------------------------------------------------------------------------------------------


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


def digests(updates: pl.DataFrame, dims: Sequence[str], key: bytes) -> dict[Time, Digest]:
    """The digest of the updates at each time under ``key`` (16 bytes), the same in every process and release.

    O(n), and a sort of the times where they are not in order.
    """
    total: dict[Time, Digest] = {}
    for part in updates.iter_slices(_MOST_SUMMED):
        for time, digest in _part_digests(part, dims, key).items():
            total[time] = total.get(time, Digest()) + digest
    return total


def _part_digests(updates: pl.DataFrame, dims: Sequence[str], key: bytes) -> dict[Time, Digest]:
    halves = [half for word in _row_hashes(updates, key) for half in (word & _LOW, word >> np.uint64(32))]
    diffs, times = updates[DIFF].to_numpy(), [updates[dim].to_numpy() for dim in dims]
    order: slice | np.ndarray = slice(None)
    if len(dims) > 1 or not updates[dims[0]].is_sorted():
        order = np.argsort(times[0], kind="stable") if len(dims) == 1 else np.lexsort(times[::-1])
    times = [column[order] for column in times]
    begins = np.diff(times[0], prepend=times[0][0] - 1) != 0
    for column in times[1:]:
        begins[1:] |= column[1:] != column[:-1]
    starts = np.flatnonzero(begins)
    weighted = [half[order].view(np.int64) for half in halves]
    sums = [0] * len(starts)
    for shift, limb in _limbs(diffs[order]):
        for place, half in enumerate(weighted):
            parts = np.add.reduceat(half * limb, starts).tolist()
            sums = [total + (part << (32 * place + shift)) for total, part in zip(sums, parts, strict=True)]
    heads = zip(*(column[starts].tolist() for column in times), strict=True)
    return {time_of(head): Digest(total) for head, total in zip(heads, sums, strict=True)}


def _limbs(diffs: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """``diffs`` as sums of ``limb << shift`` with limbs of 10 bits: almost always one limb."""
    sign, rest, shift = np.sign(diffs), np.abs(diffs), 0  # a diff is never -2^63
    while rest.any():
        yield shift, (rest & (2**_LIMB - 1)) * sign
        rest, shift = rest >> _LIMB, shift + _LIMB


def _row_hashes(updates: pl.DataFrame, key: bytes) -> list[np.ndarray]:
    """128 bits for each (row, time): two uint64[n], SipHash-1-3 of the row's words under ``key``."""
    columns = [updates[name] for name in updates.columns if name != DIFF]
    words = [*_null_words(columns), *(word for column in columns for word in _cells(column))]
    hashes = [np.empty(len(updates), dtype=np.uint64) for _ in range(2)]
    for start in range(0, len(updates), _SIP_ROWS):
        rows = slice(start, start + _SIP_ROWS)
        _sip([word[rows] for word in words], key, *(half[rows] for half in hashes))
    return hashes


def _null_words(columns: Sequence[pl.Series]) -> list[np.ndarray]:
    """Which columns are null, as bits: one word for 64 columns. They make null differ from every value."""
    words = []
    for start in range(0, len(columns), 64):
        word = np.zeros(len(columns[0]), dtype=np.uint64)
        for place, column in enumerate(columns[start : start + 64]):
            if column.null_count():
                word |= column.is_null().to_numpy().astype(np.uint64) << np.uint64(place)
        words.append(word)
    return words


def _cells(values: pl.Series) -> list[np.ndarray]:
    """The words of a column, uint64[n] each: 128 bits of a BLAKE3 hash for text and lists, else the bits of the value.

    A struct has the words of its fields, and which of them are null.
    """
    if isinstance(values.dtype, pl.Struct):
        fields = values.struct.unnest().get_columns()
        return [*_null_words(fields), *(word for field in fields for word in _cells(field))]
    if isinstance(values.dtype, pl.List):
        return _text_cells(_list_bytes(values))
    if values.dtype in (pl.String, pl.Binary):
        return _text_cells(values)
    if values.dtype == pl.Float64:
        return [values.fill_null(0.0).to_numpy().view(np.uint64)]
    return [values.to_physical().cast(pl.Int64).fill_null(0).to_numpy().view(np.uint64)]


def _list_bytes(values: pl.Series) -> pl.Series:
    """Lists as bytes: the words of the elements, one element after another, all of one width."""
    import pyarrow as pa

    elements = values.drop_nulls().explode(empty_as_null=False, keep_nulls=False)
    words = [*_null_words([elements]), *_cells(elements)]
    data = np.stack(words, axis=1).tobytes()
    ends = np.cumsum(values.list.len().fill_null(0).cast(pl.Int64).to_numpy()) * (8 * len(words))
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), ends])
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)]
    series = pl.from_arrow(pa.Array.from_buffers(pa.large_binary(), len(values), buffers))
    assert isinstance(series, pl.Series)
    return series


def _text_cells(values: pl.Series) -> list[np.ndarray]:
    frame = pl.DataFrame({"value": values.fill_null("" if values.dtype == pl.String else b"")})
    text = frame.select(plh.col("value").chash.blake3().str.slice(0, 32)).to_series().to_arrow()
    digits = np.frombuffer(text.buffers()[2], dtype="<u8", count=4 * len(values)).reshape(-1, 4)
    return [digits[:, place] for place in range(4)]  # the 32 hexadecimal digits themselves: unpacking them takes longer


def _sip(words: Sequence[np.ndarray], key: bytes, first: np.ndarray, second: np.ndarray) -> None:
    """SipHash-1-3 with 128 bits of output, of n messages of equal length; writes ``first`` and ``second``."""
    low, high = (int.from_bytes(key[start : start + 8], "little") for start in (0, 8))
    begin = (low ^ 0x736F6D6570736575, high ^ 0x646F72616E646F6D ^ 0xEE, low ^ 0x6C7967656E657261,
             high ^ 0x7465646279746573)  # fmt: skip
    state = [np.full(len(first), word, dtype=np.uint64) for word in begin]
    spare = np.empty(len(first), dtype=np.uint64)
    length = np.full(len(first), 8 * len(words) % 256 << 56, dtype=np.uint64)
    for word in (*words, length):
        state[3] ^= word
        _sip_round(state, spare)
        state[0] ^= word
    for out, turned, mark in ((first, 2, 0xEE), (second, 1, 0xDD)):
        state[turned] ^= np.uint64(mark)
        for _ in range(3):
            _sip_round(state, spare)
        np.bitwise_xor.reduce(state, axis=0, out=out)


def _sip_round(state: Sequence[np.ndarray], spare: np.ndarray) -> None:
    v0, v1, v2, v3 = state
    _sip_half(v0, v1, 13, spare)
    _sip_half(v2, v3, 16, spare)
    _rotate(v0, 32, spare)
    _sip_half(v0, v3, 21, spare)
    _sip_half(v2, v1, 17, spare)
    _rotate(v2, 32, spare)


def _sip_half(left: np.ndarray, right: np.ndarray, turn: int, spare: np.ndarray) -> None:
    left += right
    _rotate(right, turn, spare)
    right ^= left


def _rotate(words: np.ndarray, turn: int, spare: np.ndarray) -> None:
    np.right_shift(words, np.uint64(64 - turn), out=spare)
    words <<= np.uint64(turn)
    words |= spare


# --- counts -----------------------------------------------------------------------------------------------------------

Counts = dict[Time, tuple[int, int]]  # time -> (sum of the positive diffs, sum of the negative ones without sign)


def accumulate_counts(updates: pl.DataFrame, dims: Sequence[str]) -> Counts:
    """The sums of positive and of negative diffs at each time, exact, in the order of times."""
    wide = pl.col(DIFF).cast(pl.Int128)
    sums = updates.group_by(dims).agg(plus=wide.filter(wide > 0).sum(), minus=wide.filter(wide < 0).sum())
    return {time_of(time): (plus, -minus) for *time, plus, minus in sums.sort(dims).iter_rows()}


def merge_counts(parts: Iterable[Counts]) -> Counts:
    """The counts of all parts together, by time."""
    total: Counts = {}
    for part in parts:
        for time, (plus, minus) in part.items():
            before = total.get(time, (0, 0))
            total[time] = (before[0] + plus, before[1] + minus)
    return {time: total[time] for time in ordered(total)}


# --- running counts ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowCount:
    """A row, a time, and the row's count there; with one dimension, its count from that version on."""

    row: dict[str, Any]
    version: Time
    count: int


def running_counts(history: pl.DataFrame, dims: Sequence[str]) -> pl.DataFrame:
    """The exact counts of rows at each time where they may change: the row, the time and ``_count``.

    ``history`` holds every update of these rows. Sorted by time, then row. O(n log n) with one dimension. With several,
    a row's count may change at each combination of the coordinates of its updates, and each of them has a line.
    """
    return _counts_in_order(history, dims[0]) if len(dims) == 1 else _counts_on_grid(history, dims)


def _counts_in_order(history: pl.DataFrame, dim: str) -> pl.DataFrame:
    row = [name for name in history.columns if name not in (dim, DIFF)]
    ordered = history.sort([*row, dim])
    lines = ordered.with_columns(
        pl.col(DIFF).cast(pl.Int128),
        _row=_differs_from_previous(ordered, row).cum_sum(),
        _time=_differs_from_previous(ordered, [*row, dim]).cum_sum(),
    )
    running = lines.with_columns(_count=pl.col(DIFF).cum_sum().over("_row")).group_by("_time").last()
    return running.sort(dim, "_row").select(*row, dim, "_count")


def _counts_on_grid(history: pl.DataFrame, dims: Sequence[str]) -> pl.DataFrame:
    """The counts of each row on the grid of its own coordinates: sums of diffs along one dimension after another."""
    names = [name for name in history.columns if name not in (*dims, DIFF)]
    ordered = history.sort(names)
    numbered = ordered.with_columns(pl.col(DIFF).cast(pl.Int128), _row=_differs_from_previous(ordered, names).cum_sum())
    rows = numbered.unique("_row", keep="first").select("_row", *names)
    updates = numbered.group_by("_row", *dims).agg(pl.col(DIFF).sum())
    cells = reduce(mul, (pl.col(dim).n_unique().cast(pl.Int64) for dim in dims))
    sizes = updates.group_by("_row").agg(_cells=cells).sort("_row")
    sizes = sizes.with_columns(_part=pl.col("_cells").cum_sum() // _MOST_CELLS)
    parts = updates.join(sizes.select("_row", "_part"), on="_row").partition_by("_part", include_key=False)
    lines = [_grid_sums(part, dims) for part in parts]
    running = pl.concat(lines) if lines else updates.rename({DIFF: "_count"})
    return running.sort(*dims, "_row").join(rows, on="_row", maintain_order="left").select(*names, *dims, "_count")


def _grid_sums(updates: pl.DataFrame, dims: Sequence[str]) -> pl.DataFrame:
    """``_row``, a time of its grid, and ``_count``, the sum of its diffs at or before that time."""
    cells = updates.select("_row").unique()
    for dim in dims:
        cells = cells.join(updates.select("_row", dim).unique(), on="_row")
    cells = cells.join(updates, on=["_row", *dims], how="left").sort("_row", *dims)
    cells = cells.rename({DIFF: "_count"}).with_columns(pl.col("_count").fill_null(0))
    for dim in dims:
        others = [other for other in dims if other != dim]
        cells = cells.with_columns(pl.col("_count").cum_sum().over("_row", *others))
    return cells.select("_row", *dims, "_count")


def first_count(running: pl.DataFrame, dims: Sequence[str], condition: pl.Expr) -> RowCount | None:
    """The first line of :func:`running_counts` where ``condition``, an expression over ``_count``, is true."""
    first = running.filter(condition).head(1)
    if first.is_empty():
        return None
    row = first.drop(*dims, "_count").row(0, named=True)
    return RowCount(row, time_of(first.select(dims).row(0)), first["_count"][0])


def _differs_from_previous(ordered: pl.DataFrame, names: Sequence[str]) -> pl.Series:
    """Whether a row differs from the one before it in these columns; the first does. Nulls are equal, as are NaNs."""
    changes = [pl.col(name).ne_missing(pl.col(name).shift()) for name in names]
    begins = ordered.select(pl.any_horizontal(changes)).to_series()
    if len(begins):
        begins[0] = True  # a first row of nulls equals the nulls that shift() puts before it
    return begins
