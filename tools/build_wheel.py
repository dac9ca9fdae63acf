"""Build the wheel with compiled kernels: ``python tools/build_wheel.py [--python PATH]... [--target DIR]``.

The kernels are compiled for processors of the level ``ddcore.base.cache.LEVEL``, once for each Python, in about a
minute; by default for the Python that runs this. For another one an environment with the package's libraries is made in
``build/``. Every other tool builds the same wheel without these files: its first run compiles them.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ddcore.base.cache import LEVEL

TOP = Path(__file__).resolve().parent.parent
CONTENT = ("pyproject.toml", "README.md", "LICENSE", "ddcore", "io", "jobs", "cli")
COMPILE = """
from ddcore.base.cache import kernel_folder
from ddcore.jobs.setup import compile_kernels
compile_kernels()
print(kernel_folder())
"""
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
SETTINGS = {"NUMBA_CPU_NAME": LEVEL, "NUMBA_CPU_FEATURES": "", "NUMBA_DISABLE_INTEL_SVML": "1"}


def copy_sources(target: Path) -> None:
    """What the wheel is built of: the repository stays as it is."""
    target.mkdir(parents=True)
    for name in CONTENT:
        if (TOP / name).is_dir():
            shutil.copytree(TOP / name, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(TOP / name, target / name)


def compiled(python: Path, cache: Path) -> Path:
    """The folder of all kernels, compiled by this Python; its environment has the package's libraries."""
    environment = {**os.environ, **SETTINGS, "DDCORE_CACHE": str(cache)}
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    words: list[str | Path] = [python, "-c", COMPILE]
    # In the repository `import ddcore` would find its folder, without io, jobs and cli.
    done = subprocess.run(words, cwd=cache, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{python} cannot compile the kernels:\n{done.stderr}")
    return Path(done.stdout.splitlines()[-1])


def environment_of(python: str, sources: Path) -> Path:
    """The Python of an environment made with ``python`` that has the package as it is in ``sources``."""
    words = [python, "-c", "import sys; print(*sys.version_info[:2], sep='.')"]
    try:
        version = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"--python {python}: it does not run: {getattr(error, 'stderr', '').strip() or error}")
    folder = TOP / "build" / f"python{version}"
    if not (folder / "bin" / "python").exists():
        subprocess.run([python, "-m", "venv", folder], check=True)
    install: list[str | Path] = [
        folder / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    subprocess.run([*install, "--force-reinstall", "--no-deps", sources], check=True)
    subprocess.run([*install, "-c", TOP / "constraints.txt", sources], check=True)
    return folder / "bin" / "python"


def build(sources: Path, kernels: list[Path], target: Path) -> Path:
    """The wheel of these sources and these folders of kernels."""
    for folder in kernels:
        shutil.copytree(folder, sources / "ddcore" / "compiled" / folder.name)
    target.mkdir(parents=True, exist_ok=True)
    command: list[str | Path] = [sys.executable, "-c", BUILD, target]
    done = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"the wheel cannot be built:\n{done.stderr}")
    return Path(target, done.stdout.splitlines()[-1])


def main() -> None:
    """Compile for each Python, build, and say what came out."""
    parser = argparse.ArgumentParser(description="Build the wheel with compiled kernels.")
    parser.add_argument("--python", action="append", default=[], help="another Python to compile for; repeatable")
    parser.add_argument("--target", type=Path, default=TOP / "dist", help="the folder of the wheel")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        sources = Path(scratch) / "ddcore"
        copy_sources(sources)
        if platform.machine() not in ("x86_64", "AMD64"):
            sys.exit(f"kernels are compiled on x86-64 only, and this is {platform.machine()}: use pip wheel .")
        pythons = [Path(sys.executable), *(environment_of(python, sources) for python in options.python)]
        kernels = {compiled(python, TOP / "build" / "kernels-for-wheels") for python in pythons}
        shutil.rmtree(sources / "build", ignore_errors=True)  # what pip left
        wheel = build(sources, sorted(kernels), options.target.absolute())
    with zipfile.ZipFile(wheel) as packed:
        count = sum("/compiled/" in name for name in packed.namelist())
    print(f"{wheel}: {wheel.stat().st_size:,} bytes, {count} kernels for {LEVEL}, {len(kernels)} versions of Python")


if __name__ == "__main__":
    main()
