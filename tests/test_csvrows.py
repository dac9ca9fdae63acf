"""Rows of CSV files: quotes that never close, text after quotes, and rows too long, wherever a portion ends."""

from __future__ import annotations

import csv
import gzip
import io
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ddcore.base.errors import DataError
from ddcore.base.schema import parse_type
from ddcore.io.sources.csvfile import CsvFile
from ddcore.io.sources.csvrows import Rows
from ddcore.io.sources.finding import find_sources
from ddcore.io.sources.jsonlines import JsonLines
from ddcore.io.sources.source import Source

LIMIT = 50  # bytes of a row, in these tests


def small(path: Path) -> Source:
    """A source with short rows and short portions, so that every boundary is met."""
    (source,) = find_sources([str(path)])
    if isinstance(source, CsvFile):
        return replace(source, header=5, block=17, longest=LIMIT)
    assert isinstance(source, JsonLines)
    return replace(source, block=17, longest=LIMIT)


def rows_of(path: Path) -> list[tuple[str, ...]]:
    source = small(path)
    return [row for _, frame in source.frames(list(source.columns())) for row in frame.rows()]


def packed(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content))


def plain(path: Path, content: bytes) -> None:
    path.write_bytes(content)


OPEN = [  # a file, and the line in which the quote opens that is never closed
    ('k,t\n1,a\n2,"b\n3,c\n4,d\n', 3),
    ('k,t\n1,a\n2,"b\n3,c\n4,d', 3),
    ('k,t\n"1,a\n2,b\n', 2),
    ('k,t\n1,"', 2),
    ('k,t\n1,"a""', 2),
    ('k,t\n1,"a"""""', None),
    ('k,t\n1,"a\nb"\n2,"c\nd', 4),
    ('k,"t\n1,a\n', 1),
    ('\ufeff"k","t"\n1,"2', 2),
    ('k,t\r\n1,"a\r\nb"\r\n2,"c\r\n', 4),
    ('k,t\r1,"a\rb"\r2,"c\r', 4),
    ('k,t\n1,5" pipe\n2,"c\n', 3),
    ('t\n"a"\n"\n', 3),
]


@pytest.mark.parametrize(("text", "line"), OPEN)
@pytest.mark.parametrize(("ending", "write"), [(".csv", plain), (".csv.gz", packed)])
def test_a_file_that_ends_inside_of_a_quote_is_refused(
    text: str, line: int | None, ending: str, write: Callable[[Path, bytes], None], tmp_path: Path
) -> None:
    path = tmp_path / f"cut{ending}"
    write(path, text.encode())
    if line is None:
        assert rows_of(path) == [("1", 'a""')]
        return
    with pytest.raises(DataError) as caught:
        rows_of(path)
    assert f"{path}: not a readable CSV file: it ends inside of the quote that opens in line {line}" in str(
        caught.value
    )
    assert "copy it again" in caught.value.hint


def test_a_quote_that_was_lost_before_another_one_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "lost.csv"
    path.write_text('k,t\n1,"a\n2,"b"\n3,c\n')  # read on, the first field would have the second row
    with pytest.raises(DataError, match=r"text after a closing quote \(line 3\), of the field that opens in line 2"):
        rows_of(path)


def test_a_later_byte_order_mark_is_text(tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    path.write_text("\ufeffk,t\n1,abcdefghij\n\ufeff2,abcdefghij\n\ufeff3,abcdefghij\n")
    assert [row[0] for row in rows_of(path)] == ["1", "\ufeff2", "\ufeff3"]


def test_a_wrong_row_far_behind_has_its_number(tmp_path: Path) -> None:
    path = tmp_path / "far.csv"
    path.write_text("k,t\n" + "1,abcdefgh\n" * 20 + "2\n")
    with pytest.raises(DataError, match="Row #22: Expected 2 columns, got 1: 2"):
        rows_of(path)


@pytest.mark.sample(100)
@pytest.mark.parametrize("seed", range(300))
def test_what_is_written_is_read_or_refused_for_its_length_alone(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    ending, text = rng.choice(["\n", "\r\n"]), io.StringIO()
    writer, lengths = csv.writer(text, lineterminator=ending), []
    writer.writerow(["k", "t"])
    rows = [(str(rng.randint(0, 9)), value(rng)) for _ in range(rng.randint(1, 30))]
    for row in rows:
        before = text.tell()
        writer.writerow(row)
        lengths.append(text.tell() - before - len(ending))
    path = tmp_path / "rows.csv"
    content = text.getvalue()
    path.write_bytes((content if rng.random() < 0.5 else content.removesuffix(ending)).encode())
    if max(lengths) <= LIMIT:
        assert rows_of(path) == [(k, t or None) for k, t in rows]
        return
    with pytest.raises(DataError, match="a row of more than"):
        rows_of(path)


def value(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return rng.choice(["x", 'a"b', "l\nm", "x,y"]) * rng.randint(1, 11)
    return "y" * rng.randint(0, LIMIT)


@pytest.mark.parametrize("seed", range(20))
def test_quotes_of_any_bytes_are_found_as_byte_by_byte(seed: int) -> None:
    for case in range(200):
        rng = random.Random(seed * 1000 + case)
        content = bytes(rng.choice(b'""",\n\r\nab') for _ in range(rng.randint(0, 25)))
        rows = Rows(io.BytesIO(content), "f")
        try:
            assert b"".join(rows.blocks(rng.randint(1, 9))) == content
            said = ""
        except DataError as error:
            said = error.message.removeprefix("f: not a readable CSV file: ")
        assert said == by_bytes(content), content


def by_bytes(content: bytes) -> str:
    """What is wrong with a file, found byte by byte; empty if nothing is."""
    state, line, opened = "begin", 1, 0
    for index, byte in enumerate(content):
        if state == "quoted":
            state = "closed" if byte == ord('"') else state
        elif byte == ord('"') and state in ("begin", "closed"):
            state, opened = "quoted", line if state == "begin" else opened
        elif byte in b",\r\n":
            state = "begin"
        elif state == "closed":
            return f"text after a closing quote (line {line}), of the field that opens in line {opened}"
        else:
            state = "plain"
        line += byte == ord("\n") or (byte == ord("\r") and content[index + 1 : index + 2] != b"\n")
    return f"it ends inside of the quote that opens in line {opened}" if state == "quoted" else ""


# --- the longest line of every format of lines ------------------------------------------------------------------------


def json_line(length: int) -> str:
    return '{"t": "' + "x" * (length - 9) + '"}'


@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
@pytest.mark.parametrize("before", range(0, 40, 3))
def test_a_json_line_of_the_limit_is_read_and_one_more_byte_is_not(before: int, ending: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for length in (LIMIT, LIMIT + 1, LIMIT + 20):
        path.write_text("\n" * before + json_line(length) + ending, newline="")
        for source in (small(path).as_declared({"t": parse_type("string")}),
                       small(path).as_texts()):  # fmt: skip
            if length <= LIMIT:
                assert sum(len(frame) for _, frame in source.frames(list(source.columns()))) == 1
                continue
            with pytest.raises(DataError, match=f"line {before + 1} has more than"):
                list(source.frames(list(source.columns())))


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("before", range(0, 40, 3))
def test_a_csv_row_of_the_limit_is_read_and_one_more_byte_is_not(before: int, quote: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for length in (LIMIT, LIMIT + 1, LIMIT + 20):
        row = quote + "x" * (length - 2 * len(quote)) + quote
        path.write_text("t\n" + "\n" * before + row + "\n")
        if length <= LIMIT:
            assert len(rows_of(path)) == 1
            continue
        with pytest.raises(DataError, match=rf"a row of more than 0 MiB \(line {before + 2}"):
            rows_of(path)
