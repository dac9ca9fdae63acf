"""The Rust crate differential-dataflow as a peer: ``../shared/peers``, built once into the cache folder."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Failed, Figures, Skipped, prompt_to_prompt
from bench.project import REPOSITORY
from ddcore.cache import cache_folder

PEERS = REPOSITORY.parent / "shared" / "peers"


@dataclass(frozen=True)
class GraphFiles:
    """A graph and its changes, as flat little-endian int64: (src, dst) and (version, src, dst, diff)."""

    edges: Path
    changes: Path
    nodes: int


def binary() -> Path:
    """The built peer. Building takes cargo, its crates and 2-3 minutes, once; Skipped where they are lacking."""
    folder = cache_folder() / "bench" / "ddpeer"
    built = folder / "target" / "release" / "ddpeer"
    if built.exists():
        return built
    source = _peer_file("ddpeer")
    cargo = shutil.which("cargo")
    if cargo is None:
        raise Skipped("the Rust peer has to be built, and there is no cargo on PATH")
    print("building the Rust peer, once: 2-3 minutes", file=sys.stderr, flush=True)
    for file in (source / "Cargo.toml", *source.glob("src/*.rs")):  # contents only: the source may be read-only
        copy = folder / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    done = subprocess.run([cargo, "build", "--release"], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"cargo build --release in {folder}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return built


def graph(nodes: int, edges: int, versions: int, changes: int) -> GraphFiles:
    """A random graph and its history, made by the peers' own ``gen.py`` and kept in the cache folder."""
    folder = cache_folder() / "bench" / "data"
    prefix = folder / f"{nodes}-{edges}-{versions}-{changes}"
    files = GraphFiles(Path(f"{prefix}.edges.bin"), Path(f"{prefix}.changes.bin"), nodes)
    if not files.changes.exists():
        folder.mkdir(parents=True, exist_ok=True)
        sizes = ("--nodes", nodes, "--edges", edges, "--versions", versions, "--delta", changes)
        prompt_to_prompt([sys.executable, _peer_file("gen.py"), prefix, *sizes], cwd=folder)
    return files


def breadth_first_search(files: GraphFiles, shape: str, workers: int) -> Figures:
    """One run from node 0: version 0 is loaded, then all later versions are handed over at once."""
    arguments = (files.edges, files.changes, files.nodes, 0, "--shape", shape, "-w", workers)
    _, said = prompt_to_prompt([binary(), "bfs", *arguments], cwd=files.edges.parent)
    found = dict(re.findall(r"^(\w+)=(-?[\d.]+)$", said, re.MULTILINE))
    return {
        "load_s": float(found["load_s"]),
        "load_cpu_s": float(found["load_cpu_s"]),
        "replay_s": float(found["change_s"]),
        "replay_cpu_s": float(found["change_cpu_s"]),
        "peak_mib": float(found["peak_rss_mib"]),
        "changes": int(found["output_changes"]),
        "checksum": int(found["checksum"]),
    }


def _peer_file(name: str) -> Path:
    path = PEERS / name
    if not path.exists():
        raise Skipped(f"needs {name} from ../shared/peers, beside the repository; it is not there")
    return path
