"""Files that cannot be read: each is one line that says what it is. None is called missing, and none is waited for."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from ddcore.base.errors import DdError
from ddcore.io.sources.finding import find_snapshots, find_sources
from ddcore.io.sources.sparkformat import find_formats


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.csv")
    Path("loop.csv").symlink_to("loop.csv")
    Path("lost.csv").symlink_to("nowhere.csv")
    Path("zero.csv").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket.csv")
    return tmp_path


WHAT = {
    "pipe.csv": "a pipe, which is not read", "loop.csv": "a link that leads to itself",
    "loop.csv/a.csv": "a link that leads to itself", "lost.csv": "a link to nowhere.csv, which is not there",
    "zero.csv": "a device, which is not read", "/dev/zero": "a device, which is not read",
    "socket.csv": "a socket, which is not read",
}  # fmt: skip


@pytest.mark.parametrize("name", WHAT)
def test_what_is_no_file_is_named(name: str, folder: Path) -> None:
    ways: list[Any] = [find_sources, find_snapshots, lambda locations: find_formats(locations, "csv", {})]
    for find in ways:
        with pytest.raises(DdError) as caught:
            find([name])
        assert caught.value.message.startswith(f"{name}: {WHAT[name]}") and caught.value.hint
        assert "no such file" not in caught.value.message and "did you mean" not in caught.value.hint


@pytest.mark.parametrize("name", [name for name in WHAT if "/" not in name])
def test_nor_is_it_waited_for_in_a_folder(name: str, folder: Path) -> None:
    inner = folder / "in"
    inner.mkdir()
    (inner / "fine.csv").write_text("a,version,diff\n")
    os.rename(name, inner / name)
    for location in ("in", "in/*.csv"):
        with pytest.raises(DdError, match=WHAT[name]):
            find_sources([location])


@pytest.mark.parametrize("location", ["in", "in/a.csv", "in/*.csv"])
def test_a_file_without_permission_is_not_missing(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests may run as root, who may read everything."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/a.csv").write_text("a,version,diff\n")

    def denied(*_: Any) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patched, pytest.raises(DdError) as caught:
        patched.setattr(os, "open", denied)
        find_sources([location])
    assert caught.value.message == "in/a.csv: cannot be read: Permission denied"
    assert caught.value.hint == "make it readable for this user"


def test_a_folder_where_a_file_is_expected_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").mkdir()
    with pytest.raises(DdError, match=r"a\.csv: no data file in this folder"):
        find_sources(["a.csv"])
