"""What ``make bench`` needs is in the repository; its engine's side gives what scipy computes from scratch."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).resolve().parent.parent
NODES = 60
UNTRACKED = {".git", ".venv", "build", "dist", "demo", "__pycache__"}
WORKLOADS = {
    "components": "cc",
    "components, prioritised": "cc",
    "triangles per node": "triangles",
    "degrees": "degrees",
}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of ``bench/``, which is not part of the package."""
    monkeypatch.syspath_prepend(TOP)
    return lambda name: importlib.import_module(f"bench.{name}")


@pytest.mark.parametrize("workload", [*WORKLOADS, "bfs"])
def test_the_engine_gives_what_is_computed_from_scratch_at_every_version(
    workload: str, bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = 20261122
    print(f"seed {seed}")
    sizes = {"nodes": NODES, "edges": 90, "versions": 12, "delta": 6, "seed": seed}
    generate, check = bench("peers.generate"), bench("peers.check")
    generate.write(tmp_path / "graph", **sizes)
    edges, changes = generate.history(**sizes)
    files = (tmp_path / "graph.edges.bin", tmp_path / "graph.changes.bin")
    assert [file.stat().st_size for file in files] == [edges.nbytes, changes.nbytes]
    if workload == "bfs":
        bench("bfs_engine").main(*files)
    else:
        bench("graph_engine").main(workload, *files, NODES)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    count, checksum = check.expected(WORKLOADS.get(workload, workload), edges, changes, NODES)
    assert (figures["changes"], figures["checksum"]) == (count, checksum)
    assert count > 0


def test_a_benchmark_without_cargo_says_so_in_one_line(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "DDCORE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "bench", "bfs", "graphs"],
        cwd=TOP,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["name"] for line in lines] == ["bfs", "graphs"]
    assert all(line["skipped"] == "the Rust peer has to be built, and there is no cargo on PATH" for line in lines)
    assert done.stderr == ""


def test_nothing_is_read_from_beside_the_repository(bench: Any) -> None:
    pattern = re.compile(r"\.\./shared|parent\s*/\s*[\"']shared")
    for folder, folders, names in os.walk(TOP):
        folders[:] = [name for name in folders if name not in UNTRACKED and not name.endswith(("_cache", ".egg-info"))]
        for name in names:
            if name.endswith((".py", ".md", ".toml", ".sh", ".rs")) or folder.endswith(".ci"):
                text = Path(folder, name).read_text(encoding="utf-8")
                assert not pattern.search(text), Path(folder, name)
    project, peer = bench("project"), bench("rust_peer")
    assert project.package_set().is_relative_to(TOP) and project.package_set().exists()
    assert peer.SOURCE.is_relative_to(TOP) and (peer.SOURCE / "src" / "main.rs").exists()


def test_the_readme_of_the_sample_data_names_every_folder_with_its_licence() -> None:
    rows = [line.split(" | ") for line in (TOP / "sample_data" / "README.md").read_text().splitlines()]
    licences = {row[0].strip("| `/"): row[-1] for row in rows if len(row) == 5}
    folders = {folder.name for folder in (TOP / "sample_data").iterdir() if folder.is_dir()} - {"__pycache__"}
    assert folders and folders <= licences.keys()
    for folder in sorted(folders):
        assert re.search(r"BSD-3-Clause|Apache-2\.0|cited", licences[folder]), folder
    assert "Redistributions in binary form" in (TOP / "sample_data" / "package_sets" / "LICENSE").read_text()
