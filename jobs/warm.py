"""What stays in memory from one sync of a follower to the next. All of it is compared with the warehouse before use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddcore.io.delta.heads import seen
from ddcore.io.project.kept_plans import KeptPlan, PlannedProgram, planned
from ddcore.io.project.project import Project

if TYPE_CHECKING:
    from ddcore.io.delta.heads import Listed, Seen
    from ddcore.io.ledger.entry import Entry
    from ddcore.io.ledger.ledger import Ledger
    from ddcore.io.publishing.commits import Snapshot
    from ddcore.io.state.hot import Hot
    from ddcore.io.storage.store import Location


@dataclass
class Warm:
    """``hot``: arrangements, where this process folds; ``tables``: published tables as their newest commits left them;
    ``heads`` and ``listed``: what is known of the other tables; ``rows``: of the ledger, by their file; ``program``:
    the program's plan, and what is kept of it.

    None is loaded before the first fold: a follower that finds nothing new needs no engine.
    """

    tables: dict[Location, Snapshot] = field(default_factory=dict)
    hot: Hot | None = None
    heads: Mapping[Location, Seen] = field(default_factory=dict)
    listed: dict[Location, Listed] = field(default_factory=dict)
    rows: Mapping[tuple[str, int], Entry] = field(default_factory=dict)
    program: tuple[KeptPlan, PlannedProgram] | None = None

    def arrangements(self) -> Hot:
        """Those that are in memory."""
        if self.hot is None:
            from ddcore.io.state.hot import Hot

            self.hot = Hot()
        return self.hot

    def drop(self) -> None:
        """Forget everything, as after an error."""
        vars(self).update(vars(Warm()))

    def recall(self, ledger: Ledger) -> None:
        """Let a command that holds the lock find what is known of the warehouse's tables."""
        ledger.owner.seen, ledger.owner.listed = self.heads, self.listed
        ledger.entries.known = self.rows

    def note(self, ledger: Ledger) -> None:
        """Keep what a command knows of them, before it gives the lock back."""
        self.heads, self.rows = seen(ledger.owner.heads), ledger.entries.noted

    def planned(self, project: Project, kept: KeptPlan | None) -> PlannedProgram:
        """The plan of the project's program, of which that is kept. Raises as
        :func:`ddcore.io.project.kept_plans.planned`.
        """
        if kept is None or not kept.content:  # it has code of the user, which is loaded anew
            return planned(project, kept)
        if self.program is None or self.program[0] != kept:
            self.program = kept, planned(project, kept)
        return self.program[1]
