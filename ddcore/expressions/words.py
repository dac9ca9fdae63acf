"""Expressions on words: whole numbers, truth values and dates are computed where they lie, without Polars.

Here is only what has one possible result: sums, differences and products that the bounds of a batch keep within int64,
comparisons, logic, choices, and tests for null, over columns without a null. So this is no second arithmetic: nulls in
arithmetic, overflow, divisions, floats and text are left to Polars, in :mod:`ddcore.expressions.projections`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema
from ddcore.expressions import syntax
from ddcore.expressions.syntax import Tree

__all__ = ["Steps", "steps_of"]

_NULL = -(2**63)
_VALUED = ("int64", "bool", "date", "timestamp")
_NUMBERS = {"Plus": "add", "Minus": "subtract", "Multiply": "multiply", "Negate": "negative"}
_COMPARISONS = {
    "Eq": "equal", "NotEq": "not_equal", "Lt": "less", "LtEq": "less_equal", "Gt": "greater", "GtEq": "greater_equal",
}  # fmt: skip
_LOGIC = {"And": "logical_and", "Or": "logical_or", "Boolean.Not": "logical_not"}
_NULL_TESTS = {"Boolean.IsNull": "equal", "Boolean.IsNotNull": "not_equal"}


@dataclass(frozen=True, slots=True)
class _Step:
    """A column, a literal, or a function of NumPy with the numbers of the steps that are its arguments."""

    function: str = ""
    parts: tuple[int, ...] = ()
    value: Any = None
    column: str = ""


@dataclass(frozen=True, slots=True)
class Steps:
    """An expression as steps, parts first, and the number of the one that gives the result. Can be pickled.

    ``columns``: those that may have no null, since more than that is computed of them.
    """

    steps: tuple[_Step, ...]
    result: int
    columns: frozenset[str]

    def values(self, words: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """The words of the result, or truth values: one for each of the rows. No sum may leave int64."""
        known: list[Any] = []
        for step in self.steps:
            if step.column:
                known.append(words[step.column])
            elif step.function:
                known.append(getattr(np, step.function)(*(known[part] for part in step.parts)))
            else:
                known.append(step.value)
        result = known[self.result]
        return result if isinstance(result, np.ndarray) and result.ndim else np.full(rows, result)


class _Other(Exception):
    """The expression has an operation that is not computed on words."""


def steps_of(tree: Tree, schema: Schema) -> Steps | None:
    """The steps of an expression over rows of a schema; None where it has other operations. O(its size)."""
    program = _Program(schema)
    try:
        number, kind = syntax.fold(tree, program.add)
    except _Other:
        return None
    return Steps(tuple(program.steps), number, frozenset(program.columns)) if kind else None


class _Program:
    """Steps as they are added, each with the type of its values."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.steps: list[_Step] = []
        self.columns: set[str] = set()

    def add(self, node: Tree, parts: list[tuple[int, str]]) -> tuple[int, str]:
        """The number and the type of the step of a node; none of a column until its values are used."""
        operation = syntax.operation(node)
        if isinstance(node, syntax.Column):
            return self._step(_Step(column=node.name), "")
        if isinstance(node, syntax.Literal):
            return self._literal(node)
        if operation in _NULL_TESTS:
            return self._null_test(operation, *parts)
        return self._call(operation, [self._value(*part) for part in parts])

    def _step(self, step: _Step, kind: str) -> tuple[int, str]:
        self.steps.append(step)
        return len(self.steps) - 1, kind

    def _literal(self, literal: syntax.Literal) -> tuple[int, str]:
        match literal:
            case syntax.Literal("Int64", int(value)) if value > _NULL:
                return self._step(_Step(value=value), "int64")
            case syntax.Literal("Boolean", bool(value)):
                return self._step(_Step(value=value), "bool")
        raise _Other

    def _null_test(self, operation: str, part: tuple[int, str]) -> tuple[int, str]:
        if part[1]:
            raise _Other
        null, _ = self._step(_Step(value=_NULL), "int64")
        return self._step(_Step(_NULL_TESTS[operation], (part[0], null)), "bool")

    def _value(self, number: int, kind: str) -> tuple[int, str]:
        """A step whose values are used."""
        if kind:
            return number, kind
        name = self.steps[number].column
        kind = self._schema[name].name
        if kind not in _VALUED:
            raise _Other
        self.columns.add(name)
        if kind != "bool":
            return number, kind
        zero, _ = self._step(_Step(value=0), "int64")
        return self._step(_Step("not_equal", (number, zero)), kind)

    def _call(self, operation: str, parts: list[tuple[int, str]]) -> tuple[int, str]:
        numbers, kinds = tuple(number for number, _ in parts), [kind for _, kind in parts]
        for functions, takes, gives in _KINDS:
            if operation in functions:
                if kinds[0] not in takes or len({*kinds}) > 1:
                    raise _Other
                return self._step(_Step(functions[operation], numbers), gives)
        if operation == "FillNull" and kinds[0] == kinds[1]:
            return parts[0]
        if operation == "Choice" and kinds[0] == "bool" and kinds[1] == kinds[2]:
            return self._step(_Step("where", numbers), kinds[1])
        raise _Other


_KINDS: tuple[tuple[Mapping[str, str], tuple[str, ...], str], ...] = (
    (_NUMBERS, ("int64",), "int64"),
    (_COMPARISONS, _VALUED, "bool"),
    (_LOGIC, ("bool",), "bool"),
)
"""Functions by operation, the types that all arguments have, and that of the result."""
