"""The fold on Spark with several workers: one for each range of key codes, with Spark's shuffle between them.

A superstep is one Spark job: each task takes the messages of its range, works from the least position anywhere up to
the horizon (:mod:`~ddcore.jobs.engines.routes`), and sends the results that others own. The driver picks the next
position from the reports of the tasks, never by a job of its own. When few updates are left, one task takes over the
whole range and finishes without further shuffles.

Plain RDDs: messages are few and large, and a job of the SQL engine takes twice as long to start. The code of the tasks
is in :mod:`ddcore.jobs.engines.tasks`, which the driver does not load.
"""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ddcore.engine.profile import Profile
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.state.fold_result import FoldResult
from ddcore.io.state.layout import tables_of
from ddcore.jobs.engines import one_task
from ddcore.jobs.engines.partitioning import division_of
from ddcore.jobs.engines.protocol import (
    Constants,
    Report,
    Split,
    Superstep,
    Task,
    Waiting,
    collector,
    least_of,
    raise_first,
)
from ddcore.jobs.engines.routes import routing_of
from ddcore.jobs.fold import Fold, doing
from ddcore.jobs.spark.failures import ExecutorLost, run_job
from ddcore.jobs.spark.shipping import pickled
from ddcore.jobs.spark.shuffle import write_shuffle

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

__all__ = ["fold_with"]

SPLIT_ROWS = 1 << 20  # of an input, read by one task
NARROW_BELOW = 500_000  # waiting updates; an estimate
_CUT_EVERY = 32  # supersteps
_ATTEMPTS = 3  # at a fold whose executors are lost

_logger = logging.getLogger("ddcore")


def fold_with(context: SparkContext, fold: Fold, parallelism: int, listener: Any = None) -> tuple[FoldResult, int]:
    """Fold a window with ``parallelism`` workers in a Spark context; return the files written, and the parallelism.

    Errors of tasks are raised unchanged. Spark repeats tasks that fail. Messages that were lost with an executor cannot
    be repeated: then the whole fold begins again, a few times at most.
    """
    splits = list(_splits(fold))
    # Queued once, here, and not by each worker: a worker may be opened several times.
    waiting = [Waiting(partition) for partition in range(parallelism)] if _resumes(fold) else []
    constants = [Constants(fold.begin)] if fold.begin is not None and fold.plan.constants else []
    if not splits and not (fold.rebuilding and waiting):
        return one_task.fold_with(context, fold)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _Exchange(context, fold, parallelism, listener).run([*splits, *waiting, *constants]), parallelism
        except ExecutorLost:
            if attempt == _ATTEMPTS:
                raise
            _logger.info("Spark lost an executor: the fold begins again")
        finally:
            fold.stored.warehouse.remove_staging()
    raise AssertionError("unreachable")


class _Exchange:
    """The driver's side of one fold."""

    def __init__(self, context: SparkContext, fold: Fold, parallelism: int, listener: Any) -> None:
        self.context, self.listener, self.plan = context, listener, fold.plan
        groups = fold.stored.groups
        self.profile = Profile()
        self.groups = groups.all_grown() if fold.rebuilding is None else groups.copy()
        self.narrow_below = 0 if fold.parallelism else NARROW_BELOW  # a forced parallelism is kept to the end
        self.routing, self.staged = routing_of(fold.plan, self.groups.grown), dict[int, tuple[int, ...]]()
        token, plan, division = uuid.uuid4().hex, pickled(fold.plan), division_of(fold, self.routing, parallelism)
        staging = fold.stored.warehouse.staging / token
        self.task = Task(
            token,
            plan,
            fold.stored,
            staging,
            division,
            parallelism,
            fold.window,
            fold.upper,
            _resumes(fold),
            fold.rebuilding,
            fold.settings.memory,
            fold.settings.tuning,
        )

    def run(self, splits: list[Split | Waiting | Constants]) -> FoldResult:
        """Supersteps while many updates wait; then one task, or all of them, write what the fold added."""
        step = 1
        waiting, reports = self._send(self.context.parallelize(splits, len(splits)), "feed", 0)
        while (position := least_of(reports)) is not None:
            now = Superstep(step, position, self.routing.horizon(position), self.staged)
            if sum(report.waiting for report in reports) < self.narrow_below:
                return self._collect(waiting.coalesce(1), "finish", now)
            waiting, reports = self._superstep(waiting, now)
            step += 1
        return self._collect(waiting, "harvest", Superstep(step, None, None, self.staged))

    def _superstep(self, waiting: RDD[Any], now: Superstep) -> tuple[RDD[Any], list[Report]]:
        if self.listener:
            self.listener("fold", now.number, None, f"exchanges between workers; now {self._doing(now)}")
        return self._send(waiting, "step", now.number, now)

    def _doing(self, now: Superstep) -> str:
        """What the workers do, in words."""
        position, blocks = now.position or (), self.plan.blocks
        block = next((each for each in blocks if each.path == tuple(position[::2])), None)
        return doing(self.plan, block, max((each % 2**32 for each in position[1::2]), default=0))  # without priorities

    def _send(self, incoming: RDD[Any], name: str, step: int, *arguments: Any) -> tuple[RDD[Any], list[Report]]:
        """One job: run a function of the tasks in every partition, and send its messages to their owners.

        The messages stay with the executors, in the files of the shuffle, until the next job reads them; the reports
        come back with this one. Now and then the messages are read at once and kept in blocks: then Spark forgets where
        they came from, so that a loop of many rounds has no long plan.
        """
        reports = collector(self.context)
        results = incoming.mapPartitionsWithIndex(_work(name, self.task, *arguments, reports))
        messages = results.partitionBy(self.task.parallelism, _owner)
        if step % _CUT_EVERY == _CUT_EVERY - 1:
            messages.localCheckpoint()
            run_job(messages._jrdd.count)  # in the JVM: RDD.count would pass all messages through Python
        else:
            run_job(functools.partial(write_shuffle, self.context, messages))
        latest = {report.partition: report for report in reports.value}
        raise_first(latest.values())
        for report in latest.values():  # a task may lose what it noted in earlier steps
            self.groups.absorb(report.groups)
            self.profile.absorb(report.profile)
        for owner in (owner for report in latest.values() for owner in report.staged):
            self.staged[owner] = (*self.staged.get(owner, ()), step)
        return messages, list(latest.values())

    def _collect(self, waiting: RDD[Any], name: str, now: Superstep) -> FoldResult:
        """The last job of a fold, whose tasks write what they added to state and outputs."""
        reports = run_job(waiting.mapPartitionsWithIndex(_work(name, self.task, now)).collect)
        raise_first(reports)
        total = FoldResult(profile=self.profile)
        for report in sorted(reports, key=lambda report: report.partition):
            total.absorb(report.gained or FoldResult())
        total.groups.absorb(self.groups)
        return total


def _work(name: str, *arguments: Any) -> Callable[[int, Iterable[Any]], Iterator[Any]]:
    """A function of :mod:`ddcore.jobs.engines.tasks`, by name."""
    return functools.partial(_call, name, arguments)


def _call(name: str, arguments: tuple[Any, ...], partition: int, incoming: Iterable[Any]) -> Iterator[Any]:
    from ddcore.jobs.engines import tasks

    with tasks.budget(arguments[0]).held():
        yield from getattr(tasks, name)(*arguments, partition, incoming)


def _owner(dest: int) -> int:
    """The partition of a message's destination."""
    return dest


def _splits(fold: Fold) -> Iterator[Split]:
    """The files of the window, in splits for one task each."""
    for name, schema in fold.inputs_read.items():
        log = ChangeLog(fold.stored.warehouse.input(name), schema, fold.plan.dims)
        for file in log.files(fold.inputs[name]):
            if fold.window.may_meet(file.lower, file.upper, fold.plan.dims):
                for start in range(0, file.rows, SPLIT_ROWS):
                    yield Split(name, file, start, min(SPLIT_ROWS, file.rows - start))


def _resumes(fold: Fold) -> bool:
    """Whether earlier runs left pending times, held updates or groups that are to have trees, or arrangements whose
    history is replayed.
    """
    if fold.rebuilding is not None:
        return bool(fold.rebuilding.replayed)
    return bool(fold.stored.groups.noted) or any(
        fold.stored.files.get(name) for name, _, replaced in tables_of(fold.plan) if replaced
    )
