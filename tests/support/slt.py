"""SQLite's sqllogictest suite: ``make test-slt``.

A sample of the queries of every file becomes programs of SQL, the contents of the file's tables change logs: one
version for each moment at which a sampled query stands. Then, for some files, random statements go on changing the
tables, and after each the views have to hold what sqlite3 answers.

The suite is an archive on Maven Central. It is fetched once, into the cache folder, and never becomes a part of this
repository. Statements are carried out by sqlite3; results are those that the files have for PostgreSQL.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product, takewhile
from pathlib import Path
from typing import Any

import polars as pl
from sqlite_types import casts_fractions, divides_by_dynamic_type
from sqllogictest import Query, Statement, formatted, matches, records

import ddcore as dd
from ddcore.base.cache import cache_folder
from ddcore.base.errors import DdError
from ddcore.sql import program

ARTIFACT = "net.hydromatic:sql-logic-test:0.3"
NUMBER = 20_000
FILES = 622
TOGETHER = 40  # queries in one program
VIEWS = 12  # of a file, that go on under random statements
_TYPES = {"INTEGER": "int64", "INT": "int64", "FLOAT": "float64", "REAL": "float64"}
_QUERY = re.compile(rb"^((?:(?:skipif|onlyif) \w+[^\n]*\n)*)(query |halt\b)", re.MULTILINE)
_OTHERS = re.compile(rb"skipif postgresql|onlyif (?!postgresql)")
_VIEW = re.compile(r"\s*CREATE\s+(?:TEMP\w*\s+)?VIEW\s+(\w+)\s+AS\s+(.*)", re.IGNORECASE | re.DOTALL)

Rows = Counter[tuple[Any, ...]]
Waiting = tuple[Query, int, list[tuple[str, ...]] | None]
"""A query, its version, and its rows where their order counts."""


@dataclass
class Found:
    """What one file gave: how many queries were compared, which were refused and why, and what was wrong."""

    compared: int = 0
    versions: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    left_out: int = 0
    dynamic: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.compared:,} queries compared, {sum(self.refused.values()):,} refused, {self.left_out:,} with an "
            f"order that sqlite3 has otherwise, {self.dynamic:,} left out for quotients by the types of single values; "
            f"{self.versions:,} comparisons after statements; {len(self.wrong):,} wrong"
        )

    def refuse(self, error: str, where: str) -> None:
        """Count a query that is no program here, or that a fold ends on."""
        message = re.sub(r"^\S+?:\d+:\d+: ", "", error.partition("\n")[0])
        message = re.sub(r"( is not supported): .*", r"\1", message)
        message = re.sub(r"\b(?=\w*\d)[\w.]+\b", "N", message)[:90]
        self.refused[message] += 1
        self.examples.setdefault(message, where)

    def absorb(self, other: Found) -> None:
        """Add what another file gave."""
        self.compared += other.compared
        self.versions += other.versions
        self.refused.update(other.refused)
        self.examples = other.examples | self.examples
        self.left_out += other.left_out
        self.dynamic += other.dynamic
        self.wrong += other.wrong


class Tables:
    """The tables and views of a file under way, in sqlite3."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)

    def execute(self, statement: Statement) -> None:
        """Carry a statement out; one that sqlite3 does not know changes nothing."""
        try:
            self.connection.execute(statement.sql)
        except sqlite3.Error:
            assert statement.fails or not statement.sql.startswith(("INSERT", "UPDATE", "DELETE")), statement

    def schemas(self) -> dict[str, dict[str, str]]:
        """The columns of all tables."""
        names = self.connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        )
        found = {}
        for (name,) in names.fetchall():
            columns = self.connection.execute(f"PRAGMA table_info({name})").fetchall()
            found[name] = {column[1]: _TYPES.get(column[2].partition("(")[0].upper(), "string") for column in columns}
        return found

    def views(self) -> dict[str, str]:
        """The queries of all views, in the order in which they were made."""
        found = self.connection.execute("SELECT sql FROM sqlite_master WHERE type = 'view' ORDER BY rowid").fetchall()
        matched = (_VIEW.match(sql) for (sql,) in found)
        return {item[1]: item[2] for item in matched if item}

    def rows(self, name: str, schema: Mapping[str, str]) -> Rows:
        """The rows of a table, in the types of its columns."""
        kinds = {"int64": int, "float64": float, "string": str}
        makers = [kinds[kind] for kind in schema.values()]
        found = self.connection.execute(f"SELECT * FROM {name}").fetchall()
        return Counter(
            tuple(None if value is None else make(value) for value, make in zip(row, makers, strict=True))
            for row in found
        )

    def answer(self, sql: str, types: str) -> list[tuple[str, ...]]:
        """What sqlite3 answers, written as results are."""
        return formatted(self.connection.execute(sql).fetchall(), types)


@dataclass
class Moments:
    """The contents of tables at moments one after the other, as change logs; ``version`` is that of the newest."""

    schemas: Mapping[str, Mapping[str, str]]
    views: Mapping[str, str]
    version: int = -1
    before: dict[str, Rows] = field(default_factory=dict)
    updates: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def note(self, tables: Tables) -> None:
        """One more version: what the tables hold now."""
        self.version += 1
        for name, schema in self.schemas.items():
            rows, earlier = tables.rows(name, schema), self.before.get(name, Counter())
            changes = Counter(rows)
            changes.subtract(earlier)
            new = [(*row, self.version, diff) for row, diff in changes.items() if diff]
            self.updates.setdefault(name, []).extend(new)
            self.before[name] = rows

    def frames(self) -> dict[str, pl.DataFrame]:
        """The change logs of all tables."""
        kinds = {"int64": pl.Int64, "float64": pl.Float64, "string": pl.String}
        return {
            name: pl.DataFrame(
                self.updates.get(name, []),
                schema={**{c: kinds[k] for c, k in schema.items()}, "version": pl.Int64, "diff": pl.Int64},
                orient="row",
            )
            for name, schema in self.schemas.items()
        }

    def program_of(self, query: Query) -> Any:
        """The program of one query, with the views that it needs."""
        names, needed, left = list(self.views), set[str](), [query.sql]
        while left:
            text = left.pop()
            new = {name for name in names if re.search(rf"\b{name}\b", text)} - needed
            needed |= new
            left += [self.views[name] for name in new]
        before = "".join(f"CREATE TEMPORARY VIEW {name} AS {self.views[name]};\n" for name in names if name in needed)
        columns = ", ".join(f"c{number}" for number in range(len(query.types)))
        return program(f"{before}CREATE VIEW result ({columns}) AS {_without_order(query.sql)}")

    def results(self, queries: Sequence[Query], refused: dict[int, str]) -> dict[int, pl.DataFrame]:
        """The output logs of queries by their place. The errors of others are in ``refused`` then, by their lines."""
        frames = self.frames()

        def together(**inputs: Any) -> dict[str, Any]:
            outputs = {}
            for index, query in enumerate(queries):
                try:
                    outputs[f"q{index}"] = self.program_of(query)(**inputs)["result"]
                except DdError as error:
                    refused[query.line] = str(error)
            return outputs or {"none": dd.constant({"refused": [True]})}

        try:
            logs = dd.Session(together, self.schemas, threads=1).fold(frames)
        except DdError as error:
            if len(queries) == 1:
                refused[queries[0].line] = str(error)
                return {}
            halves = [range(len(queries) // 2), range(len(queries) // 2, len(queries))]
            return {
                half[index]: log
                for half in halves
                for index, log in self.results([queries[at] for at in half], refused).items()
            }
        return {int(name[1:]): log for name, log in logs.items() if name != "none"}


def _without_order(sql: str) -> str:
    """A query without ORDER BY at its end, which views do not have."""
    at = list(re.finditer(r"\bORDER\s+BY\b", sql, re.IGNORECASE))
    tail = sql[at[-1].start() :] if at else ""
    is_last = bool(tail) and tail.count("(") == tail.count(")") and not re.search(r"\bLIMIT\b", tail, re.IGNORECASE)
    return sql[: at[-1].start()] if is_last else sql


def at_version(log: pl.DataFrame, version: int) -> list[tuple[Any, ...]]:
    """The rows of an output log accumulated at a version."""
    *columns, _, _ = log.columns
    kept = log.filter(pl.col("version") <= version).group_by(columns).agg(pl.col("diff").sum())
    return [row[:-1] for row in kept.filter(pl.col("diff") != 0).iter_rows() for _ in range(row[-1])]


# -- a sample of a file -----------------------------------------------------------------------------------------------


def sampled(text: str, number: int, rng: random.Random) -> list[Statement | Query]:
    """The statements of a file, up to the last of ``number`` queries drawn from it, and these."""
    all_records = list(records(text))
    locations = [index for index, item in enumerate(all_records) if isinstance(item, Query)]
    chosen = {*rng.sample(locations, min(number, len(locations)))}
    last = max(chosen, default=-1)
    return [
        item for index, item in enumerate(all_records[: last + 1]) if isinstance(item, Statement) or index in chosen
    ]


def check_file(suite: Path, seed: int, name: str, number: int, steps: int) -> Found:
    """A sample of the queries of one file at their moments, then ``steps`` random statements. Never raises."""
    found = Found()
    try:
        with zipfile.ZipFile(suite) as archive:
            text = archive.read(name).decode()
        _Check(name, random.Random(f"{seed} {name}"), found).run(text, number, steps)
    except Exception as error:  # a wrong answer too: it is told with the file
        found.wrong.append(f"{name}: {type(error).__name__}: {error}")
    return found


@dataclass
class _Check:
    """The checks of one file, and what they found."""

    name: str
    rng: random.Random
    found: Found
    tables: Tables = field(default_factory=Tables)
    moments: Moments = field(default_factory=lambda: Moments({}, {}))
    waiting: list[Waiting] = field(default_factory=list)

    def run(self, text: str, number: int, steps: int) -> None:
        """A sample of the queries, then ``steps`` random statements."""
        with closing(self.tables.connection):
            changed = True
            for record in sampled(text, number, self.rng):
                if isinstance(record, Statement):
                    self.tables.execute(record)
                    changed = True
                    continue
                if changed:
                    self._note()
                    changed = False
                if divides_by_dynamic_type(record.sql, self.moments.schemas):
                    self.found.dynamic += 1
                    continue
                self.waiting.append((record, self.moments.version, self._in_order(record)))
            self._compare()
            if steps and self.waiting:
                self._go_on([query for query, _, _ in self.waiting], steps)

    def _note(self) -> None:
        """One more version. With other tables or views than before, the first one of another history."""
        schemas, views = self.tables.schemas(), self.tables.views()
        if (schemas, views) != (self.moments.schemas, self.moments.views):
            self._compare()
            self.moments, self.waiting = Moments(schemas, views), []
        self.moments.note(self.tables)

    def _in_order(self, query: Query) -> list[tuple[str, ...]] | None:
        """The rows of a result whose order counts, if sqlite3 agrees with the file: views have no order."""
        rows = self._answer(query) if query.order == "nosort" else None
        return rows if rows is not None and matches(query, rows) else None

    def _compare(self) -> None:
        for start in range(0, len(self.waiting), TOGETHER):
            part = self.waiting[start : start + TOGETHER]
            refused: dict[int, str] = {}
            logs = self.moments.results([query for query, _, _ in part], refused)
            for index, (query, version, in_order) in enumerate(part):
                if index not in logs:
                    self.found.refuse(refused.get(query.line, "no result"), f"{self.name}:{query.line}")
                else:
                    self._require(query, formatted(at_version(logs[index], version), query.types), in_order)

    def _require(self, query: Query, rows: list[tuple[str, ...]], in_order: list[tuple[str, ...]] | None) -> None:
        if in_order is None and query.order == "nosort" and len(rows) > 1:
            self.found.left_out += 1
            return
        self.found.compared += 1
        if not (matches(query, rows) if in_order is None else sorted(rows) == sorted(in_order)):
            self._wrong(query, "", rows, in_order or query.result)

    def _wrong(self, query: Query, when: str, rows: Sequence[Any], wanted: Sequence[Any]) -> None:
        what = f"has {sorted(rows)[:5]}, not {list(wanted)[:5]}"
        self.found.wrong.append(f"{self.name}:{query.line}{when}: {query.sql}\n    {what}")

    # -- statement by statement ---------------------------------------------------------------------------------------

    def _go_on(self, queries: Sequence[Query], steps: int) -> None:
        """Random statements change the tables; after each, the views hold what sqlite3 answers."""
        drawn, schemas = self.rng.sample(queries, min(VIEWS, len(queries))), self.moments.schemas
        without_limit = [query for query in drawn if not re.search(r"\bLIMIT\b", query.sql, re.IGNORECASE)]
        views = [query for query in without_limit if not casts_fractions(query.sql, schemas)]
        changed = self.rng.sample([*schemas], min(3, len(schemas)))
        if not views or not changed:
            return
        later, empty_at = Moments(schemas, self.moments.views), self.rng.randrange(steps)
        answers: list[list[list[tuple[str, ...]] | None]] = []
        for step in range(-1, steps):
            if step >= 0:
                one = [_random(self.tables, self.rng.choice(changed), self.rng, schemas)]
                self._execute([f"DELETE FROM {item}" for item in changed] if step == empty_at else one)
            later.note(self.tables)
            answers.append([self._answer(query) for query in views])
        logs = later.results(views, {})
        for location, version in product(sorted(logs), range(later.version + 1)):
            query, wanted = views[location], answers[version][location]
            if wanted is not None:
                self.found.versions += 1
                rows = formatted(at_version(logs[location], version), query.types)
                if sorted(rows) != sorted(wanted):
                    self._wrong(query, f", after {version} statements", rows, sorted(wanted))

    def _execute(self, statements: Iterable[str]) -> None:
        for statement in statements:
            with suppress(sqlite3.IntegrityError):  # a unique index of the file
                self.tables.connection.execute(statement)

    def _answer(self, query: Query) -> list[tuple[str, ...]] | None:
        try:
            return self.tables.answer(query.sql, query.types)
        except (sqlite3.Error, ValueError):
            return None


def _random(tables: Tables, table: str, rng: random.Random, schemas: Mapping[str, Mapping[str, str]]) -> str:
    """An INSERT, UPDATE or DELETE of a table: values are those of its other rows, small numbers and nulls."""
    rows = tables.connection.execute(f"SELECT rowid, * FROM {table}").fetchall()
    columns = list(schemas[table].items())
    keys = {item[1] for item in tables.connection.execute(f"PRAGMA table_info({table})").fetchall() if item[5]}

    def value(index: int, kind: str, is_key: bool) -> str:
        if is_key:
            return str(rng.randrange(10_000)) if kind != "string" else f"'k{rng.randrange(10_000)}'"
        if rng.random() < 0.15:
            return "NULL"
        if rows and rng.random() < 0.6:
            known = rng.choice(rows)[index + 1]
            return "NULL" if known is None else f"'{known}'" if isinstance(known, str) else repr(known)
        number = rng.randrange(-3, 100)
        return f"'t{number}'" if kind == "string" else f"{number}.5" if kind == "float64" else str(number)

    what = rng.random()
    if not rows or what < 0.5:
        values = ", ".join(value(index, kind, c in keys) for index, (c, kind) in enumerate(columns))
        return f"INSERT INTO {table} VALUES ({values})"
    row = rng.choice(rows)[0]
    if what < 0.75:
        return f"DELETE FROM {table} WHERE rowid = {row}"
    free = [index for index, (c, _) in enumerate(columns) if c not in keys] or [0]
    index = rng.choice(free)
    column, kind = columns[index]
    return f"UPDATE {table} SET {column} = {value(index, kind, column in keys)} WHERE rowid = {row}"


# -- the suite --------------------------------------------------------------------------------------------------------


def fetched() -> Path:
    """The archive of the suite, in the cache folder; Maven fetches it if it is not there."""
    _, name, version = ARTIFACT.split(":")
    folder = cache_folder() / "sqllogictest"
    archive = folder / f"{name}-{version}.jar"
    if not archive.exists():
        print(f"fetching {ARTIFACT} with Maven", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as new:  # moved into place whole
            copy = ["dependency:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={new}"]
            try:
                subprocess.run(["mvn", "-q", "-B", *copy], check=True)
            except FileNotFoundError:
                sys.exit(f"there is no mvn to fetch {ARTIFACT} with: install Maven, or copy the jar to {archive}")
            (Path(new) / archive.name).rename(archive)
    return archive


def quotas(archive: Path, number: int) -> list[tuple[str, int]]:
    """How many queries to draw of each file: as many of each, all of those that have fewer."""
    with zipfile.ZipFile(archive) as suite:
        files = [item for item in suite.infolist() if item.filename.endswith(".test")]
        counts = sorted((_queries(suite.read(file)), file.filename) for file in files)
    shares, left = [], number
    for index, (count, name) in enumerate(counts):
        share = min(count, -(-left // (len(counts) - index)))
        shares.append((name, share))
        left -= share
    return shares


def _queries(text: bytes) -> int:
    """How many queries of a file hold for the database."""
    heads = (head for conditions, head in _QUERY.findall(text) if not _OTHERS.search(conditions))
    return sum(1 for _ in takewhile(lambda head: head != b"halt", heads))


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 where an answer is wrong."""
    parser = argparse.ArgumentParser(prog="make test-slt", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--queries", type=int, default=NUMBER, help="to draw from all files")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--steps", type=int, default=10, help="random statements for each file")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--files", default="", help="only files whose name contains this")
    options = parser.parse_args(arguments)
    archive, total, done = fetched(), Found(), 0
    shares = [quota for quota in quotas(archive, options.queries) if options.files in quota[0]]
    print(f"seed {options.seed}: {sum(share for _, share in shares):,} queries of {len(shares)} files", flush=True)
    random.Random(options.seed).shuffle(shares)
    check = partial(check_file, archive, options.seed, steps=options.steps)
    with ProcessPoolExecutor(options.processes) as pool:
        for found in pool.map(partial(_each, check), shares):
            done += 1
            total.absorb(found)
            for wrong in found.wrong:
                print(f"wrong: {wrong}", flush=True)
            if done % 50 == 0:
                print(f"{done} of {len(shares)} files: {total}", flush=True)
    print(f"\n{'refused':>8}  why, and where for the first time")
    for message, count in total.refused.most_common():
        print(f"{count:8,}  {message}  [{total.examples[message]}]")
    print(f"\nseed {options.seed}: {total}")
    return 1 if total.wrong else 0


def _each(check: Any, share: tuple[str, int]) -> Found:
    found: Found = check(name=share[0], number=share[1])
    return found


if __name__ == "__main__":
    sys.exit(main())
