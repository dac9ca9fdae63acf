"""``examples/shop``: after every hour each published table equals what DuckDB computes from the Bronze tables."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import polars as pl
import pytest
from real_data import REPOSITORY
from sql_duckdb import bag
from trams import Command

from ddcore.io.project.finding import find_project

EXAMPLE = REPOSITORY / "examples" / "shop"


@pytest.fixture(scope="module")
def bronze() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bronze", EXAMPLE / "bronze.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def shop(tmp_path: Path, bronze: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example, with its Bronze tables of 400 orders."""
    folder = tmp_path / "shop"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("bronze", "warehouse", "__pycache__"))
    bronze.make(folder / "bronze", 400)
    monkeypatch.chdir(folder)
    return folder


def check(folder: Path) -> dict[str, int]:
    """Every published table has the rows that DuckDB computes by the same SQL; the number of rows of each."""
    project = find_project(folder)
    con = duckdb.connect()
    for name in project.inputs:
        con.register(name, pl.read_delta(str(folder / "bronze" / name)).to_arrow())
    for file in ("silver", "gold"):
        con.execute((folder / "views" / f"{file}.sql").read_text())
    counts = {}
    for name in project.outputs:
        ours = pl.read_delta(str(folder / "warehouse" / "tables" / name))
        other = pl.DataFrame(con.table(name).to_arrow_table()).cast(ours.schema)
        assert bag(ours.rows()) == bag(other.rows()), name
        counts[name] = len(ours)
    return counts


@pytest.mark.sample(1, of="hours")
def test_tables_are_right_after_every_hour(shop: Path, bronze: ModuleType, dd: Command) -> None:
    assert dd("sync", "-q")[0] == 0
    before = check(shop)
    assert len(before) == 9 and all(before.values())
    versions = {name: _version(shop, name) for name in before}
    for _ in range(2):
        bronze.add_hour(shop / "bronze")
        assert dd("sync", "-q")[0] == 0
        assert check(shop)["customer_value"] >= before["customer_value"]
    assert all(_version(shop, name) > version for name, version in versions.items())
    code, out, _ = dd("sync", "--json")
    assert code == 0 and '"nothing_new": true' in out[-1]


@pytest.mark.sample(1, of="hours")
def test_an_hour_that_cancels_everything(shop: Path, bronze: ModuleType, dd: Command) -> None:
    """All orders of the newest day go: windows, running totals and best sellers have to go back."""
    from deltalake import DeltaTable

    assert dd("sync", "-q")[0] == 0
    bronze.add_hour(shop / "bronze")
    assert dd("sync", "-q")[0] == 0
    assert DeltaTable(str(shop / "bronze" / "orders")).delete("order_id >= 398")["num_deleted_rows"] > 90
    assert dd("sync", "-q")[0] == 0
    check(shop)


@pytest.mark.long
def test_views_hold_by_the_naive_evaluator(shop: Path, bronze: ModuleType, dd: Command) -> None:
    assert dd("sync", "-q")[0] == 0
    bronze.add_hour(shop / "bronze")
    assert dd("sync", "-q")[0] == 0
    assert dd("verify", "-q")[0] == 0


@pytest.mark.long
@pytest.mark.spark
def test_on_spark(shop: Path, bronze: ModuleType, dd: Command, spark: Any) -> None:
    assert dd("sync", "-q", "--engine", "spark")[0] == 0
    bronze.add_hour(shop / "bronze")
    code, _, err = dd("sync", "-q", "--engine", "spark")
    assert code == 0, err
    check(shop)


def _version(folder: Path, name: str) -> int:
    from deltalake import DeltaTable

    return DeltaTable(str(folder / "warehouse" / "tables" / name)).version()
