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
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

__all__ = ["base", "by_day", "cases_of_this_run", "kind", "leave_to_the_night", "nightly", "of_test", "seeds"]

_RUN = {"by day": False}
ON_SPARK = {"connect": 1, "killed": 1, "ingests": 1, "folds": 1, "others": 4}
"""So many tests of a kind that start Spark, seconds each, are in a run of the suite."""
KINDS = {
    "connect": "connect", "failed_runs": "killed", "signals": "killed", "tailing": "killed", "failpoints": "killed",
    "ingest_spark": "ingests", "feed": "ingests", "forms": "ingests", "snapshots": "ingests", "upserts": "ingests",
    "opened": "ingests", "hostile_files": "ingests", "exchange": "folds", "nested": "folds", "now": "folds",
    "times": "folds", "profile": "folds", "interning": "folds", "branches": "folds", "data_tests": "folds",
    "inspect": "folds", "verify": "folds", "shared_publication": "folds", "batch_invariance": "folds",
}  # fmt: skip
"""Of files with tests that start Spark, their kind; all others are ``others``."""


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


def by_day(without_long: bool | None = None) -> bool:
    """Whether this run leaves out what is marked ``long``, so that it need not be collected; set by ``conftest``."""
    if without_long is not None:
        _RUN["by day"] = without_long
    return _RUN["by day"]


def nightly(seeds: Iterable[Any], most: int) -> list[Any]:
    """The seeds as parameters of a test; those after the first ``most`` are for ``make test-all``, and by day not even
    drawn where ``seeds`` is lazy. A tuple has a value for each of several parameters.
    """
    rest = iter(seeds)
    first = list(islice(rest, most))
    late = (seed if isinstance(seed, tuple) else (seed,) for seed in (() if by_day() else rest))
    return [*first, *(pytest.param(*values, marks=pytest.mark.long) for values in late)]


def cases_of_this_run(metafunc: pytest.Metafunc) -> None:
    """By day the cases of a test that are marked ``long``, or that its ``sample`` has not drawn, do not become items:
    they were half of what a run collects.

    Pytest has no public way to take cases out; a test that is long as a whole keeps one, which ``-m`` leaves out.
    """
    calls, test = metafunc._calls, metafunc.definition
    if not by_day() or len(calls) < 2:
        return
    kept = (
        calls[:1] if test.get_closest_marker("long") else [c for c in calls if all(m.name != "long" for m in c.marks)]
    )
    mark = test.get_closest_marker("sample")
    if mark and not mark.kwargs.get("of") and not os.environ.get("DDCORE_SEEDS"):
        numbers = _drawn(f"{test.path.name}::{test.name}", mark.args[0], len(kept))
        kept = [call for number, call in enumerate(kept) if number in numbers]
    metafunc._calls[:] = kept or calls[:1]


def kind(file: Path) -> str:
    """Which of the kinds of ``ON_SPARK`` the tests of a file are."""
    return KINDS.get(file.stem.removeprefix("test_"), "others")


def _drawn(family: str, most: int, count: int) -> set[int]:
    return {*random.Random(of_test(family)).sample(range(count), min(most, count))}


def leave_to_the_night(items: Sequence[pytest.Item]) -> None:
    """Marks as ``long`` all tests of a family but those that this run draws.

    A family: the cases of a test with the mark ``sample(most)``, the tests of a file with the same
    ``sample(most, of="name")``, and all of one kind that are marked ``spark`` and not ``sample``. Where
    ``DDCORE_SEEDS`` chooses, all run.
    """
    families: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("long") or os.environ.get("DDCORE_SEEDS"):
            continue
        if mark := item.get_closest_marker("sample"):
            name = mark.kwargs.get("of") or item.name.partition("[")[0]
            families.setdefault((f"{item.path.name}::{name}", *mark.args), []).append(item)
        elif item.get_closest_marker("spark"):
            families.setdefault((kind(item.path), ON_SPARK[kind(item.path)]), []).append(item)
    for (name, most), tests in families.items():
        for number in {*range(len(tests))} - _drawn(name, most, len(tests)):
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
