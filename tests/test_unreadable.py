"""What may not be read is never called missing, lost or damaged, and nobody is told to restore a backup of it.

As root every file can be read, so these tests give up root's rights while a command runs.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake

from ddcore.base.errors import StorageError
from ddcore.cli.main import run_command
from ddcore.io.delta.deltalog import last_transaction
from ddcore.io.storage import store
from ddcore.io.storage.reporting import reporting

NOBODY = 65534
WRONG = ("lost", "missing", "backup", "damaged", "there is no", "no ledger", "make it writable", "full-refresh")


@contextmanager
def unprivileged() -> Iterator[None]:
    """Within this context permissions count also for root."""
    if os.geteuid():
        yield
        return
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def others(folded: Path) -> Iterator[Path]:
    """A folded project that belongs to nobody, in a folder that nobody can enter."""
    home = Path(tempfile.mkdtemp())
    shutil.copytree(folded, home / "trams")
    if not os.geteuid():
        for path in (home, *home.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    yield home / "trams"
    for path in (home, *home.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(home)


def _newest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern))


PLACES: dict[str, Callable[[Path], Path | list[Path]]] = {
    "warehouse": lambda home: home,
    "ledger": lambda home: home / "ledger",
    "ledger-log": lambda home: home / "ledger/_delta_log",
    "ledger-commit": lambda home: _newest(home / "ledger/_delta_log", "*.json"),
    "ledger-file": lambda home: _newest(home / "ledger", "*.parquet"),
    "inputs": lambda home: home / "inputs",
    "input": lambda home: home / "inputs/links",
    "input-log": lambda home: home / "inputs/links/_delta_log",
    "input-file": lambda home: _newest(home / "inputs/links", "*.parquet"),
    "outputs": lambda home: home / "outputs",
    "output": lambda home: home / "outputs/journeys",
    "output-log": lambda home: home / "outputs/journeys/_delta_log",
    "output-commit": lambda home: _newest(home / "outputs/journeys/_delta_log", "*.json"),
    "output-file": lambda home: _newest(home / "outputs/journeys", "*.parquet"),
    "states": lambda home: home / "state",
    "state": lambda home: _newest(home / "state", "*/part-*-000001-*.parquet").parent,
    "state-log": lambda home: _newest(home / "state", "*/_delta_log"),
    "state-files": lambda home: [*(home / "state").glob("*/part-*.parquet")],  # a run may need any, and not each
    "lock": lambda home: home / ".lock",
}


def _commands(home: Path) -> list[list[str]]:
    more = home / "more.csv"
    more.write_text("version,diff,src,dst,minutes\n6,1,Tower,Hill,3\n")
    reads = [["status"], ["show", "journeys"], ["log"], ["diff", "journeys", "1", "2"]]
    writes = [["ingest", "links", str(more)], ["run"], ["run", "--from-version", "2"], ["compact"]]
    return [*reads, *writes]


@pytest.fixture(scope="module")
def imported(folded: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """All that the commands import: nobody may not be allowed to read it."""
    home = tmp_path_factory.mktemp("first") / "trams"
    shutil.copytree(folded, home)
    for words in [*_commands(home), ["verify"], ["status", "--debug"]]:
        assert run_command([*words, "--project", str(home)]) == 0
    (home / "warehouse/inputs/links").rename(home / "warehouse/inputs/other")
    for words in (["run", "--from-version", "2"], ["show", "journeys"]):
        run_command([*words, "--project", str(home)])


@pytest.mark.sample(4)
@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("location", PLACES)
def test_what_may_not_be_read_is_never_called_missing(location: str, others: Path, dd: Any) -> None:
    commands = _commands(others)
    path = PLACES[location](others / "warehouse")
    paths = [path] if isinstance(path, Path) else path
    for path in paths:
        path.chmod(0)
    failed = 0
    with unprivileged():
        for words in commands:
            code, _, err = dd(*words, "--project", str(others))
            errors = [line for line in err if line.startswith("error: ")]
            assert len(errors) == (code != 0), err
            # A run that failed while it committed is not finished, and then nothing is compacted.
            assert code == 0 or "Permission denied" in errors[0] or "run 2 is not finished" in errors[0], (words, err)
            wrong = [word for word in WRONG if location != "lock" or "writable" not in word]
            assert not any(word in " ".join(err) for word in wrong), (words, err)
            failed += code != 0
    assert failed, "some command needs it"
    for path in paths:
        if path.exists():  # none that a compaction left out and removed
            path.chmod(0o700)
    assert dd("run", "--project", str(others))[0] == 0
    assert dd("verify", "--project", str(others))[0] == 0


SOURCES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "file": ("days/b/2.csv", "days/b/2.csv", ()),
    "file-of-a-folder": ("days/b/2.csv", "days", ()),
    "file-of-a-pattern": ("days/b/2.csv", "days/*/*.csv", ()),
    "folder": ("days", "days", ()),
    "folder-in-a-folder": ("days/b", "days", ()),
    "folder-of-a-pattern": ("days", "days/*", ()),
    "one-folder-of-a-pattern": ("days/b", "days/*/*.csv", ()),
    "a-name-in-folders-of-a-pattern": ("days/b", "days/*/2.csv", ()),
    "folder-of-a-deep-pattern": ("days/b", "days/**/*.csv", ()),
    "folder-of-an-open-pattern": ("days/b", "days/**", ()),
    "table": ("table", "table", ("--append",)),
    "log-of-a-table": ("table/_delta_log", "table", ("--append",)),
    "commit-of-a-table": ("table/_delta_log/00000000000000000000.json", "table", ("--snapshot",)),
    "file-of-a-table": ("table/*.parquet", "table", ("--append",)),
    "file-of-a-snapshot": ("table/*.parquet", "table", ("--snapshot",)),
    "file-of-a-feed": ("table/*.parquet", "table", ("--feed",)),
}
"""What nobody may read, the source that is named, and options."""


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("name", SOURCES)
def test_a_source_that_may_not_be_read_is_named_and_no_part_of_it_is_taken_in(
    name: str, others: Path, dd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(others)
    for number, folder in enumerate("ab", start=1):
        Path("days", folder).mkdir(parents=True)
        Path("days", folder, f"{number}.csv").write_text(f"version,diff,src,dst,minutes\n{6 + number},1,Tower,Hill,3\n")
    table = pl.DataFrame({"src": ["Tower"], "dst": ["Hill"], "minutes": [3]})
    write_deltalake("table", table.to_arrow(), configuration={"delta.enableChangeDataFeed": "true"})
    path, source, options = SOURCES[name]
    hidden = next(others.glob(path))
    for item in (others, *others.rglob("*")):
        if not os.geteuid():
            os.chown(item, NOBODY, NOBODY)
    before = dd("log", "--json")
    hidden.chmod(0)
    with unprivileged():
        code, _, err = dd("ingest", "links", source, *options)
    hidden.chmod(0o700)
    message = next(line for line in err if line.startswith("error: "))
    assert code == 1 and hidden.name in message and message.endswith(": cannot be read: Permission denied"), err
    assert "make it readable" in err[-1] and dd("log", "--json") == before


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("name", ["dd.toml", "program.py"])
def test_a_project_that_may_not_be_read(name: str, others: Path, dd: Any) -> None:
    (others / name).chmod(0)
    with unprivileged():
        code, _, err = dd("verify", "--project", str(others))
    assert code and "Permission denied" in err[0] and "make it readable" in err[-1], err
    assert not any(word in " ".join(err) for word in WRONG), err


def _pipe(path: Path) -> None:
    os.mkfifo(path)


ODD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "pipe": (_pipe, "a pipe"),
    "folder": (Path.mkdir, "a folder"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "a device"),
    "loop": (lambda path: path.symlink_to(path), "a link that leads to itself"),
    "dangling": (lambda path: path.symlink_to("gone"), "a link to gone, which is not there"),
}


@pytest.mark.parametrize("name", ["dd.toml", "program.py"])
@pytest.mark.parametrize("kind", ODD)
def test_what_is_there_in_place_of_a_file_is_named(
    kind: str, name: str, others: Path, dd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, words = ODD[kind]
    (others / name).unlink()
    make(others / name)
    monkeypatch.chdir(others / "data")  # a file below is searched for upwards
    for words_of in (["verify"], ["verify", "--project", str(others)]):
        code, _, err = dd(*words_of)
        assert code == 2 and name in err[0] and words in err[0] and "and not a file" in err[0] and len(err) == 2, err
        assert "no dd.toml" not in err[0] and "did you mean" not in err[1], err


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES, errno.EMFILE])
def test_an_error_of_the_file_system_is_no_answer(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t/_delta_log").mkdir(parents=True)
    (tmp_path / f"t/_delta_log/{0:020d}.json").write_text("{}")

    def fails(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    for name in ("stat", "read_bytes"):
        monkeypatch.setattr(Path, name, fails)
    for function in (store.exists, store.is_file, store.is_folder):
        with pytest.raises(StorageError, match=os.strerror(number)) as caught:
            function(tmp_path / "t")
        assert caught.value.hint
    with pytest.raises(StorageError, match=os.strerror(number)):
        last_transaction(tmp_path / "t", "ddcore")
    monkeypatch.setattr(os, "listdir", fails)
    with pytest.raises(StorageError, match=os.strerror(number)):
        store.names(tmp_path / "t")
    with pytest.raises(StorageError) as said, reporting(tmp_path, "read", "restore the folder from a backup"):
        fails()
    assert "backup" not in said.value.hint and said.value.hint


def test_what_is_not_there_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / "none", tmp_path / "file" / "below", tmp_path / "loop"):
        assert not store.exists(path) and not store.is_file(path) and not store.is_folder(path)
        assert store.names(path) == []
