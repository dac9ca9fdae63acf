"""Parquet files, which say about themselves how large they are, and may lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ddcore.base.errors import DataError
from ddcore.base.lazy import pyarrow as pa
from ddcore.base.memory import limited_memory
from ddcore.io.sources.source import Batches, Source, first_line

_BATCH_ROWS = 1 << 17  # their columns stay in the cache, and in memory that allocators hand out again
_LEAST_ROWS = 1 << 4  # of a batch, where more do not fit into memory
SMALLER = "write it again at its origin with smaller pages and shorter values, or leave it out"
MOST_ROWS = 1 << 16  # for each byte of a file


@dataclass(frozen=True)
class ParquetFile(Source):
    """A Parquet file, or some of its row groups.

    ``row_groups``: the row groups to read, None for all; ``before``: the number of rows before the first of them.
    ``batch_bytes``: of memory for one batch, its pages decompressed and decoded. ``most_bytes``: of values, for each
    byte of the file.
    """

    kind = "Parquet file"
    row_groups: tuple[int, ...] | None = None
    before: int = 0
    batch_bytes: int = 4 << 30
    most_bytes: int = 1 << 20

    @property
    def first_row(self) -> int:
        """The number of the first row in the file."""
        return self.before + 1

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The columns in the footer."""
        with self._open() as file:
            return [(field.name, field.type) for field in file.schema_arrow]

    def row_count(self) -> int | None:
        """The number of rows in the footer."""
        with self._open() as file:
            return int(file.metadata.num_rows)

    def pieces(self, size: int) -> list[tuple[int, Source]]:
        """Divided by row groups. Reads the footer if the file is larger than ``size``."""
        length = self.size
        if length <= size:
            return [(length, self)]
        with self._open() as file:
            rows = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
        share = size * sum(rows) / length  # rows that take about ``size`` bytes
        parts: list[tuple[int, Source]] = []
        first = before = 0
        for number in range(len(rows)):
            held = sum(rows[first : number + 1])
            if held >= share or number == len(rows) - 1:
                groups = tuple(range(first, number + 1))
                parts.append((length * held // max(sum(rows), 1), replace(self, row_groups=groups, before=before)))
                before, first = before + held, number + 1
        return parts

    def batches(self, columns: Sequence[str]) -> Batches:
        """Batches of 131,072 rows, or of fewer where these do not fit into ``batch_bytes``.

        A few bytes of a file may stand for gigabytes: runs of equal values, long values that repeat, pages of equal
        bytes. DataError where there are too many rows or values for the size of the file, where 16 rows need too much
        memory, and where the pages have other numbers of rows than the footer.
        """
        size, expected = self.size, self._expected_rows()
        if expected > MOST_ROWS * size:
            raise self._too_large(0, f"{size:,} bytes of a file hold {expected:,} rows")
        done = decoded = 0
        rows = _BATCH_ROWS
        while True:
            try:
                for batch in self._limited_batches(columns, rows, done):
                    decoded += batch.nbytes
                    if decoded > self.most_bytes * size:
                        raise self._too_large(done, f"{size:,} bytes of a file hold more than {decoded:,} bytes")
                    yield batch
                    done += len(batch)
                break
            except (pa.ArrowMemoryError, MemoryError) as error:
                if rows <= _LEAST_ROWS or self.most_bytes * size < self.batch_bytes:
                    what = f"the values need more than {self.batch_bytes >> 30} GiB of memory"
                    raise self._too_large(done, what) from error
                rows = max(_LEAST_ROWS, rows // 256)
        if done != expected:
            raise self.unreadable(f"its pages have {done} rows, its footer has {expected}")

    def place_of_error(self, error: BaseException, columns: Sequence[str]) -> DataError | None:
        """Reads each column by itself, up to its damage."""
        del error
        for column in columns:
            rows = self.before
            try:
                for batch in self.batches([column]):
                    rows += len(batch)
            except (pa.ArrowException, OSError, UnicodeDecodeError) as own:
                return self.unreadable(f"column {column!r}, after row {rows}: {first_line(own)}")
        return None

    def _open(self) -> Any:
        import pyarrow.parquet as pq

        try:
            # INT96 timestamps as microseconds, as Spark reads them: as nanoseconds those after 2262 would wrap.
            return pq.ParquetFile(self.file, page_checksum_verification=True, coerce_int96_timestamp_unit="us")
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self.explain(error) from error

    def _expected_rows(self) -> int:
        """The number of rows in the row groups to read. DataError where row groups and file differ.

        Does not look at column chunks: pyarrow ends the process for some that are damaged.
        """
        with self._open() as file:
            footer = file.metadata
            rows = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
            if sum(rows) != footer.num_rows or any(count < 0 for count in rows):
                raise self.unreadable(f"it has {footer.num_rows} rows, and its row groups have {sum(rows)}")
        return sum(rows if self.row_groups is None else (rows[number] for number in self.row_groups))

    def _too_large(self, done: int, what: str) -> DataError:
        return self.unreadable(f"after row {self.before + done}, {what}", SMALLER)

    def _limited_batches(self, columns: Sequence[str], rows: int, skipped: int) -> Iterator[pa.RecordBatch]:
        """Batches of at most ``rows`` rows without the first ``skipped`` rows, each read within the limit of memory."""
        groups = None if self.row_groups is None else list(self.row_groups)
        with self._open() as file:
            batches = file.iter_batches(rows, row_groups=groups, columns=list(columns))
            while True:
                with limited_memory(self.batch_bytes):
                    batch = next(batches, None)
                if batch is None:
                    return
                if skipped < len(batch):
                    # Without the file's metadata, in which Polars takes no text that is not UTF-8.
                    plain = pa.RecordBatch.from_arrays(batch.columns, names=batch.schema.names)
                    yield plain.slice(skipped) if skipped else plain
                skipped = max(0, skipped - len(batch))
