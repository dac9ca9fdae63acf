"""The fold on Spark: the same worker, once per range of key codes, with Spark's shuffle between them.

A superstep is one Spark job: each task takes the messages of its range, does the work at one position and sends what
follows from it. The driver picks the next position from what the tasks report, never by a job of its own. Where
little is left to do, or was from the start, one task takes over the whole range and finishes without further shuffles.

A task's memory is only profited from: what its traces gain goes to files named after (step, range), and any process
can take a range over from there.
"""

from __future__ import annotations

import functools
import pickle
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcore.errors import DdError
from ddcore.io.changelog import ChangeLog
from ddcore.io.state import Gained, Stored, open_worker, spans_of, write_gains
from ddcore.io.tables import LiveFile
from ddcore.io.warehouse import reporting
from ddcore.jobs import messages
from ddcore.jobs.messages import COLUMNS, Cuts, Message
from ddcore.jobs.replay import Fold
from ddcore.plan import Plan, Position
from ddcore.session import batch_of
from ddcore.worker import Worker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["fold"]

WIDE_FROM = 500_000  # updates waiting below which one task is faster than several with a shuffle in between
_SAMPLE = 100_000

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


def fold(fold: Fold, listener: Any = None) -> tuple[Gained, int]:
    """Fold a window on Spark; gives what was written, and the greatest width used.

    Errors of tasks are raised as they were.
    """
    from ddcore.jobs.session import spark

    project = fold.settings
    bulk = fold.rows >= WIDE_FROM
    with spark(project.spark_conf, project.spark_master, fold.width, bulk=bulk) as session:
        exchange = _Exchange(session, fold, listener)
        try:
            return exchange.run()
        finally:
            shutil.rmtree(exchange.task.staging, ignore_errors=True)


class _Exchange:
    """The driver's side of one fold."""

    def __init__(self, session: SparkSession, fold: Fold, listener: Any) -> None:
        self.session, self.fold, self.listener = session, fold, listener
        cores = session.sparkContext.defaultParallelism
        self.width = fold.width or (1 if fold.rows < WIDE_FROM else max(1, cores))
        staging = fold.stored.warehouse.root / "state" / f"_staging-{fold.stored.run}-{uuid.uuid4().hex[:8]}"
        cuts = _cuts(fold, self.width)
        self.task = Task(uuid.uuid4().hex, _pickled(fold.plan), fold.stored, staging, cuts, self.width)

    def run(self) -> tuple[Gained, int]:
        fed = self._fed()
        if fed is None:
            return self._finish(self.session.range(0, 1, 1, 1).mapInArrow(_nothing, COLUMNS), 0), 1
        if self.width == 1:
            return self._finish(fed.coalesce(1), 0), 1
        return self._wide(fed), self.width

    def _wide(self, fed: DataFrame) -> Gained:
        """Supersteps while there is much to do.

        Then one task, or, where the width is forced, all of them to the end.
        """
        step = 0
        waiting, reports = self._materialised(fed, functools.partial(_pass_on, self.task))
        while (position := _least(reports)) is not None:
            if self.fold.width is None and sum(report.waiting for report in reports) < WIDE_FROM:
                return self._finish(waiting.repartitionById(1, _zero()), step)
            step += 1
            if self.listener:
                self.listener("superstep", step, None, f"position {'.'.join(map(str, position))}")
            waiting, reports = self._superstep(waiting, step, position)
        return self._harvest(step)

    def _fed(self) -> DataFrame | None:
        """The window's updates of all inputs as messages; None if there are none."""
        frames = []
        for name, schema in self.fold.plan.inputs.items():
            log = ChangeLog(self.fold.stored.warehouse.input(name), schema, self.fold.plan.dims)
            files = [file for file in log.files(self.fold.inputs[name]) if self._meets(file)]
            if files:
                frame = self._read(log, files)
                frames.append(frame.mapInArrow(functools.partial(_feed, self.task, name), COLUMNS))
        return functools.reduce(lambda a, b: a.union(b), frames) if frames else None

    def _read(self, log: ChangeLog, files: Sequence[LiveFile]) -> DataFrame:
        import pyarrow as pa
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = pa.schema([pa.field(name, kind.arrow) for name, kind in log.columns.items()])
        frame = self.session.read.schema(from_arrow_schema(schema)).parquet(
            *(str(log.folder / file.path) for file in files)
        )
        return frame.where(F.col(log.dims[0]).between(self.fold.first, self.fold.last))

    def _meets(self, file: LiveFile) -> bool:
        dim = self.fold.plan.dims[0]
        least, most = file.lower.get(dim, 0), file.upper.get(dim, self.fold.last)
        return bool(least <= self.fold.last and most >= self.fold.first)

    def _superstep(self, waiting: DataFrame, step: int, position: Position) -> tuple[DataFrame, list[Report]]:
        routed = waiting.repartitionById(self.width, "dest")
        return self._materialised(routed, functools.partial(_step, self.task, step, position))

    def _materialised(self, frame: DataFrame, work: Callable[[Any, Batches], Any]) -> tuple[DataFrame, list[Report]]:
        """Run one job: the messages stay with the executors, the reports come back with the job itself."""
        reports = self.session.sparkContext.accumulator([], _lists())
        kept = _run(lambda: frame.mapInArrow(functools.partial(work, reports), COLUMNS).localCheckpoint())
        latest = {report.part: report for report in reports.value}  # a task that was retried reports again
        _raise_first(latest.values())
        return kept, list(latest.values())

    def _finish(self, waiting: DataFrame, step: int) -> Gained:
        """One task takes everything that waits and folds it to the end."""
        return self._gained(waiting.mapInArrow(functools.partial(_finish, self.task, step), COLUMNS))

    def _harvest(self, step: int) -> Gained:
        """Every worker writes what its range gained."""
        parts = self.session.range(0, self.width, 1, self.width)
        return self._gained(parts.mapInArrow(functools.partial(_harvest, self.task, step), COLUMNS))

    def _gained(self, frame: DataFrame) -> Gained:
        table = _run(frame.toArrow)
        reports: list[Report] = [pickle.loads(m.body) for m in messages.messages_of(table.to_batches())]
        _raise_first(reports)
        total = Gained()
        for report in sorted(reports, key=lambda report: report.part):
            total.absorb(report.gained or Gained())
        return total


def _run(job: Callable[[], Any]) -> Any:
    """Run a Spark job; what Spark says of its failure becomes one line."""
    try:
        return job()
    except Exception as error:
        if type(error).__module__.startswith(("pyspark", "py4j")):
            raise DdError(
                f"the Spark job failed: {_reason(str(error))}",
                "run it again; it goes on where it stopped (--debug shows Spark's output)",
            ) from error
        raise


def _reason(text: str) -> str:
    """The line of a Spark failure that says most: the last Python error, or the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line.split(":")[0] or "Exception: " in line or "crashed" in line]
    return (told or lines or ["no reason given"])[-1 if told else 0][:300]


def _least(reports: Iterable[Report]) -> Position | None:
    return min((report.position for report in reports if report.position is not None), default=None)


def _raise_first(reports: Iterable[Report]) -> None:
    for report in reports:
        if report.error is not None:
            raise report.error


def _lists() -> Any:
    from pyspark.accumulators import AccumulatorParam

    class Lists(AccumulatorParam[list[Report]]):
        def zero(self, value: list[Report]) -> list[Report]:
            return []

        def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:
            return value1 + value2

    return Lists()


def _zero() -> Any:
    from pyspark.sql import functions as F

    return F.lit(0).cast("int")


def _pickled(plan: Plan) -> bytes:
    """The plan with the user's own functions inside: executors need not have the program's file."""
    import sys

    from pyspark import cloudpickle

    mine = [module for name, module in sys.modules.items() if name.startswith("_ddcore_program")]
    for module in mine:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        dumped: bytes = cloudpickle.dumps(plan)  # type: ignore[no-untyped-call]
        return dumped
    finally:
        for module in mine:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


# --- dividing key codes -----------------------------------------------------------------------------------------------


def _cuts(fold: Fold, width: int) -> dict[int, list[int]]:
    """Codes at which the next worker's range begins, per arrangement: from stored quantiles, or for the first run
    guessed.

    Hashed codes are spread evenly over 64 bits. Codes that are values themselves are cut as a sample of the inputs'
    integers is.
    """
    if width == 1:
        return {arrangement.index: [] for arrangement in fold.plan.arrangements}
    even = [int(-(2**63) + (2**64 * part) // width) for part in range(1, width)]
    sample: np.ndarray | None = None
    cuts = {}
    for arrangement in fold.plan.arrangements:
        known = fold.quantiles.get(arrangement.fingerprint)
        if known:
            codes = np.sort(np.array(known, dtype=np.int64))
        elif arrangement.direct:
            sample = _sampled(fold) if sample is None else sample
            codes = sample
        else:
            codes = np.empty(0, dtype=np.int64)
        cuts[arrangement.index] = _quantiles(codes, width) if len(codes) else even
    return cuts


def _quantiles(codes: np.ndarray, width: int) -> list[int]:
    return [int(codes[(len(codes) * part) // width]) for part in range(1, width)]


def _sampled(fold: Fold) -> np.ndarray:
    """Integers of the new updates, sorted: at most a hundred thousand per input, from the head of its window."""
    found = [np.empty(0, dtype=np.int64)]
    for name, schema in fold.plan.inputs.items():
        columns = [column for column, kind in schema.items() if kind.name == "int64"]
        log = ChangeLog(fold.stored.warehouse.input(name), schema, fold.plan.dims)
        window = pl.col(fold.plan.dims[0]).is_between(fold.first, fold.last)
        if columns:
            frame = log.collect(log.scan(fold.inputs[name]).filter(window).select(columns).head(_SAMPLE))
            found += [frame[column].drop_nulls().to_numpy() for column in columns]
    return np.sort(np.concatenate(found))


# --- what tasks do ----------------------------------------------------------------------------------------------------


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


def _feed(task: Task, name: str, batches: Batches) -> Iterator[pa.RecordBatch]:
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


def _pass_on(task: Task, reports: Accumulator[list[Report]], batches: Batches) -> Iterator[pa.RecordBatch]:
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


def _step(
    task: Task, step: int, position: Position, reports: Accumulator[list[Report]], batches: Batches
) -> Iterator[pa.RecordBatch]:
    """One worker's part of a superstep."""
    part = _part()
    try:
        worker = _restored(task, part, step - 1)
        for message in messages.messages_of(batches):
            messages.accept(worker, message)
        worker.journal, told = [], {name: len(batches) for name, batches in worker.outputs.items()}
        while worker.next_position == position:
            worker.step()
        _stage(task, worker, told, step, part)
        report = Report(part, worker.next_position, worker.waiting())
        yield from messages.arrow_of(_drained(task, worker))
        _remembered(task).workers[part].step = step
        reports.add([report])
    except DdError as error:
        _remembered(task).workers.pop(part, None)
        reports.add([Report(part, error=error)])


def _finish(task: Task, step: int, batches: Batches) -> Iterator[pa.RecordBatch]:
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


def _harvest(task: Task, step: int, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Write what one range gained in the fold."""
    part = _part()
    for _ in batches:
        pass
    try:
        worker = _restored(task, part, step)
        gained = write_gains(_plan(task), worker, task.stored, str(part))
        yield from messages.arrow_of([_told(Report(part, gained=gained))])
    except DdError as error:
        yield from messages.arrow_of([_told(Report(part, error=error))])


def _nothing(batches: Batches) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield from ()


def _told(report: Report) -> Message:
    return Message(0, "report", 0, (), 0, pickle.dumps(report))


def _drained(task: Task, worker: Worker) -> Iterator[Message]:
    for work in worker.drain():
        yield from messages.to_messages(worker.plan, work, task.cuts, task.width)


def _restored(task: Task, part: int, step: int) -> Worker:
    """The worker of a range as it was after a step: from this process's memory, as far as it reaches, and from staged
    files.
    """
    known = _remembered(task).workers
    held = known.get(part)
    if held is None or held.step > step:
        worker = open_worker(_plan(task), task.stored, spans_of(_plan(task), task.cuts, part))
        worker.begin()
        held = known[part] = _Held(worker, 0)
    _catch_up(task, held.worker, range(held.step + 1, step + 1), [part])
    held.step = step
    return held.worker


def _stage(task: Task, worker: Worker, told: Mapping[str, int], step: int, part: int) -> None:
    """Write what a step added to traces and outputs, under a name that depends on step and range alone."""
    import pyarrow as pa

    entries = [
        Message(part, "trace", a.index, rounds, len(run), messages.body_of_run(a, run))
        for a, rounds, run in worker.journal or ()
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


def _catch_up(task: Task, worker: Worker, steps: Iterable[int], parts: Iterable[int]) -> None:
    """Bring a worker's traces and outputs forward from staged files."""
    import pyarrow as pa

    for step in steps:
        for part in parts:
            path = _staged(task, step, part)
            with reporting(path, "read"):
                if path.stat().st_size == 0:
                    continue
                with pa.memory_map(str(path)) as file:
                    table = pa.ipc.open_file(file).read_all()
            for message in messages.messages_of(table.to_batches()):
                _take_back(worker, message)


def _take_back(worker: Worker, message: Message) -> None:
    if message.kind == "trace":
        arrangement = worker.plan.arrangements[message.target]
        worker.restore(arrangement, message.rounds, messages.run_of_body(arrangement, message.body))
        return
    name = list(worker.plan.outputs)[message.target]
    worker.outputs[name].append(messages.batch_of_body(message.body, worker.plan.outputs[name]))


def _staged(task: Task, step: int, part: int) -> Path:
    return task.staging / f"{step:06d}-{part}.arrow"
