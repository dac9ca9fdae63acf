"""``python -m bench``: every benchmark, or those named; one JSON object per line on stdout.

``python -m bench --promises`` runs the benchmarks that measure what ``promises.toml`` promises, or those named, and
prints a table of what was measured, the limit and the verdict. If a promise is broken, the exit code is 1.

``python -m bench growth --runs N`` is apart: it measures what grows with the number of runs, and draws
docs/growth.svg; with ``--ingests``, what grows with N pairs of a small ingest and a run. The tables in ``docs/`` are
rewritten if all of them were measured. A benchmark that needs something this machine lacks prints a line with
``skipped``. If one fails, or its sides disagree, the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib import import_module

from bench import growth, ingests, promises, table
from bench.measure import Failed, Result, Skipped

BENCHMARKS = (
    "bfs", "sessions", "graphs", "nothing_new", "ten_rows", "whole_history", "package_closure", "tpch", "bank",
    "where", "published", "shop", "chain", "history_memory", "large_groups", "lookups", "moving_filter", "parallelism",
    "interning",
)  # fmt: skip
# These take too long or too much memory to be among the others.
ON_REQUEST = (
    "graphs_large", "ingest", "snapshots", "first_run", "memory_limit", "worker_memory", "worker_work", "superstep",
    "balance", "recutting", "scale_model", "cluster", "cluster_ingest", "cluster_published", "explain", "refreshes",
    "windows", "branches",
)  # fmt: skip


def main() -> int:
    """Run, print, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure ours and its peers, in turn.")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which: {', '.join(BENCHMARKS + ON_REQUEST)} (default: all but {', '.join(ON_REQUEST)}); or: growth",
    )
    parser.add_argument("--runs", type=int, default=10_000, help="for growth: how many runs (default: 10,000)")
    parser.add_argument("--ingests", action="store_true", help="for growth: each run comes after an ingest of one row")
    parser.add_argument(
        "--promises", action="store_true", help="compare with promises.toml; exit code 1 if one is broken"
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side; medians are given (default: 3)")
    options = parser.parse_args()
    if options.names == ["growth"]:
        (ingests if options.ingests else growth).main(options.runs)
        return 0
    if unknown := {*options.names} - {*BENCHMARKS, *ON_REQUEST}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS + ON_REQUEST)}")
    if options.promises:
        return int(any([line.is_broken for line in promised(options.names or promises.benchmarks(), options.rounds)]))
    names = options.names or BENCHMARKS
    results, complete, failed = [], names == BENCHMARKS, False
    for name in names:
        try:
            results += measured(name, options.rounds)
        except Skipped as why:
            complete = False
            print(json.dumps({"name": name, "skipped": str(why)}), flush=True)
        except Failed as why:
            complete, failed = False, True
            print(f"{name}: {why}", file=sys.stderr, flush=True)
    if results:
        print(f"on {table.machine()}", file=sys.stderr, flush=True)
    if complete:
        table.write(results)
    return int(failed)


def measured(name: str, rounds: int) -> list[Result]:
    """The results of one benchmark, each printed as soon as it is measured."""
    results = []
    for measurement in import_module(f"bench.{name}").run(rounds):
        result = promises.with_limit(name, measurement)
        print(result.line(), flush=True)
        results.append(result)
    return results


def promised(names: Sequence[str], rounds: int) -> list[promises.Line]:
    """Run these benchmarks, print the table of what they promise, and return its lines."""
    lines: list[promises.Line] = []
    for name in names:
        results, why = list[Result](), ""
        try:
            for result in import_module(f"bench.{name}").run(rounds):
                print(promises.with_limit(name, result).line(), file=sys.stderr, flush=True)
                results.append(result)
        except Skipped as reason:
            why = str(reason)
        except Failed as reason:
            print(f"{name}: {reason}", file=sys.stderr, flush=True)
        lines += promises.compared(name, results, why)
    print(promises.table(lines))
    print(f"on {table.machine()}", file=sys.stderr, flush=True)
    return lines


if __name__ == "__main__":
    sys.exit(main())
