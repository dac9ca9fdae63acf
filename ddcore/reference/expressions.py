"""Expressions, evaluated by Polars on each distinct row by itself, with every digit of a decimal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import polars as pl

from ddcore.expressions import polars_json, syntax, texts
from ddcore.expressions.syntax import Cast, Choice, Literal, Tree
from ddcore.reference.parts import Parts, is_large
from ddcore.reference.types import UUID, instance


def names_of(keys: Any) -> list[str]:
    """One name or several as a list."""
    return [keys] if isinstance(keys, str) else list(keys)


def values_of(frame: pl.DataFrame, exprs: Mapping[str, pl.Expr | Tree]) -> pl.DataFrame:
    """The values of ``exprs`` beside ``_row``. Where floats are divided, each row is a frame of its own.

    In a frame of several rows Polars divides floats by a literal through its reciprocal, which rounds twice. What is
    given as a tree is computed by its parts.
    """
    whole = {name: expr for name, expr in exprs.items() if isinstance(expr, pl.Expr)}
    trees = {name: tree for name, tree in exprs.items() if not isinstance(tree, pl.Expr)}
    if trees:
        rows, types = [frame[row : row + 1] for row in range(len(frame))] or [frame], Parts(frame.clear())
        return pl.concat([_values_of_row(row, whole, trees, types).select("_row", *exprs) for row in rows])
    nodes = [node for expr in whole.values() for node in syntax.walk(polars_json.read(expr))]
    names = {*map(syntax.operation, nodes)}
    floats = any(dtype.is_float() for dtype in frame.dtypes) or any(map(_is_float, nodes))
    divides = names & {"TrueDivide", "Sql.Div", "Eval"} or (floats and names & _QUOTIENTS_OF_FLOATS)
    if not divides or not len(frame):
        return frame.select("_row", **whole)
    return pl.concat([frame[row : row + 1].select("_row", **whole) for row in range(len(frame))])


def _values_of_row(
    row: pl.DataFrame, whole: Mapping[str, pl.Expr], trees: Mapping[str, Tree], types: Parts
) -> pl.DataFrame:
    parts = Parts(row, types)
    return row.select("_row", **whole).with_columns(**{name: parts(tree) for name, tree in trees.items()})


def _is_float(node: Tree) -> bool:
    return node.dtype.is_float() if isinstance(node, Cast) else isinstance(node, Literal) and "Float" in node.dtype


def named_expressions(plain: Iterable[pl.Expr], exprs: Mapping[str, Any]) -> dict[str, pl.Expr]:
    """The expressions of a ``select`` by the names of their results."""
    return {expr.meta.output_name(): expr for expr in plain} | {name: expression_of(e) for name, e in exprs.items()}


def expression_of(value: Any) -> pl.Expr:
    """An expression as it is, a string as SQL, anything else as a literal; integer literals are int64."""
    if isinstance(value, pl.Expr):
        return value
    if isinstance(value, str):
        return pl.sql_expr(value)
    return pl.lit(value, dtype=pl.Int64) if isinstance(value, int) and not isinstance(value, bool) else pl.lit(value)


_QUOTIENTS_OF_FLOATS = {"FloorDivide", "TruncDivide", "Modulus", "Sql.IntDiv", "Sql.Rem"}


_QUOTIENTS = {"TrueDivide", "FloorDivide", "TruncDivide", "Modulus", "Pow", "Div", "IntDiv", "Rem"}


_SIGNS_OF_SQL = {
    "Mul": "Multiply", "Plus": "Plus", "Minus": "Minus", "Eq": "Eq", "EqMissing": "EqValidity",
    "Lt": "Lt", "LtEq": "LtEq", "Gt": "Gt", "GtEq": "GtEq",
}  # fmt: skip


_OF_ONE_SCALE = {
    *_SIGNS_OF_SQL.values(), "NotEq", "NotEqValidity", "IsBetween", "IsIn", "SumHorizontal", "MaxHorizontal",
    "MinHorizontal", "Clip", "FillNull", "Coalesce", "Choice", "ListExpr", "Replace", "ReplaceStrict",
}  # fmt: skip


def in_full(expr: pl.Expr, frame: pl.DataFrame) -> pl.Expr | Tree:
    """The expression with every digit of its decimals, where Polars by itself rounds to a scale of one operand.

    ``frame`` has the columns and no rows. A product has the sum of the scales, everything else the largest of them.
    One that is too large for Polars to read is a tree.
    """
    tree, types = polars_json.read(expr), Parts(frame)
    full = syntax.rewrite(tree, lambda node: node.args[0] if syntax.operation(node) == "Extension.To" else node)  # type: ignore[union-attr]
    if "decimal" in f"{texts.text(full)}{[frame.schema[name] for name in syntax.columns(full)]}".lower():
        full = syntax.fold(full, lambda node, parts: _written_out(node, parts, types))
    elif full is tree:
        return expr
    return full if is_large(full) else polars_json.build(full)


def is_uuid(expr: pl.Expr, columns: Mapping[str, pl.DataType]) -> bool:
    """Whether the values are UUIDs: a column of them, or what is marked so."""
    tree = syntax.bare(polars_json.read(expr))
    if isinstance(tree, syntax.Column):
        return columns[tree.name] == UUID
    return syntax.operation(tree) == "Extension.To" and '"ddcore.uuid"' in texts.text(tree)


def is_wide(expr: pl.Expr, frame: pl.DataFrame) -> bool:
    """Whether a result has more than 18 digits if it is a decimal: something that it is computed from has."""

    def wide(node: Tree, parts: list[bool]) -> bool:
        if isinstance(node, Cast):
            return _has_wide(node.dtype)
        if isinstance(node, Literal):
            if node.dtype == "Null":
                return _has_wide(pl.select(polars_json.build(node)).dtypes[0])
            return node.dtype == "Decimal" and (abs(node.value[0]) >= 10**18 or node.value[2] > 18)
        if isinstance(node, syntax.Column):
            return _has_wide(frame.schema[node.name])
        family, _, name = syntax.operation(node).rpartition(".")
        return not {family, _SIGNS_OF_SQL.get(name, name)} & _TRUTHS and any(parts)

    return syntax.fold(polars_json.read(expr), wide)


def _has_wide(dtype: Any) -> bool:
    if isinstance(dtype, pl.Struct):
        return any(_has_wide(field.dtype) for field in dtype.fields)
    return (
        _has_wide(dtype.inner) if isinstance(dtype, pl.List) else isinstance(dtype, pl.Decimal) and dtype.precision > 18
    )


_TRUTHS = {
    "Eq", "NotEq", "Lt", "LtEq", "Gt", "GtEq", "EqValidity", "NotEqValidity", "IsBetween", "IsIn", "IsNull",
    "IsNotNull",
}  # fmt: skip


def _written_out(node: Tree, parts: list[Tree], types: Parts) -> Tree:
    """An operation whose parts are written out already."""
    family, _, name = syntax.operation(node).rpartition(".")
    names = {family, _SIGNS_OF_SQL.get(name, name) if family == "Sql" else name}
    if not names & (_OF_ONE_SCALE | _QUOTIENTS):
        return syntax.with_children(node, parts)
    if name in ("TrueDivide", "Rem") and all(isinstance(part, Cast) and part.dtype.is_decimal() for part in parts):
        return syntax.with_children(node, parts)  # rounded to the scale of the first one
    first = 1 if isinstance(node, Choice) else 0  # the predicate
    operands = _operands(names, parts[first:], types)
    if family == "Sql" and names & {*_SIGNS_OF_SQL.values()} and operands != parts and not names & _QUOTIENTS:
        return syntax.call(_SIGNS_OF_SQL[name], *operands)
    return syntax.with_children(node, parts[:first] + operands)


def _operands(names: set[str], operands: list[Tree], types: Parts) -> list[Tree]:
    """Decimals, and the numbers beside them, at one scale; those of a quotient in floating point."""
    dtypes = [_value_type(operand, types) for operand in operands]
    columns = [
        dtype.is_float() and not isinstance(operand, Literal) for operand, dtype in zip(operands, dtypes, strict=True)
    ]
    if any(columns) or not any(isinstance(dtype, pl.Decimal) for dtype in dtypes):
        return operands
    if names & _QUOTIENTS:
        return [Cast(operand, pl.Float64()) for operand in operands]
    operands = [_as_decimal(operand) if d.is_float() else operand for operand, d in zip(operands, dtypes, strict=True)]
    dtypes = [_value_type(operand, types) for operand in operands]
    scales = [dtype.scale if isinstance(dtype, pl.Decimal) else 0 for dtype in dtypes]
    kind = pl.Decimal(38, sum(scales) if "Multiply" in names else max(scales))
    for number, (given, dtype) in enumerate(zip(operands, dtypes, strict=True)):
        if (dtype.is_integer() or dtype.is_decimal()) and not ("ReplaceStrict" in names and number > 1):
            nested = types(given).dtype == pl.List
            operands[number] = Cast(given, pl.List(kind) if nested else kind)
    return operands


def _value_type(node: Tree, types: Parts) -> pl.DataType:
    """The type of a value, or of the elements of a list."""
    dtype = types(node).dtype
    return instance(dtype.inner) if isinstance(dtype, pl.List) else dtype


def _as_decimal(literal: Tree) -> Tree:
    """A float literal as the decimal that it is written as, if it has at most 19 digits on each side of the point."""
    value = Decimal(repr(pl.select(polars_json.build(literal)).item()))
    if not value.is_finite():
        return literal
    scale = max(-int(value.as_tuple().exponent), 0)
    if scale > 19 or abs(value) >= 10**19:
        return literal
    return Literal("Decimal", (int(value.scaleb(scale)), 38, scale))
