"""The arguments of operators: expressions, columns and functions as programs give them, checked against a schema.

Every error is a ProgramError that begins with the line of the user's program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import polars as pl

from ddcore.base.digests import Digested, Part, digest
from ddcore.base.errors import ProgramError
from ddcore.base.schema import Schema, check_pattern
from ddcore.base.source_line import caller
from ddcore.expressions import canonical, parsing, selection
from ddcore.text.wording import brief, listed, meant, one_line

_T = TypeVar("_T")


def checked(check: Callable[..., _T], *arguments: Any, **named: Any) -> _T:
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


def kept(schema: Iterable[str]) -> dict[str, pl.Expr]:
    """Every column as it is."""
    return {name: _column(name) for name in schema}


@lru_cache(maxsize=16_384)
def _column(name: str) -> pl.Expr:
    """A column by its name: what is read of one expression is known for all that use it."""
    return pl.col(name)


def named_expressions(
    schema: Schema, where: str, columns: Iterable[Any], named: Mapping[str, Any]
) -> dict[str, pl.Expr]:
    """The expressions that arguments stand for, by the names of their results."""
    exprs: dict[str, pl.Expr] = {}
    for column in flat(columns):
        if isinstance(column, str) and column in schema:
            set_once(exprs, column, _column(column), where)
            continue
        parsed = checked(parsing.parse, column, bare_string="column")
        for name, expr in checked(selection.expand, parsed, schema).items():
            set_once(exprs, name, expr, where)
    for name, value in named.items():
        checked(check_pattern, name)
        if isinstance(value, pl.Expr) and value.meta.is_column():
            set_once(exprs, name, value, where)
            continue
        parsed = checked(parsing.parse, value, bare_string="sql")
        expr = single(schema, parsed, f"{where}({name}=...)", "give the columns without a name")
        set_once(exprs, name, expr, where)
    return exprs


def single(schema: Schema, expr: pl.Expr, where: str, hint: str) -> pl.Expr:
    """The one expression that ``expr`` stands for. Raises ProgramError where there are more, or none."""
    if not checked(selection.selects, expr):
        return expr
    exprs = checked(selection.expand, expr, schema)
    if len(exprs) != 1:
        raise ProgramError(
            f"{caller()}: {where}: one expression is wanted, and this one stands for {len(exprs)} columns:"
            f" {listed(exprs)}",
            hint,
        )
    return next(iter(exprs.values()))


def column_names(schema: Schema, where: str, columns: Iterable[Any]) -> list[str]:
    """Columns by name or selector, each once. Raises ProgramError for others."""
    names: list[str] = []
    for column in flat(columns):
        parsed = checked(parsing.parse, column, bare_string="column")
        selected = checked(selection.column_names, parsed, schema)
        if selected is None:
            raise ProgramError(
                f"{caller()}: {where}: {' '.join(str(column).split()):.60} is no column",
                "compute it first, with with_columns()",
            )
        for name in selected:
            require(schema, name, where)
            if name in names:
                raise ProgramError(f"{caller()}: {where}: {name} is named twice", "name each column once")
            names.append(name)
    return names


def require(schema: Schema, name: str, where: str) -> None:
    """Raises ProgramError if there is no such column."""
    if name not in schema:
        raise ProgramError(
            f"{caller()}: {where}: there is no column {name}; there are {', '.join(schema)}",
            meant(name, schema) or "name one of these",
        )


def require_function(function: Any, where: str, wanted: str = "a function") -> None:
    """Raises ProgramError for what cannot be called."""
    if not callable(function):
        raise ProgramError(f"{caller()}: {where} takes {wanted}, not {type(function).__name__}", f"give it {wanted}")


def choice(value: Any, options: Sequence[str], where: str) -> str:
    """The value, if it is one of the options. Raises ProgramError for others."""
    if not isinstance(value, str) or value not in options:
        raise ProgramError(f"{caller()}: {where} is {brief(value)}", f"give one of {', '.join(options)}")
    return value


def flag(value: Any, where: str) -> bool:
    """The value, if it is true or false. Raises ProgramError for others."""
    if not isinstance(value, bool):
        raise ProgramError(f"{caller()}: {where} is {brief(value)}", "give True or False")
    return value


def names_of(value: Any, where: str) -> list[str]:
    """One name, or several in order. Raises ProgramError for what is not text, and for sets, which have no order."""
    several = isinstance(value, Iterable) and not isinstance(value, str | bytes | set | frozenset)
    names = list(value) if several else [value]
    for name in names:
        if not isinstance(name, str):
            raise ProgramError(
                f"{caller()}: {where}: {brief(name)} is no column's name", "give a name as text, or a list of names"
            )
    return names


def set_once(exprs: dict[str, pl.Expr], name: str, expr: pl.Expr, where: str) -> None:
    """Set ``exprs[name]``. Raises ProgramError if there is one."""
    if name in exprs:
        raise ProgramError(f"{caller()}: {where}: two columns are called {name}", "name one of them otherwise")
    exprs[name] = expr


def flat(values: Iterable[Any]) -> Iterator[Any]:
    """Arguments one by one: lists and tuples of them are allowed, as in Polars."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from flat(value)
        else:
            yield value


def texts(exprs: Mapping[str, pl.Expr]) -> list[Part]:
    """Named expressions as parts of a digest."""
    return [[name, canonical.identity(expr)] for name, expr in exprs.items()]


def texts_by_name(exprs: Mapping[str, pl.Expr], columns: Mapping[str, str]) -> dict[str, Digested]:
    """The digest of each of some named expressions, as what it adds to others; ``columns``: those that are bare
    columns, and of what name.
    """
    return {name: _bare(name, columns[name]) if name in columns else _digested(name, exprs[name]) for name in exprs}


@lru_cache(maxsize=65_536)
def _bare(name: str, column: str) -> Digested:
    return _digested(name, pl.col(column))


def _digested(name: str, expr: pl.Expr) -> Digested:
    return Digested.of_text(digest([name, canonical.identity(expr)]))


def shown(schema: Schema) -> str:
    """A schema as messages have it."""
    return "(" + ", ".join(f"{name}: {kind}" for name, kind in schema.items()) + ")"
