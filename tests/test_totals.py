"""Totals of groups: where they take the place of rows, and that they are exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from folding import by_reference

import ddcore as dd
from ddcore import reference
from ddcore.base.errors import DiffOverflow, NegativeMultiplicity
from ddcore.operators.totals import Contributions
from ddcore.planning.plan import Plan
from ddcore.planning.planner import build
from ddcore.traces.batch import Batch

SCHEMAS = {"t": {"k": "int64", "v": "int64", "f": "float64"}, "u": {"k": "int64", "w": "int64"}}
TIMES = ("version",)


def summed(rows: Any) -> Any:
    return rows.group_by("k").agg(s=dd.sum("v"))


def with_totals(plan: Plan) -> int:
    """How many arrangements are of totals."""
    return sum(plan.nodes[arrangement.node].operator.name == "totals" for arrangement in plan.arrangements)


def halved(t: Any) -> Any:
    return t.select("k", v=pl.col("v") // 2)


PROVED: dict[str, Callable[[Any, Any], Any]] = {
    "an input": lambda t, u: t,
    "linear operators": lambda t, u: t.where("v > 1").concat(t).select("k", "v", x=pl.lit([1, 2])).flat_map(x="x"),
    "a join": lambda t, u: t.join(u, on="k"),
    "a left join": lambda t, u: t.join(u, on="k", how="left"),
    "a full join": lambda t, u: t.join(u, on="k", how="full"),
    "an anti-join": lambda t, u: t.join(u, on="k", how="anti"),
    "what a filter leaves": lambda t, u: t.concat(t.where("v > 1").negate()),
    "counts that are always positive": lambda t, u: t.negate().distinct(allow_negative=True),
    "top_k": lambda t, u: t.group_by("k").top_k(2, "v"),
    "differences without negative counts": lambda t, u: t.except_(t.where("k > 1")),
    "constant rows": lambda t, u: dd.constant(pl.DataFrame({"k": [1], "v": [2]})),
    "a loop": lambda t, u: t.select("k", "v").iterate(lambda w: halved(w).concat(t.select("k", "v")).distinct()),
}
UNPROVED: dict[str, Callable[[Any, Any], Any]] = {
    "negate": lambda t, u: t.negate(),
    "more is subtracted than there is": lambda t, u: t.concat(t.negate(), t.negate()),
    "others are subtracted": lambda t, u: t.where("v > 1").concat(t.negate()),
    "pairs are subtracted": lambda t, u: t.concat(t.join(u.select("k"), on="k").negate()),
    "a function's counts": lambda t, u: t.group_by("k").reduce(
        lambda frame: frame.select("group", v="v"), {"v": "int64"}
    ),
    "a loop that subtracts": lambda t, u: t.select("k", "v").iterate(
        lambda w: halved(w).negate().concat(t.select("k", "v")), max_rounds=3, at_limit="return"
    ),
    "a group in such a loop": lambda t, u: t.select("k", "v").iterate(
        lambda w: summed(w).select("k", v="s").negate(), max_rounds=3, at_limit="return"
    ),
    "what reaches a loop": lambda t, u: t.negate().select("k", "v").iterate(halved, max_rounds=3, at_limit="return"),
}


@pytest.mark.parametrize("rows", PROVED.values(), ids=PROVED)
def test_where_no_count_can_be_negative_groups_have_totals(rows: Callable[[Any, Any], Any]) -> None:
    assert with_totals(build(lambda t, u: {"out": summed(rows(t, u))}, SCHEMAS, nonnegative=True)) == 1


@pytest.mark.parametrize("rows", UNPROVED.values(), ids=UNPROVED)
def test_elsewhere_they_keep_rows(rows: Callable[[Any, Any], Any]) -> None:
    assert with_totals(build(lambda t, u: {"out": summed(rows(t, u))}, SCHEMAS, nonnegative=True)) == 0


def test_nothing_is_known_of_inputs_that_are_not_checked() -> None:
    def program(t: Any, u: Any) -> dict[str, Any]:
        return {"out": summed(t), "distinct": u.distinct().group_by("k").agg(s=dd.sum("w"))}

    known, unknown = (build(program, SCHEMAS, nonnegative=item) for item in (True, False))
    assert (with_totals(known), with_totals(unknown)) == (2, 1)
    assert known.fingerprint != unknown.fingerprint
    rows = pl.DataFrame({"k": [1], "v": [2], "f": [0.5], "version": [0], "diff": [-1]})
    with pytest.raises(NegativeMultiplicity):
        dd.replay(lambda t: {"out": summed(t)}, t=rows)


@pytest.mark.parametrize(
    ("allow", "kept"),
    [
        ({"s": dd.sum("v"), "n": dd.count()}, 1),
        ({"m": dd.mean("v"), "n": dd.count(where="v > 1")}, 1),
        ({"s": dd.sum("f")}, 0),  # infinite values count by the signs of rows
        ({"b": dd.any(pl.col("v") > 1)}, 0),
        ({"d": dd.count_distinct("v")}, 0),
        ({"s": dd.sum("v"), "x": dd.max("f")}, 0),
    ],
    ids=["sums and counts", "means", "floats", "any", "distinct", "picked"],
)
def test_with_negative_counts_allowed_sums_need_no_rows(allow: dict[str, Any], kept: int) -> None:
    plan = build(lambda t, u: {"out": t.negate().group_by("k").agg(allow_negative=True, **allow)}, SCHEMAS)
    assert with_totals(plan) == kept


def test_a_count_alone_and_a_sum_of_what_is_picked_keep_rows() -> None:
    def program(t: Any, u: Any) -> dict[str, Any]:
        groups = t.group_by("k")
        return {"n": groups.agg(n=dd.count()), "both": groups.agg(s=dd.sum("v"), n=dd.count(), x=dd.max("v"))}

    assert with_totals(build(program, SCHEMAS, nonnegative=True)) == 0


def test_an_agg_that_picks_keeps_only_the_columns_that_it_picks_from() -> None:
    def program(t: Any, u: Any) -> dict[str, Any]:
        return {"out": t.group_by("k").agg(s=dd.sum("f"), x=dd.max("v"), n=dd.count())}

    plan = build(program, SCHEMAS, nonnegative=True)
    columns = [
        [*arrangement.collection]
        for arrangement in plan.arrangements
        if not (arrangement.transient or plan.is_inner(arrangement))
    ]
    assert columns == [["k", "v"], ["k", "x"], ["k", "_component_0", "_component_0_0"], ["k", "s", "x", "n"]]
    assert [node.operator.name for node in plan.operators] == ["input", "input", "select", "agg"]


def test_equal_totals_are_kept_once() -> None:
    def program(t: Any, u: Any) -> dict[str, Any]:
        return {name: t.group_by("k").agg(**{name: dd.sum("v")}) for name in ("one", "two")}

    plan = build(program, SCHEMAS, nonnegative=True)
    assert len([arrangement for arrangement in plan.arrangements if "_component_0" in arrangement.collection]) == 1


VALUES = [None, 0.1, -0.1, 0.0, 1e308, -1e308, 5e-324, 2.0**52, math.inf, -math.inf, math.nan]


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(6))
def test_totals_are_exact(seed: int) -> None:
    """Sums beyond one and two words, of the least and the greatest floats, with infinities, in two folds."""
    rng = np.random.default_rng(seed)
    n = 400
    numbers = [0, 1, -1, 2**35, 2**36, -(2**36), 2**62, -(2**62), 2**63 - 1, -(2**63) + 1, None]
    log = pl.DataFrame(
        {
            "k": rng.integers(0, 1 + 10 * (seed % 2), n),
            "v": [numbers[location] for location in rng.integers(0, len(numbers), n)],
            "f": [VALUES[location] for location in rng.integers(0, len(VALUES) - 3 * (seed // 2 % 2), n)],
            "version": rng.integers(0, 9, n),
            "diff": rng.choice([1, 2, 2**33], n),
        },
        schema_overrides={"v": pl.Int64, "f": pl.Float64},
    )
    back = log.sample(n // 2, seed=seed).with_columns(version=pl.col("version") + 3, diff=-pl.col("diff"))
    log = pl.concat([log, back])

    def program(t: Any) -> dict[str, Any]:
        groups = t.group_by("k")
        return {
            "means": groups.agg(m=dd.mean("v"), f=dd.mean("f"), d=dd.count_distinct("v"), n=dd.count()),
            "sums": groups.agg(s=dd.sum("f"), x=dd.max("v")),
            "truths": groups.agg(one=dd.any(pl.col("v") > 0), every=dd.all(pl.col("v") > 0), n=dd.count(where="v = 1")),
            "small": groups.agg(s=dd.sum(pl.col("v") % 1000), m=dd.mean(pl.col("v") % 7)),
        }

    expected = by_reference(program, t=log)
    session = dd.Session(program, {"t": SCHEMAS["t"]}, nonnegative=True)
    parts = [session.fold({"t": log.filter((pl.col("version") > 4) == late)}) for late in (False, True)]
    logs = {name: pl.concat([part[name] for part in parts]) for name in parts[0]}
    assert {name: reference.log_of(item, TIMES) for name, item in logs.items()} == expected


def test_a_sum_that_int64_cannot_hold_is_an_error_only_where_it_is_one() -> None:
    log = {"k": [1, 1, 2, 2], "v": [2**62, 2**62, 2**62, 2**62], "f": [0.0, 1.0, 0.0, 1.0]}
    more = {"k": [2], "v": [-(2**62)], "f": [2.0]}
    at = {"version": pl.lit(0, pl.Int64), "diff": pl.lit(1, pl.Int64)}
    frame = pl.concat([pl.DataFrame(log), pl.DataFrame(more)]).with_columns(**at)
    with pytest.raises(DiffOverflow, match=r"agg .*: key \(1,\) at time \(0,\): a sum or a count"):
        dd.replay(lambda t: {"out": summed(t)}, t=frame)
    assert dd.replay(lambda t: {"out": summed(t)}, t=frame.filter(pl.col("k") == 2))["out"].rows() == [(2, 2**62, 0, 1)]


def test_many_rows_become_few_updates() -> None:
    """Of rows of three keys at two times three components each, with diffs of two words too."""
    plan = build(lambda t, u: {"out": t.group_by("k").agg(m=dd.mean("v"), n=dd.count())}, SCHEMAS, nonnegative=True)
    (operator,) = (node.operator for node in plan.nodes if isinstance(node.operator, Contributions))
    n = 6000
    words = [np.arange(n) % 3, np.where(np.arange(n) % 2, -(2**63), 5)]
    batch = Batch(words, [np.arange(n) // 3000], np.ones(n, np.int64))
    few = operator.apply(batch, "")
    assert len(few) == 18 and few.diffs.tolist() == 6 * [1000] + 6 * [2500] + 6 * [500]
    wide = operator.apply(Batch(words, batch.times, np.zeros(n, np.int64), np.ones(n, np.int64)), "")
    limbs = {(int(k), int(c), int(t)): int(d) for k, c, t, d in zip(*wide.words, *wide.times, wide.diffs, strict=True)}
    rows = sum(limbs.get((0, 3 * limb, 0), 0) << (36 * limb) for limb in range(6))
    total = sum(limbs.get((0, 3 * limb + 1, 0), 0) << (36 * limb) for limb in range(6))
    assert (rows, total) == (1000 << 64, 2500 << 64)
