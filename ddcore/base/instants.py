"""Instants of versions: when each coordinate of a time dimension was made, and ``now()`` at a time.

At a time ``now()`` is the latest instant of its coordinates. A coordinate without an instant has that of the one before
it. So the instants of one dimension are a collection of one row, which is replaced where the next instant begins.

Must not import anything heavy: the driver of a fold loads this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from ddcore.base.errors import ProgramError
from ddcore.text.wording import brief, listed

NOW = "now"  # the one column of the collection
Instants = tuple[Mapping[int, int], ...]
"""For each time dimension, by coordinate: microseconds since 1970."""
Moved = tuple[int, tuple[int, ...], int]
"""An update of the collection of instants: the instant, the time, the diff."""

_BEGIN, _UNIT = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


def microseconds(instant: datetime) -> int:
    """An instant as a number; without a zone it is in UTC."""
    return ((instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)) - _BEGIN) // _UNIT


def instant_of(number: int) -> datetime:
    """The instant that :func:`microseconds` made a number of."""
    return _BEGIN + number * _UNIT


def moved(instants: Instants) -> Iterator[Moved]:
    """The updates of the collection of instants: in each dimension its own row, which later ones replace."""
    for number, of in enumerate(instants):
        before: int | None = None
        for coordinate in sorted(of):
            time = tuple(coordinate if dim == number else 0 for dim in range(len(instants)))
            if of[coordinate] != before:
                if before is not None:
                    yield before, time, -1
                yield of[coordinate], time, 1
                before = of[coordinate]


def now_at(instants: Instants, time: Sequence[int]) -> int | None:
    """What ``now()`` is at a time; None where no coordinate has an instant, and none before it."""
    latest = [_at(of, coordinate) for of, coordinate in zip(instants, time, strict=True)]
    return max((instant for instant in latest if instant is not None), default=None)


def _at(of: Mapping[int, int], coordinate: int) -> int | None:
    known = [start for start in of if start <= coordinate]
    return of[max(known)] if known else None


def instants_of(given: Any, dims: Sequence[str]) -> Instants:
    """The instants that a caller gives: of each version, or by the names of several dimensions. Raises ProgramError."""
    example = "{0: datetime(2026, 11, 19, tzinfo=UTC)}"
    hint = f"for example instants={example if len(dims) == 1 else f'{{{dims[0]!r}: {example}}}'}"
    by_dim = {dims[0]: given} if len(dims) == 1 else given
    if not isinstance(by_dim, Mapping) or not all(isinstance(of, Mapping) for of in by_dim.values()):
        raise ProgramError(f"instants is {brief(given)}, no dict of instants", hint)
    if unknown := [dim for dim in by_dim if dim not in dims]:
        raise ProgramError(f"instants: there is no time dimension {unknown[0]!r}; there are: {listed(dims)}", hint)
    for coordinate, instant in (pair for of in by_dim.values() for pair in of.items()):
        if isinstance(coordinate, bool) or not hasattr(coordinate, "__index__") or coordinate < 0:
            raise ProgramError(f"instants: {brief(coordinate)} is no version", hint)
        if not isinstance(instant, datetime):
            raise ProgramError(f"instants: {brief(instant)} at {coordinate} is no datetime", hint)
    return tuple({int(key): microseconds(value) for key, value in by_dim.get(dim, {}).items()} for dim in dims)
