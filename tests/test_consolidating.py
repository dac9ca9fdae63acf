"""What a worker consolidates before it sends it: the sums are those of the updates, and only where many of them go."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest
from seeds import nightly
from test_messages import arranged, columns, message_of, travelled

from ddcore.base.schema import parse_schema
from ddcore.base.tuning import Tuning
from ddcore.data import encoding
from ddcore.jobs.engines.consolidating import Consolidating
from ddcore.jobs.engines.division import Division
from ddcore.jobs.engines.messages import Message, divided
from ddcore.traces.batch import Batch
from ddcore.traces.budget import Budget
from ddcore.traces.spilling import UNLIMITED

ROWS = 50_000


def sums(message: Message) -> dict[tuple[Any, ...], int]:
    """The sum of the diffs of each row and time, without zeros: by Python's integers."""
    *keys, diffs = columns(message.arrangement, message)[: len(message.arrangement.collection) + 3]
    total: Counter[tuple[Any, ...]] = Counter()
    for diff, *row in zip(diffs, *keys, strict=True):
        total[tuple(row)] += diff
    return {row: number for row, number in total.items() if number}


def orders(keys: np.ndarray, key: tuple[str, ...], *, transient: bool = True, kind: str = "int64") -> Message:
    """An update of a component of a total for each key: what a sum of amounts sends."""
    arrangement = arranged(parse_schema({"k": kind, "component": "int64"}), key, transient=transient)
    words = (
        keys
        if kind == "int64"
        else encoding.encode(pl.Series([f"key {k}" for k in keys]), parse_schema({"k": kind})["k"])
    )
    zeros = np.zeros(len(keys), np.int64)
    diffs = np.random.default_rng(3).integers(-5, 6, len(keys))
    return message_of(arrangement, [Batch([words, zeros], [zeros, zeros], diffs)])


@pytest.mark.parametrize("seed", nightly(range(40), 6))
def test_the_sums_are_those_of_the_updates(seed: int) -> None:
    """Of keys that are few or many, all over or sorted, of values and of hashes, in several messages of one worker."""
    print(f"seed {seed}")
    budget = Budget(UNLIMITED, 1, Tuning(sent_rows=100))
    dice, rng, sender = random.Random(seed), np.random.default_rng(seed), Consolidating(budget)
    for _ in range(3):
        rows = dice.choice([50, 2_000, 30_000])
        keys = rng.integers(0, dice.choice([3, 1_000, 10**9]), rows)
        if dice.random() < 0.5:
            keys.sort()
        key = dice.choice([("k",), ("k", "component"), ("component",)])
        sent = orders(keys, key, transient=dice.random() < 0.5, kind=dice.choice(["int64", "string"]))
        message = sender.of(sent)
        assert sums(message) == sums(sent)
        bounds = {0: [0, dice.choice([0, 500, 2**62])]}
        parts = [travelled(part) for _, part in divided(message, Division(bounds, {}))]
        together: Counter[tuple[Any, ...]] = Counter()
        for part in parts:
            together.update(sums(part))
        assert {row: number for row, number in together.items() if number} == sums(sent)


def test_a_key_with_many_of_the_rows_is_one_update() -> None:
    rng = np.random.default_rng(1)
    keys = np.where(rng.random(ROWS) < 0.4, 7, rng.integers(10, 10**9, ROWS))
    sender, sent = Consolidating(), orders(rng.permutation(keys), ("k",))
    message = sender.of(sent)
    assert columns(message.arrangement, message)[0].count(7) <= 1
    assert sender.removed[0] == 1 - len(message) / ROWS > 0.39
    assert len(sender.of(sent)) == len(message)


def test_updates_that_stay_are_not_sorted_and_are_looked_at_again() -> None:
    sender, few = (
        Consolidating(Budget(UNLIMITED, 1, Tuning(sent_again_rows=2 * ROWS))),
        orders(np.arange(100) % 3, ("k",)),
    )
    distinct, same = orders(np.arange(ROWS), ("k",)), orders(np.full(ROWS, 5), ("k",))
    assert sender.of(few) is few
    assert sender.removed == {}
    assert sender.of(distinct) is distinct
    assert sender.removed[0] < 0.2  # a diff of 0 goes, too
    assert sender.of(same) is same  # but not after each message
    assert len(sender.of(same)) <= 1
    assert sender.removed[0] > 0.99
    assert len(sender.of(distinct)) > 0.8 * ROWS  # because the last ones went
    assert sender.of(distinct) is distinct


def test_of_updates_that_cancel_nothing_is_sent() -> None:
    arrangement = arranged(parse_schema({"k": "int64"}), ("k",))
    zeros = np.zeros(ROWS, np.int64)
    cancelling = Batch([zeros], [zeros, zeros], np.where(np.arange(ROWS) % 2, 1, -1))
    message = Consolidating().of(message_of(arrangement, [cancelling]))
    assert len(message) == 0
    assert list(divided(message, Division({0: [0]}, {}))) == []


def test_sums_that_int64_does_not_hold_travel() -> None:
    arrangement = arranged(parse_schema({"k": "int64"}), ("k",))
    zeros = np.zeros(ROWS, np.int64)
    sent = message_of(arrangement, [Batch([zeros], [zeros, zeros], np.full(ROWS, 2**60))])
    *_, low, high = columns(arrangement, travelled(Consolidating().of(sent)))
    assert (high[0] << 64) + (low[0] & (2**64 - 1)) == ROWS * 2**60
