"""Whether the table of an input has the columns that ``dd.toml`` says, and what to write there where it has not."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from ddcore.base.errors import DdError, StorageError
from ddcore.base.schema import Type, parse_type
from ddcore.io.delta import tables
from ddcore.io.delta.table_files import TableState
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.stored_columns import EXACT_FLOAT, widens
from ddcore.text.wording import listed, shown_value

_ANEW = "or ingest the sources into a new warehouse"


def check_columns(log: ChangeLog, state: TableState | None = None) -> None:
    """Raise StorageError where the table has other columns than the log, with the line for dd.toml that tells of it.

    Columns of the row may have been added since: they are null in the updates before. ``state`` is the table's in the
    ledger; without it, its newest version is compared.
    """
    stored = dict(tables.stored_columns(log.folder, state, log.writer))
    wanted = {name: str(kind) for name, kind in log.table_columns.items()}
    dropped = {} if log.stored is None else log.stored.dropped
    dropped_types = {name: str(kind) for name, kind in dropped.items()}
    gone = [name for name in (*stored, *log.dims, "diff") if name not in {**wanted, **dropped} or name not in stored]
    other = [name for name in stored if name not in gone and stored[name] != {**dropped_types, **wanted}[name]]
    if gone or other:
        name = (*gone, *other)[0]
        what = f"{name} is in one of them only" if gone else f"{name} has another type"
        shown = [", ".join(f"{name} {kind}" for name, kind in side.items()) for side in (stored, wanted)]
        raise StorageError(
            f"inputs/{log.folder.name} has the columns ({shown[0]}), but dd.toml now says ({shown[1]}): {what}",
            _way_on(log, stored, gone, other),
        )
    if log.stored is not None:
        _check_exact(log, state)


def check_returned(log: ChangeLog, columns: tuple[tuple[str, ...], ...]) -> None:
    """Raise StorageError for a column that the input has again, although rows were taken in without it since.
    ``columns``: the lists of columns that ingests had, newest first.
    """
    newest, *older = columns or ((),)
    lost = {name for names in older for name in names}.difference(newest)
    for column, name in log.names.items():
        if name in lost:
            raise StorageError(
                f"input {log.folder.name}: the column {name} was dropped, and rows were taken in without it since",
                f"give {column} another name in dd.toml, and keep dropped = {{ {name} = TYPE }}; {_ANEW}",
            )


def _way_on(log: ChangeLog, stored: Mapping[str, str], gone: Sequence[str], other: Sequence[str]) -> str:
    """What to write into ``dd.toml`` for the columns of the table that are not as there."""
    renamed, widened, dropped, lost = dict[str, str](), dict[str, str](), dict[str, str](), list[str]()
    new = [column for column, name in log.names.items() if name not in stored]
    for name in gone:
        kind = _kind(stored.get(name, ""))
        if kind is None:
            lost.append(name)
            continue
        alike = [column for column in new if kind == log.schema[column] or widens(kind, log.schema[column])]
        if not alike:
            dropped[name] = str(kind)
        else:
            column = (difflib.get_close_matches(name, alike, 1, 0) or alike)[0]
            renamed[column] = name
            new.remove(column)
            if kind != log.schema[column]:
                widened[column] = str(kind)
    for name in other:
        column = next((column for column, written in log.names.items() if written == name), name)
        kind, wide = _kind(stored[name]), log.schema.get(column)
        if kind is None or wide is None or not widens(kind, wide):
            lost.append(name)
        else:
            widened[column] = str(kind)
    if lost:
        return f"restore the schema of {listed(lost)} in dd.toml, to which columns may be added; {_ANEW}"
    lines = {"if columns have other names now, renamed": renamed, "if their types are wider now, widened": widened}
    lines |= {"if the input is to be without them, dropped": dropped}
    said = [f"{what} = {{ {_pairs(pairs)} }}" for what, pairs in lines.items() if pairs]
    return f"say under [inputs.{log.folder.name}], {'; '.join(said)}; else restore the schema in dd.toml, {_ANEW}"


def _pairs(pairs: Mapping[str, str]) -> str:
    return ", ".join(f'{name} = "{value}"' for name, value in pairs.items())


def _kind(text: str) -> Type | None:
    """The type of a column of the table; None for one that is nested or that no input can have."""
    try:
        kind = parse_type(text)
    except DdError:
        return None
    return None if kind.is_nested else kind


def _check_exact(log: ChangeLog, state: TableState | None) -> None:
    """Raise StorageError for whole numbers in a column that became float64 which that does not hold."""
    assert log.stored is not None
    for column, parts in log.stored.parts.items():
        if parts[-1][1].name != "float64" or len(parts) == 1:
            continue
        for file in tables.live_files(log.folder, state, log.writer):
            for bound in (file.lower.get(parts[0][0], 0), file.upper.get(parts[0][0], 0)):
                if isinstance(bound, int) and abs(bound) > EXACT_FLOAT:
                    raise StorageError(
                        f"input {log.folder.name}: the column {column} has {shown_value(bound)}, which float64 does "
                        "not hold exactly",
                        f'say {column} = "decimal(38,2)" in the schema of dd.toml',
                    )
