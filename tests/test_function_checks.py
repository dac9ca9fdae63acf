"""``DDCORE_CHECK_FUNCTIONS``: functions of reduce and flat_map are called twice, and other results are an error."""

from __future__ import annotations

import pickle
import random
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sparkless
from programs import Case
from test_exchange import expected_of, outcome
from test_random_programs import compare
from warehouses import project_of

import ddcore as dd
from ddcore.base.errors import ExpressionError
from ddcore.jobs.spark.shipping import pickled
from ddcore.planning.planner import build

NAN = float("nan")
ROWS = pl.DataFrame({"item": ["tea", "jam", None], "price": [1.5, NAN, None], "version": 0, "diff": [2, 1, 1]})
CALLS: list[int] = []


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDCORE_CHECK_FUNCTIONS", "1")


def stamped(frame: pl.DataFrame) -> pl.DataFrame:
    """Another result for the group of jam at each call; groups are in the order of their items, null first."""
    stamp = pl.lit(time.perf_counter_ns())
    return frame.with_columns(at=pl.when(pl.col("price").is_nan()).then(stamp).otherwise(0).fill_null(0))


def rare(frame: pl.DataFrame) -> pl.DataFrame:
    """A row more at each other call."""
    CALLS.append(len(frame))
    return frame.select("row", "item").filter((pl.col("item") == "tea") | (len(CALLS) % 2 == 1)).drop_nulls()


def scattered(frame: pl.DataFrame) -> pl.DataFrame:
    """Equal results: in any order, with counts in one row or in several, NaN and nulls among the values."""
    CALLS.append(len(frame))
    rows = frame.sample(fraction=1, shuffle=True, seed=random.randrange(100))
    if len(CALLS) % 2:
        return rows.select("group", "price", pl.col("count") + 1)
    return pl.concat([rows.select("group", "price", "count"), rows.select("group", "price", count=pl.lit(1, pl.Int64))])


def changing(frame: pl.DataFrame) -> pl.DataFrame:
    """Changes the frame that it is given; the second call gets one as it was."""
    frame.insert_column(0, pl.Series("n", range(len(frame))))
    return frame.select("row", n=pl.col("n").cast(pl.Int64))


def reduced(rows: Any) -> dict[str, Any]:
    return {"out": rows.group_by("item").reduce(stamped, {"at": "int64"})}


def mapped(rows: Any) -> dict[str, Any]:
    return {"out": rows.flat_map(rare, schema={"item": "string"})}


def test_reduce(checked: None) -> None:
    with pytest.raises(ExpressionError) as caught:
        dd.replay(reduced, rows=ROWS)
    line = reduced.__code__.co_firstlineno + 1
    start = f"test_function_checks.py:{line}: reduce: the function stamped gives different results for equal input: "
    assert caught.value.message.startswith(f"{start}for the group {{'item': 'jam'}} it returned (")
    first, second = caught.value.message.partition("it returned (")[2].split(", 1), then (")  # with counts
    assert int(first) < int(second.removesuffix(", 1)"))
    assert "no clock" in caught.value.hint


def test_flat_map(checked: None) -> None:
    CALLS.clear()
    with pytest.raises(ExpressionError) as caught:
        dd.replay(mapped, rows=ROWS)
    line = mapped.__code__.co_firstlineno + 1
    assert caught.value.message == (
        f"test_function_checks.py:{line}: flat_map: the function rare gives different results for equal input: "
        "for the row {'item': 'jam', 'price': nan} it returned ('jam',), then no row"
    )


@pytest.mark.parametrize("seed", range(3))
def test_what_is_equal(checked: None, seed: int) -> None:
    random.seed(seed)
    CALLS.clear()
    programs: dict[str, Any] = {
        "scattered": lambda rows: {"out": rows.group_by("item").reduce(scattered, {"price": "float64"})},
        "changing": lambda rows: {"out": rows.flat_map(changing, schema={"n": "int64"})},
    }
    logs = {name: dd.replay(program, rows=ROWS)["out"] for name, program in programs.items()}
    assert len(CALLS) == 2
    assert sorted(logs["scattered"]["diff"]) == [2, 2, 3]
    assert sorted(logs["changing"].rows()) == [(0, 0, 2), (1, 0, 1), (2, 0, 1)]


@pytest.mark.parametrize(("value", "calls"), [(None, 1), ("", 1), ("0", 1), ("1", 2)])
def test_the_variable(value: str | None, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDCORE_CHECK_FUNCTIONS", raising=False)
    if value is not None:
        monkeypatch.setenv("DDCORE_CHECK_FUNCTIONS", value)
    CALLS.clear()
    dd.replay(lambda rows: {"out": rows.group_by().reduce(scattered, {"price": "float64"})}, rows=ROWS)
    assert len(CALLS) == calls


def test_a_plan_is_the_same_program_and_carries_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """To processes that do not have the variable; and state of a run without it can be continued."""
    schemas = {"rows": {"item": "string", "price": "float64"}}
    for program in (reduced, mapped):
        monkeypatch.delenv("DDCORE_CHECK_FUNCTIONS", raising=False)
        plain = build(program, schemas)
        monkeypatch.setenv("DDCORE_CHECK_FUNCTIONS", "1")
        checked = build(program, schemas)
        monkeypatch.delenv("DDCORE_CHECK_FUNCTIONS")
        assert plain.fingerprint == checked.fingerprint
        for plan, expected in ((plain, False), (checked, True)):
            operators = [node.operator for node in pickle.loads(pickled(plan)).nodes]
            assert [operator.checked for operator in operators if hasattr(operator, "checked")] == [expected]


SOURCE = """
import time

import polars as pl


def stamped(frame):
    return frame.group_by("group").agg(at=pl.lit(time.perf_counter_ns()) if BAD else pl.col("count").sum())


def program(rows):
    return {"out": rows.group_by("item").reduce(stamped, {"at": "int64"})}
"""


@pytest.mark.parametrize("parallelism", [1, 3])
def test_tasks_of_spark(parallelism: int, checked: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one task and with several; a good program has the same log."""
    sparkless.install(monkeypatch)
    for bad in (True, False):
        source, scope = SOURCE.replace("BAD", str(bad)), dict[str, Any]()
        exec(source, scope)
        drawn = Case(0, source, scope["program"], {"rows": ROWS.drop("price")})
        actual = outcome(project_of(tmp_path / f"{bad}", drawn), [None], engine="spark", parallelism=parallelism)
        if bad:
            assert isinstance(actual, ExpressionError)
            assert actual.message.startswith("program.py:12: reduce: the function stamped gives different results")
        else:
            compare(drawn, "checked", expected_of(drawn), actual)
