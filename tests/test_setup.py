"""The package's layout, the make targets, the set-up, and Spark's settings. Spark is not started."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from kernels import copy_of_cache

from ddcore.base.cache import kernel_names
from ddcore.base.errors import DdError, StorageError
from ddcore.jobs import setup
from ddcore.jobs.setup import compile_kernels
from ddcore.jobs.setup import main as set_up
from ddcore.jobs.spark import class_archive, jars, java
from ddcore.jobs.spark.settings import cores_of, defaults_file, settings
from ddcore.jobs.spark.shipping import package_zip

TOP = Path(__file__).resolve().parent.parent
FOLDERS = {"ddcore": "ddcore", "ddcore.io": "io", "ddcore.jobs": "jobs", "ddcore.cli": "cli"}


def pyproject() -> dict[str, Any]:
    return tomllib.loads((TOP / "pyproject.toml").read_text())


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "MAKEFLAGS")}
    return subprocess.run(
        ["make", *arguments], cwd=TOP, env=kept | environment, capture_output=True, text=True, check=False
    )


def test_every_folder_with_modules_is_packaged() -> None:
    packages = {
        ".".join([package, *folder.relative_to(TOP / room).parts])
        for package, room in FOLDERS.items()
        for folder in [TOP / room, *(TOP / room).rglob("*/")]
        if folder.name != "__pycache__" and list(folder.glob("*.py"))
    }
    assert set(pyproject()["tool"]["setuptools"]["packages"]) == packages
    assert pyproject()["tool"]["setuptools"]["package-dir"] == FOLDERS


def test_every_dependency_is_pinned_and_no_pin_has_an_url() -> None:
    pins = [line for line in (TOP / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin) for pin in pins), pins
    pinned = {re.sub(r"[-_.]+", "-", pin.split("==")[0]).lower() for pin in pins}
    project = pyproject()["project"]
    extras = project["optional-dependencies"]
    lines = [
        *project["dependencies"],
        *extras["spark"],
        *extras["connect"],
        *extras["s3"],
        *extras["bench"],
        *extras["docs"],
        *extras["dev"],
    ]
    names = {re.split(r"[=<>~! \[]", line)[0].lower() for line in lines}
    assert names - {"ddcore"} <= pinned
    assert {"ddcore[spark]", "ddcore[s3]"} <= {*extras["dev"]} and not {"pyspark", "pandas"} & {
        *project["dependencies"]
    }


def test_both_console_scripts_do_the_same() -> None:
    assert pyproject()["project"]["scripts"] == {"dd": "ddcore.cli.main:main", "ddcore": "ddcore.cli.main:main"}


def test_no_file_of_the_set_up_has_an_url() -> None:
    scripts = [
        TOP / ".ci" / "run",
        *(TOP / "tools").glob("*"),
        *(TOP / name for name in ("Makefile", "pyproject.toml")),
    ]
    for file in filter(Path.is_file, scripts):
        assert "://" not in file.read_text(), file


def test_make_lists_the_targets() -> None:
    output = make().stdout
    for target in ("setup", "demo", "test", "check", "bench", "clean"):
        assert re.search(rf"^  {target}  +\S", output, re.MULTILINE), output


@pytest.mark.parametrize("banner", [None, 'openjdk version "11.0.2" 2019-01-15', 'java version "1.8.0_392"'])
def test_make_setup_says_what_to_install_where_java_is_missing_or_old(tmp_path: Path, banner: str | None) -> None:
    for tool in ("bash", "sed", "head", "dirname", "make", "sh"):
        (tmp_path / tool).symlink_to(f"/bin/{tool}" if Path(f"/bin/{tool}").exists() else f"/usr/bin/{tool}")
    if banner is not None:
        (tmp_path / "java").write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
        (tmp_path / "java").chmod(0o755)
    done = make("setup", PATH=str(tmp_path))
    assert done.returncode != 0
    assert "Java 17 or newer" in done.stderr
    assert "apt-get install openjdk-17-jre-headless" in done.stderr
    assert "brew install openjdk@17" in done.stderr


@pytest.mark.parametrize("code", [0, 1])
def test_make_setup_without_java_prepares_the_rest(tmp_path: Path, code: int) -> None:
    """In a copy whose environment is ready and whose Python only notes how it was called."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "setup.sh").write_bytes((TOP / "tools" / "setup.sh").read_bytes())
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexit {code}\n')
    python.chmod(0o755)
    (tmp_path / ".venv" / "installed").touch()
    environment = {**os.environ, "JAVA_HOME": str(tmp_path / "no-java"), "PYTHON": sys.executable}
    packages = ["bash", "tools/setup.sh", "packages"]
    subprocess.run(packages, cwd=tmp_path, env=environment, capture_output=True, check=True)
    assert not (tmp_path / "calls").exists() and not (tmp_path / ".venv" / "ready").exists()
    done = subprocess.run(
        ["bash", "tools/setup.sh"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (tmp_path / ".venv" / "ready").exists() == (code == 0)
    assert (tmp_path / "calls").read_text().splitlines() == ["-m ddcore.jobs.setup"]
    assert done.returncode == code
    assert "Java 17 or newer" in done.stderr


@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", ["spark", "inline"])
def test_set_up_without_java_compiles_the_kernels(tmp_path: Path, engine: str) -> None:
    cache = copy_of_cache(tmp_path / "cache", "hashing.mix")
    done = subprocess.run(
        [sys.executable, "-m", "ddcore.jobs.setup", *["--inline"] * (engine == "inline")],
        env={**os.environ, "JAVA_HOME": str(tmp_path / "no-java"), "DDCORE_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.search(r"compiled kernels .* \d+ s$", done.stderr, re.MULTILINE), done.stderr
    assert list(cache.glob("kernels/*/hashing.mix.*"))
    if engine == "inline":
        assert done.returncode == 0
        assert "Java" not in done.stderr
    else:
        assert done.returncode == 1
        assert "has no bin/java" in done.stderr and "apt-get install" in done.stderr
        assert "ddcore run --engine inline" in done.stderr


def test_set_up_that_cannot_keep_kernels_fails_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compile_kernels()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    monkeypatch.setenv("DDCORE_CACHE", str(tmp_path / "cache"))
    assert set_up(["--inline"]) == 1
    assert "other users may write to" in (err := capsys.readouterr().err) and "set DDCORE_CACHE to" in err


def test_make_setup_says_what_to_install_where_python_is_missing() -> None:
    done = make("setup", PYTHON="python2.7")
    assert done.returncode != 0
    assert "Python 3.11, 3.12 or 3.13 is needed" in done.stderr


def test_jars_that_are_missing_are_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DDCORE_CACHE", str(tmp_path))
    with pytest.raises(StorageError, match="7 of Delta's 7 jars are not in") as caught:
        jars.paths()
    assert "make setup" in caught.value.hint
    jars.folder().mkdir(parents=True)
    for name in jars.JARS[1:]:
        (jars.folder() / name).write_bytes(b"jar")
    (jars.folder() / jars.JARS[0]).touch()
    assert jars.missing() == [jars.JARS[0]], "an empty file is no jar"


def test_jars_that_are_there_are_not_resolved_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DDCORE_CACHE", str(tmp_path))
    monkeypatch.setattr(jars, "_run_ivy", lambda *_: pytest.fail("the network was asked"))
    jars.folder().mkdir(parents=True)
    for name in jars.JARS:
        (jars.folder() / name).write_bytes(b"jar")
    assert jars.resolve() is False
    assert len(jars.paths()) == 7


def test_java_that_is_missing_or_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(DdError, match="has no bin/java") as caught:
        java.find_java()
    assert "apt-get install" in caught.value.hint
    (tmp_path / "bin").mkdir()
    launcher = tmp_path / "bin" / "java"
    launcher.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    launcher.chmod(0o755)
    with pytest.raises(DdError, match="is version 11"):
        java.find_java()
    launcher.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\" 2023-10-17' >&2\n")
    assert java.find_java() == java.Java(str(launcher), 'openjdk version "21.0.1" 2023-10-17')


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local-cluster[2,3,1024]", 6), ("spark://host:7077", None)]
)
def test_cores_of_a_master(master: str, cores: int | None) -> None:
    assert cores_of(master) == cores


def test_the_callers_settings_win_and_lists_are_joined() -> None:
    conf = {
        "spark.sql.shuffle.partitions": "7",
        "spark.driver.extraJavaOptions": "-Xss4m",
        "spark.driver.extraClassPath": "mine.jar",
    }
    chosen = settings("local[2]", conf, jars=["a.jar", "b.jar"], log4j=Path("log4j2.properties"))
    assert chosen["spark.sql.shuffle.partitions"] == "7"
    assert chosen["spark.driver.extraClassPath"].split(os.pathsep) == ["a.jar", "b.jar", "mine.jar"]
    assert chosen["spark.driver.extraJavaOptions"].startswith("-Duser.timezone=UTC ")
    assert chosen["spark.driver.extraJavaOptions"].endswith(" -Xss4m")


@pytest.mark.parametrize(
    ("master", "parallelism", "conf", "threads"),
    [
        ("local[4]", 2, {}, "2"),
        ("local-cluster[2,4,1024]", None, {}, "4"),
        ("local-cluster[2,4,1024]", 4, {}, "2"),
        ("spark://host:7077", 2, {"spark.executor.cores": "4"}, "4"),
        ("yarn", 6, {"spark.executor.cores": "4", "spark.executor.instances": "3"}, "2"),
        ("yarn", 2, {"spark.executor.cores": "many", "spark.executor.instances": "0"}, "1"),
        ("spark://host:7077", None, {}, "1"),
    ],
)
def test_polars_has_as_many_threads_as_a_task(
    master: str, parallelism: int | None, conf: dict[str, str], threads: str
) -> None:
    made = settings(master, conf, jars=[], log4j=Path("l"), parallelism=parallelism)
    assert made["spark.executorEnv.POLARS_MAX_THREADS"] == threads


def test_a_bulk_run_has_the_optimising_compiler_and_adaptive_plans() -> None:
    quick, bulk = (
        settings("local[2]", {}, jars=[], log4j=Path("l"), bulk=bulk) for bulk in (False, True)
    )  # fmt: skip
    assert "TieredStopAtLevel" in quick["spark.driver.extraJavaOptions"]
    assert "TieredStopAtLevel" not in bulk["spark.driver.extraJavaOptions"]
    quick, bulk = (
        settings("spark://host:7077", {}, jars=[], log4j=Path("l"), bulk=bulk) for bulk in (False, True)
    )  # fmt: skip
    assert "TieredStopAtLevel" in quick["spark.executor.extraJavaOptions"]
    assert "TieredStopAtLevel" not in bulk["spark.executor.extraJavaOptions"]
    assert (quick["spark.sql.adaptive.enabled"], bulk["spark.sql.adaptive.enabled"]) == ("false", "true")


def test_a_cluster_gets_jars_and_the_package_and_nothing_of_this_machine() -> None:
    chosen = settings("spark://host:7077", {}, jars=["a.jar"], log4j=Path("l"), package=Path("ddcore.zip"))
    assert (chosen["spark.jars"], chosen["spark.submit.pyFiles"]) == ("a.jar", "ddcore.zip")
    assert not {"spark.driver.host", "spark.driver.extraClassPath", "spark.sql.shuffle.partitions"} & set(chosen)


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]", "spark://host:7077", "yarn"])
def test_the_driver_of_any_master_has_the_class_archive_and_executors_have_not(master: str) -> None:
    """With the class path for which it was written."""
    chosen = settings(master, {}, jars=["a.jar", "b.jar"], log4j=Path("l"), archive=Path("classes.jsa"))
    assert "-XX:SharedArchiveFile=classes.jsa -Xshare:auto" in chosen["spark.driver.extraJavaOptions"]
    assert chosen["spark.driver.extraClassPath"].split(os.pathsep) == ["a.jar", "b.jar"]
    assert not [name for name, value in chosen.items() if "classes.jsa" in value and "executor" in name]


def test_spark_defaults_are_read_as_spark_reads_them(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("# mine\nspark.a  1\nspark.b=2 # three\n\n  spark.c : x y\nspark.d\n")
    assert defaults_file({"SPARK_CONF_DIR": str(tmp_path)}, tmp_path / "none") == {
        "spark.a": "1",
        "spark.b": "2 # three",
        "spark.c": "x y",
    }
    assert defaults_file({}, tmp_path / "none") == {}


def test_the_shipped_package_is_complete_and_imports_from_the_cache(tmp_path: Path) -> None:
    compile_kernels()
    archive = package_zip()
    assert package_zip() == archive, "the same sources make the same zip"
    with zipfile.ZipFile(archive) as packed:
        names = set(packed.namelist())
    sources = {
        f"unpacked/{package.replace('.', '/')}/{file.relative_to(TOP / room).as_posix()}"
        for package, room in FOLDERS.items()
        for file in (TOP / room).rglob("*.py")
    }
    compiled = {name for name in names if name.startswith("unpacked/ddcore/compiled/")}
    assert {Path(name).stem for name in compiled} == set(kernel_names()), "executors compile nothing"
    assert names - compiled == sources | {
        f"ddcore/{name}" for name in ("__init__.py", "base/__init__.py", "base/cache.py")
    }
    script = (
        "import ddcore, ddcore.io.storage.warehouse as w, ddcore.jobs.spark.jars; print(ddcore.__version__, w.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(archive), "DDCORE_CACHE": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    version, file = done.stdout.split()
    assert version == "0.1.0"
    assert Path(file) == tmp_path / "code" / archive.stem / "ddcore" / "io" / "storage" / "warehouse.py"
    assert os.listdir(tmp_path / "code") == [archive.stem], "nothing half-unpacked is left"


def test_no_class_archive_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DDCORE_CACHE", str(tmp_path))
    assert class_archive.current() is None


def test_a_class_archive_that_cannot_be_written_is_told_and_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(settings: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(class_archive, "path", lambda: tmp_path / "cds" / "spark.jsa")
    monkeypatch.setattr(setup, "spark_session", full)
    for name in ("find_java", "compile_kernels"):
        monkeypatch.setattr(setup, name, lambda: True)
    monkeypatch.setattr(jars, "resolve", lambda: False)
    assert setup.main([]) == 0
    assert "not written, Spark starts without it" in capsys.readouterr().err


def test_the_sample_is_what_its_script_writes_and_no_row_is_removed_before_it_is_added() -> None:
    spec = importlib.util.spec_from_file_location("sample_make", TOP / "sample_data" / "make.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for name, content in script.files().items():
        assert pl.read_parquet(TOP / "sample_data" / name).equals(pl.DataFrame(pl.from_arrow(content))), name
    for log in script.changes():
        counts: dict[tuple[str, str], int] = {}
        for row, _, diff in sorted(log, key=lambda change: change[1]):
            counts[row] = counts.get(row, 0) + diff
            assert counts[row] in (0, 1), row
    assert sum(file.stat().st_size for file in (TOP / "sample_data").iterdir() if file.is_file()) < 200_000
