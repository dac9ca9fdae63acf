"""The budget of a fold: what it may use. It goes from whoever runs a worker to its steps, traces and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from ddcore.base import threads
from ddcore.base.memory import returned_memory
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.traces.spilling import UNLIMITED, Memory

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Budget:
    """``memory``, and where arrays that come to rest lie; the number of ``threads``; and the sizes by which ways are
    chosen, ``tuning``. Results depend on none of them.
    """

    memory: Memory = UNLIMITED
    threads: int = 1
    tuning: Tuning = DEFAULT

    @property
    def free_threads(self) -> int:
        """How many threads may be used here: a part of a step has one."""
        return threads.free(self.threads)

    def map(self, work: Callable[[P], R], parts: Iterable[P]) -> Iterator[R]:
        """The results for the parts, in their order, by all threads (:func:`ddcore.base.threads.parallel_map`)."""
        return threads.parallel_map(work, parts, self.threads)

    def share(self, rows: int, most: int) -> int:
        """How many of some rows or keys a part has, at most ``most`` (:func:`ddcore.base.threads.share`)."""
        return threads.share(rows, most, self.free_threads, self.tuning.part_rows)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, freed memory goes back to the system at once, if it is limited."""
        with returned_memory() if self.memory.is_limited else nullcontext():
            yield


ALONE = Budget()
"""One thread, and all the memory there is."""
