"""Messages between workers: work that waits for a block, encoded and decoded.

A message has one body (:mod:`~ddcore.jobs.engines.bodies`). Bodies are few and large; Spark moves them without looking
inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, Type
from ddcore.data.encoding import key_codes
from ddcore.engine.agenda import Agenda, Work
from ddcore.engine.pending import joined
from ddcore.engine.queues import Queue, sorted_by_key
from ddcore.engine.state import FoldState
from ddcore.io.storage.store import Place, source_of
from ddcore.jobs.engines.bodies import columns_of, packed
from ddcore.jobs.engines.partitioning import Division
from ddcore.operators.arrangement import Arrangement
from ddcore.operators.block import Position, Rounds
from ddcore.planning.plan import Plan
from ddcore.traces.batch import Batch, concatenate
from ddcore.traces.columns import Columns, Compressed, Plain
from ddcore.traces.consolidation import arrange
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch

__all__ = [
    "HELD",
    "LATE",
    "WAITING",
    "Message",
    "accept",
    "accept_late",
    "batch_of_body",
    "body_of_batch",
    "body_of_run",
    "is_divided",
    "position_of",
    "read_file",
    "run_of_bodies",
    "to_late_messages",
    "to_messages",
    "write_file",
]

ROWS, PENDING, NOTIFICATION = "rows", "pending", "notification"
WAITING = (ROWS, PENDING, NOTIFICATION)
HELD, LATE = "held", "late"
MESSAGE_ROWS = 1 << 17  # at most: a shuffle buffers some tens of messages, which must stay below 2 GiB


@dataclass(frozen=True, slots=True)
class Message:
    """Updates for an arrangement (``rows``), pending times of a block (``pending``), or the fact that an arrangement
    gained (``notification``).

    Staged files also have updates that are held back before an arrangement (``held``), and pending times beyond the
    run's upper (``late``). ``target`` is the arrangement's or the block's index, ``dest`` the worker's number, ``rows``
    the number of rows in the body.
    """

    dest: int
    kind: str
    target: int
    rounds: Rounds
    rows: int
    body: bytes


def to_messages(plan: Plan, work: Work, division: Division, partition: int | None = None) -> Iterator[Message]:
    """The work at one position as messages to the owners of its keys.

    ``partition`` is the worker's own number; None: it is no owner, but reads what others own. Then all updates are
    looked at; otherwise those that only come from blocks with the same owner are not.
    """
    for index, queue in work.queues.items():
        if partition is not None and index in division.home:
            for piece in queue.pieces():
                body = _body_of_rows(queue.arrangement, piece)
                yield Message(partition, ROWS, index, work.rounds, len(piece), body)
        else:
            yield from _divided(queue, work.rounds, division)
    for pending in work.pending:
        port = plan.arrangements[work.block.ports[0]]
        cuts = [(partition, pending)] if partition is not None else _split(pending, division.boundaries[port.index])
        for dest, mine in cuts:
            for portion in _portions(mine):
                body = body_of_run(port, portion, keys_only=True)
                yield Message(dest, PENDING, work.block.index, work.rounds, len(portion), body)
    if work.notified:
        assert partition is not None, "only an owner's trace has new updates"
        yield Message(partition, NOTIFICATION, work.block.index, work.rounds, 0, b"")


def _divided(queue: Queue, rounds: Rounds, division: Division) -> Iterator[Message]:
    """Updates for the owners of their keys.

    They are consolidated before they are sent: moving one costs more than sorting it.
    """
    arrangement = queue.arrangement
    by_key = replace(arrangement, transient=False, key=division.keys.get(arrangement.index, arrangement.key))
    run = sorted_by_key(by_key, queue.batch(), queue.budget)
    for dest, mine in _split(run, division.boundaries[arrangement.index]):
        for portion in _portions(mine):
            body = _body_of_rows(arrangement, arrangement.queued(by_key.batch_of(portion)))
            yield Message(dest, ROWS, arrangement.index, rounds, len(portion), body)


def _body_of_rows(arrangement: Arrangement, queued: Columns) -> bytes:
    columns = queued if queued.high is None else Plain([*queued, queued.high])
    return packed(columns, arrangement.queued_types)


def accept(plan: Plan, agenda: Agenda, message: Message) -> None:
    """Queue a message's work."""
    if message.kind == ROWS:
        arrangement = plan.arrangements[message.target]
        agenda.queue(arrangement, message.rounds, _queued(arrangement, message.body))
        return
    block = plan.blocks[message.target]
    work = agenda.at(block, message.rounds)
    if message.kind == PENDING:
        work.pending.append(run_of_bodies(plan.arrangements[block.ports[0]], [message.body], keys_only=True))
    else:
        work.notified = True


def _queued(arrangement: Arrangement, body: bytes) -> Columns:
    types = arrangement.queued_types
    columns, width = columns_of(body, types), len(types) + len(arrangement.times) + 1
    queued = Compressed(columns[:width])
    return queued if len(columns) == width else Plain([*queued], columns[-1].decompress())


def to_late_messages(state: FoldState, partition: int) -> Iterator[Message]:
    """Held updates and pending times beyond the upper, which a worker would store for later runs, and has no more."""
    held, state.held = state.held, {}
    for index, batch in held.items():
        body = body_of_batch(batch, state.plan.arrangements[index].collection)
        yield Message(partition, HELD, index, (), len(batch), body)
    late, state.pending = state.pending, {}
    for index, pending in late.items():
        port = state.plan.arrangements[state.plan.blocks[index].ports[0]]
        yield Message(partition, LATE, index, (), len(pending), body_of_run(port, pending, keys_only=True))


def accept_late(state: FoldState, late: Sequence[Message]) -> None:
    """Add what :func:`to_late_messages` sent, from any number of workers and steps."""
    plan = state.plan
    held: dict[int, list[Batch]] = {index: [batch] for index, batch in state.held.items()}
    pending: dict[int, list[SortedBatch]] = {index: [batch] for index, batch in state.pending.items()}
    for message in late:
        if message.kind == HELD:
            batch = batch_of_body(message.body, plan.arrangements[message.target].collection)
            held.setdefault(message.target, []).append(batch)
        else:
            port = plan.arrangements[plan.blocks[message.target].ports[0]]
            pending.setdefault(message.target, []).append(run_of_bodies(port, [message.body], keys_only=True))
    state.held = {index: concatenate(batches) for index, batches in held.items()}
    state.pending = {index: joined(batches) for index, batches in pending.items()}


def is_divided(message: Message, division: Division) -> bool:
    """Whether its updates come from a place where any worker may be their owner."""
    return message.kind == ROWS and message.target not in division.home


def position_of(plan: Plan, message: Message) -> Position:
    """The position of a message in the order of work."""
    block = plan.arrangements[message.target].block if message.kind == ROWS else message.target
    return plan.blocks[block].position(message.rounds)


def body_of_run(arrangement: Arrangement, run: SortedBatch, *, keys_only: bool = False) -> bytes:
    """The rows of a run: key and value columns, or keys alone; times and diffs."""
    columns = [*run.columns()]
    return packed(Plain(columns if arrangement.direct else columns[1:]), _types(arrangement, keys_only))


def run_of_bodies(arrangement: Arrangement, bodies: Sequence[bytes], *, keys_only: bool = False) -> SortedBatch:
    """One run from bodies of runs whose keys ascend.

    It is sorted again only if it has pooled columns: the order of their words differs between processes.
    """
    types = _types(arrangement, keys_only)
    pieces = [[column.decompress() for column in columns_of(body, types)] for body in bodies]
    *columns, diffs = pieces[0] if len(pieces) == 1 else [np.concatenate(each) for each in zip(*pieces, strict=True)]
    codes = key_codes(columns[: len(arrangement.key)], arrangement.key_types, len(diffs))
    words, times = columns[int(arrangement.direct) : len(types)], columns[len(types) :]
    if any(kind.is_pooled for kind in types):
        return arrange(codes, words, times, diffs)
    return ColumnBatch(codes, _stacked(words, len(diffs)), _stacked(times, len(diffs)), diffs)


def _stacked(columns: Sequence[np.ndarray], rows: int) -> np.ndarray:
    return np.stack(columns) if columns else np.empty((0, rows), dtype=np.int64)


def body_of_batch(batch: Batch, schema: Schema) -> bytes:
    """A batch of rows with these columns: words, times, diffs, and the upper words of these."""
    return packed(Plain([*batch.words, *batch.times, batch.diffs, batch.upper()]), list(schema.values()))


def batch_of_body(body: bytes, schema: Schema) -> Batch:
    """The batch of a body that :func:`body_of_batch` made."""
    *columns, diffs, high = (column.decompress() for column in columns_of(body, list(schema.values())))
    is_wide = bool((high != diffs >> 63).any())
    return Batch(columns[: len(schema)], columns[len(schema) :], diffs, high if is_wide else None)


_FILE = pa.schema(
    {
        "dest": pa.int64(),
        "kind": pa.string(),
        "target": pa.int64(),
        "rounds": pa.list_(pa.int64()),
        "rows": pa.int64(),
        "body": pa.large_binary(),
    }
)


def write_file(path: Path, messages: Sequence[Message]) -> None:
    """Write messages as one Arrow file, not as pickles: reading it never runs code."""
    columns = {name: [getattr(message, name) for message in messages] for name in _FILE.names}
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _FILE) as file:
        file.write_table(pa.table(columns, schema=_FILE))


def read_file(path: Place) -> list[Message]:
    """The messages of a file that :func:`write_file` wrote."""
    with source_of(path) as source:
        table = pa.ipc.open_file(source).read_all()
        columns = [table.column(name).to_pylist() for name in _FILE.names]
    return [
        Message(dest, kind, target, tuple(rounds), rows, body)
        for dest, kind, target, rounds, rows, body in zip(*columns, strict=True)
    ]


def _types(arrangement: Arrangement, keys_only: bool) -> list[Type]:
    return arrangement.key_types if keys_only else list(arrangement.schema.values())


def _split(run: SortedBatch, boundaries: Sequence[int]) -> Iterator[tuple[int, SortedBatch]]:
    """The run cut into the ranges of the workers; workers without rows are left out."""
    bounds = [0, *np.searchsorted(run.decompress().codes, np.array(boundaries, dtype=np.int64)).tolist(), len(run)]
    for dest, (a, b) in enumerate(pairwise(bounds)):
        if a < b:
            yield dest, run.part(a, b)


def _portions(run: SortedBatch) -> Iterator[SortedBatch]:
    """The run in portions that each fit into a message: neither Arrow nor the JVM moves a value of 2 GiB."""
    for start in range(0, len(run), MESSAGE_ROWS):
        yield run.part(start, min(start + MESSAGE_ROWS, len(run)))
