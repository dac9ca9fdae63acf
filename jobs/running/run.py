"""One run: the window that comes next is folded, between its intent and its record in the ledger.

The steps: check names, schemas, Java, jars and kernels; write an intent record; fold, which writes files that are not
visible yet; check the data tests; commit each table, state first and outputs last; write the run's record.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ddcore.base.errors import BrokenTest, DdError
from ddcore.io.ledger.intent import is_committed
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.logs.inputs import check_input
from ddcore.io.project.frontiers import nothing_closed
from ddcore.io.project.kept_plans import PlannedProgram
from ddcore.io.project.project import Project
from ddcore.io.project.times import shown
from ddcore.io.state import layout
from ddcore.io.state.fold_result import FoldResult
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import engines
from ddcore.jobs.failures import one_line
from ddcore.jobs.fold import Fold
from ddcore.jobs.lineage import Lineage
from ddcore.jobs.report import RunReport
from ddcore.jobs.running import changes, instants
from ddcore.jobs.running.commits import Commits
from ddcore.jobs.running.next_run import Effect, NextRun, Options
from ddcore.jobs.running.profiles import warnings
from ddcore.jobs.running.records import Records
from ddcore.jobs.running.versions import Version, ingests_of, rows_of, versions_of

if TYPE_CHECKING:
    from ddcore.jobs.running.data_tests import Broken
    from ddcore.planning.plan import Plan


class Run:
    """The run ``upcoming`` of a program; ``report`` is told of it."""

    def __init__(
        self, options: Options, ledger: Ledger, program: PlannedProgram, upcoming: NextRun, report: RunReport
    ) -> None:
        self.options, self.ledger, self.upcoming, self.report = options, ledger, upcoming, report
        self.plan, self.tests = program.plan, program.tests
        self.commits = Commits(ledger, self.plan, upcoming)
        self.records = Records(ledger, self.plan, upcoming, options.engine)

    def fold(self, *, has_more: bool) -> None:
        """Fold, and record the run, or its failure if nothing was committed. ``has_more``: whether the same command
        folds later versions. Raises what :func:`ddcore.jobs.replay.run` does.
        """
        start, options, upcoming, commits = time.perf_counter(), self.options, self.upcoming, self.commits
        check_inputs(self.ledger, options.project, self.plan)
        _check_names(self.ledger.warehouse, self.plan)
        instants.require(self.ledger, self.plan, ingests_of(self.ledger, self.plan, upcoming), upcoming.times)
        self._tell()
        engine = engines.load(options.engine, options.project, options.parallelism, options.warm)
        if not upcoming.is_resumed:
            self.ledger.append(self.records.intent(options.parallelism or 1))
        lineage = Lineage(options.project, self.plan, self.ledger.warehouse)
        lineage.start()
        try:
            commits.prepare()
            fold = self._input()
            if fold.rebuilding is not None and not fold.rebuilding:
                gained, parallelism = FoldResult(groups=fold.stored.groups), 1
            else:
                gained, parallelism = engine(fold, options.listener)
            broken = self._check_tests(gained, has_more=has_more)
            part = commits.commit_part(gained) if upcoming.part else None
            if part is None:
                commits.commit(gained)
        except BaseException as error:
            self._note_failure(error)
            lineage.fail(one_line(error))
            raise
        appends = upcoming.effect is Effect.APPEND
        versions = [] if appends else versions_of(self.ledger, self.plan, upcoming, commits.added(gained))
        took = time.perf_counter() - start
        if part is not None:
            self.ledger.append(self.records.part(options.request.whole, part, versions, took))
            lineage.end()
        else:
            record = self.records.run(commits, gained, versions, broken, parallelism=parallelism, took=took)
            self.ledger.append(record)
            lineage.complete(record)
            self.report.corrections = commits.corrected
            changes.report(commits, self.report)
            self.report.warnings += [text for text in warnings(record.profile) if text not in self.report.warnings]
        self._report(versions, gained.rounds, parallelism, broken)

    def _report(self, versions: Sequence[Version], rounds: int, parallelism: int, broken: Sequence[Broken]) -> None:
        report = self.report
        report.versions += versions
        report.rounds, report.parallelism = max(report.rounds, rounds), parallelism
        for failure in broken:
            report.broken.append(failure.fields(self.plan.dims, report.names))
            report.warnings.append(f"{failure.shown(report.names)}; all rows: ddcore show {failure.test.output}")

    def _tell(self) -> None:
        if self.options.listener:
            upcoming, dims = self.upcoming, self.plan.dims
            last = shown(upcoming.last, dims)
            note = f"versions {upcoming.first}..{last}" if len(dims) == 1 else f"to {last}"
            self.options.listener("fold", 0, None, note)

    def _input(self) -> Fold:
        upcoming, begin = self.upcoming, self._begin()
        return Fold(
            self.plan,
            self.commits.stored(),
            upcoming.times,
            {name: self.ledger.input_table(name) for name in self.plan.inputs},
            self.options.project,
            self.options.parallelism,
            rows_of(self.ledger, self.plan, upcoming),
            begin,
            self.commits.rebuilding,
            instants.folded(self.ledger, self.plan, upcoming.times, begin),
            self.records.loads(),
        )

    def _begin(self) -> tuple[int, ...] | None:
        """The least time that there is, if the run completes it; where history was given up, the first that is left."""
        (least,) = nothing_closed(self.plan.dims)
        (begin,) = self.ledger.since() or (least,)
        return begin if least in self.upcoming.times else None

    def _check_tests(self, gained: FoldResult, *, has_more: bool) -> list[Broken]:
        """The data tests that are broken and only warn. BrokenTest, StorageError."""
        if not self.tests:
            return []
        from ddcore.jobs.running import data_tests

        times = [time for time, _, _ in versions_of(self.ledger, self.plan, self.upcoming, {})]
        try:
            return data_tests.check(self.tests, self.commits, gained, times, self.report.names, is_last=not has_more)
        except BrokenTest:
            # An earlier attempt may have committed these very files.
            if not (self.upcoming.is_resumed and is_committed(self.ledger, self.upcoming.number)):
                self.commits.discard(gained)
            raise

    def _note_failure(self, error: BaseException) -> None:
        """Give the run up if no table holds a commit of it. If the ledger cannot be written, the run stays unfinished,
        and the next run finishes it or gives it up.
        """
        # An earlier attempt of a known run may have committed tables.
        begun = self.upcoming.is_resumed or self.commits.begun
        if begun and is_committed(self.ledger, self.upcoming.number):
            return
        with suppress(DdError, OSError):
            self.ledger.append(self.records.failure(error))


def check_inputs(ledger: Ledger, project: Project, plan: Plan) -> None:
    """Refuse inputs whose schema in dd.toml is not the one they were ingested with."""
    for name in plan.inputs:
        check_input(ledger, project, name)


def _check_names(warehouse: Warehouse, plan: Plan) -> None:
    """Refuse, before anything is written, names that no table can have. UsageError."""
    for name, _, _ in layout.tables_of(plan):
        warehouse.table(name)
    for output in plan.outputs:
        warehouse.output(output)
