"""The programs of :mod:`bench.moving_filter`, with one meaning. A project gets this file as its program."""

from __future__ import annotations

import ddcore as dd
from ddcore import col


def by_order(readings: dd.Collection) -> dict[str, dd.Collection]:
    """The rows between the old and the new bound are found by their order."""
    last = readings.group_by().agg(ts=dd.max("ts")).select(since=col("ts").dt.offset_by("-7d"))
    return {"recent": readings.join_between(last, "ts", lower="since", closed="none").select("id")}


def by_pairs(readings: dd.Collection) -> dict[str, dd.Collection]:
    """Every row is joined with the bound."""
    last = readings.group_by().agg(ts=dd.max("ts")).select(since=col("ts").dt.offset_by("-7d"), one=1)
    pairs = readings.with_columns(one=1).join(last, on="one")
    return {"recent": pairs.where(col("ts") > col("since")).select("id")}
