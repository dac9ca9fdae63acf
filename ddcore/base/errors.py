"""Every error this project raises on purpose.

    DdError                      exit 1
    ├── UsageError               exit 2   the command line or dd.toml is wrong
    ├── LockHeld                 exit 75  another process works on the warehouse
    ├── Mismatch                 exit 3   two collections differ that must be equal
    ├── BrokenTest               exit 4   a data test does not hold: the run is not committed
    ├── LateSource               exit 5   the newest rows of a source are older than expected
    ├── ProgramError             the program cannot be built: unknown column, types that do not meet
    │   └── ProgramChanged       stored state belongs to another program
    ├── DataError                rows that cannot be ingested
    │   ├── LateUpdate           an update at a time that is closed
    │   └── UnknownRetraction    a retraction of a row that does not exist
    ├── FoldError                the fold failed
    │   ├── NegativeMultiplicity a row with a negative count reached a reducer
    │   ├── Diverged             a loop did not reach its fixed point
    │   ├── DiffOverflow         a count or a sum that int64 cannot hold
    │   └── ExpressionError      a user's expression or function failed on its rows
    └── StorageError             the warehouse cannot be read or written

A message says what happened, where, and the value; a hint says what to do next, as a command where there is one.
"""

from __future__ import annotations

import dis
import signal
from collections.abc import Sequence
from typing import Any

__all__ = [
    "BrokenTest",
    "DataError",
    "DdError",
    "DiffOverflow",
    "Diverged",
    "ExpressionError",
    "FoldError",
    "LateSource",
    "LateUpdate",
    "LockHeld",
    "Mismatch",
    "NegativeMultiplicity",
    "ProgramChanged",
    "ProgramError",
    "StorageError",
    "UnknownRetraction",
    "UsageError",
]


class DdError(Exception):
    """Root of the tree. ``message`` is one line; ``hint`` is one line or empty."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders (Spark workers to the driver); subclasses with
        # other constructors would not survive the default protocol.
        return _restore, (type(self), self.message, self.hint, dict(self.__dict__))

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


def _restore(kind: type[DdError], message: str, hint: str, state: dict[str, Any]) -> DdError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.message, error.hint = message, hint
    error.__dict__.update(state)
    return error


class UsageError(DdError):
    """The command line, an environment variable or dd.toml names something that does not exist."""

    exit_code = 2


class LockHeld(DdError):
    """Another process holds the warehouse; the message names its host, pid, start and command."""

    exit_code = 75


class Mismatch(DdError):
    """Two collections differ that must be equal."""

    exit_code = 3


class BrokenTest(DdError):
    """A collection that must stay empty has rows; the message names the test, the versions and some rows.

    Nothing of the run is committed.
    """

    exit_code = 4


class LateSource(DdError):
    """The newest rows of an input are older than its declared source expects. All that is there was taken in."""

    exit_code = 5


class ProgramError(DdError):
    """The program cannot be built. Raised before any data is read."""


class ProgramChanged(ProgramError):
    """Stored state belongs to a program with another fingerprint."""


class DataError(DdError):
    """Rows of an input cannot be ingested; the message names the source, the column and the value."""


class LateUpdate(DataError):
    """An update has a time that is already closed."""


class UnknownRetraction(DataError):
    """A retraction of a row that is not in the collection at that version."""


class FoldError(DdError):
    """The fold failed; nothing of the run is stored."""


class NegativeMultiplicity(FoldError):
    """A reducer met a row whose count is below zero at a time it evaluates.

    Attributes: ``op`` (the operator), ``key`` (its key as a tuple), ``time`` (tuple of ints), ``count`` (int).
    """

    def __init__(self, op: str, key: tuple[Any, ...], time: tuple[int, ...], count: int) -> None:
        super().__init__(
            f"{op}: key {key!r} has the count {count} at time {time}",
            "retract only what was inserted, or pass allow_negative=True",
        )
        self.op, self.key, self.time, self.count = op, key, time, count


class Diverged(FoldError):
    """A loop still had differences after its last allowed round.

    Attributes: ``loop`` (its name and place), ``time`` (a time that still changes, rounds included), ``round``,
    ``moving`` (the number of remaining differences), ``dims`` (names of the time's first coordinates).
    """

    def __init__(
        self, loop: str, time: tuple[int, ...], round: int, moving: int, dims: Sequence[str] = ("version",)
    ) -> None:
        shown = ",".join(f"{dim}={coordinate}" for dim, coordinate in zip(dims, time, strict=False))
        super().__init__(
            f"loop {loop} did not reach a fixed point: at {shown if len(dims) > 1 else shown.replace('=', ' ')}, "
            f"round {round}, {moving} differences still move",
            "fix the loop's body, or raise max_rounds= in iterate()",
        )
        self.loop, self.time, self.round, self.moving, self.dims = loop, time, round, moving, tuple(dims)


class DiffOverflow(FoldError):
    """A diff, a count or a sum in a result is more than int64 holds."""

    def __init__(
        self, message: str, hint: str = "look for values or diffs that are far too large among the inputs"
    ) -> None:
        super().__init__(message, hint)


class ExpressionError(FoldError):
    """A user's expression or function failed, or left the range of its type, on some rows."""


class StorageError(DdError):
    """A file or table of the warehouse cannot be read or written."""


def is_interrupt(error: BaseException) -> bool:
    """Whether ``error`` comes from a signal (Ctrl-C), not from a ``raise`` or an exit in a user's program.

    A signal's exception is raised between any two instructions, or in its handler.
    """
    trace = error.__traceback__
    if not isinstance(error, KeyboardInterrupt) or trace is None:
        return isinstance(error, KeyboardInterrupt)
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    if dis.opname[code.co_code[trace.tb_lasti]] != "RAISE_VARARGS":
        return True
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    return any(getattr(getattr(handler, "__func__", handler), "__code__", None) is code for handler in handlers)
