"""Intervals hold every value an operation can give: by going through all small ones."""

from __future__ import annotations

from itertools import product

import polars as pl
import pytest
from polars import col

from ddcore.expressions import polars_json
from ddcore.expressions.exactness import analyse
from ddcore.expressions.intervals import LEAST, Bounds, Overflow
from ddcore.expressions.row_types import RowTypes

A, B = col("a"), col("b")
INTERVALS = [(low, high) for low, high in product(range(-4, 5), repeat=2) if low <= high]


types = RowTypes({"a": pl.Int64(), "b": pl.Int64(), "s": pl.String()})


@pytest.mark.parametrize(
    "expr",
    [
        A + B, A - B, A * B, A // B, A % B, A.truncdiv(B), -A, A.abs(), A.sign(), A.clip(B, 2), A.fill_null(B),
        pl.max_horizontal(A, B), pl.min_horizontal(A, B), pl.sum_horizontal(A, B), pl.coalesce(A, B), A**3,
        pl.when(A > 0).then(A).otherwise(B), pl.sql_expr("a % b"), pl.sql_expr("a // b"), pl.sql_expr("a * b"),
        A * B - A, (A - B) * (A + 1),
    ],
)  # fmt: skip
def test_an_interval_holds_all_values(expr: pl.Expr) -> None:
    grid = pl.DataFrame(list(product(range(-4, 5), repeat=2)), schema=["a", "b"], orient="row")
    grid = grid.with_columns(x=expr)
    term = analyse(polars_json.read(expr), types)
    rows = grid.drop_nulls("x").to_numpy()
    for a, b in product(INTERVALS, repeat=2):
        low, high = Bounds.of(term).bound({"a": a, "b": b})
        values = rows[((rows[:, :2] >= (a[0], b[0])) & (rows[:, :2] <= (a[1], b[1]))).all(axis=1), 2]
        assert not len(values) or (low <= values.min() and values.max() <= high), (a, b)


@pytest.mark.parametrize(
    ("expr", "most", "fits"),
    [
        (A + 1, 2**63 - 2, True),
        (A + 1, 2**63 - 1, False),
        (A * A, 3037000499, True),
        (A * A, 3037000500, False),
        (-A, 2**63 - 1, True),
        (2**A, 62, True),
        (2**A, 63, False),
        (A * A * 0, 2**40, False),
        ((A * A > 0) & (B > 0), 2**40, False),
        (col("s").str.len_chars() * 2, 2**63 - 1, True),
        (col("s").cast(pl.Int64) + 1, 0, False),
    ],
)
def test_the_limit_is_exact_and_holds_for_every_part(expr: pl.Expr, most: int, fits: bool) -> None:
    term = analyse(polars_json.read(expr), types)
    columns = {"a": (0, most), "b": (0, 1)}
    if fits:
        assert Bounds.of(term).bound(columns)[0] >= LEAST
    else:
        with pytest.raises(Overflow):
            Bounds.of(term).bound(columns)


def test_literals_and_narrow_integers_become_int64() -> None:
    for expr in (pl.lit(1) + pl.lit(2), col("s").str.len_chars(), A.cast(pl.Int8) + 1):
        assert analyse(polars_json.read(expr), types).dtype == pl.Int64()
