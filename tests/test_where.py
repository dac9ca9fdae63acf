"""``--where`` and ``where=``: the rows that meet a condition, in order, in pieces, and what is read for them."""

from __future__ import annotations

import gc
import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from choices import Choices
from notation import dims_of
from programs import INPUTS, Named, Writer, history
from trams import Command, records

import ddcore
from ddcore import reference
from ddcore.base.errors import ExpressionError, StorageError, UsageError
from ddcore.base.schema import Schema, parse_schema, type_of
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.cli import show
from ddcore.cli.main import run_command
from ddcore.cli.output import Output
from ddcore.io.delta.table_files import TableState
from ddcore.io.delta.writer import Writer as TableWriter
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.parquet import datafile
from ddcore.io.project.times import Time, time_of
from ddcore.io.reading import sorted_rows
from ddcore.io.reading.pairs import changes_of, first_changes, number_of_changes
from ddcore.io.reading.sorted_rows import SortedRows
from ddcore.program.condition import Condition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIPS = parse_schema({"town": "string", "distance": "int64", "day": "date", "at": "timestamp", "fare": "decimal(10,2)"})


SMALL = Tuning(piece_rows=8, sample_rows=8, block_rows=1, group_rows=3)


def written(
    folder: Path, frame: pl.DataFrame, rng: random.Random, tuning: Tuning = SMALL
) -> tuple[ChangeLog, TableState]:
    """A log of these updates, in some files in any order."""
    dims = tuple(dims_of({"it": frame}))
    schema: Schema = {name: type_of(kind) for name, kind in frame.schema.items() if name not in (*dims, "diff")}
    log, state = ChangeLog(folder, schema, dims, TableWriter(), tuning), None
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=rng.randrange(1000))
    cuts = sorted(rng.randrange(len(frame) + 1) for _ in range(rng.randrange(3)))
    for number, (start, end) in enumerate(itertools.pairwise([0, *cuts, len(frame)])):
        state = log.append(shuffled[start:end], number, base=state)
    assert state is not None
    return log, state


def at(log: ChangeLog, state: TableState, time: Time) -> list[tuple[Any, ...]]:
    """All rows of the collection at a time, in order."""
    return log.between(None, time, state).sort([*log.schema]).rows()


def same(one: Any, other: Any) -> bool:
    """Whether rows are equal; NaN equals NaN."""
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same([*one.values()], [*other.values()])
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


@pytest.fixture
def lengths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lists the lengths of frames that are sorted."""
    lengths: list[int] = []
    added_up = sorted_rows._added_up

    def watched(rows: pl.DataFrame, order: Sequence[str]) -> pl.DataFrame:
        lengths.append(len(rows))
        return added_up(rows, order)

    monkeypatch.setattr(sorted_rows, "_added_up", watched)
    return lengths


# --- the rows that meet a condition are those of the collection that meet it ------------------------------------------


@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", range(60))
def test_rows_are_those_of_the_collection_that_meet_the_condition(seed: int, tmp_path: Path) -> None:
    rng, dice = Choices.of_seed(seed), random.Random(seed)
    name = dice.choice([*INPUTS])
    frame = history(rng, {name: INPUTS[name]})[name]
    log, state = written(tmp_path / "log", frame, dice, SMALL if seed % 3 else DEFAULT)
    writer = Writer(rng)
    conditions = [eval(text, {"col": pl.col, "pl": pl, "Decimal": Decimal}) for _ in range(dice.randrange(1, 4))
                  if (text := writer.predicate(Named(name, INPUTS[name])))]  # fmt: skip
    print(f"seed {seed}: {conditions}\n{frame}")
    times = reference.grid(frame.select(log.dims).iter_rows())
    time = dice.choice(times)
    naive = reference.NaiveCollection(
        {name: kind.polars for name, kind in log.schema.items()}, reference.accumulate(frame, time, log.dims).items()
    )
    expected = naive.where(*conditions).rows
    by = dice.sample([*log.schema], dice.randrange(len(log.schema) + 1))
    rows = SortedRows(log, state, None, time_of(time), where=Condition(conditions, log.schema, "where"), by=by)
    kept = pl.concat([rows.nothing, *rows])
    assert reference.NaiveCollection(naive.columns, ((row[:-1], row[-1]) for row in kept.rows())).rows == expected
    assert len(rows) == len(kept) == len(expected)
    assert same(kept.rows(), kept.sort(rows.order).rows())
    assert rows.total() == sum(expected.values())
    for limit in (1, 2, len(kept), len(kept) + 1):
        fresh = SortedRows(log, state, None, time_of(time), where=Condition(conditions, log.schema, "where"), by=by)
        assert same(fresh.head(limit).rows(), kept.rows()[:limit])
        assert same(rows.head(limit).rows(), kept.rows()[:limit])
    sizes = [len(part) for part in rows.parts(3)]
    assert sizes == [3] * (len(kept) // 3) + [len(kept) % 3] * (len(kept) % 3 > 0)


@pytest.fixture
def unsorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any sorting of all rows is an error."""

    def refuse(*_: object) -> None:
        raise AssertionError("all rows are sorted")

    monkeypatch.setattr(sorted_rows._Settled, "_sort", refuse)


def many_versions(folder: Path, *, falling: bool) -> tuple[ChangeLog, TableState]:
    """A log of 2,000 rows in four versions, of which ten are changed in the last one, and ten are gone and back. More
    than 64 updates are many.
    """
    tuning = Tuning(sample_rows=64, piece_rows=256)
    schema = parse_schema({"x": "int64", "town": "string"})
    log, state = ChangeLog(folder, schema, writer=TableWriter(), tuning=tuning), None
    order = -1 if falling else 1
    parts = [pl.DataFrame({"x": [location * 500 + number for number in range(500)]}) for location in (0, 1, 2, 3)][
        ::order
    ]
    for version, part in enumerate(parts):
        rows = part.select("x", town=pl.format("t{}", pl.col("x") % 7), version=pl.lit(version), diff=pl.lit(1))
        if version == 3:
            old = parts[1].head(10).select("x", town=pl.format("t{}", pl.col("x") % 7), version=pl.lit(3))
            new = old.with_columns(town=pl.lit("new"), diff=pl.lit(1))
            again = parts[0].head(10).select("x", town=pl.format("t{}", pl.col("x") % 7), version=pl.lit(3))
            rows = pl.concat([rows, old.with_columns(diff=pl.lit(-1)), new, again.with_columns(diff=pl.lit(-1))])
        state = log.append(rows.with_columns(pl.col("version", "diff").cast(pl.Int64)), version + 1, base=state)
    assert state is not None
    return log, state


@pytest.mark.parametrize("falling", [False, True])
@pytest.mark.parametrize("keys", [[], ["x"], ["town"]])
def test_the_first_changes_of_several_versions_sort_nothing(
    *, falling: bool, keys: list[str], tmp_path: Path, unsorted: None
) -> None:
    log, state = many_versions(tmp_path / "log", falling=falling)
    end = time_of(3)
    for start in (None, time_of(0), time_of(1)):
        rows = SortedRows(log, state, start, end, by=keys)
        whole = log.between(start, end, state).sort(rows.order).select(*log.schema, "diff")
        expected = [*changes_of([whole], [rows.columns.index(name) for name in keys])]
        diffs = whole["diff"]
        assert rows.sizes() == (diffs.filter(diffs > 0).sum(), -diffs.filter(diffs < 0).sum())
        assert not rows.is_known
        assert [*first_changes(rows, keys, 5)] == expected[:5]


@pytest.mark.sample(10)
@pytest.mark.parametrize("seed", range(30))
def test_differences_are_those_of_the_rows_that_meet_the_condition(seed: int, tmp_path: Path) -> None:
    rng, dice = Choices.of_seed(seed), random.Random(seed)
    name = dice.choice(["edges", "words", "marks", "bills", "limits"])
    frame = history(rng, {name: INPUTS[name]})[name]
    log, state = written(tmp_path / "log", frame, dice)
    text = Writer(rng).predicate(Named(name, INPUTS[name]))
    condition = Condition(eval(text, {"col": pl.col, "pl": pl, "Decimal": Decimal}), log.schema, "where")
    times = reference.grid(frame.select(log.dims).iter_rows())
    start, end = (time_of(dice.choice(times)) for _ in range(2))
    everything = log.between(start, end, state)
    expected = condition.kept(condition.scan(everything.lazy()).collect())
    keys = dice.sample([*log.schema], dice.randrange(len(log.schema) + 1))
    rows = SortedRows(log, state, start, end, where=condition, by=keys)
    kept = pl.concat([rows.nothing, *rows])
    assert same(kept.rows(), expected.sort(rows.order).rows())
    signs = expected["diff"].to_list()
    assert rows.sizes() == (sum(n for n in signs if n > 0), -sum(n for n in signs if n < 0))
    locations = [[*log.schema].index(key) for key in keys]
    assert number_of_changes(rows, keys, len(rows)) == len([*changes_of(rows, locations)])
    narrow = replace(log, tuning=replace(SMALL, sample_margin=1))
    for limit in (1, 2, 3, 0):
        fresh = SortedRows(narrow, state, start, end, where=condition, by=keys)
        assert fresh.sizes() == rows.sizes()
        listed, whole = ([*first_changes(item, keys, limit)] for item in (fresh, rows))
        assert same([(item.before, item.after, item.times) for item in listed],
                    [(item.before, item.after, item.times) for item in whole])  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_the_number_of_changes_is_that_of_the_pairs(seed: int) -> None:
    dice = random.Random(seed)
    cells = {(dice.choice([None, 0, 1, 2]), dice.randrange(6)): dice.choice([-3, -2, -1, 1, 2, 4]) for _ in range(20)}
    frame = pl.DataFrame([(*row, diff) for row, diff in cells.items()], schema=["k", "v", "diff"], orient="row")
    frame = frame.sort("k", "v")
    cuts = [0, *sorted(dice.randrange(len(frame)) for _ in range(4)), len(frame)]
    pieces = [frame[start:end] for start, end in itertools.pairwise(cuts)]
    assert number_of_changes(pieces, ["k"], len(frame)) == len([*changes_of(pieces, [0])])


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("order", [[], ["v"]])
def test_memory_does_not_grow_with_the_rows(order: list[str], tmp_path: Path, lengths: list[int]) -> None:
    """Of 4,000 updates of 2,000 rows at most some pieces are in memory, and the files are gone afterwards."""
    dice, tuning = random.Random(1), replace(SMALL, piece_rows=256)
    schema = parse_schema({"k": "int64", "v": "int64"})
    log, state = ChangeLog(tmp_path / "log", schema, writer=TableWriter(), tuning=tuning), None
    numbers = dice.sample(range(2000), 2000)
    for version in range(2):
        updates = [(number, number * 7 % 97, version, 1) for number in numbers]
        frame = pl.DataFrame(updates, schema=["k", "v", "version", "diff"], orient="row")
        state = log.append(frame, version, base=state)
    rows = SortedRows(log, state, None, time_of(1), by=order)
    assert sum(map(len, rows)) == 2000
    assert rows.sizes() == (4000, 0)
    assert max(lengths) < 1000, "a block of each run, and a batch"
    folder = rows._settled.folder
    assert folder is not None
    assert all(file.name.startswith("rows-") for file in folder.iterdir())
    del rows
    gc.collect()
    assert not folder.exists()


def test_a_log_that_is_sorted_is_not_sorted_again(tmp_path: Path, lengths: list[int]) -> None:
    log = ChangeLog(tmp_path / "log", parse_schema({"k": "int64", "s": "string"}), writer=TableWriter(), tuning=SMALL)
    frame = pl.DataFrame({"k": [1] * 50 + [2] * 50, "s": [f"{n:03}" for n in range(100)], "version": 3, "diff": 1})
    state = log.append(frame, 1, base=None)
    rows = SortedRows(log, state, time_of(2), time_of(3))
    assert (rows.sizes(), len(rows), lengths) == ((100, 0), 100, [])
    assert [row[1] for piece in rows for row in piece.rows()] == [f"{n:03}" for n in range(100)]


def test_no_more_is_read_when_the_reader_has_gone(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows come in parts, and the one after which stdout has no reader is the last that is read."""
    parts: list[int] = []

    def endless(rows: SortedRows, *_: object) -> Iterator[pl.DataFrame]:
        for number in itertools.count():
            parts.append(number)
            locations = range(number * show.LINES, (number + 1) * show.LINES)
            yield pl.DataFrame({"stop": [f"stop {location}" for location in locations], "total": locations, "diff": 1})

    monkeypatch.setattr(SortedRows, "parts", endless)
    monkeypatch.setattr(SortedRows, "__iter__", endless)
    for command in (["show", "journeys"], ["diff", "journeys", "3.."]):
        for more in ([], ["--json"]):
            monkeypatch.setattr(Output, "unread", property(lambda _: len(parts) > 4))
            parts.clear()
            assert run_command([*command, *more]) == 0
            assert len(parts) == 5
    capsys.readouterr()


# --- what is read -----------------------------------------------------------------------------------------------------


def test_only_files_that_may_have_such_rows_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, state = ChangeLog(tmp_path / "log", parse_schema({"k": "int64", "s": "string"}), writer=TableWriter()), None
    for version in range(4):
        frame = pl.DataFrame({"k": [version * 10, version * 10 + 5], "s": ["a", "b"], "version": version, "diff": 1})
        state = log.append(frame, version, base=state)
    opened: list[str] = []
    locations = datafile.rows_that_may_meet

    def watched(path: Path, *how: Any) -> list[tuple[int, int]] | None:
        opened.append(path.name[:6])
        return locations(path, *how)

    monkeypatch.setattr(datafile, "rows_that_may_meet", watched)

    def files(condition: Any) -> list[str]:
        opened.clear()
        list(SortedRows(log, state, None, time_of(3), where=Condition(condition, log.schema, "where")))
        return sorted(opened)

    assert files("k = 15") == ["000001"]
    assert files("k > 20 AND s = 'a'") == ["000002", "000003"]
    assert files("20 > k") == ["000000", "000001"]
    assert files("k BETWEEN 12 AND 14") == ["000001"]
    assert files("k >= 10 AND k < 10") == []
    assert files("k > 99") == []
    assert files("k > 99 OR s = 'a'") == ["000000", "000001", "000002", "000003"]
    assert files("k + 1 > 99") == ["000000", "000001", "000002", "000003"]


def test_only_row_groups_that_may_have_such_rows_are_read(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", parse_schema({"k": "int64", "s": "string"}), writer=TableWriter(), tuning=SMALL)
    keys = [None, None, None, *range(7)]  # in row groups of three: nulls, 0 to 2, 3 to 5, 6
    schema = dict.fromkeys(("k", "version", "diff"), pl.Int64()) | {"s": pl.String()}
    state = log.append(pl.DataFrame({"k": keys, "version": 0, "diff": 1, "s": "abc"}, schema), 0, base=None)
    (path,) = tmp_path.glob("log/*.parquet")
    asked: list[tuple[Any, Any]] = []

    def is_there(lower: Any, upper: Any) -> bool:
        asked.append((lower["k"], upper["k"]))
        return lower["k"] is not None and lower["k"] <= 4 <= upper["k"]

    assert datafile.rows_that_may_meet(path, "", is_there) == [(6, 3)]
    assert asked == [(None, None), (0, 2), (3, 5), (6, 6)]
    assert datafile.rows_that_may_meet(path, "", lambda *_: True) is None
    assert datafile.rows_that_may_meet(path, "", lambda *_: False) == []
    assert datafile.rows_that_may_meet(path, "", is_there, (7, 8)) == [(7, 1)]

    def rows(condition: str) -> list[Any]:
        found = SortedRows(log, state, None, time_of(0), where=Condition(condition, log.schema, "where"))
        return [row for piece in found for row in piece["k"]]

    conditions = {"k = 4": [4], "k < 2": [0, 1], "k >= 5": [5, 6], "k > 9": [], "k < 1 OR k > 5": [0, 6]}
    assert {condition: rows(condition) for condition in conditions} == conditions
    whole = path.read_bytes()
    location = pq.ParquetFile(path).metadata.row_group(2).column(0).data_page_offset + 20
    path.write_bytes(whole[:location] + bytes([whole[location] ^ 1]) + whole[location + 1 :])
    assert rows("k < 2") == [0, 1]  # nothing damaged is used
    for condition in ("k = 4", "k IS NULL", "s = 'abc'"):
        with pytest.raises(StorageError, match="damaged"):
            rows(condition)


@pytest.mark.parametrize(
    ("text", "pushed"),
    [
        ("town = 'Ashby' AND distance > 3", True),
        ("town LIKE 'A%' OR NOT distance IN (1, 2)", True),
        ("day >= DATE '2026-01-02' AND at < TIMESTAMP '2026-01-02 00:00:00'", True),
        ("town IS NULL", True),
        ("distance = 4 AND 3 < distance", True),
        ("distance < 9223372036854775808", False),
        ("distance * 2 > 3", False),
        ("fare > 1.5", False),
        ("town = 'Ashby' AND distance % 2 = 1", False),
        ("CAST(town AS bigint) > 3", False),
    ],
)
def test_what_cannot_fail_is_pushed(text: str, pushed: bool) -> None:
    assert Condition(text, TRIPS, "where").is_pushed is pushed


def test_a_row_that_is_gone_does_not_fail(tmp_path: Path) -> None:
    """A text that is no number was there until version 1."""
    log = ChangeLog(tmp_path / "log", parse_schema({"s": "string"}), writer=TableWriter())
    frame = pl.DataFrame({"s": ["1", "x", "x"], "version": [0, 0, 1], "diff": [1, 1, -1]})
    state = log.append(frame, 1, base=None)
    condition = Condition("CAST(s AS bigint) > 0", log.schema, "where")
    assert pl.concat(SortedRows(log, state, None, time_of(1), where=condition)).rows() == [("1", 1)]
    with pytest.raises(ExpressionError, match=r"where: .* in the row s='x'"):
        list(SortedRows(log, state, None, time_of(0), where=condition))


def test_conditions_on_dates_and_timestamps(tmp_path: Path) -> None:
    schema = parse_schema({"day": "date", "at": "timestamp"})
    rows = [(date(2026, 1, day), datetime(2026, 1, day, 12, tzinfo=UTC)) for day in (1, 2, 3)]
    log = ChangeLog(tmp_path / "log", schema, writer=TableWriter())
    types = {name: kind.polars for name, kind in log.columns.items()}
    state = log.append(pl.DataFrame([(*row, 0, 1) for row in rows], schema=types, orient="row"), 1, base=None)
    for text, days in (
        ("day = DATE '2026-01-02'", [2]),
        ("at > TIMESTAMP '2026-01-02 11:00:00'", [2, 3]),
        ("at BETWEEN TIMESTAMP '2026-01-01 00:00:00' AND TIMESTAMP '2026-01-02 12:00:00'", [1, 2]),
        ("day + INTERVAL '1 day' > DATE '2026-01-03'", [3]),
    ):
        kept = pl.concat(SortedRows(log, state, None, time_of(0), where=Condition(text, schema, "where")))
        assert [row[0].day for row in kept.rows()] == days, text


# --- commands ---------------------------------------------------------------------------------------------------------


def test_show(here: Path, dd: Command) -> None:
    head = ["journeys (stop string, total int64)", "at 5  2 rows", "", "stop        total"]
    lines = [*head, "Harbour        11", "Lighthouse     18"]
    assert dd("show", "journeys", "--where", "total > 10 AND stop <> 'Zoo'") == (0, lines, [])
    code, lines, notes = dd("show", "journeys", "--where", "total > 2", "--limit", "1", "--json")
    assert (code, notes) == (0, [])
    assert records(lines)[1:] == [
        {"at": 5, "label": None, "instant": records(lines)[1]["instant"], "rows": 6},
        {"row": {"stop": "Bridge", "total": 6}, "count": 1},
    ]
    more = dd("show", "journeys", "--where", "total > 2", "--limit", "1")[2]
    assert more == ["... and 5 more; all of them with --limit 0"]
    assert dd("show", "journeys", "--where", "total > 99")[1][1:] == ["at 5  0 rows"]


def test_diff(here: Path, dd: Command) -> None:
    arguments = ["diff", "journeys", "3", "4", "--where"]
    lines = ["journeys (stop string, total int64)", "3..4  +0 -1", "", "   stop     total", "-  Harbour     12"]
    assert dd(*arguments, "stop = 'Harbour'") == (0, lines, [])
    assert dd(*arguments, "stop = 'Harbour'", "--exit-code") == (3, lines, [])
    assert dd(*arguments, "stop = 'Zoo'", "--exit-code") == (0, [lines[0], "3..4  +0 -0"], [])
    code, lines, _ = dd("diff", "journeys", "..", "--stat", "--where", "stop = 'Harbour'")
    steps = [["1", "+1", "-0"], ["2", "+1", "-1"], ["4", "+0", "-1"], ["5", "+1", "-0"]]
    assert (code, [line.split() for line in lines[4:]]) == (0, steps)
    assert dd("diff", "journeys", "..", "--stat", "--where", "stop || '' = 'Harbour'")[1] == lines
    page = dd("diff", "journeys", "..", "--html", "-o", "-", "--where", "stop = 'Zoo' AND total < 99")[1]
    assert any("where stop = &#x27;Zoo&#x27; AND total &lt; 99" in line for line in page)


def test_log(here: Path, dd: Command) -> None:
    entries = records(dd("log", "--json")[1])
    kept: Callable[[dict[str, Any]], bool]
    for text, kept in (
        ("kind = 'ingest' AND input = 'links'", lambda value: value.get("input") == "links"),
        ("took >= 0", lambda value: value["kind"] == "run"),
        ("rows > 1 OR rounds > 1", lambda value: value.get("rows", 0) > 1 or value.get("rounds", 0) > 1),
        ("at > TIMESTAMP '2100-01-01 00:00:00'", lambda value: False),
        ("in_minus > 0", lambda value: any(side["minus"] for side in value["inputs"].values())),
    ):
        assert records(dd("log", "--json", "--where", text)[1]) == [entry for entry in entries if kept(entry)], text
    versions = records(dd("log", "--versions", "--json")[1])
    chosen = records(dd("log", "--versions", "--json", "--where", "version > 2 AND out_minus > 0")[1])
    assert [item["version"] for item in chosen] == [4, 3]
    assert all(item in versions for item in chosen)
    assert dd("log", "--where", "took < 0") == (0, [], ["no entry meets the condition"])
    assert dd("log", "--operators", "--where", "took < 0")[0] == 2


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("totl > 3", "--where: there is no column totl: the columns are stop, total", "did you mean 'total'?"),
        ('stop = "Zoo"', "--where: there is no column Zoo", "a text has single quotes: 'Zoo'"),
        ("stop =", "--where: cannot read the SQL text 'stop ='", "write a condition in SQL, for example"),
        ("total", "--where: the condition total is Int64, not bool", "compare with something"),
        ("count(*) > 3", "is no map of single rows", "each row by itself"),
        ("total > now()", "reads the clock", ""),
        ("stop > 3", "--where: ", "cast so that the types meet"),
        ("", "'--where'", ""),
    ],
)  # fmt: skip
def test_a_wrong_condition_is_one_line_and_exit_code_2(
    text: str, message: str, hint: str, here: Path, dd: Command
) -> None:
    for command in (["show", "journeys"], ["diff", "journeys", "3", "4"]):
        code, lines, notes = dd(*command, "--where", text)
        assert (code, lines) == (2, [])
        assert message in " ".join(notes)
        assert hint in "\n".join(notes[1:])
        assert len(notes) <= 2


def test_a_row_that_fails_is_named(here: Path, dd: Command) -> None:
    code, _, notes = dd("show", "journeys", "--where", "CAST(stop AS bigint) > 3")
    assert code == 1
    assert notes[0].startswith("error: --where: ")
    assert "in the row stop='Bridge'" in notes[0]


# --- Python -----------------------------------------------------------------------------------------------------------


def test_in_python(here: Path) -> None:
    journeys = ddcore.open()["journeys"]
    for where in ("total > 10", pl.col("total") > 10, ["total > 10", pl.col("stop").is_not_null()]):
        assert journeys.at(3, where=where).polars().equals(journeys.at(3).polars().filter(pl.col("total") > 10))
        assert len(journeys.between(3, 4, where=where)) == 2
        updates = journeys.updates().polars()
        assert journeys.updates(where=where).polars().equals(updates.filter(pl.col("total") > 10))
    rows = journeys.at(where="total > 10")
    assert rows.title == "at 5 where total > 10"
    assert "at 5 where total &gt; 10" in rows._repr_html_()
    with pytest.raises(UsageError, match=r"journeys: where: there is no column toal"):
        journeys.at(where="toal > 3")


@pytest.mark.spark
def test_spark_reads_the_rows_that_meet_it(here: Path, spark: SparkSession) -> None:
    """What is compared before the sum, and what only the exact evaluation computes."""
    journeys = ddcore.open()["journeys"]
    for where in ("total > 10", "total > 10 AND total % 4 = 2", "length(stop) > 5 OR total = 3"):
        for rows in (journeys.at(3, where=where), journeys.between(3, 4, where=where), journeys.updates(where=where)):
            frame = rows.spark(spark)
            assert frame.columns == rows.columns
            assert sorted(map(tuple, frame.collect())) == sorted(rows.polars().rows())


def test_json_has_whole_values(here: Path, dd: Command) -> None:
    lines = dd("show", "journeys", "--json", "--where", "stop = 'Zoo'")[1]
    assert json.loads(lines[-1]) == {"row": {"stop": "Zoo", "total": 14}, "count": 1}


def test_a_number_beyond_int64_is_refused() -> None:
    Condition(pl.col("distance") < 2**63 - 1, TRIPS, "where")
    with pytest.raises(UsageError, match="beyond int64"):
        Condition(pl.col("distance") < 2**63, TRIPS, "where")
