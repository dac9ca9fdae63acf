"""Columns that nothing reads are not arranged; what is left is computed from the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import folding
import polars as pl
import pytest
from folding import dims_of
from programs import case

import ddcore as dd
from ddcore.base.errors import ExpressionError, ProgramError
from ddcore.planning import planner
from ddcore.planning.plan import Plan
from ddcore.planning.planner import build
from ddcore.planning.pruning import Pruned, pruned
from ddcore.program.collection import Collection
from ddcore.program.graph import Graph

Program = Callable[..., dict[str, Collection]]
A, B = ({"k": "int64", **{f"{side}{n}": "int64" for n in range(20)}} for side in "ab")


def plan_of(program: Program) -> Plan:
    return build(program, {"a": A, "b": B})


def stored(plan: Plan) -> list[list[str]]:
    """The columns of the arrangements that joins read."""
    ports = [port for block in plan.blocks if block.op == "join" for port in block.ports]
    return [[*plan.arrangements[port].collection] for port in ports]


@pytest.fixture
def whole_plan(monkeypatch: pytest.MonkeyPatch) -> Callable[[Program], Plan]:
    """Plans a program with all columns."""

    def plan(program: Program, *more: Any) -> Plan:
        with monkeypatch.context() as patch:
            patch.setattr(planner, "pruned", _as_it_is)
            return build(program, *more)

    return plan


def _as_it_is(graph: Graph, _: Iterable[int]) -> Pruned:
    every = {node.index: frozenset(node.schema) for node in graph.nodes}
    return Pruned(graph, {node.index: node.index for node in graph.nodes}, every)


def _first(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select("a1").head(1)


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_a_join_stores_the_columns_that_are_read() -> None:
    def program(a: Collection, b: Collection) -> dict[str, Collection]:
        return {"it": a.where("a3 > 0").join(b, on="k").where("b4 > a5").group_by("b1").agg(n=dd.sum("a2"))}

    assert stored(plan_of(program)) == [["k", "a2", "a5"], ["k", "b1", "b4"]]


def test_columns_are_dropped_before_each_of_several_joins() -> None:
    def program(a: Collection, b: Collection) -> dict[str, Collection]:
        first = a.join(b, on="k")
        second = first.concat(first.negate()).join(b.rename({"b0": "a7"}), on="a7")
        return {"it": second.select("a1", "b2", x="b3_right")}

    sides = stored(plan_of(program))
    assert sides == [["k", "a1", "a7"], ["k", "b2"], ["a1", "a7", "b2"], ["a7", "b3"]]


def test_arrangements_stay_shared() -> None:
    """Two joins by the same key read one arrangement, with the columns of both; another key has its own."""

    def program(a: Collection, b: Collection) -> dict[str, Collection]:
        one = a.join(b, on="k").select("b1")
        other = a.join(b, on={"a1": "k"}).select("b2")
        third = b.join(b, on={"b7": "k"}).select("b3_right")
        return {"one": one, "other": other, "third": third}

    plan = plan_of(program)
    assert stored(plan)[1] == stored(plan)[3] == stored(plan)[5] == ["k", "b1", "b2", "b3"]
    assert stored(plan)[4] == ["b7"]
    assert len({port for block in plan.blocks if block.op == "join" for port in block.ports}) == 4


def test_an_arrangement_that_another_operator_reads_whole_is_shared_whole() -> None:
    def program(a: Collection, b: Collection) -> dict[str, Collection]:
        firsts = b.group_by("k").top_k(1, by=["b1"])
        return {"firsts": firsts, "it": a.join(b, on="k").select("a1")}

    plan = plan_of(program)
    assert stored(plan) == [["k", "a1"], [*B]]
    (top,) = [block for block in plan.blocks if block.op == "top_k" and not plan.operator(block).inner]
    (join,) = [block for block in plan.blocks if block.op == "join"]
    assert top.ports[0] == join.ports[1]


@pytest.mark.parametrize(
    "look",
    [
        lambda rows: rows.distinct(),
        lambda rows: rows.group_by("k").top_k(2, by=["a1"]),
        lambda rows: rows.group_by("k").reduce(_first, schema={"a1": "int64"}),
        lambda rows: rows.inspect("seen"),
        lambda rows: rows.iterate(lambda value: value.where("a1 > 3"), max_rounds=3),
    ],
)  # fmt: skip
def test_what_looks_at_whole_rows_has_whole_rows(look: Callable[[Any], Any]) -> None:
    def program(a: Collection, b: Collection) -> dict[str, Collection]:
        return {"it": look(a.join(b, on="k")).select("a1")}

    assert stored(plan_of(program))[:2] == [[*A], [*B]]


def test_nothing_is_rebuilt_where_all_columns_are_read() -> None:
    def program(a: Collection, b: Collection) -> dict[str, Collection]:
        return {"it": a.join(b, on="k"), "count": a.group_by("k").agg(n=dd.count())}

    graphs: list[Graph] = []

    def watched(graph: Graph, outputs: Iterable[int]) -> Pruned:
        left = pruned(graph, outputs)
        graphs.extend([graph, left.graph])
        return left

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "pruned", watched)
        plan_of(program)
    assert graphs[0] is graphs[1]


def test_columns_of_inputs_that_nothing_reads_are_not_read() -> None:
    def program(a: Collection, b: Collection) -> dict[str, Collection]:
        return {"it": a.where("a1 > 0").group_by("k").agg(s=dd.sum("a2")), "other": a.where("a3 > 1").select("a1")}

    assert plan_of(program).read == {"a": {"k", "a1", "a2", "a3"}, "b": set()}
    assert plan_of(lambda a, b: {"it": a.distinct()}).read["a"] == {*A}


# --- what is computed -------------------------------------------------------------------------------------------------


def test_rows_that_differ_in_dropped_columns_add_up() -> None:
    """Also where one is taken back that differs from another: their counts are those of the rows that are left."""

    def program(a: Collection, b: Collection) -> dict[str, Collection]:
        return {"it": a.join(b, on="k").select("v"), "n": a.join(b, on="k").group_by("v").agg(n=dd.count())}

    a = pl.DataFrame({"k": [1, 1, 1], "x": [1, 2, 1], "v": [7, 7, 7], "version": [0, 0, 1], "diff": [1, 2, -1]})
    b = pl.DataFrame({"k": [1, 1], "y": [5, 6], "version": [0, 0], "diff": [1, 1]})
    logs = dd.replay(program, a=a, b=b)
    assert logs["it"].rows() == [(7, 0, 6), (7, 1, -2)]
    assert logs["n"].rows() == [(7, 6, 0, 1), (7, 4, 1, 1), (7, 6, 1, -1)]


def test_an_expression_that_nobody_reads_still_fails() -> None:
    def program(a: Collection, b: Collection) -> dict[str, Collection]:
        big = a.with_columns(big=pl.col("x") * 2)
        return {"it": big.join(b, on="k").with_columns(more=pl.col("y") * 2).join(b, on="k").select("k")}

    b = pl.DataFrame({"k": [1], "y": [2**62], "version": [0], "diff": [1]})
    for x, message in ((2**62, r"x \* 2 is"), (1, r"y \* 2 is")):
        with pytest.raises(ExpressionError, match=message):
            dd.replay(program, a=pl.DataFrame({"k": [1], "x": [x], "version": [0], "diff": [1]}), b=b)


def test_equal_loops_have_the_greatest_limit() -> None:
    def program(a: Collection, b: Collection) -> dict[str, Collection]:
        rows = a.join(b, on="k").select("a1", "b1")
        loops = [
            rows.iterate(lambda value: value.where("a1 > 3").concat(rows).distinct(), max_rounds=most)
            for most in (5, 90)
        ]
        return {"it": loops[0].select("a1")}

    (loop,) = plan_of(program).loops.values()
    assert loop.max_rounds == 90


def test_an_unused_column_changes_no_fingerprint() -> None:
    def program(a: Collection, b: Collection) -> dict[str, Collection]:
        return {"it": a.join(b, on="k").select("a1", "b1")}

    few = build(program, {"a": A, "b": B})
    more = build(program, {"a": {"new": "string", **A}, "b": {**B, "new": "date"}})
    assert few.fingerprint == more.fingerprint
    assert [arrangement.fingerprint for arrangement in few.arrangements] == [
        arrangement.fingerprint for arrangement in more.arrangements
    ]


def test_mistakes_have_the_line_of_the_program() -> None:
    def program(a: Collection, b: Collection) -> dict[str, Collection]:
        return {"it": a.join(b, on="k").select("a1").inspect("it")}

    with pytest.raises(ProgramError, match=r"test_pruning\.py:\d+: inspect: there is an output it"):
        plan_of(program)


def test_random_programs_have_columns_to_drop(whole_plan: Callable[..., Plan]) -> None:
    """Otherwise they would test nothing here: their results are compared in ``test_random_programs.py``."""
    dropped = 0
    for seed in range(60):
        drawn = case(seed)
        schemas, dims = folding._schemas(drawn.frames), dims_of(drawn.frames)
        now, before = (plan(drawn.program, schemas, tuple(dims)) for plan in (build, whole_plan))
        dropped += sum(map(len, stored(now))) < sum(map(len, stored(before)))
        if dropped >= 5:
            return
    raise AssertionError(f"{dropped} programs have columns to drop")
