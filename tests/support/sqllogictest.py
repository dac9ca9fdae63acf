"""Files of SQLite's sqllogictest: their records, and how a result is written in them.

A record is a statement or a query, with its line and the conditions under which it holds for a database. A result is a
list of values, one a line, in the order that the record names; of many values only their number and a hash are there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Query", "Statement", "formatted", "matches", "records"]

DATABASE = "postgresql"
_HASHED = re.compile(r"(\d+) values hashing to ([0-9a-f]{32})")
_NUMBER = re.compile(r"\s*([+-]?\d+)")


@dataclass(frozen=True)
class Statement:
    """SQL that changes tables; ``fails``: it has to be an error."""

    line: int
    sql: str
    fails: bool


@dataclass(frozen=True)
class Query:
    """A query, the types of its columns (I, R or T each), the order of its result, and the result."""

    line: int
    sql: str
    types: str
    order: str
    result: tuple[str, ...]


def records(text: str, database: str = DATABASE) -> Iterator[Statement | Query]:
    """The records that hold for a database, in their order, up to a halt."""
    line = 1
    for block in re.split(r"(\n(?:[ \t]*\n)+)", text):
        lines = block.split("\n")
        height = len(lines) - 1
        lines = lines[: len(block.rstrip("\n").split("\n"))]
        if any(item and not item.startswith("#") for item in lines):
            record = _record(lines, line, database)
            if record == "halt":
                return
            if isinstance(record, Statement | Query):
                yield record
        line += height


def _record(lines: Sequence[str], line: int, database: str) -> Statement | Query | str | None:
    for number, head in enumerate(lines):
        words = head.partition("#")[0].split()
        if not words:
            continue
        if (words[0] == "skipif" and words[1] == database) or (words[0] == "onlyif" and words[1] != database):
            return None
        if words[0] in ("skipif", "onlyif"):
            continue
        if words[0] in ("halt", "hash-threshold"):
            return words[0]
        body, start = lines[number + 1 :], line + number + 1
        if words[0] == "statement":
            return Statement(start, "\n".join(body), words[1] == "error")
        if words[0] != "query":
            raise ValueError(f"line {line + number}: {head!r} begins no record")
        end = body.index("----") if "----" in body else len(body)
        order = words[2] if len(words) > 2 else "nosort"
        return Query(start, "\n".join(body[:end]), words[1], order, tuple(body[end + 1 :]))
    return None


def formatted(rows: Iterable[Sequence[Any]], types: str) -> list[tuple[str, ...]]:
    """Rows as a result has them."""
    return [tuple(_written(value, kind) for value, kind in zip(row, types, strict=True)) for row in rows]


def _written(value: Any, kind: str) -> str:
    if value is None:
        return "NULL"
    if kind == "I":
        number = _NUMBER.match(value) if isinstance(value, str) else None
        return str(int(number[1] if number else 0)) if isinstance(value, str) else str(int(value))
    if kind == "R":
        return f"{float(value):.3f}"
    text = str(int(value)) if isinstance(value, bool) else str(value)
    return "".join(item if " " <= item <= "~" else "@" for item in text) or "(empty)"


def matches(query: Query, rows: Sequence[tuple[str, ...]]) -> bool:
    """Whether written rows are the result of a query, in its order."""
    rows = sorted(rows) if query.order == "rowsort" else rows
    values = [value for row in rows for value in row]
    if query.order == "valuesort":
        values.sort()
    hashed = _HASHED.fullmatch(query.result[0]) if len(query.result) == 1 else None
    if hashed is None:
        return values == list(query.result)
    digest = hashlib.md5("".join(f"{value}\n" for value in values).encode(), usedforsecurity=False)
    return len(values) == int(hashed[1]) and digest.hexdigest() == hashed[2]
