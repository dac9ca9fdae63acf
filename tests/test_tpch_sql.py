"""``examples/tpch_sql``: TPC-H's twenty-two queries in SQL equal DuckDB at every version of a stream of refreshes."""

from __future__ import annotations

import random
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from folding import by_reference, whole
from real_data import REPOSITORY
from sql_duckdb import bag, database
from sql_tables import accumulated

import ddcore as dd
from ddcore.base.schema import parse_schema
from ddcore.sql import load, program

EXAMPLE = REPOSITORY / "examples" / "tpch_sql"
QUERIES = EXAMPLE / "queries.sql"
SCHEMAS = {
    name: {column: kind.polars for column, kind in parse_schema(table["schema"]).items()}
    for name, table in tomllib.loads((EXAMPLE / "dd.toml").read_text(encoding="utf-8"))["inputs"].items()
}
NATIONS = [("GERMANY", 3), ("FRANCE", 3), ("BRAZIL", 1), ("CANADA", 1), ("SAUDI ARABIA", 4), ("CHINA", 2), ("INDIA", 2)]
KINDS = [
    ("Brand#12", "SM BOX", "PROMO BURNISHED BRASS", "forest green", (1, 3)),
    ("Brand#23", "MED BOX", "ECONOMY ANODIZED STEEL", "green ivory", (9, 14)),
    ("Brand#34", "LG CASE", "LARGE PLATED BRASS", "forest blue", (15, 3)),
    ("Brand#45", "JUMBO BAG", "MEDIUM POLISHED TIN", "red", (45, 49)),
]


def tables(rng: random.Random) -> dict[str, pl.DataFrame]:
    """Small tables of TPC-H whose values lie where the queries look."""

    def money(least: int, most: int) -> Decimal:
        return Decimal(rng.randint(least, most)).scaleb(-2)

    def phone(nation: int) -> str:
        return f"{rng.choice((13, 31, 23, nation + 10))}-{rng.randrange(1000)}"

    nations = range(len(NATIONS))
    parts = []
    for key in range(1, 41):
        brand, container, kind, name, sizes = rng.choice(KINDS)
        parts.append((key, name, "maker", brand, kind, rng.choice(sizes), container))
    suppliers = [
        (key, f"Supplier {key}", "street", nation, phone(nation), money(-999, 9999), comment)
        for key in range(1, 13)
        for nation, comment in [(key % len(NATIONS), rng.choice(("fine", "fine", "Customer x Complaints")))]
    ]
    customers = [
        (
            key,
            f"Customer {key}",
            "street",
            nation,
            phone(nation),
            money(-999, 99999),
            rng.choice(("BUILDING", "MACHINERY")),
            "-",
        )
        for key in range(1, 41)
        for nation in [rng.choice(nations)]
    ]
    orders, items = [], []
    for key in range(1, 401):
        placed = date(1993, 7, 1) + timedelta(rng.randrange(1000))
        urgency = rng.choice(("1-URGENT", "2-HIGH", "3-MEDIUM"))
        note = rng.choice(("-", "-", "special packages requests"))
        orders.append((key, rng.randrange(1, 31), rng.choice("FO"), money(10**6, 2 * 10**6), placed, urgency, 0, note))
        for number in range(1, rng.randint(2, 6)):
            items.append(_item(rng, key, number, placed, money))
    rows: dict[str, Sequence[tuple[Any, ...]]] = {
        "region": list(enumerate(("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"))),
        "nation": [(key, *NATIONS[key]) for key in nations],
        "supplier": suppliers,
        "part": parts,
        "partsupp": [
            (key, supplier, rng.randint(1, 99), money(100, 9999))
            for key in range(1, 41) for supplier in rng.sample(range(1, 13), 3)
        ],
        "customer": customers,
        "orders": orders,
        "lineitem": items,
    }  # fmt: skip
    return {name: pl.DataFrame(rows[name], schema, orient="row") for name, schema in SCHEMAS.items()}


def _item(rng: random.Random, key: int, number: int, placed: date, money: Any) -> tuple[Any, ...]:
    shipped, promised = (placed + timedelta(rng.randrange(1, 90)) for _ in range(2))
    received = shipped + timedelta(rng.randrange(1, 30))
    quantity = Decimal(rng.choice((2, 12, 22, 40, 90)))
    values = quantity, money(10**4, 10**5), money(4, 8), money(0, 8)
    modes = "DELIVER IN PERSON", rng.choice(("AIR", "AIR REG", "MAIL", "SHIP"))
    flags = rng.choice("ANR"), rng.choice("FO")
    return (
        key,
        rng.randrange(1, 41),
        rng.randrange(1, 13),
        number,
        *values,
        *flags,
        shipped,
        promised,
        received,
        *modes,
    )


def refreshed(folder: Path, versions: int, share: int) -> dict[str, pl.DataFrame]:
    """The change logs that the example's script makes of the tables in a folder."""
    script = REPOSITORY / "examples" / "tpch" / "refreshes.py"
    options = ["--versions", str(versions), "--share", str(share), "--project", str(EXAMPLE)]
    subprocess.run([sys.executable, str(script), "tables", "logs", *options], cwd=folder, check=True)
    return {name: pl.read_parquet(folder / "logs" / f"{name}.parquet") for name in SCHEMAS}


def require_equal(logs: dict[str, pl.DataFrame], versions: int) -> dict[str, int]:
    """Compares every query at every version; gives the number of rows of each over all versions."""
    outputs = dd.replay(load(QUERIES), ("version",), **logs)
    assert len(outputs) == 22
    sizes = dict.fromkeys(outputs, 0)
    for version in range(versions + 1):
        with database(logs, version) as connection:
            connection.execute(QUERIES.read_text(encoding="utf-8"))
            for name, log in outputs.items():
                other = connection.execute(f"SELECT {', '.join(log.columns[:-2])} FROM {name}").fetchall()
                assert bag(accumulated(log, version).rows()) == bag(other), f"{name} at version {version}"
                sizes[name] += len(other)
    return sizes


def test_all_queries_equal_duckdb_at_every_version(tmp_path: Path) -> None:
    seed = 22
    print(f"seed {seed}")
    (tmp_path / "tables").mkdir()
    for name, table in tables(random.Random(seed)).items():
        table.write_parquet(tmp_path / "tables" / f"{name}.parquet")
    sizes = require_equal(refreshed(tmp_path, 4, 10), 4)
    assert all(sizes.values()), f"a query without a row shows nothing: {sizes}"


@pytest.mark.long
def test_all_queries_equal_duckdb_on_the_benchmark_s_own_tables(tmp_path: Path) -> None:
    """At scale 0.01: 60,000 items, and twelve refreshes of one order in two hundred."""
    generator = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run([generator, "parquet", "--scale-factor", "0.01", "--output-dir", tmp_path / "tables"], check=True)
    require_equal(refreshed(tmp_path, 12, 200), 12)


def test_the_reference_gives_the_same_for_two_queries(tmp_path: Path) -> None:
    """A correlated subquery, and a join with groups, on the items of a few orders."""
    text = QUERIES.read_text(encoding="utf-8")
    chosen = [part + ";" for part in text.split(";\n\n") if "q04_" in part or "q17_" in part]
    small = tables(random.Random(1))
    few = small["orders"]["o_orderkey"].head(12)
    small["orders"] = small["orders"].filter(pl.col("o_orderkey").is_in(few.implode()))
    small["lineitem"] = small["lineitem"].filter(pl.col("l_orderkey").is_in(few.implode()))
    logs = {name: small[name].with_columns(version=0, diff=1) for name in ("orders", "lineitem", "part")}
    views = program("\n".join(chosen))
    assert whole(views, **logs) == by_reference(views, **logs)
