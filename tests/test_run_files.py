"""Files of state: the same rows by a look-up, as a whole and by other programs; and every flipped bit is noticed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from seeds import seeds

from ddcore.base.errors import StorageError
from ddcore.base.schema import Type, parse_schema
from ddcore.base.tuning import Tuning
from ddcore.data.encoding import NULL, decode, encode, key_codes
from ddcore.io.delta.writer import Writer
from ddcore.io.parquet import checked, datafile, pages, thrift
from ddcore.io.state import arrangements, run_writer
from ddcore.io.state.arrangements import FileBatch
from ddcore.io.state.layout import Layout, create
from ddcore.kernels import blocks
from ddcore.traces.budget import Budget
from ddcore.traces.consolidation import arrange
from ddcore.traces.sorted_batch import ColumnBatch
from ddcore.traces.trace import Keys, gather

SEEDS = seeds(40, share=20)
KINDS = [
    "int64", "int64", "float64", "bool", "date", "timestamp", "decimal(5,1)", "decimal(18,2)", "decimal(38,1)",
    "decimal(20,1)", "string", "binary", "list[string]",
    "struct[a: string, b: list[int64], c: decimal(5,1), d: decimal(24,3)]",
]  # fmt: skip


def column(rng: random.Random, kind: Type, rows: int) -> pl.Series:
    """Values of one of the shapes that the writer treats in its own way: one value, few, many, nulls, no value."""
    few = rng.choice([1, 3, 300, 100_000])
    nulls = rng.choice([0.0, 0.0, 0.1, 0.9, 1.0])
    numbers = [rng.randrange(few) * rng.choice([1, 1, 2**33]) for _ in range(rows)]
    values = [None if rng.random() < nulls else value_of(kind, number) for number in numbers]
    if kind.name in ("date", "timestamp"):
        return pl.Series(values, dtype=pl.Int64).cast(pl.Int32 if kind.name == "date" else pl.Int64).cast(kind.polars)
    return pl.Series(values, dtype=kind.polars)


def value_of(kind: Type, number: int) -> Any:
    if kind.element is not None:
        return [str(number) if location % 2 else None for location in range(number % 4)]
    if kind.fields:
        return {
            "a": "x" * (number % 5),
            "b": [number, None],
            "c": Decimal(number % 1000) / 10,
            "d": Decimal(number) / 8,
        }
    small = number % 90_000
    if kind.is_wide:
        return Decimal(f"{(number - 40) * 10 ** (kind.precision - 17)}e-1")
    return {
        "int64": number, "float64": number / 3, "bool": number % 2 == 1, "string": f"é{number}" if number % 7 else "",
        "binary": bytes(number % 3) + str(number).encode(),
    }.get(kind.name, small if kind.name != "decimal" else Decimal(small % 10_000) / 10)  # fmt: skip


def drawn(seed: int) -> tuple[Layout, ColumnBatch]:
    """A layout with some columns and a run with some rows."""
    rng = random.Random(seed)
    kinds = {f"c{number}": rng.choice(KINDS) for number in range(rng.randint(1, 4))}
    key = [rng.choice(["int64", "date", "float64", "string", "bool"]), rng.choice(KINDS)][: rng.randint(1, 2)]
    schema = parse_schema({**{f"k{number}": kind for number, kind in enumerate(key)}, **kinds})
    names = tuple(schema)[: len(key)]
    times = ("version", "_round_1")[: rng.randint(1, 2)]
    layout, rows = Layout(schema, names, times), rng.choice([1, 2, 63, 64, 65, 700, 3_000])
    words = [encode(column(rng, kind, rows), kind) for kind in schema.values()]
    codes = key_codes(words[: len(key)], [schema[name] for name in names], rows)
    at = [np.array([rng.randrange(rng.choice([1, 9])) for _ in range(rows)]) for _ in times]
    diffs = np.array([rng.choice([1, 1, -1, 2**40]) for _ in range(rows)])
    run = arrange(codes, words[1:] if layout.direct else words, at, diffs)
    return (layout, run) if len(run) else drawn(seed + 1)  # the rows may have cancelled


def frame_of(run: ColumnBatch, layout: Layout) -> pl.DataFrame:
    """The rows of a run as a table has them."""
    words = [run.codes, *run.words] if layout.direct else list(run.words)
    names = [*([layout.key[0]] if layout.direct else []), *layout.stored]
    columns = [decode(word, layout.schema[name], name) for word, name in zip(words, names, strict=True)]
    numbers = [*zip(layout.times, run.times, strict=True), ("diff", run.diffs), ("_code", run.codes)]
    return pl.DataFrame(columns + [pl.Series(name, values) for name, values in numbers]).select(list(layout.columns))


def columns_of(run: ColumnBatch) -> np.ndarray:
    return run.table


def test_polars_reads_a_key_that_is_its_own_code_also_from_the_disk(tmp_path: Path) -> None:
    """Two columns have the same bytes there, and readers refuse two that begin at one place. A third is written."""
    frames = dict[str, pl.DataFrame]()
    for kind in ("int64", "timestamp", "decimal(18,2)"):
        layout = Layout(parse_schema({"k": kind, "v": "int64"}), ("k",), ("version",))
        codes = np.arange(1_000)
        run = arrange(codes, [codes], [np.zeros(1_000, np.int64)], np.ones(1_000, np.int64))
        file = arrangements.write_run(tmp_path, len(frames), 0, run, layout)
        frames[str(tmp_path / file.path)] = frame_of(run, layout)
        group = pq.read_metadata(tmp_path / file.path).row_group(0)
        columns = {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}
        key, code, value = (columns[name] for name in ("k", "_code", "v"))
        ends = [column.data_page_offset + column.total_compressed_size for column in (key, code, value)]
        assert key.data_page_offset > code.data_page_offset and ends[0] == ends[1] != ends[2]
    read = "import sys, polars as pl\nfor path in sys.argv[1:]: print(repr(pl.read_parquet(path).rows()))"
    done = subprocess.run(
        [sys.executable, "-c", read, *frames], env={**os.environ, "POLARS_FORCE_ASYNC": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [repr(frame.rows()) for frame in frames.values()]


@pytest.mark.sample(8)
@pytest.mark.parametrize("number", SEEDS)
def test_random_runs(number: int, tmp_path: Path, seed: int) -> None:
    layout, run = drawn(seed)
    rng = np.random.default_rng(seed)
    budget = Budget(tuning=Tuning(run_group_rows=int(rng.choice([50, 600, 1 << 20]))))
    create(Writer(), tmp_path, layout)
    file = arrangements.write_run(tmp_path, 1, 0, run, layout, budget=budget)
    stored = FileBatch(tmp_path / file.path, layout)
    assert len(stored) == file.rows == len(run)

    absent = rng.integers(-(2**62), 2**62, 5)
    probes = np.unique(np.concatenate([rng.choice(run.codes, 9), absent, run.codes[[0, -1]] ^ 1]))
    lo, hi = stored.file.locate(probes)
    wanted = np.searchsorted(run.codes, probes, "left"), np.searchsorted(run.codes, probes, "right")
    assert (hi - lo == wanted[1] - wanted[0]).all() and (lo[hi > lo] == wanted[0][hi > lo]).all()
    rows = np.concatenate([np.arange(a, b) for a, b in zip(lo, hi, strict=True)])
    assert (columns_of(stored.take(rows)) == columns_of(run.take(rows))).all()
    keys = Keys(probes, np.empty((0, len(probes)), np.int64))
    if layout.direct:
        got, expected = (gather([item], keys, len(layout.stored), len(layout.times)) for item in (stored, run))
        assert all((getattr(got, name) == getattr(expected, name)).all() for name in ("offsets", "words", "times"))
    assert (columns_of(stored.decompress()) == columns_of(run)).all()
    span = tuple(sorted(int(code) for code in rng.choice(run.codes, 2)))
    part = FileBatch(tmp_path / file.path, layout, (span[0], span[1]))
    inside = (run.codes >= span[0]) & (run.codes < span[1])
    assert (columns_of(part.decompress()) == columns_of(run)[:, inside]).all()

    arrangements.commit(Writer(), tmp_path, [file], 1, base=None)
    expected_frame = frame_of(run, layout)
    read = pq.ParquetFile(tmp_path / file.path, page_checksum_verification=True).read()
    for other in (pl.DataFrame(pl.from_arrow(read)), pl.read_parquet(tmp_path / file.path, hive_partitioning=False)):
        assert other.cast(expected_frame.schema).equals(expected_frame)
    wanted_rows = Counter(map(str, expected_frame.rows()))
    through = pl.read_delta(str(tmp_path))
    assert through.schema == expected_frame.schema and Counter(map(str, through.rows())) == wanted_rows
    query = QueryBuilder().register("t", DeltaTable(str(tmp_path))).execute("SELECT * FROM t").read_all()
    assert Counter(map(str, pl.DataFrame(query).select(through.columns).rows())) == wanted_rows
    duckdb = pytest.importorskip("duckdb")
    names = ", ".join(f"count({name})" for name in through.columns)
    counted = duckdb.sql(f"SELECT {names}, sum(diff) FROM read_parquet('{tmp_path / file.path}')").fetchall()
    assert counted[0] == (*(item.count() for item in through), sum(through["diff"].to_list()))


def test_spark_reads_every_kind_of_column(tmp_path: Path, spark: Any) -> None:
    for seed in range(6):
        layout, run = drawn(seed)
        folder = tmp_path / str(seed)
        create(Writer(), folder, layout)
        arrangements.commit(Writer(), folder, [arrangements.write_run(folder, 1, 0, run, layout)], 1, base=None)
        simple = [name for name, kind in layout.columns.items() if kind.name in ("int64", "string", "float64", "bool")]
        rows = spark.read.format("delta").load(str(folder)).select(*simple).collect()
        assert Counter(map(tuple, rows)) == Counter(frame_of(run, layout).select(simple).rows())


def test_equal_runs_give_equal_files(tmp_path: Path) -> None:
    layout, run = drawn(5)
    first, again = (arrangements.write_run(tmp_path / location, 1, 0, run, layout) for location in ("a", "b"))
    assert first == again and (tmp_path / "a" / first.path).read_bytes() == (tmp_path / "b" / again.path).read_bytes()


def test_numbers_take_the_bytes_that_they_need(tmp_path: Path) -> None:
    rows = 100_000
    rng = np.random.default_rng(0)
    schema = parse_schema({"k": "int64", **dict.fromkeys("abcd", "int64")})
    layout = Layout(schema, ("k",), ("version",))
    codes = np.arange(rows)
    words = [rng.integers(0, most, rows) for most in (200, 50_000, 2**31, 2**60)]
    run = arrange(codes, words, [np.zeros(rows, np.int64)], np.ones(rows, np.int64))
    file = arrangements.write_run(tmp_path, 1, 0, run, layout)
    assert file.size < rows * (8 + 1 + 2 + 4 + 8) * 1.05 + 8 * 50_000, "a key that is its own code takes no space"


def test_every_flipped_bit_of_a_block_in_use_is_noticed(tmp_path: Path, seed: int) -> None:
    """And only then: a look-up that does not touch the block gives its rows."""
    schema = parse_schema({"k": "int64", "s": "string", "n": "int64"})
    layout = Layout(schema, ("k",), ("version",))
    rows = 30_000
    rng = np.random.default_rng(1)
    words = [encode(pl.Series(rng.integers(0, 9_000, rows)).cast(pl.String), schema["s"]), rng.integers(0, 2**40, rows)]
    words[1][rng.integers(0, rows, 5_000)] = NULL
    run = arrange(np.arange(rows) * 3, words, [np.zeros(rows, np.int64)], np.ones(rows, np.int64))
    path = tmp_path / arrangements.write_run(tmp_path, 1, 0, run, layout).path
    content, wanted = path.read_bytes(), columns_of(run)[:, 20_000]
    locations, noticed = random.Random(seed), 0

    def look_up() -> np.ndarray:
        stored = FileBatch(path, layout)
        found, lo, _ = stored.located(*stored.locate(np.array([60_000])))
        return columns_of(found)[:, int(lo[0])]

    assert (look_up() == wanted).all()
    for location in [0, len(content) - 1, *locations.sample(range(len(content)), 300)]:
        broken = bytearray(content)
        broken[location] ^= 1 << locations.randrange(8)
        path.write_bytes(broken)
        with pytest.raises(StorageError, match="is damaged") as caught:
            FileBatch(path, layout).decompress()
            datafile.verify(path, "")
        assert str(path) in caught.value.message
        with pytest.raises(StorageError, match="is damaged"):
            datafile.verify(path, "")
        try:
            assert (look_up() == wanted).all()
        except StorageError:
            noticed += 1
    assert 0 < noticed < 300


@pytest.mark.parametrize("cut", [1, 8, 3_000, 30_000])
def test_a_shorter_file_is_damaged(tmp_path: Path, cut: int) -> None:
    layout, run = drawn(3)
    path = tmp_path / arrangements.write_run(tmp_path, 1, 0, run, layout).path
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(StorageError, match="is damaged"):
        FileBatch(path, layout)


def test_a_block_is_verified_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, run = drawn(7)
    path = tmp_path / arrangements.write_run(tmp_path, 1, 0, run, layout).path
    stored, verified = FileBatch(path, layout), list[int]()
    real = blocks.digests

    def counted(words: Any, numbers: Any, *rest: Any) -> Any:
        verified.append(len(numbers))
        return real(words, numbers, *rest)

    monkeypatch.setattr(blocks, "digests", counted)
    stored.read_columns()
    assert sum(verified) > 0
    verified.clear()
    stored.read_columns()
    assert verified == []


def test_digests_are_xxh64() -> None:
    """Of words of eight bytes, against the definition; and the digest of nothing that the definition names."""
    rng = np.random.default_rng(0)
    words = rng.integers(-(2**63), 2**63 - 1, 3 * 256 + 5)
    size = checked.BLOCK // 8
    got = blocks.digests(words, np.arange(4), size, 0, len(words)).view(np.uint64).tolist()
    assert got == [xxh64(words[at : at + size].tobytes()) for at in range(0, len(words), size)]
    assert xxh64(b"") == 0xEF46DB3751D8E999


def xxh64(content: bytes) -> int:
    mask = (1 << 64) - 1
    p = [11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261]

    def turned(word: int, bits: int) -> int:
        return (word << bits | word >> 64 - bits) & mask

    def mixed(lane: int, word: int) -> int:
        return turned((lane + word * p[1]) & mask, 31) * p[0] & mask

    words = [int.from_bytes(content[at : at + 8], "little") for at in range(0, len(content), 8)]
    lanes, at, digest = [(p[0] + p[1]) & mask, p[1], 0, -p[0] & mask], 0, p[4]
    while len(words) - at >= 4:
        lanes = [mixed(lane, word) for lane, word in zip(lanes, words[at : at + 4], strict=True)]
        at += 4
    if len(words) >= 4:
        digest = sum(turned(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
        for lane in lanes:
            digest = ((digest ^ mixed(0, lane)) * p[0] + p[3]) & mask
    digest = (digest + len(content)) & mask
    for word in words[at:]:
        digest = (turned(digest ^ mixed(0, word), 27) * p[0] + p[3]) & mask
    for bits, factor in ((33, p[1]), (29, p[2]), (32, 1)):
        digest = (digest ^ digest >> bits) * factor & mask
    return digest


def test_texts_too_long_for_a_page_are_divided(tmp_path: Path) -> None:
    layout = Layout(parse_schema({"k": "int64", "s": "string"}), ("k",), ("version",))
    texts = pl.Series([f"{number}" * 50 for number in range(200)])
    run = arrange(
        np.arange(200), [encode(texts, layout.schema["s"])], [np.zeros(200, np.int64)], np.ones(200, np.int64)
    )
    written = run_writer.write([run], layout, tmp_path / "run", longest=1000)
    path = (tmp_path / "run").rename(tmp_path / f"run-{written.digest}.parquet")
    assert pq.read_metadata(path).num_row_groups > 10
    assert pl.read_parquet(path)["s"].to_list() == texts.to_list()
    assert (columns_of(FileBatch(path, layout).decompress()) == columns_of(run)).all()


def test_thrift_is_what_arrow_reads() -> None:
    assert thrift.varint(300) == b"\xac\x02"
    struct = thrift.Struct({1: thrift.I32(-1), 2: None, 3: "é", 20: True, 21: [thrift.I64(n) for n in range(20)]})
    content = thrift.encoded(struct)
    assert content.startswith(b"\x15\x01\x28\x02\xc3\xa9\x01\x28\x19\xf6\x14") and content.endswith(b"\x26\x00")
    assert pages.physical(Type("bool")) == "" and json.dumps(pages.MAGIC.decode()) == '"PAR1"'
