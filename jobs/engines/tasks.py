"""What the tasks of a fold on Spark do: each is one worker, for one range of key codes, in one job.

A task's memory is only a cache: additions to its traces go to files named after (step, range), from which any process
can continue the range. A DdError travels to the driver in a report, and is raised there unchanged.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddcore.errors import DdError
from ddcore.frames import batch_of
from ddcore.io import store
from ddcore.io.changelog import ChangeLog
from ddcore.io.state import open_rebuild, open_worker, replay, spans_of, waiting_of, write_gains
from ddcore.io.store import Place
from ddcore.io.warehouse import reporting
from ddcore.jobs.engines import messages
from ddcore.jobs.engines.messages import Message
from ddcore.jobs.engines.protocol import Report, Split, Superstep, Task, Waiting
from ddcore.jobs.failures import fold_errors
from ddcore.operators.base import Rounds
from ddcore.plan import Plan, Position
from ddcore.worker import Worker

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

__all__ = ["Sent", "feed", "finish", "harvest", "step"]

Sent = tuple[int, Message]  # with its destination
# Messages for a later position with this many rows are forwarded undecoded; smaller ones are merged to be fewer.
PASSED_ON = 10_000


@dataclass
class _Kept:
    """A worker that this process keeps between jobs, and the last step it took part in."""

    worker: Worker
    step: int


@dataclass
class _Memory:
    """The workers of the fold that this process worked on last."""

    token: str = ""
    plan: Plan | None = None
    workers: dict[int, _Kept] = field(default_factory=dict)


_memory = _Memory()


def _remember(task: Task) -> _Memory:
    global _memory  # noqa: PLW0603  (a Python worker serves one fold at a time; older memories are dropped)
    if _memory.token != task.token:
        _memory = _Memory(task.token, pickle.loads(task.plan))
    return _memory


def _plan(task: Task) -> Plan:
    plan = _remember(task).plan
    assert plan is not None
    return plan


def feed(
    task: Task, reports: Accumulator[list[Report]], partition: int, splits: Iterable[Split | Waiting]
) -> Iterator[Sent]:
    """Turn input rows into messages: linear operators run here, where the rows are read. What earlier runs left waiting
    becomes messages too; the part of it that goes on waiting is staged as of step 0.
    """
    try:
        plan = _plan(task)
        worker = _open(task)
        window = task.window.condition(plan.dims)
        for split in splits:
            if isinstance(split, Waiting):
                worker = _resume(task, split.partition)
                continue
            schema = plan.inputs[split.input]
            log = ChangeLog(task.stored.warehouse.input(split.input), schema, plan.dims)
            rows = log.scan_files([split.file]).slice(split.start, split.rows)
            batch = batch_of(log.collect(rows.filter(window)), schema, plan.dims, split.input)
            with fold_errors():
                worker.feed(split.input, batch)
        report = Report(partition, worker.next_position, worker.waiting())
        yield from _drain(task, worker)
        reports.add([report])
    except DdError as error:
        reports.add([Report(partition, error=error)])


def _resume(task: Task, owner: int) -> Worker:
    """A worker with the work that earlier runs left in the range of ``owner``."""
    plan = _plan(task)
    spans = spans_of(plan, task.boundaries, owner)
    if task.rebuilding is not None:
        worker = open_rebuild(plan, task.stored, task.rebuilding)
        replay(worker, task.stored, task.rebuilding, spans)
        return worker
    if task.stored.groups.noted:
        worker = open_worker(plan, task.stored, spans)
    else:
        worker = Worker(plan, None, *waiting_of(plan, task.stored, spans), groups=task.stored.groups.copy())
    worker.begin(task.upper)
    _write(_staging_file(task, 0, owner), list(messages.to_late_messages(worker, owner)))
    return worker


def _open(task: Task, partition: int | None = None, *, stored: bool = False) -> Worker:
    """A worker without work; with ``stored``, over the state of earlier runs, in one range or in all."""
    plan = _plan(task)
    if task.rebuilding is not None:
        return open_rebuild(plan, task.stored, task.rebuilding)
    spans = None if partition is None else spans_of(plan, task.boundaries, partition)
    if stored:
        worker = open_worker(plan, task.stored, spans, waiting=False)
    else:
        worker = Worker(plan, groups=task.stored.groups.all_grown())
    worker.begin(task.upper)
    return worker


def step(
    task: Task, now: Superstep, reports: Accumulator[list[Report]], partition: int, incoming: Iterable[Sent]
) -> Iterator[Sent]:
    """One worker's part of a superstep."""
    try:
        worker, later = _take(task, partition, now.number - 1), 0
        places: list[Position] = []  # of the messages sent
        for dest, message in incoming:
            place = messages.position_of(worker.plan, message)
            if place > now.position and message.rows >= PASSED_ON:
                later, places = later + message.rows, [min([*places, place])]
                yield dest, message
            else:
                messages.accept(worker, message)
        worker.journal, sizes = [], {name: len(batches) for name, batches in worker.outputs.items()}
        with fold_errors():
            while worker.next_position == now.position:
                worker.step()
        _stage(task, worker, sizes, now.number, partition)
        places += [worker.next_position] if worker.next_position is not None else []
        report = Report(partition, min(places, default=None), worker.waiting() + later, groups=worker.groups.copy())
        yield from _drain(task, worker, partition)
        _remember(task).workers[partition] = _Kept(worker, now.number)
        reports.add([report])
    except DdError as error:
        reports.add([Report(partition, error=error)])


def finish(task: Task, step: int, partition: int, incoming: Iterable[Sent]) -> Iterator[Report]:
    """The whole range in one task, to the end."""
    try:
        worker = _open(task, stored=True)
        _catch_up(task, worker, range(1, step + 1), range(task.parallelism))
        _restore_late(task, worker, step, range(task.parallelism))
        for _, message in incoming:
            messages.accept(worker, message)
        with fold_errors():
            worker.run()
        yield Report(partition, gained=write_gains(_plan(task), worker, task.stored, "0"))
    except DdError as error:
        yield Report(partition, error=error)


def harvest(task: Task, step: int, partition: int, incoming: Iterable[Sent]) -> Iterator[Report]:
    """Write what the fold added in one range, when no work is left."""
    for _ in incoming:
        pass
    try:
        worker = _take(task, partition, step)
        _restore_late(task, worker, step, [partition])
        yield Report(partition, gained=write_gains(_plan(task), worker, task.stored, str(partition)))
    except DdError as error:
        yield Report(partition, error=error)


def _drain(task: Task, worker: Worker, partition: int = 0) -> Iterator[Sent]:
    for work in worker.drain():
        for message in messages.to_messages(worker, work, task.boundaries, partition):
            yield message.dest, message


def _take(task: Task, partition: int, step: int) -> Worker:
    """The worker of a range as it was after a step: from this process's memory if it is there, brought forward from
    staged files. It leaves the memory, so that the retry of a failed task does not find a half-changed worker.
    """
    kept = _remember(task).workers.pop(partition, None)
    if kept is None or kept.step > step:
        kept = _Kept(_open(task, partition, stored=True), 0)
    _catch_up(task, kept.worker, range(kept.step + 1, step + 1), [partition])
    return kept.worker


def _stage(task: Task, worker: Worker, sizes: Mapping[str, int], step: int, partition: int) -> None:
    """Write what a step added to traces and outputs, and what it left for later runs, under a name that depends on step
    and range alone. The worker keeps nothing for later runs in memory.
    """
    entries = [
        Message(partition, "trace", a.index, rounds, rows, body)
        for a, rounds, run in worker.journal or ()
        for body, rows in messages.bodies_of_run(a, run)
    ]
    names = list(worker.plan.outputs)
    for index, name in enumerate(names):
        for batch in worker.outputs[name][sizes[name] :]:
            body = messages.body_of_batch(batch, worker.plan.outputs[name])
            entries.append(Message(partition, "output", index, (), len(batch), body))
    _write(_staging_file(task, step, partition), [*entries, *messages.to_late_messages(worker, partition)])


def _write(path: Place, entries: Sequence[Message]) -> None:
    with reporting(path, "write"), store.new_file(path.parent, path.stem) as new:
        messages.write_file(new.temporary, entries)
        new.finish(path)


def _restore_late(task: Task, worker: Worker, step: int, partitions: Sequence[int]) -> None:
    """Give a worker all that the steps left for later runs in some ranges. With one dimension there is none."""
    if task.upper is not None:
        files = (
            _staging_file(task, at, partition)
            for at in range(0 if task.resumes else 1, step + 1)
            for partition in partitions
        )
        entries = (each for file in files for each in _read(file))
        messages.accept_late(worker, [each for each in entries if each.kind in (messages.HELD, messages.LATE)])


def _catch_up(task: Task, worker: Worker, steps: Iterable[int], partitions: Sequence[int]) -> None:
    """Bring a worker's traces and outputs forward from staged files.

    Additions to a trace in one step become one run, from all ranges: listeners read only the newest run.
    """
    names = list(worker.plan.outputs)
    for step in steps:
        gains: dict[tuple[int, Rounds], list[bytes]] = {}
        for message in (each for partition in partitions for each in _read(_staging_file(task, step, partition))):
            if message.kind == "trace":
                gains.setdefault((message.target, message.rounds), []).append(message.body)
            elif message.kind == "output":
                name = names[message.target]
                worker.outputs[name].append(messages.batch_of_body(message.body, worker.plan.outputs[name]))
        for (target, rounds), bodies in gains.items():
            arrangement = worker.plan.arrangements[target]
            worker.restore(arrangement, rounds, messages.run_of_bodies(arrangement, bodies))


def _read(path: Place) -> Sequence[Message]:
    """The messages of one staged file."""
    with reporting(path, "read"):
        return messages.read_file(path)


def _staging_file(task: Task, step: int, partition: int) -> Place:
    return task.staging / f"{step:06d}-{partition}.arrow"
