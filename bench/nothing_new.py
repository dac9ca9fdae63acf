"""`dd run` when every version is folded already: the cost of a cron job without work. No JVM may start."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Failed, Figures, Result, in_turn
from bench.project import Project

LIMIT_S = 1.0


def run(rounds: int) -> Iterator[Result]:
    """Against its promised limit of one second."""
    with tempfile.TemporaryDirectory() as scratch:
        project = Project(Path(scratch) / "project")
        project.dd("run", "--engine", "inline")
        trap = Trap(Path(scratch) / "java")

        def ours() -> Figures:
            seconds = project.dd("run", environment=trap.environment)
            trap.check()
            return {"s": seconds}

        medians = in_turn({"ours": ours}, rounds)
    yield Result("dd run, nothing new", medians["ours"]["s"], "1 s, as promised", LIMIT_S, rounds, limit=1.0)


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
