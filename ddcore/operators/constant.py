"""``dd.constant``: a collection whose rows the program spells out. They enter a dataflow once, at its least time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from ddcore.base.digests import digest
from ddcore.base.errors import DataError, ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Type, check_pattern, type_of
from ddcore.base.source_line import caller
from ddcore.data.casts import InexactCast, exact_cast
from ddcore.data.encoding import encode, encode_frame
from ddcore.operators.base import Operator
from ddcore.traces.batch import Batch
from ddcore.traces.frames import check_column


@dataclass(frozen=True, eq=False)
class Constant(Operator):
    """Rows that are there at every version. As values: words of text are valid in one process only."""

    name = "constant"
    signs = "positive"
    rows: pl.DataFrame

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Constant:
        """With the rows of a frame. Raises ProgramError for types and values that no collection holds."""
        where = f"{caller()}: constant"
        schema = {name: type_of(dtype, f"{where}: column {name}") for name, dtype in frame.schema.items()}
        rows = pl.DataFrame([_column(frame[name], kind, where) for name, kind in schema.items()])
        # Without an order: a program is not another one when its rows are.
        return cls(schema, digest(sorted(map(repr, rows.iter_rows()))), rows)

    def batch(self, time: Sequence[int]) -> Batch:
        """The rows as updates at this time."""
        number = len(self.rows)
        times = [np.full(number, coordinate, dtype=np.int64) for coordinate in time]
        return Batch(encode_frame(self.rows, self.schema), times, np.ones(number, dtype=np.int64))


def _column(column: pl.Series, kind: Type, where: str) -> pl.Series:
    """A column in the type that collections have. Raises ProgramError for a value that it does not hold."""
    try:
        check_pattern(column.name)
        check_column(column, kind, where)
        exact = exact_cast(column, kind) if column.dtype != kind.polars else column
        if not kind.is_pooled:
            encode(exact, kind)
    except (DataError, ProgramError) as error:
        message = error.message.removeprefix(f"{where}: ")
        raise ProgramError(f"{where}: {message}", error.hint) from None
    except InexactCast as error:
        raise ProgramError(f"{where}: column {column.name}{error.path} {error}", "cast it first") from None
    return exact
