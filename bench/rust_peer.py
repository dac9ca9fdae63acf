"""Peers in Rust, each built once into the cache folder: ``bench/peers/ddpeer`` on the crate differential-dataflow, and
``bench/peers/dbsppeer`` on the crate dbsp.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Failed, Figures, Skipped, prompt_to_prompt
from bench.peers import generate
from ddcore.base.cache import cache_folder

PEERS = Path(__file__).resolve().parent / "peers"


@dataclass(frozen=True)
class GraphFiles:
    """A graph and its changes, as flat little-endian int64: (src, dst) and (version, src, dst, diff)."""

    edges: Path
    changes: Path
    nodes: int


def binary(peer: str = "ddpeer", duration: str = "2-3 minutes") -> Path:
    """The built peer. Building takes cargo, its crates and that long, once per state of the source; raises Skipped
    without them.
    """
    program, changed = _state(peer)
    if program.exists() and not changed:
        return program
    cargo = shutil.which("cargo")
    if cargo is None:
        raise Skipped("the Rust peer has to be built, and there is no cargo on PATH")
    print(f"building the Rust peer {peer}, once: {duration}", file=sys.stderr, flush=True)
    program.unlink(missing_ok=True)  # else a build that fails would leave the old one
    for file, copy in changed.items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    folder = _folder(peer)
    if error := _cargo(cargo, "fetch", folder):
        raise Skipped(f"the Rust peer cannot be built: {' '.join(error.split())[-300:]}")
    if error := _cargo(cargo, "build", folder, "--release"):
        raise Failed(f"cargo build --release in {folder} failed\n{error[-2000:]}")
    return program


def is_built(peer: str) -> bool:
    """Whether the peer need not be built any more."""
    program, changed = _state(peer)
    return program.exists() and not changed


def _folder(peer: str) -> Path:
    return cache_folder() / "bench" / peer


def _state(peer: str) -> tuple[Path, dict[Path, Path]]:
    """The program, and the files of its source that were not built, with the copies that cargo reads."""
    source, folder = PEERS / peer, _folder(peer)
    copies = {file: folder / file.relative_to(source) for file in (source / "Cargo.toml", *source.glob("src/*.rs"))}
    changed = {
        file: copy for file, copy in copies.items() if not copy.exists() or copy.read_bytes() != file.read_bytes()
    }
    return folder / "target" / "release" / peer, changed


def _cargo(cargo: str, command: str, folder: Path, *options: str) -> str:
    """Run one of cargo's commands; the text of its error, or nothing."""
    process = subprocess.run([cargo, command, *options], cwd=folder, capture_output=True, text=True, check=False)
    return process.stderr if process.returncode else ""


def graph(nodes: int, edges: int, versions: int, changes: int) -> GraphFiles:
    """A random graph and its history, kept in the cache folder."""
    folder = cache_folder() / "bench" / "data"
    prefix = folder / f"{nodes}-{edges}-{versions}-{changes}"
    files = GraphFiles(Path(f"{prefix}.edges.bin"), Path(f"{prefix}.changes.bin"), nodes)
    if not files.changes.exists():
        folder.mkdir(parents=True, exist_ok=True)
        generate.write(prefix, nodes=nodes, edges=edges, versions=versions, delta=changes)
    return files


def figures(files: GraphFiles, workload: str, options: Sequence[str], workers: int = 1) -> Figures:
    """One run of a workload: version 0 is loaded, then all later versions are given, ``--batch`` of them at once."""
    arguments = (files.edges, files.changes, files.nodes, *options, "-w", workers)
    _, stdout = prompt_to_prompt([binary(), workload, *arguments], cwd=files.edges.parent)
    printed = dict(re.findall(r"^(\w+)=(-?[\d.]+)$", stdout, re.MULTILINE))
    return {
        "load_s": float(printed["load_s"]),
        "load_cpu_s": float(printed["load_cpu_s"]),
        "replay_s": float(printed["change_s"]),
        "replay_cpu_s": float(printed["change_cpu_s"]),
        "peak_mib": float(printed["peak_rss_mib"]),
        "changes": int(printed["output_changes"]),
        "checksum": int(printed["checksum"]),
    }
