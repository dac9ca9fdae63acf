"""Explanations: the rows that are named suffice for the row, and without any one of them it is not there.

The reference checks it, which shares no code with the engine. ``DDCORE_EXPLAIN_SEEDS=2000`` runs that many random
programs, ``DDCORE_EXPLAIN_SEEDS=731-732`` a range.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from typing import Any

import folding
import polars as pl
import pytest
from notation import dims_of
from programs import Case, case

import ddcore as dd
from ddcore import col, reference
from ddcore.errors import DdError
from ddcore.explaining import Explanation, explain, explain_change, rows_with, trials
from ddcore.planner import build
from ddcore.schema import Schema, parse_schema, type_of


def seeds() -> range:
    first, _, last = os.environ.get("DDCORE_EXPLAIN_SEEDS", "40").rpartition("-")
    return range(int(first or 0), int(last))


class Subject:
    """A program and its inputs at one moment: frames of rows and ``diff``."""

    def __init__(self, program: Any, inputs: Mapping[str, pl.DataFrame]) -> None:
        self.program, self.inputs = program, dict(inputs)
        self.schemas: dict[str, Schema] = {
            name: {c: type_of(kind, c) for c, kind in frame.schema.items() if c != "diff"}
            for name, frame in inputs.items()
        }
        self.outputs = build(program, self.schemas, ("_time",)).outputs

    def rows(self, inputs: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """The outputs by the reference."""
        full = {name: inputs.get(name, frame.clear()) for name, frame in self.inputs.items()}
        columns = {name: {c: kind.polars for c, kind in schema.items()} for name, schema in self.outputs.items()}
        return reference.outputs_of(self.program, full, columns)

    def explain(self, output: str, row: pl.DataFrame) -> Explanation:
        return explain(self.program, output, self.schemas, self.inputs, row, self.outputs[output])

    def is_there(self, output: str, row: pl.DataFrame, inputs: Mapping[str, pl.DataFrame], sign: int = 1) -> bool:
        try:
            rows = rows_with(self.rows(inputs)[output], row)
        except DdError:
            return False
        return len(rows) == 1 and rows["diff"][0] * sign > 0

    def check(self, output: str, row: pl.DataFrame, sign: int = 1) -> Explanation:
        """The explanation suffices and is minimal, by the reference."""
        explanation = self.explain(output, row)
        found = explanation.inputs
        for name, frame in found.items():
            held = self.inputs[name]
            assert all(len(rows_with(held, frame[at].drop("diff"))) == 1 for at in range(len(frame)))
        assert self.is_there(output, row, found, sign), f"{found} do not give {row}"
        for name, frame in found.items():
            for at in range(len(frame)):
                fewer = {**found, name: pl.concat([frame[:at], frame[at + 1 :]])}
                assert not self.is_there(output, row, fewer, sign), f"{row} stays without row {at} of {name} in {found}"
        return explanation


def at_the_end(drawn: Case) -> Subject:
    """A random program and its inputs at the last time."""
    dims = dims_of(drawn.frames)
    inputs = {}
    for name, frame in drawn.frames.items():
        columns = [each for each in frame.columns if each not in (*dims, "diff")]
        summed = frame.group_by(columns, maintain_order=True).agg(pl.col("diff").sum())
        inputs[name] = summed.filter(pl.col("diff") != 0)
    return Subject(drawn.program, inputs)


def check_random(seed: int) -> int:
    drawn = case(seed)
    subject = at_the_end(drawn)
    try:
        outputs = subject.rows(subject.inputs)
    except DdError:
        return 0  # the reference fails, as the engine does: there is no row to explain
    rng, explained = random.Random(seed), 0
    for name, rows in outputs.items():
        if name not in subject.outputs or rows.is_empty():
            continue
        at = rng.randrange(len(rows))
        row, sign = rows[at].drop("diff"), 1 if rows["diff"][at] > 0 else -1
        try:
            subject.check(name, row, sign)
        except Exception as error:
            error.add_note(f"output {name}, row {row.rows()}, of\n{drawn}")
            raise
        explained += 1
    return explained


@pytest.mark.parametrize("seed", seeds())
def test_rows_of_random_programs(seed: int) -> None:
    check_random(seed)


def test_most_random_programs_have_rows_to_explain() -> None:
    assert sum(len(frame) > 0 for seed in range(20) for frame in _outputs(seed)) >= 10


def _outputs(seed: int) -> list[pl.DataFrame]:
    try:
        subject = at_the_end(case(seed))
        return list(subject.rows(subject.inputs).values())
    except DdError:
        return []
