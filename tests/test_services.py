"""The command lines of ``docs/services.md``: those for spark-submit on a real cluster, of the others what they run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from standalone import Standalone
from trams import JOURNEYS, Command, journeys

from ddcore.cli import main
from ddcore.io.project.finding import find_project
from ddcore.jobs.spark.settings import settings as spark_settings

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "services.md").read_text(encoding="utf-8")
QUICK = """\
spark.ui.enabled false
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1
spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1
spark.sql.shuffle.partitions 2
"""


def section(title: str) -> list[str]:
    """The blocks of code of a section."""
    text = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^```\w+\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def laid_out(home: Path) -> None:
    """Sources in folders, as on the page."""
    for name in ("links", "starts"):
        (home / name).mkdir()
        shutil.move(home / "data" / f"{name}.csv", home / name / "1.csv")


@pytest.mark.long
@pytest.mark.spark
def test_spark_submit_on_a_standalone_cluster(tmp_path: Path, fresh: Path) -> None:
    """The lines as they are, with other folders and another host; then a Delta table as a source, with Delta's jars."""
    home = tmp_path / "srv" / "trams"
    shutil.copytree(fresh, home)
    pl.read_csv(home / "data" / "links.csv").with_columns(pl.col("version") + 10, pl.col("dst") + " 2").write_delta(
        str(home / "links_delta")
    )
    laid_out(home)
    (home / ".venv").symlink_to(sys.prefix)
    lines, delta = section("spark-submit")
    cache = os.environ.get("DDCORE_CACHE", str(Path.home() / ".cache" / "ddcore"))
    (tmp_path / "spark-defaults.conf").write_text(QUICK)
    with Standalone(tmp_path / "cluster") as cluster:
        script = f"set -e\n{lines}\n{delta}"
        for old, new in (("/srv/", f"{tmp_path}/srv/"), ("spark://HOST:7077", cluster.master)):
            assert old in script
            script = script.replace(old, new)
        ours = ("DDCORE_", "PYSPARK", "SPARK_")
        variables = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        variables["DDCORE_WORKER_ROWS"] = "0"  # two workers for a few rows
        with (
            (tmp_path / "stderr").open("w") as errors,
            subprocess.Popen(
                ["/bin/bash", "-c", script.replace("~/.cache/ddcore", cache)],
                env=variables | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(tmp_path)},
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            ) as process,
        ):
            try:
                out, _ = process.communicate(timeout=900)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        assert process.returncode == 0, (tmp_path / "stderr").read_text()[-3000:]
        assert len(cluster.applications()) == 4
    told = [json.loads(line) for line in out.splitlines() if line.startswith("{")]  # beside notes: it passes them on
    assert [item["command"] for item in told] == ["ingest", "ingest", "run", "ingest"]
    assert {item["engine"] for item in told} == {"spark"}
    assert (told[2]["last"], told[2]["parallelism"], told[3]["first"], told[3]["last"]) == (5, 2, 11, 15)
    assert journeys(home) == JOURNEYS


def test_the_settings_of_kubernetes_are_a_projects(fresh: Path) -> None:
    (settings,) = section("Kubernetes")
    with (fresh / "dd.toml").open("a") as file:
        file.write(settings)
    project = find_project(fresh, {})
    assert project.spark_master.startswith("k8s://https://")
    made = spark_settings(project.spark_master, project.spark_conf, jars=["/a.jar"], log4j=Path("l"))
    assert (made["spark.executor.cores"], made["spark.executorEnv.POLARS_MAX_THREADS"]) == ("4", "4")
    assert made["spark.dynamicAllocation.enabled"] == "false"


def test_the_lines_for_an_image_and_for_yarn_are_a_shells(fresh: Path) -> None:
    for title in ("A container image", "YARN"):
        (lines,) = section(title)
        subprocess.run(["/bin/bash", "-n"], input=lines, text=True, check=True)
    assert "examples/container/Dockerfile" in section("A container image")[0]


def test_the_steps_of_emr(fresh: Path, dd: Command) -> None:
    """What the steps run, with folders in place of the bucket's: the rows are those of the tutorial."""
    laid_out(fresh)
    assert dd("ingest", "starts", "starts", "-q")[0] == 0
    bootstrap, steps, _serverless = section("Amazon EMR")
    subprocess.run(["/bin/bash", "-n"], input=bootstrap, text=True, check=True)
    creating, adding = steps.split("\n\n")
    assert shlex.split(creating)[:3] == ["aws", "emr", "create-cluster"]
    words = shlex.split(adding)
    for step in json.loads(words[words.index("--steps") + 1]):
        env, region, program, *arguments = local(step["Args"], fresh)
        assert (env, region, program) == ("env", "AWS_REGION=eu-west-1", "/opt/ddcore/bin/ddcore")
        assert dd(*arguments)[0] == 0
    assert journeys(fresh) == JOURNEYS


def test_the_job_of_emr_serverless(fresh: Path, dd: Command) -> None:
    laid_out(fresh)
    for name in ("links", "starts"):
        assert dd("ingest", name, name, "-q")[0] == 0
    words = shlex.split(section("Amazon EMR")[2])
    job = json.loads(words[words.index("--job-driver") + 1])["sparkSubmit"]
    program = Path(main.__file__)
    assert Path(job["entryPoint"]).name == program.name
    arguments = local(job["entryPointArguments"], fresh)
    fresh.rename(fresh.parent / "trams")  # where the archive is unpacked
    done = subprocess.run(
        [sys.executable, program, *arguments], cwd=fresh.parent, capture_output=True, text=True, check=True, timeout=600
    )
    assert json.loads(done.stdout.splitlines()[-1])["engine"] == "inline"
    assert journeys(fresh.parent / "trams") == JOURNEYS


def test_the_job_of_databricks(fresh: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel task calls a named entry point of the package with the parameters as arguments."""
    laid_out(fresh)
    assert dd("ingest", "starts", "starts", "-q")[0] == 0
    job = json.loads(section("Databricks")[0])
    assert job["max_concurrent_runs"] == 1
    for name, value in job["job_clusters"][0]["new_cluster"]["spark_env_vars"].items():
        monkeypatch.setenv(name, value)
    for task in job["tasks"]:
        wheel = task["python_wheel_task"]
        (entry,) = entry_points(group="console_scripts", name=wheel["entry_point"])
        assert (entry.value, entry.dist.name if entry.dist else "") == ("ddcore.cli.main:main", wheel["package_name"])
        assert dd(*local(wheel["parameters"], fresh))[0] == 0
    assert journeys(fresh) == JOURNEYS


def local(arguments: list[Any], home: Path) -> list[str]:
    """Arguments with folders of this machine in place of those of a service."""
    locations = {
        "s3://BUCKET/warehouse": home.parent / "trams" / "warehouse",
        "s3://BUCKET": home,
        "/opt/trams": home,
        "/Workspace/Shared/trams": home,
    }
    text = json.dumps(arguments)
    for location, here in locations.items():
        text = text.replace(location, str(here))
    return [str(argument) for argument in json.loads(text)]
