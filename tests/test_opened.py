"""``dd.open``: what it gives is what the commands show, as frames of every library; it only reads."""

from __future__ import annotations

import doctest
import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pages import DOCS
from trams import Command, records

import ddcore
from ddcore.base.errors import DdError, StorageError, UsageError
from ddcore.io.reading.log_rows import Rows
from ddcore.io.reading.opened import OpenedProject
from ddcore.io.storage.warehouse import Warehouse
from ddcore.planning.planner import build

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSIONS = range(1, 6)


@pytest.fixture
def project(folded: Path, dd: Command) -> OpenedProject:
    """The trams, five versions, folded; ``dd`` clears the environment."""
    return ddcore.open(folded)


def counts(rows: Rows) -> dict[tuple[Any, ...], int]:
    """Rows with their diffs."""
    return {row[:-1]: row[-1] for row in rows.polars().rows()}


def files(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(file): (file.stat().st_size, file.stat().st_mtime_ns)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }


# -- what it gives ----------------------------------------------------------------------------------------------------


def test_the_rows_at_every_version_are_those_of_show(project: OpenedProject, here: Path, dd: Command) -> None:
    for version in VERSIONS:
        _, out, _ = dd("show", "journeys", "--at", str(version), "--json")
        shown = {tuple(line["row"].values()): line["count"] for line in records(out)[2:]}
        assert counts(project["journeys"].at(version)) == shown and shown


def test_the_rows_between_any_two_versions_are_those_of_diff(project: OpenedProject, here: Path, dd: Command) -> None:
    log = project["journeys"]
    for a, b in itertools.product([None, *VERSIONS], VERSIONS):
        _, out, _ = dd("diff", "journeys", f"{'' if a is None else a}..{b}", "--json")
        shown = {tuple(line["row"].values()): line["diff"] for line in records(out)[2:]}
        assert counts(log.between(a, b)) == shown


@pytest.mark.parametrize("name", ["journeys", "links", "starts"])
def test_updates_add_up_to_the_rows(project: OpenedProject, name: str) -> None:
    log = project[name]
    for a, b in itertools.combinations([None, *VERSIONS], 2):
        frame = log.updates(a, b).polars()
        assert frame["version"].is_between((a or 0) + 1, b).all()
        assert frame.rows() == sorted(frame.rows(), key=lambda row: (row[-2], row))
        sums = frame.group_by(log.columns).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
        assert {row[:-1]: row[-1] for row in sums.rows()} == counts(log.between(a, b))


def test_a_notebook_completes_the_names(project: OpenedProject) -> None:
    assert project._ipython_key_completions_() == ["journeys", "links", "starts"]
    assert (project.outputs._ipython_key_completions_(), project.inputs._ipython_key_completions_()) == (
        ["journeys"], ["links", "starts"],
    )  # fmt: skip


def test_an_input_is_what_was_ingested(project: OpenedProject, here: Path) -> None:
    given = pl.read_csv(here / "data" / "links.csv")
    fresh = project.inputs["links"].updates().polars()
    assert sorted(fresh.rows()) == sorted(given.select(fresh.columns).rows())


def test_the_law_holds_between_inputs_and_outputs(project: OpenedProject) -> None:
    """The program of the project on the inputs' updates gives the output's: ``replay`` takes what ``open`` gives."""
    inputs: dict[str, Any] = {name: log.updates() for name, log in project.inputs.items()}
    from ddcore.io.project.program import load_program

    again = ddcore.replay(load_program(project.settings), **inputs)
    assert again.keys() == project.outputs.keys()
    for name, log in project.outputs.items():
        assert again[name].rows() == log.updates().polars().rows() and len(again[name])


def test_frames_of_every_library(project: OpenedProject) -> None:
    for rows in (project["journeys"].at(3), project["journeys"].between(3, 4), project["links"].updates()):
        frame = rows.polars()
        assert len(rows) == len(frame) and frame.columns == rows.columns == list(rows.schema)
        assert rows.arrow().schema == pa.schema([(name, kind.arrow) for name, kind in rows.schema.items()])
        assert isinstance(rows.pandas(), pd.DataFrame)
        for other in (pl.DataFrame(rows), pl.DataFrame(rows.pandas()), pl.DataFrame(rows.arrow())):
            assert other.rows() == frame.rows()
        assert pa.table(rows) == rows.arrow()


@pytest.mark.spark
def test_spark_reads_the_same_rows(project: OpenedProject, spark: SparkSession) -> None:
    for log in (project["journeys"], project["links"]):
        for rows in (log.at(3), log.at(), log.between(3, 4), log.between(4, 3), log.between(None, 2),
                     log.updates(), log.updates(2), log.updates(None, 3), log.updates(2, 4)):  # fmt: skip
            frame = rows.spark(spark)
            assert frame.columns == rows.columns
            assert sorted(map(tuple, frame.collect())) == sorted(rows.polars().rows())
    assert project["links"].at(3).spark().count() == len(project["links"].at(3)), "the active session"


def test_without_spark_it_says_what_to_give(project: OpenedProject, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no Spark session, but str"):
        project["journeys"].at(3).spark("local[2]")  # type: ignore[arg-type]
    monkeypatch.setattr("ddcore.io.reading.log_rows.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="there is no Spark session"):
        project["journeys"].at(3).spark()
    with pytest.raises(UsageError, match="pandas is not installed") as caught:
        project["journeys"].at(3).pandas()
    assert ".polars()" in caught.value.hint


# -- names of versions ------------------------------------------------------------------------------------------------


@pytest.fixture
def labelled(copied: Path, dd: Command) -> OpenedProject:
    """The trams with a sixth and a seventh version, which have labels, and a row that is markup."""
    for version, (stop, label) in enumerate([("<script>alert(1)</script>", "2026-11-19"), ("Moon", "<b>moon</b>")], 6):
        (copied / "more.csv").write_text(f"src,dst,minutes,version,diff\nZoo,{stop},9,{version},1\n")
        assert dd("ingest", "links", "more.csv", "--label", label)[0] == 0
    assert dd("run")[0] == 0
    return ddcore.open()


def test_versions_by_number_label_and_date(labelled: OpenedProject) -> None:
    log = labelled["journeys"]
    assert log.latest == 7
    sixth, seventh = counts(log.at(6)), counts(log.at(7))
    assert sixth != seventh
    for version in ("6", "2026-11-19", date(2026, 11, 19), "version=6", {"version": 6}, (6,), -1, "latest-1",
                    datetime(2026, 11, 19, 12), datetime(2026, 11, 19, 12, tzinfo=UTC)):  # fmt: skip
        assert counts(log.at(version)) == sixth, version
    for version in ("latest", "<b>moon</b>"):
        assert counts(log.at(version)) == seventh == counts(log.at()), version
    assert counts(log.between("2026-11-19", "<b>moon</b>")) == counts(log.between(6, 7)) == counts(log.between(6))


def test_times_of_two_dimensions(tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dd("init", str(tmp_path / "figures"), "--example", "bitemporal")[0] == 0
    monkeypatch.chdir(tmp_path / "figures")
    project = ddcore.open()
    (name,) = project.inputs
    for source in sorted((tmp_path / "figures" / "data").glob("*")):
        assert dd("ingest", name, str(source))[0] == 0
    assert dd("run")[0] == 0
    output = sorted(project.outputs)[0]
    log, (first, second) = project[output], project[output].dims
    top = log._log.readable.tops[0]
    assert isinstance(top, tuple)
    text = f"{first}={top[0]},{second}={top[1]}"
    assert counts(log.at(text)) == counts(log.at(top)) == counts(log.at(dict(zip(log.dims, top, strict=True))))
    before = (top[0], 0)
    assert counts(log.between(before, top)) == counts(log.between(f"{first}={top[0]},{second}=0", text))
    sums = log.updates(None, top).polars().group_by(log.columns).agg(pl.col("diff").sum())
    assert {row[:-1]: row[-1] for row in sums.rows() if row[-1]} == counts(log.at(top))
    with pytest.raises(UsageError, match="is not a time of") as caught:
        log.at(3)
    assert first in str(caught.value)
    assert "folded up to" in repr(log) and first in log._repr_html_()


# -- it only reads ----------------------------------------------------------------------------------------------------


def test_nothing_is_written_and_no_lock_is_taken(copied: Path, dd: Command) -> None:
    before = files(copied)
    with Warehouse(copied / "warehouse").lock("run"):
        project = ddcore.open(copied)
        for log in (*project.outputs.values(), *project.inputs.values()):
            assert len(log.at()) + len(log.between(1)) + len(log.updates())
        assert len(project.log()) and project.plan().outputs.keys() == project.outputs.keys()
        during = files(copied)
    assert {Path(name).name for name, _ in before.items() ^ during.items()} <= {".lock"}, "that of the test itself"


def test_a_log_stays_as_it_was_and_the_project_goes_on(copied: Path, dd: Command) -> None:
    project = ddcore.open(copied)
    old, rows = project["journeys"], counts(project["journeys"].at())
    waiting = project["links"]
    (copied / "more.csv").write_text("src,dst,minutes,version,diff\nZoo,Moon,9,6,1\n")
    assert dd("ingest", "links", "more.csv")[0] == 0
    assert "1 ingest waits for a run" in repr(project)
    assert len(project["links"].updates()) == len(waiting.updates()) + 1, "also what waits"
    with pytest.raises(UsageError, match="not yet complete"):
        project["links"].at(6)
    assert dd("run")[0] == 0
    assert (old.latest, counts(old.at())) == (5, rows)
    assert project["journeys"].latest == 6 and counts(project["journeys"].at()) != rows


# -- where something is wrong -----------------------------------------------------------------------------------------

WRONG: list[tuple[Callable[[OpenedProject], Any], str, str]] = [
    (lambda p: p["journey"], "there is no input or output 'journey'; there are: journeys", "'journeys'"),
    (lambda p: p[3], "there is no input or output 3", "ddcore run"),  # type: ignore[index]
    (lambda p: p.outputs["links"], "no output 'links'", "links is an input"),
    (lambda p: p.inputs["link"], "no input 'link' in", "did you mean 'links'"),
    (lambda p: p.outputs[None], "None is no name of an output", "journeys"),  # type: ignore[index]
    (lambda p: p["journeys"].at(9), "journeys: at: version 9 is not yet complete", "ddcore status"),
    (lambda p: p["journeys"].at(0), "version 0 is before the first one, 1", "folded are versions 1..5"),
    (lambda p: p["journeys"].at(None), "journeys: at: None is not a version", "give a number"),  # type: ignore[arg-type]
    (lambda p: p["journeys"].at(True), "journeys: at: True is not a version", "give a number"),
    (lambda p: p["journeys"].at(2.5), "2.5 is not a version", "give a number"),  # type: ignore[arg-type]
    (lambda p: p["journeys"].at("noon"), "'noon' is not a version", "a label"),
    (lambda p: p["journeys"].at((1, 2)), "(1, 2) is not a version", "give a number"),
    (lambda p: p["journeys"].between(1, 9), "journeys: end: version 9 is not yet", "ddcore status"),
    (lambda p: p["journeys"].updates(4, 2), "version 2 is not at or after version 4", "the earlier one first"),
    (lambda p: ddcore.open(3), "dd.open: 3 is no project", 'dd.open("demo")'),  # type: ignore[arg-type]
    (lambda p: ddcore.open(""), "dd.open: the name of the project is empty", 'dd.open("demo")'),
    (lambda p: ddcore.open("nowhere"), "dd.open: nowhere is not a project folder", "ddcore init nowhere"),
    (lambda p: ddcore.open(p.settings.root.parent), "dd.open: there is no dd.toml in", "ddcore init"),
    (lambda p: ddcore.open("a\0b"), "dd.open: 'a\\x00b' has a NUL character", "no path"),
    (lambda p: ddcore.open(warehouse=3), "dd.open: warehouse is 3", "name a folder"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("mistake", "says", "hint"), WRONG, ids=[says for _, says, _ in WRONG])
def test_a_mistake_is_one_line_with_what_to_do(
    project: OpenedProject, mistake: Callable[[OpenedProject], Any], says: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        mistake(project)
    assert says in caught.value.message and hint in caught.value.hint
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("part", ["warehouse", "warehouse/outputs", "data", "program.py"])
def test_a_place_inside_of_a_project_is_not_offered_to_init(
    part: str, copied: Path, monkeypatch: pytest.MonkeyPatch, dd: Command
) -> None:
    monkeypatch.chdir(copied.parent)
    with pytest.raises(UsageError) as caught:
        ddcore.open(f"{copied.name}/{part}")
    assert caught.value.hint == f'did you mean dd.open("{copied.name}")?'
    code, _, err = dd("status", "--project", f"{copied.name}/{part}")
    assert (code, err[1:]) == (2, [f"  did you mean --project {copied.name}?"])
    monkeypatch.setenv("DDCORE_PROJECT", f"{copied.name}/{part}")
    assert dd("status")[2][1:] == [f"  did you mean DDCORE_PROJECT={copied.name}?"]
    monkeypatch.delenv("DDCORE_PROJECT")
    monkeypatch.chdir(copied / "data")
    assert dd("status", "--project", ".")[2][1:] == [f"  did you mean --project {copied}?"]


def test_hints_of_open_are_python(copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: list[tuple[Callable[[], Any], str]] = [
        (ddcore.open, 'name its folder: dd.open("demo"); or make one, in a shell: ddcore init demo'),
        (lambda: ddcore.open(copied, warehouse=str(copied / "dd.toml")), 'name another one: dd.open(warehouse="DIR")'),
        (lambda: ddcore.open("a.txt"), "name the folder of a project, in which there is a dd.toml"),
        (
            lambda: ddcore.open(copied, warehouse="/nowhere")["journeys"],
            "outputs are in the warehouse, and there is none in /nowhere: check the path; "
            "a new one begins with: ddcore ingest INPUT SOURCE",
        ),
    ]
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.txt").write_text("")
    monkeypatch.chdir(tmp_path / "empty")
    for mistake, hint in wrong:
        with pytest.raises(UsageError) as caught:
            mistake()
        assert caught.value.hint == hint
    with pytest.raises(UsageError, match=r"^dd\.open: warehouse: the path is empty"):
        ddcore.open(copied, warehouse="")


def test_the_plan_has_as_many_operators_as_the_command_says(project: OpenedProject, here: Path, dd: Command) -> None:
    assert repr(project.plan()) == "Plan(links, starts -> journeys: 10 operators)"
    assert "10 operators" in dd("plan")[1][1]


def test_names_that_are_not_there_by_the_rules_of_mappings(project: OpenedProject) -> None:
    assert "journeys" in project.outputs and "links" not in project.outputs
    assert project.outputs.get("links") is None and project.outputs.get("links", 1) == 1
    assert [*project.inputs] == ["links", "starts"] and len(project.inputs) == 2


def test_a_project_before_anything_is_ingested_and_before_it_is_folded(fresh: Path, dd: Command) -> None:
    project = ddcore.open(fresh)
    assert "there is no warehouse" in repr(project) and "links" in project._repr_html_()
    assert [*project.outputs] == [] and "no output yet" in project.outputs._repr_html_()
    assert project.plan().outputs.keys() == {"journeys"}
    with pytest.raises(StorageError):
        project.log()
    assert dd("ingest", "links", str(fresh / "data" / "links.csv"))[0] == 0
    assert "nothing is folded, 1 ingest waits" in repr(project)
    with pytest.raises(UsageError, match="nothing is folded yet") as caught:
        project["links"].at()
    assert "ddcore run" in caught.value.hint
    assert len(project["links"].updates()) == pl.read_csv(fresh / "data" / "links.csv").height
    assert len(project["starts"].updates()) == 0 and "not folded yet" in repr(project["starts"])
    with pytest.raises(UsageError, match="starts has no table yet"):
        project["starts"].updates().spark()
    for item in (project, project.inputs, project["links"], project["starts"], project["starts"].updates()):
        check_html(item._repr_html_())


def test_a_damaged_table_is_a_storage_error(copied: Path, dd: Command) -> None:
    log = ddcore.open(copied)["journeys"]
    for file in (copied / "warehouse" / "outputs" / "journeys").glob("*.parquet"):
        file.unlink()
    with pytest.raises(StorageError, match="is missing"):
        log.at().polars()


def test_another_warehouse_and_the_environment(
    copied: Path, tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.move(copied / "warehouse", tmp_path / "moved")
    with pytest.raises(DdError):
        ddcore.open(copied)["journeys"]
    assert len(ddcore.open(copied, warehouse=str(tmp_path / "moved"))["journeys"].at())
    monkeypatch.setenv("DDCORE_WAREHOUSE", str(tmp_path / "moved"))
    monkeypatch.setenv("DDCORE_PROJECT", str(copied))
    monkeypatch.chdir(tmp_path)
    assert len(ddcore.open()["journeys"].at()) == len(ddcore.open(copied / "dd.toml")["journeys"].at())


# -- in a notebook ----------------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """The elements of a piece of HTML; fails where they are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)


def check_html(html: str) -> str:
    """The text of a piece: well formed, in ASCII, for light and dark pages, without scripts and addresses."""
    tags = Tags()
    tags.feed(html)
    tags.close()
    assert tags.open == [] and html.isascii() and html.startswith('<div class="ddcore"><style>')
    assert not {"script", "link", "img", "iframe", "b"} & {*tags.seen}
    assert "://" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "prefers-color-scheme: dark" in html and 'data-jp-theme-light="false"' in html
    return " ".join(" ".join(tags.text).split())


def pieces(project: OpenedProject) -> Iterator[Any]:
    yield from (project, project.inputs, project.outputs, project.log(), project.log()[:2], project.plan())
    for log in (*project.inputs.values(), *project.outputs.values()):
        yield from (log, log.at(), log.at(1), log.between(1), log.between(None, 1), log.between(2, 2), log.updates())


def test_everything_shows_itself_as_html_and_text(project: OpenedProject) -> None:
    for piece in pieces(project):
        assert check_html(piece._repr_html_())
        assert ("object at 0x" not in repr(piece) and repr(piece).isprintable()) or "\n" in repr(piece)


def test_values_and_labels_are_escaped(labelled: OpenedProject) -> None:
    markup = re.compile(r"<(script|b)>")
    for piece in pieces(labelled):
        assert not markup.search(piece._repr_html_())
    log = labelled["links"]
    for item in (log.at(6), log.between(5, 6), log.updates(5, 6)):
        assert "<script>alert(1)</script>" in check_html(item._repr_html_())
    assert "<b>moon</b>" in check_html(log._repr_html_()) and "<b>moon</b>" in check_html(log.at()._repr_html_())


def test_changes_are_paired_by_key_and_marked(copied: Path, dd: Command) -> None:
    with (copied / "dd.toml").open("a") as settings:
        settings.write(
            '\n[outputs.journeys]\nkey = ["stop"]\n' if "[outputs" not in (copied / "dd.toml").read_text() else ""
        )
    log = ddcore.open(copied)["journeys"]
    assert log.key == ("stop",)
    for a, b in itertools.combinations(VERSIONS, 2):
        html, rows = log.between(a, b)._repr_html_(), log.between(a, b).polars()
        if not len(rows):
            assert "Nothing changed." in html
            continue
        stops = {sign: {*rows.filter(pl.col("diff").sign() == sign)["stop"]} for sign in (1, -1)}
        both = len(stops[1] & stops[-1])
        assert [html.count(f'<tr class="{kind}">') for kind in ("plus", "minus", "change")] == [
            len(stops[1]) - both, len(stops[-1]) - both, both,
        ]  # fmt: skip
        assert html.count("<del>") == html.count("<ins>") == both == repr(log.between(a, b)).count(" -> ")


def test_many_rows_are_counted_and_not_all_shown(tmp_path: Path, copied: Path, dd: Command) -> None:
    rows = "".join(f"A{number},B,1,6,1\n" for number in range(1_250))
    (copied / "more.csv").write_text(f"src,dst,minutes,version,diff\n{rows}")
    assert dd("ingest", "links", "more.csv")[0] == dd("run")[0] == 0
    rows_of = ddcore.open(copied)["links"].between(5, 6)
    assert "+1,250 -0" in repr(rows_of) and repr(rows_of).endswith("... and 1,230 more")
    assert "1,230 more rows are not shown." in check_html(rows_of._repr_html_())


def test_the_history_is_that_of_log(project: OpenedProject, here: Path, dd: Command) -> None:
    _, out, _ = dd("log", "--json")
    lines = records(out)
    history = project.log()
    assert len(history) == len(lines) == 3
    for record, line in zip(history, lines, strict=True):
        assert {name: line[name] for name in record if name in ("kind", "first", "last", "at")} == {
            name: record[name] for name in ("kind", "first", "last", "at")
        }
    _, shown, _ = dd("log")
    assert repr(history).splitlines() == shown


def test_a_collection_tells_its_columns_place_and_inputs() -> None:
    seen: list[ddcore.Collection] = []

    def program(edges: Any, roots: Any) -> dict[str, Any]:
        def body(reached: Any) -> Any:
            seen.append(reached)
            return reached.join(edges, on={"node": "src"}).select(node="dst").concat(roots).distinct()

        seen.extend([edges, roots.distinct(), roots.iterate(body)])
        return {"reached": seen[-1]}

    plan = build(program, {"edges": {"src": "int64", "dst": "int64"}, "roots": {"node": "int64"}})
    variable, edges, distinct, reached = seen
    texts = [check_html(item._repr_html_()) for item in (variable, edges, distinct, reached)]
    assert "variable at test_opened.py:" in texts[0] and "depends on edges, roots" in texts[0]
    assert "input edges" in texts[1] and "int64" in texts[1] and "reads" not in texts[1]
    assert "distinct at test_opened.py:" in texts[2] and texts[2].endswith("depends on roots")
    assert "iterate at test_opened.py:" in texts[3] and texts[3].endswith("depends on edges, roots")
    assert repr(plan) == f"Plan(edges, roots -> reached: {len(plan.operators)} operators)"
    assert "<svg " in plan._repr_html_() and check_html(plan._repr_html_())


# -- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_shows_what_happens(here: Path, dd: Command) -> None:
    page = DOCS / "notebooks.md"
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page.name, str(page), 0)
    said: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert result.attempted > 12 and result.failed == 0, "".join(said)


def test_a_session_of_spark_without_delta(project: OpenedProject) -> None:
    class Session:
        read = property(lambda self: self)

        def format(self, *_: object) -> Session:
            return self

        option = format

        def load(self, location: str) -> Session:
            raise RuntimeError("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta.")

    session: Any = Session()
    with pytest.raises(UsageError, match="cannot read Delta tables") as caught:
        project["journeys"].at(3).spark(session)
    assert "createDataFrame(rows.arrow())" in caught.value.hint
