"""Replay: folds every version that was ingested and not yet folded, and makes the result visible all at once.

It checks the program and takes one run after the other (:mod:`ddcore.jobs.running.run`) until no version is left.
If a run fails before its first commit, a failure record gives it up: its versions stay open and its program may
change. If it is killed, the next command finishes it over the same window: the fold is deterministic, and a table that
holds the run's files already stays as it is. With another program it is given up, if no table holds a commit of it.

If there is nothing to fold, this imports neither numba nor Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from ddcore.base.errors import DdError, ProgramChanged, UsageError
from ddcore.io.ledger import recovery
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.left_out import left_out
from ddcore.io.project.frontiers import Window, close, is_open, nothing_closed
from ddcore.io.project.kept_plans import KeptPlan, PlannedProgram, kept_plan, planned
from ddcore.io.project.project import Project
from ddcore.io.project.times import Time
from ddcore.io.storage.lock import Lock
from ddcore.jobs import engines, predecessor
from ddcore.jobs.compact import after_run
from ddcore.jobs.fold import Listener
from ddcore.jobs.publishing import check_tables, publish
from ddcore.jobs.report import RunReport
from ddcore.jobs.running import changes, clocks
from ddcore.jobs.running.next_run import CORRECTIONS, Effect, NextRun, Options, Request, Runs
from ddcore.jobs.running.statistics import keep_new_statistics
from ddcore.jobs.running.versions import ingests_of, versions_of
from ddcore.jobs.upstream import Reader, waiting
from ddcore.jobs.warm import Warm
from ddcore.program.data_tests import is_test
from ddcore.text.sizes import shown_size
from ddcore.text.wording import counted, listed

if TYPE_CHECKING:
    from ddcore.io.ledger.records import IngestRecord, UndoRecord
    from ddcore.io.storage.lease import Lease
    from ddcore.planning.plan import Plan

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
    if select and (full_refresh or first is not None or corrections):
        option = "--full-refresh" if full_refresh else "--corrections" if corrections else f"--from-version {first}"
        raise UsageError(f"{option}: it concerns all outputs, and --select names some", "leave one of the two out")
    warehouse = project.tables
    if project.upstream is None or dry_run:
        warehouse.check()
    else:
        warehouse.begin(project.root)
    if corrections not in (None, *CORRECTIONS):
        raise UsageError(f"--corrections {corrections}: not known", f"one of: {', '.join(CORRECTIONS)}")
    request = Request(first, last, full_refresh, corrections, project.memory, project.tuning.value_bytes)
    options = Options(project, request, engine or project.engine, parallelism, listener, tuple(select), warm)
    if dry_run:
        return _Replay(options, Ledger.load(warehouse, refresh=full_refresh)).preview()
    writing = predecessor.writing(warehouse, "ddcore run", project.tuning, refresh=full_refresh, held=held)
    with ExitStack() as stack, writing as (lock, ledger):
        if warm is not None:
            warm.recall(ledger)
        finished = recovery.finish(ledger, refresh=full_refresh)
        reader = None if project.upstream is None else Reader(project, ledger, refresh=full_refresh)
        taken = 0 if reader is None or (ledger.open_intent() and not full_refresh) else len(reader.take())
        keep_new_statistics(project, ledger, refresh=full_refresh)
        replay = _Replay(options, ledger, reader, taken)
        replay.note_predecessor(lock, finished)
        report = replay.fold_all(lock.note_run, stack)
        report.published = publish(project, ledger, None if warm is None else warm.tables, options.engine)
        if not select:
            # Also if nothing is new: the command before may have been killed here.
            after_run(project, ledger, ran=not report.nothing_new)
        if reader is not None:
            reader.keep()
        if warm is not None:
            warm.note(ledger)
        return report


class _Replay:
    """One command: finishes an unfinished window, then folds new versions."""

    def __init__(self, options: Options, ledger: Ledger, reader: Reader | None = None, taken: int = 0) -> None:
        self.options, self.ledger, self.warehouse = options, ledger, ledger.warehouse
        # Of another project's inputs, and how many changes of them it took over.
        self.reader, self.taken = reader, taken
        if reader is not None and reader.through is not None:
            self.options = options = replace(options, request=replace(options.request, through=reader.through))
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
            self.program = (options.warm or Warm()).planned(project, kept)
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
            self.report.last, self.report.upper = ahead.last, ahead.uppers[self.report.selected[0]]

    @property
    def plan(self) -> Plan:
        """The program's plan."""
        assert self.program is not None
        return self.program.plan

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
        if self.options.project.upstream is not None and (many := waiting(self.options.project, self.ledger)):
            root = self.options.project.upstream.root
            self.report.notes.append(f"the run first takes over {counted(many, 'change')} of inputs from {root}")
        upcoming = self._following(is_dry=True)
        if upcoming is not None:
            from ddcore.jobs.running.commits import Commits

            self._note(upcoming)
            commits = Commits(self.ledger, self.plan, upcoming)
            changes.report(commits, self.report, dry=True)
            if commits.changed and not self.options.select and (current := self.ledger.current_run()) is not None:
                from ddcore.jobs.comparison import compared, of_run

                self.report.comparison = compared(self.plan, of_run(self.ledger, current, self.dims))
            new = self._after(upcoming) if upcoming.effect is Effect.APPEND else upcoming
            if new is not None:
                self.report.last = new.last
                self.report.versions = versions_of(self.ledger, self.plan, new, {})
                self._warn_of_clocks(new)
        return self.report

    def _after(self, upcoming: NextRun) -> NextRun | None:
        """The versions that the same command folds after a run that appends; None without any."""
        last = self.runs.last()
        if last is None or not self.runs.has_more_after(upcoming):
            return None
        lower = upcoming.times.upper
        return replace(upcoming, last=last, times=Window(lower, close(lower, last)), effect=Effect.EXTEND)

    def note_predecessor(self, lock: Lock | Lease, finished: Sequence[IngestRecord | UndoRecord]) -> None:
        """Note a process that ended while it held the lock, and what becomes of the run that it may have left; what is
        ``finished`` if it left none.
        """
        intent, outcome = self.ledger.open_intent(), ""
        if intent is not None and self.options.request.refresh:
            outcome = f"run {intent.run} is given up, and everything is folded anew"
        elif intent is not None:
            same = intent.fingerprint == self.plan.fingerprint
            ending = "is finished first" if same else "is given up: the program has changed"
            outcome = f"run {intent.run} {ending}"
            if lock.dead is None:
                predecessor.note_unfinished(intent, ending)
        self.report.stale_lock = predecessor.tell(lock, self.ledger, outcome, finished)

    def fold_all(self, note_run: Callable[[int], None], stack: ExitStack) -> RunReport:
        """Fold until no version is left. ``stack`` keeps a session of Spark for published tables."""
        start = time.perf_counter()
        while (upcoming := self._following()) is not None or self._take_more():
            if upcoming is not None:
                if self.report.nothing_new and self.options.project.published:
                    stack.enter_context(engines.kept(self.options.engine))
                note_run(upcoming.number)
                self._note(upcoming)
                self._fold(upcoming)
        if self.reader is not None and self.taken:
            self.report.notes.append(
                f"took over {counted(self.taken, 'change')} of inputs from {self.reader.upstream.root}"
            )
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

    def _fold(self, upcoming: NextRun) -> None:
        from ddcore.jobs.running.run import Run

        assert self.program is not None
        run = Run(self.options, self.ledger, self.program, upcoming, self.report)
        run.fold(has_more=self.runs.has_more_after(upcoming))

    def _take_more(self) -> bool:
        """Take over what other inputs have that could not be before: a run was unfinished, or had to come first."""
        reader, request = self.reader, self.options.request
        if reader is None or (reader.was_read and (reader.through is None or request.last is not None)):
            return False
        before = reader.through
        taken = len(reader.take())
        self.taken += taken
        if not taken and reader.through == before:
            return False
        self.program = self.program or planned(self.options.project, kept_plan(self.options.project))
        self.runs.request = replace(self.runs.request, through=reader.through)
        self.report.names = self.ledger.version_names(self.dims).read()
        return True

    def _following(self, *, is_dry: bool = False) -> NextRun | None:
        if self.program is None or self._is_ahead():
            return None
        try:
            return self.runs.following(is_dry=is_dry)
        except ProgramChanged:
            from ddcore.jobs.running.run import check_inputs

            # If a schema changed, raises an error that names the input.
            check_inputs(self.ledger, self.options.project, self.plan)
            raise

    def _is_ahead(self) -> bool:
        """Whether all outputs that are selected are ahead up to what there is."""
        ahead, last = self.ledger.ahead(), self.options.request.last
        if not self.options.select or ahead is None or not self.ledger.is_ahead_of_changes():
            return False
        last = last or self.ledger.latest_ingested(self.plan.inputs)
        return last is not None and all(
            name in ahead.uppers and not is_open(last, ahead.uppers[name]) for name in self.plan.outputs
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
        ends, counted = clocks.ends_apart(self.ledger, ingests_of(self.ledger, self.plan, upcoming), upcoming.times)
        if ends:
            self.warned = True
            self.report.warnings.append(clocks.shown(ends, counted, self.report.names))

    def _note_waiting(self) -> str:
        """A sentence on corrections of outputs that no run has published yet."""
        run = self.ledger.current_run()
        if run is None or not run.waiting_corrections:
            return ""
        outputs = [name.removeprefix("outputs/") for name in run.waiting_corrections]
        changes = f"{', '.join(outputs)} {'changes' if len(outputs) == 1 else 'change'}"
        following = run.last.version + 1
        return f"{changes} at version {following}; to fold it now, without rows: ddcore run --to-version {following}"
