"""What users compute with: expressions of single rows, typed when the program is built, exact when it runs.

An expression is a Polars expression, SQL text where an expression is expected, or a Python value. It must map each row
by itself, so that it may be applied to differences as to rows. Integers are int64 and overflow is an error; how that is
watched without slowing down small integers is told in :mod:`ddcore.exactness`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import polars as pl

from ddcore import exactness, syntax
from ddcore.errors import ExpressionError, ProgramError
from ddcore.exactness import GREATEST, LEAST, Overflow, Term
from ddcore.schema import Schema, Type, type_of
from ddcore.syntax import Tree
from ddcore.wording import meant

__all__ = ["ListProjection", "Predicate", "Projection", "canonical", "identity", "parse"]

Types = Callable[[list[Tree]], list[pl.DataType]]

_MOST_DIGITS = 18
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"")
_LITERALS = re.compile(r'\{"Literal": \{"(\w+)"')
_CLOCK = re.compile(r"\b(?:now\s*\(|current_(?:timestamp|date|time)\b|localtime(?:stamp)?\b)", re.IGNORECASE)
_FAILURES = (pl.exceptions.PolarsError, pl.exceptions.PanicException)


def parse(value: Any, *, bare_string: Literal["column", "sql"]) -> pl.Expr:
    """The expression that a user's argument stands for.

    Text is a column's name or SQL, by ``bare_string``; integers are int64, decimals decimal(18, scale). Raises
    ProgramError for text that is no SQL, for text that asks the clock, and for values that no column can hold.
    """
    if isinstance(value, pl.Expr):
        return value
    if isinstance(value, str):
        return pl.col(value) if bare_string == "column" else _sql(value)
    return _literal(value.item() if isinstance(value, np.generic) else value)


def canonical(expr: pl.Expr) -> str:
    """The text of an expression, equal for equal expressions in every process; the name of the result is no part of it.

    Raises ProgramError for an expression that has none, because it calls a Python function.
    """
    return syntax.text(syntax.bare(syntax.read(expr)))


def identity(expr: pl.Expr) -> list[str]:
    """Parts of a digest that tell an expression from all others: its canonical text, and which literals have a type.

    One without takes that of its neighbours, which are not always int64 and float64: ``cast(pl.Float32) * 0.1`` is
    another number than ``cast(pl.Float32) * pl.lit(0.1, dtype=pl.Float64)``.
    """
    tree = syntax.bare(syntax.read(expr))
    return [syntax.text(tree), *_LITERALS.findall(json.dumps(tree))]


class Projection:
    """Named expressions over rows of one schema.

    Attributes: ``schema``, the result's; ``renames``, which results are bare columns, and of what name; ``columns``,
    what the computed results read, or None where nothing is computed. Raises ProgramError for an unknown column,
    types that do not meet, a result without a type, and expressions that are no maps of single rows.
    """

    def __init__(self, exprs: Mapping[str, pl.Expr], schema: Schema) -> None:
        types = _typing(schema)
        self.schema: Schema = {}
        self.renames: dict[str, str] = {}
        formulas = []
        for name, expr in exprs.items():
            tree = _checked(expr, schema)
            if syntax.kind(tree) == "Column":
                self.renames[name] = tree["Column"]
                self.schema[name] = schema[tree["Column"]]
                continue
            term = exactness.analyse(tree, types)
            self.schema[name] = _result_type(term.dtype, tree)
            formulas.append(_formula(name, tree, term, self.schema[name].polars))
        self._formulas = _Formulas(formulas)
        self.columns: list[str] | None = self._formulas.columns if formulas else None

    def computed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The results that are no bare columns, in order, for the rows of ``frame``.

        ``frame`` has at least ``columns``, or where that is empty any column that tells its height. Raises
        ExpressionError, with the expression's text, where Polars fails on a value or an integer leaves int64.
        """
        return self._formulas.evaluate(frame)

    def evaluate(self, frame: pl.DataFrame) -> pl.DataFrame:
        """All results for the rows of ``frame``, as :meth:`computed` gives them."""
        made = {name: frame.get_column(source).alias(name) for name, source in self.renames.items()}
        if self.columns is not None:
            made |= {column.name: column for column in self.computed(frame)}
        return pl.DataFrame([made[name] for name in self.schema])


class Predicate:
    """Conditions that a row must all meet; a null condition is not met. ``columns``: what they read."""

    def __init__(self, exprs: Iterable[pl.Expr], schema: Schema) -> None:
        types = _typing(schema)
        total: Tree = None
        for expr in exprs:
            tree = _checked(expr, schema)
            found = types([tree])[0]
            if found != pl.Boolean():
                raise ProgramError(
                    f"the condition {syntax.text(tree)} is {found}, not bool", "compare with something, or cast to bool"
                )
            total = tree if total is None else syntax.binary("And", total, tree)
        if total is None:
            total = {"Literal": {"Scalar": {"Boolean": True}}}
        met = syntax.function("FillNull", total, {"Literal": {"Scalar": {"Boolean": False}}})
        self._formulas = _Formulas([_formula("met", total, exactness.analyse(met, types), pl.Boolean())])
        self.columns = self._formulas.columns

    def evaluate(self, frame: pl.DataFrame) -> np.ndarray:
        """Which rows of ``frame`` meet all conditions: bool[rows].

        Raises ExpressionError as :meth:`Projection.computed` does.
        """
        return self._formulas.evaluate(frame).get_column("met").to_numpy()


class ListProjection:
    """Named list expressions, whose elements become rows beside the columns there are.

    Attributes: ``schema`` of the result, in which a list replaces a column of its name; ``columns``, what the lists
    read. Raises ProgramError as :class:`Projection` does, and for an expression whose value is no list.
    """

    def __init__(self, exprs: Mapping[str, pl.Expr], schema: Schema) -> None:
        types = _typing(schema)
        made: Schema = {}
        formulas = []
        for name, expr in exprs.items():
            tree = _checked(expr, schema)
            term = exactness.analyse(tree, types)
            if not isinstance(term.dtype, pl.List):
                raise ProgramError(
                    f"flat_map({name}=...): {syntax.text(tree)} is {term.dtype}, not a list",
                    'for example col("tags").str.split(",")',
                )
            inner = term.dtype.inner
            made[name] = _result_type(inner() if isinstance(inner, type) else inner, tree)
            formulas.append(_formula(name, tree, term, pl.List(made[name].polars)))
        self.schema: Schema = {name: kind for name, kind in schema.items() if name not in made} | made
        self._formulas = _Formulas(formulas)
        self._texts = {formula.name: formula.text for formula in formulas}
        self.columns = self._formulas.columns

    def explode(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray]:
        """The elements of the lists of all rows, and the row each came from: int64[elements].

        An empty or null list gives nothing; several lists go side by side. Raises ExpressionError where those differ in
        length, and as :meth:`Projection.computed` does.
        """
        lists = self._formulas.evaluate(frame)
        lengths = [np.nan_to_num(column.list.len().to_numpy()).astype(np.int64) for column in lists]
        for name, other in zip(lists.columns[1:], lengths[1:], strict=True):
            unequal = np.flatnonzero(other != lengths[0])
            if len(unequal):
                row = int(unequal[0])
                raise ExpressionError(
                    f"flat_map: {lists.columns[0]} has {lengths[0][row]} elements where {name} has {other[row]}, "
                    + _row(frame, row),
                    "call flat_map once for each list, or make the lists equally long",
                )
        elements = pl.DataFrame([column.explode(empty_as_null=False, keep_nulls=False) for column in lists])
        rows = np.repeat(np.arange(len(lists), dtype=np.int64), lengths[0])
        for column in elements:
            _require_int64(column, self._texts[column.name], frame, rows)
        return elements, rows


# -- one expression, ready to run -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Formula:
    """An expression in both forms. ``safe``: columns whose integers are all within +-safe need no further look."""

    name: str
    text: str
    columns: list[str]
    direct: pl.Expr
    wide: pl.Expr
    guards: list[pl.Expr]
    term: Term
    dtype: pl.DataType
    safe: int

    @property
    def is_int(self) -> bool:
        return self.dtype == pl.Int64()


def _formula(name: str, tree: Tree, term: Term, dtype: pl.DataType) -> _Formula:
    direct = syntax.build(term.tree)
    if term.dtype != dtype:
        direct = direct.cast(dtype)
    wide, guards = direct, []
    if term.computes:
        widened = exactness.widen(term)
        wide, guards = syntax.build(widened.tree), [syntax.build(guard) for guard in widened.guards]
        if not term.op and term.dtype != dtype:
            wide = wide.cast(dtype)
    return _Formula(
        name, syntax.text(tree), syntax.columns(term.tree), direct.alias(name), wide.alias(name),
        [guard.alias(f"{name} {number}") for number, guard in enumerate(guards)], term, dtype, _safe(term),
    )  # fmt: skip


def _safe(term: Term) -> int:
    """The largest of some powers of two such that columns within it cannot make the term overflow; -1 for none."""
    if not term.computes:
        return GREATEST
    names = syntax.columns(term.tree)
    for most in (GREATEST, *(2**bits for bits in (62, 61, 60, 52, 46, 40, 31, 24, 20, 15, 10, 6, 3))):
        if _fits(term, dict.fromkeys(names, (-most, most))):
            return most
    return -1


def _fits(term: Term, columns: Mapping[str, tuple[int, int]]) -> bool:
    try:
        low, _ = exactness.bound(term, columns)
    except Overflow:
        return False
    return not term.op or low > LEAST


class _Formulas:
    """Expressions evaluated together, in one call of Polars where no integer can overflow."""

    def __init__(self, formulas: list[_Formula]) -> None:
        self._formulas = formulas
        self.columns = sorted({name for formula in formulas for name in formula.columns})
        self._direct = [formula.direct for formula in formulas]
        self._safe = min((formula.safe for formula in formulas), default=GREATEST)
        watched = {name for each in formulas if each.safe < GREATEST for name in _integers(each.term)}
        self._watched = sorted(watched)
        # Results that are integers but not computed as such (a cast, a bit operation) may be the reserved value.
        self._checked = [each for each in formulas if each.is_int and not each.term.op]

    def evaluate(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The results, one column per expression. Raises ExpressionError."""
        if not self._all_fit(frame):
            return self._carefully(frame)
        try:
            made = _select(frame, self._direct)
        except _FAILURES:
            return self._carefully(frame)
        for formula in self._checked:
            _require_int64(made.get_column(formula.name), formula.text, frame)
        return made

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
        return pl.DataFrame([_evaluate(formula, frame, intervals) for formula in self._formulas])


def _evaluate(formula: _Formula, frame: pl.DataFrame, intervals: Mapping[str, Any]) -> pl.Series:
    direct = formula.safe == GREATEST or _fits(formula.term, intervals)
    exprs = [formula.direct] if direct else [formula.wide, *formula.guards]
    try:
        made = _select(frame, exprs)
    except _FAILURES as failure:
        raise ExpressionError(
            f"{formula.text}: {_reason(failure)}", "mend the values, or allow for them in the expression"
        ) from None
    for number in range(1, made.width):
        row = made.to_series(number).arg_max()
        if row is not None and made[row, number]:
            raise ExpressionError(
                f"{formula.text}: an integer on the way has more than 126 bits, {_row(frame, row)}",
                "cast to float64 first",
            )
    result = made.to_series(0)
    if not formula.is_int:
        return result
    _require_int64(result, formula.text, frame)
    return result.cast(pl.Int64)


def _select(frame: pl.DataFrame, exprs: list[pl.Expr]) -> pl.DataFrame:
    """The values of the expressions, as many as ``frame`` has rows, even where there is one value for all rows.

    That is so without columns, and may be with them: Polars finds out by itself that ``a > a`` is false.
    """
    made = frame.select(exprs)
    return made if made.height == frame.height else made[np.zeros(frame.height, dtype=np.int64)]


def _require_int64(column: pl.Series, text: str, frame: pl.DataFrame, rows: np.ndarray | None = None) -> None:
    """Raises ExpressionError for an integer column with a value that is no int64 of ours (-2**63 stands for null)."""
    if not column.dtype.is_integer():
        return
    low, high = column.min(), column.max()
    if low is None or (low > LEAST and high <= GREATEST):  # type: ignore[operator]
        return
    place = column.arg_min() if low <= LEAST else column.arg_max()  # type: ignore[operator]
    assert place is not None
    row = place if rows is None else int(rows[place])
    raise ExpressionError(
        f"{text} is {column[place]}, which int64 cannot hold, {_row(frame, row)}",
        "cast to float64 or a decimal before computing",
    )


def _row(frame: pl.DataFrame, row: int) -> str:
    return "in the row " + ", ".join(f"{name}={_value(frame[name], row)}" for name in frame.columns if name[0] != "_")


def _value(column: pl.Series, row: int) -> str:
    try:
        return f"{column[row]!r:.40}"
    except (ValueError, OverflowError, pl.exceptions.PanicException):  # a time beyond the years that Python has
        return str(column.to_physical()[row])


def _reason(failure: BaseException) -> str:
    """The first line of what Polars says."""
    return str(failure).strip().partition("\n")[0]


def _integers(term: Term) -> set[str]:
    """The int64 columns that integer arithmetic reads."""
    if syntax.kind(term.tree) == "Column":
        return {term.tree["Column"]} if term.dtype == pl.Int64() else set()
    return set().union(*(_integers(part) for part in term.parts)) if term.computes else set()


# -- checks when the program is built ---------------------------------------------------------------------------------


def _checked(expr: pl.Expr, schema: Schema) -> Tree:
    tree = syntax.bare(syntax.read(expr))
    syntax.check_by_row(tree)
    for name in syntax.columns(tree):
        if name not in schema:
            raise ProgramError(
                f"there is no column {name}: the columns are {', '.join(schema)}",
                meant(name, schema) or "name one of these",
            )
    return tree


def _typing(schema: Schema) -> Types:
    """The types of trees over rows of ``schema``, by asking Polars about a frame without rows."""
    frame = pl.LazyFrame(schema={name: kind.polars for name, kind in schema.items()})

    def types(trees: list[Tree]) -> list[pl.DataType]:
        exprs = [syntax.build(tree).alias(str(number)) for number, tree in enumerate(trees)]
        try:
            found = frame.select(exprs).collect_schema().dtypes()
        except _FAILURES as failure:
            raise ProgramError(f"{syntax.text(trees[0])}: {_reason(failure)}", "cast so that the types meet") from None
        _require_lists(trees, found)
        return found

    return types


def _require_lists(trees: list[Tree], types: list[pl.DataType]) -> None:
    """Membership in a column would be membership in whatever rows share the batch: only lists and values will do."""
    flat = {id(tree) for tree, dtype in zip(trees, types, strict=True) if not dtype.is_nested()}
    for tree in trees:
        asked = syntax.children(tree)[1:] if syntax.operation(tree) in ("Boolean.IsIn", "Sql.IsIn") else []
        if any(id(values) in flat and syntax.columns(values) for values in asked):
            raise ProgramError(
                f"{syntax.text(tree)} asks about a whole column", "give values or a list column, or use join"
            )


def _result_type(dtype: pl.DataType, tree: Tree) -> Type:
    """The type of a result. Polars computes decimals with 38 digits: those become 18, checked when they are
    computed.
    """
    if dtype == pl.Null():
        raise ProgramError(
            f"{syntax.text(tree)} is null and has no type", "cast it, for example pl.lit(None, dtype=pl.Int64)"
        )
    if isinstance(dtype, pl.Decimal) and (dtype.precision or 38) > _MOST_DIGITS >= dtype.scale:
        return Type("decimal", _MOST_DIGITS, dtype.scale)
    try:
        return type_of(dtype)
    except ProgramError as error:
        raise ProgramError(f"{syntax.text(tree)}: {error.message}", error.hint) from None


def _sql(text: str) -> pl.Expr:
    if _CLOCK.search(_QUOTED.sub("", text)):
        raise ProgramError(
            f"the SQL text {text!r} asks the clock", "a program must mean the same in every run: give times in columns"
        )
    try:
        return pl.sql_expr(text)
    except _FAILURES as failure:
        raise ProgramError(
            f"cannot read the SQL text {text!r}: {_reason(failure)}",
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
        f"{type(value).__name__} is no expression: {value!r:.60}",
        'give a Polars expression such as col("a") + 1, SQL text or a value',
    )


def _decimal(value: Decimal) -> pl.Expr:
    exponent = value.as_tuple().exponent
    scale = max(-exponent, 0) if isinstance(exponent, int) else 0
    if not value.is_finite() or scale > _MOST_DIGITS or abs(value) >= Decimal(10) ** (_MOST_DIGITS - scale):
        raise ProgramError(f"the literal {value} is no decimal of {_MOST_DIGITS} digits", "use fewer digits or a float")
    return pl.lit(value, dtype=pl.Decimal(_MOST_DIGITS, scale))
