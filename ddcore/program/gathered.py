"""Aggregates that other operators put together, for ``agg``: statistics and those that need an order.

Statistics are sums of digits (:mod:`ddcore.operators.moments`), ``min_by`` and ``max_by`` a ``top_k``, the others a
``reduce`` of the rows of each group. Results meet by key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.base.schema import Schema
from ddcore.base.source_line import caller
from ddcore.operators import aggregates as plain_aggregates
from ddcore.operators import arguments
from ddcore.operators.aggregates import Aggregate
from ddcore.operators.aggregation import check_names, condition_of, fields_of
from ddcore.operators.gathering import GATHERED
from ddcore.operators.moments import Moment, digits, statistics
from ddcore.operators.ordered import Part, ordered
from ddcore.text.wording import fresh

Collection = Any  # the one of ddcore.program.collection, which imports this module

_ENDS = ("min_by", "max_by")


def gathered(
    base: Collection,
    keys: Sequence[str],
    unnamed: Sequence[Any],
    aggregates: Mapping[str, Aggregate],
    *,
    allow_negative: bool,
) -> Collection:
    """One row per group: the keys and the aggregates, some of which are gathered. Raises ProgramError."""
    check_names(keys, unnamed, aggregates)
    kinds = {name: aggregate for name, aggregate in aggregates.items() if aggregate.fields}
    if arguments.flag(allow_negative, "agg: allow_negative"):
        first = next(iter(kinds.values())).kind
        raise ProgramError(
            f"{caller()}: agg: there is no {first} with allow_negative", "compute it in an agg of its own, without"
        )
    writer = _Writer(base, list(keys))
    plain: dict[str, Any] = {name: aggregate for name, aggregate in aggregates.items() if not aggregate.fields}
    parts = [base.group_by(*keys).agg(**plain)] if plain else []
    ends = {name: aggregate for name, aggregate in kinds.items() if aggregate.kind in _ENDS}
    by_sums = {name: aggregate for name, aggregate in kinds.items() if GATHERED[aggregate.kind].statistic}
    by_order = {name: aggregate for name, aggregate in kinds.items() if name not in ends and name not in by_sums}
    if by_order:
        parts.append(writer.by_order(by_order))
    if by_sums:
        parts.append(writer.by_sums(by_sums))
    if not parts:  # which groups there are
        number = next(fresh("rows ", {*aggregates, *keys}))
        parts.append(base.group_by(*keys).agg(**{number: plain_aggregates.count()}))
    result = parts[0]
    for part in parts[1:]:
        result = writer.beside(result, part, "inner")
    for name, aggregate in ends.items():
        result = writer.beside(result, writer.end(name, aggregate), "left")
    return result.select(*keys, *aggregates)


class _Writer:
    """Writes the operators for a collection and its keys, which have names of their own meanwhile."""

    def __init__(self, base: Collection, keys: Sequence[str]) -> None:
        self.base, self.keys = base, keys
        self.own = {f"key {number}": key for number, key in enumerate(keys)}

    def by_order(self, aggregates: Mapping[str, Aggregate]) -> Collection:
        """A reduce of the rows of each group."""
        exprs, parts, schema = self._exprs(), [], {}
        for number, (name, aggregate) in enumerate(aggregates.items()):
            columns, types, there = self._prepared(exprs, number, name, aggregate)
            by = tuple(column for field, column in columns.items() if field != "value")
            parts.append(Part(f"result {number}", aggregate.kind, aggregate.options, columns["value"], by, there))
            schema[f"result {number}"] = GATHERED[aggregate.kind].result(types).polars
        groups = self.base.select(**exprs).group_by(*self.own)
        return self._named(groups.reduce(ordered(tuple(parts)), schema), aggregates)

    def by_sums(self, aggregates: Mapping[str, Aggregate]) -> Collection:
        """Sums of digits by group, and the statistics of a group from these."""
        exprs, moments = self._exprs(), []
        for number, (name, aggregate) in enumerate(aggregates.items()):
            columns, types, there = self._prepared(exprs, number, name, aggregate)
            scales = tuple(kind.scale for kind in types.values())
            moments.append(
                Moment(f"result {number}", aggregate.kind, aggregate.options, tuple(columns.values()), scales, there)
            )
        rows = self.base.select(**exprs)
        schema: dict[str, Any] = {key: rows.schema[key] for key in self.own}
        numbers = dict.fromkeys(("moment", "quantity", "place", "value"), pl.Int64())
        cut = rows.flat_map(digits(tuple(moments), tuple(self.own)), schema=schema | numbers)
        sums = cut.group_by(*self.own, "moment", "quantity", "place").agg(total=plain_aggregates.sum("value"))
        results = {moment.result: pl.Float64() for moment in moments}
        return self._named(sums.group_by(*self.own).reduce(statistics(tuple(moments)), results), aggregates)

    def end(self, name: str, aggregate: Aggregate) -> Collection:
        """The value of the first row of each group that has one, in an order."""
        fields = fields_of(self.base.schema, f"agg({name}=...)", aggregate)
        exprs = self._exprs() | {field: expr for field, (expr, _) in fields.items()}
        there = self._condition(exprs, 0, name, aggregate)
        conditions = [pl.col(field).is_not_null() for field in fields]
        rows = self.base.select(**exprs).where(*conditions, *([] if there is None else [pl.col(there)]))
        order = [*(field for field in fields if field != "value"), "value"]
        downs = [aggregate.kind == "max_by" and field != "value" for field in order]
        first = rows.select(*self.own, *fields).group_by(*self.own).top_k(1, order, descending=downs)
        return first.select(**{key: pl.col(own) for own, key in self.own.items()}, **{name: pl.col("value")})

    def beside(self, left: Collection, right: Collection, how: Literal["inner", "left"]) -> Collection:
        """Two results with a row for each group, as one: null equals null in their keys."""
        key = next(fresh("key ", {*left.schema, *right.schema}))
        other = f"{key} too"
        struct = pl.struct(*self.keys) if self.keys else pl.lit(0, dtype=pl.Int64)
        rest = [name for name in right.schema if name not in self.keys]
        partners = right.select(*rest, **{other: struct})
        return left.with_columns(**{key: struct}).join(partners, on={key: other}, how=how).select(*left.schema, *rest)

    def _exprs(self) -> dict[str, pl.Expr]:
        return {own: pl.col(key) for own, key in self.own.items()}

    def _named(self, rows: Collection, aggregates: Mapping[str, Aggregate]) -> Collection:
        named = {key: pl.col(own) for own, key in self.own.items()}
        return rows.select(**named, **{name: pl.col(f"result {number}") for number, name in enumerate(aggregates)})

    def _prepared(
        self, exprs: dict[str, pl.Expr], number: int, name: str, aggregate: Aggregate
    ) -> tuple[dict[str, str], Schema, str | None]:
        """The columns of an aggregate's fields, which are added to ``exprs``, and their types; and its condition's."""
        fields = fields_of(self.base.schema, f"agg({name}=...)", aggregate)
        columns = {field: f"{number} {field}" for field in fields}
        exprs |= {columns[field]: expr for field, (expr, _) in fields.items()}
        types = {field: kind for field, (_, kind) in fields.items()}
        return columns, types, self._condition(exprs, number, name, aggregate)

    def _condition(self, exprs: dict[str, pl.Expr], number: int, name: str, aggregate: Aggregate) -> str | None:
        """The column that says which rows count; None for all."""
        if aggregate.where is None:
            return None
        exprs[f"{number} there"] = condition_of(self.base.schema, f"agg({name}=...)", aggregate.where)
        return f"{number} there"
