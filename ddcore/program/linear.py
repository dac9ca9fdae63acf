"""Collections and the operators that need no state, and the checks of several collections beside each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

from ddcore.base.errors import ProgramError
from ddcore.base.schema import Schema
from ddcore.base.source_line import caller
from ddcore.base.symbol import Symbol
from ddcore.operators import arguments, flat_map
from ddcore.operators.aggregation import Distinct
from ddcore.operators.base import Operator
from ddcore.operators.calling import Frames
from ddcore.operators.concat import Concat, Negate
from ddcore.operators.select import Select
from ddcore.operators.where import Where
from ddcore.program.graph import Graph
from ddcore.text.notebook import drawn
from ddcore.text.wording import kind_of

__all__ = ["C", "LinearCollection", "aligned", "beside"]


class LinearCollection(Symbol):
    """A collection as far as no rows are looked up by key: the operators that work on one row at a time, concat, negate
    and distinct. Programs see :class:`ddcore.program.collection.Collection`.
    """

    def __init__(self, graph: Graph, index: int) -> None:
        self._graph, self._index, self._node = graph, index, graph.nodes[index]

    @property
    def schema(self) -> Schema:
        """Column names and types, in order."""
        return dict(self._node.schema)

    @property
    def columns(self) -> list[str]:
        """Column names, in order."""
        return list(self._node.schema)

    def __repr__(self) -> str:
        return f"Collection({', '.join(f'{name}: {kind}' for name, kind in self._node.schema.items())})"

    def _repr_html_(self) -> str:
        return drawn("collection", self._graph, self._index)

    def _identity(self) -> str:
        return self._node.digest

    def _add(self, operator: Operator, *others: int) -> Self:
        return type(self)(self._graph, self._graph.add(operator, self._index, *others))

    # -- linear operators: one row at a time, no state ----------------------------------------------------------------

    def select(self, *columns: Any, **named: Any) -> Self:
        """New columns from each row; rows are not deduplicated (sources: McSherry 2012, Select).

        Positional: column names, expressions with a name of their own, and whatever stands for several columns, as in
        Polars: ``"*"``, ``pl.all()``, ``pl.col("a", "b")``, ``pl.exclude("a")``, regular expressions, ``cs.numeric()``.
        Keywords name results; text is SQL, other Python values are literals. Cost: linear in the rows that change.
        Raises ProgramError for unknown columns and for expressions that look at more than their own row; a run raises
        ExpressionError for a row on which one fails.
        """
        return self._add(Select.only(self.schema, columns, named))

    def with_columns(self, *columns: Any, **named: Any) -> Self:
        """All columns, and those that ``select`` would make of the arguments: in place of one of the same name, else
        after the others. Cost and errors: as for :meth:`select`.
        """
        return self._add(Select.beside(self.schema, columns, named))

    def drop(self, *columns: Any) -> Self:
        """Without these columns: names, or selectors as in ``select``. Rows are not deduplicated.

        Raises ProgramError for what is no column, and where none would be left.
        """
        return self._add(Select.without(self.schema, columns))

    def rename(self, names: Mapping[str, str] | Callable[[str], str]) -> Self:
        """Other names for columns, as ``{"old": "new"}`` or a function from old to new; the order stays. Raises
        ProgramError for what is no column, and for two columns of one name.
        """
        return self._add(Select.renamed(self.schema, names))

    def where(self, *predicates: Any) -> Self:
        """The rows for which every predicate is true; null is not true (sources: McSherry 2012, Where).

        Predicates are expressions, or text, which is SQL. Cost and errors: as for :meth:`select`.
        """
        return self._add(Where.of(self.schema, predicates))

    def filter(self, *predicates: Any) -> Self:
        """The rows for which every predicate is true: :meth:`where`, by Polars' name for it."""
        return self.where(*predicates)

    def flat_map(
        self, function: Frames | None = None, *, schema: Mapping[str, Any] | None = None, **lists: Any
    ) -> Self:
        """Any number of rows from each row (sources: McSherry 2012, SelectMany).

        ``flat_map(tag=expr)``: a list-valued expression, one row per element beside the columns there are; an empty
        or null list gives none.
        ``flat_map(function, schema=...)``: a function from a frame with these columns and ``row`` to a frame with
        ``row`` and the declared columns. It must give equal results for equal rows, whichever are beside them.
        Cost: linear in the rows that change and their results. Raises ProgramError; a run raises ExpressionError.
        """
        return self._add(flat_map.flat_map(self.schema, function, schema, lists))

    def concat(self, *others: LinearCollection) -> Self:
        """Adds multiplicities (sources: McSherry 2012, Concat). Columns must have the same names and types.

        Their order may differ. Cost: linear in the rows that change; nothing is stored. Raises ProgramError where the
        columns differ.
        """
        return self._add(Concat.of(self.schema), *(aligned(self, other)._index for other in others))

    def negate(self) -> Self:
        """Negates multiplicities. What reaches a reducer must not be negative, unless it allows that."""
        return self._add(Negate.of(self.schema))

    def distinct(self, *, allow_negative: bool = False) -> Self:
        """One of each row whose count is positive (sources: McSherry 2015, distinct).

        A negative count is a NegativeMultiplicity error, or with ``allow_negative`` simply not positive. Cost: linear
        in the rows that change, with a search for each in the rows there are.
        """
        return self._add(Distinct.of(self.schema, allow_negative))


C = TypeVar("C", bound=LinearCollection)


def beside(value: Any, first: C, where: str) -> C:
    """The value, if it is a collection of the same program as ``first``."""
    if not isinstance(value, type(first)):
        raise ProgramError(
            f"{caller()}: {where}: {kind_of(value)} is no collection",
            "use a collection of the program here; a frame becomes one as an input: dd.replay(program, name=frame)",
        )
    if value._graph is not first._graph:
        raise ProgramError(
            f"{caller()}: {where}: a collection of another program",
            "use collections made of those that the program is called with",
        )
    return value


def aligned(rows: C, other: Any, where: str = "concat") -> C:
    """The other collection with its columns in the order of ``rows``.

    Raises ProgramError if their columns differ in name or type.
    """
    collection = beside(other, rows, where)
    left, right = rows.schema, collection.schema
    if left != right:
        raise ProgramError(
            f"{caller()}: {where}: columns differ: {arguments.shown(left)} and {arguments.shown(right)}",
            "bring both to the same names and types with select()",
        )
    return collection if list(left) == list(right) else collection.select(*left)
