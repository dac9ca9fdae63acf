"""The commits of one run: which state it starts from, and which tables it changes, state first and outputs last.

Repeating a commit changes nothing, so a run that was killed is simply folded again. State becomes what the run says.
Outputs are also read by others: what a killed or given-up attempt committed to them stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from ddcore.data_tests import is_test
from ddcore.errors import StorageError
from ddcore.io import layout, store, tables
from ddcore.io.changelog import ChangeLog
from ddcore.io.corrections import correction, is_outdated, retraction
from ddcore.io.failpoint import failpoint
from ddcore.io.gains import Gained, Stored
from ddcore.io.ledger import Ledger
from ddcore.io.tables import AddedFile, LiveFile, TableState
from ddcore.io.updates import Counts, accumulate_counts, merge_counts
from ddcore.jobs.next_run import NextRun
from ddcore.large_groups import LargeGroups
from ddcore.rebuilding import Rebuilding, definitions, rebuilding

if TYPE_CHECKING:
    from ddcore.plan import Plan

__all__ = ["Commits"]


class Commits:
    """The commits of ``upcoming``. ``begun``: whether a table may hold one. ``corrected``: how many updates are in
    corrections of outputs that wait; those of data tests are not counted. ``outdated``: the outputs that hold something
    else than they should. ``more``: what outputs got beside the gains of the fold, by output and time.
    """

    def __init__(self, ledger: Ledger, plan: Plan, upcoming: NextRun) -> None:
        self.ledger, self.plan, self.upcoming = ledger, plan, upcoming
        self.warehouse = ledger.warehouse
        self.begun, self.corrected = False, 0
        self.outdated: list[str] = []
        self.more: dict[str, Counts] = {}

    # -- before the fold ----------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Set damaged tables aside that are about to be replaced."""
        if self.upcoming.refresh:
            layout.set_aside_damaged(self.warehouse, self.plan, outputs=not self.upcoming.appends)

    @cached_property
    def rebuilding(self) -> Rebuilding | None:
        """The part of the plan to fold, if the base is of another program; None: all of it."""
        base = self.upcoming.base
        if base is None or not self.upcoming.is_rebuild(self.plan):
            return None
        changed = {name for name, one in definitions(self.plan).items() if base.definitions.get(name) != one}
        return rebuilding(self.plan, set(base.arrangements), changed)

    @cached_property
    def live(self) -> dict[str, TableState]:
        """The tables that the run continues, by name."""
        base, current = self.upcoming.base, self.ledger.current_run()
        if base is None:
            live: dict[str, TableState] = {}
        elif current is not None and base.run == current.run:
            live = self.ledger.tables()
        else:
            live = dict(base.tables)
        ours = {name for name, _, _ in layout.tables_of(self.plan)}
        held = self.ledger.tables() if self.upcoming.appends else live
        outputs = {name: state for name, state in held.items() if name.startswith("outputs/")}
        return {name: state for name, state in live.items() if name in ours} | outputs

    def stored(self) -> Stored:
        """The state that the fold starts from."""
        files = {
            name: tables.live_files(self.warehouse.table(name), state)
            for name, state in self.live.items()
            if name.startswith("state/")
        }
        return Stored(self.warehouse.root, self.upcoming.number, files, self._groups())

    def _groups(self) -> LargeGroups:
        """The large groups of the base, in arrangements that it has stored for this plan."""
        base = self.upcoming.base
        if base is None:
            return LargeGroups()
        names = {each.fingerprint for each in self.plan.arrangements} & {*base.arrangements}
        grown, noted = (
            {name: codes for name, codes in each.items() if name in names} for each in (base.large, base.noted)
        )
        return LargeGroups.of(grown, noted)

    # -- after the fold -----------------------------------------------------------------------------------------------

    def commit(self, gained: Gained) -> tuple[dict[str, TableState], dict[str, tuple[AddedFile, ...]]]:
        """Commit what a fold gained; return the live tables after it, and the corrections that wait. Idempotent."""
        for name, columns, replaced in layout.tables_of(self.plan):
            self._commit_state(name, columns, gained.files.get(name, []), replaced=replaced)
        corrections: dict[str, tuple[AddedFile, ...]] = {}
        for output, schema in self.plan.outputs.items():
            log = ChangeLog(self.warehouse.output(output), schema, self.plan.dims)
            files = gained.files.get(f"outputs/{output}", [])
            if self.upcoming.appends:
                corrections |= self._correction(output, log, files)
            else:
                self._commit_output(output, log, files)
        return self.live, corrections

    def discard(self, gained: Gained) -> None:
        """Delete the files of a fold that is not to be committed, as far as possible: retention removes the rest."""
        with suppress(OSError, StorageError):
            for name, files in gained.files.items():
                for file in files:
                    store.delete(self.warehouse.table(name) / file.path)
                    failpoint("after-delete")

    def added(self, gained: Gained) -> dict[str, Counts]:
        """The rows that outputs got, (plus, minus) by output and time; without data tests."""
        names = [name for name in self.plan.outputs if not is_test(name)]
        return {name: merge_counts([gained.outputs.get(name, {}), self.more.get(name, {})]) for name in names}

    def _commit_state(self, name: str, columns: layout.Layout, files: Sequence[AddedFile], *, replaced: bool) -> None:
        live, folder = self.live, self.warehouse.table(name)
        if not files and not (replaced and name in live):
            return
        if name not in live:
            layout.create(folder, columns, replace=True)
        self.begun = True
        live[name] = tables.commit(folder, files, self.upcoming.number, base=live.get(name), overwrite=replaced)

    def _commit_output(self, output: str, log: ChangeLog, files: Sequence[AddedFile]) -> None:
        """Commit an output's new updates and waiting corrections, unless an earlier attempt of this run did."""
        name, upcoming = f"outputs/{output}", self.upcoming
        base = self.live.get(name)
        waiting = upcoming.base.corrections.get(name, ()) if upcoming.base is not None else ()
        if upcoming.is_known and (state := tables.committed(log.folder, upcoming.number, base)) is not None:
            self.begun, self.live[name] = True, state
            return
        strays = self._strays(log, base, waiting)
        if base is None and not strays:
            log.create(replace=True)  # a failed run may have left a table with other columns
        goes_on = not upcoming.rewrites and base is not None and tables.is_settled(log.folder, base)
        if goes_on and not (files or waiting or strays):
            return
        more = list(waiting)
        if strays and len(cancelled := retraction(log, strays)):
            more.append(log.write(f"run-{upcoming.number:06d}-retraction", cancelled))
        again = tables.lost(log.folder, base) if strays else ()  # those that were given up may have removed them
        if more:
            self.more[output] = accumulate_counts(log.collect(log.scan_files(more)), self.plan.dims)
        self.begun = True
        self.live[name] = tables.commit(
            log.folder, [*files, *more, *map(log.added_again, again)], upcoming.number, base=base,
            beside=[file.path for file in strays], restores_columns=True,
        )  # fmt: skip

    def _strays(self, log: ChangeLog, base: TableState | None, waiting: Sequence[AddedFile]) -> Sequence[LiveFile]:
        """The files that runs which were given up, after the last finished one, committed to an output that goes on;
        without corrections that still wait, which this run commits.
        """
        current = self.ledger.current_run()
        checked = 0 if current is None or current.published_from is not None else current.run  # appending left outputs
        if self.upcoming.rewrites or self.upcoming.number == 1 + checked:
            return ()
        expected = {file.path for file in waiting}
        strays = [file for file in tables.strays(log.folder, base) if file.path not in expected]
        return strays if strays and log.has_columns() else ()

    def _correction(self, output: str, log: ChangeLog, files: Sequence[AddedFile]) -> dict[str, tuple[AddedFile, ...]]:
        """The difference between what an output should hold and what it holds, as a file for the next run to commit."""
        name, upcoming, current = f"outputs/{output}", self.upcoming, self.ledger.current_run()
        if self.rebuilding is not None and output not in self.rebuilding.outputs:
            waiting = {} if upcoming.base is None else upcoming.base.corrections
            return {name: waiting[name]} if name in waiting else {}
        held = self.live.get(name)
        if held is None or not log.has_columns(held):
            held = None
            log.create(replace=True)
            self.begun = True
            self.live[name] = tables.commit(log.folder, [], upcoming.number, base=None)
        assert current is not None and isinstance(current.last, int)
        after = None if upcoming.base is None or self.rebuilding is not None else upcoming.base.last
        updates = correction(log, files, held, after, current.last)
        # What is built from the state of another program may lack times before its frontier, so it cannot be compared.
        if self.rebuilding is not None or len(updates) or is_outdated(log, files, held, after, current.last):
            self.outdated.append(output)
        for file in files:  # they were only needed for the difference
            store.delete(log.folder / file.path)
            failpoint("after-correction")
        self.corrected += 0 if is_test(output) else len(updates)
        return {name: (log.write(f"run-{upcoming.number:06d}-correction", updates),)} if len(updates) else {}
