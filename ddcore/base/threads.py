"""The threads of a fold: parts of one step that are worked on side by side.

A step cuts its work into ranges, of keys or of packed rows, and puts the results together in their order. No key and no
row is in two ranges, so a fold gives the same log with any number of threads. The kernels, numpy and Polars release the
GIL.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from itertools import chain, islice
from threading import local
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_AHEAD = 2  # parts per thread that are begun before the first result is taken

P = TypeVar("P")
R = TypeVar("R")


class _Crew(local):
    """Of a thread: how many work on the parts of the step of which it works on one, itself included."""

    size = 1


_crew = _Crew()
_pools: dict[int, ThreadPoolExecutor] = {}  # a cache; by their number, as that is all in which they differ
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # the threads are those of the parent


def available() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def beside() -> int:
    """How many threads work on parts of the same step as this one, which is counted."""
    return _crew.size


def free(threads: int) -> int:
    """How many of so many threads :func:`each` uses here: a part of a step has one."""
    return 1 if _crew.size > 1 else threads


def share(rows: int, most: int, threads: int, least: int) -> int:
    """How many of some rows or keys a part has: at most ``most``, and all threads have equally many parts, unless these
    would have fewer than ``least``.
    """
    parts = -(-rows // most)
    parts += -parts % threads
    return max(1, -(-rows // max(1, min(parts, rows // least))))


def _pool(threads: int) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    if threads not in _pools:
        _pools[threads] = ThreadPoolExecutor(threads - 1, "ddcore")
    return _pools[threads]


def parallel_map(work: Callable[[P], R], parts: Iterable[P], threads: int) -> Iterator[R]:
    """The results for the parts, in their order, by so many threads. Only some are ahead of the one that is
    taken, so memory is bounded.

    What ``work`` raises for the first part that fails is raised here. ``work`` has the context of the caller, and one
    thread. The caller's thread is one of those that work, so that few parts have to be handed over.
    """
    threads, waiting = free(threads), iter(parts)
    first = next(waiting, None)
    second = next(waiting, None)
    if first is None:
        return
    if threads == 1 or second is None:
        yield work(first)
        if second is not None:
            yield work(second)
        yield from map(work, waiting)
        return
    crew, coming = _Parts(work, threads), chain((first, second), waiting)
    begun: deque[Future[R]] = deque()
    try:
        while True:
            begun.extend(map(crew.take, islice(coming, _AHEAD * threads - len(begun))))
            if not begun:
                return
            yield crew.finish(begun.popleft())
    finally:
        crew.dismiss()


class _Parts(Generic[P, R]):
    """The threads of one :func:`each`, of which the caller's is one, and the parts that none of them has begun."""

    def __init__(self, work: Callable[[P], R], threads: int) -> None:
        self._work, self._pool, self._most = work, _pool(threads), threads - 1
        self._threads, self._context = threads, copy_context()
        self._parts: deque[tuple[Future[R], P]] = deque()
        self._others: list[Future[None]] = []

    def take(self, part: P) -> Future[R]:
        """A part to work on."""
        from concurrent.futures import Future

        result: Future[R] = Future()
        self._parts.append((result, part))
        return result

    def finish(self, result: Future[R]) -> R:
        """The result of a part; until it is there this thread works too."""
        self._others = [other for other in self._others if not other.done()]
        for _ in range(min(self._most - len(self._others), len(self._parts) - 1)):
            self._others.append(self._pool.submit(self._context.copy().run, self._work_on))
        while not result.done() and self._do_one(Exception):
            pass
        return result.result()

    def dismiss(self) -> None:
        """No part is begun any more; returns when none is worked on."""
        self._parts.clear()
        for other in self._others:
            if not other.cancel():
                other.exception()

    def _work_on(self) -> None:
        while self._do_one(BaseException):
            pass

    def _do_one(self, kept: type[BaseException]) -> bool:
        """Work on a part; False if there is none. Errors of the kind ``kept`` are its result."""
        try:
            result, part = self._parts.popleft()
        except IndexError:
            return False
        _crew.size = self._threads
        try:
            result.set_result(self._work(part))
        except kept as error:
            result.set_exception(error)
        finally:
            _crew.size = 1
        return True
