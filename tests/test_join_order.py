"""The order of joins in SQL: what it is by statistics, that results do not depend on it, and how long it is kept."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from folding import by_reference, with_statistics
from seeds import seeds
from sql_duckdb import bag, database
from sql_tables import accumulated

import ddcore as dd
from ddcore.base.statistics import Statistics
from ddcore.cli.main import run_command
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.finding import find_project
from ddcore.io.project.statistics import FILE, kept_statistics
from ddcore.io.storage.warehouse import Warehouse
from ddcore.planning.planner import build
from ddcore.program.estimates import Estimate
from ddcore.sql import program
from ddcore.sql.join_order import Equality, ordered

# -- results do not depend on it --------------------------------------------------------------------------------------

COLUMNS = ("a", "b", "c")


class RandomJoins:
    """A query of several tables, in any order, with conditions of every kind; and statistics that may be wrong."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.tables = rng, [f"t{number}" for number in range(rng.randint(3, 5))]

    def column(self, table: str) -> str:
        return f"{table}.{self.rng.choice(COLUMNS)}"

    def query(self) -> str:
        rng, listed = self.rng, self.rng.sample(self.tables, len(self.tables))
        conditions = [
            f"{self.column(table)} = {self.column(rng.choice(self.tables[:number]))}"
            for number, table in enumerate(self.tables)
            if number and rng.random() < 0.9
        ]
        for _ in range(rng.randint(0, 3)):
            one, other = (self.column(item) for item in rng.sample(self.tables, 2))
            third = self.column(rng.choice(self.tables))
            kinds = [
                f"{one} = {other}", f"{one} < {other}", f"{one} + {other} = {third}", f"{one} = {rng.randrange(3)}",
                f"{one} IN (1, 2)", f"{one} BETWEEN {other} AND {third}", f"{one} IN (SELECT u.a FROM t0 AS u)",
                f"EXISTS (SELECT 1 FROM t1 AS u, t2 AS v WHERE u.a = v.b AND v.c = {one})", f"{one} IS NOT NULL",
                f"{one} = {other} OR {third} = 1",
            ]  # fmt: skip
            conditions.append(rng.choice(kinds))
        last = listed.pop() if len(listed) > 3 and rng.random() < 0.4 else ""
        text = f"FROM {', '.join(listed)}"
        if last:
            conditions = [condition for condition in conditions if f"{last}." not in condition]
            partner = rng.choice(listed)
            text = f"FROM {' CROSS JOIN '.join(listed)} LEFT JOIN {last} ON {partner}.a = {last}.b"
        names = [f"{table}.{column} AS {table}{column}" for table in self.tables for column in rng.sample(COLUMNS, 2)]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {', '.join(rng.sample(names, 4))} {text}{where}"

    def statistics(self) -> dict[str, Statistics]:
        return {table: self._of(self.rng.choice((1, 10, 1000, 10**6))) for table in self.tables}

    def _of(self, rows: int) -> Statistics:
        return Statistics(rows, {column: self.rng.randint(1, rows) for column in COLUMNS if self.rng.random() < 0.8})

    def logs(self) -> dict[str, pl.DataFrame]:
        rng, logs = self.rng, {}
        for table in self.tables:
            rows = [tuple(rng.choice((None, 0, 1, 1, 2)) for _ in COLUMNS) for _ in range(rng.randint(1, 4))]
            updates = [(*row, version, diff) for row in rows for version, diff in ((0, 1), (rng.choice((1, 5)), -1))]
            later = [(*(rng.randrange(3) for _ in COLUMNS), 1, 1) for _ in range(rng.randint(0, 2))]
            columns = [*COLUMNS, "version", "diff"]
            logs[table] = pl.DataFrame([*updates, *later], dict.fromkeys(columns, pl.Int64), orient="row").filter(
                pl.col("version") < 3
            )
        return logs


@pytest.mark.sample(2, of="kept orders")
def test_results_do_not_depend_on_the_order() -> None:
    """Against DuckDB at every version, and now and then against the naive evaluator, which knows no order by size."""
    reordered = 0
    for seed in seeds(30):
        joins = RandomJoins(random.Random(f"joins {seed}"))
        query, logs, statistics = joins.query(), joins.logs(), joins.statistics()
        views = program(f"CREATE VIEW result AS {query}")
        with with_statistics(statistics):
            log = dd.replay(views, ("version",), **logs)["result"]
        reordered += any(decision.what == "in the order" for decision in views.decisions)  # type: ignore[attr-defined]
        for version in range(2):
            with database(logs, version) as connection:
                other = bag(connection.execute(query).fetchall())
            assert bag(accumulated(log, version).rows()) == other, f"seed {seed}, version {version}: {query}"
        if seed % 12 == 0:
            naive = by_reference(views, **logs)["result"]
            assert dd.reference.log_of(log, ("version",)) == naive, f"seed {seed}: {query}"
    assert reordered > 8 or "DDCORE_SEEDS" in os.environ, f"only {reordered} were in another order than written"


# -- what it is -------------------------------------------------------------------------------------------------------

SCHEMAS = {
    "customer": {"c": "int64", "nation": "int64"},
    "supplier": {"s": "int64", "nation": "int64"},
    "orders": {"o": "int64", "c": "int64"},
    "item": {"o": "int64", "s": "int64"},
    "nation": {"n": "int64", "name": "string"},
}
SIZES = {
    "customer": Statistics(15_000, {"c": 15_000, "nation": 25}),
    "supplier": Statistics(1_000, {"s": 1_000, "nation": 25}),
    "orders": Statistics(150_000, {"o": 150_000, "c": 10_000}),
    "item": Statistics(600_000, {"o": 150_000, "s": 1_000}),
    "nation": Statistics(25, {"n": 25, "name": 25}),
}
LOCAL = """CREATE VIEW local AS SELECT name, count(*) AS n FROM customer, supplier, orders, item, nation
WHERE customer.nation = supplier.nation AND supplier.nation = n AND customer.c = orders.c AND orders.o = item.o
AND item.s = supplier.s AND name = 'PERU' GROUP BY name"""


def told(text: str, statistics: dict[str, Statistics]) -> list[str]:
    views = program(text)
    build(views, SCHEMAS, statistics=statistics)
    return [decision.text for decision in views.decisions if decision.what == "in the order"]  # type: ignore[attr-defined]


def test_tables_that_multiply_are_not_joined_first() -> None:
    """The text begins with customers and suppliers of a nation, each with each."""
    (decision,) = told(LOCAL, SIZES)
    assert decision.startswith("supplier nation customer orders item ("), decision
    assert decision.endswith(", as written 12,600,000)"), decision


@pytest.mark.parametrize(
    ("text", "statistics"),
    [
        (LOCAL, {}),
        (LOCAL, {name: size for name, size in SIZES.items() if name != "item"}),
        (LOCAL.replace("customer, supplier, orders, item, nation", "nation, supplier, item, orders, customer"), SIZES),
        ("CREATE VIEW two AS SELECT name FROM customer, nation WHERE nation = n AND name = 'PERU'", SIZES),
    ],
)
def test_the_order_of_the_text_stays(text: str, statistics: dict[str, Statistics]) -> None:
    """Without statistics of a table, where it is good, and of two tables."""
    assert told(text, statistics) == []


def test_views_and_subqueries_have_estimates() -> None:
    """Those of the operators between an input and a FROM: a group by nation has one row for each."""
    by_nation = (
        "CREATE TEMPORARY VIEW by_nation AS SELECT nation AS place, count(*) AS n FROM customer GROUP BY nation;"
    )
    text = f"""{by_nation} CREATE VIEW few AS SELECT item.o FROM item, supplier, orders, by_nation, customer
    WHERE item.s = supplier.s AND item.o = orders.o AND place = supplier.nation AND by_nation.n = orders.o
    AND customer.c = orders.c"""
    (decision,) = told(text, SIZES)
    assert decision.startswith("orders by_nation customer item supplier ("), decision


def test_composite_keys_are_not_taken_for_independent() -> None:
    """An item has one part of a supplier: 600,000 rows, not the 7,500 of independent columns."""
    item, offer = Estimate(6e5, {"part": 2e4, "s": 1e3}), Estimate(8e4, {"p": 2e4, "q": 1e3})
    assert item.joined(offer, ["part", "s"], ["p", "q"]).rows == 6e5
    assert item.joined(offer, ["s"], ["q"]).rows == 6e5 * 80
    assert item.joined(offer, [], []).rows == 6e5 * 8e4


def test_tables_without_a_condition_come_last() -> None:
    """Though each with each of the smallest would be fewer rows at first than what an equality gives."""
    small, large = Estimate(2.0), Estimate(1000.0, {"a": 1000, "b": 1000})
    equal = Equality(frozenset({1}), frozenset({2}), frozenset("a"), frozenset("b"))
    written, found = ordered([small, large, large, small], [equal], [])
    assert (written.tables, written.rows) == ((0, 1, 2, 3), 4_000)
    assert (found.tables, found.rows) == ((1, 2, 0, 3), 3_000)


# -- how long it is kept ----------------------------------------------------------------------------------------------

TOML = """
[project]
program   = "program.sql"
warehouse = "warehouse"
[run]
engine = "inline"
[inputs.big.schema]
k = "int64"
v = "int64"
[inputs.wide.schema]
v = "int64"
w = "int64"
[inputs.one.schema]
w = "int64"
"""
QUERY = "CREATE VIEW result AS SELECT big.k FROM big, wide, one WHERE big.v = wide.v AND wide.w = one.w"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A project whose text joins the largest tables first; calls a command and gives what it prints."""
    monkeypatch.chdir(tmp_path)
    Path("dd.toml").write_text(TOML)
    Path("program.sql").write_text(QUERY)

    def call(*arguments: str, code: int = 0) -> str:
        ended = run_command(arguments)
        said = capsys.readouterr()
        assert ended == code, said
        return said.out + said.err

    rows("big", {"k": range(60), "v": [n % 2 for n in range(60)]})
    rows("wide", {"v": [n % 2 for n in range(40)], "w": range(40)})
    rows("one", {"w": [3]})
    for name in ("big", "wide", "one"):
        call("ingest", name, f"{name}.parquet")
    return call


def rows(name: str, columns: dict[str, object], version: int = 0) -> str:
    frame = pl.DataFrame({column: list(values) for column, values in columns.items()})  # type: ignore[call-overload]
    frame.with_columns(version=pl.lit(version), diff=pl.lit(1)).write_parquet(f"{name}.parquet")
    return f"{name}.parquet"


def program_of_last_run() -> str:
    run = Ledger.load(Warehouse(Path("warehouse").absolute())).current_run()
    assert run is not None
    return run.fingerprint


@pytest.mark.sample(2, of="kept orders")
def test_the_first_run_chooses_and_later_ones_keep_it(project: Callable[..., str]) -> None:
    assert "in the order" not in project("plan"), "nothing is counted yet"
    project("run")
    found = kept_statistics(find_project(Path()))
    assert found["big"] == Statistics(60, {"k": 60, "v": 2}) and found["one"].rows == 1
    line = "in the order  wide one big (rows between the joins: about 1, as written 1,200)"
    assert line in project("plan")
    before = program_of_last_run()
    project("ingest", "one", rows("one", {"w": [n % 40 for n in range(2900)]}, 1))
    project("run")
    assert program_of_last_run() == before and kept_statistics(find_project(Path())) == found
    assert line in project("plan") and "holds" in project("verify")
    project("branch", "try")
    assert line in project("plan", "--branch", "try")
    project("run", "--full-refresh")
    assert kept_statistics(find_project(Path()))["one"].rows == 2901 and program_of_last_run() != before
    assert "in the order" not in project("plan") and "holds" in project("verify")


@pytest.mark.sample(2, of="kept orders")
def test_a_new_input_is_counted_and_the_others_are_not_again(project: Callable[..., str]) -> None:
    project("run")
    before = kept_statistics(find_project(Path()))
    Path("dd.toml").write_text(TOML + '[inputs.more.schema]\nw = "int64"\n')
    project("ingest", "more", rows("more", {"w": range(7)}))
    project("ingest", "big", rows("big", {"k": range(500), "v": range(500)}, 1))
    Path("program.sql").write_text(QUERY.replace("wide, one", "wide, more, one") + " AND more.w = one.w")
    project("run")
    assert kept_statistics(find_project(Path())) == {**before, "more": Statistics(7, {"w": 7})}


@pytest.mark.sample(2, of="kept orders")
def test_state_without_statistics_keeps_the_order_of_the_text(project: Callable[..., str]) -> None:
    """That of an earlier release: a run must not fold the whole history again because there is a better order now."""
    project("run")
    file = Path("warehouse", "ledger", FILE)
    file.unlink()
    project("ingest", "one", rows("one", {"w": [4]}, 1))
    project("run")
    assert not file.exists() and "in the order" not in project("plan")


@pytest.mark.long
def test_a_run_that_is_killed_behind_its_statistics_is_as_if_it_had_not_been(project: Callable[..., str]) -> None:
    setting = {"DDCORE_FAILPOINT": "after-statistics"}
    command = [str(Path(sys.executable).with_name("ddcore")), "run"]
    killed = subprocess.run(command, env={**os.environ, **setting}, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    counted = Path("warehouse", "ledger", FILE).read_bytes()
    project("run")
    assert Path("warehouse", "ledger", FILE).read_bytes() == counted and "in the order" in project("plan")
    assert "holds" in project("verify")


@pytest.mark.sample(2)
@pytest.mark.parametrize("content", ["{", "[]", '{"inputs": {"big": {"rows": "many", "distinct": {}}}}'])
def test_a_damaged_file_is_one_line(content: str, project: Callable[..., str]) -> None:
    project("run")
    file = Path("warehouse", "ledger", FILE)
    file.write_text(content)
    said = project("run", code=1)
    assert f"{file.absolute()} does not hold statistics of inputs: " in said and "delete it: " in said
    project("run", "--full-refresh")
    assert kept_statistics(find_project(Path()))["big"].rows == 60


def test_a_program_of_python_is_not_counted(project: Callable[..., str]) -> None:
    Path("dd.toml").write_text(TOML.replace("program.sql", "program.py:program"))
    Path("program.py").write_text(
        "def program(big, wide, one):\n    return {'result': big.join(wide, on='v').join(one, on='w')}\n"
    )
    project("run")
    assert not Path("warehouse", "ledger", FILE).exists()


def test_what_is_kept_is_what_is_documented(project: Callable[..., str]) -> None:
    project("run")
    kept = json.loads(Path("warehouse", "ledger", FILE).read_text())
    assert kept["inputs"]["wide"] == {"rows": 40, "distinct": {"v": 2, "w": 40}}
