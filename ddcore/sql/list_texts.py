"""Lists as text, as each dialect writes them."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from ddcore.base.schema import Type
from ddcore.sql.source import DIALECT

_PLAIN = ("string", "int64", "bool", "decimal", "date", "uuid")
"""The kinds of elements whose text the dialects write alike, but for quotes."""
_QUOTED = {DIALECT: r'[{}",\\ \t\n\r\x0B\x0C]', "duckdb": r"""['"\\()\[\]{},:;=\t\n\r]|^\s|\s$"""}


def list_text(dialect: str, element: Type) -> Callable[[pl.Expr], pl.Expr] | None:
    """What makes the text of a list with elements of this type: ``{a,"b c",NULL}`` in PostgreSQL, ``[a, b c, NULL]`` in
    DuckDB, ``[a, b c, null]`` in Spark. None where the dialect has another form for such elements.
    """
    if element.name not in _PLAIN or (element.name == "decimal" and dialect == DIALECT):
        return None  # in PostgreSQL each decimal of a list has digits of its own
    text = pl.element().cast(pl.String)
    if element.name == "bool" and dialect == DIALECT:
        text = pl.when(pl.element()).then(pl.lit("t")).when(pl.element().is_not_null()).then(pl.lit("f"))
    if element.name == "string" and dialect in _QUOTED:
        text = _quoted(text, dialect)
    null = "NULL" if dialect in _QUOTED else "null"
    between, (start, end) = ("," if dialect == DIALECT else ", "), ("{}" if dialect == DIALECT else "[]")
    items = pl.when(pl.element().is_null()).then(pl.lit(null)).otherwise(text)
    return lambda some: pl.lit(start) + some.list.eval(items).list.join(between) + pl.lit(end)


def _quoted(text: pl.Expr, dialect: str) -> pl.Expr:
    """A text in quotes where it could be read as something else."""
    quote = '"' if dialect == DIALECT else "'"
    escaped = text.str.replace_all("\\", "\\\\", literal=True).str.replace_all(quote, f"\\{quote}", literal=True)
    is_odd = (text == "") | (text.str.to_lowercase() == "null") | text.str.contains(_QUOTED[dialect])
    return pl.when(is_odd).then(pl.lit(quote) + escaped + pl.lit(quote)).otherwise(text)
