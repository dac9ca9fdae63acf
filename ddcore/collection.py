"""What a program is written in: symbolic collections and their operators.

Calling an operator checks schemas and adds a node to the dataflow; no row is touched. A collection of an outer scope
may be used inside a loop as it is (the patent's Extend happens by itself). Operators do not consolidate for the
reader's eye: two select calls that meet in one row simply add up, as multisets do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from numbers import Integral
from typing import Any, TypeVar

import polars as pl

from ddcore import expressions, selection
from ddcore.aggregates import Aggregate
from ddcore.digests import Part, digest
from ddcore.errors import ProgramError
from ddcore.functions import name_of, text_of
from ddcore.graph import Graph, Loop, Node, Scope, caller, shape
from ddcore.schema import Schema, Type, parse_schema, parse_type
from ddcore.wording import listed, meant, one_line

Frames = Callable[[pl.DataFrame], pl.DataFrame]
DEFAULT_MAX_ROUNDS = 10_000
_T = TypeVar("_T")


@dataclass(frozen=True)
class FlatMapFunction:
    """A user's function from frames to frames, and the schema it promises."""

    function: Frames
    schema: Schema
    name: str


@dataclass(frozen=True)
class JoinKeys:
    """The key columns of a join, left and right, pairwise.

    ``right_names`` is what right value columns are called in the result.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    right_names: Mapping[str, str]


@dataclass(frozen=True)
class Reduction:
    """What happens per group: built-in aggregates (by result name: aggregate kind and argument column) or a
    function.
    """

    keys: tuple[str, ...]
    op: str
    allow_negative: bool
    aggregates: tuple[tuple[str, str, str | None], ...] = ()
    function: Frames | None = None
    result: Schema = field(default_factory=dict)


class Collection:
    """A multiset of rows that varies with time. Made by the program's parameters and by operators, never directly."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph, self._node = graph, node

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

    def _add(
        self, kind: str, schema: Schema, text: Iterable[Part], settings: Any = None, others: Sequence[Node] = ()
    ) -> Collection:
        """The collection that an operator makes; ``text`` is all that the operator was told, for its digest."""
        return Collection(self._graph, self._graph.add(kind, [self._node, *others], schema, digest(text), settings))

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
        return self._add("where", self._node.schema, map(expressions.identity, exprs), predicate)

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
            settings = FlatMapFunction(function, _checked(parse_schema, schema), name_of(function))
            text: list[Part] = ["function", _checked(text_of, function)]
            return self._add("flat_map", settings.schema, text, settings)
        exprs = self._named_expressions("flat_map", (), lists)
        projection = _checked(expressions.ListProjection, exprs, self._node.schema)
        return self._add("flat_map", projection.schema, ["lists", _texts(exprs)], projection)

    def concat(self, *others: Collection) -> Collection:
        """Adds multiplicities (the patent's Concat). Columns must have the same names and types.

        Their order may differ.
        """
        nodes = [self._aligned(other) for other in others]
        return self._add("concat", self._node.schema, (), None, nodes)

    def negate(self) -> Collection:
        """Negates multiplicities. What reaches a reducer must not be negative, unless it allows that."""
        return self._add("negate", self._node.schema, ())

    # -- operators with state, keyed ----------------------------------------------------------------------------------

    def distinct(self, *, allow_negative: bool = False) -> Collection:
        """One of each row whose count is positive (seed 000's distinct).

        A negative count is a NegativeMultiplicity error, or with ``allow_negative`` simply not positive.
        """
        keys = tuple(self._node.schema)
        reduction = Reduction(keys, "distinct", allow_negative)
        return self._add("reduce", self._node.schema, ["distinct", str(bool(allow_negative))], reduction)

    def join(self, other: Collection, on: str | Sequence[str] | Mapping[str, str], how: str = "inner") -> Collection:
        """Pairs of rows with equal keys; multiplicities multiply and a null key matches nothing (the patent's Join).

        ``on``: a column, columns, or ``{left: right}``. The right key is dropped; a right column whose name is taken
        gets the suffix ``_right``. Where several left columns meet one right column, they must all be equal to it.
        Cost: proportional to the pairs that change.
        """
        if not isinstance(other, Collection):
            raise ProgramError(
                f"{caller()}: join takes a collection, not {type(other).__name__}", "join(other, on=...)"
            )
        if how != "inner":
            raise ProgramError(f'{caller()}: join(how="{how}") is not supported', 'use how="inner"; see docs/limits.md')
        keys, equal = self._join_keys(other, on)
        if equal:
            return self.where(*equal).join(other, dict(zip(keys.left, keys.right, strict=True)))
        left, right = self._node.schema, other._node.schema
        schema = dict(left) | {keys.right_names[name]: kind for name, kind in right.items() if name not in keys.right}
        return self._add("join", schema, [keys.left, keys.right], keys, [other._node])

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

    # -- loops --------------------------------------------------------------------------------------------------------

    def iterate(self, body: Callable[[Collection], Collection], *, max_rounds: int = DEFAULT_MAX_ROUNDS) -> Collection:
        """``body`` applied again and again, starting with this collection, until nothing changes (the patent's Fixed
        Point).

        All rows of a round advance together. Bodies may hold further loops. A loop that still changes after
        ``max_rounds`` rounds stops the run with a Diverged error. The body must return the columns it is given.
        """
        if isinstance(max_rounds, bool) or not isinstance(max_rounds, Integral) or max_rounds < 1:
            raise ProgramError(f"{caller()}: max_rounds is {max_rounds!r}", "give a whole number of at least 1")
        _require_function(body, "iterate")
        graph, place = self._graph, caller()
        scope = Scope(parent=graph.innermost)
        variable = Node("variable", (self._node,), self._node.schema, scope, "", place=place)
        scope.loop = Loop(f"{name_of(body)} ({place})", variable, int(max_rounds), scope)
        graph.open.append(scope)
        try:
            result = body(Collection(graph, variable))
        finally:
            graph.open.pop()
        if not isinstance(result, Collection):
            raise ProgramError(f"{place}: the body of iterate returned {type(result).__name__}", "return a Collection")
        scope.loop.result = Collection(graph, variable)._aligned(result, "the body of iterate")
        scope.closed = True
        parent = scope.parent
        assert parent is not None
        # Without max_rounds: where the limit is reached the run ends with an error, so it changes no result.
        text = digest(self._node.digest, scope.loop.result.digest)
        leave = Node("leave", (self._node,), self._node.schema, parent, text, scope.loop, place)
        scope.text = leave.digest
        graph.leaves.append(leave)
        return Collection(graph, graph.intern(leave))

    # -- arguments ----------------------------------------------------------------------------------------------------

    def _kept(self) -> dict[str, pl.Expr]:
        """Every column as it is."""
        return {name: pl.col(name) for name in self._node.schema}

    def _projected(self, exprs: dict[str, pl.Expr], where: str) -> Collection:
        if not exprs:
            raise ProgramError(f"{caller()}: {where}() leaves no column", "name at least one column")
        projection = _checked(expressions.Projection, exprs, self._node.schema)
        return self._add("select", projection.schema, _texts(exprs), projection)

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

    def _aligned(self, other: Collection, where: str = "concat") -> Node:
        """The other's node with its columns in this collection's order."""
        if not isinstance(other, Collection):
            raise ProgramError(f"{caller()}: {where} takes collections, not {type(other).__name__}")
        mine, theirs = self._node.schema, other._node.schema
        if mine.keys() != theirs.keys() or any(theirs[name] != kind for name, kind in mine.items()):
            raise ProgramError(
                f"{caller()}: {where}: columns differ: {_shown(mine)} and {_shown(theirs)}",
                "bring both to the same names and types with select()",
            )
        return other._node if list(mine) == list(theirs) else other.select(*mine)._node

    def _join_keys(
        self, other: Collection, on: str | Sequence[str] | Mapping[str, str]
    ) -> tuple[JoinKeys, list[pl.Expr]]:
        """The keys, each right column once; and what must hold of left columns that meet the same right column."""
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
        return JoinKeys(tuple(first.values()), tuple(first), names), equal


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
        reduction = Reduction(self._keys, "agg", allow_negative, tuple(plan), None, result)
        schema = {key: base.schema[key] for key in self._keys} | result
        told: list[Part] = [[name, kind, argument or []] for name, kind, argument in plan]
        text: list[Part] = ["agg", self._keys, told, str(bool(allow_negative))]
        return prepared._add("reduce", schema, text, reduction)

    def reduce(self, function: Frames, schema: Mapping[str, Any], *, allow_negative: bool = False) -> Collection:
        """Any pure function of the rows of each group and their counts (seed 000's group).

        ``function`` gets a frame of many groups: ``group`` (int64, which group), the columns that are not keys,
        ``count``. It returns ``group``, the columns of ``schema`` and, if it wants, ``count``. It must give equal
        results for equal groups. An empty group is never asked about.
        """
        _require_function(function, "reduce")
        base, result = self._collection, _checked(parse_schema, schema)
        for name in [*(set(base.schema) - set(self._keys)), *result]:
            if name in ("group", "count"):
                raise ProgramError(f"{caller()}: reduce: a column is called {name}", "rename it with select() first")
        for name in result:
            if name in self._keys:
                raise ProgramError(f"{caller()}: reduce: {name} is a key already", "choose another name in schema=")
        reduction = Reduction(self._keys, f"reduce {name_of(function)}", allow_negative, (), function, result)
        code = _checked(text_of, function)
        text: list[Part] = ["reduce", self._keys, shape(result), str(bool(allow_negative)), code]
        return base._add("reduce", {key: base.schema[key] for key in self._keys} | result, text, reduction)


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
