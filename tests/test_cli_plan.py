"""``dd plan``: the listing, its other forms, files, and mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from trams import records

SHOP = """
[project]
program = "shop.sql"
warehouse = "warehouse"
[inputs.orders]
schema = { id = "int64", who = "string", total = "int64", note = "string" }
[inputs.people]
schema = { who = "string", town = "string" }
[inputs.towns]
schema = { town = "string", country = "string", area = "int64" }
"""
PAGE = Path(__file__).resolve().parent.parent / "docs" / "plan.md"


def block(kind: str) -> list[str]:
    """The lines of the block of this kind on the page."""
    (text,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return str(text).splitlines()


def sizeless(lines: list[str]) -> list[str]:
    """Without the sizes of files, which depend on the version of the library that writes them."""
    return [re.sub(r" +[\d.]+ k?B ", " SIZE ", re.sub(r" +size ", " size ", line)) for line in lines]


def test_the_page_shows_what_the_command_says(here: Path, dd: Any) -> None:
    code, out, err = dd("plan")
    assert (code, err) == (0, [])
    assert sizeless(out) == sizeless(block("text"))
    assert dd("plan", "--format", "mermaid") == (0, block("mermaid"), [])


def test_the_page_shows_what_planning_of_sql_decided(tmp_path: Path, dd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    query, shown = "\n".join(block("console")).removeprefix("$ cat shop.sql\n").split("$ ddcore plan\n...\n")
    (tmp_path / "shop.sql").write_text(query)
    (tmp_path / "dd.toml").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    code, out, _ = dd("plan")
    assert code == 0 and shown.removesuffix("\n...") in "\n".join(out)
    (plan,) = records(dd("plan", "--json")[1])
    assert plan["inputs"][0] == {
        "input": "orders", "columns_read": ["id", "who", "total"], "columns_not_read": ["note"],
    }  # fmt: skip
    assert [decision["kind"] for decision in plan["decisions"]] == ["joined", "before the joins"]
    (shared,) = plan["shared"]
    assert plan["operators"][shared["operator"] - 1]["title"] == "agg by town"
    assert shared["also_at"] == ["shop.sql:6:59"]


def test_the_listing_fits_into_100_columns(here: Path, dd: Any) -> None:
    assert max(map(len, dd("plan")[1])) <= 100


def test_a_project_without_a_warehouse(fresh: Path, dd: Any) -> None:
    code, out, _ = dd("plan")
    assert code == 0 and not (fresh / "warehouse").exists()
    assert [re.split(r"  +", line)[4:6] for line in out if re.match(r"A\d", line)] == [["-", "-"]] * 4


def test_json_has_the_sizes_on_disk(here: Path, dd: Any) -> None:
    code, out, _ = dd("plan", "--json")
    (plan,) = records(out)
    assert code == 0 and plan["schema_version"] == 1
    assert dd("plan", "--format", "json")[1] == out
    tables = {table["name"]: table for table in records(dd("status", "--json")[1])[0]["tables"]}
    for arrangement in plan["arrangements"]:
        stored = tables[arrangement["table"].removeprefix("state/")]
        assert (arrangement["updates"], arrangement["bytes"]) == (stored["rows"], stored["bytes"])
    join = next(operator for operator in plan["operators"] if operator["title"] == "join on stop = src")
    assert join["source_lines"] == ["program.py:11"] and join["loop"] == 1
    assert join["reads"] == [
        {"from": 4, "next_round": False, "arrangement": "A2"}, {"from": 1, "next_round": False, "arrangement": "A1"},
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["text", "mermaid", "svg", "json"])
def test_a_file_has_what_stdout_would(here: Path, dd: Any, tmp_path: Path, form: str) -> None:
    shown = dd("plan", "--format", form)[1]
    assert dd("plan", "--format", form, "-o", str(tmp_path / "plan")) == (0, [], [])
    text = (tmp_path / "plan").read_text("utf-8")
    assert text.splitlines() == shown != []
    if form == "svg":
        assert ElementTree.fromstring(text).tag.endswith("svg")
    if form == "json":
        assert json.loads(text)["program"] == "program.py:program"


def test_prints_of_the_program_are_no_part_of_the_plan(fresh: Path, dd: Any) -> None:
    before = dd("plan", "--json")[1]
    text = (fresh / "program.py").read_text()
    (fresh / "program.py").write_text(text + "\nprint('loaded')\n")
    code, out, err = dd("plan", "--json")
    assert (code, out, err) == (0, before, ["loaded"])


def test_a_program_that_is_not_folded_yet_has_no_sizes(copied: Path, dd: Any) -> None:
    """Its arrangements are others; those that both programs have keep their sizes."""
    text = (copied / "program.py").read_text()
    (copied / "program.py").write_text(text.replace('col("minutes")', 'col("minutes") + 1'))
    arrangements = records(dd("plan", "--json")[1])[0]["arrangements"]
    assert [arrangement["updates"] is None for arrangement in arrangements] == [False, True, True, True]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--format", "dot"], 2, r"error: --format 'dot': there is no such format\n  text, mermaid, svg, json"),
        (["--format", "sgv"], 2, r"error: --format 'sgv': there is no such format\n  did you mean 'svg'\?"),
        (["-o", "no/such/x.svg"], 1, r"error: no/such/x.svg: No such file or directory\n  name a file in a folder .*"),
        (["-o", "."], 1, r"error: \.: Is a directory\n  .+"),
        (["-o", ""], 2, r"error: .*the value is empty.*\n  see: .*"),
    ],
)
def test_mistakes(here: Path, dd: Any, arguments: list[str], code: int, message: str) -> None:
    actual, out, err = dd("plan", *arguments)
    assert (actual, out) == (code, [])
    assert re.fullmatch(message, "\n".join(err))


def test_a_program_that_cannot_be_built(fresh: Path, dd: Any) -> None:
    text = (fresh / "program.py").read_text()
    (fresh / "program.py").write_text(text.replace('col("minutes")', 'col("minute")'))
    code, out, err = dd("plan")
    assert (code, out) == (1, [])
    assert err[0].startswith("error: program.py:12: ") and "minute" in err[0]
