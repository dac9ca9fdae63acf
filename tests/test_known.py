"""Known sources: the index of earlier ingests finds all that recognition needs, and an ingest reads little else."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ingesting import Desk

from ddcore.base.errors import StorageError
from ddcore.base.tuning import Tuning
from ddcore.io.delta import new_files
from ddcore.io.delta.table_files import AddedFile, TableState
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger import entries as entries_module
from ddcore.io.ledger import entry as entry_module
from ddcore.io.ledger import entry_files, records
from ddcore.io.ledger.ingest_index import FOOTER
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IngestRecord, Source, UndoRecord
from ddcore.io.logs.digests import Digest
from ddcore.io.parquet import datafile
from ddcore.io.project.times import Time, greatest, least, time_of
from ddcore.io.sources.known import AlreadyIngested, IngestHistory, SourceIdentity, find_earlier, stored
from ddcore.io.storage.warehouse import Warehouse
from ddcore.io.upkeep.integrity import inspect

KEY, STATE = bytes(16), TableState(1, 1, 1, "ab")
COLUMNS = [("a",), ("a", "b"), ("a", "b", "c")]

Content = dict[Time, Digest]


class History:
    """Random files that appear, grow, change, move and become links, and the ledger of their ingests."""

    def __init__(self, seed: int, folder: Path, dims: int) -> None:
        self.rng, self.folder, self.dims = random.Random(seed), folder, dims
        self.ledger = Ledger.load(Warehouse(folder / "warehouse"), Writer(tuning=Tuning(ledger_files=3)))
        self.files, self.live, self.past = dict[str, Content](), list[int](), list[Content]()
        (folder / "data").mkdir()

    def time(self) -> Time:
        rng = self.rng
        return time_of(rng.randrange(12) if self.dims == 1 else (rng.randrange(6), rng.randrange(3)))

    def content(self, start: Content | None = None) -> Content:
        """A random content, with all of ``start``; with one dimension what is new lies after it."""
        times = {self.time() for _ in range(self.rng.randrange(1, 4))}
        last = max(start).version if start and self.dims == 1 else None
        if last is not None:
            times = {time_of(last + 1 + time.version) for time in times}
        return {
            **{time: Digest(self.rng.choice([1, -1]) * self.rng.getrandbits(128)) for time in times},
            **(start or {}),
        }

    def seen(self) -> list[SourceIdentity]:
        """Some sources, as an ingest reads them; now and then those of an earlier one as one source or as two."""
        rng = self.rng
        if self.past and rng.random() < 0.2:
            past, cut = rng.choice(self.past), rng.choice([0, 1])
            parts = [dict(list(past.items())[:cut]), dict(list(past.items())[cut:])]
            return [
                SourceIdentity(f"data/part-{n}", f"data/part-{n}", False, part) for n, part in enumerate(parts) if part
            ]
        names = rng.sample(sorted(self.files), min(len(self.files), rng.choice([1, 1, 2, 3])))
        member = rng.random() < 0.3
        return [SourceIdentity(name, name, member, self.files[name]) for name in names]

    def change_files(self) -> None:
        rng = self.rng
        name, old = f"data/{rng.randrange(8)}", rng.choice([*self.files.values(), {}])
        path, other = self.folder / name, self.folder / f"data/{rng.randrange(8)}"
        if rng.random() < 0.2 and not path.exists() and not path.is_symlink() and other != path:
            path.symlink_to(other.name)
        kind = rng.choice(["new", "grown", "copy", "itself grown"])
        start = self.files.get(name) if kind == "itself grown" else old if kind in ("grown", "copy") else None
        self.files[name] = dict(old) if kind == "copy" and old else self.content(start)

    def ingest(self, sources: Sequence[SourceIdentity]) -> None:
        """Take in what is not known of these sources, as an ingest does."""
        rng, number, columns = self.rng, self.ledger.next_ingest(), self.rng.choice([*COLUMNS, COLUMNS[1], COLUMNS[1]])
        known = IngestHistory(self.ledger.ingests("edges"), self.folder, columns).recognise(sources, number)
        fresh = [one for one in sources if one.name not in known or known[one.name].part is not None]
        own = {time for one in fresh for time in one.digests if not holds(known.get(one.name), time)}
        if not own:
            return
        record = IngestRecord(
            number, "edges",
            tuple(Source(one.identity, stored(one.whole, KEY)) for one in fresh),
            least(own), greatest(own), 1, dict.fromkeys(own, (1, 0)), ("a.parquet",), STATE,
            rests_on=tuple(sorted({known[one.name].number for one in fresh if one.name in known})),
            dims=() if self.dims == 1 else ("day", "revision"),
            columns=columns,
            replaces=self.time() if rng.random() < 0.1 else None,
        )  # fmt: skip
        self.ledger.append(record)
        self.live.append(number)
        together: Content = {}
        for one in fresh:
            for time, digest in one.digests.items():
                together[time] = together.get(time, Digest()) + digest
        self.past.append(together)

    def undo(self) -> None:
        rested = {n for record in self.ledger.ingests("edges") for n in record.rests_on}
        free = [number for number in self.live if number not in rested]
        number = self.rng.choice(free)
        one = next(record for record in self.ledger.ingests() if record.number == number)
        self.ledger.append(UndoRecord(number, "edges", one.first, one.last, STATE))
        self.live.remove(number)


def holds(known: AlreadyIngested | None, time: Time) -> bool:
    """Whether the log has the rows of a source at a time."""
    if known is None or known.part is None:
        return False
    return time <= known.part if isinstance(known.part, Time) else time in known.part


def judgement(earlier: IngestHistory, sources: Sequence[SourceIdentity], number: int) -> list[Any]:
    """All that an ingest learns of its sources from the earlier ones."""
    others = [(earlier.other_rows(source), earlier.beginning(source)) for source in sources]
    return [earlier.recognise(sources, number), others]


@pytest.mark.parametrize("dims", [1, 2])
def test_the_index_finds_what_all_records_say(dims: int, tmp_path: Path, seed: int) -> None:
    history, recognised = History(seed, tmp_path, dims), 0
    for _ in range(25):
        for _ in range(3):
            history.change_files()
        ledger = Ledger.load(Warehouse(tmp_path / "warehouse"))
        index, every = ledger.ingest_index("edges"), list(ledger.ingests("edges"))
        assert list(index.numbers.values()) == [record.number for record in every]
        assert set(index.columns) == {record.columns for record in every}
        assert index.plus >= sum(plus for record in every for plus, _ in record.counts.values())
        for _ in range(8):
            sources, columns = history.seen(), history.rng.choice(COLUMNS[:2])
            actual = judgement(find_earlier(ledger, index, sources, tmp_path, columns), sources, 99)
            assert actual == judgement(IngestHistory(every, tmp_path, columns), sources, 99)
            recognised += any(one.number != 99 for one in actual[0].values())
        history.ingest(sources)
        if len(history.live) > 4 and history.rng.random() < 0.2:
            history.undo()
    assert recognised > 5, "else this test shows nothing"


# --- what an ingest reads ---------------------------------------------------------------------------------------------


def remember(desk: Desk, ingests: int) -> None:
    """Add ingests of other sources to the ledger until there are so many. The input's table stays as it is."""
    (first,) = desk.records()
    key = first.sources[0].digest.partition(":")[0]
    ledger = desk.ledger
    for number in range(2, ingests + 1):
        source = Source(f"data/{number}.parquet", f"{key}:{random.getrandbits(128):x}")
        ledger.append(replace(first, number=number, sources=(source,)))


class Reads:
    """Counts the rows of the ledger that are read, the records that are parsed, and the footers that are opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = self.records = self.footers = 0
        load, parse, note = entries_module.Entries._load, records.from_json, datafile.notes

        def count_rows(table: entries_module.Entries, entries: Sequence[int]) -> None:
            self.rows += len(entries)
            load(table, entries)

        def count_records(kind: str, body: dict[str, Any]) -> records.Record:
            self.records += 1
            return parse(kind, body)

        def count_footers(path: Path, hint: str, names: Sequence[str]) -> dict[str, str]:
            self.footers += 1
            return note(path, hint, names)

        monkeypatch.setattr(entries_module.Entries, "_load", count_rows)
        monkeypatch.setattr(entry_module, "from_json", count_records)
        monkeypatch.setattr(datafile, "notes", count_footers)

    def take(self) -> tuple[int, int, int]:
        """The counts since the last call."""
        counts = self.rows, self.records, self.footers
        self.rows = self.records = self.footers = 0
        return counts


@pytest.mark.parametrize("ingests", [28, pytest.param(300, marks=pytest.mark.long)])
def test_an_ingest_reads_as_much_after_many_as_after_few(
    ingests: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path)
    first = desk.source("first.parquet", (1, 2, 0, 1))
    desk.ingest(first)
    remember(desk, ingests)
    reads = Reads(monkeypatch)
    fresh = desk.ingest(desk.source("fresh.parquet", (3, 4, ingests, 1)))
    rows, parsed, footers = reads.take()
    assert not fresh.nothing_new and fresh.ingest == ingests + 1
    assert rows <= 4 and parsed <= 4 and footers <= 30
    again = desk.ingest(desk.source("again.parquet", (1, 2, 0, 1)))
    assert again.nothing_new and again.ingest == 1, "an old ingest is recognised by its index"
    assert reads.take()[:2] <= (5, 5)
    grown = desk.ingest(desk.source("first.parquet", (1, 2, 0, 1), (5, 6, ingests + 1, 1)))
    assert grown.notes == (f"{first}: taken in after version 0; ingest 1 has the rows up to there",)
    replaced = desk.source("fresh.parquet", (7, 8, ingests + 2, 1))
    other = f"{replaced}: ingest {fresh.ingest} took in other rows under that name; all of its rows are added"
    assert desk.ingest(replaced).notes == (other,)
    assert desk.records()[-2].rests_on == (1,)


def test_a_ledger_without_an_index_is_read_whole_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after another program's OPTIMIZE. The next record replaces its files by one with an index."""
    desk, write = Desk(tmp_path), new_files.write_file

    def without_notes(*given: Any, notes: object = None, **named: Any) -> AddedFile:
        return write(*given, **named)

    with monkeypatch.context() as other:
        other.setattr(new_files, "write_file", without_notes)
        first = desk.source("first.parquet", (1, 2, 0, 1))
        desk.ingest(first)
        remember(desk, 20)
    reads = Reads(monkeypatch)
    assert desk.ingest(first).nothing_new
    assert reads.take()[0] >= 20
    assert desk.ingest(desk.source("fresh.parquet", (3, 4, 1, 1))).ingest == 21
    reads.take()
    assert desk.ingest(first).ingest == 1
    assert reads.take()[0] <= 5
    for number in range(22, 40):
        desk.ledger.append(replace(desk.records()[-1], number=number))
    assert [record.number for record in desk.records()] == list(range(1, 40))


def test_a_sources_name_may_look_like_a_footer(tmp_path: Path) -> None:
    desk, name = Desk(tmp_path), f"ddcore.base.digests[0:00] {FOOTER}.parquet"
    for version in range(3):
        desk.ingest(desk.source(name, (version, 2, version, 1)))
    assert desk.ingest(desk.source("copy.parquet", (1, 2, 1, 1))).ingest == 2


def test_a_deep_check_compares_the_index_with_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(tmp_path)
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1)))
    assert not inspect(desk.ledger, deep=True).damages
    with monkeypatch.context() as wrong:
        wrong.setattr(entry_files, "index_of", lambda _: "{}")
        desk.ingest(desk.source("b.parquet", (1, 2, 1, 1)))
    (damage,) = inspect(desk.ledger, deep=True).damages
    assert "the index of ingests in entries-00000001-00000001-" in damage.message


def test_an_index_that_lacks_entries_is_damage(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for version in range(3):
        desk.ingest(desk.source("a.parquet", (version, 2, version, 1)))
    ledger = desk.ledger
    ledger.entries._files.remove(min(ledger.entries._files))
    with pytest.raises(StorageError, match=r"some of the entries 0\.\.2 are missing"):
        ledger.ingest_index("edges")
