"""Paths: ``after.id`` names the field ``id`` of the struct column ``after``, where no column has exactly that name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["fields_below", "named_again", "picked", "quoted", "roots", "spark_columns", "steps", "type_at"]

Types = Mapping[str, "pl.DataType"]
Steps = tuple[str, ...]


def steps(types: Types, path: str) -> Steps | None:
    """The names of a column and of fields in it that a path stands for; None where there is no such column."""
    return _steps(path, lambda taken: _names(types, taken))


def roots(types: Types, paths: Iterable[str]) -> list[str]:
    """The columns that have these paths, each once."""
    found = (steps(types, path) for path in paths)
    return list(dict.fromkeys(path[0] for path in found if path is not None))


def type_at(types: Types, path: str) -> pl.DataType | None:
    """The type at a path; None where there is no such column."""
    found = steps(types, path)
    if found is None:
        return None
    kind = types[found[0]]
    for step in found[1:]:
        kind = _fields(kind)[step]
    return kind


def fields_below(types: Types, path: str) -> list[str]:
    """The paths of the fields beside one that does not exist, if it is inside a struct column; else the columns."""
    parent = path.rpartition(".")[0]
    found = steps(types, parent) if parent else None
    return [f"{parent}.{name}" for name in _names(types, found)] if found else list(types)


def picked(frame: pl.DataFrame, paths: Collection[str]) -> pl.DataFrame:
    """A frame with these columns: each has its path as its name. A field of a null is null."""
    if all(path in frame.columns for path in paths):
        return frame
    return frame.select(_field(frame.schema, path) for path in paths)


def spark_columns(frame: DataFrame, paths: Iterable[str]) -> list[Column]:
    """Columns of a frame of Spark at these paths, named by numbers; :func:`named_again` gives them their names.

    ``mapInArrow`` resolves names once more, and takes a dot in them for a path.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    def names(taken: Steps) -> list[str]:
        kind = reduce(lambda kind, step: kind[step].dataType, taken, frame.schema)  # type: ignore[arg-type, return-value]
        return kind.names if isinstance(kind, StructType) else []

    found = [_steps(path, names) or (path,) for path in paths]
    return [F.col(".".join(map(quoted, path))).alias(str(number)) for number, path in enumerate(found)]


def named_again(frame: pl.DataFrame, paths: Iterable[str]) -> pl.DataFrame:
    """A frame from :func:`spark_columns` with the paths as names."""
    return frame.rename({str(number): path for number, path in enumerate(paths)})


def _steps(path: str, names: Callable[[Steps], Collection[str]], taken: Steps = ()) -> Steps | None:
    there = names(taken)
    if path in there:
        return (*taken, path)
    for number, character in enumerate(path):
        if character == "." and path[:number] in there:
            found = _steps(path[number + 1 :], names, (*taken, path[:number]))
            if found is not None:
                return found
    return None


def _names(types: Types, taken: Steps) -> Collection[str]:
    if not taken:
        return types
    return _fields(reduce(lambda kind, step: _fields(kind)[step], taken[1:], types[taken[0]]))


def _fields(kind: pl.DataType) -> dict[str, pl.DataType]:
    if not isinstance(kind, pl.Struct):
        return {}
    return {field.name: field.dtype() if isinstance(field.dtype, type) else field.dtype for field in kind.fields}


def _field(types: Types, path: str) -> pl.Expr:
    root, *fields = steps(types, path) or (path,)
    return reduce(lambda value, name: value.struct.field(name), fields, pl.col(root)).alias(path)


def quoted(name: str) -> str:
    """A name in an expression of Spark."""
    return "`" + name.replace("`", "``") + "`"
