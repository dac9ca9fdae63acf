"""The recipe of a container image: it agrees with the package, and is built where a builder is at hand.

Elsewhere its instructions are read one by one, and the script that its containers start is run with a Java that says
how it was called.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
FOLDER = TOP / "examples" / "container"
TEXT = (FOLDER / "Dockerfile").read_text()
PACKAGE = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
KNOWN = {"ARG", "FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}


def instructions() -> list[tuple[str, str]]:
    lines = re.sub(r"^#.*\n", "", TEXT, flags=re.MULTILINE).replace("\\\n", "").splitlines()
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def test_every_instruction_is_known_and_every_command_is_a_shells() -> None:
    found = instructions()
    assert [name for name, _ in found[:2]] == ["ARG", "FROM"] and {name for name, _ in found} == KNOWN
    for name, rest in found:
        if name == "RUN":
            subprocess.run(["/bin/bash", "-n"], input=rest, text=True, check=True)
        elif name in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(word, str) for word in json.loads(rest))
    last_user = [rest for name, rest in found if name == "USER"][-1]
    assert last_user.isdecimal() and int(last_user) > 0, "Kubernetes can tell that a number is not root, not a name"


def test_versions_files_and_extras_are_those_of_the_package() -> None:
    (python, _) = [rest for name, rest in instructions() if name == "ARG"]
    assert f"Programming Language :: Python :: {python.removeprefix('PYTHON=')}" in PACKAGE["classifiers"]
    (extras,) = re.findall(r"'ddcore\[([\w,]+)\]'", TEXT)
    assert {"spark", "encryption", "s3"} <= set(extras.split(",")) <= PACKAGE["optional-dependencies"].keys()
    for name, rest in instructions():
        if name == "COPY":
            *sources, _ = [word for word in rest.split() if not word.startswith("--")]
            for source in sources:
                assert source.startswith("dist/ddcore-") or (TOP / source).exists(), source


JAVA = """#!/bin/bash
printf '%s\\n' "$@"
"""
EXECUTOR = {
    "SPARK_EXECUTOR_MEMORY": "1024m", "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3", "SPARK_EXECUTOR_CORES": "4", "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7", "SPARK_RESOURCE_PROFILE_ID": "0", "SPARK_EXECUTOR_POD_NAME": "pod-3",
    "SPARK_JAVA_OPT_0": "-Da=b c", "SPARK_JAVA_OPT_1": "-Dspark.driver.port=7078", "SPARK_JAVA_OPT_10": "-Dlate=1",
    "SPARK_HOME": "/opt/spark",
}  # fmt: skip


def started(folder: Path, *arguments: str, **environment: str) -> list[str]:
    """What the script runs, one word a line."""
    for program in ("java", "bin/java", "bin/spark-submit"):
        (folder / program).parent.mkdir(exist_ok=True)
        (folder / program).write_text(JAVA)
        (folder / program).chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [FOLDER / "start.sh", *arguments], env={"PATH": path, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_a_container_starts_an_executor_a_driver_or_a_command(tmp_path: Path) -> None:
    said = started(tmp_path, "executor", **EXECUTOR)
    assert said[:4] == ["-Da=b c", "-Dspark.driver.port=7078", "-Xms1024m", "-Xmx1024m"]
    assert said[4:6] == ["-cp", "/opt/spark/conf:/opt/spark/jars/*"]
    assert said[6] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    pairs = dict(zip(said[7::2], said[8::2], strict=True))
    assert (pairs["--hostname"], pairs["--cores"], pairs["--podName"]) == ("10.0.0.7", "4", "pod-3")
    assert (
        started(tmp_path, "executor", **EXECUTOR, JAVA_HOME=str(tmp_path), SPARK_EXTRA_CLASSPATH="/x")[5][:3] == "/x:"
    )
    said = started(tmp_path, "driver", "--class", "A", SPARK_HOME=str(tmp_path), SPARK_DRIVER_BIND_ADDRESS="10.0.0.1")
    assert said == ["--deploy-mode", "client", "--conf", "spark.driver.bindAddress=10.0.0.1", "--class", "A"]
    assert started(tmp_path, "echo", "a b") == ["a b"]


def test_the_class_of_an_executor_is_in_the_jars() -> None:
    pyspark = pytest.importorskip("pyspark")
    assert list((Path(pyspark.__file__).parent / "jars").glob("spark-kubernetes_*.jar"))


def has_builder() -> bool:
    program = shutil.which("docker")
    return program is not None and not subprocess.run([program, "info"], check=False, capture_output=True).returncode


@pytest.mark.long
def test_the_image_is_built_where_there_is_a_builder() -> None:
    if not has_builder():
        pytest.skip("no builder of images is running: its recipe is read instead")
    subprocess.run([TOP / ".venv" / "bin" / "python", TOP / "tools" / "build_wheel.py"], cwd=TOP, check=True)
    subprocess.run(
        ["docker", "build", "-q", "-f", FOLDER / "Dockerfile", "-t", "ddcore-test", "."], cwd=TOP, check=True
    )
    done = subprocess.run(["docker", "run", "--rm", "ddcore-test"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
