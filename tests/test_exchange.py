"""Folding against stored state: inline and on Spark, with one worker and with two, whole and in runs: one log."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import folding
import polars as pl
import pyspark
import pytest
from notation import dims_of, frame
from programs import Case, case
from seeds import nightly
from test_random_programs import compare
from warehouses import logs_of, project_of

from ddcore import reference
from ddcore.base.errors import Diverged, FoldError, NegativeMultiplicity
from ddcore.base.tuning import DEFAULT
from ddcore.cli import main
from ddcore.io.delta.writer import Writer
from ddcore.io.project.program import load_program
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.io.state import arrangements
from ddcore.io.state.state import open_worker, write_result
from ddcore.jobs import replay
from ddcore.planning.planner import build

INLINE = range(0, 60)


def outcome(project: Project, ends: Sequence[int | Sequence[int] | None], **how: Any) -> Any:
    """The logs after runs up to each of the ends, or the error a run ended with."""
    try:
        for end in ends:
            replay.run(project, last=time_of(end), **how)
    except FoldError as error:
        return error
    return logs_of(project, build(load_program(project), project.inputs, project.dims).outputs)


def expected_of(drawn: Case) -> Any:
    try:
        return folding.by_reference(drawn.program, **drawn.frames)
    except (Diverged, NegativeMultiplicity) as error:
        return error


def ends_of(drawn: Case, seed: int) -> list[int | None]:
    """Up to three versions to stop at, and the last."""
    versions = sorted({version for frame in drawn.frames.values() for version in frame[dim_of(drawn)]})
    rng = random.Random(seed)
    return [*sorted(rng.sample(versions[:-1], min(3, len(versions) - 1))), None]


def dim_of(drawn: Case) -> str:
    return dims_of(drawn.frames)[0]


def one_dimensional(seeds: Iterable[int]) -> Iterator[int]:
    """Those of the seeds whose histories have one dimension; a case is only drawn when its seed is asked for."""
    return (seed for seed in seeds if len(dims_of(case(seed, plain=True).frames)) == 1)


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", nightly(one_dimensional(INLINE), 4))
def test_stored_state_resumes(seed: int, tmp_path: Path) -> None:
    tuning = DEFAULT
    if seed % 2:
        tuning = replace(tuning, small_file_rows=0)  # even the smallest file is looked into, not read whole
    if seed // 2 % 2:  # groups as small as these get trees of partial results
        tuning = replace(tuning, large_group=2)
    drawn = case(seed, plain=True)
    expected = expected_of(drawn)
    whole = outcome(project_of(tmp_path / "whole", drawn), [None], engine="inline")
    compare(drawn, "whole", expected, whole)
    cut = outcome(project_of(tmp_path / "cut", drawn, tuning=tuning), ends_of(drawn, seed), engine="inline")
    compare(drawn, "in runs", expected, cut)


@pytest.mark.spark
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("seed", nightly(islice(one_dimensional(count()), 3), 1))
def test_spark_gives_the_same_logs(seed: int, parallelism: int, tmp_path: Path, spark: Any) -> None:
    drawn = case(seed, plain=True)
    outcomes = outcome(
        project_of(tmp_path / "cut", drawn), ends_of(drawn, seed)[-2:], engine="spark", parallelism=parallelism
    )
    compare(drawn, f"parallelism {parallelism}", expected_of(drawn), outcomes)


RANGES = """
import ddcore as dd

def program(rows, ends):
    last = rows.group_by().agg(since=dd.max("x"))
    recent = rows.join_between(last.select(since="since - 20"), "x", lower="since")
    keyed = rows.join_between(ends, "x", "a", "b", on="k", closed="left")
    return {
        "recent": recent, "keyed": keyed, "bands": rows.join_between(ends, "x", "a", "b"),
        "counts": recent.group_by("k").agg(n=dd.count()), "again": keyed.join(recent, on="k"),
    }
"""


@pytest.mark.spark
def test_two_workers_find_rows_between_the_same_ends(tmp_path: Path, spark: Any) -> None:
    """Without keys rows are divided by value, and intervals go to the owners of values in them."""
    rng, scope = random.Random(1), dict[str, Any]()
    exec(RANGES, scope)
    rows = [(rng.randrange(40), rng.randrange(100), version, 1) for version in range(4) for _ in range(30)]
    ends = [(rng.randrange(40), a, a + 9, version, 1) for version in range(4) for a in range(0, 100, 20)]
    frames = {
        "rows": pl.DataFrame(rows + [(k, x, 3, -1) for k, x, version, _ in rows if version == 1],
                             schema=["k", "x", "version", "diff"], orient="row"),
        "ends": pl.DataFrame(ends + [(k, a, b, 2, -1) for k, a, b, version, _ in ends if version == 0],
                             schema=["k", "a", "b", "version", "diff"], orient="row"),
    }  # fmt: skip
    drawn = Case(0, RANGES, scope["program"], frames)
    outcomes = outcome(project_of(tmp_path / "cut", drawn), [1, None], engine="spark", parallelism=2)
    compare(drawn, "parallelism 2", expected_of(drawn), outcomes)


REACH = """
def program(edges):
    def longer(paths):
        return paths.join(edges, on={"b": "a"}).select("a", b="b_right").concat(edges).distinct()

    return {"paths": edges.iterate(longer)}
"""


def reach() -> Case:
    """A loop of several rounds."""
    scope: dict[str, Any] = {}
    exec(REACH, scope)
    return Case(0, REACH, scope["program"], {"edges": frame("a b", "(0,1),(1,2),(2,3),(3,4):+1@0 (1,2):-1@1")})


def _submitted(*arguments: object) -> list[object]:
    """As a scheduler of the user's own would do it, in a JVM that is not ours."""
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    return [submit, "--master", "local[2]", main.__file__, "run", *arguments]


def _on_a_cluster(*arguments: object) -> list[object]:
    """Two executors of their own, to which the package is sent; they compile its kernels when they see it first."""
    return [Path(sys.executable).with_name("ddcore"), "run", "--master", "local-cluster[2,1,1024]", *arguments]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("command", [pytest.param(_submitted, marks=pytest.mark.long), _on_a_cluster])
def test_two_workers_elsewhere(command: Any, tmp_path: Path) -> None:
    drawn = reach()
    project = project_of(tmp_path / "p", drawn)
    conf = tmp_path / "conf" / "spark-defaults.conf"
    conf.parent.mkdir()
    conf.write_text(  # Spark's session is there when both executors are, however busy this machine is
        "spark.cores.max 2\nspark.scheduler.minRegisteredResourcesRatio 1.0\n"
        "spark.scheduler.maxRegisteredResourcesWaitingTime 300s\n"
    )
    own = {"SPARK_CONF_DIR": str(conf.parent)} | dict.fromkeys(
        ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable
    )
    done = subprocess.run(
        command("--project", project.root, "--engine", "spark", "--parallelism", "2"),
        env={**os.environ, **own},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["run"], report["engine"], report["parallelism"]) == (1, "spark", 2)
    outputs = build(load_program(project), project.inputs, project.dims).outputs
    compare(drawn, command.__name__, expected_of(drawn), logs_of(project, outputs))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "seed", nightly([seed for seed in range(120) if len(dims_of(case(seed, plain=True).frames)) > 1][:40], 5)
)
def test_what_is_owed_and_held_back_is_stored(seed: int, tmp_path: Path) -> None:
    """Partially ordered times: each fold by a worker that knows only what the one before it wrote."""
    from ddcore.io.delta.table_files import TableState
    from ddcore.io.delta.tables import live_files
    from ddcore.io.logs.changelog import ChangeLog
    from ddcore.io.state.fold_result import Stored
    from ddcore.io.state.layout import create, tables_of
    from ddcore.io.storage.warehouse import Warehouse
    from ddcore.traces.frames import batch_of

    drawn = case(seed, plain=True)
    dims, times = dims_of(drawn.frames), folding.grid(drawn.frames)
    schemas = {
        name: {c: folding.type_name(t) for c, t in frame.schema.items() if c not in (*dims, "diff")}
        for name, frame in drawn.frames.items()
    }
    plan = build(drawn.program, schemas, dims)
    warehouse = Warehouse(tmp_path)
    warehouse.create()
    versions: dict[str, TableState | None] = {}
    layouts = {name: (layout, replaced) for name, layout, replaced in tables_of(plan)}

    def fold(run: int, frames: dict[str, pl.DataFrame], upper: Any) -> None:
        live = {name: live_files(warehouse.table(name), version) for name, version in versions.items()}
        stored = Stored(warehouse, run, live)
        worker = open_worker(plan, stored)
        worker.begin(upper)
        if run == 1:  # they enter once, at the least time
            worker.feed_constants([0] * len(dims))
        for name, rows in frames.items():
            worker.feed(name, batch_of(rows, plan.inputs[name], dims, name))
        worker.run()
        gained = write_result(plan, worker, stored, "0")
        for name in {*gained.files, *(n for n in versions if n.startswith("state/") and layouts[n][1])}:
            folder, files, base = warehouse.table(name), gained.files.get(name, []), versions.get(name)
            if name.startswith("state/"):
                create(Writer(), folder, layouts[name][0])
                versions[name] = arrangements.commit(
                    Writer(), folder, files, run, base=base, overwrite=layouts[name][1]
                )
            else:
                log = ChangeLog(folder, plan.outputs[name.removeprefix("outputs/")], dims, writer=Writer())
                log.create()
                versions[name] = log.commit(files, run, base=base)

    def outcomes() -> Any:
        try:
            cuts = folding.random_cuts(random.Random(seed), times)
            for run, closed in enumerate([*cuts, times], 1):
                before = cuts[run - 2] if run > 1 else []
                new = [time for time in closed if time not in before]
                frames = {
                    name: frame.filter([time in new for time in frame.select(dims).iter_rows()])
                    for name, frame in drawn.frames.items()
                }
                fold(run, frames, folding.upper_of(closed, times) if run <= len(cuts) else None)
        except FoldError as error:
            return error
        logs = {}
        for name, schema in plan.outputs.items():
            log = ChangeLog(warehouse.output(name), schema, dims, writer=Writer())
            frame = log.collect(log.scan(versions.get(f"outputs/{name}")))
            logs[name] = reference.log_of(frame, dims)
        return logs

    compare(drawn, "owed and held", expected_of(drawn), outcomes())
