"""Finding sources, reading them, and fitting their rows to an input: each bad one with its one clear line."""

from __future__ import annotations

import gzip
import os
import random
import time
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from ddcore.base.errors import DataError, DdError, UsageError
from ddcore.base.schema import Schema, parse_type, polars_type
from ddcore.io.delta.writer import Writer
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.digests import Digest, digests, row_hashes
from ddcore.io.logs.updates import (
    RowCount,
    accumulate_counts,
    consolidate,
    consolidate_hashed,
    first_count,
    merge_counts,
    running_counts,
)
from ddcore.io.project.times import Time, time_of
from ddcore.io.sources.deltatable import DeltaTable
from ddcore.io.sources.finding import find_sources
from ddcore.io.sources.layouts import Rules, fit
from ddcore.io.sources.parquetfile import ParquetFile
from ddcore.io.sources.row_checks import normalise
from ddcore.io.sources.source import Source
from ddcore.io.sources.validation import validate
from ddcore.io.sources.written_files import Batch, Files

EDGES = {"src": "int64", "dst": "int64"}
ROWS = {"src": [1, 2], "dst": [2, 3], "version": [0, 1], "diff": [1, -1]}


def schema_of(columns: Mapping[str, str]) -> Schema:
    return {name: parse_type(kind) for name, kind in columns.items()}


def rules(columns: Mapping[str, str] = EDGES, **said: Any) -> Rules:
    return Rules(schema_of(columns), **said)


def updates_of(source: Source, wanted: Rules) -> pl.DataFrame:
    layout = fit(source.name, source.columns(), wanted, folders=source.folders, text=source.is_text)
    frames = [normalise(frame, layout, wanted, first_row) for first_row, frame in source.frames(layout.read)]
    return pl.concat(frames)


def updates_in(location: Path | str, columns: Mapping[str, str] = EDGES, **said: Any) -> pl.DataFrame:
    wanted = rules(columns, **said)
    return pl.concat([updates_of(source, wanted) for source in find_sources([str(location)])])


def parquet(path: Path, **columns: Any) -> Path:
    pl.DataFrame(columns).write_parquet(path)
    return path


def csv(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(location: Path | str, columns: Mapping[str, str] = EDGES, **said: Any) -> DdError:
    with pytest.raises(DdError) as caught:
        updates_in(location, columns, **said)
    error = caught.value
    assert "\n" not in error.message and "\n" not in error.hint and error.hint
    return error


# --- finding ----------------------------------------------------------------------------------------------------------


def test_a_file_a_folder_a_glob_and_a_url_are_sources(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.parquet", "_hidden.parquet", ".b.parquet.crc"):
        parquet(tmp_path / name, **ROWS)
    csv(tmp_path / "c.csv", "src,dst,version,diff\n1,2,0,1\n")
    (tmp_path / "notes.txt").write_text("not data")
    names = [Path(source.path).name for source in find_sources([str(tmp_path)])]
    assert names == ["a.parquet", "b.parquet", "c.csv"]
    assert len(find_sources([f"{tmp_path}/*.parquet"])) == 2
    assert len(find_sources([f"{tmp_path}/*"])) == 3
    assert find_sources([(tmp_path / "a.parquet").as_uri()])[0].path == str(tmp_path / "a.parquet")


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", **ROWS)
    assert len(find_sources([str(file), f"{tmp_path}/*.parquet", str(tmp_path)])) == 1


def test_folders_may_carry_columns(tmp_path: Path) -> None:
    for version in (0, 1):
        folder = tmp_path / f"version={version}"
        folder.mkdir()
        parquet(folder / "part.parquet", src=[version], dst=[9], diff=[1])
    assert updates_in(tmp_path).rows() == [(0, 9, 0, 1), (1, 9, 1, 1)]


def test_a_delta_table_is_a_source_even_with_deletion_vectors_off(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), pl.DataFrame(ROWS).to_arrow())
    write_deltalake(str(tmp_path / "t"), pl.DataFrame({**ROWS, "version": [2, 3]}).to_arrow(), mode="append")
    (source,) = find_sources([str(tmp_path / "t")])
    assert isinstance(source, DeltaTable) and source.version == 1 and "Delta version 1" in source.name
    assert sorted(updates_in(tmp_path / "t")["version"]) == [0, 1, 2, 3]


def test_a_place_that_is_not_there_is_said_with_its_neighbour(tmp_path: Path) -> None:
    parquet(tmp_path / "edges.parquet", **ROWS)
    with pytest.raises(UsageError, match="no such file") as caught:
        find_sources([str(tmp_path / "edegs.parquet")])
    assert "edges.parquet" in caught.value.hint


@pytest.mark.parametrize("location", ["*.parquet", "."])
def test_a_place_with_nothing_to_read_is_an_error(tmp_path: Path, location: str) -> None:
    with pytest.raises(DataError, match="no data file"):
        find_sources([str(tmp_path / location)])


def test_an_unknown_format_and_an_object_store_are_usage_errors(tmp_path: Path) -> None:
    (tmp_path / "edges.xml").write_text("<a/>")
    with pytest.raises(UsageError, match="cannot tell the format"):
        find_sources([str(tmp_path / "edges.xml")])
    with pytest.raises(UsageError, match="only files and folders"):
        find_sources(["gs://bucket/edges.parquet"])


# --- unreadable bytes -------------------------------------------------------------------------------------------------


def test_truncated_and_foreign_parquet_is_named(tmp_path: Path) -> None:
    whole = parquet(tmp_path / "whole.parquet", **ROWS).read_bytes()
    for name, data in (("cut", whole[: len(whole) // 2]), ("empty", b""), ("text", b"src,dst\n")):
        file = tmp_path / f"{name}.parquet"
        file.write_bytes(data)
        error = refused(file)
        assert f"{name}.parquet: not a readable Parquet file" in error.message


def test_parquet_damaged_inside_is_named(tmp_path: Path) -> None:
    file = tmp_path / "edges.parquet"
    numbers = list(range(50_000))
    random.Random(1).shuffle(numbers)
    frame = pl.DataFrame({"src": numbers, "dst": numbers, "version": 0, "diff": 1})
    pq.write_table(frame.to_arrow(), file, write_page_checksum=True)
    data = bytearray(file.read_bytes())
    data[1000:1010] = b"\xff" * 10
    file.write_bytes(data)
    assert "edges.parquet: not a readable Parquet file" in refused(file).message


def test_a_damaged_delta_log_is_named(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), pl.DataFrame(ROWS).to_arrow())
    next((tmp_path / "t" / "_delta_log").glob("*.json")).write_text("{")
    with pytest.raises(DataError, match="not a readable Delta table"):
        find_sources([str(tmp_path / "t")])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "an empty file"),
        (b"src,dst,version,diff\n1,2,0\n", "Row #2: Expected 4 columns, got 3: 1,2,0"),
        (b"src,dst,version,diff\n1,2,0,1,7\n", "Row #2: Expected 4 columns, got 5"),
        (b"src,dst,version,diff\n1,\xff,0,1\n", "not UTF-8"),
        (b"src,\xff,version,diff\n1,2,0,1\n", "not UTF-8"),
        (b"src,src,version,diff\n1,2,0,1\n", "the column 'src' occurs twice"),
        (b'src,dst,version,diff\n1,2,"0,1\n', "it ends inside of the quote that opens in line 2"),
        (b'src,dst,version,diff\n1,2,0,"1\n', "it ends inside of the quote that opens in line 2"),
    ],
)
def test_bad_csv_is_named_with_its_row(tmp_path: Path, text: bytes, says: str) -> None:
    assert says in refused(csv(tmp_path / "edges.csv", text)).message


# --- columns ----------------------------------------------------------------------------------------------------------


def test_a_misspelt_column_is_matched_with_a_close_one(tmp_path: Path) -> None:
    file = parquet(tmp_path / "e.parquet", scr=[1], dst=[2], version=[0], diff=[1])
    error = refused(file)
    assert "e.parquet: the column 'src' is missing; there are: scr, dst, version, diff" in error.message
    assert error.hint == "did you mean 'scr'? then say: --column src=scr"
    assert updates_in(file, rename={"src": "scr"}).rows() == [(1, 2, 0, 1)]


def test_upper_case_is_another_column(tmp_path: Path) -> None:
    file = parquet(tmp_path / "e.parquet", src=[1], dst=[2], VERSION=[0], diff=[1])
    assert "--column version=VERSION" in refused(file).hint


def test_no_version_and_no_diff_column_need_a_rule(tmp_path: Path) -> None:
    file = parquet(tmp_path / "e.parquet", src=[1, 2], dst=[2, 3])
    assert "--version N" in refused(file).hint
    assert "--diff 1" in refused(file, time=(4,)).hint
    assert updates_in(file, time=(4,), diff=1).rows() == [(1, 2, 4, 1), (2, 3, 4, 1)]


def test_a_rule_for_a_column_that_is_there_is_refused(tmp_path: Path) -> None:
    file = parquet(tmp_path / "e.parquet", **ROWS)
    assert "has a column 'version', but --version gives its value" in refused(file, time=(4,)).message
    assert "has a column 'diff', but --diff gives its value" in refused(file, diff=1).message


def test_extra_columns_are_told_and_left_out(tmp_path: Path) -> None:
    file = parquet(tmp_path / "e.parquet", **ROWS, note=["a", "b"])
    (source,) = find_sources([str(file)])
    assert fit(source.name, source.columns(), rules()).ignored == ("note",)
    assert updates_in(file).columns == ["src", "dst", "version", "diff"]


@pytest.mark.parametrize(
    ("declared", "values", "fits"),
    [
        ("int64", pl.Series([1], dtype=pl.Int8), True),
        ("int64", pl.Series([1], dtype=pl.UInt32), True),
        ("int64", pl.Series(["1"]), False),
        ("int64", pl.Series([1.0]), False),
        ("int64", pl.Series([True]), False),
        ("float64", pl.Series([1.0], dtype=pl.Float32), True),
        ("float64", pl.Series([1]), False),
        ("string", pl.Series(["a"], dtype=pl.Categorical), True),
        ("string", pl.Series([1]), False),
        ("bool", pl.Series([1]), False),
        ("date", pl.Series([datetime(2026, 1, 1)]), False),
        ("timestamp", pl.Series([datetime(2026, 1, 1)], dtype=pl.Datetime("ms")), True),
        ("timestamp", pl.Series([date(2026, 1, 1)]), False),
        ("decimal(10,2)", pl.Series([Decimal("1.5")], dtype=pl.Decimal(8, 1)), True),
        ("decimal(10,2)", pl.Series([Decimal("1.5")], dtype=pl.Decimal(10, 1)), False),
        ("decimal(10,2)", pl.Series([Decimal("1.5")], dtype=pl.Decimal(10, 3)), False),
        ("int64", pl.Series([[1]]), False),
    ],
)
def test_a_type_may_widen_and_nothing_else(tmp_path: Path, declared: str, values: pl.Series, fits: bool) -> None:
    file = tmp_path / "x.parquet"
    pl.DataFrame({"x": values, "version": [0], "diff": [1]}).write_parquet(file)
    if fits:
        (found,) = updates_in(file, {"x": declared})["x"]
        assert found == values[0] or str(found).startswith(str(values[0]))
    else:
        error = refused(file, {"x": declared})
        assert "the column 'x' " in error.message and declared in error.message


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "values", "says"),
    [
        ("diff", [1, None], "column 'diff': null is not allowed here (row 2)"),
        ("diff", [1.0, 1.5], "column 'diff': 1.5 is not a whole number (row 2)"),
        ("diff", [1.0, float("nan")], "column 'diff': nan is not a whole number (row 2)"),
        ("diff", [1.0, float("inf")], "column 'diff': inf does not fit into int64 (row 2)"),
        ("diff", [1.0, 2.0**63], "does not fit into int64 (row 2)"),
        ("diff", pl.Series([1, 2**63], dtype=pl.UInt64), "column 'diff': 9223372036854775808 does not fit into int64"),
        ("diff", [1, -(2**63)], "does not fit into int64"),
        ("diff", [Decimal("1.0"), Decimal("1.5")], "column 'diff': 1.5 is not a whole number (row 2)"),
        ("diff", [Decimal(1), Decimal(10**25)], "does not fit into int64 (row 2)"),
        ("diff", ["1", "1"], "the column 'diff' holds String, not whole numbers"),
        ("diff", [True, True], "the column 'diff' holds Boolean, not whole numbers"),
        ("version", [0, None], "column 'version': null is not allowed here (row 2)"),
        ("version", [0, -3], "column 'version': -3 is negative (row 2)"),
        ("version", [0, 2**63 - 1], "is too large (row 2)"),
        ("version", [0.0, 0.5], "column 'version': 0.5 is not a whole number (row 2)"),
        ("src", [1, -(2**63)], "column 'src': -9223372036854775808 is reserved (row 2)"),
    ],
)
def test_a_bad_value_is_said_with_its_row(tmp_path: Path, column: str, values: Any, says: str) -> None:
    file = parquet(tmp_path / "e.parquet", **{**ROWS, column: values})
    assert says in refused(file).message


def test_whole_numbers_of_any_type_are_diffs(tmp_path: Path) -> None:
    for values in ([2.0, -1.0], [Decimal(2), Decimal(-1)], pl.Series([2, -1], dtype=pl.Int8)):
        file = parquet(tmp_path / "e.parquet", **{**ROWS, "diff": values})
        assert updates_in(file)["diff"].to_list() == [2, -1]


def test_a_diff_of_zero_is_dropped(tmp_path: Path) -> None:
    file = parquet(tmp_path / "e.parquet", **{**ROWS, "diff": [0, 1]})
    assert updates_in(file).rows() == [(2, 3, 1, 1)]


def test_nulls_floats_and_times_become_canonical(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    floats = [-0.0, float("nan"), None, 1.5]
    times = [datetime(2026, 1, 1, 12), None, datetime(1969, 1, 1), datetime(2026, 7, 1, 12)]
    local = pl.Series(times, dtype=pl.Datetime("ns")).dt.replace_time_zone("Europe/Berlin")
    pl.DataFrame({"f": floats, "t": local, "version": 0, "diff": 1}).write_parquet(file)
    updates = updates_in(file, {"f": "float64", "t": "timestamp"})
    assert str(updates["f"].to_list()) == "[0.0, nan, None, 1.5]"
    assert updates["t"].to_list()[0] == datetime(2026, 1, 1, 11, tzinfo=UTC)
    assert updates["t"].to_list()[3] == datetime(2026, 7, 1, 10, tzinfo=UTC)


def test_nanoseconds_are_refused_not_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    stamps = pl.Series([1_000, 1_001], dtype=pl.Int64).cast(pl.Datetime("ns"))
    pl.DataFrame({"t": stamps, "version": 0, "diff": 1}).write_parquet(file)
    assert "has nanoseconds (row 2)" in refused(file, {"t": "timestamp"}).message


# --- CSV text ---------------------------------------------------------------------------------------------------------

TYPES = {
    "i": "int64", "f": "float64", "s": "string", "b": "bool", "d": "date", "t": "timestamp", "n": "decimal(5,2)",
    "x": "binary",
}  # fmt: skip
LINE = "7,-0.0,é,true,2026-01-31,2026-01-31 12:00:00.5,1.5,ff00"


def test_csv_is_parsed_to_the_declared_types(tmp_path: Path) -> None:
    header = ",".join(TYPES) + ",version,diff\n"
    text = header + f'{LINE},0,1\n,,"",FALSE,,2026-01-31T12:00:00+02:00,,,1,-2\n,inf,"a ""b""\n,c",,,,-3,,1,1\n'
    for file in (csv(tmp_path / "a.csv", text), csv(tmp_path / "b.csv.gz", gzip.compress(text.encode()))):
        rows = updates_in(file, TYPES).rows()
        noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
        half = datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC)
        assert rows[0] == (7, 0.0, "é", True, date(2026, 1, 31), half, Decimal("1.50"), b"\xff\x00", 0, 1)
        assert str(rows[0][1]) == "0.0"
        assert rows[1] == (None, None, "", False, None, noon.replace(hour=10), None, None, 1, -2)
        assert rows[2] == (None, float("inf"), 'a "b"\n,c', None, None, None, Decimal("-3.00"), None, 1, 1)


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        ("int64", "1.0", "'1.0' is not a whole number"),
        ("int64", " 1", "' 1' is not a whole number"),
        ("int64", "9223372036854775808", "does not fit into int64"),
        ("int64", "-9223372036854775808", "does not fit into int64"),
        ("float64", "1,5", "'1,5' is not a number"),
        ("float64", "1e999", "does not fit into float64"),
        ("bool", "yes", "'yes' is not true or false"),
        ("date", "2026-02-30", "'2026-02-30' is not a date"),
        ("date", "2026-2-3", "'2026-2-3' is not a date"),
        ("timestamp", "2026-02-03", "is not a timestamp"),
        ("timestamp", "2026-02-03T25:00:00Z", "is not a timestamp"),
        ("decimal(5,2)", "1.255", "'1.255' is not a decimal(5,2)"),
        ("decimal(5,2)", "1e2", "'1e2' is not a decimal(5,2)"),
        ("decimal(5,2)", "12345", "'12345' is not a decimal(5,2)"),
        ("binary", "0g", "is not bytes in hexadecimal"),
    ],
)
def test_csv_text_of_another_form_is_refused(tmp_path: Path, kind: str, value: str, says: str) -> None:
    file = csv(tmp_path / "x.csv", f'x,version,diff\n,0,1\n"{value}",0,1\n')
    error = refused(file, {"x": kind})
    assert says in error.message and error.message.endswith("(row 3)")


@pytest.mark.parametrize(
    ("version", "diff", "says"),
    [
        ("0", "1.0", "column 'diff': '1.0' is not a whole number (row 2)"),
        ("0", "", "column 'diff': null is not allowed here (row 2)"),
        ("0", "99999999999999999999", "column 'diff': '99999999999999999999' does not fit into int64 (row 2)"),
        ("-1", "1", "column 'version': '-1' is negative (row 2)"),
        ("v1", "1", "column 'version': 'v1' is not a whole number (row 2)"),
    ],
)
def test_csv_times_and_diffs_are_whole_numbers(tmp_path: Path, version: str, diff: str, says: str) -> None:
    file = csv(tmp_path / "x.csv", f"src,dst,version,diff\n1,2,{version},{diff}\n")
    assert says in refused(file).message


def test_other_separators_are_noticed_by_their_missing_columns(tmp_path: Path) -> None:
    assert "there are: src;dst;version;diff" in refused(csv(tmp_path / "x.csv", "src;dst;version;diff\n")).message


# --- updates ----------------------------------------------------------------------------------------------------------


KEY = bytes(range(16))


def by_time(updates: pl.DataFrame, key: bytes = KEY) -> dict[Time, Digest]:
    return digests(updates, ["version"], row_hashes(updates, ["version"], key))


def digest(updates: pl.DataFrame) -> Digest:
    return sum(by_time(updates).values(), Digest())


def frame(*rows: tuple[Any, ...]) -> pl.DataFrame:
    schema = {"x": pl.Float64(), "s": pl.String(), "version": pl.Int64(), "diff": pl.Int64()}
    return pl.DataFrame(list(rows), schema=schema, orient="row")


def test_T46_equal_rows_add_up_within_a_version() -> None:
    nan = float("nan")
    updates = frame(
        (None, None, 1, 1), (None, None, 1, 1), (nan, "a", 0, 1), (nan, "a", 0, -1), (nan, "a", 1, 2), (1.0, "a", 1, -2)
    )  # fmt: skip
    rows = consolidate(updates, ("version",)).rows()
    assert str(rows) == "[(None, None, 1, 2), (1.0, 'a', 1, -2), (nan, 'a', 1, 2)]"


def test_diffs_that_add_up_beyond_int64_are_refused() -> None:
    large = 2**62
    with pytest.raises(DataError, match="add up to 9223372036854775808, beyond int64"):
        consolidate(frame((1.0, "a", 0, large), (1.0, "a", 0, large)), ("version",))
    (row,) = consolidate(frame(*[(1.0, "a", 0, large)] * 2, *[(1.0, "a", 0, -large)] * 3), ("version",)).rows()
    assert row[-1] == -large


def test_a_digest_depends_on_the_content_alone() -> None:
    rows = [(float(i % 7), f"s{i % 5}", i % 3, 1 - 2 * (i % 2)) for i in range(200)] + [(None, None, 1, 4)]
    whole = digest(frame(*rows))
    shuffled = random.Random(3).sample(rows, len(rows))
    assert digest(frame(*shuffled)) == whole
    assert digest(frame(*rows[:50])) + digest(frame(*rows[50:])) == whole
    assert digest(consolidate(frame(*rows), ("version",))) == whole
    assert Digest.parse(str(whole)) == whole
    for (version,), one in by_time(frame(*shuffled)).items():
        assert digest(frame(*(row for row in rows if row[2] == version))) == one
    assert not digest(frame((1.0, "a", 0, 1), (1.0, "a", 0, -1)))


def test_a_digest_tells_values_columns_times_and_diffs_apart() -> None:
    rows = [
        (1.0, "a", 0, 1), (1.0, "a", 0, 2), (1.0, "a", 0, -1), (1.0, "a", 1, 1), (None, "a", 0, 1), (0.0, "a", 0, 1),
        (1.0, None, 0, 1), (1.0, "", 0, 1), (1.0, "b", 0, 1), (0.0, None, 0, 1),
    ]  # fmt: skip
    assert len({digest(frame(row)) for row in rows}) == len(rows)


def test_a_digest_is_the_same_in_every_release() -> None:
    assert str(digest(frame((1.5, "é", 3, -2), (None, None, 0, 1)))) == STORED


STORED = "-18a7d485718bc0d4b57e5b6cf66e79285"


def sip_hash(words: list[int], key: bytes) -> int:
    """SipHash-1-3 with 128 bits, of 64-bit words, from its definition."""
    low, high = (int.from_bytes(key[start : start + 8], "little") for start in (0, 8))
    v = [
        low ^ 0x736F6D6570736575,
        high ^ 0x646F72616E646F6D ^ 0xEE,
        low ^ 0x6C7967656E657261,
        high ^ 0x7465646279746573,
    ]

    def turned(word: int, by: int) -> int:
        return (word << by | word >> (64 - by)) % 2**64

    def compress(rounds: int) -> None:
        for _ in range(rounds):
            v[0], v[2] = (v[0] + v[1]) % 2**64, (v[2] + v[3]) % 2**64
            v[1], v[3] = turned(v[1], 13) ^ v[0], turned(v[3], 16) ^ v[2]
            v[0] = turned(v[0], 32)
            v[2], v[0] = (v[2] + v[1]) % 2**64, (v[0] + v[3]) % 2**64
            v[1], v[3] = turned(v[1], 17) ^ v[2], turned(v[3], 21) ^ v[0]
            v[2] = turned(v[2], 32)

    for word in [*words, 8 * len(words) % 256 << 56]:
        v[3] ^= word
        compress(1)
        v[0] ^= word
    v[2] ^= 0xEE
    compress(3)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    compress(3)
    return first | (v[0] ^ v[1] ^ v[2] ^ v[3]) << 64


def test_a_digest_is_the_sum_of_keyed_hashes_times_diffs(seed: int) -> None:
    rng = random.Random(seed)
    diffs = [1, -1, 2**10, 2**62, 1 - 2**63, 2**63 - 1, *(rng.randrange(1 - 2**63, 2**63) for _ in range(50))]
    texts = [None, "", "\0", "é", *("x" * length for length in (7, 8, 9, 15, 16, 17, 300))]
    rows = [
        (rng.choice([None, rng.randrange(1 - 2**63, 2**63)]), rng.choice(texts), rng.randrange(4), diff)
        for diff in diffs
    ]
    types = {"x": pl.Int64(), "s": pl.String(), "version": pl.Int64(), "diff": pl.Int64()}
    updates = pl.DataFrame(rows, types, orient="row")
    wanted: dict[int, int] = {}
    for value, text, version, diff in rows:
        said = (text or "").encode()
        parts = [int.from_bytes(said[at : at + 8], "little") for at in range(0, len(said), 8)]
        nulls = 2 * (value is None) + 4 * (text is None)
        words = [nulls, version, (value or 0) % 2**64, len(said), *parts]
        wanted[version] = wanted.get(version, 0) + diff * sip_hash(words, KEY)
    assert {time.version: one.total for time, one in by_time(updates).items()} == wanted


def test_where_a_text_ends_is_part_of_a_digest() -> None:
    names = ["", "\0", "a", "aa", "aaaaaaaa", "aaaaaaaa\0", "aaaaaaaaa"]
    rows = [(one, other, 0, 1) for one in names for other in names]
    texts = pl.DataFrame(rows, schema=["s", "t", "version", "diff"], orient="row")
    assert len({digest(texts[location : location + 1]) for location in range(len(rows))}) == len(rows)


def test_rows_that_repeat_are_found_by_their_hashes() -> None:
    rng = random.Random(8)
    for many in (0, 1, 2, 40, 20_000):
        rows = [(float(rng.randrange(many)), rng.choice("ab"), rng.randrange(2), rng.choice([1, 1, -1]))
                for _ in range(many)]  # fmt: skip
        updates = frame(*rows, *rows[:1])
        hashed = consolidate_hashed(updates, ["version"], row_hashes(updates, ["version"], KEY)[0])
        assert hashed.sort(updates.columns).equals(consolidate(updates, ["version"]).sort(updates.columns)), many
        # Rows of equal hashes are compared themselves.
        same = consolidate_hashed(updates, ["version"], np.zeros(len(updates), np.uint64))
        assert same.equals(consolidate(updates, ["version"]))


@pytest.mark.parametrize(
    ("parts", "rows"),
    [
        ([[1, 2], [3]], {1: 1, 2: 1, 3: 1}),
        ([[1, 2], [2]], {1: 1, 2: 2}),
        ([[1, 3], [2, 3]], {1: 1, 2: 1, 3: 2}),
        ([[1, 2, 2, 3]], {1: 1, 2: 2, 3: 1}),
        ([[3, 2, 3]], {2: 1, 3: 2}),
        ([[2]], {2: 1}),
        ([[None, 1, None]], {None: 2, 1: 1}),
    ],
)
def test_rows_are_added_up_wherever_a_column_stops_ascending(
    parts: list[list[int | None]], rows: dict[int | None, int], tmp_path: Path
) -> None:
    log = ChangeLog(tmp_path / "log", {"x": parse_type("int64")}, writer=Writer())
    log.create()
    with Files(log, "ingest-1") as files:
        for part in parts:
            updates = pl.DataFrame(
                {"x": part, "version": 0, "diff": 1}, dict.fromkeys(("x", "version", "diff"), pl.Int64)
            )
            files.add(Batch(updates, row_hashes(updates, ["version"], KEY)[0]))
    assert dict(pl.read_parquet(tmp_path / "log" / "*.parquet").select("x", "diff").iter_rows()) == rows
    assert sum(file.rows for file in files.written) == len(rows)


def test_ascending_diffs_do_not_make_rows_differ(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", {"x": parse_type("int64")}, writer=Writer())
    log.create()
    updates = pl.DataFrame([(5, 0, 1), (5, 0, 2)], ["x", "version", "diff"], orient="row")
    with Files(log, "ingest-1") as files:
        files.add(Batch(updates, row_hashes(updates, ["version"], KEY)[0]))
    assert pl.read_parquet(tmp_path / "log" / "*.parquet").rows() == [(5, 0, 3)]


def test_rows_cannot_be_crafted_to_have_a_digest_of_others() -> None:
    """Sums of 64 bits could be: by a diff of 2^62 only two bits of a hash count, and a null was a value like others."""
    digests_of = {
        digest(frame(*rows)) for rows in [[(float(x), "a", 0, 2**62), (float(x), "b", 0, 2**62)] for x in range(100)]
    }
    assert len(digests_of) == 100
    numbers = pl.DataFrame({"x": [None, 0x6E75_6C6C_6E75_6C6C], "version": 0, "diff": 1})
    assert digest(numbers[:1]) != digest(numbers[1:])
    other = pl.DataFrame({"x": [1, 2], "version": 0, "diff": 1})
    assert by_time(other, bytes(16)) != by_time(other)


def test_counts_are_exact_and_add_up() -> None:
    large = 2**62
    counts = accumulate_counts(frame(*[(1.0, "a", 4, large)] * 3, (1.0, "a", 4, -2), (1.0, "a", 2, 1)), ["version"])
    assert counts == {time_of(2): (1, 0), time_of(4): (3 * large, 2)}
    assert merge_counts([counts, {time_of(4): (0, 5), time_of(1): (1, 1)}]) == {
        time_of(1): (1, 1),
        time_of(2): (1, 0),
        time_of(4): (3 * large, 7),
    }


def first_shortfall(history: pl.DataFrame, *dims: str) -> RowCount | None:
    return first_count(running_counts(history, dims), dims, pl.col("_count") < 0)


def test_T45_the_first_version_and_row_with_too_few_are_found() -> None:
    fine = frame(
        (1.0, "a", 0, 2),
        (1.0, "a", 3, -2),
        (None, None, 1, 1),
        (None, None, 1, -1),
        (2.0, "b", 5, -1),
        (2.0, "b", 5, 1),
    )
    assert first_shortfall(fine, "version") is None
    assert first_shortfall(fine.clear(), "version") is None
    short = first_shortfall(
        pl.concat([fine, frame((None, None, 2, -1), (1.0, "a", 2, -1), (0.5, "z", 7, -9))]), "version"
    )
    assert short == RowCount({"x": None, "s": None}, time_of(2), -1)
    # taken out at 1, put in at 2: the sum at the end is right, and still nothing was there to take
    short = first_shortfall(frame((1.0, "a", 2, 1), (1.0, "a", 1, -1)), "version")
    assert short == RowCount({"x": 1.0, "s": "a"}, time_of(1), -1)


# --- values that their types do not allow -----------------------------------------------------------------------------


def raw_strings(*values: bytes) -> pa.Array:
    """A string array of these bytes, whatever they are."""
    ends = [0, *accumulate(map(len, values))]
    return pa.Array.from_buffers(
        pa.string(), len(values), [None, pa.array(ends, pa.int32()).buffers()[1], pa.py_buffer(b"".join(values))]
    )


def raw_decimals(*values: int) -> pa.Array:
    """A decimal(4,2) array of these digits, however many."""
    data = b"".join(value.to_bytes(16, "little", signed=True) for value in values)
    return pa.Array.from_buffers(pa.decimal128(4, 2), len(values), [None, pa.py_buffer(data)])


def arrow_file(path: Path, values: pa.Array) -> Path:
    rows = len(values)
    pq.write_table(pa.table({"x": values, "version": [0] * rows, "diff": [1] * rows}), path)
    return path


INVALID = {
    "utf8": ("string", raw_strings(b"a", "é".encode(), b"a\xff"), "Invalid UTF8 sequence", 3),
    "decimal": ("decimal(4,2)", raw_decimals(1, 9999, 12345), "Decimal value 12345 does not fit in precision", 3),
}  # fmt: skip


@pytest.mark.parametrize("case", INVALID)
def test_a_value_that_its_type_does_not_allow_is_named_with_its_row(tmp_path: Path, case: str) -> None:
    kind, values, says, row = INVALID[case]
    error = refused(arrow_file(tmp_path / "x.parquet", values), {"x": kind})
    assert "x.parquet: column 'x': a value that is no " in error.message
    assert says in error.message and error.message.endswith(f"(row {row})")


def test_bytes_in_a_dictionary_are_named_with_their_column(tmp_path: Path) -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1], pa.int8()), raw_strings(b"a", b"\xc3"))
    error = refused(arrow_file(tmp_path / "x.parquet", values), {"x": "string"})
    assert "x.parquet: not a readable Parquet file: column 'x', after row 0: Invalid UTF8" in error.message


def test_an_index_beyond_its_dictionary_is_named() -> None:
    indices = pa.DictionaryArray.from_arrays(pa.array([0, 1, 7], pa.int32()), pa.array(["a", "b"]), safe=False)
    with pytest.raises(DataError, match=r"f: column 'x': .* out of bounds: 7 .* \(row 12\)"):
        validate("f", pa.record_batch({"x": indices}), 10)


@pytest.mark.parametrize(
    ("kind", "values", "says"),
    [
        ("date", pl.Series([0, 2**31 - 1], dtype=pl.Int32).cast(pl.Date), "2147483647 days from 1970-01-01"),
        ("date", pl.Series([0, -719_163], dtype=pl.Int32).cast(pl.Date), "-719163 days from 1970-01-01"),
        ("timestamp", pl.Series([0, 2**62]).cast(pl.Datetime("ms")), "4611686018427387904 milliseconds"),
        ("timestamp", pl.Series([0, -(2**63)]).cast(pl.Datetime("ms")), "-9223372036854775808 milliseconds"),
        ("timestamp", pl.Series([0, 2**62]).cast(pl.Datetime("us", "UTC")), "4611686018427387904 microseconds"),
        ("timestamp", pl.Series([0, -(2**63)]).cast(pl.Datetime("us")), "-9223372036854775808 microseconds"),
        ("timestamp", pl.Series([0, -(2**63)]).cast(pl.Datetime("ns")), "-9223372036854775808 nanoseconds"),
    ],
)
def test_dates_and_times_that_nobody_can_show_are_refused(
    tmp_path: Path, kind: str, values: pl.Series, says: str
) -> None:
    pl.DataFrame({"x": values, "version": 0, "diff": 1}).write_parquet(tmp_path / "x.parquet")
    error = refused(tmp_path / "x.parquet", {"x": kind})
    assert f"column 'x': {says}" in error.message and "of the years 1 to 9999 (row 2)" in error.message


def test_the_first_and_the_last_day_get_in(tmp_path: Path) -> None:
    days = pl.Series([date(1, 1, 1), date(9999, 12, 31)])
    times = pl.Series([datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)])
    pl.DataFrame({"d": days, "t": times, "version": 0, "diff": 1}).write_parquet(tmp_path / "x.parquet")
    rows = updates_in(tmp_path / "x.parquet", {"d": "date", "t": "timestamp"})
    assert rows["d"].to_list() == days.to_list()
    assert rows["t"].dt.replace_time_zone(None).to_list() == times.to_list()


@pytest.mark.parametrize(("kind", "value"), [("date", "0000-01-01"), ("timestamp", "9999-12-31T23:00:00-05:00")])
def test_text_of_a_year_that_is_none_is_refused(tmp_path: Path, kind: str, value: str) -> None:
    error = refused(csv(tmp_path / "x.csv", f"x,version,diff\n{value},0,1\n"), {"x": kind})
    assert f"'{value}' is not of the years 1 to 9999 (row 2)" in error.message


@pytest.mark.parametrize("kind", [pa.decimal256(40, 2), pa.bool8(), pa.json_()], ids=str)
def test_a_column_of_a_type_no_input_can_have_is_named(tmp_path: Path, kind: pa.DataType) -> None:
    file = tmp_path / "x.feather.parquet"
    types = {"x": kind, "version": pa.int64(), "diff": pa.int64()}
    try:
        pq.write_table(pa.table({name: pa.nulls(1, item) for name, item in types.items()}), file)
    except pa.ArrowNotImplementedError:  # no file holds it; a Delta table or another format may
        assert isinstance(polars_type(kind), pl.Object)
        return
    error = refused(file, {"x": "int64"})
    assert "the column 'x' is of a type that no input can have, but the input declares int64" in error.message


def test_a_version_beyond_int64_is_one_line(tmp_path: Path) -> None:
    file = parquet(tmp_path / "e.parquet", **{**ROWS, "version": pl.Series([0, 2**63], dtype=pl.UInt64)})
    assert "column 'version': 9223372036854775808 does not fit into int64 (row 2)" in refused(file).message


def test_old_timestamps_of_96_bits_do_not_wrap(tmp_path: Path) -> None:
    moments = [datetime(1970, 1, 1), datetime(3000, 1, 1)]
    table = pa.table({"x": pa.array(moments, pa.timestamp("us")), "version": [0, 0], "diff": [1, 1]})
    pq.write_table(table, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True)
    rows = updates_in(tmp_path / "x.parquet", {"x": "timestamp"})
    assert rows["x"].dt.replace_time_zone(None).to_list() == moments


def test_long_values_and_many_columns_stay_one_short_line(tmp_path: Path) -> None:
    error = refused(csv(tmp_path / "x.csv", f"x,version,diff\n{'7' * 100_000}x,0,1\n"), {"x": "int64"})
    assert "(100003 characters)" in error.message and len(error.message) < 500
    names = ",".join(f"c{number}" for number in range(20_000))
    line = ",".join("1" for _ in range(20_000))
    began = time.process_time()
    error = refused(csv(tmp_path / "y.csv", f"{names}\n{line}\n"), {"x": "int64"})
    assert "c19, and 19980 more" in error.message
    file = csv(tmp_path / "z.csv", f"{names},x,version,diff\n{line},7,0,1\n")
    assert updates_in(file, {"x": "int64"}).rows() == [(7, 0, 1)]
    assert time.process_time() - began < 50


def test_row_groups_are_read_apart_with_their_rows(tmp_path: Path) -> None:
    count = 5000
    table = pa.table({name: pa.array(range(count)) for name in EDGES} | {"version": [0] * count, "diff": [1] * count})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=700)
    (source,) = find_sources([str(tmp_path / "x.parquet")])
    parts = [part for _, part in source.pieces(10_000)]
    assert len(parts) > 2
    rows = [(first, frame) for part in parts for first, frame in part.frames(["src"])]
    assert [first for first, _ in rows] == [1 + frame["src"][0] for _, frame in rows]
    assert pl.concat([frame for _, frame in rows])["src"].to_list() == list(range(count))


# --- tables whose files are no sources --------------------------------------------------------------------------------


def test_files_of_a_delta_table_are_not_read_as_loose_files(tmp_path: Path) -> None:
    table = tmp_path / "data" / "deep" / "t"
    write_deltalake(str(table), pl.DataFrame(ROWS).to_arrow())
    write_deltalake(str(table), pl.DataFrame({**ROWS, "src": [8, 9]}).to_arrow(), mode="overwrite")
    parquet(tmp_path / "data" / "loose.parquet", **ROWS)
    file = next(table.glob("*.parquet"))
    (tmp_path / "link.parquet").symlink_to(file)
    for location in (
        "data",
        "data/**",
        "data/deep",
        "data/deep/t/*.parquet",
        f"data/deep/t/{file.name}",
        "link.parquet",
    ):
        with pytest.raises(DataError, match="a file of the Delta table") as caught:
            find_sources([str(tmp_path / location)])
        assert caught.value.hint == f"name the table, as a source of its own: {table}"
    for location in ("data/deep/*", "data/deep/t", "data/loose.parquet"):
        (source,) = find_sources([str(tmp_path / location)])
        assert isinstance(source, ParquetFile if "loose" in location else DeltaTable)


@pytest.mark.parametrize(
    ("kind", "file"), [("Iceberg", "metadata/v1.metadata.json"), ("Hudi", ".hoodie/hoodie.properties")]
)
def test_tables_of_other_kinds_are_refused(tmp_path: Path, kind: str, file: str) -> None:
    (tmp_path / "t" / file).parent.mkdir(parents=True)
    (tmp_path / "t" / file).write_text("{}")
    (tmp_path / "t" / "data").mkdir()
    parquet(tmp_path / "t" / "data" / "x.parquet", **ROWS)
    for location in ("", "t", "t/data", "t/data/x.parquet", "*/data/*"):
        with pytest.raises(DataError, match=f"a file of the {kind} table"):
            find_sources([str(tmp_path / location)])


def test_a_pattern_leaves_hidden_folders_out(tmp_path: Path) -> None:
    for name in ("a/x.parquet", "a/_temporary/y.parquet", "a/.tmp/z.parquet", "_named/w.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        parquet(tmp_path / name, **ROWS)
    found = [Path(source.path).name for source in find_sources([f"{tmp_path}/**/*.parquet"])]
    assert found == ["x.parquet"]
    assert len(find_sources([f"{tmp_path}/_named/*.parquet"])) == 1
    assert len(find_sources([f"{tmp_path}/a/_temporary/y.parquet"])) == 1


def test_a_place_under_several_spellings_is_one_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "far" / "away").mkdir(parents=True)
    file = parquet(tmp_path / "a b.parquet", **ROWS)
    (tmp_path / "link.parquet").symlink_to(file)
    (tmp_path / "folder").symlink_to(tmp_path / "far" / "away")
    parquet(tmp_path / "far" / "b.parquet", **ROWS)
    monkeypatch.chdir(tmp_path / "sub")
    locations = [
        str(file),
        "../a b.parquet",
        "./../sub/../a b.parquet",
        "../link.parquet",
        file.as_uri(),
        "../a*.parquet",
    ]
    assert len(find_sources(locations)) == 1
    assert {Path(source.path).is_absolute() and ".." not in source.path for source in find_sources(locations)} == {True}
    (source,) = find_sources(["../folder/../b.parquet"])  # `..` of where the link leads, as the system has it
    assert source.path == str(tmp_path / "far" / "b.parquet")


@pytest.mark.parametrize(
    ("location", "says"),
    [("a\0b.parquet", "no NUL"), ("~nosuchuser/x.parquet", "no such user"), ("", "name is empty"),
     ("x" * 300 + ".parquet", "File name too long")],
)  # fmt: skip
def test_a_place_that_cannot_be_is_one_line(location: str, says: str) -> None:
    with pytest.raises(DdError, match=says) as caught:
        find_sources([location])
    assert caught.value.hint and "\n" not in caught.value.message


def test_a_name_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", **ROWS)
    os.rename(file, os.fsencode(tmp_path) + b"/\xff.parquet")
    for location in (tmp_path, tmp_path / "*.parquet"):
        with pytest.raises(DataError, match="the name is not UTF-8"):
            find_sources([str(location)])
