"""Functions of angles in degrees: exact at multiples of 30, as PostgreSQL has them."""

from __future__ import annotations

import math
from collections.abc import Callable

import polars as pl

from ddcore.expressions import polars_json
from ddcore.sql.types import FLOAT
from ddcore.sql.values import Named, function

_HALF = math.sin(math.radians(30))
_REST = 1 - math.cos(math.radians(60))


def _small_sine(x: pl.Expr) -> pl.Expr:
    """From 0 to 30 degrees."""
    return x.radians().sin() / _HALF / 2.0


def _small_cosine(x: pl.Expr) -> pl.Expr:
    """From 0 to 60 degrees."""
    return 1.0 - (1.0 - x.radians().cos()) / _REST / 2.0


def _sine(x: pl.Expr) -> pl.Expr:
    """From 0 to 90 degrees."""
    return pl.when(x <= 30).then(_small_sine(x)).otherwise(_small_cosine(90.0 - x))


def _cosine(x: pl.Expr) -> pl.Expr:
    return pl.when(x <= 60).then(_small_cosine(x)).otherwise(_small_sine(90.0 - x))


def _within(x: pl.Expr) -> pl.Expr:
    """The angle from 0 to 360."""
    return polars_json.called("Sql.Rem", [x.abs(), pl.lit(360.0)])


def _folded(x: pl.Expr) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """The angle from 0 to 90 whose functions are the same but for their signs, and the signs of sine and cosine."""
    half = pl.when(x > 180).then(360.0 - x).otherwise(x)
    return (
        pl.when(half > 90).then(180.0 - half).otherwise(half),
        pl.when(x > 180).then(-1.0).otherwise(1.0),
        pl.when(half > 90).then(-1.0).otherwise(1.0),
    )


def _sind(x: pl.Expr) -> pl.Expr:
    angle, sign, _ = _folded(_within(x))
    return sign * _sine(angle) * pl.when(x < 0).then(-1.0).otherwise(1.0)


def _cosd(x: pl.Expr) -> pl.Expr:
    angle, _, sign = _folded(_within(x))
    return sign * _cosine(angle)


def _arc(compute: Callable[[pl.Expr], pl.Expr], known: dict[float, float]) -> Callable[[pl.Expr], pl.Expr]:
    """A function of numbers in degrees, with the angles at numbers where they are whole."""

    def arc(x: pl.Expr) -> pl.Expr:
        found = compute(x).degrees()
        for number, angle in known.items():
            found = pl.when(x == number).then(angle).otherwise(found)
        return found

    return arc


_ONES = {
    "sind": _sind, "cosd": _cosd, "tand": lambda x: _sind(x) / _cosd(x), "cotd": lambda x: _cosd(x) / _sind(x),
    "asind": _arc(pl.Expr.arcsin, {0.5: 30.0, -0.5: -30.0}), "acosd": _arc(pl.Expr.arccos, {0.5: 60.0, -0.5: 120.0}),
    "atand": _arc(pl.Expr.arctan, {1.0: 45.0, -1.0: -45.0}),
}  # fmt: skip
NAMED: dict[str, Named] = {
    **{name: (1, function(compute, FLOAT, "float64", repeats=True)) for name, compute in _ONES.items()},
    "atan2d": (2, function(lambda y, x: pl.arctan2(y, x).degrees(), FLOAT, "float64", "float64")),
}
