"""Upserts and change data capture: events of keys become the input's updates."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pages
import polars as pl
import pytest
from deltalake import write_deltalake
from ingesting import Desk
from seeds import nightly
from trams import Command
from workshop import Workshop

from ddcore.base.errors import DataError, DdError, LateUpdate, UnknownRetraction, UsageError
from ddcore.base.tuning import Tuning
from ddcore.cli.main import run_command
from ddcore.io.delta.writer import Writer
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.event_words import words_of
from ddcore.io.project.finding import find_project
from ddcore.io.project.times import time_of
from ddcore.jobs.undo import undo

PEOPLE = {"id": "string", "name": "string"}
ORDERED = {**PEOPLE, "ts": "int64"}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, PEOPLE, keys={"edges": ("id",)})


def table(desk: Desk, name: str, columns: Sequence[str], *rows: Sequence[Any]) -> str:
    """A source of these rows; its format follows from the name."""
    kinds: dict[str, Any] = {
        **{name: kind.polars for name, kind in desk.schema.items()},
        "version": pl.Int64,
        "op": pl.String,
    }
    frame = pl.DataFrame(list(rows), {name: kinds[name] for name in columns}, orient="row")
    path = desk.folder / name
    if name.endswith(".csv"):
        frame.write_csv(path, quote_style="non_numeric")
    else:
        frame.write_parquet(path)
    return str(path)


def options(key: str = "id", order: str = "", op: str | None = None, words: str = "") -> dict[str, Any]:
    names = tuple(order.split(",")) if order else ()
    keys = tuple(key.split(",")) if key else ()
    return {"key": keys, "order_by": names, "op": op, "op_values": words_of([words]) if words else {}}


def refused(desk: Desk, kind: type[DdError], *sources: str, **how: Any) -> DdError:
    """The error of an ingest, which has left everything as it was."""
    before = str(desk.updates()) if desk.ledger.inputs() else "", len(desk.records())
    with pytest.raises(kind) as caught:
        desk.ingest(*sources, **how)
    assert type(caught.value) is kind, caught.value
    assert (str(desk.updates()) if desk.ledger.inputs() else "", len(desk.records())) == before
    assert "\n" not in caught.value.message and caught.value.hint
    return caught.value


T47 = [("f", "m", 0), ("f", "z", 1), ("f", None, 2), ("f", "o", 3), ("f", "o", 4), ("f", None, 5)]
T47_UPDATES = [
    ("f", "m", 0, 1), ("f", "m", 1, -1), ("f", "z", 1, 1), ("f", "z", 2, -1), ("f", "o", 3, 1), ("f", "o", 5, -1),
]  # fmt: skip


def test_T47_upserts_by_key(desk: Desk) -> None:
    source = table(desk, "a.parquet", ["id", "name", "version"], *T47)
    report = desk.ingest(source, form="upsert")
    assert desk.updates() == T47_UPDATES
    assert (report.rows, report.plus, report.minus, report.first, report.last) == (6, 3, 3, time_of(0), time_of(5))
    again = desk.ingest(source, form="upsert")
    assert again.nothing_new and "1 source was taken in before and left out" in again.notes


@pytest.mark.parametrize("seed", range(5))
def test_T47_in_any_order(desk: Desk, seed: int) -> None:
    print("seed", seed)
    events = T47 * 2
    random.Random(seed).shuffle(events)
    locations = [table(desk, f"{n}.csv", ["id", "name", "version"], *events[n::3]) for n in range(3)]
    desk.ingest(*locations, form="upsert")
    assert desk.updates() == T47_UPDATES


def test_without_versions_each_ingest_is_the_next_one(desk: Desk) -> None:
    desk.ingest(table(desk, "a.csv", ["id", "name"], ("a", "x"), ("b", "y"), ("a", "z")), form="upsert")
    desk.ingest(table(desk, "b.csv", ["id", "name"], ("b", None), ("c", "w"), ("d", None)), form="upsert")
    assert desk.updates() == [("a", "z", 0, 1), ("b", "y", 0, 1), ("b", "y", 1, -1), ("c", "w", 1, 1)]
    report = desk.ingest(table(desk, "c.csv", ["id", "name"], ("a", "z")), form="upsert")
    assert report.nothing_new


def test_an_event_between_two_versions_changes_what_follows(desk: Desk) -> None:
    columns = ["id", "name", "version"]
    desk.ingest(table(desk, "a.csv", columns, ("a", "x", 0), ("a", "z", 5)), form="upsert")
    desk.ingest(table(desk, "b.csv", columns, ("a", "y", 3), ("a", None, 4)), form="upsert")
    assert desk.updates() == [
        ("a", "x", 0, 1),
        ("a", "x", 3, -1),
        ("a", "y", 3, 1),
        ("a", "y", 4, -1),
        ("a", "z", 5, 1),
    ]
    assert desk.ingest(table(desk, "c.csv", columns, ("a", "z", 5), ("a", "y", 3)), form="upsert").nothing_new


# --- against a replay of dictionaries ---------------------------------------------------------------------------------

Event = tuple[str, str | None, int, int]  # key, value, version, order


def edits(rng: random.Random, versions: int) -> list[Event]:
    """Edits of a table of eight keys: several of one key at a version, deletes, inserts after them; in order."""
    count, events = 0, []
    for version in range(versions):
        for _ in range(rng.randint(0, 6)):
            count += 1
            value = None if rng.random() < 0.3 else rng.choice("xyz")
            events.append((rng.choice("abcdefgh"), value, version, count))
    return events


class Replay:
    """The table that events make, by a dictionary for each key. What leaves no update in a log is forgotten."""

    def __init__(self) -> None:
        self.values: dict[str, dict[int, tuple[str | None, int]]] = {}

    def take(self, events: Sequence[Event]) -> None:
        for key, value, version, order in events:
            of = self.values.setdefault(key, {})
            if version not in of or of[version][1] < order:
                of[version] = (value, order)
        for of in self.values.values():
            last: tuple[str | None, int] = (None, -1)
            for version in sorted(of):
                if of[version][0] is None and last[0] is None:
                    del of[version]
                else:
                    last = of[version]

    def at(self, version: int) -> list[tuple[str, str, int]]:
        rows = []
        for key, of in self.values.items():
            past = [v for v in of if v <= version]
            value, order = of[max(past)] if past else (None, 0)
            if value is not None:
                rows.append((key, value, order))
        return sorted(rows)


def collection(desk: Desk, version: int) -> list[tuple[Any, ...]]:
    counts: dict[tuple[Any, ...], int] = {}
    for *row, at, diff in desk.updates():
        if at <= version:
            counts[tuple(row)] = counts.get(tuple(row), 0) + diff
    assert all(count in (0, 1) for count in counts.values())
    return sorted(row for row, count in counts.items() if count)


def source_of(desk: Desk, name: str, events: Sequence[Event]) -> str:
    """Events as rows with an operation; deletes have the key and the order alone."""
    rows = [
        (key, value, order, version, "D" if value is None else "I" if order % 2 else "u")
        for key, value, version, order in events
    ]
    return table(desk, name, ["id", "name", "ts", "version", "op"], *rows)


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(12))
def test_events_in_any_order_are_what_dictionaries_say(tmp_path: Path, seed: int) -> None:
    """In one ingest, with some of them twice."""
    print("seed", seed)
    rng = random.Random(seed)
    desk, replay = Desk(tmp_path, ORDERED), Replay()
    events = edits(rng, 8) or [("a", "x", 0, 1)]
    replay.take(events)
    shuffled = events + rng.sample(events, len(events) // 3)
    rng.shuffle(shuffled)
    half = len(shuffled) // 2
    sources = [source_of(desk, "a.csv", shuffled[:half]), source_of(desk, "b.parquet", shuffled[half:])]
    desk.ingest(*sources, form="op", **options(op="op", order="ts"))
    for version in range(8):
        assert collection(desk, version) == replay.at(version)
    assert desk.ingest(*sources, form="op", **options(op="op", order="ts")).nothing_new


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", nightly(range(12), 4))
def test_events_of_several_ingests_are_what_dictionaries_say(tmp_path: Path, seed: int) -> None:
    """Batches come late and again; each version is complete in one of them."""
    print("seed", seed)
    rng = random.Random(seed)
    desk, replay = Desk(tmp_path, ORDERED), Replay()
    events = edits(rng, 8)
    batches = [[event for event in events if event[2] == version] for version in range(8)]
    batches += rng.sample(batches, 3)
    rng.shuffle(batches)
    for number, batch in enumerate(batch for batch in batches if batch):
        rng.shuffle(batch)
        desk.ingest(source_of(desk, f"{number}.csv", batch), form="op", **options(op="op", order="ts"))
        replay.take(batch)
        for version in range(8):
            assert collection(desk, version) == replay.at(version)


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", nightly(range(12), 4))
def test_batches_that_come_again_change_nothing_by_their_order(tmp_path: Path, seed: int) -> None:
    """Without versions, each ingest is one; some earlier batches come again, in another file."""
    print("seed", seed)
    rng = random.Random(seed)
    desk = Desk(tmp_path, ORDERED)
    events = edits(rng, 8)
    batches = [batch for version in range(8) if (batch := [event for event in events if event[2] == version])]
    last: dict[str, tuple[str | None, int]] = {}
    for number, batch in enumerate(batches):
        for again in (batch, rng.choice(batches[: number + 1])):
            name = f"{number}-{again is batch}.parquet"
            source = source_of(desk, name, rng.sample(again, len(again)))
            frame = pl.read_parquet(source).drop("version")
            frame.write_parquet(source)
            desk.ingest(source, form="op", **options(op="op", order="ts"))
        for key, value, _, order in batch:
            last[key] = (value, order)
        held = collection(desk, 1 << 40)
        assert held == sorted((key, value, order) for key, (value, order) in last.items() if value is not None)


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", nightly(range(16), 4))
def test_events_that_change_nothing_may_be_left_out_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Some batches are the content that is there with few changes, also with keys twice, deletes and old orders: with
    the search for events that change nothing and without it all is the same: updates, notes and errors.
    """
    print("seed", seed)
    rng = random.Random(seed)
    order, is_sorted = rng.choice(["", "ts"]), rng.random() < 0.5
    for side in "ab":
        (tmp_path / side).mkdir()
    never, always = (Tuning(paired_events=few, paired_rows=few) for few in (1 << 60, 1))
    desks = [Desk(tmp_path / "a", ORDERED, tuning=never), Desk(tmp_path / "b", ORDERED, tuning=always)]
    content: dict[str, tuple[str | None, int]] = {}
    found = 0
    for number in range(6):
        rows = [(key, *value) for key, value in content.items()]
        for _ in range(rng.randrange(8)):
            rows.append((rng.choice("abcdefghij"), rng.choice(["x", "y", None]), rng.randrange(number + 3)))
        rows.append(("a", "x", number))
        rows = sorted(rows, key=lambda row: row[0]) if is_sorted else rng.sample(rows, len(rows))
        said: list[tuple[Any, ...]] = []
        for desk in desks:
            source = table(desk, f"{number}.parquet", [*ORDERED], *rows)
            try:
                report = desk.ingest(source, form="upsert", **options(order=order))
                said.append((report.rows, report.plus, report.minus, report.notes, desk.updates()))
            except DataError as error:  # of several keys, any may be the one that it names
                said.append((error.message.partition(" say which is later")[0], desk.updates()))
        found += len(said[1]) > 2
        assert str(said[0]).replace(str(desks[0].folder), "") == str(said[1]).replace(str(desks[1].folder), "")
        content = {key: (value, at) for key, value, at in collection(desks[0], 1 << 40)}
    print(f"{found} of 6 batches were taken in")


MARKED = {**ORDERED, "op": "string"}


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", nightly(range(8), 3))
@pytest.mark.parametrize("has_versions", [False, True])
def test_deletes_that_are_rows_keep_their_order_over_ingests(tmp_path: Path, has_versions: bool, seed: int) -> None:
    """Batches in any order, some of them twice: after each the input is what all events so far make in one ingest."""
    print("seed", seed)
    rng = random.Random(seed)
    desk, events = Desk(tmp_path, MARKED), edits(rng, 8)
    events += [("q", None, 3, 900), ("q", "x", 3, 899)]  # a delete of a key that has no row
    rng.shuffle(events)
    batches = [batch for start in range(0, len(events), 4) if (batch := events[start : start + 4])]
    batches += rng.sample(batches, 2)
    how = options(op="op", order="ts", words="insert=I,update=u,update=D")
    latest: dict[tuple[str, int], tuple[int, str | None]] = {}  # the last event of a key at a version
    for number, batch in enumerate(batches):
        source = source_of(desk, f"{number}.parquet", batch)
        if not has_versions:
            pl.read_parquet(source).drop("version").write_parquet(source)
        desk.ingest(source, form="op", **how)
        for key, value, version, order in batch:
            location = key, version if has_versions else 0
            latest[location] = max(latest.get(location, (0, None)), (order, value), key=lambda item: item[0])
        for version in range(8) if has_versions else [1 << 40]:
            there: dict[str, tuple[int, str | None]] = {}
            for (key, at), event in sorted(latest.items(), key=lambda item: item[0][1]):
                if at <= version:
                    there[key] = event
            held = [row[:3] for row in collection(desk, version) if row[3] != "D"]
            assert held == sorted((key, value, order) for key, (order, value) in there.items() if value is not None)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_words_that_name_no_operation_are_refused_with_their_row(desk: Desk) -> None:
    source = table(desk, "a.csv", ["id", "name", "op"], ("a", "x", "I"), ("b", "y", "Q"))
    error = refused(desk, DataError, source, form="op", **options(op="op"))
    assert error.message == f"{source}: column 'op': 'Q' is no operation (row 3)"
    assert "--op-values" in error.hint
    source = table(desk, "b.csv", ["id", "name", "op"], ("a", "x", None))
    assert "null is no operation (row 2)" in refused(desk, DataError, source, form="op", **options(op="op")).message
    source = table(desk, "c.csv", ["id", "name", "op"], ("a", "x", "t"))
    error = refused(desk, DataError, source, form="op", **options(op="op"))
    assert "'t' empties the table at its origin" in error.message and "--snapshot" in error.hint


@pytest.mark.parametrize(
    ("words", "says"),
    [("insert", "is not KIND=VALUE"), ("drop=x", "is not KIND=VALUE"), ("insert=1,delete=1", "'1' has two kinds")],
)
def test_words_that_cannot_be_are_refused(words: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        words_of([words])


def test_other_words_replace_the_usual_ones(desk: Desk) -> None:
    """Such as the numbers of SQL Server."""
    rows = [("a", "x", 0, "2"), ("a", "x", 1, "3"), ("a", "y", 1, "4"), ("a", "y", 2, "1")]
    source = table(desk, "a.csv", ["id", "name", "version", "op"], *rows)
    how = options(op="op", words="insert=2,before=3,after=4,delete=1")
    report = desk.ingest(source, form="op", **how)
    assert desk.updates() == [("a", "x", 0, 1), ("a", "x", 1, -1), ("a", "y", 1, 1), ("a", "y", 2, -1)]
    assert "1 event is left out, as it only says what a row was" in report.notes
    source = table(desk, "b.csv", ["id", "name", "version", "op"], ("a", "x", 4, "I"))
    assert "--op-values has 2, 3, 4, 1" in refused(desk, DataError, source, form="op", **how).hint


def test_an_event_without_a_key_or_an_order_is_refused_with_its_row(tmp_path: Path) -> None:
    desk = Desk(tmp_path, ORDERED)
    source = table(desk, "a.csv", ["id", "name", "ts", "op"], ("a", "x", 1, "I"), (None, "x", 2, "D"))
    error = refused(desk, DataError, source, form="op", **options(op="op", order="ts"))
    assert error.message == f"{source}: column 'id': null is no key, so the event is about no row (row 3)"
    source = table(desk, "b.csv", ["id", "name", "ts", "op"], ("a", "x", 1, "I"), ("a", None, None, "D"))
    error = refused(desk, DataError, source, form="op", **options(op="op", order="ts"))
    assert error.message == f"{source}: column 'ts': null is no order (row 3)"
    assert "--column ts=COLUMN" in error.hint


def test_two_events_of_one_order_are_refused_with_both(tmp_path: Path) -> None:
    desk = Desk(tmp_path, ORDERED)
    columns = ["id", "name", "ts", "op"]
    same = table(desk, "a.csv", columns, ("a", "x", 1, "I"), ("a", "x", 1, "c"), ("b", "x", 1, "c"))
    desk.ingest(same, form="op", **options(op="op", order="ts"))
    source = table(desk, "b.csv", columns, ("a", "x", 2, "I"), ("b", "x", 2, "D"), ("a", "y", 2, "u"))
    error = refused(desk, DataError, source, form="op", **options(op="op", order="ts"))
    assert "id='a', name='x', ts=2; and id='a', name='y', ts=2" in error.message
    source = table(desk, "c.csv", columns, ("b", "x", 2, "I"), ("b", "x", 2, "D"))
    error = refused(desk, DataError, source, form="op", **options(op="op", order="ts"))
    assert "delete id='b', ts=2; and id='b', name='x', ts=2" in error.message


@pytest.mark.parametrize("again", ["z", "y"])
def test_a_key_that_the_input_holds_twice_is_refused_with_its_rows(tmp_path: Path, again: str) -> None:
    desk = Desk(tmp_path, PEOPLE, tuning=Tuning(paired_events=1, paired_rows=1))
    desk.ingest(table(desk, "a.csv", ["id", "name"], ("a", "x"), ("a", "y"), ("b", "y")), form="append")
    desk.ingest(table(desk, "b.csv", ["id", "name"], ("b", "z")), form="upsert", **options())
    source = table(desk, "c.csv", ["id", "name"], ("a", again))
    error = refused(desk, DataError, source, form="upsert", **options())
    assert "edges holds more than one row of the key id: id='a', name='x'; and id='a', name='y'" in error.message


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"form": "upsert"}, "the input edges has no key"),
        ({"form": "upsert", **options(key="idd")}, "no column 'idd'"),
        ({"form": "upsert", **options(key="id,id")}, "names a column twice"),
        ({"form": "upsert", **options(order="id")}, "is a column of the key"),
        ({"form": "upsert", **options(key="id,name")}, "no columns beside the key"),
        ({"form": "op", **options(key="", op="op", order="name")}, "--order-by without a key"),
        ({"form": "upsert", "diff": 1}, "--diff and --upsert: only one of them"),
    ],
)
def test_options_that_cannot_be_are_refused(tmp_path: Path, how: dict[str, Any], says: str) -> None:
    desk = Desk(tmp_path, PEOPLE)
    with pytest.raises(UsageError, match=says):
        desk.ingest(table(desk, "a.csv", ["id", "name"], ("a", "x")), **how)


def test_a_column_that_is_not_there_is_refused(desk: Desk) -> None:
    source = table(desk, "a.csv", ["id", "name", "op"], ("a", "x", "I"))
    error = refused(desk, DataError, source, form="op", **options(op="opp"))
    assert "there is no column 'opp' with the operation" in error.message and "'op'" in error.hint
    source = table(desk, "b.csv", ["id", "op"], ("a", "D"))
    assert "'name' is missing" in refused(desk, DataError, source, form="op", **options(op="op")).message


# --- events without a key ---------------------------------------------------------------------------------------------


def test_without_a_key_events_are_insertions_and_retractions(tmp_path: Path) -> None:
    desk = Desk(tmp_path, PEOPLE)
    columns = ["id", "name", "version", "op"]
    rows = [("a", "x", 0, "I"), ("a", "x", 0, "I"), ("a", "x", 1, "-U"), ("a", "y", 1, "+U"), ("a", "x", 2, "D")]
    source = table(desk, "a.parquet", columns, *rows)
    report = desk.ingest(source, form="op", **options(key="", op="op"))
    assert desk.updates() == [("a", "x", 0, 2), ("a", "x", 1, -1), ("a", "y", 1, 1), ("a", "x", 2, -1)]
    assert report.repeated == 1 and report.rows == 5
    assert desk.ingest(source, form="op", **options(key="", op="op")).nothing_new
    source = table(desk, "b.csv", columns, ("q", "x", 3, "D"))
    error = refused(desk, UnknownRetraction, source, form="op",
                    **options(key="", op="op"))  # fmt: skip
    assert "retracts id='q', name='x' at version 3" in error.message
    source = table(desk, "c.csv", columns, ("a", "x", 3, "I"), ("a", "y", 3, "u"))
    error = refused(desk, DataError, source, form="op", **options(key="", op="op"))
    assert "(row 3)" in error.message and "--key" in error.hint


# --- with Spark -------------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_spark_makes_the_same_updates(tmp_path: Path) -> None:
    """T47, a Delta table, and events in random order after those that are held; and the same errors."""
    (tmp_path / "T47").mkdir()
    desk = Desk(tmp_path / "T47", PEOPLE, "spark", keys={"edges": ("id",)})
    source = table(desk, "a.parquet", ["id", "name", "version"], *T47)
    report = desk.ingest(source, form="upsert")
    assert desk.updates() == T47_UPDATES and report.rows == 6
    assert desk.ingest(source, form="upsert").nothing_new
    rng = random.Random(7)
    events = edits(rng, 8)
    desks = []
    for engine in ("spark", "inline"):
        (tmp_path / engine).mkdir()
        desks.append(Desk(tmp_path / engine, ORDERED, engine))
    for number, batch in enumerate((events[::2], events[1::2], events[:4])):
        reports = []
        for desk in desks:
            source = source_of(desk, f"{number}.{'csv' if number else 'parquet'}", batch)
            if number == 1:
                write_deltalake(str(desk.folder / "table"), pl.read_csv(source).to_arrow())
                source = str(desk.folder / "table")
            reports.append(desk.ingest(source, form="op", **options(op="op", order="ts")))
        assert desks[0].updates() == desks[1].updates() != []
        one, other = (replace(item, engine="", took=0.0, sources=(), instant=None) for item in reports)
        assert one == other
    for rows in ([("a", "x", 900, 99, "Q")], [("a", "x", 900, 99, "I"), ("a", "y", 900, 99, "I")]):
        errors = []
        for desk in desks:
            source = table(desk, f"bad{len(rows)}.csv", ["id", "name", "ts", "version", "op"], *rows)
            errors.append(refused(desk, DataError, source, form="op", **options(op="op", order="ts")))
        assert errors[0].message.replace("/spark/", "/inline/") == errors[1].message


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_spark_takes_events_without_a_key(tmp_path: Path) -> None:
    desk = Desk(tmp_path, PEOPLE, "spark")
    rows = [("a", "x", 0, "I"), ("a", "x", 1, "-U"), ("a", "y", 1, "+U")]
    source = table(desk, "a.parquet", ["id", "name", "version", "op"], *rows)
    desk.ingest(source, form="op", **options(key="", op="op"))
    assert desk.updates() == [("a", "x", 0, 1), ("a", "x", 1, -1), ("a", "y", 1, 1)]
    source = table(desk, "b.csv", ["id", "name", "version", "op"], ("q", "x", 3, "D"))
    refused(desk, UnknownRetraction, source, form="op", **options(key="", op="op"))
    for shape in ("structs", "json"):
        (tmp_path / shape).mkdir()
        desk = Desk(tmp_path / shape, {**CUSTOMERS, "ts_ms": "int64"}, "spark")
        source = envelopes(tmp_path, shape, ENVELOPES[:4])
        if shape == "structs":
            write_deltalake(str(tmp_path / "table"), pl.read_parquet(source).to_arrow())
            source = str(tmp_path / "table")
            error = refused(desk, DataError, source, form="debezium", **options())
            assert "of which a table does not say which is later" in error.message and "--order-by" in error.hint
        desk.ingest(source, form="debezium", **options(order="ts_ms"))
        assert desk.updates() == [(1004, "Anne Marie", 1.5, 3, 0, 1)]


# --- the key of an input ----------------------------------------------------------------------------------------------


def test_two_rows_of_one_key_are_refused_with_the_rows(desk: Desk) -> None:
    desk.ingest(desk.source("a.csv", ("a", "x", 0, 1), ("b", "x", 0, 1), ("b", "x", 4, -1)))
    source = desk.source("b.csv", ("b", "y", 2, 1))
    error = refused(desk, DataError, source)
    assert error.message == (
        f"{source}: the input edges would hold more than one row of the key id as of version 2: id='b', name='x'; and "
        "id='b', name='y'"
    )
    assert "take key out of [inputs.edges]" in error.hint
    desk.ingest(desk.source("c.csv", ("b", "y", 4, 1), ("a", "x", 5, -1), ("a", "y", 5, 1)))
    assert "(2 times)" in refused(desk, DataError, desk.source("d.csv", ("q", "y", 6, 2))).message
    source = table(desk, "e.csv", ["id", "name"], ("a", "v"), ("c", "v"), ("c", "w"))
    for form in ("append", "snapshot"):
        error = refused(desk, DataError, source, form=form)
        assert "as of version 6: id=" in error.message
    error = refused(desk, DataError, desk.source("f.csv", ("b", "z", 3, 1)), restate=3)
    assert "of the key id as of version 3: id='b', name='x'; and id='b', name='z'" in error.message
    error = refused(desk, DataError, table(desk, "h.csv", ["id", "name"], ("d", "y")), form="upsert",
                    **options(key="name"))  # fmt: skip
    assert "edges holds more than one row of the key name" in error.message


def test_an_undo_that_leaves_two_rows_of_one_key_is_refused(desk: Desk) -> None:
    desk.ingest(desk.source("a.csv", ("a", "x", 0, 1)))
    desk.ingest(desk.source("b.csv", ("a", "x", 1, -1)))
    desk.ingest(desk.source("c.csv", ("a", "y", 2, 1)))
    before = desk.updates()
    with pytest.raises(
        DataError, match=r"ingest 2 cannot be taken back: .* as of version 2: id='a', name='x'; and id='a'"
    ):
        undo(desk.project, 2)
    assert desk.updates() == before and len(desk.records()) == 3
    undo(desk.project, 3)
    undo(desk.project, 2)
    assert desk.updates() == [("a", "x", 0, 1)]


def test_an_undo_of_a_restatement_that_leaves_two_rows_of_one_key_is_refused(tmp_path: Path) -> None:
    """The key was written into dd.toml after the first of these ingests."""
    desk = Desk(tmp_path, PEOPLE)
    desk.ingest(desk.source("a.csv", ("a", "x", 0, 1), ("a", "y", 1, 1)))
    desk.project = replace(desk.project, keys={"edges": ("id",)})
    desk.ingest(desk.source("b.csv", ("a", "x", 1, -1), ("a", "y", 1, 1)), restate=1)
    with pytest.raises(DataError, match="ingest 2 cannot be taken back: the input edges would hold more than one row"):
        undo(desk.project, 2)


def test_the_key_of_an_input_is_read_from_the_file(desk: Desk) -> None:
    file = desk.folder / "dd.toml"
    text = file.read_text()
    for key, says in (
        ('["id"]', ""),
        ('["idd"]', "there is no column 'idd'"),
        ("[]", "names no column"),
        ('"id"', "must be a list"),
    ):
        file.write_text(text + f"key = {key}\n")
        if says:
            with pytest.raises(UsageError, match=rf"\[inputs.edges\] key: {says}"):
                find_project(desk.folder, {})
        else:
            assert find_project(desk.folder, {}).keys == {"edges": ("id",)}


# --- Debezium ---------------------------------------------------------------------------------------------------------

# As in Debezium's documentation of its connectors: a read of the first snapshot, an insert, an update, a delete with
# the key alone before it (of a table whose replica identity is its key), and the tombstone that follows.
ENVELOPES: list[dict[str, Any] | None] = [
    {"before": None, "after": {"id": 1004, "first_name": "Anne", "score": 1.5}, "op": "r", "ts_ms": 1},
    {"before": None, "after": {"id": 1005, "first_name": "Jon", "score": None}, "op": "c", "ts_ms": 2},
    {
        "before": {"id": 1004, "first_name": "Anne", "score": 1.5},
        "after": {"id": 1004, "first_name": "Anne Marie", "score": 1.5}, "op": "u", "ts_ms": 3,
    },
    {"before": {"id": 1005, "first_name": None, "score": None}, "after": None, "op": "d", "ts_ms": 4},
    None,
]  # fmt: skip
CUSTOMERS = {"id": "int64", "first_name": "string", "score": "float64"}


def envelopes(folder: Path, shape: str, events: Sequence[dict[str, Any] | None] = ENVELOPES) -> str:
    """A source of these events in one of the shapes in which they are written."""
    path = folder / f"{shape}.{'csv' if shape == 'csv' else 'parquet'}"
    row = pl.Struct({"id": pl.Int32, "first_name": pl.String, "score": pl.Float64})
    kinds: dict[str, Any] = {"before": row, "after": row, "op": pl.String, "ts_ms": pl.Int64}
    source = {"lsn": 7, "db": "shop"}
    full = [{name: None if one is None else one[name] for name in kinds} for one in events]
    if shape == "structs":
        frame = pl.DataFrame(full, kinds).with_columns(source=pl.struct(lsn=pl.lit(7), db=pl.lit("shop")))
    elif shape == "payload":
        frame = pl.DataFrame({"payload": full}, {"payload": pl.Struct(kinds)})
    elif shape == "texts":
        texts = [{name: json.dumps(one[name]) if name in ("before", "after") and one[name] else one[name]
                  for name in kinds} for one in full]  # fmt: skip
        frame = pl.DataFrame(texts, {**kinds, "before": pl.String, "after": pl.String})
    else:
        whole = [None if one is None else {**one, "source": source} for one in events]
        if shape == "schema":
            whole = [None if one is None else {"schema": {"type": "struct"}, "payload": one} for one in whole]
        frame = pl.DataFrame({"value": [None if one is None else json.dumps(one) for one in whole]})
        if shape == "lines":  # with empty lines between them, and the tombstone as Kafka's tools write it
            path = folder / "lines.jsonl"
            path.write_text("\n\n".join("null" if text is None else text for text in frame["value"]) + "\n")
            return str(path)
        frame = frame if shape != "csv" else frame.with_columns(offset=pl.int_range(pl.len()))
    frame.write_csv(path) if shape == "csv" else frame.write_parquet(path)
    return str(path)


@pytest.mark.parametrize("shape", ["structs", "payload", "texts", "json", "schema", "csv", "lines"])
def test_envelopes_of_debezium_in_each_shape(tmp_path: Path, shape: str) -> None:
    desk = Desk(tmp_path, CUSTOMERS)
    source = envelopes(tmp_path, shape)
    report = desk.ingest(source, form="debezium", **options())
    assert desk.updates() == [(1004, "Anne Marie", 1.5, 0, 1)]
    assert report.rows == 5 and desk.ingest(source, form="debezium", **options()).nothing_new


def test_the_envelope_has_versions_and_an_order(tmp_path: Path) -> None:
    for shape in ("structs", "json", "lines"):
        (tmp_path / shape).mkdir()
        desk = Desk(tmp_path / shape, {**CUSTOMERS, "lsn": "int64"})
        rename = {"lsn": "source.lsn", "version": "ts_ms"}
        desk.ingest(envelopes(tmp_path, shape, ENVELOPES[:4]), form="debezium", **options(), column=rename)
        assert desk.updates() == [
            (1004, "Anne", 1.5, 7, 1, 1), (1005, "Jon", None, 7, 2, 1), (1004, "Anne", 1.5, 7, 3, -1),
            (1004, "Anne Marie", 1.5, 7, 3, 1), (1005, "Jon", None, 7, 4, -1),
        ]  # fmt: skip
        (tmp_path / f"{shape}-order").mkdir()
        desk = Desk(tmp_path / f"{shape}-order", {**CUSTOMERS, "ts_ms": "int64"})
        backwards = envelopes(tmp_path, shape, ENVELOPES[3::-1])
        desk.ingest(backwards, form="debezium", **options(order="ts_ms"))
        assert desk.updates() == [(1004, "Anne Marie", 1.5, 3, 0, 1)]


@pytest.mark.parametrize("shape", ["texts", "json", "lines"])
def test_deletes_have_the_key_alone_in_front_of_them(tmp_path: Path, shape: str) -> None:
    """As PostgreSQL writes them, in a file without other events. It was refused for the columns that none has."""
    desk = Desk(tmp_path, CUSTOMERS)
    desk.ingest(envelopes(tmp_path, shape, ENVELOPES[:2]), form="debezium", **options())
    gone = {"before": {"id": 1004}, "after": None, "op": "d", "ts_ms": 5}
    (tmp_path / "gone").mkdir()
    source = envelopes(tmp_path / "gone", shape, [gone])
    assert desk.ingest(source, form="debezium", **options()).minus == 1
    assert desk.updates()[-1] == (1004, "Anne", 1.5, 1, -1)


@pytest.mark.parametrize("op", ["c", 2, True])
def test_operations_in_json_lines_are_of_any_type(tmp_path: Path, op: Any) -> None:
    desk = Desk(tmp_path, PEOPLE)
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"op": op, "row": {"id": "a"}, "name": "x", "version": 1}) + "\n")
    words = "" if op == "c" else f"insert={str(op).lower()}"
    desk.ingest(str(path), form="op", **options(op="op", words=words), column={"id": "row.id"})
    assert desk.updates() == [("a", "x", 1, 1)]
    path.write_text(json.dumps({"op": "Q", "row": {"id": "b"}, "name": "y", "version": 2}) + "\n")
    error = refused(desk, DataError, str(path), form="op", **options(op="op", words=words), column={"id": "row.id"})
    assert "'Q' is no operation (row 1)" in error.message
    path.write_text('{"id": "a", "name": "y", "version": 2}\n{"id": "b", "name": null, "version": 2}\n')
    desk.ingest(str(path), form="upsert", **options())
    assert collection(desk, 2) == [("a", "y")]


def test_an_operation_may_be_a_field_of_a_column(tmp_path: Path) -> None:
    desk = Desk(tmp_path, PEOPLE)
    frame = pl.DataFrame({"id": ["a"], "name": ["x"], "meta": [{"op": "I", "at": 3}]})
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_ndjson(tmp_path / "b.jsonl")
    for name in ("a.parquet", "b.jsonl"):
        report = desk.ingest(str(tmp_path / name), form="op", **options(op="meta.op"), column={"version": "meta.at"})
        assert desk.updates() == [("a", "x", 3, 1)] and report.rows == 1


def test_values_may_be_lists_and_structs(tmp_path: Path) -> None:
    desk = Desk(
        tmp_path, {"id": "int64", "tags": "list[string]", "place": "struct[x: float64]"}, keys={"edges": ("id",)}
    )
    frame = pl.DataFrame({"id": [1, 2, 1], "tags": [["a"], None, ["a", "b"]], "place": [{"x": 1.0}, None, None]})
    frame.write_parquet(tmp_path / "a.parquet")
    desk.ingest(str(tmp_path / "a.parquet"), form="upsert", **options(order=""))
    frame[:1].write_parquet(tmp_path / "b.parquet")
    desk.ingest(str(tmp_path / "b.parquet"), form="upsert")
    log = desk.log.collect(desk.log.scan(desk.ledger.input_table("edges"))).sort("version", "diff")
    assert log.rows() == [
        (1, ["a", "b"], None, 0, 1), (1, ["a", "b"], None, 1, -1), (1, ["a"], {"x": 1.0}, 1, 1),
    ]  # fmt: skip


def test_envelopes_without_a_key_are_rows_before_and_after(tmp_path: Path) -> None:
    desk = Desk(tmp_path, CUSTOMERS)
    how = options(key="")
    desk.ingest(envelopes(tmp_path, "structs", [*ENVELOPES[:3], None]), form="debezium", **how, version=3)
    assert desk.updates() == [(1004, "Anne Marie", 1.5, 3, 1), (1005, "Jon", None, 3, 1)]
    error = refused(desk, UnknownRetraction, envelopes(tmp_path, "json", ENVELOPES[3:4]), form="debezium", **how)
    assert "id=1005, first_name=null" not in str(desk.updates()) and "retracts id=1005" in error.message
    bare = [{"before": None, "after": {"id": 1, "first_name": "x", "score": 0.0}, "op": "u", "ts_ms": 1}]
    error = refused(desk, DataError, envelopes(tmp_path, "texts", bare), form="debezium", **how)
    assert "updates a row without the row before it (row 1)" in error.message and "--key" in error.hint


def test_bad_envelopes_are_refused_with_their_rows(tmp_path: Path) -> None:
    desk = Desk(tmp_path, CUSTOMERS)
    path = tmp_path / "bad.parquet"
    good = json.dumps(ENVELOPES[0])
    for text, says in (
        ('{"op": "c"', "the event in row 2 is not JSON: it is cut off before its end"),
        ('{"op": "c", "after": {"id": [1], "first_name": "a"}}', "is not JSON of an event (row 2)"),
        ('{"op": "x", "after": {"id": 1, "first_name": "a", "score": 1}}', "'x' is no operation (row 2)"),
        ('{"op": "t"}', "'t' empties the table at its origin"),
        ('{"op": "d", "before": null}', "null is no key, so the event is about no row (row 2)"),
        ('{"op": "c", "after": {"id": "q", "first_name": "a", "score": 1}}', "'q' is not a whole number (row 2)"),
    ):
        pl.DataFrame({"value": [good, text]}).write_parquet(path)
        assert says in refused(desk, DataError, str(path), form="debezium", **options()).message
        lines = tmp_path / "bad.jsonl"
        lines.write_text(f"\n{good}\n\n{text}\n{good}\n")
        error = refused(desk, DataError, str(lines), form="debezium", **options())
        assert says.replace("row 2", "row 4") in error.message
    pl.DataFrame({"value": [good, '{"id": 1, "first_name": "a", "score": 1}']}).write_parquet(path)
    error = refused(desk, DataError, str(path), form="debezium", **options())
    assert "is no envelope of Debezium (row 2)" in error.message, "it was left out as a tombstone"
    pl.DataFrame({"value": [good.replace("score", "points")]}).write_parquet(path)
    assert "no event has a field 'score'" in refused(desk, DataError, str(path), form="debezium", **options()).message
    elsewhere = good.replace("score", "points").replace('"op"', '"source": {"score": 7}, "op"')
    for source in (path, lines):
        pl.DataFrame({"value": [elsewhere]}).write_parquet(path)
        lines.write_text(f"{elsewhere}\n")
        error = refused(desk, DataError, str(source), form="debezium", **options())
        assert error.message == f"{source}: no row in the events has a field 'score'", "it was null in all rows"
        assert "--column score=source.score" in error.hint
    pl.DataFrame({"a": [1], "b": [2]}).write_parquet(path)
    assert "no envelope of Debezium" in refused(desk, DataError, str(path), form="debezium", **options()).message


# --- closed versions, restatements, several dimensions, crashes -------------------------------------------------------


def test_late_events_follow_the_option(desk: Desk) -> None:
    columns = ["id", "name", "version"]
    desk.ingest(table(desk, "a.csv", columns, ("a", "x", 0), ("b", "x", 2), ("a", "z", 9)), form="upsert")
    desk.fold(6)
    known = table(desk, "b.csv", columns, ("a", "x", 0), ("b", "x", 2))
    assert desk.ingest(known, form="upsert").nothing_new, "what is held is not late"
    late = table(desk, "c.csv", columns, ("a", "y", 1), ("b", None, 3))
    assert "version 6 is closed" in refused(desk, LateUpdate, late, form="upsert").message
    before = desk.updates()
    report = desk.ingest(late, form="upsert", late="move")
    assert report.first == time_of(7) and report.moved > 0
    for version, rows in ((6, [("a", "x"), ("b", "x")]), (7, [("a", "y")]), (9, [("a", "z")])):
        assert collection(desk, version) == rows
    undo(desk.project, 2)
    assert desk.updates() == before
    report = desk.ingest(late, form="upsert", late="restate")
    assert report.restates == ((1,),)
    for version, rows in ((0, [("a", "x")]), (2, [("a", "y"), ("b", "x")]), (3, [("a", "y")]), (9, [("a", "z")])):
        assert collection(desk, version) == rows


def test_events_may_replace_a_history(desk: Desk) -> None:
    columns = ["id", "name", "version"]
    desk.ingest(table(desk, "a.csv", columns, ("a", "x", 0), ("b", "x", 2), ("a", "z", 4)), form="upsert")
    early = table(desk, "b.csv", columns, ("a", "q", 1), ("a", "r", 2))
    assert "has rows at version 1" in refused(desk, DataError, early, form="upsert", restate=2).message
    report = desk.ingest(table(desk, "c.csv", columns, ("a", "y", 3)), form="upsert", restate=2)
    assert (report.replaces, report.removed) == (time_of(2), 3)
    assert desk.updates() == [("a", "x", 0, 1), ("a", "x", 3, -1), ("a", "y", 3, 1)]
    desk.ingest(table(desk, "d.csv", ["id", "name"], ("c", "y")), form="upsert", restate="first")
    assert desk.updates() == [("c", "y", 0, 1)]


def test_with_several_dimensions_all_events_get_one_time(tmp_path: Path) -> None:
    desk = Desk(tmp_path, PEOPLE, dims=("day", "revision"), keys={"edges": ("id",)})
    log = ChangeLog(desk.log.folder, desk.schema, ("day", "revision"), writer=Writer())
    first = table(desk, "a.csv", ["id", "name"], ("a", "x"), ("b", "x"))
    with pytest.raises(UsageError, match="all events get one time"):
        desk.ingest(first, form="upsert")
    desk.ingest(first, form="upsert", version=(1, 0))
    desk.ingest(table(desk, "b.csv", ["id", "name"], ("a", "y"), ("b", None)), form="upsert", version=(1, 2))
    desk.ingest(table(desk, "c.csv", ["id", "name"], ("b", "z")), form="upsert", version=(1, 2))
    with pytest.raises(UsageError, match="events come at or after all of them"):
        desk.ingest(table(desk, "d.csv", ["id", "name"], ("b", "w")), form="upsert", version=(0, 9))
    frame = log.collect(log.scan(desk.ledger.input_table("edges"))).sort("day", "revision", "id", "diff")
    assert frame.rows() == [
        ("a", "x", 1, 0, 1), ("b", "x", 1, 0, 1), ("a", "x", 1, 2, -1), ("a", "y", 1, 2, 1), ("b", "x", 1, 2, -1),
        ("b", "z", 1, 2, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("point", ["after-file", "after-table"])
def test_killed_at_its_commit_it_is_taken_in_once(workshop: Workshop, point: str) -> None:
    """test_failpoints.py kills it at every place."""
    workshop.disturb("events", point, 1, "kill")


def test_the_options_of_the_command_line(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    source = table(desk, "a.csv", ["id", "name", "op"], ("a", "x", "A"), ("b", "x", "A"), ("a", "y", "B"))
    there = ["edges", source, "--project", str(desk.folder), "--engine", "inline"]
    words = ["--op", "op", "--op-values", "insert=A,update=B", "--key", "id"]
    for wrong, says in (
        (["--key", "id"], "--key: only for events"),
        (["--append", "--op-values", "insert=A"], "--op-values: only for events"),
        (["--upsert", "--op-values", "insert=A", "--key", "id"], "--op-values without --op"),
        (["--upsert", "--op", "op"], "--upsert and --op: only one of them"),
        (["--debezium", "--snapshot"], "only one of them"),
    ):
        assert run_command(["ingest", *there, *wrong]) == 2
        assert says in capsys.readouterr().err
    assert run_command(["ingest", *there, *words, "--json"]) == 0
    assert desk.updates() == [("a", "y", 0, 1), ("b", "x", 0, 1)]
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rows"] == 3
    assert run_command(["ingest", *there, *words]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["nothing_new"]


def test_the_page_shows_what_the_commands_print(tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pages.follow("cdc.md", tmp_path, dd, monkeypatch, steps=24)
