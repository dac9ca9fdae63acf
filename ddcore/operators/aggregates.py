"""The aggregates of ``group_by(keys).agg(...)``: a table with what each takes and gives, and its name for programs.

An aggregate is a :class:`Rule` in the table and a function of its name. ``reference/`` defines its meaning and
``kernels/aggregating.py`` computes it. All but ``count()`` skip nulls; a group without rows is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.base.record import record
from ddcore.base.schema import Type, widest
from ddcore.base.source_line import caller
from ddcore.expressions.parsing import parse
from ddcore.operators.arguments import checked
from ddcore.operators.frame import Framed


@record
class Rule:
    """What an aggregate takes and gives.

    ``takes``: the names of the types its argument may have; none if it has no argument. ``result``: the type of the
    result, by that of the argument. ``kernel``: its kind in ``kernels/aggregating.py``; ``of_floats``: the kind for
    float64, if it is another one.
    """

    name: str
    takes: tuple[str, ...]
    result: Callable[[Type], Type]
    kernel: str
    of_floats: str = ""

    def kind(self, argument: Type) -> str:
        """The kind of the kernel for an argument of this type."""
        return self.of_floats if self.of_floats and argument.name == "float64" else self.kernel


_NUMBERS = ("int64", "float64", "decimal")
_VALUES = (*_NUMBERS, "bool", "string", "binary", "date", "timestamp", "time", "uuid", "interval")


def _same(argument: Type) -> Type:
    return argument


def _int64(_: Type) -> Type:
    return Type("int64")


def _float64(_: Type) -> Type:
    return Type("float64")


AGGREGATES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("count", (), _int64, "COUNT"),
        Rule("count_distinct", (*_VALUES, "list", "struct"), _int64, "COUNT_DISTINCT"),
        Rule("sum", _NUMBERS, widest, "SUM", of_floats="FLOAT_SUM"),
        Rule("mean", _NUMBERS, _float64, "MEAN", of_floats="FLOAT_MEAN"),
        Rule("min", _VALUES, _same, "MIN"),
        Rule("max", _VALUES, _same, "MAX"),
        Rule("any", ("bool",), _same, "MAX"),
        Rule("all", ("bool",), _same, "MIN"),
    )
}
"""The aggregates by name."""


@dataclass(frozen=True, eq=False)
class Aggregate(Framed):
    """One aggregate: ``kind`` is its name in :data:`AGGREGATES`, ``expr`` its argument (None for count), ``where`` the
    condition on its rows (None: all rows).

    One of :mod:`ddcore.operators.gathering` has ``fields``, of which its argument is the struct, and ``options``.
    ``distinct``: of the distinct values of a frame.
    """

    kind: str
    expr: pl.Expr | None = None
    where: pl.Expr | None = None
    fields: Mapping[str, pl.Expr] = field(default_factory=dict)
    options: tuple[Any, ...] = ()
    distinct: bool = False

    def __bool__(self) -> bool:
        """No value yet: ``dd.min("a") or dd.min("b")`` would be the first of them in silence."""
        raise ProgramError(
            f"{caller()}: the aggregate {self.kind} has no truth value, because its rows come when the program runs",
            "compute it with agg(name=...), and go on with the column: where(), select()",
        )


def _aggregate(kind: str, where: Any, *argument: Any) -> Aggregate:
    """Text is a column as an argument and SQL as a condition. Raises ProgramError."""
    exprs = [checked(parse, part, bare_string="column") for part in argument]
    condition = None if where is None else checked(parse, where, bare_string="sql")
    return Aggregate(kind, exprs[0] if exprs else None, condition)


def count(*columns: Any, where: Any = None) -> Aggregate:
    """The number of rows of the group, each as often as it occurs (int64).

    Never 0 without ``where``, because an empty group is absent. ``where``: count only the rows for which this is
    true; text is SQL. Raises ProgramError if it is given a column.
    """
    if columns:
        raise ProgramError(
            f"{caller()}: count() takes no column: it counts rows",
            "for the values of x that are not null: count(where=col('x').is_not_null())",
        )
    return _aggregate("count", where)


def count_distinct(expr: Any, *, where: Any = None) -> Aggregate:
    """The number of distinct values of ``expr`` (int64); nulls are not counted, and NaN is one value.

    A bare string is a column. ``where``: only of the rows for which this is true; text is SQL.
    Cost: that of sorting the group's rows by the value.
    """
    return _aggregate("count_distinct", where, expr)


def sum(expr: Any, *, where: Any = None) -> Aggregate:
    """The exact sum of ``expr``, 0 where all are null.

    int64 stays int64, decimal(p, s) becomes decimal(18, s), or decimal(38, s) if it has more than 18 digits, and a sum
    that those cannot hold is an error; float64 is the exact sum rounded once, whatever the order of the rows.
    A bare string is a column. ``where``: only of the rows for which this is true; text is SQL.
    """
    return _aggregate("sum", where, expr)


def mean(expr: Any, *, where: Any = None) -> Aggregate:
    """The mean of ``expr``, an int64, float64 or decimal, as float64; null where all are null.

    It is the exact sum divided by the exact count and rounded once, whatever the order of the rows; no sum is too
    large. A bare string is a column. ``where``: only of the rows for which this is true; text is SQL.
    """
    return _aggregate("mean", where, expr)


def min(expr: Any, *, where: Any = None) -> Aggregate:
    """The least value of ``expr``, null where all are null. NaN is greater than every number.

    A bare string is a column. ``where``: only of the rows for which this is true; text is SQL.
    """
    return _aggregate("min", where, expr)


def max(expr: Any, *, where: Any = None) -> Aggregate:
    """The greatest value of ``expr``, null where all are null. NaN is greater than every number.

    A bare string is a column. ``where``: only of the rows for which this is true; text is SQL.
    """
    return _aggregate("max", where, expr)


def any(expr: Any, *, where: Any = None) -> Aggregate:
    """Whether ``expr``, a bool, is true in some row; nulls are skipped, null where all are null (SQL's bool_or).

    A bare string is a column. ``where``: only of the rows for which this is true; text is SQL.
    """
    return _aggregate("any", where, expr)


def all(expr: Any, *, where: Any = None) -> Aggregate:
    """Whether ``expr``, a bool, is true in every row; nulls are skipped, null where all are null (SQL's bool_and).

    A bare string is a column. ``where``: only of the rows for which this is true; text is SQL.
    """
    return _aggregate("all", where, expr)
