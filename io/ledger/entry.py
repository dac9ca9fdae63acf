"""A row of the ledger's table: a record as JSON, a summary of all rows so far, and a digest that chains the rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ddcore.base.lattice import Frontier
from ddcore.io.ledger.records import Record, from_json, without_replaced
from ddcore.io.project import frontiers

COLUMNS = ("entry", "kind", "number", "name", "first", "last", "at", "body", "summary", "before", "digest")
NUMBERS = ("entry", "number", "first", "last")


@dataclass(slots=True)
class Entry:
    """One row of the table. ``body``: the record as JSON, parsed at most once. ``before``: the previous digest.

    ``first`` and ``last`` are versions; with several time dimensions, the first coordinates of the record's times.
    """

    entry: int
    kind: str
    number: int
    name: str
    first: int
    last: int
    at: str
    body: str
    summary: str
    before: str
    digest: str = ""
    parsed: Record | None = None

    @property
    def record(self) -> Any:
        """The record, parsed when it is first asked for."""
        if self.parsed is None:
            self.parsed = from_json(self.kind, json.loads(self.body))
        return self.parsed

    def own_digest(self) -> str:
        """The digest that this row should have."""
        text = json.dumps([getattr(self, name) for name in COLUMNS[:-1]])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def reaches(self, lower: Frontier) -> bool:
        """Whether an ingest has a time at or beyond a frontier. Parses its record with several dimensions only."""
        if len(lower[0]) == 1:
            return self.last >= lower[0][0]
        return any(frontiers.is_open(time, lower) for time in self.record.counts)

    def without_replaced(self, restatements: Iterable[Entry]) -> Entry:
        """The row of an ingest, its record without what later restatements of its input replaced."""
        row = self
        for later in restatements:
            if later.entry > row.entry and later.name == row.name:
                record = without_replaced(row.record, later.record)
                if record is not row.record:
                    last = max((time[0] for time in record.counts), default=-1)
                    row = replace(row, parsed=record, last=last)
        return row


def standing(entries: Iterable[Entry], without: int = 0) -> Iterator[Entry]:
    """Of rows in their order, the ingests that none of them undid, other than ``without``. An undo comes after its
    ingest. The records are without what later restatements replaced.
    """
    rows = [row for row in entries if row.kind in ("ingest", "undo")]
    undone = {without, *(row.number for row in rows if row.kind == "undo")}
    rows = [row for row in rows if row.kind == "ingest" and row.number not in undone]
    restatements = [row for row in rows if '"replaces":' in row.body]
    return (row.without_replaced(restatements) for row in rows)
