"""Formulas: typed expressions of a batch's rows, ready to run, and the errors of those that fail on a value.

A formula has a direct form and a wide one; :mod:`ddcore.expressions.exactness` says which runs when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Any

import polars as pl

from ddcore.base.errors import ExpressionError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, type_of
from ddcore.base.source_line import caller
from ddcore.data import nested
from ddcore.expressions import polars_json, stages, syntax, temporal, texts
from ddcore.expressions.failures import (
    FAILURES,
    Written,
    cause,
    failing_row,
    reason_of,
    row_text,
    select,
    value_text,
)
from ddcore.expressions.intervals import GREATEST, LEAST, Bounds, Overflow
from ddcore.expressions.stages import Staged
from ddcore.expressions.syntax import Tree
from ddcore.expressions.temporal import Guard
from ddcore.expressions.terms import Term
from ddcore.expressions.wide_form import widen
from ddcore.expressions.words import Steps, steps_of

Failure = Callable[[Mapping[str, str]], ExpressionError]
"""The error of an expression that no user wrote, made of the values of its columns in the row where it fails."""
_FAILURE: ContextVar[Failure | None] = ContextVar("failure", default=None)
_WRITTEN: ContextVar[Mapping[str, Written]] = ContextVar("written", default={})  # noqa: B039  (never changed)


@contextmanager
def failing(failure: Failure) -> Iterator[None]:
    """Expressions that are created meanwhile raise this error where they fail: their text would tell a user nothing."""
    token = _FAILURE.set(failure)
    try:
        yield
    finally:
        _FAILURE.reset(token)


@contextmanager
def written(conversions: Mapping[str, Written]) -> Iterator[None]:
    """Expressions that are created meanwhile tell of these conversions, as they fill up, in the user's own words."""
    token = _WRITTEN.set(conversions)
    try:
        yield
    finally:
        _WRITTEN.reset(token)


@dataclass(slots=True)
class _Form:
    """An expression ready to run, and what to check before it: conditions and their reasons by level, lowest first."""

    staged: Staged
    guards: list[tuple[Staged, list[str]]]


@dataclass(slots=True)
class Formula:
    """An expression in both forms. ``safe``: columns whose integers are all within +-safe cannot overflow. ``steps``:
    the same on words, where that is possible. ``tree``: None where it is nested too deeply to be pickled.
    """

    name: str
    text: str
    tree: Tree | None
    columns: list[str]
    direct: _Form
    wide: _Form
    integers: set[str]
    bounds: Bounds
    computes: bool
    dtype: pl.DataType
    safe: int
    steps: Steps | None

    @property
    def is_int(self) -> bool:
        """Whether the result is int64."""
        return self.dtype == pl.Int64()


def formula(name: str, tree: Tree, term: Term, dtype: pl.DataType, schema: Schema) -> Formula:
    """A term ready to run over rows of ``schema``: ``tree`` is what messages show, ``dtype`` the type of the result."""
    to = None if term.dtype == dtype else dtype
    direct_form = wide_form = _form(name, term.tree, to, temporal.guards(term, lambda part: part.tree))
    if term.computes:
        wide = widen(term)
        wide_form = _form(name, wide.tree, None if term.op else to, wide.guards)
    bounds, columns = Bounds.of(term), syntax.columns(term.tree)
    safe = _safe(bounds, bool(term.op), columns) if term.computes else GREATEST
    steps = steps_of(term.tree, schema) if safe > 0 and to is None and not direct_form.guards else None
    return Formula(
        name, texts.display(tree), None if polars_json.is_deeper(tree, polars_json.DEEPEST) else tree, columns,
        direct_form, wide_form, _integers(term), bounds, bool(term.op), dtype, safe, steps,
    )  # fmt: skip


def _form(name: str, tree: Tree, to: pl.DataType | None, guards: list[Guard]) -> _Form:
    """``guards`` are ordered by level."""
    staged = stages.staged([tree], name)
    (expr,) = staged.exprs
    checks = []
    for level, alike in groupby(guards, lambda guard: guard.level):
        known = list(alike)
        check = stages.staged([guard.tree for guard in known], f"{name}={level}")
        named = tuple(condition.alias(f"{name} {level} {number}") for number, condition in enumerate(check.exprs))
        checks.append((Staged(check.stages, named), [guard.reason for guard in known]))
    return _Form(Staged(staged.stages, ((expr if to is None else expr.cast(to)).alias(name),)), checks)


def _safe(bounds: Bounds, computes: bool, columns: list[str]) -> int:
    """The largest of some powers of two such that columns within it cannot make the term overflow; -1 for none."""
    for most in (GREATEST, *(2**bits for bits in (62, 61, 60, 52, 46, 40, 31, 24, 20, 15, 10, 6, 3))):
        if _fits(bounds, computes, dict.fromkeys(columns, (-most, most))):
            return most
    return -1


def _fits(bounds: Bounds, computes: bool, columns: Mapping[str, tuple[int, int]]) -> bool:
    """Whether no integer can overflow. ``computes``: the result is one, so it may not be the reserved value."""
    try:
        low, _ = bounds.bound(columns)
    except Overflow:
        return False
    return not computes or low > LEAST


def _integers(term: Term) -> set[str]:
    """The int64 columns that integer arithmetic reads."""
    terms = syntax.nodes(term, lambda part: part.parts if part.computes else [])
    return {part.tree.name for part in terms if isinstance(part.tree, syntax.Column) and part.dtype == pl.Int64()}


class Formulas:
    """Expressions evaluated together, in one call of Polars where no integer can overflow and nothing is guarded."""

    def __init__(self, formulas: list[Formula]) -> None:
        self._formulas = formulas
        self._source_line, self._failure, self._written = caller(), _FAILURE.get(), _WRITTEN.get()
        self.columns = sorted({name for formula in formulas for name in formula.columns})
        self._direct = stages.together([formula.direct.staged for formula in formulas])
        checks = zip_longest(*(formula.direct.guards for formula in formulas))
        self._guards = [stages.together([guard[0] for guard in check if guard is not None]) for check in checks]
        self._safe = min((formula.safe for formula in formulas), default=GREATEST)
        watched = {name for formula in formulas if formula.safe < GREATEST for name in formula.integers}
        self._watched = sorted(watched)
        # Results that are integers but not computed as such (a cast, a bit operation) may be the reserved value.
        self._checked = [
            formula for formula in formulas if (formula.is_int and not formula.computes) or formula.dtype.is_nested()
        ]
        self._steps = {formula.name: formula.steps for formula in formulas if formula.steps is not None}
        self._without_nulls = sorted({name for steps in self._steps.values() for name in steps.columns})

    def on_words(self, words: Mapping[str, np.ndarray], rows: int) -> dict[str, np.ndarray] | None:
        """The results on words, truth values as such; None where they are not possible or these words do not allow it:
        a null, or integers that may overflow.
        """
        if len(self._steps) < len(self._formulas):
            return None
        for name in self._without_nulls if rows else ():
            column = words[name]
            low = np.minimum.reduce(column)
            if low <= LEAST or (name in self._watched and (low < -self._safe or column.max() > self._safe)):
                return None
        return {name: steps.values(words, rows) for name, steps in self._steps.items()}

    def evaluate(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The results, one column per expression. Raises ExpressionError."""
        if not self._all_fit(frame):
            return self._carefully(frame)
        try:
            if any(_is_any_true(select(frame, guards)) for guards in self._guards):
                return self._carefully(frame)
            results = select(frame, self._direct)
        except FAILURES:
            return self._carefully(frame)
        for formula in self._checked:
            self.require_int64(formula, results.get_column(formula.name), frame)
        return results

    def _all_fit(self, frame: pl.DataFrame) -> bool:
        if self._safe < 0:
            return False
        for name in self._watched:
            column = frame.get_column(name)
            low, high = column.min(), column.max()
            if low is not None and (low < -self._safe or high > self._safe):  # type: ignore[operator]
                return False
        return True

    def _carefully(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Each expression by itself, directly where the batch's own intervals allow, so that a failure has a name."""
        intervals = {}
        for name in self._watched:
            low, high = frame.get_column(name).min(), frame.get_column(name).max()
            intervals[name] = (0, 0) if low is None else (low, high)
        return pl.DataFrame([self._evaluate(formula, frame, intervals) for formula in self._formulas])

    def _evaluate(self, formula: Formula, frame: pl.DataFrame, intervals: Mapping[str, Any]) -> pl.Series:
        fits = formula.safe == GREATEST or _fits(formula.bounds, formula.computes, intervals)
        form = formula.direct if fits else formula.wide
        try:
            for guard, reasons in form.guards:
                for met, reason in zip(select(frame, guard), reasons, strict=True):
                    if met.any():
                        hint = "correct the value, or leave such rows out"
                        raise self._error(formula, f": {reason}", frame, met.arg_max(), hint)
            result = select(frame, form.staged).to_series()
        except FAILURES as failure:
            raise self._failed(formula, form, frame, failure) from None
        self.require_int64(formula, result, frame)
        return result.cast(pl.Int64) if formula.is_int else result

    def _failed(self, formula: Formula, form: _Form, frame: pl.DataFrame, failure: BaseException) -> ExpressionError:
        """The error of an expression that Polars cannot evaluate."""
        row = failing_row(frame, [*(guard for guard, _ in form.guards), form.staged])
        hint = "correct the value, or allow for it in the expression"
        if row is None or self._failure is not None:
            return self._error(formula, f": {reason_of(failure)}", frame, row, hint)
        only = frame[row : row + 1]
        found = cause(only, formula.tree, self._written.values()) if formula.tree is not None else None
        if found is not None:
            return ExpressionError(f"{found.wrong(only)}, {row_text(only.select(formula.columns), 0)}", hint)
        try:
            select(only, form.staged)
        except FAILURES as own:
            failure = own
        return self._error(formula, f": {reason_of(failure, formula.tree)}", frame, row, hint)

    def require_int64(
        self, formula: Formula, column: pl.Series, frame: pl.DataFrame, rows: np.ndarray | None = None
    ) -> None:
        """Raises ExpressionError for an integer column with a value that is no int64 of ours (-2**63 is null).

        ``rows``: which row of ``frame`` each value comes from, where that is not the row of its number.
        """
        if column.dtype.is_nested():
            kind = type_of(column.dtype)
            rows = np.arange(len(column)) if rows is None else rows
            for part, _ in nested.parts(column, kind):
                inside = rows if kind.fields else np.repeat(rows, nested.lengths(column))
                self.require_int64(formula, part, frame, inside)
        if not column.dtype.is_integer():
            return
        low, high = column.min(), column.max()
        if low is None or (low > LEAST and high <= GREATEST):  # type: ignore[operator]
            return
        position = column.arg_min() if low <= LEAST else column.arg_max()  # type: ignore[operator]
        assert position is not None
        row = position if rows is None else int(rows[position])
        wrong = f" is {column[position]}, which int64 cannot hold"
        raise self._error(formula, wrong, frame, row, "cast to float64 or a decimal before computing")

    def _error(self, formula: Formula, wrong: str, frame: pl.DataFrame, row: int | None, hint: str) -> ExpressionError:
        if self._failure is not None and row is not None:
            return self._failure({name: value_text(frame[name], row) for name in formula.columns})
        where = f", {row_text(frame.select(formula.columns), row)}" if row is not None and formula.columns else ""
        return ExpressionError(f"{self._source_line}: {formula.text}{wrong}{where}", hint)

    def unequal(self, text: str, frame: pl.DataFrame, row: int) -> ExpressionError:
        """The error of lists that should have the same length."""
        hint = "call flat_map once for each list, or make the lists equally long"
        return ExpressionError(f"{self._source_line}: flat_map: {text}, {row_text(frame, row)}", hint)

    def formula(self, name: str) -> Formula:
        """The formula of a result."""
        return next(formula for formula in self._formulas if formula.name == name)


def _is_any_true(frame: pl.DataFrame) -> bool:
    return any(column.any() for column in frame)
