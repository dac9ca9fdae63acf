"""The records of the ledger: what each ingest, run and compaction did, and their form as JSON.

Every command reads records, so this module imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ddcore.base import as_json
from ddcore.base.as_json import Form, Forms, each_of, mapped
from ddcore.base.lattice import Frontier, le
from ddcore.io.delta.table_files import AddedFile, TableState
from ddcore.io.ledger.labels import Labels, labels_from_json, labels_to_json
from ddcore.io.ledger.profiles import NO_PROFILE, PROFILE, ProfileRecord
from ddcore.io.ledger.workloads import Workload
from ddcore.io.project import frontiers, times
from ddcore.io.project.times import Time, time_of
from ddcore.program.data_tests import is_test

Upstream = tuple[()] | tuple[int, str]
Counts = Mapping[Time, tuple[int, int]]  # by time: (insertions, retractions)


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Source:
    """A source of an ingest: its name, and the digest of its rows, which does not depend on their order.

    ``position``: for sources that are not recognised by their rows, how far it was taken in: see
    :mod:`ddcore.io.sources.positions`.
    """

    name: str
    digest: str
    position: str = ""


@dataclass(frozen=True, slots=True)
class IngestRecord:
    """Versions ``first``..``last`` of ``input`` were ingested from ``sources``; ``table`` is its state after that.

    ``repeats``: a check found a row of the input with a count above 1. ``rests_on``: earlier ingests that hold the
    beginnings of some sources; of these, only the remaining rows were ingested. With several time dimensions, whose
    names are in ``dims``, ``first`` and ``last`` are the least and the greatest coordinates of the times in ``counts``.
    ``restates``: the least closed times whose contents changed. What was folded from there on has to be folded again.
    ``columns``: the columns that the digests of the sources cover, in order. ``labels``: what it calls the versions,
    and when these were made. ``left_out``: the columns that its sources have and the input does not. ``newest``: the
    date of the newest of its sources, a file's or a commit's, in ISO's form; empty where nobody knows.

    A restatement replaced the history at and beyond ``replaces``: it removed ``removed`` updates, and ``before`` is the
    table's state before it. ``replaced`` and ``replaced_by`` are set when the ledger is read: the counts of those rows
    of this ingest that later restatements removed, which are no longer in ``counts``, and the number of the last of
    these.

    ``upstream``: of a record that was taken over from the ledger of another warehouse, whose inputs are read here: the
    number and the digest of its entry there. So in undos and compactions.
    """

    number: int
    input: str
    sources: tuple[Source, ...]
    first: Time
    last: Time
    rows: int
    counts: Counts
    files: tuple[str, ...]
    table: TableState
    repeats: bool = False
    rests_on: tuple[int, ...] = ()
    at: datetime = field(default_factory=_now)
    dims: tuple[str, ...] = ()
    restates: Frontier = ()
    columns: tuple[str, ...] = ()
    replaces: Time | None = None
    removed: int = 0
    before: TableState | None = None
    labels: Labels = ()
    left_out: tuple[str, ...] = ()
    upstream: Upstream = ()
    newest: str = ""
    replaced: Counts = field(default_factory=dict)
    replaced_by: int = 0

    @property
    def all_counts(self) -> Counts:
        """The counts of all rows that it took in, also of those that were replaced since."""
        return {**self.counts, **self.replaced}


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """Ingest ``number`` of ``input`` was undone: its rows were removed, and what it replaced is there again.

    ``table`` is the input's state after that, ``first``..``last`` are the versions of the ingest. ``restates``: the
    least closed times whose contents changed, if a run had folded the ingest.
    """

    number: int
    input: str
    first: Time
    last: Time
    table: TableState
    at: datetime = field(default_factory=_now)
    restates: Frontier = ()
    upstream: Upstream = ()


@dataclass(frozen=True, slots=True)
class IntentRecord:
    """Run ``run`` is about to fold versions ``first``..``last``.

    ``appends``: the outputs keep what they hold, and go on with the difference to what is folded. ``part``: it is of
    some outputs alone. Other fields: as in
    :class:`RunRecord`.
    """

    run: int
    fingerprint: str
    first: Time
    last: Time
    parallelism: int
    engine: str
    refresh: bool = False
    at: datetime = field(default_factory=_now)
    program_inputs: tuple[str, ...] = ()
    lower: Frontier = ()
    upper: Frontier = ()
    base: int = 0
    appends: bool = False
    part: bool = False

    @property
    def complete(self) -> Frontier:
        """The frontier after the run, with any number of dimensions."""
        return self.upper or frontiers.up_to(self.last)


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """Run ``run`` was given up: it ended with ``error`` before any table was committed.

    Its versions are open again, so that rows at them can be corrected.
    """

    run: int
    fingerprint: str
    first: Time
    last: Time
    engine: str
    error: str
    at: datetime = field(default_factory=_now)


@dataclass(frozen=True, slots=True)
class BrokenRecord:
    """A data test that did not hold in a run, and only warned: the first time, at how many times, how many rows."""

    first: Time
    times: int
    rows: int


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Run ``run`` folded versions ``first``..``last``: what it read and wrote, and all tables that are live after it.

    ``tables`` has all live tables, also those that this run did not change, by name as in ``Warehouse.relative``.
    ``inputs`` and ``outputs`` count rows per version, ``took`` is in seconds.
    ``program_inputs`` are all inputs of the program, also those without rows.

    With several time dimensions ``lower`` and ``upper`` are the frontiers before and after the run; every time at or
    before ``last`` is complete, and ``first`` has the least coordinates of ``lower``. With one both are empty.

    ``base``: the run whose tables this one continued, 0 where it started from nothing, which is a ``refresh`` if
    there were tables. ``definitions``: the fingerprint of each output. ``arrangements``: those that
    are stored, also without rows. ``corrections``: data files of
    outputs that are written and wait for the next run, which commits them with its own: the difference between what an
    output holds and what it should, at the version after ``last``. ``published_from``: of a run that appends, which
    only computes corrections: from this version up to ``last`` the outputs hold what was published before the run.
    ``outdated``: those that hold something else than they should; None where nobody compared them. Such a run has
    counts in ``outputs`` for those whose logs it wrote whole: they are new, or have other columns than before.

    ``large``: the key codes of the groups that have trees of partial results, by the fingerprint of the arrangement of
    an operator's results; ``noted``: those that are to have them in the next run. ``profile``: what
    each operator did. ``broken``: data tests by name.
    ``instants``: what identifies the instants of all complete times, of a program that uses them.
    ``why``: as many workers as ``parallelism`` says folded, in words; ``sent``: the bytes between them. ``loads``: what
    workers on Spark took in this run and in earlier ones of the same program.
    """

    run: int
    fingerprint: str
    first: Time
    last: Time
    engine: str
    parallelism: int
    rounds: int
    took: float
    inputs: Mapping[str, Counts]
    outputs: Mapping[str, Counts]
    tables: Mapping[str, TableState]
    refresh: bool = False
    at: datetime = field(default_factory=_now)
    program_inputs: tuple[str, ...] = ()
    lower: Frontier = ()
    upper: Frontier = ()
    base: int = 0
    definitions: Mapping[str, str] = field(default_factory=dict)
    arrangements: tuple[str, ...] = ()
    corrections: Mapping[str, tuple[AddedFile, ...]] = field(default_factory=dict)
    published_from: Time | None = None
    outdated: tuple[str, ...] | None = None
    large: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    noted: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    profile: ProfileRecord = NO_PROFILE
    broken: Mapping[str, BrokenRecord] = field(default_factory=dict)
    instants: str = ""
    why: str = ""
    sent: int = 0
    loads: tuple[Workload, ...] = ()

    @property
    def folds_again(self) -> bool:
        """Whether it folded times again that runs after its base had folded. With one time dimension."""
        return not self.lower and 0 < self.base < self.run - 1

    @property
    def complete(self) -> Frontier:
        """The frontier after the run, with any number of dimensions."""
        return self.upper or frontiers.up_to(self.last)

    @property
    def anew(self) -> frozenset[str]:
        """Of a run that appends: the outputs whose logs it wrote whole."""
        return frozenset() if self.published_from is None else frozenset(self.outputs)

    @property
    def waiting_corrections(self) -> list[str]:
        """The tables of ``corrections``, sorted, without those of data tests, which nobody reads as outputs."""
        return sorted(name for name in self.corrections if not is_test(name.removeprefix("outputs/")))


@dataclass(frozen=True, slots=True)
class CompactRecord:
    """Tables were compacted after run ``run``, whose last version is ``last``: ``tables`` has the states of those that
    changed, by name, inputs as well. The logs of inputs and outputs are exact at times at or beyond ``since``; empty
    where they are exact at all times.
    """

    run: int
    last: Time
    tables: Mapping[str, TableState]
    since: Frontier = ()
    at: datetime = field(default_factory=_now)
    upstream: Upstream = ()

    @property
    def first(self) -> Time:
        """The version ``last``: every record has both."""
        return self.last


@dataclass(frozen=True, slots=True)
class PartRecord:
    """Run ``run`` folded ``first``..``last`` for some outputs alone and stored no state: they are ahead of the others
    until the next run of the whole program, whose ``fingerprint`` this is.

    ``outputs`` count what these outputs got, per version. ``tables`` and ``uppers`` have the tables and the frontiers
    of all outputs that are ahead by now, by output.
    """

    run: int
    fingerprint: str
    first: Time
    last: Time
    engine: str
    took: float
    outputs: Mapping[str, Counts]
    tables: Mapping[str, TableState]
    uppers: Mapping[str, Frontier]
    at: datetime = field(default_factory=_now)


Record = IngestRecord | UndoRecord | IntentRecord | FailureRecord | RunRecord | CompactRecord | PartRecord


# --- as JSON ---


def _frontier(elements: Iterable[Sequence[int]]) -> Frontier:
    return tuple(tuple(element) for element in elements)


def _counts_to_json(counts: Counts) -> dict[str, tuple[int, int]]:
    return {str(time): sides for time, sides in counts.items()}


def _counts(counts: dict[str, list[int]]) -> Counts:
    return {times.parse_key(time): (plus, minus) for time, (plus, minus) in counts.items()}


TIME: Form = (lambda time: None if time is None else time.plain, time_of)
FRONTIER: Form = (list, _frontier)
STATE: Form = (astuple, lambda fields: TableState(*fields))
COUNTS: Form = (_counts_to_json, _counts)
FILES: Form = each_of((asdict, lambda fields: AddedFile(**fields)))
_SOURCE: Form = (lambda source: [text for text in astuple(source) if text], lambda texts: Source(*texts))
_BROKEN: Form = (lambda test: (test.first.plain, test.times, test.rows),
                 lambda fields: BrokenRecord(time_of(fields[0]), *fields[1:]))  # fmt: skip
_LOAD: Form = (lambda load: [round(field, 3) for field in astuple(load)], lambda fields: Workload(*fields))
_FORMS: Forms = {
    "at": (datetime.isoformat, datetime.fromisoformat),
    **dict.fromkeys(("first", "last", "published_from", "replaces"), TIME),
    **dict.fromkeys(("lower", "upper", "restates", "since"), FRONTIER),
    **dict.fromkeys(("table", "before"), STATE),
    "tables": mapped(STATE),
    "uppers": mapped(FRONTIER),
    "counts": COUNTS,
    **dict.fromkeys(("inputs", "outputs"), mapped(COUNTS)),
    "sources": each_of(_SOURCE),
    "labels": (labels_to_json, labels_from_json),
    **dict.fromkeys(("large", "noted"), mapped((list, tuple))),  # key codes by the fingerprint of an arrangement
    "corrections": mapped(FILES),
    "broken": mapped(_BROKEN),
    "profile": PROFILE,
    "loads": each_of(_LOAD),
}
_WHEN_READ = ("replaced", "replaced_by")
_KINDS: dict[str, Any] = {
    "ingest": IngestRecord, "undo": UndoRecord, "intent": IntentRecord, "failure": FailureRecord, "run": RunRecord,
    "compact": CompactRecord, "part": PartRecord,
}  # fmt: skip


def kind_of(record: type[object]) -> str:
    """The kind of the records of a class."""
    return next(kind for kind, known in _KINDS.items() if known is record)


def row_of(record: Record) -> tuple[str, int, str]:
    """The kind of a record, its number and its name."""
    kind = kind_of(type(record))
    if isinstance(record, IngestRecord | UndoRecord):
        return kind, record.number, record.input
    return kind, record.run, "" if isinstance(record, CompactRecord) else record.fingerprint


def to_json(record: Record) -> dict[str, Any]:
    """The fields of a record for JSON, without those that have their defaults."""
    return as_json.written(record, _FORMS, _WHEN_READ)


def from_json(kind: str, body: Mapping[str, Any]) -> Record:
    """The record that :func:`to_json` wrote."""
    record: Record = as_json.read(_KINDS[kind], body, _FORMS)
    return record


def without_replaced(record: IngestRecord, by: IngestRecord) -> IngestRecord:
    """An ingest as a later restatement ``by`` of its input leaves it: the rows that this replaced no longer count."""
    assert by.replaces is not None
    gone = {time: sides for time, sides in record.counts.items() if le(by.replaces, time)}
    if not gone:
        return record
    kept = {time: sides for time, sides in record.counts.items() if time not in gone}
    return replace(record, counts=kept, replaced={**record.replaced, **gone}, replaced_by=by.number)
