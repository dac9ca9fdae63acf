"""Runs on disk: the same rows as in memory, found by reading only the blocks that hold them."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from seeds import nightly
from trams import Command

from ddcore.base.errors import StorageError
from ddcore.base.schema import parse_schema
from ddcore.base.tuning import Tuning
from ddcore.data.encoding import encode, key_codes
from ddcore.io.delta import tables
from ddcore.io.delta.table_files import LiveFile, TableState
from ddcore.io.delta.writer import Writer
from ddcore.io.state import arrangements
from ddcore.io.state.arrangements import FileBatch
from ddcore.io.state.layout import Layout, create
from ddcore.io.storage import store as files
from ddcore.traces import spilling
from ddcore.traces.budget import Budget
from ddcore.traces.consolidation import arrange
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch
from ddcore.traces.trace import Keys, distinct_keys, gather

DIRECT = Layout(parse_schema({"k": "int64", "v": "int64"}), ("k",), ("version", "_round_1"))
DATES = Layout(parse_schema({"k": "date", "v": "float64"}), ("k",), ("version",))
HASHED = Layout(
    parse_schema({"k": "string", "n": "int64", "v": "decimal(10,2)", "w": "timestamp"}), ("k", "n"), ("version",)
)
BARE = Layout(parse_schema({"k": "int64"}), ("k",), ("version",))


SMALL_GROUPS = Budget(tuning=Tuning(run_group_rows=700))


def make(layout: Layout, n: int, seed: int = 0, keys: int = 1000) -> ColumnBatch:
    rng = np.random.default_rng(seed)
    series = []
    for name, kind in layout.schema.items():
        numbers = pl.Series(name, rng.integers(-keys, keys, n))
        nulls = pl.Series(rng.integers(0, 20, n) == 0)
        column = (
            numbers.cast(pl.String)
            if kind.name == "string"
            else numbers.cast(pl.Int32 if kind.name == "date" else pl.Int64)
        )
        series.append(pl.select(pl.when(~nulls).then(column.cast(kind.polars))).to_series().alias(name))
    words = [encode(column, kind) for column, kind in zip(series, layout.schema.values(), strict=True)]
    width = len(layout.key)
    codes = key_codes(words[:width], [layout.schema[name] for name in layout.key], n)
    times = [rng.integers(0, 50, n) for _ in layout.times]
    return arrange(codes, words[width:] if layout.direct else words, times, rng.integers(1, 4, n))


def store(folder: Path, run: SortedBatch, layout: Layout, budget: Budget = SMALL_GROUPS) -> FileBatch:
    file = arrangements.write_run(folder, 1, 0, run, layout, budget=budget)
    return FileBatch(folder / file.path, layout, budget=budget)


def same(a: SortedBatch, b: SortedBatch, rows: slice | np.ndarray = slice(None)) -> None:
    for name in ("codes", "words", "times", "diffs"):
        actual, wanted = (getattr(batch.decompress(), name)[..., rows] for batch in (a, b))
        np.testing.assert_array_equal(actual, wanted, err_msg=name)


@pytest.mark.parametrize("layout", [DIRECT, DATES, HASHED, BARE], ids=["direct", "dates", "hashed", "bare"])
def test_a_run_comes_back_as_it_was(tmp_path: Path, layout: Layout) -> None:
    run = make(layout, 5000)
    stored = store(tmp_path, run, layout)
    assert len(stored) == len(run)
    assert stored.decompress().words.flags.c_contiguous
    assert stored.decompress().times.flags.c_contiguous
    same(stored, run)


@pytest.mark.parametrize("layout", [DIRECT, HASHED], ids=["direct", "hashed"])
@pytest.mark.parametrize("seed", range(5))
def test_locating_agrees_with_memory_and_fills_what_it_finds(tmp_path: Path, layout: Layout, seed: int) -> None:
    run = make(layout, 3000, seed, keys=200)
    stored = store(tmp_path, run, layout)
    rng = np.random.default_rng(seed)
    for probes in (1, 3, 10, 50):
        present, absent = rng.choice(run.codes, probes), rng.integers(-300, 300, probes)
        codes = np.unique(np.concatenate([present, absent]))
        lo, hi = stored.locate(codes)
        wanted_lo, wanted_hi = run.locate(codes)
        np.testing.assert_array_equal(hi - lo, wanted_hi - wanted_lo)
        found = hi > lo
        np.testing.assert_array_equal(lo[found], wanted_lo[found])
        rows = np.concatenate([np.arange(a, b) for a, b in zip(lo, hi, strict=True)])
        some, starts, stops = stored.located(lo, hi)
        same(some.take(np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)])), run.take(rows))
        same(stored.take(rows), run.take(rows))


@pytest.mark.parametrize("layout", [DIRECT, DATES], ids=["direct", "dates"])
@pytest.mark.parametrize("seed", range(5))
def test_locating_by_order_agrees_with_memory_and_fills_what_it_finds(
    tmp_path: Path, layout: Layout, seed: int
) -> None:
    run = make(layout, 3000, seed, keys=500)
    file = arrangements.write_run(tmp_path, 1, 0, run, layout, budget=SMALL_GROUPS)
    rng = np.random.default_rng(seed)
    for span in ((None, None), (-123, 321)):
        bounds = zip(span, (0, len(run)), strict=True)
        start, stop = (end if at is None else int(np.searchsorted(run.codes, at)) for at, end in bounds)
        part = run.part(start, stop)
        for ranges in (1, 2, 9):
            stored = FileBatch(tmp_path / file.path, layout, span)
            after = np.concatenate([rng.integers(-600, 600, ranges), [-(2**63)]])
            to = np.concatenate([after[:-1] + rng.integers(0, 60, ranges), [-480]])
            lo, hi = stored.locate_between(after, to)
            wanted_lo, wanted_hi = part.locate_between(after, to)
            np.testing.assert_array_equal(hi - lo, wanted_hi - wanted_lo)
            found = hi > lo
            np.testing.assert_array_equal(lo[found], wanted_lo[found])
            same(stored, part, np.concatenate([np.arange(a, b) for a, b in zip(lo, hi, strict=True)]))


@pytest.mark.parametrize("seed", range(5))
def test_words_of_a_key_are_found_by_order(tmp_path: Path, seed: int) -> None:
    run = make(HASHED, 3000, seed, keys=3)
    stored, rng = store(tmp_path, run, HASHED), np.random.default_rng(seed)
    codes = np.sort(rng.choice(run.codes, 5))
    after, to = np.sort(rng.integers(-4, 4, (2, 5)) * 100, axis=0)
    found = stored.between(*stored.locate(codes), len(HASHED.key), after, to)
    for lo, hi, code, a, b in zip(*found, codes, after, to, strict=True):
        values = run.words[len(HASHED.key)]
        np.testing.assert_array_equal(np.flatnonzero((run.codes == code) & (values > a) & (values <= b)), range(lo, hi))


def test_a_narrow_range_reads_few_blocks(tmp_path: Path) -> None:
    stored = store(tmp_path, make(DIRECT, 100_000, keys=50_000), DIRECT, Budget())
    lo, hi = stored.locate_between(np.array([100]), np.array([110]))
    assert hi[0] > lo[0]
    assert stored.take_reads()[1] < 20_000


def test_a_trace_gathers_from_disk_what_it_gathers_from_memory(tmp_path: Path) -> None:
    run = make(HASHED, 3000, keys=100)
    stored = store(tmp_path, run, HASHED)
    keys, _ = distinct_keys(run, len(HASHED.key))
    some = Keys(keys.codes[::7].copy(), np.ascontiguousarray(keys.words[:, ::7]))
    found, wanted = (gather([item], some, values=2, depth=1) for item in (stored, run))
    for name in ("offsets", "words", "times", "diffs"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))


@pytest.mark.parametrize("group", [700, 1 << 20], ids=["many groups", "one group"])
def test_few_probes_read_few_blocks(tmp_path: Path, group: int) -> None:
    run = make(DIRECT, 400_000, keys=10**6)
    stored = store(tmp_path, run, DIRECT, Budget(tuning=Tuning(run_group_rows=group)))
    codes = np.unique(run.codes[[50_000, 70_000, 200_000, 390_000]])
    some, lo, hi = stored.located(*stored.locate(codes))
    assert some.codes.tolist() == np.repeat(codes, hi - lo).tolist() and len(some) < 12
    rows, size = stored.take_reads()
    assert rows == len(some)
    columns, blocks = 5, 2048 + 1024  # a block of each column, of the index and of codes, each with its digests
    assert size <= len(codes) * (columns + 3) * blocks
    stored.located(*stored.locate(codes))
    assert stored.take_reads() == (len(some), 0), "what was read is known"


def test_when_half_of_the_rows_were_looked_up_all_are_in_memory(tmp_path: Path) -> None:
    run = make(DIRECT, 6400)
    stored = store(tmp_path, run, DIRECT)
    lo, hi = stored.locate(np.unique(run.codes)[:800])
    stored.located(lo, hi)
    assert stored.memory() == 0
    lo, hi = stored.locate(np.unique(run.codes)[700:1500])
    whole, a, b = stored.located(lo, hi)
    assert stored.memory() > 0 and len(whole) == len(run) and (a == lo).all() and (b == hi).all()
    assert stored.take_reads()[1] < 2 * files.size_of(stored.path)


def test_one_key_may_fill_many_row_groups(tmp_path: Path) -> None:
    run = make(DIRECT, 6400, keys=3)
    stored = store(tmp_path, run, DIRECT)
    lo, hi = stored.locate(np.array([-2, 7]))
    wanted_lo, wanted_hi = run.locate(np.array([-2, 7]))
    assert (lo[0], hi[0]) == (wanted_lo[0], wanted_hi[0])
    assert lo[1] == hi[1]
    same(stored.take(np.arange(lo[0], hi[0])), run.take(np.arange(lo[0], hi[0])))


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "by look-ups"])
def test_a_file_of_many_row_groups_is_read_in_portions_where_memory_is_limited(tmp_path: Path, whole: bool) -> None:
    """More row groups than are decoded at once: those of the second portion were left unread."""
    tuning = Tuning(table_bytes=1, read_rows=700, run_group_rows=700)
    run = make(DIRECT, 5000)
    budget = Budget(spilling.Spilling(2**30, tmp_path, tuning), tuning=tuning)
    stored = store(tmp_path / "table", run, DIRECT, budget)
    if whole:
        stored.decompress()
    else:
        probes = np.unique(run.codes)
        lo, hi = stored.locate(probes)
        np.testing.assert_array_equal(hi - lo, np.unique(run.codes, return_counts=True)[1])
        stored.located(lo, hi)
    same(run, stored)
    rows, size = stored.take_reads()
    assert rows == len(run) and size <= files.size_of(stored.path), "each once"


@pytest.mark.parametrize("layout", [DIRECT, HASHED], ids=["direct", "hashed"])
def test_spans_part_a_run_without_gap_or_overlap(tmp_path: Path, layout: Layout) -> None:
    run = make(layout, 3000, keys=300)
    create(Writer(), tmp_path, layout)
    half = len(run) // 2
    halves = [run.part(*s) for s in ((0, half), (half, len(run)))]
    files = [
        arrangements.write_run(tmp_path, 1, part, piece, layout, budget=SMALL_GROUPS)
        for part, piece in enumerate(halves)
    ]
    version = arrangements.commit(Writer(), tmp_path, files, 1, base=None)
    live = tables.live_files(tmp_path, version)
    cuts = [None, *sorted({int(code) for code in np.quantile(run.codes, [0.1, 0.13, 0.5, 0.501, 0.9])}), None]
    total = []
    for span in pairwise(cuts):
        for piece in arrangements.open_runs(tmp_path, live, layout, span):
            probes = np.unique(run.codes)
            lo, hi = piece.locate(probes)
            inside = np.ones(len(probes), dtype=bool)
            inside &= probes >= span[0] if span[0] is not None else True
            inside &= probes < span[1] if span[1] is not None else True
            assert not (hi - lo)[~inside].any(), "other workers' rows are not here"
            total.append(piece.decompress())
    np.testing.assert_array_equal(np.sort(np.concatenate([piece.codes for piece in total])), run.codes)
    assert sum(int(piece.diffs.sum()) for piece in total) == int(run.diffs.sum())


@pytest.mark.parametrize("layout", [DIRECT, DATES, HASHED, BARE], ids=["direct", "dates", "hashed", "bare"])
@pytest.mark.parametrize("sizes", [(5, 0, 900, 17), (2000, 3), (3000, 1, 1, 2500, 1024, 1025)])
def test_small_files_are_one_run_in_memory(tmp_path: Path, layout: Layout, sizes: tuple[int, ...]) -> None:
    create(Writer(), tmp_path, layout)
    version, made = None, []
    for number, size in enumerate(sizes, 1):
        made.append(make(layout, size, number))
        file = arrangements.write_run(tmp_path, number, 0, made[-1], layout, budget=SMALL_GROUPS)
        version = arrangements.commit(Writer(), tmp_path, [file], number, base=version)
    live = tables.live_files(tmp_path, version)
    codes = np.concatenate([run.codes for run in made])
    for span in ((None, None), (int(np.quantile(codes, 0.3)), int(np.quantile(codes, 0.8)))):
        expected = Counter[object]()
        for run in made:
            expected.update(updates(run, span))
        found = Counter[object]()
        opened = arrangements.open_runs(tmp_path, live, layout, span)
        assert sum(isinstance(run, FileBatch) for run in opened) <= sum(size > 1024 for size in sizes) + 1
        for piece in opened:
            found.update(updates(piece.decompress(), (None, None)))
        assert {row: diff for row, diff in found.items() if diff} == {
            row: diff for row, diff in expected.items() if diff
        }


def updates(run: ColumnBatch, span: tuple[int | None, int | None]) -> dict[object, int]:
    """Diffs by code, words and times, of the rows in a span of codes."""
    lo, hi = span
    rows = zip(run.codes.tolist(), run.words.T.tolist(), run.times.T.tolist(), run.diffs.tolist(), strict=True)
    return {
        (code, *words, *times): diff
        for code, words, times, diff in rows
        if (lo is None or code >= lo) and (hi is None or code < hi)
    }


def test_a_damaged_small_file_is_named(tmp_path: Path) -> None:
    create(Writer(), tmp_path, DIRECT)
    files = [arrangements.write_run(tmp_path, n, 0, make(DIRECT, 20, n), DIRECT, budget=SMALL_GROUPS) for n in (1, 2)]
    version = arrangements.commit(Writer(), tmp_path, files, 1, base=None)
    (tmp_path / files[1].path).write_bytes(b"PAR1")
    with pytest.raises(StorageError, match="ddcore run --full-refresh") as caught:
        arrangements.open_runs(tmp_path, tables.live_files(tmp_path, version), DIRECT)
    assert files[1].path in caught.value.message


def test_a_span_opens_only_the_files_that_meet_it(tmp_path: Path) -> None:
    create(Writer(), tmp_path, DIRECT)
    low, high = make(DIRECT, 500, keys=10), make(DIRECT, 500, keys=10)
    high = ColumnBatch(high.codes + 1000, high.words, high.times, high.diffs)
    files = [arrangements.write_run(tmp_path, 1, i, r, DIRECT, budget=SMALL_GROUPS) for i, r in enumerate((low, high))]
    version = arrangements.commit(Writer(), tmp_path, files, 1, base=None)
    (tmp_path / files[0].path).unlink()
    live = tables.live_files(tmp_path, version)
    (found,) = arrangements.open_runs(tmp_path, live, DIRECT, (500, None))
    assert len(found) == len(high) - int((high.codes < 500).sum())


def test_an_empty_run_is_a_run(tmp_path: Path) -> None:
    stored = store(tmp_path, make(DIRECT, 0), DIRECT)
    assert len(stored) == 0
    lo, hi = stored.locate(np.array([1, 2]))
    assert not (hi - lo).any()
    stored.decompress()


def test_runs_are_appended_under_their_number_and_read_by_anyone(tmp_path: Path) -> None:
    create(Writer(), tmp_path, DIRECT)
    state: TableState | None = None
    for number in (1, 2):
        file = arrangements.write_run(tmp_path, number, 0, make(DIRECT, 100, number), DIRECT, budget=SMALL_GROUPS)
        state = arrangements.commit(Writer(), tmp_path, [file], number, base=state)
    table = DeltaTable(str(tmp_path), version=2)
    assert table.metadata().partition_columns == []
    frame = pl.read_delta(table)
    assert [Path(file).name[:13] for file in sorted(table.file_uris())] == ["part-0-000001", "part-0-000002"]
    assert frame.columns == ["k", "v", "version", "_round_1", "diff", "_code"]
    assert frame.filter(pl.col("k").is_not_null() & (pl.col("k") != pl.col("_code"))).is_empty()


def test_what_tasks_need_travels(tmp_path: Path) -> None:
    file = arrangements.write_run(tmp_path, 1, 0, make(HASHED, 10), HASHED, budget=SMALL_GROUPS)
    assert pickle.loads(pickle.dumps((HASHED, file))) == (HASHED, file)


@pytest.mark.parametrize("damage", ["missing", "truncated", "empty", "page"])
def test_a_damaged_file_is_named_with_the_way_on(tmp_path: Path, damage: str) -> None:
    file = arrangements.write_run(tmp_path, 1, 0, make(DIRECT, 5000), DIRECT, budget=SMALL_GROUPS)
    path = tmp_path / file.path
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        broken = {"truncated": content[:-100], "empty": b"", "page": b"\x00" * (len(content) // 2)}[damage]
        path.write_bytes(broken + content[len(broken) :] if damage == "page" else broken)
    with pytest.raises(StorageError, match="ddcore run --full-refresh") as caught:
        FileBatch(path, DIRECT).decompress()
    assert str(path) in caught.value.message


def test_any_number_of_runs_are_open_with_few_descriptors(tmp_path: Path) -> None:
    """200 runs of which each is looked into, and 200 that are read whole, where 48 files may be open at once."""
    create(Writer(), tmp_path, DIRECT)
    for layout_rows, location in ((1025, "large"), (3, "small")):
        for number in range(200):
            arrangements.write_run(
                tmp_path / location, number, 0, make(DIRECT, layout_rows), DIRECT, budget=SMALL_GROUPS
            )
    opening = """
import resource, sys
from pathlib import Path
import numpy as np
from ddcore.io.state import arrangements
from ddcore.io.state.layout import Layout
from ddcore.io.delta.table_files import LiveFile
from ddcore.base.schema import parse_schema
layout = Layout(parse_schema({"k": "int64", "v": "int64"}), ("k",), ("version", "_round_1"))
resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
for size, rows, runs in (("large", 1025, 200), ("small", 3, 1)):
    folder = Path(sys.argv[1]) / size
    files = [LiveFile(str(path.relative_to(folder)), 0, rows, {}, {}) for path in folder.rglob("*.parquet")]
    opened = arrangements.open_runs(folder, files, layout)
    assert (len(files), len(opened)) == (200, runs)
    print(sum(int((hi - lo).sum()) for run in opened for lo, hi in [run.locate(np.arange(-1000, 1000))]))
"""
    done = subprocess.run([sys.executable, "-c", opening, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    large, small = map(int, done.stdout.split())
    assert large > 190 * 1000 and small > 0


def test_a_file_that_another_program_wrote_in_any_order_is_read(tmp_path: Path) -> None:
    run = make(DIRECT, 5000)
    file = arrangements.write_run(tmp_path, 1, 0, run, DIRECT, budget=SMALL_GROUPS)
    table = pq.read_table(tmp_path / file.path)
    foreign = tmp_path / "part-00000-c000.zstd.parquet"
    pq.write_table(table.take(np.random.default_rng(0).permutation(len(table))), foreign, row_group_size=64)
    (stored,) = arrangements.open_runs(tmp_path, [LiveFile(foreign.name, 0, len(run), {}, {})], DIRECT)
    same(stored, run)


def test_a_file_of_another_layout_is_refused(tmp_path: Path) -> None:
    file = arrangements.write_run(tmp_path, 1, 0, make(BARE, 10), BARE, budget=SMALL_GROUPS)
    with pytest.raises(StorageError, match="no column v"):
        FileBatch(tmp_path / file.path, DIRECT)


NAMES = ["diff", "version", "run", "_code", "a,b", "A", "é", "_column_0"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", nightly(NAMES, 4))
def test_a_column_on_the_way_may_be_called_anything(fresh: Path, dd: Command, name: str) -> None:
    """State that is written and read again: its tables have columns of their own names beside the program's."""
    (fresh / "program.py").write_text(
        "import ddcore as dd\n"
        "from ddcore import col\n"
        "def program(links, starts):\n"
        f"    odd = links.select(a='src', **{{{name!r}: 'dst'}})\n"
        f"    once = odd.distinct().join(odd.rename({{'a': 'b'}}), on={name!r})\n"
        f"    return {{'journeys': once.group_by({name!r}, 'a').agg(n=dd.count()).select(x=col({name!r}), n='n')}}\n"
    )
    for input_name in ("links", "starts"):
        assert dd("ingest", input_name, f"data/{input_name}.csv", "-q")[0] == 0
    for version in range(6):
        assert dd("run", "-q", "--to-version", str(version)) == (0, [], [])
    in_runs = sorted(dd("diff", "journeys", "0..5", "--json")[1] + dd("show", "journeys", "--json")[1])
    assert dd("run", "-q", "--full-refresh") == (0, [], [])
    assert sorted(dd("diff", "journeys", "0..5", "--json")[1] + dd("show", "journeys", "--json")[1]) == in_runs
    assert len(in_runs) > 5


def test_a_join_finds_all_rows_of_a_short_file_that_a_long_window_meets(tmp_path: Path, dd: Command) -> None:
    home = tmp_path / "project"
    home.mkdir()
    (home / "program.py").write_text('def program(a, b):\n    return {"both": a.join(b, on="k")}\n')
    inputs = '[inputs.a]\nschema = { k = "int64", x = "int64" }\n[inputs.b]\nschema = { k = "int64", y = "int64" }\n'
    (home / "dd.toml").write_text(f'[project]\nprogram = "program.py:program"\n[run]\nengine = "inline"\n{inputs}')
    short, long = 3_000, 50_000  # more rows than are read whole, and more than eight times as many
    frames = {
        ("b", "b0"): pl.DataFrame({"k": range(short), "y": range(short)}).with_columns(version=0, diff=1),
        ("a", "a0"): pl.DataFrame({"k": [1], "x": [-1]}).with_columns(version=0, diff=1),
        ("a", "a1"): pl.DataFrame({"k": range(long), "x": range(long)}).with_columns(version=1, diff=1),
    }
    for (name, file), frame in frames.items():
        frame.write_parquet(home / f"{file}.parquet")
        assert dd("ingest", name, str(home / f"{file}.parquet"), "--project", str(home), "-q")[0] == 0
        if file != "b0":
            assert dd("run", "--project", str(home), "-q")[0] == 0
    rows = pl.read_delta(str(home / "warehouse/outputs/both"))
    assert rows["diff"].to_list() == [1] * (short + 1)
    assert sorted(rows["x"]) == [-1, *range(short)]
