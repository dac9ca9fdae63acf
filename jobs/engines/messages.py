"""Updates on their way to the workers that own their keys: divided by owner, and as bytes.

They are divided as they come, unsorted: the receiver sorts them in any case. What stays with its worker is not
encoded. Numbers go in the bytes that their columns need; their words are the same in every process. Of pooled types
(strings, lists) each distinct value of a part goes once, with a number for each row: words of theirs are valid in one
process only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Type
from ddcore.data import encoding
from ddcore.data.arrow import series_of
from ddcore.jobs.engines.division import Division, Shares
from ddcore.jobs.engines.peers import Header, Part, PeerLost
from ddcore.operators.arrangement import Arrangement
from ddcore.operators.block import Rounds
from ddcore.operators.delivery import Delivery
from ddcore.planning.plan import Plan
from ddcore.traces.columns import Columns, Compressed, CompressedColumn, Plain

_FEW, _FEW_OWNERS = 1 << 12, 8  # updates, and workers
_FEW_JOINED = 1 << 10  # updates of a part

Encoded = tuple[Header, bytearray]
"""A part as it arrives."""


@dataclass(frozen=True, slots=True)
class Message:
    """Updates for an arrangement, all at these rounds; their columns are those of :meth:`Arrangement.queued`."""

    arrangement: Arrangement
    rounds: Rounds
    updates: Columns

    def __len__(self) -> int:
        return len(self.updates)


def grouped(deliveries: Iterable[Delivery]) -> Iterator[Message]:
    """Deliveries as messages: few updates for one arrangement at the same rounds as one."""
    small: dict[tuple[int, Rounds], tuple[Arrangement, list[Columns]]] = {}
    for delivery in deliveries:
        arrangement, rounds, updates = delivery.arrangement, delivery.rounds, delivery.updates
        assert rounds is not None
        if isinstance(updates, Compressed):
            yield Message(arrangement, rounds, updates)
        else:
            small.setdefault((arrangement.index, rounds), (arrangement, []))[1].append(updates)
    for (_, rounds), (arrangement, pieces) in small.items():
        yield Message(arrangement, rounds, _together(pieces))


def _together(pieces: Sequence[Columns]) -> Columns:
    if len(pieces) == 1:
        return pieces[0]
    is_wide = any(piece.high is not None for piece in pieces)
    high = np.concatenate([piece.upper() for piece in pieces]) if is_wide else None
    return Plain([np.concatenate(columns) for columns in zip(*pieces, strict=True)], high)


def divided(message: Message, division: Division) -> Iterator[tuple[int, Message]]:
    """The updates of a message by owner, each worker with its own; in their order. Nothing of one without updates.

    Those of heavy keys, and intervals, may have several owners.
    """
    if not len(message):
        return
    index, rows = message.arrangement.index, None
    boundaries = np.array(division.boundaries[index], dtype=np.int64)
    if message.arrangement.ends is None:
        codes = _codes(message, division)
        owners = np.searchsorted(boundaries, codes, side="right").astype(np.uint16)
        shares = division.shares.get(index)
        if shares is not None and len((found := shares.numbers(codes))[0]):
            rows, owners = _shared_out(message, owners, shares, *found)
    else:
        words = _words_of(message, message.arrangement.ends.columns)
        first, last = division.holders(message.arrangement, words, len(message))
        rows = np.repeat(np.arange(len(message)), last - first + 1)
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        owners = (first[rows] + np.arange(len(rows)) - starts[rows]).astype(np.uint16)
    counts = np.bincount(owners, minlength=len(boundaries) + 1)
    if rows is None and counts.max() == len(message):
        yield int(owners[0]), message
        return
    for owner, some in _rows_of(owners, counts):
        part = taken(message.updates, some if rows is None else rows[some])
        yield owner, Message(message.arrangement, message.rounds, part)


def _rows_of(owners: np.ndarray, counts: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each owner that has rows, and these: int64[m], ascending. Many rows are looked through for each of few owners."""
    distinct = np.flatnonzero(counts).tolist()
    if len(distinct) <= _FEW_OWNERS and len(owners) > _FEW:
        yield from ((owner, np.flatnonzero(owners == owner)) for owner in distinct)
        return
    order, ends = np.argsort(owners, kind="stable"), np.cumsum(counts)
    for owner in distinct:
        yield owner, order[ends[owner] - counts[owner] : ends[owner]]


def _shared_out(
    message: Message, owners: np.ndarray, shares: Shares, heavy: np.ndarray, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and their owners, where those of heavy keys have several; ``owners`` are those of the others."""
    names = [name for name in message.arrangement.collection if name not in message.arrangement.key]
    hashes = np.zeros(len(heavy), dtype=np.int64)
    if message.arrangement.transient or names:
        hashes = _words_codes(message, names or list(message.arrangement.collection))[heavy]
    copied, workers = shares.cells(numbers, hashes)
    others = np.ones(len(message), dtype=bool)
    others[heavy] = False
    rest = np.flatnonzero(others)
    rows, owners = np.concatenate([rest, heavy[copied]]), np.concatenate([owners[rest], workers.astype(np.uint16)])
    order = np.argsort(rows, kind="stable")
    return rows[order], owners[order]


def _codes(message: Message, division: Division) -> np.ndarray:
    """The codes by which the updates are divided: int64[n]."""
    arrangement = message.arrangement
    return _words_codes(message, division.keys.get(arrangement.index, arrangement.key))


def _words_codes(message: Message, columns: Sequence[str]) -> np.ndarray:
    """The codes of some columns of the updates: int64[n]."""
    kinds = [message.arrangement.collection[name] for name in columns]
    return encoding.key_codes([*_words_of(message, columns).values()], kinds, len(message))


def _words_of(message: Message, columns: Sequence[str]) -> dict[str, np.ndarray]:
    """The words of some columns of the updates: int64[n] each."""
    arrangement, names = message.arrangement, list(message.arrangement.schema)
    if len(arrangement.queued_types) > len(names):
        names = ["", *arrangement.collection]  # after a code that is always 0
    return {name: message.updates.column(names.index(name)) for name in columns}


def taken(updates: Columns, rows: np.ndarray) -> Columns:
    """The updates at these positions, in their order: int64[m]."""
    if not isinstance(updates, Compressed):
        return Plain([column[rows] for column in updates], None if updates.high is None else updates.high[rows])
    columns = []
    for column in updates.columns:
        distances = None if column.distances is None else column.distances[rows]
        columns.append(CompressedColumn(column.least, column.most, distances, len(rows)))
    return Compressed(columns)


# --- as bytes ---------------------------------------------------------------------------------------------------------


def encoded(message: Message) -> Part:
    """A message as a part of an exchange: a header, and the bytes of its columns."""
    types, updates = message.arrangement.queued_types, message.updates
    columns: list[list[int]] = []
    buffers: list[memoryview] = []
    wide = [] if updates.high is None else [CompressedColumn.of(updates.high)]
    for number, words in enumerate([*map(updates.compressed, range(updates.count)), *wide]):
        kind, column = types[number] if number < len(types) else None, words
        if kind is not None and kind.is_pooled:
            values, column = _dictionary(words.decompress(), kind)
            buffers.append(values)
        columns.append([column.least, column.most, 0 if column.distances is None else column.distances.itemsize])
        if column.distances is not None:
            buffers.append(np.ascontiguousarray(column.distances).data.cast("B"))
    header = {"to": message.arrangement.index, "at": message.rounds, "rows": len(message), "columns": columns}
    return header, buffers


def decoded(plan: Plan, parts: Sequence[Encoded]) -> Iterator[Message]:
    """The messages of parts, each a header and its bytes: of parts with few updates those for the same arrangement and
    rounds as one, because the values of pooled types then get their words at once. Raises PeerLost.
    """
    together: dict[tuple[int, ...], list[_Piece]] = {}
    try:
        for header, body in parts:
            to, rounds = header["to"], tuple(header["at"])
            piece = _Piece.of(plan.arrangements[to], header, body)
            if piece.rows <= _FEW_JOINED:
                together.setdefault((to, *rounds), []).append(piece)
            else:
                yield Message(plan.arrangements[to], rounds, _updates(plan.arrangements[to], [piece]))
        for (to, *at), pieces in together.items():
            yield Message(plan.arrangements[to], tuple(at), _updates(plan.arrangements[to], pieces))
    except (LookupError, TypeError, ValueError, StopIteration, pa.ArrowException, OSError) as error:
        raise PeerLost(f"a part of a message is damaged: {error}") from error


@dataclass(frozen=True, slots=True)
class _Piece:
    """The columns of a part; those of pooled types are numbers of ``values``, by the number of the column."""

    rows: int
    columns: list[CompressedColumn]
    values: dict[int, pa.Array]

    @classmethod
    def of(cls, arrangement: Arrangement, header: Header, body: bytearray) -> _Piece:
        """Raises ValueError, and what else comes of bytes that are none of a part."""
        types, rows, buffers = arrangement.queued_types, header["rows"], _buffers(header, body)
        columns, values = list[CompressedColumn](), dict[int, pa.Array]()
        for place, (least, most, width) in enumerate(header["columns"]):
            kind = types[place] if place < len(types) else None
            if kind is not None and kind.is_pooled:
                values[place] = _values(next(buffers))
            distances = np.frombuffer(next(buffers), f"u{width}" if width < 8 else "i8") if width else None
            if distances is not None and len(distances) != rows:
                raise ValueError(f"a column of {len(distances)} rows, and not of {rows}")
            columns.append(CompressedColumn(least, most, distances, rows))
        number = len(types) + len(arrangement.times) + 1
        if len(columns) - number not in (0, 1) or next(buffers, None) is not None:
            raise ValueError(f"{len(columns)} columns, and not {number}")
        return cls(rows, columns, values)


def _updates(arrangement: Arrangement, pieces: Sequence[_Piece]) -> Columns:
    """The updates of parts for one arrangement, as one."""
    words = {place: _words(arrangement, place, pieces) for place in pieces[0].values}
    number = len(arrangement.queued_types) + len(arrangement.times) + 1
    updates = []
    for at, piece in enumerate(pieces):
        columns = [words[place][at] if place in words else column for place, column in enumerate(piece.columns)]
        updates.append(_of_piece(columns, number))
    return _together(updates)


def _of_piece(columns: list[CompressedColumn], number: int) -> Columns:
    updates: Columns = Compressed(columns)
    if len(columns) > number:  # the upper words of diffs that need 128 bits
        *plain, high = updates
        updates = Plain(plain, high)
    return updates


def _words(arrangement: Arrangement, place: int, pieces: Sequence[_Piece]) -> list[CompressedColumn]:
    """The words of a column of a pooled type: of each piece, whose values have numbers of their own."""
    values = [piece.values[place] for piece in pieces]
    kind = arrangement.queued_types[place]
    assert kind is not None
    words = encoding.encode(series_of(pa.concat_arrays(values)), kind)
    ends = np.cumsum([len(some) for some in values]).tolist()
    return [
        CompressedColumn.of(words[end - len(some) : end][piece.columns[place].decompress()])
        for piece, some, end in zip(pieces, values, ends, strict=True)
    ]


def _buffers(header: Header, body: bytearray) -> Iterator[memoryview]:
    """The buffers of a part; each begins at a multiple of eight."""
    start, view = 0, memoryview(body)
    for size in header.get("sizes", ()):
        yield view[start : start + size]
        start += -(-size // 8) * 8


def _dictionary(words: np.ndarray, kind: Type) -> tuple[memoryview, CompressedColumn]:
    """The distinct values of words, and the number of each."""
    least, most = int(words.min()), int(words.max())
    if most - least < 4 * len(words):  # ids are dense: without a sort
        present = np.zeros(most - least + 1, dtype=bool)
        present[words - least] = True
        distinct = np.flatnonzero(present) + least
        numbers = (np.cumsum(present) - 1)[words - least]
    else:
        distinct, numbers = np.unique(words, return_inverse=True)
    values = encoding.decode(distinct, kind).to_arrow()
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([values], ["values"])
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return memoryview(sink.getvalue()), CompressedColumn.of(numbers.astype(np.int64))


def _values(values: memoryview) -> pa.Array:
    with pa.ipc.open_stream(pa.py_buffer(values)) as stream:
        return stream.read_next_batch().column(0)
