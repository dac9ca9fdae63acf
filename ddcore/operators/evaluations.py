"""What a reduction evaluates and what it gives: keys with the times that cause it, targets, and their differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ddcore.base.lazy import numpy as np
from ddcore.traces.trace import Keys, Rows, chosen

__all__ = ["Changes", "Evaluations", "Portion", "Targets"]


@dataclass(slots=True)
class Targets:
    """Rows that should hold: evaluation number (ascending), words (columns, n), count."""

    evals: np.ndarray
    words: np.ndarray
    counts: np.ndarray


@dataclass(slots=True)
class Evaluations:
    """Where to evaluate: per key, versions (inputs, e); all at the rounds of the step."""

    keys: Keys
    offsets: np.ndarray
    versions: np.ndarray

    def key_of(self) -> np.ndarray:
        """The key number of each evaluation."""
        return np.repeat(np.arange(len(self.keys)), np.diff(self.offsets))


@dataclass(slots=True)
class Changes:
    """What evaluating keys gives: differences of the results, and times at which keys stay pending.

    Of each difference the key's number, version (inputs, n), words (columns, n) and diff; of each pending time the
    key's number and the time (coordinates, p).
    """

    keys: np.ndarray
    versions: np.ndarray
    words: np.ndarray
    diffs: np.ndarray
    late_keys: np.ndarray
    late_times: np.ndarray

    def and_of(self, other: Changes, keys: np.ndarray) -> Changes:
        """These, and those of other keys: the number of each in ``keys``."""
        other.keys, other.late_keys = keys[other.keys], keys[other.late_keys]
        pairs = ((getattr(self, name), getattr(other, name)) for name in self.__slots__)
        return Changes(*(np.concatenate(pair, axis=-1) for pair in pairs))


@dataclass(slots=True)
class Portion:
    """Some of the keys to evaluate, and the times that cause it: key k's are ``offsets[k]:offsets[k + 1]``.

    ``before``: the output so far, if it is known. ``around``: of each key the least and the greatest word that its new
    updates have in the first column, (2, keys), if that is known. ``near``: which of their results may change, if
    not all. ``again``: reads more of the history of keys, as often as it is told, where that did not suffice.
    """

    keys: Keys
    offsets: np.ndarray
    times: np.ndarray
    before: Rows | None = None
    around: np.ndarray | None = None
    near: Any = None
    again: Callable[[np.ndarray], tuple[Rows, Rows]] | None = None

    def between(self, a: int, b: int) -> Portion:
        """Keys number ``a`` to ``b``."""
        if b - a == len(self.keys):
            return self
        start, end = self.offsets[a], self.offsets[b]
        around = None if self.around is None else self.around[:, a:b]
        return Portion(self.keys.part(a, b), self.offsets[a : b + 1] - start, self.times[:, start:end], around=around)

    def of(self, numbers: np.ndarray) -> Portion:
        """Some of its keys, by number."""
        offsets, rows = chosen(self.offsets, numbers)
        keys = Keys(self.keys.codes[numbers], np.take(self.keys.words, numbers, axis=1))
        before = None if self.before is None else self.before.of(numbers)
        return Portion(keys, offsets, np.take(self.times, rows, axis=1), before)
