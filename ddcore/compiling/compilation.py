"""How long this process has compiled kernels, and who is told how far it is.

Kernels are compiled where they are first used, in the middle of some operator's work: the :func:`clock` stands still
meanwhile, so that no operator's time has it. Must not import anything heavy: every command loads this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, local
from time import perf_counter_ns
from typing import Protocol


class Listener(Protocol):
    """Is told how many kernels are compiled, of how many; and whether one is being compiled."""

    def __call__(self, done: int, total: int, *, going_on: bool) -> None:
        """Before a kernel is compiled, and after it."""


class _State:
    """Nanoseconds and kernels. Of the process, as kernels are: each is compiled once, by whatever calls it first."""

    spent = taken = done = expected = 0


_lock, _thread = Lock(), local()
_listeners: list[Listener] = []  # of the process as well: who calls a kernel knows of none of them


def clock() -> int:
    """Nanoseconds from some moment on, without those in which kernels were compiled."""
    return perf_counter_ns() - _State.spent


def take() -> int:
    """Nanoseconds in which kernels were compiled, since the last call."""
    with _lock:
        new, _State.taken = _State.spent - _State.taken, _State.spent
    return new


def expect(kernels: int) -> None:
    """So many kernels are missing."""
    _State.expected = _State.done + kernels


def add(listener: Listener) -> None:
    """From now on the listener is called before each kernel is compiled, and after it."""
    _listeners.append(listener)


@contextmanager
def telling(listener: Listener) -> Iterator[None]:
    """Inside, the listener is called before each kernel is compiled, and after it."""
    add(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def begin() -> None:
    """This thread compiles a kernel from now on."""
    _thread.start = perf_counter_ns()
    _tell(going_on=True)


def end() -> None:
    """This thread has compiled a kernel."""
    with _lock:
        _State.spent += perf_counter_ns() - _thread.start
        _State.done += 1
    _tell(going_on=False)


def _tell(*, going_on: bool) -> None:
    for listener in _listeners:
        listener(_State.done, max(_State.expected, _State.done), going_on=going_on)
