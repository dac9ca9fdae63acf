"""A filter that moves, in a Session: ``python -m bench.moving_filter_engine PLAN ROWS`` prints one JSON object.

Timed is the fold of one version, a day of readings, after which the window begins a day later: the median of some
versions. A separate process, as a user's.
"""

from __future__ import annotations

import argparse
import json
from datetime import datetime, timedelta, timezone

import numpy as np
import polars as pl

import ddcore as dd
from bench import moving_filter_program
from bench.bfs_engine import Clock
from bench.measure import Failed, Figures, summary
from ddcore.jobs.setup import compile_kernels

SCHEMA = {"ts": "timestamp", "id": "int64", "value": "int64"}
A_DAY, WINDOW = 1_000, 7
VERSIONS = 5
_START = datetime(2020, 1, 1, tzinfo=timezone.utc)  # noqa: UP017


class Readings:
    """So many readings a day; version 0 has the first days, and each version after it one more."""

    def __init__(self, rows: int) -> None:
        self.days = rows // A_DAY
        self.version = 0

    def load(self) -> pl.DataFrame:
        """The change log of version 0."""
        return self._log(0, self.days)

    def change(self) -> pl.DataFrame:
        """The log of the next version."""
        self.version += 1
        return self._log(self.days + self.version - 1, 1)

    def check(self, log: pl.DataFrame) -> None:
        """Raise Failed unless an output log has the readings of the last days, at the last version."""
        ids = log.group_by("id").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)["id"].sort()
        end = (self.days + self.version) * A_DAY
        if ids.to_list() != list(range(end - WINDOW * A_DAY, end)):
            shown = f"from {ids[0]} to {ids[-1]}" if len(ids) else "at all"
            raise Failed(f"{len(ids)} readings {shown}, not those of the {WINDOW} days before {end}")

    def _log(self, first: int, days: int) -> pl.DataFrame:
        """One reading of a day is at its end, and the window of seven days begins after it."""
        numbers = np.arange(first * A_DAY, (first + days) * A_DAY)
        step = timedelta(days=1) // A_DAY
        ts = pl.select(pl.lit(_START) + pl.Series(numbers) * pl.lit(step)).to_series()
        return pl.DataFrame({"ts": ts, "id": numbers, "value": numbers % 97, "version": self.version, "diff": 1})


def main(plan: str, rows: int) -> None:
    """Fold the rows, then some changes; print the median figures of the changes."""
    readings, figures = Readings(rows), list[Figures]()
    compile_kernels()
    session = dd.Session(getattr(moving_filter_program, plan), {"readings": SCHEMA}, threads=1)
    logs = [session.fold({"readings": readings.load()})["recent"]]
    for _ in range(1 + VERSIONS):
        changes, clock = readings.change(), Clock()
        logs.append(session.fold({"readings": changes})["recent"])
        figures.append({name.removeprefix("fold_"): value for name, value in clock.figures("fold").items()})
        readings.check(pl.concat(logs))
    print(json.dumps(summary(figures[1:])))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.moving_filter_engine")
    parser.add_argument("plan", choices=("by_order", "by_pairs"))
    parser.add_argument("rows", type=int)
    main(**vars(parser.parse_args()))
