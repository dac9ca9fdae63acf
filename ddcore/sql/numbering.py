"""Numbers of rows in the order of their group: what row_number, rank and dense_rank compute.

Workers run this: it must not import sqlglot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

__all__ = ["numbering"]


def numbering(
    kind: str, result: str, keys: Sequence[str], downs: Sequence[bool], firsts: Sequence[bool]
) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """A function for ``reduce`` that adds the column ``result``: ``kind`` is row_number, rank or dense_rank.

    Rows are ordered by ``keys``, each descending where ``downs`` says so, with nulls first where ``firsts`` does.
    """

    def numbers(frame: pl.DataFrame) -> pl.DataFrame:
        last = [True, *(not first for first in firsts)]
        rows = frame.sort("group", *keys, descending=[False, *downs], nulls_last=last, maintain_order=True)
        if kind == "row_number":  # equal rows have different numbers
            places = pl.Series(
                [number for number, count in enumerate(rows["count"]) for _ in range(count)], dtype=pl.Int64
            )
            rows = rows[places].with_columns(count=pl.lit(1, dtype=pl.Int64))
            return rows.with_columns(pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("group").alias(result))
        if kind == "rank":
            before = (pl.col("count").cum_sum() - pl.col("count") + 1).over("group")
            return rows.with_columns(before.alias(result)).with_columns(pl.col(result).min().over("group", *keys))
        new = pl.struct("group", *keys).is_first_distinct().cast(pl.Int64)
        return rows.with_columns(new.cum_sum().over("group").alias(result))

    return numbers
