"""Frames given to ``dd.replay`` and ``Session``: what does not fit is one line, whatever library made the frame."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import ddcore as dd
from ddcore.errors import DataError


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
