"""Change logs: the law's left-hand side, read from disk, against the definition."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from places import local

from ddcore.base.errors import DiffOverflow, StorageError
from ddcore.base.schema import parse_schema
from ddcore.base.tuning import Tuning
from ddcore.io.delta.table_files import LiveFile, TableState
from ddcore.io.delta.writer import Writer
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.times import time_of

EDGES = parse_schema({"src": "int64", "dst": "int64"})
MIXED = parse_schema(
    {"x": "float64", "s": "string", "b": "bool", "y": "binary", "d": "date", "t": "timestamp", "m": "decimal(10,2)"}
)
Update = tuple[tuple[Any, ...], tuple[int, ...], int]  # row, time, diff


def frame(log: ChangeLog, updates: Sequence[Update]) -> pl.DataFrame:
    types = {name: kind.polars for name, kind in log.columns.items()}
    return pl.DataFrame([(*row, *time, diff) for row, time, diff in updates], schema=types, orient="row")


def counted(found: pl.DataFrame) -> dict[tuple[Any, ...], int]:
    rows = {tuple(row[:-1]): row[-1] for row in found.rows()}
    assert len(rows) == len(found), "each row once"
    return rows


def by_definition(updates: list[Update], at: tuple[int, ...]) -> Counter[tuple[Any, ...]]:
    counts: Counter[tuple[Any, ...]] = Counter()
    for row, time, diff in updates:
        if all(x <= y for x, y in zip(time, at, strict=True)):
            counts[row] += diff
    return Counter({row: count for row, count in counts.items() if count})


def random_updates(seed: int, dims: int, n: int = 300) -> list[Update]:
    rng = random.Random(seed)
    values = [None, 0, 1, 2, 3]
    return [
        (
            (rng.choice(values), rng.choice(values)),
            tuple(rng.randrange(6) for _ in range(dims)),
            rng.choice([-2, -1, 1, 2]),
        )
        for _ in range(n)
    ]


def append_in_pieces(log: ChangeLog, updates: list[Update], pieces: int) -> TableState:
    version: TableState | None = None
    for number in range(pieces):
        version = log.append(frame(log, updates[number::pieces]), number + 1, base=version)
    assert version is not None
    return version


@pytest.mark.parametrize("dims", [("version",), ("day", "revision"), ("a", "b", "c")])
@pytest.mark.parametrize("seed", range(3))
def test_accumulation_is_what_the_law_says(tmp_path: Path, seed: int, dims: tuple[str, ...]) -> None:
    log = ChangeLog(tmp_path / "edges", EDGES, dims, writer=Writer())
    updates = random_updates(seed, len(dims))
    version = append_in_pieces(log, updates, 4)
    rng = random.Random(seed)
    for _ in range(10):
        at = tuple(rng.randrange(-1, 7) for _ in dims)
        assert counted(log.between(None, time_of(at), version)) == by_definition(updates, at)


@pytest.mark.parametrize("dims", [("version",), ("day", "revision")])
@pytest.mark.parametrize("seed", range(3))
def test_differences_lead_from_one_time_to_the_other(tmp_path: Path, seed: int, dims: tuple[str, ...]) -> None:
    log = ChangeLog(tmp_path / "edges", EDGES, dims, writer=Writer())
    updates = random_updates(seed, len(dims))
    version = append_in_pieces(log, updates, 4)
    rng = random.Random(seed)
    for _ in range(10):
        a, b = (tuple(rng.randrange(-1, 7) for _ in dims) for _ in range(2))
        steps = by_definition(updates, b)
        steps.subtract(by_definition(updates, a))
        assert counted(log.between(time_of(a), time_of(b), version)) == {
            row: diff for row, diff in steps.items() if diff
        }
        assert counted(log.between(None, time_of(b), version)) == by_definition(updates, b)


def test_a_plain_int_is_a_time_of_one_dimension(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "edges", EDGES, writer=Writer())
    version = log.append(frame(log, [((1, 2), (3,), 1)]), 1, base=None)
    assert log.between(None, time_of(3), version).to_dicts() == [{"src": 1, "dst": 2, "diff": 1}]
    assert log.between(time_of(2), time_of(3), version).to_dicts() == [{"src": 1, "dst": 2, "diff": 1}]
    assert log.between(None, time_of(2), version).is_empty()
    with pytest.raises(ValueError, match="longer"):
        log.between(None, time_of((1, 2)), version)


def test_before_the_ledger_names_a_version_there_are_no_rows(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "none", EDGES, writer=Writer())
    assert log.scan(None).collect().schema == {name: kind.polars for name, kind in log.columns.items()}
    assert log.between(None, time_of(5), None).is_empty()
    assert log.between(None, time_of(5), None).columns == ["src", "dst", "diff"]


def test_rows_of_an_unfinished_run_are_invisible_and_not_repeated(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "dists", EDGES, writer=Writer())
    named = log.append(frame(log, [((1, 1), (0,), 1)]), 1, base=None)
    step = """
import json, sys
from pathlib import Path
import polars as pl
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.delta.table_files import TableState
from ddcore.io.delta.writer import Writer
from ddcore.base.schema import parse_schema
from ddcore.base.tuning import Tuning
log = ChangeLog(Path(sys.argv[1]), parse_schema({"src": "int64", "dst": "int64"}), writer=Writer())
base = TableState(*json.loads(sys.argv[2]))
log.append(pl.DataFrame({"src": [2], "dst": [2], "version": [1], "diff": [1]}), 2, base=base)
"""
    environment = {**os.environ, "DDCORE_FAILPOINT": "after-table"}
    command = [sys.executable, "-c", step, str(log.folder), json.dumps(astuple(named))]
    assert subprocess.run(command, env=environment, check=False).returncode == -9
    assert DeltaTable(str(log.folder)).version() > named.version, "the table was committed, the ledger was not"
    assert counted(log.between(None, time_of(9), named)) == {(1, 1): 1}
    again = replace(log, writer=Writer()).append(frame(log, [((2, 2), (1,), 1)]), 2, base=named)
    assert counted(log.between(None, time_of(9), again)) == {(1, 1): 1, (2, 2): 1}
    assert len(log.collect(log.scan(again))) == 2


def test_the_same_values_meet_however_they_are_written(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "x", parse_schema({"x": "float64", "s": "string"}), writer=Writer())
    one = [((-0.0, None), (0,), 1), ((float("nan"), "a"), (0,), 1), ((None, None), (0,), 1)]
    two = [((0.0, None), (1,), 1), ((-float("nan"), "a"), (1,), -1), ((None, None), (1,), -1)]
    version = log.append(frame(log, two), 2, base=log.append(frame(log, one), 1, base=None))
    assert log.between(None, time_of(1), version).rows() == [(0.0, None, 2)]
    stored = pl.concat([pl.read_parquet(local(log.folder) / file.path) for file in log.files(version)])
    assert not str(stored["x"].to_list()).count("-0.0"), "written as 0.0, so that other readers agree"


def test_every_type_survives(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "mixed", MIXED, writer=Writer())
    row = (0.1, "å", True, b"\x00", date(1, 1, 1), datetime(1960, 1, 1, 1, 2, 3, 4, UTC), Decimal("-12345678.90"))
    nulls = (None,) * 7
    version = log.append(frame(log, [(row, (0,), 2), (nulls, (1,), 3)]), 1, base=None)
    found = log.between(None, time_of(1), version)
    assert counted(found) == {row: 2, nulls: 3}
    assert found.schema == {**{name: kind.polars for name, kind in MIXED.items()}, "diff": pl.Int64()}


def test_files_outside_the_question_are_not_opened(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "edges", EDGES, writer=Writer())
    version = None
    for number in range(5):
        version = log.append(frame(log, [((number, 0), (number,), 1)]), number + 1, base=version)
    files = {file.lower["version"]: local(log.folder) / file.path for file in log.files(version)}
    for number in (0, 1, 2, 4):
        files[number].unlink()
    assert counted(log.between(time_of(2), time_of(3), version)) == {(3, 0): 1}
    files[3].unlink()
    with pytest.raises(StorageError) as caught:
        log.between(time_of(2), time_of(3), version)
    assert str(log.folder) in caught.value.message


def test_a_truncated_file_is_a_storage_error(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "outputs" / "dists", EDGES, writer=Writer())
    version = log.append(frame(log, [((1, 2), (0,), 1)] * 1000), 1, base=None)
    path = local(log.folder) / log.files(version)[0].path
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(StorageError, match="--full-refresh") as caught:
        log.between(None, time_of(0), version)
    assert str(log.folder) in caught.value.message


def test_sums_beyond_int64_are_an_error_and_never_wrap(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "edges", EDGES, writer=Writer())
    half = 2**62
    version = log.append(frame(log, [((1, 1), (0,), half), ((1, 1), (1,), half), ((1, 1), (2,), -half)]), 1, base=None)
    assert counted(log.between(None, time_of(0), version)) == {(1, 1): half}
    assert counted(log.between(None, time_of(2), version)) == {(1, 1): half}
    with pytest.raises(DiffOverflow, match="'src': 1"):
        log.between(None, time_of(1), version)


def test_an_empty_append_makes_an_empty_table(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "edges", EDGES, writer=Writer())
    version = log.append(frame(log, []), 1, base=None)
    assert log.between(None, time_of(0), version).is_empty()


@pytest.mark.parametrize("size", [3, 100], ids=["several row groups", "one row group"])
def test_rows_of_a_file_are_checked_with_their_row_groups(size: int, tmp_path: Path) -> None:
    """A byte that has changed is an error for whom it may concern; no row more and no row less is read."""
    log = ChangeLog(tmp_path / "edges", EDGES, writer=Writer(), tuning=Tuning(group_rows=size))
    version = log.append(frame(log, [((n, n), (0,), 1) for n in range(10)]), 1, base=None)
    (file,) = log.files(version)

    def read(start: int, stop: int) -> list[int]:
        return log.collect(log.scan_files([file], within=(start, stop)))["src"].to_list()

    spans = [(start, stop) for stop in range(11) for start in range(stop)]
    for start, stop in spans:
        assert read(start, stop) == [*range(start, stop)]
    path = local(log.folder) / file.path
    content = bytearray(path.read_bytes())
    content[4 + 1] ^= 1  # of the first row group
    path.write_bytes(content)
    for start, stop in spans:
        if start < size:
            with pytest.raises(StorageError, match="damaged"):
                read(start, stop)
        else:
            assert read(start, stop) == [*range(start, stop)]


def test_files_rewritten_by_other_engines_still_read(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "t", parse_schema({"t": "timestamp", "s": "string"}), writer=Writer())
    moment = datetime(2024, 1, 2, 3, 4, 5, 678901, UTC)
    version = log.append(frame(log, [((moment, "a"), (0,), 1)]), 1, base=None)
    (file,) = log.files(version)
    table = pq.read_table(log.folder / file.path)
    narrow = table.set_column(table.schema.get_field_index("diff"), "diff", table["diff"].cast(pa.int32()))
    foreign = LiveFile("part-00000-c000.snappy.parquet", 0, 1, {}, {})
    pq.write_table(narrow, log.folder / foreign.path, use_deprecated_int96_timestamps=True)
    rows = log.collect(log.scan_files([file, foreign]))
    assert rows.rows() == [(moment, "a", 0, 1)] * 2
