"""`dd run` when every version is folded already: the cost of a cron job without work. No JVM may start.

`dd status` and `dd diff` read as little. The peer is Python that starts, imports Polars and does nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Failed, Figures, Result, in_turn, polars_alone
from bench.project import Project

LIMIT = 2.0


def run(rounds: int) -> Iterator[Result]:
    """Each round: the peer and each command, in processor time, which depends less on how busy the machine is."""
    with tempfile.TemporaryDirectory() as scratch:
        project = Project(Path(scratch) / "project")
        project.dd("run", "--engine", "inline")
        last = str(project.version)
        trap = Trap(Path(scratch) / "java")

        def nothing_new() -> Figures:
            figures = project.costs("run", environment=trap.environment)
            trap.check()
            return figures

        sides = {
            "polars": lambda: polars_alone(project.folder),
            "dd run, nothing new": nothing_new,
            "dd status": lambda: project.costs("status"),
            "dd diff": lambda: project.costs("diff", "depends", str(int(last) - 1), last),
        }
        medians = in_turn(sides, rounds)
    peer = medians.pop("polars")["cpu_s"]
    for name, figures in medians.items():
        limit = LIMIT if name == "dd run, nothing new" else None
        yield Result(f"{name}, processor time", figures["cpu_s"], "Python importing Polars", peer, rounds, limit=limit)


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
