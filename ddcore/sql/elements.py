"""Functions in FROM that give rows: the elements of lists, and series of numbers and moments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type
from ddcore.base.source_line import planning
from ddcore.sql.arrays import list_and_element
from ddcore.sql.dialects import SPARKS
from ddcore.sql.join_forms import ZERO
from ddcore.sql.names import Relation, columns_of_function, function_of
from ddcore.sql.types import INT, TIMESTAMP
from ddcore.sql.values import Interval, Value, Values

if TYPE_CHECKING:
    from ddcore.sql.env import Queries


def with_elements(
    queries: Queries, around: Relation, table: exp.Expr, key_of: Callable[[str], str], *, keep_empty: bool
) -> tuple[Any, dict[str, str]]:
    """Rows of ``around``, each once for each element; and the keys of the new columns by their names.

    A row with no element, or a null in place of a list, goes; if ``keep_empty`` it stays, with null.
    """
    function = function_of(table)
    assert function is not None
    names = columns_of_function(table)
    with planning(queries.source.where(table)):
        values = Values(queries.source, around.columns, around.types)
        is_list = isinstance(function, exp.Unnest)
        lists, kinds = _unnested(values, function, names) if is_list else _series(values, function)
        length = lists[0].list.len().cast(pl.Int64)
        if len(names) > len(lists):
            first = 0 if function.meta.get(ZERO) else 1
            lists = [*lists, pl.int_ranges(pl.lit(first, dtype=pl.Int64), length + first, dtype=pl.Int64)]
        if keep_empty:
            nothing = [pl.concat_list(pl.lit(None, dtype=kind.polars)) for kind in (*kinds, INT)]
            lists = [
                pl.when(length > 0).then(items).otherwise(none) for items, none in zip(lists, nothing, strict=False)
            ]
        keys = {name: key_of(name) for name in names}
        return around.rows.flat_map(**dict(zip(keys.values(), lists, strict=True))), keys


Lists = tuple[list[pl.Expr], list[Type]]
"""Lists as expressions, all equally long, and the types of their elements."""


def _unnested(values: Values, node: exp.Expr, names: Sequence[str]) -> Lists:
    """Several lists go side by side: nulls stand behind the shorter ones, and in place of one that is null."""
    if len(node.expressions) > 1 and len(names) < len(node.expressions):
        hint = "name the elements of each: unnest(a, b) AS u(x, y)"
        values.source.refuse(node, "unnest() of several lists without names", hint)
    found = [list_and_element(values, expression) for expression in node.expressions]
    lists, kinds = [value.expr for value, _ in found], [kind for _, kind in found]
    if len(lists) == 1:
        return lists, kinds
    most = pl.max_horizontal(items.list.len().cast(pl.Int64).fill_null(0) for items in lists)
    positions = pl.int_ranges(pl.lit(0, dtype=pl.Int64), most, dtype=pl.Int64)
    nothing = [pl.concat_list(pl.lit(None, dtype=kind.polars)) for kind in kinds]
    filled = [
        pl.when(items.is_not_null()).then(items).otherwise(none) for items, none in zip(lists, nothing, strict=True)
    ]
    return [items.list.gather(positions, null_on_oob=True) for items in filled], kinds


def _series(values: Values, node: exp.Expr) -> Lists:
    """``generate_series`` ends with its last number, ``range`` before it."""
    if isinstance(node, exp.Anonymous):
        arguments, closed = node.expressions, node.name.lower() != "range"
    else:
        arguments, closed = [node.args.get(key) for key in ("start", "end", "step")], True
        closed = not node.args.get("is_end_exclusive")
        if values.source.dialect in SPARKS:
            values.source.refuse(node, "a series in FROM", "SELECT explode(sequence(a, b)) AS x, or FROM range(a, b)")
    arguments = [argument for argument in arguments if argument is not None]
    if not 0 < len(arguments) < 4 or (closed and len(arguments) < 2):
        raise values.source.error(node, "a series has a start, an end and a step", "write generate_series(1, 10)")
    start, *more = [values.of(argument) for argument in arguments]
    if not more:
        start, more = Value(pl.lit(0, dtype=pl.Int64), INT, node, 0), [start]
    end, step = more[0], more[1] if len(more) > 1 else None
    if step is not None and isinstance(step.literal, Interval):
        return _moments(values, start, end, step.literal, closed=closed)
    start, end = values.require(start, "int64"), values.require(end, "int64")
    by = 1 if step is None else step.literal
    if not isinstance(by, int) or isinstance(by, bool) or not by:
        values.source.refuse(node, "a series whose step is no number other than 0", "write the step as a literal")
    beyond = end.expr + (1 if by > 0 else -1) if closed else end.expr
    return [pl.int_ranges(start.expr, beyond, by, dtype=pl.Int64)], [INT]


def _moments(values: Values, start: Value, end: Value, step: Interval, *, closed: bool) -> Lists:
    """Timestamps, also of dates, as in PostgreSQL."""
    length = step.days * 86_400_000_000 + step.microseconds
    if step.months or length <= 0:
        hint = "give a length of days or less; months by generate_series(0, n) and date + n * INTERVAL '1 month'"
        values.source.refuse(start.node, "a series by months, or backwards", hint)
    first, last = (values.moment(moment).expr for moment in (start, end))
    series = pl.datetime_ranges(
        first, last, interval=f"{length}us", closed="both" if closed else "left", time_unit="us", time_zone="UTC"
    )
    return [series], [TIMESTAMP]
