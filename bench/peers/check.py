"""What a workload must give, computed from scratch at every version with scipy.

``python -m bench.peers.check WORKLOAD PREFIX NODES`` prints the number of output changes after version 0 and the
checksum, as the Rust peer and ddcore print them. ``--ends`` computes the first and the last version only, and so prints
only the checksum.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, connected_components

ABSENT = -1


def matrix(edges: np.ndarray, nodes: int) -> sp.csr_matrix:
    """How often each edge occurs, at (src, dst)."""
    return sp.csr_matrix((np.ones(len(edges), np.int64), (edges[:, 0], edges[:, 1])), shape=(nodes, nodes))


def hops(edges: np.ndarray, nodes: int) -> np.ndarray:
    """The distance of each node from node 0; ABSENT where there is no path."""
    order, parent = breadth_first_order(matrix(edges, nodes), 0)
    distance = np.full(nodes, ABSENT, dtype=np.int64)
    distance[0] = 0
    rest = order[1:]  # parents come before children, so whole levels are resolved at once
    while len(rest):
        above = distance[parent[rest]]
        distance[rest] = np.where(above == ABSENT, ABSENT, above + 1)
        rest = rest[above == ABSENT]
    return distance


def components(edges: np.ndarray, nodes: int) -> np.ndarray:
    """The least node of each node's component."""
    count, component = connected_components(matrix(edges, nodes), directed=False)
    least = np.full(count, nodes, dtype=np.int64)
    np.minimum.at(least, component, np.arange(nodes))
    of_nodes: np.ndarray = least[component]
    return of_nodes


def degrees(edges: np.ndarray, nodes: int) -> np.ndarray:
    """How many nodes have each degree; degree 0 is left out."""
    nodes_with = np.bincount(np.bincount(edges[:, 0], minlength=nodes), minlength=nodes)
    nodes_with[0] = 0
    return np.where(nodes_with == 0, ABSENT, nodes_with)


def triangles(edges: np.ndarray, nodes: int) -> np.ndarray:
    """For each node a, how many pairs (b, c) have edges a-b, b-c and a-c; ABSENT for none."""
    all_edges = matrix(edges, nodes)
    counts = np.asarray((all_edges @ all_edges).multiply(all_edges).sum(axis=1)).ravel()
    return np.where(counts == 0, ABSENT, counts)


WORKLOADS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "bfs": hops,
    "cc": components,
    "degrees": degrees,
    "triangles": triangles,
}


def checksum(values: np.ndarray) -> int:
    """The sum of place x value over the values that are there."""
    return int((np.arange(len(values)) * np.where(values == ABSENT, 0, values)).sum())


def expected(workload: str, edges: np.ndarray, changes: np.ndarray, nodes: int) -> tuple[int, int]:
    """The output changes after version 0 and the checksum of the last version. Solves every version from scratch."""
    solve, total = WORKLOADS[workload], 0
    now = solve(edges, nodes)
    for step in np.split(changes, np.flatnonzero(np.diff(changes[:, 0])) + 1):
        edges = applied(edges, step)
        before, now = now, solve(edges, nodes)
        moved = before != now
        total += int(np.count_nonzero(moved & (before != ABSENT)) + np.count_nonzero(moved & (now != ABSENT)))
    return total, checksum(now)


def applied(edges: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """The edges, a multiset, after some changes; the oldest copy of a removed edge goes first."""
    gone: dict[tuple[int, int], int] = {}
    for _, a, b, diff in changes.tolist():
        if diff < 0:
            gone[a, b] = gone.get((a, b), 0) - diff
    keep = np.ones(len(edges), dtype=bool)
    codes = edges[:, 0] * (1 << 32) + edges[:, 1]
    for row in np.flatnonzero(np.isin(codes, [a * (1 << 32) + b for a, b in gone])):
        edge = (int(edges[row, 0]), int(edges[row, 1]))
        if gone[edge]:
            gone[edge] -= 1
            keep[row] = False
    added = [(a, b) for _, a, b, diff in changes.tolist() for _ in range(max(diff, 0))]
    return np.concatenate([edges[keep], np.array(added, dtype=np.int64).reshape(-1, 2)])


def main() -> None:
    """Read the files and print what is expected."""
    parser = argparse.ArgumentParser(description="What a workload must give, computed from scratch.")
    parser.add_argument("workload", choices=sorted(WORKLOADS))
    parser.add_argument("prefix")
    parser.add_argument("nodes", type=int)
    parser.add_argument("--ends", action="store_true", help="only the first and the last version")
    options = parser.parse_args()
    edges = np.fromfile(f"{options.prefix}.edges.bin", dtype="<i8").reshape(-1, 2)
    changes = np.fromfile(f"{options.prefix}.changes.bin", dtype="<i8").reshape(-1, 4)
    if options.ends:
        print(f"checksum={checksum(WORKLOADS[options.workload](applied(edges, changes), options.nodes))}")
        return
    count, total = expected(options.workload, edges, changes, options.nodes)
    print(f"output_changes={count}\nchecksum={total}")


if __name__ == "__main__":
    main()
