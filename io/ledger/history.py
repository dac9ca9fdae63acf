"""The history of a warehouse: its ingests, runs and undos, newest first, as records and as rows of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ddcore.io.ledger.labels import json_instant
from ddcore.io.project.times import (
    Time,
    frontier_json,
    json_time,
    least,
    named,
    shown,
    shown_frontier,
    span,
)
from ddcore.text.cells import cell, count

if TYPE_CHECKING:
    from ddcore.io.ledger.ledger import Ledger
    from ddcore.io.ledger.records import Counts, FailureRecord, IngestRecord, IntentRecord, RunRecord, UndoRecord
    from ddcore.io.ledger.version_names import VersionNames

__all__ = ["changed", "entries", "folded_versions", "history_table", "moment", "run_entry", "selected", "spelled"]

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
        spelled["broken_tests"] = {name: {**each, "first": json_time(each["first"], dims)} for name, each in broken}
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


def entries(ledger: Ledger) -> list[dict[str, Any]]:
    """Runs and ingests as plain records, newest first; an unfinished run stands at the top."""
    dated = [(each.at, 1, each.run, run_entry(each)) for each in ledger.runs()]
    dated += [(each.at, 0, each.number, _ingest(each)) for each in ledger.ingests()]
    for each in ledger.failures():
        dated.append((each.at, 2, each.run, {**_start(each), "kind": "failed", "error": each.error}))
    for undo in ledger.undos():
        dated.append((undo.at, 0, undo.number, _undone(undo)))
    intent = ledger.open_intent()
    if intent is not None:
        dated.append((intent.at, 2, intent.run, _start(intent)))
    return [record for *_, record in sorted(dated, key=lambda each: each[:3], reverse=True)]


def _start(run: IntentRecord | FailureRecord) -> dict[str, Any]:
    return {
        "kind": "unfinished",
        "run": run.run,
        "at": moment(run.at),
        "first": run.first,
        "last": run.last,
        "engine": run.engine,
        "program": run.fingerprint,
    }


def run_entry(run: RunRecord) -> dict[str, Any]:
    """A run as a plain record."""
    # The window may begin before the first version that had something in it: the very first one does, at 0.
    changed = [version for counts in run.inputs.values() for version in counts]
    first = least(changed) if changed else run.first
    return {
        "kind": "run",
        "run": run.run,
        "at": moment(run.at),
        "first": first,
        "last": run.last,
        **({"upper": run.upper} if run.upper else {}),
        "inputs": {name: _sides(counts) for name, counts in run.inputs.items()},
        "outputs": {name: _sides(counts) for name, counts in run.outputs.items()},
        "base": run.base,
        "appends": run.published_from is not None,
        "engine": run.engine,
        "parallelism": run.parallelism,
        "rounds": run.rounds,
        "took": round(run.took, 3),
        "program": run.fingerprint,
        "refresh": run.refresh,
        "broken_tests": {
            name: {"first": each.first, "versions": each.times, "rows": each.rows} for name, each in run.broken.items()
        },
    }


def _ingest(ingest: IngestRecord) -> dict[str, Any]:
    return {
        "kind": "ingest",
        "ingest": ingest.number,
        "at": moment(ingest.at),
        "first": ingest.first,
        "last": ingest.last,
        "input": ingest.input,
        "inputs": {ingest.input: _sides(ingest.all_counts)},
        "rows": ingest.rows,
        "sources": [source.name for source in ingest.sources],
        "replaces": ingest.replaces,
        "removed": ingest.removed,
        "restates": ingest.restates,
        "replaced_by": ingest.replaced_by or None,
        "labels": ingest.labels,
    }


def _undone(undo: UndoRecord) -> dict[str, Any]:
    return {
        "kind": "undo",
        "ingest": undo.number,
        "at": moment(undo.at),
        "first": undo.first,
        "last": undo.last,
        "input": undo.input,
        "restates": undo.restates,
    }


def folded_versions(ledger: Ledger) -> list[dict[str, Any]]:
    """Folded versions, newest first; a version that was folded anew stands where it was folded last."""
    records: dict[Time, dict[str, Any]] = {}
    for run in ledger.runs():
        if run.refresh and run.published_from is None:
            records.clear()
        both = {version for side in (run.inputs, run.outputs) for counts in side.values() for version in counts}
        for version in both:
            found: dict[str, Any] = {
                "version": version,
                "run": run.run,
                "at": moment(run.at),
                "inputs": {name: _sides(_only(counts, version)) for name, counts in run.inputs.items()},
                "outputs": {name: _sides(_only(counts, version)) for name, counts in run.outputs.items()},
            }
            if run.published_from is not None and version in records:  # it wrote the logs of some outputs anew
                found = {**records[version], "outputs": records[version]["outputs"] | found["outputs"]}
            records[version] = found
    return [records[version] for version in reversed(sorted(records))]


def _only(counts: Counts, version: Time) -> Counts:
    return {version: counts[version]} if version in counts else {}


def _sides(counts: Counts) -> dict[str, int]:
    return {"plus": sum(plus for plus, _ in counts.values()), "minus": sum(minus for _, minus in counts.values())}


def selected(
    records: Sequence[dict[str, Any]], dims: Sequence[str], condition: str, *, versions: bool
) -> list[dict[str, Any]]:
    """The records that meet a condition in SQL, over the columns of :func:`_fields`. Raises UsageError.

    ``versions``: they are those of :func:`folded_versions`.
    """
    import polars as pl

    from ddcore.base.schema import parse_type
    from ddcore.program.condition import Condition

    times = [name if len(dims) == 1 else f"{name}_{dim}" for name in _ENDS[versions] for dim in dims]
    kinds = {**_FIELDS[versions], **dict.fromkeys((*times, *_COUNTS), "int64")}
    chosen = Condition(condition, {name: parse_type(kind) for name, kind in kinds.items()}, "--where")
    rows = [_fields(record, dims, versions=versions) for record in records]
    frame = pl.DataFrame(
        {name: [row.get(name) for row in rows] for name in kinds},
        schema={name: parse_type(kind).polars for name, kind in kinds.items()},
    )
    kept = chosen.kept(chosen.scan(frame.with_row_index("=").lazy()).collect())
    return [records[place] for place in kept["="]]


def _fields(record: dict[str, Any], dims: Sequence[str], *, versions: bool) -> dict[str, Any]:
    """What conditions on a record read: its fields that are one value, its times, and its counts."""
    ends = {
        name if len(dims) == 1 else f"{name}_{dim}": coordinate
        for name in _ENDS[versions]
        for dim, coordinate in zip(dims, record[name], strict=True)
    }
    sides = [record.get(side, {}).values() for side in ("inputs", "outputs")]
    counts = [sum(each[sign] for each in side) for side in sides for sign in ("plus", "minus")]
    at = datetime.fromisoformat(record["at"])
    return {**record, **ends, **dict(zip(_COUNTS, counts, strict=True)), "at": at}


def history_table(records: Sequence[dict[str, Any]], names: VersionNames) -> tuple[list[list[str]], list[int]]:
    """Records as rows of text under a row of headers, and the columns of numbers.

    The records are all of :func:`entries` or all of :func:`folded_versions`.
    """
    dims, versions = names.dims, bool(records) and "version" in records[0]
    headers = _HEADERS[versions]
    if len(dims) > 1:
        headers = [{"versions": "times", "version": "time"}.get(header, header) for header in headers]
    table = [headers, *(_version_row(each, dims) if versions else _entry_row(each, dims) for each in records)]
    right = [0, 3, 4] if versions else [2, 3, 4]
    labels = [_label(each, names) for each in records]
    if any(labels):
        place = headers.index("in")
        table = [[*row[:place], label, *row[place:]] for row, label in zip(table, ["label", *labels], strict=True)]
        right = [column + (column >= place) for column in right]
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
    what = f"{program}, {record['took']:.1f}s, {count(record['rounds'])} rounds, {record['engine']}"
    what += f" x{record['parallelism']}{', full refresh' if record['refresh'] else ''}"
    if 0 < record["base"] < record["run"] - 1:
        what += f", on run {record['base']}"
    if record["appends"]:
        what += f", corrections for {record['last'].version + 1}"
    broken = [f"{name} at {shown(each['first'], dims)}" for name, each in record["broken_tests"].items()]
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
