"""Statistics of the rows in frames: of the exact sums of all rows up to each, a frame's are the differences.

Sums are Python's integers in arrays, so none is too large, and results are those of :mod:`ddcore.operators.moments`.
What a running statistic goes on from is a *state*: flags, the number of values, and each sum as three words of 62 bits
and the power of two that they count. Sums that need more words are marked; from there on the partition is evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Type
from ddcore.data import encoding
from ddcore.operators.gathering import GATHERED
from ddcore.operators.moments import (
    NUMBER,
    QUANTITIES,
    UNDEFINED,
    XX,
    XY,
    YY,
    Moment,
    Whole,
    X,
    Y,
    computed,
    whole_numbers,
)
from ddcore.operators.partitions import Spans
from ddcore.operators.window import Window

_SQUARES = XX, YY, XY
_BITS, _PARTS, _UNKNOWN = 62, 3, 8
_LOW, _MOST = (1 << _BITS) - 1, 1 << (_PARTS * _BITS - 2)

Known = tuple[np.ndarray, Sequence[np.ndarray]]
"""The rows that stand for all before them, and the columns of the states there."""


def is_statistic(window: Window) -> bool:
    """Whether it is a variance or one of its relatives."""
    return window.kind in GATHERED and GATHERED[window.kind].statistic


def state_width(window: Window) -> int:
    """How many columns a state has."""
    return 2 + (1 + _PARTS) * len(QUANTITIES[1 if window.second is None else 2])


def statistics(
    window: Window, arguments: Sequence[tuple[np.ndarray, Type]], spans: Spans, known: Known, *, has_state: bool
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The words of the results in all frames and, with ``has_state``, the columns of the states there.

    ``arguments``: words and types, of a value, or of y and then x.
    """
    parts, used, undefined = _parts(arguments)
    rows, quantities = np.flatnonzero(used), QUANTITIES[len(arguments)]
    anchors, columns = known
    powers = [part.powers for part in parts]
    states = _read(columns, quantities) if len(anchors) else {}
    least = min([0, *(int(power.min()) for power in powers if len(power))])
    for quantity, (_, of_state) in states.items():
        lowest = int(of_state.min())
        least = min(least, lowest // 2 if quantity in _SQUARES else lowest)
    y, x = (_shifted(part, least) for part in (parts[0], parts[-1]))
    products = {X: (x,), Y: (y,), XX: (x, x), YY: (y, y), XY: (x, y)}
    sums: dict[int, Any] = {}
    for quantity in quantities:
        one, *other = products[quantity]
        values = np.zeros(len(used), dtype=object)
        values[rows] = one * other[0] if other else one
        if states:
            numbers, of_state = states[quantity]
            shifts = of_state - least * (2 if quantity in _SQUARES else 1)
            values[anchors] = numbers << shifts.astype(object)
        sums[quantity] = _in_frames(values, spans)
    for quantity, those, state in ((NUMBER, used | undefined, 1), (UNDEFINED, undefined, 0)):
        numbers = those.astype(np.int64)
        if len(anchors):
            numbers[anchors] = columns[state]
        sums[quantity] = _in_frames(numbers, spans).astype(object)
    results = _results(window, [kind for _, kind in arguments], sums, least)
    if not has_state:
        return results, []
    of_floats = any(kind.name == "float64" for _, kind in arguments)
    return results, _states(sums, quantities, least, of_floats=of_floats)


def _parts(arguments: Sequence[tuple[np.ndarray, Type]]) -> tuple[list[Whole], np.ndarray, np.ndarray]:
    """The arguments in the rows that count and are finite; which these are, and which of the others are not finite."""
    there = np.logical_and.reduce([words != encoding.NULL for words, _ in arguments])
    rows = np.flatnonzero(there)
    found = [whole_numbers(encoding.decode(words[rows], kind)) for words, kind in arguments]
    finite = np.logical_and.reduce([is_finite for _, is_finite in found])
    used, undefined = np.zeros(len(there), np.bool_), np.zeros(len(there), np.bool_)
    used[rows[finite]] = True
    undefined[rows[~finite]] = True
    return [part.of(finite) for part, _ in found], used, undefined


def _shifted(part: Whole, least: int) -> Any:
    """Python's integers, of which 1 is ``2 ** least``."""
    total = np.zeros(len(part.signs), dtype=object)
    for position, limb in enumerate(part.limbs):
        total += limb.astype(object) << (32 * position)
    return (total * part.signs.astype(object)) << (part.powers - least).astype(object)


def _in_frames(values: Any, spans: Spans) -> Any:
    """The sums of the values in frames."""
    before = np.concatenate([np.zeros(1, values.dtype), np.cumsum(values)])
    return (before[spans[1]] - before[spans[0]]).sum(axis=0)


def _results(window: Window, kinds: Sequence[Type], sums: Mapping[int, Any], least: int) -> np.ndarray:
    lifted = {quantity: total << -least if quantity in (X, Y) else total for quantity, total in sums.items()}
    scales = tuple(kind.scale for kind in kinds)
    moment = Moment(window.name, window.kind, window.options, tuple(map(str, scales)), scales, None)
    values = computed(moment, lifted, 1 << (-2 * least))
    return encoding.encode(pl.Series(window.name, values, pl.Float64), Type("float64"))


# -- states -----------------------------------------------------------------------------------------------------------


def _odd(number: int) -> tuple[int, int]:
    """A number without the zeros at its end, and how many these are."""
    zeros = (number & -number).bit_length() - 1 if number else 0
    return number >> zeros, zeros


_odds = np.frompyfunc(_odd, 1, 2)


def _states(sums: Mapping[int, Any], quantities: Sequence[int], least: int, *, of_floats: bool) -> list[np.ndarray]:
    flags, columns = np.minimum(sums[UNDEFINED].astype(np.int64), 1), list[np.ndarray]()
    for quantity in quantities:
        numbers, powers = sums[quantity], np.zeros(len(flags), np.int64)
        if of_floats:
            numbers, zeros = _odds(numbers)
            power = least * (2 if quantity in _SQUARES else 1)
            powers = np.where(numbers == 0, 0, zeros.astype(np.int64) + power)
        is_long = (np.abs(numbers) >= _MOST).astype(np.bool_)
        flags = np.where(is_long, flags | _UNKNOWN, flags)
        numbers = np.where(is_long, 0, numbers)
        words = [numbers & _LOW, (numbers >> _BITS) & _LOW, numbers >> (2 * _BITS)]
        columns += [powers, *(word.astype(np.int64) for word in words)]
    return [flags, sums[NUMBER].astype(np.int64), *columns]


def _read(columns: Sequence[np.ndarray], quantities: Sequence[int]) -> dict[int, tuple[Any, np.ndarray]]:
    """Of each quantity the whole numbers, and the powers of two that these count."""
    found = {}
    for number, quantity in enumerate(quantities):
        powers, *words = columns[2 + number * (1 + _PARTS) :][: 1 + _PARTS]
        low, middle, high = (word.astype(object) for word in words)
        found[quantity] = low + (middle << _BITS) + (high << (2 * _BITS)), powers
    return found
