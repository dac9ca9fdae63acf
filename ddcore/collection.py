"""What a program is written in: symbolic collections and their operators.

Calling an operator checks schemas and adds a node to the dataflow; no row is touched. A collection of an outer scope
may be used inside a loop as it is (the patent's Extend happens by itself). Operators do not consolidate for the
reader's eye: two select calls that meet in one row simply add up, as multisets do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from ddcore import expressions
from ddcore.aggregates import Aggregate
from ddcore.errors import ProgramError
from ddcore.functions import name_of, text_of
from ddcore.graph import Graph, Loop, Node, Scope, caller, digest
from ddcore.schema import Schema, Type, parse_schema, parse_type
from ddcore.wording import meant

Frames = Callable[[pl.DataFrame], pl.DataFrame]
DEFAULT_MAX_ROUNDS = 10_000


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
        self, kind: str, schema: Schema, text: str, settings: Any = None, others: Sequence[Node] = ()
    ) -> Collection:
        return Collection(self._graph, self._graph.add(kind, [self._node, *others], schema, text, settings))

    # -- linear operators: one row at a time, no state ----------------------------------------------------------------

    def select(self, *columns: str | pl.Expr, **named: Any) -> Collection:
        """New columns from each row; rows are not deduplicated (the patent's Select).

        Positional: column names and expressions with a name of their own. Keywords name results; text is SQL, other
        Python values are literals. Raises ProgramError for unknown columns and for expressions that look at more than
        their own row.
        """
        exprs: dict[str, pl.Expr] = {}
        for column in columns:
            expr = expressions.parse(column, bare_string="column")
            _set_once(exprs, expr.meta.output_name(), expr, "select")
        for name, value in named.items():
            _set_once(exprs, name, expressions.parse(value, bare_string="sql"), "select")
        if not exprs:
            raise ProgramError(f"{caller()}: select() names no column", "name at least one column")
        projection = _checked(lambda: expressions.Projection(exprs, self._node.schema))
        text = ";".join(f"{name}={expressions.canonical(expr)}" for name, expr in exprs.items())
        return self._add("select", projection.schema, text, projection)

    def where(self, *predicates: Any) -> Collection:
        """The rows for which every predicate is true; null is not true (the patent's Where)."""
        exprs = [expressions.parse(predicate, bare_string="sql") for predicate in predicates]
        predicate = _checked(lambda: expressions.Predicate(exprs, self._node.schema))
        return self._add("where", self._node.schema, ";".join(map(expressions.canonical, exprs)), predicate)

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
            settings = FlatMapFunction(function, parse_schema(schema), name_of(function))
            return self._add("flat_map", settings.schema, text_of(function), settings)
        exprs = {name: expressions.parse(value, bare_string="sql") for name, value in lists.items()}
        projection = _checked(lambda: expressions.ListProjection(exprs, self._node.schema))
        text = ";".join(f"{name}={expressions.canonical(expr)}" for name, expr in exprs.items())
        return self._add("flat_map", projection.schema, text, projection)

    def concat(self, *others: Collection) -> Collection:
        """Adds multiplicities (the patent's Concat). Columns must have the same names and types.

        Their order may differ.
        """
        nodes = [self._aligned(other) for other in others]
        return self._add("concat", self._node.schema, "", None, nodes)

    def negate(self) -> Collection:
        """Negates multiplicities. What reaches a reducer must not be negative, unless it allows that."""
        return self._add("negate", self._node.schema, "")

    # -- operators with state, keyed ----------------------------------------------------------------------------------

    def distinct(self, *, allow_negative: bool = False) -> Collection:
        """One of each row whose count is positive (seed 000's distinct).

        A negative count is a NegativeMultiplicity error, or with ``allow_negative`` simply not positive.
        """
        keys = tuple(self._node.schema)
        reduction = Reduction(keys, "distinct", allow_negative)
        return self._add("reduce", self._node.schema, f"distinct {allow_negative}", reduction)

    def join(self, other: Collection, on: str | Sequence[str] | Mapping[str, str], how: str = "inner") -> Collection:
        """Pairs of rows with equal keys; multiplicities multiply and a null key matches nothing (the patent's Join).

        ``on``: a column, columns, or ``{left: right}``. The right key is dropped; a right column whose name is taken
        gets the suffix ``_right``. Cost: proportional to the pairs that change.
        """
        if how != "inner":
            raise ProgramError(f'{caller()}: join(how="{how}") is not supported', 'use how="inner"; see docs/limits.md')
        keys = self._join_keys(other, on)
        left, right = self._node.schema, other._node.schema
        schema = dict(left) | {keys.right_names[name]: kind for name, kind in right.items() if name not in keys.right}
        text = f"{','.join(keys.left)}|{','.join(keys.right)}"
        return self._add("join", schema, text, keys, [other._node])

    def group_by(self, *keys: str | Sequence[str]) -> GroupBy:
        """Groups of rows with equal keys (nulls group together); no keys: one group of everything."""
        names = [name for key in keys for name in ([key] if isinstance(key, str) else key)]
        for name in names:
            self._require(name, "group_by")
        return GroupBy(self, tuple(names))

    def arrange_by(self, *keys: str | Sequence[str]) -> Collection:
        """Says that this collection will be indexed by ``keys``. Equal arrangements are shared anyway.

        The contents are unchanged.
        """
        for key in keys:
            for name in [key] if isinstance(key, str) else key:
                self._require(name, "arrange_by")
        return self

    # -- loops --------------------------------------------------------------------------------------------------------

    def iterate(self, body: Callable[[Collection], Collection], *, max_rounds: int = DEFAULT_MAX_ROUNDS) -> Collection:
        """``body`` applied again and again, starting with this collection, until nothing changes (the patent's Fixed
        Point).

        All rows of a round advance together. Bodies may hold further loops. A loop that still changes after
        ``max_rounds`` rounds stops the run with a Diverged error. The body must return the columns it is given.
        """
        if max_rounds < 1:
            raise ProgramError(f"{caller()}: max_rounds is {max_rounds}", "give at least 1")
        graph, place = self._graph, caller()
        scope = Scope(parent=graph.innermost)
        variable = Node("variable", (self._node,), self._node.schema, scope, "", place=place)
        scope.loop = Loop(f"{name_of(body)} ({place})", variable, max_rounds, scope)
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
        text = digest(self._node.digest, scope.loop.result.digest, str(max_rounds))
        leave = Node("leave", (self._node,), self._node.schema, parent, text, scope.loop, place)
        scope.text = leave.digest
        return Collection(graph, graph.intern(leave))

    # -- checks -------------------------------------------------------------------------------------------------------

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

    def _join_keys(self, other: Collection, on: str | Sequence[str] | Mapping[str, str]) -> JoinKeys:
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
        names: dict[str, str] = {}
        for name in right:
            if name in pairs.values():
                continue
            names[name] = f"{name}_right" if name in left else name
            if names[name] in left or list(names.values()).count(names[name]) > 1:
                raise ProgramError(
                    f"{caller()}: join: two columns would be called {names[name]}", "rename one with select()"
                )
        return JoinKeys(tuple(pairs), tuple(pairs.values()), names)


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
                text = expressions.canonical(spec.expr)
                argument = arguments.setdefault(text, _argument_name(spec.expr, exprs, base.schema, len(arguments)))
                exprs.setdefault(argument, spec.expr)
            plan.append((name, spec.kind, argument))
        prepared = base.select(**exprs) if exprs else base.select(_all=0)
        for name, kind, argument in plan:
            result[name] = _result_type(kind, prepared.schema[argument] if argument else None, name)
        reduction = Reduction(self._keys, "agg", allow_negative, tuple(plan), None, result)
        schema = {key: base.schema[key] for key in self._keys} | result
        text = f"agg {','.join(self._keys)} {plan} {allow_negative}"
        return prepared._add("reduce", schema, text, reduction)

    def reduce(self, function: Frames, schema: Mapping[str, Any], *, allow_negative: bool = False) -> Collection:
        """Any pure function of the rows of each group and their counts (seed 000's group).

        ``function`` gets a frame of many groups: ``group`` (int64, which group), the columns that are not keys,
        ``count``. It returns ``group``, the columns of ``schema`` and, if it wants, ``count``. It must give equal
        results for equal groups. An empty group is never asked about.
        """
        base, result = self._collection, parse_schema(schema)
        for name in [*(set(base.schema) - set(self._keys)), *result]:
            if name in ("group", "count"):
                raise ProgramError(f"{caller()}: reduce: a column is called {name}", "rename it with select() first")
        for name in result:
            if name in self._keys:
                raise ProgramError(f"{caller()}: reduce: {name} is a key already", "choose another name in schema=")
        reduction = Reduction(self._keys, f"reduce {name_of(function)}", allow_negative, (), function, result)
        shape = ",".join(f"{name}:{kind}" for name, kind in result.items())
        text = f"reduce {','.join(self._keys)} {shape} {allow_negative} {text_of(function)}"
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


def _argument_name(expr: pl.Expr, taken: Mapping[str, Any], schema: Schema, number: int) -> str:
    """Plain columns keep their name, so that the arrangement can be shared; other arguments get a private one."""
    roots = expr.meta.root_names()
    plain = len(roots) == 1 and expr.meta.is_column() and roots[0] in schema
    return roots[0] if plain and roots[0] not in taken else f"_argument_{number}"


def _set_once(exprs: dict[str, pl.Expr], name: str, expr: pl.Expr, where: str) -> None:
    if name in exprs:
        raise ProgramError(f"{caller()}: {where}: two columns are called {name}", "name one of them otherwise")
    exprs[name] = expr


def _checked(build: Callable[[], Any]) -> Any:
    """Run a check and put the user's place in front of its message."""
    try:
        return build()
    except ProgramError as error:
        raise ProgramError(f"{caller()}: {error.message}", error.hint) from None


def _unknown(name: str, where: str, schema: Schema) -> ProgramError:
    return ProgramError(
        f"{caller()}: {where}: there is no column {name}; there are {', '.join(schema)}", meant(name, schema)
    )


def _shown(schema: Schema) -> str:
    return "(" + ", ".join(f"{name}: {kind}" for name, kind in schema.items()) + ")"
