"""What is given in place of a frame, a schema or a program: one line that says what was given, and what to write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from deltalake import write_deltalake

import ddcore as dd
from ddcore import sql
from ddcore.base.errors import DataError, DdError, ProgramError

LOG = pl.DataFrame({"a": [1], "version": [0], "diff": [1]})


def same(w: Any) -> Any:
    return {"out": w}


class OfSpark:
    """Named as a frame of Spark is: none is needed to see that it is one."""

    __module__ = "pyspark.sql.classic.dataframe"


@pytest.mark.parametrize(
    ("frame", "says", "hint"),
    [
        ("a.csv", "str 'a.csv' is no frame", "pl.read_csv('a.csv')"),
        ("a.CSV.gz", "str 'a.CSV.gz' is no frame", "pl.read_csv('a.CSV.gz')"),
        (Path("a.jsonl"), "PosixPath 'a.jsonl' is no frame", "pl.read_ndjson('a.jsonl')"),
        ("a.arrow", "str 'a.arrow' is no frame", "pl.read_ipc('a.arrow')"),
        ("folder", "str 'folder' is no frame", "pl.read_parquet('folder')"),
        ([{"a": 1}], "list is no frame", "w=pl.DataFrame(rows)"),
        ([(1, 0, 1)], "list is no frame", 'orient="row"'),
        (np.zeros((1, 3)), "ndarray is no frame", "pl.DataFrame(array, schema="),
        (OfSpark(), "OfSpark is no frame", "w=frame.toArrow()"),
        (pd.DataFrame, "the type DataFrame is no frame", "Polars, pandas or Arrow frame"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_no_frame(frame: Any, says: str, hint: str) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: dd.replay(same, w=frame),
        lambda: dd.Session(same, {"w": {"a": "int64"}}).fold({"w": frame}),
    ]
    for call in calls:
        with pytest.raises(DataError) as caught:
            call()
        assert caught.value.message == f"input w: {says}"
        assert hint in caught.value.hint and "\n" not in caught.value.hint


def test_a_folder_of_a_delta_table(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "table", LOG.to_arrow())
    with pytest.raises(DataError) as caught:
        dd.replay(same, w=tmp_path / "table")
    assert "pl.read_delta(" in caught.value.hint


def test_what_the_hints_say_works() -> None:
    rows = [{"a": 1, "version": 0, "diff": 1}]
    array = np.array([[1, 0, 1]])
    for frame in (pl.DataFrame(rows), pl.DataFrame(array, schema=["a", "version", "diff"])):
        assert dd.replay(same, w=frame)["out"].rows() == [(1, 0, 1)]
    indexed = LOG.to_pandas().set_index("a")
    with pytest.raises(DataError, match="input w: this DataFrame of pandas has the index a") as caught:
        dd.replay(same, w=indexed)
    assert "frame.reset_index()" in caught.value.hint
    assert dd.replay(same, w=indexed.reset_index())["out"].rows() == [(1, 0, 1)]


def test_a_frame_without_columns() -> None:
    with pytest.raises(DataError, match="input w: there is no column version; there are none"):
        dd.replay(same, w=pl.DataFrame())


@pytest.mark.parametrize(
    ("program", "kind", "hint"),
    [
        ("program.py", "str 'program.py'", "from program import program"),
        (Path("program.py"), "PosixPath 'program.py'", "from program import program"),
        (None, "None", "first the function"),
        (LOG, "DataFrame", "first the function"),
    ],
    ids=["text", "path", "None", "frame"],
)
def test_no_program(program: Any, kind: str, hint: str) -> None:
    for call in (lambda: dd.replay(program, w=LOG), lambda: dd.Session(program, {"w": {"a": "int64"}})):
        with pytest.raises(ProgramError) as caught:
            call()
        assert caught.value.message == f"a program is a function, not {kind}" and hint in caught.value.hint


@pytest.mark.parametrize("schema", [None, "int64", ["a"], LOG, LOG.to_pandas()], ids=lambda value: type(value).__name__)
def test_no_schema(schema: Any) -> None:
    with pytest.raises(ProgramError, match=r"^input w: a schema is a dict of types by column, not \S") as caught:
        dd.Session(same, {"w": schema})
    assert "\n" not in caught.value.message and "without the time columns" in caught.value.hint


def test_fold_takes_frames_by_input() -> None:
    with pytest.raises(DataError) as caught:
        dd.Session(same, {"w": {"a": "int64"}}).fold(LOG)  # type: ignore[arg-type]
    assert caught.value.message == "fold takes a dict of frames by input, not DataFrame"
    assert caught.value.hint == 'for example fold({"w": frame})'


@pytest.mark.parametrize("upper", [3, [3], (3,), "latest", [(1, 2)], [(-1,)], [("1",)], [[1.5]]], ids=str)
def test_no_frontier(upper: Any) -> None:
    """It is refused before anything is folded: the session can go on."""
    session = dd.Session(same, {"w": {"a": "int64"}})
    with pytest.raises(ProgramError, match=r"^fold: upper is .*, no list of times with version") as caught:
        session.fold({"w": LOG}, upper)
    assert caught.value.hint == "for example upper=[(1,)]"
    assert session.fold({"w": LOG}, [(1,)])["out"].rows() == [(1, 0, 1)]


@pytest.mark.parametrize("value", [LOG, None, "a.parquet"], ids=["frame", "None", "path"])
def test_no_collection(value: Any) -> None:
    kind = {"DataFrame": "DataFrame", "NoneType": "None", "str": "str 'a.parquet'"}[type(value).__name__]
    mistakes: list[Callable[[Any], Any]] = [
        lambda w: w.join(value, on="a"),
        lambda w: w.concat(value),
        lambda w: dd.algorithms.bfs(value, w),
    ]
    for mistake in mistakes:
        with pytest.raises(ProgramError) as caught:
            dd.replay(lambda w: {"out": mistake(w)}, w=LOG)  # noqa: B023
        assert kind in caught.value.message and "\n" not in caught.value.message
        assert "dd.replay(program, " in caught.value.hint


def test_sql_of_something_else(tmp_path: Path) -> None:
    anything: Any
    for anything, kind in ((LOG, "DataFrame"), (None, "None")):
        for call in (sql.load, sql.program):
            with pytest.raises(ProgramError) as caught:
                call(anything)
            assert caught.value.message.endswith(f", not {kind}")
    (tmp_path / "program.sql").write_text("CREATE VIEW out AS SELECT a FROM w")
    assert dd.replay(sql.load(str(tmp_path / "program.sql")), w=LOG)["out"].rows() == [(1, 0, 1)]


def test_errors_are_of_one_family() -> None:
    with pytest.raises(DdError):
        dd.replay(same, w=None)
