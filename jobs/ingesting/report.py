"""What an ingest did, for people and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ddcore.base.lattice import Frontier
from ddcore.io.project.times import Time


@dataclass(frozen=True)
class IngestReport:
    """What an ingest did.

    ``ingest`` is its number; if there was ``nothing_new``, that of the earlier ingest of the same content, or 0 if the
    updates cancel out. ``rows`` are the rows read; ``plus`` and ``minus`` the sums of their
    positive and negative diffs; ``moved`` how many late rows were moved, ``restated`` how many were taken in at their
    own closed times. A restatement replaced the ``removed`` updates at and beyond ``replaces``. ``restates`` are the
    least closed times whose contents changed: the next run folds again from there. ``repeated`` is how many of the
    checked rows now count more than once, where no row of the input did before; ``repeated_first`` is the first of
    them. ``left_out`` are the columns that the sources have and the input does not.
    ``notes`` are sentences for the user, such as columns and files left out.
    ``stale_lock``: as in :class:`~ddcore.jobs.report.RunReport`. With several time dimensions
    ``first`` and ``last`` are the least and the greatest coordinates. ``label`` and ``instant`` are those of ``last``.
    """

    input: str
    ingest: int
    sources: tuple[str, ...]
    rows: int
    plus: int
    minus: int
    first: Time | None
    last: Time | None
    versions: int
    moved: int
    nothing_new: bool
    engine: str
    took: float
    repeated: int = 0
    repeated_first: str | None = None
    notes: tuple[str, ...] = ()
    restated: int = 0
    replaces: Time | None = None
    removed: int = 0
    restates: Frontier = ()
    left_out: tuple[str, ...] = ()
    stale_lock: dict[str, Any] | None = None
    label: Any = None
    instant: Any = None
