"""Replay: folds every version that was ingested and not yet folded, and makes the result visible all at once.

The steps: check the program, names, Java, jars and kernels; write an intent record to the ledger; fold, which writes
files that are not visible yet; commit each table, state first and outputs last; write the run's record to the ledger.
If a run fails before its first commit, a failure record gives it up: its versions stay open and its program may
change. If it is killed, the next run finishes it over the same window: the fold is deterministic, and a table that
holds the run's files already stays as it is. With another program it is given up, if no table holds a commit of it.

If there is nothing to fold, this imports neither numba nor Spark.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddcore.errors import DdError, ProgramChanged, ProgramError, UsageError
from ddcore.io.adoption import adopt
from ddcore.io.intent import give_up, is_committed
from ddcore.io.ledger import Ledger
from ddcore.io.program import load_plan
from ddcore.io.project import ENGINES, Project, find_project
from ddcore.io.records import FailureRecord, IngestRecord, IntentRecord, RunRecord, TableState
from ddcore.io.tables import kept_open
from ddcore.io.times import (
    Frontier,
    Time,
    Window,
    close,
    coordinates,
    example,
    is_open,
    least,
    nothing_closed,
    ordered,
    parse,
    shown,
    time_of,
    versions,
)
from ddcore.io.warehouse import Warehouse
from ddcore.jobs import engines
from ddcore.jobs.arguments import filled, natural
from ddcore.jobs.compact import after_run
from ddcore.jobs.failures import one_line
from ddcore.jobs.fold import Fold, Listener
from ddcore.jobs.report import Changes, RunReport, json_line, result
from ddcore.lattice import le

if TYPE_CHECKING:
    from ddcore.io.gains import Gained, Stored

__all__ = ["RunReport", "main", "run"]

REFRESH = "ddcore run --full-refresh"


@dataclass(frozen=True)
class _Window:
    """The times that run ``run`` completes: those at or before ``last`` that were not complete before."""

    run: int
    first: Time
    last: Time
    times: Window
    refresh: bool
    known: bool  # whether its intent is in the ledger already


def run(
    project: Project,
    *,
    first: Time | None = None,
    last: Time | None = None,
    full_refresh: bool = False,
    dry_run: bool = False,
    engine: str | None = None,
    parallelism: int | None = None,
    listener: Listener | None = None,
) -> RunReport:
    """Fold what is not folded yet, up to version ``last``; with several time dimensions, at every time at or before it.

    ``first``, with one dimension only, may only be the next unfolded version. ``full_refresh`` folds everything again,
    from nothing, and replaces the outputs. ``parallelism`` forces the number of Spark workers. Raises UsageError,
    LockHeld, ProgramError, ProgramChanged, the FoldError family and StorageError (also for a missing warehouse); then
    nothing of the run is visible, and its versions are open unless tables were being committed.
    """
    if full_refresh and first is not None:
        raise UsageError(f"--from-version {first}: --full-refresh folds all versions anew", "leave one of the two out")
    warehouse = Warehouse(project.warehouse)
    warehouse.check()
    options = _Options(project, first, last, full_refresh, engine or project.engine, parallelism, listener)
    if dry_run:
        return _Replay(options, Ledger.load(warehouse)).preview()
    with warehouse.lock("ddcore run") as lock, kept_open():
        ledger = Ledger.load(warehouse)
        adopt(ledger)
        report = _Replay(options, ledger).fold_all(lock.note_run)
        if not report.nothing_new:
            after_run(project, ledger)
        return report


@dataclass(frozen=True)
class _Options:
    """The arguments of :func:`run`."""

    project: Project
    first: Time | None
    last: Time | None
    refresh: bool
    engine: str
    parallelism: int | None
    listener: Listener | None


class _Replay:
    """One command: finishes an unfinished window, then folds new versions."""

    def __init__(self, options: _Options, ledger: Ledger) -> None:
        self.options, self.ledger, self.warehouse = options, ledger, ledger.warehouse
        self.committing = False  # whether a table may hold a commit of the run that is being folded
        self.dims = options.project.dims
        ledger.check_dims(self.dims)
        self.plan = load_plan(options.project)
        self.report = RunReport(
            engine=options.engine,
            parallelism=options.parallelism or 1,
            last=ledger.last_folded(),
            dims=self.dims,
            upper=ledger.upper() or nothing_closed(self.dims),
        )

    def preview(self) -> RunReport:
        """Report the window that would be folded first; write nothing."""
        window, _ = self._next_window(self.options.refresh, is_dry=True)
        if window is not None:
            self._note(window)
            self.report.versions = self._versions(window, {})
        return self.report

    def fold_all(self, note_run: Callable[[int], None]) -> RunReport:
        """Fold until no version is left."""
        start, refresh, done = time.perf_counter(), self.options.refresh, False
        while not done:
            window, done = self._next_window(refresh)
            if window is None:
                break
            note_run(window.run)
            self._note(window)
            self._fold(window)
            refresh = False
        self.report.took = time.perf_counter() - start
        return self.report

    def _note(self, window: _Window) -> None:
        report = self.report
        report.nothing_new, report.run, report.last = False, window.run, window.last
        report.first, report.upper = window.first if report.first is None else report.first, window.times.upper

    # -- which versions -----------------------------------------------------------------------------------------------

    def _next_window(self, refresh: bool, *, is_dry: bool = False) -> tuple[_Window | None, bool]:
        """The window to fold now, and whether it is the last one of this command."""
        ledger, last = self.ledger, self.options.last
        latest = ledger.latest_ingested(self.plan.inputs)
        if refresh:
            self._check_range(None, latest)
            upto = latest if last is None else last
            return (None if upto is None else self._window(nothing_closed(self.dims), upto, refresh=True)), True
        intent, lower = self._unfinished(is_dry), ledger.upper() or nothing_closed(self.dims)
        if intent is not None:
            times = Window(intent.lower, intent.upper) if intent.upper else versions(intent.first, intent.last)
            return _Window(intent.run, intent.first, intent.last, times, intent.refresh, True), False
        self._check_state()
        self._check_range(lower, latest)
        upto = latest if last is None else last
        if latest is None or upto is None or not is_open(upto, lower):
            return None, True
        return self._window(lower, upto, refresh=False), True

    def _window(self, lower: Frontier, last: Time, *, refresh: bool) -> _Window:
        """The window of a new run that completes ``last`` and all times before it."""
        times = Window(lower, close(lower, last))
        return _Window(self.ledger.next_run(), least(map(time_of, lower)), last, times, refresh, False)

    def _unfinished(self, is_dry: bool) -> IntentRecord | None:
        """The run that has to be finished first. One of another program is given up, if no table holds a commit of it.

        Raises ProgramChanged if a table holds one.
        """
        intent = self.ledger.open_intent()
        if intent is None or intent.fingerprint == self.plan.fingerprint:
            return intent
        if is_committed(self.warehouse, intent.run):
            self._check_program(intent.fingerprint, f"run {intent.run}, which was not finished,")
        self._check_state()
        if not is_dry:
            give_up(self.ledger, "it was not finished, and the program has changed since")
        return None

    def _check_state(self) -> None:
        current = self.ledger.current_run()
        if current is not None:
            self._check_program(current.fingerprint, f"the state of run {current.run}")

    def _check_program(self, fingerprint: str, what: str) -> None:
        if fingerprint != self.plan.fingerprint:
            self._check_inputs()  # if a schema changed, raises an error that names the input
            raise ProgramChanged(
                f"the program changed: {what} was made by program {fingerprint[:12]}, this one is "
                f"{self.plan.fingerprint[:12]}",
                f"put the program back, or rebuild state and outputs: {REFRESH}",
            )

    def _check_range(self, lower: Frontier | None, latest: Time | None) -> None:
        first, last = self.options.first, self.options.last
        if first is not None and lower is not None and coordinates(first) not in lower:
            raise UsageError(
                f"--from-version {first}: the next version to fold is {lower[0][0]}; no other is supported "
                "(docs/limits.md)",
                f"leave --from-version out, or fold everything again: {REFRESH}",
            )
        if last is not None and (latest is None or not le(coordinates(last), coordinates(latest))):
            option = "--to-version" if len(self.dims) == 1 else "--to"
            is_latest = "the latest ingested version is" if len(self.dims) == 1 else "ingested are times up to"
            known = "nothing was ingested yet" if latest is None else f"{is_latest} {shown(latest, self.dims)}"
            raise UsageError(f"{option} {shown(last, self.dims)}: {known}", f"ingest it first, or leave {option} out")

    def _check_inputs(self) -> None:
        """Refuse inputs whose schema in dd.toml is not the one they were ingested with."""
        from ddcore.io.changelog import ChangeLog

        for name, schema in self.plan.inputs.items():
            if self.ledger.input_version(name) is not None:
                ChangeLog(self.warehouse.input(name), schema, self.plan.dims).check()

    # -- the fold, between intent and record --------------------------------------------------------------------------

    def _fold(self, window: _Window) -> None:
        """Fold a window and record the run, or its failure if nothing was committed."""
        from ddcore.io import layout

        start, options = time.perf_counter(), self.options
        self._check_inputs()
        self._check_names()
        if options.listener:
            last = shown(window.last, self.dims)
            note = f"versions {window.first}..{last}" if len(self.dims) == 1 else f"to {last}"
            options.listener("fold", 0, None, note)
        fold = engines.load(options.engine)
        if not window.known:
            self.ledger.append(self._intent(window))
        before = None if window.refresh else self.ledger.current_run()
        self.committing = window.known  # an earlier attempt may have committed tables
        try:
            shutil.rmtree(self.warehouse.staging, ignore_errors=True)  # of a killed run; this process has the lock
            if window.refresh:
                layout.set_aside_damaged(self.warehouse, self.plan)
            gained, parallelism = fold(self._fold_input(window, before), options.listener)
            tables = self._commit(window, before, gained)
        except BaseException as error:
            self._note_failure(window, error)
            raise
        versions = self._versions(window, gained.outputs)
        self.ledger.append(
            RunRecord(
                run=window.run,
                fingerprint=self.plan.fingerprint,
                first=window.first,
                last=window.last,
                engine=options.engine,
                parallelism=parallelism,
                rounds=gained.rounds,
                took=time.perf_counter() - start,
                inputs=_counts(versions, 1),
                outputs=_counts(versions, 2),
                tables=tables,
                quantiles=_quantiles(before, gained),
                refresh=window.refresh,
                program_inputs=tuple(self.plan.inputs),
                lower=self._stored(window.times.lower),
                upper=self._stored(window.times.upper),
            )
        )
        self.report.versions += versions
        self.report.rounds, self.report.parallelism = max(self.report.rounds, gained.rounds), parallelism

    def _check_names(self) -> None:
        """Refuse, before anything is written, names that no table can have. UsageError, ProgramError."""
        from ddcore.io import layout

        for name, _, _ in layout.tables_of(self.plan):
            self.warehouse.table(name)
        for output, schema in self.plan.outputs.items():
            self.warehouse.output(output)
            _check_columns([*schema, *self.plan.dims, "diff"])

    def _intent(self, window: _Window) -> IntentRecord:
        return IntentRecord(
            run=window.run,
            fingerprint=self.plan.fingerprint,
            first=window.first,
            last=window.last,
            parallelism=self.options.parallelism or 1,
            engine=self.options.engine,
            refresh=window.refresh,
            program_inputs=tuple(self.plan.inputs),
            lower=self._stored(window.times.lower),
            upper=self._stored(window.times.upper),
        )

    def _stored(self, frontier: Frontier) -> Frontier:
        """A frontier as records have it: none with one dimension."""
        return () if len(self.dims) == 1 else frontier

    def _note_failure(self, window: _Window, error: BaseException) -> None:
        """Give the run up if no table holds a commit of it. If the ledger cannot be written, the run stays unfinished,
        and the next run finishes it or gives it up.
        """
        if self.committing and is_committed(self.warehouse, window.run):
            return
        with suppress(DdError, OSError):
            span = window.first, window.last
            self.ledger.append(
                FailureRecord(window.run, self.plan.fingerprint, *span, self.options.engine, one_line(error))
            )

    def _fold_input(self, window: _Window, before: RunRecord | None) -> Fold:
        return Fold(
            self.plan,
            _stored(self.warehouse, window.run, self.ledger.tables() if before else {}),
            window.times,
            {name: self.ledger.input_table(name) for name in self.plan.inputs},
            self.options.project,
            before.quantiles if before else {},
            self.options.parallelism,
            sum(_rows(ingest, window) for ingest in self._ingests(window)),
        )

    def _ingests(self, window: _Window) -> Iterator[IngestRecord]:
        """The ingests of the program's inputs that have a version in the window or after it."""
        return (ingest for ingest in self.ledger.ingests(since=window.times.lower) if ingest.input in self.plan.inputs)

    def _commit(self, window: _Window, before: RunRecord | None, gained: Gained) -> dict[str, TableState]:
        """Commit the run to every table: state first, outputs last. Idempotent."""
        from ddcore.io import layout, tables
        from ddcore.io.changelog import ChangeLog

        live = self.ledger.tables() if before else {}

        def settle(name: str, *, overwrite: bool) -> None:
            self.committing = True
            files = gained.files.get(name, [])
            folder, base = self.warehouse.table(name), live.get(name)
            live[name] = tables.commit(folder, files, window.run, base=base, overwrite=overwrite)

        for name, columns, replaced in layout.tables_of(self.plan):
            changed = name in gained.files or (replaced and name in live)
            if changed and name not in live:
                layout.create(self.warehouse.table(name), columns, replace=True)
            if changed:
                settle(name, overwrite=window.refresh or replaced)
        for output, schema in self.plan.outputs.items():
            name = f"outputs/{output}"
            if name not in live:
                # A failed run may have left a table with other columns.
                ChangeLog(self.warehouse.output(output), schema, self.plan.dims).create(replace=True)
            if name in gained.files or name not in live:
                settle(name, overwrite=window.refresh)
        return live

    def _versions(
        self, window: _Window, outputs: Mapping[str, Mapping[Time, tuple[int, int]]]
    ) -> list[tuple[Time, Changes, Changes]]:
        """The changes of inputs and outputs at each time of the window with changes, and at its last time.

        Inputs are counted by the ledger: no table is read.
        """
        inputs_by_version: dict[Time, Changes] = {window.last: {}}
        outputs_by_version: dict[Time, Changes] = {}
        for ingest in self._ingests(window):
            for version, change in ingest.counts.items():
                if version in window.times:
                    _add(inputs_by_version.setdefault(version, {}), ingest.input, change)
        for name, counts in outputs.items():
            for version, change in counts.items():
                _add(outputs_by_version.setdefault(version, {}), name, change)
                inputs_by_version.setdefault(version, {})
        return [
            (version, inputs_by_version[version], outputs_by_version.get(version, {}))
            for version in ordered(inputs_by_version)
        ]


def _rows(ingest: IngestRecord, window: _Window) -> int:
    """An upper bound of an ingest's rows in the window: each row has a diff of at least 1, and it may be far more."""
    inside = [change for version, change in ingest.counts.items() if version in window.times]
    return min(ingest.rows, sum(plus + minus for plus, minus in inside))


def _check_columns(names: Sequence[str]) -> None:
    """Raise ProgramError for names that differ only by case: Delta treats them as equal."""
    seen: dict[str, str] = {}
    for name in names:
        if seen.setdefault(name.lower(), name) != name:
            raise ProgramError(
                f"the columns {seen[name.lower()]!r} and {name!r} of one table differ only by upper and lower case",
                "rename one of them with select(): Delta tables do not tell them apart",
            )


def _add(changes: Changes, name: str, change: tuple[int, int]) -> None:
    plus, minus = changes.get(name, (0, 0))
    changes[name] = (plus + change[0], minus + change[1])


def _stored(warehouse: Warehouse, run: int, tables: Mapping[str, TableState]) -> Stored:
    from ddcore.io.gains import Stored
    from ddcore.io.tables import live_files

    files = {
        name: live_files(warehouse.table(name), state) for name, state in tables.items() if name.startswith("state/")
    }
    return Stored(warehouse.root, run, files)


def _counts(versions: Sequence[tuple[Time, Changes, Changes]], side: int) -> dict[str, dict[Time, tuple[int, int]]]:
    counts: dict[str, dict[Time, tuple[int, int]]] = {}
    for each in versions:
        for name, change in (each[1] if side == 1 else each[2]).items():
            counts.setdefault(name, {})[each[0]] = change
    return counts


def _quantiles(before: RunRecord | None, gained: Gained) -> dict[str, tuple[int, ...]]:
    """Cuts of each arrangement: kept from the first run that had any, which is the one that loaded the arrangement."""
    kept: dict[str, tuple[int, ...]] = {name: tuple(cuts) for name, cuts in gained.quantiles.items()}
    return {**kept, **(dict(before.quantiles) if before else {})}


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry for ``spark-submit``; takes plain arguments, never sets a master, returns the exit code.

    The last line of stdout is the JSON object of ``dd run``.
    """
    options = _parser().parse_args(arguments)
    try:
        project = find_project(
            options.project,
            flags={"warehouse": options.warehouse, "engine": options.engine, "parallelism": options.parallelism},
        )
        report = run(
            project,
            last=_last(options, project.dims),
            full_refresh=options.full_refresh,
            engine=project.engine,
            parallelism=project.parallelism,
        )
    except DdError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(json_line("run", result(report)))
    return 0


def _last(options: argparse.Namespace, dims: Sequence[str]) -> Time | None:
    """The time that ``--to`` or ``--to-version`` names. UsageError."""
    if options.to is not None and options.to_version is not None:
        raise UsageError("--to and --to-version say the same", "leave one of the two out")
    if options.to_version is not None and len(dims) > 1:
        raise UsageError(f"--to-version {options.to_version}: it has one dimension", f"say: --to {example(dims)}")
    return options.to_version if options.to is None else parse(options.to, dims, "--to")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("replay.py", description="Fold every version that is not folded yet.")
    folder = filled(Path)
    parser.add_argument("--project", type=folder, help="the project folder; default: this one or the nearest above")
    parser.add_argument("--warehouse", type=filled(str), help="the warehouse folder; default: what dd.toml says")
    parser.add_argument("--engine", choices=ENGINES, help="default: what dd.toml says")
    parser.add_argument(
        "--to-version", type=natural(0), help="the last version to fold, inclusive; default: the latest"
    )
    parser.add_argument("--to", type=filled(str), metavar="T", help="the same for any dimensions: day=7,revision=1")
    parser.add_argument("--full-refresh", action="store_true", help="rebuild state and outputs from the inputs")
    parser.add_argument("--parallelism", type=natural(1), help="the number of workers; default: chosen by work")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
