"""The fold on Spark: the same worker, once per range of key codes, with Spark's shuffle between them.

A superstep is one Spark job: each task takes the messages of its range, does the work at one position and sends what
follows from it. The driver picks the next position from what the tasks report, never by a job of its own. Where
little is left to do, or was from the start, one task takes over the whole range and finishes without further shuffles.

What the tasks do is in :mod:`ddcore.jobs.tasks`.
"""

from __future__ import annotations

import functools
import pickle
import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ddcore.errors import Diverged
from ddcore.io.changelog import ChangeLog
from ddcore.io.gains import Gained
from ddcore.io.tables import LiveFile
from ddcore.jobs import alone, messages, replay, tasks
from ddcore.jobs.cuts import cuts_of
from ddcore.jobs.failures import run_job
from ddcore.jobs.messages import COLUMNS
from ddcore.jobs.replay import Fold
from ddcore.jobs.shipping import pickled
from ddcore.jobs.tasks import Batches, Report, Task
from ddcore.plan import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["fold_with"]


def fold_with(session: SparkSession, fold: Fold, listener: Any = None) -> tuple[Gained, int]:
    """Fold a window in a Spark session; gives what was written, and the greatest width used.

    Errors of tasks are raised as they were.
    """
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
        self.width = fold.width or cores
        state = fold.stored.warehouse.root / "state"
        for left in state.glob("_staging-*"):  # of a run that was killed; the lock is ours
            shutil.rmtree(left, ignore_errors=True)
        staging = state / f"_staging-{fold.stored.run}-{uuid.uuid4().hex[:8]}"
        cuts = cuts_of(fold, self.width)
        self.task = Task(uuid.uuid4().hex, pickled(fold.plan), fold.stored, staging, cuts, self.width)

    def run(self) -> tuple[Gained, int]:
        fed = self._fed() if self.width > 1 else None
        if fed is None:
            return alone.fold_with(self.session.sparkContext, self.fold)
        return self._wide(fed), self.width

    def _wide(self, fed: DataFrame) -> Gained:
        """Supersteps while there is much to do.

        Then one task, or, where the width is forced, all of them to the end.
        """
        step = 0
        waiting, reports = self._materialised(fed, functools.partial(tasks.pass_on, self.task))
        while (position := _least(reports)) is not None:
            if self.fold.width is None and sum(report.waiting for report in reports) < replay.WIDE_FROM:
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
                frames.append(frame.mapInArrow(functools.partial(tasks.feed, self.task, name), COLUMNS))
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
        return self._materialised(routed, functools.partial(tasks.step, self.task, step, position))

    def _materialised(self, frame: DataFrame, work: Callable[[Any, Batches], Any]) -> tuple[DataFrame, list[Report]]:
        """Run one job: the messages stay with the executors, the reports come back with the job itself."""
        reports = self.session.sparkContext.accumulator([], _lists())
        kept = run_job(lambda: frame.mapInArrow(functools.partial(work, reports), COLUMNS).localCheckpoint())
        latest = {report.part: report for report in reports.value}  # a task that was retried reports again
        _raise_first(latest.values())
        return kept, list(latest.values())

    def _finish(self, waiting: DataFrame, step: int) -> Gained:
        """One task takes everything that waits and folds it to the end."""
        return self._gained(waiting.mapInArrow(functools.partial(tasks.finish, self.task, step), COLUMNS))

    def _harvest(self, step: int) -> Gained:
        """Every worker writes what its range gained."""
        parts = self.session.range(0, self.width, 1, self.width)
        return self._gained(parts.mapInArrow(functools.partial(tasks.harvest, self.task, step), COLUMNS))

    def _gained(self, frame: DataFrame) -> Gained:
        table = run_job(frame.toArrow)
        reports: list[Report] = [pickle.loads(m.body) for m in messages.messages_of(table.to_batches())]
        _raise_first(reports)
        total = Gained()
        for report in sorted(reports, key=lambda report: report.part):
            total.absorb(report.gained or Gained())
        return total


def _least(reports: Iterable[Report]) -> Position | None:
    return min((report.position for report in reports if report.position is not None), default=None)


def _raise_first(reports: Iterable[Report]) -> None:
    """Raise the error of the tasks, if any; of a loop that diverged, for all ranges together."""
    errors = [report.error for report in reports if report.error is not None]
    diverged = [error for error in errors if isinstance(error, Diverged)]
    if diverged:
        first = min(diverged, key=lambda error: (error.round, error.time))
        same = [error for error in diverged if (error.loop, error.time, error.round) == _where(first)]
        raise Diverged(*_where(first), sum(error.moving for error in same))
    if errors:
        raise errors[0]


def _where(error: Diverged) -> tuple[str, tuple[int, ...], int]:
    return error.loop, error.time, error.round


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
