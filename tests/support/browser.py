"""A real browser for tests: Debian's Chromium without a window, driven through ChromeDriver's WebDriver interface."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
]  # fmt: skip


def missing() -> str:
    """What has to be installed first, or nothing."""
    needed = {"chromium": "chromium", "chromedriver": "chromium-driver"}
    packages = [package for program, package in needed.items() if shutil.which(program) is None]
    return f"no browser: apt-get install {' '.join(packages)}" if packages else ""


class Browser:
    """One window. Pages are files."""

    def __init__(self, address: str, session: str) -> None:
        self._base = f"{address}/session/{session}"

    def open(self, file: Path, *, width: int, scheme: str) -> None:
        """Show a file in a window of this width, light or dark."""
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", features=media)
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        self.logs("browser")
        self.logs("performance")
        post(f"{self._base}/url", {"url": file.resolve().as_uri()})

    def run(self, script: str) -> Any:
        """The value of a script's ``return``."""
        return post(f"{self._base}/execute/sync", {"script": script, "args": []})

    def devtools(self, command: str, **parameters: Any) -> Any:
        """The result of a command of the DevTools protocol."""
        return post(f"{self._base}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def logs(self, kind: str) -> list[dict[str, Any]]:
        """The entries since the last call: ``browser`` has the console's, ``performance`` those of the network."""
        entries: list[dict[str, Any]] = post(f"{self._base}/se/log", {"type": kind})
        return entries

    def requests(self) -> list[str]:
        """The addresses that the page asked for since it was opened, itself included."""
        events = [json.loads(entry["message"])["message"] for entry in self.logs("performance")]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [item["request"]["url"] for item in sent]

    def picture(self, file: Path) -> None:
        """Save the whole page as a PNG file."""
        drawn = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(drawn["data"]))


def post(address: str, body: dict[str, Any]) -> Any:
    """Call ChromeDriver. Raises RuntimeError with what it says."""
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(json.load(error)["value"]["message"]) from None


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with an empty profile in ``folder``; it ends with the block."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = (folder / "chromedriver.log").open("w")
    driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(port, driver)
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"]},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        session = post(f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        try:
            yield Browser(address, session)
        finally:
            urllib.request.urlopen(urllib.request.Request(f"{address}/session/{session}", method="DELETE"), timeout=30)
    finally:
        driver.terminate()
        driver.wait(30)
        log.close()


def _wait_for(port: int, driver: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        if driver.poll() is not None:
            raise RuntimeError(f"chromedriver ended with {driver.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("chromedriver does not answer")
