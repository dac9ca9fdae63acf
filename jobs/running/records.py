"""The records of one run in the ledger: what it is to do, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddcore.base.lattice import Frontier
from ddcore.base.record import record
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import FailureRecord, IntentRecord, PartRecord, RunRecord
from ddcore.io.ledger.workloads import Workload, kept
from ddcore.io.state.fold_result import FoldResult
from ddcore.jobs.failures import one_line
from ddcore.jobs.running import instants
from ddcore.jobs.running.next_run import Effect, NextRun
from ddcore.jobs.running.versions import Version, counts_of
from ddcore.text.redaction import masked

if TYPE_CHECKING:
    from ddcore.io.delta.table_files import TableState
    from ddcore.jobs.running.commits import Commits
    from ddcore.jobs.running.data_tests import Broken
    from ddcore.planning.plan import Plan


@record
class Records:
    """Those of the run ``upcoming`` of a plan. ``engine`` folds it."""

    ledger: Ledger
    plan: Plan
    upcoming: NextRun
    engine: str

    def intent(self, parallelism: int) -> IntentRecord:
        """Written before the fold."""
        upcoming = self.upcoming
        appends = upcoming.effect is Effect.APPEND
        return IntentRecord(**self._same(), parallelism=parallelism, appends=appends, part=upcoming.part)

    def _same(self) -> dict[str, Any]:
        """What the intent and the record of the run both say."""
        upcoming = self.upcoming
        return {
            "run": upcoming.number,
            "fingerprint": self.plan.fingerprint,
            "first": upcoming.first,
            "last": upcoming.last,
            "engine": self.engine,
            "refresh": upcoming.refresh,
            "program_inputs": tuple(self.plan.inputs),
            "lower": self._stored(upcoming.times.lower),
            "upper": self._stored(upcoming.times.upper),
            "base": 0 if upcoming.base is None else upcoming.base.run,
        }

    def failure(self, error: BaseException) -> FailureRecord:
        """Written where nothing was committed: the versions are open again."""
        upcoming, text = self.upcoming, masked(one_line(error))
        return FailureRecord(upcoming.number, self.plan.fingerprint, upcoming.first, upcoming.last, self.engine, text)

    def part(
        self, whole: str, tables: Mapping[str, TableState], versions: Sequence[Version], took: float
    ) -> PartRecord:
        """Some outputs are ahead; others that were stay so. ``whole``: the fingerprint of the whole program."""
        upcoming, ahead = self.upcoming, self.ledger.ahead()
        return PartRecord(
            upcoming.number,
            whole,
            upcoming.first,
            upcoming.last,
            self.engine,
            took,
            outputs=counts_of(versions)[1],
            tables={**({} if ahead is None else ahead.tables), **tables},
            uppers={**({} if ahead is None else ahead.uppers), **dict.fromkeys(tables, upcoming.times.upper)},
        )

    def run(
        self,
        commits: Commits,
        gained: FoldResult,
        versions: Sequence[Version],
        broken: Sequence[Broken],
        *,
        parallelism: int,
        took: float,
    ) -> RunRecord:
        """Written after the commits; ``versions`` are those that outputs got."""
        from ddcore.jobs.running.profiles import profile_record
        from ddcore.planning.rebuilding import definitions

        plan, upcoming, groups = self.plan, self.upcoming, commits.groups(gained)
        inputs, outputs = counts_of(versions)
        appends = upcoming.effect is Effect.APPEND
        return RunRecord(
            **self._same(),
            parallelism=parallelism,
            rounds=gained.rounds,
            took=took,
            inputs=inputs,
            outputs=outputs | {name: gained.outputs.get(name, {}) for name in sorted(commits.anew)},
            tables=commits.live,
            definitions=definitions(plan),
            arrangements=tuple(
                arrangement.fingerprint for arrangement in plan.arrangements if not arrangement.transient
            ),
            corrections=commits.corrections,
            published_from=upcoming.first if appends else None,
            outdated=tuple(commits.outdated) if appends else None,
            large=_sorted(groups.grown),
            noted=_sorted(groups.noted),
            profile=profile_record(plan, gained.profile),
            broken={failure.test.name: failure.record for failure in broken},
            instants=instants.folded_digest(self.ledger, plan, upcoming.times.upper),
            why=gained.why,
            sent=gained.sent,
            loads=self._loads(gained),
        )

    def loads(self) -> tuple[Workload, ...]:
        """What workers on Spark took in earlier runs of this program."""
        last = self.ledger.current_run()
        return last.loads if last is not None and last.fingerprint == self.plan.fingerprint else ()

    def _loads(self, gained: FoldResult) -> tuple[Workload, ...]:
        new = gained.load
        return self.loads() if new is None else kept(self.loads(), replace(new, run=self.upcoming.number))

    def _stored(self, frontier: Frontier) -> Frontier:
        """A frontier as records have it: none with one dimension."""
        return () if len(self.plan.dims) == 1 else frontier


def _sorted(codes: Mapping[str, set[int]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(sorted(of)) for name, of in sorted(codes.items())}
