"""Large groups: the engine sweeps over many versions, and keeps trees of partial results for few."""

from __future__ import annotations

import inspect
import random
from pathlib import Path
from typing import Any

import folding
import polars as pl
import pytest
import sparkless
from programs import HEADER, Case
from seeds import nightly
from test_exchange import outcome
from test_random_programs import compare
from warehouses import log_of, project_of

import ddcore as dd
from ddcore.base.schema import Type
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.times import time_of
from ddcore.io.state.run_reader import RunFile
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import replay

VALUES: dict[str, tuple[Any, list[Any]]] = {
    "int64": (pl.Int64, [*range(-40, 40), None]),
    "string": (pl.String, [*(chr(ord("a") + i) * 2 for i in range(26)), None]),
    "float64": (pl.Float64, [*(0.1 * i for i in range(-20, 20)), 1e16, -1e16, float("nan"), None]),
}
AGGREGATES = {
    "count": dd.count(),
    "least": dd.min("v"),
    "greatest": dd.max("v"),
    "sum": dd.sum("v"),
    "mean": dd.mean("v"),
    "distinct": dd.count_distinct("v"),
    "any": dd.any(pl.col("w") > 3),
    "all": dd.all(pl.col("w") < 4, where="w <> 2"),
    "some": dd.count(where="w > 2"),
    "least of two": dd.min("w"),
}


def history(rng: random.Random, kind: str, dims: tuple[str, ...], negative: bool) -> pl.DataFrame:
    """300 rows of two groups come and go at up to 40 times; without ``negative`` none goes that has not come."""
    dtype, values = VALUES[kind]
    side = {1: 40, 2: 6}[len(dims)]
    updates = []
    for _ in range(300):
        row = (rng.randrange(2), rng.choice(values), rng.randrange(5))
        come = tuple(rng.randrange(side) for _ in dims)
        gone = tuple(rng.randint(at, side) for at in come)
        updates.append((*row, *come, 1))
        if rng.random() < 0.8 and max(gone) < side:
            updates.append((*row, *gone, -1))
        if negative and rng.random() < 0.3:
            updates.append((*row, *come, -2))
    schema = {"k": pl.Int64, "v": dtype, "w": pl.Int64} | dict.fromkeys([*dims, "diff"], pl.Int64)
    return pl.DataFrame(updates, schema=schema, orient="row")


TREES = Tuning(large_group=20)
CHAIN, GRID = ("version",), ("day", "revision")
KINDS = nightly([(CHAIN, False), (GRID, True), (CHAIN, True), (GRID, False)], 2)


@pytest.mark.sample(1)
@pytest.mark.parametrize("tuning", [DEFAULT, TREES], ids=["swept", "trees"])
@pytest.mark.parametrize(
    ("dims", "negative"),
    KINDS,
    ids=["chain", "grid, negative", "chain, negative", "grid"][: len(KINDS)],
)
@pytest.mark.parametrize("kind", nightly([*VALUES], 2))
def test_large_groups(kind: str, dims: tuple[str, ...], negative: bool, tuning: Tuning) -> None:
    rows = history(random.Random(f"{kind} {dims} {negative}"), kind, dims, negative)

    def program(rows: Any) -> dict[str, Any]:
        groups, halves = rows.group_by("k"), rows.select("k", "v")
        made = {
            name: groups.agg(x=aggregate, allow_negative=negative)
            for name, aggregate in AGGREGATES.items()
            if name not in ("sum", "mean") or kind != "string"
        }
        made["two"] = groups.agg(lo=dd.min("v"), hi=dd.max("w"), allow_negative=negative)
        made["rows and least"] = groups.agg(n=dd.count(), lo=dd.min("v"), allow_negative=negative)
        if kind == "int64":
            made["rows and sum"] = groups.agg(n=dd.count(), s=dd.sum("v"), allow_negative=negative)
        made["three"] = groups.agg(
            a=dd.any(pl.col("w") > 3), d=dd.count_distinct("v"), e=dd.count_distinct("w"), allow_negative=negative
        )  # fmt: skip
        made["once"] = rows.select("k").distinct(allow_negative=negative)
        made["values"] = halves.distinct(allow_negative=negative)
        made["rows"] = halves.group_by("k").reduce(shown, {"c": "int64"}, allow_negative=negative)
        return made

    drawn = Case(0, f"# {kind} {dims} {negative}", program, {"rows": rows})
    expected = folding.by_reference(program, rows=rows)
    compare(drawn, "whole", expected, folding.whole(program, rows=rows, tuning=tuning))
    compare(drawn, "cut", expected, folding.randomly_cut(program, rows=rows, tuning=tuning))
    compare(drawn, "compacted", expected, folding.compacted(program, rows=rows, seed=0, tuning=tuning))


def shown(groups: pl.DataFrame) -> pl.DataFrame:
    return groups.group_by("group").agg(c=(pl.col("count") * (1 + pl.col("v").rank("dense"))).sum().cast(pl.Int64))


@pytest.mark.sample(1)
@pytest.mark.parametrize("tuning", [DEFAULT, TREES], ids=["swept", "trees"])
@pytest.mark.parametrize("dims", [("version",), ("day", "revision")], ids=["chain", "grid"])
def test_large_groups_in_a_loop(dims: tuple[str, ...], tuning: Tuning) -> None:
    """Distances in a graph whose edges nearly all lead to two hubs, which so gain and lose their least distance."""
    rng = random.Random(str(dims))
    side = {1: 30, 2: 4}[len(dims)]
    updates = []
    for _ in range(400):
        edge = (rng.randrange(60), rng.choice([0, 1, rng.randrange(60)]))
        come = tuple(rng.randrange(side) for _ in dims)
        gone = tuple(rng.randint(at, side) for at in come)
        updates.append((*edge, *come, 1))
        if rng.random() < 0.8 and max(gone) < side:
            updates.append((*edge, *gone, -1))
    schema = dict.fromkeys(["src", "dst", *dims, "diff"], pl.Int64)
    edges = pl.DataFrame(updates, schema=schema, orient="row")

    def program(edges: Any) -> dict[str, Any]:
        seeds = edges.where("src = 7").select(node="src", dist=0).distinct()

        def relax(dists: Any) -> Any:
            hops = dists.join(edges, on={"node": "src"}).select(node="dst", dist="dist + 1")
            return hops.concat(seeds).group_by("node").agg(dist=dd.min("dist"))

        labels = edges.select(node="dst", label="dst").distinct()

        def spread(actual: Any) -> Any:
            hops = actual.join(edges, on={"node": "src"}).select(node="dst", label="label")
            return hops.concat(labels).group_by("node").agg(label=dd.max("label"))

        return {"dists": seeds.iterate(relax), "labels": labels.iterate(spread)}

    drawn = Case(0, f"# {dims}", program, {"edges": edges})
    expected = folding.by_reference(program, edges=edges)
    compare(drawn, "whole", expected, folding.whole(program, edges=edges, tuning=tuning))
    compare(drawn, "cut", expected, folding.randomly_cut(program, edges=edges, tuning=tuning))
    compare(drawn, "fed early", expected, folding.fed_early(program, edges=edges, tuning=tuning))


def test_a_group_that_vanishes_while_its_tree_grows() -> None:
    """The compacted row and the one that takes it away cancel each other before they reach the tree."""
    rows = pl.DataFrame([(1, 5, 0, 1), (1, 5, 1, -1)], schema=["k", "v", "version", "diff"], orient="row")
    log = folding.compacted(
        lambda rows: {"most": rows.group_by("k").agg(most=dd.max("v"))}, rows=rows, tuning=Tuning(large_group=1)
    )
    assert log == {"most": {((1, 5), (0,)): 1, ((1, 5), (1,)): -1}}


def test_a_tree_grows_while_updates_wait_for_another() -> None:
    """An update that was given early waits before the tree of its group; it is not sent there again."""

    def frame(*rows: tuple[int, int, int, int]) -> dict[str, pl.DataFrame]:
        return {"rows": pl.DataFrame(rows, schema=["k", "v", "version", "diff"], orient="row")}

    schemas = {"rows": {"k": "int64", "v": "int64"}}
    session = dd.Session(
        lambda rows: {"sums": rows.group_by("k").agg(s=dd.sum("v"))}, schemas, tuning=Tuning(large_group=2)
    )
    session.fold(frame((1, 1, 0, 1), (1, 2, 0, 1)), upper=[(1,)])  # finds that the first group is large
    session.fold(frame((2, 1, 1, 1), (2, 2, 1, 1), (1, 3, 5, 1)), upper=[(2,)])  # and that the second one is
    session.fold(frame((3, 1, 2, 1)), upper=[(3,)])
    assert session.fold({}, upper=[(6,)])["sums"].rows() == [(1, 3, 5, -1), (1, 6, 5, 1)]


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", nightly(range(60), 8))
def test_groups_grow_at_any_time(seed: int) -> None:
    """A few groups of few rows each, which come back and vanish, in many runs: any of them finds a group large."""
    rng = random.Random(seed)
    tuning = Tuning(large_group=rng.randint(1, 3))
    dims = rng.choice([("version",), ("version",), ("day", "revision")])
    updates = []
    for _ in range(rng.choice([4, 8, 16])):
        row, diff = (rng.randrange(3), rng.randrange(3), rng.randrange(3)), rng.randint(1, 2)
        come = tuple(rng.randrange(4 // len(dims)) for _ in dims)
        gone = tuple(rng.randint(at, 3) for at in come)
        updates += [(*row, *come, diff), (*row, *gone, -diff)]
    schema = dict.fromkeys(["a", "b", "c", *dims, "diff"], pl.Int64)
    rows = pl.DataFrame(updates, schema=schema, orient="row")
    expected = folding.by_reference(growing, rows=rows)
    drawn = Case(seed, f"# {seed}", growing, {"rows": rows})
    compare(drawn, "a run for every time", expected, folding.one_time_each(growing, rows=rows, tuning=tuning))
    compare(drawn, "compacted after every time", expected, folding.compacted(growing, rows=rows, tuning=tuning))
    compare(drawn, "compacted", expected, folding.compacted(growing, rows=rows, seed=seed, tuning=tuning))
    compare(drawn, "fed early", expected, folding.fed_early(growing, rows=rows, seed=seed, tuning=tuning))


def growing(rows: Any) -> dict[str, Any]:
    groups = rows.group_by("a")

    def step(labels: Any) -> Any:
        hops = labels.join(rows, on={"b": "a"}).select(a="a", b="b_right", c="(c + c_right) % 4")
        return hops.concat(rows).group_by("b").agg(c=dd.min("c"), a=dd.max("a")).select("a", "b", "c")

    return {
        "sums": groups.agg(n=dd.count(), s=dd.sum("b"), least=dd.min("c")),
        "first": groups.top_k(2, by=["b", "c"]),
        "kinds": groups.agg(kinds=dd.count_distinct("b"), mean=dd.mean("c")),
        "all": rows.group_by().agg(n=dd.count(), most=dd.max("b")),
        "labels": rows.iterate(step, max_rounds=4, at_limit="return"),
    }


def totals(rows: Any) -> dict[str, Any]:
    groups = rows.group_by("k")
    return {
        "totals": groups.agg(n=dd.count(), s=dd.sum("w"), lo=dd.min("v"), d=dd.count_distinct("v"), m=dd.mean("w")),
        "first": groups.top_k(3, by=["w", "v"], descending=[True, False]),
        "all": rows.group_by().agg(n=dd.count(where="w > 1"), hi=dd.max("v")),
    }


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("kind", "parallelism"),
    nightly([("string", 3), ("int64", 1), *((kind, workers) for kind in VALUES for workers in (1, 3))], 2),
)
def test_trees_are_state(kind: str, parallelism: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run finds the trees that those before it wrote, and the groups that are to have one."""
    rows = history(random.Random(kind), kind, ("version",), False)
    drawn = Case(0, HEADER + inspect.getsource(totals).replace("totals(rows", "program(rows"), totals, {"rows": rows})
    if parallelism > 1:
        sparkless.install(monkeypatch)
    project = project_of(tmp_path / "project", drawn, tuning=TREES)
    engine = "inline" if parallelism == 1 else "spark"
    got = outcome(project, [3, 9, 10, 11, 30, None], engine=engine, parallelism=parallelism)
    compare(drawn, f"{engine} {parallelism}", folding.by_reference(totals, rows=rows), got)
    last = Ledger.load(Warehouse(project.warehouse)).current_run()
    assert last is not None
    assert sorted(map(len, last.large.values())) == [1, 2, 2], "a tree for each group of each operator"


def test_a_changed_row_of_a_large_group_reads_a_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 30_000
    start = pl.select(k=pl.lit(7, pl.Int64), v=pl.int_range(rows), w=pl.int_range(rows) % 1000, version=0, diff=1)
    later = pl.DataFrame({"k": [7, 7] * 2, "v": [5, rows, 9, 5], "w": [5, 1, 9, 5], "version": [1, 1, 2, 3]})
    frame = pl.concat([start.cast(pl.Int64), later.with_columns(diff=pl.Series([-1, 1, -1, 1]))])
    drawn = Case(0, HEADER + inspect.getsource(totals).replace("totals(rows", "program(rows"), totals, {"rows": frame})
    project, read = project_of(tmp_path / "project", drawn), list[int]()
    real = RunFile.columns

    def counted(file: RunFile, rows: Any) -> Any:
        columns = real(file, rows)
        read.append(columns.shape[1])
        return columns

    monkeypatch.setattr(RunFile, "columns", counted)
    sums = []
    for version in range(4):
        read.clear()
        replay.run(project, last=time_of(version), engine="inline")
        sums.append(sum(read))
    assert sums[1] > 3 * rows, "the run after the first reads the whole group, to grow a tree for each operator"
    assert max(sums[2:]) < rows, f"{sums} rows read"
    first = log_of(project, "first", dict.fromkeys(["k", "v", "w"], Type("int64")))
    total = first.group_by("v", "w").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0).sort("v")
    assert total.rows() == [(999, 999, 1), (1999, 999, 1), (2999, 999, 1)]
