"""Data tests: a run is committed if and only if no collection that must stay empty has a row at one of its versions.

The oracle is Python over lists of rows and shares nothing with operators or the reference. Seeds are printed.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pages
import polars as pl
import pytest
import sparkless
from seeds import seeds
from trams import Command, records
from warehouses import log_of, logs_of, take_in

import ddcore as dd
from ddcore.base.errors import BrokenTest, DdError, ProgramError, UsageError
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import FailureRecord
from ddcore.io.project.finding import find_project
from ddcore.io.project.program import load_plan
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import replay
from ddcore.jobs.report import RunReport, result

SEEDS = seeds(4, share=50)

PROGRAM = """
import ddcore as dd


def program(items, totals):
    return {"cheap": items.where("price < 3"), "sums": items.group_by("shop").agg(sum=dd.sum("price"))}


@dd.test
def known(totals, sums):
    return totals.join(sums, on="shop", how="anti").select("shop")
"""
TOML = """
[project]
program = "program.py:program"
warehouse = "warehouse"
[time]
dims = [DIMS]
[inputs.items]
schema = { id = "int64", price = "int64", shop = "string" }
[inputs.totals]
schema = { shop = "string", total = "int64" }
"""
TESTS = """
[tests.negative]
empty = "cheap"
where = "price < 0"
SEVERITY
[tests.one_price]
of = "items"
unique = ["id"]
SEVERITY
[tests.agree]
agree = [{ of = "items", sum = "price" }, { of = "totals", sum = "total" }]
by = ["shop"]
SEVERITY
"""
ITEMS, TOTALS = ("id", "price", "shop"), ("shop", "total")

Row = tuple[Any, ...]
Updates = dict[str, list[tuple[Row, tuple[int, ...], int]]]  # by input


def project_at(
    folder: Path, *, tests: str = TESTS, program: str = PROGRAM, dims: Sequence[str] = ("version",), severity: str = ""
) -> Project:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program.py").write_text(program)
    line = f'severity = "{severity}"' if severity else ""
    text = TOML.replace("DIMS", ", ".join(map(json.dumps, dims))) + tests.replace("SEVERITY", line)
    (folder / "dd.toml").write_text(text)
    return find_project(folder, {})


def with_severity(project: Project, severity: str) -> Project:
    """The project with all tests of this severity."""
    written = PROGRAM if severity == "error" else PROGRAM.replace("@dd.test", f'@dd.test(severity="{severity}")')
    return project_at(project.root, program=written, dims=project.dims, severity=severity)


def frame(columns: Sequence[str], updates: Iterable[tuple[Row, tuple[int, ...], int]], dims: Sequence[str]) -> Any:
    kinds = {name: pl.String() if name == "shop" else pl.Int64() for name in (*columns, *dims, "diff")}
    return pl.DataFrame([(*row, *time, diff) for row, time, diff in updates], schema=kinds, orient="row")


def bring(project: Project, updates: Mapping[str, Sequence[tuple[Row, tuple[int, ...], int]]]) -> None:
    for name, columns in (("items", ITEMS), ("totals", TOTALS)):
        if updates.get(name):
            take_in(project, name, frame(columns, updates[name], project.dims))


def item(id: int, price: int, shop: str, version: int, diff: int = 1) -> Updates:
    """An item, and the total of its shop that agrees with it."""
    return {"items": [((id, price, shop), (version,), diff)], "totals": [((shop, price), (version,), diff)]}


def fold(project: Project, **options: Any) -> RunReport:
    return replay.run(project, engine="inline", **options)


def tables_of(project: Project) -> dict[str, Any]:
    """All that readers see: every output's log, and the last run."""
    ledger = Ledger.load(Warehouse(project.warehouse))
    run = ledger.current_run()
    return {"run": run and run.run, "upper": ledger.upper(), "tables": run and run.tables}


# -- the oracle --------------------------------------------------------------------------------------------------------


def at(updates: Updates, name: str, time: tuple[int, ...]) -> Counter[Row]:
    rows: Counter[Row] = Counter()
    for row, when, diff in updates[name]:
        if all(a <= b for a, b in zip(when, time, strict=True)):
            rows[row] += diff
    return Counter({row: count for row, count in rows.items() if count})


def naive(updates: Updates, time: tuple[int, ...]) -> dict[str, int]:
    """The broken tests at a time, and how many rows each has."""
    items, totals = at(updates, "items", time), at(updates, "totals", time)
    ids: Counter[int] = Counter()
    sums: Counter[str] = Counter()
    for (id, price, shop), count in items.items():
        ids[id] += count
        sums[shop] += count * price
    others: Counter[str] = Counter()
    for (shop, total), count in totals.items():
        others[shop] += count * total
    shops = {shop for *_, shop in items}
    broken = {
        "negative": sum(price < 0 for _, price, _ in items),
        "one_price": sum(count > 1 for count in ids.values()),
        "agree": sum(sums[shop] != others[shop] for shop in {*sums, *others}),
        "known": len({shop for shop, _ in totals} - shops),
    }
    return {name: rows for name, rows in broken.items() if rows}


def history(rng: random.Random, times: Sequence[tuple[int, ...]]) -> Updates:
    """Items that come and go; most keep all tests, and some break one or two of them, until they leave."""
    updates: Updates = {"items": [], "totals": []}
    there: list[tuple[Row, Row | None, tuple[int, ...]]] = []
    for number, time in enumerate(times):
        for _ in range(rng.randint(0, 2)):
            id, price, shop = number * 10 + rng.randrange(10), rng.randint(1, 9), rng.choice("abc")
            if rng.random() < 0.12:
                id, price = rng.choice([(id, -price), (there[-1][0][0] if there else id, price)])
            total: Row | None = (shop, price)
            if rng.random() < 0.06:
                total = rng.choice([None, (shop, price + 1), ("d", price)])
            there.append(((id, price, shop), total, time))
            updates["items"].append(((id, price, shop), time, 1))
            if total is not None:
                updates["totals"].append((total, time, 1))
        for one in [one for one in there if rng.random() < (0.4 if one[0][1] < 0 or one[1] is None else 0.15)]:
            row, total, came = one
            if all(a <= b for a, b in zip(came, time, strict=True)):
                there.remove(one)
                updates["items"].append((row, time, -1))
                if total is not None:
                    updates["totals"].append((total, time, -1))
    return updates


# -- the property ------------------------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_is_committed_if_and_only_if_no_version_breaks_a_test(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    print(f"seed {seed}")
    versions = list(range(rng.randint(6, 12)))
    updates = history(rng, [(version,) for version in versions])
    project, folded = project_at(tmp_path), -1
    bring(project, updates)
    with_rows = sorted({version for update in updates.values() for _, (version,), _ in update})
    cuts = sorted({*rng.sample(versions, 3), versions[-1]} & {*with_rows}) or with_rows
    options: dict[str, Any] = {"engine": "inline"}
    if seed % 3 == 2:
        sparkless.install(monkeypatch)
        options = {"engine": "spark", "parallelism": 2}
    for last in cuts:
        checked = [version for version in with_rows if folded < version <= last]
        expected = {version: naive(updates, (version,)) for version in checked}
        broken = {name for entry in expected.values() for name in entry}
        before = tables_of(project)
        if broken:
            with pytest.raises(BrokenTest) as caught:
                replay.run(project, last=time_of(last), **options)
            first = caught.value.message.split()[1]
            assert first in broken
            also = caught.value.message.partition("also broken: ")[2].partition(";")[0]
            assert {first, *filter(None, also.split(", "))} == broken
            assert tables_of(project) == before, "nothing of the run is committed"
            project = with_severity(project, "warn")
        report = replay.run(project, last=time_of(last), **options)
        told = {entry["test"]: entry for entry in report.broken}
        assert told.keys() == broken
        for name, entry in told.items():
            when = [version for version, rows in expected.items() if name in rows]
            assert (entry["version"], entry["versions"]) == (when[0], len(when)), name
            assert entry["rows"] == expected[when[0]][name], name
            assert f"test {name} is broken at version {when[0]}" in " ".join(report.warnings)
        assert report.last == time_of(last)
        project, folded = with_severity(project, "error"), last
    assert result(report)["broken_tests"] == report.broken


def test_histories_of_both_kinds_are_drawn() -> None:
    """Every test is broken by some seed and repaired in it, and not all versions break one."""
    seen: Counter[str] = Counter()
    for seed in range(40):
        updates = history(random.Random(seed), [(version,) for version in range(10)])
        entry = [naive(updates, (version,)) for version in range(10)]
        seen.update({name for broken in entry for name in broken})
        seen.update({f"{name} repaired" for name in {*entry[0], *entry[3], *entry[6]} - {*entry[9]}})
        seen.update({"held" for broken in entry[1:] if not broken})
    for name in ("negative", "one_price", "agree", "known"):
        assert seen[name] >= 5 and seen[f"{name} repaired"] >= 1, seen
    assert seen["held"] >= 20


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", seeds(3, share=100))
def test_two_dimensions(seed: int, tmp_path: Path) -> None:
    """A row may be wrong only at a join of times, at which no input has a row."""
    rng = random.Random(1_000 + seed)
    times = sorted({(rng.randrange(4), rng.randrange(3)) for _ in range(7)})
    updates = history(rng, times)
    project = project_at(tmp_path, dims=("day", "revision"))
    bring(project, updates)
    used = [time for update in updates.values() for _, time, _ in update]
    top = max(day for day, _ in used), max(revision for _, revision in used)
    print(f"seed {seed}, {updates}")
    try:
        for corner in [(rng.randint(0, top[0]), rng.randint(0, top[1])), top]:
            fold(project, last=time_of(corner))
            assert not any(naive(updates, (a, b)) for a in range(corner[0] + 1) for b in range(corner[1] + 1))
    except BrokenTest as error:
        box = [(a, b) for a in range(corner[0] + 1) for b in range(corner[1] + 1)]
        broken = [time for time in box if naive(updates, time)]
        assert f"at day={broken[0][0]},revision={broken[0][1]}" in error.message or broken
        assert broken


def test_a_join_of_two_times_breaks_a_test(tmp_path: Path) -> None:
    """Each of the two rows is fine where it is; at the join, where no row arrives, they share an id."""
    project = project_at(tmp_path, dims=("day", "revision"))
    items = [((1, 5, "a"), (0, 1), 1), ((1, 6, "a"), (1, 0), 1)]
    bring(project, {"items": items, "totals": [(("a", row[1]), time, diff) for row, time, diff in items]})
    fold(project, last=time_of((0, 1)))
    with pytest.raises(BrokenTest, match=r"test one_price is broken at day=1,revision=1: \(id=1, rows=2\)"):
        fold(project)


# -- what a test means -------------------------------------------------------------------------------------------------


def contents(project: Project, name: str) -> set[Row]:
    plan = load_plan(project)
    log = log_of(project, f"tests.{name}", plan.outputs[f"tests.{name}"])
    counts = log.group_by(list(plan.outputs[f"tests.{name}"])).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    return {row[:-1] for row in counts.iter_rows()}


KINDS: list[tuple[str, set[Row]]] = [
    ('empty = "items"\nwhere = "price = 7"', {(2, 7, "b")}),
    ('empty = "sums"', {("a", 11), ("b", 7)}),
    ('of = "items"\nunique = ["shop"]', {("a", 2)}),
    ('of = "items"\nunique = ["shop"]\nwhere = "price > 5"', set()),
    ('of = "items"\nunique = ["shop", "id"]', set()),
    ('agree = [{ of = "items" }, { of = "totals" }]', {(3, 4)}),
    ('agree = [{ of = "items" }, { of = "totals" }]\nby = ["shop"]', {("c", 0, 1)}),
    ('agree = [{ of = "items", sum = "price" }, { of = "totals", sum = "total" }]\nby = ["shop"]',
     {("a", 11, 12), ("c", 0, 1)}),
    ("""agree = [{ of = "items", sum = "price", where = "price = 5" }, { of = "totals", where = "shop < 'c'" }]""",
     {(5, 3)}),
    ('agree = [{ of = "items", sum = "price" }, { of = "items", sum = "price" }]', set()),
    ('agree = [{ of = "items", where = "id > 9" }, { of = "totals", where = "total > 99" }]', set()),
]  # fmt: skip


def test_kinds(tmp_path: Path) -> None:
    tests = "".join(f'[tests.t{index}]\n{test}\nseverity = "warn"\n' for index, (test, _) in enumerate(KINDS))
    project = project_at(tmp_path, tests=tests, program=PROGRAM.split("@dd", maxsplit=1)[0])
    items = [((1, 5, "a"), (0,), 1), ((3, 6, "a"), (0,), 1), ((2, 7, "b"), (0,), 1)]
    totals = [(row, (0,), 1) for row in [("a", 5), ("a", 7), ("b", 7), ("c", 1)]]
    bring(project, {"items": items, "totals": totals})
    report = fold(project)
    assert {f"t{index}": contents(project, f"t{index}") for index in range(len(KINDS))} == {
        f"t{index}": rows for index, (_, rows) in enumerate(KINDS)
    }
    assert [entry["test"] for entry in report.broken] == [f"t{index}" for index, (_, rows) in enumerate(KINDS) if rows]


def test_nulls_are_equal_and_count_nothing(tmp_path: Path) -> None:
    tests = '[tests.key]\nof = "items"\nunique = ["shop"]\n[tests.sum]\nagree = [{ of = "items", sum = "price" }, '
    tests += '{ of = "totals", sum = "total" }]\nby = ["shop"]\nseverity = "warn"\n'
    project = project_at(tmp_path, tests=tests, program=PROGRAM.split("@dd", maxsplit=1)[0])
    bring(project, {"items": [((1, None, None), (0,), 1)]})
    assert fold(project).broken == [], "a sum of nulls is 0"
    bring(project, {"items": [((2, 4, None), (1,), 1)]})
    with pytest.raises(BrokenTest, match=r"test key is broken at version 1: \(shop=null, rows=2\)"):
        fold(project)


def test_columns_of_any_type_and_rows_that_occur_several_times(tmp_path: Path) -> None:
    program = """
import polars as pl


def program(items, totals):
    odd = items.select("id", count="id", rows="id", nested=pl.struct("id", "price"))
    return {"odd": odd.concat(odd)}
"""
    tests = '[tests.odd]\nempty = "odd"\nseverity = "warn"\n[tests.key]\nof = "odd"\nunique = ["rows", "count"]\n'
    project = project_at(tmp_path, tests=tests, program=program)
    bring(project, item(1, 5, "a", 1))
    with pytest.raises(BrokenTest, match=r"test key is broken at version 1: \(rows=1, count=1, rows_2=2\)"):
        fold(project)
    project = project_at(tmp_path, tests=tests + 'severity = "warn"\n', program=program)
    first, _ = fold(project).warnings
    assert "(id=1, count=1, rows=1, nested={'id': 1, 'price': 5}, times=2)" in first


@pytest.mark.sample(8, of="histories")
def test_a_repair_in_the_same_run_comes_too_late(tmp_path: Path) -> None:
    """Every version that a run folds is published, so every one counts."""
    project = project_at(tmp_path)
    bring(project, item(1, 5, "a", 1))
    bring(project, item(1, 6, "a", 7))
    bring(project, item(1, 6, "a", 8, -1))
    with pytest.raises(BrokenTest, match=r"test one_price is broken at version 7: \(id=1, rows=2\); nothing of run 1 "):
        fold(project)
    fold(project, last=time_of(1))
    with pytest.raises(BrokenTest, match="at version 7"):
        fold(project)
    bring(project, item(1, 6, "a", 7, -1))
    bring(project, item(1, 6, "a", 8))
    assert fold(project).last == time_of(8)


def test_the_message_names_versions_and_some_rows(tmp_path: Path) -> None:
    project = project_at(tmp_path)
    for version in (3, 5, 9):
        bring(project, item(version, -version, "a", version))
    for id in range(20, 24):
        bring(project, item(id, -id, "b", 3))
    with pytest.raises(BrokenTest) as caught:
        fold(project)
    assert caught.value.message == (
        "test negative is broken at version 3 and at 2 later versions: (id=3, price=-3, shop='a'), "
        "(id=20, price=-20, shop='b'), (id=21, price=-21, shop='b'); and 2 more rows; nothing of run 1 is committed"
    )
    line = (project.root / "dd.toml").read_text().splitlines().index("[tests.negative]") + 1
    hint = f'correct the input, then run again; or set severity = "warn" (dd.toml:{line}), to let it pass'
    assert (caught.value.hint, caught.value.exit_code) == (hint, 4)


# -- what a broken run leaves, and the way on --------------------------------------------------------------------------


def files_of(project: Project) -> set[Path]:
    return {file for kind in ("outputs", "state") for file in (project.root / "warehouse" / kind).rglob("*.parquet")}


@pytest.mark.sample(1)
@pytest.mark.parametrize(("engine", "parallelism"), [("inline", None), ("spark", 1), ("spark", 2)])
def test_nothing_is_left_and_the_same_command_works_after_a_correction(
    engine: str, parallelism: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparkless.install(monkeypatch)
    project = project_at(tmp_path / "one")
    bring(project, item(1, 5, "a", 1))
    fold(project)
    bring(project, item(1, 6, "b", 2))
    before, files = tables_of(project), files_of(project)
    for _ in range(2):
        with pytest.raises(BrokenTest):
            replay.run(project, engine=engine, parallelism=parallelism)
        assert (tables_of(project), files_of(project)) == (before, files)
    ledger = Ledger.load(Warehouse(project.warehouse))
    assert ledger.open_intent() is None, "the versions take rows again"
    assert [failure.error.split(":")[0] for failure in ledger.records(FailureRecord)] == [
        "test one_price is broken at version 2"
    ] * 2
    bring(project, item(1, 6, "b", 2, -1))
    bring(project, item(2, 6, "b", 2))
    report = replay.run(project, engine=engine, parallelism=parallelism)
    assert (report.last, report.broken, report.warnings) == (time_of(2), [], [])
    undisturbed = project_at(tmp_path / "other")
    bring(undisturbed, item(1, 5, "a", 1))
    bring(undisturbed, item(2, 6, "b", 2))
    fold(undisturbed)
    outputs = load_plan(project).outputs
    assert logs_of(project, outputs) == logs_of(undisturbed, outputs)


@pytest.mark.sample(8, of="histories")
def test_a_full_refresh_checks_all_versions(tmp_path: Path) -> None:
    project = project_at(tmp_path, severity="warn")
    bring(project, item(1, -5, "a", 1))
    bring(project, item(1, -5, "a", 2, -1))
    bring(project, item(2, 5, "a", 3))
    assert [entry["version"] for entry in fold(project).broken] == [1]
    project = project_at(project.root)
    before = tables_of(project)
    assert fold(project).nothing_new, "the severity is no part of the program"
    with pytest.raises(BrokenTest, match="negative is broken at version 1:"):
        fold(project, full_refresh=True)
    assert tables_of(project) == before
    project = project_at(project.root, tests=TESTS.replace("SEVERITY", "from_version = 2"))
    assert fold(project, full_refresh=True).broken == []


@pytest.mark.sample(8, of="histories")
def test_versions_folded_again_are_checked_again(tmp_path: Path) -> None:
    """A late row breaks a version of the past; the run that rewrites the history fails."""
    project = project_at(tmp_path)
    for version in (1, 2, 3):
        bring(project, item(version, 5, "a", version))
    fold(project)
    before = tables_of(project)
    bring(project, {"items": [((1, 9, "a"), (2,), 1), ((1, 9, "a"), (3,), -1)]})
    with pytest.raises(BrokenTest, match="test one_price is broken at version 2"):
        fold(project)
    assert tables_of(project) == before
    bring(project, {"items": [((1, 9, "a"), (2,), -1), ((1, 9, "a"), (3,), 1)]})
    fold(project)


@pytest.mark.sample(8, of="histories")
def test_a_history_whose_corrections_are_appended(tmp_path: Path) -> None:
    """The versions of the past stay as they were published, so only what the next one will hold counts."""
    project = project_at(tmp_path)
    for version in (1, 2, 3):
        bring(project, item(version, 5, "a", version))
    fold(project)
    bring(project, {"items": [((1, 9, "a"), (2,), 1), ((1, 9, "a"), (3,), -1)]})  # repaired at version 3
    assert fold(project, corrections="append").broken == []
    before = tables_of(project)
    bring(project, item(2, 7, "a", 3))
    for _ in range(2):
        with pytest.raises(BrokenTest, match=r"test one_price is broken at version 3: \(id=2, rows=2\)"):
            fold(project, corrections="append")
        assert tables_of(project) == before
    bring(project, item(4, 7, "a", 4))
    with pytest.raises(BrokenTest, match="test one_price is broken at version 4"):
        fold(project, corrections="append")
    bring(project, item(2, 7, "a", 4, -1))
    assert fold(project, corrections="append").last == time_of(4)
    assert contents(project, "one_price") == set()


@pytest.mark.sample(8, of="histories")
def test_broken_rows_that_stay_count_in_later_runs(tmp_path: Path) -> None:
    project = project_at(tmp_path, severity="warn")
    bring(project, item(1, -5, "a", 1))
    fold(project)
    bring(project, item(2, 5, "b", 5))
    report = fold(project)
    assert [(entry["version"], entry["versions"], entry["rows"]) for entry in report.broken] == [(5, 1, 1)]
    project = project_at(project.root)  # an error from now on
    bring(project, item(3, 5, "b", 7))
    with pytest.raises(BrokenTest, match="negative is broken at version 7"):
        fold(project)
    bring(project, item(1, -5, "a", 7, -1))
    assert fold(project).broken == []


# -- changed programs --------------------------------------------------------------------------------------------------

MORE = '\n[tests.small]\nempty = "items"\nwhere = "price > 7"\n'


@pytest.mark.sample(8, of="histories")
def test_an_added_test_holds_from_the_next_version_on(tmp_path: Path) -> None:
    project = project_at(tmp_path)
    bring(project, item(1, 8, "a", 1))
    bring(project, item(1, 8, "a", 2, -1))
    bring(project, item(2, 5, "b", 2))
    fold(project)
    project = project_at(tmp_path, tests=TESTS + MORE)
    report = fold(project)
    assert (report.last, report.broken, report.corrections) == (time_of(2), [], 0)
    bring(project, item(3, 8, "a", 3))
    with pytest.raises(BrokenTest, match=r"test small is broken at version 3: \(id=3, price=8, shop='a'\)"):
        fold(project)
    with pytest.raises(BrokenTest, match="test small is broken at version 1 and at 1 later version: "):
        fold(project, full_refresh=True)


@pytest.mark.sample(8, of="histories")
def test_an_added_test_that_is_broken_already(tmp_path: Path) -> None:
    """By what is folded: then the run fails, unless it folds a version that repairs it."""
    project = project_at(tmp_path)
    bring(project, item(1, 8, "a", 1))
    fold(project)
    before = tables_of(project)
    project = project_at(tmp_path, tests=TESTS + MORE)
    for _ in range(2):
        with pytest.raises(BrokenTest, match=r"test small is broken at version 1: \(id=1, price=8, shop='a'\)"):
            fold(project)
        assert tables_of(project) == before
    bring(project, item(5, 5, "a", 2))
    with pytest.raises(BrokenTest, match="test small is broken at version 2"):
        fold(project)
    bring(project, item(1, 8, "a", 2, -1))
    report = fold(project)
    assert (report.last, report.broken, contents(project, "small")) == (time_of(2), [], set())


@pytest.mark.sample(8, of="histories")
def test_an_added_test_that_warns(tmp_path: Path) -> None:
    project = project_at(tmp_path)
    bring(project, item(1, 8, "a", 1))
    fold(project)
    project = project_at(tmp_path, tests=TESTS + MORE + 'severity = "warn"\n')
    report = fold(project)
    assert [entry["test"] for entry in report.broken] == ["small"]
    assert report.corrections == 0, "what waits is no output's"
    bring(project, item(2, 3, "a", 4))
    assert [(entry["test"], entry["version"], entry["rows"]) for entry in fold(project).broken] == [("small", 4, 1)]
    assert contents(project, "small") == {(1, 8, "a")}


@pytest.mark.sample(8, of="histories")
def test_a_test_that_is_removed_and_comes_back(tmp_path: Path) -> None:
    project = project_at(tmp_path, tests=TESTS + MORE)
    bring(project, item(1, 5, "a", 1))
    fold(project)
    project = project_at(tmp_path)
    bring(project, item(2, 9, "a", 2))
    assert fold(project).last == time_of(2)
    project = project_at(tmp_path, tests=TESTS + MORE)
    with pytest.raises(BrokenTest, match="test small is broken at version 2"):
        fold(project)
    bring(project, item(2, 9, "a", 3, -1))
    assert fold(project).last == time_of(3)


@pytest.mark.sample(8, of="histories")
def test_a_changed_test_is_another_test(tmp_path: Path) -> None:
    project = project_at(tmp_path, tests=TESTS + MORE)
    bring(project, item(1, 6, "a", 1))
    fold(project)
    project = project_at(tmp_path, tests=TESTS + MORE.replace("> 7", "> 5"))
    with pytest.raises(BrokenTest, match="test small is broken at version 1"):
        fold(project)
    project = project_at(tmp_path, tests=TESTS + MORE.replace("> 7", "> 6"))
    assert fold(project).broken == []
    project = project_at(tmp_path, tests=TESTS + '\n[tests.small]\nof = "items"\nunique = ["price"]\n')  # other columns
    assert fold(project).broken == []
    bring(project, item(2, 6, "b", 2))
    with pytest.raises(BrokenTest, match=r"test small is broken at version 2: \(price=6, rows=2\)"):
        fold(project)


@pytest.mark.sample(8, of="histories")
@pytest.mark.parametrize("history", ["appended", "rewritten"])
def test_from_version(history: str, tmp_path: Path) -> None:
    project = project_at(tmp_path, tests=TESTS + MORE + "from_version = 3\n")
    bring(project, item(1, 8, "a", 1))
    assert fold(project).broken == []
    if history == "rewritten":
        assert fold(project, full_refresh=True).broken == []
    bring(project, item(2, 5, "a", 3))
    with pytest.raises(BrokenTest, match="test small is broken at version 3"):
        fold(project)


# -- SQL ---------------------------------------------------------------------------------------------------------------

SQL = """
CREATE VIEW sums AS SELECT shop, sum(price) AS total FROM items GROUP BY shop;
CREATE TEMPORARY VIEW differing AS
SELECT sums.shop FROM sums JOIN totals ON sums.shop = totals.shop WHERE sums.total <> totals.total;
"""


def test_a_program_of_sql(tmp_path: Path, dd: Command) -> None:
    tests = '[tests.no_difference]\nempty = "differing"\n[tests.one_shop]\nof = "totals"\nunique = ["shop"]\n'
    project = project_at(tmp_path, tests=tests)
    text = (tmp_path / "dd.toml").read_text().replace("program.py:program", "program.sql")
    (tmp_path / "dd.toml").write_text(text + '[run]\nengine = "inline"\n')
    (tmp_path / "program.sql").write_text(SQL)
    project = find_project(tmp_path, {})
    bring(project, item(1, 5, "a", 1))
    assert dd("run", "--project", str(tmp_path))[0] == 0
    bring(project, item(2, 5, "b", 2))
    bring(project, {"totals": [(("b", 5), (3,), -1), (("b", 6), (3,), 1)]})
    code, _, err = dd("run", "--project", str(tmp_path))
    assert code == 4
    assert err[-2].startswith("error: test no_difference is broken at version 3: (shop='b'); nothing of run 2 ")
    bring(project, {"items": [((2, 5, "b"), (3,), -1), ((2, 6, "b"), (3,), 1)]})
    assert dd("run", "--project", str(tmp_path))[0] == 0
    verdicts = dd("verify", "--project", str(tmp_path))[1]
    assert [line.split(" at ")[0] for line in verdicts] == [
        "holds    sums", "holds    tests.no_difference", "holds    tests.one_shop"
    ]  # fmt: skip
    assert (tmp_path / "warehouse" / "outputs" / "tests.no_difference").is_dir()
    assert not (tmp_path / "warehouse" / "outputs" / "differing").exists()


# -- hidden outputs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def warned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with a broken test that warns, and the working folder."""
    project = project_at(tmp_path / "shop", severity="warn")
    (project.root / "dd.toml").write_text((project.root / "dd.toml").read_text() + '[run]\nengine = "inline"\n')
    bring(project, item(1, -5, "a", 1))
    bring(project, item(2, 5, "b", 2))
    monkeypatch.chdir(project.root)
    return find_project(project.root, {})


def test_commands_do_not_count_them_as_outputs(warned: Project, dd: Command) -> None:
    code, out, err = dd("run", "--json")
    assert code == 0
    versions, final = records(out[:-1]), json.loads(out[-1])
    assert [set(version["outputs"]) for version in (*versions, final)] == [
        {"cheap", "sums"},
        {"sums"},
        {"cheap", "sums"},
    ]
    assert final["broken_tests"] == [
        {"test": "negative", "severity": "warn", "version": 1, "label": None, "instant": None, "versions": 2, "rows": 1}
    ]
    warning = "test negative is broken at version 1 and at 1 later version: (id=1, price=-5, shop='a')"
    assert final["warnings"] == [f"{warning}; all rows: ddcore show tests.negative"]
    assert f"warning: {final['warnings'][0]}" in err
    (status,) = records(dd("status", "--json")[1])
    assert [table["name"] for table in status["tables"] if table["kind"] == "output"] == ["cheap", "sums"]
    (run,) = [record for record in records(dd("log", "--json")[1]) if record["kind"] == "run"]
    assert set(run["outputs"]) == {"cheap", "sums"}
    assert run["broken_tests"] == {"negative": {"first": 1, "versions": 2, "rows": 1}}
    assert ", broken tests: negative at 1" in dd("log")[1][1]
    assert "tests." not in " ".join(dd("log", "--versions", "--json")[1])
    code, _, err = dd("show", "none")
    assert (code, err[0]) == (2, "error: no output 'none'; there are: cheap, sums")


def test_their_rows_can_be_read_by_name(warned: Project, dd: Command) -> None:
    assert dd("run", "-q")[0] == 0
    assert dd("show", "tests.negative")[1][-1].split() == ["1", "-5", "a"]
    assert dd("diff", "tests.negative", "0", "1", "--exit-code")[0] in (2, 3)
    assert [line.split()[1] for line in dd("verify")[1]] == [
        "cheap", "sums", "tests.agree", "tests.known", "tests.negative", "tests.one_price"
    ]  # fmt: skip
    assert "output tests.negative" in " ".join(dd("plan")[1])


def test_completion_offers_outputs_only(warned: Project) -> None:
    from ddcore.cli import completion

    fold(warned)

    class Context:
        params: dict[str, Any] = {}  # noqa: RUF012  (what click's context has)

    assert completion.output_names(Context(), "") == ["cheap", "sums"]  # type: ignore[arg-type]


def test_lineage_has_no_hidden_outputs(warned: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openlineage.client")
    settings = {"type": "file", "log_file_path": str(tmp_path / "events.json"), "append": True}
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", json.dumps(settings))
    fold(warned)
    for line in (tmp_path / "events.json").read_text().splitlines():
        assert [Path(output["name"]).name for output in json.loads(line)["outputs"]] == ["cheap", "sums"]


def test_a_session_ignores_tests() -> None:
    @dd.test
    def none(words: dd.Collection) -> dd.Collection:
        return words

    logs = dd.replay(
        lambda words: {"once": words.distinct()}, words=pl.DataFrame({"a": [1], "version": [0], "diff": [1]})
    )
    assert list(logs) == ["once"]


# -- killed ------------------------------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["after-intent", "after-create", "after-table:1", "after-table:4"])
def test_a_run_that_is_killed_around_its_commits_is_checked_again(point: str, warned: Project) -> None:
    """Before the check, between it and the first commit, and after some; the severity of the check decides."""
    command = [sys.executable, "-c", "from ddcore.cli.main import main; main()", "run", "-q"]
    killed = subprocess.run(command, env={**os.environ, "DDCORE_FAILPOINT": point}, check=False)
    assert killed.returncode == -signal.SIGKILL
    strict = with_severity(warned, "error")
    with pytest.raises(BrokenTest, match="test negative is broken at version 1"):
        fold(strict)
    assert Ledger.load(Warehouse(strict.warehouse)).current_run() is None
    again = with_severity(strict, "warn")
    report = fold(again)
    assert [entry["test"] for entry in report.broken] == ["negative"]
    assert contents(again, "negative") == {(1, -5, "a")}
    shutil.copytree(again.root, again.root.parent / "other", ignore=shutil.ignore_patterns("warehouse"))
    other = find_project(again.root.parent / "other", {})
    bring(other, item(1, -5, "a", 1))
    bring(other, item(2, 5, "b", 2))
    fold(other)
    outputs = load_plan(other).outputs
    assert logs_of(again, outputs) == logs_of(other, outputs)


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page(tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pages.follow("data-tests.md", tmp_path, dd, monkeypatch, steps=16)


def test_the_program_of_the_page(tmp_path: Path) -> None:
    (program,) = re.findall(
        r"^```python\n(.*?)^```$", (pages.DOCS / "data-tests.md").read_text(), re.DOTALL | re.MULTILINE
    )
    project = project_at(tmp_path, tests="", program=program)
    assert list(load_plan(project).outputs) == ["sums", "tests.every_shop_has_items", "tests.nothing_costs_much"]
    bring(project, item(1, 1001, "a", 1))
    assert fold(project).broken == []
    bring(project, item(2, 2000, "b", 3))
    assert [entry["test"] for entry in fold(project).broken] == ["nothing_costs_much"]
    bring(project, {"totals": [(("c", 0), (4,), 1)]})
    with pytest.raises(BrokenTest, match=r"every_shop_has_items is broken at version 4: \(shop='c', total=0\)"):
        fold(project)


# -- mistakes ----------------------------------------------------------------------------------------------------------

WRONG = {
    "[tests]\nx = 3": "tests.x must be a section",
    "[tests.x]": "[tests.x] does not say what it tests",
    '[tests.x]\nempty = "items"\nunique = ["id"]': "[tests.x] has empty, unique: a test is one of them",
    '[tests.x]\nempty = "items"\nof = "items"': "dd.toml:11: [tests.x] of: unknown key",
    "[tests.x]\nempty = 3": "[tests.x] empty: must be text, not 3",
    '[tests.x]\nempty = "items"\nseverity = "fatal"': "dd.toml:11: [tests.x] severity: unknown severity 'fatal'",
    '[tests.x]\nempty = "items"\nwhere = 17': "dd.toml:11: [tests.x] where: must be text, not 17",
    '[tests.x]\nempty = "items"\nfrom_version = -1': "[tests.x] from_version: must be the number of a version",
    '[tests.x]\nempty = "items"\nfrom_version = true': "[tests.x] from_version: must be the number of a version",
    '[tests.x]\nunique = ["id"]': "[tests.x] of: is missing",
    '[tests.x]\nof = "items"\nunique = []': "[tests.x] unique: names no column",
    '[tests.x]\nof = "items"\nunique = "id"': "[tests.x] unique: must be a list of names, not 'id'",
    '[tests.x]\nagree = ["items", "totals"]': "[tests.x] agree: must be a list of two sides",
    '[tests.x]\nagree = [{ of = "items" }]': "[tests.x] agree: must be a list of two sides",
    '[tests.x]\nagree = [{ sum = "price" }, { of = "totals" }]': "[tests.x] of: is missing",
    '[tests.x]\nagree = [{ off = "items" }, { of = "totals" }]': "[tests.x] off: unknown key",
    '[tests.x]\nagree = [{ of = "items" }, { of = "totals" }]\nby = []': "[tests.x] by: names no column",
    '[tests."a b"]\nempty = "items"': "a name has letters, digits and _ only",
    '[tests.x]\nempty = "items"\n[tests.X]\nempty = "items"': "differs from 'x' only by upper and lower case",
    '[tests.x]\nempty = "item"': "dd.toml:11: [tests.x] there is no input or output 'item'; there are: items, totals, ",
    '[tests.x]\nof = "items"\nunique = ["idd"]': "dd.toml:11: [tests.x] unique: there is no column idd: the ",
    '[tests.x]\nempty = "items"\nwhere = "prize < 0"': "dd.toml:11: [tests.x] where: there is no column prize",
    '[tests.x]\nempty = "items"\nwhere = "price <"': "dd.toml:11: [tests.x] where: cannot read the SQL text 'price <'",
    '[tests.x]\nempty = "items"\nwhere = "shop = 3"': "dd.toml:11: [tests.x] where: shop = 3: cannot compare string",
    '[tests.x]\nagree = [{ of = "items" }, { of = "totals" }]\nby = ["sho"]': "[tests.x] by: there is no column sho",
    '[tests.x]\nagree = [{ of = "items", sum = "shop" }, { of = "totals" }]': "[tests.x] agree: the totals are of ",
    '[tests.x]\nagree = [{ of = "items", sum = "shop" }, { of = "totals", sum = "shop" }]': "there is no sum of string",
    '[tests.x]\nagree = [{ of = "items", sum = "a" }, { of = "totals" }]': "[tests.x] sum: there is no column a",
}


@pytest.mark.parametrize("text", WRONG)
def test_mistakes_in_the_file(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_plan(project_at(tmp_path, tests=text + "\n"))
    assert WRONG[text] in caught.value.message
    assert "\n" not in caught.value.message
    assert "pl." not in caught.value.hint, "that cannot be written in dd.toml"


FUNCTIONS = {
    "@dd.test\ndef known(nothing): return nothing": "program.py:8: test known: there is no input or output 'nothing'",
    "@dd.test\ndef known(*items): return items": "program.py:8: test known: the parameter *items is no input or output",
    "@dd.test\ndef known(items): return 7": "program.py:8: test known returns int, not a collection",
    "@dd.test\ndef known(items): return items.select('prize')": "program.py:9: there is no column prize",
    "@dd.test\ndef known(items): raise ValueError('bad')": "the program fails: ValueError: bad",
    "@dd.test(severity='fatal')\ndef known(items): return items": "test known: the severity is 'fatal'",
    "@dd.test(from_version='1')\ndef known(items): return items": "test known: from_version is '1'",
    "dd.test(3)": "test takes a function, not int",
    "@dd.test\ndef negative(items): return items": "a test negative is there already: dd.toml:12",
    "def other():\n    @dd.test\n    def known(items): return items\n    return known\n\none, two = other(), other()":
        "a test known is there already: program.py:9",
}  # fmt: skip


@pytest.mark.parametrize("text", FUNCTIONS)
def test_mistakes_in_the_program(text: str, tmp_path: Path) -> None:
    with pytest.raises(ProgramError) as caught:
        load_plan(project_at(tmp_path, program=PROGRAM.split("@dd", maxsplit=1)[0].rstrip() + "\n\n" + text + "\n"))
    assert FUNCTIONS[text] in caught.value.message


@pytest.mark.parametrize("returned", ["None", "3", '{"cheap": 3}', '{"cheap": [items]}', "{}"])
def test_a_program_that_returns_something_else(returned: str, tmp_path: Path) -> None:
    """The error is that of the program, with tests as without."""
    said = []
    for index, tests in enumerate(["", '[tests.x]\nempty = "cheap"\n']):
        program = f"def program(items, totals):\n    return {returned}\n"
        with pytest.raises(DdError) as caught:
            load_plan(project_at(tmp_path / str(index), tests=tests, program=program))
        said.append(caught.value.message)
    assert said[0] == said[1] or returned == "{}", said


@pytest.mark.parametrize("name", ["tests.mine", "tests."])
@pytest.mark.parametrize("call", ["outputs", "inspect"])
def test_names_of_tests_are_theirs(name: str, call: str, tmp_path: Path) -> None:
    result = f'{{"{name}": items}}' if call == "outputs" else f'{{"items": items.inspect("{name}").distinct()}}'
    with pytest.raises(ProgramError, match=r"names that begin with tests\. are those of data tests"):
        load_plan(project_at(tmp_path, tests="", program=f"def program(items, totals):\n    return {result}\n"))


def test_from_version_needs_one_dimension(tmp_path: Path) -> None:
    dims = ("day", "revision")
    with pytest.raises(UsageError, match="from_version: the times here have the dimensions day, revision"):
        project_at(tmp_path / "a", dims=dims, tests=TESTS + MORE + "from_version = 3\n")
    with pytest.raises(ProgramError, match="from_version: the times here have the dimensions day, revision"):
        load_plan(
            project_at(tmp_path / "b", dims=dims, program=PROGRAM.replace("@dd.test", "@dd.test(from_version=3)"))
        )


def test_a_program_may_import_its_tests(tmp_path: Path) -> None:
    project = project_at(tmp_path, program="from other_checks import known\n" + PROGRAM.split("@dd", maxsplit=1)[0])
    (tmp_path / "other_checks.py").write_text("import ddcore as dd\n\n@dd" + PROGRAM.split("@dd")[1])
    assert [name for name in load_plan(project).outputs if "known" in name] == ["tests.known"]


# -- Spark -------------------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_on_spark(tmp_path: Path) -> None:
    project = project_at(tmp_path)
    bring(project, item(1, 5, "a", 1))
    bring(project, item(1, 6, "b", 2))
    with pytest.raises(BrokenTest, match=r"test one_price is broken at version 2: \(id=1, rows=2\)"):
        replay.run(project, engine="spark")
    assert Ledger.load(Warehouse(project.warehouse)).current_run() is None
    bring(project, item(1, 6, "b", 2, -1))
    assert replay.run(project, engine="spark").broken == []
