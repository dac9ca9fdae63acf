"""What a program is written in: symbolic collections and their operators.

Calling an operator checks schemas and adds a node to the dataflow; no row is touched. A collection of an outer scope
may be used inside a loop as it is (the patent's Extend happens by itself). Operators do not consolidate for the
reader's eye: two select calls that meet in one row simply add up, as multisets do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

import polars as pl

from ddcore import expressions, selection
from ddcore.aggregates import Aggregate
from ddcore.digests import Part, digest
from ddcore.errors import ProgramError
from ddcore.functions import name_of, text_of
from ddcore.graph import Graph, shape
from ddcore.operators import outer_join
from ddcore.operators.agg import Aggregation, Distinct
from ddcore.operators.base import Operator
from ddcore.operators.calling import Frames
from ddcore.operators.concat import Concat, Negate
from ddcore.operators.delta_join import DeltaJoin
from ddcore.operators.flat_map import Explode, FlatMap
from ddcore.operators.iterate import DEFAULT_MAX_ROUNDS, fixed_points
from ddcore.operators.join import Join
from ddcore.operators.multiset import SIDE, Multiset
from ddcore.operators.reduce import Reduce
from ddcore.operators.select import Select
from ddcore.operators.top_k import TopK
from ddcore.operators.where import Where
from ddcore.place import caller
from ddcore.schema import Schema, Type, parse_schema, parse_type
from ddcore.wording import listed, meant, one_line

_T = TypeVar("_T")


class Collection:
    """A multiset of rows that varies with time. Made by the program's parameters and by operators, never directly."""

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

    def _add(self, operator: Operator, *others: int) -> Collection:
        return Collection(self._graph, self._graph.add(operator, self._index, *others))

    # -- linear operators: one row at a time, no state ----------------------------------------------------------------

    def select(self, *columns: Any, **named: Any) -> Collection:
        """New columns from each row; rows are not deduplicated (the patent's Select).

        Positional: column names, expressions with a name of their own, and whatever stands for several columns, as in
        Polars: ``"*"``, ``pl.all()``, ``pl.col("a", "b")``, ``pl.exclude("a")``, regular expressions, ``cs.numeric()``.
        Keywords name results; text is SQL, other Python values are literals. Raises ProgramError for unknown columns
        and for expressions that look at more than their own row.
        """
        return self._projected(self._named_expressions("select", columns, named), "select")

    def with_columns(self, *columns: Any, **named: Any) -> Collection:
        """All columns, and those that ``select`` would make of the arguments: in place of one of the same name, else
        after the others.
        """
        return self._projected(self._kept() | self._named_expressions("with_columns", columns, named), "with_columns")

    def drop(self, *columns: Any) -> Collection:
        """Without these columns: names, or selectors as in ``select``. Rows are not deduplicated."""
        gone = set(self._column_names("drop", columns))
        return self._projected({name: expr for name, expr in self._kept().items() if name not in gone}, "drop")

    def rename(self, names: Mapping[str, str] | Callable[[str], str]) -> Collection:
        """Other names for columns, as ``{"old": "new"}`` or a function from old to new; the order stays."""
        if not isinstance(names, Mapping):
            _require_function(names, "rename", "a dict or a function")
        new = names if isinstance(names, Mapping) else {name: names(name) for name in self._node.schema}
        for old, name in new.items():
            self._require(old, "rename")
            if not isinstance(name, str):
                raise ProgramError(f"{caller()}: rename: {old} cannot be called {name!r}", "a name is text")
        exprs: dict[str, pl.Expr] = {}
        for name, expr in self._kept().items():
            _set_once(exprs, new.get(name, name), expr, "rename")
        return self._projected(exprs, "rename")

    def where(self, *predicates: Any) -> Collection:
        """The rows for which every predicate is true; null is not true (the patent's Where)."""
        exprs = []
        for predicate in _flat(predicates):
            parsed = _checked(expressions.parse, predicate, bare_string="sql")
            exprs.append(
                self._single(parsed, "where", "combine the columns with pl.all_horizontal or pl.any_horizontal")
            )
        predicate = _checked(expressions.Predicate, exprs, self._node.schema)
        return self._add(Where(self._node.schema, digest(map(expressions.identity, exprs)), predicate))

    def filter(self, *predicates: Any) -> Collection:
        """The same as :meth:`where`, by Polars' name for it."""
        return self.where(*predicates)

    def flat_map(
        self, function: Frames | None = None, *, schema: Mapping[str, Any] | None = None, **lists: Any
    ) -> Collection:
        """Any number of rows from each row (the patent's SelectMany).

        ``flat_map(tag=expr)``: a list-valued expression, one row per element beside the columns there are; an empty
        or null list gives none.
        ``flat_map(function, schema=...)``: a function from a frame with these columns and ``row`` to a frame with
        ``row`` and the declared columns.
        """
        if (function is None) == (not lists) or (function is None) != (schema is None):
            raise ProgramError(
                f"{caller()}: flat_map takes either one named list expression or a function with schema=",
                'for example flat_map(tag=col("tags").str.split(","))',
            )
        if function is not None and schema is not None:
            if "row" in (*self._node.schema, *schema):
                raise ProgramError(f"{caller()}: flat_map: a column is called row", "rename it with select() first")
            _require_function(function, "flat_map")
            columns, text = _checked(parse_schema, schema), digest("function", _checked(text_of, function))
            return self._add(FlatMap(columns, text, self._node.schema, function))
        exprs = self._named_expressions("flat_map", (), lists)
        projection = _checked(expressions.ListProjection, exprs, self._node.schema)
        return self._add(Explode(projection.schema, digest("lists", _texts(exprs)), self._node.schema, projection))

    def concat(self, *others: Collection) -> Collection:
        """Adds multiplicities (the patent's Concat). Columns must have the same names and types.

        Their order may differ.
        """
        nodes = [self._aligned(other) for other in others]
        return self._add(Concat(self._node.schema, ""), *nodes)

    def negate(self) -> Collection:
        """Negates multiplicities. What reaches a reducer must not be negative, unless it allows that."""
        return self._add(Negate(self._node.schema, ""))

    def union(self, other: Collection, *, allow_negative: bool = False) -> Collection:
        """Each row as often as on the side that has more of it (the patent's Union)."""
        return self._multiset("union", other, allow_negative)

    def intersect(self, other: Collection, *, allow_negative: bool = False) -> Collection:
        """Each row as often as on the side that has fewer of it (the patent's Intersect)."""
        return self._multiset("intersect", other, allow_negative)

    def except_(self, other: Collection, *, allow_negative: bool = False) -> Collection:
        """Each row as often as it is here more often than there, never less than not at all (the patent's Except).

        ``concat(other.negate())`` is the difference that may be negative.
        """
        return self._multiset("except_", other, allow_negative)

    def _multiset(self, operation: str, other: Collection, allow_negative: bool) -> Collection:
        theirs = Collection(self._graph, self._aligned(other, operation))
        columns = {name: pl.col(name) for name in self._node.schema}
        sides = [each.select(**columns, **{SIDE: number}) for number, each in enumerate((self, theirs))]
        both, schema = sides[0].concat(sides[1]), self._node.schema
        text = digest(operation, str(bool(allow_negative)))
        return both._add(Multiset(schema, text, tuple(schema), bool(allow_negative), operation))

    # -- operators with state, keyed ----------------------------------------------------------------------------------

    def distinct(self, *, allow_negative: bool = False) -> Collection:
        """One of each row whose count is positive (seed 000's distinct).

        A negative count is a NegativeMultiplicity error, or with ``allow_negative`` simply not positive.
        """
        keys = tuple(self._node.schema)
        return self._add(Distinct(self._node.schema, str(bool(allow_negative)), keys, bool(allow_negative)))

    def join(self, other: Collection, on: str | Sequence[str] | Mapping[str, str], how: str = "inner") -> Collection:
        """Pairs of rows with equal keys; multiplicities multiply and a null key matches nothing (the patent's Join).

        ``on``: a column, columns, or ``{left: right}``. The right key is dropped; a right column whose name is taken
        gets the suffix ``_right``. Where several left columns meet one right column, they must all be equal to it.
        ``how``: "inner"; "semi" or "anti", the rows with or without a partner; "left", "right" or "full", with the rows
        that have none on one side or on both, nulls in place of the partner.
        Cost: proportional to the pairs that change.
        """
        if not isinstance(other, Collection):
            raise ProgramError(
                f"{caller()}: join takes a collection, not {type(other).__name__}", "join(other, on=...)"
            )
        pairs, names, equal = self._join_keys(other, on)
        if how in outer_join.HOW:
            return outer_join.HOW[how](self, other, pairs)
        if how != "inner":
            raise ProgramError(f"{caller()}: join: how is {how!r}", f"one of inner, {', '.join(outer_join.HOW)}")
        if equal:
            once = {theirs: mine for mine, theirs in reversed(pairs.items())}
            return self.where(*equal).join(other, {mine: theirs for theirs, mine in once.items()})
        left, right = self._node.schema, other._node.schema
        schema = dict(left) | {names[name]: kind for name, kind in right.items() if name in names}
        mine, theirs = tuple(pairs), tuple(pairs.values())
        return self._add(Join(schema, digest(mine, theirs), mine, theirs, names), other._index)

    def group_by(self, *keys: Any) -> GroupBy:
        """Groups of rows with equal keys (nulls group together); no keys: one group of everything.

        ``keys``: column names, or selectors as in :meth:`select`.
        """
        return GroupBy(self, tuple(self._column_names("group_by", keys)))

    def arrange_by(self, *keys: Any) -> Collection:
        """Says that this collection will be indexed by ``keys``. Equal arrangements are shared anyway.

        The contents are unchanged.
        """
        self._column_names("arrange_by", keys)
        return self

    def inspect(self, name: str) -> Collection:
        """Keeps the differences of this collection in an output log called ``name``; returns this collection.

        Inside of loops a difference has a time of version and rounds. The log has the rounds as columns: ``round``, for
        the loop in it ``round_2``, and so on, and for a loop with priorities also ``priority``. So, accumulated at a
        version, the log holds the differences between the rounds at that version. The collection is computed
        even if no output needs it. Raises ProgramError if the name or a column is taken.
        """
        self._graph.inspect(name, self._index)
        return self

    # -- loops --------------------------------------------------------------------------------------------------------

    def iterate(
        self,
        body: Callable[[Collection], Collection],
        *,
        priority: Any = None,
        max_rounds: int = DEFAULT_MAX_ROUNDS,
        at_limit: str = "fail",
    ) -> Collection:
        """``body`` applied again and again, starting with this collection, until nothing changes (the patent's Fixed
        Point).

        All rows of a round advance together. Bodies may hold further loops. The body must return the columns it is
        given. A loop that still changes after ``max_rounds`` rounds stops the run with a Diverged error, or with
        ``at_limit="return"`` gives what the body returned last.

        ``priority``: an integer expression of this collection's rows. Rows with the least enter first, the others one
        priority after the other when the loop has settled, for rows of which late ones are mostly superseded.
        Meant for bodies that only add to what they are given or improve on it: their fixed point is the same in
        any order. ``max_rounds`` then holds for each priority.
        """
        _require_function(body, "iterate")

        def only(variable: Collection) -> dict[str, Collection]:
            return {"variable": body(variable)}

        only.__name__ = name_of(body)
        given = {} if priority is None else {"variable": priority}
        return fixed_points({"variable": self}, only, given, max_rounds, at_limit)["variable"]

    @staticmethod
    def fixed_points(
        collections: Mapping[str, Collection],
        body: Callable[..., Mapping[str, Collection]],
        priority: Mapping[str, Any],
        max_rounds: int,
        at_limit: str,
    ) -> dict[str, Collection]:
        """See :func:`ddcore.iterate`."""
        return fixed_points(collections, body, priority, max_rounds, at_limit)

    # -- several collections at once ----------------------------------------------------------------------------------

    @staticmethod
    def delta_join(*relations: tuple[Collection, Sequence[str]]) -> Collection:
        """See :func:`ddcore.delta_join`."""
        first = relations[0][0]
        operator = DeltaJoin.of([each.schema for each, _ in relations], [names for _, names in relations])
        return first._add(operator, *(each._index for each, _ in relations[1:]))

    # -- arguments ----------------------------------------------------------------------------------------------------

    def _kept(self) -> dict[str, pl.Expr]:
        """Every column as it is."""
        return {name: pl.col(name) for name in self._node.schema}

    def _projected(self, exprs: dict[str, pl.Expr], where: str) -> Collection:
        if not exprs:
            raise ProgramError(f"{caller()}: {where}() leaves no column", "name at least one column")
        projection = _checked(expressions.Projection, exprs, self._node.schema)
        return self._add(Select(projection.schema, digest(_texts(exprs)), self._node.schema, projection))

    def _named_expressions(self, where: str, columns: Iterable[Any], named: Mapping[str, Any]) -> dict[str, pl.Expr]:
        """The expressions that arguments stand for, by the names of their results."""
        exprs: dict[str, pl.Expr] = {}
        for column in _flat(columns):
            parsed = _checked(expressions.parse, column, bare_string="column")
            for name, expr in _checked(selection.expand, parsed, self._node.schema).items():
                _set_once(exprs, name, expr, where)
        for name, value in named.items():
            parsed = _checked(expressions.parse, value, bare_string="sql")
            _set_once(
                exprs, name, self._single(parsed, f"{where}({name}=...)", "give the columns without a name"), where
            )
        return exprs

    def _single(self, expr: pl.Expr, where: str, hint: str) -> pl.Expr:
        """The one expression that ``expr`` stands for. Raises ProgramError where there are more, or none."""
        if not _checked(selection.selects, expr):
            return expr
        exprs = _checked(selection.expand, expr, self._node.schema)
        if len(exprs) != 1:
            raise ProgramError(
                f"{caller()}: {where}: one expression is wanted, and this one stands for {len(exprs)} columns:"
                f" {listed(exprs)}",
                hint,
            )
        return next(iter(exprs.values()))

    def _column_names(self, where: str, columns: Iterable[Any]) -> list[str]:
        """Columns by name or selector, each once. Raises ProgramError for others."""
        found: list[str] = []
        for column in _flat(columns):
            parsed = _checked(expressions.parse, column, bare_string="column")
            names = _checked(selection.column_names, parsed, self._node.schema)
            if names is None:
                raise ProgramError(
                    f"{caller()}: {where}: {column!s:.60} is no column", "compute it first, with with_columns()"
                )
            for name in names:
                self._require(name, where)
                if name in found:
                    raise ProgramError(f"{caller()}: {where}: {name} is named twice", "name each column once")
                found.append(name)
        return found

    def _require(self, name: str, where: str) -> None:
        if name not in self._node.schema:
            raise _unknown(name, where, self._node.schema)

    def _aligned(self, other: Collection, where: str = "concat") -> int:
        """The other's node with its columns in this collection's order."""
        if not isinstance(other, Collection):
            raise ProgramError(f"{caller()}: {where} takes collections, not {type(other).__name__}")
        mine, theirs = self._node.schema, other._node.schema
        if mine.keys() != theirs.keys() or any(theirs[name] != kind for name, kind in mine.items()):
            raise ProgramError(
                f"{caller()}: {where}: columns differ: {_shown(mine)} and {_shown(theirs)}",
                "bring both to the same names and types with select()",
            )
        return other._index if list(mine) == list(theirs) else other.select(*mine)._index

    def _join_keys(
        self, other: Collection, on: str | Sequence[str] | Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, str], list[pl.Expr]]:
        """The key columns, left to right; what right value columns are called in the result; and what must hold of
        left columns that meet the same right column.
        """
        pairs = dict(on) if isinstance(on, Mapping) else {name: name for name in ([on] if isinstance(on, str) else on)}
        left, right = self._node.schema, other._node.schema
        if not pairs:
            raise ProgramError(f"{caller()}: join on no columns", "name at least one key column")
        for mine, theirs in pairs.items():
            self._require(mine, "join")
            other._require(theirs, "join")
            if left[mine] != right[theirs]:
                raise ProgramError(
                    f"{caller()}: join: {mine} is {left[mine]} and {theirs} is {right[theirs]}",
                    "cast one side with select()",
                )
        first: dict[str, str] = {}
        for mine, theirs in pairs.items():
            first.setdefault(theirs, mine)
        equal = [pl.col(mine) == pl.col(first[theirs]) for mine, theirs in pairs.items() if first[theirs] != mine]
        names: dict[str, str] = {}
        for name in right:
            if name in pairs.values():
                continue
            names[name] = f"{name}_right" if name in left else name
            if names[name] in left or list(names.values()).count(names[name]) > 1:
                raise ProgramError(
                    f"{caller()}: join: two columns would be called {names[name]}", "rename one with select()"
                )
        return pairs, names, equal


class GroupBy:
    """Groups of a collection, waiting to be told what to make of each."""

    def __init__(self, collection: Collection, keys: tuple[str, ...]) -> None:
        self._collection, self._keys = collection, keys

    def agg(self, *, allow_negative: bool = False, **aggregates: Aggregate) -> Collection:
        """One row per group: the keys and the named aggregates. A group without rows is absent, never 0."""
        if not aggregates:
            raise ProgramError(f"{caller()}: agg() names no aggregate", "for example agg(n=dd.count())")
        base, exprs = self._collection, {key: pl.col(key) for key in self._keys}
        arguments: dict[str, str] = {}
        plan, result = [], {}
        for name, spec in aggregates.items():
            if not isinstance(spec, Aggregate):
                raise ProgramError(
                    f"{caller()}: agg({name}=...) is {type(spec).__name__}", f"for example {name}=dd.count()"
                )
            if name in self._keys:
                raise ProgramError(f"{caller()}: agg: {name} is a key already", "choose another name")
            argument = None
            if spec.expr is not None:
                expr = base._single(spec.expr, f"agg({name}=...)", "aggregate each column by itself")
                same = digest(_checked(expressions.identity, expr))
                if same not in arguments:
                    arguments[same] = _argument_name(expr, exprs, base.schema)
                    exprs[arguments[same]] = expr
                argument = arguments[same]
            plan.append((name, spec.kind, argument))
        prepared = base._projected(exprs or {"_all": expressions.parse(0, bare_string="sql")}, "agg")
        for name, kind, argument in plan:
            result[name] = _result_type(kind, prepared.schema[argument] if argument else None, name)
        schema = {key: base.schema[key] for key in self._keys} | result
        parts: list[Part] = [[name, kind, argument or []] for name, kind, argument in plan]
        text = digest(self._keys, parts, str(bool(allow_negative)))
        return prepared._add(Aggregation(schema, text, self._keys, bool(allow_negative), tuple(plan), result))

    def top_k(
        self,
        k: int,
        by: str | Sequence[str],
        *,
        descending: bool | Sequence[bool] = False,
        ties: str = "cut",
        allow_negative: bool = False,
    ) -> Collection:
        """The first ``k`` rows of each group, ordered by the columns ``by``, nulls last.

        ``ties="cut"``: k rows at most, of equal ones those whose other columns are least. ``ties="rank"``: every row
        before which fewer than k others come. Rows count as often as they are there. Raises ProgramError.
        """
        base, names = self._collection, [by] if isinstance(by, str) else list(by)
        downs = [descending] * len(names) if isinstance(descending, bool) else list(descending)
        if isinstance(k, bool) or not isinstance(k, int) or not 0 < k < 2**31:
            raise ProgramError(f"{caller()}: top_k: k is {k!r}", "give a positive whole number")
        if ties not in ("cut", "rank"):
            raise ProgramError(f"{caller()}: top_k: ties is {ties!r}", 'give "cut" or "rank"')
        if not names or len(downs) != len(names):
            raise ProgramError(
                f"{caller()}: top_k: {len(names)} columns and {len(downs)} directions", "give one direction per column"
            )
        for name in names:
            base._require(name, "top_k")
            if name in self._keys:
                raise ProgramError(f"{caller()}: top_k: {name} is a key", "order by other columns")
        columns = [*self._keys, *(name for name in base.schema if name not in self._keys)]
        text = digest(str(k), ties, str(bool(allow_negative)), self._keys, names, map(str, downs))
        operator = TopK(
            {name: base.schema[name] for name in columns}, text, self._keys, bool(allow_negative), k, tuple(names),
            tuple(downs), ties,
        )  # fmt: skip
        return base._add(operator)

    def reduce(self, function: Frames, schema: Mapping[str, Any], *, allow_negative: bool = False) -> Collection:
        """Any pure function of the rows of each group and their counts (seed 000's group).

        ``function`` gets a frame of many groups: ``group`` (int64, which group), the columns that are not keys,
        ``count``. It returns ``group``, the columns of ``schema`` and, if it wants, ``count``. It must give equal
        results for equal groups. The function is not called for empty groups.
        """
        _require_function(function, "reduce")
        base, result = self._collection, _checked(parse_schema, schema)
        for name in [*(set(base.schema) - set(self._keys)), *result]:
            if name in ("group", "count"):
                raise ProgramError(f"{caller()}: reduce: a column is called {name}", "rename it with select() first")
        for name in result:
            if name in self._keys:
                raise ProgramError(f"{caller()}: reduce: {name} is a key already", "choose another name in schema=")
        text = digest(self._keys, shape(result), str(bool(allow_negative)), _checked(text_of, function))
        columns = {key: base.schema[key] for key in self._keys} | result
        return base._add(Reduce(columns, text, self._keys, bool(allow_negative), function, result))


def _result_type(kind: str, argument: Type | None, name: str) -> Type:
    if kind == "count" or argument is None:
        return parse_type("int64")
    if kind in ("min", "max"):
        return argument
    if argument.name == "decimal":
        return parse_type(f"decimal(18,{argument.scale})")
    if argument.name not in ("int64", "float64"):
        raise ProgramError(f"{caller()}: agg({name}=...): there is no sum of {argument}", "sum numbers, or cast first")
    return argument


def _argument_name(expr: pl.Expr, taken: Mapping[str, Any], schema: Schema) -> str:
    """Plain columns keep their name, so that the arrangement can be shared; other arguments get a private one."""
    roots = expr.meta.root_names()
    if len(roots) == 1 and expr.meta.is_column() and roots[0] in schema and roots[0] not in taken:
        return roots[0]
    return next(name for number in count() if (name := f"_argument_{number}") not in (*taken, *schema))


def _set_once(exprs: dict[str, pl.Expr], name: str, expr: pl.Expr, where: str) -> None:
    if name in exprs:
        raise ProgramError(f"{caller()}: {where}: two columns are called {name}", "name one of them otherwise")
    exprs[name] = expr


def _checked(check: Callable[..., _T], *arguments: Any, **named: Any) -> _T:
    """Run a check and put the user's place in front of its message."""
    try:
        return check(*arguments, **named)
    except ProgramError as error:
        raise ProgramError(f"{caller()}: {error.message}", error.hint) from None
    except (RecursionError, pl.exceptions.PolarsError) as error:
        what = "" if isinstance(error, RecursionError) else f": {one_line(error)}"
        raise ProgramError(
            f"{caller()}: the expression is nested too deeply{what}", "compute a part of it in a select() before"
        ) from None


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    """Arguments one by one: lists and tuples of them are allowed, as in Polars."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _texts(exprs: Mapping[str, pl.Expr]) -> list[Part]:
    """Named expressions as parts of a digest."""
    return [[name, expressions.identity(expr)] for name, expr in exprs.items()]


def _require_function(function: Any, where: str, wanted: str = "a function") -> None:
    if not callable(function):
        raise ProgramError(f"{caller()}: {where} takes {wanted}, not {type(function).__name__}", f"give it {wanted}")


def _unknown(name: str, where: str, schema: Schema) -> ProgramError:
    return ProgramError(
        f"{caller()}: {where}: there is no column {name}; there are {', '.join(schema)}", meant(name, schema)
    )


def _shown(schema: Schema) -> str:
    return "(" + ", ".join(f"{name}: {kind}" for name, kind in schema.items()) + ")"
