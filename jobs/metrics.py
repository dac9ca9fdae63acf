"""What a follower tells a monitor: Prometheus' text over HTTP, and a health file."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import StorageError, UsageError
from ddcore.text.wording import shown

if TYPE_CHECKING:
    from ddcore.jobs.follower import Told


def metrics_text(told: Told) -> str:
    """The metrics of a follower in Prometheus' text format."""
    return "".join(f"{line}\n" for line in _lines(told))


def _lines(told: Told) -> Iterator[str]:
    plain = (
        ("syncs_total", "counter", "Syncs that were done.", told.syncs),
        ("errors_total", "counter", "Syncs that failed.", told.errors),
        ("looks_total", "counter", "Looks at the sources.", told.looks),
        ("last_look_timestamp_seconds", "gauge", "When the sources were last looked at.", told.looked),
        ("last_sync_timestamp_seconds", "gauge", "When the last sync was done.", told.synced),
        ("last_sync_seconds", "gauge", "How long the last sync took.", told.took),
        ("failing", "gauge", "Whether the last sync failed.", int(bool(told.error))),
    )
    for name, kind, text, value in plain:
        yield from _metric(name, kind, text, [("", value)])
    yield from _metric("rows_total", "counter", "Rows that came (+) and went (-).", [
        (f'side="{side}",name="{name}",sign="{sign}"', number) for (side, name, sign), number in told.rows.items()
    ])  # fmt: skip
    if told.last is None:
        return
    if (last := told.last.run.last) is not None and len(last) == 1:
        yield from _metric("folded_version", "gauge", "The last folded version.", [("", last[0])])
    fresh = [(f'input="{one.input}"', one.at(datetime.now(UTC))) for one in told.last.fresh]
    ages = [(label, one.age.total_seconds()) for label, one in fresh if one.age is not None]
    yield from _metric("source_age_seconds", "gauge", "Age of an input's newest rows.", ages)
    late = [(label, float(one.is_late)) for label, one in fresh if one.source.expect is not None]
    yield from _metric("source_late", "gauge", "Whether an input's newest rows are older than expected.", late)


def _metric(name: str, kind: str, text: str, values: list[tuple[str, float]]) -> Iterator[str]:
    if not values:
        return
    yield f"# HELP ddcore_{name} {text}"
    yield f"# TYPE ddcore_{name} {kind}"
    for labels, value in values:
        yield f"ddcore_{name}{f'{{{labels}}}' if labels else ''} {value:.16g}"


def write_health(file: Path, told: Told) -> None:
    """Write the health file, whole or not at all: when the sources were last looked at, and the error, if there is one.

    StorageError where it cannot be written.
    """
    state: dict[str, Any] = {
        "pid": os.getpid(), "healthy": not told.error, "looked": round(told.looked, 3), "synced": round(told.synced, 3),
        "error": told.error or None,
    }  # fmt: skip
    temporary = file.with_name(f".{file.name}.tmp")
    try:
        temporary.write_text(json.dumps(state) + "\n", encoding="utf-8")
        temporary.replace(file)
    except OSError as error:
        raise StorageError(f"{shown(file)}: {error.strerror or error}", "name a file in a folder that exists") from None


class Metrics:
    """An HTTP server with ``/metrics`` and ``/health``, in a thread of its own, while its context lasts."""

    def __init__(self, address: str, told: Told) -> None:
        host, _, port = address.rpartition(":")
        if not port.isdigit() or not 0 <= int(port) < 65_536:
            raise UsageError(f"--metrics: {address!r} is no address", "for example: --metrics 127.0.0.1:9464")
        self._told = told
        try:
            self._server = ThreadingHTTPServer((host or "127.0.0.1", int(port)), self._handler())
        except OSError as error:
            raise UsageError(f"--metrics {address}: {error.strerror}", "name a free port of this machine") from None
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        told = self._told

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                pages = {"/metrics": (200, metrics_text), "/health": (503 if told.error else 200, _health)}
                code, page = pages.get(self.path, (404, lambda _: "there are /metrics and /health\n"))
                content = page(told).encode()
                self.send_response(code)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Nothing: stderr is for the syncs."""

        return Handler

    def __enter__(self) -> Metrics:
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _health(told: Told) -> str:
    return f"{told.error or 'healthy'}\n"
