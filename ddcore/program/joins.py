"""Joins of every kind, as programs call them.

Semi, anti, left, right and full joins also look at rows without a partner. They are programs of the inner join,
``distinct``, ``concat`` and ``negate``, so their arrangements are shared with others.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Literal, get_args

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.base.source_line import caller
from ddcore.data.forms import marked
from ddcore.operators import arguments
from ddcore.operators.delta_join import DeltaJoin
from ddcore.operators.ends import Ends
from ddcore.operators.join import Join, key_pairs
from ddcore.operators.join_between import JoinBetween
from ddcore.program.linear import C, beside

How = Literal["inner", "semi", "anti", "left", "right", "full"]


def join(rows: C, other: Any, on: str | Sequence[str] | Mapping[str, str], how: How) -> C:
    """``Collection.join``, of every kind. Raises ProgramError."""
    partners = beside(other, rows, "join")
    pairs = key_pairs(rows.schema, partners.schema, on, "join")
    if not pairs:
        raise ProgramError(f"{caller()}: join on no columns", "name at least one key column")
    if arguments.choice(how, get_args(How), "join: how") != "inner":
        return KINDS[how](rows, partners, pairs)
    return inner(rows, partners, pairs)


def inner(rows: C, partners: C, pairs: Mapping[str, str]) -> C:
    """Pairs of rows with equal keys, which ``pairs`` names left to right."""
    rows, once = keys_once(rows, pairs)
    return rows._add(Join.of(rows.schema, partners.schema, once), partners._index)


def keys_once(rows: C, pairs: Mapping[str, str]) -> tuple[C, dict[str, str]]:
    """Key columns, left to right, each once: where several left columns meet one right column, the rows in which these
    are equal, and the first of them.
    """
    first = {other: own for own, other in reversed([*pairs.items()])}
    once = {own: other for own, other in pairs.items() if first[other] == own}
    if len(once) < len(pairs):
        conditions = [equal(own, first[other]) for own, other in pairs.items() if own not in once]
        rows = rows.where(*conditions)
    return rows, once


def join_between(
    rows: C,
    intervals: Any,
    column: str,
    ends: Ends,
    on: str | Sequence[str] | Mapping[str, str],
    *,
    disjoint: bool = False,
) -> C:
    """``Collection.join_between``. ``disjoint``: no two intervals of a key ever hold one value, and each has a lower
    end. Raises ProgramError.
    """
    where = "join_between"
    others = beside(intervals, rows, where)
    (column,) = arguments.names_of([column], where)
    pairs = key_pairs(rows.schema, others.schema, on, where)
    order = rows.columns
    rows, pairs = keys_once(rows, pairs)
    disjoint = disjoint and bool(pairs)
    operator = JoinBetween.of(rows.schema, others.schema, column, ends, on=pairs, order=order, disjoint=disjoint)
    if pairs:
        rows = _with_first(rows, column, pairs)
    if disjoint or not pairs:
        others = _with_first(others, ends.columns[0], {*pairs.values()})
    return rows._add(operator, others._index)


def _with_first(rows: C, column: str, keys: Container[str]) -> C:
    """The rows with a column before all others but keys: so an arrangement by these is sorted by it within a key."""
    names = rows.columns
    if next(name for name in names if name not in keys) == column:
        return rows
    return rows.select(column, *(name for name in names if name != column))


def delta_joined(*relations: tuple[C, Sequence[str]]) -> C:
    """:func:`delta_join` in the graph of its collections."""
    first = relations[0][0]
    for collection, _ in relations:
        beside(collection, first, "delta_join")
    operator = DeltaJoin.of([collection.schema for collection, _ in relations], [names for _, names in relations])
    return first._add(operator, *(collection._index for collection, _ in relations[1:]))


def equal(left: str, right: str) -> pl.Expr:
    """Whether two columns hold the same key: a null is none, but nulls inside of lists and structs equal each other."""
    return pl.col(left).eq_missing(pl.col(right)) & pl.col(left).is_not_null()


def semi(rows: C, other: C, on: Mapping[str, str]) -> C:
    """The rows that have a partner, each with its own multiplicity: multiplicities of the partners do not count."""
    keys = other.select(**{ours: pl.col(others) for ours, others in on.items()})
    return inner(rows, keys.distinct(), {name: name for name in on})


def anti(rows: C, other: C, on: Mapping[str, str]) -> C:
    """The rows that have no partner; a row with a null in its key never has one."""
    return rows.concat(semi(rows, other, on).negate())


def left(rows: C, other: C, on: Mapping[str, str]) -> C:
    """All pairs, and the rows without a partner with nulls in place of one."""
    pairs = inner(rows, other, on)
    return pairs.concat(padded(anti(rows, other, on), pairs))


def right(rows: C, other: C, on: Mapping[str, str]) -> C:
    """All pairs, and the other's rows without a partner with nulls in place of one; the key is the other's there."""
    pairs = inner(rows, other, on)
    return pairs.concat(_unmatched(rows, other, on, pairs))


def full(rows: C, other: C, on: Mapping[str, str]) -> C:
    """All pairs, and the rows of both without a partner."""
    pairs = inner(rows, other, on)
    return pairs.concat(padded(anti(rows, other, on), pairs), _unmatched(rows, other, on, pairs))


KINDS = {"semi": semi, "anti": anti, "left": left, "right": right, "full": full}


def _unmatched(rows: C, other: C, on: Mapping[str, str], pairs: C) -> C:
    """The other's rows without a partner, with its columns called as in the pairs."""
    by_other = {others: ours for ours, others in on.items()}
    conditions = [equal(ours, by_other[others]) for ours, others in on.items()]
    matching = rows.where(*conditions) if len(by_other) < len(on) else rows
    unmatched = anti(other, matching, by_other)
    values = [name for name in other.schema if name not in on.values()]
    names = dict(zip(pairs.columns[len(rows.columns) :], values, strict=True)) | dict(on)
    return padded(unmatched.select(**{result: pl.col(name) for result, name in names.items()}), pairs)


def padded(rows: C, like: C) -> C:
    """The rows with nulls in the columns that they lack."""
    schema = like.schema
    columns = {
        name: pl.col(name) if name in rows.schema else marked(pl.lit(None, kind.polars), kind)
        for name, kind in schema.items()
    }
    return rows.select(**columns)
