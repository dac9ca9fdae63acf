"""Compaction: merges the data files of a table into fewer ones, with times advanced where no reader can tell.

State is compacted to the frontier of what is folded: all work of later runs lies at or beyond it, so a time and its
representative there are the same for it. Logs of inputs and outputs keep their rows and times, unless a frontier
``since`` is given, from which they stay exact.

Files are merged geometrically: the small ones first, then each larger one that is at most twice as large as all that
was merged before it. So a row is rewritten O(log n) times, and O(log n) files are left. What one large run or ingest
writes as several files is left as it is: files of a log that are full already, and the ranges of an arrangement that
the workers of a run wrote, which count as one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import polars as pl

from ddcore.base.lattice import Frontier
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema
from ddcore.base.tuning import DEFAULT
from ddcore.data.encoding import encode
from ddcore.io.delta import commits, open_tables, tables
from ddcore.io.delta.deltalog import COMPACTED
from ddcore.io.delta.table_files import AddedFile, LiveFile, TableState
from ddcore.io.delta.writer import Writer
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.parquet import datafile
from ddcore.io.project.frontiers import is_open
from ddcore.io.state.arrangements import MERGED, write_pieces
from ddcore.io.state.codes import sample
from ddcore.io.state.layout import CODE, Layout
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import Location
from ddcore.io.upkeep.retention import MANY
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch

_LARGE = DEFAULT.file_rows // 2  # rows of a log's file that is not merged again: an ingest writes twice as many
_OF_A_RUN = re.compile(r"part-\d+-(\d+)-")  # the file of state that a worker wrote in a run
_INT64, _INT32 = 2**63, 2**31


@dataclass(frozen=True)
class Merge:
    """The files of one table that become one. ``frontier``: times are advanced to it; empty for none.

    ``dims``: the columns of the coordinates of input times. ``is_due``: it is worth a compaction; others go with it.
    ``piece``: rows of state that are merged in memory at once.
    """

    folder: Location
    files: tuple[LiveFile, ...]
    dims: tuple[str, ...]
    frontier: Frontier
    is_due: bool
    piece: int = DEFAULT.merge_rows

    @property
    def is_state(self) -> bool:
        """Whether the table is an arrangement."""
        return self.folder.parent.name == "state"

    @property
    def rows(self) -> int:
        """The rows of the files."""
        return sum(file.rows for file in self.files)

    def commit(self, writer: Writer, number: int, base: TableState, run: int) -> TableState:
        """Write the merged file and commit it in place of the others; return the table's new state.

        ``number`` is the transaction's. ``run`` is in the name of a file of state. If the process is killed
        before the ledger has the state, the next command adopts the commit or reverts it.
        """
        files = self._write_state(writer, run) if self.is_state else self._write_log(writer, number)
        frontier = () if self.is_state else self.frontier
        return commits.commit(
            writer, self.folder, files, number, base=base, without=[file.path for file in self.files],
            carries={COMPACTED: json.dumps(frontier)},
        )  # fmt: skip

    # --- state ---

    def _write_state(self, writer: Writer, run: int) -> list[AddedFile]:
        schema = tables.schema_of(self.folder, writer)
        for file in self.files:
            datafile.verify(self.folder / file.path, open_tables.mend_hint(self.folder))
        rows = tables.scan(self.folder, self.files, schema, check=False)
        pieces = (self._piece(rows, schema, lo, hi) for lo, hi in self._ranges())
        merged = write_pieces(self.folder, run, MERGED, pieces, layout_of(schema), narrow=self._narrow(rows, schema))
        return [merged] if merged.rows else []

    def _narrow(self, rows: pl.LazyFrame, schema: Schema) -> list[str]:
        """The columns of int64 whose values all fit into 32 bits, and are not just the codes."""
        names = [name for name, kind in schema.items() if kind.name == "int64" and name != CODE]
        with reporting(self.folder, "read", open_tables.mend_hint(self.folder)):
            fits = rows.select(
                (pl.col(name).is_between(-_INT32, _INT32 - 1) & (pl.col(name) != pl.col(CODE)).any()).all()
                for name in names
            ).collect(engine="streaming")
        return [name for name in names if fits[name].item()]

    def _ranges(self) -> Iterator[tuple[int | None, int | None]]:
        """Ranges [lo, hi) of key codes with about ``piece`` rows each."""
        cuts = self._cuts(self.piece) if self.rows > self.piece else []
        bounds = [None, *cuts, None]
        yield from pairwise(bounds)

    def _cuts(self, piece: int) -> list[int]:
        """Codes that cut the rows into even ranges, by the least code of each row group of the files."""
        starts: list[tuple[int, int]] = []
        for file in self.files:
            if file.rows and datafile.has_digests(self.folder / file.path):
                codes, numbers = sample(self.folder / file.path, open_tables.mend_hint(self.folder))
                starts += zip(codes.tolist(), numbers.tolist(), strict=True)
        cuts, rows = [], 0
        for code, group_rows in sorted(starts):
            if rows + group_rows > piece and code not in cuts:
                cuts.append(code)
                rows = 0
            rows += group_rows
        return cuts

    def _piece(self, rows: pl.LazyFrame, schema: Schema, lo: int | None, hi: int | None) -> SortedBatch:
        """The consolidated rows with codes in [lo, hi), sorted by code; rows of one key are together."""
        if lo is not None:
            rows = rows.filter(pl.col(CODE) >= lo)
        if hi is not None:
            rows = rows.filter(pl.col(CODE) < hi)
        plain = [name for name, kind in schema.items() if name not in (CODE, "diff") and not kind.is_nested]
        with reporting(self.folder, "read", open_tables.mend_hint(self.folder)):
            frame = consolidated(rows, self.dims, self.frontier).sort(CODE, *plain)
        return run_of(frame, layout_of(schema))

    # --- logs ---

    def _write_log(self, writer: Writer, number: int) -> list[AddedFile]:
        columns = tables.schema_of(self.folder, writer)
        schema = {name: kind for name, kind in columns.items() if name not in (*self.dims, "diff")}
        log = ChangeLog(self.folder, schema, self.dims)
        rows = log.scan_files(self.files)
        with reporting(self.folder, "read", open_tables.mend_hint(self.folder)):
            frame = consolidated(rows, self.dims, self.frontier) if self.frontier else rows.collect()
        return [log.write(f"merged-{number:06d}", frame)] if len(frame) else []


def layout_of(schema: Schema) -> Layout:
    """The columns of a table of state, its times among them: here they are columns like others."""
    return Layout({name: kind for name, kind in schema.items() if name not in (CODE, "diff")}, (), ())


def run_of(frame: pl.DataFrame, layout: Layout) -> SortedBatch:
    """Rows that are sorted by code as a run."""
    words = [encode(frame[name], kind) for name, kind in layout.schema.items()]
    codes, diffs = (frame[name].to_numpy() for name in (CODE, "diff"))
    none = np.empty((0, len(frame)), np.int64)
    return ColumnBatch(codes, np.stack(words) if words else none, none, diffs)


def consolidated(rows: pl.LazyFrame, dims: Sequence[str], frontier: Frontier) -> pl.DataFrame:
    """Updates at the representatives of their times beyond a frontier, added up. Columns keep their order; rows do not.

    Updates whose diffs add up to more than int64 holds stay as they are.
    """
    names = rows.collect_schema().names()
    advanced = rows.with_columns(representatives(dims, frontier))
    others = [name for name in names if name != "diff"]
    sums = advanced.group_by(others).agg(pl.col("diff").cast(pl.Int128).sum()).filter(pl.col("diff") != 0)
    frame = sums.select(names).collect(engine="streaming")
    if len(frame) and not frame["diff"].is_between(-_INT64, _INT64 - 1).all():
        return rows.collect()
    return frame.with_columns(pl.col("diff").cast(pl.Int64))


def representatives(dims: Sequence[str], frontier: Frontier) -> list[pl.Expr]:
    """The columns ``dims`` at the representatives of their times beyond a frontier: see
    :func:`ddcore.base.lattice.advance`.

    Times beyond it stay as they are.
    """
    return [
        pl.min_horizontal([pl.max_horizontal(pl.col(dim), pl.lit(element[number])) for element in frontier]).alias(dim)
        for number, dim in enumerate(dims)
        if frontier
    ]


def state_merge(
    folder: Location, files: Sequence[LiveFile], dims: tuple[str, ...], frontier: Frontier, *, everything: bool,
    room: int | None = None, piece: int = DEFAULT.merge_rows,
) -> Merge | None:  # fmt: skip
    """The files of an arrangement to merge, if any. ``everything``: all, if there are two or more. ``room``: for how
    many rows there is memory; None for any number. At most ``piece`` are merged at once.

    Files that another program wrote are always among them: their rows may be in any order.
    """
    foreign = [file for file in files if not datafile.has_digests(folder / file.path)]
    layers = _similar(_layers(files), MANY // 2)
    chosen = list(files) if everything and len(files) > 1 else [file for layer in layers for file in layer]
    chosen += [file for file in foreign if file not in chosen]
    is_due = everything or bool(foreign) or len(layers) >= MANY
    return Merge(folder, tuple(chosen), dims, frontier, is_due, min(room or piece, piece)) if chosen else None


def log_merge(
    folder: Location, files: Sequence[LiveFile], dims: tuple[str, ...], upper: Frontier, since: Frontier = (), *,
    everything: bool, room: int | None = None,
) -> Merge | None:  # fmt: skip
    """The files of an input or output to merge, if any: of those whose times are all complete. ``room``: for how many
    rows there is memory; None for any number.

    An ingest with open versions can be undone, for which its files stay. ``since``: every file with a time that is not
    beyond it is merged and its times are advanced.
    """
    early = [file for file in files if since and not _is_beyond(file, dims, since)]
    if early:
        return Merge(folder, tuple(early), dims, since, is_due=True)
    large = _LARGE if room is None else min(_LARGE, room // 2)
    closed = [file for file in files if file.rows < large and _is_complete(file, dims, upper)]
    chosen = [file for (file,) in _similar([[file] for file in closed], 2 if everything else MANY // 2)]
    while room is not None and len(chosen) > 1 and sum(file.rows for file in chosen) > room:
        chosen.pop()  # the largest
    chosen.sort(key=lambda file: _least(file, dims))
    return Merge(folder, tuple(chosen), dims, (), everything or len(chosen) >= MANY) if chosen else None


def _layers(files: Sequence[LiveFile]) -> list[list[LiveFile]]:
    """Files of state that are merged together or not at all: the ranges of codes that the workers of one run wrote, of
    which a look-up opens one. Small files are by themselves.
    """
    layers: dict[str, list[LiveFile]] = {}
    for file in files:
        run = _OF_A_RUN.match(file.path)
        is_small = file.rows <= DEFAULT.small_file_rows
        layers.setdefault(file.path if run is None or is_small else run[1], []).append(file)
    return [*layers.values()]


def _similar(layers: Sequence[list[LiveFile]], least: int) -> list[list[LiveFile]]:
    """Those to merge, smallest first; none where they are fewer than ``least``."""
    chosen, rows = list[list[LiveFile]](), 0
    for layer in sorted(layers, key=lambda layer: (_rows(layer), layer[0].path)):
        if chosen and _rows(layer) > max(2 * rows, DEFAULT.small_file_rows):
            break
        chosen.append(layer)
        rows += _rows(layer)
    return chosen if len(chosen) >= least else []


def _rows(files: Sequence[LiveFile]) -> int:
    return sum(file.rows for file in files)


def _least(file: LiveFile, dims: Sequence[str]) -> tuple[int, ...]:
    return tuple(file.lower.get(dim, 0) for dim in dims)


def _is_beyond(file: LiveFile, dims: Sequence[str], frontier: Frontier) -> bool:
    """Whether all times of a file are at or beyond a frontier."""
    return all(dim in file.lower for dim in dims) and is_open(_least(file, dims), frontier)


def _is_complete(file: LiveFile, dims: Sequence[str], upper: Frontier) -> bool:
    """Whether no time of a file is at or beyond ``upper``."""
    return all(dim in file.upper for dim in dims) and not is_open(tuple(file.upper[dim] for dim in dims), upper)
