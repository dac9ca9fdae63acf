"""Random programs of SQL against DuckDB, PostgreSQL and Spark: ``make test-sql``.

A seed gives a query, and with seven others the change logs of its tables. The query is folded in a dialect of ddcore,
and the other engine is asked at every version. PostgreSQL is started where it is installed, Spark only with
``--targets``.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from sql_duckdb import bag
from sql_peers import DuckDb, Peer, PeerRefuses, Postgres, Spark, postgres_server
from sql_queries import RandomQuery
from sql_tables import SCHEMAS, TARGETS, accumulated, random_logs
from sql_windows import RandomWindows, in_duckdb

import ddcore
from ddcore.base.errors import DdError
from ddcore.sql import program

NUMBER, VERSIONS, TOGETHER = 2000, 3, 8
WINDOWS = "windows"
"""Queries of windows over an order, in PostgreSQL's dialect, by DuckDB."""


@dataclass
class Outcome:
    """What seeds gave: queries with equal rows, with others, and those that an engine refuses."""

    equal: int = 0
    rows: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def refuse(self, who: str, message: str, where: str) -> None:
        """Count a query that ddcore or the other engine does not take, by its message without names and numbers."""
        message = re.sub(r"^\S+?:\d+:\d+: ", "", message.partition("\n")[0])
        message = re.sub(r"( is not supported): .*", r"\1", message)
        message = f"{who}: " + re.sub(r"(?:\b(?=\w*\d)[\w.]+\b|\bin the row\b.*)", "N", message)[:110]
        self.refused[message] += 1
        self.examples.setdefault(message, where)

    @property
    def asked(self) -> int:
        """How many queries there were."""
        return self.equal + len(self.wrong) + sum(self.refused.values())

    def __str__(self) -> str:
        refused = sum(self.refused.values())
        return (
            f"{self.equal:,} equal at {VERSIONS} versions, {self.rows:,} with rows; {refused:,} refused or ended by a"
            f" row; {len(self.wrong):,} wrong"
        )


@contextmanager
def peers(names: Sequence[str]) -> Iterator[dict[str, Peer]]:
    """The engines of targets; without PostgreSQL where it is not installed."""
    with ExitStack() as stack:
        found: dict[str, Peer] = {}
        for name in names:
            engine = TARGETS[name].engine if name in TARGETS else "duckdb"
            if engine == "postgres":
                folder = stack.enter_context(postgres_server())
                if folder is not None:
                    server = Postgres(folder)
                    stack.callback(server.close)
                    found[name] = server
            elif engine == "spark":
                found[name] = Spark(stack.enter_context(_spark()))
            else:
                found[name] = DuckDb(name not in TARGETS or TARGETS[name].dialect == "postgres")
        yield found


@contextmanager
def _spark() -> Iterator[Any]:
    from ddcore.jobs.spark.session import spark_session, stop

    session = spark_session({}, "local[1]")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        yield session
    finally:
        stop(session)


def tables(name: str, seed: int) -> dict[str, pl.DataFrame]:
    """The change logs of a seed, and of those beside it."""
    rng = random.Random(f"tables {seed // TOGETHER}")
    return random_logs(rng, VERSIONS, schemas=TARGETS[name].tables if name in TARGETS else SCHEMAS)


def query(name: str, seed: int) -> tuple[str, str]:
    """The query of a seed, in the words of ddcore and of the other engine."""
    rng = random.Random(f"{name} {seed}")
    if name == WINDOWS:
        text = RandomWindows(rng).text()
        return text, in_duckdb(text)
    return RandomQuery(rng, TARGETS[name]).texts()


def check(name: str, peer: Peer, seed: int, outcome: Outcome) -> None:
    """Fold the query of a seed, and ask the other engine, which holds its tables, at each version."""
    own, other = query(name, seed)
    dialect = TARGETS[name].dialect if name in TARGETS else "postgres"
    where = f"{name} {seed}: {own}"
    try:
        views = program(f"CREATE VIEW result AS {own}", dialect=dialect)
        log = ddcore.replay(views, ("version",), **tables(name, seed))["result"]
    except DdError as error:
        outcome.refuse("ddcore", str(error), where)
        return
    schema = {column: kind for column, kind in log.schema.items() if column not in ("version", "diff")}
    has_rows = False
    for version in range(VERSIONS):
        rows = bag(accumulated(log, version).rows())
        try:
            wanted = bag(peer.rows(other, version, schema))
        except PeerRefuses as error:
            outcome.refuse("the other", str(error), where)
            return
        has_rows |= bool(wanted)
        if rows != wanted:
            if dialect == "postgres" and isinstance(peer, DuckDb) and _rounds(own, tables(name, seed)):
                outcome.refuse("the other", "rounds what its dialect refuses", where)
                return
            what = (
                f"only here {list((rows - wanted).elements())[:3]}, only there {list((wanted - rows).elements())[:3]}"
            )
            asked = "" if own == other else f"\n    there: {other}"
            outcome.wrong.append(f"{where}{asked}\n    at version {version} {what}")
            return
    outcome.equal += 1
    outcome.rows += has_rows


def _rounds(text: str, logs: dict[str, pl.DataFrame]) -> bool:
    """Whether DuckDB may round decimals of this query, which its dialect refuses."""
    try:
        ddcore.replay(program(f"CREATE VIEW result AS {text}", dialect="duckdb"), ("version",), **logs)
    except DdError as error:
        return "may round them" in str(error)
    return False


def run(names: Sequence[str], seeds: range, outcome: Outcome | None = None) -> Iterator[Outcome]:
    """What seeds give for each target, after each eight of them."""
    outcome = outcome or Outcome()
    with peers(names) as found:
        for start in range(seeds.start, seeds.stop, TOGETHER):
            for name, peer in found.items():
                peer.load(tables(name, start), VERSIONS)
                for seed in range(start, min(start + TOGETHER, seeds.stop)):
                    check(name, peer, seed, outcome)
            yield outcome


def _ended(number: int, _frame: object) -> None:
    """Leave in order, so that PostgreSQL ends as well; a second signal does not disturb that."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 where an answer is wrong."""
    parser = argparse.ArgumentParser(prog="make test-sql", description=str(__doc__).partition("\n")[0])
    usual = [name for name in (*TARGETS, WINDOWS) if name != "spark words"]
    parser.add_argument("--queries", type=int, default=NUMBER, help="in all")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="the first; others follow")
    parser.add_argument("--targets", default=",".join(usual), help=f"of: {', '.join([*TARGETS, WINDOWS])}")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _ended)
    names = options.targets.split(",")
    first = options.seed - options.seed % TOGETHER
    seeds = range(first, first + -(-options.queries // len(names)))
    print(f"seed {first}: {options.queries:,} queries for {options.targets}", flush=True)
    outcome, told = Outcome(), 0
    for number, _ in enumerate(run(names, seeds, outcome), 1):
        for wrong in outcome.wrong[told:]:
            print(f"wrong: {wrong}", flush=True)
        told = len(outcome.wrong)
        if number % 25 == 0:
            print(f"up to seed {seeds.start + number * TOGETHER}: {outcome}", flush=True)
    print(f"\n{'refused':>8}  why, and where for the first time")
    for message, count in outcome.refused.most_common():
        print(f"{count:8,}  {message}\n          [{outcome.examples[message]}]")
    print(f"\nseed {first}: {outcome}")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
