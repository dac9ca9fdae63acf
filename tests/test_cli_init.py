"""The folder that init makes."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from ddcore.cli.main import run_command
from ddcore.cli.samples import SAMPLES
from ddcore.io.project.finding import find_project
from ddcore.io.project.program import load_program


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
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]


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


# --- over files and tables that are there -----------------------------------------------------------------------------


@pytest.fixture
def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "shop" / "exports"
    folder.mkdir(parents=True)
    (folder / "sales-1.csv").write_text("item,unit price,n\nnut,1.50,3\n")
    (folder / "stock.csv").write_text("item,n\nnut,10\n")
    (folder / "log.csv").write_text("item,version,diff\nnut,0,1\n")
    pl.DataFrame({"id": [1, 2], "_odd": ["a", "b"]}).write_delta(str(tmp_path / "9 orders"))
    event = {"op": "c", "before": None, "after": {"id": 1, "name": "a"}}
    (folder / "events.jsonl").write_text(json.dumps({"key": {"id": 1}, "value": event}) + "\n")
    return folder


def test_a_project_over_what_is_there_runs_at_once(exports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = ["shop/exports/sales-*.csv", "shop/exports/stock.csv", "shop/exports/log.csv", "9 orders"]
    assert run_command(["init", "shop", *(word for path in paths for word in ("--from", path))]) == 0
    assert "ddcore sync" in capsys.readouterr().err
    project = find_project(exports.parent, {})
    sources = {
        name: (source.paths, source.form, source.options.get("column")) for name, source in project.sources.items()
    }
    assert sources == {
        "sales": (("exports/sales-*.csv",), "append", {"unit_price": "unit price"}),
        "stock": (("exports/stock.csv",), "snapshot", None),
        "log": (("exports/log.csv",), "log", None),
        "input_9_orders": ((str(exports.parent.parent / "9 orders"),), "snapshot", {"odd": "_odd"}),
    }
    assert run_command(["sync", "-q", "--project", "shop"]) == 0
    tables = exports.parent / "warehouse" / "tables"
    assert pl.read_delta(str(tables / "sales_now")).rows() == [("nut", 1.5, 3)]
    assert sorted(pl.read_delta(str(tables / "input_9_orders_now")).rows()) == [(1, "a"), (2, "b")]
    (exports / "sales-2.csv").write_text("item,unit price,n\nbolt,2.50,1\n")
    (exports / "stock.csv").write_text("item,n\nnut,7\n")
    assert run_command(["sync", "-q", "--project", "shop"]) == 0
    assert len(pl.read_delta(str(tables / "sales_now"))) == 2
    assert pl.read_delta(str(tables / "stock_now")).rows() == [("nut", 7)]


def test_events_have_a_key(exports: Path) -> None:
    assert run_command(["init", "new", "-q", "--from", str(exports / "events.jsonl")]) == 0
    project = find_project(Path("new"), {})
    assert project.keys["events"] == ("id",) and project.sources["events"].form == "debezium"
    assert run_command(["sync", "-q", "--project", "new"]) == 0


def test_equal_names_are_numbered(exports: Path) -> None:
    stock = str(exports / "stock.csv")
    assert run_command(["init", "new", "-q", "--from", stock, "--from", stock, "--from", f"{exports}/*.csv"]) == 0
    assert list(find_project(Path("new"), {}).sources) == ["stock", "stock_2", "exports"]


@pytest.mark.parametrize(
    ("path", "content", "says"),
    [
        ("none.csv", None, "there is no such file"),
        ("some.csv", b"", "an empty file, without even a header"),
        ("some.csv", b"a,b,a\n1,2,3\n", "the column 'a' occurs twice"),
        ("some.csv", b"a;b\n1;2\n", "its only column is 'a;b'\n  the header has no comma but ';'"),
        ("some.csv", b"a,b\n\xe9,2\n", "not UTF-8"),
        ("some.csv", b"version,diff\n1,1\n", "no column was found beside times, diff and operation"),
        ("some.parquet", b"PAR1 and nothing", "not a readable Parquet file"),
        ("https://example.com/some.csv", None, "https://example.com/some.csv"),
    ],
)
def test_what_cannot_be_read_makes_no_project(
    path: str, content: bytes | None, says: str, exports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        Path(path).write_bytes(content)
    assert run_command(["init", "new", "--from", path]) in (1, 2)
    said = capsys.readouterr().err
    assert says in said and len(said.splitlines()) == 2, said
    assert not Path("new").exists()
