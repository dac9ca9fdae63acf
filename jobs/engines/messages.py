"""Messages between workers: work that waits for a block, encoded and decoded.

Words are valid in one process only, so a message carries values: Arrow IPC, one body per block and round. Bodies
are few and large; Spark moves them without looking inside.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import polars as pl
import pyarrow as pa

from ddcore import encoding
from ddcore.batch import Batch, concatenate
from ddcore.consolidation import arrange
from ddcore.encoding import key_codes
from ddcore.io.store import Place, source_of
from ddcore.jobs.engines.partitioning import Boundaries
from ddcore.libraries import numpy as np
from ddcore.operators.base import Rounds
from ddcore.plan import Arrangement, Plan, Position
from ddcore.queues import whole
from ddcore.schema import Schema
from ddcore.sorted_batch import SortedBatch
from ddcore.worker import Work, Worker, joined

__all__ = [
    "HELD",
    "LATE",
    "Message",
    "accept",
    "accept_late",
    "batch_of_body",
    "bodies_of_run",
    "body_of_batch",
    "position_of",
    "read_file",
    "run_of_bodies",
    "to_late_messages",
    "to_messages",
    "write_file",
]

ROWS, PENDING, NOTIFICATION = "rows", "pending", "notification"
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


def to_messages(worker: Worker, work: Work, boundaries: Boundaries, partition: int = 0) -> Iterator[Message]:
    """The work at one position as messages to the owners of its keys. A notification goes to worker ``partition``
    itself, whose trace has new updates.

    Updates are consolidated before they are sent: moving one costs more than sorting it.
    """
    for index, batches in work.rows.items():
        arrangement = worker.plan.arrangements[index]
        run = worker.keyed(arrangement, whole(arrangement, batches))
        for dest, mine in _split(run, boundaries[index]):
            for portion in _portions(arrangement.batch_of(mine)):
                body = body_of_batch(portion, arrangement.collection)
                yield Message(dest, ROWS, index, work.rounds, len(portion), body)
    for pending in work.pending:
        port = worker.plan.arrangements[work.block.ports[0]]
        for dest, mine in _split(pending, boundaries[port.index]):
            for body, keys in bodies_of_run(port, mine, keys_only=True):
                yield Message(dest, PENDING, work.block.index, work.rounds, keys, body)
    if work.notified:
        yield Message(partition, NOTIFICATION, work.block.index, work.rounds, 0, b"")


def accept(worker: Worker, message: Message) -> None:
    """Queue a message's work."""
    plan = worker.plan
    if message.kind == ROWS:
        arrangement = plan.arrangements[message.target]
        worker.accept(arrangement, message.rounds, batch_of_body(message.body, arrangement.collection))
        return
    block, pending = plan.blocks[message.target], None
    if message.kind == PENDING:
        pending = run_of_bodies(plan.arrangements[block.ports[0]], [message.body], keys_only=True)
    worker.accept_pending(block, message.rounds, pending)


def to_late_messages(worker: Worker, partition: int) -> Iterator[Message]:
    """Held updates and pending times beyond the upper, which the worker would store for later runs, and has no more."""
    held, worker.held = worker.held, {}
    for index, batch in held.items():
        for portion in _portions(batch):
            body = body_of_batch(portion, worker.plan.arrangements[index].collection)
            yield Message(partition, HELD, index, (), len(portion), body)
    late, worker.pending = worker.pending, {}
    for index, pending in late.items():
        port = worker.plan.arrangements[worker.plan.blocks[index].ports[0]]
        for body, keys in bodies_of_run(port, pending, keys_only=True):
            yield Message(partition, LATE, index, (), keys, body)


def accept_late(worker: Worker, late: Sequence[Message]) -> None:
    """Add what :func:`to_late_messages` sent, from any number of workers and steps."""
    plan = worker.plan
    held: dict[int, list[Batch]] = {index: [batch] for index, batch in worker.held.items()}
    pending: dict[int, list[SortedBatch]] = {index: [batch] for index, batch in worker.pending.items()}
    for message in late:
        if message.kind == HELD:
            batch = batch_of_body(message.body, plan.arrangements[message.target].collection)
            held.setdefault(message.target, []).append(batch)
        else:
            port = plan.arrangements[plan.blocks[message.target].ports[0]]
            pending.setdefault(message.target, []).append(run_of_bodies(port, [message.body], keys_only=True))
    worker.held = {index: concatenate(batches) for index, batches in held.items()}
    worker.pending = {index: joined(batches) for index, batches in pending.items()}


def position_of(plan: Plan, message: Message) -> Position:
    """The position of a message in the order of work."""
    block = plan.arrangements[message.target].block if message.kind == ROWS else message.target
    return plan.blocks[block].position(message.rounds)


def bodies_of_run(
    arrangement: Arrangement, run: SortedBatch, *, keys_only: bool = False
) -> Iterator[tuple[bytes, int]]:
    """A run's rows as values (key and value columns, or keys alone), times and diffs: bodies, and rows in each."""
    schema = _schema(arrangement, keys_only)
    words = ([run.codes] if arrangement.direct else []) + list(run.words)
    for portion in _portions(Batch(words, list(run.times), run.diffs)):
        yield body_of_batch(portion, schema), len(portion)


def run_of_bodies(arrangement: Arrangement, bodies: Sequence[bytes], *, keys_only: bool = False) -> SortedBatch:
    """One run from :func:`bodies_of_run`, sorted again: the order of strings' words differs between processes."""
    schema = _schema(arrangement, keys_only)
    batch = concatenate([batch_of_body(body, schema) for body in bodies])
    keys = batch.words[: len(arrangement.key)]
    codes = key_codes(keys, arrangement.key_types, len(batch))
    return arrange(codes, batch.words[1:] if arrangement.direct else batch.words, batch.times, batch.diffs)


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


def _schema(arrangement: Arrangement, keys_only: bool) -> Schema:
    schema = arrangement.schema
    return {name: schema[name] for name in arrangement.key} if keys_only else schema


def _split(run: SortedBatch, boundaries: Sequence[int]) -> Iterator[tuple[int, SortedBatch]]:
    """The run cut into the ranges of the workers; workers without rows are left out."""
    bounds = [0, *np.searchsorted(run.codes, np.array(boundaries, dtype=np.int64)).tolist(), len(run)]
    for dest, (a, b) in enumerate(pairwise(bounds)):
        if a < b:
            high = None if run.high is None else run.high[a:b]
            yield dest, SortedBatch(run.codes[a:b], run.words[:, a:b], run.times[:, a:b], run.diffs[a:b], high)


def _portions(batch: Batch) -> Iterator[Batch]:
    """The batch in portions that each fit into a message: neither Arrow nor the JVM moves a value of 2 GiB."""
    for start in range(0, len(batch), MESSAGE_ROWS):
        yield batch.take(slice(start, start + MESSAGE_ROWS))


def body_of_batch(batch: Batch, schema: Schema) -> bytes:
    """A batch as values, times and diffs."""
    frame = encoding.decode_frame(batch.words, schema)
    times = [pl.Series(f"_time_{i}", column) for i, column in enumerate(batch.times)]
    diffs = [pl.Series("_diff", batch.diffs)]
    if batch.high is not None:
        diffs.append(pl.Series("_high", batch.high))
    into = io.BytesIO()
    # Not hstack: a frame without columns, as for a group without key columns, has no height.
    pl.DataFrame([*frame.get_columns(), *times, *diffs]).write_ipc(into, compression="lz4")
    return into.getvalue()


def batch_of_body(body: bytes, schema: Schema) -> Batch:
    """The batch that :func:`body_of_batch` wrote."""
    frame = pl.read_ipc(io.BytesIO(body)).rechunk()
    times = [np.ascontiguousarray(frame[name].to_numpy()) for name in frame.columns if name.startswith("_time_")]
    high = np.ascontiguousarray(frame["_high"].to_numpy()) if "_high" in frame.columns else None
    return Batch(encoding.encode_frame(frame, schema), times, np.ascontiguousarray(frame["_diff"].to_numpy()), high)
