"""Results of all rows from the first one on that do not tell what they go on from: means, and sums of floats.

An ``over`` has the *state* of such a result beside it, in columns that nobody sees: of ``nth_value`` how many of the
``n`` rows there are, of the last values that are not null those behind the result, of a share of the rows their number,
of a mean of integers the number of values and their sum, of floats their number and a few floats whose exact sum the
sum is. With the state of one row, the results behind it are computed without the rows before it. Sums of floats that
differ so much in size that these floats are not enough are marked; from there on the partition is evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from ddcore import kernels
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, Type
from ddcore.operators.window import SHARES, Window
from ddcore.operators.window_reach import goes_on, kernel_kind, reach_beside
from ddcore.operators.window_statistics import is_statistic, state_width

_ROWS: Mapping[str, tuple[int, ...]] = {"MEAN": (0, 1, 2), "FLOAT_SUM": (0, 2, 3), "FLOAT_MEAN": (0, 1, 2, 3)}
"""Which of the four words of a state are stored; the second one of a sum of floats is the sum."""
_COUNTED = "nth_value", *SHARES  # whose state is a number of rows
_KNOWN = *_COUNTED, "last_value"  # whose state has all that is needed
_WORDS = 4
_UNKNOWN = 8

States = Mapping[str, tuple[str, ...]]
"""The columns of the states by the name of the result."""


def states_of(windows: Sequence[Window], types: Schema, results: Schema, order: Type) -> States:
    """The columns that windows over an order, of which ``order`` is the type of the first column, need beside them."""
    names = (name for number in count() if (name := f"_state_{number}") not in types and name not in results)
    if [window.kind for window in windows] == ["ntile"] and not order.is_pooled:
        return {windows[0].name: (next(names),)}
    if reach_beside(windows, types, results, order) is None:
        return {}
    return {
        window.name: tuple(next(names) for _ in range(width))
        for window in windows
        if goes_on(window, types, results) and (width := _width(window, types))
    }


def is_cut(windows: Sequence[Window], states: States) -> bool:
    """Whether windows are an ``ntile`` with the number of rows beside it."""
    return windows[0].kind == "ntile" and windows[0].name in states


def _width(window: Window, types: Schema) -> int:
    if window.kind in _COUNTED:
        return 1
    if window.kind == "last_value":
        return window.number - 1
    return state_width(window) if is_statistic(window) else len(_ROWS.get(kernel_kind(window, types), ()))


def state_type(window: Window, types: Schema) -> Type:
    """The type of the columns of a state: of values that of these, else of numbers."""
    return types[str(window.argument)] if window.kind == "last_value" else Type("int64")


def flags_of(states: States, windows: Sequence[Window], types: Schema) -> list[str]:
    """The columns that say whether a state is known."""
    always = {window.name for window in windows if window.kind in _KNOWN or kernel_kind(window, types) == "MEAN"}
    return [columns[0] for name, columns in states.items() if name not in always]


def is_unknown(flags: np.ndarray) -> bool:
    """Whether one of the states is not known."""
    return bool((flags & _UNKNOWN).any())


def running(
    kind: str, values: np.ndarray, scale: int, ends: tuple[np.ndarray, np.ndarray],
    known: tuple[np.ndarray, Sequence[np.ndarray]],
) -> tuple[np.ndarray, list[np.ndarray]]:  # fmt: skip
    """The results of all rows and the columns of their states.

    ``ends``: where the partition of each row begins, and its frame ends. ``known``: the rows that go on from what is
    known there, and that: the results and the columns of the states.
    """
    positions, columns = known
    before = np.zeros((_WORDS, len(positions)), np.int64)
    if len(positions):
        before[1] = columns[0]
        before[[*_ROWS[kind]]] = np.stack(columns[1:])
    results, states = kernels.windows.run(
        getattr(kernels.aggregating, kind), 10**scale, *map(np.ascontiguousarray, (values, *ends, positions)), before
    )
    return results, [states[row] for row in _ROWS[kind]]
