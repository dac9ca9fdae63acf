"""Comparisons by ``=``, ``<>``, ``<``, ``<=``, ``>`` and ``>=``: of values, and of rows, ``(x, id) > (2, 5)``.

Where a part is null, PostgreSQL has the standard's null, unless the parts before it decide. DuckDB and Spark compare
rows as structs, where null is equal to null: in DuckDB it is above all values, in Spark below them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type
from ddcore.sql import intervals
from ddcore.sql.dialects import SPARKS
from ddcore.sql.source import DIALECT, Source
from ddcore.sql.types import BOOL, INTERVAL
from ddcore.sql.values import Value, Values, aligned, null, settled, shared

Compare = Callable[[pl.Expr, pl.Expr], pl.Expr]

EQUAL_PARTS = "lists, structs and maps are equal, by = and <>, where all their parts are"
_ROWS = "write as many values on both sides: (x, y) > (1, 2)"
COMPARISONS = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ, exp.NEQ)
_STRICT: dict[Compare, Compare] = {pl.Expr.le: pl.Expr.lt, pl.Expr.ge: pl.Expr.gt}


def compared(values: Values, compare: Compare, left: Value, right: Value, node: exp.Expr) -> Value:
    """Two values compared: null where one is null."""
    left, right = settled(left), settled(right)
    (own, other), kind = aligned(values.source, [left, right], node)
    if kind.is_nested and (compare not in (pl.Expr.eq, pl.Expr.ne) or has_interval(kind)):
        values.source.refuse(node, f"comparing {kind} by {node.key.upper()}", EQUAL_PARTS)
    if left.type is None or right.type is None:
        return Value(null(BOOL), BOOL, node)
    if kind == INTERVAL:
        return Value(intervals.compared(compare, own, other), BOOL, node)
    return Value(compare(own, other), BOOL, node)


def has_interval(kind: Type) -> bool:
    """Whether there are intervals inside, which are compared by their lengths."""
    return any(inner == INTERVAL or has_interval(inner) for _, inner in kind.inner)


def parts_of(values: Values, node: exp.Expr) -> list[exp.Expr] | None:
    """The parts of a row that is written out: ``(x, y)``, or Spark's ``struct(x, y)``; else None."""
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    if isinstance(node, exp.Struct) and values.source.dialect in SPARKS:
        return [part.expression if isinstance(part, exp.PropertyEQ) else part.unalias() for part in node.expressions]
    return None


def rows_compared(values: Values, compare: Compare, row: Sequence[Value], other: exp.Expr, node: exp.Expr) -> pl.Expr:
    """A row compared with one that is written out: by the first parts that differ."""
    parts = parts_of(values, other)
    if parts is None or len(row) != len(parts) or not parts:
        values.source.refuse(node, "comparing these rows", _ROWS)
    both = [*row, *map(values.of, parts)]
    if compare is pl.Expr.eq or compare is pl.Expr.ne:
        equal = _all_equal(values, both, node)
        return ~equal if compare is pl.Expr.ne else equal
    return shared(both, lambda *both: _in_order(values, compare, both, node))


def _pairs(both: Sequence[Value]) -> list[tuple[Value, Value]]:
    half = len(both) // 2
    return list(zip(both[:half], both[half:], strict=True))


def _all_equal(values: Values, both: Sequence[Value], node: exp.Expr) -> pl.Expr:
    equal = pl.lit(True)
    for left, right in _pairs(both):
        equal = equal & _part(values, pl.Expr.eq, left, right, node)
    return equal


def _in_order(values: Values, compare: Compare, both: Sequence[Value], node: exp.Expr) -> pl.Expr:
    strict = _STRICT.get(compare, compare)
    met = pl.lit(compare in _STRICT)
    for left, right in reversed(_pairs(both)):
        equal = _part(values, pl.Expr.eq, left, right, node)
        met = _part(values, strict, left, right, node) | (equal & met)
    return met


def _part(values: Values, compare: Compare, left: Value, right: Value, node: exp.Expr) -> pl.Expr:
    """One part of a row compared with that of the other: ``=``, ``<`` or ``>``."""
    met = compared(values, compare, left, right, node).expr
    if values.source.dialect == DIALECT:
        return met
    nothing, other_nothing = left.expr.is_null(), right.expr.is_null()
    if compare is pl.Expr.eq:
        return met.fill_null(nothing & other_nothing)
    null_is_greater = (compare is pl.Expr.gt) == (values.source.dialect not in SPARKS)
    return met.fill_null(nothing & ~other_nothing if null_is_greater else ~nothing & other_nothing)


def with_parts(source: Source, node: exp.Expr) -> None:
    """Replace the subquery in ``(x, y) > (SELECT a, b ...)`` by a row of one for each of its columns. Raises
    ProgramError for a LIMIT: which of several equal rows it takes is open, for each column anew.
    """
    query = node.expression.unnest() if isinstance(node.expression, exp.Subquery) else None
    if not isinstance(node.this, exp.Tuple) or not isinstance(query, exp.Select):
        return
    if len(query.expressions) != len(node.this.expressions) or query.args.get("distinct") or query.args.get("limit"):
        source.refuse(node, "comparing a row with this subquery", "a SELECT of as many columns, without LIMIT, is")
    ones = []
    for column in query.expressions:
        one = query.copy()
        one.set("expressions", [column.copy()])
        ones.append(exp.Subquery(this=one))
    node.set("expression", exp.Tuple(expressions=ones))
