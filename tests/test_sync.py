"""Declared sources, `ddcore sync`, and how fresh inputs are."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from trams import Command, journeys

from ddcore.base.errors import UsageError
from ddcore.cli.main import run_command
from ddcore.io.ledger.freshness import freshness, shown_age
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.finding import find_project
from ddcore.io.sources.intake import fitted
from ddcore.io.sources.layouts import Rules
from ddcore.io.sources.source import Source
from ddcore.io.storage.warehouse import Warehouse

PROJECT = """
[project]
program = "program.py:program"
[run]
engine = "inline"
[inputs.stock]
schema = { item = "string", n = "int64" }
key = ["item"]
{stock}
[inputs.sales]
schema = { item = "string", n = "int64" }
{sales}
"""
PROGRAM = """
import ddcore as dd


def program(stock, sales):
    sold = sales.group_by("item").agg(sold=dd.sum("n"))
    return {"left": stock.join(sold, on="item").select("item", left="n - sold")}
"""
SNAPSHOT = 'source = { path = "exports/stock-*.csv", snapshot = true }'
APPENDED = 'source = { path = "exports/sales-*.csv", append = true, column = { n = "amount" } }'


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dd: Command) -> Path:
    """A project with two declared sources, and the files of a first day; commands run in another folder."""
    del dd  # it clears the environment first
    declare(tmp_path / "shop", SNAPSHOT, APPENDED)
    (tmp_path / "shop" / "program.py").write_text(PROGRAM)
    monkeypatch.setenv("DDCORE_PROJECT", str(tmp_path / "shop"))
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "shop", "stock-1.csv", "item,n", ("nut", 10), ("bolt", 20))
    write(tmp_path / "shop", "sales-1.csv", "item,amount", ("nut", 3), ("nut", 1))
    return tmp_path / "shop"


def declare(folder: Path, stock: str, sales: str) -> None:
    (folder / "exports").mkdir(parents=True, exist_ok=True)
    (folder / "dd.toml").write_text(PROJECT.replace("{stock}", stock).replace("{sales}", sales))


def write(folder: Path, name: str, head: str, *rows: tuple[Any, ...]) -> None:
    lines = [head, *(",".join(map(str, row)) for row in rows)]
    (folder / "exports" / name).write_text("\n".join(lines) + "\n")


def left(folder: Path) -> dict[str, int]:
    log = pl.read_delta(str(folder / "warehouse" / "outputs" / "left"))
    rows = log.group_by("item", "left").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    assert rows["diff"].to_list() == [1] * len(rows)
    return dict(rows.select("item", "left").rows())


# --- the command ------------------------------------------------------------------------------------------------------


def test_one_command_takes_in_and_folds(shop: Path, dd: Command) -> None:
    code, out, err = dd("sync", "--json")
    result = json.loads(out[-1])
    assert (code, left(shop)) == (0, {"nut": 6})
    assert [one["input"] for one in result["ingests"]] == ["stock", "sales"] and result["command"] == "sync"
    assert result["run"]["outputs"] == {"left": {"plus": 1, "minus": 0}} and not result["nothing_new"]
    assert any(line.startswith("ingest=1 input=stock") for line in err)
    assert any(line.startswith("ingest=2 input=sales") for line in err)

    code, out, err = dd("sync", "--json", "--skip-code", "99")
    assert code == 99 and json.loads(out[-1])["nothing_new"]
    assert "note: stock: 1 snapshot was taken in before and is left out" in err
    assert [line for line in err if line.startswith("nothing new for")] == [
        "nothing new for stock: ingest 1 took in the same rows",
        "nothing new for sales: ingest 2 took in the same rows",
    ]

    write(shop, "stock-2.csv", "item,n", ("nut", 12), ("bolt", 20))
    write(shop, "sales-2.csv", "item,amount", ("bolt", 5))
    assert dd("sync")[0] == 0
    assert left(shop) == {"nut": 8, "bolt": 15}
    assert dd("verify")[0] == 0


def test_it_equals_ingests_by_hand_and_a_run(shop: Path, dd: Command, tmp_path: Path) -> None:
    assert dd("sync", "-q")[0] == 0
    by_hand = tmp_path / "hand"
    here = ("--warehouse", str(by_hand), "--new-warehouse", "-q")
    assert dd("ingest", "stock", f"{shop}/exports/stock-1.csv", "--snapshot", *here)[0] == 0
    sales = ("--append", "--column", "n=amount")
    assert dd("ingest", "sales", f"{shop}/exports/sales-1.csv", *sales, *here)[0] == 0
    assert dd("run", "--warehouse", str(by_hand), "-q")[0] == 0
    logs = [pl.read_delta(str(folder / "outputs" / "left")) for folder in (shop / "warehouse", by_hand)]
    assert logs[0].sort("item").equals(logs[1].sort("item"))


def test_a_source_that_fails_ends_it_and_nothing_is_folded(shop: Path, dd: Command) -> None:
    write(shop, "sales-1.csv", "item,amount", ("nut", "many"))
    code, out, err = dd("sync")
    assert (code, out) == (1, []) and "'many'" in err[-2]
    assert not (shop / "warehouse" / "outputs" / "left").exists()
    write(shop, "sales-1.csv", "item,amount", ("nut", 3))
    assert dd("sync")[0] == 0
    assert left(shop) == {"nut": 7}


def test_labels_and_late_hold_for_all_sources(shop: Path, dd: Command) -> None:
    assert dd("sync", "--label", "monday")[0] == 0
    code, out, _ = dd("show", "left", "--at", "monday", "--json")
    assert code == 0 and '"nut"' in out[2]
    code, _, err = dd("sync", "--late", "mov")
    assert code == 2 and "--late: 'mov' is none of refuse, move, restate" in err[0]


def test_without_a_declared_source_it_says_how_to_declare_one(shop: Path, dd: Command) -> None:
    declare(shop, "", "")
    code, _, err = dd("sync")
    assert (code, err[0]) == (2, "error: dd.toml declares no source of any input")
    assert 'source = { path = "..." }' in err[1]


# --- ingest of declared sources ---------------------------------------------------------------------------------------


def test_ingest_without_names_takes_in_each_declared_source(shop: Path, dd: Command) -> None:
    code, out, _ = dd("ingest", "--json")
    result = json.loads(out[-1])
    assert code == 0 and [one["rows"] for one in result["ingests"]] == [2, 2] and not result["nothing_new"]
    code, out, _ = dd("ingest", "sales", "--json", "--skip-code", "7")
    assert code == 7 and json.loads(out[-1])["input"] == "sales"


def test_options_of_the_command_come_before_what_is_declared(shop: Path, dd: Command) -> None:
    write(shop, "sales-1.csv", "item,n,version", ("nut", 2, 4))
    assert dd("ingest", "sales")[0] == 1  # the column "amount" that is declared
    assert dd("ingest", "sales", "--column", "n=n")[0] == 0
    write(shop, "sales-1.csv", "item,amount", ("nut", 3))
    declare(shop, SNAPSHOT, APPENDED.replace("append = true", 'snapshot = true, version = "next"'))
    _, out, _ = dd("ingest", "sales", "--append", "--version", "9", "--json")
    assert json.loads(out[-1])["last"] == 9


@pytest.mark.parametrize(
    ("arguments", "says", "hint"),
    [
        ([], "missing argument 'INPUT': dd.toml declares no source", '[inputs.INPUT] source = { path = "..." }'),
        (["stock"], "missing argument 'SOURCE': dd.toml declares no source for stock", "ddcore ingest stock SOURCE"),
        (["stok"], "no input 'stok'", "did you mean 'stock'?"),
    ],
)
def test_without_a_declared_source_the_arguments_are_missing(
    arguments: list[str], says: str, hint: str, shop: Path, dd: Command
) -> None:
    declare(shop, "", "")
    code, _, err = dd("ingest", *arguments)
    assert code == 2 and says in err[0] and hint in err[1]


def test_how_one_input_is_read_is_not_said_for_all(shop: Path, dd: Command) -> None:
    code, _, err = dd("ingest", "--upsert")
    assert (code, err[0]) == (2, "error: --upsert: says how one input is read")
    assert "stock, sales" in err[1]


@pytest.mark.parametrize(
    ("source", "says", "hint"),
    [
        ('"exports"', "source: must be a table, not 'exports'", "source = { path ="),
        ("{ append = true }", "[inputs.stock.source] path: is missing", "exports/*.csv"),
        ("{ path = [] }", "path: must be text or a list of texts, not []", "exports/*.csv"),
        ('{ path = "a", apend = true }', "apend: ingest has no such option", "did you mean 'append'?"),
        ('{ path = "a", append = 1 }', "append: must be true or false, not 1", ""),
        ('{ path = "a", diff = "1" }', "diff: must be a whole number, not '1'", ""),
        ('{ path = "a", key = 5 }', "key: must be text, a list of texts, not 5", ""),
        ('{ path = "a", column = { n = 5 } }', "column: must be text, a list of texts or a table of them", ""),
        ('{ path = "a", op_values = "insert=A" }', "op_values: only for events", "--upsert"),
        ('{ path = "a", append = true, feed = true }', "append and feed: only one of them", ""),
        ('{ path = "a", expect = "soon" }', "expect: 'soon' is no time span", '"36 hours"'),
        ('{ path = "a", expect = "0 days" }', "expect: '0 days' is no time span", ""),
        ('{ path = "a", severity = "warning" }', "severity: unknown severity 'warning'", "did you mean 'warn'?"),
    ],
)
def test_a_wrong_declaration_is_told_with_its_place(source: str, says: str, hint: str, shop: Path) -> None:
    declare(shop, f"source = {source}", "")
    with pytest.raises(UsageError) as caught:
        find_project(shop)
    assert caught.value.message.startswith("dd.toml: [inputs.stock") or "dd.toml: [inputs.stock" in caught.value.message
    assert says in caught.value.message and hint in caught.value.hint


# --- freshness --------------------------------------------------------------------------------------------------------


def aged(file: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(file, (then, then))


@pytest.mark.parametrize(("severity", "code"), [("", 5), (', severity = "warn"', 0)])
def test_a_source_that_is_late_is_told_after_all_is_done(severity: str, code: int, shop: Path, dd: Command) -> None:
    declare(shop, SNAPSHOT.replace(" }", f', expect = "1 day"{severity} }}'), APPENDED)
    aged(shop / "exports" / "stock-1.csv", 36 * 3600)
    ended, out, err = dd("sync", "--json")
    assert ended == code and left(shop) == {"nut": 6}
    sources = json.loads(out[-1])["sources"]
    assert [one["late"] for one in sources] == [True, False] and abs(sources[0]["age"] - 36 * 3600) < 60
    word = "warning" if severity else "error"
    assert any(line == f"{word}: input stock: newest rows 1.5 days old, expected within 1 day" for line in err)
    _, out, _ = dd("status")
    assert (
        "source     stock: exports/stock-*.csv as snapshot: newest rows 1.5 days old, expected within 1 day  (late)"
        in out
    )
    write(shop, "stock-2.csv", "item,n", ("nut", 11), ("bolt", 20))
    assert dd("sync", "-q")[0] == 0


def test_files_that_are_added_are_as_old_as_they_are(shop: Path, dd: Command) -> None:
    """Also at a version whose instant another input's file has said, and behind files that were taken in before."""
    declare(shop, SNAPSHOT, APPENDED.removesuffix(" }") + ', expect = "1 day" }')
    aged(shop / "exports" / "sales-1.csv", 36 * 3600)
    ended, out, _ = dd("sync", "--json")
    assert ended == 5 and abs(json.loads(out[-1])["sources"][1]["age"] - 36 * 3600) < 60
    write(shop, "sales-2.csv", "item,amount", ("nut", 1))
    aged(shop / "exports" / "sales-2.csv", 32 * 3600)
    ended, out, err = dd("sync", "--json")
    told = json.loads(out[-1])
    assert ended == 5 and any("newest rows 1.3 days old" in line for line in err), err
    assert abs(told["sources"][1]["age"] - 32 * 3600) < 60 and told["run"]["instant"] is not None
    assert told["run"]["instant"] == told["ingests"][1]["instant"]
    write(shop, "sales-3.csv", "item,amount", ("nut", 2))
    assert dd("sync", "-q")[0] == 0


def test_an_input_without_rows_is_late_if_rows_are_expected(shop: Path) -> None:
    declare(shop, SNAPSHOT.replace(" }", ', expect = "2 weeks" }'), APPENDED)
    project = find_project(shop)
    stock, sales = freshness(project, Ledger(Warehouse(project.warehouse)))
    assert (stock.is_late, stock.sentence) == (True, "no rows yet, expected within 2 weeks")
    assert (sales.is_late, sales.sentence) == (False, "no rows yet")


def test_the_instant_of_rows_that_have_none_is_that_of_their_ingest(shop: Path) -> None:
    (shop / "exports" / "log.csv").write_text("item,n,version,diff\nnut,1,0,1\nnut,2,1,1\n")
    declare(shop, "", 'source = { path = "exports/log.csv", expect = "1 hour" }')
    aged(shop / "exports" / "log.csv", 7200)
    assert run_command(["ingest", "-q"]) == 0
    project = find_project(shop)
    now = datetime.now(UTC) + timedelta(hours=3)
    (sales,) = freshness(project, Ledger.load(Warehouse(project.warehouse)), now)
    assert sales.is_late and sales.age is not None and timedelta(hours=3) <= sales.age < timedelta(hours=6)


def test_status_says_where_inputs_end_apart(shop: Path, dd: Command) -> None:
    assert dd("sync", "-q")[0] == 0
    assert not [line for line in dd("status")[1] if line.startswith("ends")]
    write(shop, "sales-2.csv", "item,amount", ("bolt", 5))
    assert dd("sync", "-q")[0] == 0
    _, out, _ = dd("status")
    assert "ends       inputs end at different versions: stock 0, sales 1" in out


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0 seconds"),
        (1, "1 second"),
        (90, "1.5 minutes"),
        (7200, "2 hours"),
        (86400, "1 day"),
        (1209600, "2 weeks"),
    ],
)
def test_a_time_span_for_people(seconds: float, text: str) -> None:
    assert shown_age(timedelta(seconds=seconds)) == text


def test_the_sample_project_with_declared_sources(fresh: Path, dd: Command) -> None:
    text = (fresh / "dd.toml").read_text()
    for name in ("links", "starts"):
        text = text.replace(f"[inputs.{name}]", f'[inputs.{name}]\nsource = {{ path = "data/{name}.csv" }}')
    (fresh / "dd.toml").write_text(text)
    assert dd("sync")[0] == 0
    assert journeys(fresh)["Lighthouse"] == 18


# --- what is read again -----------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the sources whose columns are looked at, as it happens."""
    names: list[str] = []

    def noted(sources: Sequence[Source], rules: Rules) -> Any:
        names.extend(Path(source.path).name for source in sources)
        return fitted(sources, rules)

    monkeypatch.setattr("ddcore.jobs.ingesting.updates.fitted", noted)
    return names


def age(file: Path, seconds: float = 60) -> None:
    """As if a file had been written before."""
    then = time.time() - seconds
    os.utime(file, (then, then + 0.25))


def test_files_that_were_taken_in_are_not_read_again(shop: Path, dd: Command, reads: list[str]) -> None:
    age(shop / "exports" / "sales-1.csv")
    assert dd("sync", "-q")[0] == 0
    assert reads == ["sales-1.csv"]
    code, _, err = dd("sync")
    assert code == 0 and reads == ["sales-1.csv"]
    assert "nothing new for sales: ingest 2 took in the same rows" in err
    write(shop, "sales-2.csv", "item,amount", ("bolt", 4))
    code, _, err = dd("sync")
    assert code == 0 and reads == ["sales-1.csv", "sales-2.csv"]
    assert "note: sales: 1 source was taken in before and is left out" in err
    assert left(shop) == {"nut": 6, "bolt": 16}


def test_a_file_that_has_just_been_written_is_read_again(shop: Path, dd: Command, reads: list[str]) -> None:
    """Another write within the same tick of the clock would not show."""
    os.utime(shop / "exports" / "sales-1.csv", (time.time() + 60, time.time() + 60))
    for _ in range(2):
        assert dd("sync", "-q")[0] == 0
    assert reads == ["sales-1.csv", "sales-1.csv"]
    write(shop, "sales-1.csv", "item,amount", ("nut", 3), ("nut", 1), ("nut", 2))
    assert dd("sync", "-q")[0] == 0
    assert left(shop) == {"nut": 4}


def test_a_file_that_was_touched_or_changed_is_read_again(shop: Path, dd: Command, reads: list[str]) -> None:
    file = shop / "exports" / "sales-1.csv"
    age(file)
    assert dd("sync", "-q")[0] == 0
    age(file, 30)
    code, _, err = dd("sync")
    assert code == 0 and "nothing new for sales: ingest 2 took in the same rows" in err
    file.write_text(file.read_text().replace("nut,1", "nut,2"))
    age(file, 20)
    assert dd("sync", "-q")[0] == 0
    assert reads == ["sales-1.csv"] * 3
    assert left(shop) == {"nut": 1}, "the rows of the other file are inserted, too"


def test_other_rules_read_a_file_again(shop: Path, dd: Command, reads: list[str]) -> None:
    age(shop / "exports" / "sales-1.csv")
    assert dd("sync", "-q")[0] == 0
    write(shop, "sales-1.csv", "item,amount,n", ("nut", 3, 5), ("nut", 1, 5))
    age(shop / "exports" / "sales-1.csv")
    assert dd("sync", "-q")[0] == 0
    declare(shop, SNAPSHOT, APPENDED.replace(', column = { n = "amount" }', ""))
    assert dd("sync", "-q")[0] == 0
    assert reads == ["sales-1.csv"] * 3
    assert left(shop)["nut"] == 10 - 10 - 4


def test_an_undo_takes_a_file_in_again(shop: Path, dd: Command, reads: list[str]) -> None:
    age(shop / "exports" / "sales-1.csv")
    assert dd("ingest", "-q")[0] == 0
    assert dd("ingest", "--undo", "2", "-q")[0] == 0
    assert dd("sync", "-q")[0] == 0
    assert reads == ["sales-1.csv"] * 2
    assert left(shop) == {"nut": 6}
