"""What the operators of a fold did: updates, time, memory and state of each, and the differences by version and round.

:mod:`ddcore.engine.meter` counts it in each worker; the profiles of several workers are added up. Must not import the
engine: the driver of a fold on Spark uses this module.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ddcore.base.lazy import numpy as np

OUTSIDE = -1  # the round of differences outside of loops
_VERSIONS, _ROUNDS = 64, 32  # ranges of versions and of rounds that a heat map tells apart
_CANDIDATES = 8  # heavy keys of an operator

Name = int | str  # the node of an operator, or the name of an output


@dataclass(slots=True)
class Cost:
    """What one operator did. ``taken`` and ``sent`` are updates, ``memory`` is in bytes, at the end of the fold.

    ``keys``: rows by heavy key, each at most what it had.
    """

    taken: int = 0
    sent: int = 0
    nanoseconds: int = 0
    memory: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    rows_written: int = 0
    bytes_written: int = 0
    keys: dict[str, int] = field(default_factory=dict)

    def add(self, other: Cost) -> None:
        """Add what the same operator did elsewhere."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for key, rows in [*other.keys.items()]:
            self.note(key, rows)

    def note(self, key: str, rows: int) -> None:
        """Add rows of a heavy key; only the heaviest keys are kept."""
        self.keys[key] = self.keys.get(key, 0) + rows
        if len(self.keys) > _CANDIDATES:
            del self.keys[min(self.keys, key=self.keys.__getitem__)]


_NUMBERS = [name for name in Cost.__slots__ if name != "keys"]


@dataclass(slots=True)
class Heat:
    """Differences by version and round, in ranges: ``cells[v, r]`` has those of the versions ``v << versions`` and on,
    and of the rounds ``r << rounds`` and on. Ranges get wider, so that there are few. Round -1: outside of loops.
    """

    versions: int = 0
    rounds: int = 0
    cells: dict[tuple[int, int], int] = field(default_factory=dict)
    span: tuple[int, int, int] | None = None  # of cells: the first and the last range of versions, the last of rounds

    def count(self, current: int, versions: np.ndarray) -> None:
        """Differences of one round at these versions: int64[n], n > 0. O(n), and O(1) where all are equal."""
        least, most = (int(versions[0]),) * 2 if len(versions) == 1 else (int(versions.min()), int(versions.max()))
        if least == most:
            self._add(least, current, len(versions))
        else:
            width = max(self.versions, _width(least, most, _VERSIONS))
            numbers = np.bincount((versions >> width) - (least >> width))
            for cell in np.flatnonzero(numbers).tolist():
                self._add(((least >> width) + cell) << width, current, int(numbers[cell]))

    def add(self, other: Heat) -> None:
        """Add the differences of another worker."""
        self._widen(max(self.versions, other.versions), max(self.rounds, other.rounds))
        for (version, current), number in other.cells.items():
            self._add(version << other.versions, current if current < 0 else current << other.rounds, number)

    def _add(self, version: int, current: int, number: int) -> None:
        cell = version >> self.versions, current >> self.rounds  # -1 >> n is -1
        if cell in self.cells:
            self.cells[cell] += number
        else:
            self.cells[cell] = number
            self._limit(*cell)

    def _limit(self, version: int, current: int) -> None:
        """Widen the ranges if there are too many with those of a new cell."""
        first, last, deepest = self.span or (version, version, current)
        self.span = first, last, deepest = min(first, version), max(last, version), max(deepest, current)
        more_versions, more_rounds = _width(first, last, _VERSIONS), _width(0, max(deepest, 0), _ROUNDS)
        if more_versions or more_rounds:
            self._widen(self.versions + more_versions, self.rounds + more_rounds)

    def _widen(self, versions: int, rounds: int) -> None:
        by_versions, by_rounds = versions - self.versions, rounds - self.rounds
        if by_versions == by_rounds == 0:
            return
        cells, self.cells = self.cells, {}
        self.versions, self.rounds = versions, rounds
        if self.span is not None:
            first, last, deepest = self.span
            self.span = first >> by_versions, last >> by_versions, deepest >> by_rounds
        for (version, current), number in cells.items():
            cell = version >> by_versions, current >> by_rounds
            self.cells[cell] = self.cells.get(cell, 0) + number


def _width(least: int, most: int, ranges: int) -> int:
    """By how many bits numbers have to be shifted so that they are in so many ranges."""
    width = 0
    while (most >> width) - (least >> width) >= ranges:
        width += 1
    return width


@dataclass
class Profile:
    """What a fold did, by operator; can be sent between processes."""

    costs: dict[Name, Cost] = field(default_factory=dict)
    heat: Heat = field(default_factory=Heat)
    compiling: int = 0  # nanoseconds in which kernels were compiled: of no operator

    def of(self, name: Name) -> Cost:
        """The cost of an operator or output, to be added to."""
        cost = self.costs.get(name)
        if cost is None:
            cost = self.costs[name] = Cost()
        return cost

    def absorb(self, other: Profile) -> None:
        """Add what another worker of the same fold did."""
        for name, cost in other.costs.items():
            self.of(name).add(cost)
        self.heat.add(other.heat)
        self.compiling = max(self.compiling, other.compiling)  # workers compile side by side
