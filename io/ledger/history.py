"""The history of a warehouse: its ingests, runs and undos, newest first, as records and as rows of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from ddcore.base.lattice import Frontier, frontier
from ddcore.io.ledger.labels import json_instant
from ddcore.io.ledger.records import (
    FailureRecord,
    IngestRecord,
    IntentRecord,
    PartRecord,
    RunRecord,
    UndoRecord,
)
from ddcore.io.project.frontiers import frontier_json, is_open, shown_frontier
from ddcore.io.project.times import Time, json_time, least, named, shown, span
from ddcore.text.cells import cell, count

if TYPE_CHECKING:
    from ddcore.base.schema import Schema
    from ddcore.io.ledger.ledger import Ledger
    from ddcore.io.ledger.records import Counts, Record
    from ddcore.io.ledger.version_names import VersionNames
    from ddcore.program.condition import Condition

_TIMES = ("first", "last", "version", "replaces")
_ENDS = {False: ("first", "last"), True: ("version",)}  # which times a record has, by whether it is one of a version
_FIELDS = {
    False: {
        "kind": "string", "run": "int64", "ingest": "int64", "at": "timestamp", "input": "string", "rows": "int64",
        "engine": "string", "parallelism": "int64", "rounds": "int64", "took": "float64", "program": "string",
        "refresh": "bool", "error": "string",
    },
    True: {"run": "int64", "at": "timestamp"},
}  # fmt: skip
_FEWEST, _MOST = 32, 512  # records of which a condition is computed at once
_COUNTS = ("in_plus", "in_minus", "out_plus", "out_minus")
_HEADERS = {
    False: ["", "when", "versions", "in", "out", "what"],
    True: ["version", "run", "when", "in", "out"],
}


def spelled(record: dict[str, Any], names: VersionNames) -> dict[str, Any]:
    """A record with its times as in JSON, the label and the instant of its version or its last one, and the labels that
    an ingest gave.
    """
    dims = names.dims
    spelled = {name: json_time(value, dims) if name in _TIMES else value for name, value in record.items()}
    if len(dims) > 1 and "version" in spelled:
        spelled = {"time": spelled.pop("version"), **spelled}
    for name in ("upper", "restates"):
        if name in spelled:
            spelled[name] = frontier_json(record[name], dims)
    if record.get("broken_tests"):
        broken = record["broken_tests"].items()
        spelled["broken_tests"] = {name: {**test, "first": json_time(test["first"], dims)} for name, test in broken}
    if "labels" in record:
        spelled["labels"] = [
            {dim: coordinate, "label": label.text or None, "instant": json_instant(label.instant)}
            for dim, of in zip(dims, record["labels"], strict=False)
            for coordinate, label in sorted(of.items())
        ]
    return {**spelled, **names.fields(record.get("version", record.get("last")))}


def _label(record: dict[str, Any], names: VersionNames) -> str:
    """The label of a version, or of the first and the last of a record, for people."""
    if "version" in record:
        return names.label(record["version"])
    return names.span(record["first"], record["last"])


def entries(ledger: Ledger) -> Iterator[dict[str, Any]]:
    """Runs and ingests as plain records, newest first. Reads no more of the ledger than is asked for."""
    for record in ledger.newest_first():
        match record:
            case RunRecord():
                yield run_entry(record)
            case IngestRecord():
                yield _ingest(record)
            case UndoRecord():
                yield _entry("undo", record, input=record.input, restates=record.restates)
            case PartRecord():
                yield _part(record)
            case FailureRecord():
                yield _entry("failed", record, engine=record.engine, program=record.fingerprint, error=record.error)
            case IntentRecord():
                yield _entry("unfinished", record, engine=record.engine, program=record.fingerprint)


def _entry(kind: str, record: Record, **more: Any) -> dict[str, Any]:
    """What each record says, and more: the number of an ingest or a run, the moment, and the versions."""
    number = {"ingest": record.number} if isinstance(record, IngestRecord | UndoRecord) else {"run": record.run}
    return {"kind": kind, **number, "at": moment(record.at), "first": record.first, "last": record.last, **more}


def run_entry(run: RunRecord) -> dict[str, Any]:
    """A run as a plain record."""
    # The window may begin before the first version that had something in it: the very first one does, at 0.
    changed = [version for counts in run.inputs.values() for version in counts]
    return _entry(
        "run", run, first=least(changed) if changed else run.first, **({"upper": run.upper} if run.upper else {}),
        inputs=_by_name(run.inputs), outputs=_by_name(run.outputs), base=run.base,
        appends=run.published_from is not None, engine=run.engine, parallelism=run.parallelism, rounds=run.rounds,
        took=round(run.took, 3), program=run.fingerprint, refresh=run.refresh,
        broken_tests={
            name: {"first": test.first, "versions": test.times, "rows": test.rows} for name, test in run.broken.items()
        },
    )  # fmt: skip


def _part(run: PartRecord) -> dict[str, Any]:
    """A run of some outputs alone."""
    return _entry(
        "part", run, outputs=_by_name(run.outputs), engine=run.engine, took=round(run.took, 3),
        program=run.fingerprint, ahead=sorted(run.tables),
    )  # fmt: skip


def _ingest(ingest: IngestRecord) -> dict[str, Any]:
    return _entry(
        "ingest", ingest, input=ingest.input, inputs=_by_name({ingest.input: ingest.all_counts}), rows=ingest.rows,
        sources=[source.name for source in ingest.sources], replaces=ingest.replaces, removed=ingest.removed,
        restates=ingest.restates, replaced_by=ingest.replaced_by or None, labels=ingest.labels,
    )  # fmt: skip


def folded_versions(ledger: Ledger) -> Iterator[dict[str, Any]]:
    """Folded versions, those of the newest run first, and in each run the newest first; a version that was folded anew
    stands where it was folded last. Reads no more of the ledger than is asked for.
    """
    anew: Frontier = ()  # what newer runs have folded anew
    waiting: dict[Time, dict[str, Any]] = {}  # of runs that only wrote some logs anew: they belong to earlier runs
    for run in ledger.newest_first():
        if not isinstance(run, RunRecord):
            continue
        if run.published_from is not None:
            for version, record in _versions_of(run, anew).items():
                newer = waiting.get(version)
                waiting[version] = record if newer is None else _rewritten(record, newer)
            continue
        lower = run.lower or (run.first,)
        records = _versions_of(run, anew)
        for version in [version for version in waiting if run.refresh or is_open(version, lower)]:
            newer = waiting.pop(version)
            records[version] = _rewritten(records[version], newer) if version in records else newer
        yield from (records[version] for version in sorted(records, reverse=True))
        if run.refresh:
            return
        anew = frontier((*anew, *lower))
    yield from (waiting[version] for version in sorted(waiting, reverse=True))


def _versions_of(run: RunRecord, anew: Frontier) -> dict[Time, dict[str, Any]]:
    """The records of the versions that a run changed, without those at or beyond the frontier ``anew``."""
    versions = {version for side in (run.inputs, run.outputs) for counts in side.values() for version in counts}
    return {
        version: {
            "version": version,
            "run": run.run,
            "at": moment(run.at),
            "inputs": {name: _sides(_only(counts, version)) for name, counts in run.inputs.items()},
            "outputs": {name: _sides(_only(counts, version)) for name, counts in run.outputs.items()},
        }
        for version in versions
        if not anew or not is_open(version, anew)
    }


def _rewritten(record: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any]:
    """The record of a version, with the outputs whose logs a newer run wrote anew."""
    return {**record, "outputs": record["outputs"] | newer["outputs"]}


def _only(counts: Counts, version: Time) -> Counts:
    return {version: counts[version]} if version in counts else {}


def _by_name(counts: Mapping[str, Counts]) -> dict[str, dict[str, int]]:
    """The sums of each input or output."""
    return {name: _sides(of) for name, of in counts.items()}


def _sides(counts: Counts) -> dict[str, int]:
    return {"plus": sum(plus for plus, _ in counts.values()), "minus": sum(minus for _, minus in counts.values())}


def selected(
    records: Iterable[dict[str, Any]], dims: Sequence[str], condition: str, *, versions: bool
) -> Iterator[dict[str, Any]]:
    """The records that meet a condition in SQL, over the columns of :func:`_fields`. Raises UsageError.

    ``versions``: they are those of :func:`folded_versions`.
    """
    from ddcore.base.schema import parse_type
    from ddcore.program.condition import Condition

    times = [name if len(dims) == 1 else f"{name}_{dim}" for name in _ENDS[versions] for dim in dims]
    names = {**_FIELDS[versions], **dict.fromkeys((*times, *_COUNTS), "int64")}
    kinds = {name: parse_type(kind) for name, kind in names.items()}
    chosen = Condition(condition, kinds, "--where")
    return _kept(iter(records), chosen, kinds, dims, versions=versions)


def _kept(
    records: Iterator[dict[str, Any]], chosen: Condition, kinds: Schema, dims: Sequence[str], *, versions: bool
) -> Iterator[dict[str, Any]]:
    """Those that meet a condition, of records that are looked at together: the first few, then more at once."""
    import polars as pl

    size = _FEWEST
    while part := list(islice(records, size)):
        rows = [_fields(record, dims, versions=versions) for record in part]
        frame = pl.DataFrame(
            {name: [row.get(name) for row in rows] for name in kinds},
            schema={name: kind.polars for name, kind in kinds.items()},
        )
        numbers = chosen.kept(chosen.scan(frame.with_row_index("=").lazy()).collect())["="]
        yield from (part[number] for number in numbers)
        size = min(4 * size, _MOST)


def _fields(record: dict[str, Any], dims: Sequence[str], *, versions: bool) -> dict[str, Any]:
    """What conditions on a record read: its fields that are one value, its times, and its counts."""
    ends = {
        name if len(dims) == 1 else f"{name}_{dim}": coordinate
        for name in _ENDS[versions]
        for dim, coordinate in zip(dims, record[name], strict=True)
    }
    sides = [record.get(side, {}).values() for side in ("inputs", "outputs")]
    counts = [sum(change[sign] for change in side) for side in sides for sign in ("plus", "minus")]
    at = datetime.fromisoformat(record["at"])
    return {**record, **ends, **dict(zip(_COUNTS, counts, strict=True)), "at": at}


def history_table(
    records: Sequence[dict[str, Any]], names: VersionNames, *, labelled: bool | None = None
) -> tuple[list[list[str]], list[int]]:
    """Records as rows of text under a row of headers, and the columns of numbers.

    The records are some of :func:`entries` or some of :func:`folded_versions`. ``labelled``: whether there is a column
    of labels; by default if one of the records has any.
    """
    dims, versions = names.dims, bool(records) and "version" in records[0]
    headers = _HEADERS[versions]
    if len(dims) > 1:
        headers = [{"versions": "times", "version": "time"}.get(header, header) for header in headers]
    table = [headers, *(_version_row(record, dims) if versions else _entry_row(record, dims) for record in records)]
    right = [0, 3, 4] if versions else [2, 3, 4]
    labels = [_label(record, names) for record in records]
    if any(labels) if labelled is None else labelled:
        at = headers.index("in")
        table = [[*row[:at], label, *row[at:]] for row, label in zip(table, ["label", *labels], strict=True)]
        right = [column + (column >= at) for column in right]
    return table, right


def _entry_row(record: dict[str, Any], dims: Sequence[str]) -> list[str]:
    times = span(record["first"], record["last"], dims)
    when = _short(record["at"])
    inputs, outputs = changed(record.get("inputs", {}).values()), changed(record.get("outputs", {}).values())
    if record["kind"] == "ingest":
        sources = ", ".join(map(cell, record["sources"]))
        what = f"{record['input']} from {sources}{_restated(record, dims)}"
        return [f"ingest {record['ingest']}", when, times, inputs, "", what]
    if record["kind"] == "undo":
        return [
            f"undo {record['ingest']}",
            when,
            times,
            "",
            "",
            f"{record['input']}: ingest {record['ingest']} taken back{_restated(record, dims)}",
        ]
    program = f"program {record['program'][:8]}"
    if record["kind"] == "unfinished":
        return [f"run {record['run']}", when, times, "", "", f"not finished: the next run resumes it; {program}"]
    if record["kind"] == "failed":
        return [f"run {record['run']}", when, times, "", "", f"failed: {cell(record['error'])}; {program}"]
    if record["kind"] == "part":
        what = f"{program}, {record['took']:.1f}s, only {', '.join(record['ahead'])}"
        return [f"run {record['run']}", when, times, "", outputs, what]
    what = f"{program}, {record['took']:.1f}s, {count(record['rounds'])} rounds, {record['engine']}"
    what += f" x{record['parallelism']}{', full refresh' if record['refresh'] else ''}"
    if 0 < record["base"] < record["run"] - 1:
        what += f", on run {record['base']}"
    if record["appends"]:
        what += f", corrections for {record['last'].version + 1}"
    broken = [f"{name} at {shown(test['first'], dims)}" for name, test in record["broken_tests"].items()]
    if broken:
        what += f", broken tests: {', '.join(broken)}"
    return [f"run {record['run']}", when, times, inputs, outputs, what]


def _restated(record: dict[str, Any], dims: Sequence[str]) -> str:
    """What an ingest or an undo changed in the history before it, for people."""
    parts = []
    if record.get("replaces") is not None:
        rows = "row" if record["removed"] == 1 else "rows"
        parts.append(f"replaced {count(record['removed'])} {rows} from {named(record['replaces'], dims)} on")
    if record["restates"]:
        parts.append(f"changed folded {'versions' if len(dims) == 1 else 'times'} from {_least(record, dims)} on")
    if record.get("replaced_by"):
        parts.append(f"replaced in part by ingest {record['replaced_by']}")
    return "".join(f"; {part}" for part in parts)


def _least(record: dict[str, Any], dims: Sequence[str]) -> str:
    restates = record["restates"]
    return shown(restates[0], dims) if len(restates) == 1 else shown_frontier(restates, dims)


def _version_row(record: dict[str, Any], dims: Sequence[str]) -> list[str]:
    inputs, outputs = changed(record["inputs"].values()), changed(record["outputs"].values())
    return [shown(record["version"], dims), f"run {record['run']}", _short(record["at"]), inputs, outputs]


def _short(at: str) -> str:
    """The moment to the minute, for people; programs get the seconds."""
    return at[:16].replace("T", " ") + "Z"


def changed(sides: Iterable[dict[str, int]]) -> str:
    """Inserts and deletes of several collections together: ``+310 -4``."""
    sides = list(sides)
    return f"+{count(sum(side['plus'] for side in sides))} -{count(sum(side['minus'] for side in sides))}"


def moment(at: datetime) -> str:
    """A moment in UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
