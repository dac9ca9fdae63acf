"""How even the work of several workers is, in one process: they are threads, and what they send goes through memory.

``python -m bench.balance_engine PROJECT WORKERS`` folds a project and prints one JSON object: the load of the busiest
worker over the mean (``balance``); the sum of the greatest loads of all supersteps over that of the means (``waits``),
without the reading before the first; and how many supersteps there are. A load is the updates and pending times that a
worker handled and the updates that its operators sent, so no figure depends on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from bench import without_spark
from ddcore.engine.profile import Profile
from ddcore.io.storage import scratch
from ddcore.jobs.engines.protocol import Report, SharedFold
from ddcore.jobs.engines.worker_count import WORKER_ROWS
from ddcore.jobs.engines.workers import Member

Header = dict[str, Any]


class Room:
    """Where the workers meet: what was sent to each of them, and what all say at the end of an exchange."""

    def __init__(self, number: int) -> None:
        self.barrier = threading.Barrier(number)
        self.parts: list[list[tuple[Header, bytearray]]] = [[] for _ in range(number)]
        self.notes: list[Header] = [{} for _ in range(number)]


class Neighbours:
    """The exchange of one worker with those of its process, as :class:`ddcore.jobs.engines.peers.Peers` does it."""

    def __init__(self, room: Room, rank: int) -> None:
        self.room, self.rank = room, rank
        self.sent, self.seconds = 0, 0.0

    def exchange(
        self,
        note: Header,
        parts: Mapping[int, Iterator[Any]] | None = None,
        accept: Callable[[Header, bytearray], None] = lambda header, body: None,
    ) -> list[Header]:
        """Leave parts for their workers, take what the others left, and return the notes of all."""
        room = self.room
        for peer, some in (parts or {}).items():
            for header, buffers in some:
                body = bytearray(b"".join(bytes(buffer) + bytes(-len(buffer) % 8) for buffer in buffers))
                room.parts[peer].append(({**header, "sizes": [len(buffer) for buffer in buffers]}, body))
                self.sent += len(body)
        room.notes[self.rank] = note
        room.barrier.wait()
        arrived, room.parts[self.rank] = room.parts[self.rank], []
        notes = [*room.notes]
        room.barrier.wait()  # all have taken theirs
        for header, body in arrived:
            accept(header, body)
        return notes


class Counted(Member):
    """A worker that notes its load in each superstep."""

    loads: list[int]

    def _superstep(self, position: Any) -> None:
        before = _load(self.worker.handled, self.worker.meter.profile)
        super()._superstep(position)
        self.loads.append(_load(self.worker.handled, self.worker.meter.profile) - before)


def _load(handled: int, profile: Profile) -> int:
    return handled + sum(cost.sent for cost in profile.costs.values())


def together(shared: SharedFold) -> tuple[list[Report], list[list[int]]]:
    """The reports of all workers of a fold, and their loads in each superstep. Raises what one of them raises."""
    room, settings, members = Room(shared.parallelism), shared.fold.settings, list[Counted]()
    reports, errors = list[Report](), list[BaseException]()

    def work(member: Counted) -> None:
        try:
            with member.budget.held():
                reports.append(member.fold())
        except BaseException as error:
            errors.append(error)
            room.barrier.abort()

    for rank in range(shared.parallelism):
        found: Future[Any] = Future()
        found.set_result(Neighbours(room, rank))
        members.append(Counted(shared, rank, found, scratch.budget(settings.memory, 1, settings.tuning)))
        members[-1].loads = []
    threads = [threading.Thread(target=work, args=(member,)) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return reports, [member.loads for member in members]


def figures_of(reports: Sequence[Report], loads: Sequence[Sequence[int]]) -> dict[str, float]:
    """Of a fold's reports, and its workers' loads in each superstep."""
    totals = [_load(report.handled, report.gained.profile) for report in reports if report.gained is not None]
    steps = [*zip(*loads, strict=True)]
    return {
        "balance": max(totals) * len(totals) / sum(totals),
        "waits": sum(map(max, steps)) * len(totals) / sum(map(sum, steps)),
        "supersteps": len(steps),
    }


def fold(folder: str, number: int) -> tuple[list[Report], list[list[int]]]:
    """Fold a project with so many workers: what :func:`together` returns."""
    found: list[tuple[list[Report], list[list[int]]]] = []

    def in_tasks(spark: Any, task: Any, tasks: int = 1) -> list[Report]:
        found.append(together(pickle.loads(task.args[0])))
        return found[0][0]

    os.environ[WORKER_ROWS] = "0"  # all of them, however few rows there are
    without_spark.fold(folder, number, in_tasks)
    return found[0]


def main() -> None:
    """Read the command line and fold."""
    parser = argparse.ArgumentParser(description="Fold by several workers in one process, and compare their loads.")
    parser.add_argument("project", help="a project's folder")
    parser.add_argument("workers", type=int)
    options = parser.parse_args()
    print(json.dumps(figures_of(*fold(options.project, options.workers))))


if __name__ == "__main__":
    main()
