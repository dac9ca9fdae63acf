"""A long history of small changes in the engine: ``python -m bench.history_engine`` prints one JSON object.

The rows are power outages, of which some 300 are open at any time: where, and how many customers are without power.
Each version corrects the customers of five, and ends and opens two or three. An update that a fold handles is one of
its input or of its output. A separate process, so that its peak memory is that of one fold.
"""

from __future__ import annotations

import argparse
import json
import random

import polars as pl

import ddcore as dd
from bench.bfs_engine import Clock
from bench.measure import Failed, peak_mib
from bench.project import accumulated
from ddcore import col
from ddcore.jobs.setup import compile_kernels

OPEN, COUNTIES, CORRECTED = 300, 60, 5
CHECKS = 5
"""At so many versions the outputs are computed from scratch as well."""


def program(outages: dd.Collection) -> dict[str, dd.Collection]:
    """``counties``: outages and customers of each; ``pairs``: outages of one county at the same time."""
    other = outages.select("county", other="outage")
    pairs = outages.select("county", "outage").join(other, on="county").where(col("outage") < col("other"))
    sums = outages.group_by("county").agg(outages=dd.count(), customers=dd.sum("customers"))
    return {"counties": sums, "pairs": pairs}


def history(versions: int, seed: int = 1) -> pl.DataFrame:
    """The change log: outage, county, customers, version, diff."""
    rng, rows = random.Random(seed), list[tuple[int, int, int, int, int]]()
    now, number = dict[int, tuple[int, int]](), 0
    for version in range(versions):
        moved = rng.sample(sorted(now), min(CORRECTED + rng.choice((2, 3)), len(now)))
        rows += [(outage, *now[outage], version, -1) for outage in moved]
        for outage in moved[:CORRECTED]:
            now[outage] = now[outage][0], rng.randrange(1, 5_000)
        for outage in moved[CORRECTED:]:
            del now[outage]
        fresh = range(number, number + OPEN - len(now))
        now |= {outage: (rng.randrange(COUNTIES), rng.randrange(1, 5_000)) for outage in fresh}
        number += len(fresh)
        rows += [(outage, *now[outage], version, 1) for outage in (*moved[:CORRECTED], *fresh)]
    return pl.DataFrame(rows, schema=["outage", "county", "customers", "version", "diff"], orient="row")


def main(versions: int) -> None:
    """Fold once, print the figures, check the outputs."""
    outages = history(versions)
    compile_kernels()
    clock = Clock()
    outputs = dd.replay(program, outages=outages)
    figures = {**clock.figures("fold"), "peak_mib": peak_mib()}
    updates = len(outages) + sum(map(len, outputs.values()))
    for version in range(versions - 1, -1, -max(versions // CHECKS, 1)):
        check(outages, outputs, version)
    per_update = figures["peak_mib"] * 2**20 / updates
    print(json.dumps({**figures, "input": len(outages), "updates": updates, "bytes_per_update": per_update}))


def check(outages: pl.DataFrame, outputs: dict[str, pl.DataFrame], version: int) -> None:
    """Raise Failed if an output is not what Polars computes from the open outages of a version."""
    now = accumulated(outages, version)
    pairs = now.join(now.rename({"outage": "other"}), on="county").filter(pl.col("outage") < pl.col("other"))
    expected = {
        "counties": now.group_by("county").agg(outages=pl.len().cast(pl.Int64), customers=pl.col("customers").sum()),
        "pairs": pairs.select("county", "outage", "other"),
    }
    for name, rows in expected.items():
        ours = accumulated(outputs[name], version)
        if not ours.sort(ours.columns).equals(rows.select(ours.columns).sort(ours.columns)):
            raise Failed(f"{name} is wrong at version {version}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.history_engine")
    parser.add_argument("--versions", type=int, default=15_000)
    main(**vars(parser.parse_args()))
