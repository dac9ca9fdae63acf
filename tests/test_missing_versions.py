"""T48: a version of a table that is gone is an error that names it, for every command that needs it; never a gap.

The table was vacuumed after a DELETE, its log was cleaned up, or a commit or a checkpoint was deleted.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from trams import Command

from ddcore.cli.main import run_command

LOG = "_delta_log"
COMMANDS = {
    "ingest": ["ingest", "links", "c.csv"],
    "run": ["run"],
    "full refresh": ["run", "--full-refresh"],
    "diff": ["diff", "journeys", "4", "6"],
    "show": ["show", "journeys", "--at", "6"],
    "verify": ["verify", "--at", "6", "--by", "reference"],
}


def commits(table: Path) -> list[Path]:
    return sorted((table / LOG).glob("*.json"))


def delete_and_vacuum(table: Path) -> None:
    """The rows are deleted by another program, and then the files of all versions before."""
    DeltaTable(str(table)).delete("version >= 0")
    DeltaTable(str(table)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def clean_log_up(table: Path) -> None:
    """Another program's commit and checkpoint, and a log that begins there."""
    DeltaTable(str(table)).delete("version = 1")
    DeltaTable(str(table)).create_checkpoint()
    for commit in commits(table)[:-1]:
        commit.unlink()


def lose_checkpoint(table: Path) -> None:
    """A log that begins with a checkpoint, without it."""
    DeltaTable(str(table)).create_checkpoint()
    for path in (table / LOG).iterdir():
        path.unlink()


def lose_commit(location: int) -> Callable[[Path], None]:
    return lambda table: commits(table)[location].unlink()


def lose_file(table: Path) -> None:
    min(table.glob("*.parquet")).unlink()


LOST: dict[str, tuple[Callable[[Path], None], str]] = {
    "vacuumed after a DELETE": (delete_and_vacuum, r"is missing: (it has versions? \d|version \d of the table)"),
    "log cleaned up": (clean_log_up, r"at version {n} of the table: commits 0\.\.{n} are missing from its log"),
    "checkpoint deleted": (lose_checkpoint, r"at version {n} of the table: commits 0\.\.{n} are missing from its log"),
    "first commit deleted": (lose_commit(0), "the commit of version 0 is missing from its log"),
    "commit deleted": (lose_commit(1), "the commit of version 1 is missing from its log"),
    "newest commit deleted": (lose_commit(-1), r"the commit of version {n} is missing from its log"),
    "file deleted": (lose_file, r"parquet is missing: it has versions 1\.\.5 of "),
}  # fmt: skip


@pytest.fixture(scope="module")
def waiting(folded: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Six versions are folded, a seventh is ingested, the source of an eighth is there."""
    folder = shutil.copytree(folded, tmp_path_factory.mktemp("waiting") / "project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        rows = {"a": "6,1,Castle,Harbour,1", "b": "7,-1,Castle,Harbour,1", "c": "8,-1,Harbour,Lighthouse,7"}
        for name, row in rows.items():
            Path(f"{name}.csv").write_text(f"version,diff,src,dst,minutes\n{row}\n")
        for arguments in (["ingest", "links", "a.csv", "-q"], ["run", "-q"], ["ingest", "links", "b.csv", "-q"]):
            assert run_command(arguments) == 0
        yield folder


@pytest.fixture
def project(waiting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(waiting, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("lost", LOST)
def test_T48_an_input_version_that_is_gone_is_named(lost: str, project: Path, dd: Command) -> None:
    """By all commands that read the input. Those that read outputs only still work, and nothing is written."""
    table = project / "warehouse" / "inputs" / "links"
    newest = DeltaTable(str(table)).version()
    lose, says = LOST[lost]
    lose(table)
    before = contents(table)
    for name in ("ingest", "run", "full refresh", "verify"):
        code, out, err = dd(*COMMANDS[name])
        if (lost, name) == ("file deleted", "run"):
            assert code == 0, "no run needs what was folded before"
            continue
        assert (code, len(err)) == (1, 2), (name, out, err)
        assert str(table) in err[0], name
        assert re.search(says.format(n=newest), err[0]), (name, err[0])
        assert "restore the folder from a backup" in err[1], name
        assert contents(table) == before, name
    for name in ("diff", "show"):
        assert dd(*COMMANDS[name])[0] == 0, name


@pytest.mark.parametrize("lost", LOST)
def test_T48_an_output_version_that_is_gone_is_named_and_made_again(lost: str, project: Path, dd: Command) -> None:
    table = project / "warehouse" / "outputs" / "journeys"
    newest = DeltaTable(str(table)).version()
    expected = dd(*COMMANDS["show"])[1]
    lose, says = LOST[lost]
    lose(table)
    for name in ("diff", "show", "verify"):
        code, out, err = dd(*COMMANDS[name])
        assert (code, len(err)) == (1, 2), (name, out, err)
        assert str(table) in err[0], name
        assert re.search(says.format(n=newest), err[0]), (name, err[0])
        assert "ddcore run --full-refresh" in err[1], name
    assert dd(*COMMANDS["full refresh"])[0] == 0
    assert dd(*COMMANDS["show"])[1] == expected


def test_T48_a_log_that_was_cleaned_up_behind_its_checkpoint_loses_nothing(project: Path, dd: Command) -> None:
    for table in (project / "warehouse").glob("*/*/_delta_log"):
        DeltaTable(str(table.parent)).create_checkpoint()
        for commit in commits(table.parent)[:-1]:
            commit.unlink()
    for name, arguments in COMMANDS.items():
        assert dd(*arguments)[0] == 0, name
