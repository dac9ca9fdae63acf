"""The exchange without Spark: its driver and its tasks in this process, over an RDD that only pretends to be Spark's.

What Spark may do to a task is done here on purpose: a process that forgets everything between two jobs, a task that is
run again after it was done.
"""

from __future__ import annotations

import functools
import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.jobs.engines import exchange, tasks


class Rows:
    """An RDD: lazy partitions of elements, computed anew for every job that reads them."""

    def __init__(self, context: Context, parts: list[Callable[[], Iterable[Any]]]) -> None:
        self.context, self.parts = context, parts
        self.written: Sequence[Callable[[], Iterable[Any]]] = ()

    def mapPartitionsWithIndex(self, work: Any) -> Rows:
        def run(number: int) -> Iterable[Any]:
            made, given = [], list(self.parts[number]())
            for _ in range(self.context.attempts()):
                made = pickle.loads(pickle.dumps(list(work(number, iter(given)))))
            return made

        return Rows(self.context, [partial(run, number) for number in range(len(self.parts))])

    def mapPartitions(self, work: Any) -> Rows:
        return self.mapPartitionsWithIndex(lambda _, given: work(given))

    def partitionBy(self, parallelism: int, owner: Callable[[Any], int]) -> Rows:
        written = [functools.cache(part) for part in self.parts]

        def part(number: int) -> Iterable[Any]:
            return [pair for source in written for pair in source() if owner(pair[0]) % parallelism == number]

        divided = Rows(self.context, [partial(part, number) for number in range(parallelism)])
        divided.written = written
        return divided

    def write(self) -> None:
        """The first stage of a shuffle: its files stay until the end."""
        for source in self.written:
            source()

    def coalesce(self, parallelism: int) -> Rows:
        assert parallelism == 1
        return Rows(self.context, [self.collect])

    def localCheckpoint(self) -> None:
        self.parts = [functools.cache(part) for part in self.parts]

    @property
    def _jrdd(self) -> Rows:
        return self

    def count(self) -> int:
        return len(self.collect())

    def collect(self) -> list[Any]:
        return [each for part in self.parts for each in part()]


class Accumulator:
    """Takes reports; one of a task that ran twice counts once, as Spark has it for finished tasks."""

    def __init__(self) -> None:
        self.value: list[Any] = []

    def add(self, reports: list[Any]) -> None:
        self.value += reports


class Context:
    """A Spark context, as far as the exchange uses one."""

    def __init__(self, cores: int, rng: random.Random, unrest: float) -> None:
        self.defaultParallelism, self.rng, self.unrest = cores, rng, unrest

    def attempts(self) -> int:
        """How often the next task runs; before that its process may lose its memory."""
        if self.rng.random() < self.unrest:
            tasks._memories.clear()
        return 2 if self.rng.random() < self.unrest else 1

    def parallelize(self, rows: list[Any], parts: int) -> Rows:
        cuts = [len(rows) * part // parts for part in range(parts + 1)]
        return Rows(self, [partial(rows.__getitem__, slice(a, b)) for a, b in pairwise(cuts)])


def install(patch: pytest.MonkeyPatch, *, seed: int = 0, unrest: float = 0.2) -> None:
    """From here on ``engine="spark"`` starts no Spark."""
    rng = random.Random(seed)

    @contextmanager
    def context(conf: Any, master: Any, parallelism: int | None) -> Iterator[Context]:
        yield Context(parallelism or 3, rng, unrest)

    from ddcore.jobs.spark import session

    patch.setattr(session, "check", lambda: None)
    patch.setattr(session, "spark_context", context)
    patch.setattr(exchange, "collector", lambda context: Accumulator())
    patch.setattr(exchange, "write_shuffle", lambda context, divided: divided.write())
    patch.setattr(exchange, "_CUT_EVERY", 1 + seed % 4)
    patch.setattr(exchange, "SPLIT_ROWS", 4)


def tuning_of(seed: int) -> Tuning:
    """A tuning for the project of a seed: files are looked into; updates of a window are packed, and only those that a
    stored batch has partners of are joined.
    """
    tuning = Tuning(small_file_rows=0) if seed % 3 else DEFAULT
    return replace(tuning, packed_rows=1, packing_rows=1, partner_ratio=0) if seed % 2 else tuning
