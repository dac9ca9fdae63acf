"""The threads of a fold: parts of one step that are worked on side by side.

A step cuts its work into ranges, of keys or of packed rows, and puts the results together in their order. No key and no
row is in two ranges, so a fold gives the same log with any number of threads. The kernels, numpy and Polars release the
GIL.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["available", "each", "number", "using"]

_AHEAD = 2  # parts per thread that are begun before the first result is taken

P = TypeVar("P")
R = TypeVar("R")

_number: ContextVar[int] = ContextVar("threads", default=1)
_pools: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # the threads are those of the parent


def available() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def number() -> int:
    """The number of threads that :func:`each` uses here."""
    return _number.get()


@contextmanager
def using(threads: int) -> Iterator[None]:
    """Inside, :func:`each` uses so many threads."""
    token = _number.set(threads)
    try:
        yield
    finally:
        _number.reset(token)


def _pool(threads: int) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    if threads not in _pools:
        _pools[threads] = ThreadPoolExecutor(threads, "ddcore")
    return _pools[threads]


def each(work: Callable[[P], R], parts: Iterable[P]) -> Iterator[R]:
    """The results for the parts, in their order. Only some are ahead of the one that is taken, so memory is bounded.

    What ``work`` raises for the first part that fails is raised here. ``work`` has the context of the caller, and one
    thread.
    """
    threads, waiting = number(), iter(parts)
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
    pool = _pool(threads)
    settings = copy_context()
    settings.run(_number.set, 1)
    begun: deque[Future[R]] = deque(pool.submit(settings.copy().run, work, part) for part in (first, second))
    try:
        while begun:
            while len(begun) < _AHEAD * threads and (part := next(waiting, None)) is not None:
                begun.append(pool.submit(settings.copy().run, work, part))
            yield begun.popleft().result()
    finally:
        for future in begun:
            future.cancel()
        for future in begun:
            if not future.cancelled():
                future.exception()
