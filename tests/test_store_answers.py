"""What a store, or something in its place, may answer; and settings with which nothing can be asked."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from stores import forget_clients
from trams import Command

from ddcore.base.errors import StorageError, UsageError
from ddcore.io.delta import open_tables
from ddcore.io.delta.table_files import TableState
from ddcore.io.storage import objects
from ddcore.io.storage.address import address_of
from ddcore.io.storage.warehouse import Warehouse

PLACE = address_of("s3://box/w/a", "test")
ENDPOINT = "AWS_ENDPOINT_URL"
PAGE = b"<html><body>Please log in to this network</body></html>"
LIST = b"""<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>box</Name><IsTruncated>false</IsTruncated>
<Contents><Key>w/a/b.csv</Key><LastModified>2026-11-23T10:00:00.000Z</LastModified><Size>4</Size></Contents>
</ListBucketResult>"""


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers all requests with one page or list; the first ``cut`` bodies end in their middle."""

    protocol_version = "HTTP/1.1"
    body, status, cut, asked = PAGE, 200, 0, 0

    def do_GET(self) -> None:
        kind = type(self)
        kind.asked += 1
        self.head()
        if kind.asked <= kind.cut:
            self.wfile.write(self.body[: len(self.body) // 2])
            self.close_connection = True
        else:
            self.wfile.write(self.body)

    def do_HEAD(self) -> None:
        self.head()

    def head(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Mon, 23 Nov 2026 10:00:00 GMT")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Answers]]:
    kind = type("These", (Answers,), {})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settle(monkeypatch, f"http://127.0.0.1:{server.server_port}")
    yield kind
    server.shutdown()
    server.server_close()
    forget_clients()


def settle(monkeypatch: pytest.MonkeyPatch, endpoint: str, **others: str) -> None:
    settings = {
        ENDPOINT: endpoint, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "AKIAPLANTEDKEY",
        "AWS_SECRET_ACCESS_KEY": "planted-secret", **others,
    }  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    forget_clients()


ASKED: dict[str, Callable[[], Any]] = {
    "names": lambda: objects.names(PLACE),
    "is_folder": lambda: objects.is_folder(PLACE),
    "entries": lambda: list(objects.entries(address_of("s3://box", "test"))),
    "a warehouse": lambda: Warehouse(PLACE).check(),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("asked", ASKED)
def test_a_web_page_is_not_an_empty_store(asked: str, status: int, answers: type[Answers]) -> None:
    answers.status = status
    with pytest.raises(StorageError) as caught:
        ASKED[asked]()
    assert "what answers is a web page, and no object store" in caught.value.message
    assert ENDPOINT in caught.value.hint and "\n" not in caught.value.message


def test_an_answer_that_is_cut_off_is_asked_for_again(answers: type[Answers], tmp_path: Path) -> None:
    answers.body, answers.cut = LIST, 1
    assert objects.names(PLACE) == ["b.csv"]
    answers.asked = 0
    assert objects.is_folder(PLACE)
    answers.asked = 0
    assert [size for _, size, _ in objects.entries(address_of("s3://box", "test"))] == [4]
    answers.asked = 0
    assert objects.read(PLACE) == LIST
    answers.asked = 0
    objects.fetch(PLACE, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == LIST


def test_it_is_asked_for_as_often_as_there_are_waits_and_then_refused_in_one_line(answers: type[Answers]) -> None:
    answers.body, answers.cut = LIST, 3
    client, calls, waits = objects._client(PLACE), list[int](), (0.01, 0.01, 0.01)

    def request() -> bytes:
        calls.append(1)
        return bytes(obstore.get(client, "w/a").bytes())

    assert objects.complete(request, waits) == LIST and len(calls) <= 4
    answers.cut = 1000
    calls.clear()
    with pytest.raises(Exception, match="error") as caught:
        objects.complete(request, waits)
    assert len(calls) == 4
    told = objects.refused(PLACE, "list", caught.value).message
    assert told.startswith("cannot list s3://box/w/a: the answer was cut off again and again")


def test_one_that_is_always_cut_off_is_one_line_of_a_command(
    answers: type[Answers], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.body, answers.cut = LIST, 1000
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(StorageError, match="cannot list s3://box/w/a: the answer was cut off again and again"):
        objects.names(PLACE)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        *((ENDPOINT, value, "does not begin with http:// or https://")
          for value in ("localhost:9000", "127.0.0.1", "x", "ftp://127.0.0.1:9", '"http://127.0.0.1:9"')),
        *((ENDPOINT, value, "has no host") for value in ("http://", "http:/127.0.0.1:9")),
        *((ENDPOINT, value, "is no address of a store")
          for value in ("http://127.0.0.1:99999", "http://[::1", "http://127.0.0.1:port")),
        *((ENDPOINT, value, "more than a host") for value in ("http://127.0.0.1:9?x=1", "http://127.0.0.1:9/#f")),
        (ENDPOINT, "http://u:planted@127.0.0.1:9", "no place for credentials"),
        (ENDPOINT, " http://127.0.0.1:9", "begins with a blank"),
        (ENDPOINT, "http://a b:9", "has a blank"),
        ("AWS_REGION", "eu/west", "is no region"),
        ("AWS_SKIP_SIGNATURE", "perhaps", "is neither true nor false"),
        ("AWS_SESSION_TOKEN", "planted\x01", "a control character"),
        *((name, value, "ends with a line end")
          for name, value in ((ENDPOINT, "http://127.0.0.1:9\n"), ("AWS_REGION", "us-east-1\r\n"),
                              ("AWS_DEFAULT_REGION", "a\n"), ("AWS_ACCESS_KEY_ID", "planted\n"),
                              ("AWS_SECRET_ACCESS_KEY", "planted\n"), ("AWS_SESSION_TOKEN", "planted\n"))),
        *((name, value, "ends with a blank")
          for name, value in ((ENDPOINT, "http://127.0.0.1:9 "), ("AWS_REGION", "us-east-1 "),
                              ("AWS_ACCESS_KEY_ID", "planted "), ("AWS_SECRET_ACCESS_KEY", "planted\t"))),
        *((name, "", "is set and empty")
          for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", ENDPOINT, f"{ENDPOINT}_S3", "AWS_ENDPOINT")),
    ],
)  # fmt: skip
def test_settings_that_no_store_can_have_are_named(  # noqa: PLR0917
    name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch, copied: Path, dd: Command
) -> None:
    settle(monkeypatch, "http://127.0.0.1:9", **{name: value})
    for ask in (lambda: objects.head(PLACE), lambda: open_tables.open_table(PLACE), objects.options):
        with pytest.raises(UsageError) as caught:
            ask()
        assert caught.value.message.startswith(f"{name}: ") and says in caught.value.message and caught.value.hint
    code, _, err = dd("ingest", "links", "s3://box/a.csv")
    assert code == 2 and err[0].startswith(f"error: {name}: ") and len(err) == 2
    assert "planted" not in "".join(err) and "panicked" not in "".join(err)
    monkeypatch.undo()
    forget_clients()


def test_settings_that_stores_have_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for endpoint in ("http://[::1]:9000", "https://minio.example.com/s3", "https://s3.eu-west-1.amazonaws.com"):
        settle(monkeypatch, endpoint, AWS_REGION="auto", AWS_SESSION_TOKEN="", AWS_ALLOW_HTTP="TRUE")
        assert objects.options()["aws_endpoint_url"] == endpoint


def test_a_version_is_named_once(tmp_path: Path) -> None:
    """Reading a table at a state calls what reads it at that state."""
    state = TableState(1, 0, 0, "x")
    with pytest.raises(StorageError) as caught, open_tables.reading(tmp_path, state=state), \
            open_tables.reading(tmp_path, state=state):  # fmt: skip
        raise OSError("the network is down")
    assert caught.value.message.count("at version 1 of the table") == 1


def test_a_missing_package_says_how_to_install_it() -> None:
    script = (
        "import sys; sys.modules['obstore'] = None\n"
        "from ddcore.io.storage import address, store\n"
        "store.read(address.address_of('s3://box/w/a', 'test'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "UsageError: s3://box: object stores need the package obstore, which is not installed" in done.stderr
    assert "pip install 'ddcore[s3]'" in done.stderr
