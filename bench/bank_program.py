"""The program of :mod:`bench.bank`: what a bank asks of its customers, accounts and transfers."""

from __future__ import annotations

import polars as pl

import ddcore as dd
from ddcore import algorithms, col


def program(customers: dd.Collection, accounts: dd.Collection, transfers: dd.Collection) -> dict[str, dd.Collection]:
    """``accounts`` is a slowly changing dimension: a row holds from the day ``since`` to before the day ``until``."""
    held = accounts.select("account", "customer").distinct()
    sent = transfers.group_by("account").agg(cents=dd.sum("cents"), n=dd.count())
    spent = held.join(sent, on="account").group_by("customer").agg(cents=dd.sum("cents"), n=dd.sum("n"))
    return {
        "exposures": exposures(customers, spent),
        **tiers(accounts, transfers),
        "first_of_country": spent.join(customers, on="customer")
        .select("country", "customer", "cents")
        .group_by("country")
        .top_k(10, ["cents", "customer"], descending=[True, False]),
        "payees": transfers.group_by("account").agg(payees=dd.count_distinct("payee")),
        **rings(customers, spent),
        "orphans": transfers.join(held, on="account", how="anti").select("transfer", "account"),
    }


def exposures(customers: dd.Collection, spent: dd.Collection) -> dd.Collection:
    """A roll-up: what each customer spent, and all that are below it in the hierarchy."""
    parents = customers.where(col("parent").is_not_null()).select("customer", "parent")
    own = customers.select("customer", owner="customer").distinct()

    def climb(pairs: dd.Collection) -> dd.Collection:
        further = pairs.join(parents, on={"owner": "customer"}).select("customer", owner="parent")
        return further.concat(own).distinct()

    below = own.iterate(climb).join(spent, on="customer")
    return below.group_by("owner").agg(cents=dd.sum("cents"), customers=dd.count())


def tiers(accounts: dd.Collection, transfers: dd.Collection) -> dict[str, dd.Collection]:
    """Each transfer under the tier that its account had on the day."""
    then = transfers.join(accounts, on="account").where((col("since") <= col("day")) & (col("day") < col("until")))
    priced = then.select("customer", "tier", "day", cents="cents", fee=pl.sql_expr("cents // (100 * tier + 100)"))
    return {
        "fees": priced.group_by("customer").agg(fee=dd.sum("fee")),
        "tiers": priced.group_by("tier", "day").agg(cents=dd.sum("cents"), n=dd.count(), largest=dd.max("cents")),
    }


def rings(customers: dd.Collection, spent: dd.Collection) -> dict[str, dd.Collection]:
    """Customers that stand surety for each other, and what they spent together."""
    edges = customers.where(col("guarantor").is_not_null()).select(src="customer", dst="guarantor")
    members = algorithms.components(edges)
    spending = members.join(spent, on={"node": "customer"})
    return {
        "rings": members,
        "ring_spending": spending.group_by("component").agg(cents=dd.sum("cents"), most=dd.max("cents")),
    }
