"""The acceptance cases about loops that the others do not have: priorities, and variables that advance together."""

from __future__ import annotations

from itertools import product
from typing import Any

import polars as pl
import pytest
from folding import Fold
from notation import frame, log, pair
from test_semantics import same

import ddcore as dd
from ddcore import col
from ddcore.base.schema import parse_schema
from ddcore.data.encoding import encode_frame
from ddcore.operators.priority import Priority, round_of
from ddcore.traces.batch import Batch

Pair = tuple[int, int]


def coordinates(priorities: list[int]) -> list[int]:
    """The loop coordinates at which rows with these priorities enter."""
    schema = parse_schema({"p": "int64"})
    words = encode_frame(pl.DataFrame({"p": priorities}), schema)
    batch = Batch(list(words), [], pl.Series([1] * len(priorities)).to_numpy())
    return [int(coordinate) for coordinate in Priority.of(col("p"), schema).coordinates(batch, "here")]


def packed(at: Pair) -> int:
    """A pair of priority and round as the one coordinate of a loop."""
    return coordinates([at[0]])[0] + at[1]


def test_T35_joins_are_lexicographic() -> None:
    assert max(packed((0, 7)), packed((1, 0))) == packed((1, 0))
    times = [(1, packed((0, 3))), (0, packed((1, 1)))]
    assert tuple(map(max, zip(*times, strict=True))) == (1, packed((1, 1)))


def test_T35_the_order_of_coordinates_is_that_of_priority_and_round() -> None:
    priorities, rounds = [-(2**29), -7, -1, 0, 1, 2**29 - 1], [0, 1, 7, 70_000, 2**32 - 1]
    pairs = list(product(priorities, rounds))
    assert [packed(at) for at in pairs] == sorted(packed(at) for at in pairs)
    assert len({packed(at) for at in pairs}) == len(pairs)
    assert [round_of(packed(at)) for at in pairs] == [at[1] for at in pairs]
    assert round_of(0) == 0 < packed((priorities[0], 0))


def test_T35_a_row_of_low_priority_waits_for_the_rounds_of_the_others(fold: Fold) -> None:
    """The row of priority 1 arrives when the one of priority 0 has gone round seven times; the log does not show it."""

    def program(start: Any) -> Any:
        def body(w: Any) -> Any:
            return w.select("p", n=pl.min_horizontal(col("n") + 1, 8)).concat(w).distinct()

        return {"out": start.iterate(body, priority="p").group_by("p").agg(most=dd.max("n"), rows=dd.count())}

    start = frame("p n", "(0,1):+1@0 (1,8):+1@0 (1,8):-1@1 (1,7):+1@2")
    same(fold(program, start=start)["out"], log("(0,8,8):+1@0 (1,8,1):+1@0 (1,8,1):-1@1 (1,8,2):+1@2"))


SWAPPED = [(1, "a", "b"), (2, "b", "a"), (3, "a", "b")]


@pytest.mark.parametrize(("rounds", "x", "y"), SWAPPED)
@pytest.mark.parametrize("turned", [False, True])
def test_T39_variables_advance_together(fold: Fold, rounds: int, x: str, y: str, turned: bool) -> None:
    """Each takes the other's last round, in whatever order the body computes them: after one round they are swapped."""

    def body(x: Any, y: Any) -> Any:
        swapped = {"x": y, "y": x}
        return dict(reversed(swapped.items())) if turned else swapped

    def program(a: Any, b: Any) -> Any:
        both = dd.iterate({"x": a, "y": b}, body, max_rounds=rounds, at_limit="return")
        return both

    actual = fold(program, a=frame("k", "b:+1@0"), b=frame("k", "a:+1@1"))
    times = {"a": 1, "b": 0}
    same(actual["x"], log(f"{x}:+1@{times[x]}"))
    same(actual["y"], log(f"{y}:+1@{times[y]}"))


def test_T39_the_fixed_point_is_that_of_one_after_the_other(fold: Fold) -> None:
    def program(edges: Any, roots: Any) -> Any:
        def together(near: Any, far: Any) -> Any:
            onward = far.join(edges, on={"node": "src"}).select(node="dst")
            return {"near": near.concat(far).distinct(), "far": onward.concat(near).distinct()}

        def alone(seen: Any) -> Any:
            return seen.join(edges, on={"node": "src"}).select(node="dst").concat(seen).distinct()

        start = {"near": roots, "far": roots}
        return {"together": dd.iterate(start, together)["near"], "alone": roots.iterate(alone)}

    edges = frame("src dst", "ab,bc,cd:+1@0 bd:+1@1 cd:-1@2", pair)
    actual = fold(program, edges=edges, roots=frame("node", "a:+1@0"))
    same(actual["alone"], log("a,b,c,d:+1@0"))
    same(actual["together"], actual["alone"])
