"""The project that `ddcore init` makes, a tram network in five versions, and its commands in this process."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddcore.cli.main import run_command

KEPT = {"DDCORE_CACHE", "DDCORE_WORKER_ROWS"}  # where compiled kernels are, and as many workers as a test wants

Said = tuple[int, list[str], list[str]]
Command = Callable[..., Said]


JOURNEYS = {"Central": 0, "Market": 3, "Bridge": 6, "Park": 5, "Zoo": 14, "Harbour": 11, "Lighthouse": 18}  # at 5


def journeys(home: Path) -> dict[str, int]:
    """The output as another program reads it, the sums of the log in the Delta table; empty before the first run."""
    import polars as pl

    table = home / "warehouse" / "outputs" / "journeys"
    if not table.is_dir():
        return {}
    rows = pl.read_delta(str(table)).group_by("stop", "total").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    assert rows["diff"].to_list() == [1] * len(rows)
    return dict(rows.select("stop", "total").rows())


def records(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


@pytest.fixture
def dd(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Calls the command line: exit code, lines of stdout, lines of stderr."""
    for name in [name for name in os.environ if name.startswith("DDCORE_") and name not in KEPT]:
        monkeypatch.delenv(name)

    def call(*arguments: str) -> Said:
        code = run_command(arguments)
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err.splitlines()

    return call


@pytest.fixture(scope="session")
def folded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose five versions are folded. Nobody writes to it."""
    folder = tmp_path_factory.mktemp("projects") / "trams"
    for arguments in (
        ["init", str(folder), "-q"],
        ["ingest", "links", str(folder / "data/links.csv"), "--project", str(folder), "-q"],
        ["ingest", "starts", str(folder / "data/starts.csv"), "--project", str(folder), "-q"],
        ["run", "--project", str(folder), "-q"],
    ):
        assert run_command(arguments) == 0
    return folder


@pytest.fixture
def here(folded: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folded project as the working folder."""
    monkeypatch.chdir(folded)
    return folded


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with nothing in its warehouse."""
    assert run_command(["init", str(tmp_path / "fresh"), "-q"]) == 0
    monkeypatch.chdir(tmp_path / "fresh")
    return tmp_path / "fresh"


@pytest.fixture
def copied(folded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folded project to write to."""
    shutil.copytree(folded, tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")
    return tmp_path / "mine"
