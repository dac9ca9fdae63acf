"""Exact decimals in expressions: no digit is lost unless the expression rounds or casts.

Polars computes with 38 digits, yet rounds a product to the larger of the two scales, and compares, clips and fills with
values cast to the scale of the first. Here operands are first cast to a scale at which the operation is exact: a
product has the sum of the two scales, everything else the larger one. Quotients have no such scale and are refused. An
intermediate value of more than 38 digits is an error of its row, and so is a result of more than 18, unless an operand
or the scale says that it has more (:func:`is_wide`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.base.schema import WORD_DIGITS, instance
from ddcore.expressions import syntax, texts
from ddcore.expressions.syntax import Tree

Types = Callable[[list[Tree]], list[pl.DataType]]

_MOST_DIGITS = 38
_PRODUCTS = {"Multiply", "Sql.Mul"}
_QUOTIENTS = {
    "TrueDivide", "FloorDivide", "TruncDivide", "Modulus", "Sql.Div", "Sql.IntDiv", "Sql.Rem", "Pow.Generic",
}  # fmt: skip
_SQL = {  # the product of SQL has a scale of its own
    "Sql.Mul": "Multiply", "Sql.Plus": "Plus", "Sql.Minus": "Minus", "Sql.Eq": "Eq", "Sql.EqMissing": "EqValidity",
    "Sql.Lt": "Lt", "Sql.LtEq": "LtEq", "Sql.Gt": "Gt", "Sql.GtEq": "GtEq",
}  # fmt: skip
_TRUTHS = {*syntax.COMPARISONS, "Boolean.IsIn", "Boolean.IsNull", "Boolean.IsNotNull"}
_ALIKE = {
    *_SQL, *syntax.COMPARISONS, "Plus", "Minus", "Boolean.IsIn", "SumHorizontal", "MaxHorizontal", "MinHorizontal",
    "Clip", "FillNull", "Coalesce", "Choice", "ListExpr.Sum", "ListExpr.Contains", "ListExpr.Concat", "Replace",
    "ReplaceStrict",
}  # fmt: skip


def exact(tree: Tree, types: Types) -> Tree:
    """The tree with every operation on decimals at a scale that loses nothing.

    Raises ProgramError for quotients of decimals, and for products with more than 38 digits after the point.
    """
    if not any(_scale(dtype) is not None for dtype in types([tree, *syntax.every(tree)])):
        return tree
    return syntax.rewrite(tree, lambda node: _exact(node, types))


def is_wide(tree: Tree, types: Types) -> bool:
    """Whether a result may have more than 18 digits: where an operand that it is computed from may. A cast decides by
    itself.
    """
    if not any(_says_wide(node, types) for node in syntax.every(tree)):
        return False

    def wide(node: Tree, parts: list[bool]) -> bool:
        if isinstance(node, syntax.Cast | syntax.Column | syntax.Literal):
            return _says_wide(node, types)
        return syntax.operation(node) not in _TRUTHS and any(parts)

    return syntax.fold(tree, wide)


def _says_wide(node: Tree, types: Types) -> bool:
    match node:
        case syntax.Column():
            return _is_wide_type(types([node])[0])
        case syntax.Cast():
            return _is_wide_type(node.dtype)
        case syntax.Literal("Decimal", (unscaled, _, scale)):
            return bool(max(len(str(abs(unscaled))), scale) > WORD_DIGITS)
        case syntax.Literal("Null", dtype):
            return _is_wide_null(dtype)
    return False


def _is_wide_null(dtype: Any) -> bool:
    """``dtype``: as Polars has it in JSON, such as ``{"List": {"Decimal": [38, 2]}}``."""
    if isinstance(dtype, dict):
        return any(
            digits[0] > WORD_DIGITS if name == "Decimal" else _is_wide_null(digits) for name, digits in dtype.items()
        )
    return isinstance(dtype, list) and any(map(_is_wide_null, dtype))


def _is_wide_type(dtype: pl.DataType) -> bool:
    if isinstance(dtype, pl.Decimal):
        return (dtype.precision or _MOST_DIGITS) > WORD_DIGITS
    inner = element(dtype)
    if inner is not None:
        return _is_wide_type(inner)
    if isinstance(dtype, pl.Struct):
        return any(_is_wide_type(instance(field.dtype)) for field in dtype.fields)
    return False


def element(dtype: pl.DataType) -> pl.DataType | None:
    """The type of the elements of a list; None for any other type."""
    if not isinstance(dtype, pl.List):
        return None
    return instance(dtype.inner)


def _exact(tree: Tree, types: Types) -> Tree:
    """A node made exact whose children are exact already."""
    operation = syntax.operation(tree)
    if operation not in _PRODUCTS | _QUOTIENTS | _ALIKE:
        return tree
    parts = syntax.children(tree)
    dtypes = types(parts)
    if any(_scale(dtype) is not None for dtype in dtypes) and not any(map(_is_float, dtypes, parts)):
        if operation in _QUOTIENTS and all(map(_is_literal_or_whole, dtypes, parts)):
            return syntax.with_children(
                tree, [_in_float(part, dtype) for part, dtype in zip(parts, dtypes, strict=True)]
            )
        parts = [_as_written(part) for part in parts]
        dtypes = types(parts)
        if operation in ("TrueDivide", "Sql.Rem") and all(map(_is_decimal_cast, parts)):
            return tree  # rounded to the scale of the first one, which says how many digits to keep; a rest is exact
        if operation in _QUOTIENTS:
            raise ProgramError(
                f"the expression {texts.display(tree)} would lose digits: it divides decimals or takes a power of one",
                "cast to float64 or int64 first",
            )
        parts = _operands(tree, operation, parts, dtypes)
        return syntax.call(_SQL[operation], *parts) if operation in _SQL else syntax.with_children(tree, parts)
    return tree


def _is_decimal_cast(tree: Tree) -> bool:
    return isinstance(tree, syntax.Cast) and isinstance(tree.dtype, pl.Decimal)


def _operands(tree: Tree, operation: str, parts: list[Tree], dtypes: list[pl.DataType]) -> list[Tree]:
    scales = [_scale(dtype) for dtype in dtypes]
    own = [scale or 0 for scale in scales]
    scale = sum(own) if operation in _PRODUCTS else max(own)
    if scale > _MOST_DIGITS:
        raise ProgramError(
            f"the expression {texts.display(tree)} has {scale} digits after the point, and decimals have at most 38",
            "round() and cast() the factors to fewer digits first",
        )
    if operation == "ReplaceStrict":  # what is looked for must be comparable; the results are of any type
        return [*(_cast(part, dtype, scale) for part, dtype in zip(parts[:2], dtypes, strict=False)), *parts[2:]]
    return [_cast(part, dtype, scale) for part, dtype in zip(parts, dtypes, strict=True)]


def _cast(part: Tree, dtype: pl.DataType, scale: int) -> Tree:
    """A decimal, an integer or a list of them at 38 digits; anything else as it is."""
    inner = element(dtype)
    if inner is not None:
        return syntax.Cast(part, pl.List(pl.Decimal(_MOST_DIGITS, scale))) if _counts(inner) else part
    return syntax.Cast(part, pl.Decimal(_MOST_DIGITS, scale)) if _counts(dtype) else part


def _counts(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or isinstance(dtype, pl.Decimal)


def _scale(dtype: pl.DataType) -> int | None:
    inner = element(dtype)
    if inner is not None:
        return _scale(inner)
    return dtype.scale if isinstance(dtype, pl.Decimal) else None


def _is_float(dtype: pl.DataType, part: Tree) -> bool:
    """Whether a part is a float whose digits are not written in the expression."""
    return dtype.is_float() and _as_written(part) is part


def _is_literal_or_whole(dtype: pl.DataType, part: Tree) -> bool:
    return dtype.is_integer() or isinstance(part, syntax.Literal)


def _in_float(part: Tree, dtype: pl.DataType) -> Tree:
    """A decimal as a float: SQL text reads 2.5 as a decimal, but ``a / 2.5`` has no digits to keep."""
    return syntax.Cast(part, pl.Float64()) if isinstance(dtype, pl.Decimal) else part


def _as_written(part: Tree) -> Tree:
    """A float literal as the decimal it is written as, which is what SQL text takes it for; anything else as it is."""
    match part:
        case syntax.Literal("Float" | "Float64", float(value)) if math.isfinite(value):
            written = Decimal(repr(value))
            scale = max(-int(written.as_tuple().exponent), 0)
            if scale <= _MOST_DIGITS // 2 and abs(written) < 10 ** (_MOST_DIGITS // 2):
                unscaled = int(written.scaleb(scale))
                return syntax.Literal("Decimal", (unscaled, _MOST_DIGITS, scale))
    return part
