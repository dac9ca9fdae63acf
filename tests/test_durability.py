"""A power cut loses nothing that a record of the ledger names: all of it was synced to the disk before the record.

A recorder notes what is synced: a file by its inode, time and size, a folder by the names in it. Before each record of
the ledger, and when the command is done, the tables must have been synced as far as the ledger then names them: their
data files, their commits, and the names of the folders above them. The recorder believes only what it has seen, and
what was there before the command. Of what a killed process left, only data files with a commit, commits with a record,
and records before the last count as synced.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from trams import KEPT
from workshop import COMMANDS, Workshop

from ddcore.cli.main import run_command
from ddcore.io.delta import syncs, tables
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import Record
from ddcore.io.storage.warehouse import Warehouse

SAMPLE = 1  # places, and as many commands, for `make test`


class Recorder:
    """What of a warehouse is on the disk. ``records`` counts the ledger's records that were checked."""

    def __init__(self, root: Path) -> None:
        self.root, self.records, self.missing = root, 0, list[str]()
        self._files: dict[int, tuple[int, int]] = {}
        self._folders: dict[int, dict[str, int]] = {}
        for path in (root.parent, root, *(root.rglob("*") if root.exists() else ())):
            if path.exists():
                self._note(path)

    def _note(self, path: Path) -> None:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            self._folders[status.st_ino] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self._files[status.st_ino] = (status.st_mtime_ns, status.st_size)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Watch this process."""
        fsync, append = os.fsync, Ledger.append

        def recorded(descriptor: int) -> None:
            fsync(descriptor)
            self._note(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

        def checked(ledger: Ledger, record: Record) -> None:
            files, folders = dict(self._files), {folder: dict(names) for folder, names in self._folders.items()}
            append(ledger, record)
            self._check(f"record {self.records}", self._tables(ledger), files, folders)
            self.records += 1

        patch.setattr(os, "fsync", recorded)
        patch.setattr(Ledger, "append", checked)

    def check(self, when: str) -> None:
        """Note every file and every name that the ledger needs and a power cut might take now."""
        ledger = Ledger.load(Warehouse(self.root))
        named = [*self._tables(ledger), *self._commits(self.root / "ledger", None)]
        self._check(when, named, self._files, self._folders)

    def _check(
        self, when: str, named: Sequence[Path], files: dict[int, tuple[int, int]], folders: dict[int, dict[str, int]]
    ) -> None:
        for path in named:
            status = path.stat()
            if files.get(status.st_ino) != (status.st_mtime_ns, status.st_size):
                self.missing.append(f"{when}: {path}")
            for parent in (path, *path.parents):
                if parent == self.root.parent:
                    break
                if folders.get(parent.parent.stat().st_ino, {}).get(parent.name) != parent.stat().st_ino:
                    self.missing.append(f"{when}: the name of {parent}")

    def believe(self) -> None:
        """Believe that a killed process kept the order: data files before their commit, commits before their record,
        and a record before it did anything else.
        """
        for log in self._logs():
            for path in self._files_of(log.parent, None):
                self._believe(path, log.parent)
        for path in self._tables(Ledger.load(Warehouse(self.root))):
            self._believe(path, self.root.parent)
        for path in sorted((self.root / "ledger" / "_delta_log").glob("*.json"))[:-1]:
            self._believe(path, self.root.parent)

    def _believe(self, path: Path, top: Path) -> None:
        """Believe that a file and the names above it, up to those in ``top``, are on the disk."""
        if path.exists():
            self._note(path)
            for parent in (path, *path.parents):
                if parent == top:
                    break
                self._folders.setdefault(parent.parent.stat().st_ino, {})[parent.name] = parent.stat().st_ino

    def _tables(self, ledger: Ledger) -> list[Path]:
        """What the ledger names: the commits of all tables up to the versions in it, the live files there, and the
        corrections that wait.
        """
        states = [(self.root / name, state.version) for name, state in ledger.states().items()]
        run = ledger.current_run()
        waiting = run.corrections.items() if run else ()
        return [
            *(path for folder, version in states for path in self._commits(folder, version)),
            *(self.root / name / file.path for name, files in waiting for file in files),
        ]

    def _commits(self, folder: Path, version: int | None) -> Iterator[Path]:
        """The commits, the checkpoints and the live files of a table at a version."""
        log = folder / "_delta_log"  # a killed refresh may have moved a damaged table away
        for path in log.iterdir() if log.is_dir() else ():
            number = path.name.partition(".")[0]
            if not number.isdigit() or version is None or int(number) <= version:
                yield from [path] if path.name[0] != "." and path.is_file() else []
        yield from self._files_of(folder, version)

    def _logs(self) -> Iterator[Path]:
        return (log for log in self.root.rglob("_delta_log") if any(log.glob("*.json")))

    @staticmethod
    def _files_of(folder: Path, version: int | None) -> list[Path]:
        try:
            table = DeltaTable(str(folder), version=version)
        except DeltaError:  # a table that a test has damaged
            return []
        return [folder / path for path in tables.values(table.get_add_actions().column("path"))]


def recorded(shop: Workshop, name: str, folder: Path, recorder: Recorder, patch: pytest.MonkeyPatch) -> int:
    """Run a command in this process under the recorder; return its exit code."""
    arguments = shop.placed(folder, shop.scenario(name).arguments)
    with patch.context() as inside:
        for variable in [item for item in os.environ if item.startswith("DDCORE_") and item not in KEPT]:
            inside.delenv(variable)
        recorder.install(inside)
        code = run_command([*arguments, "-q", "--project", str(folder)])
    recorder.check("the end")
    return code


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_everything_is_synced_before_the_record_that_names_it(
    name: str, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_synced(name, workshop, monkeypatch)


def test_some_commands_sync_everything_before_the_record_that_names_it(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for name in random.Random(seed).sample([*COMMANDS], SAMPLE):
        check_synced(name, workshop, monkeypatch)


def check_synced(name: str, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = workshop.copy(workshop.scenario(name).base)
    recorder = Recorder(folder / "warehouse")
    assert recorded(workshop, name, folder, recorder, monkeypatch) == 0
    assert recorder.records > 0
    assert recorder.missing == [], name


def after_a_kill(shop: Workshop, name: str, point: str, n: int, patch: pytest.MonkeyPatch) -> None:
    """Kill a command, run it again, and check that it has synced what the killed one left as well."""
    folder = shop.copy(shop.scenario(name).base)
    recorder = Recorder(folder / "warehouse")
    arguments = shop.placed(folder, shop.scenario(name).arguments)
    assert shop.command(folder, *arguments, DDCORE_FAILPOINT=f"{point}:{n}").code < 0
    recorder.believe()
    code = recorded(shop, name, folder, recorder, patch)
    assert code == (2 if point == "after-undo" and "--undo" in arguments else 0)
    assert recorder.missing == [], f"{name}: {point}:{n}"
    shutil.rmtree(folder)


def test_a_sample_of_what_a_killed_process_left_is_synced(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    for _ in range(SAMPLE):
        name = rng.choice(list(COMMANDS))
        after_a_kill(workshop, name, *rng.choice(workshop.scenario(name).points), monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_all_that_a_killed_process_left_is_synced(
    name: str, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for point, n in workshop.scenario(name).points:
        after_a_kill(workshop, name, point, n, monkeypatch)


@pytest.mark.parametrize("lost", ["settle", "sync"])
def test_the_recorder_misses_nothing(lost: str, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without these calls it would complain: of commits, and of names in folders."""
    folder = workshop.copy(workshop.scenario("first run").base)
    recorder = Recorder(folder / "warehouse")
    monkeypatch.setattr(syncs, lost, lambda *_: None)
    assert recorded(workshop, "first run", folder, recorder, monkeypatch) == 0
    assert any("_delta_log" in line for line in recorder.missing)
