"""Work on its way between workers: what waits for a block, as messages and back.

Words mean something in one process only, so a message carries values: Arrow IPC, one body per block and round. Bodies
are few and large; Spark moves them without looking inside.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ddcore import encoding
from ddcore.batch import Batch, concatenate
from ddcore.encoding import key_codes
from ddcore.jobs.cuts import Cuts
from ddcore.plan import Arrangement, Block, Plan, Position
from ddcore.schema import Schema
from ddcore.trace import Run, arrange
from ddcore.worker import Rounds, Work, Worker

__all__ = [
    "Message",
    "accept",
    "batch_of_body",
    "bodies_of_run",
    "body_of_batch",
    "position_of",
    "run_of_bodies",
    "to_messages",
]

ROWS, WAKES, NEWS = "rows", "wakes", "news"
MESSAGE_ROWS = 1 << 17  # at most: a shuffle gathers some tens of messages before it writes, below 2 GiB


@dataclass(frozen=True, slots=True)
class Message:
    """Updates for an arrangement (``rows``), wake-ups for a block (``wakes``), or word that an arrangement gained
    (``news``).

    ``target`` is the arrangement's or the block's index, ``dest`` the worker's number, ``rows`` how many there are in
    the body.
    """

    dest: int
    kind: str
    target: int
    rounds: Rounds
    rows: int
    body: bytes


def to_messages(plan: Plan, work: Work, cuts: Cuts, width: int, part: int = 0) -> Iterator[Message]:
    """What waits at one position, addressed to the owners of its keys; news is for worker ``part`` itself, whose trace
    it was that gained.
    """
    for index, batches in work.rows.items():
        arrangement = plan.arrangements[index]
        for dest, rows in _split(arrangement, concatenate(batches), cuts, width):
            for portion in _portions(rows):
                body = body_of_batch(portion, arrangement.node.schema)
                yield Message(dest, ROWS, index, work.rounds, len(portion), body)
    for wakes in work.wakes:
        port = work.block.ports[0]
        owners = np.searchsorted(np.array(cuts[port.index], dtype=np.int64), wakes.codes, side="right")
        for dest in np.unique(owners):
            mine = np.flatnonzero(owners == dest)
            run = Run(wakes.codes[mine], wakes.words[:, mine], wakes.times[:, mine], wakes.diffs[mine])
            for body, keys in bodies_of_run(port, run, keys_only=True):
                yield Message(int(dest), WAKES, work.block.index, work.rounds, keys, body)
    if work.news:
        yield Message(part, NEWS, work.block.index, work.rounds, 0, b"")


def accept(worker: Worker, message: Message) -> None:
    """Queue a message's work."""
    plan = worker.plan
    if message.kind == ROWS:
        arrangement = plan.arrangements[message.target]
        worker.accept(arrangement, message.rounds, batch_of_body(message.body, arrangement.node.schema))
        return
    block: Block = plan.blocks[message.target]
    wakes = run_of_bodies(block.ports[0], [message.body], keys_only=True) if message.kind == WAKES else None
    worker.accept_wakes(block, message.rounds, wakes)


def position_of(plan: Plan, message: Message) -> Position:
    """Where in the order of work a message belongs."""
    block = plan.arrangements[message.target].block if message.kind == ROWS else plan.blocks[message.target]
    return block.position(message.rounds)


def bodies_of_run(arrangement: Arrangement, run: Run, *, keys_only: bool = False) -> Iterator[tuple[bytes, int]]:
    """A run's rows as values (key and value columns, or keys alone), times and diffs; with each body, its rows."""
    schema = _stored(arrangement, keys_only)
    words = ([run.codes] if arrangement.direct else []) + list(run.words)
    for portion in _portions(Batch(words, list(run.times), run.diffs)):
        yield body_of_batch(portion, schema), len(portion)


def run_of_bodies(arrangement: Arrangement, bodies: Sequence[bytes], *, keys_only: bool = False) -> Run:
    """One run of what :func:`bodies_of_run` wrote. Sorted anew: the order of strings' words is this process's own."""
    schema = _stored(arrangement, keys_only)
    batch = concatenate([batch_of_body(body, schema) for body in bodies])
    keys = batch.words[: len(arrangement.key)]
    codes = key_codes(keys, arrangement.key_types, len(batch))
    return arrange(codes, batch.words[1:] if arrangement.direct else batch.words, batch.times, batch.diffs)


def _stored(arrangement: Arrangement, keys_only: bool) -> Schema:
    schema = arrangement.schema
    return {name: schema[name] for name in arrangement.key} if keys_only else schema


def _split(arrangement: Arrangement, batch: Batch, cuts: Cuts, width: int) -> Iterator[tuple[int, Batch]]:
    if width == 1:
        yield 0, batch
        return
    columns = dict(zip(arrangement.node.schema, batch.words, strict=True))
    codes = key_codes([columns[name] for name in arrangement.key], arrangement.key_types, len(batch))
    owners = np.searchsorted(np.array(cuts[arrangement.index], dtype=np.int64), codes, side="right")
    for dest in np.unique(owners):
        yield int(dest), batch.take(np.flatnonzero(owners == dest))


def _portions(batch: Batch) -> Iterator[Batch]:
    """The batch in portions of which each fits into a message: neither Arrow nor the JVM moves a value of 2 GiB."""
    for start in range(0, len(batch), MESSAGE_ROWS):
        yield (
            batch if len(batch) <= MESSAGE_ROWS else batch.take(np.arange(start, min(start + MESSAGE_ROWS, len(batch))))
        )


def body_of_batch(batch: Batch, schema: Schema) -> bytes:
    """A batch as values, times and diffs."""
    frame = encoding.decode_frame(batch.words, schema)
    times = [pl.Series(f"_time_{i}", column) for i, column in enumerate(batch.times)]
    into = io.BytesIO()
    frame.hstack([*times, pl.Series("_diff", batch.diffs)]).write_ipc(into, compression="lz4")
    return into.getvalue()


def batch_of_body(body: bytes, schema: Schema) -> Batch:
    """The batch that :func:`body_of_batch` wrote."""
    frame = pl.read_ipc(io.BytesIO(body)).rechunk()
    times = [np.ascontiguousarray(frame[name].to_numpy()) for name in frame.columns if name.startswith("_time_")]
    return Batch(encoding.encode_frame(frame, schema), times, np.ascontiguousarray(frame["_diff"].to_numpy()))
