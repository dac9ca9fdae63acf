"""What ``dd doctor`` finds, in a machine and a project made to lack something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddcore.cli.main import run_command
from ddcore.errors import UsageError
from ddcore.io.project import Project, find_project
from ddcore.io.warehouse import Warehouse
from ddcore.jobs import jars
from ddcore.jobs.doctor import Check, checks


@pytest.fixture
def project(tmp_path: Path) -> Project:
    assert run_command(["init", str(tmp_path / "trams"), "--quiet"]) == 0
    return find_project(tmp_path / "trams")


def found(project: Project | None) -> dict[str, Check]:
    return {check.name: check for check in checks(lambda: project)}


def test_a_project_as_init_made_it_has_nothing_to_mend(project: Project) -> None:
    seen = found(project)
    for name in ("python", "pyspark", "delta-spark", "project", "program", "warehouse", "ledger", "lock"):
        assert seen[name].state == "ok", seen[name]
    assert "dd here" in seen


def test_missing_jars_fail_with_the_line_that_brings_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DDCORE_CACHE", str(tmp_path / "empty"))
    seen = found(None)
    assert (seen["delta jars"].state, seen["project"].state) == ("fail", "note")
    assert f"{len(jars.JARS)} of {len(jars.JARS)} are not in" in seen["delta jars"].said
    assert "make setup" in seen["delta jars"].mend
    assert seen["class archive"].state == "note"


def test_missing_java_fails_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert found(None)["java"].state == "fail"
    assert "apt-get install" in found(None)["java"].mend


def test_a_program_that_does_not_import_fails_with_its_place(project: Project) -> None:
    project.program_file.write_text("import nothing_of_that_name\n")
    seen = found(project)["program"]
    assert seen.state == "fail"
    assert "program.py:1" in seen.said and "nothing_of_that_name" in seen.said


def test_a_warehouse_that_cannot_be_written_fails(project: Project) -> None:
    project.warehouse.write_text("a file, where the folder should be")
    assert found(project)["warehouse"].state == "fail"


def test_a_held_lock_is_a_note_and_one_left_by_the_dead_a_failure(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    Warehouse(project.warehouse).create()
    with Warehouse(project.warehouse).lock("run", 7):
        assert found(project)["lock"].state == "note"
        assert "run 7" in found(project)["lock"].said
        monkeypatch.setattr("ddcore.jobs.doctor._alive", lambda _: False)
        assert found(project)["lock"].state == "fail"
        assert "fuser" in found(project)["lock"].mend
    assert found(project)["lock"].state == "ok"


def test_a_project_that_cannot_be_read_is_a_failure_among_the_others() -> None:
    def broken() -> Project:
        raise UsageError("dd.toml: not valid TOML", "mend it")

    seen = {check.name: check for check in checks(broken)}
    assert (seen["project"].state, seen["project"].mend) == ("fail", "mend it")
    assert "python" in seen


def test_the_command_exits_with_1_on_a_failure_and_speaks_json(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_command(["doctor", "--project", str(project.root), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"name", "state", "said", "mend", "schema_version"} == set(lines[0])
    monkeypatch.setenv("JAVA_HOME", str(project.root))
    assert run_command(["doctor", "--project", str(project.root)]) == 1
    out = capsys.readouterr().out
    assert "fail  java" in out
    assert "apt-get install openjdk-17" in out
