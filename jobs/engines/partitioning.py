"""Dividing key codes between workers: contiguous ranges, as even as stored state and a sample of new updates allow."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import is_direct
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.inputs import input_log
from ddcore.io.state.codes import spread
from ddcore.jobs.engines.routes import Routing
from ddcore.jobs.fold import Fold
from ddcore.operators.arrangement import Arrangement

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Division", "division_of"]

_SAMPLE = 100_000  # rows of an input
_SLICES = 32
_POINTS = 4096  # codes that are looked at to cut ranges


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
    by a sample of the inputs' integers too. Hashed codes of which none is stored are spread evenly over 64 bits.
    """
    even = [int(-(2**63) + (2**64 * partition) // parallelism) for partition in range(1, parallelism)]
    sample: np.ndarray | None = None
    boundaries: dict[int, list[int]] = {}
    for group in routing.groups:
        if routing.single & {arrangement.index for arrangement in group}:
            boundaries.update({arrangement.index: [-(2**63)] * (parallelism - 1) for arrangement in group})
            continue
        spreads = [_stored(fold, arrangement) for arrangement in group if not arrangement.transient]
        if any(_is_direct(arrangement, routing) for arrangement in group):
            sample = _sampled(fold) if sample is None else sample
            spreads.append((sample, np.full(len(sample), fold.rows / max(1, len(sample)))))
        codes = np.concatenate([np.empty(0, np.int64), *(codes for codes, _ in spreads)])
        rows = np.concatenate([np.empty(0, np.float64), *(rows for _, rows in spreads)])
        cuts = _cuts(codes, rows, parallelism) if len(codes) else even
        boundaries.update({arrangement.index: cuts for arrangement in group})
    return Division(boundaries, routing.keys)


def _stored(fold: Fold, arrangement: Arrangement) -> tuple[np.ndarray, np.ndarray]:
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


def _is_direct(arrangement: Arrangement, routing: Routing) -> bool:
    """Whether the codes that divide the updates of an arrangement are values."""
    key = routing.keys.get(arrangement.index, arrangement.key)
    return is_direct([arrangement.collection[name] for name in key])


def _sampled(fold: Fold) -> np.ndarray:
    """Integers of the new updates, sorted: at most a hundred thousand rows per input, from all over its window.

    Files are often sorted, so their first rows would say nothing about the others.
    """
    samples = [np.empty(0, dtype=np.int64)]
    for name, schema in fold.plan.inputs.items():
        columns = [column for column, kind in schema.items() if kind.name == "int64"]
        log = input_log(fold.stored.warehouse, fold.settings, name, schema)
        if columns:
            for frame in _slices(log, fold, name):
                samples += [frame[column].drop_nulls().to_numpy() for column in columns]
    return np.sort(np.concatenate(samples))


def _slices(log: ChangeLog, fold: Fold, name: str) -> Iterator[pl.DataFrame]:
    """Rows of an input's window, in slices with even distances."""
    files = [file for file in log.files(fold.inputs[name]) if fold.window.may_meet(file.lower, file.upper, log.dims)]
    rows = sum(file.rows for file in files)
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
            yield log.collect(scan.filter(fold.window.condition(log.dims)))
