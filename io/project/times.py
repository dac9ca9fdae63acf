"""Times as commands, messages and the ledger spell them.

A time has one coordinate for each name in ``[time] dims``. With one dimension the coordinate is the *version*, and
people and programs read and write a plain number. Python orders tuples lexicographically, which extends the product
order, so times can be sorted. Comparisons use the product order of :mod:`ddcore.base.lattice`.

Must not import anything heavy: every command reads the ledger first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import overload

from ddcore.base.errors import UsageError
from ddcore.text.wording import listed, meant

LARGEST_TIME = 2**63 - 2  # one less than int64 holds, so that there is always a next one
_WHOLE = re.compile(r"[+-]?[0-9]+")


# --- one time ---------------------------------------------------------------------------------------------------------


class Time(tuple[int, ...]):
    """The coordinates of a time. As text it is ``7`` or ``7,1``, which is also its key in JSON objects of the ledger.

    >>> str(Time([7])), str(Time([7, 1]))
    ('7', '7,1')
    """

    __slots__ = ()

    def __str__(self) -> str:
        return ",".join(map(str, self))

    @property
    def version(self) -> int:
        """The coordinate of the only dimension."""
        (version,) = self
        return version

    @property
    def plain(self) -> int | tuple[int, ...]:
        """The time for JSON and for programs: a number with one dimension, else a tuple."""
        return self[0] if len(self) == 1 else tuple(self)


@overload
def time_of(plain: int | Sequence[int]) -> Time: ...


@overload
def time_of(plain: int | Sequence[int] | None) -> Time | None: ...


def time_of(plain: int | Sequence[int] | None) -> Time | None:
    """The time that :attr:`Time.plain` gave, also where JSON has made it a list; None for None."""
    return None if plain is None else Time([plain] if isinstance(plain, int) else plain)


def least(times: Iterable[tuple[int, ...]]) -> Time:
    """The greatest time at or before all of these, of which there is at least one: the least of each coordinate."""
    return Time(map(min, zip(*times, strict=True)))


def greatest(times: Iterable[tuple[int, ...]]) -> Time:
    """The least time at or after all of these, of which there is at least one: the greatest of each coordinate."""
    return Time(map(max, zip(*times, strict=True)))


def parse(text: str, dims: Sequence[str], origin: str, by_name: Callable[[str, int], int] | None = None) -> Time:
    """The time that ``text`` spells, such as ``day=7,revision=1`` in any order; a bare number with one dimension.

    ``by_name(text, place)``: the coordinate that a text other than a number means, in the dimension at that place.
    UsageError, beginning with ``origin``, names what is missing, unknown, repeated or not a whole number from 0 up.
    """

    def coordinate(value: str, dim: str) -> int:
        if by_name is None or _WHOLE.fullmatch(value.strip()) or not value.strip():
            return _coordinate(value, dim, origin)
        return by_name(value.strip(), dims.index(dim))

    hint = f"name every dimension once, for example: {example(dims)}"
    if "=" not in text:
        if len(dims) > 1:
            raise UsageError(f"{origin}: {text.strip()!r} is not a time of {listed(dims)}", hint)
        return Time([coordinate(text, dims[0])])
    values: dict[str, int] = {}
    for part in text.split(","):
        name, equals, number = (word.strip() for word in part.partition("="))
        if not (name and equals):
            raise UsageError(f"{origin}: {part.strip()!r} is not NAME=NUMBER in {text!r}", hint)
        if name not in dims:
            known = f"there is no time dimension {name!r}; there are: {listed(dims)}"
            raise UsageError(f"{origin}: {known}", meant(name, dims) or hint)
        if name in values:
            raise UsageError(f"{origin}: {name} occurs twice in {text!r}", hint)
        values[name] = coordinate(number, name)
    missing = [dim for dim in dims if dim not in values]
    if missing:
        raise UsageError(f"{origin}: {text!r} has no {listed(missing)}", hint)
    return Time(values[dim] for dim in dims)


def _coordinate(text: str, name: str, origin: str) -> int:
    text = text.strip()
    if not _WHOLE.fullmatch(text) or not text.isascii():
        raise UsageError(f"{origin}: {name} is {text!r:.60}, not a whole number", "times are whole numbers from 0 up")
    if text.startswith("-") and text.strip("-0"):
        raise UsageError(f"{origin}: {name} is {text:.60}, which is negative", "times start at 0")
    digits = text.lstrip("+-0") or "0"
    if len(digits) > len(str(LARGEST_TIME)) or int(digits) > LARGEST_TIME:
        raise UsageError(f"{origin}: {name} is {text:.60}, which is too large", f"times end at {LARGEST_TIME}")
    return int(digits)


def example(dims: Sequence[str]) -> str:
    """A time for hints."""
    return ",".join(f"{dim}={7 if number == 0 else 1}" for number, dim in enumerate(dims))


def shown(time: tuple[int, ...], dims: Sequence[str]) -> str:
    """A time as :func:`parse` reads it.

    >>> shown(Time([7]), ["version"]), shown(Time([7, 1]), ["day", "revision"])
    ('7', 'day=7,revision=1')
    """
    return str(time[0]) if len(time) == 1 else ",".join(f"{dim}={at}" for dim, at in zip(dims, time, strict=True))


def named(time: tuple[int, ...], dims: Sequence[str]) -> str:
    """A time for a sentence: ``version 7`` or ``day=7,revision=1``."""
    return f"version {time[0]}" if len(time) == 1 else shown(time, dims)


def span(first: Time, last: Time, dims: Sequence[str]) -> str:
    """The times from ``first`` to ``last``, each coordinate by itself.

    >>> span(Time([3]), Time([7]), ["version"]), span(Time([1, 0]), Time([7, 0]), ["day", "revision"])
    ('3..7', 'day=1..7,revision=0')
    """
    texts = [f"{low}..{high}" if low != high else f"{low}" for low, high in zip(first, last, strict=True)]
    return texts[0] if len(texts) == 1 else ",".join(f"{dim}={text}" for dim, text in zip(dims, texts, strict=True))


def json_time(time: tuple[int, ...] | None, dims: Sequence[str]) -> int | dict[str, int] | None:
    """A time in a command's JSON: a number with one dimension, else an object by the names of the dimensions."""
    if time is None:
        return None
    return time[0] if len(time) == 1 else dict(zip(dims, time, strict=True))


def parse_key(text: str) -> Time:
    """The time whose text this is, as ``str(time)``."""
    return Time(map(int, text.split(",")))
