"""The Rust crate differential-dataflow as a peer: ``bench/peers/ddpeer``, built once into the cache folder."""

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

SOURCE = Path(__file__).resolve().parent / "peers" / "ddpeer"


@dataclass(frozen=True)
class GraphFiles:
    """A graph and its changes, as flat little-endian int64: (src, dst) and (version, src, dst, diff)."""

    edges: Path
    changes: Path
    nodes: int


def binary() -> Path:
    """The built peer. Building takes cargo, its crates and 2-3 minutes, once per state of the source; raises Skipped
    without them.
    """
    folder = cache_folder() / "bench" / "ddpeer"
    program = folder / "target" / "release" / "ddpeer"
    files = (SOURCE / "Cargo.toml", *SOURCE.glob("src/*.rs"))
    changed = [file for file in files if not _is_copied(file, folder)]
    if program.exists() and not changed:
        return program
    cargo = shutil.which("cargo")
    if cargo is None:
        raise Skipped("the Rust peer has to be built, and there is no cargo on PATH")
    print("building the Rust peer, once: 2-3 minutes", file=sys.stderr, flush=True)
    program.unlink(missing_ok=True)  # else a build that fails would leave the old one
    for file in changed:
        copy = folder / file.relative_to(SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    if error := _cargo(cargo, "fetch", folder):
        raise Skipped(f"the Rust peer cannot be built: {' '.join(error.split())[-300:]}")
    if error := _cargo(cargo, "build", folder, "--release"):
        raise Failed(f"cargo build --release in {folder} failed\n{error[-2000:]}")
    return program


def _is_copied(file: Path, folder: Path) -> bool:
    copy = folder / file.relative_to(SOURCE)
    return copy.exists() and copy.read_bytes() == file.read_bytes()


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
