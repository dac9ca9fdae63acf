"""An index of ingests: finds the records with a source of the same rows or of the same name, without reading others.

Each data file of the ledger has in its footer the index of its own rows, as JSON: a few bytes for each source. So an
ingest reads footers and the records that it needs, however many there are. The index only selects records. What they
say is read from their rows, so it needs no digests of its own beside the file's.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ddcore.io.ledger.entry import Entry

FOOTER = "ddcore.ingests"  # the name of the index in a file's footer
_BITS = 64  # of a mark: the records that it selects are compared by their whole digests


def mark(total: int) -> str:
    """The part of a digest by which the index finds it; that of a sum is the sum of the parts."""
    return f"{total % (1 << _BITS):x}"


def index_of(rows: Iterable[Entry]) -> str:
    """The index of these rows, as JSON: by input; and the numbers of the ingests that they undo."""
    inputs: dict[str, dict[str, Any]] = {}
    undone = []
    for row in rows:
        if row.kind == "undo":
            undone.append(row.number)
        elif row.kind == "ingest":
            _add(inputs.setdefault(row.name, _nothing()), row, json.loads(row.body))
    return json.dumps({"undone": undone, "inputs": inputs} if undone or inputs else {}, separators=(",", ":"))


def _nothing() -> dict[str, Any]:
    lists = ("ingests", "columns", "restatements", "places", "names", "marks")
    return {**{name: [] for name in lists}, "plus": 0, "minus": 0}


def _add(of: dict[str, Any], row: Entry, body: Mapping[str, Any]) -> None:
    columns = body.get("columns", [])
    if columns not in of["columns"]:
        of["columns"].append(columns)
    of["ingests"].append([row.entry, row.number, row.first, row.last, of["columns"].index(columns)])
    of["plus"] += sum(plus for plus, _ in body["counts"].values())
    of["minus"] += sum(minus for _, minus in body["counts"].values())
    if body.get("replaces") is not None:
        of["restatements"].append(row.entry)
    marks = [(name, int(digest.partition(":")[2], 16)) for name, digest, *_ in body["sources"]]
    if len(marks) > 1:
        marks.append((None, sum(total for _, total in marks)))
    for name, total in marks:
        of["places"].append(row.entry)
        of["names"].append(name)
        of["marks"].append(mark(total))


@dataclass
class IngestIndex:
    """The ingests of one input that were not undone, by the entries of their rows, which ascend.

    ``numbers``: by entry. ``columns``: the lists of columns that their rows had, newest first.
    ``plus``, ``minus``: at least the sum of all insertions, and of all retractions.
    """

    numbers: dict[int, int] = field(default_factory=dict)
    columns: tuple[tuple[str, ...], ...] = ()
    plus: int = 0
    minus: int = 0
    restatements: list[int] = field(default_factory=list)
    _files: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, texts: Iterable[str], input: str) -> IngestIndex:
        """The index of an input from those of all files of the ledger, in the order of their rows. O(ingests), about a
        microsecond for each.
        """
        index, parts = cls(), [json.loads(text) for text in texts]
        undone = {number for part in parts for number in part.get("undone", ())}
        index._files = [part["inputs"][input] for part in parts if input in part.get("inputs", {})]
        newest: dict[tuple[str, ...], int] = {}
        for one in index._files:
            live = [row for row in one["ingests"] if row[1] not in undone] if undone else one["ingests"]
            index.numbers.update({row[0]: row[1] for row in live})
            newest.update(
                {
                    tuple(one["columns"][column_number]): entry
                    for column_number, entry in {r[4]: r[0] for r in live}.items()
                }
            )
            index.plus += one["plus"]
            index.minus += one["minus"]
        index.columns = tuple(sorted(newest, key=newest.__getitem__, reverse=True))
        index.restatements = [e for one in index._files for e in one["restatements"] if e in index.numbers]
        return index

    def with_marks(self, marks: Iterable[str]) -> set[int]:
        """The entries of ingests with a source, or with all sources together, of one of these marks."""
        wanted, entries = frozenset(marks), set[int]()
        for one in self._files:
            if not wanted.isdisjoint(one["marks"]):
                entries.update(entry for entry, mark in zip(one["places"], one["marks"], strict=True) if mark in wanted)
        return entries & self.numbers.keys()

    def between(self, first: int, last: int) -> set[int]:
        """The entries of ingests that may have times whose first coordinates are in ``first``..``last``."""
        rows = (row for one in self._files for row in one["ingests"])
        return {row[0] for row in rows if row[2] <= last and first <= row[3]} & self.numbers.keys()

    def entry_of(self, number: int) -> int | None:
        """The entry of an ingest; None for one that is not of this input, or was undone."""
        return next((entry for entry, known in self.numbers.items() if known == number), None)

    def spans(self, without: int) -> list[tuple[int, int]]:
        """The first coordinates of the first and of the last time of each ingest other than ``without``."""
        rows = (row for one in self._files for row in one["ingests"])
        return [(row[2], row[3]) for row in rows if row[0] in self.numbers and row[1] != without]

    def names(self) -> set[str]:
        """The names of all sources."""
        return {name for one in self._files for name in one["names"] if name is not None}

    def former_columns(self, present: tuple[str, ...], known: Collection[str]) -> tuple[tuple[str, ...], ...]:
        """The columns of rows that ingests had, if they were others than the ``present`` ones and all are ``known``,
        newest first. Columns are those of the input's table.
        """
        return tuple(columns for columns in self.columns if columns != present and {*known} >= {*columns})

    def last_named(self, names: Collection[str]) -> dict[str, int]:
        """By name the entry of the last ingest with a source of that name; names without one are left out."""
        last: dict[str, int] = {}
        for one in self._files if names else ():
            for entry, name in zip(one["places"], one["names"], strict=True):
                if name in names and entry in self.numbers:
                    last[name] = max(entry, last.get(name, entry))
        return last

    def named(self, names: Collection[str], columns: tuple[str, ...]) -> dict[str, list[tuple[int, str]]]:
        """By name the entries of the ingests of sources of these names, and the marks of those: of ingests whose rows
        have these columns.
        """
        ingests: dict[str, list[tuple[int, str]]] = {name: [] for name in names}
        for one in self._files if names else ():
            of_columns = {number for number, column in enumerate(one["columns"]) if tuple(column) == columns}
            entries = {row[0] for row in one["ingests"] if row[4] in of_columns} & self.numbers.keys()
            for entry, name, marked in zip(one["places"], one["names"], one["marks"], strict=True):
                if name in ingests and entry in entries:
                    ingests[name].append((entry, marked))
        return ingests
