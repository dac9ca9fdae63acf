"""The acceptance cases with a loop, by their differences at (version, round), as ``inspect`` keeps them.

T25 to T30 are in test_inspect.py. Where a design text gives no differences by round, those here follow from the body by
hand, and the reference computes them again: it is one of the ways to fold.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from folding import Fold
from notation import frame, log, pair
from test_inspect import inner
from test_semantics import same

import ddcore as dd
from ddcore import col

Differences = dict[tuple[Any, Any], int]


def summed(differences: Differences) -> Differences:
    """Over all rounds: what leaves the loop."""
    total: Counter[Any] = Counter()
    for (row, time), diff in differences.items():
        total[row, time[:1]] += diff
    return {update: diff for update, diff in total.items() if diff}


def trimmed(candidates: Any, graph: Any, name: str) -> Any:
    """The edges of ``graph`` between nodes with one label, turned; labels spread along ``candidates``."""
    labels = graph.select(node="dst", label="dst").distinct()

    def spread(reached: Any) -> Any:
        hops = reached.join(candidates, on={"node": "src"}).select(node="dst", label="label")
        return hops.concat(labels).group_by("node").agg(label=dd.min("label")).inspect(name)

    actual = labels.iterate(spread)
    ends = graph.join(actual, on={"src": "node"}).join(actual, on={"dst": "node"})
    return ends.where("label = label_right").select(src="dst", dst="src")


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ("12,21,23,34,43:+1@0 43:-1@1 41:+1@2", "12,21,34,43:+1@0 34,43:-1@1 23,34,41:+1@2"),
        ("12,23,34,45,56,42:+1@0 64:+1@1", "23,34,42:+1@0 45,56,64:+1@1"),
    ],
    ids=["T31", "T32"],
)
def test_T31_T32_strongly_connected(fold: Fold, edges: str, expected: str) -> None:
    """The loop around and those inside of it: what an inner loop gives in a round is the sum of its rounds."""

    def program(edges: Any) -> dict[str, Any]:
        turned = edges.select(src="dst", dst="src")

        def body(w: Any) -> Any:
            return trimmed(trimmed(w, edges, "there"), turned, "back").inspect("inner")

        return {"out": edges.iterate(body)}

    logs = fold(program, edges=frame("src dst", edges, pair))
    same(logs["out"], log(expected, pair))
    same(summed(inner(logs)), logs["out"])
    for name in ("there", "back"):
        differences = inner(logs, 2, name)
        assert {0, 1} <= {time[2] for _, time in differences}
        assert all(len(time) == 3 for _, time in differences)


def two_core(edges: Any) -> dict[str, Any]:
    def body(core: Any) -> Any:
        ends = core.select(node="src").concat(core.select(node="dst"))
        kept = ends.group_by("node").agg(degree=dd.count()).where("degree >= 2").select("node")
        return core.join(kept, on={"src": "node"}).join(kept, on={"dst": "node"}).inspect("inner")

    return {"out": edges.iterate(body)}


def test_T33_two_core(fold: Fold) -> None:
    logs = fold(two_core, edges=frame("src dst", "12,23,31,34:+1@0 41:+1@1 31:-1@2", pair))
    same(inner(logs), log("12,23,31:+1@(0,0) 34,41:+1@(1,0) 31:-1@(2,0)", pair))
    same(summed(inner(logs)), logs["out"])


def test_T33_a_path_loses_an_edge_at_each_end_in_every_round(fold: Fold) -> None:
    logs = fold(two_core, edges=frame("src dst", "12,23,34,45,56:+1@0 61:+1@1", pair))
    first = "23,34,45:+1@(0,0) 23,45:-1@(0,1) 34:-1@(0,2)"
    second = "12,56,61:+1@(1,0) 23,45:+1@(1,1) 34:+1@(1,2)"
    same(inner(logs), log(f"{first} {second}", pair))
    same(logs["out"], log("12,23,34,45,56,61:+1@1", pair))


def components(priority: Any) -> Any:
    def program(edges: Any) -> dict[str, Any]:
        both = edges.concat(edges.select(src="dst", dst="src"))
        own = both.select(node="src", label="src").distinct()

        def body(labels: Any) -> Any:
            hops = labels.join(both, on={"node": "src"}).select(node="dst", label="label")
            return hops.concat(labels).group_by("node").agg(label=dd.min("label")).inspect("inner")

        return {"out": own.iterate(body, priority=priority)}

    return program


LABELLED = "11,21,31,44,54:+1@0 44,54:-1,41,51:+1@1 11,21,31,41,51:-1,22,32,42,52:+1@2"


def test_T34_labels_by_round(fold: Fold) -> None:
    """A label of a node that has gone comes back with it: labels are passed on from what the source holds now."""
    own = "src dst", "12,23,45:+1@0 34:+1@1"
    logs = fold(components(None), edges=frame(*own, pair))
    first = "11,21,32,44,54:+1@(0,0) 32:-1,31:+1@(0,1)"
    second = "44:-1,43:+1@(1,0) 43:-1,54:-1,42:+1,53:+1@(1,1) 42:-1,53:-1,41:+1,52:+1@(1,2) 52:-1,51:+1@(1,3)"
    same(inner(logs), log(f"{first} {second}", pair))
    same(logs["out"], log("11,21,31,44,54:+1@0 44,54:-1,41,51:+1@1", pair))


def test_T36_recursion_as_a_bag(fold: Fold) -> None:
    def program(ones: Any) -> dict[str, Any]:
        return {"out": ones.iterate(lambda w: w.where("n < 100").select(n="n + 1").concat(ones).inspect("inner"))}

    logs = fold(program, ones=frame("n", "1:+1@0"))
    rounds = " ".join(f"{number + 2}:+1@(0,{number})" for number in range(99))
    same(inner(logs), log(f"1:+1@(0,0) {rounds}"))
    assert sum(n * diff for ((n,), _), diff in logs["out"].items()) == 5050


@pytest.mark.parametrize("turned", [False, True])
def test_T39_both_variables_by_round(fold: Fold, turned: bool) -> None:
    """In each round a variable is what the other was in the round before, in whatever order the body has them."""

    def program(a: Any, b: Any) -> Any:
        def body(x: Any, y: Any) -> Any:
            swapped = {"x": y.inspect("of_x"), "y": x.inspect("of_y")}
            return dict(reversed(swapped.items())) if turned else swapped

        return dd.iterate({"x": a, "y": b}, body, max_rounds=3, at_limit="return")

    logs = fold(program, a=frame("k", "a:+1@0"), b=frame("k", "b:+1@0"))
    same(inner(logs, name="of_x"), log("b:+1@(0,0) b:-1,a:+1@(0,1) a:-1,b:+1@(0,2)"))
    same(inner(logs, name="of_y"), log("a:+1@(0,0) a:-1,b:+1@(0,1) b:-1,a:+1@(0,2)"))


def test_T40_a_path_of_two_ways(fold: Fold) -> None:
    def program(edges: Any, seeds: Any) -> dict[str, Any]:
        def body(labels: Any) -> Any:
            hops = labels.join(edges, on={"node": "src"}).select(node="dst", label="label")
            return hops.concat(seeds).inspect("inner")

        return {"out": seeds.iterate(body)}

    logs = fold(program, edges=frame("src dst", "12,13,24,34:+1@0", pair), seeds=frame("node label", "(1,0):+1@0"))
    same(inner(logs), log("(1,0),(2,0),(3,0):+1@(0,0) (4,0):+2@(0,1)"))


def test_T24_by_round_too(fold: Fold) -> None:
    """However a history is cut: literal differences of a loop with several versions, which every way to fold gives."""

    def program(start: Any) -> dict[str, Any]:
        def body(w: Any) -> Any:
            return w.where(col("n") > 0).select(n=col("n") - 1).concat(start).distinct().inspect("inner")

        return {"out": start.iterate(body)}

    logs = fold(program, start=frame("n", "2:+1@0 3:+1@1 2:-1@2 3:-1@3"))
    first = "1,2:+1@(0,0) 0:+1@(0,1)"
    same(
        inner(logs),
        log(f"{first} 3:+1@(1,0) 1:-1@(2,0) 1:+1@(2,1) 0:-1@(2,1) 0:+1@(2,2) 3,2:-1@(3,0) 1:-1@(3,1) 0:-1@(3,2)"),
    )
