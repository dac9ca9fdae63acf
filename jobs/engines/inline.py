"""The fold in this process: one worker in several threads, no JVM. Same worker, same tables, same rows as on Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ddcore.base.threads import available
from ddcore.engine.worker import Worker
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.inputs import input_log
from ddcore.io.state.fold_result import FoldResult
from ddcore.io.state.hot import Hot
from ddcore.io.state.state import open_rebuild, open_worker, replay, write_result
from ddcore.io.storage import scratch
from ddcore.jobs.failures import fold_errors
from ddcore.jobs.fold import Fold, doing
from ddcore.traces.batch import Batch
from ddcore.traces.budget import Budget
from ddcore.traces.frames import batch_of

if TYPE_CHECKING:
    import polars as pl

    from ddcore.io.delta.table_files import TableState


def fold(fold: Fold, listener: Any = None, *, hot: Hot | None = None) -> tuple[FoldResult, int]:
    """Fold a window with one worker; return the files it wrote, and the parallelism 1.

    ``hot``: what earlier folds of this process left in memory; after an error that is nothing. It works in
    ``fold.parallelism`` threads, by default in as many as there are processors.
    """
    settings = fold.settings
    budget = scratch.budget(settings.memory, fold.parallelism or available(), settings.tuning)
    if hot is not None and fold.rebuilding is not None:
        hot.clear()
        hot = None
    with fold_errors(), budget.held(), _kept(hot, fold):
        worker = _open(fold, budget, hot)
        if fold.begin is not None:
            worker.feed_constants(fold.begin)
        worker.feed_instants(fold.instants)
        fed = 0
        for name, batch in worker.meter.reading(updates(fold, budget)):
            fed += len(batch)
            if listener:
                listener("read", fed, fold.rows, f"updates of inputs; now {name}")
            worker.feed(name, batch)
        reported_at = 0.0
        with worker.ready():
            while worker.agenda.next_position is not None:
                worker.step()
                if listener and time.monotonic() - reported_at >= settings.tuning.report_seconds:
                    reported_at = time.monotonic()
                    done, now = worker.handled, doing(fold.plan, worker.agenda.next_block, worker.state.rounds)
                    listener("fold", done, done + worker.agenda.waiting(), f"updates known so far; now {now}")
            return write_result(fold.plan, worker, fold.stored, "0", merges=fold.rebuilding is None, hot=hot), 1


@contextmanager
def _kept(hot: Hot | None, fold: Fold) -> Iterator[None]:
    """Drop what is not of the fold's state, and everything if it fails."""
    if hot is not None:
        hot.drop_others(fold.stored)
    try:
        yield
    except BaseException:
        if hot is not None:
            hot.clear()
        raise


def _open(fold: Fold, budget: Budget, hot: Hot | None) -> Worker:
    if fold.rebuilding is not None:
        worker = open_rebuild(fold.plan, fold.stored, fold.rebuilding, budget)
        replay(worker, fold.stored, fold.rebuilding)
    else:
        worker = open_worker(fold.plan, fold.stored, budget=budget, hot=hot)
        worker.begin(fold.upper)
    return worker


def updates(fold: Fold, budget: Budget) -> Iterator[tuple[str, Batch]]:
    """Each input's updates in the window; many in portions. Files that cannot have any are not opened."""
    for name, schema in fold.inputs_read.items():
        log = input_log(fold.stored.warehouse, fold.settings, name, schema)
        read = [column for column in schema if column in fold.plan.read[name]]
        for rows in _frames(fold, budget, log, fold.inputs[name], [*read, *fold.plan.dims, "diff"]):
            yield name, batch_of(rows, schema, fold.plan.dims, name, read)


def _frames(
    fold: Fold, budget: Budget, log: ChangeLog, state: TableState | None, columns: list[str]
) -> Iterator[pl.DataFrame]:
    """These columns of an input's updates in the window."""
    memory = budget.memory
    if memory.is_limited:
        for frame in _portions(fold, log, state, memory.rows):
            yield log.collect(frame.select(columns))
        return
    frame = log.window(fold.window, state).select(columns)
    portion = budget.tuning.fed_rows
    if fold.rows > portion:
        yield from log.batches(frame, portion)
    else:
        yield log.collect(frame)


def _portions(fold: Fold, log: ChangeLog, state: TableState | None, rows: int) -> Iterator[pl.LazyFrame]:
    """The updates of an input in the window, of at most so many rows each."""
    inside = fold.window.condition(fold.plan.dims)
    for file in log.files(state):
        if fold.window.may_meet(file.lower, file.upper, fold.plan.dims):
            whole = log.scan_files([file])
            for start in range(0, file.rows, rows):
                yield whole.slice(start, rows).filter(inside)
