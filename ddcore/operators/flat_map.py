"""``flat_map``: any number of rows from each row, by a list or a function (sources: McSherry 2012, SelectMany)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from ddcore.base.digests import digest
from ddcore.base.errors import ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, parse_schema
from ddcore.base.source_line import caller
from ddcore.data import encoding
from ddcore.expressions.projections import ListProjection
from ddcore.operators import arguments
from ddcore.operators.base import Linear, Needs
from ddcore.operators.calling import Frames, call_checked, checks_functions
from ddcore.operators.function_fingerprint import text_of
from ddcore.traces.batch import Batch
from ddcore.traces.frames import values_of


@dataclass(frozen=True, eq=False)
class Explode(Linear):
    """One row for each element of a list, beside the other columns."""

    name = "flat_map"
    signs = "kept"
    source: Schema
    lists: ListProjection

    @classmethod
    def of(cls, source: Schema, lists: Mapping[str, Any]) -> Explode:
        """The list-valued expressions by the names of their results. Raises ProgramError."""
        exprs = arguments.named_expressions(source, "flat_map", (), lists)
        projection = arguments.checked(ListProjection, exprs, source)
        return cls(projection.schema, digest("lists", arguments.texts(exprs)), source, projection)

    @property
    def carried(self) -> Mapping[str, str]:
        """All columns but the elements."""
        return {name: name for name in self.schema if name not in self.lists.names}

    def needs(self, columns: frozenset[str]) -> Needs:
        """These columns, and those of the lists."""
        return self.text, [columns & {*self.carried} | {*self.lists.columns}]

    def apply(self, batch: Batch, source_line: str) -> Batch:
        """Raises ExpressionError."""
        elements, rows = self.lists.explode(values_of(batch, self.source, self.lists.columns))
        source_rows = batch.take(rows)
        words = dict(zip(self.source, source_rows.words, strict=True))
        words |= {column.name: encoding.encode(column, self.schema[column.name]) for column in elements}
        return source_rows.of([words[name] for name in self.schema])


@dataclass(frozen=True, eq=False)
class FlatMap(Linear):
    """A function from a frame with the columns of ``source`` and ``row`` to a frame with ``row`` and the result's."""

    name = "flat_map"
    signs = "kept"
    source: Schema
    function: Frames
    checked: bool

    @classmethod
    def of(cls, source: Schema, function: Frames, schema: Mapping[str, Any]) -> FlatMap:
        """``schema`` names and types the columns of the result. Raises ProgramError."""
        arguments.require_function(function, "flat_map")
        columns = arguments.checked(parse_schema, schema)
        if "row" in (*source, *columns):
            raise ProgramError(f"{caller()}: flat_map: a column is called row", "rename it with select() first")
        text = digest("function", arguments.checked(text_of, function))
        return cls(columns, text, source, function, checks_functions())

    def apply(self, batch: Batch, source_line: str) -> Batch:
        """The function is called once with the rows of the batch, numbered. Raises ExpressionError."""
        numbers = pl.Series("row", np.arange(len(batch)))
        frame = encoding.decode_frame(batch.words, self.source).insert_column(0, numbers)

        def shown(number: int) -> str:
            return f"the row {frame.drop('row').row(number, named=True)!r}"

        results = call_checked(
            self.function, frame, self.schema, "row", source_line, twice=self.checked, operator="flat_map", shown=shown
        )
        source_rows = batch.take(results["row"].to_numpy())
        return source_rows.of(encoding.encode_frame(results, self.schema))


def flat_map(
    source: Schema, function: Frames | None, schema: Mapping[str, Any] | None, lists: Mapping[str, Any]
) -> Explode | FlatMap:
    """The operator for the arguments of ``flat_map``. Raises ProgramError unless they are of one of the two kinds."""
    if function is None and schema is None and lists:
        return Explode.of(source, lists)
    if function is not None and schema is not None and not lists:
        return FlatMap.of(source, function, schema)
    raise ProgramError(
        f"{caller()}: flat_map takes either one named list expression or a function with schema=",
        'for example flat_map(tag=col("tags").str.split(","))',
    )
