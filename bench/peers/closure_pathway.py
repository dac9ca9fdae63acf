"""The closure by Pathway: ``PYTHON -m bench.peers.closure_pathway LOG``, by a Python that has the package.

Pathway gets the log as a stream whose times are the versions, and writes its differences to a file. Timed is from
building its dataflow until it has ended. Importing, reading the log and the file is not timed.
"""

from __future__ import annotations

import csv
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pathway as pw
import pyarrow.parquet as pq

from bench.peers import closures


def step(pairs: Any, direct: Any) -> Any:
    """One more dependency in front of each pair; ``direct`` itself is among the result."""
    onward = direct.join(pairs, direct.dependency == pairs.package)
    further = onward.select(package=direct.package, dependency=pairs.dependency)
    return {"pairs": distinct(direct.concat_reindex(further))}


def distinct(pairs: Any) -> Any:
    """Each pair once."""
    return pairs.groupby(pairs.package, pairs.dependency).reduce(pairs.package, pairs.dependency)


def main(log_file: str) -> None:
    """Run once, print the figures."""
    log = pq.read_table(log_file)
    columns = (log[name].to_pylist() for name in ("package", "dependency", "version", "diff"))
    rows = [  # Pathway wants even times, and a row for each unit of a diff
        (package, dependency, 2 * version, 1 if diff > 0 else -1)
        for package, dependency, version, diff in zip(*columns, strict=True)
        for _ in range(abs(diff))
    ]
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), time.process_time()
        direct = distinct(
            pw.debug.table_from_rows(pw.schema_from_types(package=str, dependency=str), rows, is_stream=True)
        )
        depends = pw.iterate(step, pairs=pw.iterate_universe(direct), direct=direct).pairs
        pw.io.csv.write(depends, Path(folder, "depends.csv"))
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
        with Path(folder, "depends.csv").open() as file:
            changes = [
                (r["package"], r["dependency"], int(r["time"]) // 2, int(r["diff"])) for r in csv.DictReader(file)
            ]
    closures.report(changes, seconds, cpu_seconds)


if __name__ == "__main__":
    main(sys.argv[1])
