"""The columns that an expression stands for: ``*``, ``pl.all()``, ``pl.exclude``, regular expressions,
``cs.numeric()``.

Polars resolves each selector against the schema, and names the results. What is left to do here is to put the columns
into the expression, as Polars does: an expression per column; several selectors side by side; but functions that take
any number of columns, such as ``pl.sum_horizontal``, take them all.
"""

from __future__ import annotations

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.base.schema import Schema
from ddcore.expressions import polars_json, syntax, texts, vocabulary
from ddcore.expressions.syntax import Tree
from ddcore.text.wording import one_line


def expand(expr: pl.Expr, schema: Schema) -> dict[str, pl.Expr]:
    """The expressions that ``expr`` stands for over rows of ``schema``, each of one value, by the names of results.

    Empty where a selector matches nothing. Raises ProgramError where Polars does, and where two have one name.
    """
    tree = polars_json.read(expr)
    if not selects(expr):
        return {_output_name(expr, tree): expr}
    frame = _frame(schema)
    names = _names(expr, frame)
    parts = [polars_json.build(column) for column in _expand(tree, frame)]
    if names != [name for part in parts for name in _names(part, frame)]:
        raise ProgramError(
            f"{texts.display(tree)} may name any number of columns, and in this place it is not known which",
            "name each column by itself",
        )
    return dict(zip(names, parts, strict=True))


def selects(expr: pl.Expr) -> bool:
    """Whether ``expr`` may stand for any number of columns."""
    return any(map(syntax.is_selector, syntax.walk(polars_json.read(expr))))


def column_names(expr: pl.Expr, schema: Schema) -> list[str] | None:
    """The columns that ``expr`` names, or None where it computes or renames anything."""
    tree = polars_json.read(expr)
    if isinstance(tree, syntax.Column):
        return [tree.name]
    return list(expand(expr, schema)) if syntax.is_selector(tree) else None


def _expand(tree: Tree, frame: pl.LazyFrame) -> list[Tree]:
    """The tree once for each column that its selectors stand for."""
    if syntax.is_selector(tree):
        return [syntax.Column(name) for name in _names(polars_json.build(tree), frame)]
    parts = [_expand(child, frame) for child in syntax.children(tree)]
    if all(len(part) == 1 for part in parts):
        return [syntax.with_children(tree, [part[0] for part in parts])]
    if syntax.is_function(tree) and len(_names(polars_json.build(tree), frame)) == 1:
        return [syntax.with_children(tree, [column for part in parts for column in part])]
    width = max(map(len, parts)) if all(parts) else 0
    rows = [[part[position if len(part) > 1 else 0] for part in parts] for position in range(width)]
    return [syntax.with_children(tree, row) for row in rows]


def _frame(schema: Schema) -> pl.LazyFrame:
    return pl.LazyFrame(schema={name: kind.polars for name, kind in schema.items()})


def _names(expr: pl.Expr, frame: pl.LazyFrame) -> list[str]:
    try:
        return frame.select(expr).collect_schema().names()
    except pl.exceptions.PolarsError as error:
        raise ProgramError(one_line(error).partition(" Resolved plan")[0], "name each column by itself") from None


def _output_name(expr: pl.Expr, tree: Tree) -> str:
    try:
        return expr.meta.output_name()
    except pl.exceptions.PolarsError as error:
        vocabulary.check(tree)  # report an unsupported function first, for example a sum of a selector
        raise ProgramError(one_line(error), "give the result a name: name=expression") from None
