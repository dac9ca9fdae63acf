"""Compaction of a warehouse: ``dd compact``, and what a run does at its end.

The steps: merge the files of each table that has many, and commit each table once; write one record to the ledger;
delete what no kept point needs. If it is killed, the ledger names the tables as they were, and the next command that
writes records the commits that were made (:mod:`ddcore.io.ledger.recovery`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import DdError, LockHeld, UsageError
from ddcore.base.lattice import Frontier
from ddcore.io.delta.table_files import TableState
from ddcore.io.delta.tables import is_settled, live_files
from ddcore.io.ledger import recovery
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import CompactRecord, RunRecord
from ddcore.io.project.frontiers import frontier_json, is_open, nothing_closed, shown_frontier
from ddcore.io.project.project import Project, RetentionSettings
from ddcore.io.project.times import Time, named
from ddcore.io.upkeep import retention
from ddcore.jobs import predecessor
from ddcore.traces.spilling import rows_within

if TYPE_CHECKING:
    from ddcore.io.upkeep.compaction import Merge


@dataclass
class CompactReport:
    """What a compaction did. ``tables``: by name the files and rows before and after; after a dry run there are no
    rows after. ``since``: the logs are exact from it on; empty for all times. ``deleted`` files of ``freed`` bytes.
    ``stale_lock``: as in :class:`~ddcore.jobs.report.RunReport`.
    """

    tables: dict[str, tuple[TableState, TableState | None]] = field(default_factory=dict)
    since: Frontier = ()
    deleted: int = 0
    freed: int = 0
    took: float = 0.0
    dims: tuple[str, ...] = ("version",)
    stale_lock: dict[str, Any] | None = None

    @property
    def nothing_new(self) -> bool:
        """Whether there was nothing to merge or delete."""
        return not (self.tables or self.deleted)


def result(report: CompactReport, *, dry_run: bool = False) -> dict[str, Any]:
    """The fields of a compaction's JSON object."""
    sides = {
        name: {
            "files": [before.files, None if after is None else after.files],
            "rows": [before.rows, None if after is None else after.rows],
        }
        for name, (before, after) in report.tables.items()
    }
    return {
        "tables": sides,
        "since": frontier_json(report.since, report.dims),
        "deleted": report.deleted,
        "freed": report.freed,
        "took": round(report.took, 3),
        "nothing_new": report.nothing_new,
        "dry_run": dry_run,
        "stale_lock": report.stale_lock,
    }


def compact(project: Project, *, since: Time | None = None, dry_run: bool = False) -> CompactReport:
    """Merge the files of all tables, and delete what no kept point needs.

    ``since``: times of inputs and outputs before it are advanced to it, and updates that cancel are dropped; earlier
    versions can no longer be read. Costs a pass over the tables of state and, with ``since``, over the logs. Raises
    UsageError (several dimensions; a time that is not complete, or before the present ``since``; an unfinished run),
    LockHeld and StorageError.
    """
    start, warehouse = time.perf_counter(), project.tables
    warehouse.check()
    if dry_run:
        report = _Compaction(project, Ledger.load(warehouse), since).preview()
    else:
        with predecessor.writing(warehouse, "ddcore compact", project.tuning) as (lock, ledger):
            finished = recovery.finish(ledger)  # a compaction must not take the commit of a killed ingest back
            stale_lock = predecessor.tell(lock, ledger, finished=finished)
            report = _Compaction(project, ledger, since).run()
            report.stale_lock = stale_lock
    report.took = time.perf_counter() - start
    return report


def after_run(project: Project, ledger: Ledger, *, ran: bool = True) -> None:
    """Compact what has become many files, by the project's policy. The caller holds the warehouse's lock. Every few
    runs it deletes what is no longer needed, also if there was nothing to merge. ``ran``: whether there was a run.

    An error does not fail the run, which is finished: it is logged as a warning.
    """
    if not project.retention.auto or ledger.open_intent() is not None:
        return
    since = _next_since(ledger, project.retention)
    sweeps = ran and (ledger.next_run() - 1) % retention.MANY == 0
    own = (state for name, state in ledger.states().items() if ledger.warehouse.is_own(name))
    if not sweeps and since is None and all(state.files < retention.MANY for state in own):
        return
    try:
        _Compaction(project, ledger, since, everything=False).run(sweeps=sweeps)
    except (DdError, OSError) as error:
        logging.getLogger("ddcore").warning(f"the run is finished, but the compaction after it failed: {error}")


def _next_since(ledger: Ledger, policy: RetentionSettings) -> Time | None:
    """The version from which logs are to be exact now, if it is far enough from the present one that advancing pays."""
    last = ledger.last_folded()
    if policy.history is None or last is None or len(last) > 1:
        return None
    (present,) = ledger.since()[0] if ledger.since() else ledger.first_ingested() or (0,)
    wanted = last.version - policy.history
    return Time([wanted]) if wanted - present >= max(retention.MANY, policy.history // 2) else None


class _Compaction:
    """One compaction. ``everything``: also of tables with few files."""

    def __init__(self, project: Project, ledger: Ledger, since: Time | None, *, everything: bool = True) -> None:
        self.retention, self.dims, self.ledger, self.everything = project.retention, project.dims, ledger, everything
        self.piece = project.tuning.merge_rows
        self.room = None if project.memory is None else rows_within(project.memory)
        ledger.check_dims(project.dims)
        self.last = ledger.current_run()
        self.since = self._since(since)
        self.report = CompactReport(since=self.since, dims=self.dims)

    def _since(self, wanted: Time | None) -> Frontier:
        """The frontier of the logs after this compaction. UsageError for one that is not possible."""
        intent = self.ledger.open_intent()
        if intent is not None and self.ledger.writer is None and (holder := self.ledger.warehouse.holder()) is not None:
            raise LockHeld(
                f"run {intent.run} is not finished yet: {holder} is at work",
                "wait until it is done, then run the same command again",
            )
        if intent is not None:
            raise UsageError(
                f"run {intent.run} is not finished, and its tables must stay as they are",
                "finish it with: ddcore run",
            )
        present, upper = self.ledger.since(), self.ledger.upper()
        if wanted is None:
            return present
        if len(self.dims) > 1:
            # The representative of a complete time may be open, and a later run would fold its rows again.
            raise UsageError(
                f"--since {named(wanted, self.dims)}: history can be given up with one time dimension only",
                "leave it out: dd compact merges the files all the same (docs/limits.md)",
            )
        if upper is None or is_open(wanted, upper):
            frontiers = f"since is {self._shown(present)}, upper is {self._shown(upper or ())}"
            raise UsageError(
                f"--since {named(wanted, self.dims)} is not yet complete: {frontiers}",
                "name a folded version: ddcore log --versions",
            )
        if present and not is_open(wanted, present):
            raise UsageError(
                f"--since {named(wanted, self.dims)}: since is {self._shown(present)} already, and earlier times "
                "cannot be restored",
                "name a later time",
            )
        return (wanted,)

    def _shown(self, frontier: Frontier) -> str:
        return shown_frontier(frontier or ((0,) * len(self.dims),), self.dims)

    def preview(self) -> CompactReport:
        """Report what would be merged and deleted; write nothing."""
        live = self.ledger.states()
        self.report.tables = {name: (live[name], None) for name, _ in self._merges()}
        if self.last is not None:
            freed = retention.sweep(self.ledger, self.retention, dry_run=True)
            self.report.deleted, self.report.freed = freed.files, freed.bytes
        return self.report

    def run(self, *, sweeps: bool = True) -> CompactReport:
        """Merge, record and delete. Without merges nothing is deleted, unless ``sweeps``."""
        last, live = self.last, self.ledger.states()
        if last is None:
            return self.report
        changed: dict[str, TableState] = {}
        for name, merge in self._merges():
            number = self.ledger.next_ingest() - 1 if name.startswith("inputs/") else last.run
            changed[name] = merge.commit(self.ledger.owner, number, live[name], last.run)
            self.report.tables[name] = live[name], changed[name]
        if changed or self.since != self.ledger.since():
            self._record(last, changed)
        elif not sweeps:
            return self.report
        freed = retention.sweep(self.ledger, self.retention)
        self.report.deleted, self.report.freed = freed.files, freed.bytes
        return self.report

    def _record(self, last: RunRecord, changed: Mapping[str, TableState]) -> None:
        self.ledger.append(CompactRecord(last.run, last.last, {**self.ledger.compacted(), **changed}, self.since))

    def _merges(self) -> list[tuple[str, Merge]]:
        """The tables to merge, by name: none, until one has many files; then also those that soon will."""
        merges = [*self._possible_merges()]
        return merges if any(merge.is_due for _, merge in merges) else []

    def _possible_merges(self) -> Iterator[tuple[str, Merge]]:
        last, upper = self.last, self.ledger.upper()
        if last is None or upper is None:
            return
        from ddcore.io.upkeep.compaction import log_merge, state_merge

        inputs = last.program_inputs
        for name, state in self.ledger.states().items():
            part, _, plain = name.partition("/")
            if not self.ledger.warehouse.is_own(name):
                continue  # the project that ingests it compacts it
            if part == "state" and plain.endswith(("_held", "_pending")):
                continue  # each run replaces them, and what they hold lies beyond the frontier
            folder = self.ledger.warehouse.table(name)
            if part == "outputs" and not is_settled(folder, state):
                continue  # the next run mends what one that was given up committed
            files = live_files(folder, state, self.ledger.writer)
            if part == "state":
                merge = state_merge(
                    folder, files, self.dims, upper, everything=self.everything, room=self.room, piece=self.piece
                )
            else:
                reads = part == "outputs" or plain in inputs  # an input that no run has read is open at all times
                closed = upper if reads else nothing_closed(self.dims)
                since = self.since if reads else ()
                merge = log_merge(folder, files, self.dims, closed, since, everything=self.everything, room=self.room)
            if merge is not None:
                yield name, merge
