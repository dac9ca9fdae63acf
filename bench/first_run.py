"""The first ``dd run`` of a new installation: with the kernels of the built wheel, and where they have to be compiled.

``python -m bench first_run`` builds the wheel, installs it into an environment of its own beside this one's libraries,
and runs the small project of ``dd init`` there with an empty cache. On request: a side takes up to a minute.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.measure import Figures, Result, in_turn, prompt_to_prompt
from bench.project import REPOSITORY


def run(rounds: int) -> Iterator[Result]:
    """Both sides in turn, each in a new project and with a new cache."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        site = _install(folder)
        sides = {
            "shipped": partial(_first_run, folder, site / "ddcore" / "compiled"),
            "compiled": partial(_first_run, folder, site / "ddcore" / "hidden"),
        }
        medians = {name: figures["s"] for name, figures in in_turn(sides, rounds).items()}
    name = "first dd run in a new environment, inline"
    yield Result(name, medians["shipped"], "without the wheel's kernels", medians["compiled"], rounds)


def _install(folder: Path) -> Path:
    """Install the wheel; the folder of its packages."""
    build = [sys.executable, REPOSITORY / "tools" / "build_wheel.py", "--target", folder / "dist"]
    prompt_to_prompt(build, REPOSITORY)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (site,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    (site / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    (wheel,) = (folder / "dist").glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", folder / "venv" / "bin" / "python", "--disable-pip-version-check"]
    prompt_to_prompt([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], folder)
    return site


def _first_run(folder: Path, kernels: Path) -> Figures:
    """Seconds of the first run with the wheel's kernels in this folder, where ddcore looks for them or not."""
    (present,) = [location for name in ("compiled", "hidden") if (location := kernels.with_name(name)).exists()]
    present.rename(kernels)
    project = Path(tempfile.mkdtemp(dir=folder)) / "trams"
    command, environment = folder / "venv" / "bin" / "ddcore", {"DDCORE_CACHE": str(project.parent / "cache")}
    prompt_to_prompt([command, "init", project, "-q"], folder, environment)
    for name in ("links", "starts"):
        prompt_to_prompt([command, "ingest", name, f"data/{name}.csv", "-q"], project, environment)
    return {"s": prompt_to_prompt([command, "run"], project, environment)[0]}
