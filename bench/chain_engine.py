"""Longest paths in a chain that grows: ``python -m bench.chain_engine NODES`` prints one JSON object.

A separate process, so that its peak memory is that of one fold. Importing libraries and loading kernels is not timed.
"""

from __future__ import annotations

import argparse
import json

import polars as pl

import ddcore as dd
from bench.bfs_engine import Clock
from bench.measure import Failed, peak_mib
from ddcore import col
from ddcore.jobs.setup import compile_kernels


def longest_paths(nodes: dd.Collection, edges: dd.Collection) -> dict[str, dd.Collection]:
    """(node, length): the edges of the longest path to each node. The edges have no cycle."""
    start = nodes.select("node", length=0)

    def onward(lengths: dd.Collection) -> dd.Collection:
        further = lengths.join(edges, on={"node": "src"}).select(node="dst", length=col("length") + 1)
        return further.concat(start).group_by("node").agg(length=dd.max("length"))

    return {"lengths": start.iterate(onward, max_rounds=100_000)}


def main(nodes: int, versions: int) -> None:
    """Fold once, check the result, print the figures."""
    chain = pl.DataFrame({"node": range(nodes)}).with_columns(
        version=pl.col("node") * versions // nodes, diff=pl.lit(1, pl.Int64)
    )
    edges = chain.filter(pl.col("node") > 0).select(pl.col("node").alias("dst"), pl.exclude("node"))
    edges = edges.with_columns(src=pl.col("dst") - 1)
    compile_kernels()
    clock = Clock()
    lengths = dd.replay(longest_paths, nodes=chain, edges=edges)["lengths"]
    figures = {**clock.figures("fold"), "peak_mib": peak_mib()}
    expected = chain.select("node", pl.col("node").alias("length"), "version", "diff")
    if not lengths.sort("node").equals(expected):
        raise Failed(f"a chain of {nodes} nodes: {lengths.join(expected, on=expected.columns, how='anti').head(3)}")
    print(json.dumps({**figures, "changes": len(lengths)}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.chain_engine")
    parser.add_argument("nodes", type=int)
    parser.add_argument("--versions", type=int, default=20)
    main(**vars(parser.parse_args()))
