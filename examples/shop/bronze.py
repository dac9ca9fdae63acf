"""Makes the shop's Bronze tables, and the commits of one hour after the other: ``python bronze.py``.

Seven Delta tables with a change feed, as other systems would write them. The first call makes the tables with two years
of orders; each further call commits what one hour brings, to each table that it touches: about a thousand changed rows,
however large the tables are.
"""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
from deltalake import DeltaTable, write_deltalake

FIRST_DAY = datetime(2024, 1, 1)
HOURS = 2 * 365 * 24  # before the first hour that is added
AN_HOUR = 100  # orders
PRODUCTS, SUPPLIERS = 2_000, 40
REGIONS = ("north", "east", "south", "west")
SEGMENTS = ("consumer", "business", "school")
CATEGORIES = ("kitchen", "garden", "office", "sports", "books", "toys", "tools", "music")
CARRIERS = ("bicycle", "post", "van")
NEXT_STATUS = {"placed": "packed", "packed": "sent", "sent": "delivered"}
KEYS = {
    "suppliers": ["supplier_id"], "products": ["product_id"], "customers": ["customer_id"], "orders": ["order_id"],
    "items": ["order_id", "line"], "payments": ["payment_id"], "movements": ["movement_id"],
}  # fmt: skip


def make(folder: Path, orders: int) -> None:
    """Make the tables with so many orders."""
    rng = np.random.default_rng(7)
    tables = first_tables(rng, orders)
    for name, rows in tables.items():
        write_deltalake(str(folder / name), rows.to_arrow(), configuration={"delta.enableChangeDataFeed": "true"})


def first_tables(rng: np.random.Generator, orders: int) -> dict[str, pl.DataFrame]:
    """The tables before the first hour that is added."""
    people = max(orders // 10, 20)
    suppliers = pl.DataFrame({"supplier_id": np.arange(SUPPLIERS)}).with_columns(
        name=pl.format("Supplier {}", "supplier_id"), country=_drawn(rng, ("NO", "SE", "DK", "FI"), SUPPLIERS)
    )
    products = pl.DataFrame({"product_id": np.arange(PRODUCTS)}).with_columns(
        name=pl.format("Product {}", "product_id"),
        category=_drawn(rng, CATEGORIES, PRODUCTS),
        supplier_id=pl.Series(rng.integers(0, SUPPLIERS, PRODUCTS)),
        price=_money(rng.integers(100, 50_000, PRODUCTS)),
        reorder_at=pl.Series(rng.integers(10, 50, PRODUCTS)),
    )
    customers = pl.DataFrame({"customer_id": np.arange(people)}).with_columns(
        name=pl.format("Customer {}", "customer_id"),
        region=_drawn(rng, REGIONS, people),
        segment=_drawn(rng, SEGMENTS, people),
    )
    seconds = np.sort(rng.integers(0, HOURS * 3600, orders))
    placed = _orders(rng, 0, seconds, people).with_columns(
        status=pl.when(pl.col("placed_at") < pl.lit(FIRST_DAY + timedelta(hours=HOURS - 72)))
        .then(pl.lit("delivered"))
        .otherwise(_drawn(rng, ("placed", "packed", "sent"), orders))
    )
    items = _items(rng, placed)
    # What was sold was there: the first deliveries.
    sold = items.group_by("product_id").agg(quantity=pl.col("quantity").sum()).sort("product_id")
    movements = pl.DataFrame(
        {
            "movement_id": np.arange(len(sold)),
            "product_id": sold["product_id"],
            "quantity": sold["quantity"] + pl.Series(rng.integers(0, 200, len(sold))),
            "moved_at": pl.Series([FIRST_DAY], dtype=pl.Datetime("us")).new_from_index(0, len(sold)),
        }
    )
    return {
        "suppliers": suppliers, "products": products, "customers": customers, "orders": placed, "items": items,
        "payments": _payments(rng, 0, placed, items), "movements": movements,
    }  # fmt: skip


def add_hour(folder: Path) -> None:
    """Commit what the next hour brings. Changes and deletes are merged, by delta-rs."""
    orders = pl.read_delta(str(folder / "orders"))
    hour = DeltaTable(str(folder / "movements")).version()  # one commit an hour
    rng = np.random.default_rng(1_000 + hour)
    begin = FIRST_DAY + timedelta(hours=HOURS + hour)
    products, customers = (pl.read_delta(str(folder / name)) for name in ("products", "customers"))
    seconds = np.sort((begin - FIRST_DAY).total_seconds() + rng.integers(0, 3600, AN_HOUR)).astype(np.int64)
    new = _orders(rng, _next(folder, "orders", "order_id"), seconds, len(customers)).with_columns(
        status=pl.lit("placed")
    )
    items = _items(rng, new, products)
    moved = _moved_on(rng, orders)
    cancelled = _some(rng, orders.filter(pl.col("status") == "placed"), 3).with_columns(status=pl.lit("cancelled"))
    forgotten = _some(rng, orders.filter(pl.col("status") == "delivered"), 2)  # somebody asked for it
    _merge(folder, "orders", pl.concat([moved.join(cancelled, on="order_id", how="anti"), cancelled, new]))
    _append(folder, "items", items)
    for name in ("orders", "items", "payments"):
        ids = ", ".join(map(str, forgotten["order_id"]))
        DeltaTable(str(folder / name)).delete(f"order_id in ({ids})")
    paid = _payments(rng, _next(folder, "payments", "payment_id"), new, items)
    _append(folder, "payments", paid)
    _append(folder, "movements", _movements(rng, _next(folder, "movements", "movement_id"), items, begin))
    repriced = _some(rng, products, 10).with_columns(price=(pl.col("price") * 11 / 10).cast(pl.Decimal(12, 2)))
    _merge(folder, "products", repriced)
    relocated = _some(rng, customers, 5).with_columns(region=_drawn(rng, REGIONS, 5))
    people = len(customers)
    joined = pl.DataFrame({"customer_id": np.arange(people, people + 5)}).with_columns(
        name=pl.format("Customer {}", "customer_id"),
        region=_drawn(rng, REGIONS, 5),
        segment=_drawn(rng, SEGMENTS, 5),
    )
    _merge(folder, "customers", pl.concat([relocated, joined]))


def _orders(rng: np.random.Generator, first: int, seconds: np.ndarray, people: int) -> pl.DataFrame:
    """Orders without their status."""
    number = len(seconds)
    placed_at = np.datetime64(FIRST_DAY, "us") + seconds.astype("timedelta64[s]")
    return pl.DataFrame(
        {
            "order_id": np.arange(first, first + number),
            "customer_id": rng.integers(0, people, number),
            "placed_at": placed_at,
            "carrier": _drawn(rng, CARRIERS, number),
        }
    )


def _items(rng: np.random.Generator, orders: pl.DataFrame, products: pl.DataFrame | None = None) -> pl.DataFrame:
    """One to four items of each order."""
    lines = rng.integers(1, 5, len(orders))
    order = np.repeat(orders["order_id"].to_numpy(), lines)
    number = len(order)
    first = np.repeat(np.cumsum(lines) - lines, lines)
    product = rng.integers(0, PRODUCTS, number)
    prices = rng.integers(100, 50_000, number)
    rows = pl.DataFrame(
        {"order_id": order, "line": np.arange(number) - first + 1, "product_id": product,
         "quantity": rng.integers(1, 6, number)}
    )  # fmt: skip
    if products is None:
        return rows.with_columns(unit_price=_money(prices))
    known = products.select("product_id", unit_price="price")
    return rows.join(known, on="product_id", how="left", maintain_order="left")


def _payments(rng: np.random.Generator, first: int, orders: pl.DataFrame, items: pl.DataFrame) -> pl.DataFrame:
    """One payment for nine of ten orders; some of them too small."""
    amounts = items.group_by("order_id").agg(amount=(pl.col("quantity") * pl.col("unit_price")).sum())
    paid = orders.filter(pl.Series(rng.random(len(orders)) < 0.9)).join(
        amounts, on="order_id", how="left", maintain_order="left"
    )
    short = pl.Series(rng.random(len(paid)) < 0.02)
    return paid.select(
        payment_id=pl.int_range(first, first + len(paid)),
        order_id="order_id",
        amount=pl.when(short).then(pl.col("amount") / 2).otherwise(pl.col("amount")).cast(pl.Decimal(12, 2)),
        paid_at=pl.col("placed_at") + pl.Series(rng.integers(0, 60, len(paid)) * 60_000_000).cast(pl.Duration("us")),
    )


def _movements(rng: np.random.Generator, first: int, items: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Deliveries of some suppliers."""
    product = np.unique(rng.choice(items["product_id"].to_numpy(), 50))
    return pl.DataFrame(
        {
            "movement_id": np.arange(first, first + len(product)),
            "product_id": product,
            "quantity": rng.integers(1, 30, len(product)),
        }
    ).with_columns(moved_at=pl.lit(at))


def _moved_on(rng: np.random.Generator, orders: pl.DataFrame) -> pl.DataFrame:
    """Orders that get their next status."""
    due = _some(rng, orders.filter(pl.col("status").is_in([*NEXT_STATUS])), 2 * AN_HOUR)
    return due.with_columns(pl.col("status").replace_strict(NEXT_STATUS))


def _some(rng: np.random.Generator, rows: pl.DataFrame, number: int) -> pl.DataFrame:
    return rows[np.sort(rng.choice(len(rows), min(number, len(rows)), replace=False))]


def _next(folder: Path, table: str, column: str) -> int:
    newest = pl.scan_delta(str(folder / table)).select(pl.col(column).max()).collect().item()
    return 0 if newest is None else int(newest) + 1


def _append(folder: Path, table: str, rows: pl.DataFrame) -> None:
    write_deltalake(str(folder / table), rows.to_arrow(), mode="append")


def _merge(folder: Path, table: str, rows: pl.DataFrame) -> None:
    """Update the rows of the table with the same key, and insert the others."""
    condition = " and ".join(f"t.{name} = s.{name}" for name in KEYS[table])
    into = DeltaTable(str(folder / table))
    names = into.schema().fields
    source = rows.select([field.name for field in names]).to_arrow()
    merge = into.merge(source, condition, source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _money(cents: np.ndarray) -> pl.Series:
    return (pl.Series(cents).cast(pl.Decimal(12, 2)) / 100).cast(pl.Decimal(12, 2))


def _drawn(rng: np.random.Generator, values: tuple[str, ...], number: int) -> pl.Series:
    return pl.Series([*values]).gather(rng.integers(0, len(values), number))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the shop's Bronze tables, or commit what one more hour brings.")
    parser.add_argument("--folder", type=Path, default=Path("bronze"))
    parser.add_argument("--orders", type=int, default=20_000, help="of the first call (default: 20,000)")
    options = parser.parse_args()
    if (options.folder / "orders").exists():
        add_hour(options.folder)
    else:
        make(options.folder, options.orders)
