"""Every function that expressions may use depends on the row alone: not on the batch, the order or the process.

Rows are drawn at random; the seed is part of each test's name, and samples.py makes the rows from it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
import samples
from polars import col, element
from seeds import nightly

from ddcore.base.errors import ProgramError
from ddcore.expressions import polars_json, syntax, vocabulary
from ddcore.expressions.projections import ListProjection, Projection


def test_every_allowed_name_has_a_sample() -> None:
    assert set(samples.FUNCTIONS) == vocabulary.FUNCTIONS
    assert set(samples.OPERATORS) == {*syntax.OPERATORS}
    assert set(samples.TYPES) == vocabulary.TYPES


@pytest.mark.parametrize("title", [*samples.FUNCTIONS, *samples.OPERATORS])
def test_a_sample_uses_the_name_it_stands_for(title: str) -> None:
    for expr in (samples.FUNCTIONS | samples.OPERATORS)[title]:
        names = {syntax.operation(node) for node in syntax.walk(polars_json.read(expr))}
        aliases = {"LogicalAnd": "And", "LogicalOr": "Or"}
        assert names & {title, aliases.get(title)}, (title, names)


@pytest.mark.sample(150)
@pytest.mark.parametrize("seed", nightly([1, 2], 1))
@pytest.mark.parametrize(("title", "expr"), samples.ALL, ids=[title for title, _ in samples.ALL])
def test_a_value_depends_on_its_row_alone(title: str, expr: pl.Expr, seed: int) -> None:
    evaluate, frame, rng = samples.evaluator(expr), samples.rows(60, seed), random.Random(seed)
    whole = evaluate(frame)
    alone = rng.sample(range(len(frame)), 20 if seed == 1 else len(frame))  # by day a third of the rows
    assert [evaluate(frame[row : row + 1]) for row in alone] == [[whole[row]] for row in alone]
    for _ in range(3):
        cuts = [0, *sorted(rng.sample(range(1, len(frame)), 4)), len(frame)]
        pieces = [evaluate(frame[start:end]) for start, end in pairwise(cuts)]
        assert [value for piece in pieces for value in piece] == whole
    order = rng.sample(range(len(frame)), len(frame))
    assert evaluate(frame[order]) == [whole[row] for row in order]
    alike = [row for row in range(len(frame)) if rng.random() < 0.3]
    assert evaluate(frame[alike]) == [whole[row] for row in alike]
    assert evaluate(frame[:0]) == []


@pytest.mark.parametrize("divisor", [3, 7, 0.7])
@pytest.mark.parametrize("names", [["x"], ["x", "y"]])
def test_quotients_of_elements_are_rounded_once(names: list[str], divisor: float) -> None:
    """Polars multiplies by the reciprocal of a literal, except in a column of one element."""
    frame = samples.rows(60, 3).drop_nulls(names)
    evaluate = samples.evaluator(pl.concat_list(names).list.eval(element() / divisor))
    expected = [repr([value / divisor for value in row]) for row in frame.select(names).rows()]
    assert evaluate(frame) == expected
    assert [evaluate(frame[row : row + 1]) for row in range(len(frame))] == [[item] for item in expected]


def test_values_are_the_same_in_processes_with_other_pasts() -> None:
    script = Path(samples.__file__)
    settings = [("first", "1", "1", "UTC"), ("backwards", "77", "2", "Asia/Tokyo")]
    one, other = (
        json.loads(
            subprocess.run(
                [sys.executable, str(script), order],
                env=os.environ | {"PYTHONHASHSEED": seed, "POLARS_MAX_THREADS": threads, "TZ": zone},
                capture_output=True,
                check=True,
            ).stdout
        )
        for order, seed, threads, zone in settings
    )
    assert [title for title in one if one[title] != other[title]] == [] and len(one) == len(samples.ALL)


@pytest.mark.parametrize(
    "expr",
    [
        col("name").cast(pl.Categorical).to_physical(),
        col("name").cast(pl.Enum(["12", "13"])),
        col("k").cast(pl.Int8, wrap_numerical=True),
        samples.words.list.eval(element().cast(pl.Categorical)).list.get(0),
        samples.words.list.eval(element().str.to_date(strict=False)).list.get(0),
        samples.words.list.eval(element().mode()).list.get(0),
        samples.words.list.eval(element().value_counts()).list.len(),
        samples.words.list.eval(element().shuffle()).list.get(0),
        samples.words.list.eval(element().sample(1)).list.get(0),
        samples.words.list.eval(element().hash()).list.get(0),
        samples.words.list.eval(element().rank()).list.get(0),
        samples.ints.list.eval(element().cum_sum()).list.get(0),
        samples.ints.list.eval(element().cum_prod()).list.get(0),
        samples.ints.list.eval(element().sort_by(element())).list.get(0),
        samples.ints.list.eval(element() - element().mean()).list.get(0),
        samples.ints.list.agg(element().sum()),
        samples.ints.list.agg(element().product()),
        samples.ints.list.eval(element() + col("a")).list.get(0),
        samples.words.list.filter(element().str.to_date(strict=False).is_not_null()).list.len(),
        samples.ints.list.sample(1).list.get(0),
        col("name").str.contains_any(samples.words),
        col("name").str.replace_many(samples.words, ["x"]),
        samples.words.list.count_matches(col("word")),
        pl.struct("a", "b").struct.with_fields(pl.field("a") * 2).struct.field("a"),
        pl.concat_arr("a", "b").arr.eval(element().cum_sum()).arr.get(0),
        pl.concat_list("a", "b").list.diff().list.get(0),
        (col("at") - col("due")).dt.total_nanoseconds(),
        element() + 1,
    ],
)
def test_what_depends_on_more_than_the_row_is_refused(expr: pl.Expr) -> None:
    for projection in (Projection, ListProjection):
        with pytest.raises(ProgramError):
            projection({"value": expr}, samples.SCHEMA)
