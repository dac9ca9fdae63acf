"""Which run comes next: what it folds, and what it continues.

An unfinished run is finished first. Then a history that changed is folded again, then what a changed program needs is
rebuilt, and then the versions that are new are folded. One command may take several of these runs.

A run continues its *base*: the tables of an earlier run, in most cases the last. Rewinding means to continue an older
one, a *kept point*, whose table versions are still on the disk; without one a run starts from nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from ddcore.base.errors import ProgramChanged, UsageError
from ddcore.base.lattice import Frontier, le
from ddcore.base.record import record
from ddcore.base.tuning import DEFAULT
from ddcore.io.delta import tables
from ddcore.io.delta.table_files import TableState
from ddcore.io.ledger.intent import give_up
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IntentRecord, RunRecord
from ddcore.io.project.frontiers import Window, close, is_open, nothing_closed, shown_frontier, versions
from ddcore.io.project.project import Project
from ddcore.io.project.times import Time, least, named, shown
from ddcore.jobs.fold import Listener
from ddcore.jobs.running import instants
from ddcore.jobs.warm import Warm

if TYPE_CHECKING:
    from ddcore.io.project.kept_plans import KeptPlan
    from ddcore.planning.plan import Plan

_REFRESH = "ddcore run --full-refresh"


class Effect(StrEnum):
    """What a run does to the outputs that are there."""

    EXTEND = "extend"
    """They go on: the new versions are added."""

    REWRITE = "rewrite"
    """They become those of the run's base, with what this run adds."""

    APPEND = "append"
    """They keep what they hold, and the next run adds the difference to them."""


CORRECTIONS = (Effect.REWRITE, Effect.APPEND)


@record
class Request:
    """What a command asks for: versions to fold, from where on to fold them again, or everything anew.

    ``memory``: the bytes in which a fold should find room; ``value_bytes``: those that each value of an update takes.
    ``whole``: where only some outputs are folded, the fingerprint of the whole program. ``through``: without a last
    version it goes at least as far as this one.
    """

    first: Time | None = None
    last: Time | None = None
    refresh: bool = False
    corrections: str | None = None
    memory: int | None = None
    value_bytes: int = DEFAULT.value_bytes
    whole: str = ""
    through: Time | None = None


@record
class Options:
    """What to fold, how, and who is told. ``select``: the words that name some outputs; ``parallelism`` forces the
    number of Spark workers; ``warm``: what earlier runs of this process left in memory.
    """

    project: Project
    request: Request
    engine: str
    parallelism: int | None
    listener: Listener | None
    select: tuple[str, ...]
    warm: Warm | None = None


@record
class NextRun:
    """Run ``number`` completes ``times``, up to ``last``, and continues ``base``; None: it starts from nothing.

    ``is_resumed``: its intent is in the ledger already. ``part``: it folds some outputs alone, and stores no state.
    """

    number: int
    first: Time
    last: Time
    times: Window
    base: RunRecord | None
    effect: Effect = Effect.EXTEND
    is_resumed: bool = False
    part: bool = False

    @property
    def refresh(self) -> bool:
        """Whether it replaces what earlier runs left, and continues none of them."""
        return self.base is None and self.effect is not Effect.EXTEND

    def is_rebuild(self, plan: Plan) -> bool:
        """Whether it continues a run of another program."""
        return not self.part and self.base is not None and self.base.fingerprint != plan.fingerprint


class Runs:
    """The runs of one command, one after the other."""

    def __init__(self, ledger: Ledger, plan: Plan | KeptPlan, request: Request) -> None:
        self.ledger, self.plan, self.request = ledger, plan, request
        self.dims = plan.dims
        self.cuts = 0  # windows that were too large for the memory

    def following(self, *, is_dry: bool = False) -> NextRun | None:
        """The run to do now, None where nothing is left. Gives up an unfinished run of another program, unless
        ``is_dry``. Raises UsageError, ProgramChanged.
        """
        if self.request.whole:
            return self._part(is_dry=is_dry)
        if self.request.refresh:
            return self._refresh()
        intent = self.ledger.open_intent()
        if intent is not None and intent.fingerprint == self.plan.fingerprint:
            return self._resumed(intent)
        if intent is not None and not is_dry:
            changed = "a run of all outputs came next" if intent.part else "the program has changed since"
            give_up(self.ledger, f"it was not finished, and {changed}", committed=True)
        self._check_window()
        return self._again() or self._rebuild() or self._new(is_dry=is_dry)

    def has_more_after(self, run: NextRun) -> bool:
        """Whether the same command folds times that this run does not complete."""
        last = self.last()
        return last is not None and is_open(last, run.times.upper)

    def last(self) -> Time | None:
        """The last time to fold. With one dimension, waiting corrections are at the version after the last one."""
        if self.request.last is not None:
            return self.request.last
        latest = self.ledger.latest_ingested(self.plan.inputs)
        return max((time for time in (latest, self.request.through) if time is not None), default=None)

    # -- the kinds of runs --------------------------------------------------------------------------------------------

    def _resumed(self, intent: IntentRecord) -> NextRun:
        base = self.ledger.run(intent.base) if intent.base else None
        if self.request.first is not None and is_open(self.request.first, (intent.first,)):
            self.request = replace(self.request, first=None)  # this run folds it again already
        times = Window(intent.lower, intent.upper) if intent.upper else versions(intent.first, intent.last)
        current = self.ledger.current_run()
        continues = base is not None and current is not None and base.run == current.run
        rewrites = intent.refresh or (base is not None and not continues)
        effect = Effect.APPEND if intent.appends else Effect.REWRITE if rewrites else Effect.EXTEND
        return NextRun(intent.run, intent.first, intent.last, times, base, effect, is_resumed=True)

    def _refresh(self) -> NextRun | None:
        """Everything anew, once. Without a last version it goes at least as far as is folded: what is complete stays
        so, also where the last rows were taken back, and where corrections went to a version without rows.
        """
        self._check_window()
        current, last = self.ledger.current_run(), self.last()
        appends = self._appends(Effect.REWRITE) and current is not None
        self.request = replace(self.request, refresh=False, first=None)
        lower = until = nothing_closed(self.dims)
        if current is not None and (appends or self.request.last is None):
            until = current.complete
            if appends or last is None or not is_open(last, until):
                last = current.last
        if last is None:
            return None
        return replace(
            self._run(lower, close(until, last), last, None), effect=Effect.APPEND if appends else Effect.REWRITE
        )

    def _again(self) -> NextRun | None:
        """What has to be folded again: from the version that was asked for, or at which an input changed."""
        upper, current = self.ledger.upper(), self.ledger.current_run()
        changed = [*map(Time, self.ledger.restated()), *instants.changed(self.ledger, self.plan)]
        if self.request.first is not None:
            changed.append(self.request.first)
        changed = [time for time in changed if upper is not None and not is_open(time, upper)]
        if upper is None or current is None or not changed:
            return None
        is_same = current.fingerprint == self.plan.fingerprint
        appends = self._appends(Effect.REWRITE if is_same else Effect.APPEND)
        end = self.request.last
        if end is not None and is_same and not appends and not any(le(time, end) for time in changed):
            return None  # up to there everything is as it was folded
        runs = self.ledger.lineage() if is_same else iter(())
        base = next((run for run in runs if self._is_kept(run, changed, appends=appends)), None)
        lower = nothing_closed(self.dims) if base is None else base.complete
        last, until = current.last, upper
        if end is not None and not appends and not is_open(end, upper):
            last, until = end, close(lower, end)
        self.request = replace(self.request, first=None)
        return self._run(lower, until, last, base, appends)

    def _rebuild(self) -> NextRun | None:
        """What a changed program needs."""
        current = self.ledger.current_run()
        if current is None:
            return None
        if current.fingerprint == self.plan.fingerprint:
            # Corrections that wait can still be published as a new history.
            return self._refresh() if current.corrections and self.request.corrections == Effect.REWRITE else None
        if not self._appends(Effect.APPEND):
            return self._refresh()
        return self._run(nothing_closed(self.dims), current.complete, current.last, current, appends=True)

    def _new(self, *, is_dry: bool) -> NextRun | None:
        """The versions that no run has folded; where they are too large for the memory, the first of them."""
        lower, last = self.ledger.upper() or nothing_closed(self.dims), self.last()
        if last is None or not is_open(last, lower):
            return None
        if not is_dry:
            self.request = replace(self.request, first=None)  # it is the first of these versions, or None
            last = self._cut(lower, last)
        return self._run(lower, close(lower, last), last, self.ledger.current_run())

    def _part(self, *, is_dry: bool) -> NextRun | None:
        """The versions that no run of all outputs has folded, for some outputs alone. It continues the last run, and
        stores nothing that another continues. Raises UsageError where that one has not done everything before.
        """
        intent, current = self.ledger.open_intent(), self.ledger.current_run()
        why = ""
        if intent is not None and not intent.part:
            why = f"run {intent.run} is not finished"
        elif current is None:
            why = "nothing is folded yet"
        elif current.fingerprint != self.request.whole:
            why = f"the program has changed since run {current.run}"
        elif current.corrections:
            why = f"corrections of run {current.run} wait"
        elif self.ledger.restated():
            why = "inputs have changed at versions that are folded"
        if why:
            raise UsageError(f"--select: {why}, which concerns all outputs", "first, without --select: ddcore run")
        self._check_window()
        if intent is not None and not is_dry:
            give_up(self.ledger, "it was not finished", committed=True)
        lower, last = self.ledger.upper(), self.last()
        if lower is None or last is None or not is_open(last, lower):
            return None
        return replace(self._run(lower, close(lower, last), last, current), part=True)

    def _cut(self, lower: Frontier, last: Time) -> Time:
        """The last time, or an earlier one, to which the updates find room in memory as the ledger counts them. With
        several dimensions windows are cut along the first one.
        """
        if self.request.memory is None:
            return last
        values, room = (
            self._values(Window(lower, close(lower, last)), last),
            self.request.memory / self.request.value_bytes,
        )
        taken, end = 0.0, None
        for first, number in sorted(values.items()):
            taken += number
            if taken > room and end is not None:
                self.cuts += 1
                return Time([end, *last[1:]])
            end = first
        return last

    def _values(self, window: Window, last: Time) -> dict[int, float]:
        """About how many values the updates of a window have, by the first coordinate of their times."""
        values: dict[int, float] = {}
        for ingest in self.ledger.ingests(since=window.lower, until=last):
            if ingest.input not in self.plan.inputs or not ingest.counts:
                continue
            # A diff may be far more than 1; the number of rows is known for all times together.
            units = sum(plus + minus for plus, minus in ingest.counts.values())
            width = (len(self.plan.inputs[ingest.input]) + len(self.dims) + 1) * min(1.0, ingest.rows / max(1, units))
            for time, (plus, minus) in ingest.counts.items():
                if time in window:
                    first = time[0]
                    values[first] = values.get(first, 0.0) + width * (plus + minus)
        return values

    def _run(
        self, lower: Frontier, upper: Frontier, last: Time, base: RunRecord | None, appends: bool = False
    ) -> NextRun:
        since = self.ledger.since()
        if since and not is_open(last, since):  # there its outputs could be read at no version
            kept = shown_frontier(since, self.dims)
            raise UsageError(
                f"--to-version {shown(last, self.dims)}: the history before {kept} was given up",
                f"fold at least through {kept}",
            )
        current = self.ledger.current_run()
        rewrites = current is not None and (base is None or base.run != current.run)
        effect = Effect.APPEND if appends else Effect.REWRITE if rewrites else Effect.EXTEND
        return NextRun(self.ledger.next_run(), least(lower), last, Window(lower, upper), base, effect)

    # -- what they need -----------------------------------------------------------------------------------------------

    def _appends(self, default: str) -> bool:
        """Whether outputs keep what they hold. Raises UsageError, ProgramChanged with several time dimensions."""
        if (self.request.corrections or default) != Effect.APPEND:
            return False
        if len(self.dims) == 1:
            return True
        if self.request.corrections:
            raise UsageError(
                f"--corrections {Effect.APPEND}: it needs a version after the last one, and the times here have the "
                f"dimensions {', '.join(self.dims)}",
                f"say --corrections {Effect.REWRITE}",
            )
        current = self.ledger.current_run()
        assert current is not None
        raise ProgramChanged(
            f"the program changed: the state of run {current.run} was made by program {current.fingerprint[:12]}, "
            f"this one is {self.plan.fingerprint[:12]}",
            f"put the program back, or rebuild state and outputs: {_REFRESH}",
        )

    def _check_window(self) -> None:
        option = "--to-version" if len(self.dims) == 1 else "--to"
        check_window(
            self.ledger, self.dims, self.request.first, self.request.last, option=option, inputs=self.plan.inputs
        )

    def _is_kept(self, run: RunRecord, changed: list[Time], *, appends: bool) -> bool:
        """Whether folding can start from a run: everything that changed comes after it, and the table versions that its
        record names are still there.
        """
        if run.corrections or not all(is_open(time, run.complete) for time in changed):
            return False
        needed: Mapping[str, TableState] = {
            name: state for name, state in run.tables.items() if name.startswith("state/") or not appends
        }
        warehouse, writer = self.ledger.warehouse, self.ledger.writer
        return all(tables.is_kept(warehouse.table(name), state, writer) for name, state in needed.items())


def check_window(
    ledger: Ledger, dims: Sequence[str], first: Time | None, last: Time | None, *, option: str, inputs: Collection[str]
) -> None:
    """Raise UsageError for versions to fold that were not ingested, of these inputs, or that leave some out. ``option``
    is the one that says the last.
    """
    lower, latest = ledger.upper() or nothing_closed(dims), latest_of(ledger, inputs)
    if last is not None and is_open(last, lower) and not (latest is not None and le(last, latest)):
        known = "the last one is" if len(dims) == 1 else "the greatest coordinates are"
        known = "nothing is" if latest is None else f"{known} {ledger.version_names(dims).shown(latest)}"
        raise UsageError(f"{option}: {named(last, dims)} was not ingested: {known}", f"say {option} latest")
    if first is not None and last is not None and not le(first, last):
        raise UsageError(
            f"--from-version {shown(first, dims)} is not at or before {option} {shown(last, dims)}",
            "both ends are inclusive",
        )
    if first is None or not is_open(first, lower) or first in lower:
        return
    waiting = [time for record in ledger.waiting() for time in record.counts if is_open(time, lower)]
    if left := sorted(time for time in waiting if not le(first, time)):
        raise UsageError(
            f"--from-version {shown(first, dims)} would leave out {named(left[0], dims)}, which is not folded",
            f"say --from-version {shown(left[0], dims)}, or leave it to the ledger: ddcore run",
        )
    if not waiting:
        folded = ledger.last_folded()
        until = "nothing" if folded is None else f"{named(folded, dims)} is folded, and no later one"
        raise UsageError(
            f"--from-version {shown(first, dims)}: {until} was ingested",
            "name a version to fold again from, or ingest this one first",
        )


def latest_of(ledger: Ledger, inputs: Collection[str]) -> Time | None:
    """The last time that a run may fold: the last ingested one. With one dimension also one that is folded, though its
    rows were taken back since, and the version at which corrections wait.
    """
    latest, current = ledger.latest_ingested(inputs), ledger.current_run()
    if current is None or len(current.last) > 1:
        return latest
    following = Time([current.last.version + bool(current.corrections)])
    return following if latest is None else max(following, latest)
