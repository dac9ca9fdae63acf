"""Six queries of the benchmark TPC-H (1, 3, 5, 6, 10 and 18), kept up to date while orders come and go."""

from __future__ import annotations

from datetime import date

import polars as pl

import ddcore as dd
from ddcore import col

REVENUE = pl.sql_expr("l_extendedprice * (1 - l_discount)")


def program(
    lineitem: dd.Collection,
    orders: dd.Collection,
    customer: dd.Collection,
    supplier: dd.Collection,
    nation: dd.Collection,
    region: dd.Collection,
) -> dict[str, dd.Collection]:
    """One output for each query, under TPC-H's name for it. Where the last place is shared, the least key has it."""
    return {
        "pricing_summary": pricing_summary(lineitem),
        "shipping_priority": shipping_priority(lineitem, orders, customer),
        "local_supplier_volume": local_supplier_volume(lineitem, orders, customer, supplier, nation, region),
        "forecast_revenue_change": forecast_revenue_change(lineitem),
        "returned_items": returned_items(lineitem, orders, customer, nation),
        "large_volume_customers": large_volume_customers(lineitem, orders, customer),
    }


def pricing_summary(lineitem: dd.Collection) -> dd.Collection:
    """Query 1: sums and means of what was shipped until ninety days before the end, by flag and status."""
    shipped = lineitem.where(col("l_shipdate") <= date(1998, 9, 2))
    return shipped.group_by("l_returnflag", "l_linestatus").agg(
        sum_qty=dd.sum("l_quantity"),
        sum_base_price=dd.sum("l_extendedprice"),
        sum_disc_price=dd.sum(REVENUE),
        sum_charge=dd.sum(pl.sql_expr("l_extendedprice * (1 - l_discount) * (1 + l_tax)")),
        avg_qty=dd.mean("l_quantity"),
        avg_price=dd.mean("l_extendedprice"),
        avg_disc=dd.mean("l_discount"),
        count_order=dd.count(),
    )


def shipping_priority(lineitem: dd.Collection, orders: dd.Collection, customer: dd.Collection) -> dd.Collection:
    """Query 3: the ten orders of greatest value that were not shipped on a day."""
    day = date(1995, 3, 15)
    builders = customer.where("c_mktsegment = 'BUILDING'").select("c_custkey")
    placed = orders.where(col("o_orderdate") < day).join(builders, on={"o_custkey": "c_custkey"})
    unshipped = lineitem.where(col("l_shipdate") > day).select("l_orderkey", revenue=REVENUE)
    items = unshipped.join(
        placed.select("o_orderkey", "o_orderdate", "o_shippriority"), on={"l_orderkey": "o_orderkey"}
    )
    values = items.group_by("l_orderkey", "o_orderdate", "o_shippriority").agg(revenue=dd.sum("revenue"))
    return values.group_by().top_k(10, ["revenue", "o_orderdate"], descending=[True, False])


def local_supplier_volume(
    lineitem: dd.Collection,
    orders: dd.Collection,
    customer: dd.Collection,
    supplier: dd.Collection,
    nation: dd.Collection,
    region: dd.Collection,
) -> dd.Collection:
    """Query 5: for each nation of Asia, the revenue of a year in which customer and supplier are both from there."""
    asia = region.where("r_name = 'ASIA'").select("r_regionkey")
    nations = nation.join(asia, on={"n_regionkey": "r_regionkey"}).select("n_nationkey", "n_name")
    suppliers = supplier.join(nations, on={"s_nationkey": "n_nationkey"})
    asians = customer.select("c_custkey", "c_nationkey").join(
        nations.select("n_nationkey"), on={"c_nationkey": "n_nationkey"}
    )
    placed = in_months(orders, date(1994, 1, 1), date(1995, 1, 1)).select("o_orderkey", "o_custkey")
    local = placed.join(asians, on={"o_custkey": "c_custkey"}).select("o_orderkey", "c_nationkey")
    items = lineitem.select("l_orderkey", "l_suppkey", revenue=REVENUE).join(local, on={"l_orderkey": "o_orderkey"})
    pairs = items.join(suppliers, on={"l_suppkey": "s_suppkey", "c_nationkey": "s_nationkey"})
    return pairs.group_by("n_name").agg(revenue=dd.sum("revenue"))


def forecast_revenue_change(lineitem: dd.Collection) -> dd.Collection:
    """Query 6: what small orders of a year would have brought in without their discounts."""
    shipped = lineitem.where(col("l_shipdate").is_between(date(1994, 1, 1), date(1994, 12, 31)))
    small = shipped.where("l_discount between 0.05 and 0.07", "l_quantity < 24")
    return small.group_by().agg(revenue=dd.sum(pl.sql_expr("l_extendedprice * l_discount")))


def returned_items(
    lineitem: dd.Collection, orders: dd.Collection, customer: dd.Collection, nation: dd.Collection
) -> dd.Collection:
    """Query 10: the twenty customers who sent back the most of what they ordered in a quarter."""
    placed = in_months(orders, date(1993, 10, 1), date(1994, 1, 1)).select("o_orderkey", "o_custkey")
    returned = lineitem.where("l_returnflag = 'R'").select("l_orderkey", revenue=REVENUE)
    items = returned.join(placed, on={"l_orderkey": "o_orderkey"}).select("revenue", c_custkey="o_custkey")
    worst = items.group_by("c_custkey").agg(revenue=dd.sum("revenue")).group_by()
    customers = worst.top_k(20, ["revenue", "c_custkey"], descending=[True, False]).join(customer, on="c_custkey")
    named = customers.join(nation.select("n_nationkey", "n_name"), on={"c_nationkey": "n_nationkey"})
    return named.select("c_custkey", "c_name", "revenue", "c_acctbal", "n_name", "c_address", "c_phone", "c_comment")


def large_volume_customers(lineitem: dd.Collection, orders: dd.Collection, customer: dd.Collection) -> dd.Collection:
    """Query 18: the hundred dearest orders of more than 300 pieces, and who placed them."""
    pieces = lineitem.group_by("l_orderkey").agg(quantity=dd.sum("l_quantity")).where("quantity > 300")
    large = orders.select("o_orderkey", "o_custkey", "o_orderdate", "o_totalprice").join(
        pieces, on={"o_orderkey": "l_orderkey"}
    )
    named = large.join(customer.select("c_custkey", "c_name"), on={"o_custkey": "c_custkey"})
    return named.group_by().top_k(100, ["o_totalprice", "o_orderdate"], descending=[True, False])


def in_months(orders: dd.Collection, first: date, end: date) -> dd.Collection:
    """The orders of some months."""
    return orders.where(col("o_orderdate") >= first, col("o_orderdate") < end)
