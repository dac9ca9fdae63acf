"""Aggregates that need the rows of a group in an order: what ``reduce`` calls for them.

Workers run this. A frame has ``group``, the columns of the aggregates' fields and ``count``, sorted by all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from ddcore.base.lazy import numpy as np


@dataclass(frozen=True)
class Part:
    """One aggregate: the column of its result, its kind and options, the columns of its fields and of its condition."""

    result: str
    kind: str
    options: tuple[Any, ...]
    value: str
    by: tuple[str, ...]
    there: str | None


def ordered(parts: Sequence[Part]) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """A function for ``reduce`` that gives one row for each group; it can be pickled, unlike one that is made here."""
    return partial(_results, tuple(parts))


def _results(parts: Sequence[Part], frame: pl.DataFrame) -> pl.DataFrame:
    groups = frame.select(pl.col("group").unique(maintain_order=True))
    for part in parts:
        rows = frame if part.there is None else frame.filter(pl.col(part.there))
        names = {part.value: "value"} if part.value not in part.by else {}
        rows = rows.select("group", "count", *dict.fromkeys((part.value, *part.by))).rename(names)
        if part.value in part.by:
            rows = rows.with_columns(value=pl.col(part.value))
        found = _KINDS[part.kind](rows, part).select("group", pl.col("value").alias(part.result))
        groups = groups.join(found, on="group", how="left", maintain_order="left")
    return groups


def _counted(rows: pl.DataFrame) -> pl.DataFrame:
    """The values that are not null in their order: each once, with how many come before it and up to it."""
    rows = rows.filter(pl.col("value").is_not_null()).group_by("group", "value").agg(pl.col("count").sum())
    rows = rows.sort("group", "value")
    up_to = pl.col("count").cum_sum().over("group")
    return rows.with_columns(up_to=up_to, number=pl.col("count").sum().over("group"))


def _at(position: pl.Expr) -> pl.Expr:
    """The value of a place in the order, from 0 on."""
    return pl.col("value").filter(pl.col("up_to") > position).first()


def _median(rows: pl.DataFrame, part: Part) -> pl.DataFrame:
    position = (pl.col("number") - 1).cast(pl.Float64) * part.options[0]
    first, last = position.floor(), position.ceil()
    sides = _counted(rows).group_by("group", maintain_order=True).agg(
        least=_at(first), most=_at(last), share=(position - first).first()
    )  # fmt: skip
    least, most = pl.col("least"), pl.col("most")
    between = least + (most - least) * pl.col("share")
    return sides.with_columns(value=pl.when(pl.col("share") == 0).then(least).otherwise(between))


def _quantile(rows: pl.DataFrame, part: Part) -> pl.DataFrame:
    position = (pl.col("number").cast(pl.Float64) * part.options[0]).ceil().clip(1) - 1
    return _counted(rows).group_by("group", maintain_order=True).agg(value=_at(position))


def _mode(rows: pl.DataFrame, part: Part) -> pl.DataFrame:
    most = pl.col("count") == pl.col("count").max()
    return _counted(rows).group_by("group", maintain_order=True).agg(value=pl.col("value").filter(most).first())


def _bits(rows: pl.DataFrame, part: Part) -> pl.DataFrame:
    rows = rows.filter(pl.col("value").is_not_null())
    if part.kind == "bit_xor":
        rows = rows.with_columns(value=pl.when(pl.col("count") % 2 == 1).then(pl.col("value")).otherwise(0))
    combine = {"bit_and": pl.Expr.bitwise_and, "bit_or": pl.Expr.bitwise_or, "bit_xor": pl.Expr.bitwise_xor}[part.kind]
    return rows.group_by("group", maintain_order=True).agg(value=combine(pl.col("value")))


def _sorted(rows: pl.DataFrame, part: Part) -> pl.DataFrame:
    """Each row as often as it is there, or each value once, in the order of the aggregate and then of the values."""
    order, distinct, *_ = part.options
    if part.kind == "string_agg":
        rows = rows.filter(pl.col("value").is_not_null())
    if distinct:
        rows = rows.sort("group", "value", *part.by).unique(["group", "value"], keep="first", maintain_order=True)
    else:
        rows = rows[pl.Series(np.repeat(np.arange(len(rows)), rows["count"].to_numpy()), dtype=pl.UInt32)]
    downs = [False, *(down for down, _ in order), False]
    lasts = [True, *(not first for _, first in order), True]
    return rows.sort("group", *part.by, "value", descending=downs, nulls_last=lasts, maintain_order=True)


def _string_agg(rows: pl.DataFrame, part: Part) -> pl.DataFrame:
    texts = _sorted(rows, part).group_by("group", maintain_order=True)
    return texts.agg(value=pl.col("value").str.join(part.options[2]))


def _array_agg(rows: pl.DataFrame, part: Part) -> pl.DataFrame:
    return _sorted(rows, part).group_by("group", maintain_order=True).agg("value")


_KINDS: dict[str, Callable[[pl.DataFrame, Part], pl.DataFrame]] = {
    "median": _median, "quantile": _quantile, "mode": _mode, "bit_and": _bits,
    "bit_or": _bits, "bit_xor": _bits, "string_agg": _string_agg, "array_agg": _array_agg,
}  # fmt: skip
