"""Windows of time around a moment, by their definitions: of timestamps, dates and whole numbers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from typing import Any


def windows_around(moment: Any, every: Any, length: Any, offset: Any) -> list[tuple[Any, Any]]:
    """The start and the end of each window that a moment is in."""
    zero: Any = 0
    if isinstance(moment, datetime):
        zero = datetime(1970, 1, 1, tzinfo=moment.tzinfo)
    elif isinstance(moment, date):
        zero = date(1970, 1, 1)
    zero = zero if offset is None else zero + offset
    windows, number = [], (moment - zero) // every
    while zero + number * every + length > moment:
        windows.append((zero + number * every, zero + number * every + length))
        number -= 1
    return windows


def sessions_of(moments: Iterable[Any], gap: Any) -> list[tuple[Any, Any]]:
    """The first and the last moment of each session: the next one is within the gap."""
    sessions: list[tuple[Any, Any]] = []
    for moment in sorted(moments):
        if sessions and moment - sessions[-1][1] <= gap:
            sessions[-1] = sessions[-1][0], moment
        else:
            sessions.append((moment, moment))
    return sessions
