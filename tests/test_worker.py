"""Workers and the sessions around them, where folds fail or are many."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from notation import frame

import ddcore as dd
from ddcore.base.errors import ExpressionError, FoldError, NegativeMultiplicity, ProgramError

col = pl.col
SCHEMAS = {"t": {"k": "int64", "v": "int64"}}


def least(t: Any) -> dict[str, Any]:
    return {"x": t.group_by("k").agg(v=dd.min("v")), "y": t.distinct()}


def test_a_session_that_failed_half_way_folds_no_more() -> None:
    session = dd.Session(least, SCHEMAS)
    with pytest.raises(NegativeMultiplicity):
        session.fold({"t": frame("k v", "(1,1):-1@0 (2,2):+1@0")})
    with pytest.raises(FoldError, match="failed half way"):
        session.fold({"t": frame("k v", "(3,3):+1@1")})


def test_many_folds_leave_few_runs() -> None:
    """What a fold costs must not grow with the number of folds before it."""
    session, parts = dd.Session(least, SCHEMAS), []
    updates = [(v % 7, 100 - v, v, 1) for v in range(100)]
    frames = [pl.DataFrame([update], schema=["k", "v", "version", "diff"], orient="row") for update in updates]
    for item in frames:
        parts.append(session.fold({"t": item}))
    assert all(len(trace.batches) <= 8 for trace in session._worker.state.traces)
    whole = dd.replay(least, t=pl.concat(frames))
    for name, log in whole.items():
        assert pl.concat([part[name] for part in parts]).sort(log.columns).equals(log.sort(log.columns))


def test_a_flat_map_may_make_a_column_called_count() -> None:
    def program(t: Any) -> dict[str, Any]:
        return {"x": t.flat_map(lambda f: f.select("row", count=col("v") * 2), schema={"count": "int64"})}

    assert dd.replay(program, t=frame("k v", "(1,4):+3@0"))["x"].rows() == [(8, 0, 3)]
    with pytest.raises(ProgramError, match="called row"):
        dd.replay(program, t=frame("row v", "(1,4):+3@0"))


def test_a_null_count_is_an_error() -> None:
    def program(t: Any) -> dict[str, Any]:
        unknown = pl.lit(None, dtype=pl.Int64)
        return {"x": t.group_by("k").reduce(lambda f: f.select("group", "v", count=unknown), schema={"v": "int64"})}

    with pytest.raises(ExpressionError, match="null count"):
        dd.replay(program, t=frame("k v", "(1,4):+3@0"))


@pytest.mark.parametrize("wrong", [(0, 0), (0, 3)])
def test_a_row_that_is_there_at_no_time_fails_no_expression(wrong: tuple[int, int]) -> None:
    """It was corrected at its own version, before any fold: from scratch nobody would see it."""

    def checked(rows: pl.DataFrame) -> pl.DataFrame:
        assert (rows["v"] > 0).all()
        return rows

    def program(t: Any) -> dict[str, Any]:
        return {"x": t.flat_map(checked, schema={"v": "int64"}), "y": t.select(v=col("v") * 2**60 - 2**62)}

    rows = [(5, 0, 1), (*wrong, 1), (*wrong, -1)]
    log = dd.replay(program, t=pl.DataFrame(rows, schema=["v", "version", "diff"], orient="row"))
    assert log["x"].rows() == [(5, 0, 1)] and log["y"]["diff"].to_list() == [1]
    with pytest.raises(ExpressionError):
        dd.replay(program, t=frame("v", "0:+1@0 0:-1@1"))
