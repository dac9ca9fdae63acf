"""Replay: folds every version that was ingested and not yet folded, and makes the result visible all at once.

The order of things: intent into the ledger; the fold, which writes files nobody sees; one commit per table, state
first and outputs last; the run's record into the ledger. An intent without its record is finished first, over the
same window, by whoever runs next: the fold is deterministic, and a table that holds the run's files already is left
as it is. A fold that fails by its data or its program would fail again: its intent is given up, on record, and its
versions stay open to be put right.

With nothing to fold this imports neither numba nor Spark.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ddcore.errors import DdError, FoldError, ProgramChanged, UsageError
from ddcore.io.ledger import FailureRecord, IntentRecord, Ledger, RunRecord, TableState
from ddcore.io.program import load_program
from ddcore.io.project import Project, find_project
from ddcore.io.tables import kept_open
from ddcore.io.warehouse import Warehouse

if TYPE_CHECKING:
    from ddcore.io.gains import Gained, Stored
    from ddcore.plan import Plan

__all__ = ["Fold", "RunReport", "main", "run"]

Changes = dict[str, tuple[int, int]]
Listener = Callable[..., None]
REFRESH = "ddcore run --full-refresh"
WIDE_FROM = 20_000_000  # updates in a window from which several workers fold it: docs/performance.md


@dataclass
class RunReport:
    """What a run did. ``versions``: per folded version, what each input brought and each output changed (plus, minus).

    ``run`` is the last run's number (0 where there was none), ``took`` is in seconds. A dry run knows of no outputs.
    """

    run: int = 0
    first: int | None = None
    last: int | None = None
    versions: list[tuple[int, Changes, Changes]] = field(default_factory=list)
    rounds: int = 0
    took: float = 0.0
    engine: str = "spark"
    width: int = 1
    nothing_new: bool = True


@dataclass(frozen=True)
class Fold:
    """One window of versions to be folded, and all that a worker needs to know for it."""

    plan: Plan
    stored: Stored
    first: int
    last: int
    inputs: Mapping[str, TableState | None]  # each input's table
    settings: Project
    quantiles: Mapping[str, Sequence[int]]
    width: int | None
    rows: int  # updates in the window, as ingest counted them


@dataclass(frozen=True)
class _Window:
    run: int
    first: int
    last: int
    refresh: bool
    known: bool  # the intent is in the ledger already


def run(
    project: Project,
    *,
    first: int | None = None,
    last: int | None = None,
    full_refresh: bool = False,
    dry_run: bool = False,
    engine: str | None = None,
    width: int | None = None,
    listener: Listener | None = None,
) -> RunReport:
    """Fold what is not folded yet, up to version ``last``.

    ``first`` may only be the next unfolded version. ``full_refresh`` folds everything again, from nothing, and
    replaces the outputs. ``width`` forces the number of Spark workers. Raises LockHeld, ProgramError, ProgramChanged,
    the FoldError family and StorageError; then nothing of the run is visible.
    """
    warehouse = Warehouse(project.warehouse)
    asked = _Asked(project, first, last, full_refresh, engine or project.engine, width, listener)
    if dry_run:
        return _Replay(asked, Ledger.load(warehouse)).foresee()
    with warehouse.lock("ddcore run") as lock, kept_open():
        return _Replay(asked, Ledger.load(warehouse)).fold_all(lock.note_run)


@dataclass(frozen=True)
class _Asked:
    """What :func:`run` was asked for."""

    project: Project
    first: int | None
    last: int | None
    refresh: bool
    engine: str
    width: int | None
    listener: Listener | None


class _Replay:
    """One command: an unfinished window first, then what is new."""

    def __init__(self, asked: _Asked, ledger: Ledger) -> None:
        self.asked, self.ledger, self.warehouse = asked, ledger, ledger.warehouse
        _ = asked.project.dim  # several dimensions are refused before anything is done
        self.plan = _plan(asked.project)
        self.report = RunReport(engine=asked.engine, width=asked.width or 1, last=ledger.last_folded())

    def foresee(self) -> RunReport:
        """What would be folded first; writes nothing."""
        window, _ = self._next_window(self.asked.refresh)
        if window is not None:
            self._note(window)
            self.report.versions = self._versions(window, {})
        return self.report

    def fold_all(self, note_run: Callable[[int], None]) -> RunReport:
        """Fold until nothing waits."""
        started, refresh, done = time.perf_counter(), self.asked.refresh, False
        while not done:
            window, done = self._next_window(refresh)
            if window is None:
                break
            note_run(window.run)
            self._note(window)
            self._fold(window)
            refresh = False
        self.report.took = time.perf_counter() - started
        return self.report

    def _note(self, window: _Window) -> None:
        report = self.report
        report.nothing_new, report.run, report.last = False, window.run, window.last
        report.first = window.first if report.first is None else report.first

    # -- which versions -----------------------------------------------------------------------------------------------

    def _next_window(self, refresh: bool) -> tuple[_Window | None, bool]:
        """The window to fold now, and whether it is the last one of this command."""
        ledger, last = self.ledger, self.asked.last
        latest = ledger.latest_ingested(self.plan.inputs)
        if refresh:
            self._check_range(None, latest)
            upto = latest if last is None else last
            return (None if upto is None else _Window(ledger.next_run(), 0, upto, True, False)), True
        intent, current, folded = ledger.open_intent(), ledger.current_run(), ledger.last_folded()
        if intent is not None:
            self._check_program(intent.fingerprint, f"run {intent.run}, which was not finished,")
            return _Window(intent.run, intent.first, intent.last, intent.refresh, True), False
        if current is not None:
            self._check_program(current.fingerprint, f"the state of run {current.run}")
        start = 0 if folded is None else folded + 1
        self._check_range(start, latest)
        if latest is None or latest < start or (last is not None and last < start):
            return None, True
        return _Window(ledger.next_run(), start, latest if last is None else last, False, False), True

    def _check_program(self, fingerprint: str, what: str) -> None:
        if fingerprint != self.plan.fingerprint:
            self._check_inputs()  # another schema makes another program; say which
            raise ProgramChanged(
                f"the program changed: {what} was made by program {fingerprint[:12]}, this one is "
                f"{self.plan.fingerprint[:12]}",
                f"put the program back, or make state and outputs anew: {REFRESH}",
            )

    def _check_range(self, start: int | None, latest: int | None) -> None:
        first, last = self.asked.first, self.asked.last
        if first is not None and start is not None and first != start:
            raise UsageError(
                f"--from-version {first}: the next version to fold is {start}; folding from elsewhere is not there yet",
                f"leave --from-version out, or fold everything again: {REFRESH}",
            )
        if last is not None and (latest is None or last > latest):
            known = "nothing was ingested yet" if latest is None else f"the latest ingested version is {latest}"
            raise UsageError(f"--to-version {last}: {known}", "ingest it first, or leave --to-version out")

    def _check_inputs(self) -> None:
        """Refuse inputs whose schema in dd.toml is not the one they were ingested with."""
        from ddcore.io.changelog import ChangeLog

        for name, schema in self.plan.inputs.items():
            if self.ledger.input_version(name) is not None:
                ChangeLog(self.warehouse.input(name), schema, self.plan.dims).check()

    # -- the fold, between intent and record --------------------------------------------------------------------------

    def _fold(self, window: _Window) -> None:
        from ddcore.io import layout

        started, asked, fingerprint = time.perf_counter(), self.asked, self.plan.fingerprint
        self._check_inputs()
        if not window.known:
            wide = asked.width or 1
            self.ledger.append(
                IntentRecord(window.run, fingerprint, window.first, window.last, wide, asked.engine, window.refresh)
            )
        shutil.rmtree(self.warehouse.staging, ignore_errors=True)  # of a run that was killed; the lock is ours
        if asked.listener:
            asked.listener("fold", 0, None, f"versions {window.first}..{window.last}")
        if window.refresh:
            layout.set_aside_damaged(self.warehouse, self.plan)
        before = None if window.refresh else self.ledger.current_run()
        try:
            gained, width = _engine(asked.engine)(self._task(window, before), asked.listener)
        except FoldError as error:
            span = window.first, window.last
            self.ledger.append(FailureRecord(window.run, fingerprint, *span, asked.engine, error.message))
            raise
        tables = self._commit(window, before, gained)
        versions = self._versions(window, gained.outputs)
        self.ledger.append(
            RunRecord(
                run=window.run,
                fingerprint=fingerprint,
                first=window.first,
                last=window.last,
                engine=asked.engine,
                width=width,
                rounds=gained.rounds,
                took=time.perf_counter() - started,
                inputs=_counts(versions, 1),
                outputs=_counts(versions, 2),
                tables=tables,
                quantiles=_quantiles(before, gained),
                refresh=window.refresh,
            )
        )
        self.report.versions += versions
        self.report.rounds, self.report.width = max(self.report.rounds, gained.rounds), width

    def _task(self, window: _Window, before: RunRecord | None) -> Fold:
        changes = [change for _, came, _ in self._versions(window, {}) for change in came.values()]
        return Fold(
            self.plan,
            _stored(self.warehouse, window.run, before),
            window.first,
            window.last,
            {name: self.ledger.input_table(name) for name in self.plan.inputs},
            self.asked.project,
            before.quantiles if before else {},
            self.asked.width,
            sum(plus + minus for plus, minus in changes),
        )

    def _commit(self, window: _Window, before: RunRecord | None, gained: Gained) -> dict[str, TableState]:
        """Make every table hold the run: state first, outputs last. Doing it again changes nothing."""
        from ddcore.io import layout, tables
        from ddcore.io.changelog import ChangeLog

        live = dict(before.tables) if before else {}

        def settle(name: str, *, overwrite: bool) -> None:
            files = gained.files.get(name, [])
            folder, base = self.warehouse.table(name), live.get(name)
            live[name] = tables.commit(folder, files, window.run, base=base, overwrite=overwrite)

        for name, columns, replaced in layout.tables_of(self.plan):
            changed = name in gained.files or (replaced and name in live)
            if changed and name not in live:
                layout.create(self.warehouse.table(name), columns, replace=window.refresh)
            if changed:
                settle(name, overwrite=window.refresh or replaced)
        for output, schema in self.plan.outputs.items():
            name = f"outputs/{output}"
            if name not in live:
                ChangeLog(self.warehouse.output(output), schema, self.plan.dims).create(replace=window.refresh)
            if name in gained.files or name not in live:
                settle(name, overwrite=window.refresh)
        return live

    def _versions(
        self, window: _Window, outputs: Mapping[str, Mapping[int, tuple[int, int]]]
    ) -> list[tuple[int, Changes, Changes]]:
        """Per version of the window that changed anything, and its last: what inputs brought, what outputs changed.

        Inputs are as ingest counted them: nothing is read for it.
        """
        came: dict[int, Changes] = {window.last: {}}
        went: dict[int, Changes] = {}
        for ingest in self.ledger.ingests(since=window.first):
            for version, change in ingest.counts.items():
                if window.first <= version <= window.last and ingest.input in self.plan.inputs:
                    _add(came.setdefault(version, {}), ingest.input, change)
        for name, counts in outputs.items():
            for version, change in counts.items():
                _add(went.setdefault(version, {}), name, change)
                came.setdefault(version, {})
        return [(version, came[version], went.get(version, {})) for version in sorted(came)]


def _add(changes: Changes, name: str, change: tuple[int, int]) -> None:
    plus, minus = changes.get(name, (0, 0))
    changes[name] = (plus + change[0], minus + change[1])


def _plan(project: Project) -> Plan:
    from ddcore.plan import build

    plan = build(load_program(project), project.inputs, project.dims)
    for name in project.outputs:
        if name not in plan.outputs:
            raise UsageError(
                f"dd.toml has [outputs.{name}] but the program returns {', '.join(plan.outputs)}",
                "name the section after an output, or remove it",
            )
    return plan


def _engine(name: str) -> Callable[[Fold, Listener | None], tuple[Gained, int]]:
    """The fold of an engine: takes a window, gives what it gained and the width it used."""
    if name == "inline":
        from ddcore.jobs.inline import fold

        return fold
    return _on_spark


def _on_spark(fold: Fold, listener: Listener | None) -> tuple[Gained, int]:
    from ddcore.jobs import alone, exchange, session

    width = fold.width or (1 if fold.rows < WIDE_FROM else None)
    with session.spark_context(fold.settings.spark_conf, fold.settings.spark_master, width) as context:
        width = width or context.defaultParallelism
        if width == 1:
            return alone.fold_with(context, fold)
        return exchange.fold_with(context, fold, width, listener)


def _stored(warehouse: Warehouse, run: int, before: RunRecord | None) -> Stored:
    from ddcore.io.gains import Stored
    from ddcore.io.tables import live_files

    tables = before.tables if before else {}
    files = {
        name: live_files(warehouse.table(name), state) for name, state in tables.items() if name.startswith("state/")
    }
    return Stored(warehouse.root, run, files)


def _counts(versions: Sequence[tuple[int, Changes, Changes]], side: int) -> dict[str, dict[int, tuple[int, int]]]:
    counts: dict[str, dict[int, tuple[int, int]]] = {}
    for each in versions:
        for name, change in (each[1] if side == 1 else each[2]).items():
            counts.setdefault(name, {})[each[0]] = change
    return counts


def _quantiles(before: RunRecord | None, gained: Gained) -> dict[str, tuple[int, ...]]:
    """Cuts of each arrangement: kept from the first run that had any, which is the one that loaded it."""
    kept: dict[str, tuple[int, ...]] = {name: tuple(cuts) for name, cuts in gained.quantiles.items()}
    return {**kept, **(dict(before.quantiles) if before else {})}


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry for ``spark-submit``; takes plain arguments, never sets a master of its own, gives the exit code.

    The last line of stdout is the report as JSON.
    """
    asked = _parser().parse_args(arguments)
    try:
        report = run(
            find_project(asked.project, flags={"warehouse": asked.warehouse, "engine": asked.engine}),
            last=asked.to_version,
            full_refresh=asked.full_refresh,
            width=asked.width,
        )
    except DdError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    result = asdict(report) | {"versions": len(report.versions)}
    print(json.dumps(result))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("replay.py", description="Fold every version that is not folded yet.")
    parser.add_argument("--project", type=Path, help="the project folder; default: this one or the nearest above")
    parser.add_argument("--warehouse", help="the warehouse folder; default: what dd.toml says")
    parser.add_argument("--engine", choices=("spark", "inline"), default="spark")
    parser.add_argument("--to-version", type=int, help="the last version to fold, inclusive; default: the latest")
    parser.add_argument("--full-refresh", action="store_true", help="make state and outputs anew from the inputs")
    parser.add_argument("--width", type=int, help="the number of workers; default: chosen by work")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
