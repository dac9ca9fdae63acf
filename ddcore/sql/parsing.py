"""The views of a program: statements as sqlglot's trees."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from sqlglot import Token, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, SqlglotError

from ddcore.errors import ProgramError
from ddcore.sql.bindings import without_recursion
from ddcore.sql.brackets import check_brackets
from ddcore.sql.commas import check_commas
from ddcore.sql.heads import query_of
from ddcore.sql.mistakes import check_ends, check_joins, mistake
from ddcore.sql.quotes import unclosed
from ddcore.sql.source import DIALECT, Source
from ddcore.sql.tokens import statements

__all__ = ["View", "parse"]

_FORM = "write CREATE VIEW name AS SELECT ..."


@dataclass(frozen=True)
class View:
    """One statement: ``CREATE VIEW name (columns) AS query``. A ``temporary`` one is no output."""

    name: str
    columns: tuple[exp.Identifier, ...]
    query: exp.Expr
    temporary: bool
    node: exp.Expr
    start: int


def parse(text: str, file: str) -> tuple[list[View], Source]:
    """The views of a program, in order. Raises ProgramError, with the place, where it is something else."""
    source = Source(file, text)
    views = [_view(source, tokens) for tokens in statements(source)]
    if not views:
        what = "there is no view, only comments or semicolons" if text.strip() else "the file is empty"
        raise source.error_at(0, what, _FORM)
    if all(view.temporary for view in views):
        raise source.error(
            views[-1].node, "all views are temporary, so the program has no output", "leave TEMPORARY out of one"
        )
    return views, source


def _view(source: Source, tokens: list[Token]) -> View:
    """The view of a statement. A text that is not closed may be why the statement cannot be read, and is named then."""
    try:
        source.start = tokens[0].start
        return _of_tree(source, _tree(source, tokens), tokens[0].start)
    except ProgramError:
        error = unclosed(source, tokens[0].start, tokens[-1].end + 1, surely=False)
        if error is None:
            raise
    raise error


def _tree(source: Source, tokens: list[Token]) -> exp.Create:
    first = tokens[0].start
    check_brackets(tokens, source)
    number = query_of(tokens, source)
    check_commas(tokens, source)
    check_ends(tokens[number:], source)
    kept = without_recursion(tokens, source)
    try:
        with _quiet(), suppress(SqlglotError):
            trees = Dialect.get_or_raise(DIALECT).parser(error_level=ErrorLevel.IMMEDIATE).parse(kept, source.text)
            if len(trees) == 1 and isinstance(trees[0], exp.Create):
                check_joins(tokens[number:], source)
                return trees[0]
        with _quiet():
            raise mistake(kept[number:], source)
    except RecursionError:
        raise source.error_at(first, "this statement is nested too deeply", "use several views") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """sqlglot logs a warning about a statement that it cannot read, of which we raise an error."""
    logger = logging.getLogger("sqlglot")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _of_tree(source: Source, tree: exp.Create, start: int) -> View:
    if tree.kind != "VIEW" or not isinstance(tree.expression, exp.Query | exp.Values):
        raise source.error(tree, "this view has no query", _FORM)
    kinds = {exp.TemporaryProperty, exp.MaterializedProperty}
    properties = tree.args.get("properties")
    others = [each for each in (properties.expressions if properties else []) if type(each) not in kinds]
    if others or tree.args.get("exists") or tree.args.get("replace"):
        raise source.error(tree, "CREATE VIEW takes a name, columns and a query only", "write CREATE VIEW name AS ...")
    temporary = bool(properties and properties.find(exp.TemporaryProperty))
    target = tree.this
    columns = tuple(target.expressions) if isinstance(target, exp.Schema) else ()
    table = target.this if isinstance(target, exp.Schema) else target
    if table.args.get("db"):
        raise source.error(table, f"{table.sql()}: a view has a plain name", "leave the schema out")
    return View(table.name, columns, tree.expression, temporary, table, start)
