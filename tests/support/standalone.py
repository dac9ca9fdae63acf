"""A standalone Spark cluster as processes of a test: a master and one worker, each a JVM of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

PATIENCE = 300  # seconds for a JVM to start: with a load of thirty it takes more than one minute


class Standalone:
    """For the length of a ``with``; ``master`` is the URL. Their output is in the folder."""

    def __init__(self, folder: Path, cores: int = 2) -> None:
        self.folder, self.cores = folder, cores
        self.port, self.page = _free_ports(2)
        self.master = f"spark://127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Standalone:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            location = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.page)]
            self._start("master.Master", *location)
            self._wait(lambda: self._status()["status"] == "ALIVE")
            self.grow()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def grow(self) -> None:
        """One more machine, as it were."""
        number = len(self.processes)
        size = ["--cores", str(self.cores), "--memory", "2g", "--work-dir", str(self.folder / "work")]
        self._start("worker.Worker", *size, "--host", "127.0.0.1", "--webui-port", "0", self.master)
        self._wait(lambda: self._status()["aliveworkers"] == number)

    def shrink(self) -> None:
        """One machine less: its executors, which are of its group, are gone with it."""
        process = self.processes.pop()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def applications(self) -> list[dict[str, Any]]:
        """What the master says of the applications that it has run, also of those that run now."""
        status = self._status()
        return [*status["activeapps"], *status["completedapps"]]

    def _start(self, name: str, *arguments: str) -> None:
        import pyspark

        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        with (self.folder / f"{name}-{len(self.processes)}.log").open("w") as log:
            process = subprocess.Popen(
                [program, f"org.apache.spark.deploy.{name}", *arguments],
                env=variables | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)

    def _status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.page}/json/", timeout=10) as answer:
            return dict(json.loads(answer.read()))

    def _wait(self, holds: Any) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError):
                if holds():
                    return
            assert all(process.poll() is None for process in self.processes), self.folder
            assert time.monotonic() < end, f"no cluster within {PATIENCE} s: see {self.folder}"
            time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]
    finally:
        for item in sockets:
            item.close()
