"""Large groups: those with a tree of partial results (:mod:`ddcore.operators.tree`), by operator, as key codes.

A fold keeps the trees of the groups that were large when it began, and notes others that are large by now. The next
fold sends their history to new trees before anything else. A key whose code is that of a large group counts as large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ddcore.base.lazy import numpy as np

Codes = dict[str, set[int]]
"""Key codes by the fingerprint of the arrangement of an operator's results."""


@dataclass
class LargeGroups:
    """``grown``: the groups with trees; ``noted``: those that are to have one in the next fold."""

    grown: Codes = field(default_factory=dict)
    noted: Codes = field(default_factory=dict)

    @classmethod
    def of(cls, grown: Mapping[str, Iterable[int]], noted: Mapping[str, Iterable[int]]) -> LargeGroups:
        """Large groups from what a run's record holds."""
        return cls({name: {*codes} for name, codes in grown.items()}, {name: {*codes} for name, codes in noted.items()})

    def copy(self) -> LargeGroups:
        """A copy of these groups, to be changed apart."""
        return LargeGroups.of(self.grown, self.noted)

    def all_grown(self) -> LargeGroups:
        """With trees for all groups, for those who do not send them their history."""
        groups = self.copy()
        groups.grow()
        return groups

    def absorb(self, other: LargeGroups) -> None:
        """Add the groups of another worker of the same fold."""
        for left, right in ((self.grown, other.grown), (self.noted, other.noted)):
            for name, codes in right.items():
                left.setdefault(name, set()).update(codes)

    def codes(self, name: str) -> np.ndarray:
        """The groups with trees: int64[m], ascending."""
        return np.array(sorted(self.grown.get(name, ())), dtype=np.int64)

    def note(self, name: str, codes: np.ndarray) -> None:
        """Groups that are to have a tree. Those that have one stay as they are."""
        new = {*codes.tolist()} - self.grown.get(name, set())
        if new:
            self.noted.setdefault(name, set()).update(new)

    def grow(self) -> dict[str, np.ndarray]:
        """Count the noted groups as grown. Returns them: their trees are empty."""
        noted, self.noted = self.noted, {}
        for name, codes in noted.items():
            self.grown.setdefault(name, set()).update(codes)
        return {name: np.array(sorted(codes), dtype=np.int64) for name, codes in noted.items()}
