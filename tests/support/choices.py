"""Random choices that one source of whole numbers makes: a seed, or hypothesis, which then shrinks what they lead to.

The number 0 leads to the plainest choice: the first of several, the least number, no. Hypothesis shrinks towards it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["Choices"]

_T = TypeVar("_T")


class Choices:
    """``below(n)`` gives a whole number from 0 to n - 1. ``record`` has those it gave, where there was a choice."""

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below
        self.record: list[int] = []

    @classmethod
    def of_seed(cls, seed: int) -> Choices:
        return cls(random.Random(seed).randrange)

    def below(self, n: int) -> int:
        if n == 1:
            return 0
        number = self._below(n)
        self.record.append(number)
        return number

    def chance(self, percent: int) -> bool:
        """True this often."""
        return self.below(100) >= 100 - percent

    def randint(self, least: int, greatest: int) -> int:
        return least + self.below(greatest - least + 1)

    def choice(self, items: Sequence[_T]) -> _T:
        return items[self.below(len(items))]

    def sample(self, items: Sequence[_T], count: int) -> list[_T]:
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in range(count)]
