"""What the tasks of a fold on Spark do: each is one worker, for one range of key codes, in one job.

A task's memory is only profited from: what its traces gain goes to files named after (step, range), and any process
can take a range over from there. Errors of ours travel to the driver as reports, where they are raised as they were.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from ddcore.errors import DdError
from ddcore.io.gains import Gained, Stored
from ddcore.io.state import open_worker, spans_of, write_gains
from ddcore.io.warehouse import reporting
from ddcore.jobs import messages
from ddcore.jobs.messages import Cuts, Message
from ddcore.plan import Plan, Position
from ddcore.session import batch_of
from ddcore.worker import Rounds, Worker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator

__all__ = ["Batches", "Report", "Task", "feed", "finish", "harvest", "pass_on", "step"]

Batches = Iterable["pa.RecordBatch"]


@dataclass(frozen=True)
class Task:
    """What every task of a fold is told. ``plan`` is pickled once.

    ``cuts`` divide the key codes among ``width`` workers.
    """

    token: str
    plan: bytes
    stored: Stored
    staging: Path
    cuts: Cuts
    width: int


@dataclass(frozen=True)
class Report:
    """What a task tells the driver: the least position it sent work for and how many updates wait, what it wrote, or
    its error.
    """

    part: int
    position: Position | None = None
    waiting: int = 0
    error: DdError | None = None
    gained: Gained | None = None


@dataclass
class _Held:
    """A worker that this process keeps between jobs, and the last step it has seen."""

    worker: Worker
    step: int


@dataclass
class _Memory:
    """What this process remembers of the fold it worked on last."""

    token: str = ""
    plan: Plan | None = None
    workers: dict[int, _Held] = field(default_factory=dict)


_memory = _Memory()


def _remembered(task: Task) -> _Memory:
    global _memory  # noqa: PLW0603  (a Python worker serves one fold at a time; older memories are dropped)
    if _memory.token != task.token:
        _memory = _Memory(task.token, pickle.loads(task.plan))
    return _memory


def _plan(task: Task) -> Plan:
    plan = _remembered(task).plan
    assert plan is not None
    return plan


def _part() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def feed(task: Task, name: str, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Input rows to messages: linear operators run here, where the rows are read."""
    try:
        plan = _plan(task)
        worker = Worker(plan)
        worker.begin()
        for batch in batches:
            frame = pl.DataFrame(batch)
            worker.feed(name, batch_of(frame, plan.inputs[name], plan.dims, name))
        yield from messages.arrow_of(_drained(task, worker))
    except DdError as error:
        yield from messages.arrow_of([_told(Report(-1, error=error))])


def pass_on(task: Task, reports: Accumulator[list[Report]], batches: Batches) -> Iterator[pa.RecordBatch]:
    """Report on messages without touching them."""
    least: list[Position] = []
    waiting = 0
    for batch in batches:
        for message in messages.messages_of([batch]):
            if message.kind == "report":
                reports.add([pickle.loads(message.body)])
                return
            least = [min([*least, messages.position_of(_plan(task), message)])]
            waiting += message.rows
        yield batch
    reports.add([Report(_part(), least[0] if least else None, waiting)])


def step(
    task: Task, number: int, position: Position, reports: Accumulator[list[Report]], batches: Batches
) -> Iterator[pa.RecordBatch]:
    """One worker's part of a superstep."""
    part = _part()
    try:
        worker = _taken(task, part, number - 1)
        for message in messages.messages_of(batches):
            messages.accept(worker, message)
        worker.journal, told = [], {name: len(batches) for name, batches in worker.outputs.items()}
        while worker.next_position == position:
            worker.step()
        _stage(task, worker, told, number, part)
        report = Report(part, worker.next_position, worker.waiting())
        yield from messages.arrow_of(_drained(task, worker, part))
        _remembered(task).workers[part] = _Held(worker, number)
        reports.add([report])
    except DdError as error:
        reports.add([Report(part, error=error)])


def finish(task: Task, step: int, batches: Batches) -> Iterator[pa.RecordBatch]:
    """The whole range in one task, to the end."""
    try:
        whole = replace(task, cuts={index: () for index in task.cuts}, width=1)
        worker = open_worker(_plan(task), whole.stored)
        worker.begin()
        _catch_up(task, worker, range(1, step + 1), range(task.width))
        for message in messages.messages_of(batches):
            if message.kind == "report":
                raise pickle.loads(message.body).error
            messages.accept(worker, message)
        worker.run()
        gained = write_gains(_plan(task), worker, task.stored, "0")
        yield from messages.arrow_of([_told(Report(0, gained=gained))])
    except DdError as error:
        yield from messages.arrow_of([_told(Report(0, error=error))])


def harvest(task: Task, step: int, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Write what one range gained in the fold."""
    part = _part()
    for _ in batches:
        pass
    try:
        worker = _taken(task, part, step)
        gained = write_gains(_plan(task), worker, task.stored, str(part))
        yield from messages.arrow_of([_told(Report(part, gained=gained))])
    except DdError as error:
        yield from messages.arrow_of([_told(Report(part, error=error))])


def _told(report: Report) -> Message:
    return Message(0, "report", 0, (), 0, pickle.dumps(report))


def _drained(task: Task, worker: Worker, part: int = 0) -> Iterator[Message]:
    for work in worker.drain():
        yield from messages.to_messages(worker.plan, work, task.cuts, task.width, part)


def _taken(task: Task, part: int, step: int) -> Worker:
    """The worker of a range as it was after a step: from this process's memory, as far as it reaches, and from staged
    files. It is taken out of the memory: a task that fails half way leaves nothing behind for the one that retries it.
    """
    held = _remembered(task).workers.pop(part, None)
    if held is None or held.step > step:
        worker = open_worker(_plan(task), task.stored, spans_of(_plan(task), task.cuts, part))
        worker.begin()
        held = _Held(worker, 0)
    _catch_up(task, held.worker, range(held.step + 1, step + 1), [part])
    return held.worker


def _stage(task: Task, worker: Worker, told: Mapping[str, int], step: int, part: int) -> None:
    """Write what a step added to traces and outputs, under a name that depends on step and range alone."""
    import pyarrow as pa

    entries = [
        Message(part, "trace", a.index, rounds, rows, body)
        for a, rounds, run in worker.journal or ()
        for body, rows in messages.bodies_of_run(a, run)
    ]
    names = list(worker.plan.outputs)
    for index, name in enumerate(names):
        for batch in worker.outputs[name][told[name] :]:
            body = messages.body_of_batch(batch, worker.plan.outputs[name])
            entries.append(Message(part, "output", index, (), len(batch), body))
    path = _staged(task, step, part)
    with reporting(path, "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
        with suppress(FileNotFoundError), pa.OSFile(str(temporary), "wb") as file:
            batches = list(messages.arrow_of(entries))
            if batches:
                with pa.ipc.new_file(file, batches[0].schema) as writer:
                    for batch in batches:
                        writer.write_batch(batch)
        temporary.replace(path)


def _catch_up(task: Task, worker: Worker, steps: Iterable[int], parts: Sequence[int]) -> None:
    """Bring a worker's traces and outputs forward from staged files.

    What a trace gained in one step is one run again, whoever staged it: whoever listens is to hear of all of it.
    """
    names = list(worker.plan.outputs)
    for step in steps:
        gains: dict[tuple[int, Rounds], list[bytes]] = {}
        for message in (each for part in parts for each in _read(_staged(task, step, part))):
            if message.kind == "trace":
                gains.setdefault((message.target, message.rounds), []).append(message.body)
            else:
                name = names[message.target]
                worker.outputs[name].append(messages.batch_of_body(message.body, worker.plan.outputs[name]))
        for (target, rounds), bodies in gains.items():
            arrangement = worker.plan.arrangements[target]
            worker.restore(arrangement, rounds, messages.run_of_bodies(arrangement, bodies))


def _read(path: Path) -> Iterator[Message]:
    """The messages of one staged file."""
    import pyarrow as pa

    with reporting(path, "read"):
        if path.stat().st_size == 0:
            return
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
    yield from messages.messages_of(table.to_batches())


def _staged(task: Task, step: int, part: int) -> Path:
    return task.staging / f"{step:06d}-{part}.arrow"
