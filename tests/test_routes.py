"""Routes of updates: which stay with a worker, how far one goes on alone, and that nobody works on others' keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sparkless
from notation import frame
from programs import Case, case
from seeds import nightly
from test_exchange import expected_of, outcome
from test_random_programs import compare
from warehouses import project_of

import ddcore as dd
from ddcore import algorithms
from ddcore.jobs.engines.routes import Routing, routing_of
from ddcore.operators.block import Position
from ddcore.planning.plan import Plan
from ddcore.planning.planner import build

EDGES = {"src": "int64", "dst": "int64"}


def planned(program: Any, **schemas: Any) -> tuple[Plan, Routing]:
    plan = build(program, schemas, ("version",))
    return plan, routing_of(plan)


def position_of(plan: Plan, op: str, *rounds: int) -> Position:
    (block,) = [block for block in plan.blocks if block.op == op and not plan.operator(block).inner]
    return block.position(rounds)


def horizon_of(plan: Plan, routing: Routing, op: str, *rounds: int) -> Position | None:
    return routing.horizon(position_of(plan, op, *rounds))


def search(edges: Any, roots: Any) -> Any:
    return {"hops": algorithms.bfs(edges, roots)}


def test_a_search_has_one_superstep_a_round() -> None:
    """The least distance of a node goes to the join of the next round, which is keyed by the node as well."""
    plan, routing = planned(search, edges=EDGES, roots={"node": "int64"})
    for current in (0, 1, 7):
        assert horizon_of(plan, routing, "join", current) == position_of(plan, "agg", current)
        assert horizon_of(plan, routing, "agg", current) == position_of(plan, "agg", current + 1)
    assert horizon_of(plan, routing, "output") is None
    assert routing.horizon((0,)) == position_of(plan, "agg", 0)


def test_routes_into_a_tree_count_only_where_groups_are_large() -> None:
    """The buckets of a large group are anywhere: its rows go on to them before the group itself."""
    plan, _ = planned(search, edges=EDGES, roots={"node": "int64"})
    (group,) = [block for block in plan.blocks if block.op == "agg" and block.spread is not None]
    assert group.output is not None
    routing = routing_of(plan, {plan.arrangements[group.output].fingerprint})
    horizon = routing.horizon(position_of(plan, "join", 0))
    assert horizon is not None
    assert position_of(plan, "join", 0) < horizon < group.position((0,))


def test_outputs_stay_where_they_are_made() -> None:
    plan, routing = planned(search, edges=EDGES, roots={"node": "int64"})
    (output,) = [a for a in plan.arrangements if a.output]
    assert routing.keys[output.index] == ("node",)
    assert output.index in routing.home


@pytest.mark.parametrize(
    ("key", "stays"),
    [
        (("a", "b"), True),
        (("b", "a"), False),  # another order has another code
        (("a",), False),
        (("a", "b", "n"), False),
    ],
)
def test_a_route_is_local_only_with_the_same_key_in_the_same_order(key: tuple[str, ...], stays: bool) -> None:
    def program(rows: Any) -> Any:
        counts = rows.group_by("a", "b").agg(n=dd.count())
        return {"out": counts.group_by(*key).agg(m=dd.count())}

    _, routing = planned(program, rows={"a": "int64", "b": "int64"})
    assert (len(routing.crossing) == 0) is stays


def test_a_renamed_key_is_the_same_key_and_a_computed_one_is_not() -> None:
    def program(rows: Any) -> Any:
        counts = rows.group_by("a").agg(n=dd.count())
        renamed = counts.select(x="a", n="n").where(dd.col("n") > 1)
        computed = counts.select(x=dd.col("a") + 1, n="n")
        return {name: item.group_by("x").agg(m=dd.sum("n")) for name, item in (("r", renamed), ("c", computed))}

    plan, routing = planned(program, rows={"a": "int64"})
    blocks = [block for block in plan.blocks if block.op == "agg" and not plan.operator(block).inner]
    away = {plan.blocks[plan.arrangements[route.arrangement].block].index for route in routing.crossing}
    stays = [block.index for block in blocks if block.index not in away]
    assert len(blocks) - len(stays) == 1, "only the computed key's group is elsewhere"


def test_horizons_lie_behind_their_position_and_ascend() -> None:
    for seed in range(60):
        drawn = case(seed, plain=True)
        schemas = {name: {c: str_of for c, str_of in _schema(rows).items()} for name, rows in drawn.frames.items()}
        dims = tuple(c for c in next(iter(drawn.frames.values())).columns if c in ("version", "day", "revision"))
        plan = build(drawn.program, schemas, dims or ("version",))
        routing = routing_of(plan)
        locations = sorted(
            block.position(rounds)
            for block in plan.blocks
            for rounds in {(current,) * block.depth for current in range(4)}
        )
        horizons = [routing.horizon(location) for location in locations]
        for location, horizon in zip(locations, horizons, strict=True):
            assert horizon is None or horizon > location, f"seed {seed}"
        ends = [(1, ()) if horizon is None else (0, horizon) for horizon in horizons]
        assert ends == sorted(ends), f"seed {seed}"


def _schema(rows: pl.DataFrame) -> dict[str, str]:
    from folding import dims_of, type_name

    dims = dims_of({"": rows})
    return {c: type_name(kind) for c, kind in rows.schema.items() if c not in (*dims, "diff")}


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", nightly(range(60), 4))
def test_nobody_works_on_the_keys_of_others(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``sparkless`` checks at every step: each update that is queued there is in the worker's own range."""
    sparkless.install(monkeypatch, seed=seed)
    drawn = case(seed, plain=True)
    outcomes = outcome(project_of(tmp_path / "p", drawn), [None], engine="spark", parallelism=2 + seed % 3)
    compare(drawn, "whole, by several", expected_of(drawn), outcomes)


SEARCH = """
from ddcore import algorithms


def program(edges, roots):
    return {"hops": algorithms.bfs(edges, roots)}
"""


def test_a_search_is_folded_in_one_superstep_a_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of 12 nodes: a superstep for the edges and the first join, one for each round, and one for the output."""
    scope: dict[str, Any] = {}
    exec(SEARCH, scope)
    chain = ",".join(f"({node},{node + 1})" for node in range(11))
    frames = {"edges": frame("src dst", f"{chain}:+1@0 (3,9):+1@1"), "roots": frame("node", "0:+1@0")}
    drawn = Case(0, SEARCH, scope["program"], frames)
    stage = sparkless.install(monkeypatch)
    outcomes = outcome(project_of(tmp_path / "p", drawn), [None], engine="spark", parallelism=3)
    compare(drawn, "a chain", expected_of(drawn), outcomes)
    rounds = 13
    assert {report.supersteps for report in stage.reports} <= {rounds, rounds + 1, rounds + 2}
