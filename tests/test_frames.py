"""Frames given to ``dd.replay`` and ``Session``: what does not fit is one line, whatever library made the frame."""

from __future__ import annotations

import math
import random
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import ddcore as dd
from ddcore.base.errors import DataError


def frame_of(**columns: Any) -> pl.DataFrame:
    return pl.DataFrame({"x": [1, 1], "version": [0, 0], "diff": [1, 1], **columns})


def milliseconds(ticks: int) -> pl.Series:
    return pl.Series([0, ticks], dtype=pl.Int64).cast(pl.Datetime("ms"))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"version": pl.Series([0, 2**63], dtype=pl.UInt64)}, "version is 9223372036854775808, beyond int64"),
        ({"diff": pl.Series([1, 2**64 - 1], dtype=pl.UInt64)}, "diff is 18446744073709551615, beyond int64"),
        ({"diff": pl.Series([1, -(2**64)], dtype=pl.Int128)}, "diff is -18446744073709551616, beyond int64"),
        ({"x": milliseconds(2**60)}, "column x has 1152921504606846976 milliseconds"),
        ({"x": milliseconds(-(2**63))}, "column x has -9223372036854775808 milliseconds"),
    ],
)
def test_numbers_beyond_int64_are_one_line(columns: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        dd.replay(lambda w: {"o": w}, w=frame_of(**columns))


def test_arrow_tables_that_polars_cannot_hold_are_one_line() -> None:
    offsets = pa.array([0, 1], pa.int32()).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff")])
    for values in (pa.nulls(1, pa.decimal256(40, 2)), text):
        with pytest.raises(DataError, match="input w: this Table is no frame: "):
            dd.replay(lambda w: {"o": w}, w=pa.table({"x": values, "version": [0], "diff": [1]}))


def test_logs_of_any_types_are_sorted_by_time_and_values() -> None:
    """Those without strings by their words, whose order is that of the values; nulls come first."""
    values: dict[str, list[Any]] = {
        "whole": [3, -(2**63) + 1, None, 2**63 - 1],
        "number": [float("nan"), -math.inf, None, -0.5, math.inf, 0.0, 1e-300],
        "flag": [True, None, False],
        "day": [date(1969, 12, 31), None, date(2400, 1, 1)],
        "at": [datetime(1900, 1, 1), None, datetime(2026, 11, 23, 1, 2, 3, 4)],
        "money": [Decimal("-1.50"), None, Decimal("99.25")],
    }
    rng = random.Random(7)
    rows = list(dict.fromkeys(tuple(rng.choice(value) for value in values.values()) for _ in range(300)))
    frame = pl.DataFrame(rows, schema=[*values], orient="row").cast(
        {"money": pl.Decimal(10, 2), "at": pl.Datetime("us", "UTC")}
    )
    frame = frame.with_columns(version=pl.Series(rng.choices(range(4), k=len(rows))), diff=pl.lit(1, pl.Int64))
    for name in ("text", ""):
        given = frame.with_columns(text=pl.lit("x")) if name else frame
        columns = [column for column in given.columns if column not in ("version", "diff")]
        log = dd.replay(lambda w: {"o": w}, w=given.sample(fraction=1.0, shuffle=True, seed=3))["o"]
        assert log.select(given.columns).equals(given.sort("version", *columns))
