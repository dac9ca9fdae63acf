"""Few updates, consolidated and merged by the kernels for few: sorted already, in two sorted parts, or neither."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest

from ddcore import kernels
from ddcore.base import lattice
from ddcore.base.schema import Type
from ddcore.data import encoding
from ddcore.traces import consolidation
from ddcore.traces.columns import Plain
from ddcore.traces.consolidation import arrange_all, merge, union
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch

WIDTH = 2
SIZES = (1, 2, 63, 64, 65, 300, 2_000)
FRONTIERS: tuple[Any, ...] = (None, [[1, 2]], [[3, 1]], [[0, 3], [2, 0]])


def columns_of(rng: np.random.Generator, n: int) -> list[np.ndarray]:
    """Code, two words, two coordinates and diffs; with wide codes, one column is packed in halves."""
    code = rng.integers(0, rng.choice([2, 50, 2**40]), n) + rng.choice([-(2**61), -3, 0])
    words = [rng.integers(-3, rng.choice([-2, 4, 90]), n), np.full(n, rng.choice([-(2**63), 0, 7]))]
    return [code, *words, rng.integers(0, 5, n), rng.integers(0, 5, n), rng.integers(-1, 3, n)]


def rows_of(columns: list[np.ndarray], frontier: Any) -> Counter[Any]:
    times = np.stack(columns[3:5])
    if frontier is not None:
        times = lattice.advance(times, np.array(frontier, dtype=np.int64).T.copy())
    total: Counter[Any] = Counter()
    for *row, diff in np.stack([*columns[:3], *times, columns[5]]).T.tolist():
        total[tuple(row)] += diff
    return Counter({row: diff for row, diff in total.items() if diff})


def updates_of(batch: SortedBatch) -> Counter[Any]:
    *columns, diffs = batch.columns()
    rows = [tuple(row) for row in np.stack(columns).T.tolist()]
    assert rows == sorted(set(rows))
    assert np.all(diffs != 0)
    return Counter(dict(zip(rows, diffs.tolist(), strict=True)))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("size", SIZES)
def test_updates_are_consolidated(seed: int, size: int) -> None:
    columns = columns_of(np.random.default_rng(seed), size)
    assert updates_of(arrange_all([Plain(columns)], WIDTH)) == rows_of(columns, None)


@pytest.mark.sample(110)
@pytest.mark.parametrize("frontier", FRONTIERS)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("size", SIZES)
def test_batches_are_merged_beyond_a_frontier(seed: int, size: int, frontier: Any) -> None:
    rng = np.random.default_rng(seed)
    both = columns_of(rng, size), columns_of(rng, size // 2)
    a, b = (arrange_all([Plain(columns)], WIDTH) if len(columns[0]) else _empty() for columns in both)
    before = updates_of(a), updates_of(b)
    together = [np.concatenate(pair) for pair in zip(*both, strict=True)]
    bound = None if frontier is None else np.array(frontier, dtype=np.int64).T.copy()
    assert updates_of(merge(a, b, bound)) == rows_of(together, frontier)
    assert updates_of(union([item.columns() for item in (a, b, a)], WIDTH)) == rows_of(
        [np.concatenate([x, y]) for x, y in zip(together, both[0], strict=True)], None
    )
    assert (updates_of(a), updates_of(b)) == before, "a batch that others may hold was changed"


@pytest.mark.sample(32)
@pytest.mark.parametrize("frontier", FRONTIERS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [1, 30, 300, 5_000])
def test_batches_that_no_integer_holds_are_merged_by_comparing_rows(seed: int, size: int, frontier: Any) -> None:
    rng = np.random.default_rng(seed)
    wide = rng.integers(-(2**63) + 1, 2**63, (2, max(2, size // 3)))

    def columns(n: int) -> list[np.ndarray]:
        rest = columns_of(rng, n)[2:]
        row = rng.integers(0, wide.shape[1], n)
        return [wide[0][row], wide[1][row], *rest]

    three = [columns(size), columns(1 + size // 4), columns(1 + size // 50)]
    batches = [arrange_all([Plain(item)], WIDTH) for item in three]
    before = [updates_of(batch) for batch in batches]
    two, every = ([np.concatenate(parts) for parts in zip(*some, strict=True)] for some in (three[:2], three))
    bound = None if frontier is None else np.array(frontier, dtype=np.int64).T.copy()
    assert updates_of(merge(batches[0], batches[1], bound)) == rows_of(two, frontier)
    assert updates_of(merge(batches[1], batches[0], bound)) == rows_of(two, frontier)
    assert updates_of(union([item.columns() for item in batches], WIDTH)) == rows_of(every, None)
    assert [updates_of(batch) for batch in batches] == before, "a batch that others may hold was changed"


def test_sums_that_int64_does_not_hold_stay_apart() -> None:
    a, b = (np.array([[2**62, 2**62], [7, 8], [most, 1]]) for most in (2**63 - 1, 2**62))
    together = kernels.merging.united(a, b, 1, np.empty((0, 0), np.int64))
    assert together.tolist() == [[2**62] * 3, [7, 7, 8], [2**62, 2**63 - 1, 2]]
    later = kernels.merging.united(a, b, 1, np.array([[9]]))
    assert later.tolist()[:2] == [[2**62] * len(later[0]), [9] * len(later[0])]
    assert sum(map(int, later[2])) == 2**63 - 1 + 2**62 + 2


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [1, 25, 255, 256, 257, 3_000])
@pytest.mark.parametrize("kinds", [("int64", "int64"), ("string", "int64"), ("string", "string")])
def test_updates_of_hashed_keys_are_consolidated(seed: int, size: int, kinds: tuple[str, str]) -> None:
    _, *columns = columns_of(np.random.default_rng(seed), size)
    texts = encoding.encode(pl.Series([f"text {number}" for number in range(100)]), Type("string"))
    columns[:2] = [
        texts[np.arange(size) * number % 90] if kind == "string" else np.arange(size) % 40 * number
        for number, kind in enumerate(kinds, 1)
    ]
    key = [Type(kind) for kind in kinds]
    codes = encoding.key_codes(columns[:2], key, size)
    pieces = (
        [Plain(columns)]
        if size < 2
        else [Plain([c[: size // 2] for c in columns]), Plain([c[size // 2 :] for c in columns])]
    )
    assert updates_of(arrange_all(pieces, WIDTH, key)) == rows_of([codes, *columns], None)


def test_sums_of_hashed_keys_may_need_both_words() -> None:
    columns = [np.zeros(2, np.int64)] * 3 + [np.full(2, 2**62)]
    batch = arrange_all([Plain(columns)], WIDTH, [Type("int64")] * 2)
    assert (
        batch.high is not None
        and (int(batch.high[0]) << 64) + (int(batch.decompress().diffs[0]) & (2**64 - 1)) == 2**63
    )


def _empty() -> SortedBatch:
    return ColumnBatch(*(np.empty(shape, np.int64) for shape in (0, (WIDTH, 0), (2, 0), 0)))


@pytest.mark.parametrize(("parts", "is_done"), [(1, True), (2, True), (3, False)])
def test_numpy_sorts_only_what_is_not_in_two_parts(parts: int, is_done: bool) -> None:
    code = np.concatenate([np.arange(50) for _ in range(parts)])
    columns, nothing = np.stack([code, np.ones(len(code), np.int64)]), np.empty((0, 0), np.int64)
    done, summed, packed, _ = kernels.small_batches.consolidate(columns, nothing)
    assert (done, len(packed)) == (is_done, len(code))
    if done:
        assert summed.tolist() == [list(range(50)), [parts] * 50]
    few = consolidation._few([Plain(columns)])
    assert few is not None and few.tolist() == [list(range(50)), [parts] * 50]
