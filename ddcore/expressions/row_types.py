"""The types of expressions over the rows of a schema, as Polars gives them, and as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.base.schema import WORD_DIGITS, Schema, Type, instance, type_of
from ddcore.expressions import decimals, polars_json, syntax, texts
from ddcore.expressions.exactness import DEEPEST_LITERAL
from ddcore.expressions.failures import FAILURES, reason_of
from ddcore.expressions.syntax import Tree

_SCALARS: dict[str, pl.DataType] = {kind.__name__: kind() for kind in (pl.Int64, pl.Float64, pl.Boolean, pl.String)}
"""The types of literals that have one, by the names that Polars writes."""


class RowTypes:
    """The types of trees over rows of one schema, according to Polars for a frame without rows.

    The type of a node follows from those of its children, for which columns of these types stand in, so the cost is
    linear in the nodes. Only literals whose type Polars chooses by their neighbours stay in their places.
    """

    def __init__(self, schema: Mapping[str, pl.DataType]) -> None:
        self._schema = schema
        self._known: dict[int, tuple[Tree, pl.DataType]] = {}  # the tree keeps its identity from being used again
        self._constant: set[int] = set()
        self._untyped: set[int] = set()

    def __call__(self, trees: list[Tree]) -> list[pl.DataType]:
        """The types of the trees. Raises ProgramError where types do not meet."""
        return [self._type(tree, trees[0]) for tree in trees]

    def _type(self, tree: Tree, whole: Tree) -> pl.DataType:
        if id(tree) not in self._known:
            for node in syntax.nodes(tree, self._unknown):
                self._known[id(node)] = node, self._found(node, whole)
        return self._known[id(tree)][1]

    def _unknown(self, node: Tree) -> list[Tree]:
        return [child for child in syntax.children(node) if id(child) not in self._known]

    def _found(self, node: Tree, whole: Tree) -> pl.DataType:
        inner = syntax.children(node)
        if isinstance(node, syntax.Column):
            return self._schema[node.name]
        if isinstance(node, syntax.Literal) and node.is_typed and node.dtype in _SCALARS:
            self._constant.add(id(node))
            return _SCALARS[node.dtype]
        if all(id(child) in self._constant for child in inner):
            self._constant.add(id(node))
        if syntax.is_untyped(node, self._untyped):
            self._untyped.add(id(node))
        dtypes = [self._known[id(child)][1] for child in inner]
        try:
            shallow, schema = self._shallow(node, inner, dtypes)
            dtype = _dtype_of(shallow, tuple(schema.items()))
        except FAILURES as failure:
            raise ProgramError(
                f"{texts.display(whole)}: {self._reason(whole, failure)}", "cast so that the types meet"
            ) from None
        if syntax.operation(node) in ("Boolean.IsIn", "Sql.IsIn"):
            self._require_list(node, inner[1:], dtypes[1:])
        return dtype

    def _shallow(self, node: Tree, inner: list[Tree], dtypes: list[pl.DataType]) -> tuple[str, dict[str, pl.DataType]]:
        """The node with columns in place of its children, and their types."""
        schema: dict[str, pl.DataType] = {}
        stand_ins = []
        for number, (child, dtype) in enumerate(zip(inner, dtypes, strict=True)):
            name: str | None = f"={number}"
            if syntax.operation(node) == "AsStruct":
                name = syntax.result_name(child)
            stays = id(child) in self._untyped or (id(child) in self._constant and not syntax.is_operator(node))
            stays = stays and polars_json.depth(child) <= DEEPEST_LITERAL
            if stays or name is None or name in schema:
                schema |= {column: self._schema[column] for column in syntax.columns(child)}
                stand_ins.append(child)
            else:
                schema[name] = dtype
                stand_ins.append(syntax.Column(name))
        return polars_json.lowered(syntax.with_children(node, stand_ins)), schema

    def _reason(self, whole: Tree, failure: BaseException) -> str:
        """What Polars says of the whole expression, where it can read that: its message names the columns."""
        if polars_json.depth(whole) > polars_json.DEEPEST:
            return reason_of(failure)
        try:
            _collected(polars_json.build(whole), pl.LazyFrame(schema=self._schema))
        except FAILURES as better:
            return reason_of(better)
        return reason_of(failure)

    def _require_list(self, tree: Tree, members: list[Tree], dtypes: list[pl.DataType]) -> None:
        """Raises ProgramError for membership in a column, which depends on the batch; lists and values are allowed."""
        for values, dtype in zip(members, dtypes, strict=True):
            if not dtype.is_nested() and id(values) not in self._constant:
                raise ProgramError(
                    f"{texts.display(tree)} asks about a whole column", "give values or a list column, or use join"
                )

    def inside(self, dtype: pl.DataType) -> RowTypes:
        """The types for the elements of a list of ``dtype``, which are a column whose name is empty."""
        return RowTypes({"": dtype})


@lru_cache(maxsize=4096)
def _dtype_of(shallow: str, schema: tuple[tuple[str, pl.DataType], ...]) -> pl.DataType:
    return _collected(polars_json.expression(shallow), pl.LazyFrame(schema=dict(schema)))


def _collected(expr: pl.Expr, frame: pl.LazyFrame) -> pl.DataType:
    """The type of an expression. Raises Polars' error where types do not meet, also in a comparison, which the types
    alone do not tell; other failures without rows mean nothing.
    """
    selected = frame.select(expr.alias("x"))
    (dtype,) = selected.collect_schema().dtypes()
    try:
        selected.collect()
    except FAILURES as failure:
        if reason_of(failure).startswith("cannot compare"):
            raise
    return dtype


def typing_of(schema: Schema) -> RowTypes:
    """The types of trees over rows of a collection's schema."""
    return RowTypes({name: kind.polars for name, kind in schema.items()})


def result_type(dtype: pl.DataType, tree: Tree, types: RowTypes) -> Type:
    """The type of a result. Polars computes decimals with 38 digits: without any that has more than 18 among the
    operands, those become 18, checked when they are computed.
    """
    if dtype == pl.Null():
        raise ProgramError(
            f"{texts.display(tree)} is null and has no type", "cast it, for example pl.lit(None, dtype=pl.Int64)"
        )
    try:
        return type_of(dtype if decimals.is_wide(tree, types) else _fewer_digits(dtype))
    except ProgramError as error:
        raise ProgramError(f"{texts.display(tree)}: {error.message}", error.hint) from None


def _fewer_digits(dtype: pl.DataType) -> pl.DataType:
    """The type with decimals of 18 digits at most, also inside lists and structs, where their scale allows that."""
    inner = decimals.element(dtype)
    if inner is not None:
        return pl.List(_fewer_digits(inner))
    if isinstance(dtype, pl.Struct):
        return pl.Struct([pl.Field(field.name, _fewer_digits(instance(field.dtype))) for field in dtype.fields])
    if isinstance(dtype, pl.Decimal) and (dtype.precision or 38) > WORD_DIGITS >= dtype.scale:
        return pl.Decimal(WORD_DIGITS, dtype.scale)
    return dtype
