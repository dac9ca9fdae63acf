"""What the tasks of a fold on Spark do: each is one worker, for one range of key codes, in one job.

A task's memory is only a cache: additions to its traces, and work that it keeps for a later step, go to files named
after (step, range), from which any process can continue the range. Work for others goes through the shuffle. A DdError
travels to the driver in a report, and is raised there unchanged.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddcore.base.errors import DdError
from ddcore.engine.worker import Worker
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.state.state import open_rebuild, open_worker, replay, spans_of, waiting_of, write_result
from ddcore.io.storage import scratch, store
from ddcore.io.storage.store import Place
from ddcore.io.storage.warehouse import reporting
from ddcore.jobs.engines import messages
from ddcore.jobs.engines.messages import Message
from ddcore.jobs.engines.protocol import Constants, Report, Split, Superstep, Task, Waiting
from ddcore.jobs.failures import fold_errors
from ddcore.operators.block import Position, Rounds
from ddcore.planning.plan import Plan
from ddcore.traces.budget import Budget
from ddcore.traces.frames import batch_of

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

__all__ = ["Sent", "budget", "feed", "finish", "harvest", "step"]

Sent = tuple[int, Message]  # with its destination


@dataclass
class _Kept:
    """A worker that this process keeps between jobs, the last step it took part in, and work for later positions."""

    worker: Worker
    step: int = 0
    later: dict[Position, list[Message]] = field(default_factory=dict)

    def keep(self, message: Message) -> None:
        """Keep work for later."""
        self.later.setdefault(messages.position_of(self.worker.plan, message), []).append(message)

    def drop(self, before: Position | None) -> None:
        """Forget the work before a position, or all: another process has done it."""
        self.later = {place: kept for place, kept in self.later.items() if before is not None and place >= before}

    def accept(self, before: Position | None) -> None:
        """Queue the work before a position, or all."""
        for place in [place for place in self.later if before is None or place < before]:
            for message in self.later.pop(place):
                messages.accept(self.worker.plan, self.worker.agenda, message)


@dataclass
class _Memory:
    """A fold's plan and budget, and the workers that this process kept of it."""

    plan: Plan
    budget: Budget
    workers: dict[int, _Kept] = field(default_factory=dict)


# By the token of the fold; of the last one only, since a Python process of Spark serves one at a time. It is a cache:
# Spark hands a task nothing that outlives it, and a task that finds nothing here reads what the steps wrote.
_memories: dict[str, _Memory] = {}


def _remember(task: Task) -> _Memory:
    if task.token not in _memories:
        _memories.clear()
        _memories[task.token] = _Memory(pickle.loads(task.plan), scratch.budget(task.memory, tuning=task.tuning))
    return _memories[task.token]


def _plan(task: Task) -> Plan:
    return _remember(task).plan


def budget(task: Task) -> Budget:
    """The budget of the workers of a fold in this process."""
    return _remember(task).budget


def feed(
    task: Task, reports: Accumulator[list[Report]], partition: int, splits: Iterable[Split | Waiting | Constants]
) -> Iterator[Sent]:
    """Turn input rows into messages: linear operators run here, where the rows are read. What earlier runs left waiting
    becomes messages too; the part of it that goes on waiting is staged as of step 0.
    """
    try:
        plan = _plan(task)
        worker, staged = _open(task), list[int]()
        window = task.window.condition(plan.dims)
        for split in splits:
            if isinstance(split, Waiting):
                worker = _resume(task, split.partition, staged)
                continue
            if isinstance(split, Constants):
                worker.feed_constants(split.time)
                continue
            schema = plan.inputs[split.input]
            log = ChangeLog(task.stored.warehouse.input(split.input), schema, plan.dims)
            rows = log.scan_files([split.file]).slice(split.start, split.rows).filter(window)
            read = [column for column in schema if column in plan.read[split.input]]
            frame = log.collect(rows.select(*read, *plan.dims, "diff"))
            batch = batch_of(frame, schema, plan.dims, split.input, read)
            with fold_errors():
                worker.feed(split.input, batch)
        profile = worker.meter.take(worker.state.traces)
        report = Report(partition, worker.agenda.next_position, worker.agenda.waiting(), staged, profile=profile)
        for work in worker.agenda.drain():
            for message in messages.to_messages(plan, work, task.division):
                yield message.dest, message
        reports.add([report])
    except DdError as error:
        reports.add([Report(partition, error=error)])


def _resume(task: Task, owner: int, staged: list[int]) -> Worker:
    """A worker with the work that earlier runs left to an owner, who joins ``staged`` if part of it goes on waiting."""
    plan = _plan(task)
    spans = spans_of(plan, task.division.boundaries, owner)
    if task.rebuilding is not None:
        worker = open_rebuild(plan, task.stored, task.rebuilding, budget(task))
        replay(worker, task.stored, task.rebuilding, spans)
        return worker
    if task.stored.groups.noted:
        worker = open_worker(plan, task.stored, spans, budget(task))
    else:
        left = waiting_of(plan, task.stored, spans, budget(task))
        worker = Worker(plan, None, *left, budget=budget(task), groups=task.stored.groups.copy())
    worker.begin(task.upper)
    staged += _write(task, 0, owner, list(messages.to_late_messages(worker.state, owner)))
    return worker


def _open(task: Task, partition: int | None = None, *, stored: bool = False) -> Worker:
    """A worker without work; with ``stored``, over the state of earlier runs, in one range or in all."""
    plan = _plan(task)
    if task.rebuilding is not None:
        return open_rebuild(plan, task.stored, task.rebuilding, budget(task))
    spans = None if partition is None else spans_of(plan, task.division.boundaries, partition)
    if stored:
        worker = open_worker(plan, task.stored, spans, budget(task), waiting=False)
    else:
        worker = Worker(plan, budget=budget(task), groups=task.stored.groups.all_grown())
    worker.begin(task.upper)
    return worker


def step(
    task: Task, now: Superstep, reports: Accumulator[list[Report]], partition: int, incoming: Iterable[Sent]
) -> Iterator[Sent]:
    """One worker's part of a superstep."""
    at: Position | None = None
    try:
        kept = _take(task, partition, now)
        worker, plan, mine = kept.worker, kept.worker.plan, list[Message]()
        for _, message in incoming:
            kept.keep(message)
            if now.horizon is not None and messages.position_of(plan, message) >= now.horizon:
                mine.append(message)
        kept.accept(now.horizon)
        load, moved = worker.agenda.waiting(), 0
        worker.state.journal, sizes = [], {name: len(batches) for name, batches in worker.state.outputs.items()}
        with fold_errors():
            while (at := worker.agenda.next_position) is not None and (now.horizon is None or at < now.horizon):
                worker.step()
        sent: list[Message] = []
        for work in worker.agenda.drain():
            for message in messages.to_messages(plan, work, task.division, partition):
                moved += message.rows if messages.is_divided(message, task.division) else 0
                if message.dest == partition:
                    mine.append(message)
                    kept.keep(message)
                else:
                    sent.append(message)
        staged = _write(task, now.number, partition, [*_gains(worker, sizes, partition), *mine])
        waiting = [*sent, *(message for some in kept.later.values() for message in some)]
        places = {messages.position_of(plan, message) for message in waiting}
        report = Report(
            partition, min(places, default=None), sum(message.rows for message in waiting), staged, load, moved,
            groups=worker.state.groups.copy(), profile=worker.meter.take(worker.state.traces),
        )  # fmt: skip
        yield from ((message.dest, message) for message in sent)
        kept.step = now.number
        _remember(task).workers[partition] = kept
        reports.add([report])
    except DdError as error:
        reports.add([Report(partition, at, error=error)])


def finish(task: Task, now: Superstep, partition: int, incoming: Iterable[Sent]) -> Iterator[Report]:
    """The whole range in one task, to the end."""
    try:
        kept = _Kept(_open(task, stored=True))
        _catch_up(task, kept, now, range(task.parallelism))
        _restore_late(task, kept.worker, now, range(task.parallelism))
        for _, message in incoming:
            kept.keep(message)
        kept.accept(None)
        with fold_errors():
            kept.worker.run()
        yield Report(partition, gained=write_result(_plan(task), kept.worker, task.stored, "0"))
    except DdError as error:
        yield Report(partition, error=error)


def harvest(task: Task, now: Superstep, partition: int, incoming: Iterable[Sent]) -> Iterator[Report]:
    """Write what the fold added in one range, when no work is left."""
    for _ in incoming:
        pass
    try:
        worker = _take(task, partition, now).worker
        _restore_late(task, worker, now, [partition])
        yield Report(partition, gained=write_result(_plan(task), worker, task.stored, str(partition)))
    except DdError as error:
        yield Report(partition, error=error)


def _take(task: Task, partition: int, now: Superstep) -> _Kept:
    """The worker of a range as it is before a step: from this process's memory if it is there, brought forward from
    staged files. It leaves the memory, so that the retry of a failed task does not find a half-changed worker.
    """
    kept = _remember(task).workers.pop(partition, None)
    if kept is None or kept.step >= now.number:
        kept = _Kept(_open(task, partition, stored=True))
    _catch_up(task, kept, now, [partition])
    return kept


def _gains(worker: Worker, sizes: Mapping[str, int], partition: int) -> Iterator[Message]:
    """What a step added to traces and outputs, and what it left for later runs: the worker keeps none of that."""
    for arrangement, rounds, run in worker.state.journal or ():
        yield Message(partition, "trace", arrangement.index, rounds, len(run), messages.body_of_run(arrangement, run))
    for index, (name, schema) in enumerate(worker.plan.outputs.items()):
        for batch in worker.state.outputs[name][sizes[name] :]:
            yield Message(partition, "output", index, (), len(batch), messages.body_of_batch(batch, schema))
    yield from messages.to_late_messages(worker.state, partition)


def _write(task: Task, step: int, partition: int, entries: Sequence[Message]) -> list[int]:
    """Stage entries under a name that depends on step and range alone; returns the partition if there are any."""
    if not entries:
        return []
    path = _staging_file(task, step, partition)
    with reporting(path, "write"), store.new_file(path.parent, path.stem) as new:
        messages.write_file(new.temporary, entries)
        new.finish(path)
    return [partition]


def _restore_late(task: Task, worker: Worker, now: Superstep, partitions: Sequence[int]) -> None:
    """Give a worker all that the steps left for later runs in some ranges. With one dimension there is none."""
    if task.upper is not None:
        files = (
            _staging_file(task, step, partition)
            for partition in partitions
            for step in now.staged.get(partition, ())
            if step < now.number
        )
        entries = (each for file in files for each in _read(file))
        messages.accept_late(worker.state, [entry for entry in entries if entry.kind in (messages.HELD, messages.LATE)])


def _catch_up(task: Task, kept: _Kept, now: Superstep, partitions: Sequence[int]) -> None:
    """Bring a worker forward from staged files to the time before a step.

    Additions to a trace in one step and round become one run, from all ranges: listeners read only the newest run.
    """
    worker, names = kept.worker, list(kept.worker.plan.outputs)
    for step in range(kept.step + 1, now.number):
        gains: dict[tuple[Rounds, int], list[bytes]] = {}
        sources = [partition for partition in partitions if step in now.staged.get(partition, ())]
        for message in (each for partition in sources for each in _read(_staging_file(task, step, partition))):
            if message.kind == "trace":
                gains.setdefault((message.rounds, message.target), []).append(message.body)
            elif message.kind == "output":
                name = names[message.target]
                worker.state.outputs[name].append(messages.batch_of_body(message.body, worker.plan.outputs[name]))
            elif message.kind in messages.WAITING:
                kept.keep(message)
        for (rounds, target), bodies in sorted(gains.items()):  # of one trace in the order of its positions
            arrangement = worker.plan.arrangements[target]
            worker.state.restore(arrangement, rounds, messages.run_of_bodies(arrangement, bodies))
    kept.drop(now.position)


def _read(path: Place) -> Sequence[Message]:
    """The messages of one staged file."""
    with reporting(path, "read"):
        return messages.read_file(path)


def _staging_file(task: Task, step: int, partition: int) -> Place:
    return task.staging / f"{step:06d}-{partition}.arrow"
