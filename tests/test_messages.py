"""Messages between workers: what comes out is what went in, for every type, also where values have other numbers."""

from __future__ import annotations

import datetime
import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from ddcore.base.schema import Schema, parse_schema
from ddcore.data import encoding
from ddcore.engine.queues import waiting
from ddcore.jobs.engines.division import Division
from ddcore.jobs.engines.messages import Message, decoded, divided, encoded, grouped
from ddcore.jobs.engines.peers import PeerLost
from ddcore.operators.arrangement import Arrangement
from ddcore.operators.delivery import Delivery
from ddcore.traces.batch import Batch
from ddcore.traces.columns import Compressed

VALUES: dict[str, list[Any]] = {
    "int64": [0, -5, 2**62, None],
    "float64": [0.5, float("inf"), -0.0, None],
    "bool": [True, False, None],
    "date": [datetime.date(2024, 2, 29), None],
    "timestamp": [datetime.datetime(2024, 2, 29, 1, tzinfo=datetime.UTC), None],
    "decimal(10,2)": [Decimal("-3.25"), None],
    "decimal(38,2)": [Decimal("-3.25"), Decimal("123456789012345678901234567890123456.78"), None],
    "string": ["", "häuser", "x" * 100, None],
    "binary": [b"", b"\x00\xff", None],
    "list[string]": [["a", None], [], None],
    "list[int64]": [[1, 2], [], None],
    "struct[i: int64, t: list[string]]": [{"i": 1, "t": ["a"]}, {"i": None, "t": None}, None],
}


class Plan:
    """As much of a plan as messages need."""

    def __init__(self, arrangement: Arrangement) -> None:
        self.arrangements = [arrangement]


def arranged(schema: Schema, key: tuple[str, ...], *, transient: bool = False) -> Arrangement:
    return Arrangement(0, 0, schema, key, ("version", "round"), "print", 0, transient=transient)


def message_of(arrangement: Arrangement, batches: Sequence[Batch]) -> Message:
    (message,) = grouped([Delivery(arrangement, (3,), arrangement.queued(batch)) for batch in batches])
    return message


def body_of(buffers: Sequence[memoryview]) -> bytearray:
    """The bytes as they arrive: each buffer begins at a multiple of eight."""
    return bytearray(b"".join(bytes(buffer) + bytes(-len(buffer) % 8) for buffer in buffers))


def travelled(message: Message) -> Message:
    header, buffers = encoded([message])[0]
    header = json.loads(json.dumps({**header, "sizes": [len(buffer) for buffer in buffers]}))
    plan: Any = Plan(message.arrangement)
    (message,) = decoded(plan, [(header, body_of(buffers))])
    return message


def updates(words: list[np.ndarray], rows: int) -> Batch:
    numbers = np.arange(rows, dtype=np.int64)
    return Batch(words, [numbers * 7, numbers * 0 + 3], numbers - 3)


def columns(arrangement: Arrangement, message: Message) -> list[list[int]]:
    batch = arrangement.updates(message.updates)
    high = [] if batch.high is None else [batch.high.tolist()]
    return [*(word.tolist() for word in (*batch.words, *batch.times, batch.diffs)), *high]


@pytest.mark.parametrize("how", ["keyed", "value", "whole", "transient"])
@pytest.mark.parametrize("kind", VALUES)
def test_every_type_comes_back(kind: str, how: str) -> None:
    schema = parse_schema({"n": "int64", "x": kind})
    series = pl.Series("x", VALUES[kind] * 3, dtype=schema["x"].polars)
    words = [np.arange(len(series), dtype=np.int64), encoding.encode(series, schema["x"])]
    key = {"keyed": ("x",), "value": ("n",), "whole": ("x", "n"), "transient": ("n", "x")}[how]
    arrangement = arranged(schema, key, transient=how == "transient")
    sent = message_of(arrangement, [updates(words, len(series))])
    back = travelled(sent)
    assert (back.rounds, len(back)) == ((3,), len(series))
    assert columns(arrangement, back) == columns(arrangement, sent)
    assert encoding.decode(np.array(columns(arrangement, back)[1]), schema["x"]).to_list() == series.to_list()


def rows_of(arrangement: Arrangement, message: Message) -> list[tuple[int, ...]]:
    batch = arrangement.updates(message.updates)
    arrays = (*batch.words, *batch.times, batch.diffs, batch.upper())
    return [*zip(*(array.tolist() for array in arrays), strict=True)]


@pytest.mark.parametrize("rows", [1, 700, 1025])
@pytest.mark.parametrize("kind", ["int64", "string", "list[int64]"])
def test_parts_with_few_updates_arrive_as_one(kind: str, rows: int) -> None:
    """The values of a pooled type have other numbers in each part, and one part needs 128 bits for its diffs."""
    schema = parse_schema({"n": "int64", "x": kind})
    arrangement, parts, sent = arranged(schema, ("n",)), list[Any](), list[tuple[int, ...]]()
    for number in range(3):
        values = pl.Series("x", (VALUES[kind] * rows)[number:][:rows], dtype=schema["x"].polars)
        numbers = np.arange(rows, dtype=np.int64)
        words, high = [numbers + number, encoding.encode(values, schema["x"])], numbers if number == 1 else None
        message = message_of(arrangement, [Batch(words, [numbers, numbers * 0], numbers - 3, high)])
        header, buffers = encoded([message])[0]
        parts.append(({**header, "sizes": [len(buffer) for buffer in buffers]}, body_of(buffers)))
        sent += rows_of(arrangement, message)
    plan: Any = Plan(arrangement)
    arrived = [*decoded(plan, parts)]
    assert len(arrived) == (3 if rows > 1024 else 1)
    assert [row for message in arrived for row in rows_of(arrangement, message)] == sent


def test_wide_diffs_come_back() -> None:
    arrangement = arranged(parse_schema({"x": "int64"}), ("x",))
    low, high = np.array([-1, 5, -(2**63)]), np.array([0, 0, -1])
    times = [np.zeros(3, np.int64)] * 2
    sent = message_of(arrangement, [Batch([np.arange(3)], times, low, high)])
    assert columns(arrangement, travelled(sent))[-2:] == [low.tolist(), high.tolist()]


@pytest.mark.parametrize(
    "column", [[7] * 5, [0, 255], [-1, 254], [0, 2**16], [2**40, 2**40 + 2**32], [-(2**63), 2**62]]
)
def test_numbers_take_the_bytes_they_need(column: list[int]) -> None:
    many = np.array(column * 10_000, dtype=np.int64)
    arrangement = arranged(parse_schema({"k": "int64", "x": "int64"}), ("k",))
    zeros = np.zeros(len(many), np.int64)
    sent = message_of(arrangement, [Batch([zeros, many], [zeros, zeros], zeros + 1)])
    width = 0 if (distances := sent.updates.compressed(1).distances) is None else distances.dtype.itemsize
    assert sum(map(len, encoded([sent])[0][1])) == width * len(many)
    assert columns(arrangement, travelled(sent))[1] == many.tolist()


def test_each_distinct_text_goes_once() -> None:
    arrangement = arranged(parse_schema({"x": "string"}), ("x",))
    texts = pl.Series("x", [f"a rather long text, number {number % 10}" for number in range(10_000)] + [None])
    sent = message_of(arrangement, [updates([encoding.encode(texts, arrangement.collection["x"])], len(texts))])
    words, *others = encoded([sent])[0][1]
    assert len(words) < 2_000
    assert sum(map(len, others)) <= 10 * len(texts)


def test_another_process_reads_the_same_values(tmp_path: Path) -> None:
    """It has seen other texts before, so that its numbers for them differ."""
    arrangement = arranged(parse_schema({"x": "string"}), ("x",))
    encoding.encode(pl.Series(["only here", "and this"]), arrangement.collection["x"])
    words = encoding.encode(pl.Series(["b", None, "a", "b"]), arrangement.collection["x"])
    header, buffers = encoded([message_of(arrangement, [updates([words], 4)])])[0]
    (tmp_path / "header").write_text(json.dumps({**header, "sizes": [len(buffer) for buffer in buffers]}))
    (tmp_path / "body").write_bytes(body_of(buffers))
    script = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from test_messages import Plan, arranged
from ddcore.base.schema import parse_schema
from ddcore.data import encoding
from ddcore.jobs.engines.messages import decoded
arrangement = arranged(parse_schema({"x": "string"}), ("x",))
part = json.loads(Path("header").read_text()), bytearray(Path("body").read_bytes())
(message,) = decoded(Plan(arrangement), [part])
print(encoding.decode(arrangement.updates(message.updates).words[0], arrangement.collection["x"]).to_list())
"""
    command = [sys.executable, "-c", script, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "['b', None, 'a', 'b']"


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("key", [("k",), ("x",), ("x", "k"), ()])
def test_each_update_goes_to_the_owner_of_its_key(
    key: tuple[str, ...], narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one pass, in the order in which they were, none twice; what is all of one owner is not copied."""
    arrangement = arranged(parse_schema({"k": "int64", "x": "string"}), key)
    rng, rows = np.random.default_rng(1), 20_000
    texts = pl.Series([f"text {number}" for number in rng.integers(0, 50, rows)])
    batch = updates([rng.integers(-100, 100, rows), encoding.encode(texts, arrangement.collection["x"])], rows)
    boundaries = [-50, 0, 70] if key == ("k",) else [-(2**62), 0, 2**62]
    division = Division({0: boundaries}, {})
    (message,) = grouped(
        [Delivery(arrangement, (3,), waiting(arrangement, batch) if narrow else arrangement.queued(batch))]
    )
    kinds = [arrangement.collection[name] for name in key]
    codes = encoding.key_codes([batch.words[list(arrangement.collection).index(name)] for name in key], kinds, rows)
    owners = sum((codes >= bound).astype(np.int64) for bound in boundaries)
    parts = dict(divided(message, division))
    assert set(parts) == set(np.unique(owners).tolist())
    for owner, part in parts.items():
        expected = batch.take(np.flatnonzero(owners == owner))
        assert columns(arrangement, part)[-1] == expected.diffs.tolist()
        assert columns(arrangement, part)[:2] == [word.tolist() for word in expected.words]
    if len(parts) == 1:
        assert next(iter(parts.values())) is message


@pytest.mark.parametrize(("enough", "number"), [(100, 6), (200, 4), (700, 3)])
def test_compressed_updates_go_together_where_they_are_few(enough: int, number: int) -> None:
    arrangement, sizes = arranged(parse_schema({"x": "int64"}), ("x",)), [10, 300, 90, 150, 1, 700, 250, 20]
    deliveries, sent = list[Delivery](), dict[tuple[int, ...], list[int]]()
    for position, rows in enumerate(sizes):
        words, rounds = np.arange(rows, dtype=np.int64) + position * 1_000, (position % 2,)
        deliveries.append(Delivery(arrangement, rounds, arrangement.queued(updates([words], rows)).compress()))
        sent.setdefault(rounds, []).extend(words.tolist())
    together = [*grouped(deliveries, enough)]
    for of, expected in sent.items():
        some = [message for message in together if message.rounds == of]
        assert [word for message in some for word in columns(arrangement, message)[0]] == expected
        assert all(len(message) >= enough for message in some[:-1])
    assert all(isinstance(message.updates, Compressed) for message in together)
    assert len(together) == number


@pytest.mark.parametrize("harm", [{"columns": [[0, 9, 1]] * 4}, {"rows": 7}, {"sizes": [3, 3]}, {"to": 5}, {"at": 3}])
def test_a_part_that_is_none_is_an_error(harm: dict[str, Any]) -> None:
    arrangement = arranged(parse_schema({"x": "int64"}), ("x",))
    header, buffers = encoded([message_of(arrangement, [updates([np.arange(5)], 5)])])[0]
    plan: Any = Plan(arrangement)
    header = {**header, "sizes": [len(buffer) for buffer in buffers]}
    assert len([*decoded(plan, [(header, body_of(buffers))])]) == 1
    with pytest.raises(PeerLost):
        list(decoded(plan, [(header | harm, body_of(buffers))]))


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def test_values_are_data_and_never_code(tmp_path: Path) -> None:
    arrangement = arranged(parse_schema({"x": "string"}), ("x",))
    words = encoding.encode(pl.Series(["b", None, "a", "b"]), arrangement.collection["x"])
    header, (_, *others) = encoded([message_of(arrangement, [updates([words], 4)])])[0]
    buffers = [memoryview(pickle.dumps(Trap(tmp_path / "sprung"))), *others]
    plan: Any = Plan(arrangement)
    with pytest.raises(PeerLost):
        list(decoded(plan, [({**header, "sizes": [len(buffer) for buffer in buffers]}, body_of(buffers))]))
    assert not (tmp_path / "sprung").exists()
