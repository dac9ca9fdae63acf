"""What the functions of ``over`` are computed from: columns, and expressions that become columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcore.base.digests import digest
from ddcore.base.errors import ProgramError
from ddcore.base.schema import Schema
from ddcore.base.source_line import caller
from ddcore.expressions.canonical import identity
from ddcore.expressions.projections import types_of
from ddcore.operators import arguments
from ddcore.operators.aggregates import Aggregate
from ddcore.operators.aggregation import argument_name, argument_of, condition_of, fields_of, filtered
from ddcore.operators.frame import TO_PEERS, WHOLE
from ddcore.operators.window import LISTS, Window
from ddcore.operators.window_functions import WINDOW_FUNCTIONS, WindowFunction
from ddcore.text.wording import listed

if TYPE_CHECKING:
    from ddcore.operators.order import Order

_OF_DISTINCT = "sum", "mean", "median"
"""The aggregates that may be of distinct values, beside numbers and lists of these."""


@dataclass(frozen=True)
class WindowArguments:
    """The columns of the source and those of the arguments, as expressions over it; and the results."""

    exprs: dict[str, pl.Expr]
    windows: tuple[Window, ...]

    @classmethod
    def of(cls, source: Schema, keys: Sequence[str], order: Order, functions: Mapping[str, Any]) -> WindowArguments:
        """Raises ProgramError."""
        if not functions:
            raise ProgramError(f"{caller()}: over() names no function", "for example over('day', before=dd.lag('x'))")
        exprs = arguments.kept([*order.by, *(name for name in source if name not in order.by)])
        names, windows, numbers = dict[str, str](), list[Window](), count()

        def column(expr: pl.Expr | None) -> str | None:
            if expr is None:
                return None
            same = digest(arguments.checked(identity, expr))
            if same not in names:
                plain = expr.meta.is_column() and expr.meta.root_names()[0] in {*source} - {*keys}
                names[same] = expr.meta.root_names()[0] if plain else argument_name(expr, exprs, source, numbers)
                exprs[names[same]] = expr
            return names[same]

        for name, spec in functions.items():
            if name in source:
                raise ProgramError(f"{caller()}: over: {name} is a column already", "choose another name")
            kind, expr, second, *by = _parts(source, name, spec)
            number = spec.number if isinstance(spec, WindowFunction) else 1
            ignores = isinstance(spec, WindowFunction) and spec.ignore_nulls
            options = spec.options if isinstance(spec, Aggregate) else ()
            frame = spec.frame or (TO_PEERS if order.by else WHOLE)
            window = Window(name, kind, column(expr), column(second), number, ignores, frame, options)
            distinct = isinstance(spec, Aggregate) and spec.distinct
            windows.append(replace(window, distinct=distinct, by=tuple(str(column(key)) for key in by)))
        return cls(exprs, tuple(windows))


def _parts(source: Schema, name: str, spec: Any) -> tuple[Any, ...]:
    """The kind of a function, its argument, its default or second argument, and the order of a list. Raises
    ProgramError.
    """
    where = f"over({name}=...)"
    if isinstance(spec, Aggregate):
        if spec.distinct and spec.kind not in _OF_DISTINCT:
            what = f"there is no {spec.kind} of distinct values of a frame"
            raise ProgramError(f"{caller()}: {where}: {what}", f"there are {listed(_OF_DISTINCT)}")
        if spec.fields:
            return _of_fields(source, where, spec)
        aggregate, argument = argument_of(source, where, spec)
        if spec.distinct and argument is not None and (wide := types_of({"_": argument}, source)["_"]).is_wide:
            raise ProgramError(
                f"{caller()}: {where}: there is no {aggregate} of distinct values of {wide} of a frame",
                "cast to a decimal of up to 18 digits",
            )
        return aggregate, argument, None
    if not isinstance(spec, WindowFunction):
        raise ProgramError(
            f"{caller()}: {where} is {type(spec).__name__}, not a function of rows in an order",
            f"there are the aggregates, such as dd.sum(...), and {listed(WINDOW_FUNCTIONS)}",
        )
    if spec.expr is None:
        return spec.kind, None, None
    hint = "give one column at a time"
    expr = arguments.single(source, spec.expr, where, hint)
    kind = arguments.checked(types_of, {name: expr}, source)[name]
    if spec.default is None:
        return spec.kind, expr, None
    default = arguments.single(source, spec.default, where, hint)
    other = arguments.checked(types_of, {name: default}, source)[name]
    if other.name == "int64" and kind.name in ("float64", "decimal"):
        default, other = default.cast(kind.polars), kind
    if other != kind:
        raise ProgramError(f"{caller()}: {where}: the default is {other}, the values are {kind}", "cast one of them")
    return spec.kind, expr, default


def _of_fields(source: Schema, where: str, spec: Aggregate) -> tuple[Any, ...]:
    """The arguments of an aggregate of several, or of a list, whose second is the condition and whose others are its
    order. Raises ProgramError.
    """
    exprs = list[pl.Expr]()
    condition = None if spec.where is None else condition_of(source, where, spec.where)
    for expr, kind in fields_of(source, where, spec).values():
        is_marked = condition is not None and spec.kind != "array_agg"  # which lists nulls, too
        exprs.append(filtered(expr, condition, kind) if is_marked and condition is not None else expr)
    if spec.kind in LISTS:
        return spec.kind, exprs[0], condition if spec.kind == "array_agg" else None, *exprs[1:]
    return spec.kind, exprs[0], exprs[1] if len(exprs) > 1 else None
