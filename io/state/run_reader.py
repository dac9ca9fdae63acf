"""Files of state, read: rows are found and decoded where they lie; see :mod:`ddcore.io.state.run_writer`."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeAlias

import polars as pl

from ddcore.base.errors import StorageError
from ddcore.base.lazy import numpy as np
from ddcore.base.lazy import pyarrow as pa
from ddcore.base.schema import Type
from ddcore.data import wide
from ddcore.data.arrow import series_of
from ddcore.data.encoding import NULL, encode, pool_of, words_of_floats
from ddcore.io.parquet import datafile, pages
from ddcore.io.parquet.checked import Checked
from ddcore.io.state.layout import CODE, Layout
from ddcore.io.state.run_writer import PAGE, PIECE, TOP, WORD
from ddcore.io.storage import store
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import Location
from ddcore.kernels.blocks import copy_texts

_THREE = 3  # bytes of a number for which no array has a type
_CACHED = 16  # a dictionary of fewer entries for each of the rows that are read is kept as words

_Texts: TypeAlias = "tuple[np.ndarray, np.ndarray]"
Side: TypeAlias = Literal["left", "right"]
Rows: TypeAlias = "np.ndarray | slice"
"""Rows of a row group: by number, ascending, or a range."""


class RunFile:
    """A file of state. Opening reads its footer; no descriptor stays open.

    Raises StorageError where the file is missing, damaged or of another layout. Several threads may use one.
    """

    __slots__ = (
        "_chunks", "_codes", "_first_pages", "_index", "_lock", "_pages", "_stored", "_top", "_words", "bytes", "kinds",
        "path", "starts",
    )  # fmt: skip

    def __init__(self, path: Location, layout: Layout, hint: str) -> None:
        self.path, self._lock = path, Lock()
        with reporting(path, "read", hint):
            source = store.mapped(path)
            note = json.loads(datafile.note_of(source, datafile.RUN, hint))
        chunks: Mapping[str, list[dict[str, Any]]] = note["columns"]
        unknown = [name for name in layout.columns if name not in chunks]
        if unknown:
            raise StorageError(f"{path} has no column {unknown[0]}", hint)
        self.bytes = Checked(source, note["end"], _numbers(note["units"]), hint)
        self._chunks, self._index, self._top = chunks, note["index"] // 8, _numbers(note["top"])
        rows = np.array(note["rows"], np.int64)
        self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(rows)])  # of row groups, and the end
        self._first_pages = np.concatenate([np.zeros(1, np.int64), np.cumsum(-(-rows // PAGE))])
        self._pages = int(self._first_pages[-1])
        self._codes = np.array([chunk["at"] // 8 for chunk in chunks[CODE]], np.int64)  # where those of groups begin
        narrow = dict.fromkeys(note["narrow"], pages.INT32)
        self.kinds = {CODE: _INT64, **layout.stored, **dict.fromkeys((*layout.times, "diff"), _INT64)} | {
            name: kind for name, kind in narrow.items() if name in layout.stored or name in (*layout.times, "diff")
        }
        self._stored = list(layout.stored)
        self._words: dict[tuple[str, int], np.ndarray] = {}  # of entries of dictionaries: see _entries

    def __len__(self) -> int:
        return int(self.starts[-1])

    def memory(self) -> int:
        """The bytes of what it remembers of the file: the words of texts that were decoded."""
        return sum(words.nbytes for words in self._words.values())

    # --- looking up ---

    def locate(self, probes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row ranges [lo, hi) of equal code, one per probe (int64[m], ascending): a page of the index and one of codes
        are searched for each.
        """
        lo, hi = np.zeros(len(probes), np.int64), np.zeros(len(probes), np.int64)
        if self._pages == 0:
            return lo, hi
        before, within = self._pages_of(probes, "left"), self._pages_of(probes, "right")
        some = np.flatnonzero(before >= 0)
        lo[some], hi[some] = self._search(before[some], probes[some])
        other = np.flatnonzero((within >= 0) & (within != before))
        hi[other] = self._search(within[other], probes[other])[1]
        return lo, np.maximum(lo, hi)

    def _pages_of(self, probes: np.ndarray, side: Side) -> np.ndarray:
        """The last page whose first code is less than each probe, or for "right" at most the probe; -1 for none."""
        from ddcore.kernels.look_up import search

        top: np.ndarray = np.searchsorted(self._top, probes, side=side) - 1
        some = np.flatnonzero(top >= 0)
        first = self._index + top[some] * TOP
        last = np.minimum(first + TOP, self._index + self._pages)
        self.bytes.need(8 * first, 8 * last)
        bounds = search(self.bytes.words, probes[some], first, last)[side == "right"]
        found = np.full(len(probes), -1, np.int64)
        found[some] = bounds - self._index - 1
        return found

    def _search(self, numbers: np.ndarray, probes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where each probe belongs among the codes of a page: the first row of its code, and the first after them."""
        from ddcore.kernels.look_up import search

        group = np.searchsorted(self._first_pages, numbers, side="right") - 1
        row = (numbers - self._first_pages[group]) * PAGE
        first = self._codes[group] + row
        end = first + np.minimum(PAGE, self.starts[group + 1] - self.starts[group] - row)
        self.bytes.need(8 * first, 8 * end)
        lo, hi = search(self.bytes.words, probes, first, end)
        before = self.starts[group] + row - first
        return lo + before, hi + before

    def bounds(self, codes: np.ndarray, side: Side) -> np.ndarray:
        """The first row whose code is at least each of these, or for "right" greater: int64[m]."""
        rows = np.zeros(len(codes), np.int64)
        if self._pages:
            page = self._pages_of(codes, side)
            some = np.flatnonzero(page >= 0)
            rows[some] = self._search(page[some], codes[some])[side == "right"]
        return rows

    def words(self, number: int, rows: np.ndarray) -> np.ndarray:
        """One of the words of some rows, which ascend: int64[m]."""
        name = self._stored[number]
        out, at = np.empty(len(rows), np.int64), 0
        for group, some in self._divided(rows):
            count = _number(some)
            out[at : at + count] = self._column(name, group, self.kinds[name], some, count)
            at += count
        return out

    def dictionaries(self, name: str) -> list[tuple[int, dict[str, Any]]]:
        """The row groups that have a dictionary of texts in a column, and where it is."""
        return [(group, chunk) for group, chunk in enumerate(self._chunks[name]) if "texts" in chunk]

    # --- columns ---

    def columns(self, rows: Rows) -> np.ndarray:
        """Rows of the run, by ascending number or as a range: codes, words, times, diffs: int64 (columns, m)."""
        kinds = self.kinds
        out = np.empty((len(kinds), _number(rows)), np.int64)
        at = 0
        if isinstance(rows, slice) and len(out[0]) == len(self) and not isinstance(self.path, Path):
            self.bytes.need_range(0, self.bytes.end)  # in one request
        for group, some in self._divided(rows):
            number = _number(some)
            if not isinstance(some, slice):
                self._fetch(group, some)
            for line, (name, kind) in zip(out, kinds.items(), strict=True):
                line[at : at + number] = self._column(name, group, kind, some, number)
            at += number
        return out

    def _fetch(self, group: int, rows: np.ndarray) -> None:
        """Have what the columns of some rows begin with all at once: of an object, in one request."""
        begins, ends = list[np.ndarray](), list[np.ndarray]()
        for name, kind in self.kinds.items():
            chunk = self._chunks[name][group]
            if "is" in chunk or "nulls" in chunk:
                continue
            if "valid" in chunk:
                begin, width, at = chunk["valid"], WORD // 8, rows // WORD
            elif "ids" in chunk:
                (begin, width), at = chunk["ids"], rows
            else:
                begin, width, at = chunk["at"], np.dtype(pages.physical(kind) or "u1").itemsize, rows
                at = at if pages.physical(kind) else rows >> 3
            if width:
                begins.append(begin + width * at)
                ends.append(begins[-1] + width)
        self.bytes.need(np.concatenate([_NONE, *begins]), np.concatenate([_NONE, *ends]))

    def _divided(self, rows: Rows) -> list[tuple[int, Rows]]:
        """The row groups of some rows, and their numbers there."""
        divided: list[tuple[int, Rows]] = []
        if isinstance(rows, slice):
            for group, (start, stop) in enumerate(pairwise(self.starts.tolist())):
                a, b = max(rows.start, start), min(rows.stop, stop)
                if a < b:
                    divided.append((group, slice(a - start, b - start)))
            return divided
        cuts = np.searchsorted(rows, self.starts)
        return [
            (group, rows[cuts[group] : cuts[group + 1]] - self.starts[group])
            for group in range(len(cuts) - 1)
            if cuts[group] < cuts[group + 1]
        ]

    def _column(self, name: str, group: int, kind: Type, rows: Rows, number: int) -> np.ndarray | int:
        """The words of some rows of a row group; one number, where all are the same."""
        chunk = self._chunks[name][group]
        if "is" in chunk:
            return int(chunk["is"])
        if "nulls" in chunk:
            rows = _listed(rows)
            valid = ~self._bits(chunk["nulls"], rows)
            rows = rows[valid]
        elif "valid" in chunk:
            valid, rows = self._ranks(chunk, _listed(rows))
        else:
            return self._values(name, group, kind, rows)
        words = np.full(number, NULL, np.int64)
        if len(valid) and valid.any():
            words[valid] = self._values(name, group, kind, rows)
        return words

    def _ranks(self, chunk: dict[str, Any], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which rows are not null, and the positions of these among the values."""
        word, bit = rows // WORD, (rows % WORD).astype(np.uint64)
        bits = self._at(chunk["valid"], "<u8", word)
        before = self._at(chunk["before"], "<i4", word)
        valid = (bits >> bit & np.uint64(1)).astype(bool)
        below = np.bitwise_count(bits & ((np.uint64(1) << bit) - np.uint64(1)))
        return valid, (before + below.astype(np.int64))[valid]

    def _values(self, name: str, group: int, kind: Type, rows: Rows) -> np.ndarray:
        """The words of values that are not null."""
        chunk = self._chunks[name][group]
        if "ids" not in chunk:
            if kind.name == "bool":
                return self._bits(chunk["at"], rows).astype(np.int64)
            return _words(self._at(chunk["at"], pages.physical(kind), rows), kind)
        begin, width = chunk["ids"]
        ids = np.zeros(_number(rows), np.int64) if width == 0 else self._ids(begin, width, rows)
        return self._entries(name, group, kind, ids)

    def _entries(self, name: str, group: int, kind: Type, ids: np.ndarray) -> np.ndarray:
        """The words of entries of a dictionary, by number. Entries are decoded once, and only those that are needed."""
        chunk = self._chunks[name][group]
        if not kind.is_pooled:
            if len(ids) < chunk["of"]:
                return _words(self._at(chunk["at"], pages.physical(kind), ids), kind)
            return np.take(_words(self._at(chunk["at"], pages.physical(kind), slice(0, chunk["of"])), kind), ids)
        if chunk["of"] > _CACHED * len(ids) + PAGE:
            entries, inverse = np.unique(ids, return_inverse=True)
            words = self._decoded(chunk, kind, entries.astype(np.int64))
            return np.take(words, inverse)
        with self._lock:
            if (name, group) not in self._words:
                self._words[name, group] = np.full(chunk["of"], NULL, np.int64)
            words = self._words[name, group]
            needed = np.zeros(chunk["of"], dtype=bool)
            needed[ids] = True
            missing = np.flatnonzero(needed & (words == NULL))
            if len(missing):
                words[missing] = self._decoded(chunk, kind, missing)
        return np.take(words, ids)

    def _decoded(self, chunk: dict[str, Any], kind: Type, entries: np.ndarray) -> np.ndarray:
        """The words of distinct entries of a dictionary, which ascend."""
        if kind.is_wide:
            size = wide.width(kind)
            content = np.ascontiguousarray(self._at(chunk["wide"], f"V{size}", entries)).view(np.uint8)
            return pool_of(kind).intern(wide.from_big_endian(content, size))
        return self._pieces(chunk, kind, entries) if kind.is_nested else self._texts(chunk, kind, entries)

    def _texts(self, chunk: dict[str, Any], kind: Type, entries: np.ndarray) -> np.ndarray:
        return _encoded([self._payload(chunk, entries)], kind)

    def _payload(self, chunk: dict[str, Any], entries: np.ndarray) -> _Texts:
        """The texts or bytes of entries of a dictionary."""
        if len(entries) == chunk["of"]:
            ends = self._at(chunk["ends"], "<u4", slice(0, len(entries) + 1)).astype(np.int64)
            begins, ends = ends[:-1], ends[1:]
        else:
            begins, ends = (
                self._at(chunk["ends"], "<u4", position).astype(np.int64) for position in (entries, entries + 1)
            )
        begins, ends = begins + (chunk["texts"] + 4), ends + chunk["texts"]
        lengths = ends - begins
        some = lengths > 0
        self.bytes.need(begins[some], ends[some])
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        texts = np.empty(int(offsets[-1]), np.uint8)
        copy_texts(self.bytes.data, begins, lengths, texts, offsets[:-1])
        return lengths, texts

    def _pieces(self, chunk: dict[str, Any], kind: Type, entries: np.ndarray) -> np.ndarray:
        piece, words = entries // PIECE, np.empty(len(entries), np.int64)
        for number in np.unique(piece).tolist():
            begin, end = self._at(chunk["pieces"], "<i8", slice(number, number + 2)).tolist()
            self.bytes.need_range(begin, end)
            some = piece == number
            series = _deserialized(self.bytes.data[begin:end]).gather(entries[some] - number * PIECE)
            words[some] = encode(series, kind)
        return words

    def _ids(self, begin: int, width: int, rows: Rows) -> np.ndarray:
        """Numbers of so many bytes: uint32[m], or narrower."""
        if width != _THREE:
            return self._at(begin, f"u{width}", rows)
        if isinstance(rows, slice):
            content = self._at(begin, "u1", slice(_THREE * rows.start, _THREE * rows.stop)).reshape(-1, _THREE)
        else:
            content = self._at(begin, "u1", (_THREE * rows[:, None] + np.arange(_THREE)).ravel()).reshape(-1, _THREE)
        wide = np.zeros((len(content), 4), np.uint8)
        wide[:, :_THREE] = content
        return wide.view("<u4").ravel()

    def _bits(self, begin: int, rows: Rows) -> np.ndarray:
        """Flags that are stored as bits: bool[m]."""
        numbers = _listed(rows)
        flags: np.ndarray = (self._at(begin, "u1", numbers >> 3) >> (numbers & 7).astype(np.uint8) & 1).astype(bool)
        return flags

    def _at(self, begin: int, kind: str, positions: Rows) -> np.ndarray:
        """Numbers of an array that begins at a byte of the file, by their positions there. A range is not copied."""
        width = np.dtype(kind).itemsize
        if isinstance(positions, slice):
            first, count = begin + width * positions.start, positions.stop - positions.start
            self.bytes.need_range(first, first + width * count)
            return np.frombuffer(self.bytes.data, kind, count, first)
        if len(positions) == 0:
            return np.empty(0, kind)
        firsts = begin + width * positions.astype(np.int64)
        self.bytes.need(firsts, firsts + width)
        array = np.frombuffer(self.bytes.data, kind, int(positions.max()) + 1, begin)
        return array[positions]


_INT64, _NONE = Type("int64"), np.empty(0, np.int64)


def _number(rows: Rows) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _listed(rows: Rows) -> np.ndarray:
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def _numbers(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), np.int64)


def _words(values: np.ndarray, kind: Type) -> np.ndarray:
    return words_of_floats(values) if kind.name == "float64" else values.astype(np.int64, copy=False)


def load_texts(files: Sequence[RunFile]) -> None:
    """Decode the dictionaries of several small files of one table, the texts of a column all at once."""
    for file in files:
        file.bytes.need_range(0, file.bytes.end)
    for name, kind in files[0].kinds.items() if files else ():
        if not kind.is_pooled or kind.is_nested:
            continue
        parts = [(file, group, chunk) for file in files for group, chunk in file.dictionaries(name)]
        if not parts:
            continue
        words = _encoded([file._payload(chunk, np.arange(chunk["of"])) for file, _, chunk in parts], kind)
        ends = np.cumsum([chunk["of"] for _, _, chunk in parts])
        for (file, group, _), some in zip(parts, np.split(words, ends[:-1]), strict=True):
            file._words[name, group] = some


def _encoded(parts: Sequence[_Texts], kind: Type) -> np.ndarray:
    """The words of texts or bytes, by their lengths and all their bytes."""
    lengths, texts = (np.concatenate(arrays) if len(parts) > 1 else arrays[0] for arrays in zip(*parts, strict=True))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    of = pa.large_string() if kind.name == "string" else pa.large_binary()
    array = pa.Array.from_buffers(of, len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(texts)])
    return encode(series_of(array), kind)


def _deserialized(content: np.ndarray) -> pl.Series:
    series = pl.from_arrow(pa.ipc.open_stream(pa.py_buffer(content)).read_all()["values"])
    assert isinstance(series, pl.Series)
    return series
