"""The exchange without Spark: its workers in processes of their own, which stay for the next fold, and real sockets.

What Spark does with a barrier stage is done here: all tasks start together, and all end if one is lost.
"""

from __future__ import annotations

import atexit
import importlib
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.jobs.engines import exchange, one_task
from ddcore.jobs.engines.worker_count import WORKER_ROWS
from ddcore.jobs.spark.failures import TaskLost, run_job

Tuned = list[tuple[str, str, Any]]


class Lost(Exception):
    """A process is gone, or one of its tasks has failed."""


class Process:
    """A process that works on one task at a time."""

    def __init__(self) -> None:
        self.words, other = Pipe()
        number = other.fileno()
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"import sparkless; sparkless.serve({number})"],
            pass_fds=[number], env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)}, start_new_session=True,
        )  # fmt: skip
        other.close()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.words.close()


_processes: list[Process] = []


@atexit.register
def _end() -> None:
    while _processes:
        _processes.pop().kill()


def watch() -> None:
    """Check at every step of a worker that the keys of all updates which are queued there are its own, and that it
    divides and sends no more at once than it may.
    """
    from ddcore.data.encoding import key_codes
    from ddcore.engine.worker import Worker
    from ddcore.jobs.engines import messages, workers
    from ddcore.jobs.engines.workers import Member

    step, superstep = Worker.step, Member._superstep
    member: list[Any] = []

    def noted(self: Any, position: Any) -> None:
        member[:] = [self]
        superstep(self, position)

    def checked(self: Worker) -> None:
        if member and member[0].worker is self:
            division = member[0].shared.division
            for index, queue in self.agenda._work[self.agenda._order[0]].queues.items():
                arrangement = self.plan.arrangements[index]
                key = division.keys.get(index, arrangement.key)
                columns = dict(zip(arrangement.collection, queue.batch().words, strict=True))
                if arrangement.ends is not None:
                    first, last = division.holders(arrangement, columns, len(queue))
                    assert ((first <= member[0].number) & (member[0].number <= last)).all(), arrangement
                    continue
                kinds = [arrangement.collection[name] for name in key]
                codes = key_codes([columns[name] for name in key], kinds, len(queue))
                owners = np.searchsorted(np.array(division.boundaries[index], dtype=np.int64), codes, side="right")
                shares = division.shares.get(index)
                owners = owners if shares is None else owners[~np.isin(codes, shares.codes)]
                assert set(owners.tolist()) <= {member[0].number}, arrangement
        step(self)

    divide, queue, encode, kept = Member._divided, Member._queue, messages.encoded, list[int]()

    def queued(self: Any, message: Any) -> None:
        kept.append(len(message))
        queue(self, message)

    def bounded(self: Any) -> dict[int, list[Any]]:
        kept.clear()
        member[:] = [self]
        outgoing = divide(self)
        rows = sum(kept) + sum(len(message) for messages in outgoing.values() for message in messages)
        limited, shares = self.budget.memory.is_limited, self.shared.division.shares
        if limited or not shares:  # else the copies of heavy keys' rows do not count
            room = min(self.budget.tuning.divided_rows, self.budget.memory.rows)
            assert rows < room + self.shared.parallelism, f"{rows} updates with their copies, where {room} may be"
        return outgoing

    def parted(some: Any) -> Any:
        sizes = [len(message) for message in some]
        assert max(sizes, default=0) <= member[0]._most, f"parts of {sizes} updates"
        return encode(some)

    patch = pytest.MonkeyPatch()
    patch.setattr(Member, "_divided", bounded)
    patch.setattr(Member, "_queue", queued)
    patch.setattr(workers, "encoded", parted)
    patch.setattr(Member, "_superstep", noted)
    patch.setattr(Worker, "step", checked)


def serve(descriptor: int) -> None:
    """In a process: tasks until the other end is gone."""
    from ddcore.jobs.engines import barrier_task

    watch()
    words = Connection(descriptor)

    def gather(word: str) -> list[str]:
        words.send(("gather", word))
        said: list[str] = words.recv()
        return said

    with suppress(EOFError):
        while True:
            shared, number, tuned = words.recv()
            before = tune(tuned)
            try:
                words.send(("done", barrier_task.fold_part(pickle.loads(shared), number, "127.0.0.1", gather)))
            except Exception:
                words.send(("failed", traceback.format_exc()))
            tune(before)


def tune(tuned: Tuned) -> Tuned:
    """Set constants of modules; return what they were."""
    before = []
    for module, name, value in tuned:
        target = importlib.import_module(module)
        before.append((module, name, getattr(target, name)))
        setattr(target, name, value)
    return before[::-1]


class Stage:
    """Runs the workers of a fold. With ``unrest``, sometimes one of them is killed while it works."""

    def __init__(self, patch: pytest.MonkeyPatch, rng: random.Random, unrest: float) -> None:
        self.patch, self.rng, self.unrest = patch, rng, unrest
        self.reports: list[Any] = []
        self.attempts = self.losses = 0

    def __call__(self, spark: Any, task: partial[Any], number: int = 1) -> list[Any]:
        results: list[Any] = run_job(partial(self.run, task, number))
        return results

    def run(self, task: partial[Any], number: int) -> list[Any]:
        if number == 1:
            return [task()]
        self.attempts += 1
        try:
            self.reports = self.attempt(task.args[0], number)
        except Lost as error:
            _end()
            self.losses += 1
            raise TaskLost(f"the tasks are lost: {error}") from error
        self.losses = 0
        return self.reports

    def attempt(self, shared: bytes, number: int) -> list[Any]:
        while len(_processes) < number:
            _processes.append(Process())
        timer = None
        if self.losses < 3 and self.rng.random() < self.unrest:  # the fourth attempt at a fold is the last
            victim = self.rng.choice(_processes[:number]).process
            timer = threading.Timer(self.rng.random() * 0.3, victim.kill)
            timer.start()
        try:
            for rank, process in enumerate(_processes[:number]):
                process.words.send((shared, rank, self.tuned()))
            return self.results(number)
        except (EOFError, OSError) as error:
            raise Lost(f"a process is gone: {error}") from error
        finally:
            if timer is not None:
                timer.cancel()

    def results(self, number: int) -> list[Any]:
        """Of all tasks; passes on what they tell each other at the start."""
        results, said = dict[int, Any](), dict[int, str]()
        while len(results) < number:
            wait([_processes[rank].words for rank in range(number) if rank not in results])
            for rank in range(number):
                if rank in results or not _processes[rank].words.poll(0):
                    continue
                kind, what = _processes[rank].words.recv()
                if kind == "failed":
                    raise Lost(what)
                (said if kind == "gather" else results)[rank] = what
            if len(said) == number:
                for rank in range(number):
                    _processes[rank].words.send([said[item] for item in range(number)])
                said.clear()
        return [results[rank] for rank in range(number)]

    def tuned(self) -> Tuned:
        """The constants of the package that the test has set, for the processes."""
        return [
            (target.__name__, name, getattr(target, name))
            for target, name, _ in self.patch._setattr
            if isinstance(target, ModuleType) and isinstance(getattr(target, name), int | float | str)
        ]


class Context:
    """A Spark context, as far as the exchange uses one."""

    def __init__(self, cores: int) -> None:
        self.defaultParallelism = cores


def install(patch: pytest.MonkeyPatch, *, seed: int = 0, unrest: float = 0.0, encrypted: bool = False) -> Stage:
    """From here on ``engine="spark"`` starts no Spark. With every third seed what few rows reach has few owners."""

    @contextmanager
    def context(conf: Any, master: Any, parallelism: int | None) -> Iterator[Context]:
        yield Context(parallelism or 3)

    from ddcore.jobs.spark import session, slots

    stage = Stage(patch, random.Random(seed), unrest)
    if seed % 3 == 1:
        patch.setenv(WORKER_ROWS, "1")
    no_obstacle: Callable[..., str] = lambda spark, number: ""  # noqa: E731
    patch.setattr(session, "check", lambda: None)
    patch.setattr(session, "spark_context", context)
    patch.setattr(exchange, "in_tasks", stage)
    patch.setattr(one_task, "in_tasks", stage)
    patch.setattr(exchange, "obstacle", no_obstacle)
    patch.setattr(slots, "workers_of", lambda spark: spark.defaultParallelism)
    patch.setattr(slots, "threads_of", lambda spark, workers: 1)
    patch.setattr(exchange, "encryption", lambda spark: "spark.network.crypto.enabled" if encrypted else "")
    return stage


def tuning_of(seed: int) -> Tuning:
    """A tuning for the project of a seed: files are looked into; updates that wait are compressed, those of a window
    are packed, and only those that a stored batch has partners of are joined.
    """
    tuning = replace(Tuning(small_file_rows=0) if seed % 3 else DEFAULT, owner_rows=1 + seed % 5)
    if seed % 7 < 3:
        tuning = replace(tuning, waiting_rows=1, waiting_rows_limited=1)
    if seed % 5 < 3:  # keys of joins are divided, however few rows they have
        tuning = replace(tuning, heavy_load=0)
    return replace(tuning, packed_rows=1, packing_rows=1, partner_ratio=0) if seed % 2 else tuning
