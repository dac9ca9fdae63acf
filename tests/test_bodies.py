"""Bodies of messages: what comes out is what went in, for every type, also where values have other numbers."""

from __future__ import annotations

import datetime
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from ddcore.base.schema import parse_schema
from ddcore.data import encoding
from ddcore.jobs.engines.bodies import columns_of, packed
from ddcore.jobs.engines.messages import batch_of_body, body_of_batch
from ddcore.traces.batch import Batch
from ddcore.traces.columns import CompressedColumn, Plain

VALUES: dict[str, list[Any]] = {
    "int64": [0, -5, 2**62, None],
    "float64": [0.5, float("inf"), -0.0, None],
    "bool": [True, False, None],
    "date": [datetime.date(2024, 2, 29), None],
    "timestamp": [datetime.datetime(2024, 2, 29, 1, tzinfo=datetime.UTC), None],
    "decimal(10,2)": [Decimal("-3.25"), None],
    "string": ["", "häuser", "x" * 100, None],
    "binary": [b"", b"\x00\xff", None],
    "list[string]": [["a", None], [], None],
    "list[int64]": [[1, 2], [], None],
    "struct[i: int64, t: list[string]]": [{"i": 1, "t": ["a"]}, {"i": None, "t": None}, None],
}


@pytest.mark.parametrize("kind", VALUES)
def test_every_type_comes_back(kind: str) -> None:
    schema = parse_schema({"x": kind})
    series = pl.Series("x", VALUES[kind] * 3, dtype=schema["x"].polars)
    words = encoding.encode(series, schema["x"])
    numbers = np.arange(len(series), dtype=np.int64)
    batch = Batch([words], [numbers * 7, numbers * 0], numbers - 3)
    back = batch_of_body(body_of_batch(batch, schema), schema)
    assert encoding.decode_frame(back.words, schema)["x"].to_list() == series.to_list() or kind == "float64"
    assert back.words[0].tolist() == words.tolist()
    assert [column.tolist() for column in back.times] == [column.tolist() for column in batch.times]
    assert (back.diffs.tolist(), back.high) == (batch.diffs.tolist(), None)


def test_wide_diffs_come_back() -> None:
    schema = parse_schema({"x": "int64"})
    low, high = np.array([-1, 5, -(2**63)]), np.array([0, 0, -1])
    back = batch_of_body(body_of_batch(Batch([np.arange(3)], [np.zeros(3, np.int64)], low, high), schema), schema)
    assert (back.diffs.tolist(), back.high is not None and back.high.tolist()) == (low.tolist(), high.tolist())


@pytest.mark.parametrize(
    "column", [[7] * 5, [0, 255], [-1, 254], [0, 2**16], [2**40, 2**40 + 2**32], [-(2**63), 2**62]]
)
def test_numbers_take_the_bytes_they_need(column: list[int]) -> None:
    many = np.array(column * 10_000, dtype=np.int64)
    body = packed(Plain([many]), [])
    (back,) = columns_of(body, [])
    assert back.decompress().tolist() == many.tolist()
    assert (back.least, back.most) == (min(column), max(column))
    width = 0 if (distances := CompressedColumn.of(many).distances) is None else distances.dtype.itemsize
    assert len(body) < width * len(many) + 2_000


def test_each_distinct_text_goes_once() -> None:
    schema = parse_schema({"x": "string"})
    texts = pl.Series("x", [f"a rather long text, number {number % 10}" for number in range(10_000)])
    body = packed(Plain([encoding.encode(texts, schema["x"])]), list(schema.values()))
    assert len(body) < 4 * len(texts) + 4_000


def test_another_process_reads_the_same_values(tmp_path: Path) -> None:
    """It has seen other texts before, so that its numbers for them differ."""
    schema = parse_schema({"x": "string"})
    encoding.encode(pl.Series(["only here", "and this"]), schema["x"])
    words = encoding.encode(pl.Series(["b", None, "a", "b"]), schema["x"])
    (tmp_path / "body").write_bytes(packed(Plain([words]), list(schema.values())))
    script = """
import sys
from ddcore.data import encoding
from ddcore.jobs.engines.bodies import columns_of
from ddcore.base.schema import parse_schema
kind = parse_schema({"x": "string"})["x"]
(column,) = columns_of(open(sys.argv[1], "rb").read(), [kind])
print(encoding.decode(column.decompress(), kind).to_list())
"""
    command = [sys.executable, "-c", script, str(tmp_path / "body")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['b', None, 'a', 'b']"
