"""``join_between``: literal cases, random histories against the reference, and how few rows a moving end reads."""

from __future__ import annotations

import datetime
import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

import folding
import numpy as np
import polars as pl
import pytest
from folding import Fold
from notation import DIMS, frame, log
from seeds import nightly
from test_semantics import same

import ddcore as dd
from ddcore import col
from ddcore.base.tuning import Tuning
from ddcore.data import encoding
from ddcore.data.encoding import NULL
from ddcore.operators import join, join_between
from ddcore.operators.ends import Ends
from ddcore.planning.planner import build
from ddcore.traces import consolidation
from ddcore.traces.consolidation import arrange

NUMBERS = "1,2,3,4,5,null:+1@0"


def filtered(**ends: Any) -> Any:
    return lambda rows, ends_: {"out": rows.join_between(ends_, "n", **ends)}


@pytest.mark.parametrize(("closed", "expected"), [("both", "2,3,4"), ("left", "2,3"), ("right", "3,4"), ("none", "3")])
def test_which_ends_belong_to_an_interval(fold: Fold, closed: str, expected: str) -> None:
    program = filtered(lower="a", upper="b", closed=closed)
    actual = fold(program, rows=frame("n", NUMBERS), ends_=frame("a b", "(2,4):+1@0"))
    same(actual["out"], log(f"{expected}:+1@0"))


def test_only_rows_between_the_old_and_the_new_end_move(fold: Fold) -> None:
    program = filtered(lower="a")
    moving = frame("a", "2:+1@0 2:-1,4:+1@1 4:-1,3:+1@2")
    actual = fold(program, rows=frame("n", NUMBERS), ends_=moving)
    same(actual["out"], log("2,3,4,5:+1@0 2,3:-1@1 3:+1@2"))


def test_intervals_that_are_not_there_or_hold_nothing(fold: Fold) -> None:
    ends = frame("a b", "(4,2),(null,3),(3,null),(null,null):+1@0")
    same(fold(filtered(lower="a", upper="b"), rows=frame("n", NUMBERS), ends_=ends)["out"], {})
    same(fold(filtered(lower="a"), rows=frame("n", "1:+1@0"), ends_=frame("a b", "(9,9):+1@0"))["out"], {})


def test_null_ends_that_are_open(fold: Fold) -> None:
    program = filtered(lower="a", upper="b", closed="none", open_nulls=True)
    ends = frame("a b w", "(null,3,x),(3,null,y),(null,null,z),(4,2,v):+1@0")
    actual = fold(program, rows=frame("n", NUMBERS), ends_=ends)
    expected = "(1,x),(2,x),(4,y),(5,y),(1,z),(2,z),(3,z),(4,z),(5,z):+1@0"
    same(actual["out"], log(expected))


def test_a_slowly_changing_dimension(fold: Fold) -> None:
    """The end of a validity is set, and the next one begins there: only later rows change."""

    def program(rows: Any, prices: Any) -> Any:
        joined = rows.join_between(
            prices, "day", "since", "until", on={"item": "product"}, closed="left", open_nulls=True
        )
        return {"out": joined}

    rows = frame("item day", "(tea,1),(tea,5),(tea,9),(jam,5),(null,5):+1@0")
    prices = frame("product since until price", "(tea,1,null,3),(jam,6,null,7),(null,1,9,4):+1@0 "
                   "(tea,1,null,3):-1,(tea,1,5,3),(tea,5,null,4):+1@1")  # fmt: skip
    actual = fold(program, rows=rows, prices=prices)
    expected = "(tea,1,3),(tea,5,3),(tea,9,3):+1@0 (tea,5,3),(tea,9,3):-1,(tea,5,4),(tea,9,4):+1@1"
    same(actual["out"], log(expected))


def test_multiplicities_multiply_also_negative_ones(fold: Fold) -> None:
    actual = fold(
        filtered(lower="a", upper="b"), rows=frame("n", "3:+2@0 4:-3@1"), ends_=frame("a b", "(1,3):+5,(2,9):-1@0")
    )
    same(actual["out"], log("3:+8@0 4:+3@1"))


def test_times_that_are_not_ordered(fold: Fold) -> None:
    ends = frame("a b", "(1,5):+1@(0,0) (1,5):-1,(3,8):+1@(1,0) (1,5):-1,(0,5):+1@(0,1)")
    actual = fold(filtered(lower="a", upper="b"), rows=frame("n", "0,4,7:+1@(0,0)"), ends_=ends)
    same(actual["out"], log("4:+1@(0,0) 7:+1@(1,0) 0:+1@(0,1)"))


VALUES: dict[str, list[Any]] = {
    "float": [float("-inf"), -1.5, -0.0, 0.0, 1e-300, 2.0, float("inf"), float("nan"), None],
    "date": [datetime.date(1969, 12, 31), datetime.date(1970, 1, 1), datetime.date(2024, 2, 29), None],
    "time": [datetime.datetime(1969, 12, 31, 23), datetime.datetime(2024, 2, 29, 1, 2, 3, 4), None],
    "money": [Decimal("-3.00"), Decimal("0.05"), Decimal("12.10"), None],
    "bool": [True, False, None],
    "huge": [2**63 - 1, 2**63 - 2, 0, -(2**63) + 1, -(2**63) + 2, None],
}
TYPES = {"money": pl.Decimal(10, 2), "time": pl.Datetime("us", "UTC"), "huge": pl.Int64(), "date": pl.Date()}


@pytest.mark.parametrize("closed", ["both", "left", "right", "none"])
@pytest.mark.parametrize("kind", VALUES)
def test_every_type_with_an_order(kind: str, closed: str) -> None:
    """Each value with each pair of values as ends."""
    values = pl.Series("n", VALUES[kind], dtype=TYPES.get(kind))
    rows = values.to_frame().with_columns(version=0, diff=1)
    ends = values.alias("a").to_frame().join(values.alias("b").to_frame(), how="cross")
    ends = ends.with_row_index("i").cast({"i": pl.Int64}).with_columns(version=0, diff=1)
    for open_nulls in (False, True):
        program = filtered(lower="a", upper="b", closed=closed, open_nulls=open_nulls)
        expected = folding.by_reference(program, rows=rows, ends_=ends)
        assert folding.whole(program, rows=rows, ends_=ends) == expected
        met = pl.lit(True)
        for end, other in (("a", pl.col("n") > pl.col("a")), ("b", pl.col("n") < pl.col("b"))):
            inside = (
                other | (pl.col("n") == pl.col(end)) if closed in ("both", "left" if end == "a" else "right") else other
            )
            met &= (inside | pl.col(end).is_null()) if open_nulls else inside
        pairs = rows.drop_nulls("n").join(ends, how="cross").filter(met)
        assert sum(expected["out"].values()) == len(pairs)


def history(rng: random.Random, columns: int, dims: int, updates: int) -> pl.DataFrame:
    """Few rows of small numbers, null among them, inserted and retracted again and again, also below 0."""
    rows = [[rng.choice([0, 1, 2, 3, 4, 5, 6, 7, None]) for _ in range(columns)] for _ in range(9)]
    data = [
        (*rng.choice(rows), *(rng.randrange(5) for _ in range(dims)), rng.choice([1, 1, -1, 2])) for _ in range(updates)
    ]
    names = [f"c{number}" for number in range(columns)]
    return pl.DataFrame(data, schema=dict.fromkeys([*names, *DIMS[dims], "diff"], pl.Int64()), orient="row")


def programs(rows: Any, ends: Any) -> dict[str, Any]:
    """With and without keys and ends, rows with several orders of columns, in a loop, of what others have changed."""
    once = ends.distinct(allow_negative=True)

    def body(w: Any) -> Any:
        onward = w.join_between(ends.select(a="c0", b="c1", to="c2"), "c0", "a", "b").select(c0=(col("to") + 1) % 8)
        return onward.concat(w).distinct(allow_negative=True)

    last = rows.select("c2", "c0", "c1")
    return {
        "one": rows.join_between(ends.select("c1", "c2"), "c0", upper="c1", closed="left"),
        "filter": rows.join_between(ends.select("c1"), "c1", lower="c1"),
        "keyed": last.join_between(ends, "c0", "c1", "c2", on={"c1": "c0"}, open_nulls=True),
        "keys": last.join_between(once.rename({"c2": "x"}), "c2", lower="x", on=["c0", "c1"]),
        "twice": rows.join_between(ends, "c2", "c1", "c2", on={"c0": "c0", "c1": "c0"}),
        "loop": rows.select("c0").distinct(allow_negative=True).iterate(body),
        "text": rows.with_columns(t=pl.col("c1").cast(pl.String)).join_between(
            ends.select("c1", "c2", t=pl.col("c0").cast(pl.String)), "c0", "c1", "c2", on="t", closed="right"
        ),
    }  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", nightly(range(24), 5))
def test_random_histories(seed: int) -> None:
    tuning = Tuning(long_history=1 + seed % 3)
    if seed % 2:
        tuning = replace(tuning, packed_rows=1)
    if seed // 2 % 2:
        tuning = replace(tuning, joined_pairs=3, looked_up_segments=2)
    if seed // 4 % 2:
        tuning = replace(tuning, near_ratio=0)
    rng = random.Random(seed)
    dims = 1 + seed % 3
    frames = {name: history(rng, 3, dims, 12 + 12 * (dims == 1)) for name in ("rows", "ends")}
    expected = folding.by_reference(programs, **frames)
    folds: list[tuple[Fold, dict[str, Any]]] = [
        (folding.whole, {}),
        (folding.in_threads, {}),
        (folding.one_time_each, {}),
        (folding.randomly_cut, {"seed": seed}),
        (folding.fed_early, {"seed": seed}),
        (folding.compacted, {"seed": seed}),
    ]
    for fold, how in folds:
        assert fold(programs, tuning=tuning, **frames, **how) == expected, f"seed {seed}, {fold.__name__}"


def test_sums_of_diffs_beyond_int64_are_not_needed() -> None:
    """The sum of two changes at one time is no int64, and the row's count is one: it is there -2**62 times."""
    ends = frame("a", f"1:+{2**62},2:+{2**62}@0 2:-{2**62}@1")
    rows = frame("n", "3:+1@1")
    program = filtered(lower="a")
    assert folding.whole(program, rows=rows, ends_=ends) == folding.by_reference(program, rows=rows, ends_=ends)


# -- how much is read --------------------------------------------------------------------------------------------------

DAY, DAYS = 10_000, 100


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pairs are made, step by step."""
    numbers: list[int] = []
    right = join.Pairs.of

    def of(pairs: Any, words: Any) -> Any:
        numbers.append(len(pairs.diffs))
        return right(pairs, words)

    monkeypatch.setattr(join.Pairs, "of", of)
    return numbers


@pytest.mark.parametrize("keyed", [False, True])
def test_a_moving_end_reads_the_rows_of_a_day(monkeypatch: pytest.MonkeyPatch, keyed: bool) -> None:
    on = ["k"] if keyed else []

    def program(rows: Any, last: Any) -> Any:
        return {"out": rows.join_between(last, "ts", lower="since", on=on)}

    ts = np.arange(DAY * DAYS)
    rows = pl.DataFrame({"k": np.zeros_like(ts), "id": ts, "ts": ts, "version": 0, "diff": 1})
    session = dd.Session(program, {"rows": {"k": int, "id": int, "ts": int}, "last": {"k": int, "since": int}})
    session.fold({"rows": rows, "last": frame("k since", f"(0,{90 * DAY}):+1@0")})
    numbers = counted(monkeypatch)
    for day in (91, 92, 93):
        moved = frame("k since", f"(0,{(day - 1) * DAY}):-1,(0,{day * DAY}):+1@{day}")
        out = session.fold({"last": moved})["out"]
        assert (len(out), out["diff"].sum()) == (DAY, -DAY)
    assert sum(numbers) == 3 * DAY
    del numbers[:]
    more = rows.filter(col("id") == 5).with_columns(ts=pl.Series([99 * DAY, 5])[:1], version=pl.lit(94), id=pl.lit(-1))
    assert len(session.fold({"rows": more})["out"]) == 1
    assert sum(numbers) == 1, "a new row meets the interval that is there, not all that ever were"
    del numbers[:]
    gone = more.with_columns(ts=pl.lit(91 * DAY + 5), version=pl.lit(95))
    assert session.fold({"rows": gone})["out"].is_empty() and sum(numbers) == 0, "nor one that has been there once"


def test_new_rows_meet_only_intervals_near_them(monkeypatch: pytest.MonkeyPatch) -> None:
    low = np.arange(0, 100_000, 10)
    ends = pl.DataFrame({"a": low, "b": low + 9, "name": low // 10, "version": 0, "diff": 1})
    session = dd.Session(
        filtered(lower="a", upper="b"), {"rows": {"n": int}, "ends_": {"a": int, "b": int, "name": int}}
    )
    session.fold({"ends_": ends})
    segments: list[int] = []
    right = join_between._Segments.added_up

    def added_up(some: Any, budget: Any) -> Any:
        segments.append(len(some))
        return right(some, budget)

    monkeypatch.setattr(join_between._Segments, "added_up", added_up)
    out = session.fold({"rows": frame("n", "77,5555:+1@1")})["out"]
    assert out.rows() == [(77, 7, 1, 1), (5555, 555, 1, 1)] and segments == [2]


def test_arrangements_are_by_the_value_or_by_the_keys() -> None:
    schemas = {"rows": {"k": "string", "n": "int64"}, "ends_": {"k": "string", "a": "int64"}}
    plan = build(filtered(lower="a"), schemas)
    assert sorted(arrangement.key for arrangement in plan.arrangements if not arrangement.transient) == [(), ("n",)]
    plan = build(filtered(lower="a", on="k"), schemas)
    assert sorted(arrangement.key for arrangement in plan.arrangements if not arrangement.transient) == [("k",), ("k",)]


@pytest.mark.parametrize("seed", range(20))
def test_intervals_near_values_are_those_that_hold_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = 60
    begin = np.sort(rng.integers(0, 40, rows))
    length = rng.integers(-2, 1 + int(rng.choice([1, 5, 60])), rows)
    begin[: seed % 3], ends = NULL, Ends("a", "b", "left", seed % 2 > 0)
    batch = arrange(np.zeros(rows, np.int64), [begin, begin + length], [np.arange(rows)], np.ones(rows, np.int64))
    reach = join_between._Reach.of(batch, ends, ["a", "b"])
    values = np.unique(rng.integers(-5, 60, int(rng.integers(1, 9))))
    after, to = ends.bounds(dict(zip("ab", batch.words, strict=True)), rows)
    expected = [row for row in range(rows) if ((values > after[row]) & (values <= to[row])).any()]
    assert reach.holding(values).tolist() == expected


def test_keys_with_one_code_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all keys of text had the same hash: rows of a key lie among those of others."""
    for module in (consolidation, encoding):
        monkeypatch.setattr(module, "key_codes", lambda words, kinds, rows: np.full(rows, 7))
    rows = pl.DataFrame({"k": list("abcabc"), "n": [1, 1, 1, 5, 6, 7], "version": [0, 0, 0, 1, 1, 1], "diff": 1})
    ends = pl.DataFrame({"k": list("bca"), "a": [0, 2, 4], "w": [1, 2, 3], "version": [1, 2, 0], "diff": 1})
    program = filtered(lower="a", on="k")
    expected = folding.by_reference(program, rows=rows, ends_=ends)
    assert folding.whole(program, rows=rows, ends_=ends) == expected and len(expected["out"]) == 4
    assert folding.one_time_each(program, rows=rows, ends_=ends) == expected
