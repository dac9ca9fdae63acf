"""DuckDB with the tables of a version, and rows that can be compared."""

from __future__ import annotations

import atexit
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

import duckdb
import polars as pl
from sql_tables import accumulated

from ddcore.base.schema import interval_form, uuid_mark


@contextmanager
def database(logs: Mapping[str, pl.DataFrame], version: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the tables at a version, and PostgreSQL's rules for integers and for the order of nulls.

    A schema of one database: a database of its own would take 15 ms to begin.
    """
    with _duckdb().cursor() as connection:
        like_postgres(connection)
        fill(connection, "passing", logs, version)
        try:
            yield connection
        finally:
            connection.execute("drop schema passing cascade")


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """One for all tests of a process. It ends before Python does, else DuckDB writes of leaks there."""
    atexit.register(_duckdb.cache_clear)
    return duckdb.connect()


def like_postgres(connection: duckdb.DuckDBPyConnection) -> None:
    """PostgreSQL's rules for integers and for the order of nulls."""
    connection.execute("set integer_division = true")
    connection.execute("set error_on_division_by_zero = false")
    connection.execute("set default_null_order = 'nulls_last_on_asc_first_on_desc'")


def fill(connection: duckdb.DuckDBPyConnection, schema: str, logs: Mapping[str, pl.DataFrame], version: int) -> None:
    """A new schema, which queries read then, with the tables at a version."""
    connection.execute(f"create schema {schema}")
    connection.execute(f"use {schema}")
    for name, log in logs.items():
        rows = accumulated(log, version)
        plain = [column for column, kind in rows.schema.items() if kind == uuid_mark()]
        connection.register("arriving", rows.with_columns(pl.col(plain).ext.storage()).to_arrow())
        columns = ", ".join(_typed(column, kind) for column, kind in rows.schema.items())
        connection.execute(f"create table {name} as select {columns} from arriving")
        connection.unregister("arriving")


def _typed(column: str, kind: Any) -> str:
    """A column of Arrow in DuckDB's type."""
    if kind == uuid_mark():
        return f"{column}::uuid AS {column}"
    if kind == interval_form():
        parts = zip(("months", "days", "microseconds"), kind.fields, strict=True)
        return f"{' + '.join(f'to_{unit}({column}.{part.name})' for unit, part in parts)} AS {column}"
    return f"{column}::time AS {column}" if kind == pl.Time else column


def bag(rows: Sequence[Sequence[Any]]) -> Counter[tuple[Any, ...]]:
    """Rows that can be compared: numbers by value, floats without their last digits."""
    return Counter(tuple(_comparable(value) for value in row) for row in rows)


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.10g}") if not math.isnan(value) else "NaN"
    if isinstance(value, list):
        return tuple(map(_comparable, value))
    if isinstance(value, dict):
        return tuple(sorted((key, _comparable(inner)) for key, inner in value.items()))
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, UUID):
        return str(value)
    return Decimal(value).normalize() + 0 if isinstance(value, Decimal) else value
