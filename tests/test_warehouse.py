"""Paths of the warehouse, its lock, and how its failures are told."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ddcore.base.errors import DataError, LockHeld, StorageError, UsageError
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.warehouse import Warehouse

HOLD = """
import sys, time
from ddcore.io.storage.warehouse import Warehouse
with Warehouse(sys.argv[1]).lock("dd run") as lock:
    lock.note_run(7)
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of ``tmp_path``."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_every_table_has_one_place(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    assert warehouse.input("edges") == tmp_path / "inputs" / "edges"
    assert warehouse.output("dists") == tmp_path / "outputs" / "dists"
    assert warehouse.table("state/00ff") == tmp_path / "state" / "00ff"
    assert warehouse.relative(warehouse.table("state/00ff")) == "state/00ff"
    assert warehouse.table("outputs/dists") == warehouse.output("dists")
    assert not list(tmp_path.iterdir()), "naming tables touches nothing"


@pytest.mark.parametrize("name", ["../edges", "inputs", "inputs/", "inputs/..", "inputs/a/b", "other/a", "inputs/_a"])
def test_no_name_leads_out_of_the_warehouse(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        Warehouse(tmp_path).table(name)


@pytest.mark.parametrize("url", ["abfss://c@a.dfs.core.windows.net/x", "gs://b", "hdfs://n:9/x"])
def test_object_stores_are_refused_by_name(url: str) -> None:
    with pytest.raises(UsageError, match="is not supported") as caught:
        Warehouse(url)
    assert url in caught.value.message


def test_a_file_url_is_a_folder(tmp_path: Path) -> None:
    assert Warehouse(f"file://{tmp_path}").root == tmp_path


def test_the_lock_says_who_holds_it_while_it_is_held(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path / "new")
    assert warehouse.holder() is None
    warehouse.create()
    with warehouse.lock("dd run") as lock:
        lock.note_run(3)
        written = json.loads((tmp_path / "new" / ".lock").read_text())
        assert written["pid"] == os.getpid()
        assert written["command"] == "dd run"
        assert written["run"] == 3
        assert warehouse.holder() == lock.holder
    assert warehouse.holder() is None
    with warehouse.lock("dd run"):
        pass


def test_a_second_process_is_turned_away_with_the_holders_name(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(LockHeld) as caught, Warehouse(tmp_path).lock("dd ingest"):
        pytest.fail("the lock was given twice")
    assert caught.value.exit_code == 75
    assert f"pid {holder.pid}" in caught.value.message
    assert "run 7" in caught.value.message
    assert "since" in caught.value.message
    assert "host" in caught.value.message


def test_a_killed_holder_leaves_nothing_to_clear(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    warehouse = Warehouse(tmp_path)
    assert (tmp_path / ".lock").read_text(), "its text is still there"
    assert warehouse.holder() is None
    with warehouse.lock("dd run") as lock:
        assert lock.holder.pid == os.getpid()
        assert lock.dead is not None
        assert (lock.dead.pid, lock.dead.command, lock.dead.run) == (holder.pid, "dd run", 7)
    with warehouse.lock("dd run") as lock:
        assert lock.dead is None, "the one before released it"


@pytest.mark.parametrize("other", ["elsewhere", None])
def test_the_text_of_another_host_is_said_to_be_one(
    tmp_path: Path, other: str | None, holder: subprocess.Popen[str]
) -> None:
    """As on a network file system: whether that process works still cannot be seen from here."""
    if other is not None:
        text = json.loads((tmp_path / ".lock").read_text())
        (tmp_path / ".lock").write_text(json.dumps({**text, "host": other}))
    with pytest.raises(LockHeld) as caught, Warehouse(tmp_path).lock("dd ingest"):
        pytest.fail("the lock was given twice")
    here = socket.gethostname()
    assert (f"host elsewhere, pid {holder.pid}" in caught.value.message) == (other is not None)
    assert caught.value.message.endswith(f"; this host is {here}") == (other is not None)
    assert ("elsewhere only" in caught.value.hint) == (other is not None)


FORK = HOLD.replace("import sys, time", "import os, sys, time").replace(
    '    print("held", flush=True)', "    if os.fork() == 0: print(os.getpid(), flush=True)"
)


def test_a_living_child_of_a_dead_holder_is_named(tmp_path: Path) -> None:
    """A forked child has the lock's file open, and the lock is held until it ends, too."""
    command = [sys.executable, "-c", FORK, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
        process.wait()
        try:
            with pytest.raises(LockHeld) as caught, Warehouse(tmp_path).lock("dd ingest"):
                pytest.fail("the lock was given twice")
            assert f"pid {process.pid}" in caught.value.message
            assert caught.value.message.endswith(
                f"that process has ended, and process {child}, which it started, still holds the lock"
            )
            assert "end it" in caught.value.hint
        finally:
            os.kill(child, signal.SIGKILL)
    for _ in range(100):  # the system ends the child a moment later
        with suppress(LockHeld), Warehouse(tmp_path).lock("dd ingest") as lock:
            assert lock.dead is not None and lock.dead.pid == process.pid
            return
        time.sleep(0.05)
    pytest.fail("the lock is still held")


def test_looking_does_not_turn_a_writer_away(tmp_path: Path) -> None:
    looking = """
import sys
from ddcore.io.storage.warehouse import Warehouse
print("looking", flush=True)
while True:
    Warehouse(sys.argv[1]).holder()
"""
    warehouse = Warehouse(tmp_path)
    with warehouse.lock("dd run"):
        pass
    command = [sys.executable, "-c", looking, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            for _ in range(100):
                with warehouse.lock("dd run"):
                    pass
        finally:
            process.kill()


def test_a_failing_body_gives_the_lock_back(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    with pytest.raises(DataError), warehouse.lock("dd run"):
        raise DataError("no")
    with warehouse.lock("dd run"):
        pass


def test_a_warehouse_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(StorageError, match="warehouse") as caught,
        Warehouse(tmp_path / "file" / "warehouse").lock("dd"),
    ):
        pytest.fail("locked inside a file")
    assert str(tmp_path / "file") in caught.value.message
    with pytest.raises(StorageError, match="cannot create the warehouse"):
        Warehouse(tmp_path / "file" / "warehouse").create()


FOREIGN = '{"host": "theirs"}\n'


@pytest.mark.parametrize("kind", ["link", "dangling link", "hard link", "text", "folder", "pipe"])
def test_a_lock_file_that_is_not_ours_is_refused_and_left_as_it_is(tmp_path: Path, kind: str) -> None:
    other, home, lock = tmp_path / "theirs", tmp_path / "warehouse", tmp_path / "warehouse" / ".lock"
    home.mkdir()
    other.write_text(FOREIGN)
    if kind == "link":
        lock.symlink_to(other)
    elif kind == "dangling link":
        lock.symlink_to(tmp_path / "fresh")
    elif kind == "hard link":
        lock.hardlink_to(other)
    elif kind == "text":
        lock.write_text(FOREIGN)
    elif kind == "folder":
        lock.mkdir()
    else:
        os.mkfifo(lock)
    with pytest.raises(StorageError) as caught, Warehouse(home).lock("dd run"):
        pytest.fail("locked what is not ours")
    assert str(lock) in caught.value.message
    assert other.read_text() == FOREIGN
    assert not (tmp_path / "fresh").exists()
    if kind == "text":
        assert lock.read_text() == FOREIGN
    if kind in ("link", "dangling link", "pipe"):
        with pytest.raises(StorageError, match="lock file"):
            Warehouse(home).holder()


@pytest.mark.parametrize("left", [b"", b"\0" * 200])
def test_a_lock_file_that_a_crash_emptied_is_ours(tmp_path: Path, left: bytes) -> None:
    (tmp_path / ".lock").write_bytes(left)
    with Warehouse(tmp_path).lock("dd run") as lock:
        assert lock.dead is None


@pytest.mark.parametrize("name", ["a/b", "", "x" * 300, "\N{SNOWMAN}" * 100, "nul\0", ".hidden"])
def test_names_that_no_folder_can_have_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        Warehouse(tmp_path).output(name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_warehouse_is_a_storage_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(StorageError, match="Permission denied"), Warehouse(tmp_path).lock("dd run"):
            pytest.fail("locked a read-only folder")
    finally:
        tmp_path.chmod(0o755)


def test_failures_name_the_path_and_the_reason(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught, reporting(tmp_path, "read"):
        raise OSError(28, "No space left on device")
    assert caught.value.message == f"cannot read {tmp_path}: No space left on device"
    assert "free some space" in caught.value.hint


def test_our_own_errors_and_bugs_pass_unchanged(tmp_path: Path) -> None:
    with pytest.raises(DataError), reporting(tmp_path, "read"):
        raise DataError("a row")
    with pytest.raises(KeyError), reporting(tmp_path, "read"):
        raise KeyError("a bug")
