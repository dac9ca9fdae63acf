"""The pool of strings: injective whatever their hashes, and no dearer the larger it is."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from ddcore.data import pools
from ddcore.data.pools import Strings as Pool


@pytest.mark.parametrize("bits", [0, 1, 3, 2**64 - 1])
def test_interning_is_injective(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nearly all strings have one hash, and while the table grows between two of them."""
    real = pools._string_hashes
    mask = np.uint64(bits).view(np.int64)
    monkeypatch.setattr(pools, "_string_hashes", lambda values: real(values) & mask)
    pool, known = Pool(), dict[str, int]()
    rng = np.random.default_rng(bits % 7)
    for _ in range(40):
        texts = [f"s{number}" for number in rng.integers(0, 3000, rng.integers(1, 60))]
        ids = pool.intern(pl.Series(texts))
        for text, actual in zip(texts, ids, strict=True):
            assert known.setdefault(text, int(actual)) == actual
        assert pool.strings(ids).to_list() == texts
    assert sorted(known.values()) == list(range(len(pool)))


def test_a_large_pool_is_not_copied_for_a_few_strings() -> None:
    pool = Pool()
    pool.intern(pl.Series([f"s{i}" for i in range(10_000)]))
    first = pool._chunks[0]
    for i in range(200):
        ids = pool.intern(pl.Series([f"t{i}", "s5"]))
        assert pool.strings(ids).to_list() == [f"t{i}", "s5"]
    assert pool._chunks[0] is first
    assert len(pool._chunks) < 12
