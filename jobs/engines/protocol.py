"""What the driver of a fold by several workers gives to them, and what they report.

Must not import the engine: the driver loads this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ddcore.base.errors import DdError, Diverged
from ddcore.io.delta.table_files import LiveFile
from ddcore.io.state.fold_result import FoldResult
from ddcore.jobs.engines.division import Division
from ddcore.jobs.engines.routes import Routing
from ddcore.jobs.fold import Fold
from ddcore.operators.block import Position


class Unreachable(Exception):
    """The workers of a fold cannot reach each other."""


@dataclass(frozen=True)
class Credentials:
    """What only the workers of a fold know: a secret, and where they encrypt, a certificate with its key."""

    secret: bytes = field(repr=False)
    certificate: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Split:
    """Rows ``[start, start + rows)`` of one data file of an input."""

    input: str
    file: LiveFile
    start: int
    rows: int


@dataclass(frozen=True)
class SharedFold:
    """A fold of ``parallelism`` workers. ``division`` gives the key codes to them, ``splits`` are what each of
    them reads. Only who has ``credentials`` is one of them.
    """

    fold: Fold
    routing: Routing
    division: Division
    splits: Sequence[Sequence[Split]]
    parallelism: int
    credentials: Credentials


@dataclass(frozen=True)
class Report:
    """What a worker has written; or its error, and at which position. Neither: another worker had an error."""

    worker: int
    gained: FoldResult | None = None
    error: DdError | None = None
    position: Position = ()
    supersteps: int = 0
    handled: int = 0  # updates and pending times
    sent: int = 0  # bytes


def raise_first(reports: Iterable[Report]) -> None:
    """Raise the error at the least position, if any. For a loop that diverged, the counts of all ranges are summed."""
    failed = [(report.position, report.error) for report in reports if report.error is not None]
    first_position = min((position for position, _ in failed), default=())
    errors = [error for position, error in failed if position == first_position]
    diverged = [error for error in errors if isinstance(error, Diverged)]
    if diverged:
        first = min(diverged, key=lambda error: (error.round, error.time))
        same = [error for error in diverged if (error.loop, error.time, error.round) == _where(first)]
        raise Diverged(*_where(first), sum(error.moving for error in same), first.dims)
    if errors:
        raise errors[0]


def _where(error: Diverged) -> tuple[str, tuple[int, ...], int]:
    return error.loop, error.time, error.round
