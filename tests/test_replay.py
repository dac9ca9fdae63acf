"""The library's face: what dd.replay and dd.Session take, what they say to anything else, and the names one sees."""

from __future__ import annotations

import builtins
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import ddcore as dd
from ddcore.base.errors import DataError, DdError, ProgramError
from ddcore.operators.aggregates import AGGREGATES

LOG = pl.DataFrame({"a": [1], "version": [0], "diff": [1]})


def same(w: Any) -> Any:
    return {"out": w}


def test_the_names_one_sees_are_the_public_ones() -> None:
    script = "import ddcore, json; before = dir(ddcore); ddcore.replay; print(before == dir(ddcore), *before)"
    names = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert names == ["True", *sorted({*dd.__all__, *AGGREGATES, "open", "__version__"})]
    assert all(hasattr(dd, name) for name in dir(dd))


def test_a_star_import_leaves_pythons_functions() -> None:
    scope: dict[str, Any] = {}
    exec("from ddcore import *", scope)
    del scope["__builtins__"]
    assert scope.keys() == set(dd.__all__)
    assert not scope.keys() & vars(builtins).keys()


@pytest.mark.parametrize("frame", [LOG, LOG.lazy(), LOG.to_arrow(), LOG.to_pandas(), LOG.to_dict(as_series=False)])
def test_frames_of_every_kind(frame: Any) -> None:
    assert dd.replay(same, w=frame)["out"].rows() == [(1, 0, 1)]


@pytest.mark.parametrize(
    ("frame", "says", "hint"),
    [
        ("data.parquet", "input w: str 'data.parquet' is no frame", "pl.read_parquet('data.parquet')"),
        (Path("data.parquet"), "PosixPath 'data.parquet' is no frame", "pl.read_parquet('data.parquet')"),
        (None, "input w: None is no frame", "Polars, pandas or Arrow frame"),
        (pl.DataFrame, "input w: the type DataFrame is no frame", "Polars, pandas or Arrow frame"),
        (3, "input w: int is no frame", "Polars, pandas or Arrow frame"),
        ([1, 2], "input w: list is no frame", "Polars, pandas or Arrow frame"),
        (LOG["a"], "input w: Series is no frame", "to_frame()"),
        (pd.Series([1]), "input w: Series is no frame", "to_frame()"),
        ({"a": [1, 2], "version": [0], "diff": [1]}, "input w: this dict is no frame: ", "Polars, pandas or Arrow"),
        (LOG.drop("version"), "input w: there is no column version", "diff"),
    ],
)
def test_anything_else_is_told_what_is_wanted(frame: Any, says: str, hint: str) -> None:
    session = dd.Session(same, {"w": {"a": "int64"}})
    folds: list[Callable[[], Any]] = [lambda: dd.replay(same, w=frame), lambda: session.fold({"w": frame})]
    for fold in folds:
        with pytest.raises(DataError) as caught:
            fold()
        assert says in caught.value.message and "\n" not in caught.value.message
    with pytest.raises(DataError) as caught:
        dd.replay(same, w=frame)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "call",
    [
        lambda: dd.replay(same, LOG),  # type: ignore[arg-type]
        lambda: dd.replay(same, dims=(), w=LOG),
        lambda: dd.replay(same, dims=("version", "version"), w=LOG),
        lambda: dd.replay(same, dims=3, w=LOG),  # type: ignore[arg-type]
        lambda: dd.Session(same, None),  # type: ignore[arg-type]
        lambda: dd.Session(same, {"w": None}),  # type: ignore[dict-item]
        lambda: dd.Session(same, {"w": {"a": "int65"}}),
        lambda: dd.Session(same, {"w": {"a": pl.Object()}}),
        lambda: dd.Session(same, {"w": {"a": list}}),
        lambda: dd.Session(same, {"w": {"": "int64"}}),
        lambda: dd.Session(same, {"w": {"a": "int64"}}).fold(LOG),  # type: ignore[arg-type]
    ],
)
def test_wrong_arguments_are_one_line(call: Any) -> None:
    with pytest.raises(DdError) as caught:
        call()
    assert "\n" not in caught.value.message and caught.value.hint


def test_one_dimension_may_be_named_without_a_list() -> None:
    assert dd.replay(same, dims="version", w=LOG)["out"].rows() == [(1, 0, 1)]


def test_an_input_may_be_called_program() -> None:
    assert dd.replay(lambda program: {"out": program}, program=LOG)["out"].rows() == [(1, 0, 1)]


def test_schemas_of_polars_and_python_types() -> None:
    columns = {
        "a": (pl.Int64, "int64"), "b": (pl.Int8(), "int64"), "c": (pl.Float32, "float64"), "d": (pl.Utf8, "string"),
        "e": (pl.Decimal(10, 2), "decimal(10,2)"), "f": (pl.Datetime("us", "UTC"), "timestamp"), "g": (pl.Date, "date"),
        "h": (pl.Boolean, "bool"), "i": (pl.Binary, "binary"), "j": (int, "int64"), "k": (str, "string"),
        "l": (date, "date"), "m": ("decimal(4,1)", "decimal(4,1)"), "n": (float, "float64"), "o": (bool, "bool"),
    }  # fmt: skip
    session = dd.Session(same, {"w": {name: kind for name, (kind, _) in columns.items()}})
    assert {name: str(kind) for name, kind in session.plan.inputs["w"].items()} == {
        name: wanted for name, (_, wanted) in columns.items()
    }
    schema = pl.Schema({"a": pl.Int64(), "b": pl.String()})
    assert (
        dd.Session(same, {"w": schema}).plan.fingerprint
        == dd.Session(same, {"w": {"a": "int64", "b": "string"}}).plan.fingerprint
    )


@pytest.mark.parametrize(
    "name", ["", "a/b", "a\\b", "..", ".x", "a\nb", "a\0b", "\x1b[31m", "x" * 300, "é" * 150, "a%20b", "a:b", "\ud800"]
)
def test_an_output_s_name_is_a_folder_s(name: str) -> None:
    with pytest.raises(ProgramError) as caught:
        dd.replay(lambda w: {name: w}, w=LOG)
    assert caught.value.message.isprintable() and len(caught.value.message) < 200 and caught.value.hint


def test_two_outputs_that_are_one_folder_on_some_machines() -> None:
    with pytest.raises(ProgramError, match="Out and out are the same folder"):
        dd.replay(lambda w: {"Out": w, "out": w}, w=LOG)


@pytest.mark.parametrize("name", ["out", "a b", "é", "a.b", "x" * 200, "_x", "a,b", "a=b"])
def test_other_names_are_names(name: str) -> None:
    assert list(dd.replay(lambda w: {name: w}, w=LOG)) == [name]
