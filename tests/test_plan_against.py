"""``dd plan --against``: what a changed program will do, before it does it; what it says is what the run then does."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from seeds import nightly, seeds
from test_changed_programs import changed, usable
from warehouses import log_of, project_of

from ddcore.base.errors import DdError
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.program import load_plan
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import replay
from ddcore.jobs.comparison import Comparison, compared, of_run
from ddcore.jobs.forecast import Forecast

PROGRAM = """
import ddcore as dd


def program(edges):
    degrees = edges.group_by("src").agg(n=dd.count())
    return {"degrees": degrees, "pairs": edges.join(edges.select(dst="src", then="dst"), on="dst"), "nodes": edges}
"""
EDGES = "src,dst,version,diff\n1,2,0,1\n1,3,0,1\n2,3,1,1\n3,1,2,1\n"


@pytest.fixture
def graph(tmp_path: Path, dd: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose three versions are folded."""
    folder = tmp_path / "graph"
    folder.mkdir()
    (folder / "dd.toml").write_text(
        '[project]\nprogram = "program.py:program"\n[run]\nengine = "inline"\n'
        '[inputs.edges]\nschema = { src = "int64", dst = "int64" }\n'
    )
    (folder / "program.py").write_text(PROGRAM)
    (folder / "edges.csv").write_text(EDGES)
    monkeypatch.chdir(folder)
    assert dd("ingest", "edges", "edges.csv")[0] == 0
    assert dd("run")[0] == 0
    return folder


def edit(folder: Path, *changes: tuple[str, str]) -> None:
    text = (folder / "program.py").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "program.py").write_text(text)


def told(dd: Any, *arguments: str) -> dict[str, Any]:
    code, out, err = dd("plan", "--json", "--against", *arguments)
    assert code == 0, err
    return dict(json.loads(out[0]))


def test_each_kind_of_change(graph: Path, dd: Any) -> None:
    edit(
        graph,
        ("n=dd.count()", "n=dd.count(), top=dd.max('dst')"),
        ('"nodes": edges', '"ends": edges.select("dst")'),
    )
    found = told(dd, "last", "--rows")
    changes = {one["output"]: one["change"] for one in found["outputs"]}
    assert changes == {"degrees": "columns", "ends": "new", "nodes": "dropped", "pairs": "unchanged"}
    degrees = found["outputs"][0]["columns"]
    assert degrees == {"added": {"top": "int64"}, "removed": {}, "retyped": {}}
    assert (
        found["changed"] and found["against"]["run"] == 1 and found["next_run"][0].startswith("the program has changed")
    )
    assert {one["change"] for one in found["arrangements"]} == {"kept", "built", "dropped"}
    assert found["rows"]["ends"]["plus"] == 4 and found["rows"]["pairs"] == {
        "plus": 0, "minus": 0, "columns": None, "rows": []
    }  # fmt: skip
    assert found["rows"]["degrees"]["columns"] == ["src", "n"] and found["rows"]["degrees"]["plus"] == 0
    before = {path: path.stat().st_mtime_ns for path in (graph / "warehouse").rglob("*.parquet")}
    code, out, _ = dd("plan", "--against", "last", "--rows", "--exit-code")
    assert code == 3 and any(line.split() == ["degrees", "other", "columns", "+top", "int64"] for line in out), out
    assert before == {path: path.stat().st_mtime_ns for path in (graph / "warehouse").rglob("*.parquet")}
    code, _, err = dd("run", "--dry-run")
    assert any(line.split() == ["degrees", "other", "columns", "+top", "int64"] for line in err), err


def test_the_same_program(graph: Path, dd: Any) -> None:
    code, out, _ = dd("plan", "--against", "last", "--exit-code")
    assert (
        code == 0 and out[0].endswith("it is the same one") and out[-1] == "of the stored arrangements, 4 are kept"
    ), out


def test_an_arrangement_is_built_because_another_one_is(graph: Path, dd: Any) -> None:
    edit(graph, ('edges.group_by("src")', 'edges.where("dst > 1").distinct().group_by("src")'))
    found = told(dd, "last")
    whys = [one["why"] for one in found["arrangements"] if one["change"] == "built"]
    assert any(why.startswith("computed from A") for why in whys), whys
    assert any(why == "other rows, columns or key" for why in whys), whys


def test_against_a_file_a_run_a_version_and_another_project(graph: Path, dd: Any, tmp_path: Path) -> None:
    (graph / "old.py").write_text(PROGRAM)
    edit(graph, ("n=dd.count()", "n=dd.count(), top=dd.max('dst')"))
    for text in ("1", "2", "old.py", "old.py:program", str(graph / "old.py")):
        if text == "2":
            assert dd("run")[0] == 0
        changes = {one["output"]: one["change"] for one in told(dd, text)["outputs"]}
        same = text == "2"
        assert changes == {"degrees": "unchanged" if same else "columns", "nodes": "unchanged", "pairs": "unchanged"}, (
            text
        )
    other = tmp_path / "other"
    other.mkdir()
    (other / "dd.toml").write_text((graph / "dd.toml").read_text())
    (other / "program.py").write_text(PROGRAM)
    assert told(dd, str(other))["outputs"][0]["columns"]["added"] == {"top": "int64"}
    assert told(dd, "version=2")["against"]["run"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--against", "9"), "--against 9: there is no finished run 9; the last is 1"),
        (("--against", "never"), "--against: 'never' is not a version"),
        (("--against", "gone.py"), "there is no file"),
        (("--rows",), "--rows, --limit and --exit-code: only with --against"),
        (("--against", "1", "--rows"), "--rows: what changes beside run 1 is not known by rows"),
        (("--against", "last", "--select", "nodes"), "--select: --against compares whole programs"),
        (("--against", "last", "--format", "svg"), "--against: it is text or JSON, and on stdout"),
    ],
)
def test_mistakes(graph: Path, dd: Any, arguments: tuple[str, ...], message: str) -> None:
    code, _, err = dd("plan", *arguments)
    assert code == 2 and message in err[0] and len(err) == 2, err


def test_nothing_is_folded_yet(graph: Path, dd: Any, tmp_path: Path) -> None:
    code, _, err = dd("plan", "--against", "last", "--warehouse", str(tmp_path / "none"))
    assert code == 2 and "nothing is folded yet" in err[0], err


def test_with_several_time_dimensions_the_next_run_is_refused(tmp_path: Path, dd: Any) -> None:
    assert dd("init", str(tmp_path / "p"), "--example", "bitemporal")[0] == 0
    folder = tmp_path / "p"
    for source in sorted((folder / "data").glob("*.csv")):
        code, _, err = dd("ingest", "sales", str(source), "--project", str(folder))
        assert code == 0, err
    assert dd("run", "--project", str(folder))[0] == 0
    text = (folder / "program.py").read_text()
    (folder / "program.py").write_text(text.replace("dd.sum(", "dd.max("))
    code, out, err = dd("plan", "--against", "last", "--project", str(folder))
    assert code == 0 and any("the next run is refused" in line for line in out), (out, err)


# --- what it says is what the run does --------------------------------------------------------------------------------


def rows_of(project: Project, output: str) -> Counter[Any]:
    """The present contents of an output."""
    log = log_of(project, output, load_plan(project).outputs[output])
    total: Counter[Any] = Counter()
    for *row, diff in log.drop("version").rows():
        total[repr(row)] += diff
    return Counter({row: count for row, count in total.items() if count})


@pytest.mark.parametrize("seed", nightly(seeds(30, share=10), 3))
def test_a_forecast_is_what_happens(seed: int, tmp_path: Path) -> None:
    """A random program changes in a random way: outputs change as forecast, and the arrangements are built."""
    drawn, rng = usable(seed), random.Random(seed)
    project = project_of(tmp_path / "project", drawn)
    last = max(version for frame in drawn.frames.values() for version in frame["version"].to_list())
    replay.run(project, engine="inline")
    plan = load_plan(project)
    before = {name: rows_of(project, name) for name in plan.outputs}
    (project.root / "program.py").write_text(changed(drawn, rng))
    try:
        found = _comparison(project)
        forecast = {one.output: one.rows for one in Forecast(project).rows()}
    except DdError:
        with pytest.raises(DdError):
            replay.run(project, engine="inline")
        return
    report = replay.run(project, engine="inline")
    if report.corrections:
        replay.run(project, last=time_of(last + 1), engine="inline")
    built = sum(one.change == "built" for one in found.arrangements)
    kept = sum(one.change == "kept" for one in found.arrangements)
    if found.fingerprint != found.former.fingerprint:
        assert f"kept {kept} of {kept + built} arrangements, built {built}" in report.notes[0]
    for one in found.outputs:
        if one.change == "dropped":
            continue
        rows = {repr([*row]): diff for *row, diff in forecast[one.output].rows()}
        was = before.get(one.output, Counter()) if one.change != "new" else Counter[Any]()
        if one.change == "new" and one.output in before:
            continue
        expected = Counter({row: was[row] + rows.get(row, 0) for row in {*was, *rows}})
        assert Counter({row: n for row, n in expected.items() if n}) == rows_of(project, one.output), one
        assert (one.change == "unchanged") <= (not rows)


def _comparison(project: Project) -> Comparison:
    ledger = Ledger.load(Warehouse(project.warehouse))
    run = ledger.current_run()
    assert run is not None
    return compared(load_plan(project), of_run(ledger, run, project.dims))
