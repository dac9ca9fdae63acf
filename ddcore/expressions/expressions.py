"""Expressions of single rows, typed when the program is built, exact when it runs.

An expression is a Polars expression, SQL text where an expression is expected, or a Python value. It must map each row
by itself, so that it can be applied to differences. Integers are int64 and overflow is an error;
:mod:`ddcore.expressions.exactness` says how overflow is detected without slowing down small integers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import groupby, zip_longest
from typing import Any, Literal

import polars as pl

from ddcore.base.errors import ExpressionError, ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import MARK, MOST_DIGITS, WORD_DIGITS, Schema, Type, type_of
from ddcore.base.source_line import caller
from ddcore.data import nested
from ddcore.expressions import decimals, exactness, polars_json, stages, syntax, temporal, vocabulary
from ddcore.expressions.exactness import GREATEST, LEAST, Bounds, Overflow
from ddcore.expressions.stages import Staged
from ddcore.expressions.syntax import Tree
from ddcore.expressions.temporal import Guard
from ddcore.expressions.terms import Term
from ddcore.expressions.words import Steps, steps_of
from ddcore.text.wording import brief, meant

__all__ = ["ListProjection", "Predicate", "Projection", "RowTypes", "canonical", "failing", "identity", "parse"]

_QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"")
_CLOCK = re.compile(r"\b(?:now\s*\(|current_(?:timestamp|date|time)\b|localtime(?:stamp)?\b)", re.IGNORECASE)
_MARK = "Extension.To"
_COUNTED = re.compile(r" in column '.*' for \d+ out of \d+ values")
Failure = Callable[[Mapping[str, str]], ExpressionError]
"""The error of an expression that no user wrote, made of the values of its columns in the row where it fails."""
_FAILURE: ContextVar[Failure | None] = ContextVar("failure", default=None)
_FAILURES = (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, TypeError, ArithmeticError)


def parse(value: Any, *, bare_string: Literal["column", "sql"]) -> pl.Expr:
    """The expression that a user's argument stands for.

    Text is a column's name or SQL, by ``bare_string``; integers are int64, decimals decimal(18, scale), or with more
    digits decimal(38, scale). Raises
    ProgramError for text that is no SQL, for text that reads the clock, and for values that no column can hold.
    """
    if isinstance(value, pl.Expr):
        return value
    if isinstance(value, str):
        return pl.col(value) if bare_string == "column" else _sql(value)
    is_numpy = "numpy" in sys.modules and isinstance(value, np.generic)  # which is then not imported for this
    return _literal(value.item() if is_numpy else value)


def canonical(expr: pl.Expr) -> str:
    """The text of an expression, equal for equal expressions in every process; the name of the result is no part of it.

    Raises ProgramError for an expression that has none, because it calls a Python function.
    """
    return syntax.text(syntax.bare(polars_json.read(expr)))


def identity(expr: pl.Expr) -> list[str]:
    """Parts of a digest that distinguish an expression: its canonical text, and which literals have a type.

    A literal without one takes that of its neighbours, which are not always int64 and float64: ``cast(pl.Float32) *
    0.1`` is another number than ``cast(pl.Float32) * pl.lit(0.1, dtype=pl.Float64)``.
    """
    tree = syntax.bare(polars_json.read(expr))
    return [syntax.text(tree), *syntax.literals(tree)]


@contextmanager
def failing(failure: Failure) -> Iterator[None]:
    """Expressions that are created meanwhile raise this error where they fail: their text would tell a user nothing."""
    token = _FAILURE.set(failure)
    try:
        yield
    finally:
        _FAILURE.reset(token)


class Projection:
    """Named expressions over rows of one schema.

    Attributes: ``schema``, the result's; ``renames``, which results are bare columns, and of what name; ``constants``,
    which results read no column; ``columns``, the columns that the computed results read, or None if all results are
    bare; ``reads``, the columns that each result reads. Raises ProgramError for an unknown column, types that do not
    meet, a result without a type, and expressions that are no maps of single rows.
    """

    def __init__(self, exprs: Mapping[str, pl.Expr], schema: Schema) -> None:
        types = _typing(schema)
        self.schema: Schema = {}
        self.renames: dict[str, str] = {}
        self.constants: list[str] = []
        formulas = []
        for name, expr in exprs.items():
            tree, kind = _check(expr, schema)
            if isinstance(tree, syntax.Column) and kind in (None, schema[tree.name]):
                self.renames[name] = tree.name
                self.schema[name] = schema[tree.name]
                continue
            if not syntax.columns(tree):
                self.constants.append(name)
            term = exactness.analyse(tree, types)
            self.schema[name] = kind or _result_type(term.dtype, tree, types)
            formulas.append(_formula(name, tree, term, self.schema[name].polars, schema))
        self._formulas = _Formulas(formulas)
        self.columns: list[str] | None = self._formulas.columns if formulas else None
        self.reads = {name: frozenset((source,)) for name, source in self.renames.items()}
        self.reads |= {formula.name: frozenset(formula.columns) for formula in formulas}

    def on_words(self, words: Mapping[str, np.ndarray], rows: int) -> dict[str, np.ndarray] | None:
        """The words of those results by name, computed on the words of the rows; None where Polars has to do that."""
        results = self._formulas.on_words(words, rows)
        return results and {name: values.astype(np.int64, copy=False) for name, values in results.items()}

    def without(self, names: Iterable[str]) -> Projection:
        """The projection without some results that are bare columns."""
        gone, other = frozenset(names), copy(self)
        other.schema = {name: kind for name, kind in self.schema.items() if name not in gone}
        other.renames = {name: column for name, column in self.renames.items() if name not in gone}
        other.reads = {name: columns for name, columns in self.reads.items() if name not in gone}
        return other

    def computed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The results that are no bare columns, in order, for the rows of ``frame``.

        ``frame`` has at least ``columns``, or if that is empty any column, for its height. Raises
        ExpressionError, with the expression's text, where Polars fails on a value or an integer leaves int64.
        """
        return self._formulas.evaluate(frame)

    def evaluate(self, frame: pl.DataFrame) -> pl.DataFrame:
        """All results for the rows of ``frame``, as :meth:`computed` gives them."""
        columns = {name: frame.get_column(source).alias(name) for name, source in self.renames.items()}
        if self.columns is not None:
            columns |= {column.name: column for column in self.computed(frame)}
        return pl.DataFrame([columns[name] for name in self.schema])


def types_of(exprs: Mapping[str, pl.Expr], schema: Schema) -> Schema:
    """The types of named expressions, without making them ready to run. Raises ProgramError as :class:`Projection`."""
    types, found = _typing(schema), Schema()
    for name, expr in exprs.items():
        tree, kind = _check(expr, schema)
        if isinstance(tree, syntax.Column):
            found[name] = kind or schema[tree.name]
        else:
            term = exactness.analyse(tree, types)
            found[name] = kind or _result_type(term.dtype, tree, types)
    return found


def check_condition(expr: pl.Expr, schema: Schema) -> None:
    """Raises ProgramError as :class:`Predicate`, without making the condition ready to run."""
    types = _typing(schema)
    exactness.analyse(_all_of([expr], schema, types), types)


class Predicate:
    """Conditions that a row must all meet; a null condition is not met. ``columns``: what they read."""

    def __init__(self, exprs: Iterable[pl.Expr], schema: Schema) -> None:
        types = _typing(schema)
        met = syntax.call("FillNull", _all_of(exprs, schema, types), syntax.FALSE)
        self._formulas = _Formulas([_formula("met", met, exactness.analyse(met, types), pl.Boolean(), schema)])
        self.columns = self._formulas.columns

    def on_words(self, words: Mapping[str, np.ndarray], rows: int) -> np.ndarray | None:
        """Which rows meet all conditions, computed on their words; None where Polars has to do that."""
        results = self._formulas.on_words(words, rows)
        return None if results is None else results["met"]

    def evaluate(self, frame: pl.DataFrame) -> np.ndarray:
        """Which rows of ``frame`` meet all conditions: bool[rows].

        Raises ExpressionError as :meth:`Projection.computed` does.
        """
        return self._formulas.evaluate(frame).get_column("met").to_numpy()


class ListProjection:
    """Named list expressions, whose elements become rows beside the other columns.

    Attributes: ``schema`` of the result, in which a list replaces a column of its name; ``names`` of the results;
    ``columns``, what the lists read. Raises ProgramError as :class:`Projection` does, and for an expression whose value
    is no list.
    """

    def __init__(self, exprs: Mapping[str, pl.Expr], schema: Schema) -> None:
        types = _typing(schema)
        elements: Schema = {}
        formulas = []
        for name, expr in exprs.items():
            tree, _ = _check(expr, schema)
            term = exactness.analyse(tree, types)
            if not isinstance(term.dtype, pl.List):
                raise ProgramError(
                    f"flat_map({name}=...): {syntax.display(tree)} is {term.dtype}, not a list",
                    'for example col("tags").str.split(",")',
                )
            elements[name] = _result_type(_instance(term.dtype.inner), tree, types)
            formulas.append(_formula(name, tree, term, pl.List(elements[name].polars), schema))
        self.names = tuple(elements)
        self.schema: Schema = {name: kind for name, kind in schema.items() if name not in elements} | elements
        self._formulas = _Formulas(formulas)
        self.columns = self._formulas.columns

    def explode(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray]:
        """The elements of the lists of all rows, and the row of each: int64[elements].

        An empty or null list gives no element; several lists are exploded side by side. Raises ExpressionError where
        those differ in length, and as :meth:`Projection.computed` does.
        """
        lists = self._formulas.evaluate(frame)
        lengths = [np.nan_to_num(column.list.len().to_numpy()).astype(np.int64) for column in lists]
        for name, other in zip(lists.columns[1:], lengths[1:], strict=True):
            unequal = np.flatnonzero(other != lengths[0])
            if len(unequal):
                row = int(unequal[0])
                first = f"{lists.columns[0]} has {lengths[0][row]} elements"
                raise self._formulas.unequal(f"{first} where {name} has {other[row]}", frame, row)
        elements = pl.DataFrame([column.explode(empty_as_null=False, keep_nulls=False) for column in lists])
        rows = np.repeat(np.arange(len(lists), dtype=np.int64), lengths[0])
        for column in elements:
            self._formulas.require_int64(self._formulas.formula(column.name), column, frame, rows)
        return elements, rows


# -- one expression, ready to run -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Form:
    """An expression ready to run, and what to check before it: conditions and their reasons by level, lowest first."""

    staged: Staged
    guards: list[tuple[Staged, list[str]]]


@dataclass(slots=True)
class _Formula:
    """An expression in both forms. ``safe``: columns whose integers are all within +-safe cannot overflow. ``steps``:
    the same on words, where that is possible.
    """

    name: str
    text: str
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
        return self.dtype == pl.Int64()


def _formula(name: str, tree: Tree, term: Term, dtype: pl.DataType, schema: Schema) -> _Formula:
    to = None if term.dtype == dtype else dtype
    direct_form = wide_form = _form(name, term.tree, to, temporal.guards(term, lambda part: part.tree))
    if term.computes:
        wide = exactness.widen(term)
        wide_form = _form(name, wide.tree, None if term.op else to, wide.guards)
    bounds, columns = Bounds.of(term), syntax.columns(term.tree)
    safe = _safe(bounds, bool(term.op), columns) if term.computes else GREATEST
    steps = steps_of(term.tree, schema) if safe > 0 and to is None and not direct_form.guards else None
    return _Formula(
        name, syntax.display(tree), columns, direct_form, wide_form, _integers(term), bounds, bool(term.op), dtype,
        safe, steps,
    )  # fmt: skip


def _form(name: str, tree: Tree, to: pl.DataType | None, guards: list[Guard]) -> _Form:
    """``guards`` are ordered by level."""
    staged = stages.staged([tree], name)
    (expr,) = staged.exprs
    checks = []
    for level, alike in groupby(guards, lambda guard: guard.level):
        known = list(alike)
        check = stages.staged([guard.tree for guard in known], f"{name}={level}")
        named = tuple(each.alias(f"{name} {level} {number}") for number, each in enumerate(check.exprs))
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


class _Formulas:
    """Expressions evaluated together, in one call of Polars where no integer can overflow and nothing is guarded."""

    def __init__(self, formulas: list[_Formula]) -> None:
        self._formulas = formulas
        self._place, self._failure = caller(), _FAILURE.get()
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
            if any(_is_any_true(_select(frame, guards)) for guards in self._guards):
                return self._carefully(frame)
            results = _select(frame, self._direct)
        except _FAILURES:
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

    def _evaluate(self, formula: _Formula, frame: pl.DataFrame, intervals: Mapping[str, Any]) -> pl.Series:
        fits = formula.safe == GREATEST or _fits(formula.bounds, formula.computes, intervals)
        form = formula.direct if fits else formula.wide
        try:
            for guard, reasons in form.guards:
                for met, reason in zip(_select(frame, guard), reasons, strict=True):
                    if met.any():
                        hint = "correct the value, or leave such rows out"
                        raise self._error(formula, f": {reason}", frame, met.arg_max(), hint)
            result = _select(frame, form.staged).to_series()
        except _FAILURES as failure:
            row = _failing_row(frame, [*(guard for guard, _ in form.guards), form.staged])
            reason = _reason(failure)
            hint = "correct the value, or allow for it in the expression"
            raise self._error(formula, f": {reason}", frame, row, hint) from None
        self.require_int64(formula, result, frame)
        return result.cast(pl.Int64) if formula.is_int else result

    def require_int64(
        self, formula: _Formula, column: pl.Series, frame: pl.DataFrame, rows: np.ndarray | None = None
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
        place = column.arg_min() if low <= LEAST else column.arg_max()  # type: ignore[operator]
        assert place is not None
        row = place if rows is None else int(rows[place])
        wrong = f" is {column[place]}, which int64 cannot hold"
        raise self._error(formula, wrong, frame, row, "cast to float64 or a decimal before computing")

    def _error(self, formula: _Formula, wrong: str, frame: pl.DataFrame, row: int | None, hint: str) -> ExpressionError:
        if self._failure is not None and row is not None:
            return self._failure({name: _value(frame[name], row) for name in formula.columns})
        where = f", {_row(frame.select(formula.columns), row)}" if row is not None and formula.columns else ""
        return ExpressionError(f"{self._place}: {formula.text}{wrong}{where}", hint)

    def unequal(self, text: str, frame: pl.DataFrame, row: int) -> ExpressionError:
        """The error of lists that should have the same length."""
        hint = "call flat_map once for each list, or make the lists equally long"
        return ExpressionError(f"{self._place}: flat_map: {text}, {_row(frame, row)}", hint)

    def formula(self, name: str) -> _Formula:
        """The formula of a result."""
        return next(formula for formula in self._formulas if formula.name == name)


def _is_any_true(frame: pl.DataFrame) -> bool:
    return any(column.any() for column in frame)


def _failing_row(frame: pl.DataFrame, parts: list[Staged]) -> int | None:
    """A row that Polars cannot evaluate the expressions on by itself, by halving; None where every half can.

    Cost: that of evaluating two more frames of this size.
    """
    start, size = 0, len(frame)
    while size > 1:
        half = size // 2
        if _fails(frame[start : start + half], parts):
            size = half
        else:
            start, size = start + half, size - half
    return start if size and _fails(frame[start : start + 1], parts) else None


def _fails(frame: pl.DataFrame, parts: list[Staged]) -> bool:
    try:
        for part in parts:
            _select(frame, part)
    except _FAILURES:
        return True
    return False


def _select(frame: pl.DataFrame, staged: Staged) -> pl.DataFrame:
    """The values of the expressions, as many as ``frame`` has rows, even where there is one value for all rows.

    That is so without columns, and may be with them: Polars finds out by itself that ``a > a`` is false.
    """
    values = staged.prepared(frame).select(staged.exprs)
    return values if values.height == frame.height else values[np.zeros(frame.height, dtype=np.int64)]


def _row(frame: pl.DataFrame, row: int) -> str:
    return "in the row " + ", ".join(f"{name}={_value(frame[name], row)}" for name in frame.columns if name[0] != "_")


def _value(column: pl.Series, row: int) -> str:
    value = column[row : row + 1]
    if not _is_pythons(value):
        return str(value.to_physical().to_list()[0])
    only = value.to_list()[0]
    return repr(only) if isinstance(only, Decimal) else f"{only!r:.40}"


def _is_pythons(value: pl.Series) -> bool:
    """Whether Python has the dates and timestamps: it has the years 1 to 9999 (Polars panics on some others)."""
    if value.dtype in (pl.List, pl.Struct):
        return all(_is_pythons(part) for part, _ in nested.parts(value, type_of(value.dtype)))
    if not temporal.is_temporal(value.dtype):
        return True
    per_day = 1 if value.dtype == pl.Date() else 86_400_000_000
    days = value.to_physical().cast(pl.Int64) // per_day
    return bool(days.is_between(-719_000, 2_932_000).all())


def _reason(failure: BaseException) -> str:
    """The first line of what Polars says, without what it says about the other rows of the batch."""
    return _COUNTED.sub("", str(failure).strip().partition("\n")[0])


def _integers(term: Term) -> set[str]:
    """The int64 columns that integer arithmetic reads."""
    terms = syntax.nodes(term, lambda part: part.parts if part.computes else [])
    return {part.tree.name for part in terms if isinstance(part.tree, syntax.Column) and part.dtype == pl.Int64()}


# -- checks when the program is built ---------------------------------------------------------------------------------


def _check(expr: pl.Expr, schema: Schema) -> tuple[Tree, Type | None]:
    """An expression's tree, and the type that it is marked with."""
    tree, kind = _unmarked(syntax.bare(polars_json.read(expr)))
    if isinstance(tree, syntax.Column) and tree.name in schema:
        return tree, kind
    vocabulary.check(tree)
    for name in syntax.columns(tree):
        if name not in schema:
            raise ProgramError(
                f"there is no column {name}: the columns are {', '.join(schema)}",
                meant(name, schema) or "name one of these",
            )
    return tree, kind


def _all_of(exprs: Iterable[pl.Expr], schema: Schema, types: RowTypes) -> Tree:
    """Conditions as one. Raises ProgramError for what is none."""
    total: Tree | None = None
    for expr in exprs:
        tree, _ = _check(expr, schema)
        dtype = types([tree])[0]
        if dtype != pl.Boolean():
            raise ProgramError(
                f"the condition {syntax.display(tree)} is {dtype}, not bool",
                "compare with something, or cast to bool",
            )
        total = tree if total is None else syntax.call("And", total, tree)
    return syntax.TRUE if total is None else total


def _unmarked(tree: Tree) -> tuple[Tree, Type | None]:
    """A tree without marks, which change no value, and the type that a mark gives to the result: see
    :func:`ddcore.data.forms.marked`.
    """
    if isinstance(tree, syntax.Column) or not any(syntax.operation(node) == _MARK for node in syntax.walk(tree)):
        return tree, None
    kind = None
    if isinstance(tree, syntax.Call) and tree.name == _MARK:
        kind = Type(tree.options["Literal"]["Extension"]["name"].removeprefix(MARK))
    plain = syntax.rewrite(tree, lambda node: node.args[0] if syntax.operation(node) == _MARK else node)  # type: ignore[union-attr]
    return syntax.bare(plain), kind


_SCALARS: dict[str, pl.DataType] = {kind.__name__: kind() for kind in (pl.Int64, pl.Float64, pl.Boolean, pl.String)}
"""The types of literals that have one, by the names that Polars writes."""


class RowTypes:
    """The types of trees over rows of one schema, according to Polars for a frame without rows.

    The type of a node follows from those of its children, for which columns of these types stand in, so the cost is
    linear in the nodes. Only literals whose type Polars chooses by their neighbours stay in their places.
    """

    def __init__(self, schema: Mapping[str, pl.DataType]) -> None:
        self._schema = schema
        self._known: dict[int, tuple[Tree, pl.DataType]] = {}  # the tree keeps its identity from being used again
        self._constant: set[int] = set()
        self._untyped: set[int] = set()

    def __call__(self, trees: list[Tree]) -> list[pl.DataType]:
        """The types of the trees. Raises ProgramError where types do not meet."""
        return [self._type(tree, trees[0]) for tree in trees]

    def _type(self, tree: Tree, whole: Tree) -> pl.DataType:
        if id(tree) not in self._known:
            for node in syntax.nodes(tree, self._unknown):
                self._known[id(node)] = node, self._found(node, whole)
        return self._known[id(tree)][1]

    def _unknown(self, node: Tree) -> list[Tree]:
        return [child for child in syntax.children(node) if id(child) not in self._known]

    def _found(self, node: Tree, whole: Tree) -> pl.DataType:
        inner = syntax.children(node)
        if isinstance(node, syntax.Column):
            return self._schema[node.name]
        if isinstance(node, syntax.Literal) and node.is_typed and node.dtype in _SCALARS:
            self._constant.add(id(node))
            return _SCALARS[node.dtype]
        if all(id(each) in self._constant for each in inner):
            self._constant.add(id(node))
        if syntax.is_untyped(node, self._untyped):
            self._untyped.add(id(node))
        dtypes = [self._known[id(child)][1] for child in inner]
        try:
            shallow, schema = self._shallow(node, inner, dtypes)
            dtype = _dtype_of(shallow, tuple(schema.items()))
        except _FAILURES as failure:
            raise ProgramError(
                f"{syntax.display(whole)}: {self._reason(whole, failure)}", "cast so that the types meet"
            ) from None
        if syntax.operation(node) in ("Boolean.IsIn", "Sql.IsIn"):
            self._require_list(node, inner[1:], dtypes[1:])
        return dtype

    def _shallow(self, node: Tree, inner: list[Tree], dtypes: list[pl.DataType]) -> tuple[str, dict[str, pl.DataType]]:
        """The node with columns in place of its children, and their types."""
        schema: dict[str, pl.DataType] = {}
        stand_ins = []
        for number, (child, dtype) in enumerate(zip(inner, dtypes, strict=True)):
            name: str | None = f"={number}"
            if syntax.operation(node) == "AsStruct":
                name = syntax.result_name(child)
            stays = id(child) in self._untyped or (id(child) in self._constant and not syntax.is_operator(node))
            stays = stays and polars_json.depth(child) <= exactness.DEEPEST_LITERAL
            if stays or name is None or name in schema:
                schema |= {column: self._schema[column] for column in syntax.columns(child)}
                stand_ins.append(child)
            else:
                schema[name] = dtype
                stand_ins.append(syntax.Column(name))
        return polars_json.lowered(syntax.with_children(node, stand_ins)), schema

    def _reason(self, whole: Tree, failure: BaseException) -> str:
        """What Polars says of the whole expression, where it can read that: its message names the columns."""
        if polars_json.depth(whole) > polars_json.DEEPEST:
            return _reason(failure)
        try:
            _collected(polars_json.build(whole), pl.LazyFrame(schema=self._schema))
        except _FAILURES as better:
            return _reason(better)
        return _reason(failure)

    def _require_list(self, tree: Tree, members: list[Tree], dtypes: list[pl.DataType]) -> None:
        """Raises ProgramError for membership in a column, which depends on the batch; lists and values are allowed."""
        for values, dtype in zip(members, dtypes, strict=True):
            if not dtype.is_nested() and id(values) not in self._constant:
                raise ProgramError(
                    f"{syntax.display(tree)} asks about a whole column", "give values or a list column, or use join"
                )

    def inside(self, dtype: pl.DataType) -> RowTypes:
        """The types for the elements of a list of ``dtype``, which are a column whose name is empty."""
        return RowTypes({"": dtype})


@lru_cache(maxsize=4096)
def _dtype_of(shallow: str, schema: tuple[tuple[str, pl.DataType], ...]) -> pl.DataType:
    return _collected(polars_json.expression(shallow), pl.LazyFrame(schema=dict(schema)))


def _collected(expr: pl.Expr, frame: pl.LazyFrame) -> pl.DataType:
    """The type of an expression. Raises Polars' error where types do not meet, also in a comparison, which the types
    alone do not tell; other failures without rows mean nothing.
    """
    selected = frame.select(expr.alias("x"))
    (dtype,) = selected.collect_schema().dtypes()
    try:
        selected.collect()
    except _FAILURES as failure:
        if _reason(failure).startswith("cannot compare"):
            raise
    return dtype


def _typing(schema: Schema) -> RowTypes:
    return RowTypes({name: kind.polars for name, kind in schema.items()})


def _result_type(dtype: pl.DataType, tree: Tree, types: RowTypes) -> Type:
    """The type of a result. Polars computes decimals with 38 digits: without any that has more than 18 among the
    operands, those become 18, checked when they are computed.
    """
    if dtype == pl.Null():
        raise ProgramError(
            f"{syntax.display(tree)} is null and has no type", "cast it, for example pl.lit(None, dtype=pl.Int64)"
        )
    try:
        return type_of(dtype if decimals.is_wide(tree, types) else _fewer_digits(dtype))
    except ProgramError as error:
        raise ProgramError(f"{syntax.display(tree)}: {error.message}", error.hint) from None


def _fewer_digits(dtype: pl.DataType) -> pl.DataType:
    """The type with decimals of 18 digits at most, also inside lists and structs, where their scale allows that."""
    inner = decimals.element(dtype)
    if inner is not None:
        return pl.List(_fewer_digits(inner))
    if isinstance(dtype, pl.Struct):
        return pl.Struct([pl.Field(field.name, _fewer_digits(_instance(field.dtype))) for field in dtype.fields])
    if isinstance(dtype, pl.Decimal) and (dtype.precision or 38) > WORD_DIGITS >= dtype.scale:
        return pl.Decimal(WORD_DIGITS, dtype.scale)
    return dtype


def _instance(dtype: Any) -> pl.DataType:
    return dtype() if isinstance(dtype, type) else dtype  # type: ignore[no-any-return]


def _sql(text: str) -> pl.Expr:
    if _CLOCK.search(_QUOTED.sub("", text)):
        raise ProgramError(
            f"the SQL text {text!r} reads the clock",
            "it must mean the same in every run; dd.now() has the instant of the version, for join_between()",
        )
    try:
        return pl.sql_expr(text)
    except _FAILURES as failure:
        reason = _reason(failure)
        raise ProgramError(
            f"cannot read the SQL text {text!r}" + ("" if reason.startswith("unable to parse") else f": {reason}"),
            "text is SQL here; for a string value write pl.lit(...)",
        ) from None


def _literal(value: Any) -> pl.Expr:
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if not LEAST < value <= GREATEST:
            raise ProgramError(f"the literal {value} is beyond int64", "use a float or a decimal")
        return pl.lit(value, dtype=pl.Int64)
    if value is None or isinstance(value, bool | float | bytes | date | datetime | timedelta):
        return pl.lit(value)
    raise ProgramError(
        f"{type(value).__name__} is no expression: {brief(value)}",
        'give a Polars expression such as col("a") + 1, SQL text or a value',
    )


def _decimal(value: Decimal) -> pl.Expr:
    exponent = value.as_tuple().exponent
    scale = max(-exponent, 0) if isinstance(exponent, int) else 0
    before = value.adjusted() + 1 if value.is_finite() and value else 0
    digits = WORD_DIGITS if max(before, 0) + scale <= WORD_DIGITS else MOST_DIGITS
    if not value.is_finite() or max(before, 0) + scale > MOST_DIGITS:
        raise ProgramError(f"the literal {value} is no decimal of {MOST_DIGITS} digits", "use fewer digits or a float")
    return pl.lit(value, dtype=pl.Decimal(digits, scale))
