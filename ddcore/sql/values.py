"""Values: a typed expression for each scalar part of a query, with SQL's three-valued logic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore.base.errors import ProgramError
from ddcore.base.schema import MOST_DIGITS, WORD_DIGITS, Schema, Type, parse_type, widest
from ddcore.data.forms import marked
from ddcore.expressions import polars_json
from ddcore.expressions.projections import Projection
from ddcore.sql import literals
from ddcore.sql.names import Column, resolve, types
from ddcore.sql.rules import BY_DIALECT, READ, nearest
from ddcore.sql.source import Source, called, shown
from ddcore.sql.types import BOOL, DATE, FLOAT, INT, INTERVAL, TEXT, TIMESTAMP

_NUMBERS = ("int64", "decimal", "float64")


@dataclass(frozen=True)
class Value:
    """An expression and its type; None is the type of a bare NULL. ``literal`` is the value of a constant."""

    expr: pl.Expr
    type: Type | None
    node: exp.Expr
    literal: Any = None

    @property
    def name(self) -> str:
        """The type as messages show it."""
        return "null" if self.type is None else str(self.type)

    def is_a(self, *kinds: str) -> bool:
        """Whether its type is one of these, by the name without its parts."""
        return self.type is not None and self.type.name in kinds


@dataclass(eq=False)
class Interval:
    """A length of time: whole months, and microseconds, of which whole days are counted apart."""

    months: int
    days: int
    microseconds: int

    def __neg__(self) -> Interval:
        return Interval(-self.months, -self.days, -self.microseconds)


def literal_interval(length: Interval, node: exp.Expr) -> Value:
    """A literal interval."""
    parts = (length.months, length.days, length.microseconds)
    whole = interval_of_parts(*(pl.lit(part, dtype=pl.Int64) for part in parts))
    return Value(marked(whole, INTERVAL), INTERVAL, node, length)


def settled(value: Value) -> Value:
    """A literal interval as any other one: rules of literals read numbers and text; anything else as it is."""
    return replace(value, literal=None) if isinstance(value.literal, Interval) else value


def interval_of_parts(months: pl.Expr, days: pl.Expr, microseconds: pl.Expr) -> pl.Expr:
    """An interval of whole numbers; null where one of them is."""
    whole = pl.struct(months=months.cast(pl.Int32), days=days.cast(pl.Int32), microseconds=microseconds)
    return pl.when(months.is_not_null() & days.is_not_null() & microseconds.is_not_null()).then(whole)


def null(type_: Type) -> pl.Expr:
    """A null of this type."""
    return marked(pl.lit(None, dtype=type_.polars), type_)


def constant(value: Any, node: exp.Expr) -> Value:  # noqa: PLR0911  (one case, one return)
    """A value of Python as a literal."""
    if isinstance(value, bool):
        return Value(pl.lit(value), BOOL, node, value)
    if isinstance(value, int):
        return Value(pl.lit(value, dtype=pl.Int64), INT, node, value)
    if isinstance(value, Decimal):
        scale = max(-int(value.as_tuple().exponent), 0)
        before = max(value.adjusted() + 1, 0) if value else 0
        kind = Type("decimal", WORD_DIGITS if before + scale <= WORD_DIGITS else MOST_DIGITS, scale)
        return Value(pl.lit(value, dtype=kind.polars), kind, node, value)
    if isinstance(value, float):
        finite = pl.lit(value, dtype=pl.Float64) if math.isfinite(value) else pl.lit(str(value)).cast(pl.Float64)
        return Value(finite, FLOAT, node, value)
    if isinstance(value, datetime):
        return Value(pl.lit(value, dtype=TIMESTAMP.polars), TIMESTAMP, node, value)
    if isinstance(value, date):
        return Value(pl.lit(value), DATE, node, value)
    return Value(pl.lit(value), TEXT, node, value)


def aligned(source: Source, values: Sequence[Value], what: str | exp.Expr) -> tuple[list[pl.Expr], Type]:
    """Expressions of one type. Raises ProgramError where the types have none in common; ``what`` begins its message."""
    values = [settled(value) for value in values]
    known = [value for value in values if value.type is not None]
    typed = [value for value in known if not isinstance(value.literal, str)] or known
    common = typed[0].type if typed else TEXT
    assert common is not None
    for value in typed[1:]:
        assert value.type is not None
        joined = _joined(common, value.type)
        if joined is None:
            where = what if isinstance(what, str) else shown(what)
            raise source.error(
                value.node, f"{where}: the types {common} and {value.name} do not meet: {shown(value.node)}",
                "cast one of them: CAST(x AS type)",
            )  # fmt: skip
        common = joined
    return [as_type(source, value, common) for value in values], common


def merged(source: Source, values: Sequence[Value], what: str | exp.Expr) -> tuple[list[pl.Expr], Type]:
    """As ``aligned``, for values that become one column. Raises ProgramError also where the digits of two decimals are
    more than 38: Spark and DuckDB round them there.
    """
    exprs, kind = aligned(source, values, what)
    if source.dialect == "postgres" or kind.name != "decimal":
        return exprs, kind
    for value in values:
        known = value.type
        if value.literal is not None or known is None or known.name != "decimal":
            continue
        if known.precision - known.scale + kind.scale > MOST_DIGITS:
            where = what if isinstance(what, str) else shown(what)
            raise source.error(
                value.node,
                f"{where}: {known} and decimals with {kind.scale} digits behind the point have "
                f"more than {MOST_DIGITS} together, and {source.dialect} may round them",
                f"cast all to one type: CAST(x AS decimal({MOST_DIGITS},{kind.scale}))",
            )
    return exprs, kind


def _joined(one: Type, other: Type) -> Type | None:
    """The type that holds values of both."""
    if one == other:
        return one
    names = {one.name, other.name}
    if names <= set(_NUMBERS):
        if "float64" in names:
            return FLOAT
        return widest(Type("decimal", WORD_DIGITS, max(one.scale, other.scale)), one, other)
    return TIMESTAMP if names == {"date", "timestamp"} else None


def as_type(source: Source, value: Value, wanted: Type) -> pl.Expr:
    """The value as a type that holds it: widened, a literal read, or null."""
    value = settled(value)
    if value.type is None:
        return null(wanted)
    if value.type == wanted:
        return value.expr
    if value.literal is not None:
        return _literal(source, value, wanted).expr
    if value.type == INTERVAL:
        raise source.error(value.node, f"{shown(value.node)} is an interval, not {wanted}", "cast it: CAST(x AS type)")
    return value.expr.cast(wanted.polars)


def _literal(source: Source, value: Value, wanted: Type) -> Value:
    """A literal as another type: text is read, numbers are widened."""
    literal = value.literal
    try:
        if isinstance(literal, str) and wanted != TEXT:
            read = literals.read(literal.strip(), wanted)
            if wanted.name not in ("uuid", "interval", "time"):
                return constant(read, value.node)
            return Value(pl.lit(read, dtype=wanted.polars), wanted, value.node, literal)
        if wanted == FLOAT:
            return constant(float(literal), value.node)
        if wanted.name == "decimal":
            number = literals.to_scale(Decimal(literal), wanted.scale)
            return Value(pl.lit(number, dtype=wanted.polars), wanted, value.node, number)
        if wanted == TIMESTAMP and type(literal) is date:
            return constant(datetime(literal.year, literal.month, literal.day, tzinfo=literals.UTC), value.node)
    except (ValueError, ArithmeticError):
        raise source.error(value.node, f"{literal!r} is no {wanted}", f"write a literal of the type {wanted}") from None
    return replace(value, expr=value.expr.cast(wanted.polars), type=wanted, literal=None)


Rule = Callable[["Values", Any], Value]
"""Makes the value of a node."""
Named = tuple[int, Rule]
"""How many arguments a function has that sqlglot does not know, and its rule."""
Replace = Callable[["Values", exp.Expr], Value | None]
_CONTAINERS = {"list": "name a column of lists, or ARRAY[...]", "map": "docs/sql.md lists what is supported"}
"""Types with others inside, and the hint where a value is of none."""
CHAINED = (exp.And, exp.Or, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.DPipe)


class Values:
    """Makes values of the parts of a query over the rows of one collection.

    ``replace`` may give the value of a part that is computed already: an aggregate, a key of GROUP BY, a subquery.
    """

    def __init__(
        self, source: Source, columns: Sequence[Column], schema: Schema, replace: Replace | None = None
    ) -> None:
        self.source, self.columns, self.schema, self._replace = source, columns, schema, replace
        self._ready: dict[int, Value] = {}
        """Parts that the rule which comes next asks for, by identity: the left side in a chain, what was looked at."""

    def of(self, node: exp.Expr) -> Value:
        """The value of a part. Raises ProgramError, with its place, for what is not supported or has no type.

        A chain, ``a + b + c``, is nested on its left side as deeply as it is long, so it is gone through from there.
        """
        chain = [node]
        while isinstance(chain[-1], CHAINED) and isinstance(chain[-1].this, CHAINED):
            if id(chain[-1]) in self._ready or (self._replace and self._replace(self, chain[-1]) is not None):
                break
            chain.append(chain[-1].this)
        value = self._of(chain.pop())
        while chain:
            inner = chain[-1].this
            self._ready[id(inner)] = value
            value = self._of(chain.pop())
            self._ready.pop(id(inner), None)
        return value

    def peek(self, node: exp.Expr) -> Value:
        """The value of a part that the rule which follows asks for once more: it is not found a second time."""
        value = self.of(node)
        self._ready[id(node)] = value
        return value

    def ready(self, node: exp.Expr, value: Value) -> None:
        """The rule that follows takes this for the value of a part."""
        self._ready[id(node)] = value

    def _of(self, node: exp.Expr) -> Value:
        if id(node) in self._ready:
            return self._ready.pop(id(node))
        known = self._replace(self, node) if self._replace else None
        if known is not None:
            return known
        for kind in type(node).__mro__:
            rule = BY_DIALECT[self.source.dialect].get(kind)
            if rule is not None:
                self.require_arguments(node, kind)
                value: Value = rule(self, node)
                return value if value.type is None else replace(value, expr=marked(value.expr, value.type))
        if isinstance(node, exp.AggFunc):
            raise self.source.error(
                node, f"an aggregate where single rows are meant: {shown(node)}",
                "conditions on groups belong into HAVING; elsewhere compute it in a subquery",
            )  # fmt: skip
        if isinstance(node, exp.Func) and not isinstance(node, exp.Binary):
            self.source.refuse(node, f"the function {called(node)}", nearest(called(node), self.source.dialect))
        self.source.refuse(node, "this expression")

    def require_arguments(self, node: exp.Expr, kind: type[exp.Expr]) -> None:
        """Raises ProgramError for an option of a part that its rule does not read, and for an argument it lacks."""
        read = READ.get(kind, "").split()
        if not all(node.args.get(name[:-1]) for name in read if name[-1] == "!"):
            raise self.source.error(node, f"{shown(node)} lacks an argument", "docs/sql.md lists what is supported")
        known = {"this", "expression", "expressions", *(name.rstrip("!") for name in read)}
        for name, value in node.args.items():
            if value and name not in known:
                self.source.refuse(node, "this form" if isinstance(node, exp.Binary | exp.In) else "this option")

    def truth(self, node: exp.Expr, where: str) -> pl.Expr:
        """A condition. Raises ProgramError for another type."""
        value = self.of(node)
        if value.type is None:
            return null(BOOL)
        if value.type != BOOL:
            raise self.source.error(
                node, f"{where}: {shown(node)} is {value.name}, not a condition", "compare it with something"
            )
        return value.expr

    def column(self, node: exp.Column) -> Value:
        """A column of the rows."""
        found = resolve(self.source, self.columns, node)
        return Value(pl.col(found.key), self.schema[found.key], node)

    def typed(self, combine: Callable[..., pl.Expr], parts: Sequence[Value], node: exp.Expr) -> Value:
        """An expression of these parts, whose type the engine finds."""
        expr = combine(*(part.expr for part in parts))
        try:
            return Value(expr, _typed(combine, tuple(part.type for part in parts)), node)
        except ProgramError:
            pass
        try:
            kind = Projection({"x": expr}, self.schema).schema["x"]  # in its message are the names of columns
        except ProgramError as error:
            raise self.source.error(node, f"{shown(node)}: {error.message}", error.hint) from None
        return Value(expr, kind, node)

    def require(self, value: Value, *names: str) -> Value:
        """The value, if its type is one of these or it is NULL, which then has the first."""
        if value.type is None:
            first = parse_type(names[0] if names[0] != "decimal" else "decimal(18,2)")
            return replace(value, expr=null(first), type=first)
        if isinstance(value.literal, str) and "string" not in names:
            return _literal(self.source, value, parse_type(names[0]))
        if value.type.name not in names:
            raise self.source.error(
                value.node, f"{shown(value.node)} is {value.name}, not {' or '.join(names)}", "cast it: CAST(x AS type)"
            )
        return value

    def number(self, value: Value) -> Value:
        """The value, if it is a number."""
        return self.require(value, *_NUMBERS)

    def arguments(self, node: exp.Expr, *kinds: str, keys: Sequence[str] = ("this", "expression")) -> list[Value]:
        """The values of a function's arguments, as many as types: one may be ``number``, ``float64``, which all numbers
        become, ``moment``, a timestamp, which dates become, ``list``, ``map``, ``element``, of the type that those of
        the first argument have, or several, ``date|timestamp``. ``keys``: where sqlglot has them, unless it has all as
        a list.
        """
        nodes = node.expressions
        if not isinstance(node, exp.Anonymous | exp.Chr):
            nodes = [node.args[key] for key in keys[: len(kinds)]]
        found: list[Value] = []
        for argument, kind in zip(nodes, kinds, strict=True):
            if kind in _CONTAINERS:
                found.append(self.container(argument, kind))
            elif kind == "element":
                found.append(self.cast(self.of(argument), element_of(found[0].type)))
            else:
                found.append(self._argument(self.of(argument), kind))
        return found

    def _argument(self, value: Value, kind: str) -> Value:
        if kind in ("number", "float64"):
            value = self.number(value)
            return value if kind == "number" else self.cast(value, FLOAT)
        return self.moment(value) if kind == "moment" else self.require(value, *kind.split("|"))

    def moment(self, value: Value) -> Value:
        """A timestamp, or a date as one."""
        return self.cast(self.require(value, "timestamp", "date"), TIMESTAMP)

    def cast(self, value: Value, kind: Type) -> Value:
        """The value as a type that holds it: see :func:`as_type`. A literal stays one."""
        return replace(value, expr=as_type(self.source, value, kind), type=kind)

    def container(self, node: exp.Expr, kind: str) -> Value:
        """The value of a part, if it is a list or a map, as ``kind`` says."""
        value = self.of(node)
        if not value.is_a(kind):
            raise self.source.error(node, f"{shown(node)} is {value.name}, not a {kind}", _CONTAINERS[kind])
        return value


@lru_cache(maxsize=1024)
def _typed(combine: Callable[..., pl.Expr], types: tuple[Type, ...]) -> Type:
    """The type of what ``combine`` makes of values of these types, by columns that stand in for them."""
    schema = {f"x{number}": kind for number, kind in enumerate(types)}
    return Projection({"x": combine(*map(pl.col, schema))}, schema).schema["x"]


def element_of(kind: Type | None) -> Type:
    """The type of the elements of a list."""
    assert kind is not None and kind.element is not None
    return kind.element


def same(kind: Type) -> Type:
    """The result of a function has the type of its first argument."""
    return kind


def function(
    combine: Callable[..., pl.Expr],
    result: Type | Callable[[Type], Type],
    *kinds: str,
    repeats: bool = False,
    **keys: Sequence[str],
) -> Rule:
    """The rule of a function of so many arguments of these types: see :meth:`Values.arguments`.

    ``result``: its type, or what gives it from that of the first argument. ``repeats``: it names an argument more than
    once.
    """

    def body(*arguments: Value) -> pl.Expr:
        return combine(*(argument.expr for argument in arguments))

    def rule(values: Values, node: exp.Expr) -> Value:
        arguments = values.arguments(node, *kinds, **keys)
        kind = result if isinstance(result, Type) else result(arguments[0].type or TEXT)
        return Value(shared(arguments, body) if repeats else body(*arguments), kind, node)

    return rule


def shared(values: Sequence[Value], body: Callable[..., pl.Expr]) -> pl.Expr:
    """What ``body`` makes of values that it may name any number of times: each is in the expression once.

    Bare columns, literals and other constants are named as they are.
    """
    names = [number for number, value in enumerate(values) if value.literal is None and value.expr.meta.root_names()]
    names = [number for number in names if not values[number].expr.meta.is_column()]
    if not names:
        return body(*values)

    def inner(*exprs: pl.Expr) -> pl.Expr:
        new = dict(zip(names, exprs, strict=True))
        return body(*(replace(value, expr=new.get(number, value.expr)) for number, value in enumerate(values)))

    return polars_json.share([values[number].expr for number in names], inner)


def is_plain(expr: pl.Expr) -> str | None:
    """The column's name, if an expression is a bare column."""
    return expr.meta.root_names()[0] if expr.meta.is_column() else None


def selected(rows: Any, exprs: Mapping[str, pl.Expr]) -> Any:
    """Columns of rows; the rows as they are where that changes nothing."""
    same = list(exprs) == list(types(rows)) and all(is_plain(expr) == name for name, expr in exprs.items())
    return rows if same else rows.select(**exprs)


def column_value(values: Values, node: exp.Expr) -> Value:
    """The value of one column of a SELECT."""
    inner = node.this if isinstance(node, exp.Alias) else node
    value = values.of(inner)
    if value.type is None and value.literal is None:
        return Value(as_type(values.source, value, TEXT), TEXT, inner)
    value = settled(value)
    assert value.type is not None
    return value
