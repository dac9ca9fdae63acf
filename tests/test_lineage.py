"""OpenLineage events of runs, by the library's file transport; and runs that nobody can hear."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from notation import frame
from programs import Case
from warehouses import project_of

from ddcore.base import cache
from ddcore.base.errors import DdError
from ddcore.io.project.project import Project
from ddcore.jobs import lineage, replay

GOOD = 'def program(words):\n    return {"once": words.distinct()}\n'
WORDS = "1:+1@0 1:+1@1 2:+1@1 2:-1@2"
EXTRA = pytest.importorskip("openlineage.client")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE_DISABLED", "OPENLINEAGE_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DDCORE_CACHE", str(cache.cache_folder()))  # its kernels, also in another home
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        del os.environ[name]  # the library writes what it reads from OPENLINEAGE_URL into others


def project(folder: Path, words: str = WORDS) -> Project:
    scope: dict[str, Any] = {}
    exec(GOOD, scope)
    return project_of(folder, Case(0, GOOD, scope["program"], {"words": frame("a", words)}))


def to_file(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    settings = {"type": "file", "log_file_path": str(file), "append": True}
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", json.dumps(settings))


def test_a_run_starts_and_completes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to_file(monkeypatch, tmp_path / "events.json")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
    one = project(tmp_path / "cats")
    replay.run(one, engine="inline")
    start, end = (json.loads(line) for line in (tmp_path / "events.json").read_text().splitlines())
    assert [item["eventType"] for item in (start, end)] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == end["run"]["runId"] and start["eventTime"] < end["eventTime"]
    assert start["job"] == end["job"] and (end["job"]["namespace"], end["job"]["name"]) == ("shop", "cats.program")
    (source,), (target,) = end["inputs"], end["outputs"]
    assert (source["namespace"], source["name"]) == ("file", str(tmp_path / "cats/warehouse/inputs/words"))
    assert (target["namespace"], target["name"]) == ("file", str(tmp_path / "cats/warehouse/outputs/once"))
    assert [(field["name"], field["type"]) for field in target["facets"]["schema"]["fields"]] == [("a", "int64")]
    origins = target["facets"]["columnLineage"]
    ((column, of_column),) = origins["fields"].items()
    assert (column, of_column["inputFields"][0]["name"]) == ("a", source["name"])
    assert (
        of_column["inputFields"][0]["transformations"][0] | {"type": "DIRECT", "subtype": "IDENTITY"}
        == (of_column["inputFields"][0]["transformations"][0])
    )
    assert [origin["transformations"][0]["subtype"] for origin in origins["dataset"]] == ["GROUP_BY"]
    assert source["inputFacets"]["inputStatistics"]["rowCount"] == 4
    assert target["outputFacets"]["outputStatistics"]["rowCount"] == 3
    assert end["run"]["facets"]["processing_engine"]["name"] == "ddcore"
    replay.run(one, engine="inline")  # nothing new: no run
    assert len((tmp_path / "events.json").read_text().splitlines()) == 2


def test_a_run_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to_file(monkeypatch, tmp_path / "events.json")
    one = project(tmp_path / "cats", "1:-1@0")  # a negative count
    with pytest.raises(DdError) as raised:
        replay.run(one, engine="inline")
    start, end = (json.loads(line) for line in (tmp_path / "events.json").read_text().splitlines())
    assert [item["eventType"] for item in (start, end)] == ["START", "FAIL"]
    assert end["run"]["facets"]["errorMessage"]["message"] in str(raised.value).replace("\n", " ")
    assert end["run"]["facets"]["errorMessage"]["message"]


def test_no_settings_no_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not lineage.is_configured()
    monkeypatch.setenv("OPENLINEAGE_URL", "http://localhost:1")
    assert lineage.is_configured()
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "True")
    assert not lineage.is_configured()
    monkeypatch.delenv("OPENLINEAGE_URL")
    monkeypatch.delenv("OPENLINEAGE_DISABLED")
    (tmp_path / "openlineage.yml").write_text("transport:\n  type: console\n")
    assert lineage.is_configured()
    monkeypatch.setattr(lineage, "find_spec", lambda name: None)  # the extra is not installed
    assert not lineage.is_configured()


@pytest.mark.parametrize(
    "setting", ['{"type": "no-such"}', "not json", '{"type": "file", "log_file_path": "/no/such"}']
)
def test_wrong_settings_are_no_error(setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", setting)
    report = replay.run(project(tmp_path / "cats"), engine="inline")
    assert report.run == 1 and report.nothing_new is False
    assert capfd.readouterr().err == ""


def test_a_server_that_does_not_answer_delays_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted: list[socket.socket] = []
        accepting = threading.Thread(target=lambda: accepted.append(server.accept()[0]), daemon=True)
        accepting.start()
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        one = project(tmp_path / "cats")
        watched = lineage.Lineage._finish
        waits: list[float] = []

        def timed(self: lineage.Lineage) -> None:
            start = time.monotonic()
            watched(self)
            waits.append(time.monotonic() - start)

        monkeypatch.setattr(lineage.Lineage, "_finish", timed)
        assert replay.run(one, engine="inline").run == 1
        assert len(waits) == 1 and 0.9 * lineage.WAIT < waits[0] < 120
        accepting.join(600)
        assert accepted, "an event was on its way"
        accepted[0].close()


@pytest.mark.parametrize(
    ("location", "dataset"),
    [
        ("s3://bucket/ware house/inputs/words", ("s3://bucket", "ware house/inputs/words")),
        (Path("/srv/data/outputs/x"), ("file", "/srv/data/outputs/x")),
    ],
)
def test_names_of_datasets(location: Any, dataset: tuple[str, str]) -> None:
    assert lineage._dataset(location) == dataset
