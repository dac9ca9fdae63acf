"""Pathway as a peer, in an environment of its own in the cache folder: it needs an older PyArrow than ddcore."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from bench.measure import Skipped
from ddcore.base.cache import cache_folder

PACKAGE = "pathway==0.33.0"


def python() -> Path:
    """A Python that has the package. Making its environment takes a package index and a minute or two, once, and more
    than 1 GiB of disk; raises Skipped without them.
    """
    folder = (
        cache_folder() / "bench" / f"{PACKAGE.replace('==', '-')}-py{sys.version_info.major}.{sys.version_info.minor}"
    )
    program, ready = folder / "bin" / "python", folder / "ready"
    if ready.exists():
        return program
    print("installing Pathway, once: a minute or two", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    environment = [sys.executable, "-m", "venv", str(folder)]
    package = [str(program), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]
    for command in (environment, package):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            raise Skipped(f"Pathway cannot be installed: {' '.join(done.stderr.split())[-300:]}")
    ready.touch()
    return program
