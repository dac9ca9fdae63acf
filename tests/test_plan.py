"""Plans: what is shared, what stands where; small programs of odd shape against the reference."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import folding
import polars as pl
import pytest
from notation import frame

import ddcore as dd
from ddcore import sql
from ddcore.base.errors import Diverged, ProgramError
from ddcore.jobs.spark.shipping import pickled
from ddcore.planning.planner import build
from ddcore.planning.rebuilding import definitions

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


@pytest.mark.sample(16)
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

    actual: list[Any] = []
    for fold in (folding.by_reference, folding.whole):
        try:
            actual.append(fold(program, edges=path, nodes=start))
        except Diverged:
            actual.append(Diverged)
    assert actual[0] == actual[1]


def test_long_programs() -> None:
    def program(t: Any) -> Any:
        for number in range(500):
            t = t.select(a=col("a") + number)
        return {"x": t}

    log = dd.replay(program, t=frame("a", "1:+1@0"))["x"]
    assert log.rows() == [(1 + sum(range(500)), 0, 1)]


def test_a_plan_of_hundreds_of_operators_travels() -> None:
    def program(t: Any) -> Any:
        actual = t
        for number in range(100):
            actual = actual.join(t.select("a", b=number), on="a").select("a").distinct()
        return {"x": actual}

    plan = build(program, {"t": {"a": "int64"}})
    assert len(pickle.loads(pickled(plan)).blocks) == len(plan.blocks)


# -- names for contents -----------------------------------------------------------------------------------------------


def fingerprints(*programs: Any, **schemas: Any) -> list[str]:
    return [build(program, schemas or {"t": {"a": "int64", "b": "int64"}}).fingerprint for program in programs]


PAIRS: dict[str, tuple[Any, Any]] = {
    "select": (
        lambda t: {"x": t.select(**{"p": col("a"), "q=b;r": col("b")})},
        lambda t: {"x": t.select(**{"p=a;q": col("b"), "r": col("b")})},
    ),
    "group_by": (
        lambda t: {"x": odd(t).group_by("k", "k,k").agg(n=dd.count()).select("n")},
        lambda t: {"x": odd(t).group_by("k,k", "k").agg(n=dd.count()).select("n")},
    ),
    "keys": (
        lambda t: {"x": odd(t).group_by("k,k", "v").agg(n=dd.count()).select("n")},
        lambda t: {"x": odd(t).group_by("k", "k,v").agg(n=dd.count()).select("n")},
    ),
    "aggregates": (
        lambda t: {"x": t.group_by().agg(**{"n": dd.count(), "m": dd.sum("a")}).select("n")},
        lambda t: {"x": t.group_by().agg(**{"m": dd.count(), "n": dd.sum("a")}).select("m")},
    ),
    "where": (
        lambda t: {"x": t.where("a = 1", "b = 2")},
        lambda t: {"x": t.where(col("a") == 1).where(col("b") == 2)},
    ),
    "float literals": (
        lambda t: {"x": t.select(y=col("a").cast(pl.Float32) * 0.1)},
        lambda t: {"x": t.select(y=col("a").cast(pl.Float32) * pl.lit(0.1, dtype=pl.Float64))},
    ),
    "outputs": (lambda t: {"x": t, "y": t.distinct()}, lambda t: {"y": t, "x": t.distinct()}),
}


def odd(t: Any) -> Any:
    return t.select(**{"k": col("a"), "k,k": col("b"), "v": col("a"), "k,v": col("b")})


@pytest.mark.parametrize("name", PAIRS)
def test_programs_that_differ_have_other_fingerprints(name: str) -> None:
    one, other = fingerprints(*PAIRS[name])
    assert one != other


def test_keys_with_commas_are_not_mixed_up() -> None:
    left = frame("a b", "(1,2),(2,1),(3,3):+1@0")
    right = frame("k kk z", "(1,2,5),(3,3,6):+1@0").rename({"kk": "k,k"})

    def program(left: Any, right: Any) -> Any:
        return {
            "x": left.join(right, on={"a": "k", "b": "k,k"}), "y": left.join(right, on={"a": "k,k", "b": "k"}),
            "z": right.group_by("k", "k,k").agg(n=dd.count()),
        }  # fmt: skip

    logs = folding.whole(program, left=left, right=right)
    assert logs == folding.by_reference(program, left=left, right=right)
    assert logs["x"] != logs["y"]


def test_literals_of_another_type_are_another_expression() -> None:
    def program(t: Any) -> Any:
        narrow = pl.lit(1.0, dtype=pl.Float32)
        return {"x": t.select(y=narrow * 0.1), "y": t.select(y=narrow * pl.lit(0.1, dtype=pl.Float64))}

    logs = dd.replay(program, t=frame("a", "1:+1@0"))
    assert logs["x"]["y"][0] != logs["y"]["y"][0] == 0.1


def test_an_output_called_output() -> None:
    """A reduce's own arrangement and the output's log: both were named by the word ``output``."""
    plan = build(lambda t: {"output": t.group_by().agg(n=dd.count()), "kept": t.distinct()}, {"t": {"a": "int64"}})
    assert len({arrangement.fingerprint for arrangement in plan.arrangements}) == len(plan.arrangements)


def test_an_argument_called_like_a_private_one() -> None:
    def program(t: Any) -> Any:
        keyed = t.select(_argument_0="a", b="b").group_by("_argument_0").agg(s=dd.sum(col("b") + 1))
        return {"x": keyed.select(a="_argument_0", s="s")}

    log = frame("a b", "(7,1),(8,2):+1@0")
    assert folding.whole(program, t=log) == folding.by_reference(program, t=log)


def roads(edges: Any, marks: Any) -> Any:
    """Nothing here needs a column of the edges beside src and dst."""
    pairs = edges.select("src", "dst")
    starts = edges.where("src = 0").select(node="src").distinct()
    reached = starts.iterate(lambda r: r.join(pairs, on={"node": "src"}).select(node="dst").concat(starts).distinct())
    doubled = edges.with_columns(twice=col("dst") * 2).concat(edges.with_columns(twice=col("src"))).group_by("twice")
    return {
        "reached": reached,
        "degrees": edges.group_by("src").agg(n=dd.count()),
        "doubled": doubled.agg(n=dd.sum("dst")),
        "marked": edges.join(marks, on={"src": "n"}).select("src", "dst"),
    }


QUERIES = """
    CREATE VIEW degrees AS SELECT src, count(*) AS n FROM edges WHERE dst > 0 GROUP BY src;
    CREATE VIEW marked AS SELECT edges.src, edges.dst FROM edges JOIN marks ON edges.src = marks.n;
    CREATE VIEW unmarked AS SELECT dst FROM edges WHERE src NOT IN (SELECT n FROM marks);
"""
NARROW = {"src": "int64", "dst": "int64", "km": "decimal(8,2)"}
WIDER = {
    "added": {**NARROW, "note": "string"},
    "added before": {"note": "list[string]", **NARROW},
    "removed": {"src": "int64", "dst": "int64"},
    "widened": {**NARROW, "km": "decimal(10,2)"},
    "retyped": {**NARROW, "km": "string"},
    "reordered": {"km": "decimal(8,2)", "dst": "int64", "src": "int64"},
}


@pytest.mark.parametrize("how", WIDER)
@pytest.mark.parametrize("kind", ["python", "sql"])
def test_a_column_that_nothing_needs_is_no_part_of_the_program(kind: str, how: str) -> None:
    program = roads if kind == "python" else sql.program(QUERIES)
    one, other = (build(program, {"edges": item, "marks": {"n": "int64"}}) for item in (NARROW, WIDER[how]))
    kept = {arrangement.fingerprint for arrangement in one.arrangements if not arrangement.transient}
    new = {arrangement.fingerprint for arrangement in other.arrangements if not arrangement.transient} - kept
    carried = [arrangement for arrangement in other.arrangements if arrangement.fingerprint in new]
    if kind == "sql" and how == "reordered":  # SQL joins tables in their own order of columns
        assert definitions(one) == definitions(other)
        return
    # The last join carries what is read of the edges, in their order.
    assert [[*item.collection] for item in carried] == ([["dst", "src"]] if how == "reordered" else [])
    assert definitions(one) == definitions(other)
    assert (one.fingerprint == other.fingerprint) == (how != "reordered")


def test_a_column_that_is_needed_is_a_part_of_it() -> None:
    types = [{**NARROW, "dst": kind} for kind in ("int64", "float64")]
    programs = [
        lambda edges: {"x": edges.select("src", far=col("dst") > 3)},
        lambda edges: {"x": edges.where("dst > 3").select("src")},
        lambda edges: {"x": edges.group_by("src").agg(n=dd.max("dst")).select("src")},
        lambda edges: {"x": edges.distinct().select("src")},
        lambda edges: {"x": edges.select(a="dst").join(edges.select(b="dst"), on={"a": "b"}).select(n=pl.lit(1))},
    ]
    for program in programs:
        one, other = (build(program, {"edges": item}) for item in types)
        assert one.fingerprint != other.fingerprint and definitions(one) != definitions(other)


# -- limits of loops --------------------------------------------------------------------------------------------------


def countdown(t: Any, rounds: int) -> Any:
    return t.iterate(lambda w: w.select(a=pl.max_horizontal(col("a") - 1, 0)).distinct(), max_rounds=rounds)


def test_max_rounds_is_no_part_of_the_program() -> None:
    """So that following the hint of Diverged does not make another program of it."""
    few, many = fingerprints(lambda t: {"x": countdown(t, 3)}, lambda t: {"x": countdown(t, 9)}, t={"a": "int64"})
    assert few == many


@pytest.mark.parametrize("limits", [(3, 20), (20, 3)])
def test_of_equal_loops_the_greatest_limit_holds(limits: tuple[int, int]) -> None:
    """The loops are one, also where they are inside of loops that are one."""

    def apart(t: Any) -> Any:
        return {"x": countdown(t, limits[0]), "y": countdown(t, limits[1])}

    def inside(t: Any) -> Any:
        x, y = (t.iterate(lambda w, rounds=rounds: countdown(w, rounds).concat(t).distinct()) for rounds in limits)
        return {"x": x, "y": y}

    log = frame("a", "7:+1@0 8:+1@1 7:-1@2")
    for program in (apart, inside):
        logs = folding.whole(program, t=log)
        assert logs["x"] == logs["y"] and logs["x"]

    with pytest.raises(Diverged):
        folding.whole(lambda t: {"x": countdown(t, 3)}, t=log)


# -- long and odd programs --------------------------------------------------------------------------------------------


def test_programs_of_thousands_of_operators() -> None:
    def linear(t: Any) -> Any:
        for number in range(5_000):
            t = t.select(a=pl.lit(number, dtype=pl.Int64)) if number % 2 else t.negate()
        return {"x": t}

    def with_state(t: Any) -> Any:
        for number in range(1_500):
            t = t.select(a=pl.lit(number, dtype=pl.Int64)).distinct()
        return {"x": t}

    log = frame("a", "1:+1@0")
    assert dd.replay(linear, t=log)["x"].rows() == [(4999, 0, 1)]
    assert dd.replay(with_state, t=log)["x"].rows() == [(1499, 0, 1)]


@pytest.mark.parametrize("terms", [400, 3_000])
def test_a_deep_expression_is_computed(terms: int) -> None:
    def program(t: Any) -> Any:
        total = col("a")
        for _ in range(terms):
            total = total + 1
        return {"x": t.select(a=total)}

    assert dd.replay(program, t=frame("a", "1:+1@0"))["x"].rows() == [(terms + 1, 0, 1)]


@pytest.mark.parametrize("terms", [400, 3_000])
def test_an_expression_that_is_too_deep_is_one_line(terms: int) -> None:
    """Only inside of a list: what is done to each element is not cut into stages."""

    def program(t: Any) -> Any:
        total = pl.element().cast(pl.Float64)
        for _ in range(terms):
            total = total + 0.5
        return {"x": t.select(a=pl.concat_list("a").list.eval(total).list.get(0))}

    with pytest.raises(
        ProgramError, match=r"test_plan\.py:\d+: the expression .*eval\(.* is nested too deeply"
    ) as caught:
        build(program, {"t": {"a": "int64"}})
    assert caught.value.hint and "\n" not in caught.value.message


def every_column_a_key(edges: Any, nodes: Any) -> Any:
    counted = edges.group_by("a", "b").reduce(lambda groups: groups.select("group", n="count"), {"n": "int64"})
    return {"n": counted, "none": nodes.group_by("a").reduce(lambda groups: groups.select("group"), {})}


def two_left_columns_meet_one(edges: Any, nodes: Any) -> Any:
    return {"x": edges.join(nodes, on={"a": "a", "b": "a"}), "y": edges.join(edges, on={"a": "b", "b": "b"})}


def no_column_at_all(edges: Any, nodes: Any) -> Any:
    return {"n": nodes.concat(edges.select("a")).group_by().reduce(lambda groups: groups.select("group"), {})}


@pytest.mark.parametrize("program", [every_column_a_key, two_left_columns_meet_one, no_column_at_all])
def test_keys_of_odd_shape(program: Any) -> None:
    for fold in (folding.whole, folding.one_time_each):
        actual = fold(program, edges=EDGES, nodes=NODES)
        assert actual == folding.by_reference(program, edges=EDGES, nodes=NODES)
    plan = build(program, {"edges": {"a": "int64", "b": "int64"}, "nodes": {"a": "int64"}})
    assert all(len(arrangement.schema) == len(arrangement.collection) for arrangement in plan.arrangements)


def test_a_plan_that_cannot_travel_says_so() -> None:
    lock = threading.Lock()

    def locked(frame: Any) -> Any:
        with lock:
            return frame

    def program(t: Any) -> Any:
        return {"x": t.flat_map(locked, schema={"a": "int64"})}

    with pytest.raises(ProgramError, match=r"cannot be sent to Spark's workers: .*lock") as caught:
        pickled(build(program, {"t": {"a": "int64"}}))
    assert "--engine inline" in caught.value.hint


def test_functions_of_local_classes_travel() -> None:
    class Adding:
        def __init__(self, n: int) -> None:
            self.n = n

        def __call__(self, frame: Any) -> Any:
            return frame.with_columns(col("a") + self.n)

    plan = build(lambda t: {"x": t.flat_map(Adding(2), schema={"a": "int64"})}, {"t": {"a": "int64"}})
    there = pickle.loads(pickled(plan))
    assert there.fingerprint == plan.fingerprint
