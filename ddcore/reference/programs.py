"""Programs, evaluated at every time from nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import polars as pl

from ddcore.base.errors import DdError, Diverged, NegativeMultiplicity
from ddcore.program.constants import making
from ddcore.reference.collection import NaiveCollection
from ddcore.reference.logs import Log, Time, accumulate, differences, grid
from ddcore.reference.records import Record, by_round, recorders, recording, require_int64_differences
from ddcore.reference.rows import Rows, python_value, require_int64, rows_of
from ddcore.reference.types import columns_of, widened


def evaluate(
    program: Callable[..., Mapping[str, Any]],
    inputs: Mapping[str, Rows],
    schemas: Mapping[str, Mapping[str, Any]],
    now: datetime | None = None,
) -> dict[str, Rows]:
    """The program's outputs and its inspected collections on these inputs, from nothing.

    ``schemas`` names and types the columns of each input. ``now``: the instant at which it is evaluated.
    """
    collections = {name: NaiveCollection(columns_of(schemas[name]), rows.items()) for name, rows in inputs.items()}
    inspected = recorders[-1].inspected = {}
    with making(_constant, lambda: _now(now)):
        outputs = {name: output.rows for name, output in program(**collections).items()}
    return outputs | {name: by_round(points) for name, points in inspected.items()}


def _constant(frame: pl.DataFrame) -> NaiveCollection:
    """The rows that a program spells out, at every time."""
    recorders[-1].spelled = True
    columns = {name: widened(dtype) for name, dtype in frame.schema.items()}
    return NaiveCollection(columns, ((row, 1) for row in rows_of(frame)))


def _now(instant: datetime | None) -> NaiveCollection:
    """The instant at which a program is evaluated; no row where there is none."""
    recorders[-1].tells_time = True
    rows = [] if instant is None else [((instant,), 1)]
    return NaiveCollection({"now": pl.Datetime("us", "UTC")}, rows)


def _instant(instants: Mapping[Any, Any], time: Time, dims: Sequence[str]) -> datetime | None:
    """The instant of a time: the latest of its coordinates, each of which has its own or that of the last before it."""
    latest = []
    for dim, coordinate in zip(dims, time, strict=True):
        of = instants if len(dims) == 1 else instants.get(dim, {})
        latest += [of[max(known)] for known in [[start for start in of if start <= coordinate]] if known]
    return max(latest, default=None)


def outputs_of(
    program: Callable[..., Mapping[str, Any]],
    inputs: Mapping[str, pl.DataFrame],
    outputs: Mapping[str, Mapping[str, pl.DataType]],
    now: datetime | None = None,
) -> dict[str, pl.DataFrame]:
    """The program's outputs on collections, from nothing: frames of the row's columns and ``diff``, its count.

    ``outputs`` names and types the columns of each output. ``now``: as in :func:`evaluate`.
    """
    schemas = {name: {c: widened(t) for c, t in frame.schema.items() if c != "diff"} for name, frame in inputs.items()}
    with recording() as record:
        found = evaluate(program, {name: accumulate(frame, (), ()) for name, frame in inputs.items()}, schemas, now)
    require_int64_differences({(): record})
    frames = {}
    for name, columns in outputs.items():
        rows = [(*map(python_value, row, columns.values()), require_int64(count)) for row, count in found[name].items()]
        frames[name] = pl.DataFrame(rows, schema={**columns, "diff": pl.Int64()}, orient="row")
    return frames


def replay(
    program: Callable[..., Mapping[str, Any]],
    dims: Sequence[str] = ("version",),
    instants: Any = None,
    **frames: pl.DataFrame,
) -> dict[str, Log]:
    """The differences of every output, given those of every input: frames of row columns, ``dims`` and ``diff``.

    ``instants``: those of versions, or by the names of several dimensions.
    """
    schemas = {
        name: {column: widened(dtype) for column, dtype in frame.schema.items() if column not in (*dims, "diff")}
        for name, frame in frames.items()
    }
    times = grid(time for frame in frames.values() for time in frame.select(dims).iter_rows())
    least = (0,) * len(dims)
    records: dict[Time, Record] = {}

    def outputs_at(time: Time) -> dict[str, Rows]:
        inputs = {name: accumulate(frame, time, dims) for name, frame in frames.items()}
        try:
            with recording() as records[time]:
                return evaluate(program, inputs, schemas, _instant(instants or {}, time, dims))
        except NegativeMultiplicity as error:
            raise NegativeMultiplicity(error.op, error.key, time, error.count) from None
        except Diverged as error:
            raise Diverged(error.loop, (*time, error.round), error.round, error.moving) from None

    with contextlib.suppress(DdError):
        outputs_at(least)
    first = records.pop(least)
    times = grid([least, *times]) if first.spelled else times
    if first.tells_time and instants:
        times = grid([*times, *_beginnings(instants, dims)])
    outputs = {time: outputs_at(time) for time in times}
    require_int64_differences(records)
    names = outputs[times[0]] if times else []
    logs = {name: differences(lambda time, name=name: outputs[time][name], times) for name in names}  # type: ignore[misc]
    for log in logs.values():
        for diff in log.values():
            require_int64(diff)
    return logs


def _beginnings(instants: Mapping[Any, Any], dims: Sequence[str]) -> list[Time]:
    """The times from which instants hold."""
    by_dim = {dims[0]: instants} if len(dims) == 1 else instants
    return [tuple(coordinate if name == dim else 0 for name in dims) for dim, of in by_dim.items() for coordinate in of]
