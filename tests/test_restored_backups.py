"""Backups of a part of a warehouse, restored over other parts: ``run --full-refresh`` needs inputs and ledger only.

Whatever lies in ``state`` and ``outputs``, older, newer, foreign or damaged, the commands say what is wrong and what
helps, and nothing that may be somebody's is deleted.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ddcore.cli.main import run_command

WAY_ON = "rebuild state and outputs from the inputs: ddcore run --full-refresh"
AGES = ["old", "new"]


@pytest.fixture(scope="module")
def warehouses(folded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project, with its warehouse at two moments in ``old`` and ``new``."""
    folder = tmp_path_factory.mktemp("backups") / "trams"
    shutil.copytree(folded, folder, ignore=shutil.ignore_patterns("warehouse"))
    where = ["--project", str(folder), "-q"]
    (folder / "late.csv").write_text("version,diff,src,dst,minutes\n3,1,Zoo,Tower,4\n")
    (folder / "next.csv").write_text("version,diff,src,dst,minutes\n6,1,Tower,Hill,5\n")
    names = ("data/links.csv", "data/starts.csv", "late.csv", "next.csv")
    links, starts, late, more = (str(folder / name) for name in names)
    moments = {
        "old": [["ingest", "links", links], ["ingest", "starts", starts],
                ["run", "--to-version", "1"], ["run", "--to-version", "2"]],
        "new": [["run", "--to-version", "3"], ["run"], ["ingest", "links", late, "--late", "restate"], ["run"],
                ["ingest", "links", more], ["run"]],
    }  # fmt: skip
    for name, commands in moments.items():
        for words in commands:
            assert run_command([*words, *where]) == 0
        shutil.copytree(folder / "warehouse", folder / name)
    return folder


def _nothing(folder: Path) -> None:
    shutil.rmtree(folder)


def _a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("somebody's\n")


def _a_link_to_nowhere(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to(folder.with_name("gone"))


def _each_a_file(folder: Path) -> None:
    for table in [path for path in folder.iterdir() if path.is_dir()]:
        shutil.rmtree(table)
        table.write_text("somebody's\n")


def _each_foreign(folder: Path) -> None:
    """Tables of another program, one with the columns of ours."""
    for table in [path for path in folder.iterdir() if path.is_dir()]:
        frame = pl.read_delta(str(table)).select(pl.all().first()) if folder.name == "outputs" else None
        shutil.rmtree(table)
        (pl.DataFrame({"theirs": [1, 2]}) if frame is None else frame).write_delta(str(table))


def _half(folder: Path) -> None:
    """A copy that was interrupted: logs without files, files without logs."""
    for number, table in enumerate(sorted(path for path in folder.iterdir() if path.is_dir())):
        if number % 2:
            shutil.rmtree(table / "_delta_log")
        else:
            for file in table.rglob("*.parquet"):
                file.unlink()


def _damaged(folder: Path) -> None:
    for commit in sorted(folder.rglob("_delta_log/*.json"))[::2]:
        commit.write_text("no JSON\n")


def _append_only(folder: Path) -> None:
    from deltalake import DeltaTable

    for table in [path for path in folder.iterdir() if path.is_dir()]:
        DeltaTable(str(table)).alter.set_table_properties({"delta.appendOnly": "true"})


HARM: dict[str, Callable[[Path], None]] = {
    "missing": _nothing, "a-file": _a_file, "a-link": _a_link_to_nowhere, "files": _each_a_file,
    "foreign": _each_foreign, "half": _half, "damaged": _damaged, "append-only": _append_only,
}  # fmt: skip
FEW = [*product(AGES, AGES), *((kind, "new") for kind in HARM), *(("new", kind) for kind in HARM)]
BY_DAY = [*zip(cycle(AGES), FEW[::2])]
"""An age of inputs and ledger, and what state and outputs are."""


def _place(source: Path, part: str, kind: str, target: Path) -> None:
    shutil.copytree(source / (kind if kind in AGES else "new") / part, target / part, symlinks=True)
    if kind in HARM:
        HARM[kind](target / part)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("ledger", "parts"),
    [
        pytest.param(
            ledger, pair, marks=() if (ledger, pair) in BY_DAY else pytest.mark.long, id="-".join((ledger, *pair))
        )
        for ledger, pair in product(AGES, product([*AGES, *HARM], repeat=2))
    ],
)
def test_a_full_refresh_needs_inputs_and_ledger_only(
    ledger: str, parts: tuple[str, str], warehouses: Path, tmp_path: Path, dd: Any
) -> None:
    state, outputs = parts
    home = tmp_path / "home"
    shutil.copytree(warehouses, home, ignore=shutil.ignore_patterns("warehouse", *AGES))
    warehouse = home / "warehouse"
    for part, kind in (("inputs", ledger), ("ledger", ledger), ("state", state), ("outputs", outputs)):
        _place(warehouses, part, kind, warehouse)
    where = ("--project", str(home))
    for words in (["status"], ["show", "journeys"], ["run"]):
        code, _, err = dd(*words, *where)
        assert code in (0, 1), err
        if code:
            errors = [line for line in err if line.startswith("error: ")]
            assert len(errors) == 1 and WAY_ON in " ".join(err), err
    code, _, err = dd("run", "--full-refresh", *where)
    assert code == 0, err
    _holds(dd, where)
    more = home / "more.csv"
    more.write_text("version,diff,src,dst,minutes\n9,1,Tower,Hill,3\n")
    for words in (["ingest", "links", str(more)], ["run"], ["compact"], ["doctor", "--deep"], ["status"], ["log"]):
        code, _, err = dd(*words, *where)
        assert code == 0, (words, err)
    _holds(dd, where)
    other = [path for path in warehouse.rglob("*") if path.name.startswith("_damaged-")]
    if state in ("a-file", "files") or outputs in ("a-file", "files"):
        assert any(path.is_file() and path.read_text() == "somebody's\n" for path in other)
    if outputs == "foreign":
        assert len(pl.read_delta(str(warehouse / "outputs" / "_damaged-journeys-1"))) == 1


def _holds(dd: Any, where: tuple[str, ...]) -> None:
    code, out, err = dd("verify", "--last", "20", "--json", *where)
    assert code == 0, err
    verdicts = [json.loads(line) for line in out]
    assert [verdict for verdict in verdicts if verdict.get("holds")], out


def test_a_first_run_leaves_what_is_not_ours(fresh: Path, dd: Any) -> None:
    """Also without a refresh: a table of somebody else in the place of an output is renamed, never overwritten."""
    assert dd("ingest", "links", "data/links.csv")[0] == 0
    assert dd("ingest", "starts", "data/starts.csv")[0] == 0
    other = pl.DataFrame({"stop": ["theirs"], "total": [1], "version": [0], "diff": [1]})
    other.write_delta("warehouse/outputs/journeys")
    code, _, err = dd("run")
    assert code == 0, err
    assert any("renamed to _damaged-journeys-1" in line for line in err), err
    assert pl.read_delta("warehouse/outputs/_damaged-journeys-1").equals(other)
    assert dd("verify")[0] == 0


def test_a_refresh_that_is_killed_is_finished_by_a_plain_run(
    warehouses: Path, tmp_path: Path, dd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger knows from its intent on that the tables are about to be replaced."""
    home = tmp_path / "home"
    shutil.copytree(warehouses, home, ignore=shutil.ignore_patterns("warehouse", *AGES))
    for part, kind in (("inputs", "old"), ("ledger", "old"), ("state", "new"), ("outputs", "new")):
        _place(warehouses, part, kind, home / "warehouse")
    where = ("--project", str(home))
    from ddcore.jobs.running.commits import Commits

    with monkeypatch.context() as patch:
        patch.setattr(Commits, "_commit_output", _killed)
        patch.setattr("ddcore.jobs.running.run.Run._note_failure", lambda *_: None)
        assert dd("run", "--full-refresh", *where)[0] == 1
    code, _, err = dd("run", *where)
    assert code == 0, err
    _holds(dd, where)


def _killed(*_: object) -> None:
    raise OSError(5, "killed")


def test_inputs_newer_than_the_ledger_are_never_folded_as_if_nothing_were_missing(
    warehouses: Path, tmp_path: Path, dd: Any
) -> None:
    home = tmp_path / "home"
    shutil.copytree(warehouses, home, ignore=shutil.ignore_patterns("warehouse", *AGES))
    for part, kind in (("inputs", "new"), ("ledger", "old"), ("state", "old"), ("outputs", "old")):
        _place(warehouses, part, kind, home / "warehouse")
    for words in (["status"], ["run"], ["run", "--full-refresh"]):
        code, _, err = dd(*words, "--project", str(home))
        assert code == 1 and "inputs/links holds ingest 4" in err[0], err
        assert "restore the ledger and the inputs from their newest backup" in err[1], err
