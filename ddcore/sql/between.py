"""Comparisons that find rows by their order: values between ends, which are columns of a table or subqueries.

``ts > (SELECT max(ts) FROM t) - INTERVAL '1 day'`` and ``x BETWEEN lo AND hi`` are joins with intervals
(``Collection.join_between``), so that of an end that moves only the rows between the old and the new one are read. Any
comparison that does not fit stays a condition on pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore.base.errors import ProgramError
from ddcore.sql.names import types
from ddcore.sql.pairs import Pair, key_of
from ddcore.sql.source import Source, shown
from ddcore.sql.values import Value, aligned, is_plain, selected

Evaluate = Callable[[exp.Expr], Value]

_ENDS: dict[type[exp.Expr], tuple[bool, bool]] = {
    exp.GT: (True, False), exp.GTE: (True, True), exp.LT: (False, False), exp.LTE: (False, True),
}  # fmt: skip
"""Of a comparison: whether its end is below the value, and whether the value may equal it."""


@dataclass(frozen=True)
class Comparison:
    """A part of a condition: ``end`` is below ``value`` (``is_lower``) or above it, or if ``closed`` equal to it."""

    condition: exp.Expr
    value: exp.Expr
    end: exp.Expr
    is_lower: bool
    closed: bool

    @property
    def reversed(self) -> Comparison:
        """This comparison read from its other side: value and end change places."""
        return Comparison(self.condition, self.end, self.value, not self.is_lower, self.closed)


@dataclass(frozen=True)
class Range:
    """Comparisons of one value with ends on the other side, one below it and one above it at most."""

    lower: Comparison | None
    upper: Comparison | None

    @property
    def comparisons(self) -> list[Comparison]:
        """Those that there are."""
        return [bound for bound in (self.lower, self.upper) if bound is not None]

    @property
    def value(self) -> exp.Expr:
        """What is compared."""
        return self.comparisons[0].value

    @property
    def closed(self) -> str:
        """Which ends belong to the interval, as ``join_between`` has it."""
        left, right = (bound is not None and bound.closed for bound in (self.lower, self.upper))
        return {(True, True): "both", (True, False): "left", (False, True): "right"}.get((left, right), "none")

    def meets(self, condition: exp.Expr) -> bool:
        """Whether all of a condition is in it."""
        of_it = [comparison for comparison in self.comparisons if comparison.condition is condition]
        return len(of_it) == len(list(comparisons(condition)))


def comparisons(condition: exp.Expr) -> Iterator[Comparison]:
    """The comparisons that a condition consists of; none of a condition of another kind."""
    if isinstance(condition, exp.Paren):
        yield from (replace(comparison, condition=condition) for comparison in comparisons(condition.this))
    elif isinstance(condition, exp.Between) and not condition.args.get("symmetric"):
        yield Comparison(condition, condition.this, condition.args["low"], True, True)
        yield Comparison(condition, condition.this, condition.args["high"], False, True)
    elif type(condition) in _ENDS:
        yield Comparison(condition, condition.this, condition.expression, *_ENDS[type(condition)])


def ranges(found: Iterable[Comparison]) -> list[Range]:
    """Comparisons by their value: the first with an end below it and the first with one above it together."""
    by_value: dict[str, dict[bool, Comparison]] = {}
    for bound in found:
        by_value.setdefault(bound.value.sql(), {}).setdefault(bound.is_lower, bound)
    return [Range(ends.get(True), ends.get(False)) for ends in by_value.values()]


@dataclass(frozen=True)
class Between:
    """A range as expressions: of rows, and of intervals. All have one type, with an order that rows are found by."""

    value: pl.Expr
    lower: pl.Expr | None
    upper: pl.Expr | None
    closed: str

    @classmethod
    def of(cls, source: Source, found: Range, value_of: Evaluate, end_of: Evaluate) -> Between | None:
        """None where the types do not meet (the condition says so, elsewhere), or have no such order."""
        try:
            value = value_of(found.value)
            ends = [None if bound is None else end_of(bound.end) for bound in (found.lower, found.upper)]
            each_with_value = [aligned(source, [value, end], shown(found.value))[1] for end in ends if end is not None]
            values = [value, *(end for end in ends if end is not None)]
            exprs, kind = aligned(source, values, shown(found.value))
        except ProgramError:
            return None
        if (
            kind.is_pooled
            or any(other != kind for other in each_with_value)
            or any(other.type is None for other in values)
        ):
            return None
        rest = iter(exprs[1:])
        lower, upper = (None if end is None else next(rest) for end in ends)
        return cls(exprs[0], lower, upper, found.closed)

    def joined(self, rows: Any, intervals: Any, pairs: Sequence[Pair], kept: Sequence[str]) -> Any:
        """Rows and the intervals in which their values lie, where the pairs of keys are equal. ``kept`` are the columns
        of both that stay; their names differ.
        """
        own, other = ({name: pl.col(name) for name in types(side) if name in kept} for side in (rows, intervals))
        taken: set[str] = set()
        value = _placed(own, self.value, "value between", taken)
        on = {}
        for number, (left, right, safe) in enumerate(pairs):
            on[_placed(own, key_of(left, safe), f"key {number}", taken)] = f"match {number}"
            other[f"match {number}"] = key_of(right, safe)
        ends = {name: expr for name, expr in (("lower end", self.lower), ("upper end", self.upper)) if expr is not None}
        lower, upper = (name if name in ends else None for name in ("lower end", "upper end"))
        joined = selected(rows, own).join_between(
            intervals.select(**other, **ends), value, lower, upper, on=on, closed=self.closed
        )
        return joined if list(types(joined)) == list(kept) else joined.select(*kept)


def _placed(columns: dict[str, pl.Expr], expr: pl.Expr, name: str, taken: set[str]) -> str:
    """The column that holds an expression: one that is there already, or one more of this name."""
    plain = is_plain(expr)
    if plain is None or plain in taken or plain not in columns:
        columns[name], plain = expr, name
    taken.add(plain)
    return plain
