"""The sort of packed updates: by all bits, by the upper ones in a stable way, and which sort a machine gets."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ddcore import kernels
from ddcore.base.cache import cache_folder
from ddcore.traces import sorts
from ddcore.traces.consolidation import arrange


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """No choice of another test."""
    sorts.choice.cache_clear()
    yield
    sorts.choice.cache_clear()


def keys_of(rng: random.Random, n: int, bits: int) -> np.ndarray:
    """Random keys of so many bits: unsorted, ascending, nearly ascending, or few distinct ones."""
    drawn = np.array([rng.getrandbits(bits) if bits else 9 for _ in range(n)], np.uint64)
    shape = rng.choice(["any", "ascending", "nearly", "few"])
    if shape in ("ascending", "nearly"):
        drawn.sort()
    if shape == "nearly" and n:
        drawn[-1] = drawn[0]
    if shape == "few" and n:
        drawn = drawn[np.array([rng.randrange(min(n, 5)) for _ in range(n)])]
    return drawn


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("choice", ["numpy", "radix"])
def test_sorted_and_stable(seed: int, choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDCORE_SORT", choice)
    rng = random.Random(seed)
    n = rng.choice([0, 1, 2, 1023, 1024, 1025, 4095, 4096, 6000])
    digits = max(1, (n - 1).bit_length())
    keys, low = keys_of(rng, n, rng.choice([0, 1, 8, 10, 11, 23, 40, 50])), rng.choice([0, digits])
    if low:  # as callers do who need the order of equal ones: the rows' numbers are below
        keys = (keys << np.uint64(digits)) | np.arange(n, dtype=np.uint64)
    expected = np.sort(keys)
    got, spare = sorts.stable(keys, low)
    assert np.array_equal(got, expected) and len(spare) == n and not np.shares_memory(got, spare)


@pytest.mark.parametrize("low", [0, 1, 13, 40, 63])
@pytest.mark.parametrize("n", [2, 100, 5000])
def test_equal_keys_keep_their_order(low: int, n: int) -> None:
    rng = random.Random(n + low)
    keys = np.array([rng.choice([0, 1, 2**63, 2**64 - 1, 1 << low]) ^ rng.getrandbits(9) for _ in range(n)], np.uint64)
    expected = keys[np.argsort(keys >> np.uint64(low), kind="stable")]
    spare = np.empty_like(keys)
    got = spare if kernels.sorting.radix(keys, spare, low) else keys
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("columns", [1, 3, 6])  # six do not fit into one integer
def test_both_sorts_consolidate_alike(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(columns)
    n = 20_000
    words = rng.integers(0, 9 if columns < 6 else 2**40, (columns, n))
    codes, times, diffs = rng.integers(0, 2**33, n) // 2**20, rng.integers(0, 3, (1, n)), rng.integers(-2, 3, n)
    batches = []
    for choice in ("numpy", "radix"):
        monkeypatch.setenv("DDCORE_SORT", choice)
        sorts.choice.cache_clear()
        batches.append(arrange(codes.copy(), list(words.copy()), list(times), diffs.copy()).decompress())
    one, other = batches
    assert len(one) == len(other) > 0
    for name in ("codes", "words", "times", "diffs"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_a_machine_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DDCORE_SORT", raising=False)
    first = sorts.speeds()
    assert 0 < first.radix < 1000 and 0 < first.numpy < 1000
    monkeypatch.setattr(sorts, "_least_time", lambda sort: pytest.fail("measured again"))
    assert sorts.speeds() == first
    assert sorts.choice() == ("radix" if first.radix < first.numpy else "numpy")


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"numpy": 1}', '{"numpy": 1, "radix": 2, "third": 3}', "\0\xff"])
def test_what_cannot_be_read_is_measured_again(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDCORE_CACHE", str(tmp_path / "cache"))
    sorts.speeds()
    file = sorts.kept()
    file.write_text(text, "latin-1")
    monkeypatch.setattr(sorts, "_least_time", lambda sort: 7.5)
    assert sorts.speeds() == sorts.Speeds(7.5, 7.5)
    assert sorts.speeds().faster == "numpy"
    assert file.read_text() == '{"numpy": 7.5, "radix": 7.5}'


def test_another_numpy_is_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDCORE_CACHE", str(tmp_path / "cache"))
    sorts.speeds()
    monkeypatch.setattr(sorts, "_least_time", lambda sort: 3.0)
    monkeypatch.setenv("NPY_DISABLE_CPU_FEATURES", "AVX512_SKX")
    assert sorts.speeds() == sorts.Speeds(3.0, 3.0)
    monkeypatch.setattr("ddcore.traces.sorts.np.__version__", "99.0")
    monkeypatch.setattr(sorts, "_least_time", lambda sort: 4.0)
    assert sorts.speeds() == sorts.Speeds(4.0, 4.0)


def test_a_folder_of_others_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDCORE_CACHE", str(tmp_path / "cache"))
    sorts.speeds()
    (cache_folder() / "sorts").chmod(0o777)
    monkeypatch.setattr(sorts, "_least_time", lambda sort: 3.0)
    assert sorts.speeds() == sorts.Speeds(3.0, 3.0)
