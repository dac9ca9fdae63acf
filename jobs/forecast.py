"""What a changed program will change in the present contents of outputs, before it is run.

The program is evaluated from nothing on the inputs as of the last folded version, as ``dd verify`` does it, and
compared with what the outputs hold. It takes no lock and writes nothing into the warehouse.
"""

from __future__ import annotations

import time as clock
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import polars as pl

from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.frontiers import corners
from ddcore.io.project.stored_columns import widened, widens
from ddcore.io.project.times import Time
from ddcore.io.reading.folded import row_schema
from ddcore.jobs.verify import Verification
from ddcore.program.data_tests import is_test


@dataclass(frozen=True)
class OutputRows:
    """The rows that an output gains and loses: distinct rows and their ``diff``, sorted. ``columns``: those that are
    compared, where the output has others than before; None where all are.
    """

    output: str
    rows: pl.DataFrame
    columns: tuple[str, ...] | None = None

    @property
    def plus(self) -> int:
        """How many rows it gains."""
        return int(self.rows.filter(pl.col("diff") > 0)["diff"].sum())

    @property
    def minus(self) -> int:
        """How many rows it loses."""
        return -int(self.rows.filter(pl.col("diff") < 0)["diff"].sum())


class Forecast(Verification):
    """The warehouse as the last finished run left it, with another program. ``evaluated``: how many rows of inputs, in
    which way and in how many seconds, once :meth:`rows` is through. Raises as :class:`Verification`.
    """

    evaluated: tuple[int, str, float] = (0, "", 0.0)

    def _check_program(self) -> None:
        """Nothing: the program is another one."""

    @property
    def time(self) -> Time:
        """The last time that is complete."""
        return corners(self.claims.upper)[-1]

    def rows(self) -> Iterator[OutputRows]:
        """The rows of each output of the program. Cost: a scan of the logs, and the evaluation of the program on the
        inputs as of :attr:`time`. Raises the errors of the program.
        """
        start, time = clock.perf_counter(), self.time
        with ExitStack() as stack:
            expected, number, by = self._evaluated(time, stack)
        self.evaluated = (number, by, clock.perf_counter() - start)
        for output in sorted(name for name in self.plan.outputs if not is_test(name)):
            yield self._compared(output, expected[output], time)

    def _compared(self, output: str, expected: pl.DataFrame, time: Time) -> OutputRows:
        state, schema = self.ledger.table(f"outputs/{output}"), self.plan.outputs[output]
        if state is None:
            return OutputRows(output, _difference(expected, None, list(schema)))
        folder = self.warehouse.output(output)
        held = row_schema(folder, state, self.plan.dims)
        actual = ChangeLog(folder, held, self.plan.dims).between(None, time, state)
        casts = {name: kind for name, kind in schema.items() if name in held and widens(held[name], kind)}
        actual = actual.with_columns(widened(actual[name], held[name], kind) for name, kind in casts.items())
        columns = [name for name, kind in schema.items() if name in casts or held.get(name) == kind]
        rows = _difference(expected, actual, columns)
        return OutputRows(output, rows, None if list(held.items()) == list(schema.items()) else tuple(columns))


def _difference(expected: pl.DataFrame, actual: pl.DataFrame | None, columns: list[str]) -> pl.DataFrame:
    """The rows of one collection minus those of another, of some columns."""
    parts = [expected.select(*columns, pl.col("diff").cast(pl.Int64))]
    if actual is not None:
        parts.append(actual.select(*columns, -pl.col("diff")))
    if not columns:
        return pl.DataFrame({"diff": [sum(part["diff"].sum() for part in parts)]}, {"diff": pl.Int64})
    sums = pl.concat(parts).group_by(columns).agg(pl.col("diff").sum())
    return sums.filter(pl.col("diff") != 0).sort(*columns, "diff", nulls_last=True)
