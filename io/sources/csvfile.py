"""CSV files: UTF-8, commas, a header, and quotes as in RFC 4180, plain or compressed.

An empty field is null, a quoted empty field is the empty string. Every value is text, parsed by
:func:`ddcore.io.sources.row_checks.normalise`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ddcore.base.errors import DataError
from ddcore.base.lazy import pyarrow as pa
from ddcore.io.sources import csvrows
from ddcore.io.sources.csvrows import LONGEST_ROW
from ddcore.io.sources.source import Batches, Source, first_line

_ROW = re.compile(r"Row #([0-9]+)")


@dataclass(frozen=True)
class CsvFile(Source):
    """A CSV file. ``header`` and ``block``: bytes that are read for the header, and at a time; ``longest``: those of
    the longest row.
    """

    kind = "CSV file"
    hint = "each row needs as many fields as the header; a field with a comma or a quote in it needs quotes"
    is_text = True
    is_checked = True  # that texts are UTF-8: check_utf8 of Arrow's reader

    header: int = field(default=64 << 10, kw_only=True, repr=False)
    block: int = field(default=4 << 20, kw_only=True, repr=False)
    longest: int = field(default=LONGEST_ROW, kw_only=True, repr=False)

    @property
    def first_row(self) -> int:
        """2, because the header is row 1."""
        return 2

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The columns in the header, all of them text."""
        return [(name, pa.string()) for name in self._parsed(next(self._blocks(self.header), b"")).schema.names]

    def batches(self, columns: Sequence[str]) -> Batches:
        """Batches of some 4 MiB of the file."""
        names, done = list[str](), 0
        for number, block in enumerate(self._blocks(self.block)):
            if number == 1:
                names = [name for name, _ in self.fields()]
            if number == 0 or block.strip(b"\r\n"):
                table = self._parsed(block, columns, names, done)
                done += table.num_rows
                yield table

    def explain(self, error: BaseException) -> DataError:
        """The error in terms of text and lines."""
        text = str(error)
        if "utf8" in text.lower() or isinstance(error, UnicodeDecodeError):
            return DataError(
                f"{self.name}: not UTF-8: {first_line(error)}", "write it again as UTF-8, for example with: iconv"
            )
        if "Empty CSV" in text:
            return DataError(f"{self.name}: an empty file, without even a header", "leave it out, or write it again")
        return super().explain(error)

    def _blocks(self, size: int) -> Iterator[bytes]:
        with self.stream() as file:
            yield from csvrows.Rows(file, self.name, self.longest).blocks(size)

    def _parsed(self, block: bytes, columns: Sequence[str] = (), names: Sequence[str] = (), done: int = 0) -> pa.Table:
        """The rows of a block with these columns, or with all, as text. ``names`` are those of the header, for blocks
        that have none; ``done``: how many rows are before it.
        """
        from pyarrow import csv

        text = b"\n" + block if names else block  # at the begin of a text pyarrow drops a byte order mark
        try:
            # Not Polars' reader, which fills short lines with nulls. One thread, so that errors have the row's number.
            return csv.read_csv(
                pa.BufferReader(text),
                read_options=csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=list(names)),
                parse_options=csv.ParseOptions(newlines_in_values=True),
                convert_options=csv.ConvertOptions(
                    column_types=dict.fromkeys(columns, pa.string()),
                    include_columns=list(columns),
                    check_utf8=True,
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            found = _ROW.search(str(error))
            if not names or found is None:
                raise
            raise pa.ArrowInvalid(_ROW.sub(f"Row #{self.first_row + done + int(found[1]) - 1}", str(error))) from error
