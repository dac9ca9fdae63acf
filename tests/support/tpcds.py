"""TPC-DS's 99 queries over small random tables that change: ``make test-tpcds``.

The texts and the columns are those of sqlglot's own tests, in the source package of the release that is installed. pip
fetches it once, into the cache folder, and it never becomes a part of this repository. Values are drawn from the
literals of each query, so that its conditions hold for some rows; each version adds rows and takes others away, and
ddcore's result has to be DuckDB's at each. The ``LIMIT`` at the end of a query is left out: it cuts among equal rows.
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
from datetime import date, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import polars as pl
import sqlglot
from sql_queries import accumulated, bag, database
from sqlglot import exp

import ddcore
from ddcore.base.cache import cache_folder
from ddcore.base.errors import DdError
from ddcore.sql import program

VERSIONS = 3
ROWS = {"fact": 250, "dimension": 8}
_KINDS = {"bigint": pl.Int64, "double": pl.Float64, "string": pl.String, "date": pl.Date}
_FACTS = ("sales", "returns", "inventory")
_LIMIT = re.compile(r"\s+LIMIT\s+\d+\s*$", re.IGNORECASE)
Schemas = Mapping[str, Mapping[str, Any]]


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
    queries = [each.strip() for each in "\n".join(kept).split(";")][::2]  # the others are what sqlglot makes of them
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
    """What the query compares columns with, by the columns' names."""
    found: dict[str, list[Any]] = {}
    for node in query.find_all(exp.EQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between):
        names = [part.name.lower() for part in node.find_all(exp.Column)]
        values = [_value(part) for part in node.find_all(exp.Literal)]
        ints = [value for value in values if isinstance(value, int)]
        sums = [a + b for a, b in itertools.pairwise(ints)]
        for name in names:
            found.setdefault(name, []).extend([*values, *sums])
    return found


def _value(node: exp.Literal) -> Any:
    if not node.is_string:
        return float(node.name) if "." in node.name else int(node.name)
    days = re.fullmatch(r"(\d{4})-(\d{1,2})-(\d{1,2})", node.name)
    return date(*map(int, days.groups())) if days else node.name


def logs(rng: random.Random, query: exp.Expr, schemas: Schemas) -> dict[str, pl.DataFrame]:
    """Change logs of the tables that a query names."""
    known = literals(query)
    tables = {node.name.lower() for node in query.find_all(exp.Table)} & set(schemas)
    return {table: _log(rng, table, schemas[table], known) for table in sorted(tables)}


def _log(rng: random.Random, table: str, schema: Mapping[str, Any], known: Mapping[str, list[Any]]) -> pl.DataFrame:
    is_fact = table.endswith(_FACTS)
    number = ROWS["fact" if is_fact else "dimension"]
    if table == "date_dim":
        number *= 3
    columns: dict[str, list[Any]] = {name: [*_values(rng, name, kind, known, number)] for name, kind in schema.items()}
    if not is_fact:
        columns[next(iter(schema))] = list(range(number))
    if table == "date_dim":
        columns["d_date"] = _days(rng, known, number)
        months = dict(zip(zip(columns["d_year"], columns["d_moy"], strict=True), columns["d_month_seq"], strict=True))
        columns["d_month_seq"] = [months[each] for each in zip(columns["d_year"], columns["d_moy"], strict=True)]
    updates = []
    for place, row in enumerate(zip(*columns.values(), strict=True)):
        version = rng.choice((0, 0, 0, *range(VERSIONS)))
        updates.append((*row, version, 1))
        if place % 4 == 0 and version < VERSIONS - 1:
            updates.append((*row, VERSIONS - 1, -1))
    return pl.DataFrame(updates, {**schema, "version": pl.Int64, "diff": pl.Int64}, orient="row")


def _days(rng: random.Random, known: Mapping[str, list[Any]], number: int) -> list[date]:
    """Days near those that the query names, each once, and others."""
    named = [each for each in known.get("d_date", []) if isinstance(each, date)] or [date(2000, 1, 1)]
    near = sorted({day + timedelta(shift) for day in named for shift in (*range(-20, 60, 5), 0, 1, 7)})
    others = [date(1980, 1, 1) + timedelta(place) for place in range(number)]
    return [*rng.sample(near, min(len(near), number - 6)), *others][:number]


def _values(
    rng: random.Random, name: str, kind: Any, known: Mapping[str, list[Any]], number: int
) -> Iterator[int | float | str | date | None]:
    """Values of a column: those that the query compares it with, mostly; a few others, and nulls."""
    wanted = [each for each in known.get(name, []) if _fits(each, kind)]
    for _ in range(number):
        draw = rng.random()
        if draw < 0.02 and not name.endswith("_sk"):
            yield None
        elif wanted and draw < 0.92:
            each = rng.choice(wanted)
            yield float(each) if kind == pl.Float64 else each
        elif kind == pl.Int64:
            yield rng.randrange(ROWS["dimension"] if name.endswith("_sk") else 3)
        elif kind == pl.Float64:
            yield rng.randrange(-8, 400) / 4
        elif kind == pl.Date:
            yield date(2000, 1, 1) + timedelta(rng.randrange(60))
        else:
            yield rng.choice(("aa", "ab", "b", "x y"))


def _fits(value: Any, kind: Any) -> bool:
    kinds: dict[Any, Any] = {pl.Int64: int, pl.Float64: (int, float), pl.Date: date, pl.String: str}
    return isinstance(value, kinds[kind])


# -- the comparison ---------------------------------------------------------------------------------------------------


def check(number: int, text: str, schemas: Schemas, seed: int) -> tuple[str, int]:
    """How ddcore's result of a query differs from DuckDB's, or nothing; and how many rows were compared."""
    query = _LIMIT.sub("", text)
    tables = logs(random.Random(f"{seed} {number}"), sqlglot.parse_one(query, dialect="postgres"), schemas)
    with database(tables, 0) as connection:
        columns = len(connection.execute(f"DESCRIBE {query}").fetchall())
    names = ", ".join(f"c{place}" for place in range(columns))
    try:
        views = program(f"CREATE VIEW result ({names}) AS {query}")
        log = ddcore.replay(views, ("version",), **tables)["result"]
    except DdError as error:
        return f"refused: {error}", 0
    compared = 0
    for version in range(VERSIONS):
        with database(tables, version) as connection:
            theirs = bag(connection.execute(query).fetchall())
        mine = bag(accumulated(log, version).rows())
        compared += theirs.total()
        if mine != theirs:
            both = f"only here {list(mine - theirs)[:3]}, only in DuckDB {list(theirs - mine)[:3]}"
            return f"version {version}: {both}", compared
    return "", compared


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 where an answer is wrong or a query is refused."""
    parser = argparse.ArgumentParser(prog="make test-tpcds", description=str(__doc__).partition("\n")[0])
    parser.add_argument("numbers", type=int, nargs="*", help="of queries; all if there are none")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    queries, schemas = suite()
    bad = empty = rows = 0
    for number, query in enumerate(queries, 1):
        if options.numbers and number not in options.numbers:
            continue
        different, compared = check(number, query, schemas, options.seed)
        rows += compared
        empty += not compared
        if different:
            bad += 1
            print(f"query {number}: {different}", flush=True)
    print(f"{len(queries)} queries, {bad} refused or wrong; {rows:,} rows compared, {empty} queries without any")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
