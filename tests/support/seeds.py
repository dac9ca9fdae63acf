"""Seeds of random tests: those that are the same in every run, those for every night, and those new in each run; and
the sample that a run draws of tests.

``DDCORE_SEEDS=2000`` chooses how many of the first kind, ``DDCORE_SEEDS=731-740`` a range without its end.
The last kind and the sample come from ``DDCORE_SEED``, a base for the whole run that is drawn and printed where it is
not set.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

__all__ = ["base", "leave_to_the_night", "nightly", "of_test", "seeds"]

ON_SPARK = 8
"""So many tests that start Spark, seconds each, are in a run of the suite; one file or two are run whole."""


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


def leave_to_the_night(items: Sequence[pytest.Item]) -> None:
    """Marks as ``long`` all tests of a family but those that this run draws.

    A family: the cases of a test with the mark ``sample(most)``, the tests of a file with the same
    ``sample(most, of="name")``, and all that are marked ``spark`` and not ``sample``. Where ``DDCORE_SEEDS`` chooses,
    all run.
    """
    families: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("long") or os.environ.get("DDCORE_SEEDS"):
            continue
        if mark := item.get_closest_marker("sample"):
            name = mark.kwargs.get("of") or item.name.partition("[")[0]
            families.setdefault((f"{item.path.name}::{name}", *mark.args), []).append(item)
        elif item.get_closest_marker("spark"):
            families.setdefault(("spark", ON_SPARK), []).append(item)
    for (name, most), tests in families.items():
        drawn = random.Random(of_test(name)).sample(range(len(tests)), min(most, len(tests)))
        for number in {*range(len(tests))} - {*drawn}:
            tests[number].add_marker("long")


def base(failed: Path | None = None) -> int:
    """The seed that all of this run are drawn from. It is drawn once, and the workers of pytest-xdist inherit it; or it
    is that of the run that ``failed``, where there is such a file.
    """
    drawn = failed.read_text() if failed and failed.exists() else str(random.SystemRandom().randrange(10**6))
    text = os.environ.setdefault("DDCORE_SEED", drawn)
    if not text.isdecimal():
        raise pytest.UsageError(f"DDCORE_SEED={text} is not a whole number")
    return int(text)


def of_test(node: str) -> int:
    """The seed of a test in this run, by its node id: the same whatever else runs, in whatever order."""
    return random.Random(base() + zlib.crc32(node.encode())).randrange(10**6)
