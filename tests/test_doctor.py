"""What ``dd doctor`` reports on a machine and a project that lack something."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from kernels import copy_of_cache
from places import local

from ddcore.base.cache import kernel_folder, kernel_names
from ddcore.base.errors import UsageError
from ddcore.cli.main import run_command
from ddcore.io.project.finding import find_project
from ddcore.io.project.project import Project
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs.doctor import Check, checks
from ddcore.jobs.spark import jars


@pytest.fixture
def project(tmp_path: Path) -> Project:
    assert run_command(["init", str(tmp_path / "trams"), "--quiet"]) == 0
    return find_project(tmp_path / "trams")


def results_of(project: Project | None) -> dict[str, Check]:
    return {check.name: check for check in checks(lambda: project)}


def test_a_new_project_has_nothing_to_correct(project: Project) -> None:
    results = results_of(project)
    for name in ("python", "pyspark", "delta-spark", "project", "program", "warehouse", "ledger", "lock"):
        assert results[name].state == "ok", results[name]
    assert "dd here" in results


def test_missing_jars_fail_with_the_line_that_brings_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DDCORE_CACHE", str(tmp_path / "empty"))
    results = results_of(None)
    assert (results["delta jars"].state, results["project"].state) == ("fail", "note")
    assert f"{len(jars.JARS)} of {len(jars.JARS)} are not in" in results["delta jars"].message
    assert "make setup" in results["delta jars"].hint
    assert results["class archive"].state == "note"


def test_missing_java_fails_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert results_of(None)["java"].state == "fail"
    assert "apt-get install" in results_of(None)["java"].hint


def test_an_inline_project_needs_neither_java_nor_jars(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("DDCORE_CACHE", str(copy_of_cache(tmp_path / "cache")))
    assert project.engine == "inline"
    results = results_of(project)
    assert not [check for check in results.values() if check.state == "fail"]
    for name in ("java", "delta jars"):
        assert results[name].state == "note"
        assert "inline, does without" in results[name].message and results[name].hint
    on_spark = results_of(replace(project, engine="spark"))
    assert {name for name, check in on_spark.items() if check.state == "fail"} == {"java", "delta jars"}


def test_kernels_are_counted_that_are_compiled_and_current(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DDCORE_CACHE", str(copy_of_cache(tmp_path / "cache")))
    count = len(kernel_names())
    assert results_of(None)["kernels"].state == "ok"
    assert f"{count} of {count} compiled and current" in results_of(None)["kernels"].message
    damaged = next(kernel_folder().glob("look_up.search.*"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    next(kernel_folder().glob("hashing.mix.*")).unlink()
    assert results_of(None)["kernels"].state == "note"
    assert f"{count - 2} of {count} compiled and current" in results_of(None)["kernels"].message
    kernel_folder().chmod(0o777)
    assert f"0 of {count} compiled and current" in results_of(None)["kernels"].message
    (tmp_path / "cache").chmod(0o777)
    assert results_of(None)["cache"].state == "fail"
    assert "other users may write to" in results_of(None)["cache"].message


def test_a_program_that_does_not_import_fails_with_its_place(project: Project) -> None:
    project.program_file.write_text("import nothing_of_that_name\n")
    check = results_of(project)["program"]
    assert check.state == "fail"
    assert "program.py:1" in check.message and "nothing_of_that_name" in check.message


def test_a_program_that_cannot_be_run_fails(project: Project) -> None:
    """It imports, but a run would end at once."""
    text = project.program_file.read_text()
    project.program_file.write_text(text.replace('"src"', '"sorce"'))
    check = results_of(project)["program"]
    assert check.state == "fail" and "sorce" in check.message


def test_a_warehouse_that_cannot_be_written_fails(project: Project) -> None:
    local(project.warehouse).write_text("a file, where the folder should be")
    assert results_of(project)["warehouse"].state == "fail"


def test_a_held_lock_is_a_note_and_one_left_by_the_dead_a_failure(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    Warehouse(project.warehouse).create()
    with Warehouse(project.warehouse).lock("run", 7):
        assert results_of(project)["lock"].state == "note"
        assert "run 7" in results_of(project)["lock"].message
        monkeypatch.setattr("ddcore.io.storage.holder.is_alive", lambda _: False)
        assert results_of(project)["lock"].state == "fail"
        assert "fuser" in results_of(project)["lock"].hint
    assert results_of(project)["lock"].state == "ok"


def test_a_project_that_cannot_be_read_is_a_failure_among_the_others() -> None:
    def broken() -> Project:
        raise UsageError("dd.toml: not valid TOML", "correct it")

    results = {check.name: check for check in checks(broken)}
    assert (results["project"].state, results["project"].hint) == ("fail", "correct it")
    assert "python" in results


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
