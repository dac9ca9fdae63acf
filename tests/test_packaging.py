"""What is built and installed: the wheel, the source distribution, their licence, and the kernels they share.

The wheel is installed into an environment that has every library of this one but those of the extra ``spark``. The
kernels in it are those of this machine's cache; ``make test-all`` builds the real one, and installs it into an
environment that is empty.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from email import message_from_string
from pathlib import Path

import build_wheel
import pytest
from kernels import LOAD_ALL

from ddcore.base.cache import LEVEL, kernel_folder, kernel_names
from ddcore.jobs.setup import compile_kernels
from ddcore.jobs.spark.shipping import package_zip

TOP = Path(__file__).resolve().parent.parent
SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
ONLY_FOR_SPARK = ("pyspark", "py4j", "delta", "delta_spark", "pandas")
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution, and the wheel with this machine's kernels, built without a network."""
    compile_kernels()
    source, target = tmp_path_factory.mktemp("source") / "ddcore", tmp_path_factory.mktemp("dist")
    build_wheel.copy_sources(source)
    done = subprocess.run(
        [sys.executable, "-c", SDIST, str(target)], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (sdist,) = target.glob("*.tar.gz")
    return sdist, build_wheel.build(source, [kernel_folder()], target)


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment with the wheel, without PySpark and without pandas."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    (site,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    (folder / "libraries").mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        name = entry.name.split("-")[0].split(".")[0]
        if name not in ONLY_FOR_SPARK and entry.suffix != ".pth" and "ddcore" not in name:
            (folder / "libraries" / entry.name).symlink_to(entry)
    (site / "libraries.pth").write_text(f"{folder / 'libraries'}\n")
    binaries = folder / "venv" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(binaries / "python"), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(built[1])], check=True)
    return binaries


@pytest.fixture
def call(installed: Path, tmp_path: Path) -> Callable[..., Done]:
    """Runs a command of that environment in a folder outside of the repository, without Java; its cache is empty."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DDCORE_", "PYTHON", "JAVA"))}
    environment = kept | {"PATH": str(installed), "DDCORE_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path)}

    def run(*words: str, cwd: Path = tmp_path, **more: str) -> Done:
        command = [str(installed / words[0]), *words[1:]]
        return subprocess.run(command, cwd=cwd, env=environment | more, capture_output=True, text=True, check=False)

    return run


def use(call: Callable[..., Done], folder: Path) -> list[str]:
    """Make a project, ingest, fold, look, verify; the lines on stderr. Fails where a command does."""
    said = []
    for words in (
        ("init", "trams"), ("ingest", "links", "data/links.csv"), ("ingest", "starts", "data/starts.csv"), ("run",),
        ("diff", "journeys", "3", "4"), ("verify",), ("log",), ("status",), ("plan",), ("compact",), ("doctor",),
    ):  # fmt: skip
        done = call("ddcore", *words, cwd=folder if words[0] == "init" else folder / "trams")
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        said += done.stderr.splitlines()
        if words[0] == "diff":
            assert "Harbour" in done.stdout and "Lighthouse" in done.stdout
    return said


@pytest.mark.sample(1, of="packaging")
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
        assert "ddcore/kernels/look_up.py" in packed.namelist() and "ddcore/py.typed" in packed.namelist()
        assert not [name for name in packed.namelist() if name.split("/")[0] in ("bench", "sample_data", "tests")]
    with tarfile.open(sdist) as packed_sources:
        names = packed_sources.getnames()
    assert {"LICENSE", "README.md", "pyproject.toml"} <= {Path(name).name for name in names if name.count("/") == 1}
    assert not [name for name in names if "/compiled/" in name], "those who build from it compile their own"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).startswith("# ddcore")
    assert "Programming Language :: Python :: 3.13" in metadata.get_all("Classifier", [])
    assert metadata["Keywords"]


@pytest.mark.sample(2, of="packaging")
def test_only_the_extra_needs_spark(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as packed:
        (name,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_string(packed.read(name).decode())
    needed = metadata.get_all("Requires-Dist", [])
    for library in ("pyspark", "delta-spark", "pandas"):
        (line,) = [line for line in needed if line.startswith((f"{library}=", f"{library}<", f"{library}>"))]
        assert line.endswith('extra == "spark"'), line
    assert {"polars", "deltalake", "numba"} <= {line.split(">")[0].split("<")[0] for line in needed if ";" not in line}


@pytest.mark.sample(1, of="packaging")
def test_the_wheel_works_without_spark_without_java_and_compiles_nothing(
    call: Callable[..., Done], tmp_path: Path
) -> None:
    said = use(call, tmp_path)
    assert not [line for line in said if "compiling" in line], said
    assert not (tmp_path / "cache" / "kernels").exists()
    done = call("python", "-m", "ddcore.jobs.setup")
    assert done.returncode == 0, done.stderr
    assert "pip install 'ddcore[spark]'" in done.stderr and "done already" in done.stderr
    count = len(kernel_names())
    doctor = {check["name"]: check for check in map(json.loads, call("ddcore", "doctor", "--json").stdout.splitlines())}
    assert doctor["kernels"]["message"].startswith(f"{count} of {count} compiled and current, with the package")
    assert (doctor["pyspark"]["state"], doctor["pyspark"]["hint"]) == ("note", "pip install 'ddcore[spark]'")


@pytest.mark.long
def test_the_engine_spark_without_the_extra_is_one_line_that_names_both_ways(
    call: Callable[..., Done], tmp_path: Path
) -> None:
    use(call, tmp_path)
    trams = tmp_path / "trams"
    files = {file: file.read_bytes() for file in trams.rglob("*") if file.is_file()}
    (trams / "more.csv").write_text((trams / "data" / "links.csv").read_text())
    for words in (
        ("run", "--full-refresh"),
        ("ingest", "links", "more.csv", "--restate", "1"),
        ("verify", "--by", "scratch"),
    ):
        done = call("ddcore", *words, "--engine", "spark", cwd=trams)
        error, hint = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (2, ""), (words, done.stdout)
        assert error == "error: the engine spark needs PySpark and pandas, which are not installed"
        assert "pip install 'ddcore[spark]'" in hint and 'engine = "inline"' in hint
    (trams / "more.csv").unlink()
    assert {file: file.read_bytes() for file in trams.rglob("*") if file.is_file()} == files
    text = (trams / "dd.toml").read_text()
    assert 'engine = "inline"' in text
    (trams / "dd.toml").write_text(text.replace('engine = "inline"', ""))
    done = call("ddcore", "run", "--full-refresh", cwd=trams)
    assert done.returncode == 2 and "the engine spark needs" in done.stderr, "no other engine is chosen silently"
    assert call("ddcore", "run", "--full-refresh", "--engine", "inline", cwd=trams).returncode == 0
    assert call("ddcore", "doctor", cwd=trams).returncode == 1


@pytest.mark.sample(1, of="packaging")
def test_completion_and_every_module_do_without_spark(call: Callable[..., Done]) -> None:
    words = {"_DDCORE_COMPLETE": "complete_bash", "COMP_WORDS": "ddcore run --engine ", "COMP_CWORD": "3"}
    done = call("ddcore", **words)
    assert sorted(done.stdout.split()) == ["inline", "spark"], done.stderr
    script = """
import importlib, pkgutil, sys, ddcore
for module in pkgutil.walk_packages(ddcore.__path__, "ddcore."):
    importlib.import_module(module.name)
print(len([name for name in sys.modules if name.startswith("ddcore.")]), "pyspark" in sys.modules)
"""
    count, has_spark = call("python", "-c", script).stdout.split()
    assert int(count) > 100 and has_spark == "False"


@pytest.mark.sample(1, of="packaging")
def test_wheel_checkout_and_package_zip_do_not_compile(
    installed: Path, built: tuple[Path, Path], tmp_path: Path
) -> None:
    """The wheel and the zip bring kernels; a checkout and an executor's copy of the same version have one cache."""
    where = {}
    for kind, command, path, cache in [
        ("wheel", str(installed / "python"), "", str(tmp_path / "empty")),
        ("checkout", sys.executable, "", ""),
        ("zip", sys.executable, str(package_zip()), ""),
        ("zip on another machine", sys.executable, str(package_zip()), str(tmp_path / "another")),
    ]:
        env = {**os.environ, "PYTHONPATH": path} | ({"DDCORE_CACHE": cache} if cache else {})
        done = subprocess.run(
            [command, "-c", LOAD_ALL], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        compiled, where[kind] = done.stdout.split()
        assert compiled == "0", f"{kind} compiled {compiled} functions"
    assert len(set(where.values())) == 4, where


@pytest.mark.long
def test_the_real_wheel_in_an_empty_environment(tmp_path: Path) -> None:
    """Built with kernels for the named level, and installed with what it depends on from the package index."""
    command = [sys.executable, str(TOP / "tools" / "build_wheel.py"), "--target", str(tmp_path / "dist")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{len(kernel_names())} kernels for {LEVEL}" in done.stdout
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    binaries = tmp_path / "venv" / "bin"
    pip = [str(binaries / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", str(TOP / "constraints.txt"), str(wheel)], cwd=tmp_path, check=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DDCORE_", "PYTHON", "JAVA"))}
    environment = kept | {"PATH": str(binaries), "DDCORE_CACHE": str(tmp_path / "cache")}

    def call(*words: str, cwd: Path) -> Done:
        command = [str(binaries / words[0]), *words[1:]]
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)

    said = use(call, tmp_path)
    assert not [line for line in said if "compiling" in line], said
    assert call("python", "-c", "import pyspark", cwd=tmp_path).returncode == 1
    shutil.rmtree(tmp_path / "venv")
