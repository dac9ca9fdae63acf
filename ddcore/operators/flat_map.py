"""``flat_map``: any number of rows from each row, by a list or by a user's function (the patent's SelectMany)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from ddcore import encoding
from ddcore.batch import Batch
from ddcore.expressions import ListProjection
from ddcore.frames import values_of
from ddcore.operators.base import Linear
from ddcore.operators.calling import Frames, call
from ddcore.schema import Schema

__all__ = ["Explode", "FlatMap"]


@dataclass(frozen=True, eq=False)
class Explode(Linear):
    """One row for each element of a list, beside the other columns."""

    name = "flat_map"
    source: Schema
    lists: ListProjection

    def apply(self, batch: Batch, place: str) -> Batch:
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
    source: Schema
    function: Frames

    def apply(self, batch: Batch, place: str) -> Batch:
        """The function is called once with the rows of the batch, numbered. Raises ExpressionError."""
        numbers = pl.Series("row", np.arange(len(batch)))
        frame = encoding.decode_frame(batch.words, self.source).insert_column(0, numbers)
        results = call(self.function, frame, self.schema, "row", place)
        source_rows = batch.take(results["row"].to_numpy())
        return source_rows.of(encoding.encode_frame(results, self.schema))
