"""A large group in a Session: ``python -m bench.large_groups_engine AGGREGATE ROWS`` prints one JSON object.

Timed is the fold of one version that changes ten rows: the median of some versions after the first, in which the engine
prepares large groups for later ones. A separate process, as a user's.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
import polars as pl

import ddcore as dd
from bench import large_groups_program
from bench.bfs_engine import Clock
from bench.measure import Failed, Figures, summary
from bench.project import accumulated
from ddcore.jobs.setup import compile_kernels

SCHEMA = {"kind": "int64", "value": "int64"}
AGGREGATES = ("count", "sum", "min", "top_10")
VERSIONS = 5


class Group:
    """The rows of one group, as they change from version to version. The values are distinct."""

    def __init__(self, size: int, seed: int = 1) -> None:
        self._rng, self._version, self._added = np.random.default_rng(seed), 0, 10 * size
        self._values = pl.Series("value", self._rng.choice(10 * size, size, replace=False)).sort()

    def load(self) -> pl.DataFrame:
        """The change log of version 0."""
        return self._log(self._values, 1)

    def change(self) -> pl.DataFrame:
        """The log of one more version: the least row, the greatest and three others go, and five others come."""
        self._version += 1
        size = len(self._values)
        gone = self._values[[0, size - 1, *(1 + self._rng.choice(size - 2, 3, replace=False)).tolist()]]
        fresh = pl.Series("value", self._added + self._rng.choice(10 * size, 5, replace=False))
        self._added += 10 * size
        self._values = pl.concat([self._values.filter(~self._values.is_in(gone.implode())), fresh]).sort()
        return pl.concat([self._log(gone, -1), self._log(fresh, 1)])

    def check(self, log: pl.DataFrame, aggregate: str) -> None:
        """Raise Failed unless an output log has the right result at the last version."""
        values = self._values.to_list()
        right = {"count": [len(values)], "sum": [sum(values)], "min": values[:1], "top_10": values[-10:]}[aggregate]
        found = accumulated(log, self._version)
        if sorted(found[:, 1].to_list()) != right:
            raise Failed(f"{aggregate} is {found.rows()}, not {right}")

    def _log(self, values: pl.Series, diff: int) -> pl.DataFrame:
        constants = {"kind": 0, "version": self._version, "diff": diff}
        columns = {name: pl.lit(value, pl.Int64) for name, value in constants.items()}
        return values.to_frame().with_columns(**columns).select("kind", "value", "version", "diff")


def main(aggregate: str, rows: int) -> None:
    """Fold the rows, then some changes; print the median figures of the changes."""
    group, figures = Group(rows), list[Figures]()
    compile_kernels()
    session = dd.Session(getattr(large_groups_program, aggregate), {"rows": SCHEMA}, threads=1)
    logs = [session.fold({"rows": group.load()})["result"]]
    for _ in range(1 + VERSIONS):
        changes, clock = group.change(), Clock()
        logs.append(session.fold({"rows": changes})["result"])
        figures.append({name.removeprefix("fold_"): value for name, value in clock.figures("fold").items()})
        group.check(pl.concat(logs), aggregate)
    print(json.dumps(summary(figures[1:])))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.large_groups_engine")
    parser.add_argument("aggregate", choices=AGGREGATES)
    parser.add_argument("rows", type=int)
    main(**vars(parser.parse_args()))
