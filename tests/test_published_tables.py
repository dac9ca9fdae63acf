"""Published tables hold what the outputs hold, whatever happened; their change feeds say what each run changed."""

from __future__ import annotations

import datetime
import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from trams import Command

from ddcore.base.errors import UsageError
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.finding import find_project
from ddcore.io.project.project import Project
from ddcore.io.publishing import commits
from ddcore.io.publishing.commits import snapshot
from ddcore.io.publishing.publication import Publication
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import replay
from ddcore.jobs.ingest import IngestSettings, ingest
from ddcore.jobs.warm import Warm

PROJECT = """
[project]
program = "program.py:program"
[run]
engine = "inline"
[inputs.rows]
schema = {{ id = "int64", town = "string", day = "date", price = "decimal(12,2)", tags = "list[string]" }}
[outputs.rows]
{key}
table = {table}
"""
PROGRAM = "def program(rows):\n    return {'rows': rows}\n"
TOWNS = ["Ashby", "Berne", "Cádiz", None]
Row = tuple[Any, ...]


def make(folder: Path, table: str = "true", key: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "program.py").write_text(PROGRAM)
    (folder / "dd.toml").write_text(PROJECT.format(table=table, key=key))
    return folder


def project_of(
    folder: Path,
    published_rows: int = DEFAULT.published_rows,
    checkpoint_commits: int = DEFAULT.checkpoint_commits,
) -> Project:
    project = find_project(folder, {})
    tuning = Tuning(published_rows=published_rows, checkpoint_commits=checkpoint_commits)
    object.__setattr__(project, "tuning", tuning)
    return project


def drawn(rng: random.Random, serial: Iterator[int], unique: bool) -> Row:
    number = next(serial) if unique else rng.randrange(12)
    day = datetime.date(2026, 11, rng.randrange(1, 4)) if rng.random() < 0.9 else None
    price = rng.choice([None, "1.50", "99999999.99", "-3.25"])
    tags = rng.choice([None, (), ("a",), ("a", None)])
    return (number, rng.choice(TOWNS), day, price, tags)


def version_of(folder: Path, version: int, changes: Counter[Row]) -> str:
    lines = [
        {"id": i, "town": town, "day": day and str(day), "price": price, "tags": tags and list(tags) if tags else tags,
         "version": version, "diff": diff}
        for (i, town, day, price, tags), diff in changes.items()
    ]  # fmt: skip
    for line in lines:
        line["tags"] = None if line["tags"] is None else list(line["tags"])
    file = folder / f"v{version}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(file)


def step(project: Project, version: int, changes: Counter[Row], warm: Warm | None = None) -> replay.RunReport:
    source = version_of(project.root, version, changes)
    ingest(project, "rows", [source], IngestSettings(), engine="inline")
    return replay.run(project, engine="inline", warm=warm)


def plain(row: Row) -> Row:
    return tuple(tuple(v) if isinstance(v, list) else str(v) if v.__class__.__name__ == "Decimal" else v for v in row)


def held(location: Path, count: str = "") -> Counter[Row]:
    frame = pl.read_delta(str(location))
    rows: Counter[Row] = Counter()
    for row in frame.select("id", "town", "day", "price", "tags", *([count] if count else [])).iter_rows():
        rows[plain(row[:5])] += row[5] if count else 1
    if count:
        assert (frame[count] > 0).all()
        assert sum(1 for _ in rows) == len(frame)
    return rows


def fed(location: Path, first: int, last: int, count: str = "") -> list[tuple[str, Row]]:
    """The change feed of some versions of a table."""
    table = pl.DataFrame(DeltaTable(str(location)).load_cdf(first, last).read_all())
    columns = ["_change_type", "id", "town", "day", "price", "tags", *([count] if count else [])]
    return [(kind, plain(tuple(row))) for kind, *row in table.select(columns).iter_rows()]


FORMS = {
    "rows": ("true", ""),
    "key": ("true", 'key = ["id"]'),
    "clustered": ('{ cluster_by = ["day", "town"] }', ""),
    "partitioned": ('{ partition_by = ["town"], cluster_by = ["price"] }', 'key = ["id"]'),
    "two partitions, counted": ('{ path = "tables/xy", partition_by = ["day", "town"], count = "n" }', ""),
    "counted": ('{ count = "how many" }'.replace("how many", "how_many"), 'key = ["id", "town"]'),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("form", FORMS)
def test_a_table_holds_what_the_output_holds_after_every_run(form: str, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    table, key = FORMS[form]
    count = {"two partitions, counted": "n", "counted": "how_many"}.get(form, "")
    project = project_of(make(tmp_path / "p", table, key), rng.choice([1, 2, 5, 40]))
    location = tmp_path / "p" / ("tables/xy" if "xy" in table else "warehouse/tables/rows")
    serial = iter(range(10**6))
    unique = 'key = ["id"]' in key
    rows: Counter[Row] = Counter()
    warm = Warm()  # of most runs; others come in between, as of other processes
    for version in range(rng.randrange(4, 9)):
        changes: Counter[Row] = Counter()
        for row in rng.sample(sorted(rows.elements(), key=repr), min(len(rows), rng.randrange(4))):
            changes[row] -= 1
        for _ in range(rng.choice([0, 1, 3, 30] if rows else [1, 3, 30])):  # of nothing there would be no run
            changes[drawn(rng, serial, unique)] += 1
        changes = Counter({row: diff for row, diff in changes.items() if diff})
        before = Counter(rows)
        rows.update(changes)
        rows = Counter({row: number for row, number in rows.items() if number})
        if not changes:
            continue
        is_new = not location.exists()
        report = step(project, version, changes, warm if rng.random() < 0.7 else None)
        assert len(report.published) == 1, report
        assert held(location, count) == rows
        assert is_new == bool(report.published[0].made), report
        log = DeltaTable(str(location))
        if log.version():
            check_feed(fed(location, log.version(), log.version(), count), before, rows, count)
    assert replay.run(project, engine="inline").published == []
    ledger = Ledger.load(Warehouse(project.warehouse))
    settings = project.outputs["rows"].table
    assert settings is not None
    assert len(Publication(project, ledger, "rows", settings).differences()) == 0


def check_feed(feed: list[tuple[str, Row]], before: Counter[Row], after: Counter[Row], count: str) -> None:
    """The feed takes one to the other, without a row that stayed."""
    signs = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
    if count:
        old = Counter({(*row, number): 1 for row, number in before.items()})
        new = Counter({(*row, number): 1 for row, number in after.items()})
    else:
        old, new = before, after
    moved: Counter[Row] = Counter()
    for kind, row in feed:
        moved[row] += signs[kind]
    due = Counter(new)
    due.subtract(old)
    assert {row: n for row, n in moved.items() if n} == {row: n for row, n in due.items() if n}
    assert len(feed) == sum(abs(n) for n in due.values())
    images = Counter(kind for kind, _ in feed)
    assert images["update_preimage"] == images["update_postimage"]


# --- tables that are lost, damaged or written to ----------------------------------------------------------------------

A, B, C = ((n, "Ashby", datetime.date(2026, 11, 1), f"{n}.00", ("a",)) for n in (1, 2, 3))


@pytest.fixture
def three(tmp_path: Path) -> Project:
    """A table with a file for each of three rows."""
    project = project_of(make(tmp_path / "p"), published_rows=1)
    step(project, 0, Counter({A: 1, B: 1, C: 1}))
    return project


def table_of(project: Project) -> Path:
    return Path(str(project.warehouse)) / "tables" / "rows"


def data_files(project: Project) -> list[Path]:
    return sorted(table_of(project).glob("*.parquet"))


def again(project: Project) -> str:
    """Why the next run, with a changed row, made the table again; empty where it did not."""
    (published,) = step(project, 1, Counter({A: -1})).published
    assert held(table_of(project)) == Counter({B: 1, C: 1})
    return published.made


def test_files_without_a_changed_row_are_not_written_again(three: Project) -> None:
    before = {file.name for file in data_files(three)}
    (published,) = step(three, 1, Counter({B: -1})).published
    assert (published.plus, published.minus, published.files, published.made) == (0, 1, 0, "")
    assert {file.name for file in data_files(three)} == before
    assert held(table_of(three)) == Counter({A: 1, C: 1})
    assert published.sentence == "published rows: +0/-1 in 0 of 2 files"


def test_status_says_where_tables_are_and_of_which_run(three: Project, dd: Command) -> None:
    location = ("--project", str(three.root))
    line = f"table      rows: {table_of(three)}: of run 1"
    assert line in dd("status", *location)[1]
    json_line = json.loads(dd("status", "--json", *location)[1][0])
    assert json_line["published"] == [{"output": "rows", "path": str(table_of(three)), "run": 1}]
    shutil.rmtree(table_of(three))
    assert f"table      rows: {table_of(three)}: not written yet  (ddcore run)" in dd("status", *location)[1]


def test_a_table_that_is_lost_is_made_again_by_the_next_run_without_anything_new(three: Project) -> None:
    shutil.rmtree(table_of(three))
    (published,) = replay.run(three, engine="inline").published
    assert published.made == "it is new" and held(table_of(three)) == Counter({A: 1, B: 1, C: 1})


@pytest.mark.sample(6, of="kept")
@pytest.mark.parametrize("location", [10, -10], ids=["rows", "footer"])
def test_a_damaged_file_with_a_changed_row_makes_it_again(location: int, three: Project) -> None:
    for file in data_files(three):
        content = bytearray(file.read_bytes())
        content[location] ^= 1
        file.write_bytes(bytes(content))
    assert "damaged" in again(three)


def test_verify_finds_a_table_that_is_not_right(three: Project, dd: Command) -> None:
    location = ("--project", str(three.root))
    assert dd("verify", *location)[1][-1] == "holds    the table of rows"
    data_files(three)[0].unlink()
    code, out, err = dd("verify", *location)
    assert code == 3 and out[-1].startswith("differs  the table of rows: ")
    assert err[-1] == "  remove its folder: the next ddcore run makes the table again, from the log"
    code, out, _ = dd("verify", "--json", *location)
    assert code == 3 and json.loads(out[-1])["holds"] is False
    shutil.rmtree(table_of(three))
    assert dd("run", *location)[0] == 0
    assert dd("verify", "-q", *location)[:2] == (0, [])


@pytest.mark.sample(6, of="kept")
def test_what_is_known_of_a_table_is_what_a_look_at_it_finds(three: Project) -> None:
    """Also after maintenance and another program's commit, and when the table was lost and made again."""
    location, warm = table_of(three), Warm()
    step(three, 1, Counter({(7, "Ayr", None, None, None): 1}), warm)

    def optimize() -> None:
        DeltaTable(str(location)).optimize.compact()

    def lose() -> None:
        shutil.rmtree(location)
        replay.run(three, engine="inline")

    others: list[Callable[[], Any]] = [
        lambda: None,
        lambda: DeltaTable(str(location)).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"}),
        lambda: write_deltalake(str(location), pl.read_delta(str(location)).head(1).to_arrow(), mode="append"),
        optimize,
        lose,
    ]
    for version, change in enumerate(others, 2):
        change()
        step(three, version, Counter({(version, "Oban", None, None, None): 1}), warm)
        assert (version, "Oban", None, None, None) in held(location)
        (known,), found = warm.tables.values(), snapshot(location)
        assert replace(known, written=None, files=()) == replace(found, files=())
        ours, other = ({file.path: file for file in one.files or ()} for one in (known, found))
        assert ours.keys() == other.keys() and all(ours[path].first.equals(other[path].first) for path in ours)
    settings = three.outputs["rows"].table
    assert settings is not None
    ledger = Ledger.load(Warehouse(three.warehouse))
    assert len(Publication(three, ledger, "rows", settings).differences()) == 0


def test_rows_that_another_program_wrote_go(three: Project) -> None:
    frame = pl.read_delta(str(table_of(three))).head(1).with_columns(id=pl.lit(77, pl.Int64))
    frame.write_delta(str(table_of(three)), mode="append")
    assert again(three) == "another program has written to it"


def test_maintenance_by_another_program_is_no_reason(three: Project) -> None:
    DeltaTable(str(table_of(three))).vacuum(0, dry_run=False, enforce_retention_duration=False)
    DeltaTable(str(table_of(three))).create_checkpoint()
    assert again(three) == ""


def test_a_table_that_another_program_compacted_is_made_again(three: Project) -> None:
    DeltaTable(str(table_of(three))).optimize.compact()
    assert again(three) == "another program has written to it"


def test_a_folder_with_something_else_is_refused_before_anything_is_folded(tmp_path: Path, dd: Command) -> None:
    folder = make(tmp_path / "p", '"shared"')
    (folder / "shared").mkdir()
    (folder / "shared" / "notes.txt").write_text("mine")
    source = version_of(folder, 0, Counter({A: 1}))
    assert dd("ingest", "rows", source, "--project", str(folder))[0] == 0
    code, _, err = dd("run", "--project", str(folder))
    assert code == 2 and "shared holds other files, such as notes.txt" in err[-2]
    assert not (folder / "warehouse" / "outputs").exists()
    (folder / "shared" / "notes.txt").unlink()
    pl.DataFrame({"x": [1]}).write_delta(str(folder / "shared"))
    code, _, err = dd("run", "--project", str(folder))
    assert code == 2 and "is a Delta table that ddcore did not make" in err[-2]
    assert len(pl.read_delta(str(folder / "shared"))) == 1


# --- histories that change --------------------------------------------------------------------------------------------


def test_a_restated_history_changes_only_the_rows_that_differ(three: Project) -> None:
    source = version_of(three.root, 0, Counter({A: 1, C: 1}))
    ingest(three, "rows", [source], IngestSettings(restate="first"), engine="inline")
    (published,) = replay.run(three, engine="inline").published
    assert (published.plus, published.minus, published.made) == (0, 1, "")
    assert held(table_of(three)) == Counter({A: 1, C: 1})
    assert fed(table_of(three), 1, 1) == [("delete", B)]


def test_other_columns_make_a_table_anew(three: Project) -> None:
    (three.root / "program.py").write_text("def program(rows):\n    return {'rows': rows.select('id', n='id * 2')}\n")
    (published,) = replay.run(three, engine="inline").published
    assert published.made == "its columns or partitions are others"
    assert sorted(pl.read_delta(str(table_of(three))).rows()) == [(1, 2), (2, 4), (3, 6)]
    (three.root / "dd.toml").write_text(
        (three.root / "dd.toml").read_text().replace("table = true", 'table = { partition_by = ["n"] }')
    )
    step(project_of(three.root), 1, Counter({A: -1}))
    assert DeltaTable(str(table_of(three))).metadata().partition_columns == ["n"]
    assert sorted(pl.read_delta(str(table_of(three))).rows()) == [(2, 4), (3, 6)]


def test_another_order_makes_a_table_anew(three: Project) -> None:
    text = (three.root / "dd.toml").read_text()
    (three.root / "dd.toml").write_text(text.replace("table = true", 'table = { cluster_by = ["price", "id"] }'))
    (published,) = step(project_of(three.root, 1), 1, Counter({B: -1})).published
    assert published.made == "its order is another" and held(table_of(three)) == Counter({A: 1, C: 1})
    (published,) = step(project_of(three.root, 1), 2, Counter({A: -1})).published
    assert published.made == "" and held(table_of(three)) == Counter({C: 1})


def test_corrections_that_follow_reach_the_table_when_they_are_folded(three: Project) -> None:
    (three.root / "program.py").write_text("def program(rows):\n    return {'rows': rows.where('id > 1')}\n")
    replay.run(three, engine="inline")
    assert held(table_of(three)) == Counter({A: 1, B: 1, C: 1})
    (published,) = step(three, 1, Counter({B: -1})).published
    assert published.made == "" and held(table_of(three)) == Counter({C: 1})


@pytest.mark.sample(6, of="kept")
def test_a_table_behind_a_history_that_was_given_up(three: Project, dd: Command) -> None:
    """A run without the table in dd.toml, and retention, come between."""
    text = (three.root / "dd.toml").read_text()
    (three.root / "dd.toml").write_text(text.replace("table = true", ""))
    without = project_of(three.root)
    for version in range(1, 5):
        step(without, version, Counter({A: -1} if version % 2 else {A: 1}))
    assert dd("compact", "--since", "4", "--project", str(three.root))[0] == 0
    (three.root / "dd.toml").write_text(text)
    (published,) = step(three, 5, Counter({B: -1})).published
    assert published.made == "" and held(table_of(three)) == Counter({A: 1, C: 1})


@pytest.mark.sample(6, of="kept")
def test_checkpoints_and_files_that_go(three: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "GRACE", 0)
    (three.root / "dd.toml").write_text((three.root / "dd.toml").read_text() + "[retention]\ndays = 0\n")
    project = project_of(three.root, published_rows=1, checkpoint_commits=5)
    for version in range(1, 8):
        step(project, version, Counter({A: -1} if version % 2 else {A: 1}))
    table = DeltaTable(str(table_of(project)))
    assert table.version() >= 7 and (table_of(project) / "_delta_log" / f"{5:020d}.checkpoint.parquet").exists()
    assert len(data_files(project)) <= 4
    assert held(table_of(project)) == Counter({B: 1, C: 1})
    assert not (table_of(project) / "_delta_log" / f"{4:020d}.json").exists(), "no version before 5 is readable"
    feed = pl.DataFrame(table.load_cdf(starting_version=5).read_all())["_commit_version"].to_list()
    assert min(feed) == 5 and len(feed) == len([*(table_of(project) / "_change_data").iterdir()])


@pytest.mark.sample(1)
@pytest.mark.parametrize("table", ["true", '{ partition_by = ["town"] }'])
def test_files_of_a_published_table_are_bounded(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of the log and files of the change feed stayed: two files for each run."""
    monkeypatch.setattr(commits, "GRACE", 0)
    folder = make(tmp_path / "p", table)
    (folder / "dd.toml").write_text((folder / "dd.toml").read_text() + "[retention]\ndays = 0\n")
    project, sizes = project_of(folder, checkpoint_commits=5), list[int]()
    rows = [(1, "Ash by/50%", None, f"{version}.00", None) for version in range(17)]
    step(project, 0, Counter({rows[0]: 1}))
    for version in range(1, 17):
        step(project, version, Counter({rows[version - 1]: -1, rows[version]: 1}))
        sizes.append(len([file for file in table_of(project).rglob("*") if file.is_file()]))
    assert max(sizes) < 30 and held(table_of(project)) == Counter({rows[-1]: 1}), sizes


def test_an_upkeep_deletes_nothing_outside_of_the_table(three: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log may name any place, as one that another program wrote into."""
    (three.root / "dd.toml").write_text((three.root / "dd.toml").read_text() + "[retention]\ndays = 0\n")
    project, log = project_of(three.root), table_of(three) / "_delta_log"
    monkeypatch.setattr(commits, "GRACE", 0)
    others = [three.root / "precious.txt", table_of(three).parent / "other.txt"]
    for file in others:
        file.write_text("here")
    step(project, 1, Counter({A: -1}))
    with (log / f"{1:020d}.json").open("a") as commit:
        for path in (str(others[0]), f"file://{others[0]}", "../other.txt"):
            for kind in ("remove", "cdc"):
                commit.write(json.dumps({kind: {"path": path, "dataChange": False, "deletionTimestamp": 0}}) + "\n")
    commits._trim(table_of(three), time.time(), set())
    (log / f"{1:020d}.checkpoint.parquet").write_bytes(b"")
    (log / f"{2:020d}.checkpoint.parquet").write_bytes(b"")
    commits._trim(table_of(three), time.time() + 1, set())
    assert not (log / f"{1:020d}.json").exists() and all(file.read_text() == "here" for file in others)


@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["after-delete", "after-trim"])
def test_an_upkeep_that_was_ended_is_finished_by_a_later_one(
    point: str, three: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (three.root / "dd.toml").write_text((three.root / "dd.toml").read_text() + "[retention]\ndays = 0\n")
    project, reached = project_of(three.root, checkpoint_commits=5), list[str]()

    def ends(at: str) -> None:
        reached.append(at)
        if reached.count(point) == 3 and at == point:
            raise KeyboardInterrupt

    monkeypatch.setattr(commits, "GRACE", 0)
    monkeypatch.setattr(commits, "failpoint", ends)
    rows = [(9, "Ashby", None, f"{version}.00", None) for version in range(12)]
    for version in range(1, 12):
        changes = Counter({rows[version]: 1})
        changes.update({rows[version - 1]: -1} if version > 1 else {})
        try:
            step(project, version, changes)
        except KeyboardInterrupt:
            assert len(reached) > 2
    assert reached.count(point) > 6 and len(data_files(project)) <= 6, data_files(project)
    assert held(table_of(project)) == Counter({A: 1, B: 1, C: 1, rows[-1]: 1})
    names = sorted(file.name for file in (table_of(project) / "_delta_log").glob("*.json"))
    assert names[0] == f"{10:020d}.json"


@pytest.mark.sample(6, of="kept")
def test_what_was_replaced_stays_for_readers_that_are_opening_the_table(
    three: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `days = 0`, too: a reader that had found the checkpoint before failed."""
    assert commits.GRACE >= 60
    monkeypatch.setattr(commits, "GRACE", 3_600)  # however slow this machine is
    (three.root / "dd.toml").write_text((three.root / "dd.toml").read_text() + "[retention]\ndays = 0\n")
    project = project_of(three.root, published_rows=1, checkpoint_commits=5)
    for version in range(1, 6):
        step(project, version, Counter({A: -1} if version % 2 else {A: 1}))
    for version in (0, 1, 4):
        assert DeltaTable(str(table_of(project)), version).to_pyarrow_table().num_rows == (2 if version == 1 else 3)


def test_a_row_that_occurs_less_than_no_times_is_one_line(three: Project, dd: Command) -> None:
    (three.root / "program.py").write_text("def program(rows):\n    return {'rows': rows.negate()}\n")
    code, _, err = dd("run", "--full-refresh", "--project", str(three.root))
    assert code == 2 and "output rows: a row occurs -1 times, and a table cannot have it so: {'id': 1" in err[-2]
    toml = three.root / "dd.toml"
    toml.write_text(toml.read_text().replace("table = true", 'table = { count = "n" }'))
    assert dd("run", "--project", str(three.root))[0] == 0
    assert pl.read_delta(str(table_of(three)))["n"].to_list() == [-1, -1, -1]


@pytest.mark.sample(6, of="kept")
def test_several_dimensions(tmp_path: Path) -> None:
    """The table has the contents at the greatest complete time."""
    folder = make(tmp_path / "p")
    (folder / "dd.toml").write_text((folder / "dd.toml").read_text() + '[time]\ndims = ["batch", "revision"]\n')
    project = project_of(folder, 1)
    changes = [(0, 0, A, 1), (1, 0, B, 1), (0, 1, A, -1), (0, 1, C, 1), (1, 1, B, -1)]
    for number, (batch, revision, row, diff) in enumerate(changes):
        line = json.loads(Path(version_of(folder, number, Counter({row: diff}))).read_text())
        del line["version"]
        source = folder / f"{number}.jsonl"
        source.write_text(json.dumps({**line, "batch": batch, "revision": revision}))
        ingest(project, "rows", [str(source)], IngestSettings(late="restate"), engine="inline")
        replay.run(project, engine="inline")
        ours: Counter[Row] = Counter()
        for _, _, other, count in changes[: number + 1]:
            ours[other] += count
        assert held(table_of(project)) == +ours


# --- who reads and who writes wrong settings --------------------------------------------------------------------------


def test_duckdb_and_arrow_read_it(three: Project) -> None:
    rows = DeltaTable(str(table_of(three))).to_pyarrow_table()
    with duckdb.connect() as session:
        session.register("rows", rows)
        assert session.execute("select count(*), sum(price) from rows").fetchall() == [(3, 6)]
    assert rows.schema.names == ["id", "town", "day", "price", "tags"]


@pytest.mark.spark
def test_spark_reads_it_and_its_change_feed(tmp_path: Path, spark: Any) -> None:
    project = project_of(make(tmp_path / "p", '{ partition_by = ["town"] }', 'key = ["id"]'), 1)
    step(project, 0, Counter({A: 1, B: 1}))
    changed = (1, None, None, "5.00", None)
    step(project, 1, Counter({A: -1, changed: 1}))
    frame = spark.read.format("delta").load(str(table_of(project)))
    assert sorted((row.id, row.town) for row in frame.collect()) == [(1, None), (2, "Ashby")]
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
    kinds = {(row["_change_type"], row.id, row.town) for row in feed.load(str(table_of(project))).collect()}
    assert kinds == {("update_preimage", 1, "Ashby"), ("update_postimage", 1, None)}
    spark.sql(f"OPTIMIZE delta.`{table_of(project)}`")
    assert held(table_of(project)) == Counter({B: 1, changed: 1})


@pytest.mark.parametrize(
    ("table", "says", "hint"),
    [
        ("5", "[outputs.rows] table: must be true, a path or a table, not 5", "table = true"),
        ("{ path = 5 }", "[outputs.rows.table] path: must be text, not 5", ""),
        ('{ partition = ["town"] }', "[outputs.rows.table] partition: unknown key", "partition_by"),
        ('{ partition_by = ["town"], cluster_by = ["town"] }', "cluster_by: 'town' is in partition_by", "once"),
        ('{ partition_by = ["towm"] }', "partition_by: the output has no column 'towm'", "did you mean 'town'?"),
        ('{ partition_by = ["price"] }', "partition_by: the column 'price' is of the type decimal(12,2)", "int64"),
        ('{ cluster_by = ["tags"] }', "cluster_by: the column 'tags' is list[string]", "plain"),
        ('{ count = "Town" }', "count: the output has a column 'Town'", "another name"),
    ],
)
def test_wrong_settings_are_told_with_their_place(table: str, says: str, hint: str, tmp_path: Path) -> None:
    folder = make(tmp_path / "p", table)
    source = version_of(folder, 0, Counter({A: 1}))
    with pytest.raises(UsageError) as caught:
        project = project_of(folder)
        ingest(project, "rows", [source], IngestSettings(), engine="inline")
        replay.run(project, engine="inline")
    assert says in caught.value.message and hint in caught.value.hint
