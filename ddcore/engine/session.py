"""Running a program in this process, on frames: for notebooks and for tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import polars as pl

from ddcore.base.errors import DataError, DiffOverflow, FoldError, LateUpdate, ProgramError
from ddcore.base.instants import Instants, Moved, instants_of, moved
from ddcore.base.lattice import beyond, le
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, type_of
from ddcore.base.threads import available
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.data.foreign_frames import as_frame
from ddcore.engine.worker import Worker
from ddcore.planning.plan import Plan
from ddcore.planning.planner import Program, build
from ddcore.text.sizes import memory_size
from ddcore.text.wording import brief, kind_of, listed
from ddcore.traces.batch import Batch
from ddcore.traces.budget import Budget
from ddcore.traces.frames import batch_of, output_frame
from ddcore.traces.spilling import UNLIMITED, Memory, Spilling


class Session:
    """A program and its state in memory; each :meth:`fold` takes updates and returns the resulting output updates.

    ``schemas``: per input, column names and types: names (``"int64"``, as in dd.toml), Polars, Arrow or Python types.
    ``dims``: names of the time columns. ``threads``: how many a fold uses, by default all processors; its result is the
    same with any number. ``memory``, such as ``"2GiB"``: when the process has nearly so much, a fold writes what it
    gains to temporary files. ``nonnegative``: the caller knows that no row of an input has a negative count at any
    time, which nothing checks; then groups need no rows for sums and counts. ``tuning``: sizes that change no result
    (docs/tuning.md). Raises ProgramError where the program cannot be built.
    """

    def __init__(
        self,
        program: Program,
        schemas: Mapping[str, Mapping[str, Any]],
        dims: Sequence[str] = ("version",),
        threads: int | None = None,
        memory: str | None = None,
        *,
        nonnegative: bool = False,
        tuning: Tuning = DEFAULT,
    ) -> None:
        if not isinstance(schemas, Mapping):
            raise ProgramError(
                f"Session takes a dict of schemas by input, not {kind_of(schemas)}",
                'for example {"edges": {"src": "int64", "dst": "int64"}}',
            )
        for name, schema in schemas.items():
            if not isinstance(schema, Mapping):
                raise ProgramError(
                    f"input {name}: a schema is a dict of types by column, not {kind_of(schema)}",
                    'for example {"town": "string", "km": "int64"}; without the time columns and diff',
                )
        self.plan: Plan = build(program, schemas, _dims(dims), nonnegative=nonnegative)
        self.budget = Budget(_memory(memory, tuning), _threads(threads), tuning)
        self._worker = Worker(self.plan, budget=self.budget)
        self._broken = False  # whether a fold failed: its worker holds a part of its updates
        self._instants: Instants = tuple({} for _ in self.plan.dims)
        self._begun = False  # whether the rows that the program spells out are folded
        self._closed: list[tuple[int, ...]] = []  # the last fold's upper: times at or beyond it are open

    def fold(
        self, frames: Mapping[str, Any], upper: Sequence[tuple[int, ...]] | None = None, *, instants: Any = None
    ) -> dict[str, pl.DataFrame]:
        """Fold updates: per input a frame of its columns, the time columns and ``diff``.

        ``upper`` is the frontier of times not complete after this fold; without it the times of all given updates
        become complete, and later updates may still have any time. ``instants``: when versions were made, for a program
        that uses ``dd.now``: a dict of datetimes by version, or with several dimensions of such dicts by their names;
        those of earlier folds stay. Returns per output the consolidated
        new updates, sorted by time and row. Raises DataError, LateUpdate for updates at times closed before, and the
        FoldError family.
        """
        if not isinstance(frames, Mapping):
            name = next(iter(self.plan.inputs), "name")
            raise DataError(
                f"fold takes a dict of frames by input, not {kind_of(frames)}", f'for example fold({{"{name}": frame}})'
            )
        upper = _upper(upper, self.plan.dims)
        batches = {name: self._batch(name, frame) for name, frame in frames.items()}
        known = self._known(instants, batches)
        if self._broken:
            raise FoldError("an earlier fold of this session failed half way", "make a new Session and fold again")
        self._broken, worker = True, self._worker
        with self.budget.held():
            worker.begin(upper)
            if not self._begun:
                worker.feed_constants([0] * len(self.plan.dims))
            worker.feed_instants(_difference(self._instants, known))
            for name, batch in batches.items():
                worker.feed(name, batch)
            worker.run()
            worker.settle()
        self._broken, self._begun, self._instants = False, True, known
        if upper is not None:
            self._closed = list(upper)
        outputs = {}
        for name, schema in self.plan.outputs.items():
            outputs[name] = output_frame(worker.state.outputs[name], schema, self.plan.dims, self.budget)
            worker.state.outputs[name] = []
        return outputs

    def _known(self, given: Any, batches: Mapping[str, Batch]) -> Instants:
        """The instants of this fold and of those before. Raises ProgramError where updates of a program that needs them
        have none, LateUpdate where those of closed times change.
        """
        if given is None and self.plan.clock is None:
            return self._instants
        added = instants_of({} if given is None else given, self.plan.dims)
        known = tuple({**before, **new} for before, new in zip(self._instants, added, strict=True))
        if self.plan.clock is None:
            return known
        for _, time, _ in _difference(self._instants, known) if self._closed else ():
            if not any(le(element, time) for element in self._closed):
                raise LateUpdate(f"instants: one changes at {time}, but only times from {self._closed} on are open")
        firsts = [min(of, default=2**63 - 1) for of in known]
        for name, batch in batches.items():
            there = [times >= first for times, first in zip(batch.times, firsts, strict=True)]
            without = np.flatnonzero(~np.logical_or.reduce(there))
            if len(without):
                at = ",".join(str(times[without[0]]) for times in batch.times)
                raise ProgramError(
                    f"the program uses now(), and neither {' '.join(self.plan.dims)} {at}, at which {name} has a row,"
                    " nor one before it has an instant",
                    "give them: instants={0: datetime(2026, 11, 19, tzinfo=UTC)}",
                )
        return known

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


def _difference(before: Instants, after: Instants) -> list[Moved]:
    """How the collection of instants changes."""
    updates: Counter[tuple[int, tuple[int, ...]]] = Counter()
    for sign, instants in ((1, after), (-1, before)):
        for instant, time, diff in moved(instants):
            updates[instant, time] += sign * diff
    return [(instant, time, diff) for (instant, time), diff in updates.items() if diff]


def _threads(threads: int | None) -> int:
    """How many threads a fold uses. Raises ProgramError."""
    if threads is None:
        return available()
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise ProgramError(f"threads is {threads!r:.60}", "give a whole number from 1 up")
    return threads


def _memory(memory: str | None, tuning: Tuning) -> Memory:
    """What a fold may use, and where it spills to. Raises ProgramError."""
    try:
        return UNLIMITED if memory is None else Spilling(memory_size(memory), tuning=tuning)
    except ValueError as error:
        raise ProgramError(f"memory {error}", 'for example memory="2GiB"') from None


def _upper(upper: Any, dims: Sequence[str]) -> list[tuple[int, ...]] | None:
    """The elements of a frontier. Raises ProgramError."""
    if upper is None:
        return None
    times: list[Any] = list(upper) if isinstance(upper, Iterable) and not isinstance(upper, str | bytes) else [None]
    for time in times:
        numbers = list(time) if isinstance(time, Iterable) and not isinstance(time, str | bytes) else []
        if len(numbers) != len(dims) or not all(hasattr(number, "__index__") and number >= 0 for number in numbers):
            what = f"{brief(upper)}, no list of times with {listed(dims)}"
            raise ProgramError(f"fold: upper is {what}", f"for example upper=[{(1,) * len(dims)}]")
    return [tuple(int(coordinate) for coordinate in time) for time in times]


def replay(
    program: Program, /, dims: Sequence[str] = ("version",), *, instants: Any = None, **frames: Any
) -> dict[str, pl.DataFrame]:
    """The output logs of a program on change logs held in memory.

    Each keyword is an input: a frame (Polars, Arrow, pandas) with the input's columns, the time columns ``dims`` and
    ``diff``. ``instants``: as in :meth:`Session.fold`. Returns per output a frame of its columns, the time columns and
    ``diff``, consolidated and sorted by time and row. Raises DataError for what is no frame, ProgramError, and the
    FoldError family.
    """
    dims = _dims(dims)
    inputs = {name: as_frame(frame, name) for name, frame in frames.items()}
    schemas = {name: schema_of(frame, dims, name) for name, frame in inputs.items()}
    if all(_only_inserts(frame) for frame in inputs.values()):
        # Totals add up rows that differ in other columns: their counts may exceed int64 where those of rows do not.
        with suppress(DiffOverflow):
            return Session(program, schemas, dims, nonnegative=True).fold(inputs, instants=instants)
    return Session(program, schemas, dims).fold(inputs, instants=instants)


def _only_inserts(frame: pl.DataFrame) -> bool:
    """Whether no update of a change log is a retraction."""
    diffs = frame["diff"]
    return diffs.dtype.is_integer() and not (diffs < 0).any()


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
                f"input {name}: there is no column {column}; there are {listed(frame.columns)}",
                f"a change log has its row's columns, {', '.join(dims)} and diff",
            )
    columns = [column for column in frame.columns if column not in (*dims, "diff")]
    return {column: type_of(frame.schema[column], f"input {name}: column {column}") for column in columns}
