"""Helpers for times in columns, shared by kernels."""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import apart, inline


@apart
def grow(array, used):  # type: ignore[no-untyped-def]
    """A copy with twice the columns; the first ``used`` ones are filled."""
    bigger = np.empty((array.shape[0], 2 * array.shape[1]), dtype=np.int64)
    bigger[:, :used] = array[:, :used]
    return bigger


@inline
def inside(times, row, loops, inputs):  # type: ignore[no-untyped-def]
    """Whether the loop coordinates of a row are at or before ``loops``."""
    for r in range(len(loops)):
        if times[inputs + r, row] > loops[r]:
            return False
    return True


@inline
def holds(times, row, evals, e):  # type: ignore[no-untyped-def]
    """Whether the version of a row is at or before that of evaluation e: :func:`ddcore.base.lattice.le` on columns."""
    for c in range(evals.shape[0]):
        if times[c, row] > evals[c, e]:
            return False
    return True


@inline
def representative(value, frontier, c):  # type: ignore[no-untyped-def]
    """Coordinate c of the representative of a time: the least of its joins with the frontier's elements."""
    least = max(value, frontier[c, 0])
    for element in range(1, frontier.shape[1]):
        least = min(least, max(value, frontier[c, element]))
    return least
