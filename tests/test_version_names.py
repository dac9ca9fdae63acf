"""Names of versions: labels, instants and dates; how ingests give them, and what commands take them for."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pages
import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from ingesting import Desk
from test_cli_completion import complete
from test_known import Reads
from test_ledger import ingest
from trams import Command
from trams import records as lines_of

from ddcore.base.errors import StorageError, UsageError
from ddcore.base.tuning import Tuning
from ddcore.cli.main import run_command
from ddcore.cli.window import window
from ddcore.io.delta.table_files import TableState
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger import labels, records, recovery, version_names
from ddcore.io.ledger.labels import Label, Labels
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IngestRecord, UndoRecord
from ddcore.io.ledger.version_names import VersionNames
from ddcore.io.project.finding import find_project
from ddcore.io.project.times import time_of
from ddcore.io.reading.opened import open as open_project
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs.undo import undo

DIMS, DIMS_OF_TWO = ("version",), ("day", "revision")
TODAY = datetime(2026, 11, 22, 10, 30, tzinfo=UTC)


def day(number: int, hour: int = 12) -> datetime:
    """A moment in November 2026."""
    return datetime(2026, 11, number, hour, tzinfo=UTC)


def file_dated(path: str, moment: datetime) -> str:
    os.utime(path, (moment.timestamp(),) * 2)
    return path


def names_of(given: dict[int, Label], dims: tuple[str, ...] = DIMS) -> VersionNames:
    """The names of versions that one ingest labelled."""
    record = replace(ingest(1, 0, 9), labels=(given,))
    return VersionNames(dims, lambda: [labels.labels_of([row_of(record)])])


@dataclass
class Row:
    """A row of the ledger, as :func:`labels_of` reads it."""

    kind: str
    number: int
    name: str
    body: str


def row_of(record: IngestRecord | UndoRecord) -> Row:
    return Row(*records.row_of(record), json.dumps(records.to_json(record)))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_names, "_now", lambda: TODAY)


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["nightly", "2026-11-19", "2026-11-19T08:00Z", "1.5", "v2", "release 7", "Zürich", "a-1", "x" * 100]
)
def test_texts_that_are_labels(text: str) -> None:
    assert labels.unusable(text) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("17", "a number"),
        ("+3", "a number"),
        ("٣", "a number"),
        ("", "empty"),
        (" x", "a space"),
        ("x" * 101, "more than 100"),
        ("a\x1bb", "cannot be printed"),
        ("latest", "something else"),
        ("yesterday", "something else"),
        ("first", "something else"),
        ("latest-3", "something else"),
        ("-1", "a number"),
        ("--json", "something else"),
        ("a..b", "no '='"),
        ("day=3", "no '='"),
        ("a,b", "no '='"),
        ("2026-02-30", "no such day"),
        ("2026-11-19T25:00", "no such day"),
    ],
)
def test_texts_that_are_no_labels(text: str, why: str) -> None:
    assert why in labels.unusable(text)


def test_texts_of_instants_are_in_the_order_of_the_instants(seed: int) -> None:
    rng, zones = random.Random(seed), [UTC, None]
    steps = [rng.choice([1, 1000, 10**6, 10**10]) * rng.randrange(50) for _ in range(200)]
    moments = sorted(day(1) + timedelta(microseconds=step) for step in steps)
    texts = [labels.instant_text(moment.replace(tzinfo=rng.choice(zones))) for moment in moments]
    assert texts == sorted(texts)
    for moment, text in zip(moments, texts, strict=True):
        assert datetime.fromisoformat(text).replace(tzinfo=UTC) == moment


# --- what a text means ------------------------------------------------------------------------------------------------

KNOWN = {
    0: Label("begin", day(1)),
    1: Label("", day(3, 9)),
    2: Label("nightly", day(3, 21)),
    3: Label("2026-11-19", day(20, 2)),
    4: Label("nightly"),
    5: Label("2026-11-20T06:30Z"),
    6: Label("2026-11-21", day(22, 1)),
    7: Label("", day(22, 8)),
}


@pytest.mark.parametrize(
    ("text", "version", "begins"),
    [
        ("begin", 0, 0),
        (" begin ", 0, 0),
        ("2026-11-01", 0, 0),
        ("2026-11-03", 2, 1),
        ("2026-11-03T09:00", 1, 1),
        ("2026-11-03T09:00:00Z", 1, 1),
        ("2026-11-03 10:00:00.5+01:00", 1, 2),
        ("2026-11-03T08:59:59.999999", 0, 1),
        ("2026-11-19", 3, 3),
        ("2026-11-20", 5, 5),
        ("2026-11-20T06:30Z", 5, 5),
        ("2026-11-20T06:29:59", 3, 5),
        ("yesterday", 6, 6),
        ("today", 7, 7),
        ("now", 7, None),
    ],
)
@pytest.mark.usefixtures("clock")
def test_a_name_means_a_version(text: str, version: int, begins: int | None) -> None:
    names = names_of(KNOWN)
    assert names.coordinate(text, "--at") == version
    assert names.coordinate(text, "--at", nearest=True) == version
    if begins is None:
        with pytest.raises(UsageError, match="is later than all versions with a date"):
            names.coordinate(text, "--since", begins=True)
    else:
        assert names.coordinate(text, "--since", begins=True) == begins


@pytest.mark.parametrize(
    ("text", "says", "before", "begins"),
    [
        (
            "2026-11-02",
            "2026-11-02: version 0 (begin) is before it, version 1 (2026-11-03T09:00:00Z) is after it",
            0,
            1,
        ),
        ("2026-11-18", "2026-11-18: version 2 (nightly) is before it, version 3 (2026-11-19) is after it", 2, 3),
        ("2026-11-23", "no version was made on 2026-11-23: the newest is version 7 (2026-11-22T08:00:00Z)", 7, None),
        ("2026-11-22T09:00", "is after all versions with a date: the newest is version 7", 7, None),
    ],
)
@pytest.mark.usefixtures("clock")
def test_a_day_that_never_came_is_not_answered_by_another(
    text: str, says: str, before: int, begins: int | None
) -> None:
    names = names_of(KNOWN)
    with pytest.raises(UsageError, match=re.escape(says)) as caught:
        names.coordinate(text, "--at")
    assert "--or-before" in caught.value.hint
    assert names.coordinate(text, "--at", nearest=True) == before
    if begins is not None:
        assert names.coordinate(text, "--since", begins=True, nearest=True) == begins
        with pytest.raises(UsageError, match=re.escape(says)) as caught:
            names.coordinate(text, "--restate", begins=True)
        assert "by its number or label" in caught.value.hint


@pytest.mark.usefixtures("clock")
def test_words_for_a_day_that_never_came_say_which_day_it_is() -> None:
    names = names_of({1: Label("2026-11-20")})
    for word, date in (("today", "2026-11-22"), ("yesterday", "2026-11-21")):
        with pytest.raises(UsageError) as caught:
            names.coordinate(word, "B")
        said = f"B: no version was made on {date}, which is {word}: the newest is version 1 (2026-11-20)"
        assert caught.value.message == said


def test_each_of_several_dates_of_a_version_finds_it() -> None:
    """The day before the last label is no day that never came."""
    one, two = ({1: Label("2026-11-17")}, {1: Label("2026-11-18"), 2: Label("2026-11-19")})
    records_ = [replace(ingest(number, 0, 9), labels=(given,)) for number, given in enumerate((one, two), 1)]
    names = VersionNames(DIMS, lambda: [labels.labels_of(map(row_of, records_))])
    for begins in (False, True):
        assert [names.coordinate(f"2026-11-{number}", "x", begins=begins) for number in (17, 18, 19)] == [1, 1, 2]


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("nightly", "--at: 'nightly' is the label of version 2 and version 4", "by its number"),
        ("nigthly", "--at: 'nigthly' is not a version, and no label", "did you mean 'nightly'?"),
        ("2026-10-31", "is before all versions with a date: the first is version 0, 2026-11-01T12:00:00Z", "labels"),
        ("2026-11-31", "--at: '2026-11-31': there is no such day", "2026-11-19"),
        ("2026-11-19T24:01", "there is no such day or time", ""),
        ("", "--at: '' is not a version", "number"),
        ("zzz", "--at: 'zzz' is not a version, and no label", "ddcore log"),
    ],
)
def test_a_name_that_means_no_single_version_is_refused(text: str, says: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        names_of(KNOWN).coordinate(text, "--at")
    assert says in caught.value.message
    assert hint in caught.value.hint


def test_without_labels_a_text_is_not_a_version_and_a_date_has_none() -> None:
    for text, says in (("nightly", "'nightly' is not a version"), ("2026-11-19", "no version has a date")):
        with pytest.raises(UsageError, match=says):
            VersionNames(DIMS).coordinate(text, "--at")


def test_a_version_is_not_older_than_the_date_labels_before_it() -> None:
    """A file may keep the date of its original."""
    names = names_of({1: Label("2026-11-19"), 2: Label("late", day(3)), 3: Label("2026-11-20")})
    assert [names.coordinate(f"2026-11-{number}", "x") for number in (19, 20)] == [2, 3]
    with pytest.raises(UsageError, match="before all versions with a date: the first is version 1"):
        names.coordinate("2026-11-18", "x")


def test_a_later_date_never_means_an_earlier_version() -> None:
    names = names_of(KNOWN)
    dates = [f"2026-11-{number:02}" for number in range(1, 31)]
    versions = [names.coordinate(date, "--at", nearest=True) for date in dates]
    assert versions == sorted(versions)
    for label in KNOWN.values():
        if labels.DATE.fullmatch(label.text):
            assert KNOWN[names.coordinate(label.text, "--at")].text == label.text


# --- all ingests together ---------------------------------------------------------------------------------------------

Given = tuple[int, str, Any, list[dict[int, Label]]]  # number, input, what it replaces, labels


def surviving(history: Sequence[Given], location: int, coordinate: int, *, texts: bool) -> dict[str, list[Given]]:
    """By input, the ingests whose label, or instant, of a coordinate no later restatement replaced."""

    def label_of(one: Given, at: int) -> Label:
        return one[3][location].get(at, Label()) if location < len(one[3]) else Label()

    def replaces(later: Given, label: Label) -> bool:
        """Whether a restatement of this coordinate replaces its label, or gives it to another one."""
        if not texts:
            return label_of(later, coordinate).instant is not None
        new = label_of(later, coordinate).text
        anew = bool(new) and new.startswith("2026") == label.text.startswith("2026")
        return anew or any(label_of(later, number).text == label.text for number in range(12))

    left: dict[str, list[Given]] = {}
    for index, one in enumerate(history):
        label, replaced = label_of(one, coordinate), False
        if not (label.text if texts else label.instant):
            continue
        for later in history[index + 1 :]:
            if later[1] == one[1] and later[2] is not None:
                start = later[2]
                alone = all(start[other] == 0 for other in range(len(start)) if other != location)
                replaced |= alone and coordinate >= start[location] and replaces(later, label)
        if not replaced:
            left.setdefault(one[1], []).append(one)
    return left


def check_names(names: VersionNames, history: Sequence[Given]) -> None:
    """Compare all names with those that the ingests gave, looked up one by one."""
    for location in range(len(names.dims)):
        moments: dict[int, str] = {}
        said: dict[int, str] = {}
        by_label: dict[str, list[int]] = {}
        for at in range(12):
            found = [one for of in surviving(history, location, at, texts=True).values() for one in of]
            texts = list(dict.fromkeys(one[3][location][at].text for one in sorted(found, key=lambda value: -value[0])))
            firsts = [of[0][3][location][at].instant for of in surviving(history, location, at, texts=False).values()]
            instant = max((first for first in firsts if first is not None), default=None)
            assert names.name(at, location).labels == texts[::-1], (location, at)
            assert names.name(at, location).label == (texts[0] if texts else "")
            assert names.name(at, location).instant == (None if instant is None else labels.instant_text(instant))
            for text in texts:
                by_label.setdefault(text, []).append(at)
            if dated := [datetime.fromisoformat(text) for text in texts if text.startswith("2026")]:
                said[at] = moments[at] = min(dated).isoformat()
            elif instant is not None:
                before = [text for other, text in said.items() if other < at]
                moments[at] = max([instant.replace(tzinfo=None).isoformat(), *before])
        check_labels(names, location, by_label)
        check_dates(names, location, moments, by_label)


def check_labels(names: VersionNames, location: int, by_label: dict[str, list[int]]) -> None:
    for text, versions in by_label.items():
        if not text.startswith("2026") and len(versions) == 1:
            assert names.coordinate(text, "x", location) == versions[0]
        elif not text.startswith("2026"):
            with pytest.raises(UsageError, match="is the label of"):
                names.coordinate(text, "x", location)


def check_dates(names: VersionNames, location: int, moments: dict[int, str], by_label: dict[str, list[int]]) -> None:
    for date in (f"2026-11-{number:02}" for number in range(1, 31)):
        labelled = by_label.get(date, [])
        came = bool(labelled) or any(moment[:10] == date for moment in moments.values())
        before = [version for version, moment in moments.items() if moment[:10] <= date] + labelled
        after = [version for version, moment in moments.items() if moment[:10] >= date] + labelled
        for begins, expected in ((False, max(before, default=None)), (True, min(after, default=None))):
            if expected is not None:
                assert names.coordinate(date, "x", location, begins=begins, nearest=True) == expected
            else:
                with pytest.raises(UsageError, match=r"(has|with) a date"):
                    names.coordinate(date, "x", location, begins=begins, nearest=True)
            if came:
                assert names.coordinate(date, "x", location, begins=begins) == expected
            else:
                with pytest.raises(UsageError, match=r"(has|with) a date|was made on"):
                    names.coordinate(date, "x", location, begins=begins)


def random_label(rng: random.Random) -> Label:
    texts = ["", "", "nightly", "weekly", "begin", *(f"2026-11-{rng.randrange(1, 30):02}" for _ in range(2))]
    instant = day(rng.randrange(1, 30), rng.randrange(24)) if rng.random() < 0.6 else None
    return Label(rng.choice(texts), instant)


def random_ingest(rng: random.Random, number: int, dims: tuple[str, ...]) -> IngestRecord:
    given = [{c: label for c in range(12) if rng.random() < 0.2 and (label := random_label(rng))} for _ in dims]
    time = time_of(rng.randrange(9) if len(dims) == 1 else (rng.randrange(9), rng.choice([0, 0, 3])))
    replaces = time if rng.random() < 0.3 else None
    many = dims if len(dims) > 1 else ()
    made = replace(ingest(number, 0, 1, rng.choice("ab")), labels=tuple(given) if any(given) else (), dims=many)
    if many:
        first, last = time_of((0, 0)), time_of((1, 1))
        made = replace(made, first=first, last=last, counts={first: (1, 0), last: (1, 0)})
    return replace(made, replaces=replaces)


@pytest.mark.parametrize("dims", [DIMS, ("day", "revision")])
def test_names_are_those_that_the_ingests_gave(dims: tuple[str, ...], seed: int) -> None:
    """Random ingests, restatements and undos, cut into random files, of which some occur twice."""
    rng = random.Random(seed)
    for _ in range(40):
        rows: list[Row] = []
        live: dict[int, Given] = {}
        for number in range(1, rng.randrange(2, 14)):
            if live and rng.random() < 0.25:
                gone = rng.choice([*live])
                rows.append(
                    row_of(UndoRecord(gone, live.pop(gone)[1], time_of(0), time_of(1), TableState(1, 1, 1, "a")))
                )
            record = random_ingest(rng, number, dims)
            rows.append(row_of(record))
            live[number] = (number, record.input, record.replaces, [dict(of) for of in record.labels])
        cuts = sorted({0, len(rows), *(rng.randrange(len(rows) + 1) for _ in range(3))})
        notes = [labels.labels_of(rows[begin:end]) for begin, end in pairwise(cuts)]
        notes += rng.sample(notes, rng.randrange(len(notes)))
        rng.shuffle(notes)
        check_names(VersionNames(dims, partial(list, notes)), [*live.values()])


def test_records_with_labels_come_back_as_they_were() -> None:
    given: Labels = ({3: Label("a", day(1)), 4: Label("", day(2)), 5: Label("b")},)
    record = replace(ingest(1, 3, 5), labels=given)
    body = json.loads(json.dumps(records.to_json(record)))
    assert records.from_json("ingest", body) == record
    assert "labels" not in records.to_json(ingest(1, 3, 5)), "records of unlabelled ingests are as they were"


# --- in the ledger ----------------------------------------------------------------------------------------------------


def test_the_ledger_gives_the_names_of_random_ingests(tmp_path: Path, seed: int) -> None:
    writer = Writer(tuning=Tuning(ledger_files=3))
    rng, ledger, live = random.Random(seed), Ledger.load(Warehouse(tmp_path), writer), dict[int, Given]()
    for number in range(1, 30):
        record = replace(random_ingest(rng, number, DIMS), replaces=None)
        ledger.append(record)
        live[number] = (number, record.input, None, [dict(of) for of in record.labels])
        if rng.random() < 0.3:
            gone = rng.choice([*live])
            ledger.append(UndoRecord(gone, live.pop(gone)[1], time_of(0), time_of(1), TableState(1, 1, 1, str(number))))
        if number % 7 == 0:
            check_names(ledger.version_names(DIMS), [*live.values()])
            again = Ledger.load(Warehouse(tmp_path))
            check_names(again.version_names(DIMS), [*live.values()])
            again.entries.check()


def labelled_ledger(folder: Path, ingests: int) -> None:
    ledger = Ledger.load(Warehouse(folder), Writer())
    for number in range(1, ingests + 1):
        given = {number: Label(f"build {number}", day(1) + timedelta(hours=number))}
        ledger.append(replace(ingest(number, number, number), labels=(given,)))


@pytest.mark.parametrize("ingests", [40, pytest.param(1_000, marks=pytest.mark.long)])
def test_a_look_up_reads_no_records_however_old_the_ledger_is(
    ingests: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labelled_ledger(tmp_path, ingests)
    reads, ledger = Reads(monkeypatch), Ledger.load(Warehouse(tmp_path))
    loaded = reads.take()
    assert loaded[0] <= 4
    names = ledger.version_names(DIMS)
    assert reads.take() == (0, 0, 0), "names are read when they are needed"
    assert names.coordinate("build 17", "x") == 17
    assert names.coordinate("2026-11-02", "x") == 35
    assert names.label(time_of(3)) == "build 3"
    rows, parsed, footers = reads.take()
    assert (rows, parsed) == (0, 0)
    assert footers == len(ledger.entries._files) <= 45
    ledger.version_names(DIMS).label(time_of(1))
    assert reads.take() == (0, 0, 0), "each footer is read once"


def test_a_ledger_without_labels_is_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.load(Warehouse(tmp_path), Writer())
    for number in range(1, 20):
        ledger.append(ingest(number, number, number))
    reads, ledger = Reads(monkeypatch), Ledger.load(Warehouse(tmp_path))
    reads.take()
    assert ledger.version_names(DIMS).label(time_of(3)) == ""
    assert reads.take() == (0, 0, 0)


def test_labels_survive_another_program_that_optimizes_the_ledger(tmp_path: Path) -> None:
    labelled_ledger(tmp_path, 19)
    DeltaTable(str(Warehouse(tmp_path).ledger)).optimize.compact()
    for number in range(20, 37):
        ledger = Ledger.load(Warehouse(tmp_path), Writer())
        assert ledger.version_names(DIMS).coordinate("build 18", "x") == 18
        ledger.append(replace(ingest(number, number, number), labels=({number: Label("last")},)))
        assert ledger.version_names(DIMS).coordinate("build 2", "x") == 2
    ledger.entries.check()


def test_labels_that_are_not_those_of_their_rows_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as wrong:
        other = '{"undone":[],"ingests":[[1,"edges",null,[{"1":["x"]}]]]}'
        wrong.setattr("ddcore.io.ledger.entry_files.labels_of", lambda _: other)
        labelled_ledger(tmp_path, 2)
    with pytest.raises(StorageError, match="is not that of its rows"):
        Ledger.load(Warehouse(tmp_path)).entries.check()


# --- ingests that give labels -----------------------------------------------------------------------------------------


def names_in(desk: Desk) -> VersionNames:
    return desk.ledger.version_names(desk.project.dims)


def test_a_label_for_the_version_of_an_ingest(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    report = desk.ingest(file_dated(desk.source("a.csv", (1, 2, 3, 1)), day(5)), label=["nightly"])
    assert (report.label, report.instant) == ("nightly", "2026-11-05T12:00:00Z")
    assert desk.records()[0].labels == ({3: Label("nightly", day(5))},)
    assert names_in(desk).coordinate("nightly", "x") == 3


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ("17", "'17' cannot be a label: a number is always a version"),
        ("latest", "cannot be a label"),
        ("2026-13-01", "there is no such day"),
        ("day=x", "there is no time dimension 'day'; there are: version"),
        ("version=", "'' cannot be a label"),
        ("nightly", "a label names one version, and the sources have versions 0..1"),
    ],
)
def test_a_label_that_cannot_be_is_refused_and_nothing_is_ingested(label: str, says: str, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with pytest.raises(UsageError) as caught:
        desk.ingest(desk.source("a.csv", (1, 2, 0, 1), (3, 4, 1, 1)), label=[label])
    assert says in caught.value.message and caught.value.message.startswith("--label")
    assert desk.records() == []
    assert desk.stray_files() == []
    assert desk.ingest(desk.source("a.csv", (1, 2, 0, 1), (3, 4, 1, 1)), label=[]).ingest == 1


def test_the_same_rows_again_set_no_label_and_say_so(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    source = desk.source("a.csv", (1, 2, 3, 1))
    desk.ingest(source, label=["nightly"])
    again = desk.ingest(source, label=["nightly"])
    assert again.nothing_new and again.notes == () and again.label == "nightly"
    other = desk.ingest(source, label=["weekly"])
    assert other.nothing_new and other.notes == ("the label 'weekly' was not set, because nothing was ingested",)


def test_a_label_that_names_another_version_already_is_said(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ingest(desk.source("a.csv", (1, 2, 3, 1)), label=["nightly"])
    report = desk.ingest(desk.source("b.csv", (3, 4, 5, 1)), label=["nightly"])
    said = "'nightly' is now the label of version 3 and version 5: commands that are given it will refuse it"
    assert report.notes == (said,)
    desk.ingest(desk.source("c.csv", (3, 4, 6, 1)), label=["2026-11-19"])
    report = desk.ingest(desk.source("d.csv", (3, 4, 7, 1)), label=["2026-11-19"])
    assert not any("label" in note for note in report.notes), "a date may label several versions: it means the last"
    assert names_in(desk).coordinate("2026-11-19", "x") == 7


def test_a_label_of_many_versions_is_refused_in_one_line(tmp_path: Path) -> None:
    names = names_of({version: Label("nightly") for version in range(400)})
    with pytest.raises(UsageError, match="400 versions, the last are version 397 and version 398 and version 399"):
        names.coordinate("nightly", "--at")


def test_a_label_given_twice_stays_when_one_of_the_ingests_is_undone(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ingest(desk.source("a.csv", (1, 2, 3, 1)), label=["nightly"])
    desk.ingest(desk.source("b.csv", (3, 4, 3, 1)), label=["nightly"])
    undo(desk.project, 1)
    assert names_in(desk).coordinate("nightly", "x") == 3


def test_the_label_of_rows_that_move_goes_where_they_go(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ingest(desk.source("a.csv", (1, 2, 4, 1)))
    desk.fold(4)
    moved = desk.ingest(desk.source("b.csv", (7, 8, 1, 1)), late="move", label=["moved"])
    assert (moved.moved, moved.last, moved.label) == (1, time_of(5), "moved")


def test_the_date_of_a_file_is_that_of_its_last_version(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ingest(file_dated(desk.source("a.csv", (1, 2, 1, 1), (3, 4, 4, 1)), day(4)))
    desk.ingest(file_dated(desk.source("a.csv", (1, 2, 1, 1), (3, 4, 4, 1), (5, 6, 6, 1)), day(6)))
    names = names_in(desk)
    assert [names.fields(time_of(version))["instant"] for version in (1, 4, 6)] == [
        None, "2026-11-04T12:00:00Z", "2026-11-06T12:00:00Z",
    ]  # fmt: skip
    assert names.coordinate("2026-11-05T12:00", "x") == 4
    desk.ingest(file_dated(desk.source("b.csv", (9, 9, 6, 1)), day(9)))
    assert names_in(desk).fields(time_of(6))["instant"] == "2026-11-06T12:00:00Z", "the first counts"


def test_a_version_keeps_a_date_when_the_ingest_that_gave_its_first_is_undone(tmp_path: Path) -> None:
    """The rows of the other ingest are still there, and were made on some day."""
    desk = Desk(tmp_path)
    desk.ingest(file_dated(desk.source("a.csv", (1, 2, 3, 1)), day(4)), label=["2026-11-04"])
    desk.ingest(file_dated(desk.source("b.csv", (3, 4, 3, 1)), day(5)))
    assert names_in(desk).coordinate("2026-11-04", "x") == 3
    undo(desk.project, 1)
    assert names_in(desk).coordinate("2026-11-05", "x") == 3


def test_a_label_that_is_a_date_is_better_than_the_date_of_a_file(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ingest(file_dated(desk.source("a.csv", (1, 2, 1, 1)), day(20)), label=["2026-11-19"])
    desk.ingest(file_dated(desk.source("b.csv", (3, 4, 1, 1)), day(25)))
    names = names_in(desk)
    assert names.coordinate("2026-11-19", "x") == 1
    assert names.fields(time_of(1)) == {"label": "2026-11-19", "instant": "2026-11-20T12:00:00Z"}


def test_a_delta_table_has_the_date_of_its_commit(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    frame = pl.DataFrame({"src": [1], "dst": [2], "version": [3], "diff": [1]})
    write_deltalake(str(tmp_path / "table"), frame.to_arrow())
    before = datetime.now(UTC)
    desk.ingest(str(tmp_path / "table"))
    instant = desk.records()[0].labels[0][3].instant
    assert instant is not None and abs(before - instant) < timedelta(minutes=1)


def rows_at(folder: Path, name: str, *rows: tuple[int, int], dated: datetime) -> str:
    """A file of rows, without versions and diffs."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    pl.DataFrame(list(rows), {"src": pl.Int64, "dst": pl.Int64}, orient="row").write_csv(path)
    return file_dated(str(path), dated)


def test_snapshots_have_the_dates_in_their_names(tmp_path: Path) -> None:
    """Also one that equals the one before: its version has no rows."""
    desk = Desk(tmp_path)
    rows = {19: [(1, 2)], 20: [(1, 2), (3, 4)], 21: [(1, 2), (3, 4)], 22: [(3, 4)]}
    for number, of in rows.items():
        rows_at(tmp_path, f"days/edges-2026-11-{number}.csv", *of, dated=day(25, number))
    report = desk.ingest(str(tmp_path / "days" / "*.csv"), form="snapshot")
    assert (report.first, report.last, report.label) == (time_of(0), time_of(3), "2026-11-22")
    names = names_in(desk)
    assert [names.coordinate(f"2026-11-{number}", "x") for number in rows] == [0, 1, 2, 3]
    assert names.fields(time_of(2)) == {"label": "2026-11-21", "instant": "2026-11-25T21:00:00Z"}
    again = desk.ingest(str(tmp_path / "days" / "*.csv"), form="snapshot", label=["2026-11-22"])
    assert again.nothing_new and not any("label" in note for note in again.notes)


def test_snapshots_without_a_date_in_their_name_have_that_of_the_file(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ingest(rows_at(tmp_path, "a.csv", (1, 2), dated=day(3)), form="snapshot")
    rows_at(tmp_path, "both/2026-11-01.csv", (5, 6), dated=day(7))
    rows_at(tmp_path, "both/part.csv", (7, 8), dated=day(9))
    desk.ingest(str(tmp_path / "both"), form="snapshot", label=["whole"])
    names = names_in(desk)
    assert names.fields(time_of(0)) == {"label": None, "instant": "2026-11-03T12:00:00Z"}
    assert names.fields(time_of(1)) == {"label": "whole", "instant": "2026-11-09T12:00:00Z"}
    rows_at(tmp_path, "2026-11-01-to-2026-11-05.csv", (1, 2), dated=day(12))
    assert desk.ingest(str(tmp_path / "2026-11-01-to-2026-11-05.csv"), form="snapshot").label is None


def test_snapshots_of_a_delta_table_have_the_dates_of_its_commits(tmp_path: Path) -> None:
    desk, table = Desk(tmp_path), tmp_path / "table"
    for number in range(3):
        write_deltalake(str(table), pl.DataFrame({"src": [number], "dst": [2]}).to_arrow(), mode="append")
        commit = table / "_delta_log" / f"{number:020}.json"
        dated = re.sub(
            r'"timestamp":[0-9]+', f'"timestamp":{int(day(10 + number).timestamp() * 1000)}', commit.read_text()
        )
        commit.write_text(dated)
    desk.ingest(f"{table}@v0..v2", form="snapshot")
    names = names_in(desk)
    assert [names.coordinate(f"2026-11-{number}", "x") for number in (10, 11, 12)] == [0, 1, 2]


def test_an_undone_ingest_leaves_no_label(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ingest(desk.source("a.csv", (1, 2, 1, 1)), label=["nightly"])
    desk.ingest(desk.source("b.csv", (1, 2, 2, 1)), label=["weekly"])
    undo(desk.project, 1)
    with pytest.raises(UsageError, match="no label"):
        names_in(desk).coordinate("nightly", "x")
    assert names_in(desk).coordinate("weekly", "x") == 2
    desk.ingest(desk.source("c.csv", (1, 2, 3, 1)), label=["nightly"])
    assert names_in(desk).coordinate("nightly", "x") == 3


def test_a_restated_version_keeps_its_label_unless_it_gets_another(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for version in (1, 2, 3):
        source = file_dated(desk.source(f"{version}.csv", (version, 0, version, 1)), day(version))
        desk.ingest(source, label=[f"day {version}"])
    fixed = file_dated(desk.source("fixed.csv", (5, 0, 2, 1), (6, 0, 3, 1)), day(25))
    desk.ingest(fixed, restate=2)
    names = names_in(desk)
    assert [names.label(time_of(version)) for version in (1, 2, 3)] == ["day 1", "day 2", "day 3"]
    assert names.coordinate("2026-11-02", "x") == 2, "and its instant"
    desk.ingest(desk.source("again.csv", (7, 0, 3, 1)), restate=3, label=["fixed"])
    names = names_in(desk)
    assert names.coordinate("fixed", "x") == 3
    with pytest.raises(UsageError, match="no label"):
        names.coordinate("day 3", "x")
    undo(desk.project, 5, restate=True)
    assert names_in(desk).coordinate("day 3", "x") == 3, "what the restatement replaced is there again"


def three_days(folder: Path) -> Desk:
    """Snapshots of three days, with dates in their names."""
    desk = Desk(folder)
    for number in (16, 17, 18):
        desk.ingest(rows_at(folder, f"edges-2026-11-{number}.csv", (number, 0), dated=day(25)), form="snapshot")
    return desk


def test_a_restated_version_keeps_its_date_when_only_others_bring_theirs(tmp_path: Path) -> None:
    """A date that one of the sources has in its name is that of its own version."""
    desk = three_days(tmp_path)
    rows_at(tmp_path, "days/a-fixed.csv", (1, 0), dated=day(26))
    rows_at(tmp_path, "days/edges-2026-11-18.csv", (2, 0), dated=day(26))
    desk.ingest(str(tmp_path / "days" / "*.csv"), form="snapshot", restate=1)
    names = names_in(desk)
    assert [names.label(time_of(version)) for version in range(3)] == ["2026-11-16", "2026-11-17", "2026-11-18"]
    assert names.coordinate("2026-11-17", "x") == 1
    undo(desk.project, 4, restate=True)
    assert names_in(desk).coordinate("2026-11-17", "x") == 1


def test_the_versions_after_a_restated_one_keep_their_labels(tmp_path: Path) -> None:
    desk = three_days(tmp_path)
    desk.ingest(rows_at(tmp_path, "fixed.csv", (1, 0), dated=day(26)), form="snapshot", restate=1, label=["corrected"])
    names = names_in(desk)
    assert names.coordinate("corrected", "x") == names.coordinate("2026-11-17", "x") == 1, "a name is no other date"
    assert names.label(time_of(2)) == "2026-11-18"
    desk.ingest(rows_at(tmp_path, "edges-2026-11-15.csv", (9, 0), dated=day(26)), form="snapshot", restate=1)
    names = names_in(desk)
    assert names.name(1).labels == ["corrected", "2026-11-15"], "a date replaces the date"


def test_a_label_that_a_restatement_gives_to_another_version_moves(tmp_path: Path) -> None:
    desk = three_days(tmp_path)
    for name in ("1-edges-2026-11-17.csv", "2-extra.csv", "3-edges-2026-11-18.csv"):
        rows_at(tmp_path, f"days/{name}", (len(name), 0), dated=day(26))
    desk.ingest(str(tmp_path / "days" / "*.csv"), form="snapshot", restate=1)
    names = names_in(desk)
    assert [names.label(time_of(version)) for version in range(4)] == ["2026-11-16", "2026-11-17", "", "2026-11-18"]
    assert names.coordinate("2026-11-18", "x") == 3


def test_a_restated_time_leaves_the_names_of_other_times(tmp_path: Path) -> None:
    """Revision 1 of day 2 is not restated, and is found by its label still."""
    records_ = [
        replace(ingest(number, 0, 9), dims=DIMS_OF_TWO, labels=({}, {1: Label(text)}), replaces=time_of(replaces))
        for number, text, replaces in ((1, "correction", None), (2, "fix", (3, 1)))
    ]
    names = VersionNames(DIMS_OF_TWO, lambda: [labels.labels_of(map(row_of, records_))])
    assert [names.coordinate(text, "x", 1) for text in ("correction", "fix")] == [1, 1]


def test_an_ingest_that_was_killed_before_its_record_keeps_its_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path)
    with monkeypatch.context() as killed:
        killed.setattr(Ledger, "append", lambda *_: (_ for _ in ()).throw(StorageError("killed")))
        with pytest.raises(StorageError, match="killed"):
            desk.ingest(file_dated(desk.source("a.csv", (1, 2, 3, 1)), day(5)), label=["nightly"])
    ledger = desk.ledger
    assert [record.number for record in recovery.finish(ledger)] == [1]
    assert desk.records()[0].labels == ({3: Label("nightly", day(5))},)


# --- commands ---------------------------------------------------------------------------------------------------------

_PROGRAM = """
import ddcore as dd


def program(orders):
    return {"stock": orders.group_by("item").agg(n=dd.count())}
"""
_PROJECT = """
[project]
program = "program.py:program"
[run]
engine = "inline"
[inputs.orders]
schema = { id = "int64", item = "string" }
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three folded versions with labels, one without, and one that waits. Nobody writes to it."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "program.py").write_text(_PROGRAM)
    (folder / "dd.toml").write_text(_PROJECT)
    ingests = [(1, "2026-11-19", "tea"), (2, "2026-11-20", "tea"), (3, "", "jam"), (4, "stocktaking", "jam")]
    for version, label, item in [*ingests, (7, "2026-11-22", "rye")]:
        source = folder / f"{version}.csv"
        source.write_text(f"id,item\n{version},{item}\n")
        file_dated(str(source), day(21, version))
        given = ["--label", label] if label else []
        if version == 7:
            assert run_command(["run", "--project", str(folder), "-q"]) == 0
        arguments = ["ingest", "orders", str(source), "--version", str(version), "--diff", "1", *given]
        assert run_command([*arguments, "--project", str(folder), "-q"]) == 0
    return folder


@pytest.fixture
def till(shop: Path, monkeypatch: pytest.MonkeyPatch, clock: None) -> Path:
    """The shop as the working folder, on a known day."""
    monkeypatch.chdir(shop)
    return shop


@pytest.fixture
def own(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: None) -> Path:
    """A shop to write to."""
    shutil.copytree(shop, tmp_path / "own", copy_function=shutil.copy2)
    monkeypatch.chdir(tmp_path / "own")
    return tmp_path / "own"


def without_engine(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("{")]


@pytest.mark.parametrize(
    ("at", "head"),
    [
        ("2026-11-19", "at 1 (2026-11-19)  1 row"),
        ("version=2026-11-19", "at 1 (2026-11-19)  1 row"),
        ("2026-11-20", "at 2 (2026-11-20)  1 row"),
        ("stocktaking", "at 4 (stocktaking)  2 rows"),
        ("yesterday", "at 4 (stocktaking)  2 rows"),
        ("2026-11-21T03:00Z", "at 3  2 rows"),
        ("-1", "at 3  2 rows"),
        ("2", "at 2 (2026-11-20)  1 row"),
    ],
)
def test_show_takes_names(at: str, head: str, till: Path, dd: Command) -> None:
    code, out, _ = dd("show", "stock", "--at", at)
    assert (code, out[1]) == (0, head)


@pytest.mark.parametrize(
    ("at", "says", "hint"),
    [
        (
            "today",
            "'today' is version 7, which is not yet complete: the last folded version is 4",
            "ddcore status",
        ),
        ("stocktaken", "'stocktaken' is not a version, and no label", "did you mean 'stocktaking'?"),
        ("2026-11-02", "is before all versions with a date: the first is version 1, 2026-11-19T00:00:00Z", "log"),
        ("7", "version 7 is not yet complete", "ddcore status"),
    ],
)
def test_names_that_cannot_be_shown(at: str, says: str, hint: str, till: Path, dd: Command) -> None:
    code, _, (error, advice) = dd("show", "stock", "--at", at)
    assert code == 2
    assert error.startswith("error: --at: ") and says in error
    assert hint in advice


@pytest.mark.parametrize(
    ("ends", "head"),
    [
        (["2026-11-19", "2026-11-20"], "1 (2026-11-19)..2 (2026-11-20)  +1 -1"),
        (["2026-11-19..stocktaking"], "1 (2026-11-19)..4 (stocktaking)  +2 -1"),
        (["..2026-11-19"], "..1 (2026-11-19)  +1 -0"),
        (["stocktaking", "2026-11-20"], "4 (stocktaking)..2 (2026-11-20)  +0 -1"),
        (["2026-11-20", "3"], "2 (2026-11-20)..3  +1 -0"),
    ],
)
def test_diff_takes_names(ends: list[str], head: str, till: Path, dd: Command) -> None:
    code, out, _ = dd("diff", "stock", *ends)
    assert (code, out[1]) == (0, head)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["show", "stock", "--at", "2026-11-18T23:00"], "is before all versions with a date"),
        (["show", "stock", "--at", "2026-11-23"], "--at: no version was made on 2026-11-23: the newest is version 7 ("),
        (["diff", "stock", "yesterday", "2026-11-23", "--exit-code"], "B: no version was made on 2026-11-23"),
        (["diff", "stock", "2026-11-23..latest"], "A: no version was made on 2026-11-23"),
        (["explain", "stock", "--at", "2026-11-23", "item=tea"], "--at: no version was made on 2026-11-23"),
        (["explain", "stock", "2026-11-19", "2026-11-23", "item=tea"], "B: no version was made on 2026-11-23"),
        (["verify", "--at", "2026-11-23"], "--at: no version was made on 2026-11-23"),
        (["verify", "--at", "2026-11-19..2026-11-23"], "--at: no version was made on 2026-11-23"),
        (["run", "--to", "2026-11-23"], "--to: no version was made on 2026-11-23"),
        (["run", "--to-version", "2026-11-23"], "--to-version: no version was made on 2026-11-23"),
        (["run", "--to-version", "8"], "--to-version: version 8 was not ingested: the last one is 7 (2026-11-22)"),
        (["show", "stock", "--at", "9"], "version 9 is not yet complete: the last folded version is 4 (stocktaking)"),
        (["run", "--or-before"], "--or-before: only with --to-version or --to"),
    ],
)
def test_what_never_came_is_not_answered_by_what_did(command: list[str], says: str, till: Path, dd: Command) -> None:
    code, out, err = dd(*command)
    assert (code, out) == (2, []) and says in err[0]


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["show", "stock", "--at", "2026-11-23"], "at 4 (stocktaking)  2 rows"),
        (["show", "stock", "--at", "9"], "at 4 (stocktaking)  2 rows"),
        (["show", "stock", "--at", "today"], "at 4 (stocktaking)  2 rows"),
        (["diff", "stock", "2026-11-20", "2026-11-23"], "2 (2026-11-20)..4 (stocktaking)  +1 -0"),
        (["explain", "stock", "--at", "2026-11-23", "item=tea"], "at 4 (stocktaking)"),
        (["explain", "stock", "2026-11-20", "2026-11-23", "item=jam"], "2 (2026-11-20)..4 (stocktaking)  item=jam"),
        (["verify", "--at", "2026-11-23"], "holds    stock at version 4 (stocktaking) "),
    ],
)
def test_who_asks_for_it_gets_the_newest_version_before(command: list[str], line: str, till: Path, dd: Command) -> None:
    code, out, err = dd(*command, "--or-before")
    assert code == 0 and line in "\n".join(out), err


def test_a_run_may_end_at_the_newest_version_before_a_day(own: Path, dd: Command) -> None:
    project = find_project(own)
    assert window(project, None, "2026-11-23", or_before=True) == (None, time_of(7))
    assert window(project, None, None, "8", or_before=True) == (None, time_of(7))
    assert run_command(["run", "--to", "2026-11-23", "--project", str(own)]) == 2
    assert run_command(["run", "--to", "2026-11-23", "--or-before", "--project", str(own)]) == 0
    assert dd("show", "stock", "--at", "today")[0] == 0


def test_in_python_too_a_day_that_never_came_is_an_error(till: Path) -> None:
    stock = open_project(till)["stock"]
    for read in (
        stock.at,
        lambda end, **near: stock.between(1, end, **near),
        stock.updates,
    ):
        with pytest.raises(UsageError, match="no version was made on 2026-11-23") as caught:
            read(day(23).date())
        assert "or_before=True" in caught.value.hint
        assert read(day(23).date(), or_before=True) is not None
    assert stock.at("2026-11-23", or_before=True).polars().equals(stock.at(4).polars())


def test_a_day_that_never_came_is_not_restated_over_the_next(own: Path, dd: Command) -> None:
    (own / "fixed.csv").write_text("id,item,version,diff\n3,rye,4,1\n")
    code, _, err = dd("ingest", "orders", "fixed.csv", "--restate", "2026-11-18")
    assert code == 2
    assert "--restate: no version was made on 2026-11-18: version 1 (2026-11-19) is after it" in err[0]


def test_diff_by_version_names_them(till: Path, dd: Command) -> None:
    _, out, _ = dd("diff", "stock", "..stocktaking", "--stat")
    assert [line.split() for line in out[3:]] == [
        ["version", "inserted", "deleted", "label"],
        ["1", "+1", "-0", "2026-11-19"],
        ["2", "+1", "-1", "2026-11-20"],
        ["3", "+1", "-0"],
        ["4", "+1", "-1", "stocktaking"],
    ]


def test_json_has_labels_and_instants(till: Path, dd: Command) -> None:
    _, out, _ = dd("show", "stock", "--at", "stocktaking", "--json")
    at = lines_of(out)[1]
    assert (at["at"], at["label"], at["instant"]) == (4, "stocktaking", "2026-11-21T04:00:00Z")
    _, out, _ = dd("diff", "stock", "..3", "--json", "--stat")
    head, first, *_, last = lines_of(out)[1:]
    assert head["label"] == {"from": None, "to": None}
    assert head["instant"] == {"from": None, "to": "2026-11-21T03:00:00Z"}
    assert (first["label"], first["instant"]) == ("2026-11-19", "2026-11-21T01:00:00Z")
    assert (last["label"], last["instant"]) == (None, "2026-11-21T03:00:00Z")
    _, out, _ = dd("log", "--versions", "--json")
    assert [(line["version"], line["label"]) for line in lines_of(out)] == [
        (4, "stocktaking"), (3, None), (2, "2026-11-20"), (1, "2026-11-19"),
    ]  # fmt: skip
    _, out, _ = dd("log", "--json")
    newest, folded = lines_of(out)[:2]
    assert newest["labels"] == [{"version": 7, "label": "2026-11-22", "instant": "2026-11-21T07:00:00Z"}]
    assert (newest["label"], folded["kind"], folded["label"]) == ("2026-11-22", "run", "stocktaking")
    _, out, _ = dd("status", "--json")
    assert (lines_of(out)[0]["label"], lines_of(out)[0]["instant"]) == ("stocktaking", "2026-11-21T04:00:00Z")


def test_log_and_status_name_versions(till: Path, dd: Command) -> None:
    _, out, _ = dd("log")
    assert out[0].split() == ["when", "versions", "label", "in", "out", "what"]
    assert "7  2026-11-22" in out[1]
    assert "1..4  2026-11-19..stocktaking" in out[2]
    _, out, _ = dd("log", "--versions")
    assert out[0].split() == ["version", "run", "when", "label", "in", "out"]
    assert "stocktaking" in out[1] and "(" not in out[1]
    _, out, _ = dd("status")
    assert "through version 4 (stocktaking)  (run 1" in out[2]
    assert "version 7 (2026-11-22)  (ddcore run)" in out[3]


def test_a_project_without_labels_has_no_column_for_them(here: Path, dd: Command) -> None:
    for arguments in (["log"], ["log", "--versions"], ["diff", "journeys", "..3", "--stat"]):
        assert "label" not in " ".join(dd(*arguments)[1])


def test_verify_takes_names(till: Path, dd: Command) -> None:
    code, out, _ = dd("verify", "--at", "2026-11-20")
    assert (code, len(out)) == (0, 1) and "stock at version 2 (2026-11-20) " in out[0]
    code, out, _ = dd("verify", "--at", "2026-11-20..stocktaking")
    assert [line.split()[4] for line in out] == ["2", "3", "4"]
    _, out, _ = dd("verify", "--at", "stocktaking", "--json")
    assert [item["label"] for item in lines_of(out)] == ["stocktaking"]


def test_a_run_ends_at_a_name_and_begins_at_one(own: Path, dd: Command) -> None:
    code, out, err = dd("run", "--to-version", "today", "--json")
    assert (code, lines_of(out)[-1]["last"]) == (0, 7), err
    project = find_project(own)
    assert window(project, "stocktaking", "2026-11-22") == (time_of(4), time_of(7))
    assert window(project, "2026-11-21", None) == (time_of(3), None), "the first version of that day"
    assert window(project, None, "2026-11-21") == (None, time_of(4)), "the last"
    assert dd("run", "--from-version", "2026-11-20", "-q")[0] == 0
    code, _, err = dd("run", "--to-version", "no such")
    assert (code, err[0]) == (2, "error: --to-version: 'no such' is not a version, and no label")


def test_a_history_is_restated_from_a_name_on(own: Path, dd: Command) -> None:
    (own / "fixed.csv").write_text("id,item,version,diff\n3,rye,4,1\n")
    code, out, err = dd("ingest", "orders", "fixed.csv", "--restate", "stocktaking", "--json")
    assert (code, lines_of(out)[0]["replaces"], lines_of(out)[0]["label"]) == (0, 4, "stocktaking"), err
    code, _, err = dd("ingest", "orders", "fixed.csv", "--restate", "2026-12-24")
    assert code == 2 and "is later than all versions with a date: the last is version 7" in err[0]


def test_history_is_given_up_before_a_name(own: Path, dd: Command) -> None:
    assert dd("compact", "--since", "2026-11-20", "-q")[0] == 0
    code, _, err = dd("show", "stock", "--at", "2026-11-19")
    assert code == 2 and "version 1 can no longer be read" in err[0]
    assert dd("show", "stock", "--at", "2026-11-20")[0] == 0


def test_a_label_from_the_command_line(own: Path, dd: Command) -> None:
    (own / "8.csv").write_text("id,item\n8,rye\n")
    code, _, err = dd("ingest", "orders", "8.csv", "--version", "8", "--diff", "1", "--label", "stocktaking")
    assert code == 0
    assert "versions=8 (stocktaking) in=+1/-0" in " ".join(err)
    assert any("'stocktaking' is now the label of version 4 and version 8" in line for line in err)
    code, _, err = dd("show", "stock", "--at", "stocktaking")
    assert (code, err[0]) == (2, "error: --at: 'stocktaking' is the label of version 4 and version 8")
    code, _, err = dd("ingest", "orders", "8.csv", "--label", "8")
    assert (code, err[0]) == (2, "error: --label: '8' cannot be a label: a number is always a version")


def test_commands_take_labels_and_names(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "8.csv").write_text("id,item\n8,rye\n")
    arguments = ["orders", "8.csv", "--version", "8", "--diff", "1", "--label", "last one", "--project", str(own)]
    assert run_command(["ingest", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["label"] == "last one"
    assert run_command(["run", "--to", "last one", "--project", str(own)]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["last"] == 8
    assert run_command(["compact", "--since", "no such", "--project", str(own)]) == 2
    assert "--since: 'no such' is not a version" in capsys.readouterr().err


def test_completion_offers_the_newest_labels(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert complete("dd show stock --at ", own) == [
        "2026-11-19", "2026-11-20", "2026-11-22", "latest", "stocktaking", "today", "yesterday",
    ]  # fmt: skip
    assert complete("dd run --from-version st", own) == ["stocktaking"]
    labelled_ledger(own / "many", 120)
    offers = complete("dd show stock --warehouse many --at bu", own)
    assert len(offers) == 2 * 100 and "20" not in offers and "21" in offers, "words of labels with a space"


def test_an_undo_takes_no_label(own: Path, dd: Command) -> None:
    code, _, err = dd("ingest", "--undo", "5", "--label", "x")
    assert (code, err[0]) == (2, "error: --undo and --label: only one of them")


def test_a_run_names_the_versions_that_it_folds(own: Path, dd: Command) -> None:
    _, _, err = dd("run", "--dry-run")
    assert err[0] == "version=7 (2026-11-22) in=+1/-0"
    code, out, err = dd("run", "--full-refresh")
    said = without_engine([*out, *err])
    assert code == 0 and [line.split(" in=")[0] for line in said if " in=" in line] == [
        "version=1 (2026-11-19)", "version=2 (2026-11-20)", "version=3", "version=4 (stocktaking)",
        "version=7 (2026-11-22)", "run=2 versions=1..7 (2026-11-19..2026-11-22)",
    ]  # fmt: skip
    assert "nothing new: version 7 (2026-11-22) is folded" in dd("run")[2]
    *lines, result = lines_of(dd("run", "--full-refresh", "--json")[1])
    assert [(item["version"], item["label"], item["instant"]) for item in lines[-2:]] == [
        (4, "stocktaking", "2026-11-21T04:00:00Z"), (7, "2026-11-22", "2026-11-21T07:00:00Z"),
    ]  # fmt: skip
    assert lines[2]["label"] is None
    assert (result["last"], result["label"], result["instant"]) == (7, "2026-11-22", "2026-11-21T07:00:00Z")


def test_rows_go_to_a_version_by_its_label(own: Path, dd: Command) -> None:
    (own / "8.csv").write_text("id,item\n8,rye\n")
    there = ["ingest", "orders", "8.csv", "--diff", "1", "--version"]
    for name in ("2026-11-22", "version=2026-11-22"):
        code, out, err = dd(*there, name, "--json")
        assert (code, lines_of(out)[0]["last"]) == (0, 7), err
    code, _, err = dd(*there, "stocktaking")
    assert code == 1 and "1 of 1 rows are late" in err[0], "it is folded"
    code, _, err = dd("ingest", "orders", "8.csv", "--snapshot", "--version", "stocktaking")
    assert code == 2 and "--version 4: the input orders has rows up to version 7" in err[0]


@pytest.mark.parametrize(
    ("version", "says", "hint"),
    [
        ("stocktakin", "no version has the label 'stocktakin'", "did you mean 'stocktaking'?"),
        ("today", "no version has the label 'today'", "a new one is a number, or next, and gets its label with"),
        ("2026-11-21", "no version has the label '2026-11-21'", "did you mean"),
        ("latest", "no version has the label 'latest'", "a number, or next"),
        ("-1", "version is -1, which is negative", "start at 0"),
        ("next", "--version next: with --append, --snapshot, --feed or events", "--version N"),
    ],
)
def test_a_version_that_rows_cannot_have_is_refused(version: str, says: str, hint: str, own: Path, dd: Command) -> None:
    before = Ledger.load(Warehouse(own / "warehouse")).entries.last
    code, _, err = dd("ingest", "orders", "1.csv", "--diff", "1", f"--version={version}")
    assert code == 2 and says in err[0] and hint in err[1]
    assert Ledger.load(Warehouse(own / "warehouse")).entries.last == before


def test_a_label_of_two_versions_takes_no_rows(own: Path, dd: Command) -> None:
    (own / "8.csv").write_text("id,item\n8,rye\n")
    assert dd("ingest", "orders", "8.csv", "--append", "--version", "next", "--label", "stocktaking", "-q")[0] == 0
    code, _, err = dd("ingest", "orders", "1.csv", "--diff", "1", "--version", "stocktaking")
    assert (code, err[0]) == (2, "error: --version: 'stocktaking' is the label of version 4 and version 8")


def test_a_project_without_a_warehouse_has_no_label_for_rows(own: Path, dd: Command) -> None:
    code, _, err = dd("ingest", "orders", "1.csv", "--diff", "1", "--version", "first day", "--warehouse", "none")
    assert (code, err[0]) == (2, "error: --version: no version has the label 'first day'")
    assert not (own / "none").exists()


@pytest.mark.parametrize("form", [["--append"], ["--upsert", "--key", "id"]])
def test_the_next_version_is_not_for_sources_with_versions(form: list[str], own: Path, dd: Command) -> None:
    """Their own versions were taken, without a word."""
    (own / "8.csv").write_text("id,item,version\n8,rye,9\n")
    code, _, err = dd("ingest", "orders", "8.csv", *form, "--version", "next")
    assert code == 1 and "has a column 'version', but --version gives its value for all rows" in err[0], err


# --- several time dimensions ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folded_figures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bitemporal sample: two days, of which one is restated; both coordinates have labels. Nobody writes to it."""
    folder = tmp_path_factory.mktemp("sample") / "figures"
    assert run_command(["init", str(folder), "--example", "bitemporal", "-q"]) == 0
    for (number, revision, shop, amount), given in {
        (1, 0, "Harbour", 100): ["--label", "day=2026-11-20,revision=first report"],
        (2, 0, "Harbour", 110): ["--label", "day=2026-11-21"],
        (2, 1, "Market", 120): ["--label", "revision=correction"],
    }.items():
        (folder / "source.csv").write_text(f"shop,amount\n{shop},{amount}\n")
        arguments = ["--version", f"day={number},revision={revision}", "--diff", "1", *given]
        source = ["sales", str(folder / "source.csv")]
        assert run_command(["ingest", *source, *arguments, "--project", str(folder), "-q"]) == 0
    assert run_command(["run", "--project", str(folder), "-q"]) == 0
    return folder


@pytest.fixture
def figures(folded_figures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: None) -> Path:
    """The sample to write to, as the working folder."""
    shutil.copytree(folded_figures, tmp_path / "figures", copy_function=shutil.copy2)
    monkeypatch.chdir(tmp_path / "figures")
    return tmp_path / "figures"


@pytest.mark.parametrize(
    ("at", "head"),
    [
        ("day=2026-11-20,revision=0", "at day=1,revision=0 (day=2026-11-20,revision=first report)  1 row"),
        ("revision=correction,day=yesterday", "at day=2,revision=1 (day=2026-11-21,revision=correction)  2 rows"),
        ("day=2026-11-21,revision=first report", "at day=2,revision=0 (day=2026-11-21,revision=first report)  1 row"),
    ],
)
def test_each_coordinate_has_names(at: str, head: str, figures: Path, dd: Command) -> None:
    code, out, err = dd("show", "totals", "--at", at)
    assert (code, out[1:2]) == (0, [head]), err


@pytest.mark.parametrize(
    ("at", "says"),
    [
        ("2026-11-20", "'2026-11-20' is not a time of day, revision"),
        ("day=2026-11-01,revision=0", "'2026-11-01' is before all days with a date: the first is day=1"),
        ("day=1,revision=yesterday", "'yesterday': no revision has a date"),
        ("day=1,revision=corection", "'corection' is not a revision, and no label"),
        ("day=latest,revision=0", "latest is a whole time, not one coordinate"),
    ],
)
def test_a_coordinate_that_no_name_means(at: str, says: str, figures: Path, dd: Command) -> None:
    code, _, err = dd("show", "totals", "--at", at)
    assert code == 2 and says in err[0]


def test_json_and_log_with_several_dimensions(figures: Path, dd: Command) -> None:
    _, out, _ = dd("show", "totals", "--at", "day=2,revision=0", "--json")
    assert lines_of(out)[1]["label"] == {"day": "2026-11-21", "revision": "first report"}
    assert lines_of(out)[1]["instant"] == {}
    _, out, _ = dd("log", "--json")
    assert lines_of(out)[1]["labels"] == [{"revision": 1, "label": "correction", "instant": None}]
    _, out, _ = dd("log", "--versions")
    assert "day=2026-11-21,revision=correction" in out[1]
    _, out, _ = dd("status")
    assert "through day=2,revision=1 (day=2026-11-21,revision=correction)" in out[2]
    _, out, _ = dd("status", "--json")
    assert lines_of(out)[0]["label"] == [{"day": "2026-11-21", "revision": "correction"}]


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ("2026-11-22", "'2026-11-22' names none of the dimensions day, revision"),
        ("dya=x", "there is no time dimension 'dya'"),
        ("day=x,day=y", "day is labelled twice"),
    ],
)
def test_a_label_names_its_dimension(label: str, says: str, figures: Path, dd: Command) -> None:
    code, _, err = dd("ingest", "sales", "source.csv", "--version", "day=3,revision=0", "--diff", "1", "--label", label)
    assert code == 2 and says in err[0]


def test_a_run_of_several_dimensions_names_its_times(figures: Path, dd: Command) -> None:
    code, out, err = dd("run", "--full-refresh")
    said = without_engine([*out, *err])
    assert code == 0 and [line.split(" in=")[0] for line in said if " in=" in line][-2:] == [
        "day=2,revision=1 (day=2026-11-21,revision=correction)",
        "run=2 times=3 to day=2,revision=1 (day=2026-11-21,revision=correction)",
    ]
    assert "nothing new: day=2,revision=1 (day=2026-11-21,revision=correction) is folded" in dd("run")[2]
    *_, last, result = lines_of(dd("run", "--full-refresh", "--json")[1])
    assert last["label"] == result["label"] == {"day": "2026-11-21", "revision": "correction"}


def test_rows_go_to_coordinates_by_their_labels(figures: Path, dd: Command) -> None:
    for form, at, lands in (
        (["--diff", "1"], "day=3,revision=correction", {"day": 3, "revision": 1}),
        (["--snapshot"], "day=3,revision=next", {"day": 3, "revision": 2}),
        (["--upsert", "--key", "shop"], "day=next,revision=next", {"day": 4, "revision": 3}),
    ):
        Path("more.csv").write_text(f"shop,amount\nQuay,{lands['revision']}\n")
        ingest = ["ingest", "sales", "more.csv", *form, "--version", at, "--json"]
        code, out, err = dd(*ingest)
        assert (code, lines_of(out)[-1]["last"]) == (0, lands), err
        assert lines_of(dd(*ingest)[1])[-1]["nothing_new"]
    assert dd("run", "-q")[0] == 0
    Path("more.csv").write_text("shop,amount\nPier,1\n")
    code, out, err = dd("ingest", "sales", "more.csv", "--snapshot", "--version", "day=4,revision=next", "--json")
    assert (code, lines_of(out)[-1]["last"]) == (0, {"day": 4, "revision": 4}), err


@pytest.mark.parametrize(
    ("form", "version", "says"),
    [
        (["--diff", "1"], "day=2026-11-22,revision=0", "--version: no day has the label '2026-11-22'"),
        (["--diff", "1"], "day=3,revision=yesterday", "--version: no revision has the label 'yesterday'"),
        (["--diff", "1"], "day=3,revision=next", "--version day=3,revision=next: next is for snapshots and events"),
        (["--append"], "day=3,revision=next", "next is for snapshots and events"),
        (["--snapshot"], "next", "--version next: with --append, --snapshot, --feed or events, and one time"),
        (["--snapshot"], "2026-11-20", "'2026-11-20' is not a time of day, revision"),
    ],
)
def test_coordinates_that_rows_cannot_have_are_refused(
    form: list[str], version: str, says: str, figures: Path, dd: Command
) -> None:
    code, _, err = dd("ingest", "sales", "source.csv", *form, "--version", version)
    assert code == 2 and says in err[0]


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_shows_what_happens(tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pages.follow("version-names.md", tmp_path, dd, monkeypatch, steps=17)
    (shown,) = re.findall(r"^```json\n(.*)\n```$", (pages.DOCS / "version-names.md").read_text(), flags=re.MULTILINE)
    line = lines_of(dd("show", "journeys", "--at", "new-bridge", "--json")[1])[1]
    assert {**json.loads(shown), "instant": line["instant"]} == line
    assert datetime.now(UTC) - datetime.fromisoformat(line["instant"]) < timedelta(minutes=10)
