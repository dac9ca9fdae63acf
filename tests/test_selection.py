"""Expressions that stand for several columns, and the operators that Polars has for all columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import folding
import polars as pl
import polars.selectors as cs
import pytest

import ddcore as dd
from ddcore.base.errors import ProgramError

col = pl.col
ROWS = pl.DataFrame(
    {
        "k": [1, 2, None],
        "v": [3, 4, 5],
        "w": ["a", "b", None],
        "f": [1.5, float("nan"), -0.0],
        "version": [0, 0, 1],
        "diff": [1, 2, 1],
    }
)
ints = cs.by_name("k", "v")
MAKERS: dict[str, Callable[[Any], Any]] = {
    "star": lambda t: t.select("*"),
    "star and more": lambda t: t.select("*", n=col("k") + 1),
    "all": lambda t: t.select(pl.all()),
    "two": lambda t: t.select(pl.col("v", "k")),
    "a list": lambda t: t.select(["w", col("k")]),
    "regex": lambda t: t.select("^k|v$"),
    "exclude": lambda t: t.select(pl.exclude("k")),
    "kind": lambda t: t.select(cs.numeric()),
    "one": lambda t: t.select(cs.string()),
    "none beside": lambda t: t.select("k", cs.temporal()),
    "computed": lambda t: t.select((ints * 2).name.prefix("p_"), "w"),
    "with another": lambda t: t.select("w", ints + col("v")),
    "side by side": lambda t: t.select(pl.when(ints > 2).then(ints).otherwise(0)),
    "filled": lambda t: t.select(ints.fill_null(col("v"))),
    "all into one": lambda t: t.select(s=pl.sum_horizontal(ints), c=pl.concat_str(ints, separator=",")),
    "infinite": lambda t: t.select(cs.float().fill_nan(float("inf"))),
    "condition": lambda t: t.where(pl.all_horizontal(ints > 1)),
    "one condition": lambda t: t.where(cs.string() == "a"),
    "with_columns": lambda t: t.with_columns(col("k") * 2, z=pl.lit(1), v="v + 1"),
    "with_columns of a kind": lambda t: t.with_columns(ints + 10),
    "drop": lambda t: t.drop("k", "w"),
    "drop a kind": lambda t: t.drop(cs.numeric()),
    "rename": lambda t: t.rename({"k": "v", "v": "k"}),
    "rename by a function": lambda t: t.rename(str.upper),
    "filter": lambda t: t.filter("k > 1", col("v") == 4),
    "group_by": lambda t: t.group_by(cs.string(), "k").agg(n=dd.count(), s=dd.sum(cs.by_name("v"))),
}


@pytest.mark.parametrize("name", MAKERS)
def test_as_in_polars(name: str) -> None:
    def program(t: Any) -> Any:
        return {"out": MAKERS[name](t)}

    for fold in (folding.whole, folding.one_time_each):
        assert fold(program, t=ROWS) == folding.by_reference(program, t=ROWS)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("star and more", ["k", "v", "w", "f", "n"]), ("two", ["v", "k"]), ("kind", ["k", "v", "f"]),
        ("computed", ["p_k", "p_v", "w"]), ("with_columns", ["k", "v", "w", "f", "z"]), ("drop", ["v", "f"]),
        ("rename", ["v", "k", "w", "f"]), ("rename by a function", ["K", "V", "W", "F"]), ("exclude", ["v", "w", "f"]),
    ],
)  # fmt: skip
def test_columns_are_those_of_polars(name: str, wanted: list[str]) -> None:
    assert dd.replay(lambda t: {"out": MAKERS[name](t)}, t=ROWS)["out"].columns == [*wanted, "version", "diff"]


def test_places_count_in_the_schema() -> None:
    log = dd.replay(lambda t: {"out": t.select(pl.last(), pl.nth(0))}, t=ROWS)["out"]
    assert log.columns == ["f", "k", "version", "diff"]


def test_the_same_columns_are_the_same_collection() -> None:
    """However they are spelled: what is equal is computed once."""
    nodes: list[Any] = []

    def program(t: Any) -> Any:
        nodes.extend(item._node for item in (t.select("*"), t.select(pl.all()), t.select("k", "v", "w", "f")))
        return {"out": t}

    dd.replay(program, t=ROWS)
    assert nodes[0] is nodes[1] is nodes[2]


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "twice": (lambda t: t.select("*", "k"), "two columns are called k"),
    "one name for many": (lambda t: t.select(x=pl.all()), "stands for 4 columns: k, v, w, f"),
    "a sum": (lambda t: t.select(pl.all().sum()), "it uses sum"),
    "no such": (lambda t: t.select(pl.col("k", "vv")), '"vv" not found'),
    "uneven": (lambda t: t.select(pl.all() + pl.col("k", "v")), "different number of columns"),
    "nothing": (lambda t: t.select(cs.temporal()), "leaves no column"),
    "many conditions": (lambda t: t.where(ints > 1), "stands for 2 columns: k, v"),
    "unknown to drop": (lambda t: t.drop("kk"), "no column kk"),
    "all dropped": (lambda t: t.drop("*"), "leaves no column"),
    "a sum to drop": (lambda t: t.drop(col("k") + 1), "is no column"),
    "unknown to rename": (lambda t: t.rename({"kk": "x"}), "no column kk"),
    "renamed onto another": (lambda t: t.rename({"k": "v"}), "two columns are called v"),
    "renamed to a number": (lambda t: t.rename({"k": 3}), "cannot be called 3"),
    "renamed to nothing": (lambda t: t.rename({"k": ""}), "a column has no name"),
    "a key twice": (lambda t: t.group_by("k", "k").agg(n=dd.count()), "k is named twice"),
    "a key twice by kind": (lambda t: t.group_by("k", cs.integer()).agg(n=dd.count()), "k is named twice"),
    "many to sum": (lambda t: t.group_by().agg(s=dd.sum(ints)), "stands for 2 columns"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_line(name: str) -> None:
    make, says = REFUSED[name]
    with pytest.raises(ProgramError) as caught:
        dd.replay(lambda t: {"out": make(t)}, t=ROWS)
    assert caught.value.message.startswith("test_selection.py:") and says in caught.value.message
    assert "\n" not in caught.value.message
