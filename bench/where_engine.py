"""One row of a large output, many times in one process: ``python -m bench.where_engine SIDE PROJECT ROWS TIMES``.

SIDE is ``ours`` (``at(where=)`` of an opened project) or ``duckdb`` (the same sums over the table's Parquet files).
Prints JSON: the median of the processor time of a question, and how many rows were found. The first few do not count.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

WARM = 3  # questions before the measured ones


def main(side: str, project: Path, rows: int, times: int) -> None:
    """Ask for rows all over the log; other ones each time."""
    ask = (_ours if side == "ours" else _duckdb)(project)
    took, found = [], 0
    for index, trip in enumerate(_trips(rows, WARM + times)):
        begun = time.process_time()
        number = ask(f"trip = {trip}")
        if index >= WARM:
            took.append(time.process_time() - begun)
            found += number
    print(json.dumps({"cpu_s": statistics.median(took), "rows": found}))


def _trips(rows: int, times: int) -> Iterator[int]:
    return (1 + location * (rows - 1) // times for location in range(times))


def _ours(project: Path) -> Callable[[str], int]:
    import ddcore as dd

    log = dd.open(project)["all_trips"]
    return lambda condition: len(log.at(where=condition).polars())


def _duckdb(project: Path) -> Callable[[str], int]:
    import duckdb

    from bench.peers.where_duckdb import question

    connection, table = duckdb.connect(), project / "warehouse" / "outputs" / "all_trips"
    return lambda condition: len(connection.execute(question(connection, table, condition, 0)).fetchall())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
