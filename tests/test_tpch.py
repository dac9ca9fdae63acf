"""``examples/tpch``: every query at every version, against the same query in SQL over the tables as they are then."""

from __future__ import annotations

import importlib
import random
import subprocess
import sys
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import folding
import polars as pl
import pytest
from real_data import REPOSITORY, example

import ddcore as dd

NATIONS = [("CHINA", 2), ("JAPAN", 2), ("INDIA", 2), ("PERU", 1), ("KENYA", 0), ("FRANCE", 3)]
MONEY = pl.Decimal(15, 2)
VERSIONS = 8


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports a module of ``bench/``, which is not part of the package."""
    monkeypatch.syspath_prepend(REPOSITORY)
    return lambda name: importlib.import_module(f"bench.{name}")


def tables(rng: random.Random) -> dict[str, pl.DataFrame]:
    """Small tables of TPC-H, whose values lie about the limits of the queries."""

    def money(least: int, most: int) -> Decimal:
        return Decimal(rng.randint(least, most)).scaleb(-2)

    def day(first: date, days: int) -> date:
        return first + timedelta(rng.randrange(days))

    customers = [
        (key, f"Customer {key}", "street", rng.randrange(len(NATIONS)), "12", money(-999, 999), segment, "none")
        for key in range(1, 41)
        for segment in [rng.choice(("BUILDING", "MACHINERY"))]
    ]
    orders, items = [], []
    for key in range(1, 301):
        placed = day(date(1993, 9, 1), 600)
        orders.append((key, rng.randrange(1, 41), money(10**6, 2 * 10**6), placed, 0))
        for number in range(1, rng.randint(2, 6)):
            quantity, price = Decimal(rng.randint(1, 90)), money(10**4, 10**5)
            rates = money(0, 10), money(0, 8)
            flags = rng.choice("ANR"), rng.choice("FO")
            shipped = placed + timedelta(rng.randrange(120)) if rng.random() < 0.9 else day(date(1998, 8, 30), 7)
            items.append((key, number, rng.randrange(1, 11), quantity, price, *rates, *flags, shipped))
    frames: dict[str, tuple[list[Any], dict[str, Any]]] = {
        "region": (
            list(enumerate(("AFRICA", "AMERICA", "ASIA", "EUROPE"))), {"r_regionkey": pl.Int64, "r_name": pl.String}
        ),
        "nation": (
            [(key, *nation) for key, nation in enumerate(NATIONS)],
            {"n_nationkey": pl.Int64, "n_name": pl.String, "n_regionkey": pl.Int64},
        ),
        "supplier": (
            [(key, rng.randrange(len(NATIONS))) for key in range(1, 11)],
            {"s_suppkey": pl.Int64, "s_nationkey": pl.Int64},
        ),
        "customer": (
            customers,
            {"c_custkey": pl.Int64, "c_name": pl.String, "c_address": pl.String, "c_nationkey": pl.Int64,
             "c_phone": pl.String, "c_acctbal": MONEY, "c_mktsegment": pl.String, "c_comment": pl.String},
        ),
        "orders": (
            orders,
            {"o_orderkey": pl.Int64, "o_custkey": pl.Int64, "o_totalprice": MONEY, "o_orderdate": pl.Date,
             "o_shippriority": pl.Int64},
        ),
        "lineitem": (
            items,
            {"l_orderkey": pl.Int64, "l_linenumber": pl.Int64, "l_suppkey": pl.Int64, "l_quantity": MONEY,
             "l_extendedprice": MONEY, "l_discount": MONEY, "l_tax": MONEY, "l_returnflag": pl.String,
             "l_linestatus": pl.String, "l_shipdate": pl.Date},
        ),
    }  # fmt: skip
    return {name: pl.DataFrame(rows, schema, orient="row") for name, (rows, schema) in frames.items()}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    """The change logs that the example's script makes of the tables."""
    folder, seed = tmp_path_factory.mktemp("tpch"), 20261122
    print(f"seed {seed}")
    (folder / "tables").mkdir()
    for name, table in tables(random.Random(seed)).items():
        table.write_parquet(folder / "tables" / f"{name}.parquet")
    script = REPOSITORY / "examples" / "tpch" / "refreshes.py"
    command = [sys.executable, str(script), "tables", "logs", "--versions", str(VERSIONS), "--share", "30"]
    subprocess.run(command, cwd=folder, check=True)
    return {file.stem: pl.read_parquet(file) for file in (folder / "logs").glob("*.parquet")}


def test_every_refresh_inserts_and_deletes_as_many_orders_with_all_their_items(logs: dict[str, pl.DataFrame]) -> None:
    orders, items = logs["orders"], logs["lineitem"]
    counts = orders.filter(pl.col("version") > 0).group_by("version", "diff").len().sort("version", "diff")
    assert counts.rows() == [(version, diff, 10) for version in range(1, VERSIONS + 1) for diff in (-1, 1)]
    assert orders.filter(pl.col("version") == 0).height == 300 - 10 * VERSIONS
    gone = orders.filter(pl.col("diff") < 0)["o_orderkey"]
    assert gone.is_unique().all()
    at_0 = orders.filter(pl.col("version") == 0)["o_orderkey"]
    assert set(gone) < set(at_0), "an order goes after it has come"
    moves = items.select("l_orderkey", "version", "diff").unique().sort(pl.all())
    assert moves.rows() == orders.select("o_orderkey", "version", "diff").sort(pl.all()).rows()


def test_every_query_is_right_at_every_version(logs: dict[str, pl.DataFrame], bench: Callable[[str], Any]) -> None:
    queries, accumulated = bench("peers.tpch_queries").QUERIES, bench("project").accumulated
    outputs = dd.replay(example("tpch"), ("version",), **logs)
    assert outputs.keys() == queries.keys()
    sizes = dict.fromkeys(queries, 0)
    for version in range(VERSIONS + 1):
        with pl.SQLContext({name: accumulated(log, version) for name, log in logs.items()}, eager=True) as tables:
            for name, query in queries.items():
                expected = tables.execute(query)
                ours = accumulated(outputs[name], version)
                assert not bench("tpch").difference(ours, expected), f"{name} at version {version}"
                sizes[name] += len(expected)
    assert all(sizes.values()), sizes
    changing = [name for name, log in outputs.items() if log["version"].n_unique() > 2]
    assert len(changing) > 3, changing


def test_the_reference_gives_the_same(logs: dict[str, pl.DataFrame]) -> None:
    """On the orders of ten customers."""
    few = {**logs, "orders": logs["orders"].filter(pl.col("o_custkey") <= 10)}
    few["lineitem"] = logs["lineitem"].filter(pl.col("l_orderkey").is_in(few["orders"]["o_orderkey"].implode()))
    expected = folding.by_reference(example("tpch"), **few)
    assert folding.whole(example("tpch"), **few) == expected
    assert any(expected.values())
