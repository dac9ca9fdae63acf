"""How many workers fold a window on Spark: by its rows, the stored ones, and what earlier runs of the program took.

Several workers take less time by the clock and no less work, and the start of each further one has a price: its
executor, its Python process, the exchange. So a window that was never measured has one worker, unless it may need the
memory of several; later ones have as many as pay, by the run that was most like it.

A number that a user gives is the most. Whatever its share, a worker runs the operators, exchanges messages and writes
files of all arrangements: so many rows, or so much work, must be there for each. Both grow with the program: rows times
arrangements are the work, and arrangements what a worker does in any case.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

from ddcore.base.errors import UsageError
from ddcore.base.tuning import Tuning
from ddcore.io.ledger.workloads import Workload
from ddcore.io.state.fold_result import FoldResult
from ddcore.jobs.fold import Fold
from ddcore.text.wording import counted

_UNLIKE = 5.0  # at which distance a run says nothing: 32 times the rows
_STORED = 0.25  # what a stored row counts of a new one in it
_EXCHANGED = 0.06  # the share of the work that is more with several workers, where it was not measured
_PAYS = 0.9  # of the seconds of fewer workers: with more of them, further ones do not pay
_MOST = 1 << 16
GIVEN = "as --parallelism, DDCORE_PARALLELISM or dd.toml says"

WORKER_ROWS = "DDCORE_WORKER_ROWS"


@dataclass(frozen=True)
class WorkerCount:
    """The number of workers for a window of ``rows`` beside ``stored`` ones; ``loads`` were measured before.

    ``memory_set``: each worker keeps to a size, and spills. Else each gets no more of the window than
    ``tuning.parallel_rows``, if there are enough workers.
    """

    rows: int
    stored: int
    loads: Sequence[Workload]
    tuning: Tuning
    memory_set: bool = False

    @classmethod
    def of(cls, fold: Fold) -> WorkerCount:
        """For a fold."""
        settings = fold.settings
        stored = sum(file.rows for files in fold.stored.files.values() for file in files)
        return cls(fold.rows, stored, fold.loads, settings.tuning, settings.memory is not None)

    @property
    def may_be_several(self) -> bool:
        """Whether it is several if Spark runs enough tasks at a time."""
        return self.chosen()[0] > 1

    def chosen(self, room: int | None = None) -> tuple[int, str]:
        """How many workers, and why, in words. ``room``: how many there can be, None where that does not matter."""
        most = room or _MOST
        limit, rows = self.tuning.parallel_rows, counted(self.rows, "row")
        if not self._like():
            if self.rows < limit:
                return 1, f"{rows} of the window, fewer than {limit:,}"
            return most, f"as many as Spark runs at a time, for {rows} are not fewer than {limit:,}"
        least = 1 if self.memory_set else min(most, max(1, -(-self.rows // limit)))
        best = least
        for number in _numbers(least, most):
            if self.seconds(number) < _PAYS * self.seconds(best):
                best = number
        return best, self._reason(best, least, room)

    def given(self, most: int) -> tuple[int, str]:
        """How many of the workers that a user wants have enough to do, and why so many, in words. Raises UsageError."""
        least = worker_rows(self.tuning)
        if most == 1 or self.rows >= most * least:
            return most, GIVEN
        enough = max(self.rows // least, int(self._worked() / self.tuning.worker_seconds), 1)
        if enough >= most:
            return most, GIVEN
        return enough, f"not {most}: {counted(self.rows, 'row')} of the window, and {least:,} are worth a worker"

    def owner_rows(self) -> int:
        """How many rows must reach an arrangement for each worker that owns some of it, fewer where rows took long in
        an earlier run like this one. 0: all own some. Raises UsageError.
        """
        least = worker_rows(self.tuning)
        if not least:
            return 0
        worth = max(1, self.rows) / least * self.tuning.worker_seconds  # seconds of work, where nobody knows
        return max(1, int(self.tuning.owner_rows * min(1.0, worth / max(worth, self._worked()))))

    def _worked(self) -> float:
        """The least seconds of work that runs like this one say it is; 0 where none was."""
        return min((load.worked * self._scale(load) for load in self._like()), default=0.0)

    def seconds(self, number: int) -> float:
        """What so many workers take by the clock, with the start of further ones, by a run that was like this one."""
        like = self._like()
        if number == 1:  # several have no less work: so one that took far too long once is not believed for ever
            nearest = {load.workers: load for load in reversed(like)}
            return min(load.worked * self._scale(load) for load in nearest.values())
        # Runs of as many workers say all; of several others, what an exchange takes; of one, only its own work.
        load = min(like, key=lambda load: (load.workers != number, load.workers == 1))
        exchanged = load.seconds - load.worked / load.workers if load.workers > 1 else _EXCHANGED * load.worked
        seconds = load.seconds if load.workers == number else load.worked / number + exchanged
        return self._start() + seconds * self._scale(load)

    def _reason(self, best: int, least: int, room: int | None) -> str:
        like, times = self._like()[0], [self._shown(number) for number in sorted({1, max(2, best)})]
        why = f"by run {like.run}, {' and '.join(times)}"
        if best == least > 1:
            why += f"; no more than {counted(self.tuning.parallel_rows, 'row')} for each"
        return why if room is None else f"{why}; Spark has room for {room}"

    def _shown(self, number: int) -> str:
        text = f"{counted(number, 'worker')} take{'s' * (number == 1)} {self.seconds(number):.1f} s"
        return text + (f", {self._start():.1f} s of it to start" if number > 1 else "")

    def _start(self) -> float:
        """The seconds until further workers are there, beyond those of one."""
        one = [load.start for load in self.loads if load.workers == 1]
        several = [load.start for load in self.loads if load.workers > 1]
        if not several:
            return self.tuning.worker_start_seconds
        return max(0.0, min(several) - min(one, default=0.0))

    def _like(self) -> list[Workload]:
        """The runs like this one, the most like it first; of equal ones the newest."""
        loads = [load for load in reversed(self.loads) if self._distance(load) <= _UNLIKE]
        return sorted(loads, key=self._distance)

    def _distance(self, load: Workload) -> float:
        new = abs(log2((self.rows + 1) / (load.rows + 1)))
        return new + _STORED * abs(log2((self.stored + 1) / (load.stored + 1)))

    def _scale(self, load: Workload) -> float:
        return max(1, self.rows) / max(1, load.rows)


def worker_rows(tuning: Tuning) -> int:
    """How many rows of a window are worth a worker. Raises UsageError."""
    text = os.environ.get(WORKER_ROWS) or str(tuning.worker_rows)
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise UsageError(f"{WORKER_ROWS}={text}: not a number of rows", f"for example: {tuning.worker_rows}")
    return int(text)


def owner_rows(fold: Fold) -> int:
    """The same of a fold; all own some in a rebuild, as nobody knows before how many stored rows it reads."""
    return WorkerCount.of(fold).owner_rows() if fold.rebuilding is None else 0


def workload(fold: Fold, result: FoldResult, workers: int, seconds: float) -> Workload:
    """What the workers of a fold took, of which the driver knows how long it waited for them: see :class:`Workload`."""
    start = max(0.0, seconds - result.took)
    stored = WorkerCount.of(fold).stored
    return Workload(0, workers, fold.rows, stored, result.took, result.worked, start, result.sent)


def _numbers(least: int, most: int) -> list[int]:
    """The numbers that are compared: doubling, and the greatest."""
    numbers = [least]
    while numbers[-1] * 2 < most:
        numbers.append(numbers[-1] * 2)
    return numbers if most == least else [*numbers, most]
