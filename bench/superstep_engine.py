"""A fold by several workers without Spark, in processes of their own, and supersteps without work.

``python -m bench.superstep_engine PROJECT WORKERS`` prints one JSON object: seconds of processor time of all workers
together, the greatest of a worker, the bytes that they sent and their supersteps. One worker exchanges with nobody.
``python -m bench.superstep_engine WORKERS`` prints the seconds of a thousand exchanges in which nobody sends an update.
"""

from __future__ import annotations

import json
import multiprocessing
import pickle
import resource
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ddcore.io.project.finding import find_project
from ddcore.jobs import replay
from ddcore.jobs.engines import exchange, one_task
from ddcore.jobs.engines.meeting import meeting
from ddcore.jobs.engines.protocol import Credentials
from ddcore.jobs.spark import session, slots

EXCHANGES = 1000

Gather = Callable[[str], list[str]]


def fold(folder: str, number: int) -> None:
    """Fold a project with so many workers."""
    reports: list[Any] = []

    def in_tasks(spark: Any, task: Any, tasks: int = 1) -> list[Any]:
        reports[:] = together(tasks, _one if tasks == 1 else _part, task if tasks == 1 else task.args[0])
        return [report for report, _ in reports]

    @contextmanager
    def no_context(*_: Any) -> Any:
        yield SimpleNamespace(defaultParallelism=number)

    for module, name, value in (
        (exchange, "in_tasks", in_tasks), (one_task, "in_tasks", in_tasks), (exchange, "obstacle", lambda *_: ""),
        (exchange, "encryption", lambda *_: ""), (slots, "threads_of", lambda *_: 1),
        (session, "check", lambda: None), (session, "spark_context", no_context),
    ):  # fmt: skip
        setattr(module, name, value)
    replay.run(find_project(Path(folder), {}), engine="spark", parallelism=number)
    figures = {"cpu_s": sum(cpu for _, cpu in reports), "most_cpu_s": max(cpu for _, cpu in reports)}
    if number > 1:
        figures["bytes"] = sum(report.sent for report, _ in reports)
        figures["supersteps"] = max(report.supersteps for report, _ in reports)
        loads = [_load(report) for report, _ in reports]
        figures["balance"] = max(loads) * number / sum(loads)
    print(json.dumps(figures))


def _load(report: Any) -> int:
    """The updates and pending times that a worker handled, and the updates that its operators sent."""
    return int(report.handled + sum(cost.sent for cost in report.gained.profile.costs.values()))


def _one(task: Any, rank: int, gather: Gather) -> tuple[Any, float]:
    from ddcore.engine import worker  # noqa: F401  (kernels are loaded before the time is taken)

    before = _cpu()
    return task(), _cpu() - before


def _part(shared: bytes, rank: int, gather: Gather) -> tuple[Any, float]:
    from ddcore.jobs.engines import barrier_task

    before = _cpu()
    return barrier_task.fold_part(pickle.loads(shared), rank, "127.0.0.1", gather), _cpu() - before


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def idle(number: int) -> None:
    """Exchange notes and nothing else."""
    print(json.dumps({"s": max(together(number, _idle, secrets.token_bytes(32)))}))


def _idle(secret: bytes, rank: int, gather: Gather) -> float:
    with meeting(rank, "127.0.0.1", Credentials(secret), gather) as connections:
        peers = connections.result()
        start = time.perf_counter()
        for _ in range(EXCHANGES):
            peers.exchange({"position": [1, 2, 3], "more": False})
        return time.perf_counter() - start


def together(number: int, work: Callable[[Any, int, Gather], Any], what: Any) -> list[Any]:
    """What a function returns in each of several processes, which can gather words."""
    spawn = multiprocessing.get_context("spawn")
    ends = [spawn.Pipe() for _ in range(number)]
    processes = [
        spawn.Process(target=_process, args=(theirs, work, what, rank)) for rank, (_, theirs) in enumerate(ends)
    ]
    for process in processes:
        process.start()
    ours = [end for end, _ in ends]
    results = [end.recv() for end in ours]
    if number > 1:
        for end in ours:
            end.send(results)
        results = [end.recv() for end in ours]
    for process in processes:
        process.join()
    return results


def _process(end: Connection, work: Callable[[Any, int, Gather], Any], what: Any, rank: int) -> None:
    def gather(word: str) -> list[str]:
        end.send(word)
        words: list[str] = end.recv()
        return words

    end.send(work(what, rank, gather))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        fold(sys.argv[1], int(sys.argv[2]))
    else:
        idle(int(sys.argv[1]))
