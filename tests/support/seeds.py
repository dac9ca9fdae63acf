"""Seeds of random tests: some for every change, the others for every night."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

__all__ = ["nightly"]


def nightly(seeds: Sequence[Any], most: int) -> list[Any]:
    """The seeds as parameters of a test; those after the first ``most`` are for ``make test-all``."""
    return [*seeds[:most], *(pytest.param(seed, marks=pytest.mark.long) for seed in seeds[most:])]
