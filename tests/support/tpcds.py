"""TPC-DS's 99 queries over small random tables that change: ``make test-tpcds``.

The texts and the columns are those of sqlglot's own tests, in the source package of the release that is installed. pip
fetches it once, into the cache folder, and it never becomes a part of this repository. Values are drawn from the
literals of each query, and days from a calendar, so that its conditions hold for some rows: tables of other sizes are
tried until DuckDB has rows for the query. Each version adds rows and takes others away, and ddcore's result has to be
DuckDB's at each. The ``LIMIT`` at the end of a query is left out: it cuts among equal rows.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import random
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import polars as pl
import sqlglot
from sql_duckdb import bag, database
from sql_tables import accumulated
from sqlglot import exp

import ddcore
from ddcore.base.cache import cache_folder
from ddcore.base.errors import DdError
from ddcore.sql import program

VERSIONS = 3
_KINDS = {"bigint": pl.Int64, "double": pl.Float64, "string": pl.String, "date": pl.Date}
_FACTS = ("sales", "returns", "inventory")
_OF_RETURNS = ("sr_", "cr_", "wr_")
_LIMIT = re.compile(r"\s+LIMIT\s+\d+\s*$", re.IGNORECASE)
_MOST_LITERALS = 20
Schemas = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Size:
    """How many rows facts, returns and other tables have, and how many numbers there are that no query names."""

    fact: int = 250
    returned: int = 250
    dimension: int = 8
    numbers: int = 3


SIZES = (
    Size(), Size(1000, 1000), Size(1000, 60, numbers=40), Size(300, 300, 60), Size(1500, 1500, 4), Size(60, 20, 300),
    Size(1500, 1500, 3, 1), Size(2500, 2500, 4), Size(6000, 300), Size(300, 300, 1500), Size(6000, 3000, 12, 8),
)  # fmt: skip
"""The smallest first; a query that asks for much gets larger ones."""


def fetched() -> Path:
    """The source package of the installed sqlglot, in the cache folder; pip fetches it if it is not there."""
    folder, version = cache_folder() / "tpcds", metadata.version("sqlglot")
    archive = folder / f"sqlglot-{version}.tar.gz"
    if not archive.exists():
        print(f"fetching the source package of sqlglot {version} with pip", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as new:  # moved into place whole
            options = ["--quiet", "--no-deps", "--no-binary", "sqlglot", "--dest", new, f"sqlglot=={version}"]
            subprocess.run([sys.executable, "-m", "pip", "download", *options], check=True)
            (Path(new) / archive.name).rename(archive)
    return archive


def suite() -> tuple[list[str], Schemas]:
    """The queries in order, and the columns of all tables."""
    archive = fetched()
    with tarfile.open(archive) as package:
        folder = archive.name.removesuffix(".tar.gz")
        text, helpers = (
            _member(package, f"{folder}/tests/{name}")
            for name in ("fixtures/optimizer/tpc-ds/tpc-ds.sql", "helpers.py")
        )
    kept = [line for line in text.splitlines() if line.strip() and not line.startswith(("--", "#"))]
    queries = [part.strip() for part in "\n".join(kept).split(";")][::2]  # the others are what sqlglot makes of them
    tree = ast.parse(helpers)
    columns = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "TPCDS_SCHEMA"
    )
    schemas = {
        table: {name: pl.Date if name.endswith("_date") else _KINDS[kind] for name, kind in found.items()}
        for table, found in ast.literal_eval(columns).items()
    }
    return [query for query in queries if query], schemas


def _member(package: tarfile.TarFile, name: str) -> str:
    file = package.extractfile(name)
    assert file is not None, f"the package has no {name}"
    return file.read().decode()


# -- tables for a query -----------------------------------------------------------------------------------------------


def literals(query: exp.Expr) -> dict[str, list[Any]]:
    """What the query compares columns with, by the columns' names; for numbers also those beside. None: is null."""
    found: dict[str, list[Any]] = {}
    for node in query.find_all(exp.EQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between, exp.Like):
        own = [*node.walk(prune=lambda part: isinstance(part, exp.Query | exp.AggFunc))]
        names = [item.name.lower() for item in own if isinstance(item, exp.Column)]
        values = [_value(item) for item in own if isinstance(item, exp.Literal)]
        ints = [value for value in values if isinstance(value, int)]
        values += [a + b for a, b in itertools.pairwise(ints)]
        if isinstance(node, exp.GT | exp.GTE):
            numbers = [item for item in values if isinstance(item, int | float)]
            values += [type(number)(number * 1.5) + 1 for number in numbers] + [
                int(number * 2) + 1 for number in numbers
            ]
        if isinstance(node, exp.LT | exp.LTE):
            values += [type(item)(item / 1.5) - 1 for item in values if isinstance(item, int | float)]
        for name in names:
            found.setdefault(name, []).extend(values)
    for node in query.find_all(exp.EQ):  # columns that are compared share what they are compared with
        names = [item.name.lower() for item in node.find_all(exp.Column)]
        both = [value for name in names for value in found.get(name, [])]
        found |= {name: list(both) for name in names}
    for node in query.find_all(exp.Is):
        if isinstance(node.this, exp.Column) and not isinstance(node.parent, exp.Not):
            found.setdefault(node.this.name.lower(), []).append(None)
    return found


def _value(node: exp.Literal) -> Any:
    if not node.is_string:
        sign = -1 if isinstance(node.parent, exp.Neg) else 1
        return sign * (float(node.name) if "." in node.name else int(node.name))
    days = re.fullmatch(r"(\d{4})-(\d{1,2})-(\d{1,2})", node.name)
    text = node.name.replace("%", "") if isinstance(node.parent, exp.Like) else node.name
    return date(*map(int, days.groups())) if days else text


def logs(rng: random.Random, query: exp.Expr, schemas: Schemas, size: Size = SIZES[0]) -> dict[str, pl.DataFrame]:
    """Change logs of the tables that a query names."""
    known = {name: _some(values) for name, values in literals(query).items()}
    tables = {node.name.lower() for node in query.find_all(exp.Table)} & set(schemas)
    return {table: _log(rng, table, schemas[table], known, size) for table in sorted(tables)}


def _some(values: Sequence[Any]) -> list[Any]:
    """Of many literals a few, so that rows of two tables have the same ones."""
    different = list(dict.fromkeys(values))
    same = random.Random(str(different))  # for all columns that share them
    return different if len(different) <= _MOST_LITERALS else same.sample(different, 4)


def _log(
    rng: random.Random, table: str, schema: Mapping[str, Any], known: Mapping[str, list[Any]], size: Size
) -> pl.DataFrame:
    is_fact = table.endswith(_FACTS)
    number = size.returned if table.endswith("returns") else size.fact if is_fact else size.dimension
    if table == "date_dim":
        number = 60
    columns: dict[str, list[Any]] = {
        name: [*itertools.islice(_values(rng, name, kind, known, size), number)] for name, kind in schema.items()
    }
    if not is_fact:
        columns[next(iter(schema))] = list(range(number))
    if table == "date_dim":
        columns |= _calendar(_days(rng, known, number))
    updates = []
    for index, row in enumerate(zip(*columns.values(), strict=True)):
        version = rng.choice((0, 0, 0, *range(VERSIONS)))
        updates.append((*row, version, 1))
        if index % 4 == 0 and version < VERSIONS - 1:
            updates.append((*row, VERSIONS - 1, -1))
    return pl.DataFrame(updates, {**schema, "version": pl.Int64, "diff": pl.Int64}, orient="row")


def _days(rng: random.Random, known: Mapping[str, list[Any]], number: int) -> list[date]:
    """Days that the query names, by date, by year and month or by the number of a month; others near these, a few weeks
    and 52 and 53 weeks later; each once.
    """
    years = [item for item in known.get("d_year", []) if isinstance(item, int) and 1990 < item < 2010]
    months = [item for item in known.get("d_moy", []) if isinstance(item, int) and 0 < item <= 12]
    doms = [item for item in known.get("d_dom", []) if isinstance(item, int) and 0 < item <= 28]
    named = [value for name, values in known.items() if name.endswith("date") for value in values]
    days = {item for item in named if isinstance(item, date)}
    for item in known.get("d_month_seq", []):
        if isinstance(item, int) and 1000 < item < 1400:
            days.add(date(1900 + item // 12, item % 12 + 1, rng.randint(1, 28)))
    for _ in range(number // 3):
        year = rng.choice(years or [2000]) + rng.choice((0, 0, 0, -1, 1))
        days.add(date(year, rng.choice(months or range(1, 13)), rng.choice(doms or range(1, 29))))
    first = sorted(days)
    while len(days) < number:
        days.add(
            rng.choice(first) + timedelta(rng.choice((1, 2, 5, 7, 14, 30, 60, 90, 52 * 7, 53 * 7, rng.randrange(60))))
        )
    return rng.sample(sorted(days), number)


def _calendar(days: Sequence[date]) -> dict[str, list[Any]]:
    """What TPC-DS says of days."""
    first = date(1900, 1, 1)
    return {
        "d_date": [*days],
        "d_year": [day.year for day in days],
        "d_moy": [day.month for day in days],
        "d_dom": [day.day for day in days],
        "d_qoy": [(day.month + 2) // 3 for day in days],
        "d_dow": [day.isoweekday() % 7 for day in days],
        "d_day_name": [day.strftime("%A") for day in days],
        "d_week_seq": [(day - first).days // 7 + 1 for day in days],
        "d_month_seq": [(day.year - 1900) * 12 + day.month - 1 for day in days],
        "d_quarter_name": [f"{day.year}Q{(day.month + 2) // 3}" for day in days],
    }


def _values(
    rng: random.Random, name: str, kind: Any, known: Mapping[str, list[Any]], size: Size
) -> Iterator[int | float | str | date | None]:
    """Values of a column: those that the query compares it with, mostly; a few others, and nulls."""
    literal = known.get(name, [])
    wanted = [item for item in literal if item is not None and _fits(item, kind)]
    nulls = 0.4 if None in literal else 0.0 if name.endswith("_sk") else 0.02
    keys = 60 if "date_sk" in name else size.dimension
    while True:
        draw = rng.random()
        if draw < nulls:
            yield None
        elif wanted and draw < 0.92:
            item = rng.choice(wanted)
            yield float(item) if kind == pl.Float64 else item
        elif kind == pl.Int64:
            yield rng.randrange(keys if name.endswith("_sk") else size.numbers)
        elif kind == pl.Float64:
            yield rng.randrange(-8, 400) / (64 if name.startswith(_OF_RETURNS) else 4)
        elif kind == pl.Date:
            yield date(2000, 1, 1) + timedelta(rng.randrange(60))
        else:
            text = rng.choice(("aa", "ab", "b", "x y"))
            yield text.upper() if name == "c_birth_country" else text


def _fits(value: Any, kind: Any) -> bool:
    kinds: dict[Any, Any] = {pl.Int64: int, pl.Float64: (int, float), pl.Date: date, pl.String: str}
    return isinstance(value, kinds[kind])


# -- the comparison ---------------------------------------------------------------------------------------------------


def tables_for(number: int, query: str, schemas: Schemas, seed: int) -> dict[str, pl.DataFrame]:
    """Change logs for which DuckDB has rows at a version, of the smallest sizes for which it does; else the last."""
    tree = sqlglot.parse_one(query, dialect="postgres")
    for size in SIZES:
        tables = logs(random.Random(f"{seed} {number}"), tree, schemas, size)
        with database(tables, 1) as connection:
            if connection.execute(query).fetchone() is not None:
                break
    return tables


def check(number: int, text: str, schemas: Schemas, seed: int) -> tuple[str, int]:
    """How ddcore's result of a query differs from DuckDB's, or nothing; and how many rows were compared."""
    query = _LIMIT.sub("", text)
    tables = tables_for(number, query, schemas, seed)
    with database(tables, 0) as connection:
        columns = len(connection.execute(f"DESCRIBE {query}").fetchall())
    names = ", ".join(f"c{location}" for location in range(columns))
    try:
        views = program(f"CREATE VIEW result ({names}) AS {query}")
        log = ddcore.replay(views, ("version",), **tables)["result"]
    except DdError as error:
        return f"refused: {error}", 0
    compared = 0
    for version in range(VERSIONS):
        with database(tables, version) as connection:
            other = bag(connection.execute(query).fetchall())
        own = bag(accumulated(log, version).rows())
        compared += other.total()
        if own != other:
            both = f"only here {list(own - other)[:3]}, only in DuckDB {list(other - own)[:3]}"
            return f"version {version}: {both}", compared
    return "", compared


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 where an answer is wrong, a query is refused, or there was no row to compare."""
    parser = argparse.ArgumentParser(prog="make test-tpcds", description=str(__doc__).partition("\n")[0])
    parser.add_argument("numbers", type=int, nargs="*", help="of queries; all if there are none")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    queries, schemas = suite()
    bad = rows = 0
    empty = list[int]()
    for number, query in enumerate(queries, 1):
        if options.numbers and number not in options.numbers:
            continue
        different, compared = check(number, query, schemas, options.seed)
        rows += compared
        empty += [] if compared or different else [number]
        if different:
            bad += 1
            print(f"query {number}: {different}", flush=True)
    asked = len(options.numbers) or len(queries)
    without = f"; without any: {', '.join(map(str, empty))}" if empty else ""
    print(f"{asked} queries, {bad} refused or wrong; {rows:,} rows compared{without}")
    return 1 if bad or empty else 0


if __name__ == "__main__":
    sys.exit(main())
