"""Inside a loop: the differences at (version, round) that the engine keeps, case by case, whole and in runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import folding
import polars as pl
import pytest
from notation import frame, log, pair
from test_semantics import HALVE, distances, reach, same

import ddcore as dd
from ddcore import reference
from ddcore.frames import output_frame


@pytest.fixture(params=["whole", "a run for each version"])
def inside(request: pytest.FixtureRequest) -> Any:
    """Folds a program of one loop; gives the differences of R_i = body(W_i) at (version, i), from its trace."""

    def differences(program: Any, **frames: pl.DataFrame) -> Any:
        schemas = {
            name: {c: folding.type_name(t) for c, t in each.schema.items() if c not in ("version", "diff")}
            for name, each in frames.items()
        }
        session = dd.Session(program, schemas)
        if request.param == "whole":
            session.fold(frames)
        else:
            for (version,) in folding.grid(frames):
                session.fold({name: each.filter(version=version) for name, each in frames.items()})
        plan = session.plan
        variables = {v for loop in plan.loops.values() for v in loop.variables}
        (arrangement,) = (a for a in plan.arrangements if a.node in variables and not a.transient)
        updates = [arrangement.batch_of(batch) for batch in session._worker.traces[arrangement.index].batches]
        # The trace is that of W, and R_i = W_{i+1}: what W is at round 0 or 1, R is at round 0.
        actual: Counter[Any] = Counter()
        variable = reference.log_of(output_frame(updates, arrangement.collection, arrangement.times), arrangement.times)
        for (row, (version, number)), diff in variable.items():
            actual[row, (version, max(0, number - 1))] += diff
        return {update: diff for update, diff in actual.items() if diff}

    return differences


def test_T25_reach(inside: Any) -> None:
    edges = frame("src dst", "ab,bc,cd:+1@0 ab:-1,ac:+1@1 cd:-1@2", pair)
    expected = "a,b:+1@(0,0) c:+1@(0,1) d:+1@(0,2) b:-1,c:+1@(1,0) c:-1,d:+1@(1,1) d:-1@(1,2) d:-1@(2,1)"
    same(inside(reach, edges=edges, roots=frame("node", "a:+1@0")), log(expected))


def test_T26_transitive_closure(inside: Any) -> None:
    def program(edges: Any) -> dict[str, Any]:
        def body(pairs: Any) -> Any:
            return pairs.join(edges, on={"dst": "src"}).select("src", dst="dst_right").concat(edges).distinct()

        return {"out": edges.where("false").iterate(body)}

    actual = inside(program, edges=frame("src dst", "ab,bc,bd,ca:+1@0 bc:-1@1", pair))
    later = {update: diff for update, diff in actual.items() if update[1][0] == 1}
    same(later, log("bc:-1@(1,0) ac,ba:-1@(1,1) aa,bb,cc:-1@(1,2)", pair))


def test_T27_distances(inside: Any) -> None:
    edges = frame("src dst", "ab,bc,cd:+1@0 ad:+1@1 bc:-1@2", pair)
    actual = inside(distances, edges=edges, seeds=frame("node dist", "(a,0):+1@0"))
    later = {update: diff for update, diff in actual.items() if update[1][0] > 0}
    same(later, log("(d,1):+1@(1,0) (d,3):-1@(1,2) (c,2):-1@(2,1)"))


def test_T29_bag_without_distinct(inside: Any) -> None:
    def program(bag: Any) -> dict[str, Any]:
        nothing = bag.where("false")

        def body(w: Any) -> Any:
            return w.select(x=HALVE).concat(w.join(nothing, on="x").select("x"))  # joined so that w is kept

        return {"out": bag.iterate(body)}

    first = "1:+2,2:+1,3:+2,4:+1,5,7,9:+1@(0,0) 1:+1,4:-1@(0,1) 1:+1,2:-1@(0,2)"
    second = "4:-1@(1,0) 2:-1,4:+1@(1,1) 1:-1,2:+1@(1,2)"
    same(inside(program, bag=frame("x", "1,2,3,4,5,6,7,8,9:+1@0 8:-1@1")), log(f"{first} {second}"))
