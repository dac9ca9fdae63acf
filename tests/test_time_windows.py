"""Windows of time: literal cases, and random sessions against the reference."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from typing import Any

import folding
import polars as pl
import pytest
from folding import Fold
from notation import frame, log
from seeds import nightly
from test_semantics import same

import ddcore as dd
from ddcore.base.tuning import DEFAULT, Tuning


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(None, "(-1,-3,0),(0,0,3),(2,0,3),(3,3,6)"), (1, "(-1,-2,1),(0,-2,1),(2,1,4),(3,1,4)"),
     (-2, "(-1,-2,1),(0,-2,1),(2,1,4),(3,1,4)")],
)  # fmt: skip
def test_which_window_a_row_is_in(fold: Fold, offset: int | None, expected: str) -> None:
    rows = frame("n", "-1,0,2,3,null:+1@0")
    same(fold(lambda rows: {"out": rows.tumble("n", 3, offset=offset)}, rows=rows)["out"], log(f"{expected}:+1@0"))


@pytest.mark.parametrize(
    ("every", "length", "expected"),
    [(2, 4, "(5,4,8),(5,2,6)"), (2, 5, "(5,4,9),(5,2,7)"), (2, 3, "(5,4,7)"), (4, 1, ""), (5, 1, "(5,5,6)")],
)
def test_the_windows_of_a_row_that_overlap_or_leave_room(fold: Fold, every: int, length: int, expected: str) -> None:
    actual = fold(lambda rows: {"out": rows.hop("n", every, length)}, rows=frame("n", "5:+1@0"))
    same(actual["out"], log(f"{expected}:+1@0") if expected else {})


def test_sessions_merge_and_split(fold: Fold) -> None:
    rows = frame("n", "1,4,8:+1@0 6:+1@1 4:-1@2 1,6,8:-1@3")
    actual = fold(lambda rows: {"out": rows.sessions("n", 3)}, rows=rows)
    expected = "(1,1,7),(4,1,7),(8,8,11):+1@0 (1,1,7),(4,1,7),(8,8,11):-1,(1,1,11),(4,1,11),(6,1,11),(8,1,11):+1@1"
    expected += " (1,1,11),(4,1,11),(6,1,11),(8,1,11):-1,(1,1,4),(6,6,11),(8,6,11):+1@2 (1,1,4),(6,6,11),(8,6,11):-1@3"
    same(actual["out"], log(expected))


def test_null_is_a_key_of_sessions_and_no_moment(fold: Fold) -> None:
    rows = frame("w f n", "(x,0.5,1),(null,null,2),(null,null,3),(null,null,null):+1@0")
    actual = fold(lambda rows: {"out": rows.sessions("n", 1, ["w", "f"]).select("w", "n", "window_start")}, rows=rows)
    same(actual["out"], log("(x,1,1),(null,2,2),(null,3,2):+1@0"))


@pytest.mark.parametrize("kind", ["timestamp", "date"])
def test_moments_with_lengths_of_time(kind: str) -> None:
    before, after = (datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(1970, 1, 1, 22, tzinfo=UTC))
    values: list[Any] = [before, after] if kind == "timestamp" else [before.date(), after.date()]
    rows = pl.DataFrame({"t": values, "version": [0, 0], "diff": [1, 1]})
    out = dd.replay(lambda rows: {"out": rows.tumble("t", timedelta(days=1))}, rows=rows)["out"].rows()
    starts = sorted(item[1] for item in out)
    day = date(1969, 12, 31)
    assert starts == (
        [day, date(1970, 1, 1)]
        if kind == "date"
        else [datetime(1969, 12, 31, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)]
    )
    together = dd.replay(lambda rows: {"out": rows.sessions("t", timedelta(days=1))}, rows=rows)["out"].rows()
    assert {item[1:3] for item in together} == {(values[0], values[1] + timedelta(days=1))}


def history(rng: random.Random, users: int, span: int) -> str:
    """Rows of users that come, go and come again at six versions."""
    present: list[str] = []
    parts = []
    for version in range(6):
        gone = [present.pop(rng.randrange(len(present))) for _ in range(min(len(present), rng.randint(0, 6)))]
        come = [f"(u{rng.randrange(users)},{rng.randrange(span)})" for _ in range(rng.randint(1, 12))]
        present += come
        parts += [f"{item}:-1@{version}" for item in gone] + [f"{item}:+1@{version}" for item in come]
    return " ".join(parts)


@pytest.mark.sample(25)
@pytest.mark.parametrize("seed", nightly(range(300), 8))
@pytest.mark.parametrize("searched", [False, True])
def test_sessions_equal_the_reference_while_rows_come_and_go(fold: Fold, seed: int, searched: bool) -> None:
    """``searched``: as in large keys, the session of a row is found by a search."""
    rng = random.Random(seed)
    tuning = Tuning(searched_rows=1, near_intervals=1 + seed % 3, near_ratio=0) if searched else DEFAULT
    gap = rng.choice([0, 1, 2, 5])
    by: Any = rng.choice([(), "w"])
    rows = frame("w n", history(rng, rng.choice([1, 2]), rng.choice([10, 40])))

    def program(rows: Any) -> dict[str, Any]:
        sessions = rows.sessions("n", gap, by)
        keys = ["w"] if by else []
        return {"out": sessions, "sums": sessions.group_by(*keys, "window_start", "window_end").agg(c=dd.count())}

    same(fold(program, tuning=tuning, rows=rows), folding.by_reference(program, rows=rows))
