"""Runs and traces where key codes say little: everything meets in a few codes, and results stay what they are."""

from __future__ import annotations

from typing import Any

import folding
import numpy as np
import pytest
from programs import case
from test_random_programs import compare, outcome

from ddcore import encoding, pools, trace, worker
from ddcore.errors import DiffOverflow
from ddcore.operators import delta_join
from ddcore.schema import is_direct
from ddcore.trace import Keys, SortedBatch, arrange, distinct_keys, gather, merge


def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashed codes keep two bits, and all strings, lists and structs have one hash of four."""
    real = encoding.key_codes

    def codes(words: Any, kinds: Any, rows: int) -> Any:
        actual = real(words, kinds, rows)
        return actual if is_direct(kinds) else actual & 3

    monkeypatch.setattr(encoding, "key_codes", codes)
    monkeypatch.setattr(worker, "key_codes", codes)
    monkeypatch.setattr(delta_join, "key_codes", codes)
    hashes = pools._string_hashes
    monkeypatch.setattr(pools, "_string_hashes", lambda values: hashes(values) & 3)
    whole = pools.Sequences._hash
    monkeypatch.setattr(pools.Sequences, "_hash", lambda self, values: whole(self, values) & 3)
    monkeypatch.setattr(encoding, "_NESTED", {})
    monkeypatch.setattr(encoding, "POOL", pools.Strings())
    monkeypatch.setattr(encoding, "_BINARIES", pools.Strings())


@pytest.mark.parametrize("seed", range(40))
def test_collisions_change_no_log(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = case(seed)
    expected = outcome(folding.by_reference, drawn)
    coarse(monkeypatch)
    compare(drawn, "whole", expected, outcome(folding.whole, drawn))
    compare(drawn, "cut at random", expected, outcome(folding.randomly_cut, drawn, seed=seed))


def updates(rng: np.random.Generator, n: int, spread: int) -> tuple[Any, list[Any], list[Any], Any]:
    """Few distinct rows; ``spread`` decides whether they pack into one word."""
    codes = rng.integers(-2, 3, n) * spread
    words = [rng.integers(0, 3, n) * spread, rng.integers(0, 4, n)]
    return codes, words, [rng.integers(0, 3, n), rng.integers(0, 2, n)], rng.integers(-2, 3, n)


def as_dict(run: SortedBatch) -> dict[tuple[int, ...], int]:
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
    wide = trace._arrange_wide(*first) if n else a
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
        mine, theirs = (slice(r.offsets[k], r.offsets[k + 1]) for r in (rows, merged))
        actual = summed(rows.words[0, mine], rows.times[:, mine], [], rows.diffs[mine])
        assert actual == summed(merged.words[0, theirs], merged.times[:, theirs], [], merged.diffs[theirs])


@pytest.mark.parametrize("codes", [[5] * 9, [-(2**63), -(2**63), 0, 2**63 - 1], [1, 2, 4, 2**62], list(range(100))])
def test_locate(codes: list[int]) -> None:
    n = len(codes)
    run = SortedBatch(np.array(codes), np.zeros((0, n), np.int64), np.zeros((1, n), np.int64), np.ones(n, np.int64))
    probes = np.array(sorted({*codes, -(2**63), -1, 3, 50, 2**62 + 1, 2**63 - 1}))
    lo, hi = run.locate(probes)
    for probe, first, last in zip(probes, lo, hi, strict=True):
        assert codes[first:last] == [code for code in codes if code == probe]


def wide(run: SortedBatch) -> list[int]:
    """The diffs of a run with their upper words."""
    high = run.diffs >> 63 if run.high is None else run.high
    return [(h << 64) + (low & (2**64 - 1)) for h, low in zip(high.tolist(), run.diffs.tolist(), strict=True)]


def test_diffs_that_leave_int64() -> None:
    def run(diffs: list[int], code: int = 0) -> SortedBatch:
        zeros = np.zeros(len(diffs), np.int64)
        return arrange(zeros + code, [zeros], [zeros], np.array(diffs))

    for diffs in ([2**62, 2**62], [-(2**63), -1], [2**63 - 1, 1], [-(2**63)] * 5 + [3]):
        assert wide(run(diffs)) == [sum(diffs)]
        apart = merge(run(diffs[:1]), run(diffs[1:2]))  # a trace's runs hold int64
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
