"""An output of two warehouses, as one difference: what ``dd diff --against`` shows."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from ddcore.base.errors import UsageError
from ddcore.io.reading.sorted_rows import SortedRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcore.io.delta.table_files import LiveFile
    from ddcore.io.project.times import Time
    from ddcore.io.reading.folded import FoldedLog
    from ddcore.program.condition import Condition


def check_columns(one: FoldedLog, other: FoldedLog, names: tuple[str, str]) -> None:
    """Raise UsageError where an output has other columns in two warehouses, which are called ``names``."""
    if one.schema == other.schema:
        return
    columns = [", ".join(f"{name} {kind}" for name, kind in log.schema.items()) for log in (one, other)]
    raise UsageError(
        f"{one.name} has the columns ({columns[0]}) in {names[0]}, and ({columns[1]}) in {names[1]}",
        "rows of different columns cannot be compared: see each with ddcore show",
    )


def common_time(one: FoldedLog, other: FoldedLog) -> Time:
    """The greatest time at which two warehouses are complete. UsageError where there are several."""
    first, second = (log.readable.latest("--against") for log in (one, other))
    if len(first) == 1:
        return min(first, second)
    if first != second:
        raise UsageError(
            f"--against: {one.names.shown(first)} and {one.names.shown(second)} are the latest times, and no others",
            "name a time that both have folded",
        )
    return first


class ComparedRows(SortedRows):
    """The rows that an output has at a time in the warehouse of ``other`` and not in that of ``one``, and by how much,
    as ``diff``; below 0 where it is the other way round.

    Files that both have are read in neither: files of equal names have equal contents. So what two branches share
    costs nothing.
    """

    def __init__(
        self, one: FoldedLog, other: FoldedLog, time: Time, *, where: Condition | None = None, by: Sequence[str] = ()
    ) -> None:
        super().__init__(one.log, one.table, None, time, where=where, by=by)
        self._other = other

    @cached_property
    def _sides(self) -> tuple[list[LiveFile], list[LiveFile]]:
        """The files of each that the other does not have."""
        both = [
            self._log.files_between(None, self._end, self._state),
            self._other.log.files_between(None, self._end, self._other.table),
        ]
        paths = [{file.path for file in files} for files in both]
        shared = paths[0] & paths[1]
        one, other = ([file for file in files if file.path not in shared] for files in both)
        return one, other

    @cached_property
    def _files(self) -> list[LiveFile]:
        return [file for files in self._sides for file in files]

    @property
    def is_of_one_file(self) -> bool:
        """Never taken for sorted: its rows are those of two logs."""
        return False

    @cached_property
    def _updates(self) -> pl.LazyFrame:
        one, other = self._sides
        less = self._counted(self._log, self._state, one).with_columns(pl.col("diff") * -1)  # Polars negates no Int128
        return pl.concat([less, self._counted(self._other.log, self._other.table, other)])
