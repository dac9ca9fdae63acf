"""A condition on rows of a collection that is read, not computed: ``--where`` of a command, ``where=`` in Python.

The same expressions as in programs, checked and computed in the same way. What cannot fail on any row is *pushed*: a
reader of files applies it as Polars does, and skips what cannot have such rows. The rest is computed exactly, on the
rows that are left: a row that is not in the collection any more must not fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial, reduce
from typing import Any

import polars as pl

from ddcore.base.errors import ExpressionError, ProgramError, UsageError
from ddcore.base.schema import Schema
from ddcore.base.source_line import planning
from ddcore.expressions import exactness, parsing, polars_json, syntax, texts
from ddcore.expressions.projections import Predicate
from ddcore.expressions.row_types import RowTypes
from ddcore.expressions.syntax import Tree
from ddcore.operators import arguments
from ddcore.text.wording import meant

_TOTAL = {  # operations that give a value, or null, for all values
    "And", "Or", "LogicalAnd", "LogicalOr", "Eq", "NotEq", "Lt", "LtEq", "Gt", "GtEq", "EqValidity", "NotEqValidity",
    "Boolean.Not", "Boolean.IsNull", "Boolean.IsNotNull", "Boolean.IsBetween", "Boolean.IsIn", "Boolean.AllHorizontal",
    "Boolean.AnyHorizontal", "StringExpr.StartsWith", "StringExpr.EndsWith", "StringExpr.Contains",
}  # fmt: skip
_BY_VALUE = (
    "Boolean.IsIn",
    "StringExpr.Contains",
)  # that are total for a list or a pattern which is the same for all rows
_TURNED = {"Lt": "Gt", "Gt": "Lt", "LtEq": "GtEq", "GtEq": "LtEq"}
_CAN_HOLD: dict[str, Callable[[float, float, int], bool]] = {
    "Eq": lambda least, most, value: least <= value <= most,
    "Lt": lambda least, _, value: least < value,
    "LtEq": lambda least, _, value: least <= value,
    "Gt": lambda _, most, value: most > value,
    "GtEq": lambda _, most, value: most >= value,
}
_AND = ("And", "LogicalAnd")
_BEYOND = 2**63  # int64 ends before it
_DEEPEST = 40  # brackets: what is deeper, and more than _MOST conditions, is computed in stages
_MOST = 20
_SAMPLE = "\"town = 'Ashby' AND distance > 3\""


class Condition:
    """Conditions that a row must all meet; null is not met.

    ``pushed``: what cannot fail, as one expression of Polars; true for all rows that meet the condition. None: nothing.
    """

    def __init__(self, value: Any, schema: Schema, origin: str) -> None:
        """``value``: SQL text or an expression, or several of them. ``origin`` begins messages.

        Raises UsageError for what is no condition on rows of this schema.
        """
        self.schema, self.text = schema, " AND ".join(map(str, arguments.flat([value])))
        try:
            with planning(origin):
                trees = [part for condition in arguments.flat([value]) for part in _conjuncts(_tree(condition, schema))]
                doubtful = [tree for tree in trees if not _bounded(tree, schema)]
                if doubtful:
                    arguments.checked(Predicate, list(map(polars_json.build, doubtful)), schema)
        except ProgramError as error:
            raise UsageError(error.message, _hint(error, self.text, schema)) from None
        sure = [tree for tree in trees if _bounded(tree, schema) or _is_total(tree, schema)][:_MOST]
        rest = [tree for tree in trees if not any(tree is known for known in sure)]
        self.pushed = polars_json.build(reduce(partial(syntax.call, "And"), sure)) if sure else None
        self._comparisons = [bound for tree in sure if (bound := _bounded(tree, schema)) is not None]
        with planning(origin):
            self._rest = Predicate(list(map(polars_json.build, rest)), schema) if rest else None

    @property
    def is_pushed(self) -> bool:
        """Whether what is pushed is all of it."""
        return self._rest is None

    def scan(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """The rows of a lazy frame that meet what is pushed: all that meet the condition, and maybe others."""
        return frame if self.pushed is None else frame.filter(self.pushed)

    @property
    def comparisons(self) -> list[tuple[str, str, int]]:
        """Comparisons of int64 columns that all rows that meet it meet: a column, an operator of SQL, and a value."""
        return [(name, syntax.OPERATORS[op], value) for name, op, value in self._comparisons]

    def may_meet(self, lower: Mapping[str, Any], upper: Mapping[str, Any]) -> bool:
        """Whether rows between these bounds of int64 columns can meet it; bounds that are not known bound nothing."""
        return all(_can_hold(op, lower.get(name), upper.get(name), value) for name, op, value in self._comparisons)

    def kept(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows that meet the condition, of those that :meth:`scan` left. Raises ExpressionError."""
        return frame if self._rest is None else frame.filter(self._rest.evaluate(frame))

    def thinned(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows that meet it, of some that need not be in the collection; all of them where it fails on one."""
        try:
            return self.kept(frame)
        except ExpressionError:
            return frame


def _tree(value: Any, schema: Schema) -> Tree:
    parsed = arguments.checked(parsing.parse, value, bare_string="sql")
    hint = "combine the columns with pl.all_horizontal or pl.any_horizontal"
    tree = syntax.bare(arguments.checked(polars_json.read, arguments.single(schema, parsed, "where", hint)))
    return syntax.rewrite(tree, lambda node: _in_utc(node, schema))


def _in_utc(node: Tree, schema: Schema) -> Tree:
    """A comparison of a column with a timestamp that has no zone, as SQL writes it: all our timestamps are in UTC."""
    match node:
        case syntax.Call(op, (syntax.Column(name) as column, syntax.Literal("Datetime", (at, unit, None)))):
            if op in syntax.OPERATORS and name in schema and schema[name].name == "timestamp":
                return syntax.call(op, column, syntax.Literal("Datetime", (at, unit, "UTC")))
    return node


def _conjuncts(tree: Tree) -> Iterator[Tree]:
    """The parts of which all must be true."""
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if syntax.operation(part) in _AND:
            waiting += syntax.children(part)[::-1]
        else:
            yield part


def _is_total(tree: Tree, schema: Schema) -> bool:
    """Whether Polars computes a condition for every row, as the exact evaluation does."""
    columns = {name: kind.polars for name, kind in schema.items()}
    types = RowTypes(columns)
    if polars_json.depth(tree) > _DEEPEST or not all(_is_total_node(node, types) for node in syntax.walk(tree)):
        return False
    if texts.text(exactness.analyse(tree, types).tree) != texts.text(tree):
        return False
    try:  # for what has no column in it, such as a cast of a literal, or a pattern
        pl.DataFrame(schema=columns).clear(1).select(polars_json.build(tree))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return False
    return True


def _is_total_node(node: Tree, types: RowTypes) -> bool:
    parts = syntax.children(node)
    if isinstance(node, syntax.Cast) and node.dtype == pl.Boolean():  # SQL casts what is negated
        return bool(types(parts) == [pl.Boolean()])
    if not syntax.columns(node) or isinstance(node, syntax.Column):
        return True
    is_pattern = syntax.operation(node) in _BY_VALUE
    return syntax.operation(node) in _TOTAL and not (is_pattern and any(map(syntax.columns, parts[1:])))


def _comparison(tree: Tree) -> tuple[str, str, int] | None:
    """A column's name, the operator and the value of a comparison with an integer."""
    match tree:
        case syntax.Call(op, (syntax.Column(name), syntax.Literal("Int" | "Int64", value))):
            return (name, op, value) if op in _CAN_HOLD else None
        case syntax.Call(op, (syntax.Literal("Int" | "Int64", value), syntax.Column(name))):
            op = _TURNED.get(op, op)
            return (name, op, value) if op in _CAN_HOLD else None
    return None


def _bounded(tree: Tree, schema: Schema) -> tuple[str, str, int] | None:
    """A comparison of an int64 column with an integer, which cannot fail and is looked at no further."""
    found = _comparison(tree)
    if found is None or found[0] not in schema or schema[found[0]].name != "int64":
        return None
    return found if -_BEYOND <= found[2] < _BEYOND else None


def _can_hold(op: str, low: Any, high: Any, value: int) -> bool:
    """Whether a comparison can be true between two bounds, of which each may be None."""
    least, most = low if isinstance(low, int) else -math.inf, high if isinstance(high, int) else math.inf
    return _CAN_HOLD[op](least, most, value)


def _hint(error: ProgramError, text: str, schema: Schema) -> str:
    """What to do, for who asks about rows and writes no program."""
    if "cannot read the SQL text" in error.message:
        return f"write a condition in SQL, for example {_SAMPLE}"
    if "cannot compare 'date" in error.message:
        return "write dates as DATE '2026-11-19', timestamps as TIMESTAMP '2026-11-19 12:00:00'"
    if "there is no column" in error.message and not error.hint.startswith("did you mean"):
        quoted = [name for name in text.split('"')[1::2] if name not in schema and not meant(name, schema)]
        if quoted:
            return f"a text has single quotes: '{quoted[0]}'"
    return error.hint
