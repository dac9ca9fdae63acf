"""JSON lines: UTF-8, one JSON object on each line, plain or compressed. A field that a line lacks is null.

JSON has numbers, text, true and false; ``dd.toml`` says what they are. pyarrow reads numbers as the declared type and
nothing else. Dates, timestamps and bytes are text, which :func:`ddcore.io.sources.row_checks.rows_of` parses as that of
CSV files.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from ddcore.base.errors import DataError
from ddcore.base.lazy import polars as pl
from ddcore.base.lazy import pyarrow as pa
from ddcore.base.schema import Type
from ddcore.io.sources.jsonobjects import (
    CUT,
    TEXTS,
    Object,
    Tree,
    first_misfit,
    kind_of,
    parse_object,
    value_at,
    written,
)
from ddcore.io.sources.source import Batches, Source, first_line
from ddcore.io.sources.validation import first_bad

# pyarrow 26 ends the process where null stands outside of an object. Inside it follows one of : , [
_INSIDE = (b":null", b": null", b",null", b", null", b"[null", b"[ null")
_BARE_NULL = re.compile(rb"(?:^|[^:,\[\s])\s*null")


_ARRAY = "a file of one array is not read; one object per line: jq -c '.[]' FILE.json > FILE.jsonl"


@dataclass(frozen=True)
class JsonLines(Source):
    """A file of JSON lines. ``declared``: the types that its fields are to have, by name or path; None for that of the
    first value. ``block``: bytes that are read at a time; ``longest``: of a line; ``searched``: of the lines that are
    searched for fields, if these have all that are wanted.
    """

    kind = "JSON lines file"
    hint = "each line needs one JSON object: find and fix the line at the source"
    is_text = True

    declared: Mapping[str, Type | None] = field(default_factory=dict, hash=False)
    block: int = field(default=4 << 20, kw_only=True, repr=False)
    longest: int = field(default=16 << 20, kw_only=True, repr=False)
    searched: int = field(default=1 << 20, kw_only=True, repr=False)

    def as_declared(self, types: Mapping[str, Type | None]) -> Source:
        """This file, read as these types."""
        return replace(self, declared=dict(types))

    def as_texts(self) -> Source:
        """This file with each line as a text."""
        return JsonTexts(self.name, self.path, self.folders, self.member, block=self.block, longest=self.longest)

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The fields of the first lines, and the declared ones of all lines; those that are not declared as null."""
        tree = self._tree
        return [(name, _arrow(tree[name]) if name in tree else pa.null()) for name in self._names.names]

    def batches(self, columns: Sequence[str]) -> Batches:
        """Batches of some 4 MiB of the file."""
        tree = {name: self._tree[name] for name in columns if name in self._tree}
        for first_line_number, block in self._blocks():
            maps = {name: node for name, node in tree.items() if isinstance(node, Type) and node.name == "map"}
            table = self._parse_block(block, first_line_number, {n: kind for n, kind in tree.items() if n not in maps})
            for name, kind in maps.items():
                table = table.append_column(name, self._maps(block, first_line_number, name, kind))
            for name in columns:
                if name not in tree:  # any column, for the number of rows
                    table = table.append_column(name, pa.nulls(table.num_rows))
            yield table.select(list(columns))

    def first_objects(self, most: int) -> list[Object]:
        """The objects on the first lines. DataError for a line that is none."""
        found = list[Object]()
        for number, block in self._blocks():
            for line_number, line in enumerate(block.split(b"\n"), number):
                if len(found) == most:
                    return found
                if line.strip() and line.strip() != b"null":  # a tombstone of Debezium
                    found.append(self._object(line, line_number))
        return found

    # --- the fields ---

    @cached_property
    def _names(self) -> _Names:
        """The names of fields at the top, and the declared names and paths that some line has.

        Reads the first MiB; goes on to the first line that has the last declared one, at worst to the end.
        """
        names: dict[str, None] = {}
        missing, seen, kinds, done = set(self.declared), set[str](), dict[str, Type](), 0
        for number, block in self._blocks():
            for line_number, line in enumerate(block.split(b"\n"), number):
                if done > self.searched and not any(_may_have(line, path) for path in missing):
                    continue
                if not line.strip():
                    continue
                value = self._object(line, line_number)
                if done <= self.searched:
                    names.update(dict.fromkeys(value))
                for path in [path for path in missing if _has(value, path)]:
                    if self.declared[path] is None:
                        if (kind := kind_of(value_at(value, path))) is None:
                            continue
                        kinds[path] = kind
                    missing.discard(path)
                    seen.add(path)
                    names.setdefault(path if path in value else path.partition(".")[0])
                done += len(line) + 1
            if done > self.searched and not missing:
                break
        if not done:
            raise DataError(f"{self.name}: an empty file, without any line", "leave it out, or write it again")
        return _Names(tuple(names), frozenset(seen), kinds)

    @cached_property
    def _tree(self) -> Tree:
        """The types of the declared fields that the file has, by the steps of their paths."""
        tree: dict[str, Any] = {}
        for path, declared in self.declared.items():
            if path not in self._names.seen:
                continue
            kind = declared or self._names.kinds[path]
            *parents, last = [path] if path in self._names.names else path.split(".")
            inside = tree
            for step in parents:
                inside = inside.setdefault(step, {})
                if isinstance(inside, Type):
                    raise self._read_twice(path)
            if last in inside and inside[last] != kind:
                raise self._read_twice(path)
            inside[last] = kind
        return tree

    def _read_twice(self, path: str) -> DataError:
        return DataError(
            f"{self.name}: {path!r} is read as two types, or both whole and by its fields",
            "declare one type for it in dd.toml, or name only its fields with --column",
        )

    # --- the lines ---

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        """Whole lines of some 4 MiB, each with the number of the first. DataError for text that is not UTF-8."""
        number, rest = 1, b""
        with self.stream() as file:
            while chunk := file.read(self.block):
                if number == 1 and not rest:
                    chunk = chunk.removeprefix(b"\xef\xbb\xbf")
                whole, newline, after = chunk.rpartition(b"\n")
                if newline:
                    whole = rest + whole
                    self._check_length(whole, number)
                    yield number, self._checked(whole, number)
                    number += whole.count(b"\n") + 1
                    rest = b""
                rest += after
                self._check_length(rest, number)
        if rest:
            yield number, self._checked(rest, number)

    def _check_length(self, lines: bytes, number: int) -> None:
        """Raise DataError for a first line that is too long, without its end; the others are within one chunk."""
        end = lines.find(b"\n")
        end = len(lines) if end < 0 else end
        if end - (lines[end - 1 : end] == b"\r") > self.longest:
            hint = "write one object on each line; longer ones are read from Parquet only"
            raise self.unreadable(f"line {number} has more than {self.longest >> 20} MiB", hint)

    def _checked(self, block: bytes, number: int) -> bytes:
        try:
            block.decode()
        except UnicodeDecodeError as error:
            line = number + block.count(b"\n", 0, error.start)
            if error.end == len(block) and error.reason == "unexpected end of data":
                raise self.unreadable(f"line {line} is not JSON: it is cut off before its end", CUT) from error
            raise DataError(
                f"{self.name}: not UTF-8: {first_line(error)} (line {line})",
                "write it again as UTF-8, for example with: iconv",
            ) from error
        return block

    def _parse_block(self, block: bytes, number: int, tree: Tree) -> pa.Table:
        """The objects on these lines. DataError for the first line that is not one object of the declared types."""
        schema = pa.schema([(name, _arrow(node)) for name, node in tree.items()])
        if block.count(b"null") != sum(map(block.count, _INSIDE)):  # perhaps only in a text
            for line_number, line in enumerate(block.split(b"\n"), number):
                if _BARE_NULL.search(line):
                    self._object(line, line_number)
        try:
            table = _parse(block, schema)
            table.validate(full=True)
        except pa.ArrowException as error:
            raise self._misfit(block.split(b"\n"), number, schema, tree) from error
        many = table.num_rows  # where it is not that of lines, some are empty, or an object does not have its line
        if many != block.count(b"\n") + 1 and many != sum(1 for line in block.split(b"\n") if line.strip()):
            deque(self._objects(block, number), maxlen=0)
        return table

    def _maps(self, block: bytes, number: int, name: str, kind: Type) -> pa.ChunkedArray:
        """The objects of one field as maps: Arrow reads them as lists of their entries."""
        lines = []
        for line_number, value in self._objects(block, number):
            if misfit := first_misfit(value, {name: kind}):
                raise DataError(f"{self.name}: column {misfit.path!r}: {misfit.what} (line {line_number})", misfit.hint)
            there = value.get(name)
            entries = None if there is None else [{"key": key, "value": one} for key, one in there.items()]
            lines.append(written({name: entries}).encode())
        entry = pa.struct([("key", pa.string()), ("value", _arrow(kind.fields[1][1]))])
        column = pl.from_arrow(_parse(b"\n".join(lines), pa.schema([(name, pa.list_(entry))]))[name])
        assert isinstance(column, pl.Series) and isinstance(column.dtype, pl.List)
        fields = [field.dtype for field in column.dtype.inner.fields]  # type: ignore[union-attr]
        return pa.chunked_array([column.cast(pl.Map(*fields)).to_arrow()])

    def _misfit(self, lines: list[bytes], number: int, schema: pa.Schema, tree: Tree) -> DataError:
        """What is wrong with the first line that pyarrow refuses; found by halves."""
        bad = first_bad(len(lines), lambda low, high: _is_fine(lines[low:high], schema))
        where = f"(line {number + bad})"
        if misfit := first_misfit(self._object(lines[bad], number + bad), tree):
            return DataError(f"{self.name}: column {misfit.path!r}: {misfit.what} {where}", misfit.hint)
        try:
            _parse(lines[bad], schema).validate(full=True)
        except pa.ArrowException as error:
            return self.unreadable(f"{first_line(error)} {where}")
        raise AssertionError(f"{self.name}: no line by itself is refused")

    def _objects(self, block: bytes, number: int) -> Iterator[tuple[int, Object]]:
        """The objects on the lines that are not empty, each with the number of its line."""
        for line_number, line in enumerate(block.split(b"\n"), number):
            if line.strip():
                yield line_number, self._object(line, line_number)

    def _object(self, line: bytes, number: int) -> Object:
        """The object on a line. DataError for anything else."""
        try:
            return parse_object(line.decode())
        except ValueError as error:
            what = f"line {number} is {first_line(error)}"
            is_list = number == 1 and line.lstrip().startswith(b"[")
            hint = _ARRAY if is_list else CUT if "cut off" in what else self.hint
            raise self.unreadable(what, hint) from error


@dataclass(frozen=True)
class JsonTexts(JsonLines):
    """A file of JSON lines with each line as a text, in the column ``value``. ``null`` is a line without a value."""

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The column of texts."""
        if not any(block.strip() for _, block in self._blocks()):
            raise DataError(f"{self.name}: an empty file, without any line", "leave it out, or write it again")
        return [("value", pa.string())]

    def batches(self, columns: Sequence[str]) -> Batches:
        """The lines that are not empty, in batches of some 4 MiB."""
        yield from (batch for _, batch in self.numbered(columns))

    def numbered(self, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch | pa.Table]]:
        """The blocks, each with the number of its first line."""
        for number, block in self._blocks():
            lines = pl.DataFrame({"value": block.decode().split("\n")}, {"value": pl.String}).with_row_index("_line")
            text = pl.col("value").str.strip_chars()
            lines = lines.filter(text != "").with_columns(pl.when(text != "null").then(text).alias("value"))
            gap = pl.col("_line") - pl.int_range(pl.len())  # lines between two empty ones have one gap
            for part in lines.with_columns(gap.alias("_gap")).partition_by("_gap", maintain_order=True):
                yield number + part["_line"][0], part.select(columns).to_arrow()


class _Names(NamedTuple):
    """The fields at the top of the lines, which of the declared names and paths there are, and the types of those that
    are declared without one.
    """

    names: tuple[str, ...]
    seen: frozenset[str]
    kinds: Mapping[str, Type]


def _may_have(line: bytes, path: str) -> bool:
    """Whether a line may have the last step of a path as a key; keys may be written with escapes."""
    return b"\\u" in line or json.dumps(path.rpartition(".")[2], ensure_ascii=False).encode()[1:-1] in line


def _has(value: dict[str, Any], path: str) -> bool:
    """Whether an object has a field of this name, or fields at the steps of this path."""
    try:
        value_at(value, path)
    except KeyError:
        return False
    return True


def _arrow(node: Type | Tree) -> pa.DataType:
    """The type that pyarrow reads: the declared one, but text for what JSON has as text only."""
    if not isinstance(node, Type):
        return pa.struct([(name, _arrow(inner)) for name, inner in node.items()])
    if node.element is not None:
        return pa.list_(_arrow(node.element))
    if node.name == "map":
        return pa.map_(pa.string(), _arrow(node.fields[1][1]))
    if node.fields:
        return pa.struct([(name, _arrow(inner)) for name, inner in node.fields])
    return pa.string() if node.name in TEXTS else node.arrow


def _parse(block: bytes, schema: pa.Schema) -> pa.Table:
    from pyarrow import json as reader

    if not block.strip():
        return pa.Table.from_batches([], schema)
    return reader.read_json(
        pa.BufferReader(block),
        read_options=reader.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=reader.ParseOptions(
            explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="ignore"
        ),
    )


def _is_fine(lines: list[bytes], schema: pa.Schema) -> bool:
    try:
        _parse(b"\n".join(lines), schema).validate(full=True)
    except pa.ArrowException:
        return False
    return True
