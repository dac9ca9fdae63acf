"""The views of a program: statements as sqlglot's trees."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from sqlglot import Parser, Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, SqlglotError

from ddcore.base.errors import ProgramError
from ddcore.sql import dialects
from ddcore.sql.asof import with_matches
from ddcore.sql.bindings import without_recursion
from ddcore.sql.brackets import check_brackets
from ddcore.sql.clock import TIMES, with_instants
from ddcore.sql.commas import check_commas
from ddcore.sql.comparisons import COMPARISONS, with_parts
from ddcore.sql.dialect_aggregates import of_fractions
from ddcore.sql.heads import Head, head_of
from ddcore.sql.join_forms import GENERATORS, with_elements_joined
from ddcore.sql.mistakes import check_ends, check_joins, mistake
from ddcore.sql.pivot_statements import with_pivots
from ddcore.sql.quotes import unclosed
from ddcore.sql.source import DIALECT, Source
from ddcore.sql.time_windows import readable, with_tables
from ddcore.sql.tokens import statements, with_whole_intervals

_PROMISES = exp.PrimaryKey, exp.ForeignKey, exp.UniqueColumnConstraint, exp.CheckColumnConstraint, exp.Constraint
_SILENT = exp.CommentColumnConstraint
_FORM = "write CREATE VIEW name AS SELECT ..."


@dataclass(frozen=True)
class View:
    """One statement: ``CREATE VIEW name (columns) AS query``. A ``temporary`` one is no output.

    ``comment``: what is written before it.
    """

    name: str
    columns: tuple[exp.Identifier, ...]
    query: exp.Expr
    temporary: bool
    node: exp.Expr
    start: int
    comment: str = ""


@dataclass(frozen=True)
class Table:
    """One statement: ``CREATE TABLE name (column type, ...)`` without a query. It declares an input.

    ``unchecked``: the parts that promise something of its rows, which nothing here checks.
    """

    name: str
    columns: tuple[exp.ColumnDef, ...]
    node: exp.Expr
    unchecked: tuple[exp.Expr, ...] = ()


def parse(
    texts: Mapping[str, str], dialect: str = DIALECT, heads: Mapping[str, str] | None = None
) -> tuple[list[View], list[Table], Source]:
    """The views and the declared tables of a program, in order. ``texts``: those of its files by name; ``heads``: what
    was put before some of them, which places leave out.

    Raises ProgramError, with the place, where it is something else.
    """
    source = Source.of(texts, dialect, heads)
    read = [_statement(source, tokens) for tokens in statements(source) if not _declares(source, tokens)]
    views = [statement for statement in read if isinstance(statement, View)]
    if not views:
        what = "there is no view, only comments or semicolons" if source.text.strip() else "the file is empty"
        raise source.error_at(0, what, _FORM)
    if all(view.temporary for view in views):
        raise source.error(
            views[-1].node, "all views are temporary, so the program has no output", "leave TEMPORARY out of one"
        )
    return views, [statement for statement in read if isinstance(statement, Table)], source


def _declares(source: Source, tokens: list[Token]) -> bool:
    """Whether a statement is ``DECLARE RECURSIVE VIEW name (columns)``, which a view that names itself needs not."""
    is_one = tokens[0].text.upper() == "DECLARE" and tokens[1:] and tokens[1].text.upper().startswith("RECURSIVE VIEW")
    if is_one:
        source.note_at(tokens[0].start, "DECLARE is left out: the types of a view follow from its query")
    return bool(is_one)


def _statement(source: Source, tokens: list[Token]) -> View | Table:
    """A statement. A text that is not closed may be why it cannot be read, and is named then."""
    try:
        source.start = tokens[0].start
        check_brackets(tokens, source)
        head = head_of(tokens, source)
        tree = _tree(source, head)
        return _table(source, tree) if head.query is None else _view(source, tree, tokens[0], head)
    except ProgramError:
        error = unclosed(source, tokens[0].start, tokens[-1].end + 1, surely=False)
        if error is None:
            raise
    raise error


def _tree(source: Source, head: Head) -> exp.Create:
    tokens, number = with_whole_intervals(with_matches(readable(head.tokens))), head.query or 0
    first = tokens[0].start
    check_commas(tokens, source)
    check_ends(tokens[number:], source)
    kept = without_recursion(tokens, source)
    try:
        with _quiet(), suppress(SqlglotError):
            trees = _parser(source.dialect).parse(kept, source.text)
            if len(trees) == 1 and isinstance(trees[0], exp.Create):
                check_joins(tokens[number:], source)
                return _rewritten(source, trees[0])
        with _quiet():
            raise mistake(kept[number:], source)
    except RecursionError:
        raise source.error_at(first, "this statement is nested too deeply", "use several views") from None


def _parser(dialect: str) -> Parser:
    parser = Dialect.get_or_raise(dialect).parser(error_level=ErrorLevel.IMMEDIATE)
    if dialect == DIALECT:  # which has no functions of elements: in coalesce(x -> 'a' ->> 'b', '') x is a column
        others: dict[TokenType, Any] = {kind: made for kind, made in parser.LAMBDAS.items() if kind != TokenType.ARROW}
        parser.LAMBDAS = others  # type: ignore[misc]
    return parser


def _rewritten(source: Source, tree: exp.Create) -> exp.Create:
    """A statement in the dialect of its program, with what sqlglot has no kind for as what it means. Most have nothing
    of this, so they are gone through once.
    """
    kinds = {type(node) for node in tree.walk()}
    if exp.Pivot in kinds:
        tree = with_pivots(source, tree)
    if exp.Anonymous in kinds:
        tree = with_tables(_with_known(source, tree))
    tree = dialects.read(source, tree)
    for within in list(tree.find_all(exp.WithinGroup)) if kinds & _FRACTIONS else ():
        of_fractions(within)
    for node in list(tree.find_all(*COMPARISONS)) if exp.Tuple in kinds and source.dialect == DIALECT else ():
        with_parts(source, node)
    if any(issubclass(kind, GENERATORS) for kind in kinds):
        for select in list(tree.find_all(exp.Select)):
            with_elements_joined(source, select)
    return tree if kinds.isdisjoint((exp.Anonymous, *TIMES)) else with_instants(tree)


_FRACTIONS = {exp.WithinGroup, exp.PercentileCont, exp.PercentileDisc, exp.Quantile}


def _with_known(source: Source, tree: exp.Create) -> exp.Create:
    """``every(x)`` is bool_and, ``jsonb_agg`` a kind of ``json_agg``, ``ROW(x, y)`` is ``(x, y)``: sqlglot does not
    know them.
    """
    for node in list(tree.find_all(exp.Anonymous)):
        name = node.name.lower()
        if name in ("every", "jsonb_agg") and len(node.expressions) == 1:
            (argument,) = node.expressions
            kind = exp.DataType.build("jsonb")
            made = (
                exp.LogicalAnd(this=argument) if name == "every" else exp.JSONArrayAgg(this=argument, return_type=kind)
            )
            made.meta["called"] = name
            node.replace(made)
        elif name == "row" and source.dialect not in dialects.SPARKS:
            node.replace(exp.Tuple(expressions=node.expressions))
    return tree


@contextmanager
def _quiet() -> Iterator[None]:
    """sqlglot logs a warning about a statement that it cannot read, of which we raise an error."""
    logger = logging.getLogger("sqlglot")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _view(source: Source, tree: exp.Create, first: Token, head: Head) -> View:
    if not isinstance(tree.expression, exp.Query | exp.Values):
        raise source.error(tree, "this view has no query", _FORM)
    kinds = {exp.TemporaryProperty, exp.MaterializedProperty}
    properties = tree.args.get("properties")
    if [kind for kind in (properties.expressions if properties else []) if type(kind) not in kinds]:
        raise source.error(tree, "CREATE VIEW takes a name, columns and a query only", "write CREATE VIEW name AS ...")
    temporary = head.local or bool(properties and properties.find(exp.TemporaryProperty))
    target = tree.this
    columns = tuple(
        _view_column(source, column) for column in (target.expressions if isinstance(target, exp.Schema) else ())
    )
    table, query = _named(source, target), tree.expression
    if head.recursive and not columns:
        hint = "write CREATE RECURSIVE VIEW name (a, b) AS ..., or leave RECURSIVE out"
        raise source.error(table, f"the recursive view {table.name} names no columns", hint)
    comment = "\n".join(line.strip() for comment_ in first.comments for line in comment_.strip().splitlines())
    return View(table.name, columns, query, temporary, table, first.start, comment)


def _view_column(source: Source, node: exp.Expr) -> exp.Identifier:
    """The name of a column of a view, which may have a comment."""
    name = node.this if isinstance(node, exp.ColumnDef) else node
    kinds = [constraint.args.get("kind") for constraint in node.args.get("constraints") or []]
    if (
        not isinstance(name, exp.Identifier)
        or node.args.get("kind")
        or not all(isinstance(constraint, _SILENT) for constraint in kinds)
    ):
        source.refuse(node, "this part of a view", "write CREATE VIEW name (a, b) AS ...")
    return name


def _named(source: Source, target: exp.Expr) -> exp.Table:
    table = target.this if isinstance(target, exp.Schema) else target
    assert isinstance(table, exp.Table)
    if table.args.get("db"):
        raise source.error(table, f"{table.sql()}: a view has a plain name", "leave the schema out")
    return table


def _table(source: Source, tree: exp.Create) -> Table:
    target = tree.this
    table = _named(source, target)
    parts = target.expressions if isinstance(target, exp.Schema) else []
    columns = [part for part in parts if isinstance(part, exp.ColumnDef)]
    others = [part for part in parts if not isinstance(part, exp.ColumnDef)]
    for part in parts:
        if part.args.get("kind") is None if isinstance(part, exp.ColumnDef) else not isinstance(part, _PROMISES):
            source.refuse(part, "this part of a table", "write CREATE TABLE name (column type, ...)")
    if not columns or tree.args.get("properties"):
        raise source.error(
            table, f"the table {table.name} has no columns, or options", "CREATE TABLE name (column type, ...)"
        )
    constraints = [constraint for column in columns for constraint in column.args.get("constraints") or []]
    unchecked = [constraint for constraint in constraints if not isinstance(constraint.args.get("kind"), _SILENT)]
    return Table(table.name, tuple(columns), table, (*unchecked, *others))
