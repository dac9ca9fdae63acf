"""The pages of ``dd report`` and ``dd diff --html``: what is in them, and that no value of the data becomes markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from notation import frame
from programs import Case
from warehouses import project_of, take_in

from ddcore.cli.charts import bars, curve, heat_map, short
from ddcore.cli.main import run_command
from ddcore.cli.page import Html, joined, page, tag
from ddcore.io.ledger.profiles import HeatRecord
from ddcore.jobs import replay
from ddcore.jobs.running.profiles import merged

REACH = """
def program(edges):
    def longer(paths):
        return paths.join(edges, on={"b": "a"}).select("a", b="b_right").concat(edges).distinct()

    return {"paths": edges.iterate(longer)}
"""
EVIL = "</td><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[31m\u202e"


class Page(HTMLParser):
    """Reads a page: its elements, and that every one that is opened is closed."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f" {data}" if self.open and self.open[-1] != "style" else ""

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]


def checked(text: str) -> Page:
    """A page that needs nothing else: no script, no address, no handler of events, in ASCII."""
    assert text.isascii() and text.startswith("<!doctype html>")
    read = Page(text)
    assert {tag for tag, _ in read.elements}.isdisjoint({"script", "link", "iframe", "object", "img", "a", "base"})
    for _, attributes in read.elements:
        assert not any(name.startswith("on") or name in ("href", "src", "action") for name in attributes)
    assert "url(" not in re.sub(r"url\(#\w+\)", "", text) and "@import" not in text
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for attributes in read.all("svg"):
        assert attributes.get("role") == "img"
    return read


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with two runs."""
    scope: dict[str, Any] = {}
    exec(REACH, scope)
    edges = frame("a b", "(0,1),(1,2),(2,3),(3,4):+1@0 (1,2):-1@1 (4,5):+1@2")
    project = project_of(tmp_path / "reach", Case(0, REACH, scope["program"], {"edges": edges}))
    replay.run(project, engine="inline")
    take_in(project, "edges", frame("a b", "(5,6):+1@4"))
    replay.run(project, engine="inline")
    return project.root


def written(folder: Path, *words: str, code: int = 0) -> str:
    file = folder / "page.html"
    assert run_command([*words, "--project", str(folder), "-o", str(file)]) == code
    return file.read_text()


def test_report_of_the_newest_run(folder: Path) -> None:
    read = checked(written(folder, "report"))
    assert "reach: run 2" in read.text and "join on b = a" in read.text and "program.py:4" in read.text
    for heading in ("Dataflow", "Operators", "Differences by version and round", "Outputs", "Growth", "Sources"):
        assert f" {heading} " in f"{read.text} "
    assert "paths: 11 rows after 4" in read.text  # one of the edge 0-1, ten of the chain from 2 to 6
    drawings = [item for item in read.all("svg") if item.get("class") == "dataflow"]
    assert len(drawings) == 1
    assert {item.get("class") for item in read.all("rect")} >= {"frame", "operator", "input", "output", "share", "none"}


def test_report_of_a_range_adds_up(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, first = checked(written(folder, "report", "1", "2")), checked(written(folder, "report", "1"))
    assert "reach: runs 1 to 2" in whole.text and " Runs " in whole.text and "reach: run 1" in first.text
    edges = [re.search(r"input edges\s+(\d+) out", item.text) for item in (first, whole)]
    assert [int(edge[1]) for edge in edges if edge] == [6, 7]
    assert run_command(["report", "7", "--project", str(folder)]) == 2
    assert "there are runs 1 to 2" in capsys.readouterr().err
    assert run_command(["report", "--project", str(folder), "-o", "-"]) == 0
    checked(capsys.readouterr().out)
    assert run_command(["report", "--project", str(folder), "-o", str(folder / "no" / "page.html")]) == 1
    assert "no/page.html" in capsys.readouterr().err


def test_a_report_before_any_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, Any] = {}
    exec(REACH, scope)
    project = project_of(tmp_path / "p", Case(0, REACH, scope["program"], {"edges": frame("a b", "(0,1):+1@0")}))
    assert run_command(["report", "--project", str(project.root)]) == 2
    assert "there is no run yet" in capsys.readouterr().err
    assert not Path("report.html").exists()


def test_values_do_not_become_markup(tmp_path: Path) -> None:
    """Names of sources, loops, keys and values in rows may hold anything."""
    source = 'import ddcore as dd\ndef program(words):\n    return {"n": words.group_by("w").agg(n=dd.count())}\n'
    scope: dict[str, Any] = {}
    exec(source, scope)
    words = frame("w", "x:+1@0 y:+1@1").with_columns(w=pl.lit(EVIL))
    project = project_of(tmp_path / "<b>evil", Case(0, source, scope["program"], {"words": words}))
    replay.run(project, engine="inline")
    report = written(project.root, "report")
    assert "&lt;b&gt;evil: run 1" in report
    checked(report)
    diff = written(project.root, "diff", "n", "..latest", "--html")
    read = checked(diff)
    assert "&lt;script&gt;alert(1)" in diff and "<script>alert(1)</script>" in read.text
    assert "\\x1b[31m\\u202e" in read.text


def test_diff_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read = checked(written(folder, "diff", "paths", "0", "1", "--html"))
    rows = [item.get("class") for item in read.all("tr")]
    assert rows.count("minus") == 6 and rows.count("plus") == 0
    assert "paths (a int64, b int64)" in read.text and "-6" in read.text
    limited = checked(written(folder, "diff", "paths", "0", "1", "--html", "--limit", "2"))
    assert "4 more rows are not listed" in limited.text
    changed = checked(written(folder, "diff", "paths", "1", "2", "--html", "--key", "b", "--exit-code", code=3))
    assert [item.get("class") for item in changed.all("tr")].count("plus") > 0
    nothing = checked(written(folder, "diff", "paths", "2", "3", "--html"))
    assert "Nothing changed." in nothing.text
    for words in (["--json"], ["--stat"]):
        assert run_command(["diff", "paths", "0", "1", "--html", *words, "--project", str(folder)]) == 2
    assert run_command(["diff", "paths", "0", "1", "-o", "x.html", "--project", str(folder)]) == 2
    assert "add --html" in capsys.readouterr().err


def test_changed_cells_show_both_values(tmp_path: Path) -> None:
    source = 'import ddcore as dd\ndef program(x):\n    return {"n": x.group_by("k").agg(n=dd.sum("v"))}\n'
    scope: dict[str, Any] = {}
    exec(source, scope)
    rows = frame("k v", "(1,10):+1@0 (1,5):+1@1")
    project = project_of(tmp_path / "p", Case(0, source, scope["program"], {"x": rows}))
    replay.run(project, engine="inline")
    diff = written(project.root, "diff", "n", "0", "1", "--html", "--key", "k")
    assert "<del>10</del> <ins>15</ins>" in diff


@pytest.mark.parametrize(("name", "begins"), [("a.svg", "<?xml"), ("a.mmd", "flowchart"), ("a.json", "{"), ("a", "p")])
def test_plan_chooses_the_form_by_the_name_of_the_file(folder: Path, name: str, begins: str) -> None:
    assert run_command(["plan", "--project", str(folder), "-o", str(folder / name)]) == 0
    assert (folder / name).read_text().startswith(begins)


# --- charts -----------------------------------------------------------------------------------------------------------


def test_text_is_escaped_once() -> None:
    assert tag("p", "a<b", tag("b", "&"), class_='"x"') == '<p class="&quot;x&quot;">a&lt;b<b>&amp;</b></p>'
    assert joined(["<", Html("<br/>")], "&") == "&lt;&amp;<br/>"
    checked(page("<title>", tag("p", EVIL)))


@pytest.mark.parametrize("count", [1, 2, 399, 5000])
def test_charts_stay_small_and_inside(count: int) -> None:
    points = [(str(3 * number), number % 17 - (5 if number % 2 else 0)) for number in range(count)]
    text = curve("rows", points)
    assert len(re.findall("<circle", text)) <= 401
    _, _, width, height = (float(part) for part in re.search(r'viewBox="([^"]+)"', text)[1].split())  # type: ignore[index]
    for x, y in re.findall(r'cx="([\d.e+-]+)" cy="([\d.e+-]+)"', text):
        assert 0 <= float(x) <= width and 0 <= float(y) <= height
    assert "5" in bars("x", [("run 1", 5)]) and "nan" not in text


def test_heat_map_names_every_cell() -> None:
    text = heat_map("d", ["0", "1"], ["outside loops", "0"], {(0, 0): 1, (1, 1): 1000})
    assert "version 0, outside loops: 1 differences" in text and "version 1, round 0: 1,000 differences" in text
    strengths = [float(item) for item in re.findall(r'fill-opacity="([\d.]+)"', text)]
    assert len(strengths) == 2 and strengths[0] < strengths[1] == 1.0


def test_heats_of_runs_are_merged_in_few_ranges() -> None:
    heats = [HeatRecord(1, 1, tuple((v, r, 1) for v in range(b, b + 60) for r in (-1, 0, 40))) for b in (0, 60, 120)]
    whole = merged(heats)
    assert whole.versions == 4 and whole.rounds == 2
    assert sum(number for _, _, number in whole.cells) == 540
    assert {current for _, current, _ in whole.cells} == {-1, 0, 40}


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (950, "950"), (1200, "1.2k"), (3_400_000, "3.4M"), (2e9, "2G")])
def test_short_numbers(value: float, text: str) -> None:
    assert short(value) == text
