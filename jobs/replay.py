"""Replay: folds every version that was ingested and not yet folded, and makes the result visible all at once.

The steps: check the program, names, Java, jars and kernels; write an intent record to the ledger; fold, which writes
files that are not visible yet; check the data tests; commit each table, state first and outputs last; write the run's
record to the ledger.
If a run fails before its first commit, a failure record gives it up: its versions stay open and its program may
change. If it is killed, the next run finishes it over the same window: the fold is deterministic, and a table that
holds the run's files already stays as it is. With another program it is given up, if no table holds a commit of it.

If there is nothing to fold, this imports neither numba nor Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from ddcore.base.errors import BrokenTest, DdError, ProgramChanged, ProgramError, UsageError
from ddcore.base.record import record
from ddcore.io.ledger import unrecorded
from ddcore.io.ledger.intent import is_committed
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.left_out import left_out
from ddcore.io.ledger.records import FailureRecord, IngestRecord, IntentRecord, PartRecord, RunRecord
from ddcore.io.project.kept_plans import KeptPlan, PlannedProgram, kept_plan, planned
from ddcore.io.project.project import Project
from ddcore.io.project.times import Frontier, Time, Window, close, is_open, nothing_closed, shown
from ddcore.io.state.fold_result import FoldResult
from ddcore.io.storage.lock import Lock
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import engines, predecessor
from ddcore.jobs.compact import after_run
from ddcore.jobs.failures import one_line
from ddcore.jobs.fold import Fold, Listener
from ddcore.jobs.publishing import check_tables, publish
from ddcore.jobs.report import Changes, RunReport
from ddcore.jobs.running import changes, clocks, instants
from ddcore.jobs.running.next_run import CORRECTIONS, Effect, NextRun, Request, Runs
from ddcore.program.data_tests import is_test
from ddcore.text.redaction import masked
from ddcore.text.sizes import shown_size
from ddcore.text.wording import listed

if TYPE_CHECKING:
    from ddcore.io.delta.table_files import TableState
    from ddcore.io.storage.lease import Lease
    from ddcore.jobs.running.commits import Commits
    from ddcore.jobs.running.data_tests import Broken
    from ddcore.jobs.warm import Warm
    from ddcore.planning.plan import Plan
    from ddcore.program.data_tests import DataTest

__all__ = ["RunReport", "run"]


def run(
    project: Project,
    *,
    first: Time | None = None,
    last: Time | None = None,
    full_refresh: bool = False,
    corrections: str | None = None,
    dry_run: bool = False,
    select: Sequence[str] = (),
    engine: str | None = None,
    parallelism: int | None = None,
    listener: Listener | None = None,
    held: predecessor.Held | None = None,
    warm: Warm | None = None,
) -> RunReport:
    """Fold what is not folded yet, up to version ``last``; with several time dimensions, at every time at or before it.

    From ``first`` on everything is folded again; it may also be the next unfolded version. ``full_refresh`` folds
    everything again, from nothing. ``corrections`` says what becomes of outputs whose contents are then others:
    ``rewrite`` replaces them, ``append`` adds the difference at the version after the last one. The default is to
    append after the program has changed, else to rewrite. ``select``: only the outputs that these
    texts name (:mod:`ddcore.planning.selecting`), ahead of the others; no state is stored then. ``parallelism`` forces
    the number of Spark workers. ``held``
    is what the command holds already: the lock, and the ledger; ``warm``, what an earlier one of this process left in
    memory. Raises UsageError, LockHeld, ProgramError,
    ProgramChanged, the FoldError family, BrokenTest and StorageError (also for a missing warehouse); then nothing of
    the run is visible, and its versions are open unless tables were being committed.
    """
    if full_refresh and first is not None:
        raise UsageError(f"--from-version {first}: --full-refresh folds all versions anew", "leave one of the two out")
    if select and (full_refresh or first is not None or corrections):
        option = "--full-refresh" if full_refresh else "--corrections" if corrections else f"--from-version {first}"
        raise UsageError(f"{option}: it concerns all outputs, and --select names some", "leave one of the two out")
    warehouse = Warehouse(project.warehouse)
    warehouse.check()
    if corrections not in (None, *CORRECTIONS):
        raise UsageError(f"--corrections {corrections}: not known", f"one of: {', '.join(CORRECTIONS)}")
    request = Request(first, last, full_refresh, corrections, project.memory, project.tuning.value_bytes)
    options = _Options(project, request, engine or project.engine, parallelism, listener, tuple(select), warm)
    if dry_run:
        return _Replay(options, Ledger.load(warehouse, refresh=full_refresh)).preview()
    writing = predecessor.writing(warehouse, "ddcore run", project.tuning, refresh=full_refresh, held=held)
    with writing as (lock, ledger):
        finished = unrecorded.finish(ledger, refresh=full_refresh)
        replay = _Replay(options, ledger)
        replay.note_predecessor(lock, predecessor.finished(finished))
        report = replay.fold_all(lock.note_run)
        report.published = publish(project, ledger, None if warm is None else warm.tables)
        if select:
            return report
        after_run(
            project, ledger, ran=not report.nothing_new
        )  # also if nothing is new: the command before may have been killed here
        return report


@record
class _Options:
    """The arguments of :func:`run`."""

    project: Project
    request: Request
    engine: str
    parallelism: int | None
    listener: Listener | None
    select: tuple[str, ...]
    warm: Warm | None


class _Replay:
    """One command: finishes an unfinished window, then folds new versions."""

    def __init__(self, options: _Options, ledger: Ledger) -> None:
        self.options, self.ledger, self.warehouse = options, ledger, ledger.warehouse
        self.commits: Commits | None = None  # those of the run that is being folded
        self.warned = False  # of inputs that end at different versions
        self.dims = options.project.dims
        ledger.check_dims(self.dims)
        project = options.project
        self.report = RunReport(
            engine=options.engine,
            parallelism=options.parallelism or 1,
            last=ledger.last_folded(),
            dims=self.dims,
            upper=ledger.upper() or nothing_closed(self.dims),
            names=ledger.version_names(self.dims).read(),
            without_rows=ledger.without_rows(project.inputs),
            left_out=left_out(ledger, project),
        )
        kept = None if options.request.refresh else kept_plan(project)
        self.program: PlannedProgram | None = None  # it is not needed where nothing is to be folded
        if options.select:
            self._plan_part(planned(project, kept))
            return
        if kept is None or not self._is_idle(kept):
            self.program = planned(project, kept)
            check_tables(project, ledger, self.plan.outputs)

    def _plan_part(self, whole: PlannedProgram) -> None:
        """The plan of the outputs that are selected, and what the ledger says about the whole program."""
        from ddcore.io.project.program import load, outputs_named, plan_of

        options = self.options
        loaded = load(options.project)
        names = outputs_named(loaded, options.project, whole.plan, options.select)
        tests = tuple(test for test in whole.tests if test.output in names)
        self.program = PlannedProgram(plan_of(loaded, options.project, names), tests)
        self.options = replace(options, request=replace(options.request, whole=whole.plan.fingerprint))
        self.report.selected = tuple(name for name in self.plan.outputs if not is_test(name))
        check_tables(options.project, self.ledger, whole.plan.outputs)
        if (ahead := self.ledger.ahead()) is not None and self._is_ahead():
            self.report.last, self.report.upper = ahead.last, ahead.upper[self.report.selected[0]]

    @property
    def plan(self) -> Plan:
        """The program's plan."""
        assert self.program is not None
        return self.program.plan

    @property
    def tests(self) -> tuple[DataTest, ...]:
        """The program's data tests."""
        assert self.program is not None
        return self.program.tests

    @cached_property
    def runs(self) -> Runs:
        """The runs of this command."""
        return Runs(self.ledger, self.plan, self.options.request)

    def _is_idle(self, kept: KeptPlan) -> bool:
        """Whether there is nothing to fold, by what is kept of the program's plan."""
        if self.ledger.open_intent() is not None:
            return False
        with suppress(DdError):  # who has the plan can say more about it
            return Runs(self.ledger, kept, self.options.request).following(is_dry=True) is None
        return False

    def preview(self) -> RunReport:
        """Report the run that would be next; write nothing."""
        upcoming = self._following(is_dry=True)
        if upcoming is not None:
            from ddcore.jobs.running.commits import Commits

            self._note(upcoming)
            commits = Commits(self.ledger, self.plan, upcoming)
            self._note_changes(commits, dry=True)
            if commits.changed and not self.options.select and (current := self.ledger.current_run()) is not None:
                from ddcore.jobs.comparison import compared, of_run

                self.report.comparison = compared(self.plan, of_run(self.ledger, current, self.dims))
            new = self._after(upcoming) if upcoming.effect is Effect.APPEND else upcoming
            if new is not None:
                self.report.last, self.report.versions = new.last, self._versions(new, {})
                self._warn_of_clocks(new)
        return self.report

    def _after(self, upcoming: NextRun) -> NextRun | None:
        """The versions that the same command folds after a run that appends; None without any."""
        last = self.runs.last()
        if last is None or not self.runs.has_more_after(upcoming):
            return None
        lower = upcoming.times.upper
        return replace(upcoming, last=last, times=Window(lower, close(lower, last)), effect=Effect.EXTEND)

    def note_predecessor(self, lock: Lock | Lease, outcome: str) -> None:
        """Note a process that ended while it held the lock, and what becomes of the run that it may have left;
        ``outcome`` if it left none.
        """
        intent = self.ledger.open_intent()
        if intent is not None and self.options.request.refresh:
            outcome = f"run {intent.run} is given up, and everything is folded anew"
        elif intent is not None:
            same = intent.fingerprint == self.plan.fingerprint
            ending = "is finished first" if same else "is given up: the program has changed"
            outcome = f"run {intent.run} {ending}"
            if lock.dead is None:
                predecessor.note_unfinished(intent, ending)
        self.report.stale_lock = predecessor.tell(lock, self.ledger, outcome)

    def fold_all(self, note_run: Callable[[int], None]) -> RunReport:
        """Fold until no version is left."""
        start = time.perf_counter()
        while (upcoming := self._following()) is not None:
            note_run(upcoming.number)
            self._note(upcoming)
            self._fold(upcoming)
        self.report.took = time.perf_counter() - start
        if self.options.select and not self.report.nothing_new:
            self.report.notes.append(
                f"{listed(self.report.selected)} went ahead of the other outputs; the next ddcore run folds these "
                "versions for all of them"
            )
        if self.report.nothing_new and (note := self._note_waiting()):
            self.report.notes.append(note)
        if self.program and self.runs.cuts and (memory := self.options.project.memory) is not None:
            self.report.notes.append(f"folded in {self.runs.cuts + 1} runs, for {shown_size(memory)} of memory each")
        return self.report

    def _following(self, *, is_dry: bool = False) -> NextRun | None:
        if self.program is None or self._is_ahead():
            return None
        try:
            return self.runs.following(is_dry=is_dry)
        except ProgramChanged:
            self._check_inputs()  # if a schema changed, raises an error that names the input
            raise

    def _is_ahead(self) -> bool:
        """Whether all outputs that are selected are ahead up to what there is."""
        ahead, last = self.ledger.ahead(), self.options.request.last
        if not self.options.select or ahead is None or not self.ledger.is_ahead_of_changes():
            return False
        last = last or self.ledger.latest_ingested(self.plan.inputs)
        return last is not None and all(
            name in ahead.upper and not is_open(last, ahead.upper[name]) for name in self.plan.outputs
        )

    def _note(self, upcoming: NextRun) -> None:
        report = self.report
        report.nothing_new, report.run, report.last = False, upcoming.number, upcoming.last
        report.first = upcoming.first if report.first is None else report.first
        report.upper = upcoming.times.upper
        if upcoming.effect is Effect.APPEND:
            return
        report.windows.append((upcoming.number, upcoming.first, upcoming.last))
        self._warn_of_clocks(upcoming)

    def _warn_of_clocks(self, upcoming: NextRun) -> None:
        """Warn, once in a command, if inputs that it folds for the first time end at different versions."""
        again = upcoming.effect is Effect.REWRITE and self.ledger.current_run() is not None
        if len(self.dims) > 1 or again or self.warned:
            return
        ends, counted = clocks.ends_apart(self.ledger, self._ingests(upcoming), upcoming.times)
        if ends:
            self.warned = True
            self.report.warnings.append(clocks.told(ends, counted, self.report.names))

    def _check_inputs(self) -> None:
        """Refuse inputs whose schema in dd.toml is not the one they were ingested with."""
        from ddcore.io.logs.inputs import check_input

        for name in self.plan.inputs:
            check_input(self.ledger, self.options.project, name)

    # -- the fold, between intent and record --------------------------------------------------------------------------

    def _fold(self, upcoming: NextRun) -> None:
        """Fold, and record the run, or its failure if nothing was committed."""
        from ddcore.jobs.lineage import Lineage
        from ddcore.jobs.running.commits import Commits
        from ddcore.jobs.running.profiles import profile_record, warnings
        from ddcore.planning.rebuilding import definitions

        start, options = time.perf_counter(), self.options
        self._check_inputs()
        self._check_names()
        instants.require(self.ledger, self.plan, self._ingests(upcoming), upcoming.times)
        self._tell(upcoming)
        engine = engines.load(options.engine, options.project, options.parallelism, options.warm)
        if not upcoming.is_resumed:
            self.ledger.append(self._intent(upcoming))
        lineage = Lineage(options.project, self.plan, self.warehouse)
        lineage.start()
        self.commits = commits = Commits(self.ledger, self.plan, upcoming)
        try:
            commits.prepare()
            fold = self._fold_input(upcoming)
            gained, parallelism = (
                (FoldResult(groups=fold.stored.groups), 1)
                if fold.rebuilding is not None and not fold.rebuilding
                else engine(fold, options.listener)
            )
            broken = self._check_tests(upcoming, gained)
            if upcoming.part:
                self._record_part(upcoming, commits.commit_part(gained), gained, commits, time.perf_counter() - start)
                lineage.end()
                self.report.rounds, self.report.parallelism = max(self.report.rounds, gained.rounds), parallelism
                self._note_broken(broken)
                return
            tables, corrections = commits.commit(gained)
        except BaseException as error:
            self._note_failure(upcoming, error)
            lineage.fail(one_line(error))
            raise
        versions = [] if upcoming.effect is Effect.APPEND else self._versions(upcoming, commits.added(gained))
        before, groups = upcoming.base, commits.groups(gained)
        profile = profile_record(self.plan, gained.profile)
        self.ledger.append(
            record := RunRecord(
                run=upcoming.number,
                fingerprint=self.plan.fingerprint,
                first=upcoming.first,
                last=upcoming.last,
                engine=options.engine,
                parallelism=parallelism,
                rounds=gained.rounds,
                took=time.perf_counter() - start,
                inputs=_counts(versions, 1),
                outputs=_counts(versions, 2) | {name: gained.outputs.get(name, {}) for name in sorted(commits.anew)},
                tables=tables,
                refresh=upcoming.refresh,
                program_inputs=tuple(self.plan.inputs),
                lower=self._stored(upcoming.times.lower),
                upper=self._stored(upcoming.times.upper),
                base=0 if before is None else before.run,
                definitions=definitions(self.plan),
                arrangements=tuple(
                    arrangement.fingerprint for arrangement in self.plan.arrangements if not arrangement.transient
                ),
                corrections=corrections,
                published_from=upcoming.first if upcoming.effect is Effect.APPEND else None,
                outdated=tuple(commits.outdated) if upcoming.effect is Effect.APPEND else None,
                large=_sorted(groups.grown),
                noted=_sorted(groups.noted),
                profile=profile,
                broken={failure.test.name: failure.record for failure in broken},
                instants=instants.folded_digest(self.ledger, self.plan, upcoming.times.upper),
            )
        )
        lineage.complete(record)
        self.report.versions += versions
        self.report.rounds, self.report.parallelism = max(self.report.rounds, gained.rounds), parallelism
        self.report.corrections = commits.corrected
        self._note_changes(commits)
        self.report.warnings += [warning for warning in warnings(profile) if warning not in self.report.warnings]
        self._note_broken(broken)

    def _record_part(
        self, upcoming: NextRun, tables: Mapping[str, TableState], gained: FoldResult, commits: Commits, took: float
    ) -> None:
        """Record that some outputs are ahead; others that were stay so."""
        versions, ahead = self._versions(upcoming, commits.added(gained)), self.ledger.ahead()
        self.ledger.append(
            PartRecord(
                upcoming.number,
                self.options.request.whole,
                upcoming.first,
                upcoming.last,
                self.options.engine,
                took,
                outputs=_counts(versions, 2),
                tables={**({} if ahead is None else ahead.tables), **tables},
                upper={
                    **({} if ahead is None else ahead.upper),
                    **dict.fromkeys(tables, upcoming.times.upper),
                },
            )
        )
        self.report.versions += versions

    def _check_tests(self, upcoming: NextRun, gained: FoldResult) -> list[Broken]:
        """The data tests that are broken and only warn. BrokenTest, StorageError."""
        if not self.tests:
            return []
        from ddcore.jobs.running import data_tests

        assert self.commits is not None
        times = [time for time, _, _ in self._versions(upcoming, {})]
        has_more = self.runs.has_more_after(upcoming)
        try:
            return data_tests.check(self.tests, self.commits, gained, times, self.report.names, is_last=not has_more)
        except BrokenTest:
            # An earlier attempt may have committed these very files.
            if not (upcoming.is_resumed and is_committed(self.ledger, upcoming.number)):
                self.commits.discard(gained)
            raise

    def _note_broken(self, broken: Sequence[Broken]) -> None:
        for failure in broken:
            self.report.broken.append(failure.fields(self.dims, self.report.names))
            self.report.warnings.append(
                f"{failure.told(self.report.names)}; all rows: ddcore show {failure.test.output}"
            )

    def _note_waiting(self) -> str:
        """A sentence on corrections of outputs that no run has published yet."""
        run = self.ledger.current_run()
        if run is None or not run.waiting_corrections:
            return ""
        outputs = [name.removeprefix("outputs/") for name in run.waiting_corrections]
        changes = f"{', '.join(outputs)} {'changes' if len(outputs) == 1 else 'change'}"
        following = run.last.version + 1
        return f"{changes} at version {following}; to fold it now, without rows: ddcore run --to-version {following}"

    def _note_changes(self, commits: Commits, *, dry: bool = False) -> None:
        """Tell of a run that does more than to fold what is new."""
        report, told = self.report, changes.notes(commits, dry=dry)
        report.notes += told
        report.publishes = changes.publishes(commits) or report.publishes
        report.changed |= commits.changes

    def _tell(self, upcoming: NextRun) -> None:
        if self.options.listener:
            last = shown(upcoming.last, self.dims)
            note = f"versions {upcoming.first}..{last}" if len(self.dims) == 1 else f"to {last}"
            self.options.listener("fold", 0, None, note)

    def _check_names(self) -> None:
        """Refuse, before anything is written, names that no table can have. UsageError, ProgramError."""
        from ddcore.io.state import layout

        for name, _, _ in layout.tables_of(self.plan):
            self.warehouse.table(name)
        for output, schema in self.plan.outputs.items():
            self.warehouse.output(output)
            _check_columns([*schema, *self.plan.dims, "diff"])

    def _intent(self, upcoming: NextRun) -> IntentRecord:
        return IntentRecord(
            run=upcoming.number,
            fingerprint=self.plan.fingerprint,
            first=upcoming.first,
            last=upcoming.last,
            parallelism=self.options.parallelism or 1,
            engine=self.options.engine,
            refresh=upcoming.refresh,
            program_inputs=tuple(self.plan.inputs),
            lower=self._stored(upcoming.times.lower),
            upper=self._stored(upcoming.times.upper),
            base=0 if upcoming.base is None else upcoming.base.run,
            appends=upcoming.effect is Effect.APPEND,
            part=upcoming.part,
        )

    def _stored(self, frontier: Frontier) -> Frontier:
        """A frontier as records have it: none with one dimension."""
        return () if len(self.dims) == 1 else frontier

    def _note_failure(self, upcoming: NextRun, error: BaseException) -> None:
        """Give the run up if no table holds a commit of it. If the ledger cannot be written, the run stays unfinished,
        and the next run finishes it or gives it up.
        """
        # An earlier attempt of a known run may have committed tables.
        begun = upcoming.is_resumed or (self.commits is not None and self.commits.begun)
        if begun and is_committed(self.ledger, upcoming.number):
            return
        with suppress(DdError, OSError):
            span = upcoming.first, upcoming.last
            self.ledger.append(
                FailureRecord(
                    upcoming.number, self.plan.fingerprint, *span, self.options.engine, masked(one_line(error))
                )
            )

    def _fold_input(self, upcoming: NextRun) -> Fold:
        assert self.commits is not None
        begin = self._begin(upcoming)
        return Fold(
            self.plan,
            self.commits.stored(),
            upcoming.times,
            {name: self.ledger.input_table(name) for name in self.plan.inputs},
            self.options.project,
            self.options.parallelism,
            sum(_rows(ingest, upcoming) for ingest in self._ingests(upcoming)),
            begin,
            self.commits.rebuilding,
            instants.folded(self.ledger, self.plan, upcoming.times, begin),
        )

    def _begin(self, upcoming: NextRun) -> tuple[int, ...] | None:
        """The least time that there is, if the run completes it; where history was given up, the first that is left."""
        (least,) = nothing_closed(self.dims)
        (begin,) = self.ledger.since() or (least,)
        return begin if least in upcoming.times else None

    def _ingests(self, upcoming: NextRun) -> Iterator[IngestRecord]:
        """The ingests of the program's inputs that may have a version in the window."""
        ingests = self.ledger.ingests(since=upcoming.times.lower, until=upcoming.last)
        return (ingest for ingest in ingests if ingest.input in self.plan.inputs)

    def _versions(
        self, window: NextRun, outputs: Mapping[str, Mapping[Time, tuple[int, int]]]
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
            for version in sorted(inputs_by_version)
        ]


def _rows(ingest: IngestRecord, window: NextRun) -> int:
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


def _counts(versions: Sequence[tuple[Time, Changes, Changes]], side: int) -> dict[str, dict[Time, tuple[int, int]]]:
    counts: dict[str, dict[Time, tuple[int, int]]] = {}
    for version in versions:
        for name, change in (version[1] if side == 1 else version[2]).items():
            counts.setdefault(name, {})[version[0]] = change
    return counts


def _sorted(codes: Mapping[str, set[int]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(sorted(each)) for name, each in sorted(codes.items())}
