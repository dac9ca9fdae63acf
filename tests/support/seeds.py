"""Seeds of random tests: those that are the same in every run, those for every night, those of which each run draws
some, and those new in each run.

``DDCORE_SEEDS=2000`` chooses how many of the first kind, ``DDCORE_SEEDS=731-740`` a range without its end.
The last kind comes from ``DDCORE_SEED``, a base for the whole run that is drawn and printed where it is not set.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Sequence
from typing import Any

import pytest

__all__ = ["base", "nightly", "of_test", "sampled", "seeds"]


def seeds(default: int, share: int = 1, start: int = 0) -> range:
    """So many seeds from ``start`` on, or those that ``DDCORE_SEEDS`` chooses: of a number one in ``share``, for tests
    that take long; of a range the first ones, and at least one.
    """
    text = os.environ.get("DDCORE_SEEDS", "")
    if not text:
        return range(start, start + default)
    first, dash, end = text.partition("-") if "-" in text else ("", "", text)
    if not end.isdecimal() or (dash and not (first.isdecimal() and int(first) < int(end))) or not int(end):
        raise pytest.UsageError(f"DDCORE_SEEDS={text} is neither a number, as 2000, nor a range, as 731-740")
    if dash:
        return range(int(first), int(first) + max(1, (int(end) - int(first)) // share))
    return range(start, start + max(1, int(end) // share))


def nightly(seeds: Sequence[Any], most: int) -> list[Any]:
    """The seeds as parameters of a test; those after the first ``most`` are for ``make test-all``. A tuple has a value
    for each of several parameters.
    """
    late = (seed if isinstance(seed, tuple) else (seed,) for seed in seeds[most:])
    return [*seeds[:most], *(pytest.param(*values, marks=pytest.mark.long) for values in late)]


def sampled(seeds: Sequence[Any], most: int) -> list[Any]:
    """The seeds as parameters of a test of one law; each run draws so many of them, the others are for
    ``make test-all``. All of them where ``DDCORE_SEEDS`` chooses them.
    """
    if os.environ.get("DDCORE_SEEDS"):
        return list(seeds)
    kept = set(random.Random(base()).sample(range(len(seeds)), most))
    return [seed if place in kept else pytest.param(seed, marks=pytest.mark.long) for place, seed in enumerate(seeds)]


def base() -> int:
    """The seed that all of this run are drawn from. It is drawn once, and the workers of pytest-xdist inherit it."""
    text = os.environ.setdefault("DDCORE_SEED", str(random.SystemRandom().randrange(10**6)))
    if not text.isdecimal():
        raise pytest.UsageError(f"DDCORE_SEED={text} is not a whole number")
    return int(text)


def of_test(node: str) -> int:
    """The seed of a test in this run, by its node id: the same whatever else runs, in whatever order."""
    return random.Random(base() + zlib.crc32(node.encode())).randrange(10**6)
