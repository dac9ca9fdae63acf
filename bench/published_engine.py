"""One publication by tasks of Spark, or by this process: ``python -m bench.published_engine PROJECT command|MASTER``.

Prints one JSON object: the seconds of the publication, and its processor time with that of all processes below this
one. Spark's context and its Python workers are there before, as a fold on Spark leaves them; that SQL begins is a part
of it. Whatever the number of rows, tasks write the table where a master is given. Needs Linux.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.measure import Failed, peak_mib
from ddcore.base.tuning import Tuning
from ddcore.io.project.finding import find_project
from ddcore.jobs import replay

_TICKS = os.sysconf("SC_CLK_TCK")


def main(folder: str, by: str) -> None:
    """Publish what a project has folded, and print the figures. Raises Failed where the other way was taken."""
    here = by == "command"
    project = find_project(Path(folder), {} if here else {"DDCORE_MASTER": by})
    project = replace(project, tuning=Tuning(shared_rows=1 << 62 if here else 1))
    with ExitStack() as opened:
        if not here:
            from ddcore.jobs import engines
            from ddcore.jobs.spark import session, slots, stage

            opened.enter_context(engines.kept("spark"))
            context: Any = opened.enter_context(session.spark_context(project.spark_conf, project.spark_master))
            slots.workers_of(context)  # waits for the executors
            stage.in_tasks(context, str)
        before, start = cpu(os.getpid()), time.perf_counter()
        report = replay.run(project, engine="inline" if here else "spark")
        seconds, work = time.perf_counter() - start, cpu(os.getpid()) - before
    (published,) = report.published
    if bool(published.tasks) == here:
        raise Failed(f"{by}: {published.tasks} tasks have written")
    print(json.dumps({"s": seconds, "cpu_s": work, "peak_mib": peak_mib(), "tasks": published.tasks}))


def cpu(process: int) -> float:
    """Seconds of processor time of a process, of those below it, and of those that had ended and were waited for."""
    of = list[tuple[int, int, float]]()
    for location in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = location.read_text()
        except OSError:
            continue
        fields = text.rpartition(")")[2].split()
        of.append((int(location.parent.name), int(fields[1]), sum(map(int, fields[11:15])) / _TICKS))
    family, grew = {process}, True
    while grew:
        more = {number for number, parent, _ in of if parent in family} - family
        family |= more
        grew = bool(more)
    return sum(seconds for number, _, seconds in of if number in family)


if __name__ == "__main__":
    main(*sys.argv[1:])
