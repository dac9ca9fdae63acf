"""Frames of other libraries as Polars frames; and what to write instead, for everything that is no frame."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path, PurePath
from typing import Any

import polars as pl

from ddcore.base.errors import DataError, DdError
from ddcore.base.schema import polars_type, type_of
from ddcore.text.wording import kind_of, one_line

_HINT = "give a Polars, pandas or Arrow frame, or a dict of columns, with the row's columns, the version and diff"
_READERS = {
    ".csv": "read_csv", ".jsonl": "read_ndjson", ".ndjson": "read_ndjson", ".json": "read_json", ".avro": "read_avro",
    ".arrow": "read_ipc", ".feather": "read_ipc", ".ipc": "read_ipc", ".xlsx": "read_excel",
}  # fmt: skip


def as_frame(frame: Any, name: str) -> pl.DataFrame:
    """Any frame, or a dict of columns, as a Polars frame. Raises DataError that names input ``name``."""
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, type) or not (
        isinstance(frame, Mapping) or hasattr(frame, "__arrow_c_stream__") or _is_pandas(frame)
    ):
        raise DataError(f"input {name}: {kind_of(frame)} is no frame", _hint(frame, name))
    if type(frame).__name__ == "Series":
        raise DataError(f"input {name}: Series is no frame", "give a frame: Series.to_frame() makes one")
    if _is_pandas(frame) and any(name is not None for name in frame.index.names):
        names = ", ".join(str(name) for name in frame.index.names)
        raise DataError(
            f"input {name}: this DataFrame of pandas has the index {names}, which is no column",
            "make it one: frame.reset_index(); or leave it out: frame.reset_index(drop=True)",
        )
    try:
        if type(frame).__module__.startswith("pyarrow"):
            frame.validate(full=True)  # Polars would accept bytes that are not UTF-8
            _check_maps(frame.schema, name)
        return pl.from_pandas(frame) if _is_pandas(frame) else pl.DataFrame(frame)
    except DdError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        raise DataError(f"input {name}: this {kind_of(frame)} is no frame: {one_line(error)}", _HINT) from None


def _hint(value: Any, name: str) -> str:
    """What to write instead of a value that is no frame."""
    library = type(value).__module__.partition(".")[0]
    of_ours = library == "ddcore" and not isinstance(value, type)
    first = value[0] if isinstance(value, list | tuple) and value else None
    oriented = 'rows, schema=["...", "version", "diff"], orient="row"'
    instead = {
        f"read it first, for example with pl.{_reader(value)}({str(value)!r:.60})": isinstance(value, str | PathLike),
        f"bring its rows here: {name}=frame.toArrow()": library == "pyspark",
        "give a frame: Series.to_frame() makes one": type(value).__name__ == "Series",
        f'name its columns: {name}=pl.DataFrame(array, schema=["...", "version", "diff"])': library == "numpy",
        f"make a frame of the rows: {name}=pl.DataFrame(rows)": isinstance(first, Mapping),
        f"make a frame of the rows: {name}=pl.DataFrame({oriented})": isinstance(first, list | tuple),
        f"give its updates: {name}=log.updates()": of_ours and hasattr(value, "updates"),
        f"a collection has no rows before its program is replayed; {_HINT}": of_ours and hasattr(value, "iterate"),
    }
    return next((text for text, applies in instead.items() if applies), _HINT)


def _reader(path: object) -> str:
    """The Polars function that reads such a file."""
    suffixes = [suffix.lower() for suffix in PurePath(str(path)).suffixes if suffix.lower() not in (".gz", ".zst")]
    if (Path(str(path)) / "_delta_log").is_dir():
        return "read_delta"
    return _READERS.get(suffixes[-1] if suffixes else "", "read_parquet")


def _check_maps(schema: Any, name: str) -> None:
    """Raise ProgramError for an Arrow column that holds a map: Polars would turn it into a list."""
    for column in schema:
        if column.type.num_fields or hasattr(column.type, "extension_name"):
            type_of(polars_type(column.type), f"input {name}: column {column.name}")


def _is_pandas(frame: Any) -> bool:
    return type(frame).__module__.startswith("pandas.") and type(frame).__name__ == "DataFrame"
