"""The acceptance cases, by their numbers, each by every way to fold (see conftest.py).

More of them: compaction and frontiers in test_semantics_compaction.py, loops in test_semantics_loops.py, several
collections in test_operators.py.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import folding
import numpy as np
import polars as pl
import pytest
from folding import Fold
from notation import DIMS, frame, log, pair, spell

import ddcore as dd
from ddcore import reference
from ddcore.base import lattice
from ddcore.base.errors import Diverged, LateUpdate, NegativeMultiplicity
from ddcore.traces.consolidation import arrange

col = pl.col


def same(actual: Any, expected: Any) -> None:
    """Fails with both logs spelled out."""
    assert actual == expected, f"\nfound\n{spell(actual)}\nexpected\n{spell(expected)}"


def counted(words: Any) -> dict[str, Any]:
    return {"out": words.group_by("k").agg(n=dd.count())}


def least(words: Any) -> dict[str, Any]:
    return {"out": words.group_by("k").agg(v=dd.min("v"))}


def distinct(words: Any) -> dict[str, Any]:
    return {"out": words.distinct()}


# 1. Times that matter, closed under join


def test_T01_distinct(fold: Fold) -> None:
    words = frame("k", "cat:+1@(0,3) cat:+1@(1,2)")
    same(fold(distinct, words=words)["out"], log("cat:+1@(0,3) cat:+1@(1,2) cat:-1@(1,3)"))


THREE = "k:+1@(1,0,0) k:+1@(0,1,0) k:+1@(0,0,1)"


def test_T02_distinct_over_three_coordinates(fold: Fold) -> None:
    expected = f"{THREE} k:-1@(1,1,0) k:-1@(1,0,1) k:-1@(0,1,1) k:+1@(1,1,1)"
    same(fold(distinct, words=frame("k", THREE))["out"], log(expected))


def test_T02_count_over_three_coordinates(fold: Fold) -> None:
    singles = "(k,1):+1@(1,0,0) (k,1):+1@(0,1,0) (k,1):+1@(0,0,1)"
    pairs = " ".join(f"(k,1):-2,(k,2):+1@{time}" for time in ("(1,1,0)", "(1,0,1)", "(0,1,1)"))
    expected = log(f"{singles} {pairs} (k,1):+3,(k,2):-3,(k,3):+1@(1,1,1)")
    same(fold(counted, words=frame("k", THREE))["out"], expected)


def at_least_two(words: Any) -> dict[str, Any]:
    return {"out": words.group_by("k").agg(n=dd.count()).where("n >= 2").select("k")}


def test_T03_silent_constituents(fold: Fold) -> None:
    same(fold(at_least_two, words=frame("k", "k:+1@(1,0) k:+1@(0,1)"))["out"], log("k:+1@(1,1)"))


def test_T03_what_is_owed_beyond_the_upper() -> None:
    session = dd.Session(at_least_two, schemas={"words": {"k": "string"}}, dims=DIMS[2])
    first = session.fold({"words": frame("k", "k:+1@(1,0) k:+1@(0,1)")}, upper=[(1, 1)])
    assert reference.log_of(first["out"], DIMS[2]) == {}
    second = session.fold({}, upper=[(2, 0), (0, 2)])
    assert reference.log_of(second["out"], DIMS[2]) == log("k:+1@(1,1)")
    assert reference.log_of(session.fold({})["out"], DIMS[2]) == {}


CANCELLING = "(k,x):+2@(0,0) (k,x):+1@(1,0) (k,x):-1@(0,1)"
BEFORE_11 = "(k,2):+1@(0,0) (k,2):-1,(k,3):+1@(1,0) (k,2):-1,(k,1):+1@(0,1)"
AT_11 = "(k,2):+2,(k,3):-1,(k,1):-1@(1,1)"


def test_T04_pending_survives_cancellation(fold: Fold) -> None:
    same(fold(counted, words=frame("k v", CANCELLING))["out"], log(f"{BEFORE_11} {AT_11}"))


def test_T04_what_is_owed_beyond_the_upper() -> None:
    session = dd.Session(counted, schemas={"words": {"k": "string", "v": "string"}}, dims=DIMS[2])
    first = session.fold({"words": frame("k v", CANCELLING)}, upper=[(1, 1)])
    assert reference.log_of(first["out"], DIMS[2]) == log(BEFORE_11)
    second = session.fold({}, upper=[(2, 2)])
    assert reference.log_of(second["out"], DIMS[2]) == log(AT_11)


def test_T05_min_over_two_axes(fold: Fold) -> None:
    words = frame("k v", "(a,5):+1@(0,1) (a,3):+1@(1,0) (a,3):-1@(2,0)")
    expected = "(a,5):+1@(0,1) (a,3):+1@(1,0) (a,5):-1@(1,1) (a,3):-1@(2,0) (a,5):+1@(2,1)"
    same(fold(least, words=words)["out"], log(expected))


def test_T06_bitemporal_count(fold: Fold) -> None:
    words = frame("k v", "(k,a):+1@(0,0) (k,b):+1@(0,2) (k,a):-1@(1,1)")
    actual = fold(counted, words=words)["out"]
    same(actual, log("(k,1):+1@(0,0) (k,1):-1,(k,2):+1@(0,2) (k,1):-1@(1,1) (k,1):+2,(k,2):-1@(1,2)"))
    spelled = pl.DataFrame([(*row, *time, diff) for (row, time), diff in actual.items()], orient="row")
    spelled.columns = ["k", "n", *DIMS[2], "diff"]
    assert reference.accumulate(spelled, (1, 1), DIMS[2]) == {}
    assert reference.accumulate(spelled, (1, 2), DIMS[2]) == {("k", 1): 1}


# 2. Reduce


@pytest.mark.parametrize("how", ["count", "sum", "min", "max"])
def test_T07_empty_group(fold: Fold, how: str) -> None:
    def aggregated(words: Any) -> dict[str, Any]:
        aggregate = dd.count() if how == "count" else getattr(dd, how)("v")
        return {"out": words.group_by("k").agg(n=aggregate)}

    words = frame("k v", "(k,1):+1@0 (k,1):-1@1")
    same(fold(aggregated, words=words)["out"], log("(k,1):+1@0 (k,1):-1@1"))


def test_T08_consolidate_before_the_function(fold: Fold) -> None:
    words = frame("k v", "(k,5),(k,3):+1@0 (k,3):-1@1")
    same(fold(least, words=words)["out"], log("(k,3):+1@0 (k,3):-1,(k,5):+1@1"))


def test_T09_reduce_may_give_counts(fold: Fold) -> None:
    def smallest(groups: pl.DataFrame) -> pl.DataFrame:
        return groups.group_by("group").agg(v=col("v").min(), count=pl.len().cast(pl.Int64))

    def program(pairs: Any) -> dict[str, Any]:
        return {"out": pairs.group_by("k").reduce(smallest, {"v": "int64"})}

    pairs = frame("k v", "(0,0):+1@0 (1,2):+1@0 (1,1):+1@0")
    same(fold(program, pairs=pairs)["out"], log("(0,0):+1,(1,1):+2@0"))


def test_T09_reduce_follows_its_group(fold: Fold) -> None:
    def largest(groups: pl.DataFrame) -> pl.DataFrame:
        return groups.group_by("group").agg(v=col("v").max(), count=col("count").sum())

    def program(pairs: Any) -> dict[str, Any]:
        return {"out": pairs.group_by("k").reduce(largest, {"v": "int64"})}

    pairs = frame("k v", "(1,2):+2@0 (1,7):+1@1 (1,2):-2@2 (1,7):-1@3")
    same(fold(program, pairs=pairs)["out"], log("(1,2):+2@0 (1,2):-2,(1,7):+3@1 (1,7):-2@2 (1,7):-1@3"))


# 3. Join


def test_T11_join_time_and_weight(fold: Fold) -> None:
    a = frame("k v", "(k,x):+2@(1,0)")
    b = frame("k u", "(k,y):+3@(0,1) (k,y):-3@(2,2)")
    actual = fold(lambda a, b: {"out": a.join(b, on="k")}, a=a, b=b)["out"]
    same(actual, log("(k,x,y):+6@(1,1) (k,x,y):-6@(2,2)"))


def test_T11_self_join(fold: Fold) -> None:
    a = frame("k v", "(k,v):+1@0 (k,v):+1@1 (k,v):-2@2")
    actual = fold(lambda a: {"out": a.join(a, on="k").select("k", "v")}, a=a)["out"]
    same(actual, log("(k,v):+1@0 (k,v):+3@1 (k,v):-4@2"))


# 4. Closed times


@pytest.mark.parametrize(("time", "late"), [("(2,0)", True), ("(0,2)", True), ("(1,2)", False), ("(1,1)", False)])
def test_T21_late_at_two_coordinates(time: str, late: bool) -> None:
    session = dd.Session(distinct, schemas={"words": {"k": "string"}}, dims=DIMS[2])
    session.fold({"words": frame("k", "cat:+1@(0,1)")}, upper=[(1, 1)])
    with pytest.raises(LateUpdate) if late else contextlib.nullcontext():
        session.fold({"words": frame("k", f"dog:+1@{time}")})


# 5. Loops


def reach(edges: Any, roots: Any) -> dict[str, Any]:
    def body(seen: Any) -> Any:
        return seen.join(edges, on={"node": "src"}).select(node="dst").concat(roots).distinct()

    return {"out": roots.iterate(body)}


def test_T25_reach(fold: Fold) -> None:
    edges = frame("src dst", "ab,bc,cd:+1@0 ab:-1,ac:+1@1 cd:-1@2", pair)
    actual = fold(reach, edges=edges, roots=frame("node", "a:+1@0"))["out"]
    same(actual, log("a,b,c,d:+1@0 b:-1@1 d:-1@2"))


def test_T26_transitive_closure(fold: Fold) -> None:
    def program(edges: Any) -> dict[str, Any]:
        def body(pairs: Any) -> Any:
            return pairs.join(edges, on={"dst": "src"}).select("src", dst="dst_right").concat(edges).distinct()

        return {"out": edges.where("false").iterate(body), "same": edges.iterate(body)}

    actual = fold(program, edges=frame("src dst", "ab,bc,bd,ca:+1@0 bc:-1@1", pair))
    same(actual["out"], log("ab,bc,bd,ca,ac,ad,ba,cb,aa,bb,cc,cd:+1@0 bc,ac,ba,aa,bb,cc:-1@1", pair))
    same(actual["same"], actual["out"])


def distances(edges: Any, seeds: Any) -> dict[str, Any]:
    def relax(dists: Any) -> Any:
        hops = dists.join(edges, on={"node": "src"}).select(node="dst", dist=col("dist") + 1)
        return hops.concat(seeds).group_by("node").agg(dist=dd.min("dist"))

    return {"out": seeds.iterate(relax)}


def test_T27_distances(fold: Fold) -> None:
    edges = frame("src dst", "ab,bc,cd:+1@0 ad:+1@1 bc:-1@2", pair)
    actual = fold(distances, edges=edges, seeds=frame("node dist", "(a,0):+1@0"))["out"]
    same(actual, log("(a,0),(b,1),(c,2),(d,3):+1@0 (d,3):-1,(d,1):+1@1 (c,2):-1@2"))


def test_T28_published_distances(fold: Fold) -> None:
    # The edge 12 is there twice from version 3 on.
    history = "11,21,01,02,10:+1@0 20:+1,11:-1@1 12:+1,21:-1@2 12:+1,01:-1@3 21:+1,02:-1@4 02:+1,10:-1@5"
    actual = fold(distances, edges=frame("src dst", history, pair), seeds=frame("node dist", "(0,0):+1@0"))["out"]
    same(actual, log("(0,0),(1,1),(2,1):+1@0 (1,1):-1@3 (2,1):-1@4 (1,2),(2,1):+1@5"))


HALVE = "CASE WHEN x % 2 = 0 THEN x // 2 ELSE x END"


def test_T29_bag_without_distinct(fold: Fold) -> None:
    bag = frame("x", "1,2,3,4,5,6,7,8,9:+1@0 8:-1@1")
    actual = fold(lambda bag: {"out": bag.iterate(lambda w: w.select(x=HALVE))}, bag=bag)["out"]
    same(actual, log("1:+4,3:+2,5:+1,7:+1,9:+1@0 1:-1@1"))


def test_T30_feedback_takes_the_source_back(fold: Fold) -> None:
    bag = frame("x", "8:+2,6:+1@(0,0) 8:-1@(1,0) 4:+3@(0,1) 8:-1@(1,1)")
    actual = fold(
        lambda bag: {"same": bag.iterate(lambda w: w), "out": bag.iterate(lambda w: w.select(x=HALVE))}, bag=bag
    )
    same(actual["same"], log("8:+2,6:+1@(0,0) 8:-1@(1,0) 4:+3@(0,1) 8:-1@(1,1)"))
    same(actual["out"], log("1:+2,3:+1@(0,0) 1:-1@(1,0) 1:+3@(0,1) 1:-1@(1,1)"))


def strongly_connected(edges: Any) -> dict[str, Any]:
    """Edges inside a strongly connected component: drop what leads from one label to another, both ways in turn."""

    def trimmed(candidates: Any, graph: Any) -> Any:
        labels = graph.select(node="dst", label="dst").distinct()

        def spread(reached: Any) -> Any:
            hops = reached.join(candidates, on={"node": "src"}).select(node="dst", label="label")
            return hops.concat(labels).group_by("node").agg(label=dd.min("label"))

        actual = labels.iterate(spread)
        ends = graph.join(actual, on={"src": "node"}).join(actual, on={"dst": "node"})
        return ends.where("label = label_right").select(src="dst", dst="src")

    turned = edges.select(src="dst", dst="src")
    return {"out": edges.iterate(lambda inner: trimmed(trimmed(inner, edges), turned))}


def test_T31_strongly_connected(fold: Fold) -> None:
    edges = frame("src dst", "12,21,23,34,43:+1@0 43:-1@1 41:+1@2", pair)
    actual = fold(strongly_connected, edges=edges)["out"]
    same(actual, log("12,21,34,43:+1@0 34,43:-1@1 23,34,41:+1@2", pair))


def test_T32_components_of_a_path_with_two_ways_back(fold: Fold) -> None:
    path = " ".join(f"({i},{i + 1}):+1@0" for i in range(10))

    def program(edges: Any) -> dict[str, Any]:
        intra = strongly_connected(edges)["out"]
        ends = intra.select(node="src", label="dst").concat(intra.select(node="src", label="src"))
        smallest = ends.iterate(lambda w: passed_on(w, intra))
        nodes = edges.select(node="src").concat(edges.select(node="dst")).distinct()
        alone = nodes.select("node", label="node").concat(smallest).group_by("node").agg(label=dd.min("label"))
        sizes = alone.group_by("label").agg(size=dd.count())
        return {"intra": intra, "sizes": sizes.group_by("size").agg(components=dd.count())}

    def passed_on(labels: Any, intra: Any) -> Any:
        hops = labels.join(intra, on={"node": "src"}).select(node="dst", label="label")
        return hops.concat(labels).group_by("node").agg(label=dd.min("label"))

    actual = fold(program, edges=frame("src dst", f"{path} (4,2):+1@0 (8,6):+1@0"))
    same(actual["intra"], log("23,34,42,67,78,86:+1@0", pair))
    same(actual["sizes"], log("(3,2):+1,(1,5):+1@0"))


def test_T33_two_core(fold: Fold) -> None:
    def program(edges: Any) -> dict[str, Any]:
        def body(core: Any) -> Any:
            ends = core.select(node="src").concat(core.select(node="dst"))
            kept = ends.group_by("node").agg(degree=dd.count()).where("degree >= 2").select("node")
            return core.join(kept, on={"src": "node"}).join(kept, on={"dst": "node"})

        return {"out": edges.iterate(body)}

    edges = frame("src dst", "12,23,31,34:+1@0 41:+1@1 31:-1@2", pair)
    same(fold(program, edges=edges)["out"], log("12,23,31:+1@0 34,41:+1@1 31:-1@2", pair))


def test_T34_components_by_least_label(fold: Fold) -> None:
    def program(edges: Any) -> dict[str, Any]:
        both = edges.concat(edges.select(src="dst", dst="src"))
        own = both.select(node="src", label="src").distinct()

        def body(labels: Any) -> Any:
            hops = labels.join(both, on={"node": "src"}).select(node="dst", label="label")
            return hops.concat(own).group_by("node").agg(label=dd.min("label"))

        return {"out": own.iterate(body)}

    actual = fold(program, edges=frame("src dst", "12,23,45:+1@0 34:+1@1 12:-1@2", pair))["out"]
    same(
        actual,
        log(
            "11,21,31,44,54:+1@0 44,54:-1,41,51:+1@1 11,21,31,41,51:-1,22,32,42,52:+1@2",
            pair,
        ),
    )


def test_T36_recursion_as_a_bag(fold: Fold) -> None:
    def program(ones: Any) -> dict[str, Any]:
        numbers = ones.iterate(lambda w: w.where("n < 100").select(n="n + 1").concat(ones))
        return {"out": numbers.group_by().agg(total=dd.sum("n"))}

    same(fold(program, ones=frame("n", "1:+1@0"))["out"], log("5050:+1@0"))


def test_T36_sums_of_pairs(fold: Fold) -> None:
    def program(ones: Any) -> dict[str, Any]:
        def body(numbers: Any) -> Any:
            small = numbers.where("n <= 256").select("n", one=1)
            return small.join(small, on="one").select(n="n + n_right").distinct().concat(ones)

        return {"out": ones.iterate(body).group_by().agg(rows=dd.count(), most=dd.max("n"))}

    same(fold(program, ones=frame("n", "1:+1@0"))["out"], log("(512,512):+1@0"))


def test_T37_loop_that_swings(fold: Fold) -> None:
    def flip(w: Any) -> Any:
        return w.select(x=1 - col("x"))

    with pytest.raises(Diverged, match="flip") as caught:
        fold(lambda x: {"out": x.iterate(flip, max_rounds=20)}, x=frame("x", "5:+1@0 5:-1@1 0:+1@2"))
    assert (caught.value.time[0], caught.value.moving) == (0, 2)


def test_T37_names_the_version_that_swings(fold: Fold) -> None:
    def flip(w: Any) -> Any:
        return w.select(x=pl.when(col("x") < 2).then(1 - col("x")).otherwise(col("x")))

    with pytest.raises(Diverged) as caught:
        fold(lambda x: {"out": x.iterate(flip, max_rounds=20)}, x=frame("x", "5:+1@0 0:+1@2 7:+1@3"))
    assert (caught.value.time[0], caught.value.moving) == (2, 2)


def test_T37_names_the_time_of_several_dimensions() -> None:
    numbers = pl.DataFrame({"x": [0], "day": [3], "revision": [1], "diff": [1]})
    with pytest.raises(Diverged, match=r"at day=3,revision=1, round 5, 2 differences still move") as caught:
        dd.replay(
            lambda n: {"out": n.iterate(lambda w: w.select(x=1 - pl.col("x")), max_rounds=5)},
            dims=("day", "revision"),
            n=numbers,
        )
    assert caught.value.time[:2] == (3, 1)


def test_T38_wide_coordinates(fold: Fold) -> None:
    far = 2**31
    words = frame("k v", f"(k,a):+1@(70000,{far}) (k,b):+1@({far},70000) (k,a):-1@({far + 1},{far + 1})")
    expected = log(
        f"(k,1):+1@(70000,{far}) (k,1):+1@({far},70000) (k,1):-2,(k,2):+1@({far},{far}) "
        f"(k,2):-1,(k,1):+1@({far + 1},{far + 1})"
    )
    same(fold(counted, words=words)["out"], expected)


def test_T38_wide_coordinates_through_a_loop(fold: Fold) -> None:
    edges = frame("src dst", "ab,bc,cd:+1@70000 ab:-1,ac:+1@2147483648 cd:-1@2147483649", pair)
    actual = fold(reach, edges=edges, roots=frame("node", "a:+1@0"))["out"]
    same(actual, log("a:+1@0 b,c,d:+1@70000 b:-1@2147483648 d:-1@2147483649"))


def test_T38_far_rounds_compare_join_and_come_back() -> None:
    near, far = (3, 70_000), (2, 2**31)
    assert lattice.join(near, far) == (3, 2**31)
    assert lattice.meet(near, far) == (2, 70_000)
    assert not lattice.le(near, far)
    assert lattice.le((2, 2**31), (2, 2**31 + 1))
    columns = [np.array(column, dtype=np.int64) for column in zip(far, near, near, strict=True)]
    run = arrange(np.zeros(3, dtype=np.int64), [], columns, np.array([1, 2, -1], dtype=np.int64))
    assert run.times.T.tolist() == [[2, 2**31], [3, 70_000]]
    assert run.diffs.tolist() == [1, 1]


def test_T40_leaving_does_not_deduplicate(fold: Fold) -> None:
    def program(edges: Any, seeds: Any) -> dict[str, Any]:
        def body(labels: Any) -> Any:
            hops = labels.join(edges, on={"node": "src"}).select(node="dst", label="label")
            return hops.concat(seeds)

        return {"out": seeds.iterate(body)}

    actual = fold(program, edges=frame("src dst", "12,13,24,34:+1@0", pair), seeds=frame("node label", "(1,0):+1@0"))
    same(actual["out"], log("(1,0),(2,0),(3,0):+1,(4,0):+2@0"))


# 7. Negative counts

X, Y = frame("w", "x:+1@0"), frame("w", "x:+2@0 x:-1@1 x:-1@2")


def test_T43_except_is_linear(fold: Fold) -> None:
    actual = fold(lambda x, y: {"out": x.concat(y.negate())}, x=X, y=Y)["out"]
    same(actual, log("x:-1@0 x:+1@1 x:+1@2"))


def test_T43_distinct_refuses_a_negative_count(fold: Fold) -> None:
    with pytest.raises(NegativeMultiplicity) as caught:
        fold(lambda x, y: {"out": x.concat(y.negate()).distinct()}, x=X, y=Y)
    error = caught.value
    assert error.op.startswith("distinct")
    assert (error.key, error.time, error.count) == (("x",), (0,), -1)


def test_T43_distinct_allows_a_negative_count(fold: Fold) -> None:
    actual = fold(lambda x, y: {"out": x.concat(y.negate()).distinct(allow_negative=True)}, x=X, y=Y)["out"]
    same(actual, log("x:+1@2"))


def first_row(groups: pl.DataFrame) -> pl.DataFrame:
    return groups.group_by("group", maintain_order=True).first().select("group", v="w")


REDUCERS = {
    "distinct": lambda rest: rest.distinct(),
    "agg": lambda rest: rest.group_by("w").agg(n=dd.count()),
    "least": lambda rest: rest.group_by().agg(lo=dd.min("w")),
    "top_k": lambda rest: rest.group_by().top_k(1, "w"),
    "reduce": lambda rest: rest.group_by().reduce(first_row, {"v": "string"}),
    "union": lambda rest: rest.union(rest),
    "intersect": lambda rest: rest.intersect(rest),
    "except_": lambda rest: rest.except_(rest),
    "semi": lambda rest: rest.join(rest, on="w", how="semi"),
}
KEYS = {"least": (), "top_k": (), "reduce": ()}


@pytest.mark.parametrize("name", REDUCERS)
def test_T43_every_reducer_refuses_a_negative_count(name: str) -> None:
    """With the operator, the key, the time and the count."""
    with pytest.raises(NegativeMultiplicity) as caught:
        folding.whole(lambda x, y: {"out": REDUCERS[name](x.concat(y.negate()))}, x=X, y=Y)
    error, operator = caught.value, {"least": "agg", "semi": "distinct"}.get(name, name)
    assert error.op.startswith(operator)
    assert (error.key, error.time, error.count) == (KEYS.get(name, ("x",)), (0,), -1)


def test_T43_aggregates_refuse_a_negative_count(fold: Fold) -> None:
    with pytest.raises(NegativeMultiplicity) as caught:
        fold(lambda x, y: {"out": x.concat(y.negate()).group_by("w").agg(n=dd.count())}, x=X, y=Y)
    error = caught.value
    assert error.op.startswith("agg")
    assert (error.key, error.time, error.count) == (("x",), (0,), -1)


def test_T43_aggregates_allow_a_negative_count(fold: Fold) -> None:
    def program(x: Any, y: Any) -> dict[str, Any]:
        rest = x.concat(y.negate()).group_by("w")
        return {
            "count": rest.agg(n=dd.count(), allow_negative=True),
            "least": rest.agg(lo=dd.min("w"), allow_negative=True),
            "both": rest.agg(n=dd.count(), lo=dd.min("w"), allow_negative=True),
        }

    actual = fold(program, x=X, y=Y)
    same(actual["count"], log("(x,-1):+1@0 (x,-1):-1@1 (x,1):+1@2"))
    same(actual["least"], log("(x,x):+1@2"))
    same(actual["both"], log("(x,1,x):+1@2"))


def test_every_case_has_a_test_by_its_number() -> None:
    files = Path(__file__).parent.glob("test_*.py")
    numbers = {int(number) for file in files for number in re.findall(r"^def test_T(\d\d)_", file.read_text(), re.M)}
    assert [number for number in range(1, 45) if number not in numbers] == []
