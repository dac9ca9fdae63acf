"""Lists, structs and maps as Polars series: taken apart into the columns inside them, and put together again.

A column inside is named by its path, ``address.zip`` or ``tags[]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Type


def lengths(series: pl.Series) -> np.ndarray:
    """The number of elements of each list, or of entries of each map, 0 for null: int64[n]."""
    if isinstance(series.dtype, pl.Map):
        series = entries(series)
    return series.list.len().fill_null(0).cast(pl.Int64).to_numpy()


def parts(series: pl.Series, kind: Type) -> Iterator[tuple[pl.Series, Type]]:
    """The columns inside a list, struct or map column, named by path, with their types.

    That of a list has the elements of all lists, and those of a map the keys and the values of all entries. Those of a
    struct are in the order of ``kind``, null where it is null.
    """
    path = series.name
    if kind.name == "map":
        listed = entries(series)
        series = listed.filter(listed.is_not_null()).explode(empty_as_null=False, keep_nulls=False)
    if kind.element is not None:
        elements = series.filter(series.is_not_null()).explode(empty_as_null=False, keep_nulls=False)
        yield elements.alias(path + kind.inner[0][0]), kind.element
        return
    for (name, inner), (suffix, _) in zip(kind.fields, kind.inner, strict=True):
        yield series.struct.field(name).alias(path + suffix), inner


def map_inside(series: pl.Series, kind: Type, function: Callable[[pl.Series, Type], pl.Series]) -> pl.Series:
    """The column with every column of plain values inside it replaced by ``function`` of it and its type.

    ``series`` has the structure of ``kind``; the order of fields may differ.
    """
    if not kind.is_nested:
        return function(series, kind)
    return together(series, kind, [map_inside(part, inner, function) for part, inner in parts(series, kind)])


def together(series: pl.Series, kind: Type, inside: Sequence[pl.Series]) -> pl.Series:
    """A column of lists, structs or maps like ``series``, with other columns inside, in the order of :func:`parts`."""
    valid = series.is_not_null().to_numpy() if series.null_count() else None
    if kind.element is not None:
        return lists(inside[0], lengths(series), valid).alias(series.name)
    columns = dict(zip(dict(kind.fields), inside, strict=True))
    if kind.name != "map":
        return structs(columns, valid).alias(series.name)
    listed = lists(structs(columns, None), lengths(series), valid)
    return listed.cast(pl.Map(*(column.dtype for column in inside))).alias(series.name)


def entries(series: pl.Series) -> pl.Series:
    """The entries of maps, as lists of structs of ``key`` and ``value``."""
    if not isinstance(series.dtype, pl.Map):
        return series
    return series.cast(pl.List(pl.Struct({"key": series.dtype.key, "value": series.dtype.value})))


def lists(elements: pl.Series, lengths: np.ndarray, valid: np.ndarray | None) -> pl.Series:
    """Lists of these lengths, null where not ``valid`` (bool[n]; the length there is 0)."""
    import pyarrow as pa

    ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])
    mask = None if valid is None else pa.array(~valid)
    return _series(pa.LargeListArray.from_arrays(pa.array(ends), elements.to_arrow(), mask=mask))


def structs(fields: Mapping[str, pl.Series], valid: np.ndarray | None) -> pl.Series:
    """Structs of these fields, null where not ``valid`` (bool[n])."""
    import pyarrow as pa

    mask = None if valid is None else pa.array(~valid)
    columns = [column.to_arrow() for column in fields.values()]
    return _series(pa.StructArray.from_arrays(columns, names=list(fields), mask=mask))


def _series(array: Any) -> pl.Series:
    series = pl.from_arrow(array)
    assert isinstance(series, pl.Series)
    return series
