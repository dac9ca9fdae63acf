"""The closure of a history of dependencies in plain Python, and what all its peers must agree on.

``python -m bench.peers.closures LOG`` reads a change log in Parquet, searches from scratch at every version in it, and
prints one JSON object. Reading the log is not timed. At its head this module imports nothing that has to be installed:
a peer with an environment of its own uses it as well.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby

from bench.measure import peak_mib

Change = tuple[str, str, int, int]
"""Package, dependency, version, diff."""


def differences(log: list[Change]) -> Iterator[Change]:
    """How the pairs (package, anything it needs) change, by a search from every package at each version in ``log``."""
    counts, needs = Counter[tuple[str, str]](), defaultdict[str, set[str]](set)
    before = dict[str, set[str]]()
    for version, changes in groupby(sorted(log, key=lambda change: change[2]), key=lambda change: change[2]):
        for package, dependency, _, diff in changes:
            counts[package, dependency] += diff
            change = needs[package].add if counts[package, dependency] > 0 else needs[package].discard
            change(dependency)
            needs.setdefault(dependency, set())  # a key for everything that is needed
        now = dict[str, set[str]]()
        for package in needs:
            now[package] = reached(package, needs, now)
        for package, dependencies in now.items():
            known = before.get(package, set())
            yield from ((package, dependency, version, -1) for dependency in known - dependencies)
            yield from ((package, dependency, version, 1) for dependency in dependencies - known)
        before = now


def reached(package: str, needs: dict[str, set[str]], known: dict[str, set[str]]) -> set[str]:
    """Everything that a package needs; of some packages it is ``known``."""
    seen, stack = set(needs[package]), list(needs[package])
    while stack:
        dependency = stack.pop()
        if dependency in known:
            seen |= known[dependency]
        else:
            new = needs[dependency] - seen
            seen |= new
            stack += new
    return seen


def report(changes: Iterable[Change], seconds: float, cpu_seconds: float) -> None:
    """Print the figures of one side: its times, its peak memory so far, and what it computed."""
    figures = {"s": seconds, "cpu_s": cpu_seconds, "peak_mib": peak_mib()}
    print(json.dumps({**figures, **outcome(changes)}))


def outcome(changes: Iterable[Change]) -> dict[str, int]:
    """What a side computed: the number of differences, and a checksum over them."""
    count = checksum = 0
    for package, dependency, version, diff in changes:
        count += 1
        checksum += diff * zlib.crc32(f"{package} {dependency} {version}".encode())
    return {"changes": count, "checksum": checksum}


def main(log_file: str) -> None:
    """Search, print the figures."""
    import polars as pl

    log = pl.read_parquet(log_file).rows()
    wall, cpu = time.perf_counter(), time.process_time()
    changes = list(differences(log))
    report(changes, time.perf_counter() - wall, time.process_time() - cpu)


if __name__ == "__main__":
    main(sys.argv[1])
