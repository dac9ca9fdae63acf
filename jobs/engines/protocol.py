"""What the driver of a fold on Spark sends to its tasks, and what they report.

Must not import the engine: the driver loads this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddcore.base.errors import DdError, Diverged
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.engine.large_groups import LargeGroups
from ddcore.engine.profile import Profile
from ddcore.io.delta.table_files import LiveFile
from ddcore.io.project.times import Frontier, Window
from ddcore.io.state.fold_result import FoldResult, Stored
from ddcore.io.storage.store import Place
from ddcore.jobs.engines.partitioning import Division
from ddcore.operators.block import Position
from ddcore.planning.rebuilding import Rebuilding

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator

__all__ = ["Constants", "Report", "Split", "Superstep", "Task", "Waiting", "collector", "least_of", "raise_first"]


@dataclass(frozen=True)
class Task:
    """The parameters of every task of a fold. ``plan`` is pickled once.

    ``division`` gives the key codes to ``parallelism`` workers. The times in ``window`` are folded; ``upper`` is
    the frontier for the workers, as in :class:`Fold`. ``resumes``: for each worker there is a :class:`Waiting`, with
    what earlier runs left. ``rebuilding``: as in :class:`Fold`. ``memory``: the bytes that each process that
    works on tasks should stay below. ``tuning``: as for :class:`Worker`.
    """

    token: str
    plan: bytes
    stored: Stored
    staging: Place
    division: Division
    parallelism: int
    window: Window
    upper: Frontier | None
    resumes: bool
    rebuilding: Rebuilding | None = None
    memory: int | None = None
    tuning: Tuning = DEFAULT


@dataclass(frozen=True)
class Split:
    """Rows ``[start, start + rows)`` of one data file of an input."""

    input: str
    file: LiveFile
    start: int
    rows: int


@dataclass(frozen=True)
class Waiting:
    """What earlier runs left in the range of a worker: pending times and held updates, or for a rebuild the history of
    arrangements.
    """

    partition: int


@dataclass(frozen=True)
class Constants:
    """The rows that the program spells out, at this time."""

    time: tuple[int, ...]


@dataclass(frozen=True)
class Superstep:
    """One round of all workers: the work from ``position`` on, the least anywhere, up to ``horizon`` or to the end.

    Numbers count from 1. ``staged``: for each worker the steps before of which it left a file.
    """

    number: int
    position: Position | None
    horizon: Position | None
    staged: Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class Report:
    """A task's report to the driver: the least position with work that it sent or keeps, and how many updates wait;
    for which workers it staged files; its ``load``, the updates and pending times that it started with, and how many
    ``moved``, divided by their keys; what it wrote; or its error, and at which position; the ``groups`` that it noted;
    the ``profile`` of what it did.
    """

    partition: int
    position: Position | None = None
    waiting: int = 0
    staged: Sequence[int] = ()
    load: int = 0
    moved: int = 0
    error: DdError | None = None
    gained: FoldResult | None = None
    groups: LargeGroups = field(default_factory=LargeGroups)
    profile: Profile = field(default_factory=Profile)


def collector(context: SparkContext) -> Accumulator[list[Report]]:
    """An accumulator of the reports of one job's tasks. A retried task reports again."""
    from pyspark.accumulators import AccumulatorParam

    class Lists(AccumulatorParam[list[Report]]):
        def zero(self, value: list[Report]) -> list[Report]:
            return []

        def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:
            return value1 + value2

    return context.accumulator([], Lists())


def least_of(reports: Iterable[Report]) -> Position | None:
    """The least position at which work waits, or None."""
    return min((report.position for report in reports if report.position is not None), default=None)


def raise_first(reports: Iterable[Report]) -> None:
    """Raise the error at the least position, if any. For a loop that diverged, the counts of all ranges are summed."""
    failed = [(report.position or (), report.error) for report in reports if report.error is not None]
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
