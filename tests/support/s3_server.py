"""A local S3 server for tests, in a process of its own: ``moto`` behind one lock.

moto looks whether an object is there and then writes it, so two conditional puts at once could both succeed. Here one
request is served after another, which makes each of them atomic, as the real store's are.

Only the key ``GOOD`` may do anything, as a real store refuses an unknown key.

``python s3_server.py`` prints its port, and serves until its standard input ends.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

BUCKET = "box"
GOOD = "AKIALOCALTESTGOODKEY"
SECRET = "planted-secret-of-the-local-store"
_DENIED = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>InvalidAccessKeyId</Code><Message>The key does not exist in our records.</Message></Error>"""


class OneByOne:
    """A web application that serves one request after another, and only for one key."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application, self._lock = application, threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if f"Credential={GOOD}/" not in environ.get("HTTP_AUTHORIZATION", ""):
            start_response(
                "403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(_DENIED)))]
            )
            return [_DENIED]
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length) if length else b""
        with self._lock:
            environ["wsgi.input"] = io.BytesIO(body)
            return [b"".join(self._application(environ, start_response))]


@contextmanager
def served() -> Iterator[dict[str, str]]:
    """The environment with which programs reach a server, for the length of a ``with``."""
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        port = int(server.stdout.readline())
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": GOOD,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }
        server.stdin.close()


def main() -> None:
    """Serve until the standard input ends."""
    from moto.moto_server.werkzeug_app import create_backend_app
    from moto.s3.models import s3_backends
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    s3_backends["123456789012"]["aws"].create_bucket(BUCKET, "us-east-1")
    # Not moto's dispatcher of all services: for each request it looks at the folder of each.
    application = OneByOne(create_backend_app("s3"))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.port, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
