"""Random graphs with a history, as files that ddcore's engine and the Rust peer read.

``python -m bench.peers.generate PREFIX --nodes N --edges M --versions V --delta D`` writes ``PREFIX.edges.bin``, M
pairs (src, dst), and ``PREFIX.changes.bin``, records (version, src, dst, diff) of the versions 1..V, as flat
little-endian int64. Each version deletes the D/2 oldest edges, then adds D/2 random ones: the graph is a window that
slides over one random sequence of edges.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np


def history(nodes: int, edges: int, versions: int, delta: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The edges of version 0, (src, dst), and all changes, (version, src, dst, diff). Raises ValueError for odd
    ``delta``.
    """
    if delta % 2:
        raise ValueError(f"delta is {delta}: it must be even, half deletions and half additions")
    half = delta // 2
    sequence = np.random.default_rng(seed).integers(0, nodes, size=(edges + versions * half, 2), dtype=np.int64)
    changes = np.empty((versions, 2, half, 4), dtype=np.int64)
    changes[..., 0] = np.arange(1, versions + 1)[:, None, None]
    changes[:, 0, :, 1:3] = sequence[: versions * half].reshape(versions, half, 2)
    changes[:, 0, :, 3] = -1
    changes[:, 1, :, 1:3] = sequence[edges:].reshape(versions, half, 2)
    changes[:, 1, :, 3] = 1
    return sequence[:edges], changes.reshape(-1, 4)


def write(prefix: Path, *, nodes: int, edges: int, versions: int, delta: int, seed: int = 1) -> None:
    """Write both files; each is complete or absent."""
    for part, rows in zip(("edges", "changes"), history(nodes, edges, versions, delta, seed), strict=True):
        file = Path(f"{prefix}.{part}.bin")
        unfinished = file.with_suffix(".part")
        np.ascontiguousarray(rows, dtype="<i8").tofile(unfinished)
        os.replace(unfinished, file)


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description="Write a random graph and its history.")
    parser.add_argument("prefix", type=Path)
    for name in ("nodes", "edges", "versions", "delta"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    write(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
