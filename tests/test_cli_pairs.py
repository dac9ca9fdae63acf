"""Deletes paired with inserts of the same key."""

from __future__ import annotations

import random
from collections import Counter

from ddcore.io.reading.pairs import Change, paired


def test_a_changed_cell() -> None:
    assert list(paired([(("Zoo", 7), -1), (("Zoo", 14), 1)], [0])) == [Change(("Zoo", 7), ("Zoo", 14))]


def test_without_key_rows_stay_alone() -> None:
    assert list(paired([(("a",), -1), (("b",), 2)], [])) == [Change(("a",), None), Change(None, ("b",), 2)]


def test_multiplicities_are_split() -> None:
    rows = [((1, "x"), -3), ((1, "y"), 2), ((2, "z"), 1)]
    assert list(paired(rows, [0])) == [
        Change((1, "x"), (1, "y"), 2),
        Change((1, "x"), None),
        Change(None, (2, "z")),
    ]


def test_null_and_nan_keys_pair() -> None:
    nan = float("nan")
    rows = [((None, 1), -1), ((None, 2), 1), ((nan, 1), -1), ((float("nan"), 2), 1)]
    assert [(change.before is None, change.after is None) for change in paired(rows, [0])] == [(False, False)] * 2


def test_pairs_add_up_to_the_difference() -> None:
    for seed in range(50):
        dice = random.Random(seed)
        rows = sorted({(dice.randrange(4), dice.randrange(5)): dice.choice([-2, -1, 1, 3]) for _ in range(9)}.items())
        total: Counter[tuple[int, ...]] = Counter()
        for change in paired(rows, [0]):
            if change.before is not None:
                total[change.before] -= change.times
            if change.after is not None:
                total[change.after] += change.times
        assert dict(total) == dict(rows), f"seed {seed}"
