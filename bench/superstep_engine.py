"""Supersteps of a fold on Spark, and bare Spark jobs that shuffle as many rows, in one session.

``python -m bench.superstep_engine PROJECT`` prints one JSON object: how many supersteps moved rows to their owners, how
many rows, the seconds of these supersteps, and those of the bare jobs. Each bare job divides rows of a cached table by
a key and reads them in their new place; its columns are those of an update of the search.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from ddcore.io.project.project import find_project
from ddcore.jobs import replay
from ddcore.jobs.engines import exchange
from ddcore.jobs.spark import session

LEAST = 1  # rows that a superstep moved; one that moves nothing is no exchange


def main(folder: str) -> None:
    """Fold, then shuffle."""
    steps: list[tuple[int, float]] = []
    send = exchange._Exchange._send

    def timed(self: Any, incoming: Any, name: str, step: int, *arguments: Any) -> Any:
        start = time.perf_counter()
        messages, reports = send(self, incoming, name, step, *arguments)
        if name == "step":
            steps.append((sum(report.moved for report in reports), time.perf_counter() - start))
        return messages, reports

    exchange._Exchange._send = timed  # type: ignore[method-assign]
    project = find_project(Path(folder), {})
    with session.spark({}, parallelism=2) as spark:
        replay.run(project, engine="spark", parallelism=2)
        moving = [step for step in steps if step[0] >= LEAST]
        updates = spark.range(max(rows for rows, _ in moving)).selectExpr(
            "id", "pmod(hash(id), 1000000) AS node", "pmod(id, 14) AS dist", "0L AS version", "1L AS diff"
        )
        updates.persist()
        updates.count()
        bare = [_shuffle(updates, rows) for rows in (moving[0][0], *(rows for rows, _ in moving))][1:]  # one to warm up
    figures = {
        "supersteps": len(moving),
        "rows": sum(rows for rows, _ in moving),
        "s": sum(seconds for _, seconds in moving),
        "bare_s": sum(bare),
        "small_s": sum(seconds for rows, seconds in moving if rows < 10_000),
        "small_bare_s": sum(seconds for (rows, _), seconds in zip(moving, bare, strict=True) if rows < 10_000),
    }
    print(json.dumps(figures))


def _shuffle(updates: Any, rows: int) -> float:
    """Seconds of a job that moves so many updates to two partitions by node."""
    start = time.perf_counter()
    moved = updates.where(f"id < {rows}").drop("id").repartition(2, "node")
    moved.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start


if __name__ == "__main__":
    main(*sys.argv[1:])
