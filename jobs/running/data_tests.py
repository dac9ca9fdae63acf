"""Data tests of a run: whether a collection that must stay empty has rows, checked between the fold and its commits.

The versions that count are those of the run at which an input has rows, and its last one. A test that is broken at any
of them is broken, also if a later one repairs it. With severity ``error`` the run ends there, and nothing of it is
committed; with ``warn`` it goes on.

A run that only appends corrections, because the program or its history has changed, leaves every version as it was
published. Its tests are checked at the version after, when that is folded: by the next run of the same command; or, if
there is nothing more to fold, here, on the contents that they will have then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcore.base.errors import BrokenTest
from ddcore.base.lattice import is_before
from ddcore.base.lazy import numpy as np
from ddcore.io.ledger.records import BrokenRecord
from ddcore.io.logs.corrections import correction
from ddcore.io.logs.updates import running_counts
from ddcore.io.project.times import Time, json_time
from ddcore.io.sources.intake import shown as shown_row
from ddcore.jobs.running.next_run import Effect
from ddcore.program.data_tests import ERROR, DataTest

if TYPE_CHECKING:
    from ddcore.io.delta.table_files import AddedFile, LiveFile
    from ddcore.io.ledger.version_names import VersionNames
    from ddcore.io.state.fold_result import FoldResult
    from ddcore.jobs.running.commits import Commits

_SHOWN = 3  # rows in a message
_LONGEST = 200  # characters of a row there
_AFTER = "_until"


@dataclass(frozen=True)
class Broken:
    """A test that does not hold: at ``times`` of the run, and ``rows`` at the first of them, with ``_count``."""

    test: DataTest
    times: Sequence[Time]
    rows: pl.DataFrame

    @property
    def record(self) -> BrokenRecord:
        """What the ledger keeps."""
        return BrokenRecord(self.times[0], len(self.times), len(self.rows))

    def fields(self, dims: Sequence[str], names: VersionNames) -> dict[str, Any]:
        """The fields of its JSON object."""
        first = self.times[0]
        return {
            "test": self.test.name,
            "severity": self.test.severity,
            "version" if len(dims) == 1 else "time": json_time(first, dims),
            **names.fields(first),
            "versions": len(self.times),
            "rows": len(self.rows),
        }

    def shown(self, names: VersionNames) -> str:
        """A sentence: the test, the versions, and some of the rows."""
        more, kind = len(self.times) - 1, "version" if len(names.dims) == 1 else "time"
        later = f" and at {more} later {kind}{'s' * (more > 1)}" if more else ""
        ordered = self.rows.sort([name for name in self.rows.columns if name != "_count"])
        rows = [_cut(shown_row(_plain(row))) for row in ordered.head(_SHOWN).iter_rows(named=True)]
        left = len(ordered) - len(rows)
        beside = f"; and {left} more row{'s' * (left > 1)}" if left else ""
        listed = ", ".join(f"({row})" for row in rows)
        return f"test {self.test.name} is broken at {names.named(self.times[0])}{later}: {listed}{beside}"


def check(
    tests: Sequence[DataTest],
    commits: Commits,
    gained: FoldResult,
    times: Sequence[Time],
    names: VersionNames,
    *,
    is_last: bool = True,
) -> list[Broken]:
    """The broken tests whose severity is ``warn``. Raises BrokenTest for one whose severity is ``error``, StorageError.

    ``times``: those of the run at which inputs have rows, and its last, in order. ``is_last``: the command folds
    no version after a run that appends. Writes nothing. Cost: the updates of the tests' collections, which have
    none as long as they hold.
    """
    if commits.upcoming.effect is Effect.APPEND and not is_last:
        return []
    broken = [verdict for test in tests if (verdict := _Tested(test, commits, gained, times).broken()) is not None]
    errors = [failure for failure in broken if failure.test.severity == ERROR]
    if not errors:
        return broken
    first, others = errors[0], [error.test.name for error in errors[1:]]
    also = f"; also broken: {', '.join(others)}" if others else ""
    raise BrokenTest(
        f"{first.shown(names)}{also}; nothing of run {commits.upcoming.number} is committed",
        f'correct the input, then run again; or set severity = "warn" ({first.test.source_line}), to let it pass',
    )


class _Tested:
    """One test in one run that is folded and not yet committed."""

    def __init__(self, test: DataTest, commits: Commits, gained: FoldResult, times: Sequence[Time]) -> None:
        self.test, self.commits, plan = test, commits, commits.plan
        self.dims = plan.dims
        self.times = [time for time in times if len(self.dims) > 1 or time[0] >= test.start]
        self.log = commits.log(test.output)
        self.table = f"outputs/{test.output}"
        self.files = gained.files.get(self.table, [])

    def broken(self) -> Broken | None:
        """The times at which it does not hold; None if there are none."""
        if not self.times:
            return None
        if self.commits.upcoming.effect is Effect.APPEND:
            rows = self._appended()
            return Broken(self.test, self.times[-1:], rows) if len(rows) else None
        history = self._history()
        if history.is_empty():
            return None
        running = running_counts(history, self.dims)
        times = list(self._in_order(running) if len(self.dims) == 1 else self._on_grid(running, history))
        return Broken(self.test, times, self._at(history, times[0])) if times else None

    def _history(self) -> pl.DataFrame:
        """All updates of the collection, up to the end of the run. Opens no file if there are none."""
        base, state = self.commits.upcoming.base, self.commits.live.get(self.table)
        waiting = base.corrections.get(self.table, ()) if base is not None else ()
        stored = [] if state is None else self.log.files(state)
        files: list[AddedFile | LiveFile] = [*stored, *waiting, *self.files]
        return self.log.collect(self.log.scan_files(files)) if files else pl.DataFrame()

    def _in_order(self, running: pl.DataFrame) -> Iterator[Time]:
        """The versions at which some row has a count other than 0, with one dimension."""
        (dim,), rows = self.dims, list(self.log.schema)
        following = pl.col(dim).shift(-1).over(rows).fill_null(np.iinfo(np.int64).max).alias(_AFTER)
        there = running.sort(*rows, dim).with_columns(following).filter(pl.col("_count") != 0)
        versions = np.array([time[0] for time in self.times], dtype=np.int64)
        begins, ends = (np.searchsorted(versions, there[name].to_numpy()) for name in (dim, _AFTER))
        change = np.zeros(len(versions) + 1, dtype=np.int64)
        np.add.at(change, begins, 1)
        np.add.at(change, ends, -1)
        return (Time([int(version)]) for version in versions[np.cumsum(change)[:-1] > 0])

    def _on_grid(self, running: pl.DataFrame, history: pl.DataFrame) -> Iterator[Time]:
        """The times to look at with several dimensions: also joins of times with rows."""
        inside = self.commits.upcoming.times.condition(self.dims) & (pl.col("_count") != 0)
        known = {Time(time) for time in running.filter(inside).select(self.dims).unique().iter_rows()}
        return (time for time in sorted(known | {*self.times}) if time in known or len(self._at(history, time)))

    def _at(self, history: pl.DataFrame, time: Time) -> pl.DataFrame:
        """The rows at a time, and how often each occurs."""
        counts = history.filter(is_before(self.dims, time)).group_by(*self.log.schema)
        return counts.agg(_count=pl.col("diff").cast(pl.Int128).sum()).filter(pl.col("_count") != 0)

    def _appended(self) -> pl.DataFrame:
        """The rows at the version after the last one, if nothing else happens there."""
        commits, last = self.commits, self.commits.upcoming.last
        held = commits.live.get(self.table)
        if held is None or not self.log.has_columns(held):
            held = None
        part, base = commits.rebuilding, commits.upcoming.base
        if part is not None and self.test.output not in part.outputs:
            waiting = () if base is None else base.corrections.get(self.table, ())
            updates = self.log.collect(self.log.scan_files(waiting))
        else:
            after = None if base is None or part is not None else base.last
            updates = correction(self.log, self.files, held, after, last)
        both = [updates] if held is None else [updates, self.log.collect(self.log.scan(held))]
        return self._at(pl.concat(both), Time([last.version + 1]))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its count, if that is not 1."""
    count = row.pop("_count")
    return row if count == 1 else {**row, "times" if "count" in row else "count": count}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
