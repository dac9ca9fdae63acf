"""The follower: a process that stays, looks at the declared sources again and again, and syncs what is new.

Each sync is that of :mod:`ddcore.jobs.sync`, with its lock, its commits and its guarantees; between two of them the
warehouse is free for other commands. What Python has imported, the kernels and the program's plan stay in memory. A
look costs a listing for each source; only where something differs from the last sync does one begin.
"""

from __future__ import annotations

import gc
import math
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ddcore.base.errors import DdError, LockHeld, UsageError
from ddcore.io.delta.deltalog import commit_file, versions_of
from ddcore.io.ledger.freshness import Freshness
from ddcore.io.project.project import FILE_NAME, Project
from ddcore.io.sources.finding import find_snapshots, find_sources
from ddcore.io.sources.remote import GLOB, location_of
from ddcore.io.sources.snapshots import Snapshot
from ddcore.io.storage import store
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs.sync import SyncReport, sync
from ddcore.jobs.warm import Warm

_NOTHING = object()  # no look yet
_UPSTREAM = "/"  # in a look: the ledger of the warehouse whose inputs are read; no input has this name
_PATIENCE = 60.0  # seconds until what failed is tried again, if nothing has changed
_COLLECTED = 256  # syncs between two collections of garbage

Look = Mapping[str, Any]


@dataclass
class Told:
    """What a follower has done so far, for metrics and the health file. Times are in seconds since 1970."""

    syncs: int = 0
    errors: int = 0
    looks: int = 0
    looked: float = 0.0
    synced: float = 0.0
    took: float = 0.0
    error: str = ""
    last: SyncReport | None = None
    rows: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def add(self, report: SyncReport) -> None:
        """Count a sync."""
        self.syncs += 1
        self.synced, self.took, self.error, self.last = time.time(), report.took, "", report
        for ingest in report.ingests:
            if not ingest.nothing_new:
                self._count("in", ingest.input, ingest.plus, ingest.minus)
        for _, _, outputs in report.run.versions:
            for name, (plus, minus) in outputs.items():
                self._count("out", name, plus, minus)

    def _count(self, side: str, name: str, plus: int, minus: int) -> None:
        for sign, number in (("+", plus), ("-", minus)):
            key = side, name, sign
            self.rows[key] = self.rows.get(key, 0) + number


class Follower:
    """Follows the sources of a project until ``stop`` is set. ``every``: seconds between two looks.

    A sync begins when nothing has changed for ``settled`` seconds, or after ``longest``: sources that are committed one
    after the other are one sync. ``tell`` gets the report of each sync that had something new, ``fail`` each error,
    once for a series of the same, ``late`` each source whose rows have become older than expected; ``looked`` is called
    after each look.
    """

    def __init__(
        self, project: Project, options: Mapping[str, Any], *, every: float, engine: str, parallelism: int | None,
        tell: Callable[[SyncReport], None], fail: Callable[[DdError], None], looked: Callable[[Told], None],
        late: Callable[[Freshness], None],
        settled: float = 0.1, longest: float = 1.0,
    ) -> None:  # fmt: skip
        self.project, self.options, self.every = project, options, every
        self.engine, self.parallelism = engine, parallelism
        self.tell, self.fail, self.looked, self.late = tell, fail, looked, late
        self.settled, self.longest = settled, longest
        self.stop, self.done = threading.Event(), Told()
        self._code = dict(self._program())
        self._retry = 0.0
        self._late = frozenset[str]()  # the inputs of which that was told
        self._warm = Warm()
        self._known: dict[str, tuple[Any, ...]] = {}  # what sources are like
        self._commits: dict[str, dict[str, _Commit | None]] = {}  # by which commits, where they are Delta tables
        self._found: dict[str, Sequence[Any]] = {}  # such tables, opened, for the next sync

    def follow(self) -> bool:
        """Look and sync until ``stop`` is set; True where the program or ``dd.toml`` has changed: start again then.

        UsageError for what waiting does not mend.
        """
        seen: Look | object | None = _NOTHING
        while not self.stop.is_set():
            begin = time.monotonic()
            if dict(self._program()) != self._code:
                return True
            now = self._look()
            if now != seen or (self.done.error and begin >= self._retry):
                now = self._settled(now, seen, begin) if isinstance(seen, Mapping) else now
                self._sync(begin, self._changed(seen, now))
                seen = self._after(now)
            self.done.looks += 1
            self.done.looked = time.time()
            self._tell_late()
            self.looked(self.done)
            self.stop.wait(max(0.0, self.every - (time.monotonic() - begin)))
        return False

    def _settled(self, now: Look | None, seen: Look, begin: float) -> Look | None:
        """The look before which nothing changed for a moment: a writer of several tables may still be at work."""
        while time.monotonic() < begin + self.longest and (left := self.settled - self._quiet(now, seen)) > 0:
            if self.stop.wait(min(left, self.settled)):
                break
            before, now = now, self._look()
            if now == before:
                break
        return now

    def _quiet(self, now: Look | None, seen: Look) -> float:
        """Seconds since the newest commit of the tables that differ; 0 where something else does. Where clocks differ
        a sync begins too early, and another one follows.
        """
        if now is None:
            return 0.0
        commits = [self._commits.get(name, {}).values() or [None] for name in now if now[name] != seen.get(name)]
        instants = [math.inf if commit is None else commit.written for of in commits for commit in of]
        return time.time() - max(instants, default=math.inf)

    def _sync(self, begin: float, inputs: Collection[str] | None) -> None:
        found, self._found = {name: tables for name, tables in self._found.items() if tables}, {}
        try:
            report = sync(
                self.project, self.options, engine=self.engine, parallelism=self.parallelism, inputs=inputs,
                warm=self._warm, found=found,
            )  # fmt: skip
        except UsageError:
            raise
        except LockHeld as error:
            self._failed(error, begin)
        except DdError as error:
            self.done.errors += 1
            self._warm.drop()
            self._failed(error, begin + _PATIENCE)
        else:
            self.done.add(report)
            if not report.nothing_new:
                self.tell(report)
            if self.done.syncs % _COLLECTED == 0:
                gc.collect()

    def _tell_late(self) -> None:
        """Tell of sources that have become late, also by waiting; again only after rows came."""
        now = datetime.now(UTC)
        fresh = [] if self.done.last is None else [one.at(now) for one in self.done.last.fresh]
        late = {one.input: one for one in fresh if one.is_late}
        for name in late.keys() - self._late:
            self.late(late[name])
        self._late = frozenset(late)

    def _failed(self, error: DdError, retry: float) -> None:
        self._retry = retry
        if error.message != self.done.error:
            self.fail(error)
        self.done.error = error.message

    # --- what there is ------------------------------------------------------------------------------------------------

    def _look(self) -> Look | None:
        """What the sources and the ledger are like, without reading a row; None where a sync has to say what is wrong.

        The ledger is in it because other commands may ingest, too.
        """
        try:
            stamps: dict[str, Any] = {name: self._stamps(name) for name in self.project.sources}
            if (upstream := self.project.upstream) is not None:
                stamps[_UPSTREAM] = versions_of(Warehouse(upstream.warehouse).ledger)[0][-1:]
            return self._after(stamps)
        except (DdError, OSError):
            return None

    def _stamps(self, name: str) -> tuple[Any, ...]:
        """What the source of an input is like. Of Delta tables only the newest commit is looked at, if it is known.

        Of a commit that comes while the source is found nobody knows whether it was found. So what counts as known is
        the newest commit before that, and the next look finds the source again.
        """
        source, known = self.project.sources[name], self._commits.get(name, {})
        now = {path: _newest_commit(path) for path in known}
        if not known or now != known or None in now.values():
            found = (find_snapshots if source.form == "snapshot" else find_sources)(source.locations)
            parts = [part for one in found for part in (one.parts if isinstance(one, Snapshot) else (one,))]
            is_fixed = all(part.is_table for part in parts) and not any(GLOB & {*given} for given in source.locations)
            self._commits[name] = {part.path: now.get(part.path) for part in parts if is_fixed}
            self._found[name] = found if is_fixed else ()
            self._known[name] = tuple((one.real, one.stamp()) for one in found)
        return self._known[name]

    def _changed(self, seen: object, now: Look | None) -> Collection[str] | None:
        """The inputs whose sources differ from the last look; None for all of them."""
        if self.done.error or now is None or not isinstance(seen, Mapping):
            return None
        return {name for name in self.project.sources if now[name] != seen.get(name)}

    def _after(self, look: Look | None) -> Look | None:
        """A look before a sync, with the ledger as it is now. Sources that changed meanwhile are seen to."""
        ledger = self.project.tables.ledger
        return None if look is None else {**look, "": versions_of(ledger)[0][-1:]}

    def _program(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """The files that decide what is computed, with their sizes and times: dd.toml, the program, and its modules."""
        root = str(self.project.root)
        modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        files = {str(self.project.file), *map(str, self.project.program_files)}
        files |= set() if self.project.upstream is None else {str(self.project.upstream.root / FILE_NAME)}
        files |= {file for file in modules if isinstance(file, str) and file.startswith(f"{root}/")}
        for file in sorted(files):
            try:
                status = Path(file).stat()
            except OSError:
                continue
            yield file, (status.st_mtime_ns, status.st_size)


class _Commit(NamedTuple):
    """A commit of a Delta table: its number, and the size and time of its file."""

    number: int
    size: int
    written: float


def _newest_commit(path: str) -> _Commit | None:
    """The newest commit of a Delta table; None where there is none."""
    folder = location_of(path)
    versions, _ = versions_of(folder)
    return _Commit(versions[-1], *next(store.entries(commit_file(folder, versions[-1])))[1:]) if versions else None
