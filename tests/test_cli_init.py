"""The folder that init makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddcore.cli.main import run_command
from ddcore.cli.samples import SAMPLES
from ddcore.io.project.program import load_program
from ddcore.io.project.project import find_project


def test_init_makes_a_project_that_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "deep" / "trams"
    assert run_command(["init", str(folder)]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"cd {folder}" in captured.err
    assert sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()) == sorted(
        SAMPLES["trams"].files
    )
    project = find_project(folder)
    assert list(project.inputs) == ["links", "starts"]
    assert project.engine == "inline"
    assert load_program(project).__name__ == "program"


def test_init_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["init", str(tmp_path / "trams"), "-q"]) == 0
    assert capsys.readouterr() == ("", "")


def test_init_here(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["init"]) == 0
    assert "made a project here" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["dd.toml", "program.py", "data/links.csv"])
def test_init_overwrites_nothing(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("mine")
    assert run_command(["init", str(tmp_path)]) == 2
    assert f"already has {name}; init overwrites nothing" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == [file]


def test_init_spares_a_repositorys_own_files(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    assert run_command(["init", str(tmp_path), "-q"]) == 0
    assert (tmp_path / "README.md").read_text() == "mine"
    assert (tmp_path / "dd.toml").exists()


def test_init_on_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_text("")
    assert run_command(["init", str(tmp_path / "x")]) == 2
    assert "is a file, not a folder" in capsys.readouterr().err


def test_init_where_nothing_may_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["init", "/proc/no_such_place"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: /proc/no_such_place")
    assert "Traceback" not in err
