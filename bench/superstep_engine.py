"""A fold by several workers without Spark, in processes of their own, and supersteps without work.

``python -m bench.superstep_engine PROJECT WORKERS`` prints one JSON object: seconds of processor time of all workers
together in their folds, the greatest of a worker, those of all before their folds (of Python and the engine), and of
the process that divides the work; the most seconds by the clock that a worker was in its fold; the most private memory
that a worker had, how many of them the rows were worth, the bytes that they sent and their supersteps. One worker
exchanges with nobody. ``python -m bench.superstep_engine WORKERS`` prints the seconds of a thousand exchanges in which
nobody sends an update. ``--seconds`` is the time after which the workers are killed.
"""

from __future__ import annotations

import argparse
import json
import mmap
import multiprocessing
import os
import pickle
import resource
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from bench import without_spark
from ddcore import kernels, operators
from ddcore.io import state
from ddcore.jobs.engines.meeting import meeting
from ddcore.jobs.engines.protocol import Credentials

EXCHANGES = 1000
SECONDS = 1800.0
_SAMPLED = 0.02  # seconds between two looks at the memory of a worker

Gather = Callable[[str], list[str]]


@dataclass(frozen=True)
class _Costs:
    """What a worker returned, its processor time before its fold and in it, the seconds of that by the clock, and the
    most private memory it had.
    """

    returned: Any
    start_s: float
    cpu_s: float
    s: float
    private: int


def fold(folder: str, number: int, seconds: float) -> None:
    """Fold a project with so many workers, in a thread each. Raises SystemExit after so many seconds."""
    workers: list[_Costs] = []
    dividing = _cpu()

    def in_tasks(spark: Any, task: Any, tasks: int = 1) -> list[Any]:
        nonlocal dividing
        dividing = _cpu() - dividing
        work, what = (_one, task) if tasks == 1 else (_part, task.args[0])
        workers[:] = together(tasks, partial(_costs, work), what, seconds)
        return [costs.returned for costs in workers]

    os.environ["POLARS_MAX_THREADS"] = "1"  # of workers, as Spark's sessions set it
    without_spark.fold(folder, number, in_tasks)
    figures = {name: sum(getattr(costs, name) for costs in workers) for name in ("cpu_s", "start_s")}
    figures |= {
        name: max(getattr(costs, of) for costs in workers) for name, of in (("most_cpu_s", "cpu_s"), ("s", "s"))
    }
    figures["dividing_s"] = dividing
    figures["private_mib"] = max(costs.private for costs in workers) / 2**20
    figures["workers"] = len(workers)
    if len(workers) > 1:
        reports = [costs.returned for costs in workers]
        figures["bytes"] = sum(report.sent for report in reports)
        figures["supersteps"] = max(report.supersteps for report in reports)
    print(json.dumps(figures))


def _costs(work: Callable[[Any, int, Gather], Any], what: Any, rank: int, gather: Gather) -> _Costs:
    from ddcore.jobs.engines import barrier_task, inline, workers  # noqa: F401  (the engine)

    for room in (kernels, operators, state):
        for module in iter_modules(room.__path__, f"{room.__name__}."):
            import_module(module.name)
    start, begun = _cpu(), time.perf_counter()
    with _watched() as watched:
        returned = work(what, rank, gather)
        cpu_s, seconds = _cpu() - start - watched.cpu_s, time.perf_counter() - begun
        return _Costs(returned, start, cpu_s, seconds, watched.look())


def _one(task: Any, rank: int, gather: Gather) -> Any:
    return task()


def _part(shared: bytes, rank: int, gather: Gather) -> Any:
    from ddcore.jobs.engines import barrier_task

    return barrier_task.fold_part(pickle.loads(shared), rank, "127.0.0.1", gather)


class _Watched:
    """The most bytes of private memory that this process has had (Linux only, else 0), and the processor time of the
    thread that looks: the longer others keep a worker waiting, the more often it does.
    """

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.most, self.cpu_s = 0, 0.0

    def look(self) -> int:
        """Look at the memory; return the most."""
        try:
            resident, shared = map(int, Path("/proc/self/statm").read_text().split()[1:3])
            self.most = max(self.most, (resident - shared) * mmap.PAGESIZE)
        except OSError:
            pass
        return self.most

    def watch(self) -> None:
        """Look again and again."""
        while not self.ended.wait(_SAMPLED):
            self.look()
            self.cpu_s = time.thread_time()


@contextmanager
def _watched() -> Iterator[_Watched]:
    watched = _Watched()
    threading.Thread(target=watched.watch, daemon=True).start()
    try:
        yield watched
    finally:
        watched.ended.set()


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def idle(number: int, seconds: float) -> None:
    """Exchange notes and nothing else. Raises SystemExit after so many seconds."""
    print(json.dumps({"s": max(together(number, _idle, secrets.token_bytes(32), seconds))}))


def _idle(secret: bytes, rank: int, gather: Gather) -> float:
    with meeting(rank, "127.0.0.1", Credentials(secret), gather) as connections:
        peers = connections.result()
        start = time.perf_counter()
        for _ in range(EXCHANGES):
            peers.exchange({"position": [1, 2, 3], "more": False})
        return time.perf_counter() - start


def together(number: int, work: Callable[[Any, int, Gather], Any], what: Any, seconds: float = SECONDS) -> list[Any]:
    """What a function returns in each of several processes, which can gather words.

    If one of them ends without a result, or not all are done after so many seconds, all are killed: SystemExit.
    """
    spawn = multiprocessing.get_context("spawn")
    until, ends, processes = time.monotonic() + seconds, list[Connection](), list[Any]()
    try:
        for rank in range(number):
            end, other = spawn.Pipe()
            processes.append(spawn.Process(target=_process, args=(other, work, what, rank)))
            processes[-1].start()
            other.close()  # so that the end of the process is seen
            ends.append(end)
        results = _received(ends, until)
        if number > 1:
            for end in ends:
                end.send(results)
            results = _received(ends, until)
    finally:
        for process in processes:
            process.join(max(0.0, until - time.monotonic()) if len(ends) == number else 0.0)
            process.kill()
    return results


def _received(ends: Sequence[Connection], until: float) -> list[Any]:
    """What has come from each end. Raises SystemExit."""
    results: dict[Connection, Any] = {}
    while len(results) < len(ends):
        ready = wait([end for end in ends if end not in results], max(0.0, until - time.monotonic()))
        if not ready:
            raise SystemExit(f"{len(ends) - len(results)} of {len(ends)} workers are not done in time")
        for end in ready:
            assert isinstance(end, Connection)
            try:
                results[end] = end.recv()
            except EOFError:
                raise SystemExit(f"worker {ends.index(end)} has ended without a result") from None
    return [results[end] for end in ends]


def _process(end: Connection, work: Callable[[Any, int, Gather], Any], what: Any, rank: int) -> None:
    def gather(word: str) -> list[str]:
        end.send(word)
        words: list[str] = end.recv()
        return words

    end.send(work(what, rank, gather))


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description="Fold by several workers without Spark.")
    parser.add_argument("project", nargs="?", help="a project's folder (default: exchanges without work)")
    parser.add_argument("workers", type=int)
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"the most it may take (default: {SECONDS:.0f})")
    options = parser.parse_args()
    if options.project is None:
        idle(options.workers, options.seconds)
    else:
        fold(options.project, options.workers, options.seconds)


if __name__ == "__main__":
    main()
