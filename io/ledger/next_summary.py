"""The summary after one more row of the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ddcore.base.lattice import Frontier, frontier
from ddcore.io.delta.table_files import TableState
from ddcore.io.ledger.entries import Entries
from ddcore.io.ledger.entry import Entry, standing
from ddcore.io.ledger.records import (
    CompactRecord,
    IngestRecord,
    IntentRecord,
    PartRecord,
    RunRecord,
    UndoRecord,
    without_replaced,
)
from ddcore.io.ledger.summary import Input, Summary
from ddcore.io.project import frontiers, times
from ddcore.io.project.times import Time

_FEW = 64  # rows of open ingests that the summary names


def summary_with(entries: Entries, row: Entry) -> Summary:
    """The summary with one more row."""
    now, record = entries.summary, row.record
    if isinstance(record, IngestRecord):
        return _with_ingest(entries, record)
    if isinstance(record, UndoRecord):
        return _without_ingest(entries, record)
    if isinstance(record, CompactRecord):
        return _with_compaction(now, record, row.entry)
    now = replace(now, runs=max(now.runs, record.run))
    if isinstance(record, IntentRecord):
        return replace(now, intent=row.entry)
    ended = now.intent is None or record.run >= entries[now.intent].number
    now = replace(now, ended=record.run, intent=None if ended else now.intent)
    if isinstance(record, PartRecord):
        return replace(now, part=row.entry)
    if isinstance(record, RunRecord):
        waiting, still_open = _waiting_after(entries, record.complete, row.entry)
        lower = record.lower or (record.first,)
        restated = tuple(time for time in now.restated if not frontiers.is_open(time, lower))
        now = replace(now, run=row.entry, folded=record.last, upper=record.upper, waiting=waiting, open=still_open)
        now = replace(now, compact=None, part=None, restated=restated, rows=_rows_after(entries, record))
    return now


def rows_before(entries: Entries, run: RunRecord) -> dict[str, int]:
    """The rows of each output where a run went on: after the finished run before it; of outputs that it folded
    again, after its base. Reads the rows from there on.
    """
    before: dict[str, int] | None = None
    for row in () if run.refresh else entries.backwards():
        if row.kind == "run" and row.number < run.run:
            rows = Summary.from_json(row.summary).rows
            before = dict(rows) if before is None else before
            if not run.folds_again:
                return before
            if row.number == run.base:
                return {**before, **{name: rows.get(name, 0) for name in run.outputs}}
    return before or {}


def _rows_after(entries: Entries, run: RunRecord) -> dict[str, int]:
    """The rows of each output after a run that is about to be recorded."""
    goes_on = not (run.refresh or run.folds_again)
    rows = dict(entries.summary.rows) if goes_on else rows_before(entries, run)
    for name, counts in run.outputs.items():
        rows[name] = rows.get(name, 0) + sum(plus - minus for plus, minus in counts.values())
    return rows


def _with_compaction(now: Summary, record: CompactRecord, entry: int) -> Summary:
    """The summary after a compaction. A second one after the same run names the tables of the first as well."""
    inputs = dict(now.inputs)
    for name, state in record.tables.items():
        folder, _, input = name.partition("/")
        if folder == "inputs":
            inputs[input] = replace(inputs[input], table=state)
    return replace(now, compact=entry, since=record.since, inputs=inputs)


def _with_ingest(entries: Entries, record: IngestRecord) -> Summary:
    now = entries.summary
    one = Input(record.first, record.last, record.table)
    old = now.inputs.get(record.input)
    if record.replaces is not None:
        rows = [other for other in standing(entries.onwards()) if other.name == record.input]
        earlier = [without_replaced(other.record, record) for other in rows]
        one = _extent([*earlier, record], record.table)
    elif old is not None:
        spans = [record.first, record.last, *(v for v in (old.first, old.last) if v is not None)]
        one = replace(one, first=times.least(spans), last=times.greatest(spans))
    inputs = {**now.inputs, record.input: one}
    restated = frontier((*now.restated, *record.restates))
    now = replace(now, dims=record.dims, restated=restated, labels=now.labels or bool(record.labels))
    return replace(now, ingests=max(now.ingests, record.number), inputs=inputs)


def _without_ingest(entries: Entries, record: UndoRecord) -> Summary:
    """The summary after an undo. The remaining ingests say which versions the input has: their index does, where
    there is one time dimension and no history was replaced; else their records, or all of the input's rows.
    """
    index = entries.ingest_index(record.input)
    entry, own = index.entry_of(record.number), Input(None, None, record.table)
    if len(entries.summary.dims) > 1 or index.restatements:
        remaining = [e.record for e in standing(entries.onwards(), without=record.number) if e.name == record.input]
        own = _extent(remaining, record.table)
    elif spans := index.spans(record.number):
        first, last = min(span[0] for span in spans), max(span[1] for span in spans)
        own = Input(Time([first]), Time([last]), record.table)
    inputs = {**entries.summary.inputs, record.input: own}
    restated = frontier((*_restated_without(entries, record.number), *record.restates))
    summary = replace(entries.summary, inputs=inputs, restated=restated)
    if entry is None or entry in index.restatements:
        # What a restatement had replaced, in any earlier row, may be waiting again: all rows are looked at.
        summary = replace(summary, waiting=0, open=())
    return summary


def _restated_without(entries: Entries, number: int) -> Frontier:
    """What has to be folded again apart from ingest ``number``, if no run has folded that. Reads the rows after the
    last run.
    """
    run = entries.summary.run
    before = () if run is None else Summary.from_json(entries[run].summary).restated
    first = 0 if run is None else run + 1
    undone = {number, *(row.number for row in entries.onwards(first) if row.kind == "undo")}
    rows = [row for row in entries.onwards(first) if '"restates":' in row.body]
    later = [row.record for row in rows if row.kind == "undo" or row.number not in undone]
    return frontier((*before, *(time for record in later for time in record.restates)))


def _waiting_after(entries: Entries, upper: Frontier, end: int) -> tuple[int, tuple[int, ...]]:
    """``waiting`` and ``open`` of the summary when times before ``upper`` are folded; ``end``: the row of that run.

    A few rows are named one by one, so that a long history that is folded in many runs is not searched each time.
    """
    before = entries.summary.complete
    # A full refresh up to an earlier version opens times again.
    back = before is not None and not all(frontiers.is_open(element, before) for element in upper)
    rows = [
        row.entry for row in (standing(entries.onwards()) if back else entries.open_ingests()) if row.reaches(upper)
    ]
    return (rows[_FEW], tuple(rows[:_FEW])) if len(rows) > _FEW else (end, tuple(rows))


def _extent(records: Iterable[IngestRecord], table: TableState) -> Input:
    """An input that holds the rows of these ingests."""
    spans = [
        time for record in records for time in (record.counts if record.replaced_by else (record.first, record.last))
    ]
    return Input(times.least(spans), times.greatest(spans), table) if spans else Input(None, None, table)
