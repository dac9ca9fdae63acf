"""Runs and traces where key codes say little: everything meets in a few codes, and results stay what they are."""

from __future__ import annotations

from typing import Any

import folding
import numpy as np
import pytest
from programs import case
from seeds import nightly
from test_random_programs import compare, outcome

from ddcore.base.errors import DiffOverflow
from ddcore.base.schema import is_direct
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.data import encoding, pools
from ddcore.operators import delta_join
from ddcore.traces import consolidation, packing
from ddcore.traces.budget import Budget
from ddcore.traces.columns import Plain
from ddcore.traces.consolidation import arrange, arrange_all, merge
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch
from ddcore.traces.trace import Keys, Trace, distinct_keys, gather


def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashed codes keep two bits, and all strings, lists and structs have one hash of four."""
    real = encoding.key_codes

    def codes(words: Any, kinds: Any, rows: int) -> Any:
        actual = real(words, kinds, rows)
        return actual if is_direct(kinds) else actual & 3

    monkeypatch.setattr(encoding, "key_codes", codes)
    monkeypatch.setattr(consolidation, "key_codes", codes)
    monkeypatch.setattr(delta_join, "key_codes", codes)
    hashes = pools._string_hashes
    monkeypatch.setattr(pools, "_string_hashes", lambda values: hashes(values) & 3)
    whole = pools.Sequences._hash
    monkeypatch.setattr(pools.Sequences, "_hash", lambda self, values: whole(self, values) & 3)
    monkeypatch.setattr(encoding, "POOLS", encoding.Pools())


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", nightly(range(40), 12))
def test_collisions_change_no_log(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = case(seed)
    expected = outcome(folding.by_reference, drawn)
    coarse(monkeypatch)
    # So few codes that batches of hashed keys stay packed.
    tuning = Tuning(packed_rows=1, few_rows=0) if seed % 2 else DEFAULT
    compare(drawn, "whole", expected, outcome(folding.whole, drawn, tuning=tuning))
    compare(drawn, "cut at random", expected, outcome(folding.randomly_cut, drawn, seed=seed, tuning=tuning))


def updates(rng: np.random.Generator, n: int, spread: int) -> tuple[Any, list[Any], list[Any], Any]:
    """Few distinct rows; ``spread`` decides whether they pack into one word."""
    codes = rng.integers(-2, 3, n) * spread
    words = [rng.integers(0, 3, n) * spread, rng.integers(0, 4, n)]
    return codes, words, [rng.integers(0, 3, n), rng.integers(0, 2, n)], rng.integers(-2, 3, n)


def as_dict(batch: SortedBatch) -> dict[tuple[int, ...], int]:
    run = batch.decompress()
    rows = zip(run.codes, *run.words, *run.times, run.diffs, strict=True)
    actual = {tuple(map(int, row[:-1])): int(row[-1]) for row in rows}
    assert len(actual) == len(run) and list(actual) == sorted(actual)
    return actual


def summed(codes: Any, words: Any, times: Any, diffs: Any) -> dict[tuple[int, ...], int]:
    total: dict[tuple[int, ...], int] = {}
    for *row, diff in zip(codes, *words, *times, diffs, strict=True):
        key = tuple(map(int, row))
        total[key] = total.get(key, 0) + int(diff)
    return {row: diff for row, diff in total.items() if diff}


@pytest.mark.parametrize("spread", [1, 2**60])
@pytest.mark.parametrize("n", [0, 1, 30, 400])
def test_arrange_merge_gather(spread: int, n: int) -> None:
    rng = np.random.default_rng(n)
    first, second = updates(rng, n, spread), updates(rng, n, spread)
    a, b = arrange(*first), arrange(*second)
    assert as_dict(a) == summed(*first)
    wide = consolidation._arrange_wide(*first) if n else a
    assert as_dict(wide) == as_dict(a)
    both = merge(a, b)
    assert as_dict(both) == summed(*(
        np.concatenate([x, y]) if i in (0, 3) else [np.concatenate(z) for z in zip(x, y, strict=True)]
        for i, (x, y) in enumerate(zip(first, second, strict=True))
    ))  # fmt: skip
    keys, _ = distinct_keys(both, 1)
    assert len(keys) == len({row[:2] for row in as_dict(both)})
    rows = gather([a, b], keys, 1, 2)
    merged = gather([both], keys, 1, 2)
    for k in range(len(keys)):
        own, other = (slice(r.offsets[k], r.offsets[k + 1]) for r in (rows, merged))
        actual = summed(rows.words[0, own], rows.times[:, own], [], rows.diffs[own])
        assert actual == summed(merged.words[0, other], merged.times[:, other], [], merged.diffs[other])


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("packed", [0, 1])
def test_rows_of_any_number_of_batches_are_gathered(number: int, direct: bool, packed: int) -> None:
    rng, key_words = np.random.default_rng(number), 0 if direct else 1
    codes = [-(2**63), -5, 0, 3, 2**63 - 1] if packed == 0 else list(range(300))
    batches: list[Any] = []
    naive: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for at in range(number):
        n = int(rng.choice([0, 1, 40, 700]))
        key = rng.choice(codes, n), rng.integers(0, 1 if direct else 3, n)
        columns = [
            key[0],
            *([] if direct else [key[1]]),
            rng.integers(0, 4, n),
            rng.integers(0, 3, n),
            rng.integers(1, 3, n),
        ]
        tuning = Tuning(packed_rows=1 if at < packed else 1 << 12, few_rows=0)
        batch = arrange_all([Plain(columns)], key_words + 1, budget=Budget(tuning=tuning))
        assert batch.is_encoded == (at < packed and n > 0)
        batches.append(batch)
        for code, *word, value, time, diff in batch.decompress().table.T.tolist():
            naive.setdefault((code, word[0] if word else 0), []).append((value, time, 0, diff))
    probes = sorted({*naive, (-7, 0), (2**62, 0)})
    keys = Keys(np.array([code for code, _ in probes]), np.array([[word for _, word in probes]])[:key_words])
    for tuning in (DEFAULT, Tuning(unindexed_rows=0)):
        rows = gather(batches, keys, 1, 2, budget=Budget(tuning=tuning))
        for k, probe in enumerate(probes):
            part = slice(rows.offsets[k], rows.offsets[k + 1])
            columns = [rows.words[0, part], *rows.times[:, part], rows.diffs[part]]
            assert sorted(zip(*map(np.ndarray.tolist, columns), strict=True)) == sorted(naive.get(probe, []))


@pytest.mark.parametrize("codes", [[5] * 9, [-(2**63), -(2**63), 0, 2**63 - 1], [1, 2, 4, 2**62], list(range(100))])
@pytest.mark.parametrize("portion", [1, 2, 1000])
def test_locate(codes: list[int], portion: int) -> None:
    n = len(codes)
    run = ColumnBatch(np.array(codes), np.zeros((0, n), np.int64), np.zeros((1, n), np.int64), np.ones(n, np.int64))
    probes = np.array(sorted({*codes, -(2**63), -1, 3, 50, 2**62 + 1, 2**63 - 1}))
    lo, hi = run.locate(probes, Budget(tuning=Tuning(indexed_rows=portion)))
    for probe, first, last in zip(probes, lo, hi, strict=True):
        assert codes[first:last] == [code for code in codes if code == probe]


def wide(run: ColumnBatch) -> list[int]:
    """The diffs of a run with their upper words."""
    high = run.diffs >> 63 if run.high is None else run.high
    return [(h << 64) + (low & (2**64 - 1)) for h, low in zip(high.tolist(), run.diffs.tolist(), strict=True)]


def test_diffs_that_leave_int64() -> None:
    def run(diffs: list[int], code: int = 0) -> ColumnBatch:
        zeros = np.zeros(len(diffs), np.int64)
        return arrange(zeros + code, [zeros], [zeros], np.array(diffs))

    for diffs in ([2**62, 2**62], [-(2**63), -1], [2**63 - 1, 1], [-(2**63)] * 5 + [3]):
        assert wide(run(diffs)) == [sum(diffs)]
        apart = merge(run(diffs[:1]), run(diffs[1:2])).decompress()  # a trace's runs hold int64
        assert (apart.high, sorted(apart.diffs.tolist())) == (None, sorted(diffs[:2]))
    assert run([2**62, -(2**62)]).diffs.tolist() == []
    for diffs in ([2**62] * 3 + [-(2**62)] * 3, [-(2**63), 1, 2**63 - 1]):
        assert run(diffs).diffs.tolist() == []
    assert wide(run([2**62] * 7 + [-(2**62)] * 6)) == [2**62]
    zeros = np.zeros(3, np.int64)
    with pytest.raises(DiffOverflow):
        arrange(zeros, [zeros], [zeros], zeros, zeros + 2**62)
    back = arrange(zeros, [zeros], [zeros], zeros + 5, np.array([2**62, -(2**62), 0]))
    assert (back.diffs.tolist(), back.high) == ([15], None)
    assert len(gather([], Keys(np.array([1]), np.zeros((0, 1), np.int64)), 1, 1).diffs) == 0


def one_by_one(rng: np.random.Generator, spread: int) -> list[tuple[tuple[int, int], Any]]:
    """Updates inside two loops, in the order of positions: rounds, and columns as :func:`arrange` has them."""
    positions = sorted({(int(a), int(b)) for a, b in rng.integers(0, 5, (12, 2))})
    made = []
    for rounds in positions:
        codes, words, (version, _), diffs = updates(rng, int(rng.integers(1, 30)), spread)
        made.append((rounds, (codes, words, [version + 3, *(np.full(len(codes), r) for r in rounds)], diffs)))
    return made


def at(columns: dict[tuple[int, ...], int], time: tuple[int, ...]) -> dict[tuple[int, ...], int]:
    """What updates of three words and a time add up to at a time."""
    total: dict[tuple[int, ...], int] = {}
    for row, diff in columns.items():
        if all(own <= other for own, other in zip(row[3:], time, strict=True)):
            total[row[:3]] = total.get(row[:3], 0) + diff
    return {row: diff for row, diff in total.items() if diff}


@pytest.mark.sample(20)
@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("spread", [1, 2**60, 2**40])
@pytest.mark.parametrize("seed", range(10))
def test_an_index_agrees_at_all_times_left_and_originals_keep_theirs(seed: int, spread: int, apart: bool) -> None:
    rng = np.random.default_rng(seed)
    trace, every = Trace(apart=apart), []
    for (outer, inner), columns in one_by_one(rng, spread):
        every.append(columns)
        frontier = np.array([[3, 3], [outer, outer + 1], [inner, 0]])
        trace.append(arrange(*columns), frontier)
        expected = whole(every)
        actual: dict[tuple[int, ...], int] = {}
        for batch in trace.batches:
            for row, diff in as_dict(batch).items():
                actual[row] = actual.get(row, 0) + diff
        for version, a, b in rng.integers(0, 6, (20, 3)):
            time = (3 + int(version), int(a), int(b))
            if (time[1], time[2]) >= (outer, inner):
                assert at(actual, time) == at(expected, time)
    settled = trace.settle()
    assert (as_dict(settled) if settled else {}) == whole(every)


def whole(every: list[Any]) -> dict[tuple[int, ...], int]:
    """All updates as one log."""
    codes, words, times, diffs = zip(*every, strict=True)
    columns = [[np.concatenate(part) for part in zip(*parts, strict=True)] for parts in (words, times)]
    return summed(np.concatenate(codes), columns[0], columns[1], np.concatenate(diffs))


def test_a_row_that_moves_in_every_round_is_as_cheap_as_one_that_moved_once() -> None:
    trace, zero = Trace(apart=False), np.zeros(2, np.int64)
    for current in range(1, 300):
        moved = arrange(
            zero,
            [np.array([current, current + 1])],
            [zero, np.full(2, current)],
            np.array([-1, 1]) if current > 1 else zero + 1,
        )
        trace.append(moved, np.array([[0], [current]]))
        assert sum(len(batch) for batch in trace.batches) < 20
    settled = trace.settle()
    assert settled is not None and len(settled) == 598


def test_rows_of_many_batches_are_gathered_at_times_left() -> None:
    budget = Budget(tuning=Tuning(long_history=4))

    def batch(word: int, version: int, diff: int) -> SortedBatch:
        return arrange(np.array([7]), [np.array([word])], [np.array([version])], np.array([diff]))

    batches = [batch(5, 0, 1), batch(5, 1, -1), batch(6, 2, 1), batch(6, 9, 1)]
    keys = Keys(np.array([7]), np.zeros((0, 1), np.int64))
    rows = gather(batches, keys, 1, 1, np.array([[4]]), budget=budget)
    assert (rows.words.tolist(), rows.times.tolist(), rows.diffs.tolist()) == ([[6, 6]], [[4, 9]], [1, 1])
    assert rows.offsets.tolist() == [0, 2]
    assert gather(batches[:3], keys, 1, 1, np.array([[4]]), budget=budget).diffs.tolist() == [
        1,
        -1,
        1,
    ]  # too few to pay


def test_a_coordinate_with_priorities_packs_in_halves() -> None:
    rng = np.random.default_rng(5)
    codes, word, diffs = rng.integers(0, 2**20, 200), rng.integers(0, 2**18, 200), rng.integers(-2, 3, 200)
    coordinate = (rng.integers(2**29, 2**29 + 20, 200) << 32) + rng.integers(0, 9, 200)
    columns = [codes, word, np.zeros(200, np.int64), coordinate, diffs]
    assert packing.layout([Plain(columns)]) is not None
    run = arrange(codes, [word], columns[2:4], diffs)
    assert as_dict(run) == summed(codes, [word], columns[2:4], diffs)


def one_row(code: int) -> ColumnBatch:
    """A batch of one update."""
    zero = np.zeros(1, np.int64)
    return arrange(np.array([code]), [], [zero], zero + 1)


def test_stored_batches_are_opened_by_the_first_look_up_and_by_nothing_else() -> None:
    times, stored = 0, one_row(1)

    def opens() -> list[SortedBatch]:
        nonlocal times
        times += 1
        return [stored]

    trace = Trace(opens)
    trace.append(one_row(2))
    assert trace.memory() > 0 and trace.has_new and not trace.opened
    gained = trace.settle()
    assert gained is not None and gained.decompress().codes.tolist() == [2]
    assert times == 0, "rows are added without opening anything"
    trace.append(one_row(3))
    assert [batch.decompress().codes.tolist() for batch in trace.batches] == [[1], [2], [3]]
    assert [len(batch) for batch in trace.before(trace.batches[-1])] == [1, 1]
    assert times == 1 and trace.opened == [stored]
