"""Sources in an object store, on a local S3 server: found as files are, and read as files are."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from ingesting import Desk
from s3_server import SECRET
from stores import forget_clients, store_environment

from ddcore.base.errors import DataError, StorageError, UsageError
from ddcore.cli.main import run_command
from ddcore.io.project.finding import find_project
from ddcore.io.sources.finding import find_snapshots, find_sources
from ddcore.io.sources.spark import shares
from ddcore.io.storage import objects
from ddcore.io.storage.address import Address, address_of


@pytest.fixture(scope="module")
def store() -> Iterator[None]:
    with store_environment():
        yield


@pytest.fixture
def desk(store: None, tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def box(request: pytest.FixtureRequest) -> str:
    return "s3://box/" + re.sub(r"[^a-z0-9_]+", "-", request.node.name)


def uploaded(desk: Desk, box: str, name: str, *updates: tuple[int, ...]) -> str:
    """The URL of a source of these updates."""
    objects.put(address_of(box, "test") / name, Path(desk.source(name, *updates)))
    return f"{box}/{name}"


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_file_in_a_store_is_read_as_a_file(ending: str, desk: Desk, box: str) -> None:
    url = uploaded(desk, box, f"a.{ending}", (1, 2, 0, 1), (3, 4, 1, 1))
    report = desk.ingest(url)
    assert (report.rows, report.sources) == (2, (url,))
    assert desk.updates() == [(1, 2, 0, 1), (3, 4, 1, 1)]
    assert desk.ingest(url).nothing_new
    assert [source.name for source in desk.records()[0].sources] == [url]


def test_a_project_over_an_object_has_its_schema(desk: Desk, box: str, tmp_path: Path) -> None:
    url = uploaded(desk, box, "roads.csv", (1, 2, 0, 1))
    assert run_command(["init", "-q", str(tmp_path / "new"), "--from", url]) == 0
    project = find_project(tmp_path / "new", {})
    assert [*project.inputs["roads"]] == ["src", "dst"] and project.sources["roads"].paths == (url,)


def test_an_object_that_has_grown_is_taken_in_from_where_it_was(desk: Desk, box: str) -> None:
    url = uploaded(desk, box, "a.csv", (1, 2, 0, 1))
    desk.ingest(url)
    _forget_copies()
    uploaded(desk, box, "a.csv", (1, 2, 0, 1), (3, 4, 1, 1))
    report = desk.ingest(url)
    assert any("taken in after version 0" in note for note in report.notes)
    assert desk.updates() == [(1, 2, 0, 1), (3, 4, 1, 1)]


def test_a_folder_and_a_pattern_name_the_files_below(desk: Desk, box: str) -> None:
    objects.put(address_of(box, "test") / "in/notes.txt", b"no data")
    for name in ("in/day=1/a.csv", "in/day=2/b.parquet", "in/_c.csv", "in/.hidden/d.csv", "other/e.csv"):
        uploaded(desk, box, name, (1, 2, 0, 1))
    found = find_sources([f"{box}/in/"])
    assert [source.name for source in found] == [f"{box}/in/day=1/a.csv", f"{box}/in/day=2/b.parquet"]
    assert [source.folders for source in found] == [(("day", "1"),), (("day", "2"),)]
    assert [source.name for source in find_sources([f"{box}/in/*/*.csv"])] == [f"{box}/in/day=1/a.csv"]
    assert len(find_sources([f"{box}/**/*.csv"])) == 2
    assert [one.name for one in find_snapshots([f"{box}/in/day=*"])] == [f"{box}/in/day=1", f"{box}/in/day=2"]


def test_a_delta_table_in_a_store(desk: Desk, box: str) -> None:
    url, options = f"{box}/table", objects.options()
    frame = pl.DataFrame({"src": [1], "dst": [2], "version": [0], "diff": [1]})
    write_deltalake(url, frame.to_arrow(), storage_options=options)
    write_deltalake(url, frame.with_columns(src=pl.lit(5, pl.Int64)).to_arrow(), mode="append", storage_options=options)
    assert desk.ingest(url).rows == 2
    assert desk.updates() == [(1, 2, 0, 1), (5, 2, 0, 1)]
    file = next(
        location for location, *_ in objects.entries(address_of(url, "test")) if location.name.endswith(".parquet")
    )
    with pytest.raises(DataError, match="a file of the Delta table"):
        find_sources([str(file)])


# --- tables that are followed -----------------------------------------------------------------------------------------

FEED = {"delta.enableChangeDataFeed": "true"}


def write(url: str, *rows: tuple[int, int], mode: Any = "append", **more: Any) -> None:
    """Commit rows to a Delta table in the store."""
    frame = pl.DataFrame(list(rows), {"src": pl.Int64, "dst": pl.Int64}, orient="row")
    write_deltalake(url, frame.to_arrow(), mode=mode, storage_options=objects.options(), **more)


def table(url: str) -> DeltaTable:
    return DeltaTable(url, storage_options=objects.options())


def commits_of(url: str) -> list[Address]:
    return sorted((location for location, *_ in objects.entries(address_of(url, "test") / "_delta_log")), key=str)


def test_the_change_data_feed_of_a_table_in_a_store(desk: Desk, box: str) -> None:
    url = f"{box}/table"
    write(url, (1, 2), (3, 4), (3, 4), configuration=FEED)
    assert desk.ingest(url, form="feed").versions == 1
    table(url).update(updates={"dst": "9"}, predicate="src = 1")
    write(url, (5, 6))
    table(url).delete("src = 3")
    assert desk.ingest(url, form="feed").versions == 3
    expected = [(1, 2, 0, 1), (3, 4, 0, 2), (1, 2, 1, -1), (1, 9, 1, 1), (5, 6, 2, 1), (3, 4, 3, -2)]
    assert sorted(desk.updates(), key=lambda row: row[2]) == expected
    assert desk.ingest(url, form="feed").nothing_new


def test_rows_appended_to_a_table_in_a_store(desk: Desk, box: str) -> None:
    url = f"{box}/table"
    write(url, (1, 2))
    report = desk.ingest(url, form="append")
    assert any("every row counts as inserted" in note for note in report.notes)
    write(url, (3, 4), (3, 4))
    table(url).optimize.compact()
    write(url, (5, 6))
    assert desk.ingest(url, form="append").plus == 3
    assert desk.updates() == [(1, 2, 0, 1), (3, 4, 1, 2), (5, 6, 1, 1)]
    assert desk.ingest(url, form="append").nothing_new
    table(url).delete("src = 3")
    with pytest.raises(DataError, match="removed rows, and --append only inserts"):
        desk.ingest(url, form="append")
    assert len(desk.records()) == 2


def test_partitions_whose_values_are_written_with_signs(store: None, tmp_path: Path, box: str) -> None:
    """The log has the names of files in the form of a URL, and the store has them as they are."""
    desk, url = Desk(tmp_path, {"k": "string", "n": "int64"}), f"{box}/table"
    values = ["plain", "a b", "a/b", "100%", "%41", "ü", "a=b", "a+b", "#?&", "'\""]
    for number in range(2):
        frame = pl.DataFrame({"k": values, "n": [number] * len(values)})
        write_deltalake(
            url, frame.to_arrow(), mode="append", partition_by=["k"], configuration=FEED if number == 0 else None,
            storage_options=objects.options(),
        )  # fmt: skip
        assert desk.ingest(url, form="append").plus == len(values)
    assert sorted(desk.updates()) == sorted((value, number, number, 1) for value in values for number in range(2))
    (tmp_path / "other").mkdir()
    other = Desk(tmp_path / "other", {"k": "string", "n": "int64"})
    with pytest.raises(DataError, match="escaped in the names of their folders") as caught:
        other.ingest(url, form="feed")
    assert "copy the table into a folder" in caught.value.hint and not other.stray_files()


@pytest.mark.parametrize("form", ["feed", "append"])
def test_a_lost_commit_or_file_of_a_table_in_a_store_is_never_a_gap(form: str, desk: Desk, box: str) -> None:
    url = f"{box}/table"
    write(url, (1, 2), configuration=FEED)
    desk.ingest(url, form=form)
    before = set(table(url).file_uris())
    write(url, (3, 4))
    (added,) = set(table(url).file_uris()) - before
    content = objects.read(address_of(added, "test"))
    objects.delete([address_of(added, "test")])
    with pytest.raises(DataError, match="was deleted, as VACUUM does"):
        desk.ingest(url, form=form)
    objects.put(address_of(added, "test"), content)
    write(url, (5, 6))
    table(url).create_checkpoint()
    lost = commits_of(url)[1]
    objects.delete([lost])
    with pytest.raises(DataError, match="commit 1 is not in the table's log any more") as caught:
        desk.ingest(url, form=form)
    assert "--snapshot" in caught.value.hint
    assert desk.updates() == [(1, 2, 0, 1)] and not desk.stray_files()


def test_versions_of_a_table_in_a_store_are_snapshots(desk: Desk, box: str) -> None:
    url = f"{box}/table"
    write(url, (1, 2))
    write(url, (3, 4), mode="overwrite")
    assert desk.ingest(f"{url}@v0..", form="snapshot").versions == 2
    assert desk.updates() == [(1, 2, 0, 1), (1, 2, 1, -1), (3, 4, 1, 1)]


def test_a_table_that_the_library_does_not_support_has_a_way_on(desk: Desk, box: str) -> None:
    """Spark reads no table in a store here, so the way is not --engine spark."""
    url = f"{box}/table"
    write(url, (1, 2), configuration=FEED)
    commit = commits_of(url)[0]
    text = objects.read(commit).decode()
    mapped = text.replace('"configuration":{', '"configuration":{"delta.columnMapping.mode":"name",')
    assert mapped != text
    desk.ingest(url, form="feed")
    write(url, (3, 4))
    objects.put(commit, mapped.encode())
    with pytest.raises(DataError) as caught:
        desk.ingest(url, form="feed")
    assert "has column mapping" in caught.value.message and "copy the table into a folder" in caught.value.hint
    assert desk.updates() == [(1, 2, 0, 1)]


def test_tasks_of_spark_read_a_table_in_a_store_as_this_process_does(desk: Desk, box: str) -> None:
    """So Spark needs no jars for the store: the table goes to one task, as a file does. See the test below."""
    write(f"{box}/table", (1, 2), (3, 4))
    (source,) = find_sources([f"{box}/table"])
    ((share,),) = shares([(source, None)], 2)
    copy = pickle.loads(pickle.dumps(share[0]))
    assert source.size > 0 and not source.by_spark
    assert [row for _, frame in copy.frames(["src", "dst"]) for row in frame.rows()] == [(1, 2), (3, 4)]


ON_SPARK = """
import sys
from pathlib import Path
from ddcore.jobs.spark.session import spark
from ingesting import Desk

url, folder = sys.argv[1], Path(sys.argv[2])
with spark({}, "local[2]", None):
    for form, said in (("log", {"version": 0, "diff": 1}), ("snapshot", {}), ("feed", {}), ("append", {})):
        rows = []
        for engine in ("spark", "inline"):
            (folder / f"{form}-{engine}").mkdir()
            desk = Desk(folder / f"{form}-{engine}", engine=engine)
            desk.ingest(url, form=form, **said)
            rows.append(desk.updates())
        assert rows[0] == rows[1], (form, rows)
        print(form, len(rows[0]), flush=True)
"""


@pytest.mark.long
@pytest.mark.spark
def test_a_table_in_a_store_on_spark(desk: Desk, box: str, tmp_path: Path) -> None:
    """In a process of its own: the tasks get the settings of the store from the environment."""
    url = f"{box}/table"
    write(url, (1, 2), (3, 4), configuration=FEED)
    table(url).delete("src = 3")
    write(url, (5, 6), (5, 6))
    program = [sys.executable, "-c", ON_SPARK, url, str(tmp_path)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([f"{Path(__file__).parent}/support", str(Path(__file__).parent)]),
    }
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["log", "2", "snapshot", "2", "feed", "4", "append", "2"]


# --- credentials ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["a.csv", "table", "in/*.csv"])
def test_wrong_credentials_for_a_source_are_one_clear_line(
    what: str, desk: Desk, box: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded(desk, box, "a.csv", (1, 2, 0, 1))
    write(f"{box}/table", (1, 2))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAPLANTEDWRONGKEY1")
    forget_clients()
    with pytest.raises(StorageError) as caught:
        desk.ingest(f"{box}/{what}")
    monkeypatch.undo()
    forget_clients()
    text = f"{caught.value.message} {caught.value.hint}"
    assert "access denied" in text and box in text and "AWS_ACCESS_KEY_ID" in caught.value.hint
    assert "\n" not in caught.value.message and SECRET not in text and "PLANTED" not in text


def test_snapshots_in_a_store(desk: Desk, box: str) -> None:
    for day, edges in (("01", [(1, 2), (3, 4)]), ("02", [(1, 2)])):
        frame = pl.DataFrame(edges, {"src": pl.Int64, "dst": pl.Int64}, orient="row")
        objects.put(address_of(box, "test") / f"edges-2026-11-{day}.csv", frame.write_csv().encode())
    report = desk.ingest(f"{box}/edges-*.csv", form="snapshot")
    assert report.versions == 2
    assert [row[2:] for row in desk.updates()] == [(0, 1), (0, 1), (1, -1)]
    assert desk.ingest(f"{box}/edges-*.csv", form="snapshot").nothing_new


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("s3://box/nothing/here", "there is no such file or folder"),
        ("s3://box/nothing/*.csv", "matches no data file"),
        ("s3://key:secret@box/a.csv", "a URL has no place for credentials"),
        ("gs://box/a.csv", "only files and folders can be read"),
    ],
)
def test_urls_that_name_no_source(location: str, says: str, desk: Desk) -> None:
    with pytest.raises((UsageError, DataError)) as caught:
        find_sources([location])
    assert says in caught.value.message and caught.value.hint


def _forget_copies() -> None:
    """As in the next command, which is another process."""
    from ddcore.io.sources import remote

    remote._copied.cache_clear()
