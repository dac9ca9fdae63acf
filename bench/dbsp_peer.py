"""The Rust crate dbsp as a peer of the closure, one transaction a version: ``bench/peers/dbsppeer``.

``python -m bench.dbsp_peer`` builds it. No benchmark does so by itself, as the crate has some 370 others below it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl

from bench import rust_peer
from bench.measure import Figures, Skipped, prompt_to_prompt
from bench.peers import closures

PEER = "dbsppeer"
DURATION = "12 minutes of one core, and 1.1 GB of disk"


def program() -> Path:
    """The built peer; raises Skipped where it is not built."""
    if not rust_peer.is_built(PEER):
        raise Skipped(f"the peer on dbsp is not built: python -m bench.dbsp_peer builds it, once: {DURATION}")
    return rust_peer.binary(PEER)


def closure(log_file: Path) -> Figures:
    """One run over a change log. The peer is given numbers in the place of names, which is to its advantage."""
    log = pl.read_parquet(log_file).sort("version")
    names = pl.concat([log["package"], log["dependency"]]).unique().sort()
    columns = ("package", "dependency")
    numbers = (pl.col(name).replace_strict(names, pl.int_range(len(names), eager=True)) for name in columns)
    rows = log.with_columns(numbers).select(pl.col("version", *columns, "diff").cast(pl.Int64))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "changes.bin"
        file.write_bytes(rows.to_numpy().astype("<i8").tobytes("C"))
        _, stdout = prompt_to_prompt([program(), file], cwd=file.parent)
    lines = stdout.splitlines()
    costs = {name: float(value) for name, _, value in (line.partition("=") for line in lines[:3])}
    changes = (tuple(map(int, line.split())) for line in lines[3:])
    named = ((names[package], names[dependency], version, diff) for package, dependency, version, diff in changes)
    return {**costs, **closures.outcome(named)}


if __name__ == "__main__":
    print(rust_peer.binary(PEER, DURATION))
