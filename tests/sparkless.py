"""The exchange without Spark: its driver and its tasks in this process, over frames that only pretend to be Spark's.

What Spark may do to a task is done here on purpose: a process that forgets everything between two jobs, a task that is
run again after it was done.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from ddcore.jobs import exchange, tasks

Partition = Callable[[], Iterator[pa.RecordBatch]]


class Frame:
    """A data frame: lazy partitions of record batches, computed anew for every job that reads them."""

    def __init__(self, session: Session, parts: list[Partition]) -> None:
        self.session, self.parts = session, parts

    def mapInArrow(self, work: Any, columns: str) -> Frame:
        def run(number: int, part: Partition) -> Iterator[pa.RecordBatch]:
            made, given = [], list(part())
            for _ in range(self.session.attempts()):
                self.session.part = number
                made = list(work(iter(given)))
            yield from made

        return Frame(self.session, [partial(run, n, p) for n, p in enumerate(self.parts)])

    def union(self, other: Frame) -> Frame:
        return Frame(self.session, self.parts + other.parts)

    def repartitionById(self, width: int, by: Any) -> Frame:
        def part(number: int) -> Iterator[pa.RecordBatch]:
            for source in self.parts:
                for batch in source():
                    mine = [(each if by == "dest" else 0) == number for each in batch["dest"].to_pylist()]
                    yield batch.filter(pa.array(mine, pa.bool_()))

        return Frame(self.session, [partial(part, n) for n in range(width)])

    def localCheckpoint(self) -> Frame:
        kept = [list(part()) for part in self.parts]
        return Frame(self.session, [partial(iter, batches) for batches in kept])

    def toArrow(self) -> pa.Table:
        return pa.Table.from_batches([batch for part in self.parts for batch in part()])


class Accumulator:
    """Takes reports; one of a task that ran twice counts once, as Spark has it for finished tasks."""

    def __init__(self) -> None:
        self.value: list[Any] = []

    def add(self, reports: list[Any]) -> None:
        self.value += reports


@dataclass
class Rows:
    """An RDD of one partition."""

    session: Session
    rows: Callable[[], Iterator[Any]]

    def mapPartitions(self, work: Any) -> Rows:
        def run() -> Iterator[Any]:
            given, made = list(self.rows()), []
            for _ in range(self.session.attempts()):
                made = list(work(iter(given)))
            yield from made

        return Rows(self.session, run)

    def collect(self) -> list[Any]:
        return list(self.rows())


class Session:
    """A Spark session and its context, as far as the exchange uses one."""

    def __init__(self, cores: int, rng: random.Random, unrest: float) -> None:
        self.defaultParallelism, self.rng, self.unrest, self.part = cores, rng, unrest, 0

    @property
    def sparkContext(self) -> Session:
        return self

    def attempts(self) -> int:
        """How often the next task runs; before that its process may lose its memory."""
        if self.rng.random() < self.unrest:
            tasks._memory = tasks._Memory()
        return 2 if self.rng.random() < self.unrest else 1

    def accumulator(self, start: list[Any], kind: Any) -> Accumulator:
        return Accumulator()

    def parallelize(self, rows: list[Any], parts: int) -> Rows:
        assert parts == 1
        return Rows(self, partial(iter, rows))

    def range(self, start: int, end: int, step: int, parts: int) -> Frame:
        return Frame(self, [lambda: iter(()) for _ in range(parts)])


def install(patch: pytest.MonkeyPatch, *, seed: int = 0, unrest: float = 0.2) -> None:
    """From here on ``engine="spark"`` starts no Spark."""
    rng = random.Random(seed)
    current: list[Session] = []

    @contextmanager
    def session(conf: Any, master: Any, width: int | None = 1, *, bulk: bool = False) -> Iterator[Session]:
        current[:] = [Session(width or 3, rng, unrest)]
        yield current[0]

    def read(self: Any, log: Any, files: Any) -> Frame:
        table = ds.dataset([str(log.folder / file.path) for file in files]).to_table(columns=list(log.columns))
        version = pa.compute.field(log.dims[0])
        table = table.filter((version >= self.fold.first) & (version <= self.fold.last))
        half = len(table) // 2
        pieces = [table[:half], table[half:]]
        return Frame(self.session, [partial(iter, piece.to_batches()) for piece in pieces])

    from ddcore.jobs import session as sessions

    patch.setattr(sessions, "spark", session)
    patch.setattr(sessions, "spark_context", session)
    patch.setattr(exchange._Exchange, "_read", read)
    patch.setattr(tasks, "_part", lambda: current[0].part)
    patch.setattr(exchange, "_zero", lambda: 0)
    patch.setattr(exchange, "_lists", lambda: None)
