"""Sources: the foreign files and tables that ``dd ingest`` reads, and the batches of rows in them.

A source is a Parquet or CSV file, a folder or a glob of such files, or a Delta table; all of them are change logs: the
columns of a row, one column per time dimension, and ``diff``. This module finds the sources that the user's paths name,
returns the columns of each, and reads them batch by batch without Spark. :mod:`ddcore.io.checks` checks the rows, for
the Spark job as well.

Every batch is fully validated before it becomes a frame. Otherwise bytes that are not UTF-8, indices out of range and
decimals with too many digits would be stored as they are, and later readers would fail.

Snapshots are not differenced, and change data feeds are not read.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlparse

from ddcore.errors import DataError, UsageError
from ddcore.io.tables import values
from ddcore.memory import limited_memory
from ddcore.redaction import masked

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

__all__ = ["Source", "column_types", "find_sources", "pieces", "read_frames", "row_count", "unreadable", "validate"]

Format = Literal["parquet", "csv", "delta"]

_SUFFIXES: dict[str, Format] = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".csv.gz": "csv"}
_KINDS = {"csv": "CSV file", "parquet": "Parquet file", "delta": "Delta table"}
_GLOB = frozenset("*?[")
_BATCH_ROWS = 1 << 20
_LEAST_ROWS = 1 << 4  # of a batch, where more do not fit into memory
_BATCH_BYTES = 4 << 30  # of memory for one batch of a Parquet file: pages, decompressed and decoded
_MOST_ROWS, _MOST_BYTES = 1 << 16, 1 << 20  # rows, and bytes of values, for each byte of a Parquet file
_CSV_BLOCK = 16 << 20
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Source:
    """One thing that is read by itself: a file, or a Delta table as of one version.

    ``name`` is its name in messages; ``path`` is absolute and without ``..``; ``real`` is the path with all symbolic
    links resolved. ``folders`` holds the columns, as text, from folder names of the form ``name=value``. ``version`` is
    the Delta version to read. ``member``: the file was found in a folder that the user named. ``row_groups``: the row
    groups of a Parquet file to read, None for all; ``before``: the number of rows before the first of them.
    """

    name: str
    path: str
    format: Format
    folders: tuple[tuple[str, str | None], ...] = ()
    version: int | None = None
    member: bool = False
    row_groups: tuple[int, ...] | None = None
    before: int = 0

    @property
    def real(self) -> str:
        """The path with all symbolic links resolved: the same for every spelling of this path."""
        return os.path.realpath(self.path)


def find_sources(places: Sequence[str]) -> list[Source]:
    """The sources that paths, globs and ``file:`` URLs name, in the order of ``places``, then of their names.

    A folder is a Delta table, or stands for all data files under it (not names that begin with ``.`` or ``_``). A file
    with several names is read once. Walks the folders once; opens Delta logs only. Raises UsageError for a place
    that does not exist, DataError for one without data and for a file that belongs to a table, because only the table's
    log says which rows are live.
    """
    sources: dict[str, Source] = {}
    for place in places:
        for source in _sources_at(place):
            sources.setdefault(source.real, source)
    _check_names(sources.values())
    _check_no_table_files(sources.values())
    return list(sources.values())


def _sources_at(place: str) -> list[Source]:
    if not place.strip():
        raise UsageError("a source's name is empty", "is a variable not set?")
    path = _local_path(place)
    try:
        if path.is_dir():
            return [_delta_table(path, place)] if (path / "_delta_log").is_dir() else _sources_under(path, place)
        if path.is_file():
            return [Source(place, _absolute(path), _format_of(path, place))]
    except OSError as error:
        raise DataError(f"{place}: cannot be read: {error.strerror}", "make it readable for this user") from error
    if _GLOB & set(place):
        return _sources_matching(str(path), place)
    raise UsageError(f"{place}: there is no such file or folder", _nearby(path))


def _local_path(place: str) -> Path:
    if "\0" in place:
        raise UsageError(
            f"{place!r}: a path holds no NUL character", "check the script or variable that built the path"
        )
    url = urlparse(place)
    if url.scheme == "file" and url.netloc in ("", "localhost"):
        return Path(unquote(url.path))
    if "://" in place:
        raise UsageError(
            f"{place}: only files and folders can be read", "copy or mount it: see docs/limits.md on object stores"
        )
    return _expanded(place)


def _expanded(place: str) -> Path:
    try:
        return Path(place).expanduser()
    except RuntimeError:
        raise UsageError(f"{place}: there is no such user", "write the home folder out, or begin with ./~") from None


def _absolute(path: Path) -> str:
    """An absolute path to the same file without ``..``; in ``link/../file`` the link is resolved first."""
    lexical = os.path.abspath(path)
    return (
        lexical
        if ".." not in path.parts or os.path.realpath(path) == os.path.realpath(lexical)
        else str(path.resolve())
    )


def _sources_matching(pattern: str, place: str) -> list[Source]:
    import glob

    sources = []
    steps = Path(pattern).parts
    literal = next(number for number, step in enumerate(steps) if _GLOB & set(step))
    for match in sorted(glob.glob(pattern, recursive=True)):
        path = Path(match)
        hidden = any(step[0] in "._" and step not in steps for step in path.parts[literal:])
        if not hidden and (path.is_dir() or _suffix(path)):
            sources += _sources_at(match)
    if not sources:
        raise DataError(
            f"{place}: matches no Parquet or CSV file", "quote the pattern, and list what it matches with: ls"
        )
    return sources


def _sources_under(folder: Path, place: str) -> list[Source]:
    sources = []
    for root, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        for name in sorted(files):
            path = Path(root, name)
            suffix = _suffix(path)
            if suffix and name[0] not in "._":
                parts = path.parent.relative_to(folder).parts
                carried = tuple(_folder_column(part) for part in parts if "=" in part)
                shown = str(Path(place, *parts, name))
                sources.append(Source(shown, _absolute(path), _SUFFIXES[suffix], carried, member=True))
    if not sources:
        raise DataError(
            f"{place}: no Parquet or CSV file in this folder, and it is not a Delta table",
            f"data files end in {', '.join(_SUFFIXES)}; names that begin with . or _ are ignored",
        )
    return sources


def _raise(error: OSError) -> None:
    raise error


def _check_names(sources: Iterable[Source]) -> None:
    """Raise DataError for a path that is not valid text: the ledger could not store it."""
    for source in sources:
        if not source.path.isprintable() and any("\ud800" <= character <= "\udfff" for character in source.path):
            raise DataError(f"{source.path!a}: the name is not UTF-8", "rename the file")


def _check_no_table_files(sources: Iterable[Source]) -> None:
    """Raise DataError for the first file that belongs to a table: only the table's log says which rows are live."""
    kinds: dict[Path, str] = {}
    for source in sources:
        for folder in () if source.format == "delta" else Path(source.real).parents:
            if folder not in kinds:
                kinds[folder] = _table_kind(folder)
            if kind := kinds[folder]:
                raise DataError(
                    f"{source.name}: a file of the {kind} table {folder}, whose log may have removed its rows",
                    f"name the table, as a source of its own: {folder}"
                    if kind == "Delta"
                    else f"{kind} tables are not read yet: export the rows to Parquet and ingest that",
                )


def _table_kind(folder: Path) -> str:
    """``Delta``, ``Hudi`` or ``Iceberg``, or the empty text for a folder of plain files."""
    if os.path.isdir(folder / "_delta_log"):
        return "Delta"
    if os.path.isdir(folder / ".hoodie"):
        return "Hudi"
    metadata = folder / "metadata"
    if os.path.isdir(metadata) and next(metadata.glob("*.metadata.json*"), None):
        return "Iceberg"
    return ""


def _folder_column(part: str) -> tuple[str, str | None]:
    name, _, value = part.partition("=")
    return unquote(name), None if value == _HIVE_NULL else unquote(value)


def _suffix(path: Path) -> str:
    return next((suffix for suffix in _SUFFIXES if path.name.lower().endswith(suffix)), "")


def _format_of(path: Path, place: str) -> Format:
    suffix = _suffix(path)
    if not suffix:
        raise UsageError(
            f"{place}: cannot tell the format from the name", f"name the file with one of {', '.join(_SUFFIXES)}"
        )
    return _SUFFIXES[suffix]


def _nearby(path: Path) -> str:
    import difflib

    names = [child.name for child in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {path.parent / close[0]}?" if close else "check the path; put a pattern in quotes"


def _delta_table(path: Path, place: str) -> Source:
    from deltalake import DeltaTable

    try:
        table = DeltaTable(_absolute(path))
        version, files = table.version(), values(table.get_add_actions().column("path"))
    except Exception as error:
        raise DataError(
            f"{place}: not a readable Delta table: {_first_line(error)}",
            "write it again at its origin, or export its rows to Parquet and ingest that",
        ) from error
    for file in files:
        _check_inside(place, str(file))
    return Source(f"{place} (Delta version {version})", _absolute(path), "delta", version=version)


def _check_inside(table: str, path: str) -> None:
    """Raise DataError for a data file outside of its Delta table's folder: the log could name any file of the user."""
    decoded = unquote(unquote(path))
    if decoded.startswith("/") or "://" in decoded or decoded.startswith("file:") or ".." in decoded.split("/"):
        raise DataError(
            f"{table}: its log names a file outside of the table's folder: {path[:200]!r}",
            "copy the table with its files (a shallow clone has none), or export its rows to Parquet and ingest that",
        )


# --- columns ----------------------------------------------------------------------------------------------------------


def column_types(source: Source) -> dict[str, pl.DataType]:
    """The columns of ``source``, from its footer, header or log; every CSV column is text.

    Columns of a type that no input can have (maps, time of day, ...) are ``pl.Object``, also inside lists and structs.
    Reads no rows. Raises DataError when the file is unreadable, truncated, or has two columns of one name.
    """
    import polars as pl

    from ddcore.schema import polars_type

    if source.format == "csv":
        names = _csv_header(source)
        types: list[pl.DataType] = [pl.String() for _ in names]
    else:
        schema = _delta_schema(source) if source.format == "delta" else _parquet_schema(source)
        names = schema.names
        types = [polars_type(field.type) for field in schema]
    columns = dict(zip(names, types, strict=True))
    if len(columns) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise DataError(f"{source.name}: the column {twice!r} occurs twice", "give each column its own name")
    return columns


def row_count(source: Source) -> int | None:
    """The number of rows in the footer of a Parquet source, without reading them; None for other formats."""
    if source.format != "parquet":
        return None
    with _parquet_file(source) as file:
        return int(file.metadata.num_rows)


def pieces(source: Source, size: int) -> list[tuple[int, Source]]:
    """A file in parts of about ``size`` bytes that different tasks may read: each part's bytes, and the part.

    Parquet is divided by row groups, CSV is not. Reads the footer if the file is larger.
    """
    length = os.path.getsize(source.path)
    if source.format != "parquet" or length <= size:
        return [(length, source)]
    with _parquet_file(source) as file:
        rows = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
    share = size * sum(rows) / length  # rows that take about ``size`` bytes
    parts: list[tuple[int, Source]] = []
    first = before = 0
    for number in range(len(rows)):
        held = sum(rows[first : number + 1])
        if held >= share or number == len(rows) - 1:
            groups = tuple(range(first, number + 1))
            parts.append((length * held // max(sum(rows), 1), replace(source, row_groups=groups, before=before)))
            before, first = before + held, number + 1
    return parts


def _parquet_file(source: Source) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # INT96 timestamps as microseconds, as Spark reads them: as nanoseconds those after 2262 would wrap.
        return pq.ParquetFile(source.path, page_checksum_verification=True, coerce_int96_timestamp_unit="us")
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise unreadable(source, error) from error


def _parquet_schema(source: Source) -> pa.Schema:
    import pyarrow as pa

    with _parquet_file(source) as file:
        try:
            return file.schema_arrow
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise unreadable(source, error) from error


def _delta_schema(source: Source) -> pa.Schema:
    import pyarrow as pa
    from deltalake import DeltaTable

    return pa.schema(DeltaTable(source.path, version=source.version).schema().to_arrow())


def _csv_header(source: Source) -> list[str]:
    import pyarrow as pa

    try:
        with _csv_reader(source, ()) as reader:
            names: list[str] = reader.schema.names
            return names
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise unreadable(source, error) from error


# --- rows -------------------------------------------------------------------------------------------------------------


def read_frames(source: Source, columns: Sequence[str]) -> Iterator[tuple[int, pl.DataFrame]]:
    """The named columns of ``source``, batch by batch, each with the number of its first row.

    Row numbers start at 1; a CSV file's header is row 1. CSV is UTF-8 with commas, a header, and quotes as in RFC 4180;
    an empty field is null, a quoted empty field is the empty string. Raises DataError when the file is unreadable or
    has values that its types do not allow.
    """
    import polars as pl
    import pyarrow as pa
    from polars.exceptions import PanicException  # a BaseException

    row = source.before + (2 if source.format == "csv" else 1)
    try:
        for batch in _batches(source, columns):
            validate(source.name, batch, row)
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            yield row, frame
            row += len(frame)
    except (pa.ArrowException, OSError, UnicodeDecodeError, pl.exceptions.PolarsError, PanicException) as error:
        raise _error_with_place(source, columns, error) from error


def _error_with_place(source: Source, columns: Sequence[str], error: BaseException) -> DataError:
    """The DataError for a file that cannot be read to its end; for Parquet, with the column and the row."""
    import pyarrow as pa

    for column in columns if source.format == "parquet" else ():
        rows = source.before
        try:
            for batch in _batches(source, [column]):
                rows += len(batch)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as own:
            kind = _first_line(own)
            what = f"{source.name}: not a readable Parquet file: column {column!r}, after row {rows}: {kind}"
            return DataError(what, "write it again at its origin, or leave it out")
    return unreadable(source, error)


def validate(name: str, batch: pa.RecordBatch | pa.Table, first_row: int | None = None) -> None:
    """Raise DataError for the first value that its column's type does not allow: bytes that are not UTF-8, ...

    ``name`` is the source, ``first_row`` the number of the batch's first row in it, where that is known. One pass over
    each column of variable width, none over plain numbers.
    """
    import pyarrow as pa

    try:
        batch.validate(full=True)
    except pa.ArrowException:
        for column in batch.schema.names:
            _validate_column(name, column, batch.column(column), first_row)
        raise


def _validate_column(name: str, column: str, values: pa.Array | pa.ChunkedArray, first_row: int | None) -> None:
    import pyarrow as pa

    try:
        values.validate(full=True)
    except pa.ArrowException as error:
        place = _first_invalid(values)
        row = "" if first_row is None else f" (row {first_row + place})"
        raise DataError(
            f"{name}: column {column!r}: a value that is no {values.type}: {_first_line(error)}{row}",
            "write the file again at its origin, with values that its types allow",
        ) from error


def _first_invalid(values: pa.Array | pa.ChunkedArray) -> int:
    """The index of the first value that makes an array invalid: binary search over slices, O(n) validation."""
    import pyarrow as pa

    low, high = 0, len(values)  # values[:low] is valid, values[:high] is not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            values.slice(low, middle - low).validate(full=True)
        except pa.ArrowException:
            high = middle
        else:
            low = middle
    return low


def _batches(source: Source, columns: Sequence[str]) -> Iterator[pa.RecordBatch | pa.Table]:
    if source.format == "delta":
        yield from _delta_batches(source, columns)
    elif source.format == "parquet":
        yield from _parquet_batches(source, columns)
    else:
        with _csv_reader(source, columns) as reader:
            yield from reader


def _parquet_batches(source: Source, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches of a Parquet file: of 1M rows, or of fewer where these do not fit into ``_BATCH_BYTES``.

    A few bytes of a file may stand for gigabytes: runs of equal values, long values that repeat, pages of equal bytes.
    DataError where there are too many rows or values for the size of the file, where 16 rows need too much memory, and
    where the pages have other numbers of rows than the footer.
    """
    import pyarrow as pa

    size, expected = os.path.getsize(source.path), _expected_rows(source)
    if expected > _MOST_ROWS * size:
        raise _too_large(source, 0, f"{size:,} bytes of a file hold {expected:,} rows")
    done = decoded = 0
    rows = _BATCH_ROWS
    while True:
        try:
            for batch in _limited_batches(source, columns, rows, done):
                decoded += batch.nbytes
                if decoded > _MOST_BYTES * size:
                    raise _too_large(source, done, f"{size:,} bytes of a file hold more than {decoded:,} bytes")
                yield batch
                done += len(batch)
            break
        except (pa.ArrowMemoryError, MemoryError) as error:
            if rows <= _LEAST_ROWS or _MOST_BYTES * size < _BATCH_BYTES:
                what = f"the values need more than {_BATCH_BYTES >> 30} GiB of memory"
                raise _too_large(source, done, what) from error
            rows //= 256
    if done != expected:
        raise DataError(
            f"{source.name}: not a readable Parquet file: its pages have {done} rows, its footer has {expected}",
            "write it again at its origin, or leave it out",
        )


def _expected_rows(source: Source) -> int:
    """The number of rows in the row groups to read. DataError where row groups and file differ.

    Does not look at column chunks: pyarrow ends the process for some that are damaged.
    """
    with _parquet_file(source) as file:
        footer = file.metadata
        rows = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
        if sum(rows) != footer.num_rows or any(count < 0 for count in rows):
            raise DataError(
                f"{source.name}: not a readable Parquet file: it has {footer.num_rows} rows, and its row groups have "
                f"{sum(rows)}",
                "write it again at its origin, or leave it out",
            )
    return sum(rows if source.row_groups is None else (rows[number] for number in source.row_groups))


def _too_large(source: Source, done: int, what: str) -> DataError:
    return DataError(
        f"{source.name}: not a readable {_KINDS[source.format]}: after row {source.before + done}, {what}",
        "write it again at its origin with smaller pages and shorter values, or leave it out",
    )


def _limited_batches(source: Source, columns: Sequence[str], rows: int, skipped: int) -> Iterator[pa.RecordBatch]:
    """Batches of at most ``rows`` rows, without the first ``skipped`` rows; each read within the limit of memory."""
    import pyarrow as pa

    groups = None if source.row_groups is None else list(source.row_groups)
    with _parquet_file(source) as file:
        batches = file.iter_batches(rows, row_groups=groups, columns=list(columns))
        while True:
            with limited_memory(_BATCH_BYTES):
                batch = next(batches, None)
            if batch is None:
                return
            if skipped < len(batch):
                # Without the file's metadata, in which Polars takes no text that is not UTF-8.
                plain = pa.RecordBatch.from_arrays(batch.columns, names=batch.schema.names)
                yield plain.slice(skipped) if skipped else plain
            skipped = max(0, skipped - len(batch))


def _delta_batches(source: Source, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    # DataFusion supports deletion vectors and column mapping; to_pyarrow_* refuses such tables.
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    try:
        table = DeltaTable(source.path, version=source.version)
        size = sum(values(table.get_add_actions().column("size_bytes")))
        reader = QueryBuilder().register("source", table).execute(f"SELECT {names} FROM source")
        done = 0
        for batch in reader:
            done += batch.num_rows
            if done > _MOST_ROWS * size:
                raise _too_large(source, 0, f"{size:,} bytes of files hold more than {done:,} rows")
            yield pa.record_batch(batch)
    except Exception as error:
        raise unreadable(source, error) from error


def _csv_reader(source: Source, columns: Sequence[str]) -> Any:
    """The batches of a CSV file, with these columns as text; without columns, only for its header."""
    import pyarrow as pa
    from pyarrow import csv

    # Not Polars' reader, which fills short lines with nulls. One thread, so that errors have the row's number.
    return csv.open_csv(
        source.path,
        read_options=csv.ReadOptions(use_threads=False, block_size=_CSV_BLOCK),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            include_columns=list(columns),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def unreadable(source: Source, error: BaseException) -> DataError:
    """The DataError for a source whose bytes are not what they should be."""
    if isinstance(error, DataError):
        return error
    if source.format == "csv" and ("utf8" in str(error).lower() or isinstance(error, UnicodeDecodeError)):
        return DataError(
            f"{source.name}: not UTF-8: {_first_line(error)}", "write it again as UTF-8, for example with: iconv"
        )
    if source.format == "csv" and "straddling" in str(error):
        return DataError(
            f"{source.name}: not a readable CSV file: a row of more than {_CSV_BLOCK >> 20} MiB",
            "look for a quote that is never closed; longer rows are read from Parquet only",
        )
    if source.format == "csv" and "Empty CSV" in str(error):
        return DataError(f"{source.name}: an empty file, without even a header", "leave it out, or write it again")
    return _broken(source.name, _KINDS[source.format], error)


def _broken(name: str, kind: str, error: BaseException) -> DataError:
    hint = "write it again at its origin, or leave it out"
    if kind == "Delta table":
        hint = "read it with Spark, which supports every table feature: --engine spark"
    elif kind == "CSV file":
        hint = "each row needs as many fields as the header; a field with a comma or a quote in it needs quotes"
    return DataError(f"{name}: not a readable {kind}: {_first_line(error)}", hint)


def _first_line(error: BaseException) -> str:
    lines = masked(str(error)).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]
