"""The Rust peer by itself, in all its forms: ``python -m bench.peers.matrix`` prints a JSON line per run, then a table.

Rounds are the outer loop, so that a minute of noise spoils one run of many workloads and not all runs of one.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass

from bench import rust_peer
from bench.measure import Skipped, prompt_to_prompt


@dataclass(frozen=True)
class Case:
    """A workload with its options, on a graph of ``nodes`` and ``edges`` with ``versions`` of ``delta`` changes."""

    options: str
    nodes: int = 1_000_000
    edges: int = 5_000_000
    versions: int = 1_000
    delta: int = 100


SMALL = {"nodes": 100_000, "edges": 500_000, "versions": 100}
CASES = {
    "bfs, small, one batch": Case("bfs --batch 100", **SMALL),
    "bfs, small, version by version": Case("bfs --batch 1", **SMALL),
    "bfs plain, one batch": Case("bfs --batch 1000"),
    "bfs plain, batches of 100": Case("bfs --batch 100"),
    "bfs plain, version by version": Case("bfs --batch 1"),
    "bfs plain, 200 versions of 2": Case("bfs --batch 1", versions=200, delta=2),
    "bfs shared, one batch": Case("bfs --batch 1000 --shape shared"),
    "bfs shared, batches of 100": Case("bfs --batch 100 --shape shared"),
    "bfs shared, version by version": Case("bfs --batch 1 --shape shared"),
    "bfs shared, 200 versions of 2": Case("bfs --batch 1 --shape shared", versions=200, delta=2),
    "degrees, one batch": Case("degrees --batch 1000"),
    "degrees, version by version": Case("degrees --batch 1"),
    "components prioritised": Case("cc --batch 100 --prioritized", versions=100),
    "components plain": Case("cc --batch 100", versions=100),
    "components shared": Case("cc --batch 100 --shape shared", versions=100),
    "triangles, one batch": Case("triangles --batch 1000"),
}
COLUMNS = ("load_s", "change_s", "change_cpu_s", "output_changes", "peak_rss_mib", "checksum")


def measure(case: Case, workers: int) -> dict[str, float]:
    """The figures of one run, in a process of its own."""
    workload, *options = case.options.split()
    files = rust_peer.graph(case.nodes, case.edges, case.versions, case.delta)
    root = ["0"] if workload == "bfs" else []
    command = [rust_peer.binary(), workload, files.edges, files.changes, case.nodes, *root, *options, "-w", workers]
    _, stdout = prompt_to_prompt(command, cwd=files.edges.parent)
    figures = {key: float(value) for key, value in re.findall(r"(\w+)=(-?[\d.]+)(?=\s|$)", stdout)}
    return {column: figures[column] for column in COLUMNS}


def main() -> None:
    """Run the cases in turn, then print medians."""
    parser = argparse.ArgumentParser(description="Measure the Rust peer in all its forms.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    runs: dict[tuple[str, int], list[dict[str, float]]] = defaultdict(list)
    try:
        rust_peer.binary()
    except Skipped as why:
        sys.exit(f"skipped: {why}")
    for number in range(options.rounds):
        for name in (name for name in CASES if options.only in name):
            for workers in options.workers:
                runs[name, workers].append(measure(CASES[name], workers))
                print(json.dumps({"round": number, "case": name, "workers": workers, **runs[name, workers][-1]}))
    print(f"\n| case | workers | {' | '.join(COLUMNS)} |\n|{' --- |' * (2 + len(COLUMNS))}")
    for (name, workers), measured in runs.items():
        medians = [statistics.median(run[column] for run in measured) for column in COLUMNS]
        print(f"| {name} | {workers} | {' | '.join(f'{median:.15g}' for median in medians)} |")


if __name__ == "__main__":
    main()
