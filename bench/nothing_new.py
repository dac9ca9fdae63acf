"""`dd run` when every version is folded already: the cost of a cron job without work. No JVM may start.

`dd status` and `dd diff` read as little. The peer is Python that starts, imports Polars and does nothing. A run of the
twenty-two queries of ``examples/tpch_sql`` has as much to do as one of a single output.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Failed, Figures, Result, Skipped, in_turn, polars_alone, prompt_costs, prompt_to_prompt
from bench.project import DDCORE, REPOSITORY, Project
from bench.tpch import GENERATOR

SCALE = 0.01
EXAMPLE = REPOSITORY / "examples" / "tpch_sql"


def run(rounds: int) -> Iterator[Result]:
    """Each round: the peer and each command, in processor time, which depends less on how busy the machine is."""
    with tempfile.TemporaryDirectory() as scratch:
        project = Project(Path(scratch) / "project")
        project.dd("run", "--engine", "inline")
        last = str(project.version)
        trap, queries = Trap(Path(scratch) / "java"), Path(scratch) / "queries"
        prepare_queries(queries)

        def nothing_new() -> Figures:
            figures = project.costs("run", environment=trap.environment)
            trap.check()
            return figures

        sides = {
            "polars": lambda: polars_alone(project.folder),
            "dd run, nothing new": nothing_new,
            "dd run, nothing new, 22 queries": lambda: prompt_costs([DDCORE, "run"], queries),
            "dd status": lambda: project.costs("status"),
            "dd diff": lambda: project.costs("diff", "depends", str(int(last) - 1), last),
        }
        medians = in_turn(sides, rounds)
    peer = medians.pop("polars")["cpu_s"]
    for name, figures in medians.items():
        yield Result(f"{name}, processor time", figures["cpu_s"], "Python importing Polars", peer, rounds)
    one, all_ = (medians[f"dd run, nothing new{more}"]["cpu_s"] for more in ("", ", 22 queries"))
    yield Result("dd run, nothing new, 22 queries", all_, "the same, one output", one, rounds)


def prepare_queries(folder: Path) -> None:
    """The twenty-two queries over small tables, folded."""
    if not GENERATOR.exists():
        raise Skipped("tpchgen-cli is not installed: pip install 'ddcore[bench]'")
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("warehouse", "tables", "logs"))
    prompt_to_prompt([GENERATOR, "parquet", "--scale-factor", SCALE, "--output-dir", folder / "tables"], folder)
    refreshes = [sys.executable, REPOSITORY / "examples" / "tpch" / "refreshes.py", "tables", "logs"]
    prompt_to_prompt([*refreshes, "--versions", "1", "--share", "200", "--project", "."], folder)
    for log in sorted((folder / "logs").glob("*.parquet")):
        prompt_to_prompt([DDCORE, "ingest", log.stem, log], folder)
    prompt_to_prompt([DDCORE, "run"], folder)


class Trap:
    """A Java that only records that it was called: the first on `PATH` and in `JAVA_HOME`."""

    def __init__(self, home: Path) -> None:
        self._sprung = home / "sprung"
        java = home / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\ntouch '{self._sprung}'\nexit 1\n")
        java.chmod(0o755)
        self.environment = {"JAVA_HOME": str(home), "PATH": f"{java.parent}{os.pathsep}{os.environ['PATH']}"}

    def check(self) -> None:
        """Raise Failed if Java was called."""
        if self._sprung.exists():
            raise Failed("dd run with nothing new started Java")
