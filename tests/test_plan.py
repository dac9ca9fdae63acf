"""Plans: what is shared, what stands where; small programs of odd shape against the reference."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import folding
import polars as pl
import pytest
from notation import frame

import ddcore as dd
from ddcore.errors import Diverged
from ddcore.jobs.shipping import pickled
from ddcore.planner import build

col = pl.col
EDGES = frame("a b", "(1,2),(2,3),(3,1):+1@0 (3,4),(4,4):+1@1 (2,3):-1@2 (null,1),(1,null):+1@2 (2,3):+2@3")
NODES = frame("a", "1:+1@0 4:+2@1 null:+1@2 4:-2@3 2:+1@3")


def hop(edges: Any) -> Callable[[Any], Any]:
    return lambda w: w.join(edges, on="a").select(a="b").concat(w).distinct()


def reach(edges: Any, nodes: Any) -> Any:
    return nodes.iterate(hop(edges))


def shared_inside_and_outside(edges: Any, nodes: Any) -> Any:
    """One arrangement of an input, for a join outside, in a loop, and in a loop in a loop."""
    inner = nodes.iterate(lambda w: w.join(edges, on="a").select(a="b").concat(w).iterate(hop(edges)).distinct())
    return {"x": inner, "y": reach(edges, nodes), "z": edges.join(nodes, on="a")}


def loop_over_an_outer_collection(edges: Any, nodes: Any) -> Any:
    return {"x": nodes.iterate(lambda w: reach(edges, nodes).concat(w).distinct())}


def same_loop_twice(edges: Any, nodes: Any) -> Any:
    return {"x": reach(edges, nodes).negate().concat(reach(edges, nodes)), "y": reach(edges, nodes)}


def variable_ignored(edges: Any, nodes: Any) -> Any:
    once = edges.group_by("a").agg(n=dd.count()).select("a")
    return {"x": nodes.iterate(lambda w: once), "y": nodes.iterate(lambda w: w), "z": nodes.iterate(lambda w: nodes)}


def with_itself(edges: Any, nodes: Any) -> Any:
    return {
        "join": edges.join(edges, on="a"), "turned": edges.join(edges, on={"a": "b"}), "twice": nodes.concat(nodes),
        "gone": nodes.concat(nodes.negate()), "distinct": nodes.distinct().distinct(),
    }  # fmt: skip


def as_they_are(edges: Any, nodes: Any) -> Any:
    return {"edges": edges, "again": edges, "renamed": nodes.select(node="a"), "nodes": nodes}


def one_group(edges: Any, nodes: Any) -> Any:
    whole = edges.group_by().agg(n=dd.count(), least=dd.min("b"))
    return {"n": whole, "of_n": whole.group_by().agg(n=dd.count()), "loop": nodes.iterate(top)}


def top(w: Any) -> Any:
    """The greatest one joins all of them, once more each round until it is 9."""
    best = w.group_by().agg(a=dd.max("a")).select(a=pl.min_horizontal(col("a") + 1, 9))
    return w.concat(best).distinct()


def nothing_meets(edges: Any, nodes: Any) -> Any:
    none = nodes.where("a > 100")
    return {"x": none.join(edges, on="a"), "y": none.group_by().agg(n=dd.count()), "z": none.iterate(hop(edges))}


PROGRAMS = [
    shared_inside_and_outside, loop_over_an_outer_collection, same_loop_twice, variable_ignored, with_itself,
    as_they_are, one_group, nothing_meets,
]  # fmt: skip


@pytest.mark.parametrize("fold", [folding.whole, folding.one_time_each, folding.randomly_cut])
@pytest.mark.parametrize("program", PROGRAMS)
def test_odd_shapes(program: Any, fold: folding.Fold) -> None:
    assert fold(program, edges=EDGES, nodes=NODES) == folding.by_reference(program, edges=EDGES, nodes=NODES)


def test_nothing_at_all() -> None:
    for program in PROGRAMS:
        assert all(len(log) == 0 for log in dd.replay(program, edges=EDGES.clear(), nodes=NODES.clear()).values())


def test_equal_loops_and_arrangements_are_one() -> None:
    schemas = {"edges": {"a": "int64", "b": "int64"}, "nodes": {"a": "int64"}}
    assert len([b for b in build(same_loop_twice, schemas).blocks if b.op == "join"]) == 1
    plan = build(shared_inside_and_outside, schemas)
    assert len({a.fingerprint for a in plan.arrangements}) == len(plan.arrangements)
    assert len([a for a in plan.arrangements if a.node == plan.sources["edges"] and not a.transient]) == 1


@pytest.mark.parametrize("rounds", [3, 4, 5, 6])
def test_the_last_round_allowed_is_the_reference_s(rounds: int) -> None:
    """A path of five needs six rounds to say that nothing changed; also where a filter lies before all state."""
    path = frame("a b", "(1,2),(2,3),(3,4),(4,5),(5,6):+1@0 (6,1):+1@2 (5,6):-1@3")
    start = frame("a", "1:+1@0")

    def program(edges: Any, nodes: Any) -> Any:
        def body(w: Any) -> Any:
            return w.where("a < 5").join(edges, on="a").select(a="b").concat(nodes).distinct()

        return {"x": nodes.iterate(body, max_rounds=rounds)}

    found: list[Any] = []
    for fold in (folding.by_reference, folding.whole):
        try:
            found.append(fold(program, edges=path, nodes=start))
        except Diverged:
            found.append(Diverged)
    assert found[0] == found[1]


def test_long_programs() -> None:
    def program(t: Any) -> Any:
        for number in range(500):
            t = t.select(a=col("a") + number)
        return {"x": t}

    log = dd.replay(program, t=frame("a", "1:+1@0"))["x"]
    assert log.rows() == [(1 + sum(range(500)), 0, 1)]


def test_a_plan_of_hundreds_of_operators_travels() -> None:
    def program(t: Any) -> Any:
        found = t
        for number in range(100):
            found = found.join(t.select("a", b=number), on="a").select("a").distinct()
        return {"x": found}

    plan = build(program, {"t": {"a": "int64"}})
    assert len(pickle.loads(pickled(plan)).blocks) == len(plan.blocks)
