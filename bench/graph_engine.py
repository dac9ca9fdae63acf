"""Graph workloads in the engine: ``python -m bench.graph_engine WORKLOAD EDGES CHANGES NODES`` prints one JSON object.

A separate process, so that its peak memory is that of the load and the replay. The programs are written as the peer
has them: its components take edges as they are, where :mod:`ddcore.algorithms` first makes them distinct. Times as in
:mod:`bench.bfs_engine`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

import ddcore as dd
from bench.bfs_engine import measure, read_changes, read_edges
from ddcore.algorithms import magnitude


def plain(edges: dd.Collection, nodes: dd.Collection) -> dict[str, dd.Collection]:
    """(node, component), by labels that spread."""
    own, links = nodes.select("node", component="node"), both_ways(edges)

    def spread(labels: dd.Collection) -> dd.Collection:
        received = labels.join(links, on={"node": "src"}).select(node="dst", component="component")
        return received.concat(own).group_by("node").agg(component=dd.min("component"))

    return {"pairs": own.iterate(spread)}


def prioritised(edges: dd.Collection, nodes: dd.Collection) -> dict[str, dd.Collection]:
    """Components by a loop in which small labels go first."""
    own, links = nodes.select("node", component="node"), both_ways(edges)

    def offer(offers: dd.Collection, labels: dd.Collection) -> dict[str, dd.Collection]:
        labels = offers.group_by("node").agg(component=dd.min("component"))
        onward = labels.join(links, on={"node": "src"}).select(node="dst", component="component")
        return {"offers": onward.concat(labels), "labels": labels}

    start = {"offers": own, "labels": own.where("false")}
    return {"pairs": dd.iterate(start, offer, priority={"offers": magnitude("component")})["labels"]}


def both_ways(edges: dd.Collection) -> dd.Collection:
    """Each edge in both directions."""
    return edges.concat(edges.select(src="dst", dst="src"))


def triangles(edges: dd.Collection) -> dict[str, dd.Collection]:
    """(a, how many pairs (b, c) have edges a-b, b-c and a-c)."""
    found = dd.delta_join((edges, ["a", "b"]), (edges, ["b", "c"]), (edges, ["a", "c"]))
    return {"pairs": found.group_by("a").agg(n=dd.count())}


def degrees(edges: dd.Collection) -> dict[str, dd.Collection]:
    """(out-degree, how many nodes have it)."""
    degree = edges.group_by("src").agg(degree=dd.count())
    return {"pairs": degree.group_by("degree").agg(n=dd.count())}


WORKLOADS: dict[str, Callable[..., dict[str, dd.Collection]]] = {
    "components": plain,
    "components, prioritised": prioritised,
    "triangles per node": triangles,
    "degrees": degrees,
}


def main(workload: str, edges_file: Path, changes_file: Path, nodes: int, *, threads: int = 1) -> None:
    """Load version 0, replay the others, print the figures."""
    program = WORKLOADS[workload]
    inputs, schemas = {"edges": read_edges(edges_file)}, {"edges": {"src": "int64", "dst": "int64"}}
    if workload.startswith("components"):
        own = pl.DataFrame({"node": np.arange(nodes)})
        inputs["nodes"] = own.with_columns(version=pl.lit(0, pl.Int64), diff=pl.lit(1, pl.Int64))
        schemas["nodes"] = {"node": "int64"}
    changes = read_changes(changes_file)
    measure(program, schemas, inputs, changes, _checksum, threads=threads)


def _checksum(log: pl.DataFrame) -> int:
    """The sum of a x b x diff over pairs (a, b), as the peer computes it."""
    a, b = (pl.col(name).cast(pl.Int64) for name in log.columns[:2])
    return int(log.select((a * b * pl.col("diff")).sum()).item())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.graph_engine")
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("edges_file", type=Path)
    parser.add_argument("changes_file", type=Path)
    parser.add_argument("nodes", type=int)
    parser.add_argument("--threads", type=int, default=1)
    main(**vars(parser.parse_args()))
