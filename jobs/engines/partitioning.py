"""Dividing key codes between workers: contiguous ranges, as even as stored state and a sample of new updates allow."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import is_direct
from ddcore.data.encoding import encode
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.inputs import input_log
from ddcore.io.state.codes import spread
from ddcore.jobs.engines.routes import Routing
from ddcore.jobs.fold import Fold
from ddcore.operators.arrangement import Arrangement

if TYPE_CHECKING:
    import polars as pl

    from ddcore.io.delta.table_files import LiveFile
    from ddcore.planning.column_lineage import ColumnLineage, Source

    Spread = tuple[np.ndarray, np.ndarray]  # codes, and how many rows each stands for: int64[n], float64[n]

_SAMPLE = 100_000  # rows of an input
_SLICES = 32
# A window that has fewer than a fourth of the rows of its files, and not more than so many, is read as a whole.
_OUTSIDE, _WHOLE = 4, 20_000_000
_POINTS = 4096  # codes that are looked at to cut ranges
# The least share of new updates in the weight: they are the work, and of what is stored only what they meet is read.
_NEW, _UNSURE = 0.9, 0.5  # where it is known which column the keys come from, and where not


@dataclass(frozen=True)
class Division:
    """Who owns which updates.

    ``boundaries``: by arrangement index the parallelism - 1 key codes at which the next worker begins. ``keys``: the
    columns whose code counts for an output's updates.
    """

    boundaries: Mapping[int, Sequence[int]]
    keys: Mapping[int, tuple[str, ...]]


def division_of(fold: Fold, routing: Routing, parallelism: int) -> Division:
    """The ranges of the workers, as even as stored state and new updates say.

    Arrangements whose equal keys have one owner get the same boundaries. Codes that are values themselves are divided
    by a sample of the columns of inputs that they come from; where they are computed, by all integers of the inputs.
    Hashed codes of which none is stored are spread evenly over 64 bits.
    """
    even = [int(-(2**63) + (2**64 * partition) // parallelism) for partition in range(1, parallelism)]
    new = _New(fold, routing)
    boundaries: dict[int, list[int]] = {}
    for group in routing.groups:
        if routing.single & {arrangement.index for arrangement in group}:
            cuts = [-(2**63)] * (parallelism - 1)
        else:
            stored = _joined([_stored(fold, arrangement) for arrangement in group if not arrangement.transient])
            codes, rows = _weighed(stored, *new.of(group))
            cuts = _cuts(codes, rows, parallelism) if len(codes) else even
        boundaries.update({arrangement.index: cuts for arrangement in group})
    return Division(boundaries, routing.keys)


def _joined(spreads: Sequence[Spread]) -> Spread:
    codes = np.concatenate([np.empty(0, np.int64), *(codes for codes, _ in spreads)])
    return codes, np.concatenate([np.empty(0, np.float64), *(rows for _, rows in spreads)])


def _weighed(stored: Spread, new: Spread, share: float) -> Spread:
    """Both, the new ones with this share of the weight, or more where they are more than that."""
    both, added = stored[1].sum(), new[1].sum()
    if both and added:
        share = max(share, added / (both + added))
        stored, new = (stored[0], stored[1] * ((1 - share) / both)), (new[0], new[1] * (share / added))
    return _joined([stored, new])


class _New:
    """How the new updates of a fold are spread over the codes of arrangements."""

    def __init__(self, fold: Fold, routing: Routing) -> None:
        self._plan, self._routing, self._samples = fold.plan, routing, _Samples(fold)

    def of(self, group: Sequence[Arrangement]) -> tuple[Spread, float]:
        """Codes of new updates for some arrangements, and the share of the weight that they have at least.

        Nothing of hashed codes.
        """
        keys = [(arrangement, self._routing.keys.get(arrangement.index, arrangement.key)) for arrangement in group]
        direct = [(a.node, key[0]) for a, key in keys if is_direct([a.collection[name] for name in key])]
        sources = {source for node, column in direct for source in self._sources(node, column)}
        codes = _joined([self._samples.of(*source) for source in sorted(sources)])
        if direct and not len(codes[0]):
            return _joined([self._samples.of(name, column) for name, column in self._integers()]), _UNSURE
        return codes, _NEW

    def _sources(self, node: int, column: str) -> list[Source]:
        """The columns of inputs of which a column of a node has the values as they are."""
        return [source for source, how in self._lineage[node].columns.get(column, {}).items() if "IDENTITY" in how]

    @cached_property
    def _lineage(self) -> Mapping[int, ColumnLineage]:
        from ddcore.planning.column_lineage import collection_lineage  # it imports all operators

        return collection_lineage(self._plan, [arrangement.node for arrangement in self._plan.arrangements])

    def _integers(self) -> Iterator[Source]:
        """All columns of integers of the inputs that something reads."""
        for name, schema in self._plan.inputs.items():
            for column, kind in schema.items():
                if kind.name == "int64" and column in self._plan.read[name]:
                    yield name, column


def _stored(fold: Fold, arrangement: Arrangement) -> Spread:
    """Codes of an arrangement's stored rows, and how many rows each stands for."""
    table = f"state/{arrangement.fingerprint}"
    return spread(fold.stored.warehouse.table(table), fold.stored.files.get(table, ()))


def _cuts(codes: np.ndarray, rows: np.ndarray, parallelism: int) -> list[int]:
    """The codes at which the second range and all later ones begin, where each code stands for some rows.

    Ranges are filled one after the other with an even share of what is left, so a code with more rows than that gets a
    range of its own and the others are still even. Too few codes leave ranges at the end empty.
    """
    distinct, places = np.unique(codes, return_inverse=True)
    loads = np.bincount(places, rows)
    if len(distinct) > _POINTS:  # neighbours as one
        places = np.minimum(np.cumsum(loads) * (_POINTS / loads.sum()), _POINTS - 1).astype(np.int64)
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        distinct, loads = distinct[starts], np.add.reduceat(loads, starts)
    cuts: list[int] = []
    left, filled = float(loads.sum()), 0.0
    for code, load in zip(distinct.tolist(), loads.tolist(), strict=True):
        share = left / (parallelism - len(cuts))
        if filled and filled + load / 2 > share and len(cuts) < parallelism - 1:
            cuts.append(code)
            left, filled = left - filled, 0.0
        filled += load
    return cuts + [2**63 - 1] * (parallelism - 1 - len(cuts))


class _Samples:
    """Samples of the new updates of inputs, at most a hundred thousand rows of each, from all over its window.

    Files are often sorted, so their first rows would say nothing about the others. Each input is read once.
    """

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._frames: dict[str, tuple[pl.DataFrame | None, float]] = {}

    def of(self, name: str, column: str) -> Spread:
        """The codes of a column that has some of its own, and how many rows each stands for."""
        if name not in self._frames:
            self._frames[name] = self._read(name)
        frame, weight = self._frames[name]
        if frame is None:
            return np.empty(0, np.int64), np.empty(0, np.float64)
        codes = encode(frame[column], self._fold.plan.inputs[name][column])
        return codes, np.full(len(codes), weight)

    def _read(self, name: str) -> tuple[pl.DataFrame | None, float]:
        """Rows of an input's window, in slices with even distances, and for how many each stands.

        Where most rows of the files are outside of the window, slices would miss it: then it is read as a whole, if it
        is not too large for that.
        """
        import polars as pl

        fold = self._fold
        log = input_log(fold.stored.warehouse, fold.settings, name, fold.plan.inputs[name])
        files = [
            file for file in log.files(fold.inputs[name]) if fold.window.may_meet(file.lower, file.upper, log.dims)
        ]
        rows = sum(file.rows for file in files)
        if not rows:
            return None, 1.0
        sample = pl.concat(self._slices(log, files, rows))
        if rows > _SAMPLE > _OUTSIDE * len(sample) and fold.rows <= _WHOLE:
            inside = log.collect(self._columns(log, log.scan_files(files)))
            every = max(1, len(inside) // _SAMPLE)
            return inside.gather_every(every), float(every)
        return sample, max(1.0, rows / _SAMPLE)

    def _columns(self, log: ChangeLog, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Of these rows those in the window, with the columns that may be keys."""
        columns = [name for name, kind in log.schema.items() if is_direct([kind])]
        return rows.filter(self._fold.window.condition(log.dims)).select(*columns)

    def _slices(self, log: ChangeLog, files: Sequence[LiveFile], rows: int) -> Iterator[pl.DataFrame]:
        distance = rows if rows <= _SAMPLE else -(-rows // _SLICES)
        ends = list(accumulate(file.rows for file in files))
        for at in range(0, rows, max(1, distance)):
            number = bisect_right(ends, at)
            end = min(at + distance, rows) if rows <= _SAMPLE else at + _SAMPLE // _SLICES
            for file, last in zip(files[number:], ends[number:], strict=True):
                start = last - file.rows
                if start >= end:
                    break
                scan = log.scan_files([file]).slice(max(0, at - start), min(end, last) - max(at, start))
                yield log.collect(self._columns(log, scan))
