"""Columns that sources have and their inputs do not, as the newest ingest of each input met them.

A new column upstream is no error, and a note is lost where commands are called with ``-q``. So it is kept with the
ingest, and named until ``dd.toml`` declares the column or lists it under ``ignore``, or the source lacks it.
"""

from __future__ import annotations

from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.project import Project


def left_out(ledger: Ledger, project: Project) -> dict[str, list[str]]:
    """The columns by input, for inputs that have some. Reads the newest ingest of each input."""
    found = {}
    for name, schema in project.inputs.items():
        index = ledger.ingest_index(name)
        newest = ledger.ingests_at(index, [*index.numbers][-1:])
        known = {*schema, *project.ignored.get(name, ())}
        if (stored := project.stored.get(name)) is not None:
            known |= {*stored.dropped, *stored.former_names.values()}
        if columns := [column for record in newest for column in record.left_out if column not in known]:
            found[name] = columns
    return found
