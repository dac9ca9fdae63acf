"""The commits of one run: which state it starts from, and which tables it changes, state first and outputs last.

Repeating a commit changes nothing, so a run that was killed is simply folded again. State becomes what the run says.
Outputs are also read by others: what a killed or given-up attempt committed to them stays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from ddcore.base.errors import StorageError
from ddcore.engine.large_groups import LargeGroups
from ddcore.io.delta import commits, tables
from ddcore.io.delta.table_files import AddedFile, LiveFile, TableState
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.corrections import Pool, correction, is_outdated, retraction
from ddcore.io.logs.updates import Counts, merge_counts
from ddcore.io.state import layout
from ddcore.io.state.arrangements import is_exact
from ddcore.io.state.fold_result import FoldResult, Stored
from ddcore.io.storage import store
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.store import Location
from ddcore.jobs.running.next_run import Effect, NextRun
from ddcore.planning.rebuilding import Rebuilding, definitions, rebuilding
from ddcore.program.data_tests import is_test

if TYPE_CHECKING:
    from ddcore.planning.plan import Plan


class Commits:
    """The commits of ``upcoming``. ``begun``: whether a table may hold one. ``corrections`` of outputs wait for the
    next run: ``corrected`` updates, without those of data tests. ``outdated``: the outputs that hold something else
    than they should. ``more``: what outputs got beside the gains of the fold, by output and time.
    """

    def __init__(self, ledger: Ledger, plan: Plan, upcoming: NextRun) -> None:
        self.ledger, self.plan, self.upcoming = ledger, plan, upcoming
        self.warehouse = ledger.warehouse
        self.begun, self.corrected = False, 0
        self.outdated: list[str] = []
        self.more: dict[str, Counts] = {}
        self.corrections: dict[str, tuple[AddedFile, ...]] = {}

    # -- before the fold ----------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Set aside what lies in the places of the tables that the run does not continue, and cannot be replaced."""
        _ = self.changes  # of what is there before a commit
        names = [] if self.upcoming.part else [name for name, _, _ in layout.tables_of(self.plan)]
        names += [f"outputs/{output}" for output in self.plan.outputs]
        layout.make_room(self.ledger.owner, self.warehouse, [name for name in names if name not in self.live])

    @cached_property
    def rebuilding(self) -> Rebuilding | None:
        """The part of the plan to fold, if the base is of another program; None: all of it."""
        base = self.upcoming.base
        if base is None or not self.upcoming.is_rebuild(self.plan):
            return None
        advanced = {
            name.removeprefix("state/")
            for name, files in (self._state.items() if self.anew else ())
            if not all(is_exact(self.warehouse.table(name) / file.path) for file in files)
        }
        changed = {name for name, one in definitions(self.plan).items() if base.definitions.get(name) != one}
        return rebuilding(self.plan, set(base.arrangements), changed, exact=self.anew, advanced=advanced)

    @cached_property
    def anew(self) -> frozenset[str]:
        """The outputs whose logs a run that appends writes whole: they are new, or have other columns than before. Who
        reads them has nothing to go on from. Those of data tests have no readers, and go on.
        """
        if self.upcoming.effect is not Effect.APPEND:
            return frozenset()
        return frozenset(name for name in self.plan.outputs if not is_test(name) and not self._is_held(name))

    @cached_property
    def changed(self) -> bool:
        """Whether the last run before this one was of another program."""
        current = self.ledger.current_run()
        return current is not None and not self.upcoming.part and current.fingerprint != self.plan.fingerprint

    @cached_property
    def changes(self) -> dict[str, str]:
        """What a change of the program does to each output that it concerns: one is ``new``; its ``columns`` are
        others; it goes on with the ``difference``, or is ``rewritten`` as all are; or it is ``left`` as it was, by a
        program without it.
        """
        current, held = self.ledger.current_run(), self.ledger.tables()
        if current is None or not self.changed:
            return {}
        before = {name: one for name, one in current.definitions.items() if not is_test(name)}
        changes: dict[str, str] = {}
        for name, one in definitions(self.plan).items():
            if is_test(name) or before.get(name) == one:
                continue
            if f"outputs/{name}" not in held:
                changes[name] = "new"
            elif self.upcoming.effect is not Effect.APPEND:
                changes[name] = "rewritten"
            else:
                changes[name] = "columns" if name in self.anew else "difference"
        return changes | dict.fromkeys(sorted(before.keys() - self.plan.outputs.keys()), "left")

    def _is_held(self, output: str) -> bool:
        """Whether there is a log of an output, with its present columns."""
        current, held = self.ledger.current_run(), self.live.get(f"outputs/{output}")
        if held is None:
            return False
        if current is not None and current.definitions.get(output) == definitions(self.plan)[output]:
            return True
        return self.log(output).has_columns(held)

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
        held = self.ledger.tables() if self.upcoming.effect is Effect.APPEND else live
        outputs = {name: state for name, state in held.items() if name.startswith("outputs/")}
        return {name: state for name, state in live.items() if name in ours} | outputs

    def log(self, output: str) -> ChangeLog:
        """The log of an output."""
        return ChangeLog(self.warehouse.output(output), self.plan.outputs[output], self.plan.dims, self.ledger.writer)

    def stored(self) -> Stored:
        """The state that the fold starts from."""
        return Stored(self.warehouse, self.upcoming.number, self._state, self._groups())

    @cached_property
    def _state(self) -> dict[str, list[LiveFile]]:
        """The files of the state that the run continues, by table."""
        return {
            name: tables.live_files(self.warehouse.table(name), state, self.ledger.writer)
            for name, state in self.live.items()
            if name.startswith("state/")
        }

    def groups(self, gained: FoldResult) -> LargeGroups:
        """The large groups after the run: also those whose trees it left as they are."""
        left = self._groups(treeless=True)
        left.absorb(gained.groups)
        for name, codes in left.noted.items():
            codes.difference_update(left.grown.get(name, ()))
        return left

    def _groups(self, *, treeless: bool = False) -> LargeGroups:
        """The large groups of the base, in arrangements that it has stored for this plan; those of the blocks that are
        to be evaluated without their trees, or those of all others.
        """
        base, part = self.upcoming.base, self.rebuilding
        if base is None:
            return LargeGroups()
        blocks = [self.plan.blocks[index] for index in (part.treeless if part is not None else ())]
        without = {self.plan.arrangements[block.output].fingerprint for block in blocks if block.output is not None}
        names = {arrangement.fingerprint for arrangement in self.plan.arrangements} & {*base.arrangements}
        names = names & without if treeless else names - without
        grown, noted = (
            {name: codes for name, codes in codes_by_name.items() if name in names}
            for codes_by_name in (base.large, base.noted)
        )
        return LargeGroups.of(grown, noted)

    # -- after the fold -----------------------------------------------------------------------------------------------

    def commit(self, gained: FoldResult) -> None:
        """Commit what a fold gained. Idempotent."""
        before = dict(self.live)
        anew = self.anew  # before a commit changes what is live
        with commits.together(self.ledger.owner) as overtaken:
            for name, columns, replaced in layout.tables_of(self.plan):
                self._commit_state(name, columns, gained, replaced=replaced)
            for output in self.plan.outputs:
                log = self.log(output)
                files = gained.files.get(f"outputs/{output}", [])
                if output in anew:
                    self._begin_anew(output, log, files)
                elif self.upcoming.effect is Effect.APPEND:
                    self.corrections |= self._correction(output, log, files)
                else:
                    self._commit_output(output, log, files)
        if overtaken:
            self._commit_again(gained, before, overtaken)

    def commit_part(self, gained: FoldResult) -> dict[str, TableState]:
        """Commit what some outputs gained, and no state; return their tables. A run of all outputs finds these updates
        as those of a run that was given up: it goes on from them with the difference, which is nothing.
        """
        for output in self.plan.outputs:
            self._commit_output(output, self.log(output), gained.files.get(f"outputs/{output}", []))
        self._discard_state(gained)
        return {output: self.live[f"outputs/{output}"] for output in self.plan.outputs}

    def _commit_again(
        self, gained: FoldResult, before: Mapping[str, TableState], overtaken: Collection[Location]
    ) -> None:
        """Commit to the tables to which another program had committed just before: on top of what that left."""
        self.live.update({name: state for name, state in before.items() if self.warehouse.table(name) in overtaken})
        for name, columns, replaced in layout.tables_of(self.plan):
            if self.warehouse.table(name) in overtaken:
                self._commit_state(name, columns, gained, replaced=replaced)
        for output in self.plan.outputs:
            log = self.log(output)
            files = gained.files.get(f"outputs/{output}", [])
            if log.folder in overtaken and output in self.anew:
                self._begin_anew(output, log, files)
            elif log.folder in overtaken:
                self._commit_output(output, log, files)

    def _discard_state(self, gained: FoldResult) -> None:
        self.discard(
            replace(gained, files={name: of for name, of in gained.files.items() if name.startswith("state/")})
        )

    def discard(self, gained: FoldResult) -> None:
        """Delete the files of a fold that is not to be committed, as far as possible: retention removes the rest."""
        with suppress(OSError, StorageError):
            for name, files in gained.files.items():
                for file in files:
                    store.delete(self.warehouse.table(name) / file.path)
                    failpoint("after-delete")

    def added(self, gained: FoldResult) -> dict[str, Counts]:
        """The rows that outputs got, (plus, minus) by output and time; without data tests."""
        names = [name for name in self.plan.outputs if not is_test(name)]
        return {name: merge_counts([gained.outputs.get(name, {}), self.more.get(name, {})]) for name in names}

    def _commit_state(self, name: str, columns: layout.Layout, gained: FoldResult, *, replaced: bool) -> None:
        files, live = gained.files.get(name, []), self.live
        if not files and not (replaced and name in live):
            return
        folder = self.warehouse.table(name)
        if name not in live:
            layout.create(self.ledger.owner, folder, columns, replace=True)
        self.begun = True
        live[name] = commits.commit(
            self.ledger.owner, folder, files, self.upcoming.number, base=live.get(name), overwrite=replaced,
            without=gained.merged.get(name, ()),
        )  # fmt: skip

    def _commit_output(self, output: str, log: ChangeLog, files: Sequence[AddedFile]) -> None:
        """Commit an output's new updates and waiting corrections, unless an earlier attempt of this run did."""
        name, upcoming = f"outputs/{output}", self.upcoming
        base = self.live.get(name)
        waiting = upcoming.base.corrections.get(name, ()) if upcoming.base is not None else ()
        if (
            upcoming.is_resumed
            and (state := tables.committed(self.ledger.owner, log.folder, upcoming.number, base)) is not None
        ):
            self.begun, self.live[name] = True, state
            return
        published, strays = self._strays(log, base, waiting)
        if base is None and not strays:
            log.create(replace=True)  # a failed run may have left a table with other columns
        goes_on = upcoming.effect is not Effect.REWRITE and base is not None and tables.is_settled(log.folder, base)
        if goes_on and not (files or waiting or strays):
            return
        again = (
            tables.lost(self.ledger.owner, log.folder, base) if strays else ()
        )  # those that were given up may have removed them
        added = self._pooled(output, log, files, [file for file in waiting if file not in published], strays)
        self.begun = True
        self.live[name] = commits.commit(
            self.ledger.owner, log.folder, [*added, *published, *map(log.added_again, again)], upcoming.number,
            base=base, beside=[file.path for file in strays], restores_columns=True,
        )  # fmt: skip

    def _pooled(
        self, output: str, log: ChangeLog, files: Sequence[AddedFile], waiting: Sequence[AddedFile],
        strays: Sequence[LiveFile],
    ) -> Sequence[AddedFile]:  # fmt: skip
        """The files with what an output gained, the correction that waits, and what cancels ``strays``."""
        if not (waiting or strays):
            return files
        cancelled = retraction(log, strays)
        pool = Pool(log, files, log.collect(log.scan_files(waiting)), cancelled)
        self.more[output] = pool.counts()
        stem = f"run-{self.upcoming.number:06d}-"
        if not pool.is_shared():
            return [*files, *waiting, *([log.write(f"{stem}retraction", cancelled)] if len(cancelled) else [])]
        written = pool.write(f"{stem}pooled")
        for file in pool.replaced():
            store.delete(log.folder / file.path)
            failpoint("after-delete")
        return written

    def _strays(
        self, log: ChangeLog, base: TableState | None, waiting: Sequence[AddedFile]
    ) -> tuple[Sequence[AddedFile], Sequence[LiveFile]]:
        """What runs that were given up, after the last finished one, committed to an output that goes on: those of the
        ``waiting`` corrections, and other files.
        """
        current = self.ledger.current_run()
        checked = 0 if current is None or current.published_from is not None else current.run  # appending left outputs
        if self.upcoming.effect is Effect.REWRITE or self.upcoming.number == 1 + checked:
            return (), ()
        found = tables.strays(self.ledger.owner, log.folder, base)
        if not found or not log.has_columns():
            return (), ()
        there, expected = {file.path for file in found}, {file.path for file in waiting}
        return (
            [file for file in waiting if file.path in there],
            [file for file in found if file.path not in expected],
        )

    def _begin_anew(self, output: str, log: ChangeLog, files: Sequence[AddedFile]) -> None:
        """Make these updates, of its whole history, the log of an output, unless an earlier attempt of this run did."""
        name, number = f"outputs/{output}", self.upcoming.number
        known = tables.committed(self.ledger.owner, log.folder, number, None) if self.upcoming.is_resumed else None
        if known is None:
            if not tables.exists(log.folder):
                log.create()
            self.begun = True
            known = commits.commit(self.ledger.owner, log.folder, files, number, base=None, becomes=log.columns)
        self.begun, self.live[name] = True, known

    def _correction(self, output: str, log: ChangeLog, files: Sequence[AddedFile]) -> dict[str, tuple[AddedFile, ...]]:
        """The difference between what an output should hold and what it holds, as a file for the next run to commit."""
        name, upcoming, current = f"outputs/{output}", self.upcoming, self.ledger.current_run()
        if self.rebuilding is not None and output not in self.rebuilding.outputs:
            waiting = {} if upcoming.base is None else upcoming.base.corrections
            return {name: waiting[name]} if name in waiting else {}
        held = self.live.get(name)
        if held is None or not log.has_columns(held):  # of a data test
            held = None
            log.create(replace=True)
            self.begun = True
            self.live[name] = commits.commit(self.ledger.owner, log.folder, [], upcoming.number, base=None)
        assert current is not None
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
