"""Running a program in this process, on frames: for notebooks, for tests, and as the law's first witness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import polars as pl

from ddcore import encoding
from ddcore.batch import Batch, concatenate
from ddcore.errors import DataError, FoldError, LateUpdate, ProgramError
from ddcore.plan import Plan, Program, build
from ddcore.schema import Schema, Type, type_of
from ddcore.wording import one_line
from ddcore.worker import Worker, beyond

_INT64 = pl.Int64
_WANTED = "give a Polars, pandas or Arrow frame, or a dict of columns, with the row's columns, the version and diff"
_MOST_MILLISECONDS = (2**63 - 1) // 1000


class Session:
    """A program and its state in memory; each :meth:`fold` takes updates in and returns the output updates they cause.

    ``schemas``: per input, column names and types: names (``"int64"``, as in dd.toml), Polars types or Python types.
    ``dims``: names of the time columns. Raises ProgramError where the program cannot be built.
    """

    def __init__(
        self, program: Program, schemas: Mapping[str, Mapping[str, Any]], dims: Sequence[str] = ("version",)
    ) -> None:
        if not isinstance(schemas, Mapping):
            raise ProgramError(
                f"Session takes a dict of schemas by input, not {type(schemas).__name__}",
                'for example {"edges": {"src": "int64", "dst": "int64"}}',
            )
        self.plan: Plan = build(program, schemas, _dims(dims))
        self._worker = Worker(self.plan)
        self._broken = False  # whether a fold failed: its worker holds half of what it was given
        self._closed: list[tuple[int, ...]] = []  # the last fold's upper: times at or beyond it are open

    def fold(
        self, frames: Mapping[str, Any], upper: Sequence[tuple[int, ...]] | None = None
    ) -> dict[str, pl.DataFrame]:
        """Fold updates: per input a frame of its columns, the time columns and ``diff``.

        ``upper`` is the frontier of times not complete after this fold; without it every time becomes complete for
        which updates were given, and later updates may still come at any time. Returns per output the consolidated
        new updates, sorted by time and row. Raises DataError, LateUpdate for updates at times closed before, and the
        FoldError family.
        """
        if not isinstance(frames, Mapping):
            raise DataError(f"fold takes a dict of frames by input, not {type(frames).__name__}", _WANTED)
        batches = {name: self._batch(name, frame) for name, frame in frames.items()}
        if self._broken:
            raise FoldError("an earlier fold of this session failed half way", "make a new Session and fold again")
        self._broken, worker = True, self._worker
        worker.begin(upper)
        for name, batch in batches.items():
            worker.feed(name, batch)
        worker.run()
        for _ in worker.harvest():
            pass
        self._broken = False
        if upper is not None:
            self._closed = list(upper)
        made = {}
        for name, schema in self.plan.outputs.items():
            made[name] = output_frame(worker.outputs[name], schema, self.plan.dims)
            worker.outputs[name] = []
        return made

    def _batch(self, name: str, frame: Any) -> Batch:
        if name not in self.plan.inputs:
            raise DataError(f"there is no input {name}; there are {', '.join(self.plan.inputs)}")
        batch = batch_of(as_frame(frame, name), self.plan.inputs[name], self.plan.dims, name)
        if self._closed and len(batch):
            times = np.stack(batch.times)
            open_ = beyond(times, np.array(self._closed, dtype=np.int64).T)
            if not open_.all():
                late = tuple(int(c) for c in times[:, int(np.argmin(open_))])
                raise LateUpdate(f"input {name}: an update at {late}, but only times from {self._closed} on are open")
        return batch


def replay(program: Program, /, dims: Sequence[str] = ("version",), **frames: Any) -> dict[str, pl.DataFrame]:
    """The output logs of a program on change logs held in memory.

    Each keyword is an input: a frame (Polars, Arrow, pandas) with the input's columns, the time columns ``dims`` and
    ``diff``. Returns per output a frame of its columns, the time columns and ``diff``, consolidated and sorted by
    time and row. Raises DataError for what is no frame, ProgramError, and the FoldError family.
    """
    dims = _dims(dims)
    collected = {name: as_frame(frame, name) for name, frame in frames.items()}
    schemas = {name: schema_of(frame, dims, name) for name, frame in collected.items()}
    return Session(program, schemas, dims).fold(collected)


def as_frame(frame: Any, name: str) -> pl.DataFrame:
    """A Polars frame of whatever frame this is, or of a dict of columns. Raises DataError."""
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if isinstance(frame, pl.DataFrame):
        return frame
    kind, hint = type(frame).__name__, _WANTED
    if isinstance(frame, type):
        kind = f"the type {frame.__name__}"
    elif isinstance(frame, str | PathLike):
        kind, hint = (
            f"{kind} {str(frame)!r:.60}",
            f"read it first, for example with pl.read_parquet({str(frame)!r:.60})",
        )
    elif kind == "Series":
        hint = "give a frame: Series.to_frame() makes one"
    elif isinstance(frame, Mapping) or hasattr(frame, "__arrow_c_stream__") or _is_pandas(frame):
        try:
            if type(frame).__module__.startswith("pyarrow"):
                frame.validate(full=True)  # Polars would take bytes that are not UTF-8 as they are
            return pl.from_pandas(frame) if _is_pandas(frame) else pl.DataFrame(frame)
        except (Exception, pl.exceptions.PanicException) as error:
            raise DataError(f"input {name}: this {kind} is no frame: {one_line(error)}", hint) from None
    raise DataError(f"input {name}: {'None' if frame is None else kind} is no frame", hint)


def _is_pandas(frame: Any) -> bool:
    return type(frame).__module__.startswith("pandas.") and type(frame).__name__ == "DataFrame"


def _dims(dims: Any) -> tuple[str, ...]:
    """The names of the time columns. Raises ProgramError."""
    names = (dims,) if isinstance(dims, str) else tuple(dims) if isinstance(dims, Sequence) else ()
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise ProgramError(
            "dims names the time columns, each once, and is "
            + (f"{dims!r:.60}" if isinstance(dims, list | tuple) else f"of type {type(dims).__name__}"),
            'for example dims=("version",); inputs are given by name: dd.replay(program, edges=frame)',
        )
    return names


def schema_of(frame: pl.DataFrame, dims: Sequence[str], name: str) -> Schema:
    """The row columns of a change log and their types."""
    for column in (*dims, "diff"):
        if column not in frame.columns:
            raise DataError(
                f"input {name}: there is no column {column}; there are {', '.join(frame.columns)}",
                f"a change log has its row's columns, {', '.join(dims)} and diff",
            )
    return {column: type_of(frame.schema[column]) for column in frame.columns if column not in (*dims, "diff")}


def batch_of(frame: pl.DataFrame, schema: Schema, dims: Sequence[str], name: str) -> Batch:
    """A change log as an update batch. Raises DataError where columns are missing or are no integers."""
    for column in (*schema, *dims, "diff"):
        if column not in frame.columns:
            raise DataError(f"input {name}: there is no column {column}; there are {', '.join(frame.columns)}")
    for column in (*dims, "diff"):
        if not frame.schema[column].is_integer() or frame[column].null_count():
            raise DataError(f"input {name}: column {column} must be integers without nulls, not {frame.schema[column]}")
    for column, kind in schema.items():
        _check_column(frame[column], kind, name)
    times = [_whole_numbers(frame[dim], name) for dim in dims]
    for dim, coordinates in zip(dims, times, strict=True):
        if len(coordinates) and coordinates.min() < 0:
            raise DataError(f"input {name}: {dim} is {int(coordinates.min())}", "times count from 0")
    diffs = _whole_numbers(frame["diff"], name)
    return Batch(encoding.encode_frame(frame, schema), times, diffs)


def _whole_numbers(column: pl.Series, name: str) -> np.ndarray:
    """Integers of any width without nulls as int64[n]. Raises DataError for the first that does not fit."""
    words = column.cast(_INT64, strict=False)
    if words.null_count():
        place = int(words.is_null().arg_max() or 0)
        raise DataError(f"input {name}: {column.name} is {column[place]}, beyond int64", "fix the row")
    return np.ascontiguousarray(words.to_numpy())


def _check_column(column: pl.Series, kind: Type, name: str) -> None:
    """Raises DataError for a column whose values the type does not hold exactly."""
    if column.dtype == pl.Null():
        return
    found = type_of(column.dtype)
    fits = found == kind or (found.name == kind.name == "decimal" and found.scale == kind.scale)
    if not fits:
        raise DataError(f"input {name}: column {column.name} is {column.dtype}, not {kind}", "cast it first")
    if column.dtype == pl.Datetime and getattr(column.dtype, "time_unit", "") == "ns":
        finer = column.drop_nulls().filter(column.drop_nulls().to_physical() % 1000 != 0)
        if len(finer):
            raise DataError(
                f"input {name}: column {column.name} has {finer[0]}, finer than the microseconds of a timestamp",
                "truncate it first, for example with dt.truncate",
            )

    if column.dtype == pl.Datetime and getattr(column.dtype, "time_unit", "") == "ms":
        ticks = column.to_physical().drop_nulls()
        beyond = ticks.filter((ticks < -_MOST_MILLISECONDS) | (ticks > _MOST_MILLISECONDS))
        if len(beyond):
            raise DataError(
                f"input {name}: column {column.name} has {beyond[0]} milliseconds from 1970-01-01, beyond what "
                "microseconds in 64 bits hold",
                "fix the row",
            )


def output_frame(batches: Sequence[Batch], schema: Schema, dims: Sequence[str]) -> pl.DataFrame:
    """Consolidated output updates as a frame, sorted by time and row."""
    nothing = np.empty(0, dtype=np.int64)
    batch = concatenate(batches) if batches else Batch([nothing] * len(schema), [nothing] * len(dims), nothing)
    frame = encoding.decode_frame(batch.words, schema)
    times = [pl.Series(dim, column) for dim, column in zip(dims, batch.times, strict=True)]
    return frame.hstack([*times, pl.Series("diff", batch.diffs)]).sort([*dims, *schema])
