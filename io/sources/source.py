"""What every source can do: the protocol between the files and tables of others and an ingest."""

from __future__ import annotations

import hashlib
import os
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from ddcore.base.errors import DataError
from ddcore.base.lazy import polars as pl
from ddcore.base.lazy import pyarrow as pa
from ddcore.io.sources.paths import picked, roots
from ddcore.io.sources.remote import copied, location_of
from ddcore.io.sources.validation import validate
from ddcore.io.storage import store
from ddcore.io.storage.address import is_url
from ddcore.text.redaction import masked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ddcore.base.schema import Type

Batches = Iterator["pa.RecordBatch | pa.Table"]

_WRITE_AGAIN = "write it again at its origin, or leave it out"


@dataclass(frozen=True)
class Located(ABC):
    """Something at a place: ``name`` is its name in messages; ``path`` is absolute and without ``..``."""

    name: str
    path: str

    @property
    def real(self) -> str:
        """The path with all symbolic links resolved: the same for every spelling of this path."""
        return self.path if is_url(self.path) else os.path.realpath(self.path)

    @abstractmethod
    def stamp(self) -> str:
        """A short text that changes whenever the content does, and perhaps also when it does not; read no rows."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A short text that only equal contents share. Reads all bytes of a file."""

    def is_at(self, position: str) -> bool:
        """Whether all of its content was taken in at a position, which is a stamp, ``/`` and a fingerprint.

        Reads a file only if its stamp differs.
        """
        stamp, _, fingerprint = position.partition("/")
        return bool(position) and (self.stamp() == stamp or self.fingerprint() == fingerprint)


@dataclass(frozen=True)
class Source(Located):
    """One thing that is read by itself: a file, or a table as of one version.

    ``folders`` holds the columns, as text, from folder names of the form ``name=value``. ``member``: the file was found
    in a folder that the user named.
    """

    kind: ClassVar[str]  # in messages: "CSV file"
    is_text: ClassVar[bool] = False  # whether text in it is parsed, where the input declares another type
    cancels: ClassVar[bool] = False  # whether many of its updates cancel each other, so that they are added up first
    is_checked: ClassVar[bool] = False  # whether its library has checked the values of a batch
    is_table: ClassVar[bool] = False  # whether it is no file, and its rows have no order
    own: ClassVar[tuple[str, ...]] = ()  # columns that say something about its rows: nobody misses them in an input

    folders: tuple[tuple[str, str | None], ...] = ()
    member: bool = False

    @property
    def hint(self) -> str:
        """What to do about a source that cannot be read."""
        return _WRITE_AGAIN

    @property
    def by_spark(self) -> bool:
        """Whether Spark reads it itself, by :meth:`spark_frame`, where the engine is Spark."""
        return False

    @property
    def file(self) -> str:
        """The path to read: of an object of a store, that of a copy."""
        return copied(self.path) if is_url(self.path) else self.path

    def stream(self) -> pa.NativeFile:
        """The bytes of a file, decompressed where its name ends in ``.gz``."""
        return pa.input_stream(self.file, compression="gzip" if self.path.lower().endswith(".gz") else None)

    @property
    def size(self) -> int:
        """The bytes that are read in this process or in a task; 0 where Spark reads the source itself."""
        return 0 if self.by_spark else store.size_of(location_of(self.path))

    @property
    def first_row(self) -> int:
        """The number of the first row, for messages."""
        return 1

    # --- what each kind does in its own way ---

    @abstractmethod
    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The columns and their types, from a footer, header or log, without reading rows.

        Any exception of the library that reads it means that the source is unreadable.
        """

    @abstractmethod
    def batches(self, columns: Sequence[str]) -> Batches:
        """The rows, with these columns, batch by batch; never all at once, as a source may be larger than memory."""

    def as_declared(self, types: Mapping[str, Type | None]) -> Source:
        """This source, read as these types of ours, by names or paths of its columns, if it has no types of its own.

        None stands for the type that its values have.
        """
        del types
        return self

    def as_texts(self) -> Source:
        """This source with each row as one text in a column ``value``, if its rows are texts without types."""
        return self

    def row_count(self) -> int | None:
        """The number of rows where it is known without reading them."""
        return None

    def pieces(self, size: int) -> list[tuple[int, Source]]:
        """Parts of about ``size`` bytes that different tasks may read: each part's bytes, and the part."""
        del size
        return [(self.size, self)]

    def stamp(self) -> str:
        """A short text that changes whenever the content does, and perhaps also when it does not; read no rows."""
        address = location_of(self.path)
        return f"{store.size_of(address)}-{int(store.modified(address) * 1e9)}"

    def settled_stamp(self) -> str:
        """The stamp of a file that was written some time ago; else empty: a change within one tick of the file system's
        clock may leave the stamp as it is.
        """
        modified = store.modified(location_of(self.path))
        tick = 2.0 if modified == int(modified) else 0.1
        return self.stamp() if time.time() - modified > tick else ""

    def date(self) -> datetime | None:
        """When it was written, to the second; None where nobody knows."""
        return date_of(store.modified(location_of(self.path)))

    def fingerprint(self) -> str:
        """A short text that only equal contents share. Reads all bytes of a file."""
        with open(self.file, "rb") as file:
            return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest()

    def spark_frame(self, session: SparkSession) -> DataFrame:
        """The rows as a frame of Spark, where ``by_spark``."""
        raise NotImplementedError

    def explain(self, error: BaseException) -> DataError:
        """The error for a source whose bytes are not what they should be."""
        text = first_line(error)
        packed = any(word in text.lower() for word in ("compressed", "zlib", "gzip"))
        hint = "the file is cut off or damaged: copy it again, or write it again at its origin" if packed else self.hint
        return self.unreadable(text, hint)

    # --- what all have ---

    def unreadable(self, what: str, hint: str = "") -> DataError:
        """The error for a source in which something is wrong."""
        return DataError(f"{self.name}: not a readable {self.kind}: {what}", hint or self.hint)

    def columns(self) -> dict[str, pl.DataType]:
        """The columns and their types. Reads no rows.

        Columns of a type that no input can have (maps, time of day, ...) are ``pl.Object``, also inside lists and
        structs. Raises DataError when the source is unreadable, truncated, or has two columns of one name.
        """
        from ddcore.base.schema import polars_type

        try:
            fields = self.fields()
        except MemoryError:  # Arrow's is one of its own errors, too, and says nothing about the source
            raise
        except _foreign() as error:
            raise self.explain(error) from error
        if len(names := dict(fields)) < len(fields):
            twice = next(name for name, count in Counter(name for name, _ in fields).items() if count > 1)
            raise DataError(f"{self.name}: the column {twice!r} occurs twice", "give each column its own name")
        return {name: polars_type(kind) for name, kind in names.items()}

    def frames(self, columns: Sequence[str]) -> Iterator[tuple[int, pl.DataFrame]]:
        """The rows, with these columns, batch by batch, each with the number of its first row.

        A column may be a path into a struct column: see :mod:`ddcore.io.sources.paths`.
        Every batch is fully validated before it becomes a frame, here or by its library. Otherwise bytes that are not
        UTF-8, indices out of range and decimals with too many digits would be stored as they are, and later readers
        would fail. Raises DataError when the source is unreadable or has values that its types do not allow.
        """
        whole = roots(self.columns(), columns) if any("." in name for name in columns) else columns
        try:
            for row, batch in self.numbered(whole):
                if not self.is_checked:
                    validate(self.name, batch, row)
                frame = pl.from_arrow(batch)
                assert isinstance(frame, pl.DataFrame)
                yield row, picked(frame, columns)
        except MemoryError:
            raise
        except _foreign() as error:
            raise (self.place_of_error(error, whole) or self.explain(error)) from error

    def numbered(self, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch | pa.Table]]:
        """The batches, each with the number of its first row."""
        row = self.first_row
        for batch in self.batches(columns):
            yield row, batch
            row += batch.num_rows

    def place_of_error(self, error: BaseException, columns: Sequence[str]) -> DataError | None:
        """The error with the column and the row where reading failed, if they can be found out."""
        del error, columns
        return None


def _foreign() -> tuple[type[BaseException], ...]:
    """The errors of libraries and of the file system, not those of our code."""
    from polars.exceptions import PanicException

    return (pa.ArrowException, OSError, UnicodeDecodeError, pl.exceptions.PolarsError, PanicException)


def date_of(seconds: float) -> datetime | None:
    """So many seconds after the beginning of 1970, whole ones, as a date; None in a year that no date has."""
    try:
        return datetime.fromtimestamp(int(seconds), UTC)
    except (ValueError, OverflowError, OSError):
        return None


def first_line(error: BaseException) -> str:
    """The first line of an error's text, without secrets, at most 200 characters."""
    lines = masked(str(error)).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]
