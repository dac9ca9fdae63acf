"""The cost of a Spark session in seconds, each kind in its own process: ``python tools/measure_spark.py [TIMES]``.

Prints the least of ``TIMES`` (default 3) for the start, the first Python job (``mapInArrow``), the twentieth, the stop.
``stock`` is PySpark with its own settings and Delta's jars as files; ``ours`` is the session of ``dd``; ``no archive``
lacks the class archive; ``bulk`` has the optimising compiler; ``one worker`` is the context of a run with one worker,
whose jobs are plain RDD jobs. docs/spark.md quotes the table.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

KINDS = ("stock", "one worker", "ours", "no archive", "bulk")
STEPS = ("start", "first", "warm", "stop")


def stock_session() -> Any:
    """A session, started as PySpark's manual says."""
    from pyspark.sql import SparkSession

    from ddcore.jobs.spark import jars

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    return (
        builder.master("local[2]")
        .config("spark.jars", ",".join(jars.paths()))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )


def our_session(kind: str) -> Any:
    """A context manager: a session, or the context of one worker, as ``dd`` starts it but for ``kind``."""
    from ddcore.jobs.spark import class_archive, session

    if kind == "no archive":
        class_archive.archive = lambda *_: None
    if kind == "one worker":
        return session.spark_context({}, "local[2]")
    return session.spark({}, "local[2]", bulk=kind == "bulk")


def measure(kind: str) -> dict[str, float]:
    """The four times of one session of ``kind``, in this process."""
    laps, began, stack = {}, time.perf_counter(), contextlib.ExitStack()

    def lap(step: str, action: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        result = action()
        laps[step] = time.perf_counter() - begin
        return result

    def start() -> Any:
        if kind != "stock":
            return stack.enter_context(our_session(kind))
        session = stock_session()
        stack.callback(session.stop)
        return session

    def job() -> Any:
        if kind == "one worker":
            return spark.parallelize([0], 1).mapPartitions(lambda rows: rows).collect()
        return spark.range(0, 1000, 1, 1).mapInArrow(lambda batches: batches, "id long").toArrow()

    spark = lap("start", start)
    lap("first", job)
    for _ in range(20):
        lap("warm", job)
    lap("stop", stack.close)
    return {**laps, "all": time.perf_counter() - began}


def main(times: int) -> None:
    """Print the table."""
    print("| session | " + " | ".join(STEPS) + " |\n" + "| --- " * (1 + len(STEPS)) + "|")
    for kind in KINDS:
        runs = []
        for _ in range(times):
            process = subprocess.run(
                [sys.executable, __file__, "--one", kind], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
            )
            runs.append(json.loads(process.stdout))
        best = [min(run[step] for run in runs) for step in STEPS]
        print(f"| {kind} | " + " | ".join(f"{value:.2f}" for value in best) + " |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(sys.argv[2])))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
