"""The fold on Spark with several workers, one for each range of key codes: one barrier stage, whose tasks exchange
directly.

Spark starts the tasks together; the driver takes no part until all are done. If a task or its executor is lost, Spark
ends all of them, and the fold begins again: nothing but files that nobody reads was written. What the workers do is in
:mod:`ddcore.jobs.engines.workers`, which the driver does not load.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ddcore.io.logs.inputs import input_log
from ddcore.io.state.fold_result import FoldResult
from ddcore.jobs.engines import one_task
from ddcore.jobs.engines.certificates import can_encrypt, new_certificate
from ddcore.jobs.engines.partitioning import Divider
from ddcore.jobs.engines.protocol import Credentials, Report, SharedFold, Split, Unreachable, raise_first
from ddcore.jobs.engines.routes import routing_of
from ddcore.jobs.engines.worker_count import owner_rows, workload
from ddcore.jobs.failures import out_of_memory
from ddcore.jobs.fold import Fold
from ddcore.jobs.spark import slots
from ddcore.jobs.spark.failures import TaskLost
from ddcore.jobs.spark.shipping import pickled
from ddcore.jobs.spark.slots import encryption, obstacle
from ddcore.jobs.spark.stage import in_tasks
from ddcore.planning.staging import staged

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_ATTEMPTS = 4  # at a fold of which tasks are lost
_FEW = 1 << 12  # rows that one worker reads as soon as several would
_UNREACHABLE = re.compile(rf"\b{Unreachable.__name__}: (.+)")  # in what Spark says of a stage

_logger = logging.getLogger("ddcore")


def fold_with(spark: SparkContext | SparkSession, fold: Fold, parallelism: int) -> tuple[FoldResult, int]:
    """Fold a window with ``parallelism`` workers, or as many as own some of it; return the files written, and how many.

    Where Spark cannot run so many side by side, or they do not reach each other, one worker folds, and a line says why.
    Errors of workers are raised unchanged.
    """
    encrypting = encryption(spark)
    work = shared(fold, parallelism, encrypted=bool(encrypting) and can_encrypt())
    why = "" if work.parallelism == parallelism else f"not {parallelism}: further ones would own nothing"
    parallelism = work.parallelism
    if parallelism == 1 or not (any(work.splits) or fold.rebuilding):
        result, one = one_task.fold_with(spark, fold)
        result.why = why
        return result, one
    start = time.perf_counter()
    reason = obstacle(spark, parallelism)
    waited = time.perf_counter() - start
    if not reason and encrypting and not can_encrypt():
        reason = f"{encrypting} is set, and to encrypt too, workers need pip install 'ddcore[encryption]' on the driver"
    if not reason:
        try:
            reports, seconds = _reports(spark, work)
            result = gained(reports)
            result.load, result.why = workload(fold, result, parallelism, waited + seconds), why
            return result, parallelism
        except Unreachable as error:
            reason = str(error)
    _logger.warning(f"one worker folds, and not {parallelism}: {reason}")
    result, one = one_task.fold_with(spark, fold)
    result.why = f"not {parallelism}: {reason}"
    return result, one


def shared(fold: Fold, parallelism: int, *, encrypted: bool = False) -> SharedFold:
    """What each of so many workers needs to know of a fold; of fewer, where the others would own and read nothing."""
    groups, worth = fold.stored.groups, owner_rows(fold)
    fold = replace(fold, plan=staged(fold.plan))
    routing = routing_of(fold.plan, (groups.all_grown() if fold.rebuilding is None else groups).grown)
    divider = Divider(fold, routing)
    division, splits = divider.division(parallelism), _splits(fold, parallelism)
    while worth and (busy := max(division.owners, sum(map(bool, splits)))) < parallelism:
        division, splits, parallelism = divider.division(busy), _splits(fold, busy), busy
    secret = secrets.token_bytes(32)
    credentials = Credentials(secret, new_certificate(secret) if encrypted else b"")
    routing = routing.divided(division.shares)
    return SharedFold(fold, routing, division, splits, parallelism, credentials)


def _reports(spark: SparkContext | SparkSession, work: SharedFold) -> tuple[list[Report], float]:
    """What all workers report, and after how many seconds. The fold begins again where some are lost, a few times at
    most; the seconds are of the last time. Raises Unreachable.
    """
    task = partial(_work, pickled(work), slots.threads_of(spark, work.parallelism))
    for left in range(_ATTEMPTS - 1, -1, -1):
        start = time.perf_counter()
        try:
            return in_tasks(spark, task, work.parallelism), time.perf_counter() - start
        except TaskLost as error:
            if reason := _UNREACHABLE.search(error.text):
                raise Unreachable(reason[1]) from error
            if "MemoryError" in error.text:
                raise out_of_memory(error.message) from error
            if not left:
                raise
            _logger.info("a worker is lost, and the fold begins again: %s", error.message)
    raise AssertionError("unreachable")


def gained(reports: list[Report]) -> FoldResult:
    """What all workers of a fold have written. Raises the first error."""
    raise_first(reports)
    total = FoldResult()
    for report in sorted(reports, key=lambda report: report.worker):
        assert report.gained is not None
        total.absorb(report.gained)
    total.took = min(report.gained.took for report in reports if report.gained is not None)  # of the last to come
    steps, total.sent = max(report.supersteps for report in reports), sum(report.sent for report in reports)
    _logger.debug("%d workers: %d supersteps, %d bytes between them", len(reports), steps, total.sent)
    return total


def _work(work: bytes, threads: int) -> Report:
    from ddcore.jobs.engines import barrier_task

    return barrier_task.work(work, threads)


def _splits(fold: Fold, parallelism: int) -> list[list[Split]]:
    """What each worker reads of the files of the window: as many rows as the others, if they are not few."""
    files = [
        (name, file)
        for name, schema in fold.inputs_read.items()
        for file in input_log(fold.stored.warehouse, fold.settings, name, schema).files(fold.inputs[name])
        if fold.window.may_meet(file.lower, file.upper, fold.plan.dims)
    ]
    at, most, splits = 0, fold.settings.tuning.fed_rows, [list[Split]() for _ in range(parallelism)]
    share = max(min(_FEW, most), owner_rows(fold), -(-sum(file.rows for _, file in files) // parallelism))
    for name, file in files:
        start = 0
        while start < file.rows:
            rows = min(file.rows - start, share - at % share, most)
            splits[at // share].append(Split(name, file, start, rows))
            start, at = start + rows, at + rows
    return splits
