"""Columns of updates one after another, in few bytes or not, and sorted by their key alone."""

from __future__ import annotations

import numpy as np
import pytest

from ddcore.base.schema import Type
from ddcore.base.tuning import Tuning
from ddcore.data.encoding import key_codes
from ddcore.engine.queues import Queue, waiting
from ddcore.operators.arrangement import Arrangement
from ddcore.traces.batch import Batch
from ddcore.traces.budget import Budget
from ddcore.traces.columns import Columns, Compressed, Plain, together
from ddcore.traces.consolidation import arrange_all

SPANS = (1, 2, 2**8, 2**9, 2**16, 2**17, 2**32, 2**33, 2**63 - 1)  # of values, which take 0, 1, 2, 4 or 8 bytes
WIDTH = 3
ARRANGEMENT = Arrangement(0, 0, {"k": Type("int64"), "v": Type("int64")}, ("k",), ("version",), "f", 0)


def table_of(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Three words, a coordinate and diffs."""
    columns = []
    for _ in range(WIDTH + 1):
        span, base = int(rng.choice(SPANS)), int(rng.choice([0, -1, 300, -(2**63), 2**40]))
        drawn = rng.integers(0, span, rows)
        columns.append(drawn + min(base, 2**63 - 1 - int(drawn.max())))
    return np.stack([*columns, rng.integers(-1, 2, rows)])


def piece_of(rng: np.random.Generator, *, plain: bool) -> tuple[Columns, np.ndarray]:
    """Some updates, and what they are."""
    rows = int(rng.integers(1, 400))
    table = table_of(rng, rows)
    if plain and rng.random() < 0.5:
        return Plain(table), table
    start = int(rng.integers(0, rows))  # the limits of a part may be those of all
    return Plain(table).compress().part(start, rows), table[:, start:]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_pieces_one_after_another(seed: int, plain: bool) -> None:
    rng = np.random.default_rng(seed)
    pieces, tables = zip(*(piece_of(rng, plain=plain) for _ in range(rng.integers(1, 6))), strict=True)
    joined, expected = together(pieces), np.concatenate(tables, axis=1)
    assert np.array_equal(joined.table(), expected)
    assert plain or isinstance(joined, Compressed)
    for number, column in enumerate(expected):
        least, most = joined.limits(number)
        assert least <= column.min() and column.max() <= most


@pytest.mark.parametrize("keys", [0, 1, 2])
@pytest.mark.parametrize("seed", range(20))
def test_updates_are_sorted_by_key_alone(seed: int, keys: int) -> None:
    """In few bytes or not; without types of keys the first word is the code."""
    rng, kinds = np.random.default_rng(seed), [Type("int64")] * keys
    piece, table = piece_of(rng, plain=True)
    budget = Budget(tuning=Tuning(few_rows=0, packed_rows=10**6))
    run = arrange_all([piece], WIDTH if keys else WIDTH - 1, kinds, budget=budget, summed=False).decompress()
    assert (np.diff(run.codes.astype(object)) >= 0).all()
    if not keys:
        packed = np.concatenate([run.codes[None], run.words, run.times, run.diffs[None]])
        assert sorted_sums(packed) == sorted_sums(table)
        return
    assert np.array_equal(run.codes, key_codes(list(run.words[:keys]), kinds, len(run)))
    rows = np.concatenate([run.words, run.times, run.diffs[None]])
    assert sorted(map(tuple, rows.T.tolist())) == sorted(map(tuple, table.T.tolist()))


def sorted_sums(table: np.ndarray) -> dict[tuple[int, ...], int]:
    """The sums of diffs by row and time, without zeros: what may be added up, or not."""
    sums: dict[tuple[int, ...], int] = {}
    for *row, diff in table.T.tolist():
        sums[tuple(row)] = sums.get(tuple(row), 0) + diff
    return {row: diff for row, diff in sums.items() if diff}


@pytest.mark.parametrize("seed", range(20))
def test_updates_that_wait_are_the_same_in_few_bytes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    budget = Budget(tuning=Tuning(waiting_rows=int(rng.integers(2, 40)), few_rows=0))
    queue, tables = Queue(ARRANGEMENT, budget), []
    for _ in range(rng.integers(1, 60)):
        table = rng.integers(0, 5, (4, rng.integers(1, 30)))
        batch = Batch([table[0], table[1]], [table[2]], table[3] - 2)
        queue.add(waiting(ARRANGEMENT, batch, budget))
        tables.append(np.stack([*table[:3], table[3] - 2]))
    expected, batch = np.concatenate(tables, axis=1), queue.batch()
    assert len(queue) == expected.shape[1]
    assert np.array_equal(np.stack([*batch.words, *batch.times, batch.diffs]), expected)
    run = queue.consolidated().decompress()
    assert sorted_sums(np.stack([run.codes, *run.words, *run.times, run.diffs])) == sorted_sums(expected)


def test_many_small_pieces_wait_in_few_bytes() -> None:
    queue = Queue(ARRANGEMENT)
    for start in range(0, 200_000, 1_000):
        keys = np.arange(start, start + 1_000)
        queue.add(waiting(ARRANGEMENT, Batch([keys, keys % 7], [keys * 0], keys * 0 + 1)))
    assert len(queue) == 200_000
    assert sum(piece.memory() for piece in queue.arrived) < 200_000 * 8
