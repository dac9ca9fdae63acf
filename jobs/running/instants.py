"""The instants of versions, for a program that uses ``dd.now``: those that the ingests of its inputs gave.

They are a collection that no table has: a run derives it from the labels in the ledger. Its record has a digest of what
was folded, so that the next run sees where instants of folded versions are others by now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ddcore.base.digests import digest
from ddcore.base.errors import UsageError
from ddcore.base.instants import Instants, Moved, moved, now_at
from ddcore.base.lattice import Frontier, join
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IngestRecord
from ddcore.io.project.frontiers import Window, is_open, nothing_closed
from ddcore.io.project.times import Time, named

if TYPE_CHECKING:
    from ddcore.io.project.kept_plans import KeptPlan
    from ddcore.planning.plan import Plan


def known(ledger: Ledger, plan: Plan | KeptPlan) -> Instants:
    """The instants of all versions of the program's inputs."""
    return ledger.version_names(plan.dims, [*plan.inputs]).instants


def folded(ledger: Ledger, plan: Plan | KeptPlan, window: Window, begin: Sequence[int] | None) -> tuple[Moved, ...]:
    """The updates of instants in a window; none for a program that does not use them.

    ``begin``: the first time of which there is history, if the window begins there: what was before is there then.
    """
    if not plan.uses_now:
        return ()
    first = tuple(begin or (0,) * len(plan.dims))
    return tuple(
        (instant, join(time, first), diff) for instant, time, diff in moved(known(ledger, plan)) if time in window
    )


def require(ledger: Ledger, plan: Plan | KeptPlan, ingests: Iterable[IngestRecord], window: Window) -> None:
    """UsageError where a version to fold has rows, and neither an instant nor a version with one before it."""
    if not plan.uses_now:
        return
    instants = known(ledger, plan)
    for ingest in ingests:
        for time in ingest.counts:
            if time in window and now_at(instants, time) is None:
                what = named(time, plan.dims)
                raise UsageError(
                    f"the program uses now(), and neither {what}, at which {ingest.input} has rows, nor one before it"
                    " has an instant",
                    "ingest with: --label 2026-11-19, or another date or timestamp; dd log shows which have one",
                )


def folded_digest(ledger: Ledger, plan: Plan | KeptPlan, complete: Frontier) -> str:
    """What identifies the instants of complete times; empty for a program that does not use them."""
    if not plan.uses_now:
        return ""
    return _digest(known(ledger, plan), complete)


def changed(ledger: Ledger, plan: Plan | KeptPlan) -> list[Time]:
    """The least folded times from which on instants may be others than those that were folded."""
    current = ledger.current_run()
    if current is None or not current.instants:
        return []
    instants = known(ledger, plan)
    if current.instants == _digest(instants, current.complete):
        return []
    runs = (run.complete for run in ledger.lineage() if run.instants == _digest(instants, run.complete))
    return [Time(element) for element in next(runs, nothing_closed(plan.dims))]


def _digest(instants: Instants, complete: Frontier) -> str:
    rows = ((instant, time, diff) for instant, time, diff in moved(instants) if not is_open(time, complete))
    return digest(map(repr, rows))
