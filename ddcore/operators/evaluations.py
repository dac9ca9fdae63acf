"""What a reduction evaluates and what it gives: keys with the times that cause it, targets, and their differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ddcore.base.lazy import numpy as np
from ddcore.traces.trace import Keys, Rows, chosen


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

    ``before``: the output so far, if it is known. ``changed``: of each of the times, if they are those of new updates,
    the word in the first column and the diff, (2, n). ``near``: which of their results may change, if not all.
    ``again``: reads more of the history of keys, as often as it is told, where that did not suffice.
    """

    keys: Keys
    offsets: np.ndarray
    times: np.ndarray
    before: Rows | None = None
    changed: np.ndarray | None = None
    near: Any = None
    again: Callable[[np.ndarray], tuple[Rows, Rows]] | None = None

    def between(self, a: int, b: int) -> Portion:
        """Keys number ``a`` to ``b``."""
        if b - a == len(self.keys):
            return self
        start, end = self.offsets[a], self.offsets[b]
        changed = None if self.changed is None else self.changed[:, start:end]
        return Portion(self.keys.part(a, b), self.offsets[a : b + 1] - start, self.times[:, start:end], changed=changed)

    def of(self, numbers: np.ndarray) -> Portion:
        """Some of its keys, by number; one may be there several times."""
        offsets, rows = chosen(self.offsets, numbers)
        keys = Keys(self.keys.codes[numbers], np.take(self.keys.words, numbers, axis=1))
        before = None if self.before is None else self.before.of(numbers)
        changed = None if self.changed is None else np.take(self.changed, rows, axis=1)
        return Portion(keys, offsets, np.take(self.times, rows, axis=1), before, changed)

    @property
    def around(self) -> np.ndarray:
        """The least and the greatest word that the new updates of each key have in the first column, (2, keys)."""
        assert self.changed is not None
        return np.stack([least.reduceat(self.changed[0], self.offsets[:-1]) for least in (np.minimum, np.maximum)])

    @property
    def keeps_size(self) -> np.ndarray:
        """Which keys have as many rows as before at each of the times: bool[keys]."""
        assert self.changed is not None
        keys, result = np.repeat(np.arange(len(self.keys)), np.diff(self.offsets)), np.ones(len(self.keys), np.bool_)
        order = np.lexsort((self.times[0], keys))
        keys, times = keys[order], self.times[0, order]
        heads = np.flatnonzero(np.append(True, (keys[1:] != keys[:-1]) | (times[1:] != times[:-1])))
        result[keys[heads[np.add.reduceat(self.changed[1, order], heads) != 0]]] = False
        return result

    @property
    def since(self) -> np.ndarray:
        """The first time of each key, of one coordinate."""
        since: np.ndarray = np.minimum.reduceat(self.times[0], self.offsets[:-1])
        return since
