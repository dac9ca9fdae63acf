"""Names: which columns a query has, and which of its names belong to the query around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlglot import exp

from ddcore.base.schema import Schema, Type, parse_schema
from ddcore.sql.pivots import columns_of_pivot
from ddcore.sql.source import Source, called, parts, shown
from ddcore.text.wording import listed, meant

WINDOW_ENDS = ("window_start", "window_end")
"""The columns that TUMBLE, HOP and SESSION of a table add."""
_SLANTED = "\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb"
"""Quotes that word processors write."""
Known = Mapping[str, Sequence[str]]
"""The column names of tables, by the table's name in small letters or, if it is quoted, as it is."""


@dataclass(frozen=True)
class Column:
    """A column that expressions may name: ``table`` is its table's alias, ``key`` what the collection calls it.

    A ``hidden`` one answers to its qualified name only, because USING merged it with another. An ``outer`` one belongs
    to the query around. An ``absent`` one is known for messages only: nothing names it, or with a
    key, GROUP BY has left it behind. An ``untyped`` one is a bare NULL, which takes the type of what it meets.
    """

    table: str
    name: str
    key: str
    hidden: bool = False
    outer: bool = False
    absent: bool = False
    untyped: bool = False

    @cached_property
    def folded(self) -> str:
        """The name in small letters."""
        return self.name.casefold()


@dataclass(frozen=True)
class Relation:
    """The rows of a query, and what they are called. ``carried``: keys that correlate them with the query around.

    ``single``: there is one row at most.
    """

    rows: Any
    columns: tuple[Column, ...]
    carried: tuple[str, ...] = ()
    single: bool = False

    @property
    def types(self) -> Schema:
        """The types of the collection's columns, by key."""
        return types(self.rows)

    @property
    def own(self) -> list[Column]:
        """The columns that ``*`` stands for."""
        return [column for column in self.columns if not column.hidden and not column.outer and not column.absent]

    @cached_property
    def names(self) -> list[str]:
        """The names of these."""
        return [column.name for column in self.own]


def types(rows: Any) -> Schema:
    """The columns of a collection of the engine or of the reference."""
    schema: Schema = rows.schema
    return schema if isinstance(next(iter(schema.values()), None), Type) else parse_schema(schema)


def is_named(identifier: Any, name: str) -> bool:
    """Whether an identifier of a program means this name: small and capital letters differ only in quotes."""
    if isinstance(identifier, exp.Identifier) and identifier.quoted:
        return bool(identifier.name == name)
    text = identifier.name if isinstance(identifier, exp.Expr) else identifier
    return bool(text.casefold() == name.casefold())


def first_named(identifier: exp.Expr, names: Iterable[str]) -> str | None:
    """The first of several names that an identifier of a program means."""
    if isinstance(identifier, exp.Identifier) and identifier.quoted:
        return next((name for name in names if name == identifier.name), None)
    text = identifier.name.casefold()
    return next((name for name in names if name.casefold() == text), None)


def unwrapped(query: exp.Expr) -> exp.Expr:
    """A query without parentheses that hold nothing else."""
    while isinstance(query, exp.Subquery | exp.Paren) and not any(
        query.args.get(key) for key in ("order", "limit", "offset", "with_")
    ):
        query = query.this
    return query


def tables_of(query: exp.Expr) -> list[tuple[exp.Expr, exp.Join | None]]:
    """What FROM names, in order, each with the join before it; the first one has none."""
    start = query.args.get("from_")
    first = [(start.this, None)] if start is not None else []
    joins = [*(query.args.get("joins") or []), *((start.this.args.get("joins") or []) if start is not None else [])]
    return [*first, *((join.this, join) for join in joins)]


def is_bracket(table: exp.Expr) -> bool:
    """Whether an item of FROM is a join in parentheses, or a table in them."""
    return isinstance(table, exp.Subquery) and isinstance(table.this, exp.Table | exp.Subquery | exp.Values)


def tables_in(bracket: exp.Expr) -> list[tuple[exp.Expr, exp.Join | None]]:
    """What a join in parentheses names, in order, as :func:`tables_of`."""
    first = bracket.this
    joins = [*(first.args.get("joins") or []), *(bracket.args.get("joins") or [])]
    return [(first, None), *((join.this, join) for join in joins)]


_SERIES = ("generate_series", "range")
_OF_ROWS = exp.Unnest, exp.ExplodingGenerateSeries, exp.GenerateSeries


def function_of(table: exp.Expr) -> exp.Expr | None:
    """The function of an item of FROM that gives rows: unnest(), or a series."""
    inner = table.this if isinstance(table, exp.Lateral | exp.Table) else table
    is_series = isinstance(inner, exp.Anonymous) and inner.name.lower() in _SERIES
    return inner if is_series or isinstance(inner, _OF_ROWS) else None


def columns_of_function(table: exp.Expr) -> list[str]:
    """The columns of such a function: the elements of each list, those of one called as it is itself, and WITH
    ORDINALITY their numbers. Those of several lists have the names that the alias gives them.
    """
    function, alias = function_of(table), table.args.get("alias")
    assert function is not None
    named = [column.name for column in (alias.args.get("columns") or [])] if isinstance(alias, exp.TableAlias) else []
    default = "range" if function.args.get("is_end_exclusive") else "generate_series"
    default = function.name.lower() if isinstance(function, exp.Anonymous) else default
    alone = "" if isinstance(function, exp.GenerateSeries) else table.alias  # in DuckDB it names the table only
    first = named[0] if named else alone or ("unnest" if isinstance(function, exp.Unnest) else default)
    offset = function.args.get("offset")
    number = offset.name if isinstance(offset, exp.Expr) else "ordinality"
    firsts = named[: len(function.expressions)] if isinstance(function, exp.Unnest) and len(named) > 1 else [first]
    return [*firsts, number] if offset else firsts


def pivoted_name(table: exp.Expr) -> str:
    """The alias of a table in FROM, or that behind its PIVOT."""
    aliases = [pivot.alias for pivot in table.args.get("pivots") or [] if pivot.alias]
    return aliases[-1] if aliases else str(table.alias)


def is_comma(join: exp.Join | None) -> bool:
    """Whether a table stands behind a comma, or is the first of FROM: a new join item, for JOIN binds tighter."""
    return join is None or not any(join.args.get(key) for key in ("method", "side", "kind", "on", "using"))


def candidates(columns: Iterable[Column], node: exp.Column) -> list[Column]:
    """The columns that a name may stand for: those of the query itself, else those of the query around."""
    table, name = node.args.get("table"), node.name
    folded = None if isinstance(node.this, exp.Identifier) and node.this.quoted else name.casefold()
    fitting = [
        column
        for column in columns
        if (column.name == name if folded is None else column.folded == folded)
        and not column.absent
        and (is_named(table, column.table) if table is not None else not column.hidden)
    ]
    return [column for column in fitting if not column.outer] or fitting


def resolve(source: Source, columns: Sequence[Column], node: exp.Column) -> Column:
    """The column that a name stands for. Raises ProgramError for none, and where it could be several."""
    if node.args.get("db") is not None:
        raise source.error(node, f"{node.sql()}: a name has two parts at most", "write table.column")
    if "key" in node.meta:  # of a star
        return next(column for column in columns if column.key == node.meta["key"])
    found = candidates(columns, node)
    if len(found) == 1:
        return found[0]
    text = node.sql()
    if found:
        tables = [f"{column.table}.{column.name}" for column in found]
        raise source.error(node, f"the column {text} could be {' or '.join(tables)}", "name its table")
    own = [column for column in columns if not column.outer and not column.hidden]
    table = node.args.get("table")
    gone = [column for column in columns if column.absent and column.key and is_named(node.this, column.name)]
    if any(table is None or is_named(table, column.table) for column in gone):
        raise source.error(node, f"{text} is neither a key of GROUP BY nor in an aggregate", "add it to GROUP BY")
    if table is not None and not any(is_named(table, column.table) for column in columns):
        there = dict.fromkeys(column.table for column in own if column.table)
        raise source.error(
            node, f"there is no table {table.name} for {text}; there are: {listed(there)}",
            meant(table.name, there) or "name a table of FROM by its alias",
        )  # fmt: skip
    names = [column.name for column in own if table is None or is_named(table, column.table)]
    hint = f"text has single quotes: '{node.name}'" if node.this.args.get("quoted") else "name one of these"
    if node.name[:1] in _SLANTED:
        hint = f"text has straight single quotes: '{node.name.strip(_SLANTED)}'"
    raise source.error(node, f"there is no column {text}; there are: {listed(names)}", meant(node.name, names) or hint)


def require_names(source: Source, names: Iterable[Any]) -> None:
    """Raise ProgramError where a name that columns get has something behind it, a type or a name without a comma."""
    for name in names:
        if isinstance(name, exp.ColumnDef):
            raise source.error(name, f"{shown(name)} is no name of a column", "write names, with commas between them")


class Mentions:
    """The names in parts of a query, also in their subqueries. Each part is read once: it must not change meanwhile."""

    def __init__(self) -> None:
        self._known: dict[int, _Named] = {}
        self._together: dict[tuple[int, ...], _Named] = {}

    def keys(self, columns: Iterable[Column], nodes: Iterable[exp.Expr]) -> set[str]:
        """The keys of all columns that the parts may mean: too many rather than too few."""
        names, stars = self._of_all(list(nodes))
        if None in stars:
            return {column.key for column in columns}
        return {
            column.key
            for column in columns
            if ((tables := names.get(column.folded)) and (None in tables or column.table.casefold() in tables))
            or column.table.casefold() in stars
        }

    def _of_all(self, nodes: list[exp.Expr]) -> _Named:
        """What several parts name: a join asks for the same ones at each step."""
        known = tuple(map(id, nodes))
        if known not in self._together:
            names: dict[str, set[str | None]] = {}
            stars: set[str | None] = set()
            for node in nodes:
                named, starred = self._of(node)
                stars |= starred
                for name, tables in named.items():
                    names.setdefault(name, set()).update(tables)
            self._together[known] = names, stars
        return self._together[known]

    def _of(self, node: exp.Expr) -> _Named:
        if id(node) not in self._known:
            names: dict[str, set[str | None]] = {}
            stars: set[str | None] = set()
            for column in node.find_all(exp.Column, exp.Star):
                if isinstance(column, exp.Star):
                    if not isinstance(column.parent, exp.Count):
                        stars.add(_table_of(column.parent) if isinstance(column.parent, exp.Column) else None)
                elif isinstance(column, exp.Column) and not isinstance(column.this, exp.Star):
                    names.setdefault(column.name.casefold(), set()).add(_table_of(column))
            self._known[id(node)] = names, stars
        return self._known[id(node)]


_Named = tuple[dict[str, set[str | None]], set[str | None]]
"""The tables of columns by the columns' names, and those of stars, all in small letters; None for any table."""


def _table_of(column: exp.Column) -> str | None:
    table = column.args.get("table")
    return None if table is None else str(table.name.casefold())


def result_name(node: exp.Expr) -> str:
    """What a column of a SELECT is called: its alias, its own name, that of a function, or nothing."""
    if node.meta.get("unnamed"):
        return ""
    if isinstance(node, exp.Alias | exp.Column):
        return str(node.alias or node.name)
    if isinstance(node, exp.Dot):  # a field of a struct
        return str(node.expression.name)
    if isinstance(node, exp.Cast | exp.Paren | exp.Filter | exp.Window | exp.IgnoreNulls | exp.RespectNulls):
        return result_name(node.this)
    if isinstance(node, exp.Anonymous | exp.Subquery):
        return str(node.meta.get("name", "") if isinstance(node, exp.Subquery) else node.name).lower()
    is_function = isinstance(node, exp.Func) and not isinstance(node, exp.Binary | exp.Case)
    usual = node.sql_name().lower() if isinstance(node, exp.Func) and is_function else ""
    return str(node.meta.get("called") or called(node)) if isinstance(node, exp.AggFunc) else usual


# -- names of the query around ----------------------------------------------------------------------------------------


def own(query: exp.Expr, known: Known) -> list[str]:
    """The names of the columns of a query; unknown tables have none."""
    query = unwrapped(query)
    known = _with_bindings(query, known)
    if isinstance(query, exp.SetOperation | exp.Subquery):
        return own(query.this, known)
    if isinstance(query, exp.Values):
        return [f"column{number}" for number, _ in enumerate(query.expressions[0].expressions, 1)]
    names: list[str] = []
    tables = _tables(query, known)
    for expression in query.expressions:
        if isinstance(expression, exp.Star):
            names += _without(expression, _joined_names(tables_of(query), known))
        elif isinstance(expression, exp.Column) and isinstance(expression.this, exp.Star):
            starred = [
                name for table, columns in tables if is_named(expression.args["table"], table) for name in columns
            ]
            names += _without(expression.this, starred)
        else:
            names.append(result_name(expression))
    return names


def excepted(star: exp.Expr) -> list[exp.Identifier]:
    """The names that a star leaves out: ``* EXCEPT (a, b)``, or ``EXCLUDE``."""
    return [name.this if isinstance(name, exp.Column) else name for name in star.args.get("except_") or []]


def _without(star: exp.Expr, names: Iterable[str]) -> list[str]:
    gone = excepted(star)
    return [name for name in names if not any(is_named(name_gone, name) for name_gone in gone)]


def _joined_names(tables: Iterable[tuple[exp.Expr, exp.Join | None]], known: Known) -> list[str]:
    """All columns of joined tables: in each join item, columns that USING and NATURAL merge come once, and first."""
    items: list[list[str]] = []
    for table, join in tables:
        if is_bracket(table) and not table.alias:
            names = _joined_names(tables_in(table), known)
        else:
            names = [name for _, columns in _named(table, known) for name in columns]
        if join is None or is_comma(join):
            items.append(names)
            continue
        merged = [column.name for column in join.args.get("using") or []]
        if join.method == "NATURAL":
            merged = [name for name in items[-1] if any(is_named(name, other) for other in names)]
        rest = [name for name in items[-1] + names if not any(is_named(name, other) for other in merged)]
        items[-1] = merged + rest
    return [name for names in items for name in names]


def free(query: exp.Expr, known: Known) -> Iterator[exp.Column]:
    """The names in a query that none of its own tables has: those of the queries around it."""
    query = unwrapped(query)
    for binding in query.ctes if isinstance(query, exp.Query) else []:
        yield from free(binding.this, _with_bindings(query, known))
    known = _with_bindings(query, known)
    if isinstance(query, exp.SetOperation):
        yield from free(query.this, known)
        yield from free(query.expression, known)
    elif isinstance(query, exp.Subquery):
        yield from free(query.this, known)
    elif isinstance(query, exp.Select | exp.Values):
        yield from _free_of_select(query, known)


def _free_of_select(query: exp.Expr, known: Known) -> Iterator[exp.Column]:
    tables = _tables(query, known)
    results = [expression.alias for expression in query.expressions if isinstance(expression, exp.Alias)]

    def is_own(node: exp.Column, *, results: Sequence[str] = ()) -> bool:
        table = node.args.get("table")
        if table is not None:
            return any(is_named(table, name) for name, _ in tables)
        return any(is_named(node.this, name) for _, names in tables for name in names) or any(
            is_named(node.this, name) for name in results
        )

    for key, value in query.args.items():
        if key == "with_":
            continue
        nodes = value if isinstance(value, list) else [value]
        for node in nodes:
            if isinstance(node, exp.Expr):
                inside = results if key in ("order", "group", "qualify", "distinct") else ()
                for name in names_used(node, known):
                    if not is_own(name, results=inside):
                        yield name


def names_used(node: exp.Expr, known: Known) -> Iterator[exp.Column]:
    """All names in a part of a query, of subqueries only those that are free."""

    def inside(part: exp.Expr) -> Iterable[exp.Expr]:
        return () if is_query(part) or isinstance(part, exp.Column) else part.iter_expressions()

    def is_query(part: exp.Expr) -> bool:
        return isinstance(part, exp.Query) and not isinstance(part, exp.Table)

    for part in parts([node], inside):
        if is_query(part):
            yield from free(part, known)
        elif isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
            yield part


def _tables(query: exp.Expr, known: Known) -> list[tuple[str, Sequence[str]]]:
    """The aliases and columns of what FROM and JOIN name."""
    return [named for table, _ in tables_of(query) for named in _named(table, known)]


def _named(table: exp.Expr, known: Known) -> Iterator[tuple[str, Sequence[str]]]:
    if is_bracket(table):
        inside = tables_in(table)
        if not table.alias:
            for part, _ in inside:
                yield from _named(part, known)
            return
        columns = _joined_names(inside, known)
    elif function_of(table) is not None:
        yield table.alias, columns_of_function(table)
        return
    elif isinstance(table, exp.Lateral):
        inner = table.this
        columns = own(inner, known)
    elif isinstance(table, exp.Table):
        columns = list(known.get(table.name if table.this.quoted else table.name.casefold(), ()))
        if not columns:
            found = first_named(table.this, known)
            columns = [] if found is None else list(known[found])
        columns += WINDOW_ENDS if "window" in table.meta else ()
    elif isinstance(table, exp.Query):
        columns = own(table, known)
    else:
        columns = []
    alias = table.args.get("alias")
    for pivot in table.args.get("pivots") or []:
        columns = columns_of_pivot(columns, pivot)
        alias = pivot.args.get("alias") or alias
    renamed = [column.name for column in (alias.args.get("columns") or [])] if isinstance(alias, exp.TableAlias) else []
    yield pivoted_name(table) or table.name, renamed + list(columns[len(renamed) :])


def _with_bindings(query: exp.Expr, known: Known) -> Known:
    """What is known inside of a query, with the names that its WITH adds."""
    bindings = query.ctes if isinstance(query, exp.Query) else []
    for binding in bindings:
        columns = [column.name for column in binding.args["alias"].args.get("columns") or []]
        known = {**known, binding.alias: columns or own(binding.this, known)}
    return known
