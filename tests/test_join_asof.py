"""``join_asof``: literal cases, and how few rows a new partner reads. Random programs compare it with the reference."""

from __future__ import annotations

from typing import Any

import pytest
from folding import Fold
from notation import frame, log
from test_semantics import same

import ddcore as dd

TRADES = "(a,1),(a,3),(a,5),(b,3),(null,3),(a,null):+1@0"
QUOTES = "(a,1,x),(a,3,y),(a,4,z),(b,4,v),(null,1,n),(a,null,m):+1@0"


def nearest(**how: Any) -> Any:
    def program(trades: dd.Collection, quotes: dd.Collection) -> dict[str, dd.Collection]:
        return {"out": trades.join_asof(quotes, "t", "s", on="k", **how).select("k", "t", "q")}

    return program


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, "(a,1,x),(a,3,y),(a,5,z)"),
        ({"exact": False}, "(a,3,x),(a,5,z)"),
        ({"direction": "forward"}, "(a,1,x),(a,3,y),(b,3,v)"),
        ({"direction": "forward", "exact": False}, "(a,1,y),(a,3,z),(b,3,v)"),
        ({"how": "left"}, "(a,1,x),(a,3,y),(a,5,z),(b,3,null),(null,3,null),(a,null,null)"),
    ],
)
def test_the_nearest_row(fold: Fold, how: dict[str, Any], expected: str) -> None:
    actual = fold(nearest(**how), trades=frame("k t", TRADES), quotes=frame("k s q", QUOTES))
    same(actual["out"], log(f"{expected}:+1@0"))


def test_a_nearer_row_comes_and_goes(fold: Fold) -> None:
    quotes = frame("k s q", "(a,1,x):+1@0 (a,2,y):+1@1 (a,2,y):-1@2 (a,1,x):-1@3")
    actual = fold(nearest(how="left"), trades=frame("k t", "(a,1),(a,3):+1@0"), quotes=quotes)
    changed = "(a,3,y):+1@1 (a,3,x):-1@1 (a,3,x):+1@2 (a,3,y):-1@2"
    gone = "(a,1,null),(a,3,null):+1@3 (a,1,x),(a,3,x):-1@3"
    same(actual["out"], log(f"(a,1,x),(a,3,x):+1@0 {changed} {gone}"))


def test_of_equal_values_the_least_row_is_the_partner_once(fold: Fold) -> None:
    quotes = frame("k s q", "(a,1,y),(a,1,null),(a,1,z):+1@0 (a,1,x):+3@1 (a,1,x):-3@2")
    actual = fold(nearest(), trades=frame("k t", "(a,2):+2@0"), quotes=quotes)
    same(actual["out"], log("(a,2,y):+2@0 (a,2,x):+2@1 (a,2,y):-2@1 (a,2,x):-2@2 (a,2,y):+2@2"))


def test_names_that_both_sides_have_get_a_suffix(fold: Fold) -> None:
    def program(left: dd.Collection, right: dd.Collection) -> dict[str, dd.Collection]:
        joined = left.join_asof(right, "t")
        assert list(joined.columns) == ["t", "v", "t_right", "v_right"]
        return {"out": joined}

    actual = fold(program, left=frame("t v", "(3,7):+1@0"), right=frame("t v", "(2,8),(4,9):+1@0"))
    same(actual["out"], log("(3,7,2,8):+1@0"))
