"""Each kind of source from the command line, on both engines: twice, with a bad row, after a crash; against an oracle.

One random history of a table with a key is written as every kind of source has it, in two parts. After both, the input
must hold what the table held, at every version.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake
from ingesting import Desk
from pyarrow import orc
from trams import Command
from workshop import Workshop

SCHEMA = {"k": "int64", "v": "string", "ts_ms": "int64"}
TYPES: dict[str, Any] = {"k": pl.Int64, "v": pl.String, "ts_ms": pl.Int64}
VERSIONS, CUT = 5, 3  # the second part begins at version CUT
RESERVED = -(2**63)  # no input can hold this number

Row = tuple[int, str, int]  # key, value, and the order of the event that it comes from


@dataclass(frozen=True)
class Event:
    """What happened to a key: ``before`` and ``after`` are its rows, None where it has none."""

    key: int
    order: int
    version: int
    before: Row | None
    after: Row | None


@dataclass(frozen=True)
class Part:
    """A part of a history: what happened, and what the table held at each version from ``first`` on. ``bad``: with a
    row at its end that no input can hold.
    """

    folder: Path
    first: int
    events: tuple[Event, ...]
    states: tuple[tuple[Row, ...], ...]
    bad: bool = False

    @property
    def last(self) -> int:
        return self.first + len(self.states) - 1

    def file(self, suffix: str, frame: pl.DataFrame) -> str:
        path = self.folder / f"part-{self.first}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        getattr(frame, {"csv": "write_csv", "parquet": "write_parquet", "jsonl": "write_ndjson"}[suffix])(path)
        return str(path)


def history(rng: random.Random, folder: Path) -> tuple[Part, Part]:
    """Random edits of five keys, cut in two; key 0 is never deleted and changes in either part, so each has updates."""
    table: dict[int, Row] = {}
    events: list[Event] = []
    states: list[tuple[Row, ...]] = []
    for version in range(VERSIONS):
        keys = [0] * (version in (0, CUT)) + [rng.randrange(5) for _ in range(rng.randint(1, 5))]
        for key in keys:
            order = len(events) + 1
            before = table.pop(key, None)
            gone = key > 0 and rng.random() < 0.3
            if not gone:
                table[key] = (key, rng.choice("xyz"), order)
            events.append(Event(key, order, version, before, table.get(key)))
        states.append(tuple(sorted(table.values())))
    early = [event for event in events if event.version < CUT]
    return (
        Part(folder, 0, tuple(early), tuple(states[:CUT])),
        Part(folder, CUT, tuple(events[len(early) :]), tuple(states[CUT:])),
    )


# --- the kinds --------------------------------------------------------------------------------------------------------


def updates(part: Part) -> pl.DataFrame:
    """The part as a change log: the net change of each row at each version."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for event in part.events:
        for row, diff in ((event.before, -1), (event.after, 1)):
            if row is not None:
                counts[(*row, event.version)] += diff
    rows = [(*row, diff) for row, diff in counts.items() if diff]
    rows += [(RESERVED, "x", 0, part.last, 1)] * part.bad
    return pl.DataFrame(rows, {**TYPES, "version": pl.Int64, "diff": pl.Int64}, orient="row")


def content(part: Part, version: int) -> pl.DataFrame:
    rows = [*part.states[version - part.first], *[(RESERVED, "x", 0)] * (part.bad and version == part.last)]
    return pl.DataFrame(rows, TYPES, orient="row")


def inserted(part: Part, version: int) -> pl.DataFrame:
    """The rows that events of a version bring."""
    rows = [event.after for event in part.events if event.version == version and event.after is not None]
    rows += [(RESERVED, "x", 0)] * (part.bad and version == part.last)
    return pl.DataFrame(rows, TYPES, orient="row")


def change_log(part: Part) -> list[str]:
    return [part.file("parquet", updates(part))]


def json_lines(part: Part) -> list[str]:
    return [part.file("jsonl", updates(part))]


def orc_files(part: Part) -> list[str]:
    path = part.folder / f"part-{part.first}.orc"
    path.parent.mkdir(parents=True, exist_ok=True)
    orc.write_table(updates(part).to_arrow(), str(path))
    return [str(path), "--format", "orc"]


def snapshot_files(part: Part) -> list[str]:
    days = part.folder / "days"
    days.mkdir(parents=True, exist_ok=True)
    for version in range(part.first, part.last + 1):
        content(part, version).write_csv(days / f"2026-11-{version + 1:02d}.csv")
    return [f"{days}/*.csv", "--snapshot"]


def table_of(part: Part, rows: Callable[[Part, int], pl.DataFrame], mode: str, *, feed: bool = False) -> str:
    """A Delta table, with one commit for each version."""
    path = str(part.folder / "table")
    settings = {"delta.enableChangeDataFeed": "true"} if feed else None
    for version in range(part.first, part.last + 1):
        arrow = rows(part, version).to_arrow()
        write_deltalake(path, arrow, mode=mode, configuration=settings)  # type: ignore[call-overload]
    return path


def snapshots_of_a_table(part: Part) -> list[str]:
    return [f"{table_of(part, content, 'overwrite')}@v{part.first}..v{part.last}", "--snapshot"]


def change_feed(part: Part) -> list[str]:
    return [table_of(part, content, "overwrite", feed=True), "--feed"]


def appended_table(part: Part) -> list[str]:
    return [table_of(part, inserted, "append"), "--append"]


def appended_files(part: Part) -> list[str]:
    part.file("csv", pl.concat(inserted(part, version) for version in range(part.first, part.last + 1)))
    return [str(part.folder), "--append"]


def shuffled(part: Part) -> Iterator[Event]:
    """The events in another order, some of them twice, and the bad one."""
    rng = random.Random(len(part.events))
    events = [*part.events, *part.events[::3]]
    rng.shuffle(events)
    yield from events
    if part.bad:
        yield Event(RESERVED, 10**6, part.last, None, (RESERVED, "x", 10**6))


def operations(part: Part) -> list[str]:
    rows = [
        ("D", event.key, None, event.order, event.version)
        if event.after is None
        else ("U" if event.before else "I", *event.after, event.version)
        for event in shuffled(part)
    ]
    frame = pl.DataFrame(rows, {"op": pl.String, **TYPES, "version": pl.Int64}, orient="row")
    return [part.file("csv", frame), "--op", "op", "--key", "k", "--order-by", "ts_ms"]


def other_operations(part: Part) -> list[str]:
    """As SQL Server writes them: 1 deletes, 2 inserts, 3 and 4 are before and after an update."""
    rows: list[tuple[Any, ...]] = []
    for event in shuffled(part):
        if event.after is None:
            rows.append((1, event.key, None, event.order, event.version))
        elif event.before is None:
            rows.append((2, *event.after, event.version))
        else:
            rows += [(3, *event.before, event.version), (4, *event.after, event.version)]
    frame = pl.DataFrame(rows, {"__$operation": pl.Int64, **TYPES, "version": pl.Int64}, orient="row")
    words = "insert=2,before=3,after=4,delete=1"
    options = ["--op", "__$operation", "--op-values", words, "--key", "k", "--order-by", "ts_ms"]
    return [part.file("parquet", frame), *options]


def upserts(part: Part) -> list[str]:
    rows = [(event.key, event.after and event.after[1], event.order, event.version) for event in shuffled(part)]
    frame = pl.DataFrame(rows, {**TYPES, "version": pl.Int64}, orient="row")
    return [part.file("parquet", frame), "--upsert", "--key", "k", "--order-by", "ts_ms"]


def envelopes(part: Part) -> list[dict[str, Any]]:
    def side(row: Row | None) -> dict[str, Any] | None:
        return row and {"k": row[0], "v": row[1]}

    return [
        {
            "op": "d" if event.after is None else "u" if event.before else "c",
            "before": side(event.before) or (None if event.after else {"k": event.key, "v": None}),
            "after": side(event.after), "ts_ms": event.order, "source": {"version": event.version, "db": "shop"},
        }
        for event in shuffled(part)
    ]  # fmt: skip


DEBEZIUM = ["--debezium", "--key", "k", "--order-by", "ts_ms", "--column", "version=source.version"]


def debezium_columns(part: Part) -> list[str]:
    row = pl.Struct({"k": pl.Int64, "v": pl.String})
    source = pl.Struct({"version": pl.Int64, "db": pl.String})
    kinds: dict[str, Any] = {"op": pl.String, "before": row, "after": row, "ts_ms": pl.Int64, "source": source}
    events: list[dict[str, Any]] = [*envelopes(part), dict.fromkeys(kinds)]  # the last one is a tombstone
    return [part.file("parquet", pl.DataFrame(events, kinds)), *DEBEZIUM]


def debezium_json(part: Part) -> list[str]:
    texts = [*map(json.dumps, envelopes(part)), None]
    return [part.file("parquet", pl.DataFrame({"offset": range(len(texts)), "value": texts})), *DEBEZIUM]


def debezium_json_lines(part: Part) -> list[str]:
    """With and without ``schema`` around them, and tombstones between them."""
    path = part.folder / f"part-{part.first}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = [
        {"schema": {"type": "struct"}, "payload": one} if one["ts_ms"] % 2 else one for one in envelopes(part)
    ]  # fmt: skip
    path.write_text("".join(f"{json.dumps(one)}\nnull\n\n" for one in whole))
    return [str(path), *DEBEZIUM]


@dataclass(frozen=True)
class Kind:
    """``write`` writes a part of a history, and gives what stands behind the name of the input in the command."""

    write: Callable[[Part], list[str]]
    only_inserts: bool = False
    only_spark: bool = False


KINDS = {
    "change log": Kind(change_log),
    "JSON lines": Kind(json_lines),
    "format": Kind(orc_files, only_spark=True),
    "snapshot files": Kind(snapshot_files),
    "versions of a table": Kind(snapshots_of_a_table),
    "change data feed": Kind(change_feed),
    "appended table": Kind(appended_table, only_inserts=True),
    "appended files": Kind(appended_files, only_inserts=True),
    "op": Kind(operations),
    "op-values": Kind(other_operations),
    "upsert": Kind(upserts),
    "Debezium as columns": Kind(debezium_columns),
    "Debezium as JSON": Kind(debezium_json),
    "Debezium in JSON lines": Kind(debezium_json_lines),
}


# --- what the input must hold -----------------------------------------------------------------------------------------


def holds(desk: Desk, version: int | None = None) -> Counter[Row]:
    """The collection at a version, or at the end, added up here."""
    counts: Counter[Row] = Counter()
    for *row, at, diff in desk.updates():
        if version is None or at <= version:
            counts[tuple(row)] += diff
    assert min(counts.values(), default=0) >= 0
    return +counts


def assert_holds(desk: Desk, kind: Kind, parts: Sequence[Part], where: object) -> None:
    if kind.only_inserts:
        assert holds(desk) == Counter(e.after for part in parts for e in part.events if e.after is not None), where
        return
    for part in parts:
        for version, rows in enumerate(part.states, part.first):
            assert holds(desk, version) == Counter(rows), (where, version)


def cells(long: Callable[[str, str], bool]) -> list[Any]:
    """Each kind on each engine, those that are long with the mark for it."""
    params = []
    for name, kind in KINDS.items():
        for engine in ("inline", "spark")[kind.only_spark :]:
            marks = [pytest.mark.spark] * (engine == "spark") + [pytest.mark.long] * long(name, engine)
            params.append(pytest.param(name, engine, id=f"{name}, {engine}", marks=marks))
    return params


SAMPLE = ("op-values", "Debezium in JSON lines", "change data feed")


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "engine"), cells(lambda name, engine: engine == "spark" and name not in SAMPLE))
def test_twice_and_with_a_bad_row_it_is_what_the_table_held(
    name: str, engine: str, tmp_path: Path, dd: Command, request: pytest.FixtureRequest, *, seed: int
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
    kind, desk, sources = KINDS[name], Desk(tmp_path, SCHEMA), tmp_path / "sources"
    first, second = history(random.Random(seed), sources)

    def ingest(part: Part) -> tuple[int, list[str], list[str]]:
        return dd("ingest", "edges", *kind.write(part), "--project", str(tmp_path), "--engine", engine)

    def again(arguments: list[str]) -> dict[str, Any]:
        code, out, err = dd("ingest", "edges", *arguments, "--project", str(tmp_path), "--engine", engine)
        assert code == 0, err
        return dict(json.loads(out[-1]))

    arguments = kind.write(first)
    assert not again(arguments)["nothing_new"]
    assert_holds(desk, kind, [first], seed)
    assert again(arguments)["nothing_new"]
    shutil.copytree(sources, tmp_path / "good")
    before, taken_in = desk.updates(), len(desk.records())
    code, _, err = ingest(replace(second, bad=True))
    assert code == 1, (seed, err)
    (error,) = (line for line in err if line.startswith("error: "))
    assert "-9223372036854775808" in error and str(sources) in error, (seed, error)
    assert "is reserved" in error or "does not fit into int64" in error, (seed, error)  # of text
    assert not any("Traceback" in line for line in err)
    assert (desk.updates(), len(desk.records()), desk.stray_files()) == (before, taken_in, []), seed
    shutil.rmtree(sources)
    (tmp_path / "good").rename(sources)
    arguments = kind.write(second)
    assert not again(arguments)["nothing_new"]
    assert_holds(desk, kind, [first, second], seed)
    assert again(arguments)["nothing_new"]
    assert len(desk.records()) == 2 and not desk.stray_files()


@pytest.mark.sample(2)
@pytest.mark.parametrize("point", ["after-file", "after-table"])
@pytest.mark.parametrize(("name", "engine"), cells(lambda name, engine: engine == "spark" or name not in SAMPLE))
def test_killed_while_it_is_taken_in_it_is_taken_in_once(
    name: str, engine: str, point: str, tmp_path: Path, workshop: Workshop, *, seed: int
) -> None:
    """A real process, killed when its files are written, and when they are committed and not yet recorded."""
    kind, desk = KINDS[name], Desk(tmp_path, SCHEMA)
    first, second = history(random.Random(seed), tmp_path / "sources")
    start = "spark" if kind.only_spark else "inline"
    ended = workshop.command(tmp_path, "ingest", "edges", *kind.write(first), "--engine", start)
    assert ended.code == 0, ended
    before = desk.updates()
    command = ["ingest", "edges", *kind.write(second), "--engine", engine]
    ended = workshop.command(tmp_path, *command, DDCORE_FAILPOINT=point)
    in_task = engine == "spark" and point == "after-file"  # Spark sees that its task died
    assert ended.code == -signal.SIGKILL or (in_task and ended.code == 1), (seed, ended)
    assert desk.updates() == before and len(desk.records()) == 1, "what is not recorded is not seen"
    ended = workshop.command(tmp_path, *command)
    assert ended.code == 0, (seed, ended)
    assert_holds(desk, kind, [first, second], seed)
    assert len(desk.records()) == 2 and not desk.stray_files()
    ended = workshop.command(tmp_path, *command)
    assert ended.code == 0 and json.loads(ended.out[-1])["nothing_new"], (seed, ended)
