"""Updates on their way to the workers that own their keys: divided by owner, and as bytes.

They are divided as they come, unsorted: the receiver sorts them in any case. What stays with its worker is not
encoded. Numbers go in the bytes that their columns need; their words are the same in every process. What is in pools
(strings, lists) goes as :mod:`~ddcore.jobs.engines.dictionaries` has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Type
from ddcore.data import encoding
from ddcore.jobs.engines.dictionaries import numbered, packed, unpacked
from ddcore.jobs.engines.division import Division, Shares
from ddcore.jobs.engines.peers import Header, Part, PeerLost
from ddcore.operators.arrangement import Arrangement
from ddcore.operators.block import Rounds
from ddcore.operators.delivery import Delivery
from ddcore.planning.plan import Plan
from ddcore.traces.columns import Columns, Compressed, CompressedColumn, Plain, together

_FEW, _FEW_OWNERS, _COMPARED = 1 << 12, 4, 64  # updates, and workers
PART = 1 << 13  # updates for a worker, so that a part is worth what it costs apart from its bytes
FEW_JOINED = 1 << 10  # updates of a part that is encoded, and decoded, with others

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


def grouped(deliveries: Iterable[Delivery], enough: int = PART) -> Iterator[Message]:
    """Deliveries as messages: few updates for one arrangement at the same rounds as one; of compressed ones, fewer than
    ``enough``.
    """
    waiting: dict[tuple[int, Rounds, bool], list[Delivery]] = {}
    sizes = Counter[tuple[int, Rounds, bool]]()
    for delivery in deliveries:
        assert delivery.rounds is not None
        is_compressed = delivery.updates.is_compressed
        key = delivery.arrangement.index, delivery.rounds, is_compressed
        waiting.setdefault(key, []).append(delivery)
        sizes[key] += len(delivery.updates)
        if is_compressed and sizes[key] >= enough:
            yield _message(waiting.pop(key))
            del sizes[key]
    yield from map(_message, waiting.values())


def _message(deliveries: Sequence[Delivery]) -> Message:
    first = deliveries[0]
    assert first.rounds is not None
    return Message(first.arrangement, first.rounds, together([delivery.updates for delivery in deliveries]))


def divided(message: Message, division: Division) -> Iterator[tuple[int, Message]]:
    """The updates of a message by owner, each worker with its own; in their order. Nothing of one without updates.

    Those of heavy keys, and intervals, may have several owners.
    """
    if not len(message):
        return
    index, rows, boundaries = message.arrangement.index, None, division.boundaries[message.arrangement.index]
    if message.arrangement.ends is None:
        codes = _codes(message, division)
        owners = _owners(codes, boundaries)
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
    for owner, part in _parted(message.updates, owners, counts, rows):
        yield owner, Message(message.arrangement, message.rounds, part)


def _owners(codes: np.ndarray, boundaries: Sequence[int]) -> np.ndarray:
    """The worker in whose range each code is: uint8[n] or uint16[n]. Few boundaries are compared one after another,
    which takes less time than a search.
    """
    if len(codes) <= _FEW or len(boundaries) >= _COMPARED:
        return np.searchsorted(np.array(boundaries, dtype=np.int64), codes, side="right").astype(np.uint16)
    owners = np.zeros(len(codes), dtype=np.uint8)
    for boundary in boundaries:
        owners += codes >= boundary
    return owners


def _parted(
    updates: Columns, owners: np.ndarray, counts: np.ndarray, rows: np.ndarray | None
) -> Iterator[tuple[int, Columns]]:
    """The updates of each owner that has some, in their order. ``owners``: of these ``rows``, or of all.

    Many rows are looked through for each of few owners; few are put in the order of owners at once.
    """
    distinct, ends = np.flatnonzero(counts).tolist(), np.cumsum(counts)
    if len(distinct) <= _FEW_OWNERS and len(owners) > _FEW:
        for owner in distinct:
            some = np.flatnonzero(owners == owner)
            yield owner, taken(updates, some if rows is None else rows[some])
        return
    order = np.argsort(owners, kind="stable")
    order = order if rows is None else rows[order]
    spans = [(owner, int(ends[owner] - counts[owner]), int(ends[owner])) for owner in distinct]
    if len(owners) > _FEW:  # a part of all would keep all in memory
        yield from ((owner, taken(updates, order[start:stop])) for owner, start, stop in spans)
        return
    ordered = taken(updates, order).compress()
    yield from ((owner, ordered.part(start, stop)) for owner, start, stop in spans)


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


def encoded(messages: Sequence[Message]) -> list[Part]:
    """Each message as a part of an exchange: a header, and the bytes of its columns."""
    columns = [_narrow(message.updates) for message in messages]
    pooled: dict[Type, list[tuple[int, int, np.ndarray]]] = {}
    for at, message in enumerate(messages):
        for column, kind in _pooled(message.arrangement):
            distinct, columns[at][column] = numbered(columns[at][column].decompress())
            pooled.setdefault(kind, []).append((at, column, distinct))
    values: list[dict[int, memoryview]] = [{} for _ in messages]
    for kind, several in pooled.items():
        for (at, column, _), some in zip(several, packed([words for _, _, words in several], kind), strict=True):
            values[at][column] = some
    return [*map(_part, messages, columns, values)]


def _narrow(updates: Columns) -> list[CompressedColumn]:
    """The columns in few bytes, with the upper words of diffs that need 128 bits as one more."""
    wide = [] if updates.high is None else [CompressedColumn.of(updates.high)]
    return [*map(updates.compressed, range(updates.count)), *wide]


def _pooled(arrangement: Arrangement) -> Iterator[tuple[int, Type]]:
    """The numbers of the columns whose words are ids of a pool, with their types."""
    kinds = enumerate(arrangement.queued_types)
    return ((column, kind) for column, kind in kinds if kind is not None and kind.is_pooled)


def _part(message: Message, columns: Sequence[CompressedColumn], values: Mapping[int, memoryview]) -> Part:
    about: list[list[int]] = []
    buffers: list[memoryview] = []
    for number, column in enumerate(columns):
        if number in values:
            buffers.append(values[number])
        about.append([column.least, column.most, 0 if column.distances is None else column.distances.itemsize])
        if column.distances is not None:
            buffers.append(np.ascontiguousarray(column.distances).data.cast("B"))
    header = {"to": message.arrangement.index, "at": message.rounds, "rows": len(message), "columns": about}
    return header, buffers


def decoded(plan: Plan, parts: Sequence[Encoded]) -> Iterator[Message]:
    """The messages of parts, each a header and its bytes: of parts with few updates those for the same arrangement and
    rounds as one. Raises PeerLost.
    """
    few: dict[tuple[int, ...], list[_Piece]] = {}
    try:
        pieces = [_Piece.of(plan.arrangements[header["to"]], header, body) for header, body in parts]
        _look_up(pieces)
        for piece in pieces:
            if piece.rows <= FEW_JOINED:
                few.setdefault((piece.arrangement.index, *piece.rounds), []).append(piece)
            else:
                yield Message(piece.arrangement, piece.rounds, piece.updates())
        for several in few.values():
            arrangement, rounds = several[0].arrangement, several[0].rounds
            yield Message(arrangement, rounds, several[0].updates() if len(several) == 1 else _joined(several))
    except (LookupError, TypeError, ValueError, StopIteration, pa.ArrowException, OSError) as error:
        raise PeerLost(f"a part of a message is damaged: {error}") from error


@dataclass(frozen=True, slots=True)
class _Piece:
    """The columns of a part; those of pooled types are numbers of ``values``, by the number of the column, whose words
    are in ``words`` once they were looked up.
    """

    arrangement: Arrangement
    rounds: Rounds
    rows: int
    columns: list[CompressedColumn]
    values: dict[int, memoryview]
    words: dict[int, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, arrangement: Arrangement, header: Header, body: bytearray) -> _Piece:
        """Raises ValueError, and what else comes of bytes that are none of a part."""
        rows, buffers, pooled = header["rows"], _buffers(header, body), dict(_pooled(arrangement))
        columns, values = list[CompressedColumn](), dict[int, memoryview]()
        for column, (least, most, width) in enumerate(header["columns"]):
            if column in pooled:
                values[column] = next(buffers)
            distances = np.frombuffer(next(buffers), f"u{width}" if width < 8 else "i8") if width else None
            if distances is not None and len(distances) != rows:
                raise ValueError(f"a column of {len(distances)} rows, and not of {rows}")
            columns.append(CompressedColumn(least, most, distances, rows))
        number = _count(arrangement)
        if len(columns) - number not in (0, 1) or next(buffers, None) is not None:
            raise ValueError(f"{len(columns)} columns, and not {number}")
        return cls(arrangement, tuple(header["at"]), rows, columns, values)

    def column(self, number: int) -> np.ndarray:
        """A column at full width: int64[rows]."""
        column = self.columns[number].decompress()
        return self.words[number][column] if number in self.words else column

    def updates(self) -> Columns:
        """The updates in few bytes; at full width where their diffs need 128 bits."""
        columns = [
            CompressedColumn.of(self.column(number)) if number in self.words else column
            for number, column in enumerate(self.columns)
        ]
        if len(columns) == _count(self.arrangement):
            return Compressed(columns)
        *plain, high = (column.decompress() for column in columns)
        return Plain(plain, high)

    def upper(self) -> np.ndarray:
        """The upper words of the diffs: int64[rows]."""
        number = _count(self.arrangement)
        return self.column(number) if len(self.columns) > number else self.column(number - 1) >> 63


def _look_up(pieces: Sequence[_Piece]) -> None:
    """Give the values of all parts their words."""
    pooled: dict[Type, list[tuple[_Piece, int]]] = {}
    for piece in pieces:
        for column, kind in _pooled(piece.arrangement):
            pooled.setdefault(kind, []).append((piece, column))
    for kind, several in pooled.items():
        words = unpacked([piece.values[column] for piece, column in several], kind)
        for (piece, column), some in zip(several, words, strict=True):
            piece.words[column] = some


def _count(arrangement: Arrangement) -> int:
    """How many columns updates on their way have, if their diffs need no more than 64 bits."""
    return len(arrangement.queued_types) + len(arrangement.times) + 1


def _joined(pieces: Sequence[_Piece]) -> Columns:
    """The updates of parts for one arrangement at the same rounds, as one."""
    number = _count(pieces[0].arrangement)
    columns = [np.concatenate([piece.column(column) for piece in pieces]) for column in range(number)]
    is_wide = any(len(piece.columns) > number for piece in pieces)
    return Plain(columns, np.concatenate([piece.upper() for piece in pieces]) if is_wide else None)


def _buffers(header: Header, body: bytearray) -> Iterator[memoryview]:
    """The buffers of a part; each begins at a multiple of eight."""
    start, view = 0, memoryview(body)
    for size in header.get("sizes", ()):
        yield view[start : start + size]
        start += -(-size // 8) * 8
