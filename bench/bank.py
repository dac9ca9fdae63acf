"""A bank's day: 6,000 changed rows of three feeds of 200,000, by `dd ingest` and `dd run` inline, and by `dd sync`, its
nightly script of one line; against DuckDB.

Some 30 arrangements: a hierarchy that is rolled up, a slowly changing dimension, the first of groups, distinct counts,
components. Each round is one more day; DuckDB answers the same questions from scratch, from files of the day's tables.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from bench import bank_program
from bench.measure import Failed, Figures, Result, Skipped, in_turn, prompt_costs, prompt_to_prompt
from bench.project import DDCORE, REPOSITORY, accumulated

ROWS = 200_000
COUNTRIES, DAYS = 50, 60
SETTINGS = """\
[project]
program   = "program.py:program"
warehouse = "warehouse"

[run]
engine = "inline"

[inputs.customers]
source = { path = "feeds/customers-*.parquet" }
schema = { customer = "int64", parent = "int64", guarantor = "int64", country = "string", name = "string" }

[inputs.accounts]
source = { path = "feeds/accounts-*.parquet" }
schema = { account = "int64", customer = "int64", tier = "int64", since = "int64", until = "int64" }

[inputs.transfers]
source = { path = "feeds/transfers-*.parquet" }
schema = { transfer = "int64", account = "int64", payee = "int64", cents = "int64", day = "int64" }
"""


def run(rounds: int, rows: int = ROWS) -> Iterator[Result]:
    """Both sides in turn, a day a round; every result of every day is compared."""
    if importlib.util.find_spec("duckdb") is None:
        raise Skipped("duckdb is not installed: pip install 'ddcore[bench]'")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        bank = Bank(folder / "project", rows)
        bank.day()  # the first day after a load is not as the others

        def peer() -> Figures:
            tables, results = folder / "tables", folder / "results"
            for location in (tables, results):
                shutil.rmtree(location, ignore_errors=True)
                location.mkdir()
            bank.write(tables)
            figures = prompt_costs([sys.executable, "-m", "bench.peers.bank_duckdb", tables, results], REPOSITORY)
            bank.check(results)
            return figures

        ours, nights, other = in_turn({"ours": bank.day, "sync": bank.night, "DuckDB": peer}, rounds).values()
    for what, command in (("run", "dd run"), ("ingest", "three dd ingest")):
        name = f"a bank's day, {rows * 3 // 100:,} of {rows * 3:,} rows: {command}, processor time"
        yield Result(name, ours[f"{what}_cpu_s"], "DuckDB, from scratch", other["cpu_s"], rounds)
    name = f"a bank's day, {rows * 3 // 100:,} of {rows * 3:,} rows: dd sync, processor time"
    yield Result(name, nights["cpu_s"], "DuckDB, from scratch", other["cpu_s"], rounds)


class Bank:
    """A project that holds the tables at version 0, folded; and the tables as they are."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.version, self._rng = folder, 0, np.random.default_rng(7)
        (folder / "feeds").mkdir(parents=True)
        shutil.copy(str(bank_program.__file__), folder / "program.py")
        (folder / "dd.toml").write_text(SETTINGS)
        self.tables = self._first(rows)
        for name, table in self.tables.items():
            self._ingest(name, table.with_columns(diff=pl.lit(1)))
        prompt_to_prompt([DDCORE, "run"], folder)

    def day(self) -> Figures:
        """Ingest a day's changes, and fold them: the costs of the three ingests together, and of the run."""
        self.version += 1
        ingests = [self._ingest(name, changes) for name, changes in self._changes().items()]
        run = prompt_costs([DDCORE, "run"], self.folder)
        return {**{f"ingest_{name}": sum(ingest[name] for ingest in ingests) for name in run}, **_named("run", run)}

    def night(self) -> Figures:
        """The costs of one command that takes in a day's changes and folds them."""
        self.version += 1
        for name, changes in self._changes().items():
            self._feed(name, changes)
        return prompt_costs([DDCORE, "sync"], self.folder)

    def write(self, folder: Path) -> None:
        """Write the tables as they are."""
        for name, table in self.tables.items():
            table.write_parquet(folder / f"{name}.parquet")

    def check(self, results: Path) -> None:
        """Raise Failed for an output that differs from DuckDB's result."""
        for file in results.iterdir():
            log = pl.read_delta(str(self.folder / "warehouse" / "outputs" / file.stem))
            other = pl.read_parquet(file)
            ours = accumulated(log, self.version).select(other.columns)
            if not ours.sort(pl.all()).equals(other.sort(pl.all())):
                raise Failed(f"{file.stem} has {len(ours)} rows, DuckDB's {len(other)}, or other ones")

    def _ingest(self, name: str, changes: pl.DataFrame) -> Figures:
        return prompt_costs([DDCORE, "ingest", name, self._feed(name, changes)], self.folder)

    def _feed(self, name: str, changes: pl.DataFrame) -> Path:
        """A file of a feed, as it arrives."""
        file = self.folder / "feeds" / f"{name}-{self.version}.parquet"
        changes.with_columns(version=pl.lit(self.version)).write_parquet(file)
        return file

    def _first(self, rows: int) -> dict[str, pl.DataFrame]:
        rng, number = self._rng, np.arange(rows)
        customers = pl.DataFrame({"customer": number}).with_columns(
            parent=pl.when(pl.col("customer") % 3 == 0, pl.col("customer") > 0).then(pl.col("customer") // 5),
            guarantor=pl.when((pl.col("customer") % 10).is_between(1, 3)).then(pl.col("customer") - 1),
            country=pl.Series([f"country-{number:02d}" for number in rng.integers(0, COUNTRIES, rows)]),
            name=pl.format("customer {}", "customer"),
        )
        # Each fourth account had another tier until the middle of the time.
        account, change = number % (rows * 4 // 5), number >= rows * 4 // 5
        changed = account < rows // 5
        accounts = pl.DataFrame(
            {
                "account": account,
                "customer": account * 7 % rows,
                "tier": rng.integers(0, 5, rows),
                "since": np.where(changed & change, DAYS // 2, 0),
                "until": np.where(changed & ~change, DAYS // 2, 9999),
            }
        )
        return {"customers": customers, "accounts": accounts, "transfers": self._transfers(0, rows, rows, 0, DAYS)}

    def _transfers(self, first: int, n: int, rows: int, since: int, until: int) -> pl.DataFrame:
        rng = self._rng
        return pl.DataFrame(
            {
                "transfer": np.arange(first, first + n),
                "account": rng.integers(0, rows * 4 // 5 + 20, n),  # some of them nobody knows
                "payee": rng.integers(0, rows // 100, n),
                "cents": rng.integers(1, 1_000_000, n),
                "day": rng.integers(since, until, n),
            }
        )

    def _changes(self) -> dict[str, pl.DataFrame]:
        """A day's change logs: a hundredth of the rows, most of them new transfers."""
        rows = len(self.tables["customers"])
        today = DAYS + self.version
        moved = self._some("customers", rows // 800)
        to = moved.with_columns(
            parent=pl.when(pl.col("customer") > 5).then(pl.col("customer") // 5 - 1),
            guarantor=pl.when(pl.col("customer") % 2 == 0).then(pl.col("guarantor")),
        )
        current = self.tables["accounts"].filter(pl.col("until") == 9999)
        closed = current[np.sort(self._rng.choice(len(current), rows // 400, replace=False))]
        other = pl.concat(
            [
                closed.with_columns(until=pl.lit(today, pl.Int64)),
                closed.with_columns(tier=(pl.col("tier") + 1) % 5, since=pl.lit(today, pl.Int64)),
            ]
        )
        wrong = self._some("transfers", rows // 800)
        first = int(self.tables["transfers"]["transfer"].max()) + 1  # type: ignore[arg-type]
        new = self._transfers(first, rows * 7 // 400, rows, today, today + 1)
        right = wrong.with_columns(cents=pl.col("cents") + 1)
        return {
            "customers": self._replace("customers", moved, to),
            "accounts": self._replace("accounts", closed, other),
            "transfers": self._replace("transfers", wrong, pl.concat([right, new])),
        }

    def _some(self, name: str, n: int) -> pl.DataFrame:
        table = self.tables[name]
        return table[np.sort(self._rng.choice(len(table), n, replace=False))]

    def _replace(self, name: str, old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
        kept = self.tables[name].join(old, on=old.columns, how="anti", nulls_equal=True)
        self.tables[name] = pl.concat([kept, new])
        return pl.concat([old.with_columns(diff=pl.lit(-1)), new.with_columns(diff=pl.lit(1))])


def _named(what: str, figures: Figures) -> Figures:
    return {f"{what}_{name}": value for name, value in figures.items()}
