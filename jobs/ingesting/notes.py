"""Sentences for the user about what an ingest left out, or took in although it may surprise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddcore.base.errors import DataError
from ddcore.io.logs.updates import RowCount
from ddcore.io.project.times import Time, named
from ddcore.io.sources.intake import shown
from ddcore.io.sources.known import AlreadyIngested, Rows
from ddcore.io.sources.layouts import Layout, listed_names
from ddcore.io.sources.source import Source
from ddcore.jobs.ingesting.engines import Layouts

_NAMED = 3


def left_out(layouts: Layouts, ignore: Sequence[str]) -> tuple[str, ...]:
    """The columns that sources have and the input does not, sorted, without those to ignore."""
    return tuple(sorted({name for source, layout in layouts for name in _spare(source, layout, ignore)}))


def _spare(source: Source, layout: Layout, ignore: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in layout.ignored if name not in ignore and name not in source.own)


def ignored_notes(layouts: Layouts, ignore: Sequence[str] = ()) -> list[str]:
    """A note for every set of columns that sources have and the input does not, without those to ignore."""
    by_columns: dict[tuple[str, ...], list[str]] = {}
    for source, layout in layouts:
        if columns := _spare(source, layout, ignore):
            by_columns.setdefault(columns, []).append(source.name)
    return [f"{_shorten(names)}: columns left out: {listed_names(columns)}" for columns, names in by_columns.items()]


def sweep_note(transaction: int | None, number: int) -> str:
    """A note on an ingest or an undo whose commit the ledger does not name; ingest ``number`` reverts it."""
    if transaction is not None and transaction < number:
        return f"an undo of ingest {transaction} was started and never finished: the ingest is in the log as before"
    return (
        f"ingest {number} was started and never finished, and is taken back; "
        "if it had other sources than these, ingest them again"
    )


def known_notes(known: Mapping[str, AlreadyIngested]) -> list[str]:
    """A note on the sources that are left out, and for each that has grown, from which version it is taken in."""
    whole = [name for name, one in known.items() if one.part is None and not one.replaced_by]
    notes = [f"{_shorten(whole)}: left out, the same rows were ingested before"] if whole else []
    for name, one in known.items():
        if isinstance(one.part, Time):
            notes.append(f"{name}: taken in after version {one.part}; ingest {one.number} has the rows up to there")
        elif isinstance(one.part, Rows):
            notes.append(f"{name}: taken in after row {one.part.last}; ingest {one.number} has the rows up to there")
        elif one.part is not None:
            notes.append(f"{name}: taken in at its other times; ingest {one.number} has the rows {shown_part(one)}")
    return notes


def replaced_notes(known: Mapping[str, AlreadyIngested], input: str) -> list[str]:
    """A note for each restatement that has replaced rows of known sources."""
    names: dict[int, list[str]] = {}
    for name, one in known.items():
        if one.replaced_by:
            names.setdefault(one.replaced_by, []).append(name)
    return [
        f"{_shorten(of)}: left out: ingest {number} has replaced rows of it since; to have them back: ddcore ingest "
        f"--undo {number}, or ddcore ingest {input} SOURCE... --restate first, with all sources of the history"
        for number, of in names.items()
    ]


def shown_part(known: AlreadyIngested) -> str:
    """The times of a part of a source, for a note."""
    if isinstance(known.part, Time):
        return f"up to version {known.part}"
    return f"at {len(known.part or ())} of its times"


def repeat_note(many: int, first: RowCount, dims: Sequence[str], number: int) -> str:
    """A note on rows that count more than once from ingest ``number`` on."""
    rows = "a row counts" if many == 1 else f"{many} rows count"
    return (
        f"{rows} more than once from now on, and none did before: {shown_count(first, dims)}. "
        f"Was it ingested before, in another form? Take it back with: ddcore ingest --undo {number}"
    )


def shown_count(one: RowCount, dims: Sequence[str]) -> str:
    """A row with its count, for people."""
    return f"{shown(one.row)} has the count {one.count} as of {named(one.version, dims)}"


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _NAMED else f"{names[0]} and {len(names) - 1} more"


def empty(paths: Sequence[str]) -> DataError:
    """The error for sources without rows."""
    return DataError(f"{', '.join(paths)}: no rows", "an empty source is refused: usually a mistake upstream")
