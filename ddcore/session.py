"""Running a program in this process, on frames: for notebooks and for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import polars as pl

from ddcore.batch import Batch
from ddcore.errors import DataError, DdError, FoldError, LateUpdate, ProgramError
from ddcore.frames import batch_of, output_frame
from ddcore.lattice import beyond
from ddcore.libraries import numpy as np
from ddcore.plan import Plan
from ddcore.planner import Program, build
from ddcore.schema import Schema, polars_type, type_of
from ddcore.sizes import memory_size
from ddcore.spilling import Spilling, using
from ddcore.threads import available
from ddcore.wording import one_line
from ddcore.worker import Worker

_FRAME_HINT = "give a Polars, pandas or Arrow frame, or a dict of columns, with the row's columns, the version and diff"


class Session:
    """A program and its state in memory; each :meth:`fold` takes updates and returns the resulting output updates.

    ``schemas``: per input, column names and types: names (``"int64"``, as in dd.toml), Polars, Arrow or Python types.
    ``dims``: names of the time columns. ``threads``: how many a fold uses, by default all processors; its result is the
    same with any number. ``memory``, such as ``"2GiB"``: when the process has nearly so much, a fold writes what it
    gains to temporary files. Raises ProgramError where the program cannot be built.
    """

    def __init__(
        self,
        program: Program,
        schemas: Mapping[str, Mapping[str, Any]],
        dims: Sequence[str] = ("version",),
        threads: int | None = None,
        memory: str | None = None,
    ) -> None:
        if not isinstance(schemas, Mapping):
            raise ProgramError(
                f"Session takes a dict of schemas by input, not {type(schemas).__name__}",
                'for example {"edges": {"src": "int64", "dst": "int64"}}',
            )
        self.plan: Plan = build(program, schemas, _dims(dims))
        self._worker = Worker(self.plan, threads=_threads(threads))
        self._spilling = _spilling(memory)
        self._broken = False  # whether a fold failed: its worker holds a part of its updates
        self._closed: list[tuple[int, ...]] = []  # the last fold's upper: times at or beyond it are open

    def fold(
        self, frames: Mapping[str, Any], upper: Sequence[tuple[int, ...]] | None = None
    ) -> dict[str, pl.DataFrame]:
        """Fold updates: per input a frame of its columns, the time columns and ``diff``.

        ``upper`` is the frontier of times not complete after this fold; without it the times of all given updates
        become complete, and later updates may still have any time. Returns per output the consolidated
        new updates, sorted by time and row. Raises DataError, LateUpdate for updates at times closed before, and the
        FoldError family.
        """
        if not isinstance(frames, Mapping):
            raise DataError(f"fold takes a dict of frames by input, not {type(frames).__name__}", _FRAME_HINT)
        batches = {name: self._batch(name, frame) for name, frame in frames.items()}
        if self._broken:
            raise FoldError("an earlier fold of this session failed half way", "make a new Session and fold again")
        self._broken, worker = True, self._worker
        with using(self._spilling):
            worker.begin(upper)
            for name, batch in batches.items():
                worker.feed(name, batch)
            worker.run()
            for _ in worker.harvest():
                pass
        self._broken = False
        if upper is not None:
            self._closed = list(upper)
        outputs = {}
        for name, schema in self.plan.outputs.items():
            outputs[name] = output_frame(worker.outputs[name], schema, self.plan.dims)
            worker.outputs[name] = []
        return outputs

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


def _threads(threads: int | None) -> int:
    """How many threads a fold uses. Raises ProgramError."""
    if threads is None:
        return available()
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise ProgramError(f"threads is {threads!r:.60}", "give a whole number from 1 up")
    return threads


def _spilling(memory: str | None) -> Spilling | None:
    """Where a fold spills to. Raises ProgramError."""
    try:
        return None if memory is None else Spilling(memory_size(memory))
    except ValueError as error:
        raise ProgramError(f"memory {error}", 'for example memory="2GiB"') from None


def replay(program: Program, /, dims: Sequence[str] = ("version",), **frames: Any) -> dict[str, pl.DataFrame]:
    """The output logs of a program on change logs held in memory.

    Each keyword is an input: a frame (Polars, Arrow, pandas) with the input's columns, the time columns ``dims`` and
    ``diff``. Returns per output a frame of its columns, the time columns and ``diff``, consolidated and sorted by
    time and row. Raises DataError for what is no frame, ProgramError, and the FoldError family.
    """
    dims = _dims(dims)
    inputs = {name: as_frame(frame, name) for name, frame in frames.items()}
    schemas = {name: schema_of(frame, dims, name) for name, frame in inputs.items()}
    return Session(program, schemas, dims).fold(inputs)


def as_frame(frame: Any, name: str) -> pl.DataFrame:
    """Any frame, or a dict of columns, as a Polars frame. Raises DataError."""
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if isinstance(frame, pl.DataFrame):
        return frame
    kind, hint = type(frame).__name__, _FRAME_HINT
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
                frame.validate(full=True)  # Polars would accept bytes that are not UTF-8
                _check_maps(frame.schema, name)
            return pl.from_pandas(frame) if _is_pandas(frame) else pl.DataFrame(frame)
        except DdError:
            raise
        except (Exception, pl.exceptions.PanicException) as error:
            raise DataError(f"input {name}: this {kind} is no frame: {one_line(error)}", hint) from None
    raise DataError(f"input {name}: {'None' if frame is None else kind} is no frame", hint)


def _check_maps(schema: Any, name: str) -> None:
    """Raise ProgramError for an Arrow column that holds a map: Polars would turn it into a list."""
    for column in schema:
        if column.type.num_fields or hasattr(column.type, "extension_name"):
            type_of(polars_type(column.type), f"input {name}: column {column.name}")


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
    columns = [column for column in frame.columns if column not in (*dims, "diff")]
    return {column: type_of(frame.schema[column], f"input {name}: column {column}") for column in columns}
