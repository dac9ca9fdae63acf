"""The operators that relate several collections, and loops of several: literal cases, by their numbers where they have
one. Random programs draw all of them, too (tests/support/programs.py).
"""

from __future__ import annotations

from typing import Any

import folding
import polars as pl
import pytest
from folding import Fold
from notation import frame, log, pair
from test_semantics import same

import ddcore as dd
from ddcore import col
from ddcore.base.errors import DiffOverflow, Diverged, ExpressionError, ProgramError
from ddcore.planning.planner import build

# -- joins that look at rows without a partner ------------------------------------------------------------------------


def joined(how: str) -> Any:
    return lambda left, right: {"out": left.join(right, on="k", how=how)}


LEFT, RIGHT = "(a,1):+1,(b,2):+2,(null,3):+1@0 (b,2):-1@2", "(a,x):+1,(c,y):+1,(null,z):+1@0 (b,x):+2@1 (a,x):-1@3"


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("semi", "(a,1):+1@0 (b,2):+2@1 (b,2):-1@2 (a,1):-1@3"),
        ("anti", "(b,2):+2,(null,3):+1@0 (b,2):-2@1 (a,1):+1@3"),
        (
            "left",
            "(a,1,x):+1,(b,2,null):+2,(null,3,null):+1@0 (b,2,null):-2,(b,2,x):+4@1 (b,2,x):-2@2 "
            "(a,1,x):-1,(a,1,null):+1@3",
        ),
        ("right", "(a,1,x):+1,(c,null,y):+1,(null,null,z):+1@0 (b,2,x):+4@1 (b,2,x):-2@2 (a,1,x):-1@3"),
        (
            "full",
            "(a,1,x):+1,(b,2,null):+2,(null,3,null):+1,(c,null,y):+1,(null,null,z):+1@0 (b,2,null):-2,(b,2,x):+4@1 "
            "(b,2,x):-2@2 (a,1,x):-1,(a,1,null):+1@3",
        ),
    ],
)
def test_joins_of_every_kind(fold: Fold, how: str, expected: str) -> None:
    actual = fold(joined(how), left=frame("k n", LEFT), right=frame("k w", RIGHT))
    same(actual["out"], log(expected))


def test_T16_antijoin_with_duplicates(fold: Fold) -> None:
    actual = fold(joined("anti"), left=frame("k v", "(k,v):+1@0"), right=frame("k", "k:+2@0"))
    same(actual["out"], {})


@pytest.mark.parametrize("how", ["semi", "anti", "left", "right", "full"])
def test_two_left_columns_that_meet_one(how: str) -> None:
    def program(left: Any, right: Any) -> Any:
        return {"out": left.join(right, on={"a": "k", "b": "k"}, how=how)}

    frames = {"left": frame("a b", "(1,1):+1,(1,2):+1@0 (2,2):+1@1"), "right": frame("k w", "(1,x):+1,(2,y):+1@1")}
    assert folding.whole(program, **frames) == folding.by_reference(program, **frames)


# -- multisets --------------------------------------------------------------------------------------------------------

A, B = "x:+3,y:+1@0 y:-1@1", "x:+2,y:+5@0 x:+2@1"


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("union", "x:+3,y:+5@0 x:+1@1"),
        ("intersect", "x:+2,y:+1@0 x:+1,y:-1@1"),
        ("except_", "x:+1@0 x:-1@1"),
    ],
)
def test_T44_multisets(fold: Fold, operation: str, expected: str) -> None:
    actual = fold(lambda a, b: {"out": getattr(a, operation)(b)}, a=frame("k", A), b=frame("k", B))
    same(actual["out"], log(expected))


def test_T44_the_sum(fold: Fold) -> None:
    actual = fold(lambda a, b: {"out": a.concat(b)}, a=frame("k", A), b=frame("k", B))
    same(actual["out"], log("x:+5,y:+6@0 x:+2,y:-1@1"))


def test_T44_the_difference_that_may_be_negative(fold: Fold) -> None:
    actual = fold(lambda a, b: {"out": a.concat(b.negate())}, a=frame("k", A), b=frame("k", B))
    same(actual["out"], log("x:+1,y:-4@0 x:-2,y:-1@1"))


def test_a_difference_of_counts_does_not_wrap() -> None:
    def program(a: Any, b: Any) -> Any:
        return {"out": a.except_(b, allow_negative=True)}

    frames = {"a": frame("k", f"x:+{2**63 - 1}@0"), "b": frame("k", "x:-1@0")}
    for fold in (folding.by_reference, folding.whole):
        with pytest.raises(DiffOverflow):
            fold(program, **frames)


# -- the first rows of each group -------------------------------------------------------------------------------------

PRICES = "(f,a,3):+1,(f,b,3):+1,(f,c,1):+2,(g,d,null):+1@0 (f,e,2):+1@1 (f,c,1):-2@2"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "(f,c,1):+2,(g,d,null):+1@0 (f,c,1):-2,(f,e,2):+1,(f,a,3):+1@2"),
        ({"descending": True}, "(f,a,3):+1,(f,b,3):+1,(g,d,null):+1@0"),
        ({"ties": "rank"}, "(f,c,1):+2,(g,d,null):+1@0 (f,c,1):-2,(f,e,2):+1,(f,a,3):+1,(f,b,3):+1@2"),
    ],
)
def test_the_first_two(fold: Fold, options: dict[str, Any], expected: str) -> None:
    def program(prices: Any) -> Any:
        return {"out": prices.group_by("kind").top_k(2, "price", **options)}

    same(fold(program, prices=frame("kind item price", PRICES))["out"], log(expected))


@pytest.mark.parametrize("descending", [False, True])
def test_nulls_come_last_in_ties_too(fold: Fold, descending: bool) -> None:
    def program(t: Any) -> Any:
        return {"out": t.group_by("g").top_k(2, "n", descending=descending)}

    rows = "(x,1,null):+1,(x,1,b):+1,(x,1,a):+1,(y,null,null):+1,(y,null,c):+1,(y,null,d):+1@0 (x,1,a):-1@1"
    expected = "(x,1,a):+1,(x,1,b):+1,(y,null,c):+1,(y,null,d):+1@0 (x,1,a):-1,(x,1,null):+1@1"
    same(fold(program, t=frame("g n s", rows))["out"], log(expected))


@pytest.mark.parametrize("descending", [False, True])
def test_null_comes_after_the_greatest_number(fold: Fold, descending: bool) -> None:
    def program(t: Any) -> Any:
        return {"out": t.group_by().top_k(1, "n", descending=descending, ties="rank")}

    least, greatest = -(2**63) + 1, 2**63 - 1
    expected = f"{least if descending else greatest}:+1@0"
    same(fold(program, t=frame("n", f"null:+1@0 {expected}"))["out"], log(expected))


# -- delta joins ------------------------------------------------------------------------------------------------------


def triangles(edges: Any) -> dict[str, Any]:
    return {"out": dd.delta_join((edges, ["a", "b"]), (edges, ["b", "c"]), (edges, ["a", "c"]))}


def test_T13_triangles(fold: Fold) -> None:
    edges = frame("src dst", "12,23,13:+1@0 23:-1,34,14:+1@1 23:+1@2", pair)
    expected = "(1,2,3):+1@0 (1,2,3):-1,(1,3,4):+1@1 (1,2,3):+1@2"
    same(fold(triangles, edges=edges)["out"], log(expected))


def test_T14_times_that_are_not_ordered(fold: Fold) -> None:
    def program(r: Any, s: Any, t: Any) -> Any:
        return {"out": dd.delta_join((r, ["a", "b"]), (s, ["b", "c"]), (t, ["a", "c"]))}

    r, s = frame("x y", "12:+1@(1,0)", pair), frame("x y", "23:+1@(0,1)", pair)
    actual = fold(program, r=r, s=s, t=frame("x y", "13:+1@(1,1) 13:-1@(2,0)", pair))
    same(actual["out"], log("(1,2,3):+1@(1,1) (1,2,3):-1@(2,1)"))


def test_multiplicities_multiply_in_a_delta_join(fold: Fold) -> None:
    actual = fold(triangles, edges=frame("src dst", "12:+2,23:+3,13:+1@0 12:-1@1", pair))
    same(actual["out"], log("(1,2,3):+6@0 (1,2,3):-3@1"))


def test_a_delta_join_shares_its_arrangements() -> None:
    plan = build(triangles, {"edges": {"src": "int64", "dst": "int64"}})
    stored = [arrangement for arrangement in plan.arrangements if not arrangement.transient]
    assert sorted(item.key for item in stored) == [("dst",), ("src",), ("src", "dst")]
    (block,) = (block for block in plan.blocks if block.op == "delta_join")
    assert plan.operator(block).name == "delta_join" and block.output is None


# -- loops ------------------------------------------------------------------------------------------------------------


def test_T36_mutual_recursion_as_a_bag(fold: Fold) -> None:
    def program(one: Any, zero: Any) -> Any:
        def body(evens: Any, odds: Any) -> Any:
            after = {name: rows.where("n < 100").select(n=col("n") + 1) for name, rows in (("e", evens), ("o", odds))}
            return {"evens": one.concat(after["o"]), "odds": zero.concat(after["e"])}

        both = dd.iterate({"evens": one, "odds": zero}, body)
        return {"out": both["evens"].concat(both["odds"]).group_by().agg(total=dd.sum("n"))}

    actual = fold(program, one=frame("n", "1:+1@0"), zero=frame("n", "0:+1@0"))
    same(actual["out"], log("10100:+1@0"))


@pytest.mark.parametrize(("rounds", "expected"), [(1, "1:+1@0"), (2, "0:+1@0"), (3, "1:+1@0")])
def test_T37_a_loop_that_returns_at_its_limit(fold: Fold, rounds: int, expected: str) -> None:
    def program(t: Any) -> Any:
        return {"out": t.iterate(lambda w: w.select(n=1 - col("n")), max_rounds=rounds, at_limit="return")}

    same(fold(program, t=frame("n", "0:+1@0"))["out"], log(expected))


def test_a_limit_at_which_to_return_is_part_of_the_program() -> None:
    def program(rounds: int) -> Any:
        def step(w: Any) -> Any:
            return w.select(n=col("n") + 1)

        return lambda t: {"out": t.iterate(step, max_rounds=rounds, at_limit="return")}

    schemas = {"t": {"n": "int64"}}
    assert build(program(3), schemas).fingerprint != build(program(4), schemas).fingerprint


PRIORITIES = [None, "label", -col("label"), col("label") % 3, pl.lit(7, dtype=pl.Int64)]


@pytest.mark.parametrize("priority", PRIORITIES, ids=str)
def test_T34_priorities_change_no_log(fold: Fold, priority: Any) -> None:
    def program(edges: Any) -> Any:
        both = edges.concat(edges.select(src="dst", dst="src"))
        nodes = both.select(node="src", label="src").distinct()

        def body(labels: Any) -> Any:
            least = labels.group_by("node").agg(label=dd.min("label"))
            onward = least.join(both, on={"node": "src"}).select(node="dst", label="label")
            return onward.concat(least).distinct()

        return {"out": nodes.iterate(body, priority=priority).group_by("node").agg(label=dd.min("label"))}

    edges = frame("src dst", "12,23,45:+1@0 34:+1@1 12:-1@2", pair)
    expected = "(1,1),(2,1),(3,1),(4,4),(5,4):+1@0 (4,4),(5,4):-1,(4,1),(5,1):+1@1"
    last = "(1,1),(2,1),(3,1),(4,1),(5,1):-1,(2,2),(3,2),(4,2),(5,2):+1@2"
    same(fold(program, edges=edges)["out"], log(f"{expected} {last}"))


@pytest.mark.parametrize("limit", [0, -1, 2**29])
def test_priorities_have_bounds(limit: int) -> None:
    def program(t: Any) -> Any:
        return {"out": t.iterate(lambda w: w.distinct(), priority="n")}

    rows = frame("n", f"{limit}:+1@0")
    if limit < 2**29:
        assert len(dd.replay(program, t=rows)["out"]) == 1
    else:
        with pytest.raises(ExpressionError, match="the priority 536870912 is not between"):
            dd.replay(program, t=rows)


# -- what a program can get wrong -------------------------------------------------------------------------------------

MISTAKES = [
    (lambda t: t.join(t, on="n", how="outer"), "how is 'outer'"),
    (lambda t: t.union(t.select(m="n")), "columns differ"),
    (lambda t: t.group_by().top_k(0, "n"), "k is 0"),
    (lambda t: t.group_by("n").top_k(1, "n"), "n is a key"),
    (lambda t: t.group_by().top_k(1, "x"), "no column"),
    (lambda t: t.group_by().top_k(1, "n", ties="first"), "ties is 'first'"),
    (lambda t: t.group_by().top_k(1, "n", descending=[True, False]), "1 columns, and descending has 2"),
    (lambda t: dd.delta_join((t, ["a"])), "two relations or more"),
    (lambda t: dd.constant([1, 2]), "constant: list is no frame"),
    (lambda t: dd.constant(pl.DataFrame()), "constant: the frame has no columns"),
    (lambda t: dd.constant({"n": [2**64]}), "constant: column n"),
    (lambda t: dd.constant({"n": [-(2**63)]}), "constant: column n: the int64 value"),
    (lambda t: dd.constant({"n": [None]}), "constant: column n"),
    (lambda t: dd.constant({"*": [1]}), "cannot be a column's name"),
    (lambda t: t.concat(dd.constant({"m": [1]})), "(n: int64) and (m: int64)"),
    (lambda t: dd.delta_join((t, ["a"]), (t, "a")), "relation 2 is no pair"),
    (lambda t: dd.delta_join((t, ["a"]), (t, ["a", "b"])), "relation 2 has the columns"),
    (lambda t: dd.delta_join((t, ["a"]), (t, ["b"])), "shares an attribute"),
    (lambda t: dd.delta_join((t, ["a"]), (t.select(n="'x'"), ["a"])), "a is int64, and string in relation 2"),
    (lambda t: t.iterate(lambda w: w, priority="x"), "no column x"),
    (lambda t: t.iterate(lambda w: w, priority=col("n") * 0.5), "priority is float64"),
    (lambda t: t.iterate(lambda w: w, at_limit="stop"), "at_limit is 'stop'"),
    (lambda t: t.iterate(lambda w: w, priority="n", at_limit="return"), "a priority and a limit"),
    (lambda t: dd.iterate({}, lambda: {})["x"], "there are no collections"),
    (lambda t: dd.iterate({"a": t}, lambda a: {"b": a})["a"], "the body of iterate returned b, not a"),
    (lambda t: dd.iterate({"a": t}, lambda a: a)["a"], "the body of iterate returned Collection, not a"),
    (lambda t: dd.iterate({"a": t}, lambda a: {"a": a}, priority={"b": "n"})["a"], "priority for b"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mistakes_are_told_when_the_program_is_built(mistake: Any, message: str) -> None:
    with pytest.raises(ProgramError, match=r"test_operators\.py:\d+: ") as caught:
        build(lambda t: {"out": mistake(t)}, {"t": {"n": "int64"}})
    assert message in str(caught.value)


def test_a_loop_of_several_that_swings_is_told() -> None:
    def program(t: Any) -> Any:
        both = dd.iterate({"a": t, "b": t.where("false")}, lambda a, b: {"a": b, "b": a}, max_rounds=9)
        return {"out": both["a"]}

    with pytest.raises(Diverged, match="round 9"):
        dd.replay(program, t=frame("n", "0:+1@0"))
