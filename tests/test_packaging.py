"""What is built and installed: the wheel, the source distribution, their licence, and the kernels they share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from kernels import LOAD_ALL

from ddcore.jobs.setup import compile_kernels
from ddcore.jobs.spark.shipping import package_zip

TOP = Path(__file__).resolve().parent.parent
BUILD = """
from setuptools import build_meta
for build in (build_meta.build_sdist, build_meta.build_wheel):
    build({target!r})
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution and the wheel, built of a copy of the sources, without a network."""
    source, target = tmp_path_factory.mktemp("source") / "ddcore", tmp_path_factory.mktemp("dist")
    unneeded = shutil.ignore_patterns(".*", "build", "dist", "demo", "*.egg-info", "__pycache__", "tests", "warehouse")
    shutil.copytree(TOP, source, ignore=unneeded)
    done = subprocess.run(
        [sys.executable, "-c", BUILD.format(target=str(target))],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (sdist,), (wheel,) = target.glob("*.tar.gz"), target.glob("*.whl")
    return sdist, wheel


def test_wheel_and_source_distribution_carry_the_licence(built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    text = (TOP / "LICENSE").read_text()
    assert text.split()[:5] == ["Apache", "License", "Version", "2.0,", "January"]
    assert "END OF TERMS AND CONDITIONS" in text and "[name of copyright owner]" in text
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [name for name in packed.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
        assert packed.read(name).decode() == text
        (name,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_string(packed.read(name).decode())
        assert "ddcore/kernels/runs.py" in packed.namelist() and "ddcore/py.typed" in packed.namelist()
    with tarfile.open(sdist) as packed_sources:
        assert {"LICENSE", "README.md", "pyproject.toml"} <= {
            Path(name).name for name in packed_sources.getnames() if name.count("/") == 1
        }
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).startswith("# ddcore")
    assert "Programming Language :: Python :: 3.13" in metadata.get_all("Classifier", [])
    assert metadata["Keywords"]


def test_wheel_checkout_and_package_zip_share_compiled_kernels(built: tuple[Path, Path], tmp_path: Path) -> None:
    compile_kernels()
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(built[1])], check=True)
    where = {}
    for kind, command, path in [
        ("wheel", python, ""),
        ("checkout", sys.executable, ""),
        ("zip", sys.executable, str(package_zip())),
    ]:
        env = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(
            [str(command), "-c", LOAD_ALL], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        compiled, where[kind] = done.stdout.split()
        assert compiled == "0", f"{kind} compiled {compiled} functions"
    assert where["wheel"] == str(site / "ddcore")
    assert len(set(where.values())) == 3, where
