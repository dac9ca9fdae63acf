"""What ``dd doctor`` reports on a machine and a project that lack something."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from kernels import copy_of_cache

from ddcore.cache import kernel_folder, kernel_names
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


def test_a_new_project_has_nothing_to_correct(project: Project) -> None:
    seen = found(project)
    for name in ("python", "pyspark", "delta-spark", "project", "program", "warehouse", "ledger", "lock"):
        assert seen[name].state == "ok", seen[name]
    assert "dd here" in seen


def test_missing_jars_fail_with_the_line_that_brings_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DDCORE_CACHE", str(tmp_path / "empty"))
    seen = found(None)
    assert (seen["delta jars"].state, seen["project"].state) == ("fail", "note")
    assert f"{len(jars.JARS)} of {len(jars.JARS)} are not in" in seen["delta jars"].message
    assert "make setup" in seen["delta jars"].hint
    assert seen["class archive"].state == "note"


def test_missing_java_fails_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert found(None)["java"].state == "fail"
    assert "apt-get install" in found(None)["java"].hint


def test_an_inline_project_needs_neither_java_nor_jars(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("DDCORE_CACHE", str(copy_of_cache(tmp_path / "cache")))
    assert project.engine == "inline"
    results = found(project)
    assert not [check for check in results.values() if check.state == "fail"]
    for name in ("java", "delta jars"):
        assert results[name].state == "note"
        assert "inline, does without" in results[name].message and results[name].hint
    on_spark = found(replace(project, engine="spark"))
    assert {name for name, check in on_spark.items() if check.state == "fail"} == {"java", "delta jars"}


def test_kernels_are_counted_that_are_compiled_and_current(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DDCORE_CACHE", str(copy_of_cache(tmp_path / "cache")))
    count = len(kernel_names())
    assert found(None)["kernels"].state == "ok"
    assert f"{count} of {count} compiled and current" in found(None)["kernels"].message
    damaged = next(kernel_folder().glob("runs.merge.*"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    next(kernel_folder().glob("hashing.mix.*")).unlink()
    assert found(None)["kernels"].state == "note"
    assert f"{count - 2} of {count} compiled and current" in found(None)["kernels"].message
    kernel_folder().chmod(0o777)
    assert f"0 of {count} compiled and current" in found(None)["kernels"].message
    (tmp_path / "cache").chmod(0o777)
    assert found(None)["cache"].state == "fail"
    assert "other users may write to" in found(None)["cache"].message


def test_a_program_that_does_not_import_fails_with_its_place(project: Project) -> None:
    project.program_file.write_text("import nothing_of_that_name\n")
    seen = found(project)["program"]
    assert seen.state == "fail"
    assert "program.py:1" in seen.message and "nothing_of_that_name" in seen.message


def test_a_warehouse_that_cannot_be_written_fails(project: Project) -> None:
    project.warehouse.write_text("a file, where the folder should be")
    assert found(project)["warehouse"].state == "fail"


def test_a_held_lock_is_a_note_and_one_left_by_the_dead_a_failure(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Warehouse(project.warehouse).lock("run", 7):
        assert found(project)["lock"].state == "note"
        assert "run 7" in found(project)["lock"].message
        monkeypatch.setattr("ddcore.jobs.doctor._alive", lambda _: False)
        assert found(project)["lock"].state == "fail"
        assert "fuser" in found(project)["lock"].hint
    assert found(project)["lock"].state == "ok"


def test_a_project_that_cannot_be_read_is_a_failure_among_the_others() -> None:
    def broken() -> Project:
        raise UsageError("dd.toml: not valid TOML", "correct it")

    seen = {check.name: check for check in checks(broken)}
    assert (seen["project"].state, seen["project"].hint) == ("fail", "correct it")
    assert "python" in seen


def test_the_command_exits_with_1_on_a_failure_and_speaks_json(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_command(["doctor", "--project", str(project.root), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"name", "state", "message", "hint", "schema_version"} == set(lines[0])
    monkeypatch.setenv("JAVA_HOME", str(project.root))
    assert run_command(["doctor", "--project", str(project.root)]) == 0, "its engine is inline"
    capsys.readouterr()
    monkeypatch.setenv("DDCORE_ENGINE", "spark")
    assert run_command(["doctor", "--project", str(project.root)]) == 1
    out = capsys.readouterr().out
    assert "fail  java" in out
    assert "apt-get install openjdk-17" in out
