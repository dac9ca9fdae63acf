"""The ways to fold one history: from the definitions, whole, and cut into runs. All must give the same logs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pytest
from notation import dims_of

import ddcore as dd
from ddcore import reference
from ddcore.base import lattice
from ddcore.base.statistics import Statistics
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.engine import session
from ddcore.planning.plan import Plan
from ddcore.planning.planner import build
from ddcore.traces.consolidation import arrange
from ddcore.traces.trace import Trace

__all__ = [
    "advance", "by_reference", "compacted", "dims_of", "fed_early", "grid", "in_runs", "in_threads", "instants_of",
    "one_time_each", "planned_once", "random_cuts", "randomly_cut", "reference", "type_name", "upper_of", "whole",
    "with_statistics",
]  # fmt: skip

Time = tuple[int, ...]
Logs = dict[str, dict[tuple[Any, Time], int]]
Fold = Callable[..., Logs]


@contextmanager
def planned_once() -> Iterator[None]:
    """Sessions on the same program share its plan: planning takes longer than folding a small history."""
    plans: dict[Any, Plan] = {}

    def plan(program: Any, schemas: Any, dims: tuple[str, ...], *, nonnegative: bool = False) -> Plan:
        key = program, str(schemas), dims, nonnegative
        if key not in plans:
            plans[key] = build(program, schemas, dims, nonnegative=nonnegative)
        return plans[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "build", plan)
        yield


@contextmanager
def with_statistics(statistics: Mapping[str, Statistics]) -> Iterator[None]:
    """Sessions plan with what is said of the inputs, as a project does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "build", partial(build, statistics=statistics))
        yield


def by_reference(program: Any, *, tuning: Any = DEFAULT, **frames: pl.DataFrame) -> Logs:
    """From the definitions, which no ``tuning`` changes."""
    return reference.replay(program, dims_of(frames), instants_of(frames), **frames)


def whole(program: Any, *, tuning: Any = None, **frames: pl.DataFrame) -> Logs:
    dims = dims_of(frames)
    if tuning is not None:
        session = dd.Session(program, _schemas(frames), dims, tuning=tuning)
        logs = session.fold(frames, instants=instants_of(frames))
    else:
        logs = dd.replay(program, dims=dims, instants=instants_of(frames), **frames)
    return {name: reference.log_of(log, dims) for name, log in logs.items()}


def in_threads(program: Any, *, nonnegative: Any = False, tuning: Any = DEFAULT, **frames: pl.DataFrame) -> Logs:
    """Whole, in three threads. Tests make the parts small, so that there is more than one."""
    dims = dims_of(frames)
    session = dd.Session(program, _schemas(frames), dims, threads=3, nonnegative=nonnegative, tuning=tuning)
    logs = session.fold(frames, instants=instants_of(frames))
    return {name: reference.log_of(log, dims) for name, log in logs.items()}


def one_time_each(program: Any, *, tuning: Any = DEFAULT, **frames: pl.DataFrame) -> Logs:
    """A run for every time of the grid, also for those no update lies at: they may owe something all the same."""
    times = grid(frames)
    return in_runs(program, frames, [times[:end] for end in range(1, len(times))], tuning=tuning)


def randomly_cut(
    program: Any, *, seed: Any = 0, nonnegative: Any = False, tuning: Any = DEFAULT, **frames: pl.DataFrame
) -> Logs:
    """Up to four runs, cut anywhere in any order that goes forward."""
    cuts = random_cuts(random.Random(str(seed)), grid(frames))
    return in_runs(program, frames, cuts, nonnegative=nonnegative, tuning=tuning)


def compacted(
    program: Any, *, seed: Any = None, nonnegative: Any = False, tuning: Any = DEFAULT, **frames: pl.DataFrame
) -> Logs:
    """A run for every time, or cut at random, and after each the times in state are advanced to what is still open."""
    times = grid(frames)
    cuts = [times[:end] for end in range(1, len(times))] if seed is None else random_cuts(random.Random(seed), times)
    return in_runs(program, frames, cuts, compact=True, nonnegative=nonnegative, tuning=tuning)


def fed_early(
    program: Any, *, seed: Any = 0, nonnegative: Any = False, tuning: Any = DEFAULT, **frames: pl.DataFrame
) -> Logs:
    """Cut at random, and some updates are given in runs that do not close their times yet."""
    rng = random.Random(str(seed))
    return in_runs(program, frames, random_cuts(rng, grid(frames)), rng, nonnegative=nonnegative, tuning=tuning)


def _schemas(frames: Mapping[str, pl.DataFrame]) -> dict[str, dict[str, str]]:
    dims = dims_of(frames)
    return {
        name: {column: type_name(dtype) for column, dtype in frame.schema.items() if column not in (*dims, "diff")}
        for name, frame in frames.items()
    }


def instants_of(frames: Mapping[str, pl.DataFrame]) -> Any:
    """Instants of the coordinates of histories, around the times of random programs: some go back, some are missing."""
    dims = dims_of(frames)
    by_dim: dict[str, dict[int, datetime]] = {}
    for dim in dims:
        axis = sorted({item for frame in frames.values() for item in frame[dim]})
        by_dim[dim] = {
            item: datetime(2024, 2, 28, 20, tzinfo=UTC) + timedelta(hours=(11 * number + item) % 17)
            for number, item in enumerate(axis)
            if number % 3 != 1
        }
    return by_dim[dims[0]] if len(dims) == 1 else by_dim


def grid(frames: Mapping[str, pl.DataFrame]) -> list[Time]:
    dims = dims_of(frames)
    return reference.grid(time for frame in frames.values() for time in frame.select(dims).iter_rows())


def random_cuts(rng: random.Random, times: Sequence[Time]) -> list[list[Time]]:
    """Growing sets of times to have closed, each with all that precede its members."""
    order: list[Time] = []
    while left := [time for time in times if time not in order]:
        order.append(rng.choice([t for t in left if not any(s != t and reference.precedes(s, t) for s in left)]))
    ends = sorted(rng.randrange(len(order) + 1) for _ in range(rng.randint(1, 3)))
    return [order[:end] for end in ends]


def upper_of(closed: Sequence[Time], times: Sequence[Time]) -> list[Time]:
    """The frontier that closes ``closed`` and nothing else of ``times``: the least of all that is not closed."""
    tops = [max(axis) for axis in zip(*times, strict=True)]
    beyond = [tuple(top + 1 if i == axis else 0 for i in range(len(tops))) for axis, top in enumerate(tops)]
    open_ = [time for time in times if time not in closed] + beyond
    return [t for t in open_ if not any(s != t and reference.precedes(s, t) for s in open_)]


def in_runs(
    program: Any,
    frames: Mapping[str, pl.DataFrame],
    cuts: Sequence[Sequence[Time]],
    early: random.Random | None = None,
    *,
    compact: bool = False,
    nonnegative: bool = False,
    tuning: Tuning = DEFAULT,
) -> Logs:
    """One session, one fold for each cut and one for the rest; the logs of all folds together.

    An update is given in the run that closes its time, or with ``early`` in any run before it. ``compact``: between
    runs the times in state are advanced. ``nonnegative``: no row's count ever is, so that groups may have totals.
    """
    dims, times = dims_of(frames), grid(frames)
    run_of = {time: min(i for i, closed in enumerate([*cuts, times]) if time in closed) for time in times}
    runs = {
        name: [early.randint(0, run_of[time]) if early else run_of[time] for time in frame.select(dims).iter_rows()]
        for name, frame in frames.items()
    }
    session = dd.Session(program, schemas=_schemas(frames), dims=dims, nonnegative=nonnegative, tuning=tuning)
    parts: list[dict[str, pl.DataFrame]] = []
    for i in range(len(cuts) + 1):
        upper = upper_of(cuts[i], times) if i < len(cuts) else None
        new = {name: frame.filter([run == i for run in runs[name]]) for name, frame in frames.items()}
        instants = None if i else instants_of(frames)
        parts.append(
            session.fold({name: frame for name, frame in new.items() if len(frame)}, upper=upper, instants=instants)
        )
        if compact and upper is not None:
            advance(session, upper)
    return {name: reference.log_of(pl.concat([part[name] for part in parts]), dims) for name in parts[0]}


def advance(session: dd.Session, since: Sequence[Time]) -> None:
    """Compacts the state of a session: every stored time becomes its representative for times at or beyond ``since``.

    Rounds stay as they are: a frontier of input times has the round 0.
    """
    inputs, frontier = len(session.plan.dims), np.array(since, dtype=np.int64).T
    traces = session._worker.state.traces
    for number, trace in enumerate(traces):
        advanced = []
        for batch in (item.decompress() for item in trace.stored):
            times = [*lattice.advance(batch.times[:inputs], frontier), *batch.times[inputs:]]
            advanced.append(arrange(batch.codes, list(batch.words), times, batch.diffs))
        traces[number] = Trace([batch for batch in advanced if len(batch)], session._worker.budget, apart=trace.apart)


def type_name(dtype: pl.DataType) -> str:  # noqa: PLR0911  (one kind, one return)
    if isinstance(dtype, pl.Decimal):
        return f"decimal({dtype.precision},{dtype.scale})"
    if isinstance(dtype, pl.List):
        return f"list[{type_name(_instance(dtype.inner))}]"
    if isinstance(dtype, pl.Map):
        return f"map[{type_name(_instance(dtype.key))}, {type_name(_instance(dtype.value))}]"
    if isinstance(dtype, pl.Struct) and [field.dtype for field in dtype.fields] == [pl.Int32, pl.Int32, pl.Int64]:
        return "interval"
    if isinstance(dtype, pl.Struct):
        return f"struct[{', '.join(f'{field.name}: {type_name(_instance(field.dtype))}' for field in dtype.fields)}]"
    if isinstance(dtype, pl.Extension):
        return dtype.ext_name().removeprefix("ddcore.")
    return {
        pl.Int64: "int64",
        pl.UInt64: "uint64",
        pl.Float64: "float64",
        pl.String: "string",
        pl.Boolean: "bool",
        pl.Binary: "binary",
        pl.Date: "date",
        pl.Time: "time",
        pl.Datetime: "timestamp",
    }[dtype.base_type()]


def _instance(dtype: Any) -> pl.DataType:
    return dtype if isinstance(dtype, pl.DataType) else dtype()
