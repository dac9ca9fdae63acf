"""Ids of rows: the numbered cases, the specified hash, rows that collide, and rows taken apart and put together."""

from __future__ import annotations

import datetime
import random
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import folding
import numpy as np
import polars as pl
import pytest
from folding import Fold
from notation import frame, log
from programs import Case
from test_semantics import same
from warehouses import logs_of, project_of

import ddcore as dd
from ddcore import col
from ddcore.batch import Batch
from ddcore.errors import Diverged, NegativeMultiplicity, ProgramError
from ddcore.io.program import load_program
from ddcore.jobs import replay
from ddcore.planner import build
from ddcore.worker import Worker

FOLDS = [folding.by_reference, folding.whole, folding.one_time_each, folding.randomly_cut, folding.fed_early]


@pytest.fixture(params=FOLDS, ids=lambda fold: fold.__name__)
def fold(request: pytest.FixtureRequest) -> Any:
    return request.param


# -- the numbered cases -----------------------------------------------------------------------------------------------

COLLIDING = pl.when(col("round") == 0).then(7).when(col("x") == "a").then(8).otherwise(9)
TENS = "(round + x) // 10"


def naively(rows: Any, hash: Any) -> Any:
    """Ids by the first form of seed 002: a loop over all rows and their rounds, of which losers get the next one."""

    def winners_stay(groups: pl.DataFrame) -> pl.DataFrame:
        ordered = groups.sort("group", "round", "x")
        winner = pl.int_range(pl.len()).over("group") == 0
        return ordered.select("group", x="x", round=pl.when(winner).then("round").otherwise(col("round") + 1))

    kind = (
        str(rows.schema["x"]) if hasattr(rows, "schema") else {"Int64": "int64"}.get(str(rows.columns["x"]), "string")
    )

    def body(pairs: Any) -> Any:
        proposed = pairs.with_columns(id=hash)
        return proposed.group_by("id").reduce(winners_stay, {"x": kind, "round": "int64"}).select("x", "round")

    return rows.distinct().with_columns(round=0).iterate(body).select("x", id=hash)


@pytest.mark.parametrize("form", [lambda words, hash: words.intern(hash=hash), naively], ids=["edits", "naive"])
def test_T41_forced_collision(fold: Fold, form: Any) -> None:
    words = frame("x", "a,b:+1@0 a:-1@1 a:+1@2")
    expected = "(a,7),(b,9):+1@0 (a,7):-1,(b,9):-1,(b,7):+1@1 (a,7):+1,(b,7):-1,(b,9):+1@2"
    same(fold(lambda words: {"out": form(words, COLLIDING)}, words=words)["out"], log(expected))


@pytest.mark.parametrize("form", [lambda words, hash: words.intern(hash=hash), naively], ids=["edits", "naive"])
def test_T42_a_chain_of_collisions(fold: Fold, form: Any) -> None:
    numbers = frame("x", "1,2,3:+1@0 1:-1@1 1:+1@2")
    expected = "(1,0),(2,2),(3,1):+1@0 (1,0):-1,(2,2):-1,(2,0):+1@1 (1,0):+1,(2,2):+1,(2,0):-1@2"
    same(fold(lambda numbers: {"out": form(numbers, TENS)}, numbers=numbers)["out"], log(expected))


@pytest.mark.parametrize("seed", range(30))
def test_T42_both_forms_over_random_histories(seed: int) -> None:
    """At one, two and three coordinates; no id is there twice at any time."""
    rng = random.Random(seed)
    dims = rng.choice([1, 1, 2, 3])
    present: set[int] = set()
    updates = []
    for step in range(24):
        x = rng.randrange(12)
        diff = -1 if x in present else 1
        present ^= {x}
        updates.append(
            f"{x}:{diff:+d}@{step}" if dims == 1 else f"{x}:+1@({','.join(str(rng.randrange(4)) for _ in range(dims))})"
        )
    hash = rng.choice([TENS, "(x * 7 + round * 3) % 31", "x // 4 + round * round"])
    numbers = frame("x", " ".join(updates))
    made = folding.whole(
        lambda numbers: {"edits": numbers.intern(hash=hash), "naive": naively(numbers, hash)}, numbers=numbers
    )
    assert made["edits"] == made["naive"], f"seed {seed}: {hash}"
    for time in folding.grid({"numbers": numbers}):
        at = {row for (row, when), _ in made["edits"].items() if folding.reference.precedes(when, time)}
        ids = [
            row[1]
            for row in at
            if sum(d for (r, w), d in made["edits"].items() if r == row and folding.reference.precedes(w, time)) > 0
        ]
        assert len(ids) == len(set(ids)), f"seed {seed}: {time}"


# -- the hash ---------------------------------------------------------------------------------------------------------

VALUES = {
    "b": pl.Series([True, None], dtype=pl.Boolean),
    "i": pl.Series([-1, 2**63 - 1]),
    "f": pl.Series([-0.0, float("nan")]),
    "s": pl.Series(["", "Zoë"]),
    "y": pl.Series([b"\x00\xff", None], dtype=pl.Binary),
    "d": pl.Series([datetime.date(1969, 12, 31), None]),
    "t": pl.Series([datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.UTC), None], dtype=pl.Datetime("us", "UTC")),
    "m": pl.Series([Decimal("-1.50"), None], dtype=pl.Decimal(10, 2)),
}


def ids_of(rows: pl.DataFrame, **how: Any) -> list[int]:
    """The id of each row, in the order of the rows."""
    updates = rows.with_columns(version=0, diff=1)
    out = dd.replay(lambda rows: {"out": rows.intern(**how)}, rows=updates)["out"]
    return [out.filter(pl.all_horizontal(col(c).eq_missing(pl.lit(v, rows.schema[c])) for c, v in row.items()))["id"].item()
            for row in rows.iter_rows(named=True)]  # fmt: skip
