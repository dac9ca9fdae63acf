"""CSV files: UTF-8, commas, a header, and quotes as in RFC 4180, plain or compressed.

An empty field is null, a quoted empty field is the empty string. Every value is text, parsed by
:func:`ddcore.io.checks.normalise`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddcore.errors import DataError
from ddcore.io.sources.source import Batches, Source, first_line

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CsvFile"]

_BLOCK = 16 << 20


@dataclass(frozen=True)
class CsvFile(Source):
    """A CSV file."""

    kind = "CSV file"
    hint = "each row needs as many fields as the header; a field with a comma or a quote in it needs quotes"
    is_text = True

    @property
    def first_row(self) -> int:
        """2, because the header is row 1."""
        return 2

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The columns in the header, all of them text."""
        import pyarrow as pa

        with self._reader(()) as reader:
            return [(name, pa.string()) for name in reader.schema.names]

    def batches(self, columns: Sequence[str]) -> Batches:
        """Batches of some 16 MiB of the file."""
        with self._reader(columns) as reader:
            yield from reader

    def explain(self, error: BaseException) -> DataError:
        """The error in terms of text and lines."""
        text = str(error)
        if "utf8" in text.lower() or isinstance(error, UnicodeDecodeError):
            return DataError(
                f"{self.name}: not UTF-8: {first_line(error)}", "write it again as UTF-8, for example with: iconv"
            )
        if "straddling" in text:
            return DataError(
                f"{self.name}: not a readable CSV file: a row of more than {_BLOCK >> 20} MiB",
                "look for a quote that is never closed; longer rows are read from Parquet only",
            )
        if "Empty CSV" in text:
            return DataError(f"{self.name}: an empty file, without even a header", "leave it out, or write it again")
        return super().explain(error)

    def _reader(self, columns: Sequence[str]) -> Any:
        """The batches with these columns as text; without columns, only for the header."""
        import pyarrow as pa
        from pyarrow import csv

        # Not Polars' reader, which fills short lines with nulls. One thread, so that errors have the row's number.
        return csv.open_csv(
            self.path,
            read_options=csv.ReadOptions(use_threads=False, block_size=_BLOCK),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()),
                include_columns=list(columns),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
