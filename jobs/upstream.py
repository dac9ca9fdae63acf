"""The inputs of a project that another one ingests: ``[inputs] from`` of ``dd.toml``.

The tables of these inputs are read where they are. The ledger of the warehouse here takes over the records of their
ingests, undos and compactions, in the order of the ledger there: so whatever runs, readers and checks know of inputs is
the same as for own ones, and a run that was killed is finished over the inputs that it began with. Own inputs may stand
beside them: their records are in the same ledger, whose order is the only one that counts. So ingests have numbers of
here, which are those of there while all inputs come from there. Nothing of the other project's
inputs is written but the hold of this reader (:mod:`ddcore.io.storage.readers`), and no lock is taken there but when
that is written for the first time.

Each side closes versions by its own runs. So rows may come, or be taken back, at versions that are open there and
folded here: what was folded from there on is then folded again.

A compaction that gives up history is taken over when all that it concerns is folded here: until then the files of
before are read, which the hold keeps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from ddcore.base.errors import DdError, StorageError, UsageError
from ddcore.base.lattice import Frontier, frontier
from ddcore.io.delta.table_files import TableState
from ddcore.io.ledger import recovery
from ddcore.io.ledger.entry import Entry
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import CompactRecord, IngestRecord, UndoRecord
from ddcore.io.project.frontiers import corners, is_open, shown_frontier
from ddcore.io.project.project import FILE_NAME, Project, Upstream
from ddcore.io.project.times import Time
from ddcore.io.storage import readers, store
from ddcore.io.storage.readers import Hold
from ddcore.io.storage.store import Location
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import predecessor
from ddcore.text.wording import listed

_RECORDS = ("ingest", "undo")
_UPSTREAM = '"upstream":'  # in a record that was taken over


class Reader:
    """A project as a reader of another one's inputs. The caller holds the lock of its own warehouse, whose ``ledger``
    this is. ``refresh``: everything is about to be folded anew.

    ``through``: the version that has to be folded before more can be taken over; None where all was. ``was_read``:
    whether anything was taken over at all by this command.
    """

    def __init__(self, project: Project, ledger: Ledger, *, refresh: bool = False) -> None:
        assert project.upstream is not None
        self.project, self.upstream, self.ledger, self.refresh = project, project.upstream, ledger, refresh
        self.there = Warehouse(project.upstream.warehouse)
        self.through: Time | None = None
        self.was_read = False
        self.before: dict[str, TableState] = {}  # the tables as a new hold found them: files of earlier may be gone

    def take(self) -> list[IngestRecord | UndoRecord]:
        """Take over what the ledger there has that is new, as far as it can be read; return the ingests and undos.

        No run is unfinished here, unless ``refresh``. Cost: a commit to the ledger for each record. Raises StorageError
        for a warehouse that is not there, has another format or is not the one that was read before; UsageError for
        own inputs and for other time dimensions; LockHeld the first time, while a command is at work there.
        """
        _check_first(self.ledger, self.upstream)
        hold = self._hold()
        other = _other(self.project)  # not before: what was deleted without a hold is in no ledger of now
        first = _checked_position(self.ledger, other) + 1
        _check_apart(self.ledger, other, self.upstream)
        self.through, self.was_read = None, True
        rows = list(other.entries.onwards(first))
        self.before = _states([row for row in rows if row.entry <= hold.entry])
        taken: list[IngestRecord | UndoRecord] = []
        for row in rows:
            if row.kind == "compact" and not self._compact(row, is_certain=row.entry > hold.entry):
                break
            if row.kind in _RECORDS:
                taken.append(self._change(row, other, is_certain=row.entry > hold.entry))
        return taken

    def keep(self) -> None:
        """Move the hold on to what is read now."""
        name = readers.identity(self.ledger.warehouse.root, self.there.root)
        now, before = self._now(_last_taken(self.ledger)[0], self.ledger), readers.hold_of(self.there.root, name)
        if before is None or replace(before, at=now.at) != now:
            readers.write(self.there.root, name, now)

    # --- the hold -----------------------------------------------------------------------------------------------------

    def _hold(self) -> Hold:
        """This reader's hold; where there is none it is written, of all that is there now. Nothing is deleted there
        meanwhile.
        """
        _other(self.project)
        self.ledger.begin()
        name = readers.identity(self.ledger.warehouse.root, self.there.root)
        hold = readers.hold_of(self.there.root, name)
        if hold is None:
            with self.there.lock("a reader of its inputs"):
                other = _other(self.project)
                last = -1 if other.entries.last is None else other.entries.last
                hold = self._now(last, other)
                readers.write(self.there.root, name, hold)
        return hold

    def _now(self, entry: int, of: Ledger) -> Hold:
        """A hold of the tables that a ledger names, and of the entries after ``entry``."""
        upper = self.ledger.upper()
        states = {name: of.input_table(name) for name in of.inputs() if name not in self.project.tables.own}
        return Hold(
            project=_shown(self.project.root, self.project.branch),
            warehouse=str(self.project.warehouse),
            entry=entry,
            versions={name: state.version for name, state in states.items() if state is not None},
            folded=[] if upper is None else [[*top] for top in corners(upper)],
            at=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    # --- records ------------------------------------------------------------------------------------------------------

    def _change(self, row: Entry, other: Ledger, *, is_certain: bool) -> IngestRecord | UndoRecord:
        """Take over an ingest or an undo, with the closed times of here that it changes."""
        record: IngestRecord | UndoRecord = row.record
        origin = row.entry, row.digest
        if not is_certain:
            record = replace(record, table=self.before[record.input])
        if isinstance(record, IngestRecord):
            number, closed = self.ledger.next_ingest(), self._closed(record)
            rests_on = tuple(self._number(earlier, other) for earlier in record.rests_on)
            record = replace(record, number=number, rests_on=rests_on, restates=closed, upstream=origin)
        else:
            number = self._number(record.number, other)
            undone = self.ledger.ingest(number)
            assert undone is not None  # an undo comes after its ingest
            closed = self._closed(undone) if self.ledger.is_folded_since(number) else ()
            record = replace(record, number=number, restates=closed, upstream=origin)
        self.ledger.append(record)
        return record

    def _number(self, there: int, other: Ledger) -> int:
        """The number of an ingest there, which was taken over, in this ledger. Reads the rows of both from it on."""
        if not self.ledger.warehouse.own:
            return there
        entry = next(row.entry for row in other.entries.backwards() if (row.kind, row.number) == ("ingest", there))
        taken = (row for row in self.ledger.entries.backwards() if row.kind == "ingest" and _UPSTREAM in row.body)
        return next(row.number for row in taken if row.record.upstream[0] == entry)

    def _closed(self, record: IngestRecord) -> Frontier:
        """The least folded times at which an ingest changes something, or its undo; those before ``since`` count there.
        Counts of rows that a restatement replaced are not known by time: it counts from its beginning on.
        """
        upper, since = self.ledger.open_from(record.input), self.ledger.since()
        times: Iterable[Time] = record.all_counts
        if record.replaces is not None:
            times = [*times, record.replaces]
        if upper is None:
            return ()
        closed = [tuple(time) for time in times if not is_open(time, upper)]
        if since:  # with one dimension
            closed = [max(time, since[0]) for time in closed]
        return frontier(closed)

    def _compact(self, row: Entry, *, is_certain: bool) -> bool:
        """Take over a compaction; False where first has to be folded what its ``since`` gives up, also again.

        Not ``is_certain``: files of before may be gone, because there was no hold then.
        """
        record: CompactRecord = row.record
        ours, run, upper = self.ledger.since(), self.ledger.current_run(), self.ledger.upper()
        since = record.since if record.since and (not ours or is_open(record.since[0], ours)) else ours
        gives_up = since != ours and not (upper is not None and not is_open(since[0], upper))
        if is_certain and (gives_up or (since != ours and self.ledger.restated())):
            self.through = Time(since[0])
            return False
        if gives_up and run is not None and not self.refresh:
            raise self._lost(since)
        if run is None and since == ours:
            return True
        tables = {name: state for name, state in record.tables.items() if name.startswith("inputs/")}
        if not is_certain:
            tables = {name: self.before[name.removeprefix("inputs/")] for name in tables}
        number, last = (0, Time(since[0])) if run is None else (run.run, run.last)
        tables = {**self.ledger.compacted(), **tables}
        self.ledger.append(CompactRecord(number, last, tables, since, upstream=(row.entry, row.digest)))
        return True

    def _lost(self, since: Frontier) -> StorageError:
        dims = self.project.dims
        return StorageError(
            f"the inputs in {self.there.root} are exact from {shown_frontier(since, dims)} on, and what is folded "
            f"goes to {shown_frontier(self.ledger.upper() or (), dims)}: this reader had no hold there",
            "fold everything anew: ddcore run --full-refresh",
        )


def take_over(project: Project, *, new_warehouse: bool = False, begins: bool = True) -> list[IngestRecord | UndoRecord]:
    """Take over what the inputs have that is new, and fold nothing; ``new_warehouse``: as ``dd ingest`` has it.

    Not ``begins``: a run is about to be, which finishes another one first. Raises as :meth:`Reader.take`, and
    UsageError while a run is unfinished, if this ``begins``.
    """
    warehouse = project.tables
    warehouse.begin(project.root, new=new_warehouse)
    with predecessor.writing(warehouse, "ddcore ingest", project.tuning) as (lock, ledger):
        predecessor.tell(lock, ledger, finished=recovery.finish(ledger))
        if (intent := ledger.open_intent()) is not None:
            if not begins:
                return []
            raise UsageError(f"run {intent.run} is not finished", "finish it with: ddcore run")
        reader = Reader(project, ledger)
        taken = reader.take()
        reader.keep()
    return taken


def hold_for_branch(project: Project, address: Location, branch: str) -> str | None:
    """Hold for a branch that is about to be made in ``address`` what its origin holds; return its name as a reader.
    None where the inputs are own ones, and where nothing was read yet. The caller holds the lock of the origin.
    """
    name = None if project.upstream is None else readers.name_of(project.warehouse)
    if project.upstream is None or name is None:
        return None
    there = project.upstream.warehouse
    hold = readers.hold_of(there, name)
    if hold is None:
        return None
    own = readers.new_name()
    readers.write(there, own, replace(hold, project=_shown(project.root, branch), warehouse=str(address)))
    return own


def _shown(root: Path, branch: str) -> str:
    """A reader for people."""
    return f"{root} (branch {branch})" if branch else str(root)


def waiting(project: Project, ledger: Ledger) -> int:
    """How many ingests and undos of the inputs were not taken over yet. Takes no lock. Raises as
    :meth:`Reader.take`.
    """
    other = _other(project)
    entry = _checked_position(ledger, other)
    return sum(row.kind in _RECORDS for row in other.entries.onwards(entry + 1))


def _other(project: Project) -> Ledger:
    """The ledger of the warehouse whose inputs are read, as it is now."""
    assert project.upstream is not None
    there = Warehouse(project.upstream.warehouse)
    try:
        there.check()
        other = Ledger.load(there)
    except DdError as error:
        error.message = f"the inputs are those of {project.upstream.root}: {error.message}"
        raise
    other.check_dims(project.dims)
    return other


def _last_taken(ledger: Ledger) -> tuple[int, str]:
    """The number and the digest of the last entry that was taken over; -1 for none."""
    for row in ledger.entries.backwards():
        if row.kind in (*_RECORDS, "compact") and _UPSTREAM in row.body:
            entry, digest = row.record.upstream
            return entry, digest
    return -1, ""


def _states(rows: Iterable[Entry]) -> dict[str, TableState]:
    """The last state of each input's table that rows name."""
    states = {}
    for row in rows:
        record = row.record if row.kind in (*_RECORDS, "compact") else None
        if isinstance(record, CompactRecord):
            inputs = {name.removeprefix("inputs/"): state for name, state in record.tables.items() if "inputs/" in name}
            states.update(inputs)
        elif record is not None:
            states[record.input] = record.table
    return states


def _checked_position(ledger: Ledger, other: Ledger) -> int:
    """The last entry that was taken over. StorageError where the ledger there does not have it as it was."""
    entry, digest = _last_taken(ledger)
    last = -1 if other.entries.last is None else other.entries.last
    if entry <= last and (entry < 0 or other.entries[entry].digest == digest):
        return entry
    what = f"ends with entry {last}" if entry > last else f"has another entry {entry}"
    raise StorageError(
        f"{other.warehouse.ledger} {what}, and entry {entry} was read from it before: it is of an older backup, or of "
        "another warehouse",
        "restore its newest backup; or read what is there now from the beginning, into another warehouse: "
        "--warehouse DIR",
    )


def _check_first(ledger: Ledger, upstream: Upstream) -> None:
    """Raise UsageError for ingests of before the inputs came from another project, all but those of own inputs."""
    warehouse = ledger.warehouse
    left = sorted({*ledger.inputs()} - warehouse.own)
    if left and _last_taken(ledger)[0] < 0:
        raise UsageError(
            f"{warehouse.root} has inputs of its own ({listed(left)}), and dd.toml reads those of {upstream.root}",
            "name a new warehouse for it: --warehouse DIR, or [project] warehouse; or take [inputs] from out",
        )


def _check_apart(ledger: Ledger, other: Ledger, upstream: Upstream) -> None:
    """Raise UsageError for an input that would be of both projects, and for an own one that is not declared any more:
    its table would be looked for there.
    """
    warehouse = ledger.warehouse
    if both := sorted(warehouse.own.intersection(other.inputs())):
        raise UsageError(
            f"{FILE_NAME} declares {listed(both)}, and {upstream.root} has ingested an input of this name",
            "give this one another name",
        )
    tables = store.names(warehouse.root / "inputs")
    if gone := sorted({*ledger.inputs()}.intersection(tables) - warehouse.own):
        raise UsageError(
            f"{warehouse.root} has ingested {listed(gone)}, which {FILE_NAME} does not declare any more",
            f"put it back: [inputs.{gone[0]}] with its schema; no program needs to read it",
        )
