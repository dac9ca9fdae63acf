"""Symbols: what a program is written with stands for rows that come later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddcore.base.errors import ProgramError
from ddcore.base.source_line import caller


class Symbol:
    """What stands for rows that come later. Python's own questions about a value have no answer yet, so each of them
    is a ProgramError: without it ``if rows:`` would be true, and ``rows == other`` false.
    """

    _called = "a collection"
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise self._unknown("has no truth value", 'to go on only where there are rows, use join(other, on, how="semi")')

    def __len__(self) -> int:
        raise self._unknown("has no length", "count the rows with group_by().agg(n=dd.count())")

    def __iter__(self) -> Iterator[Any]:
        raise self._unknown("cannot be iterated", ".columns has the names; for the rows use select() or flat_map()")

    def __contains__(self, value: object) -> bool:
        raise self._unknown("cannot say what is in it", ".columns has the names; for the rows use where() or join()")

    def _compare(self, other: object) -> Any:
        raise self._unknown("cannot be compared", "intersect() has the rows of both, except_() those of one only")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _compare

    def _unknown(self, what: str, hint: str) -> ProgramError:
        return ProgramError(f"{caller()}: {self._called} {what}, because its rows come when the program runs", hint)

    def _identity(self) -> str | None:
        """What tells its contents from those of others; None where it has no contents of its own."""
        return None
