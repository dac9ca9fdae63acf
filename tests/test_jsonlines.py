"""JSON lines: what is read, exactly; what is refused, and on which line; and fields by their paths."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake
from ingesting import Desk

from ddcore.base.errors import DataError, DdError
from ddcore.base.schema import parse_schema
from ddcore.io.sources.finding import find_sources
from ddcore.io.sources.intake import fitted
from ddcore.io.sources.jsonobjects import CUT
from ddcore.io.sources.layouts import Rules
from ddcore.io.sources.row_checks import rows_of

NO_SIZES: Mapping[str, int] = {}
KINDS = {"n": "int64", "x": "float64", "s": "string", "b": "bool", "d": "decimal(10,2)", "day": "date"}
KINDS |= {"at": "timestamp", "raw": "binary", "l": "list[date]", "o": "struct[k: int64, t: list[string]]"}


def rows_in(
    location: Path, columns: Mapping[str, str], sizes: Mapping[str, Any] = NO_SIZES, **said: Any
) -> pl.DataFrame:
    """The rows of a source, as an input with these columns has them; it is read in portions of these ``sizes``."""
    rules = Rules(parse_schema(columns), rows_only=True, **said)
    frames = [
        rows_of(frame, layout, rules, first_row)
        for source, layout in fitted([replace(found, **sizes) for found in find_sources([str(location)])], rules)
        for first_row, frame in source.frames(layout.read)
    ]
    return pl.concat(frames)


def lines(path: Path, *texts: str | bytes) -> Path:
    path.write_bytes(b"".join((text if isinstance(text, bytes) else text.encode()) + b"\n" for text in texts))
    return path


def refused(location: Path, columns: Mapping[str, str], sizes: Mapping[str, Any] = NO_SIZES, **said: Any) -> DdError:
    with pytest.raises(DataError) as caught:
        rows_in(location, columns, sizes, **said)
    assert "\n" not in caught.value.message and caught.value.hint
    return caught.value


def test_each_type_has_its_form(tmp_path: Path) -> None:
    whole = (
        '{"n": 9007199254740993, "x": 0.1, "s": "\\u00e9\\n", "b": true, "d": 12.5, "day": "2026-01-31",'
        ' "at": "2026-01-31T12:00:00+02:00", "raw": "00ff", "l": ["2026-01-31", null], "o": {"t": ["a"], "k": 1}}'
    )
    text = '{"d": "99999999.99", "x": 5, "n": null, "l": [], "o": {"k": null}}'
    first, second, third = rows_in(lines(tmp_path / "a.jsonl", whole, "", text, "{}"), KINDS).rows()
    assert first == (
        9007199254740993, 0.1, "é\n", True, Decimal("12.50"), date(2026, 1, 31),
        datetime(2026, 1, 31, 10, tzinfo=UTC), b"\x00\xff", [date(2026, 1, 31), None], {"k": 1, "t": ["a"]},
    )  # fmt: skip
    assert second == (
        None, 5.0, None, None, Decimal("99999999.99"), None, None, None, [], {"k": None, "t": None}
    )  # fmt: skip
    assert third == (None,) * len(KINDS)


@pytest.mark.parametrize(
    ("kind", "value", "what"),
    [
        ("int64", "1.0", "1.0 is not a whole number"),
        ("int64", "1e3", "1e3 is not a whole number"),
        ("int64", "9223372036854775808", "9223372036854775808 does not fit into int64"),
        ("int64", "-9223372036854775808", "-9223372036854775808 is reserved"),
        ("int64", "1" * 5000, "does not fit into int64"),
        ("int64", '"1"', "'1' is text, but the input declares int64"),
        ("int64", "true", "True is true or false, but the input declares int64"),
        ("int64", "[1]", "is a list, but the input declares int64"),
        ("float64", "1e400", "1e400 does not fit into float64"),
        ("float64", '"1"', "'1' is text, but the input declares float64"),
        ("string", "1", "1 is a number, but the input declares string"),
        ("string", '{"a": 1}', "is an object, but the input declares string"),
        ("string", '"\\ud800"', "has half of a surrogate pair"),
        ("bool", "1", "1 is a number, but the input declares bool"),
        ("bool", '"true"', "'true' is text, but the input declares bool"),
        ("decimal(5,2)", "1.005", "1.005 is not a decimal(5,2)"),
        ("decimal(5,2)", "99999", "99999 is not a decimal(5,2)"),
        ("decimal(5,2)", '" 1"', "' 1' is not a decimal(5,2)"),
        ("decimal(5,2)", '"one"', "'one' is not a decimal(5,2)"),
        ("decimal(5,2)", "true", "True is true or false, but the input declares decimal(5,2)"),
        ("date", '"31.1.2026"', "'31.1.2026' is not a date such as 2026-01-31"),
        ("date", "20260131", "20260131 is a number, but the input declares date"),
        ("timestamp", '"2026-01-31"', "is not a timestamp such as"),
        ("binary", '"0g"', "'0g' is not bytes in hexadecimal"),
        ("list[int64]", '[1, "2"]', "column 'v[]': '2' is text, but the input declares int64"),
        ("list[int64]", '{"a": 1}', "is an object, but the input declares list[int64]"),
        ("struct[k: int64]", '{"k": "1"}', "column 'v.k': '1' is text, but the input declares int64"),
        ("struct[k: int64]", "[1]", "is a list, but the input declares a struct"),
        ("struct[k: int64]", '{"k": 1, "k": 2}', "column 'v.k': the key occurs twice"),
        ("list[date]", '["2026-02-30"]', "column 'v[]': '2026-02-30' is not a date"),
    ],
)  # fmt: skip
def test_a_value_that_is_not_of_its_type_is_an_error_with_its_line(
    tmp_path: Path, kind: str, value: str, what: str
) -> None:
    good = ['{"v": null}'] * 700
    path = lines(tmp_path / "a.jsonl", *good, f'{{"other": [null], "v": {value}}}', *good)
    error = refused(path, {"v": kind})
    assert what in error.message and ("(line 701)" in error.message or "(row 701)" in error.message), error.message


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"null", "line 3 is null, not an object"),
        (b"[1]", "line 3 is a list, not an object"),
        (b"7", "line 3 is a number, not an object"),
        (b'{"v": 1} null', "line 3 is not JSON"),
        (b'{"v": 1} {"v": 2}', "line 3 is not JSON"),
        (b'{"v": 1', "line 3 is not JSON: it is cut off before its end"),
        (b'{"v": 1, "w": "a', "line 3 is not JSON: it is cut off before its end"),
        (b'{"v": 1, "w": fal', "line 3 is not JSON: it is cut off before its end"),
        (b'{"v": 1, "w": "a" "b"}', "line 3 is not JSON: Expecting ',' delimiter at character 19"),
        (b"{'v': 1}", "line 3 is not JSON"),
        (b'{"v": 1,}', "line 3 is not JSON"),
        (b'{"v": 1, "v": 2}', "column 'v': the key occurs twice in one object (line 3)"),
        (b'{"w": "\xff", "v": 1}', "not UTF-8"),
        (b'{"w": ' + b"[" * 200_000, "line 3"),
    ],
)
@pytest.mark.parametrize("far", [False, True])
def test_a_line_that_is_no_object_is_an_error(tmp_path: Path, line: bytes, what: str, far: bool) -> None:
    """Near: among the lines that are searched for fields. Far: behind them, where only pyarrow reads."""
    path = lines(tmp_path / "a.jsonl", '{"v": 1}', '{"v": null}', line, '{"v": 2}')
    message = refused(path, {"v": "int64"}, {"searched": 5} if far else NO_SIZES).message
    assert what in message and len(message) < 500


def test_a_line_that_is_cut_at_any_byte_is_called_so(tmp_path: Path) -> None:
    line = '{"v":-1.5e+10,"w":"bé\\u00e9\\n\\ud83d\\ude00ü","a":[1,{"x":null}],"b":true,"c":false}'.encode()
    for end in range(1, len(line)):
        path = tmp_path / "a.jsonl"
        path.write_bytes(b'{"v": 1}\n' + line[:end])
        error = refused(path, {"v": "float64"})
        assert error.message.endswith("line 2 is not JSON: it is cut off before its end"), (line[:end], error)
        assert error.hint == CUT


def test_a_deep_value_is_an_error_only_where_it_is_looked_into(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", '{"v": 1}', '{"w": ' + "[" * 200_000 + "]" * 200_000 + ', "v": 2}')
    assert "line 2 is nested too deeply" in refused(path, {"v": "int64"}).message
    assert rows_in(path, {"v": "int64"}, {"searched": 5})["v"].to_list() == [1, 2]


def test_an_object_on_two_lines_is_an_error(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", '{"v": 1}' + '{"v": 2}' * 3, *['{"v": 3}'] * 3)
    assert "line 1 is not JSON" in refused(path, {"v": "int64"}).message
    path = lines(tmp_path / "b.jsonl", '{"v": 3}', '{"v":', "1}")
    assert "line 2 is not JSON" in refused(path, {"v": "int64"}).message


def test_a_long_line_is_an_error(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", '{"v": 1}', '{"v": 2, "w": "' + "x" * (100 << 20) + '"}')
    assert "line 2 has more than 16 MiB" in refused(path, {"v": "int64"}).message


def test_a_line_longer_than_a_block_is_read(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", '{"v": "a"}', '{"v": "' + "x" * (9 << 20) + '"}', '{"v": "b"}')
    assert rows_in(path, {"v": "string"})["v"].str.len_bytes().to_list() == [1, 9 << 20, 1]


def test_a_field_that_no_line_has_is_an_error(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", '{"v": 1, "Name": "x"}')
    error = refused(path, {"v": "int64", "name": "string"})
    assert "the column 'name' is missing; there are: v, Name" in error.message
    assert "--column name=Name" in error.hint
    assert "an empty file" in refused(lines(tmp_path / "b.jsonl"), {"v": "int64"}).message


@pytest.mark.parametrize("key", ['"name"', '"na\\u006de"'])
def test_a_field_of_one_late_line_is_read(tmp_path: Path, key: str) -> None:
    path = lines(tmp_path / "a.ndjson", *['{"v": 1}'] * 5000, f'{{"v": 2, {key}: "x"}}', *['{"v": 3}'] * 5000)
    rows = rows_in(path, {"v": "int64", "name": "string"}, {"searched": 100, "block": 512})
    assert rows["v"].to_list() == [1] * 5000 + [2] + [3] * 5000
    assert rows.filter(pl.col("name").is_not_null()).rows() == [(2, "x")]


def test_compressed_files_byte_order_marks_and_windows_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'\xef\xbb\xbf{"v": 1}\r\n\r\n{"v": 2}'))
    assert rows_in(tmp_path / "a.jsonl.gz", {"v": "int64"})["v"].to_list() == [1, 2]
    (tmp_path / "b.ndjson.gz").write_bytes(gzip.compress(b'{"v": 1}\n' * 99999)[:-30])
    assert "b.ndjson.gz: not a readable JSON lines file" in refused(tmp_path / "b.ndjson.gz", {"v": "int64"}).message


def test_random_rows_come_back(tmp_path: Path, seed: int) -> None:
    """Rows written by Python's json come back, in blocks of any size."""
    rng = random.Random(seed)
    texts = ["", "a", 'q"\\', "é\u2028\n", "null", "} null", "\U0001f600", "\x00"]
    rows = [
        {
            "n": rng.choice([None, rng.randint(-(2**63) + 1, 2**63 - 1)]),
            "x": rng.choice([None, rng.uniform(-1e9, 1e9), 1e-300, float("inf")]),
            "s": rng.choice([None, *texts]),
            "l": rng.choice([None, [], [rng.choice([None, *texts]) for _ in range(3)]]),
            "o": rng.choice([None, {"k": rng.choice([None, 7]), "t": rng.choice([None, [None, "y"]])}]),
        }
        for _ in range(400)
    ]
    kinds = {"n": "int64", "x": "float64", "s": "string", "l": "list[string]", "o": KINDS["o"]}
    sizes = {"block": rng.choice([1, 7, 100, 5000])}
    written = [json.dumps({k: v for k, v in row.items() if v is not None or rng.random() < 0.5},
                          ensure_ascii=rng.random() < 0.5) for row in rows]  # fmt: skip
    assert rows_in(lines(tmp_path / "a.jsonl", *written), kinds, sizes).to_dicts() == rows, f"seed {seed}"


def test_mutated_lines_never_end_the_process(tmp_path: Path, seed: int) -> None:
    """Random damage is an error of one line or harmless; pyarrow by itself ends the process for some."""
    rng = random.Random(seed)
    tokens = [b"null", b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"1", b"-", b"\n", b" ", b"\xff", b"{}"]
    good = json.dumps({"n": 1, "s": "x", "l": ["a", None], "o": {"k": 2, "t": []}, "z": None}).encode() + b"\n"
    kinds = {"n": "int64", "s": "string", "l": "list[string]", "o": KINDS["o"]}
    for _ in range(300):
        text = bytearray(good * 3)
        for _ in range(rng.randint(1, 3)):
            location = rng.randint(0, len(text))
            text[location : location + rng.choice([0, 0, 1, 3])] = rng.choice(tokens)
        path = tmp_path / "a.jsonl"
        path.write_bytes(text)
        try:
            rows_in(path, kinds)
        except DataError as error:
            assert "\n" not in error.message, f"seed {seed}"


# --- fields by their paths --------------------------------------------------------------------------------------------

NESTED = pl.DataFrame(
    {
        "after": [{"id": 1, "at": {"zip": "x"}, "m": 5}, {"id": 2, "at": None, "m": 6}, None],
        "a.b": ["p", "q", "r"],
        "ts": [7, 8, 9],
    }
)
BY_PATH = {"id": "after.id", "zip": "after.at.zip", "dot": "a.b"}
PATHS = {"id": "int64", "zip": "string", "dot": "string", "ts": "int64"}
PATH_ROWS = [(1, "x", "p", 7), (2, None, "q", 8), (None, None, "r", 9)]


def nested_source(folder: Path, form: str) -> Path:
    path = folder / f"rows{form}"
    if form == ".parquet":
        NESTED.write_parquet(path)
    elif form == ".jsonl":
        NESTED.write_ndjson(path)
    else:
        write_deltalake(str(path), NESTED.to_arrow())
    return path


@pytest.mark.parametrize("form", [".parquet", ".jsonl", ""])
def test_fields_are_read_by_their_paths(tmp_path: Path, form: str) -> None:
    path = nested_source(tmp_path, form)
    assert rows_in(path, PATHS, rename=BY_PATH).rows() == PATH_ROWS
    error = refused(path, PATHS, rename={**BY_PATH, "id": "after.idd"})
    assert "the column 'after.idd' is missing" in error.message
    if form != ".jsonl":
        assert "there are: after.id, after.at, after.m" in error.message
    (_, layout), = fitted(find_sources([str(path)]), Rules(parse_schema({"id": "int64"}), rows_only=True,
                                                           rename={"id": "after.id"}))  # fmt: skip
    assert layout.ignored == ("a.b", "ts")


def test_a_column_of_exactly_that_name_comes_first(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [{"b": 1}], "a.b": [2]})
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_ndjson(tmp_path / "a.jsonl")
    for name in ("a.parquet", "a.jsonl"):
        assert rows_in(tmp_path / name, {"v": "int64"}, rename={"v": "a.b"}).rows() == [(2,)], name


def test_a_column_whole_and_by_a_field(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [{"b": 1, "c": "x"}, None]})
    frame.write_parquet(tmp_path / "a.parquet")
    kinds = {"a": "struct[b: int64, c: string]", "b": "int64"}
    assert rows_in(tmp_path / "a.parquet", kinds, rename={"b": "a.b"}).rows() == [({"b": 1, "c": "x"}, 1), (None, None)]
    frame.write_ndjson(tmp_path / "a.jsonl")
    assert "both whole and by its fields" in refused(tmp_path / "a.jsonl", kinds, rename={"b": "a.b"}).message


def test_a_field_of_another_type_is_refused(tmp_path: Path) -> None:
    path = nested_source(tmp_path, ".parquet")
    error = refused(path, {"id": "string"}, rename={"id": "after.id"})
    assert "the column 'id' is Int64, but the input declares string" in error.message
    path = nested_source(tmp_path, ".jsonl")
    error = refused(path, {"id": "string"}, rename={"id": "after.id"})
    assert "column 'after.id': 1 is a number, but the input declares string (line 1)" in error.message


# --- ingests ----------------------------------------------------------------------------------------------------------


def desk(folder: Path) -> Desk:
    return Desk(folder, {"src": "int64", "dst": "int64"})


def test_ingest_of_json_lines_in_every_form(tmp_path: Path) -> None:
    it = desk(tmp_path)
    log = lines(tmp_path / "log.jsonl", '{"src": 1, "dst": 2, "version": 0, "diff": 1, "x": 5}')
    report = it.ingest(str(log))
    assert any("columns left out: x" in note for note in report.notes)
    assert it.ingest(str(log)).nothing_new
    rows = lines(tmp_path / "rows.ndjson", '{"src": 2, "dst": 3}', '{"src": 3}')
    it.ingest(str(rows), form="append")
    whole = lines(tmp_path / "whole.jsonl", '{"src": 2, "dst": 3}')
    it.ingest(str(whole), form="snapshot")
    assert it.updates() == [(1, 2, 0, 1), (2, 3, 1, 1), (3, None, 1, 1), (1, 2, 2, -1), (3, None, 2, -1)]
    assert it.ingest(str(whole), form="snapshot").nothing_new


def test_json_lines_and_parquet_with_the_same_rows_are_the_same(tmp_path: Path) -> None:
    it = desk(tmp_path)
    it.ingest(it.source("a.parquet", (1, 2, 0, 1), (2, 3, 1, -0 + 1)))
    there = '{"diff": 1, "version": 0, "dst": 2, "src": 1}', '{"src": 2, "dst": 3, "version": 1, "diff": 1}'
    assert it.ingest(str(lines(tmp_path / "b.jsonl", *there))).nothing_new


def test_bad_json_lines_leave_nothing_behind(tmp_path: Path) -> None:
    it = desk(tmp_path)
    it.ingest(it.source("a.parquet", (1, 2, 0, 1)))
    good = '{"src": 1, "dst": 3, "version": 1, "diff": 1}'
    for bad in ('{"src": 1.5, "dst": 3, "version": 1, "diff": 1}', '{"src": 1, "dst": 3, "version": "1", "diff": 1}',
                '{"src": 1, "dst": 3, "version": 1, "diff": null}', "null"):  # fmt: skip
        with pytest.raises(DataError, match="2"):
            it.ingest(str(lines(tmp_path / "b.jsonl", good, bad)))
        assert it.updates() == [(1, 2, 0, 1)] and not it.stray_files()
