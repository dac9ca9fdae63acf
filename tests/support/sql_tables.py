"""Small tables for random queries, with nulls and duplicates: their columns, and histories in which rows come and go.

A query is for a dialect of ddcore and for one other engine (``Target``).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
from sql_types import JSONS, TABLE
from sql_types import value as value_of_type

from ddcore.base.schema import uuid_mark

SCHEMAS: dict[str, dict[str, Any]] = {
    "r": {"a": pl.Int64, "b": pl.Int64, "s": pl.String, "m": pl.Decimal(10, 2)},
    "q": {"a": pl.Int64, "c": pl.Int64, "u": pl.String, "f": pl.Boolean, "d": pl.Date},
}
WIDE: dict[str, dict[str, Any]] = {
    "r": {**SCHEMAS["r"], "g": pl.Decimal(18, 4)},
    "q": {**SCHEMAS["q"], "h": pl.Decimal(38, 3), "ts": pl.Datetime("us"), "l": pl.List(pl.Int64)},
    "p": TABLE,
}
"""The tables of random queries, with decimals of many digits, moments, lists, and types of all other kinds."""
KINDS = {pl.Int64: "int", pl.String: "text", pl.Boolean: "bool", pl.Date: "date"}
TEXTS = ("x", "y", "xy", "ab%", "")
Named = tuple[str, str]
"""A column as a query names it, and its kind: int, text, decimal, bool, date, moment, list, float, or one of
:data:`sql_types.KINDS`.
"""


@dataclass(frozen=True)
class Target:
    """A dialect of ddcore, another engine with nearly the same words, and what a query for both may have."""

    dialect: str
    engine: str
    parts: frozenset[str]

    @property
    def tables(self) -> Mapping[str, Mapping[str, Any]]:
        """The tables of queries; those for Spark have no moments and lists, of which its dialect has little."""
        parts = ((pl.Datetime, "moments"), (pl.List, "lists"), (pl.Map, "maps"))
        kinds = [kind for kind, part in parts if not self.has(part)]
        return {
            name: {column: kind for column, kind in schema.items() if kind not in kinds}
            for name, schema in WIDE.items()
            if name != "p" or self.has("types")
        }

    def has(self, part: str) -> bool:
        """Whether queries have a part."""
        return part in self.parts


_SHARED = {"around", "dates", "moments", "lists", "unnest", "aggregates", "series", "windows", "quantifiers"} | {
    "types"
}
TARGETS = {
    "duckdb": Target("postgres", "duckdb", frozenset({*_SHARED, "asof", "null / 0"})),
    "postgres": Target("postgres", "postgres", frozenset({*_SHARED, "numeric sums", "any of lists", "several lists"})),
    "duckdb words": Target(
        "duckdb",
        "duckdb",
        frozenset({*_SHARED, "asof", "any of lists", "quotients", "infinity", "maps"} - {"aggregates", "series"}),
    ),
    "spark words": Target("spark", "spark", frozenset({"quotients"})),
}
"""PostgreSQL's dialect by DuckDB and by PostgreSQL, and the dialects of DuckDB and of Spark by themselves."""


def random_logs(
    rng: random.Random, versions: int = 3, rows: int = 8, schemas: Mapping[str, Mapping[str, Any]] = SCHEMAS
) -> dict[str, pl.DataFrame]:
    """Change logs whose values are few, so that rows repeat, and null now and then. Later versions also retract."""
    return {name: _log(rng, schema, versions, rows) for name, schema in schemas.items()}


def _log(rng: random.Random, schema: Mapping[str, Any], versions: int, rows: int) -> pl.DataFrame:
    updates: list[tuple[Any, ...]] = []
    there: Counter[tuple[Any, ...]] = Counter()
    for version in range(versions):
        for row in list(there.elements()):
            if rng.random() < 0.3:
                updates.append((*row, version, -1))
                there[row] -= 1
        for _ in range(rng.randrange(rows + 1)):
            row = tuple(_value(rng, kind, name) for name, kind in schema.items())
            updates.append((*row, version, 1))
            there[row] += 1
    columns = [
        _column(name, kind, [row[number] for row in updates]) for number, (name, kind) in enumerate(schema.items())
    ]
    times, diffs = ([row[location] for row in updates] for location in (-2, -1))
    return pl.DataFrame([*columns, pl.Series("version", times, pl.Int64), pl.Series("diff", diffs, pl.Int64)])


def _column(name: str, kind: Any, values: list[Any]) -> pl.Series:
    if kind == uuid_mark():
        return pl.Series(name, values, pl.String).ext.to(kind)
    return pl.Series(name, [dict(one) if isinstance(one, Entries) else one for one in values], kind)


def _value(rng: random.Random, kind: Any, name: str = "") -> Any:  # noqa: PLR0911  (one kind, one return)
    if rng.random() < 0.2:
        return None
    if kind == pl.Int64:
        return rng.randrange(-1, 4)
    if kind == pl.String:
        return rng.choice(JSONS if name == "j" else TEXTS)
    if kind == pl.Boolean:
        return rng.random() < 0.5
    if kind == pl.Date:
        return date(2024, 1, 30) + timedelta(rng.randrange(4))
    if kind == pl.Datetime:
        return datetime(2024, 1, 31, 22) + timedelta(minutes=30 * rng.randrange(10))
    if kind == pl.List:
        return tuple(_value(rng, kind.inner) for _ in range(rng.randrange(4)))
    if not isinstance(kind, pl.Decimal):
        made = value_of_type(rng, kind)
        return Entries(made.items()) if isinstance(made, dict) else made
    size = {18: 4000, 38: 3 * 10**20}.get(kind.precision, 0)
    return Decimal(rng.randrange(-3, 4)) / 4 + rng.choice((0, size, -size))


def accumulated(log: pl.DataFrame, version: int) -> pl.DataFrame:
    """The rows of a log at a version, each as often as it is there."""
    columns = [name for name in log.columns if name not in ("version", "diff")]
    counts = log.filter(pl.col("version") <= version).group_by(columns).agg(pl.col("diff").sum())
    assert counts.filter(pl.col("diff") < 0).is_empty(), "a row is there less than not at all"
    numbers = [index for index, count in enumerate(counts["diff"]) for _ in range(count)]
    return counts.select(columns)[numbers]


class Entries(tuple[Any, ...]):
    """The items of a dict, as a value that can be counted."""


def kind_of(kind: Any) -> str:
    """What queries call a type."""
    if kind in (pl.Datetime, pl.List):
        return "moment" if kind == pl.Datetime else "list"
    return KINDS.get(kind, "decimal")
