"""Other engines that random queries are asked of: DuckDB, PostgreSQL, and Spark."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import duckdb
import polars as pl
from sql_duckdb import fill, like_postgres
from sql_tables import accumulated
from sql_types import span

from ddcore.base.schema import interval_form, uuid_mark

__all__ = ["DuckDb", "Peer", "PeerRefuses", "Postgres", "Spark", "postgres_server"]

NULL = "\\N"
Rows = list[tuple[Any, ...]]


class PeerRefuses(Exception):
    """The other engine takes no such query, or ends with an error on the rows."""


class Peer(Protocol):
    """An engine that holds tables at some versions."""

    def load(self, logs: Mapping[str, pl.DataFrame], versions: int) -> None:
        """Hold the tables of these logs."""

    def rows(self, query: str, version: int, schema: Mapping[str, Any]) -> Rows:
        """The rows of a query at a version, whose columns have these types here. Raises PeerRefuses."""


class DuckDb:
    """DuckDB, with PostgreSQL's rules or its own."""

    def __init__(self, as_postgres: bool) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        # 2.0.0 loses a LIMIT, and so EXISTS, over a LEFT JOIN whose right side its statistics call empty.
        self._connection.execute("set disabled_optimizers = 'statistics_propagation'")
        if as_postgres:
            like_postgres(self._connection)

    def load(self, logs: Mapping[str, pl.DataFrame], versions: int) -> None:
        """Hold the tables of these logs, in a schema for each version."""
        for version in range(versions):
            self._connection.execute("use main")
            self._connection.execute(f"drop schema if exists v{version} cascade")
            fill(self._connection, f"v{version}", logs, version)

    def rows(self, query: str, version: int, schema: Mapping[str, Any]) -> Rows:
        """The rows of a query at a version. Raises PeerRefuses."""
        try:
            self._connection.execute(f"use v{version}")
            spans = [number for number, kind in enumerate(schema.values()) if kind == interval_form()]
            if not spans:
                return self._connection.execute(query).fetchall()
            texts = ", ".join(f"c{number}::varchar AS c{number}" for number in spans)
            rows = self._connection.execute(f"SELECT * REPLACE ({texts}) FROM ({query})").fetchall()
            return [_with_spans(row, spans) for row in rows]
        except duckdb.Error as error:
            raise PeerRefuses(str(error).partition("\n")[0]) from error


def _with_spans(row: tuple[Any, ...], locations: Sequence[int]) -> tuple[Any, ...]:
    """A row whose intervals are texts, which would else be lengths without their months."""
    return tuple(span(value) if number in locations and value else value for number, value in enumerate(row))


class Spark:
    """A session of Spark."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def load(self, logs: Mapping[str, pl.DataFrame], versions: int) -> None:
        """Hold the tables of these logs, in a database for each version."""
        self._frames = [
            {name: self._frame(accumulated(log, version)) for name, log in logs.items()} for version in range(versions)
        ]

    def _frame(self, rows: pl.DataFrame) -> Any:
        return self._session.createDataFrame(rows.to_arrow()).cache()

    def rows(self, query: str, version: int, schema: Mapping[str, Any]) -> Rows:
        """The rows of a query at a version. Raises PeerRefuses."""
        for name, frame in self._frames[version].items():
            frame.createOrReplaceTempView(name)
        try:
            return [tuple(row) for row in self._session.sql(query).collect()]
        except Exception as error:  # of Spark, which has many
            raise PeerRefuses(str(error).partition("\n")[0]) from error


class Postgres:
    """A connection to PostgreSQL: psql, which gets one statement after the other."""

    def __init__(self, folder: Path) -> None:
        command = [
            "psql",
            "-h",
            str(folder),
            "-U",
            "postgres",
            "-d",
            "postgres",
            "-qAtX",
            "--csv",
            "-P",
            f"null={NULL}",
        ]
        self._psql = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._types = False

    def close(self) -> None:
        """End the connection."""
        self._psql.communicate("\\q\n")

    def load(self, logs: Mapping[str, pl.DataFrame], versions: int) -> None:
        """Hold the tables of these logs, in a schema for each version."""
        statements = []
        for version in range(versions):
            statements.append(f"CREATE SCHEMA IF NOT EXISTS v{version}")
            for name, log in logs.items():
                there = accumulated(log, version)
                table = f"v{version}.{name}"
                columns = ", ".join(f"{column} {_type(kind)}" for column, kind in there.schema.items())
                statements += [f"DROP TABLE IF EXISTS {table}", f"CREATE UNLOGGED TABLE {table} ({columns})"]
                if len(there):
                    kinds = [_type(kind) for kind in there.schema.values()]
                    rows = ", ".join(f"({', '.join(map(_literal, row, kinds))})" for row in there.rows())
                    statements.append(f"INSERT INTO {table} VALUES {rows}")
        self._ask("SET client_min_messages = error")
        if not self._types:
            self._ask("CREATE TYPE public.pair AS (x bigint, y text)")
            self._types = True
        self._ask("; ".join(statements))

    def rows(self, query: str, version: int, schema: Mapping[str, Any]) -> Rows:
        """The rows of a query at a version. Raises PeerRefuses."""
        self._ask(f"SET search_path = v{version}")
        readers = [_reader(kind) for kind in schema.values()]
        return [
            tuple(None if text == NULL else read(text) for read, text in zip(readers, row or [""], strict=True))
            for row in csv.reader(io.StringIO(self._ask(query)), quoting=csv.QUOTE_MINIMAL)
        ]

    def _ask(self, statement: str) -> str:
        assert self._psql.stdin and self._psql.stdout
        text = " ".join(statement.split("\n"))
        self._psql.stdin.write(f"{text};\n\\echo '--end' :ERROR :LAST_ERROR_MESSAGE\n")
        self._psql.stdin.flush()
        lines: list[str] = []
        for line in self._psql.stdout:
            if line.startswith("--end "):
                _, is_error, message = line.rstrip("\n").split(" ", 2)
                if is_error == "true":
                    raise PeerRefuses(message)
                return "".join(lines)
            lines.append(line)
        raise PeerRefuses("psql has ended")


def _type(kind: Any) -> str:
    if isinstance(kind, pl.Decimal):
        return f"numeric({kind.precision}, {kind.scale})"
    if isinstance(kind, pl.List):
        return f"{_type(kind.inner)}[]"
    if kind == uuid_mark() or kind == interval_form():
        return "uuid" if kind == uuid_mark() else "interval"
    if isinstance(kind, pl.Struct):
        return "public.pair"
    names = {
        pl.Int64: "bigint", pl.String: "text", pl.Boolean: "boolean", pl.Date: "date", pl.Datetime: "timestamp",
        pl.Float64: "double precision", pl.Time: "time", pl.UInt64: "numeric(20,0)",
    }  # fmt: skip
    return names[kind.base_type()]


def _literal(value: Any, kind: str = "") -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(_literal, value))}]::{kind}"
    if isinstance(value, dict) and kind == "interval":
        return f"'{' '.join(f'{number} {unit}' for unit, number in value.items())}'::interval"
    if isinstance(value, dict):
        return f"ROW({', '.join(map(_literal, value.values()))})::{kind}"
    if isinstance(value, str | date | datetime | time):
        return "'" + str(value).replace("'", "''") + "'"
    return str(value)


def _reader(kind: Any) -> Callable[[str], Any]:
    """What makes a value of what psql writes for it."""
    if isinstance(kind, pl.List):
        read = _reader(kind.inner)
        return lambda text: [None if it == "NULL" else read(it.strip('"')) for it in text[1:-1].split(",") if it]
    if kind == interval_form():
        return span
    if kind.is_float():
        return float
    if kind.is_numeric():
        return Decimal
    makers: dict[Any, Callable[[str], Any]] = {
        pl.Boolean: lambda text: text == "t", pl.Date: date.fromisoformat, pl.Datetime: datetime.fromisoformat,
        pl.Time: time.fromisoformat,
    }  # fmt: skip
    return makers.get(kind.base_type(), str)


def _binaries() -> Path | None:
    """The folder of PostgreSQL's programs, the newest where Debian keeps several; None where there is none."""
    known = shutil.which("initdb")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    return Path(known).parent if known else folders[-1] if folders else None


@contextmanager
def postgres_server() -> Iterator[Path | None]:
    """A server in a folder of its own, which ends with the block: the folder of its socket, or None."""
    binaries = _binaries()
    if binaries is None or not shutil.which("psql"):
        yield None
        return
    user: dict[str, Any] = {"user": "nobody", "group": "nogroup"} if os.getuid() == 0 else {}  # it refuses root
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as name:
        folder = Path(name)
        if user:
            shutil.chown(folder, **user)

        def run(program: str, *arguments: str) -> None:
            command = [str(binaries / program), "-D", f"{folder}/data", *arguments]
            out = subprocess.DEVNULL
            subprocess.run(command, check=True, cwd=folder, stdout=out, stderr=out, **user)

        run("initdb", "-A", "trust", "-U", "postgres", "--locale=C", "-E", "UTF8", "--no-sync")
        settings = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off -c jit=off -c timezone=UTC"
        run("pg_ctl", "-w", "start", "-o", settings)
        try:
            yield folder
        finally:
            with suppress(subprocess.CalledProcessError):
                run("pg_ctl", "-m", "immediate", "stop")
