"""Rows of a log in order, piece by piece, in memory that does not grow with their number.

Updates of a row may lie in any file, so all of them are read before the first row is known. What is more than a piece
is sorted in runs, which wait in temporary files and are merged as they are read. The first rows alone are found without
that: a sample tells beyond which row none of them can be, and the files' statistics where to look.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from ddcore.io.storage import scratch

if TYPE_CHECKING:
    from ddcore.base.tuning import Tuning
    from ddcore.io.delta.table_files import LiveFile, TableState
    from ddcore.io.logs.changelog import ChangeLog
    from ddcore.io.project.times import Time
    from ddcore.program.condition import Condition

_INT128 = pl.Int128()


class SortedRows:
    """The rows that differ between two times, and by how much, as ``diff``; None for the first is before everything.

    ``where``: only those that meet this condition. They are ordered by the columns in ``by``, then by all others in the
    order of the log: null first, NaN last. Every method raises StorageError, and the errors of the condition.
    """

    def __init__(
        self, log: ChangeLog, state: TableState | None, start: Time | None, end: Time, *,
        where: Condition | None = None, by: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._log, self._state, self._start, self._end, self._where = log, state, start, end, where
        self._tuning = log.tuning
        self.order = [*by, *(name for name in log.schema if name not in by)]

    @cached_property
    def _updates(self) -> pl.LazyFrame:
        """The updates; the files are checked once."""
        return self._counted(self._log, self._state, self._files)

    def _counted(self, log: ChangeLog, state: TableState | None, files: Sequence[LiveFile]) -> pl.LazyFrame:
        """The updates in some files of a log that count, of rows that can meet the condition."""
        where = self._where
        pushed, may_meet = (None, None) if where is None else (where.pushed, where.may_meet)
        return log.counted(self._start, self._end, state, pushed, files=files, may_meet=may_meet)

    @cached_property
    def _files(self) -> list[LiveFile]:
        files, where = self._log.files_between(self._start, self._end, self._state), self._where
        return files if where is None else [file for file in files if where.may_meet(file.lower, file.upper)]

    @cached_property
    def _sample(self) -> pl.DataFrame:
        """The first updates; where they are few, all of them."""
        return self._log.collect(self._updates.head(self._tuning.sample_rows))

    @property
    def columns(self) -> list[str]:
        """The names of the columns, without ``diff``."""
        return [*self._log.schema]

    @property
    def is_of_one_file(self) -> bool:
        """Whether one file has all the updates."""
        return len(self._files) == 1

    @property
    def _is_exact(self) -> bool:
        """Whether the updates are those of rows that meet the condition, and no others."""
        return self._where is None or self._where.is_pushed

    def total(self) -> int:
        """The sum of all diffs: how many rows there are, each as often as it occurs."""
        if self._is_exact and len(self._sample) == self._tuning.sample_rows:
            sums = self._log.collect(self._updates.select(pl.col("diff").sum()))
            return int(sums.item() or 0)
        return self._settled.plus - self._settled.minus

    def sizes(self) -> tuple[int, int]:
        """The sums of the positive diffs and of the negative ones; both are positive."""
        return self._sizes

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        counted = None if self.is_known or not self._is_exact else self._sizes_by_sign()
        return counted or (self._settled.plus, self._settled.minus)

    def _sizes_by_sign(self) -> tuple[int, int] | None:
        """The sizes without any order: the sums of the updates, less what cancels. None where that takes memory."""
        diff = pl.col("diff")
        sides = [diff > 0, diff < 0]
        sums = [diff.filter(side).sum().abs().alias(f"sum-{number}") for number, side in enumerate(sides)]
        numbers = [side.sum().alias(f"number-{number}") for number, side in enumerate(sides)]
        plus, minus, *updates = self._log.collect(self._updates.select(*sums, *numbers)).row(0)
        few = updates.index(min(updates))  # the side with fewer updates: only its rows can cancel
        if not updates[few]:
            return int(plus), int(minus)
        if updates[few] > self._tuning.piece_rows or self._plain != self.order:
            return None
        back = self._cancelled(sides[few], sides[1 - few])
        return int(plus) - back, int(minus) - back

    def _cancelled(self, few: pl.Expr, many: pl.Expr) -> int:
        """How much the two sides of the updates have in common, each row with the lesser of its two sums."""
        total = pl.col("diff").sum().abs()
        rows = self._log.collect(self._updates.filter(few).group_by(self.order).agg(total))
        likewise = self._updates.filter(many).join(rows.lazy(), on=self.order, how="semi", nulls_equal=True)
        sums = self._log.collect(likewise.group_by(self.order).agg(total))
        both = rows.join(sums, on=self.order, nulls_equal=True)
        return int(both.select(pl.min_horizontal("diff", "diff_right").sum()).item() or 0)

    @property
    def is_known(self) -> bool:
        """Whether all rows are known, or quick to know: there are few updates, or they have been sorted."""
        return "_settled" in vars(self) or len(self._sample) < self._tuning.sample_rows

    def finds(self, limit: int) -> bool:
        """Whether the first rows, so many, are found without sorting all of them."""
        return (
            not self.is_known
            and self._is_exact
            and bool(self._plain)
            and self._tuning.sample_margin * limit < self._tuning.sample_rows
        )

    def __len__(self) -> int:
        """How many rows differ, each counted once."""
        return self._settled.length

    def head(self, limit: int) -> pl.DataFrame:
        """The first rows, at most ``limit``."""
        wanted = self._tuning.sample_margin * limit
        while self.finds(limit) and wanted < self._tuning.sample_rows:
            updates = self._up_to(self._sample.sort(self.order)[wanted])
            if (
                len(updates) > self._tuning.piece_rows
            ):  # the sample is of rows that come late: they may be sorted by version, say
                ends = self._log.collect(self._updates.select(self._plain).sort(self._plain).head(wanted + 1))
                updates = self._up_to(ends.tail(1))
            if len(updates) > self._tuning.piece_rows:
                break
            rows = self.finished(_sorted([updates], self.order))
            if len(rows) >= limit:
                return rows.head(limit)
            wanted *= 64
        return _first(self, limit, self.nothing)

    def __iter__(self) -> Iterator[pl.DataFrame]:
        """All rows, in frames of at most some ``Tuning.piece_rows``."""
        yield from self._settled.pieces()

    def parts(self, size: int, limit: int = 0) -> Iterator[pl.DataFrame]:
        """All rows, or the first ones, in frames of so many rows, but for the last: the same in each process."""
        waiting: list[pl.DataFrame] = []
        for piece in [self.head(limit)] if limit else self:
            waiting.append(piece)
            if sum(map(len, waiting)) >= size:
                rows = pl.concat(waiting)
                whole = len(rows) // size * size
                yield from (rows[at : at + size] for at in range(0, whole, size))
                waiting = [rows[whole:]]
        if any(map(len, waiting)):
            yield pl.concat(waiting)

    @property
    def nothing(self) -> pl.DataFrame:
        """No rows."""
        return pl.DataFrame(schema={**{name: kind.polars for name, kind in self._log.schema.items()}, "diff": pl.Int64})

    # --- the first rows ---

    def _up_to(self, last: pl.DataFrame) -> pl.DataFrame:
        """The updates of rows up to one, and one more than ``Tuning.piece_rows`` where there are more."""
        return self._log.collect(self._updates.filter(_at_most(last, self._plain)).head(self._tuning.piece_rows + 1))

    @property
    def _plain(self) -> list[str]:
        """The first columns of the order whose values compare as Polars sorts them."""
        nested = [number for number, name in enumerate(self.order) if self._log.schema[name].stored.is_nested]
        return self.order[: nested[0]] if nested else self.order

    # --- all rows ---

    @cached_property
    def _settled(self) -> _Settled:
        return _Settled(self, self._tuning)

    def batches(self) -> Iterator[pl.DataFrame]:
        """The updates in batches, those of rows that cannot meet the condition left out."""
        is_small = len(self._sample) < self._tuning.sample_rows
        for batch in (
            [self._sample] if is_small else self._log.batches(self._updates, max(1, self._tuning.piece_rows // 4))
        ):
            kept = batch if self._where is None else self._where.thinned(batch)
            if len(kept):
                yield kept

    def finished(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Sums of updates as rows of the result, in order."""
        rows = self._log.narrowed(rows.filter(pl.col("diff") != 0)).select(*self._log.schema, "diff")
        return rows if self._where is None else self._where.kept(rows)


class _Settled:
    """All rows, sorted: one frame, files with frames, or the log itself where that is sorted."""

    def __init__(self, rows: SortedRows, tuning: Tuning) -> None:
        self._rows, self._order, self.plus, self.minus, self.length = rows, rows.order, 0, 0, 0
        self._tuning = tuning
        self.folder: Path | None = None
        self._files: list[_File] = []
        self._frame: pl.DataFrame | None = None
        if not (rows.is_of_one_file and self._is_sorted()):
            self._sort()

    def _is_sorted(self) -> bool:
        """Whether the updates are the rows, in order, as a run writes those of a version. Counts them."""
        before = None
        for batch in self._rows.batches():
            if not _ascends(batch if before is None else pl.concat([before, batch]), self._order):
                self.plus = self.minus = self.length = 0
                return False
            before = batch.tail(1)
            self._count(self._rows.finished(batch))
        return True

    def _sort(self) -> None:
        runs: list[_File] = []
        kept: list[pl.DataFrame] = []
        for batch in self._rows.batches():
            kept.append(batch)
            if sum(map(len, kept)) >= self._tuning.piece_rows:
                kept = [_sorted(kept, self._order)]
                if len(kept[0]) >= self._tuning.piece_rows // 2:
                    runs.append(self._write(kept.pop(), f"run-{len(runs)}"))
        if not runs:
            self._frame = self._rows.finished(_sorted(kept, self._order)) if kept else self._rows.nothing
            self._count(self._frame)
            return
        if kept:
            runs.append(self._write(_sorted(kept, self._order), f"run-{len(runs)}"))
        for number, piece in enumerate(
            _merged(runs, self._order, max(self._tuning.block_rows, self._tuning.piece_rows // len(runs)))
        ):
            finished = self._rows.finished(piece)
            self._count(finished)
            self._files.append(self._write(finished, f"rows-{number}"))
        for run in runs:
            run.path.unlink()

    def pieces(self) -> Iterator[pl.DataFrame]:
        """The rows in order."""
        if self._frame is not None:
            yield self._frame
        elif self._files:
            yield from (file.rows(0, file.length) for file in self._files)
        else:
            yield from map(self._rows.finished, self._rows.batches())

    def _count(self, frame: pl.DataFrame) -> None:
        diff = frame["diff"].cast(_INT128)
        self.length += len(frame)
        self.plus += int(diff.filter(diff > 0).sum() or 0)
        self.minus -= int(diff.filter(diff < 0).sum() or 0)

    def _write(self, frame: pl.DataFrame, name: str) -> _File:
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(dir=scratch.folder(), prefix="sorted-"))
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        path = self.folder / name
        frame.write_ipc(path, record_batch_size=self._tuning.block_rows)
        return _File(path, len(frame))


@dataclass(frozen=True)
class _File:
    """Rows in a temporary file."""

    path: Path
    length: int

    def rows(self, start: int, size: int) -> pl.DataFrame:
        """Some of them, of which only some more are read."""
        return pl.scan_ipc(self.path, glob=False).slice(start, size).collect()


def _added_up(rows: pl.DataFrame, order: Sequence[str]) -> pl.DataFrame:
    """The sums of the diffs of equal rows, those of 0 left out; the rows are sorted, and stay so."""
    if not _ascends(rows, order):
        rows = rows.group_by(order, maintain_order=True).agg(pl.col("diff").sum()).select(rows.columns)
    return rows.filter(pl.col("diff") != 0)


def _sorted(frames: Sequence[pl.DataFrame], order: Sequence[str]) -> pl.DataFrame:
    """The rows of some frames, sorted, with the sums of their diffs."""
    return _added_up(pl.concat(frames).sort(order), order)


def _ascends(rows: pl.DataFrame, order: Sequence[str]) -> bool:
    """Whether each row is greater than the one before. False also where that is not known."""
    ahead, behind = rows[1:], rows[:-1]
    for name in order:
        one, other = ahead[name], behind[name]
        if not len(one):
            return True
        if one.dtype.is_nested():
            return False
        same = one.eq_missing(other)
        if not (same | (one > other).fill_null(False) | (one.is_not_null() & other.is_null())).all():
            return False
        ahead, behind = ahead.filter(same), behind.filter(same)
    return not len(ahead)


def _merged(runs: Sequence[_File], order: Sequence[str], size: int) -> Iterator[pl.DataFrame]:
    """The rows of sorted runs, sorted, those that are equal added up; no run has equal rows.

    A block of each run, ``size`` rows, is in memory. All rows up to the least last row of a block are known then.
    """
    offsets = [0] * len(runs)
    marked = [*range(len(runs))]  # the runs of which the next block is needed
    left = runs[0].rows(0, 0).with_columns(_run=pl.lit(None, pl.Int64))
    while True:
        blocks = []
        for run in marked:
            block = runs[run].rows(offsets[run], size)
            offsets[run] += len(block)
            last = len(block) - 1 if offsets[run] < runs[run].length else -1  # no mark: the run ends here
            at = pl.int_range(pl.len())
            blocks.append(block.with_columns(_run=pl.when(at == last).then(pl.lit(run, pl.Int64))))
        rows = pl.concat([left, *blocks]).sort([*order, "_run"])
        marks = rows["_run"].is_not_null().arg_true()
        if not len(marks):
            if len(rows):
                yield _added_up(rows.drop("_run"), order)
            return
        end = _end_of_equal(rows, marks[0], len(runs), order)
        marked = rows["_run"][:end].drop_nulls().to_list()
        left = rows[end:]
        yield _added_up(rows[:end].drop("_run"), order)


def _end_of_equal(rows: pl.DataFrame, first: int, most: int, order: Sequence[str]) -> int:
    """Where the rows that equal the one at a place end; at most ``most`` equal rows follow it."""
    alike = rows[first : first + most + 1].group_by(order, maintain_order=True).len()
    return first + int(alike["len"][0])


def _first(pieces: Iterable[pl.DataFrame], limit: int, nothing: pl.DataFrame) -> pl.DataFrame:
    """The first rows of some pieces."""
    heads, left = [nothing], limit
    for piece in pieces:
        heads.append(piece.head(left))
        left -= len(heads[-1])
        if not left:
            break
    return pl.concat(heads)


def _at_most(last: pl.DataFrame, order: Sequence[str]) -> pl.Expr:
    """True for rows that are sorted before one, or equal to it in these columns."""
    result = pl.lit(True)
    for name in reversed(order):
        value, column = last[name], pl.col(name)
        if value[0] is None:
            result = column.is_null() & result
            continue
        is_scalar = value.dtype in (pl.Int64, pl.Float64, pl.String, pl.Boolean)
        literal = pl.lit(value[0], dtype=value.dtype) if is_scalar else pl.lit(value).first()
        result = column.is_null() | (column < literal) | ((column == literal) & result)
        if name == order[0]:  # what the statistics of files can tell
            result = (column.is_null() | (column <= literal)) & result
    return result
