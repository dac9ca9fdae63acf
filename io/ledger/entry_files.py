"""The files of the ledger's table: their names, which rows they hold, how many, their columns and notes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddcore.base.lazy import numpy as np
from ddcore.io.ledger.entry import Entry
from ddcore.io.ledger.ingest_index import FOOTER, index_of
from ddcore.io.ledger.labels import FOOTER as LABELS
from ddcore.io.ledger.labels import labels_of

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST = 16**3  # rows of a file: reading one of them checks the bytes of the whole file
_NAME = re.compile(r"entries-([0-9]{8,})-([0-9]{8,})-")
RUNS = "ddcore.runs"  # the name of the numbers of finished runs in a file's footer, which the shell completes
NOTES = (FOOTER, LABELS, RUNS)
"""The names of the notes in the footer of a file."""


def replaced_at(written: Mapping[str, float]) -> dict[str, float]:
    """When each file was merged into another one, in seconds since the epoch: when the first with its rows was written
    after it. Its own time, where none is there any more.

    ``written``: when each file was written. Linear in their number, but for a sort: few files have the same row.
    """
    ours = [(span, at, name) for name, at in written.items() if (span := file_span(name)) is not None]
    result, around = dict(written), list[tuple[tuple[int, int], float]]()
    for span, at, name in sorted(ours, key=lambda file: (file[0][0], -file[0][1], -file[1])):
        around = [file for file in around if file[0][1] >= span[0]]
        merged = (
            later for outer, later in around if outer[1] >= span[1] and later >= at and (outer, later) != (span, at)
        )
        result[name] = min(merged, default=at)
        around.append((span, at))
    return result


def file_column(values: Sequence[Any], *, of_text: bool) -> pa.Array:
    """Texts or integers as an array. From buffers: given Python's values, PyArrow imports pandas."""
    import pyarrow as pa

    if not of_text:
        return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.array(values, np.int64))])
    texts = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return pa.Array.from_buffers(
        pa.large_string(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    )


def file_notes(rows: Sequence[Entry]) -> dict[str, str]:
    """The notes in the footer of a file with these rows."""
    labels, runs = labels_of(rows), [row.number for row in rows if row.kind == "run"]
    notes = {FOOTER: index_of(rows), LABELS: labels, RUNS: json.dumps(runs) if runs else ""}
    return {name: note for name, note in notes.items() if note}


def run_numbers(notes: Iterable[str]) -> list[int]:
    """The numbers of runs in the footers of all files, the newest first; a file and its merge say the same.

    Raises ValueError for what is no such note.
    """
    return sorted({int(number) for note in notes if note for number in json.loads(note)}, reverse=True)


def file_width(rows: int, merged: int) -> int:
    """How many of the newest rows one file gets when there are ``rows``: the greatest power of ``merged`` that divides
    it, up to ``_LARGEST``.
    """
    width = 1
    while width < _LARGEST and rows % (width * merged) == 0:
        width *= merged
    return width


def file_span(path: str) -> tuple[int, int] | None:
    """The first and last entry in a file of ours; None for one that another program wrote (OPTIMIZE)."""
    name = _NAME.match(path)
    return (int(name[1]), int(name[2])) if name else None
