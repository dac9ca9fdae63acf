"""The numbers of finished runs, in the footer of each data file of the ledger: those of its own rows.

The shell's completion offers them, and reads no record for it. Every command loads this module, so it imports nothing
heavy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from ddcore.io.ledger.entry import Entry

FOOTER = "ddcore.runs"  # the name of the numbers in a file's footer


def runs_of(rows: Iterable[Entry]) -> str:
    """The numbers of the runs in these rows, for the footer of a file; empty if there are none."""
    found = [row.number for row in rows if row.kind == "run"]
    return json.dumps(found) if found else ""


def numbers(notes: Iterable[str]) -> list[int]:
    """The numbers in the footers of all files, the newest first; a file and its merge say the same.

    Raises ValueError for what is no such note.
    """
    return sorted({int(number) for note in notes if note for number in json.loads(note)}, reverse=True)
