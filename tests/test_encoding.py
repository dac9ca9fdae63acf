"""The pool of strings: injective whatever their hashes, and no dearer the larger it is."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from ddcore.base.schema import Type
from ddcore.data import encoding, pools
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


@pytest.mark.parametrize("rows", [0, 1, 50, 5_000])
def test_columns_of_strings_become_words_together_as_one_by_one(rows: int) -> None:
    rng = np.random.default_rng(rows)
    text = [[f"{name}{number}" for number in rng.integers(0, 60, rows)] for name in ("a", "a", "b", "c")]
    frame = pl.DataFrame(
        {"first": text[0], "number": range(rows), "second": text[1], "gaps": text[2], "bytes": text[3]},
        schema={"first": pl.String, "number": pl.Int64, "second": pl.String, "gaps": pl.String, "bytes": pl.String},
    ).with_columns(
        gaps=pl.when(pl.col("number") % 3 == 0).then(None).otherwise("gaps"), bytes=pl.col("bytes").cast(pl.Binary)
    )
    kinds = {"first": "string", "number": "int64", "second": "string", "gaps": "string", "bytes": "binary"}
    schema = {name: Type(kind) for name, kind in kinds.items()}
    words = encoding.encode_columns({name: frame[name] for name in schema}, schema)
    assert list(words) == list(schema)
    for name, kind in schema.items():
        assert words[name].tolist() == encoding.encode(frame[name], kind).tolist()
    assert encoding.decode_frame(list(words.values()), schema).equals(frame)
