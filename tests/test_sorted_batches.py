"""The protocol of sorted batches: arrays, packed integers and files give the same answers; nobody asks which it is."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ddcore
from ddcore.base.schema import parse_schema
from ddcore.base.tuning import Tuning
from ddcore.io.state import arrangements
from ddcore.io.state.arrangements import FileBatch
from ddcore.io.state.layout import Layout
from ddcore.traces.budget import Budget
from ddcore.traces.columns import Plain
from ddcore.traces.consolidation import arrange_all, merge, union
from ddcore.traces.packed_batch import PackedBatch
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch

PACKED = Budget(tuning=Tuning(packed_rows=1, few_rows=0))
DIRECT = Layout(parse_schema({"k": "int64", "v": "int64"}), ("k",), ("version", "_round_1"))
HASHED = Layout(parse_schema({"a": "int64", "b": "int64", "v": "int64"}), ("a", "b"), ("version", "_round_1"))
CLASSES = {
    "Batch", "ColumnBatch", "Columns", "Compressed", "FileBatch", "Packed", "PackedBatch", "Plain", "SortedBatch",
}  # fmt: skip


def rows_of(batch: SortedBatch) -> list[list[int]]:
    return [column.tolist() for column in batch.columns()]


def spans_of(lo: np.ndarray, hi: np.ndarray) -> list[tuple[int, int]]:
    """Spans without those that are empty, wherever these are said to be."""
    return [(a, b) if a < b else (0, 0) for a, b in zip(lo.tolist(), hi.tolist(), strict=True)]


@pytest.mark.parametrize("layout", [DIRECT, HASHED], ids=["direct", "hashed"])
@pytest.mark.parametrize("seed", range(8))
def test_all_encodings_give_the_same_answers(seed: int, layout: Layout, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    n, width = int(rng.integers(1, 3000)), len(layout.stored)
    codes = rng.integers(-40, 40, n)  # of hashed keys several have the same one
    words = [rng.integers(0, 3, n) + codes for _ in range(width - 1)]
    columns = Plain(
        [codes, *words, rng.integers(-9, 9, n), rng.integers(0, 5, n), rng.integers(0, 3, n), codes * 0 + 1]
    )
    packed = arrange_all([columns], width, budget=PACKED)
    assert isinstance(packed, PackedBatch)
    plain = packed.decompress()
    file = arrangements.write_run(tmp_path, 1, 0, plain, layout)
    batches: list[SortedBatch] = [
        plain, ColumnBatch(plain.codes, plain.words.copy(), plain.times.copy(), plain.diffs.copy()), packed,
        FileBatch(tmp_path / file.path, layout),
    ]  # fmt: skip
    probes = np.unique(rng.integers(-60, 60, 30))
    some = np.flatnonzero(rng.random(len(plain)) < 0.3)
    a, b = np.sort(rng.integers(0, len(plain) + 1, 2)).tolist()
    after = np.sort(rng.integers(-50, 50, (2, 20)), axis=0)
    keys = np.array([[], []], np.int64)[:0] if layout.direct else np.stack([probes, probes + 1])

    def answers(batch: SortedBatch) -> dict[str, Any]:
        lo, hi = batch.locate(probes)
        some_rows, *spans = batch.located(lo, hi)
        found = batch.find(probes, keys.reshape(len(keys), len(probes)))
        counts, gathered = np.zeros(len(probes), np.int64), None
        if found is not None:
            found[0].count(counts, keys.reshape(len(keys), len(probes)), found[1])
            ends = np.cumsum(counts)
            out = np.zeros((width - len(keys) + 3 + 1, int(ends[-1])), np.int64)  # one coordinate more than it has
            found[0].scatter(ends - counts, out, width - len(keys), keys.reshape(len(keys), len(probes)), found[1])
            gathered = out.tolist()
        word_lo, word_hi = (0 * probes, 0 * probes) if layout.direct else batch.locate(probes)
        return {
            "locate": spans_of(lo, hi),
            "located": [rows_of(some_rows.part(*span)) for span in zip(*(s.tolist() for s in spans), strict=True)],
            "between codes": spans_of(*batch.locate_between(*after)),
            "between words": spans_of(*batch.between(word_lo, word_hi, 0, probes - 1, probes)),
            "count": counts.tolist(), "scatter": gathered,
            "take": rows_of(batch.take(some)), "part": rows_of(batch.part(a, b)),
            "pieces": [rows_of(piece) for piece in batch.pieces(7)],
            "spans": [batch.span(code) for code in np.unique(plain.codes).tolist()],
            "codes": [batch.code(row) for row in range(0, len(batch), 17)], "sample": batch.sample(13).tolist(),
            "versions": batch.versions().tolist(), "width": (len(batch), batch.width),
            "rows": rows_of(batch.decompress()),
            "columns": rows_of(batch), "limits": [batch.columns().limits(number)[0] for number in range(width + 4)],
            "merge": rows_of(merge(batch, plain)), "union": rows_of(union([batch.columns().compress()] * 3, width)),
        }  # fmt: skip

    first, *others = map(answers, batches)
    for other in others:
        assert {name: other[name] == first[name] for name in first} == dict.fromkeys(first, True)


def test_no_operator_and_no_trace_asks_for_the_class_of_a_batch() -> None:
    top = Path(ddcore.__file__).parent
    asked = [
        f"{file.relative_to(top)}:{node.lineno}"
        for room in ("operators", "traces", "engine", "planning")
        for file in sorted((top / room).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"isinstance", "type"}
        if {path.id for part in node.args[1:] for path in ast.walk(part) if isinstance(path, ast.Name)} & CLASSES
    ]
    assert asked == []
