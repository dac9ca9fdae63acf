"""ASOF JOIN: each row with the nearest of another table, as DuckDB has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import polars as pl
from sqlglot import Token, TokenType, exp

from ddcore.base.schema import Schema
from ddcore.base.source_line import planning
from ddcore.sql.between import comparisons
from ddcore.sql.brackets import closing
from ddcore.sql.join_conditions import Condition, keys_in, sides_of
from ddcore.sql.names import types
from ddcore.sql.pairs import Pair
from ddcore.sql.source import shown
from ddcore.sql.tokens import changed, is_kind, word
from ddcore.sql.values import Value, Values, aligned

if TYPE_CHECKING:
    from ddcore.sql.env import Env, Queries

_FORM = "write ASOF JOIN t ON s.key = t.key AND s.time >= t.time: equalities and one comparison"


def with_matches(tokens: Sequence[Token]) -> list[Token]:
    """``LEFT ASOF JOIN t MATCH_CONDITION (a >= b) ON c = d`` as ``ASOF LEFT JOIN t ON (a >= b) AND c = d``."""
    found = list(tokens)
    for number, token in enumerate(found[:-1]):
        if word(found, number) == "LEFT" and word(found, number + 1) == "ASOF":
            found[number : number + 2] = [found[number + 1], token]
        elif word(found, number) == "MATCH_CONDITION" and is_kind(found, number + 1, TokenType.L_PAREN):
            found[number] = changed(token, TokenType.ON, "ON")
            behind = closing(found, number + 1) + 1
            if word(found, behind) == "ON":
                found[behind] = changed(found[behind], TokenType.AND, "AND")
    return found


@dataclass(frozen=True)
class _Compared:
    """The comparison of an ASOF JOIN: of a value of each side."""

    node: exp.Expr
    of_row: Value
    of_partner: Value
    is_lower: bool
    closed: bool


def asof_joined(
    queries: Queries, env: Env, sides: tuple[Any, Any], conditions: Sequence[Condition], join: exp.Join
) -> Any:
    """Rows and for each the nearest of the others; with LEFT also the rows that have none. The columns of both stay.

    Of the columns of USING the last is compared: its value on the right is not above that on the left.
    """
    kinds = types(sides[0]), types(sides[1])
    equal: list[Pair] = []
    compared: list[_Compared] = []
    for condition in conditions:
        pair = sides_of(queries, env, condition, *kinds)
        if condition.equal is not None and condition is conditions[-1]:
            left, right = (
                Value(pl.col(key), kind[key], join) for key, kind in zip(condition.equal, kinds, strict=True)
            )
            compared.append(_Compared(join, left, right, True, True))
        elif pair is not None:
            equal.append(pair)
        else:
            compared.append(_comparison(queries, env, condition, kinds))
    if len(compared) != 1:
        _refuse(queries, join)
    with planning(queries.source.where(compared[0].node)):
        return _nearest(queries, sides, equal, compared[0], how="left" if join.side == "LEFT" else "inner")


def _comparison(queries: Queries, env: Env, condition: Condition, kinds: tuple[Schema, Schema]) -> _Compared:
    """What a condition compares. Raises ProgramError for one that is no comparison of the two sides."""
    found = [] if condition.asks else [*comparisons(condition.node)]
    for sides in (found[0], found[0].reversed) if len(found) == 1 else ():
        own, other = (keys_in(queries, env, part, condition.columns) for part in (sides.value, sides.end))
        if own and other and own <= kinds[0].keys() and other <= kinds[1].keys():
            left, right = (
                Values(queries.source, condition.columns, kind).of(part)
                for kind, part in zip(kinds, (sides.value, sides.end), strict=True)
            )
            return _Compared(condition.node, left, right, sides.is_lower, sides.closed)
    _refuse(queries, condition.node)


def _refuse(queries: Queries, node: exp.Expr) -> NoReturn:
    queries.source.refuse(node, "this condition of an ASOF JOIN", _FORM)


def _nearest(queries: Queries, sides: tuple[Any, Any], equal: Sequence[Pair], by: _Compared, *, how: str) -> Any:
    left, right = sides
    (own, other), kind = aligned(queries.source, [by.of_row, by.of_partner], shown(by.node))
    if kind.is_pooled:
        hint = "compare numbers, dates, timestamps or booleans"
        queries.source.refuse(by.node, f"an ASOF JOIN by {kind}", hint)
    keys = {f"asof key {number}": pair[0] for number, pair in enumerate(equal)}
    matches = {f"asof match {number}": pair[1] for number, pair in enumerate(equal)}
    rows = left.with_columns(**keys, **{"asof value": own})
    others = right.with_columns(**matches, **{"asof time": other})
    nearest = rows.join_asof(
        others, "asof value", "asof time", on=dict(zip(keys, matches, strict=True)),
        direction="backward" if by.is_lower else "forward", exact=by.closed, how=how,
    )  # fmt: skip
    return nearest.select(*types(left), *types(right))
