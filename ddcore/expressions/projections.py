"""Expressions of single rows, typed when the program is built, exact when it runs.

An expression is a Polars expression, SQL text where an expression is expected, or a Python value. It must map each row
by itself, so that it can be applied to differences. Integers are int64 and overflow is an error;
:mod:`ddcore.expressions.exactness` says how overflow is detected without slowing down small integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import MARK, Schema, Type, instance
from ddcore.expressions import exactness, polars_json, syntax, texts, vocabulary
from ddcore.expressions.failures import MARKING, unmarked
from ddcore.expressions.formulas import Formulas, formula
from ddcore.expressions.row_types import RowTypes, result_type, typing_of
from ddcore.expressions.syntax import Tree
from ddcore.text.wording import meant


class Projection:
    """Named expressions over rows of one schema.

    Attributes: ``schema``, the result's; ``renames``, which results are bare columns, and of what name; ``constants``,
    which results read no column; ``columns``, the columns that the computed results read, or None if all results are
    bare; ``reads``, the columns that each result reads. Raises ProgramError for an unknown column, types that do not
    meet, a result without a type, and expressions that are no maps of single rows.
    """

    def __init__(self, exprs: Mapping[str, pl.Expr], schema: Schema) -> None:
        types: RowTypes | None = None
        self.schema: Schema = {}
        self.renames: dict[str, str] = {}
        self.constants: list[str] = []
        formulas = []
        for name, expr in exprs.items():
            tree, kind = _check(expr, schema)
            if isinstance(tree, syntax.Column) and (kind is None or kind == schema[tree.name]):
                self.renames[name] = tree.name
                self.schema[name] = schema[tree.name]
                continue
            if not syntax.columns(tree):
                self.constants.append(name)
            types = types or typing_of(schema)  # not where all are bare: there may be many columns
            term = exactness.analyse(tree, types)
            self.schema[name] = kind or result_type(term.dtype, tree, types)
            formulas.append(formula(name, tree, term, self.schema[name].polars, schema))
        self._formulas = Formulas(formulas)
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

    def computed_one(self, name: str, frame: pl.DataFrame) -> pl.Series:
        """One of these results, for rows that need no other columns than those it reads. Raises as :meth:`computed`."""
        return Formulas([self._formulas.formula(name)]).evaluate(frame).to_series()

    def evaluate(self, frame: pl.DataFrame) -> pl.DataFrame:
        """All results for the rows of ``frame``, as :meth:`computed` gives them."""
        columns = {name: frame.get_column(source).alias(name) for name, source in self.renames.items()}
        if self.columns is not None:
            columns |= {column.name: column for column in self.computed(frame)}
        return pl.DataFrame([columns[name] for name in self.schema])


def types_of(exprs: Mapping[str, pl.Expr], schema: Schema) -> Schema:
    """The types of named expressions, without making them ready to run. Raises ProgramError as :class:`Projection`."""
    types, found = typing_of(schema), Schema()
    for name, expr in exprs.items():
        tree, kind = _check(expr, schema)
        if isinstance(tree, syntax.Column):
            found[name] = kind or schema[tree.name]
        else:
            term = exactness.analyse(tree, types)
            found[name] = kind or result_type(term.dtype, tree, types)
    return found


def check_condition(expr: pl.Expr, schema: Schema) -> None:
    """Raises ProgramError as :class:`Predicate`, without making the condition ready to run."""
    types = typing_of(schema)
    exactness.analyse(_all_of([expr], schema, types), types)


class Predicate:
    """Conditions that a row must all meet; a null condition is not met. ``columns``: what they read."""

    def __init__(self, exprs: Iterable[pl.Expr], schema: Schema) -> None:
        types = typing_of(schema)
        met = syntax.call("FillNull", _all_of(exprs, schema, types), syntax.FALSE)
        self._formulas = Formulas([formula("met", met, exactness.analyse(met, types), pl.Boolean(), schema)])
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
        types = typing_of(schema)
        elements: Schema = {}
        formulas = []
        for name, expr in exprs.items():
            tree, _ = _check(expr, schema)
            term = exactness.analyse(tree, types)
            if not isinstance(term.dtype, pl.List):
                raise ProgramError(
                    f"flat_map({name}=...): {texts.display(tree)} is {term.dtype}, not a list",
                    'for example col("tags").str.split(",")',
                )
            elements[name] = result_type(instance(term.dtype.inner), tree, types)
            formulas.append(formula(name, tree, term, pl.List(elements[name].polars), schema))
        self.names = tuple(elements)
        self.schema: Schema = {name: kind for name, kind in schema.items() if name not in elements} | elements
        self._formulas = Formulas(formulas)
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
                f"the condition {texts.display(tree)} is {dtype}, not bool",
                "compare with something, or cast to bool",
            )
        total = tree if total is None else syntax.call("And", total, tree)
    return syntax.TRUE if total is None else total


def _unmarked(tree: Tree) -> tuple[Tree, Type | None]:
    """A tree without marks, which change no value, and the type that a mark gives to the result: see
    :func:`ddcore.data.forms.marked`.
    """
    if isinstance(tree, syntax.Column) or not any(syntax.operation(node) == MARKING for node in syntax.every(tree)):
        return tree, None
    kind = None
    if isinstance(tree, syntax.Call) and tree.name == MARKING:
        kind = Type(tree.options["Literal"]["Extension"]["name"].removeprefix(MARK))
    return unmarked(tree), kind
