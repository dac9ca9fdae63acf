"""The acceptance cases about compaction, closed times and runs that are cut, by their numbers.

A session never advances a stored time. These cases advance its state, as the compaction of a warehouse would, and fold
on; tests/test_compaction.py has the same cases through compacted tables.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import folding
import numpy as np
import pytest
from folding import Fold
from hypothesis import given, settings
from hypothesis import strategies as st
from notation import DIMS, frame, log
from test_semantics import distances, distinct, reach, same
from trams import Command

import ddcore as dd
from ddcore import reference
from ddcore.base import lattice
from ddcore.base.errors import LateUpdate

Time = tuple[int, ...]


def session_of(program: Any, dims: int = 1, **columns: str) -> dd.Session:
    """``columns``: the columns of each input, all of text."""
    schemas = {name: dict.fromkeys(names.split(), "string") for name, names in columns.items()}
    return dd.Session(program, schemas, DIMS[dims])


def out(session: dd.Session, frames: dict[str, Any], upper: Sequence[Time] | None = None) -> dict[Any, int]:
    return reference.log_of(session.fold(frames, upper=upper)["out"], session.plan.dims)


# -- 3. Joins and compacted state -------------------------------------------------------------------------------------


@pytest.mark.parametrize("since", [None, 0, 2, 6])
def test_T12_emptying_a_time_keeps_the_key(since: int | None) -> None:
    session = session_of(lambda a, b: {"out": a.join(b, on="k")}, a="k v", b="k u")
    assert out(session, {"a": frame("k v", "(k,v):+1@0 (k,v):-1@1 (k,w):+1@5")}, [(6,)]) == {}
    if since is not None:
        folding.advance(session, [(since,)])
    assert out(session, {"b": frame("k u", "(k,u):+1@6")}) == log("(k,w,u):+1@6")


def test_T12_without_compaction(fold: Fold) -> None:
    a, b = frame("k v", "(k,v):+1@0 (k,v):-1@1 (k,w):+1@5"), frame("k u", "(k,u):+1@6")
    same(fold(lambda a, b: {"out": a.join(b, on="k")}, a=a, b=b)["out"], log("(k,w,u):+1@6"))


def pairs(r: Any, s: Any) -> dict[str, Any]:
    return {"out": dd.delta_join((r, ["k", "a"]), (s, ["k", "b"])).select("a", "b")}


@pytest.mark.parametrize("since", [None, 1, 2])
def test_T15_a_delta_join_of_compacted_state(since: int | None) -> None:
    """Its rules tell new updates from stored ones by their batch: no time is compared, so it may be advanced to 2."""
    session = session_of(pairs, r="k a", s="k b")
    assert out(session, {"r": frame("k a", "(k,a):+1@1")}, [(2,)]) == {}
    if since is not None:
        folding.advance(session, [(since,)])
    assert out(session, {"s": frame("k b", "(k,b):+1@2")}) == log("(a,b):+1@2")


def test_T15_without_compaction(fold: Fold) -> None:
    r, s = frame("k a", "(k,a):+1@1"), frame("k b", "(k,b):+1@2")
    same(fold(pairs, r=r, s=s)["out"], log("(a,b):+1@2"))


A, B = "(x,one):+1@(0,0) (x,one):-1@(0,1)", "(x,y):+1@(0,0)"


def test_T17_a_batch_that_compacts_to_nothing(fold: Fold) -> None:
    def program(a: Any, b: Any) -> dict[str, Any]:
        return {"out": a.join(b, on="k")}

    actual = fold(program, a=frame("k v", A), b=frame("k u", B))
    same(actual["out"], log("(x,one,y):+1@(0,0) (x,one,y):-1@(0,1)"))


@pytest.mark.parametrize("early", [True, False])
def test_T17_across_runs(early: bool) -> None:
    """Whether the second update waits in the session or arrives later, each pair is given once."""
    session = session_of(lambda a, b: {"out": a.join(b, on="k")}, 2, a="k v", b="k u")
    a = frame("k v", A)
    first = {"a": a if early else a[:1], "b": frame("k u", B)}
    assert out(session, first, [(0, 1)]) == log("(x,one,y):+1@(0,0)")
    folding.advance(session, [(0, 1)])
    assert out(session, {} if early else {"a": a[1:]}, [(1, 2)]) == log("(x,one,y):-1@(0,1)")
    folding.advance(session, [(1, 2)])
    assert out(session, {}) == {}


# -- 4. Frontiers -----------------------------------------------------------------------------------------------------


def columns(times: list[Time], dims: int) -> np.ndarray:
    return np.array(times, dtype=np.int64).reshape(len(times), dims).T


ADVANCED = [
    ([(4, 8), (5, 3)], {(3, 7): (4, 7), (0, 0): (4, 3), (2, 2): (4, 3), (6, 1): (6, 3), (4, 9): (4, 9)}),
    ([(2, 0), (0, 2)], {(1, 0): (1, 0)}),
    ([], {(7, 0): (7, 0), (0, 2): (0, 2)}),
]


@pytest.mark.parametrize(("since", "representatives"), ADVANCED, ids=str)
def test_T18_representatives(since: list[Time], representatives: dict[Time, Time]) -> None:
    actual = lattice.advance(columns(list(representatives), 2), columns(since, 2))
    assert [tuple(time) for time in actual.T.tolist()] == list(representatives.values())


@settings(max_examples=150, derandomize=True, deadline=None)
@given(st.data())
def test_T19_accumulations_beyond_the_frontier_stay(data: st.DataObject) -> None:
    dims = data.draw(st.integers(1, 3))
    time = st.tuples(*[st.integers(0, 3)] * dims)
    updates = data.draw(st.lists(st.tuples(st.sampled_from("xyz"), time, st.integers(-2, 2)), max_size=8))
    since = list(lattice.frontier(data.draw(st.lists(time, max_size=3))))
    actual = lattice.advance(columns([at for _, at, _ in updates], dims), columns(since, dims)).T.tolist()
    grid = [tuple(map(int, at)) for at in np.ndindex(*[5] * dims)]
    beyond = [at for at in grid if not since or any(lattice.le(item, at) for item in since)]
    for row in "xyz":
        for end in beyond:
            before = sum(diff for key, at, diff in updates if key == row and lattice.le(at, end))
            moved = [(key, tuple(at), diff) for (key, _, diff), at in zip(updates, actual, strict=True)]
            assert before == sum(diff for key, at, diff in moved if key == row and lattice.le(at, end))
    views: dict[Any, list[int]] = {}
    for (_, at, _), representative in zip(updates, actual, strict=True):
        view = tuple(lattice.le(at, end) for end in beyond)
        assert views.setdefault(view, representative) == representative
    assert len({tuple(item) for item in views.values()}) == len(views)


def test_T19_state_beyond_the_frontier_stays(fold: Fold) -> None:
    """A loop over retractions at two coordinates: folding.compacted advances its state after every time."""
    edges = frame("src dst", "(a,b),(b,c):+1@(0,0) (a,b):-1@(1,0) (a,c):+1@(0,1) (b,c):-1@(1,1) (c,d):+1@(0,2)")
    actual = fold(reach, edges=edges, roots=frame("node", "a:+1@(0,0)"))["out"]
    same(actual, log("a,b,c:+1@(0,0) b,c:-1@(1,0) d:+1@(0,2) c:+1@(1,1)"))


def test_T20_a_version_that_is_not_complete_is_refused(copied: Any, request: pytest.FixtureRequest) -> None:
    """With the version in question and the last complete one. test_compaction.py has the times that are too old."""
    command: Command = request.getfixturevalue("dd")
    code, lines, err = command("show", "journeys", "--at", "6")
    assert (code, lines) == (2, [])
    assert "6 is not yet complete" in err[0] and "5" in err[0]
    assert command("show", "journeys", "--at", "1")[0] == 0


def test_T20_a_fold_gives_nothing_at_or_beyond_its_upper() -> None:
    session = session_of(distinct, 2, words="k")
    words = frame("k", "cat:+1@(0,3) cat:+1@(1,2) dog:+1@(2,0)")
    upper = [(1, 3), (2, 0)]
    first = out(session, {"words": words}, upper)
    assert first == log("cat:+1@(0,3) cat:+1@(1,2)")
    with pytest.raises(LateUpdate, match=r"\(0, 9\).*\(1, 3\), \(2, 0\)"):
        session.fold({"words": frame("k", "dog:+1@(0,9)")})
    assert out(session, {}) == log("cat:-1@(1,3) dog:+1@(2,0)")


def test_T22_updates_that_cancel_hold_nothing_back() -> None:
    """Two folds leave updates for later that add up to nothing; then nothing is due, at any time."""
    session = session_of(distinct, words="k")
    assert out(session, {"words": frame("k", "cat:+1@5 dog:+1@0")}, [(1,)]) == log("dog:+1@0")
    assert out(session, {"words": frame("k", "cat:-1@5")}, [(2,)]) == {}
    assert out(session, {}, [(9,)]) == {}
    worker = session._worker
    assert not worker.state.held and not worker.state.pending and worker.agenda.next_position is None
    assert out(session, {"words": frame("k", "cat:+1@9")}) == log("cat:+1@9")


# -- Runs that are cut ------------------------------------------------------------------------------------------------


def test_T24_however_a_history_is_cut_the_logs_are_equal() -> None:
    """Byte for byte, when the logs of the runs are sorted as one: versions one by one, in one run, and at random."""
    edges = frame("src dst", "(a,b),(b,c),(c,d):+1@0 (a,d):+1@1 (b,c):-1@2 (d,b):+1@4")
    seeds = frame("node dist", "(a,0):+1@0")
    whole = folding.whole(distances, edges=edges, seeds=seeds)
    ways: list[folding.Fold] = [folding.one_time_each, folding.compacted]
    assert all(way(distances, edges=edges, seeds=seeds) == whole for way in ways)
    for seed in range(5):
        assert folding.randomly_cut(distances, seed=seed, edges=edges, seeds=seeds) == whole


# -- 2. Sums that do not depend on an order ---------------------------------------------------------------------------


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


@pytest.mark.parametrize("order", [(1e16, 1.0, -1e16), (1.0, 1e16, -1e16), (1e16, -1e16, 1.0)], ids=str)
def test_T10_a_sum_of_floats_is_exact_in_every_order(fold: Fold, order: tuple[float, ...]) -> None:
    import polars as pl

    rows = [("k", value, version, 1) for version, value in enumerate(order)]
    values = pl.DataFrame(rows, schema=["k", "v", "version", "diff"], orient="row")
    actual = fold(lambda values: {"out": values.group_by("k").agg(total=dd.sum("v"))}, values=values)["out"]
    at_end = {row: sum(diff for (other, _), diff in actual.items() if other == row) for row, _ in actual}
    assert {row: count for row, count in at_end.items() if count} == {("k", math.fsum(order)): 1}
    assert bits(math.fsum(order)) == bits(1.0)
