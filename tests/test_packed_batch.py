"""Sorted batches as packed integers: the same updates, look-ups, merges and rows as the columns they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from ddcore.base import lattice, threads
from ddcore.traces import consolidation, packed_batch, sorted_batch, spilling, trace
from ddcore.traces.columns import Plain
from ddcore.traces.consolidation import arrange_all, concatenated, merge, union
from ddcore.traces.packed_batch import PackedBatch
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch
from ddcore.traces.trace import Keys, gather

WIDTH = 2


@pytest.fixture(autouse=True)
def packed_from_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_batch, "LEAST_ROWS", 1)
    monkeypatch.setattr(consolidation, "FEW", 0)


def columns_of(rng: np.random.Generator, n: int) -> list[Any]:
    """Code, two words, two coordinates, of which the last may have priorities, and diffs, of random ranges."""
    code = rng.integers(0, rng.choice([3, 200, 2**20]), n) + rng.choice([-(2**62), -5, 0, 2**40])
    words = [rng.integers(-3, rng.choice([-2, 4, 500]), n), np.full(n, rng.choice([-(2**63), 0, 7]))]
    inner = rng.integers(0, 5, n) if rng.random() < 0.5 else (rng.integers(2**29, 2**29 + 4, n) << 32) + 1
    return [code, *words, rng.integers(0, rng.choice([1, 2, 9]), n), inner, rng.integers(-1, 3, n)]


def batch_of(rng: np.random.Generator, n: int) -> tuple[SortedBatch, Counter[Any]]:
    while True:
        columns = columns_of(rng, n)
        expected = summed([columns])
        if expected:
            return arrange_all([Plain(columns)], WIDTH), expected


def summed(pieces: Iterable[Any]) -> Counter[Any]:
    total: Counter[Any] = Counter()
    for *columns, diffs in pieces:
        for row, diff in zip(zip(*(c.tolist() for c in columns), strict=True), diffs.tolist(), strict=True):
            total[row] += diff
    return Counter({row: diff for row, diff in total.items() if diff})


def updates_of(batch: SortedBatch) -> Counter[Any]:
    *columns, diffs = batch.columns()
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    assert rows == sorted(set(rows))
    return Counter(dict(zip(rows, diffs.tolist(), strict=True)))


@pytest.mark.parametrize("seed", range(60))
def test_columns_and_parts_are_those_of_the_updates(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, expected = batch_of(rng, int(rng.integers(1, 90)))
    assert isinstance(batch, PackedBatch)
    assert (len(batch), batch.width) == (len(expected), WIDTH)
    assert updates_of(batch) == updates_of(batch.widen()) == expected
    rows = np.flatnonzero(rng.random(len(batch)) < 0.5)
    everything = sorted(expected.items())
    assert updates_of(batch.take(rows)) == Counter(dict(everything[row] for row in rows))
    assert updates_of(batch.part(1, 5)) == Counter(dict(everything[1:5]))
    pieces = list(batch.pieces(int(rng.integers(1, 20))))
    assert [update for piece in pieces for update in updates_of(piece).items()] == everything
    codes = [set(piece.widen().codes.tolist()) for piece in pieces]
    assert sum(map(len, codes)) == len(set().union(*codes)), "a code is in two pieces"


@pytest.mark.parametrize("seed", range(60))
def test_look_ups_find_the_rows_of_each_code(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is made in portions of a few rows, one after another or side by side."""
    monkeypatch.setattr(sorted_batch, "_PORTION", 1 + seed % 9)
    rng = np.random.default_rng(seed)
    batch, expected = batch_of(rng, int(rng.integers(1, 200)))
    known = np.unique(batch.widen().codes)
    around = np.concatenate([known, known + 1, known - 1, [-(2**63) + 1, 2**63 - 1, 0]])
    probes = np.unique(around)
    with threads.using(1 + seed % 3):
        batch.index()
    lo, hi = batch.locate(probes)
    plain, numbers = batch.widen(), Counter(row[0] for row in expected)
    for code, a, b in zip(probes.tolist(), lo.tolist(), hi.tolist(), strict=True):
        assert plain.codes[a:b].tolist() == [code] * numbers[code]


@pytest.mark.parametrize("seed", range(60))
def test_look_ups_by_order_find_the_rows_between_two_values(seed: int) -> None:
    """Of codes in the whole batch, and of the first word within the rows of a code; also outside of what there is."""
    rng = np.random.default_rng(seed)
    batch, _ = batch_of(rng, int(rng.integers(1, 200)))
    codes, words = batch.widen().codes, batch.widen().words[0]
    for rows, column in ((batch, codes), (batch.widen(), codes)):
        some = np.concatenate([rng.choice(column, 30) + rng.integers(-2, 3, 30), [-(2**63), 2**63 - 1]])
        after, to = np.sort(rng.choice(some, (2, 40)), axis=0)
        for lo, hi, a, b in zip(*rows.locate_between(after, to), after, to, strict=True):
            assert np.flatnonzero((column > a) & (column <= b)).tolist() == list(range(lo, hi))
        probes = np.sort(rng.choice(codes, 40))
        after, to = np.sort(rng.choice(np.concatenate([words, words - 1, [-(2**63), 2**63 - 1]]), (2, 40)), axis=0)
        found = rows.between(*rows.locate(probes), 0, after, to)
        for lo, hi, code, a, b in zip(*found, probes, after, to, strict=True):
            wanted = np.flatnonzero((codes == code) & (words > a) & (words <= b))
            assert wanted.tolist() == list(range(lo, hi))


def test_look_ups_by_order_in_words_that_are_packed_in_halves() -> None:
    values = np.sort(np.random.default_rng(1).choice(8, 300) * 2**40 + np.random.default_rng(2).choice(3, 300) - 2**41)
    zeros = np.zeros(300, dtype=np.int64)
    batch = arrange_all([Plain([zeros, values, zeros, np.arange(300) << 16, zeros + 1])], 2)
    assert isinstance(batch, PackedBatch) and any(field.half for field in batch.packed.fields)
    ends = np.unique(np.concatenate([values - 1, values]))
    everything = (np.zeros(len(ends) - 1, np.int64), np.full(len(ends) - 1, len(batch)))
    for lo, hi, a, b in zip(*batch.between(*everything, 0, ends[:-1], ends[1:]), ends[:-1], ends[1:], strict=True):
        assert hi - lo == ((values > a) & (values <= b)).sum()


@pytest.mark.parametrize("seed", range(60))
def test_rows_of_keys_are_gathered_from_batches_of_several_layouts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = [batch_of(rng, int(rng.integers(1, 60))) for _ in range(rng.integers(1, 4))]
    batches = [batch.widen() if rng.random() < 0.3 else batch for batch, _ in made]
    codes = np.unique(np.concatenate([batch.widen().codes for batch in batches]))[::2].copy()
    rows = gather(batches, Keys(codes, np.empty((0, len(codes)), np.int64)), WIDTH, 3)
    for k, code in enumerate(codes.tolist()):
        at = slice(rows.offsets[k], rows.offsets[k + 1])
        columns = [*rows.words[:, at].tolist(), *rows.times[:, at].tolist(), rows.diffs[at].tolist()]
        gathered = Counter((tuple(row), diff) for *row, diff in zip(*columns, strict=True))
        assert gathered == Counter(
            ((*row[1:], 0), diff) for _, updates in made for row, diff in updates.items() if row[0] == code
        )


@pytest.mark.parametrize("seed", range(120))
def test_long_histories_are_gathered_at_times_that_can_be_told_apart(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "_LONG", 1)
    rng = np.random.default_rng(seed)
    made = [batch_of(rng, int(rng.integers(1, 60))) for _ in range(rng.integers(1, 4))]
    batches = [batch.widen() if rng.random() < 0.2 else batch for batch, _ in made]
    codes = np.unique(np.concatenate([batch.widen().codes for batch in batches]))[::2].copy()
    frontier = rng.integers(0, [[12], [6]], (2, 1 + seed % 2))
    rows = gather(batches, Keys(codes, np.empty((0, len(codes)), np.int64)), WIDTH, 2, frontier)
    for k, code in enumerate(codes.tolist()):
        at = slice(rows.offsets[k], rows.offsets[k + 1])
        gathered, expected = Counter[Any](), Counter[Any]()
        for word, time, diff in zip(rows.words[:, at].T, rows.times[:, at].T, rows.diffs[at], strict=True):
            gathered[(*word.tolist(), *lattice.advance(time.reshape(-1, 1), frontier)[:, 0].tolist())] += int(diff)
        for row, diff in (item for _, updates in made for item in updates.items() if item[0][0] == code):
            time = np.array(row[1 + WIDTH :]).reshape(-1, 1)
            expected[(*row[1 : 1 + WIDTH], *lattice.advance(time, frontier)[:, 0].tolist())] += diff
        assert {row: n for row, n in gathered.items() if n} == {row: n for row, n in expected.items() if n}


def test_what_was_there_in_earlier_rounds_only_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_LONG", 1)
    rounds = np.arange(40)
    gone = [np.zeros(40, np.int64), rounds // 2, rounds * 0, rounds * 0, rounds, np.where(rounds % 2, -1, 1)]
    batch = arrange_all([Plain(gone)], WIDTH)
    assert isinstance(batch, PackedBatch) and len(batch) == 40
    key = Keys(np.zeros(1, np.int64), np.empty((0, 1), np.int64))
    for now, left in ((0, 40), (1, 38), (2, 38), (29, 10), (39, 0), (1000, 0)):
        rows = gather([batch], key, WIDTH, 2, np.array([[7], [now]]))
        assert len(rows.diffs) == left and (rows.times[0] == 7).all(), now
    zeros = np.zeros(3, np.int64)
    kept = [zeros, np.arange(3), zeros, zeros, zeros, np.array([5, 6, 7])]
    rows = gather([arrange_all([Plain(kept)], WIDTH)], key, WIDTH, 2, np.array([[7], [9]]))
    assert (rows.times.tolist(), rows.diffs.tolist()) == ([[7] * 3, [9] * 3], [5, 6, 7])


@pytest.mark.parametrize("seed", range(80))
def test_merges_add_up_at_the_representatives_of_times(seed: int) -> None:
    rng = np.random.default_rng(seed)
    (a, first), (b, second) = (batch_of(rng, int(rng.integers(1, 60))) for _ in range(2))
    frontier = None
    if seed % 3:
        frontier = np.stack([rng.integers(0, 6, seed % 3), rng.integers(0, 4, seed % 3)])
    merged = merge(a.widen() if seed % 5 == 0 else a, b, frontier)
    expected: Counter[Any] = Counter()
    for row, diff in [*first.items(), *second.items()]:
        time = np.array(row[1 + WIDTH :]).reshape(-1, 1)
        at = time if frontier is None else lattice.advance(time, frontier)
        expected[(*row[: 1 + WIDTH], *np.asarray(at)[:, 0].tolist())] += diff
    assert updates_of(merged) == Counter({row: diff for row, diff in expected.items() if diff})


@pytest.mark.parametrize("seed", range(20))
def test_priorities_are_merged_in_their_halves(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def wide() -> tuple[SortedBatch, Counter[Any]]:
        n = 40
        inner = (rng.integers(2**29, 2**29 + 9, n) << 32) + rng.integers(0, 3, n)
        code, word = rng.integers(0, 2**25, n), rng.integers(0, 3, n)
        columns = [code, word, np.zeros(n, np.int64), rng.integers(0, 4, n), inner, rng.integers(1, 3, n)]
        batch = arrange_all([Plain(columns)], WIDTH)
        assert isinstance(batch, PackedBatch) and any(field.half for field in batch.packed.fields)
        assert batch.packed.bounds()[4][1] >= inner.max()
        return batch, summed([columns])

    (a, first), (b, second) = wide(), wide()
    floor = ((2**29 + int(rng.integers(0, 9))) << 32) + 1
    for frontier in (None, np.array([[1], [floor]])):
        expected: Counter[Any] = Counter()
        for (*row, version, inner), diff in [*first.items(), *second.items()]:
            at = (version, inner) if frontier is None else (max(version, 1), max(inner, floor))
            expected[(*row, *at)] += diff
        assert updates_of(merge(a, b, frontier)) == expected


@pytest.mark.parametrize("seed", range(40))
def test_unions_and_rows_one_after_another(seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = [batch_of(rng, int(rng.integers(1, 60))) for _ in range(3)]
    compressed = [made[0][0].columns(), Plain([*made[1][0].columns()]).compress(), made[2][0].columns()]
    expected: Counter[Any] = Counter()
    for _, updates in made:
        for row, diff in updates.items():
            expected[row] += diff
    assert updates_of(union(compressed, WIDTH)) == Counter({row: diff for row, diff in expected.items() if diff})
    assert updates_of(union(compressed[1:2], WIDTH)) == made[1][1]
    packed = made[0][0]
    assert isinstance(packed, PackedBatch)
    pieces = list(packed.pieces(7))
    assert updates_of(concatenated([*pieces[:1], *(piece.widen() for piece in pieces[1:])])) == made[0][1]


@pytest.mark.parametrize("seed", range(80))
def test_few_updates_are_added_up_like_many(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    pieces = [Plain(columns_of(rng, int(rng.integers(1, 30)))) for _ in range(rng.integers(1, 4))]
    (a, _), (b, _) = (batch_of(rng, int(rng.integers(1, 60))) for _ in range(2))
    frontier = np.stack([rng.integers(0, 6, seed % 3), rng.integers(0, 4, seed % 3)]) if seed % 3 else None
    many = arrange_all(pieces, WIDTH), merge(a, b, frontier)
    monkeypatch.setattr(consolidation, "FEW", 1000)
    few = arrange_all(pieces, WIDTH), merge(a, b, frontier)
    assert updates_of(few[0]) == updates_of(many[0]) == summed(pieces)
    assert updates_of(few[1]) == updates_of(many[1])


def test_what_does_not_fit_into_an_integer_stays_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    code, word = np.array([-(2**62), 2**61]), np.array([2**40, 0])
    zeros = np.zeros(2, np.int64)
    wide = arrange_all([Plain([code, word, word, zeros, zeros, zeros + 1])], WIDTH)
    assert type(wide) is ColumnBatch
    large_sums = arrange_all([Plain([zeros, zeros, zeros, zeros, zeros, np.array([2**59, 2**59])])], WIDTH)
    assert large_sums.widen().diffs.tolist() == [2**60]
    halves = arrange_all(
        [Plain([np.array([5 << 40, 9 << 40]), zeros, zeros, zeros, np.arange(2) << 30, zeros + 1])], WIDTH
    )
    assert type(halves) is ColumnBatch, "no look-up reads a code in halves"
    monkeypatch.setattr(packed_batch, "LEAST_ROWS", 3)
    assert type(arrange_all([Plain([zeros, np.arange(2), zeros, zeros, zeros, zeros + 1])], WIDTH)) is ColumnBatch


def test_with_limited_memory_columns_go_to_files_instead(tmp_path: Any) -> None:
    rng = np.random.default_rng(1)
    with spilling.using(spilling.Spilling(1 << 30, tmp_path)):
        batch, expected = batch_of(rng, 50)
        assert type(batch) is ColumnBatch
        assert updates_of(consolidation.merge(batch, batch)) == Counter({row: 2 * n for row, n in expected.items()})
