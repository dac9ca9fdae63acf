"""Sources in an object store, on a local S3 server: found as files are, and read as files are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake
from ingesting import Desk
from stores import store_environment

from ddcore.errors import DataError, UsageError
from ddcore.io import objects
from ddcore.io.address import address_of
from ddcore.io.sources.finding import find_snapshots, find_sources


@pytest.fixture(scope="module")
def store() -> Iterator[None]:
    with store_environment():
        yield


@pytest.fixture
def desk(store: None, tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def box(request: pytest.FixtureRequest) -> str:
    return f"s3://box/{request.node.name}".replace("[", "-").replace("]", "")


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
    for form in ("feed", "append"):
        with pytest.raises(UsageError, match="not followed yet"):
            desk.ingest(url, form=form)
    file = next(place for place, *_ in objects.entries(address_of(url, "test")) if place.name.endswith(".parquet"))
    with pytest.raises(DataError, match="a file of the Delta table"):
        find_sources([str(file)])


def test_snapshots_in_a_store(desk: Desk, box: str) -> None:
    for day, edges in (("01", [(1, 2), (3, 4)]), ("02", [(1, 2)])):
        frame = pl.DataFrame(edges, {"src": pl.Int64, "dst": pl.Int64}, orient="row")
        objects.put(address_of(box, "test") / f"edges-2026-11-{day}.csv", frame.write_csv().encode())
    report = desk.ingest(f"{box}/edges-*.csv", form="snapshot")
    assert report.versions == 2
    assert [row[2:] for row in desk.updates()] == [(0, 1), (0, 1), (1, -1)]
    assert desk.ingest(f"{box}/edges-*.csv", form="snapshot").nothing_new


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("s3://box/nothing/here", "there is no such object or folder"),
        ("s3://box/nothing/*.csv", "matches no Parquet or CSV file"),
        ("s3://key:secret@box/a.csv", "a URL has no place for credentials"),
        ("gs://box/a.csv", "only files and folders can be read"),
    ],
)
def test_urls_that_name_no_source(place: str, says: str, desk: Desk) -> None:
    with pytest.raises((UsageError, DataError)) as caught:
        find_sources([place])
    assert says in caught.value.message and caught.value.hint


def _forget_copies() -> None:
    """As in the next command, which is another process."""
    from ddcore.io.sources import remote

    remote._copied.cache_clear()
