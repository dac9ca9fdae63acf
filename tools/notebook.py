"""Executes the notebook of examples/ on the demo's project, and stores its outputs in it, or in another file.

The project is made in a temporary folder, in this process, from sample_data; no Java is needed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parent.parent
NOTEBOOK = TOP / "examples" / "outages" / "notebook.ipynb"
_LONGEST = 120  # seconds of a cell


def make_project(folder: Path) -> None:
    """The project of `make demo`, in a new folder: two ingests and a run, twice."""
    from ddcore.cli.main import run_command

    (folder / "data").mkdir(parents=True)
    for name in ("dd.toml", "program.py"):
        shutil.copy(TOP / "examples" / "outages" / name, folder)
    for step in (1, 2):
        for name in ("dependencies", "incidents"):
            shutil.copy(TOP / "sample_data" / f"{name}-{step}.parquet", folder / "data")
            _command(run_command, "ingest", name, str(folder / "data" / f"{name}-{step}.parquet"), folder)
        _command(run_command, "run", folder)


def _command(run_command: Any, *arguments: str | Path) -> None:
    *words, folder = arguments
    code = run_command([*map(str, words), "--engine", "inline", "--project", str(folder), "--quiet"])
    if code:
        raise SystemExit(code)


def executed(source: Path, folder: Path) -> Any:
    """The notebook with fresh outputs, executed in a folder that has the project as `demo`."""
    import nbformat
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    notebook = nbformat.read(source, as_version=4)  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        cell.metadata.clear()
    kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=str(folder / "kernel"))  # no open ports
    location = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, kernel, timeout=_LONGEST, record_timing=False, resources=location)
    client.execute(cleanup_kc=True)
    notebook.metadata.get("language_info", {}).pop("version", None)  # the outputs are the same with any Python
    return notebook


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=NOTEBOOK, help="where to write; default: the notebook itself")
    output = parser.parse_args().output
    # For the kernel: no project but the one of the notebook.
    os.environ.pop("DDCORE_PROJECT", None)
    os.environ.pop("DDCORE_WAREHOUSE", None)
    import nbformat

    with tempfile.TemporaryDirectory() as location:
        make_project(Path(location) / "demo")
        notebook = executed(NOTEBOOK, Path(location))
    nbformat.write(notebook, output)  # type: ignore[no-untyped-call]
    return 0


if __name__ == "__main__":
    sys.exit(main())
