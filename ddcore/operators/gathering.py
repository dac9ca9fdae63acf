"""Aggregates that are put together from operators: statistics, and what needs the rows of a group in an order.

Each is a :class:`Gathered` in the table and a function of its name. ``program/gathered.py`` writes them as other
operators, ``reference/gathered.py`` defines their meaning. All but ``array_agg`` skip nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.base.schema import Schema, Type, parse_type
from ddcore.base.source_line import caller
from ddcore.expressions.parsing import parse
from ddcore.operators.aggregates import Aggregate
from ddcore.operators.arguments import checked, choice, flag
from ddcore.operators.order import flags_of
from ddcore.text.wording import brief

Of = Literal["slope", "intercept", "r2", "sxx", "syy", "sxy"]
_NUMBERS = ("int64", "float64", "decimal")
_VALUES = (*_NUMBERS, "bool", "string", "binary", "date", "timestamp", "time")
_ANY = (*_VALUES, "list", "struct")


@dataclass(frozen=True)
class Gathered:
    """What an aggregate takes and gives: the names of the types of each field, the result by the fields' types.

    ``statistic``: whether it is computed from sums. Fields that begin with ``by`` are an order.
    """

    name: str
    takes: Mapping[str, tuple[str, ...]]
    result: Callable[[Schema], Type]
    statistic: bool = False

    def types_of(self, field: str) -> tuple[str, ...]:
        """The types that a field may have."""
        return self.takes.get(field, _VALUES)


def _float(_: Schema) -> Type:
    return Type("float64")


def _value(fields: Schema) -> Type:
    return fields["value"]


_ONE = {"value": _NUMBERS}
_TWO = {"value": _NUMBERS, "other": _NUMBERS}
_BITS = {"value": ("int64",)}

GATHERED: Mapping[str, Gathered] = {
    rule.name: rule
    for rule in (
        Gathered("variance", _ONE, _float, statistic=True),
        Gathered("stddev", _ONE, _float, statistic=True),
        Gathered("covariance", _TWO, _float, statistic=True),
        Gathered("corr", _TWO, _float, statistic=True),
        Gathered("regression", _TWO, _float, statistic=True),
        Gathered("median", _ONE, _float),
        Gathered("quantile", {"value": _VALUES}, _value),
        Gathered("mode", {"value": _VALUES}, _value),
        Gathered("min_by", {"value": _VALUES}, _value),
        Gathered("max_by", {"value": _VALUES}, _value),
        Gathered("bit_and", _BITS, _value),
        Gathered("bit_or", _BITS, _value),
        Gathered("bit_xor", _BITS, _value),
        Gathered("string_agg", {"value": ("string",)}, _value),
        Gathered("array_agg", {"value": _ANY}, lambda fields: parse_type(pl.List(fields["value"].polars))),
    )
}
"""The aggregates by name."""


def _gathered(kind: str, where: Any, fields: Mapping[str, Any], *options: Any) -> Aggregate:
    exprs = {name: checked(parse, given, bare_string="column") for name, given in fields.items()}
    condition = None if where is None else checked(parse, where, bare_string="sql")
    struct = pl.struct([expr.alias(name) for name, expr in exprs.items()])
    return Aggregate(kind, struct, condition, exprs, options)


def variance(expr: Any, *, population: bool = False, where: Any = None) -> Aggregate:
    """The variance of ``expr`` (float64), of a sample or of the whole ``population``; null of too few values.

    Of int64, float64 or decimals: of the exact sums of the values and of their squares, rounded once; NaN where a value
    is not finite. A bare string is a column. ``where``: only of the rows for which this is true; text is SQL.
    Cost: linear in the rows that change. Raises ProgramError.
    """
    return _gathered("variance", where, {"value": expr}, flag(population, "variance: population"))


def stddev(expr: Any, *, population: bool = False, where: Any = None) -> Aggregate:
    """The standard deviation of ``expr`` (float64): the root of :func:`variance`, with its options and its cost."""
    return _gathered("stddev", where, {"value": expr}, flag(population, "stddev: population"))


def covariance(y: Any, x: Any, *, population: bool = False, where: Any = None) -> Aggregate:
    """The covariance of two numbers in the rows in which neither is null (float64); null of too few such rows.

    Exact as :func:`variance`, with its types, options and cost.
    """
    return _gathered("covariance", where, {"value": y, "other": x}, flag(population, "covariance: population"))


def corr(y: Any, x: Any, *, where: Any = None) -> Aggregate:
    """The correlation of two numbers (float64, from -1 to 1) in the rows in which neither is null; null where one of
    them has a single value. Exact as :func:`variance`, with its types and its cost.
    """
    return _gathered("corr", where, {"value": y, "other": x})


def regression(y: Any, x: Any, of: Of = "slope", *, where: Any = None) -> Aggregate:
    """What the line through the points ``(x, y)`` has by least squares (float64): its slope, its intercept, ``r2``, or
    the sums of squares ``sxx``, ``syy`` and ``sxy`` around the means. SQL's ``regr_slope(y, x)`` and relatives.

    Of the rows in which neither is null; null where these have no line. Exact as :func:`variance`, with its types and
    its cost. Raises ProgramError for another ``of``.
    """
    return _gathered("regression", where, {"value": y, "other": x}, choice(of, get_args(Of), "regression: of"))


def median(expr: Any, *, where: Any = None) -> Aggregate:
    """The middle value, or the middle of the two that are (float64): ``quantile(0.5)`` between values.

    A bare string is a column. ``where``: only of the rows for which this is true; text is SQL. Cost: a changed row
    costs the rows of its group.
    """
    return _gathered("median", where, {"value": expr}, 0.5)


def quantile(expr: Any, fraction: float, *, between: bool = False, where: Any = None) -> Aggregate:
    """The first value at or before which this ``fraction`` of the values is, in their order (``percentile_disc``).

    The result has the type of ``expr``, any that has an order. With ``between`` it is a float64 on the line between two
    values (``percentile_cont``), of numbers alone. Null of none. A bare string is a column. ``where``: only of the rows
    for which this is true; text is SQL. Cost: as for :func:`median`. Raises ProgramError for a fraction that is none.
    """
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
        raise ProgramError(f"{caller()}: quantile: the fraction is {brief(fraction)}", "give a number from 0 to 1")
    kind = "median" if flag(between, "quantile: between") else "quantile"
    return _gathered(kind, where, {"value": expr}, float(fraction))


def mode(expr: Any, *, where: Any = None) -> Aggregate:
    """The most frequent value, of several the least, with the type of ``expr``; null of none.

    A bare string is a column. ``where``: only of the rows for which this is true; text is SQL. Cost: a changed row
    costs the rows of its group.
    """
    return _gathered("mode", where, {"value": expr})


def min_by(expr: Any, by: Any, *, where: Any = None) -> Aggregate:
    """The value of ``expr`` in the row with the least ``by``, of several such rows the least.

    Rows in which one of the two is null do not count; null of none. Bare strings are columns. ``where``: only of the
    rows for which this is true; text is SQL. Cost: that of ``top_k(1)``.
    """
    return _gathered("min_by", where, {"value": expr, "by 0": by})


def max_by(expr: Any, by: Any, *, where: Any = None) -> Aggregate:
    """The value of ``expr`` in the row with the greatest ``by``, of several such rows the least; else as
    :func:`min_by`.
    """
    return _gathered("max_by", where, {"value": expr, "by 0": by})


def bit_and(expr: Any, *, where: Any = None) -> Aggregate:
    """The bits that are set in all values of ``expr``, an int64 (int64); nulls are skipped, null of none.

    A bare string is a column. ``where``: only of the rows for which this is true; text is SQL. Cost: a changed row
    costs the rows of its group.
    """
    return _gathered("bit_and", where, {"value": expr})


def bit_or(expr: Any, *, where: Any = None) -> Aggregate:
    """The bits that are set in any value of ``expr``, an int64 (int64); else as :func:`bit_and`."""
    return _gathered("bit_or", where, {"value": expr})


def bit_xor(expr: Any, *, where: Any = None) -> Aggregate:
    """The bits that are set in an odd number of values of ``expr``, an int64 (int64); else as :func:`bit_and`."""
    return _gathered("bit_xor", where, {"value": expr})


def string_agg(
    expr: Any,
    separator: str,
    *,
    order_by: Any = (),
    descending: bool | list[bool] = False,
    nulls_first: bool | list[bool] = False,
    distinct: bool = False,
    where: Any = None,
) -> Aggregate:
    """The texts of a group with ``separator`` between them, in the order of ``order_by``, equal ones in their own.

    ``distinct``: each text once; then only they themselves may be an order. Nulls are skipped, null of none. ``where``:
    only of the rows for which this is true; text is SQL. Cost: a changed row costs the rows of its group. Raises
    ProgramError for a separator that is no text, and for flags that are not one, or one for each of ``order_by``.
    """
    if not isinstance(separator, str):
        raise ProgramError(f"{caller()}: string_agg: the separator is {brief(separator)}", "give a text, such as ', '")
    by, order = _order("string_agg", order_by, descending, nulls_first)
    return _gathered(
        "string_agg", where, {"value": expr, **by}, order, flag(distinct, "string_agg: distinct"), separator
    )


def array_agg(
    expr: Any,
    *,
    order_by: Any = (),
    descending: bool | list[bool] = False,
    nulls_first: bool | list[bool] = False,
    distinct: bool = False,
    where: Any = None,
) -> Aggregate:
    """The list of a group's values, nulls too, in the order of ``order_by``, equal ones in their own.

    The result is a list of values of the type of ``expr``. ``distinct``: each value once. ``where``: only of the rows
    for which this is true; null where it leaves none. Cost and errors: as for :func:`string_agg`.
    """
    by, order = _order("array_agg", order_by, descending, nulls_first)
    return _gathered("array_agg", where, {"value": expr, **by}, order, flag(distinct, "array_agg: distinct"))


def _order(
    what: str, order_by: Any, descending: bool | list[bool], nulls_first: bool | list[bool]
) -> tuple[dict[str, Any], tuple[tuple[bool, bool], ...]]:
    """The fields of an order, and for each whether it descends and has its nulls first."""
    exprs = list(order_by) if isinstance(order_by, list | tuple) else [order_by]
    flags = [
        flags_of(descending, len(exprs), f"{what}: descending"),
        flags_of(nulls_first, len(exprs), f"{what}: nulls_first"),
    ]
    fields = {f"by {number}": expr for number, expr in enumerate(exprs)}
    return fields, tuple(zip(*flags, strict=True))
