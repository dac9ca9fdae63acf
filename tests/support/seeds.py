"""Seeds of random tests: some for every change, the others for every night."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

__all__ = ["nightly"]


def nightly(seeds: Sequence[Any], most: int) -> list[Any]:
    """The seeds as parameters of a test; those after the first ``most`` are for ``make test-all``. A tuple has a value
    for each of several parameters.
    """
    late = (seed if isinstance(seed, tuple) else (seed,) for seed in seeds[most:])
    return [*seeds[:most], *(pytest.param(*values, marks=pytest.mark.long) for values in late)]
