"""``inspect``: the differences of a collection at (version, rounds), as an output log."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import folding
import polars as pl
import pytest
from folding import Fold
from notation import frame, log, pair
from programs import Case
from test_semantics import HALVE, same
from trams import records
from warehouses import logs_of, project_of

import ddcore as dd
from ddcore.base.errors import Diverged, ProgramError
from ddcore.io.project.program import load_program
from ddcore.io.project.times import time_of
from ddcore.jobs import replay
from ddcore.planning.planner import build

col = pl.col


@pytest.fixture(params=[folding.by_reference, folding.whole, folding.one_time_each, folding.randomly_cut])
def fold(request: pytest.FixtureRequest) -> Fold:
    """One way to fold: takes a program and its inputs, gives the logs of its outputs."""
    way: Fold = request.param
    return way


def inner(logs: folding.Logs, loops: int = 1, name: str = "inner") -> dict[tuple[Any, Any], int]:
    """An inspected log by (row, (version, rounds..))."""
    return {(row[:-loops], (*time, *row[-loops:])): diff for (row, time), diff in logs[name].items()}


def at(version: int, differences: dict[tuple[Any, Any], int]) -> dict[tuple[Any, Any], int]:
    return {update: diff for update, diff in differences.items() if update[1][0] == version}


# -- the numbered cases -----------------------------------------------------------------------------------------------


def reach(edges: Any, roots: Any) -> dict[str, Any]:
    def body(seen: Any) -> Any:
        onward = seen.join(edges, on={"node": "src"}).select(node="dst")
        return onward.concat(roots).distinct().inspect("inner")

    return {"out": roots.iterate(body)}


REACH = {"edges": frame("src dst", "ab,bc,cd:+1@0 ab:-1,ac:+1@1 cd:-1@2", pair), "roots": frame("node", "a:+1@0")}


def test_T25_reach(fold: Fold) -> None:
    logs = fold(reach, **REACH)
    expected = "a,b:+1@(0,0) c:+1@(0,1) d:+1@(0,2) b:-1,c:+1@(1,0) c:-1,d:+1@(1,1) d:-1@(1,2) d:-1@(2,1)"
    same(inner(logs), log(expected))
    same(logs["out"], log("a,b,c,d:+1@0 b:-1@1 d:-1@2"))


def test_T26_transitive_closure(fold: Fold) -> None:
    def program(edges: Any) -> dict[str, Any]:
        def body(pairs: Any) -> Any:
            onward = pairs.join(edges, on={"dst": "src"}).select("src", dst="dst_right")
            return onward.concat(edges).distinct().inspect("inner")

        return {"out": edges.where("false").iterate(body)}

    actual = inner(fold(program, edges=frame("src dst", "ab,bc,bd,ca:+1@0 bc:-1@1", pair)))
    same(at(1, actual), log("bc:-1@(1,0) ac,ba:-1@(1,1) aa,bb,cc:-1@(1,2)", pair))


def distances(edges: Any, seeds: Any) -> dict[str, Any]:
    def relax(dists: Any) -> Any:
        hops = dists.join(edges, on={"node": "src"}).select(node="dst", dist=col("dist") + 1)
        return hops.concat(seeds).group_by("node").agg(dist=dd.min("dist")).inspect("inner")

    return {"out": seeds.iterate(relax)}


def test_T27_distances(fold: Fold) -> None:
    edges = frame("src dst", "ab,bc,cd:+1@0 ad:+1@1 bc:-1@2", pair)
    actual = inner(fold(distances, edges=edges, seeds=frame("node dist", "(a,0):+1@0")))
    same(at(1, actual) | at(2, actual), log("(d,1):+1@(1,0) (d,3):-1@(1,2) (c,2):-1@(2,1)"))


def test_T28_published_distances(fold: Fold) -> None:
    """Version 3 takes the only road to 1 in one hop; 1 is then not reached at all, so no round has it."""
    history = "11,21,01,02,10:+1@0 20:+1,11:-1@1 12:+1,21:-1@2 12:+1,01:-1@3 21:+1,02:-1@4 02:+1,10:-1@5"
    actual = inner(fold(distances, edges=frame("src dst", history, pair), seeds=frame("node dist", "(0,0):+1@0")))
    same(at(0, actual), log("(0,0),(1,1),(2,1):+1@(0,0)"))
    same(at(3, actual), log("(1,1):-1@(3,0)"))
    same(at(4, actual), log("(2,1):-1@(4,0)"))
    same(at(5, actual), log("(2,1):+1@(5,0) (1,2):+1@(5,1)"))


def test_T29_bag_without_distinct(fold: Fold) -> None:
    def program(bag: Any) -> dict[str, Any]:
        return {"out": bag.iterate(lambda w: w.select(x=HALVE).inspect("inner"))}

    first = "1:+2,2:+1,3:+2,4:+1,5,7,9:+1@(0,0) 1:+1,4:-1@(0,1) 1:+1,2:-1@(0,2)"
    second = "4:-1@(1,0) 2:-1,4:+1@(1,1) 1:-1,2:+1@(1,2)"
    same(inner(fold(program, bag=frame("x", "1,2,3,4,5,6,7,8,9:+1@0 8:-1@1"))), log(f"{first} {second}"))


def test_T30_the_variable_takes_the_source_back(fold: Fold) -> None:
    """W is the source in round 0, and in round 1 what the body returned for it."""

    def program(bag: Any) -> dict[str, Any]:
        return {"out": bag.iterate(lambda w: w.inspect("inner").select(x=HALVE))}

    actual = inner(fold(program, bag=frame("x", "8:+2,6:+1@0 8:-1@1")))
    rounds = "8:+2,6:+1@(0,0) 8:-2,6:-1,4:+2,3:+1@(0,1) 4:-2,2:+2@(0,2) 2:-2,1:+2@(0,3)"
    same(actual, log(f"{rounds} 8:-1@(1,0) 8:+1,4:-1@(1,1) 4:+1,2:-1@(1,2) 2:+1,1:-1@(1,3)"))


# -- loops in loops, priorities, limits -------------------------------------------------------------------------------


def test_each_loop_has_a_column(fold: Fold) -> None:
    def program(bag: Any) -> dict[str, Any]:
        def outer(w: Any) -> Any:
            return w.inspect("outer").iterate(lambda v: v.select(x=HALVE).inspect("inner"))

        return {"out": bag.iterate(outer)}

    logs = fold(program, bag=frame("x", "4:+1@0"))
    same(inner(logs, 2), log("2:+1@(0,0,0) 2:-1,1:+1@(0,0,1) 2:-1,1:+1@(0,1,0) 2:+1,1:-1@(0,1,1)"))
    same(inner(logs, 1, "outer"), log("4:+1@(0,0) 4:-1,1:+1@(0,1)"))
    plan = build(program, {"bag": {"x": "int64"}})
    assert {name: [*schema] for name, schema in plan.outputs.items()} == {
        "out": ["x"],
        "outer": ["x", "round"],
        "inner": ["x", "round", "round_2"],
    }


def doubled(numbers: Any) -> dict[str, Any]:
    def body(w: Any) -> Any:
        return w.concat(w.where("n < 4").select(n="n * 2")).distinct().inspect("inner")

    return {"out": numbers.iterate(body, priority="n")}


def test_a_priority_is_a_column_too(fold: Fold) -> None:
    """2 comes out of 1 in the loop's first priority; when it enters with its own, nothing is left to change."""
    actual = fold(doubled, numbers=frame("n", "1,2:+1@0 1:-1@1 null:+1@2"))["inner"]
    first = "(1,1,0),(2,1,0),(4,1,1):+1@0"
    second = "(1,1,0),(2,1,0),(4,1,1):-1,(2,2,0),(4,2,0):+1@1"
    same(actual, log(f"{first} {second} (null,null,0):+1@2"))


def test_only_the_rounds_that_ran(fold: Fold) -> None:
    def program(t: Any) -> dict[str, Any]:
        def body(w: Any) -> Any:
            return w.select(n=col("n") + 1).inspect("inner")

        return {"out": t.iterate(body, max_rounds=3, at_limit="return")}

    same(inner(fold(program, t=frame("n", "0:+1@0"))), log("1:+1@(0,0) 1:-1,2:+1@(0,1) 2:-1,3:+1@(0,2)"))


def test_a_loop_that_fails_has_no_log(fold: Fold) -> None:
    def program(t: Any) -> dict[str, Any]:
        return {"out": t, "none": t.iterate(lambda w: w.select(n=1 - col("n")).inspect("inner"), max_rounds=9)}

    with pytest.raises(Diverged):
        fold(program, t=frame("n", "0:+1@0"))


# -- what is inspected ------------------------------------------------------------------------------------------------


def test_outside_of_loops_it_is_the_collection(fold: Fold) -> None:
    def program(t: Any) -> dict[str, Any]:
        even = t.where("n % 2 = 0").inspect("even")
        return {"out": t.iterate(lambda w: w.concat(even.inspect("again")).distinct())}

    logs = fold(program, t=frame("n", "1,2:+1@0 2:+2@1"))
    same(logs["even"], log("2:+1@0 2:+2@1"))
    assert logs["again"] == logs["even"]


def test_what_no_output_needs(fold: Fold) -> None:
    """A loop, and a part of another loop's body, that only an inspection reads."""

    def program(t: Any) -> dict[str, Any]:
        def body(w: Any) -> Any:
            w.group_by().agg(s=dd.sum("x")).inspect("sums")
            return w.select(x=HALVE)

        t.select(x="x + 1").iterate(lambda w: w.iterate(lambda v: v.select(x=HALVE).inspect("deep")))
        return {"out": t.iterate(body)}

    logs = fold(program, t=frame("x", "4:+1@0 1:+1@1"))
    first = "4:+1@(0,0) 4:-1,2:+1@(0,1) 2:-1,1:+1@(0,2)"
    same(inner(logs, 1, "sums"), log(f"{first} 4:-1,5:+1@(1,0) 4:+1,5:-1,2:-1,3:+1@(1,1) 3:-1,1:-1,2:+2@(1,2)"))
    same(inner(logs, 2, "deep"), log("5:+1@(0,0,0) 1:+1@(1,0,0)"))


def test_a_loop_inside_of_a_loop_that_nothing_else_needs(fold: Fold) -> None:
    """The inner loop reads nothing of the outer one, whose own collection nobody reads."""

    def program(t: Any) -> dict[str, Any]:
        def outer(w: Any) -> Any:
            t.iterate(lambda v: v.select(x=HALVE).inspect("deep"))
            return w.distinct()

        t.iterate(outer)
        return {"out": t}

    logs = fold(program, t=frame("x", "4:+1@0 1:+1@1"))
    same(inner(logs, 2, "deep"), log("2:+1@(0,0,0) 2:-1,1:+1@(0,0,1) 1:+1@(1,0,0)"))


def test_equal_loops_are_one_log(fold: Fold) -> None:
    def chain(t: Any, name: str) -> Any:
        return t.iterate(lambda w: w.select(x=HALVE).inspect(name))

    def program(t: Any) -> dict[str, Any]:
        return {"one": chain(t, "a"), "two": chain(t, "a"), "three": chain(t, "b")}

    logs = fold(program, t=frame("x", "4:+1@0"))
    assert logs["a"] == logs["b"] != {}
    plan = build(program, {"t": {"x": "int64"}})
    assert len(plan.loops) == 1
    assert len({arrangement.fingerprint for arrangement in plan.arrangements}) == len(plan.arrangements)


def test_the_log_is_consolidated() -> None:
    def program(t: Any) -> dict[str, Any]:
        return {"out": t.iterate(lambda w: w.select(x=0).concat(w.negate(), w).inspect("inner"))}

    assert dd.replay(program, t=frame("x", "0:+2@0 5:+1@0"))["inner"].rows() == [(0, 0, 0, 3)]


def test_inspecting_changes_no_state() -> None:
    """The names of stored arrangements are those of the program without it."""

    def plain(edges: Any, roots: Any) -> dict[str, Any]:
        def body(seen: Any) -> Any:
            return seen.join(edges, on={"node": "src"}).select(node="dst").concat(roots).distinct()

        return {"out": roots.iterate(body)}

    schemas = {"edges": {"src": "string", "dst": "string"}, "roots": {"node": "string"}}
    stored = [
        {arrangement.fingerprint for arrangement in build(program, schemas).arrangements if not arrangement.transient}
        for program in (plain, reach)
    ]
    assert stored[0] == stored[1] != set()
    assert build(plain, schemas).fingerprint != build(reach, schemas).fingerprint


# -- what a program can get wrong -------------------------------------------------------------------------------------


def closed(t: Any) -> Any:
    inside = []

    def body(w: Any) -> Any:
        inside.append(w)
        return w

    t.iterate(body)
    return inside[0].inspect("a")


def called_twice(t: Any) -> Any:
    for source in (t, t.negate()):
        source.iterate(lambda w: w.select(n="n % 2").inspect("a"))
    return t


def looped(t: Any, **more: Any) -> Any:
    """A column of the loop's own name, in a loop of a loop, beside others."""
    return t.iterate(lambda w: w.iterate(lambda v: v.select(n=1, **more).inspect("a").select("n")), priority="n")


MISTAKES = [
    (lambda t: t.inspect("out"), "inspect: there is an output out", "another name"),
    (lambda t: t.inspect("OUT"), "out and OUT are the same folder", "rename one"),
    (lambda t: t.inspect("a/b"), "'a/b' cannot be one", "letters"),
    (lambda t: t.inspect(""), "'' cannot be one", "letters"),
    (lambda t: t.inspect(3), "the name of the log is int, not text", "inspect("),
    (lambda t: t.inspect("a").where("n > 1").inspect("a"), "a is the log of another collection, named at", "own name"),
    (called_twice, "a is the log of another collection, named at test_inspect.py:", "take the name as a parameter"),
    (closed, "inspect uses a collection of loop", "return it from the loop's body"),
    (lambda t: looped(t, round=1), "the collection has a column round, ", 'rename({"round": "round_"})'),
    (lambda t: looped(t, round_2=1), "the collection has a column round_2, ", "rename"),
    (lambda t: looped(t, priority=1), "the collection has a column priority, ", "rename"),
    (lambda t: t.select(diff="n").inspect("a").select(n="diff"), "a column may not be called diff", "rename"),
]


@pytest.mark.parametrize(("mistake", "message", "hint"), MISTAKES)
def test_mistakes_are_told_when_the_program_is_built(mistake: Any, message: str, hint: str) -> None:
    with pytest.raises(ProgramError, match=r"^test_inspect\.py:\d+: inspect") as caught:
        build(lambda t: {"out": mistake(t)}, {"t": {"n": "int64"}})
    assert message in caught.value.message and hint in caught.value.hint


def test_a_column_called_priority_is_fine_where_there_is_none() -> None:
    def program(t: Any) -> dict[str, Any]:
        return {"out": t.iterate(lambda w: w.select(n=1, priority=1).inspect("a").drop("priority"))}

    assert [*build(program, {"t": {"n": "int64"}}).outputs["a"]] == ["n", "priority", "round"]


def test_a_time_column_called_round() -> None:
    with pytest.raises(ProgramError, match=r"test_inspect\.py:\d+: inspect: a column may not be called round"):
        build(reach, {"edges": {"src": "int64", "dst": "int64"}, "roots": {"node": "int64"}}, ("day", "round"))


# -- from the command line --------------------------------------------------------------------------------------------


@pytest.fixture
def inspected(fresh: Path, dd: Any) -> Path:
    """The trams, with the rounds of their loop, two versions folded."""
    text = (fresh / "program.py").read_text()
    (fresh / "program.py").write_text(text.replace('dd.min("total"))', 'dd.min("total")).inspect("rides")'))
    toml = (fresh / "dd.toml").read_text()
    (fresh / "dd.toml").write_text(f'{toml}\n[outputs.rides]\nkey = ["stop", "round"]\n')
    assert dd("ingest", "links", "data/links.csv", "-q")[0] == dd("ingest", "starts", "data/starts.csv", "-q")[0] == 0
    assert dd("run", "--to-version", "2", "-q")[0] == 0
    return fresh


def test_a_log_of_rounds_is_an_output_like_others(inspected: Path, dd: Any) -> None:
    assert dd("run", "-q")[0] == 0
    code, out, _ = dd("show", "rides", "--json")
    rows = [(*record["row"].values(), record["count"]) for record in records(out) if "row" in record]
    assert code == 0
    assert sorted(rows) == [
        ("Bridge", 6, 1, 1), ("Central", 0, 0, 1), ("Harbour", 11, 1, 1), ("Lighthouse", 18, 2, 1), ("Market", 3, 0, 1),
        ("Park", 5, 0, 1), ("Zoo", 14, 1, 1),
    ]  # fmt: skip
    code, out, _ = dd("diff", "rides", "1", "2", "--json")
    changes = [(*record["row"].values(), record["diff"]) for record in records(out) if "row" in record]
    assert code == 0
    assert sorted(changes) == [
        ("Bridge", 6, 1, 1), ("Bridge", 7, 1, -1), ("Harbour", 12, 2, 1), ("Harbour", 13, 2, -1),
        ("Lighthouse", 19, 3, 1),
    ]  # fmt: skip
    code, out, _ = dd("log", "--json")
    assert code == 0 and "rides" in records(out)[0]["outputs"]


def test_a_log_of_rounds_is_the_same_in_runs(inspected: Path, dd: Any) -> None:
    def rows() -> list[str]:
        return sorted(dd("diff", "rides", "0", "latest", "--json")[1][:-1])

    assert dd("run", "-q")[0] == 0
    cut = rows()
    assert dd("run", "--full-refresh", "-q")[0] == 0
    assert rows() == cut != []


def test_a_log_of_rounds_with_columns_that_no_table_has(inspected: Path, dd: Any) -> None:
    text = (inspected / "program.py").read_text()
    (inspected / "program.py").write_text(
        text.replace('.inspect("rides")', '.select("stop", "total", Round=1).inspect("rides").drop("Round")')
    )
    code, _, err = dd("run", "--full-refresh")
    assert code == 1
    assert err[0].startswith("error: output rides: Delta tables take Round and round for the same column")


SEVERAL = """
import ddcore as dd
from ddcore import algorithms


def program(edges):
    starts = edges.select(node="src").distinct()

    def reach(reached):
        onward = reached.join(edges, on={"node": "src"}).select(node="dst")
        return onward.concat(starts).distinct().inspect("steps")

    return {
        "reached": starts.iterate(reach),
        "core": algorithms.k_core(edges, 2),
        "triangles": dd.delta_join((edges, ["a", "b"]), (edges, ["b", "c"]), (edges, ["a", "c"])),
        "components": algorithms.components(edges, priority=algorithms.magnitude("component")),
    }
"""


@pytest.mark.spark
def test_two_workers_on_spark_give_the_same_logs(tmp_path: Path, spark: Any) -> None:
    """Rounds of an inspected loop, two algorithms and a delta join, resumed with removals in the second run."""
    rng = random.Random(5)
    pairs = sorted({(rng.randrange(8), rng.randrange(8)) for _ in range(18)})
    rows = [(*pair, 0, 1) for pair in pairs] + [(*pair, 1, -1) for pair in pairs[::4]] + [(8, 0, 1, 1), (0, 8, 1, 1)]
    edges = pl.DataFrame(rows, schema=["src", "dst", "version", "diff"], orient="row")
    scope: dict[str, Any] = {}
    exec(SEVERAL, scope)
    project = project_of(tmp_path / "project", Case(0, SEVERAL, scope["program"], {"edges": edges}))
    replay.run(project, last=time_of(0), engine="spark", parallelism=2)
    replay.run(project, engine="spark", parallelism=2)
    logs = logs_of(project, build(load_program(project), project.inputs, project.dims).outputs)
    expected = folding.by_reference(scope["program"], edges=edges)
    assert expected["steps"] and expected["triangles"]
    assert logs == expected
