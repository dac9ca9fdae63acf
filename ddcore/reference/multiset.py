"""A multiset of rows, and the operators on one row at a time."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, TypeVar

import polars as pl

from ddcore.base.errors import ExpressionError, ProgramError
from ddcore.reference.expressions import expression_of, in_full, is_uuid, is_wide, named_expressions, values_of
from ddcore.reference.rows import (
    Row,
    Rows,
    canonical,
    nonzero,
    python_value,
    rows_of,
)
from ddcore.reference.types import UUID, Columns, as_declared, columns_of, held, inner, narrowed, type_name, widened


def with_loops_of_arguments(kind: Any) -> Any:
    """Lets the results of a class's operators be in the same loops as what they are computed from."""
    for name, method in list(vars(kind).items()):
        function = method.__func__ if isinstance(method, staticmethod) else method
        if callable(function) and not name.startswith("_"):
            scoped = _with_loops(function)
            setattr(kind, name, staticmethod(scoped) if isinstance(method, staticmethod) else scoped)
    return kind


def _with_loops(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def scoped(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        if isinstance(result, Multiset):
            result.loops = max(result.loops, _loops_of([*arguments, *named.values()]))
        return result

    return scoped


def _loops_of(value: Any) -> int:
    """The number of loops that an argument of an operator is in."""
    if isinstance(value, list | tuple):
        return max(map(_loops_of, value), default=0)
    return getattr(value, "loops", 0)


@with_loops_of_arguments
class Multiset:
    """Rows with named, typed columns, and the operators that compute one row at a time.

    ``columns`` maps names to Polars types; ``rows`` maps each row to its count, which may be negative but is never 0.
    ``loops`` is how many loops the collection is in: it is another one in each of their rounds.
    """

    def __init__(self, columns: Mapping[str, pl.DataType], rows: Iterable[tuple[Row, int]]) -> None:
        total: Rows = Counter()
        for row, count in rows:
            total[canonical(row)] += count
        self.columns = dict(columns)
        self.rows = nonzero(total.items())
        self.loops = 0

    @property
    def schema(self) -> dict[str, str]:
        """Column names and the names of our types, in order."""
        return {name: type_name(dtype) for name, dtype in self.columns.items()}

    def of(self, columns: Mapping[str, pl.DataType], rows: Iterable[tuple[Row, int]]) -> Self:
        """A collection of the same class."""
        return type(self)(columns, rows)

    # Row by row

    def select(self, *names: Any, **exprs: Any) -> Self:
        """Each row replaced by the values of the expressions; counts of rows that become equal add up."""
        columns, mapped = self.map(named_expressions(self.spread(names), exprs))
        return self.of(columns, zip(mapped, self.rows.values(), strict=True))

    def with_columns(self, *names: Any, **exprs: Any) -> Self:
        """Each row with more columns, or with other values in existing ones."""
        return self.select(
            **({name: pl.col(name) for name in self.columns} | named_expressions(self.spread(names), exprs))
        )

    def drop(self, *names: Any) -> Self:
        """Each row without some columns."""
        dropped = [expr.meta.output_name() for expr in self.spread(names)]
        return self.select(*(name for name in self.columns if name not in dropped))

    def rename(self, names: Any) -> Self:
        """Each row with columns of other names."""
        new = names if isinstance(names, Mapping) else {name: names(name) for name in self.columns}
        return self.select(**{new.get(name, name): pl.col(name) for name in self.columns})

    def where(self, *predicates: Any) -> Self:
        """The rows for which every predicate is true: null is not."""
        _, truths = self.map({f"p{i}": expression_of(predicate) for i, predicate in enumerate(predicates)})
        rows = [item for item, truth in zip(self.rows.items(), truths, strict=True) if all(truth)]
        return self.of(self.columns, rows)

    def filter(self, *predicates: Any) -> Self:
        """``where``, by its name in Polars."""
        return self.where(*predicates)

    def flat_map(
        self, function: Callable[[pl.DataFrame], pl.DataFrame] | None = None, *, schema: Any = None, **lists: Any
    ) -> Self:
        """Each row replaced by any number of rows, each with the row's count.

        With a list expression: by one row for each element, beside the other columns; several lists go side by side,
        and an empty or null list gives no row. With a function: by the rows that it returns for the row, identified by
        the column ``row``.
        """
        if function is None:
            types, values = self.map(named_expressions([], lists))
            columns = self.columns | {name: inner(dtype) for name, dtype in types.items()}
            rest = self.picker(name for name in self.columns if name not in lists)
            exploded = (
                (rest(row) + elements, count)
                for (row, count), of_row in zip(self.rows.items(), values, strict=True)
                for elements in zip(*(column or [] for column in of_row), strict=True)
            )
            names = [name for name in self.columns if name not in lists] + list(types)
            return self.of({name: columns[name] for name in names}, exploded)
        columns, counts = columns_of(schema), list(self.rows.values())
        mapped = function(self.frame().with_columns(row=pl.int_range(pl.len(), dtype=pl.Int64)))
        rows = rows_of(as_declared(mapped.select("row", *columns), {"row": pl.Int64(), **columns}))
        return self.of(columns, ((tuple(row), counts[number]) for number, *row in rows))

    def concat(self, *others: Multiset) -> Self:
        """All rows of all: counts add up. Columns are matched by name."""
        collections: list[Multiset] = [self, *others]
        return self.of(self.columns, [item for collection in collections for item in collection.in_order_of(self)])

    def negate(self) -> Self:
        """Every row with its count negated."""
        return self.of(self.columns, ((row, -count) for row, count in self.rows.items()))

    # For other operators

    def frame(self) -> pl.DataFrame:
        """The distinct rows, in the order of ``self.rows``."""
        columns = {name: held(dtype) for name, dtype in self.columns.items()}
        types = list(columns.values())
        rows = [tuple(map(python_value, row, types)) for row in self.rows]
        return pl.DataFrame(rows, schema=columns, orient="row")

    def map(self, exprs: Mapping[str, pl.Expr]) -> tuple[Columns, list[Row]]:
        """The types of ``exprs`` and their values on each distinct row, in the order of ``self.rows``.

        Integers are computed on 128 bits and have to fit their own type in the end. Operations that Polars does not
        have on 128 bits are computed unchanged.
        """
        frame = self.frame().with_row_index("_row")  # beside it, a literal has a value for each row
        wide = {name for name, expr in exprs.items() if is_wide(expr, frame)}
        uuids = {name: UUID for name, expr in exprs.items() if is_uuid(expr, self.columns)}
        full = {name: in_full(expr, frame.clear()) for name, expr in exprs.items()}
        computed = values_of(frame.clear(), full).drop("_row").schema
        types = {name: widened(dtype if name in wide else narrowed(dtype)) for name, dtype in computed.items()}
        try:
            try:
                values = values_of(frame.cast({pl.Int64: pl.Int128}), full)
            except pl.exceptions.InvalidOperationError as error:
                if "not supported" not in str(error):
                    raise
                values = values_of(frame, full)
            return types | uuids, [tuple(row) for _, *row in rows_of(values.cast(pl.Schema(types)))]
        except pl.exceptions.PolarsError as error:
            raise ExpressionError(f"{', '.join(map(str, exprs.values()))}: {error}") from None

    def spread(self, names: Iterable[Any]) -> list[pl.Expr]:
        """The expressions that these stand for, one by one: Polars computes them all, and each takes its own field."""
        spread: list[pl.Expr] = []
        for given in names:
            if isinstance(given, list | tuple):
                spread += self.spread(given)
                continue
            expr = pl.col(given) if isinstance(given, str) else given
            columns = self.frame().clear().select(expr).columns
            named = expr.meta.output_name(raise_if_undetermined=False) is not None
            spread += [expr] if named else [pl.struct(expr).struct.field(name) for name in columns]
        return spread

    def in_order_of(self, model: Multiset) -> Iterable[tuple[Row, int]]:
        """Rows and counts with the columns in the order of ``model``."""
        if self.columns.keys() != model.columns.keys():
            raise ProgramError(f"columns {list(self.columns)} do not meet columns {list(model.columns)}")
        pick = self.picker(model.columns)
        return ((pick(row), count) for row, count in self.rows.items())

    def picker(self, names: Iterable[str]) -> Callable[[Row], Row]:
        """A function from a row to its values in the columns ``names``."""
        order = list(self.columns)
        positions = [order.index(name) for name in names]
        return lambda row: tuple(row[position] for position in positions)


C = TypeVar("C", bound=Multiset)
"""Collections of one class."""


def in_loops(like: C, rows: Mapping[Row, int], loops: int) -> C:
    """A collection of these rows, with the columns of another, in so many loops."""
    collection = like.of(like.columns, rows.items())
    collection.loops = loops
    return collection
