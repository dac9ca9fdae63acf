"""Files that lie, as sources of an ingest and in place of the warehouse's own: one clear line, or the right rows.

Every file is read in a process of its own, with a limit of time: a crash or a hang of a library is a failed test.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import select
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import crafting
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crafting import BINARY, CHILDREN, DATA_PAGE, DICTIONARY_PAGE, GROUP_ROWS, I32, I64, NAME, ROWS, SCHEMA
from deltalake import DeltaTable
from trams import Command

from ddcore.base.errors import DataError
from ddcore.base.schema import Type
from ddcore.cli.text import message
from ddcore.data.encoding import encode
from ddcore.io.delta.table_files import LiveFile
from ddcore.io.sources.finding import find_sources
from ddcore.io.sources.parquetfile import ParquetFile
from ddcore.io.state import arrangements
from ddcore.io.state.layout import Layout

SECONDS = 20.0  # for one file
MEMORY = 256 << 20  # for one batch, in the tests; 4 GiB otherwise, and bounds of the same proportion
BASE = crafting.edges(write_page_checksum=True)
NUMBERS = (-1, 0, 1, 127, -128, 2**31 - 1, -(2**31), 2**31, 2**40, 2**63 - 1, -(2**63))

READER = f"""
import json, re, sys
from pathlib import Path
from ddcore.base.errors import DdError
from ddcore.io.sources.layouts import Rules
from ddcore.io.sources.row_checks import normalise
from ddcore.io.sources.intake import fitted, frames_of
from dataclasses import replace
from ddcore.io.sources.parquetfile import ParquetFile
from ddcore.io.sources.finding import find_sources
from ddcore.base.schema import parse_schema

rules = Rules(parse_schema({{"src": "int64", "dst": "int64", "name": "string"}}), ("version",), None, None, {{}})


def peak():  # of this process alone: ru_maxrss begins with the peak of the process that started it
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10


print("ready", flush=True)
for line in sys.stdin:
    answer = {{}}
    try:
        rows = 0
        sources = [
            replace(source, batch_bytes={MEMORY}, most_bytes=1 << 17) if isinstance(source, ParquetFile) else source
            for source in find_sources([line.strip()])
        ]
        for layout, first, frame in frames_of(fitted(sources, rules)):
            normalise(frame, layout, rules, first)
            rows += len(frame)
        answer["rows"] = rows
    except DdError as error:
        answer["error"], answer["hint"] = error.message, error.hint
    except BaseException as error:
        answer["wrong"] = repr(error)
    answer["memory"] = peak()
    print(json.dumps(answer), flush=True)
"""


@dataclass
class Answer:
    """How a source was read: its rows, or the error; ``wrong`` if it was neither."""

    rows: int | None = None
    error: str = ""
    hint: str = ""
    wrong: str = ""
    memory: int = 0

    @property
    def is_refusal(self) -> bool:
        """Whether there is an error and a hint. A name in it may have a newline, which is printed as ``\\n``."""
        return not self.wrong and bool(self.error) and len(message(self.error).splitlines()) == 1 and bool(self.hint)


class Reader:
    """A process that reads one source after another, and is started again when it dies or takes too long."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors = io.StringIO()

    def read(self, path: Path) -> Answer:
        """What became of reading ``path``."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", READER],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert self._line(60) == "ready"
        assert self._process.stdin is not None
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        line = self._line(SECONDS)
        if line:
            return Answer(**json.loads(line))
        said = self.close()
        return Answer(wrong=f"the reader crashed or hung: {said[-300:]}")

    def _line(self, seconds: float) -> str:
        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return self._process.stdout.readline().strip() if ready else ""

    def close(self) -> str:
        """End the process; what it printed on stderr."""
        if self._process is None:
            return ""
        process, self._process = self._process, None
        process.kill()
        return process.communicate()[1]


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    assert reader.close() == "", "nothing is printed beside the answers: no trace of Rust's"


def check(reader: Reader, folder: Path, files: Iterable[tuple[str, bytes]], rows: int) -> dict[str, int]:
    """Read each file: it is refused, or has all of its rows. Returns how many ended in which way."""
    ways = {"refused": 0, "read": 0}
    for name, content in files:
        path = folder / "crafted.parquet"
        path.write_bytes(content)
        answer = reader.read(path)
        if answer.rows != rows and not answer.is_refusal:
            kept = folder / f"{name}.parquet"
            kept.write_bytes(content)
            raise AssertionError(f"{name} ({kept}): {answer}")
        ways["read" if answer.rows == rows else "refused"] += 1
    return ways


def sample(files: Iterable[tuple[str, bytes]], every: int) -> Iterator[tuple[str, bytes]]:
    return (file for number, file in enumerate(files) if number % every == 0)


# --- every number of a file, every length, any byte -------------------------------------------------------------------


def other_footers() -> Iterator[tuple[str, bytes]]:
    """The file with each integer of its footer replaced."""
    footer = crafting.footer_of(BASE)
    for path, number in crafting.integers(footer):
        for other in NUMBERS:
            if other != number:
                changed = crafting.with_integer(footer, path, other)
                yield f"footer {path} {number} {other}", crafting.with_footer(BASE, changed)


def other_pages() -> Iterator[tuple[str, bytes]]:
    """The file with each integer of each page's header replaced."""
    for column in range(5):
        for page in (DATA_PAGE, DICTIONARY_PAGE):
            _, header = crafting.page_header(BASE, column, page)
            for path, number in crafting.integers(header):
                for other in NUMBERS:
                    if other != number:
                        written = crafting.write(crafting.with_integer(header, path, other))
                        name = f"page {column} {page} {path} {number} {other}"
                        yield name, crafting.with_page_header(BASE, column, written, page)


def cut_files() -> Iterator[tuple[str, bytes]]:
    for length in range(len(BASE)):
        yield f"cut {length}", BASE[:length]


def flipped(seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Files with a few bytes changed, half of them in the footer."""
    rng = random.Random(seed)
    coded = crafting.edges(
        3000, compression="zstd", use_dictionary=["name"], data_page_version="2.0", write_page_checksum=True,
        column_encoding={"src": "DELTA_BINARY_PACKED", "dst": "DELTA_BINARY_PACKED"},
    )  # fmt: skip
    plain = crafting.edges(3000, compression="none", use_dictionary=False, write_page_checksum=True)
    for number in range(count):
        content = bytearray(rng.choice([coded, plain]))
        length = int.from_bytes(content[-8:-4], "little")
        for _ in range(rng.choice([1, 1, 2, 5])):
            location = (
                rng.randrange(len(content) - 8 - length, len(content)) if number % 2 else rng.randrange(len(content))
            )
            content[location] ^= rng.randrange(1, 256)
        yield f"flipped {seed} {number}", bytes(content)


def test_the_crafted_files_are_the_file_itself_where_nothing_is_changed(reader: Reader, tmp_path: Path) -> None:
    """Otherwise every test here would pass."""
    assert crafting.with_footer(BASE, crafting.footer_of(BASE)) == BASE
    _, header = crafting.page_header(BASE, 2, DATA_PAGE)
    assert crafting.with_page_header(BASE, 2, crafting.write(header), DATA_PAGE) == BASE
    assert check(reader, tmp_path, [("same", BASE)], 6) == {"refused": 0, "read": 1}


@pytest.mark.sample(1)
@pytest.mark.parametrize("files", [other_footers, other_pages, cut_files])
def test_any_other_number_and_any_cut(files: Callable[[], Any], reader: Reader, tmp_path: Path) -> None:
    ways = check(reader, tmp_path, sample(files(), 5), 6)
    assert ways["refused"] > 20


@pytest.mark.long
@pytest.mark.parametrize("files", [other_footers, other_pages, cut_files])
def test_every_other_number_and_every_cut(files: Callable[[], Any], reader: Reader, tmp_path: Path) -> None:
    assert check(reader, tmp_path, files(), 6)["refused"] > 100


def test_a_few_changed_bytes(reader: Reader, tmp_path: Path) -> None:
    ways = check(reader, tmp_path, flipped(9, 300), 3000)
    assert min(ways.values()) > 10, ways


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_many_changed_bytes(seed: int, reader: Reader, tmp_path: Path) -> None:
    print("seed", seed)
    check(reader, tmp_path, flipped(100 + seed, 1000), 3000)


# --- lies by name -----------------------------------------------------------------------------------------------------


def with_length(length: int) -> bytes:
    return BASE[:-8] + struct.pack("<I", length) + b"PAR1"


def nested(depth: int) -> bytes:
    """With a schema of that many levels more."""

    def change(footer: crafting.Tree) -> None:
        elements = crafting.get(footer, SCHEMA)[1]
        crafting.put(elements[0], CHILDREN, I32, crafting.get(elements[0], CHILDREN) + 1)
        elements.extend([[3, I32, 1], [NAME, BINARY, b"level"], [CHILDREN, I32, 1]] for _ in range(depth))
        elements.append([[1, I32, 2], [3, I32, 1], [NAME, BINARY, b"leaf"]])

    return crafting.changed(BASE, change)


def with_name(column: int, name: bytes) -> bytes:
    def change(footer: crafting.Tree) -> None:
        crafting.put(crafting.get(footer, SCHEMA)[1][1 + column], NAME, BINARY, name)

    return crafting.changed(BASE, change)


def with_rows(file: int, group: int) -> bytes:
    def change(footer: crafting.Tree) -> None:
        crafting.put(footer, ROWS, I64, file)
        crafting.put(crafting.group_of(footer), GROUP_ROWS, I64, group)

    return crafting.changed(BASE, change)


def with_many_groups(count: int) -> bytes:
    """Row groups that all are the same bytes."""

    def change(footer: crafting.Tree) -> None:
        groups = crafting.get(footer, crafting.ROW_GROUPS)[1]
        groups.extend(groups[:1] * (count - 1))
        crafting.put(footer, ROWS, I64, 6 * count)

    return crafting.changed(BASE, change)


LIES: dict[str, tuple[Callable[[], bytes], str]] = {
    "a footer beyond the file": (lambda: with_length(2**31 - 1), "smaller than the size"),
    "a footer of 4 GiB": (lambda: with_length(2**32 - 1), "smaller than the size"),
    "no footer": (lambda: with_length(0), "thrift"),
    "a thousand levels": (lambda: nested(1000), "nested"),
    "a hundred thousand levels": (lambda: nested(100_000), "nested"),
    "two columns of one name": (lambda: with_name(1, b"src"), "'src' occurs twice"),
    "a name that is no text": (lambda: with_name(1, b"\xff\xfe"), "not a readable Parquet file"),
    "fewer rows than its pages": (lambda: with_rows(6, 1), "row groups"),
    "more rows than its pages": (lambda: with_rows(7, 7), "its footer has 7"),
    "2^40 rows": (lambda: with_rows(2**40, 2**40), "hold 1,099,511,627,776 rows"),
    "negative rows": (lambda: with_rows(-6, -6), "row"),
    "a run of 2^31 rows": (lambda: crafting.repeated(2**31 - 1), "hold 2,147,483,647 rows"),
    "a million times 1 MB in a file of 2 KB": (lambda: crafting.repeated(10**6, "x" * 10**6), "GiB of memory"),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies(lie: str, reader: Reader, tmp_path: Path) -> None:
    content, says = LIES[lie]
    path = tmp_path / "lie.parquet"
    path.write_bytes(content())
    answer = reader.read(path)
    assert answer.is_refusal and says in answer.error, answer
    assert str(path) in answer.error
    assert answer.memory < MEMORY + (1 << 30)


def test_where_a_batch_does_not_fit_into_memory_smaller_ones_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the row on at which memory ran out; that it does, see the million times 1 MB above."""
    path = tmp_path / "long.parquet"
    names = [f"{n % 7}" * 100 for n in range(9000)]
    path.write_bytes(crafting.edges(9000, names=names, row_group_size=5000))
    whole, sizes = ParquetFile._limited_batches, []

    def short(self: ParquetFile, columns: Any, rows: int, skipped: int) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(whole(self, columns, min(rows, 4000), skipped)):
            if rows > 4096 and number == 1:
                raise pa.ArrowMemoryError("malloc of size 1 failed")
            sizes.append(len(batch))
            yield batch

    monkeypatch.setattr(ParquetFile, "_limited_batches", short)
    frames = list(find_sources([str(path)])[0].frames(["src", "name"]))
    assert len(sizes) > 2 and [row for row, _ in frames][:2] == [1, 4001]
    read = pl.concat([frame for _, frame in frames])
    assert read["src"].to_list() == list(range(9000))
    assert read["name"].to_list() == names


def test_values_that_take_too_much_for_their_file_are_refused(tmp_path: Path) -> None:
    """Also where each batch fits into memory: a file of a few bytes would be read for hours."""
    path = tmp_path / "wide.parquet"
    path.write_bytes(crafting.repeated(10_000, "x" * 10_000))
    (source,) = find_sources([str(path)])
    assert isinstance(source, ParquetFile)
    with pytest.raises(DataError, match="bytes of a file hold more than"):
        list(replace(source, most_bytes=10_000).frames(["name"]))
    assert sum(len(frame) for _, frame in source.frames(["name"])) == 10_000


def test_one_group_named_many_times_is_what_the_footer_says(reader: Reader, tmp_path: Path) -> None:
    path = tmp_path / "groups.parquet"
    path.write_bytes(with_many_groups(1000))
    assert reader.read(path).rows == 6000


@pytest.mark.parametrize("number", range(5))
def test_statistics_that_lie_lose_no_row(number: int, tmp_path: Path) -> None:
    """Least, greatest, and how many are null: no reader of sources relies on them."""

    def change(footer: crafting.Tree) -> None:
        lie = struct.pack("<q", 10**6)
        statistics = [[1, BINARY, lie], [2, BINARY, lie], [3, I64, 6], [5, BINARY, lie], [6, BINARY, lie]]
        crafting.put(crafting.chunk_of(footer, number), crafting.STATISTICS, crafting.STRUCT, statistics)

    true, lying = tmp_path / "true.parquet", tmp_path / "lying.parquet"
    true.write_bytes(BASE)
    lying.write_bytes(crafting.changed(BASE, change))
    names = ["src", "dst", "name", "version", "diff"]
    both = [find_sources([str(path)])[0].frames(names) for path in (true, lying)]
    (_, expected), (_, got) = (next(iter(frames)) for frames in both)
    assert got.rows() == expected.rows() and len(got) == 6


def test_the_command_says_one_line_and_takes_the_next_file(copied: Path, dd: Command) -> None:
    """By ``dd ingest``: exit code 1, nothing ingested, no trace; a good file after that is taken in."""
    before = dd("status", "--json")
    for content, _ in LIES.values():
        Path("lie.parquet").write_bytes(content())
        code, out, err = dd("ingest", "links", "lie.parquet")
        assert (code, out, len(err)) == (1, [], 2), err
        assert err[0].startswith("error: lie.parquet: ")
    assert dd("status", "--json")[1] == before[1]
    Path("right.csv").write_text("version,diff,src,dst,minutes\n6,1,A,B,1\n")
    assert dd("ingest", "links", "right.csv", "-q") == (0, [], [])


@pytest.mark.spark
def test_spark_refuses_the_same_files_with_the_same_lines(copied: Path, dd: Command, spark: Any) -> None:
    for lie in ("a footer beyond the file", "more rows than its pages", "a run of 2^31 rows", "a name that is no text"):
        Path("lie.parquet").write_bytes(LIES[lie][0]())
        inline = dd("ingest", "links", "lie.parquet", "--column", "minutes=dst")
        assert dd("ingest", "links", "lie.parquet", "--column", "minutes=dst", "--engine", "spark") == inline
        assert inline[0] == 1


# --- CSV --------------------------------------------------------------------------------------------------------------

HEAD = b"a,version,diff\n"
TEXTS = {
    "a field of 40 MB": (HEAD + b"x" * 40_000_000 + b",0,1\n", "a row of more than 16 MiB"),
    "a quoted field of 40 MB": (HEAD + b'"' + b"x" * 40_000_000 + b'",0,1\n', "a row of more than 16 MiB"),
    "a quote that never closes": (HEAD + b'"abc,0,1\n' + b"1,0,1\n" * 3_000_000, "readable CSV"),
    "many commas": (HEAD + b"," * 3_000_000, "Expected 3 columns"),
    "NUL in a name": (b"a\0,version,diff\nx,0,1\n", "'a'"),
    "escapes in a name": (b"\x1b[31ma,version,diff\n1,0,1\n", "'a'"),
    "bytes": (bytes(range(256)) * 100, "CSV"),
    "UTF-16": ("a,version,diff\n1,0,1\n".encode("utf-16"), "CSV"),
    "nothing but newlines": (b"\n\n\n", "header"),
}


@pytest.mark.parametrize("text", TEXTS)
def test_csv_that_no_program_should_write(text: str, tmp_path: Path) -> None:
    content, says = TEXTS[text]
    path = tmp_path / "odd.csv"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        source = find_sources([str(path)])[0]
        if "a" not in source.columns():
            raise DataError(f"no column 'a' in this CSV file: {list(source.columns())}", "-")
        list(source.frames(["a", "version", "diff"]))
    assert says in caught.value.message and "\n" not in caught.value.message
    assert len(caught.value.message) < 1000 and caught.value.hint


def test_a_packed_file_that_expands_without_end_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", compresslevel=9) as packed:
        packed.write(HEAD)
        for _ in range(40):
            packed.write(b"x" * 1_000_000)
    with pytest.raises(DataError, match="16 MiB"):
        list(find_sources([str(path)])[0].frames(["a", "version", "diff"]))
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match="Truncated"):
        list(find_sources([str(path)])[0].frames(["a", "version", "diff"]))


def test_a_nul_is_a_character(tmp_path: Path) -> None:
    path = tmp_path / "nul.csv"
    path.write_bytes(HEAD + b"a\0b,0,1\n")
    ((_, frame),) = find_sources([str(path)])[0].frames(["a"])
    assert frame["a"].to_list() == ["a\0b"]


# --- Delta tables as sources ------------------------------------------------------------------------------------------

ROWS_OF_TABLE = pl.DataFrame({"a": [1, 2], "version": [0, 0], "diff": [1, 1]})
Lines = list[dict[str, Any]]


def delta_table(folder: Path, change: Callable[[Lines], None]) -> Path:
    """A table of one commit, whose log is changed."""
    ROWS_OF_TABLE.write_delta(str(folder))
    commit = folder / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    change(lines)
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def with_add(**fields: Any) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        for line in lines:
            if "add" in line:
                line["add"] |= fields

    return change


def with_schema(text: str) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        for line in lines:
            if "metaData" in line:
                line["metaData"]["schemaString"] = text

    return change


def deep_schema(levels: int) -> str:
    inner = '{"type":"array","containsNull":true,"elementType":' * levels + '"long"' + "}" * levels
    return f'{{"type":"struct","fields":[{{"name":"a","nullable":true,"metadata":{{}},"type":{inner}}}]}}'


OUTSIDE = ["../kept/x.parquet", "..%2Fkept%2Fx.parquet", "%2e%2e/kept/x.parquet", "%252e%252e/kept/x.parquet",
           "part/../../kept/x.parquet", "{kept}/x.parquet", "file://{kept}/x.parquet", "http://127.0.0.1:9/x.parquet",
           "gs://bucket/x.parquet"]  # fmt: skip


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_table_whose_log_names_files_elsewhere(path: str, tmp_path: Path) -> None:
    """Else a table from somebody else would bring rows of any file that this user may read."""
    kept = tmp_path / "kept"
    kept.mkdir()
    ROWS_OF_TABLE.write_parquet(kept / "x.parquet")
    named = path.format(kept=kept)
    table = delta_table(tmp_path / "t", with_add(path=named, size=(kept / "x.parquet").stat().st_size, stats=None))
    with pytest.raises(DataError, match="outside of the table's folder"):
        find_sources([str(table)])


@pytest.mark.parametrize(
    "change",
    [
        with_add(path="gone.parquet"), with_add(path="a\0b.parquet"), with_add(path="a\x1b[31m.parquet"),
        with_add(size=-5), with_add(size=2**62), with_schema("nope"), with_schema(deep_schema(3000)),
    ],
)  # fmt: skip
def test_a_table_whose_log_is_wrong(change: Callable[[Lines], None], tmp_path: Path) -> None:
    table = delta_table(tmp_path / "t", change)
    with pytest.raises(DataError) as caught:
        list(find_sources([str(table)])[0].frames(["a", "version", "diff"]))
    assert "\n" not in caught.value.message and str(table) in caught.value.message and caught.value.hint


def test_bounds_in_a_log_that_lie_lose_no_row(tmp_path: Path) -> None:
    stats = {"numRecords": 0, "minValues": {"a": 100}, "maxValues": {"a": 100}, "nullCount": {"a": 5}}
    table = delta_table(tmp_path / "t", with_add(stats=json.dumps(stats)))
    ((_, frame),) = find_sources([str(table)])[0].frames(["a", "version", "diff"])
    assert sorted(frame.rows()) == [(1, 0, 1), (2, 0, 1)]


def test_a_log_with_a_huge_and_deep_line_is_read(tmp_path: Path) -> None:
    table = delta_table(tmp_path / "t", lambda lines: lines.append({"commitInfo": {"x": "y" * 20_000_000}}))
    with (table / "_delta_log" / f"{0:020d}.json").open("a") as log:
        log.write('{"commitInfo":' + "[" * 100_000 + "]" * 100_000 + "}\n")
    ((_, frame),) = find_sources([str(table)])[0].frames(["a"])
    assert len(frame) == 2


def test_a_checkpoint_that_lies_is_an_error(tmp_path: Path) -> None:
    table = tmp_path / "t"
    ROWS_OF_TABLE.write_delta(str(table))
    DeltaTable(str(table)).create_checkpoint()
    (checkpoint,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    shutil.copy(next(table.glob("*.parquet")), checkpoint)
    (table / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(DataError, match="not a readable Delta table"):
        find_sources([str(table)])


# --- in place of the warehouse's own files ----------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("room", ["inputs", "outputs", "state", "ledger"])
def test_a_crafted_file_in_place_of_ours(room: str, copied: Path, dd: Command) -> None:
    """Refused by its digest, before a library sees its pages."""
    command = {"inputs": ["run", "--full-refresh"], "outputs": ["show", "journeys"], "ledger": ["log"]}
    for content in (BASE, crafting.repeated(2**31 - 1), nested(1000), with_name(1, b"\xff"), b"", BASE[:100]):
        files = [file for file in (copied / "warehouse" / room).rglob("*.parquet") if "_delta_log" not in file.parts]
        kept = {file: file.read_bytes() for file in files}
        Path("more.csv").write_text("version,diff,src,dst,minutes\n6,1,Harbour,Mill,1\n")
        if room == "state":
            dd("ingest", "links", "more.csv", "-q")
        for file in files:
            file.write_bytes(content)
        code, out, err = dd(*command.get(room, ["run"]))
        assert (code, out, len(err)) == (1, [], 2), err
        assert "warehouse" in err[0] and room in err[0], err
        for file, before in kept.items():
            file.write_bytes(before)
    assert dd(*command.get(room, ["run"]))[0] == 0


LAYOUT = Layout({"k": Type("int64"), "v": Type("int64")}, ("k",), ("version",))


def foreign_run(path: Path, codes: list[int], change: Callable[[crafting.Tree], None]) -> LiveFile:
    """A run of an arrangement as another program might have written it: no digest, and a footer that lies."""
    sink = io.BytesIO()
    zeros = [0] * len(codes)
    table = pa.table({"k": codes, "v": codes, "version": zeros, "diff": [1] * len(codes), "_code": codes})
    pq.write_table(table, sink, row_group_size=4)
    path.write_bytes(crafting.changed(sink.getvalue(), change))
    return LiveFile(path.name, 0, len(codes), {}, {})


def test_wrong_bounds_in_a_file_of_another_program_misplace_no_row(tmp_path: Path) -> None:
    """As OPTIMIZE might leave one: its statistics are not used."""
    path = tmp_path / "part-0.parquet"

    def lie(footer: crafting.Tree) -> None:
        for group in range(3):
            for column in range(5):
                chunk = crafting.chunk_of(footer, column, group)
                bound = struct.pack("<q", 10**6)
                statistics = [[5, BINARY, bound], [6, BINARY, bound]]
                crafting.put(chunk, crafting.STATISTICS, crafting.STRUCT, statistics)

    (run,) = arrangements.open_runs(tmp_path, [foreign_run(path, list(range(10)), lie)], LAYOUT)
    lo, hi = run.locate(encode(pl.Series([0, 5, 9]), Type("int64")))
    assert (hi - lo).tolist() == [1, 1, 1]


def test_a_damaged_footer_of_another_program_is_an_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    """pyarrow's own accessor of column metadata would end the process here, so this has to run in another one."""
    path = tmp_path / "part-0.parquet"

    def damage(footer: crafting.Tree) -> None:
        for element in crafting.get(footer, SCHEMA)[1][1:]:
            crafting.put(element, 3, I32, 0)  # required, but its histograms are those of an optional column

    foreign_run(path, list(range(10)), damage)
    code = f"""
from pathlib import Path
from ddcore.base.errors import StorageError
from ddcore.io.state import arrangements
from ddcore.io.state.layout import Layout
from ddcore.io.delta.table_files import LiveFile
from ddcore.base.schema import Type

layout = Layout({{"k": Type("int64"), "v": Type("int64")}}, ("k",), ("version",))
try:
    arrangements.open_runs(Path({str(tmp_path)!r}), [LiveFile("part-0.parquet", 0, 10, {{}}, {{}})], layout)
except StorageError as error:
    print(error.message)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"cannot read {tmp_path}")
