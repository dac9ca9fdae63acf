"""All 1,494 versions of the package set in one ``dd run``, against Spark from scratch at 14 of them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import polars as pl

from bench.measure import Failed, Figures, Result, in_turn, prompt_to_prompt
from bench.project import REPOSITORY, Project, package_set
from bench.scratch_spark import VERSIONS

ONE_BY_ONE = "Spark DataFrames from scratch, every 100th version"
TOGETHER = "the same, all those versions in one loop"


def run(rounds: int) -> Iterator[Result]:
    """ddcore writes the state and three logs of 1,494 versions; the peers write three collections at 14 versions."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, number = Path(scratch), count()

        def ours() -> Figures:
            project = Project(folder / f"project-{next(number)}")
            seconds = project.dd("run")
            if at_each(project) != found_by_spark(folder / "one-by-one"):
                raise Failed("dd run and Spark from scratch disagree about depends")
            return {"s": seconds}

        def peer(name: str, *flags: str) -> Figures:
            command = [sys.executable, "-m", "bench.scratch_spark", package_set(), folder / name, *flags]
            return {"s": prompt_to_prompt(command, cwd=REPOSITORY)[0]}

        sides = {ONE_BY_ONE: partial(peer, "one-by-one"), TOGETHER: partial(peer, "together", "--together")}
        medians = {name: figures["s"] for name, figures in in_turn({**sides, "ours": ours}, rounds).items()}
    for name in (ONE_BY_ONE, TOGETHER):
        yield Result("dd run, all 1,494 versions", medians["ours"], name, medians[name], rounds)


def at_each(project: Project) -> set[tuple[int, str, str]]:
    """(version, package, dependency) that our log of ``depends`` accumulates to at each of the versions."""
    log = pl.read_delta(project.folder / "warehouse" / "outputs" / "depends")
    rows: set[tuple[int, str, str]] = set()
    for version in VERSIONS:
        present = log.filter(pl.col("version") <= version).group_by("package", "dependency").agg(pl.col("diff").sum())
        rows |= {(version, *pair) for pair in present.filter(pl.col("diff") > 0).drop("diff").iter_rows()}
    return rows


def found_by_spark(folder: Path) -> set[tuple[int, str, str]]:
    """(version, package, dependency) at each of the versions, as the peer wrote it."""
    return {*pl.read_delta(folder / "depends").select("version", "package", "dependency").iter_rows()}
