"""Temporary folders: those of living processes stay, those that killed ones left are removed by the next command."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddcore.io.storage import scratch


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary directory of this process and of those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch._folder.cache_clear()
    yield tmp_path
    scratch._folder.cache_clear()


def started(code: str) -> subprocess.Popen[str]:
    """A process that has a folder with a file, and then runs ``code``."""
    program = (
        "from ddcore.io.storage import scratch; (scratch.folder() / 'copy').write_text('x'); print('there', flush=True)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", f"{program}\n{code}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "there\n"
    return process


def left(location: Path) -> list[Path]:
    return list(location.glob("dd-scratch-*"))


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(location: Path) -> None:
    with started("input()") as living:
        with started("input()") as killed:
            scratch.remove_left()
            assert len(left(location)) == 2
            killed.kill()
        scratch.remove_left()
        (folder,) = left(location)
        assert f"-{living.pid}-" in folder.name and (folder / "copy").read_text() == "x"
        living.communicate("\n")
    assert left(location) == [], "it removed its own"


def test_a_process_that_needs_a_folder_removes_those_that_are_left(location: Path) -> None:
    with started("import os; os._exit(0)"):
        pass
    (before,) = left(location)
    assert scratch.folder() != before and left(location) == [scratch.folder()]


def test_a_process_that_was_forked_has_its_own_and_leaves_that_of_its_parent(location: Path) -> None:
    code = (
        "import os, sys\n"
        "own = scratch.folder()\n"
        "pid = os.fork()\n"
        "if pid == 0: sys.exit(0 if scratch.folder() != own else 1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), (own / 'copy').exists())"
    )
    with started(code) as process:
        assert process.communicate()[0] == "0 True\n"
    assert left(location) == []


@pytest.mark.parametrize(("age", "stays"), [(60, True), (7200, False)])
def test_a_folder_without_a_lock_may_be_a_new_one(age: float, stays: bool, location: Path) -> None:
    folder = location / "dd-scratch-1-new"
    folder.mkdir()
    os.utime(folder, (time.time() - age,) * 2)
    scratch.remove_left()
    assert folder.exists() == stays


def test_links_and_other_names_are_left_alone(location: Path) -> None:
    target = location / "mine"
    target.mkdir()
    (target / ".lock").touch()
    (location / "dd-scratch-1-link").symlink_to(target)
    (location / "dd-scratch-2-file").write_text("no folder")
    scratch.remove_left()
    assert sorted(path.name for path in location.iterdir()) == ["dd-scratch-1-link", "dd-scratch-2-file", "mine"]
    assert (target / ".lock").exists()


def test_a_folder_that_was_just_made_is_never_removed(location: Path) -> None:
    """Each lock of a file that is open is one of its own, so that threads do here what processes do."""
    wrong: list[str] = []
    over = threading.Event()

    def clean() -> None:
        while not over.is_set():
            scratch.remove_left()

    def make() -> None:
        for _ in range(50):
            path = scratch._folder.__wrapped__(os.getpid(), str(location))
            if not (path / ".lock").exists():
                wrong.append(path.name)

    cleaners = [threading.Thread(target=clean) for _ in range(2)]
    makers = [threading.Thread(target=make) for _ in range(4)]
    for thread in (*cleaners, *makers):
        thread.start()
    for thread in makers:
        thread.join()
    over.set()
    for thread in cleaners:
        thread.join()
    assert wrong == [] and len(left(location)) == 200
