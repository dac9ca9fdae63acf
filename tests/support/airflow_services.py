"""Airflow's API server, scheduler and DAG processor as processes of a test, with SQLite, and its REST API.

They are installed once, from ``tests/support/airflow_requirements.txt``, into an environment of their own: Airflow's
libraries are not those of the project. That needs the network, as `make setup` does.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parent.parent.parent
REQUIREMENTS = TOP / "tests" / "support" / "airflow_requirements.txt"
SERVICES = ("api-server", "scheduler", "dag-processor")


def environment() -> Path:
    """The folder of Airflow's virtual environment, in ``build/``; made anew when the requirements change."""
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    folder = TOP / "build" / f"airflow-{digest}-{sys.version_info.major}.{sys.version_info.minor}"
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", REQUIREMENTS], check=True)
        (folder / "ready").touch()
    return folder


class Airflow:
    """A running Airflow; ``dags`` is the folder that its DAG processor reads."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.dags = folder, folder / "dags"
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.variables = _without_ours(os.environ) | {
            "AIRFLOW_HOME": str(folder / "home"),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "1",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "2",
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(_free_port()),
        }
        self.token = ""

    @contextmanager
    def running(self) -> Iterator[Airflow]:
        """All services, for the length of a ``with``; their output is in ``*.log`` of the folder."""
        program = environment() / "bin" / "airflow"
        self.dags.mkdir(parents=True, exist_ok=True)
        subprocess.run([program, "db", "migrate"], env=self.variables, check=True, capture_output=True, timeout=120)
        processes = []
        try:
            for service in SERVICES:
                with (self.folder / f"{service}.log").open("w") as log:
                    processes.append(
                        subprocess.Popen(
                            [program, service],
                            env=self.variables,
                            stdout=log,
                            stderr=subprocess.STDOUT,
                            start_new_session=True,
                        )
                    )
            until(lambda: self._is_healthy(processes), 120)
            self.token = self._call("GET", "/auth/token")["access_token"]
            yield self
        finally:
            for process in processes:
                _end(process)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer of the REST API to one request."""
        return self._call(method, f"/api/v2/{path}", body)

    def trigger(self, dag: str) -> str:
        """Start a run of a DAG, once the DAG processor knows it; the run's id."""
        until(lambda: self._has(dag), 60)
        self.call("PATCH", f"dags/{dag}", {"is_paused": False})
        return str(self.call("POST", f"dags/{dag}/dagRuns", {"logical_date": None})["dag_run_id"])

    def states(self, dag: str, run: str) -> dict[str, str | None]:
        """The state of each task of a run."""
        tasks = self.call("GET", f"dags/{dag}/dagRuns/{run}/taskInstances")["task_instances"]
        return {task["task_id"]: task["state"] for task in tasks}

    def task(self, dag: str, run: str, task: str) -> dict[str, Any]:
        """What the API says of a task."""
        return dict(self.call("GET", f"dags/{dag}/dagRuns/{run}/taskInstances/{task}"))

    def end(self, dag: str, run: str, seconds: float = 180) -> str:
        """Wait for the end of a run; its state."""
        until(lambda: self._state(dag, run) in ("success", "failed"), seconds)
        return self._state(dag, run)

    def log(self, dag: str, run: str, task: str, attempt: int = 1) -> str:
        """What a try of a task wrote."""
        return json.dumps(self.call("GET", f"dags/{dag}/dagRuns/{run}/taskInstances/{task}/logs/{attempt}"))

    def xcom(self, dag: str, run: str, task: str) -> Any:
        """What a task returned."""
        path = f"dags/{dag}/dagRuns/{run}/taskInstances/{task}/xcomEntries/return_value"
        return self.call("GET", f"{path}?deserialize=true")["value"]

    def _state(self, dag: str, run: str) -> str:
        return str(self.call("GET", f"dags/{dag}/dagRuns/{run}")["state"])

    def _has(self, dag: str) -> bool:
        errors = self.call("GET", "importErrors")["import_errors"]
        assert errors == []
        return dag in [item["dag_id"] for item in self.call("GET", "dags")["dags"]]

    def _is_healthy(self, processes: list[subprocess.Popen[bytes]]) -> bool:
        ended = [service for service, process in zip(SERVICES, processes, strict=True) if process.poll() is not None]
        assert ended == [], (self.folder / f"{ended[0]}.log").read_text()[-2000:]
        try:
            health = self._call("GET", "/api/v2/monitor/health")
        except OSError:
            return False
        return all(health[part]["status"] == "healthy" for part in ("scheduler", "dag_processor"))

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            error.add_note(error.read().decode(errors="replace")[:1000])
            raise


def until(holds: Callable[[], bool], seconds: float) -> None:
    """Wait for something, which is looked at every half second."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds:.0f} s"
        time.sleep(0.5)


def _without_ours(variables: Mapping[str, str]) -> dict[str, str]:
    """Nothing of the tests' environment is to help the DAG to find the project."""
    ours = ("DDCORE_", "AIRFLOW", "PYTHON", "VIRTUAL_ENV", "SPARK_", "PYSPARK_")
    kept = {name: value for name, value in variables.items() if not name.startswith(ours)}
    cache = variables.get("DDCORE_CACHE")
    return kept if cache is None else kept | {"DDCORE_CACHE": cache}


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a service and what it started: they are one session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
