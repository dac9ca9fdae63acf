"""Queries of sqllogictest whose result in SQLite is another one than in PostgreSQL, because of its types.

``COALESCE(1, avg(x))`` is of one type in PostgreSQL, where it is no integer in any row. In SQLite it is the integer 1,
so ``3 / COALESCE(2, avg(x))`` is 1 there and 1.5 here. The rule is narrow: a quotient of which SQLite may divide
integers or floats, by the branch that COALESCE, CASE, NULLIF, or a function of such a value took.

``CAST(avg(x) AS INTEGER)`` leaves the fraction out in SQLite, and rounds in PostgreSQL and here. The results in the
suite's files are of values without a fraction; after random statements they may have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import product

import sqlglot
from sqlglot import exp

__all__ = ["casts_fractions", "divides_by_dynamic_type"]

INT, FLOAT = "int", "float"
Kinds = frozenset[str]
"""What a value may be in SQLite: an integer, a float, both, or neither (null and text)."""
_INT, _FLOAT, _NEITHER = frozenset({INT}), frozenset({FLOAT}), frozenset[str]()
_FLOATS = (exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT, exp.DataType.Type.DECIMAL)


def divides_by_dynamic_type(sql: str, schemas: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether a quotient of a query may be one of integers or of floats."""
    upper = sql.upper()
    if "/" not in sql or not any(word in upper for word in ("COALESCE", "CASE")):
        return False
    columns = _columns(schemas)
    quotients = sqlglot.parse_one(sql, read="sqlite").find_all(exp.Div)
    return any(len(_kinds(quotient, columns)) > 1 for quotient in quotients)


def casts_fractions(sql: str, schemas: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether a query casts what may be a float to an integer."""
    if "CAST" not in sql.upper():
        return False
    columns = _columns(schemas)
    casts = sqlglot.parse_one(sql, read="sqlite").find_all(exp.Cast)
    return any(cast.to.this not in _FLOATS and FLOAT in _kinds(cast.this, columns) for cast in casts)


def _columns(schemas: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {name.lower(): kind for schema in schemas.values() for name, kind in schema.items()}


def _kinds(tree: exp.Expr | None, columns: Mapping[str, str]) -> Kinds:  # noqa: PLR0911  (one case, one return)
    """The kinds that a value may have."""
    of = partial(_kinds, columns=columns)
    match tree:
        case exp.Literal(is_string=False):
            return _INT if tree.is_int else _FLOAT
        case exp.Column():
            return {"int64": _INT, "float64": _FLOAT}.get(columns.get(tree.name.lower(), ""), _NEITHER)
        case exp.Cast():
            return _FLOAT if tree.to.this in _FLOATS else _INT
        case exp.Count() | exp.Boolean() | exp.Predicate() | exp.Not() | exp.Mod():
            return _INT
        case exp.Avg():
            return _FLOAT
        case exp.Coalesce():
            return _any(map(of, [tree.this, *tree.expressions]))
        case exp.Case():
            return _any(map(of, [*(branch.args["true"] for branch in tree.args["ifs"]), tree.args.get("default")]))
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            return _both(of(tree.left), of(tree.right))
        case exp.Subquery() | exp.Select():
            return of(tree.selects[0])
        case exp.Nullif() | exp.Paren() | exp.Neg() | exp.Alias() | exp.AggFunc() | exp.Distinct() | exp.Abs():
            return of(tree.expressions[0] if isinstance(tree, exp.Distinct) else tree.this)
        case _:
            return _NEITHER


def _any(kinds: Iterable[Kinds]) -> Kinds:
    return frozenset().union(*kinds)


def _both(left: Kinds, right: Kinds) -> Kinds:
    """Those of a sum: an integer of two integers only."""
    return frozenset(INT if pair == (INT, INT) else FLOAT for pair in product(left, right))
