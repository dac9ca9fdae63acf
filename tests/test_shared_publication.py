"""Published tables that tasks write by ranges hold what the outputs hold, whatever is repeated, lost or killed."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from range_tasks import Here
from test_published_tables import FORMS, Row, check_feed, drawn, fed, held, make, project_of, step, version_of

from ddcore.base.tuning import Tuning
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.project import Project
from ddcore.io.publishing.division import division_of
from ddcore.io.publishing.publication import Publication
from ddcore.io.publishing.ranges import Order, RangeFile
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import publishing, replay
from ddcore.jobs.ingest import IngestSettings, ingest
from ddcore.jobs.warm import Warm


@pytest.fixture
def here(seed: int, monkeypatch: pytest.MonkeyPatch) -> Here:
    """Tables are published by these tasks, whatever folds."""
    tasks = Here(random.Random(seed))

    publish = publishing.publish
    monkeypatch.setattr(publishing, "_tasks", tasks.begun)
    monkeypatch.setattr(replay, "publish", lambda project, ledger, known, _: publish(project, ledger, known, "spark"))
    return tasks


def shared(project: Project, rng: random.Random, shared_rows: int = 1) -> Project:
    """A project whose tables are divided into ranges of few rows."""
    tuning = Tuning(
        published_rows=rng.choice([2, 5, 40]), shared_rows=shared_rows, task_rows=rng.choice([1, 5, 20, 100]),
        fed_rows=rng.choice([1, 3, 1000]),
    )  # fmt: skip
    object.__setattr__(project, "tuning", tuning)
    return project


def differences(project: Project) -> pl.DataFrame:
    ledger = Ledger.load(Warehouse(project.warehouse))
    settings = project.outputs["rows"].table
    assert settings is not None
    return Publication(project, ledger, "rows", settings).differences()


@pytest.mark.sample(1)
@pytest.mark.parametrize("form", FORMS)
def test_tables_that_tasks_write_hold_what_the_output_holds(form: str, here: Here, tmp_path: Path, seed: int) -> None:
    rng, (table, key) = random.Random(seed), FORMS[form]
    count = {"two partitions, counted": "n", "counted": "how_many"}.get(form, "")
    project = shared(project_of(make(tmp_path / "p", table, key)), rng, rng.choice([1, 1, 20]))
    location = tmp_path / "p" / ("tables/xy" if "xy" in table else "warehouse/tables/rows")
    serial, warm = iter(range(10**6)), Warm()
    rows: Counter[Row] = Counter()
    for version in range(4):
        changes: Counter[Row] = Counter()
        for row in rng.sample(sorted(rows.elements(), key=repr), min(len(rows), rng.randrange(4))):
            changes[row] -= 1
        for _ in range(rng.choice([1, 3, 20, 40] if version else [40, 60])):
            changes[drawn(rng, serial, 'key = ["id"]' in key)] += 1
        changes = Counter({row: diff for row, diff in changes.items() if diff})
        if not changes:
            continue
        before = Counter(rows)
        rows.update(changes)
        rows = +rows
        (published,) = step(project, version, changes, warm if rng.random() < 0.7 else None).published
        assert held(location, count) == rows
        log = DeltaTable(str(location))
        if not published.made:
            check_feed(fed(location, log.version(), log.version(), count), before, rows, count)
            assert not key or published.plus + published.minus == sum(map(abs, changes.values()))
        assert {file for file in log.file_uris() if not Path(file).exists()} == set()
    assert here.works and len(differences(project)) == 0
    assert replay.run(project, engine="inline").published == []
    if version >= 2:  # what differs is found, and written, by tasks as well
        restated = dict.fromkeys(list(rows)[::2], 1)
        source = version_of(project.root, 0, Counter(restated))
        ingest(project, "rows", [source], IngestSettings(restate="first"), engine="inline")
        before = Counter(rows)
        (published,) = replay.run(project, engine="inline").published
        assert published.made == "" and held(location, count) == Counter(restated)
        version = DeltaTable(str(location)).version()
        check_feed(fed(location, version, version, count), before, Counter(restated), count)


@pytest.mark.sample(2, of="ranges")
def test_updates_of_a_key_in_several_ranges_are_pairs(here: Here, tmp_path: Path, seed: int) -> None:
    """Rows are ordered by the price, so what a key had and what it gets are far from each other."""
    project = project_of(make(tmp_path / "p", '{ cluster_by = ["price"] }', 'key = ["id"]'))
    object.__setattr__(project, "tuning", Tuning(published_rows=3, shared_rows=1, task_rows=3))
    here.slots = 4
    rows: list[Row] = [(number, "Ayr", None, f"{number}.00", None) for number in range(30)]
    step(project, 0, Counter(rows))
    later: list[Row] = [(number, "Ayr", None, f"{29 - number}.00", None) for number in range(30)]
    changes = Counter(later)
    changes.subtract(rows)
    step(project, 1, changes)
    assert here.works[-1].ranges > 5
    location = tmp_path / "p" / "warehouse" / "tables" / "rows"
    kinds = Counter(kind for kind, _ in fed(location, 1, 1))
    assert kinds == {"update_preimage": 30, "update_postimage": 30}


@pytest.mark.sample(2, of="ranges")
def test_many_rows_behind_one_file_are_divided(here: Here, tmp_path: Path) -> None:
    """Rows that are appended all belong to the last file; it is written by several tasks, a part of it by each."""
    project = project_of(make(tmp_path / "p"))
    object.__setattr__(project, "tuning", Tuning(published_rows=50, shared_rows=60, task_rows=20))
    here.slots = 3
    first: list[Row] = [(10 * number, "Ayr", None, None, None) for number in range(40)]
    assert step(project, 0, Counter(first)).published[0].tasks == 0  # so few are written by this process
    more: list[Row] = [(number, "Ayr", None, None, None) for number in range(95, 900, 3)]
    changes = Counter(more)
    changes.update({row: -1 for row in first[::3]})
    changes = Counter({row: n for row, n in changes.items() if n})
    (published,) = step(project, 1, changes).published
    assert published.made == "" and published.tasks > 5 and here.works[0].division.split
    location = tmp_path / "p" / "warehouse" / "tables" / "rows"
    left = Counter(first)
    left.update(changes)
    assert held(location) == +left
    check_feed(fed(location, 1, 1), Counter(first), +left, "")
    sizes = pl.DataFrame(DeltaTable(str(location)).get_add_actions(flatten=True))["num_records"]
    assert max(sizes) <= 60


@pytest.mark.sample(2, of="ranges")
def test_a_table_that_is_not_as_it_was_left_is_made_again_by_tasks(here: Here, tmp_path: Path, seed: int) -> None:
    project = shared(project_of(make(tmp_path / "p")), random.Random(seed))
    rows: list[Row] = [(number, "Ayr", None, None, None) for number in range(20)]
    step(project, 0, Counter(rows))
    location = tmp_path / "p" / "warehouse" / "tables" / "rows"
    for file in location.glob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-9])
    (published,) = step(project, 1, Counter({rows[3]: -1})).published
    assert "damaged" in published.made and published.tasks > 0
    assert held(location) == Counter([*rows[:3], *rows[4:]])
    shutil.rmtree(location)
    (published,) = replay.run(project, engine="inline").published
    assert published.made == "it is new" and published.tasks > 0
    assert held(location) == Counter([*rows[:3], *rows[4:]])


def test_ranges_are_even_and_hold_all_rows(seed: int) -> None:
    """Of any files and any new rows: ranges are disjoint, and files in the ranges that may have a row of theirs."""
    rng = random.Random(seed)
    for _ in range(40):
        order = Order(("p", "n"), ("p",) if rng.random() < 0.5 else ())
        drawn = sorted(
            {(rng.choice([None, "a", "b", "c"]), rng.randrange(300)) for _ in range(rng.randrange(40))}, key=repr
        )
        drawn_rows = order.sorted(pl.DataFrame(drawn, {"p": pl.String, "n": pl.Int64}, orient="row"))
        files = [
            RangeFile(f"{number}", 9, 10, {}, row) for number, row in enumerate(drawn_rows.iter_slices(1))
        ]  # fmt: skip
        rng.shuffle(files)
        new = [(rng.choice([None, "a", "b"]), rng.randrange(300)) for _ in range(rng.randrange(500))]
        sample = pl.DataFrame(new, {"p": pl.String, "n": pl.Int64}, orient="row")
        size = rng.randrange(1, 100)
        division = division_of(order, files, sample, 1.0, size)
        assert division.cuts.equals(order.sorted(division.cuts))
        assert len(division.groups) == len(division.cuts) + 1
        parts = dict(order.numbered(sample, division.cuts))
        assert sum(map(len, parts.values())) == len(sample)
        assert {file.path for group in division.groups for file in group} == {file.path for file in files}
        once = Counter(file.path for group in division.groups for file in group)
        assert {path for path, times in once.items() if times > 1} == division.split
        for number, part in parts.items():
            most = max(Counter(part.rows()).values(), default=0)
            rows = sum(file.rows for file in division.groups[number] if file.path not in division.split)
            assert len(part) + rows <= 4 * size + 40 + most, (seed, number)


@pytest.mark.parametrize("slots", [1, 2, 3, 8])
def test_the_rows_of_a_new_table_are_divided_among_all_tasks(slots: int) -> None:
    order, sample = Order(("n",), ()), pl.DataFrame({"n": [*range(0, 1000, 2), *range(1, 1000, 2)]})
    size = -(-1000 // slots)
    division = division_of(order, [], sample, 1.0, size)
    parts = [len(part) for _, part in order.numbered(sample, division.cuts)]
    assert len(parts) == len(division.groups) == slots
    assert max(parts) <= size + 1


@pytest.mark.spark
def test_spark_writes_what_this_process_writes(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that tasks of Spark publish, and their change feed, are those of the inline project."""
    publish, sides = publishing.publish, {}
    for engine in ("inline", "spark"):
        project = project_of(
            make(tmp_path / engine, '{ partition_by = ["town"], cluster_by = ["price"] }', 'key = ["id"]')
        )
        object.__setattr__(project, "tuning", Tuning(published_rows=20, shared_rows=1, task_rows=50))
        monkeypatch.setattr(
            replay, "publish", lambda project, ledger, known, _, to=engine: publish(project, ledger, known, to)
        )
        rng, serial = random.Random(5), iter(range(10**6))
        rows = [drawn(rng, serial, unique=True) for _ in range(300)]
        done = step(project, 0, Counter(rows)).published
        changes: Counter[Row] = Counter({row: -1 for row in rows[::7]})
        changes.update((number, town, day, "7.25", None) for number, town, day, *_ in rows[::14])
        done += step(project, 1, changes).published
        location = tmp_path / engine / "warehouse" / "tables" / "rows"
        sides[engine] = held(location), Counter(fed(location, 1, 1)), [(one.plus, one.minus) for one in done]
        assert [one.tasks > 2 for one in done] == [engine == "spark"] * 2
        assert len(differences(project)) == 0
    assert sides["spark"] == sides["inline"]
    assert Counter(kind for kind, _ in sides["spark"][1])["update_preimage"] > 10
