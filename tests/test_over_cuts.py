"""``ntile`` and shares of the rows in large partitions: against the reference, and what is read."""

from __future__ import annotations

import random
from typing import Any

import folding
import polars as pl
import pytest
from notation import frame
from test_over import rows_read

import ddcore as dd
from ddcore.base.tuning import Tuning


@pytest.mark.parametrize("first", [1, 5])
@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(40))
def test_large_partitions_that_change_by_their_size(seed: int, first: int) -> None:
    """In one fold and in one for each version: with copies and ties, rows that move, and at times a null."""
    tuning = Tuning(searched_rows=1, near_rows=first, later_rows=first, later_ratio=3, cut_ratio=0)
    rng = random.Random(f"cuts {seed}")
    numbers: list[Any] = [*range(rng.choice([6, 90, 900]))] + [None] * (seed % 5 == 0)
    keys: list[Any] = rng.choice([["a"], ["a", "b"], [1, 2]])
    there, updates, most = list[tuple[Any, ...]](), list[tuple[Any, ...]](), rng.choice([0, 0.4])
    for version in range(6):
        is_burst = version > 0 and rng.random() < 0.4  # all at the one end: the cuts move as far as they can
        for _ in range(rng.choice([1, 2, 4, 12]) if version else rng.choice([2, 60, 120])):
            if version and there and rng.random() < (0.4 if most and not is_burst else 1 - bool(most)):
                updates.append((*there.pop(rng.randrange(len(there))), version, -1))
                if rng.random() < most:
                    continue
            number = rng.choice(numbers[:3] if is_burst else numbers)
            there.append((rng.choice(keys), number, rng.choice(["x", None])))
            updates.append((*there[-1], version, 1))
    t = pl.DataFrame(updates, ["k", "n", "w", "version", "diff"], orient="row", infer_schema_length=None)
    function, down = (
        rng.choice([dd.percent_rank(), dd.cume_dist(), *map(dd.ntile, [1, 2, 3, 4, 7, 50])]),
        rng.random() < 0.5,
    )

    def program(t: Any) -> Any:
        return {"out": t.group_by("k").over("n", descending=down, it=function)}

    expected = folding.by_reference(program, t=t)
    assert folding.whole(program, tuning=tuning, t=t) == expected
    assert folding.one_time_each(program, tuning=tuning, t=t) == expected
    assert folding.compacted(program, tuning=tuning, t=t) == expected
    assert folding.fed_early(program, seed=seed, tuning=tuning, t=t) == expected


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        "(a,5001,5):+1",  # another number of rows
        "(a,-1,5):+1",
        "(a,9001,5):+1",
        "(a,0,0):-1",
        "(a,4500,0):-1,(a,4500,5):+1",  # the row changes where it stands
        "(a,8998,8):-1,(a,1,8):+1",  # and moves: far from the cuts
    ],
)
def test_what_is_read_of_a_large_partition(change: str, down: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some rows around each cut and each change."""
    tuning = Tuning(near_rows=8)
    rows = pl.DataFrame({"k": "a", "n": range(0, 9000, 2), "version": 0, "diff": 1})
    first = rows.with_columns(x=pl.col("n") % 10).select("k", "n", "x", "version", "diff")
    t = pl.concat([first, frame("k n x", f"{change}@1")], how="vertical_relaxed")
    read = rows_read(monkeypatch)

    def program(t: Any) -> Any:
        return {"out": t.group_by("k").over("n", descending=down, it=dd.ntile(4))}

    (log,) = folding.one_time_each(program, tuning=tuning, t=t).values()
    changed = [(*row, *time, diff) for (row, time), diff in log.items() if time == (1,)]
    assert read[0] == 4500
    assert 0 < read[1] < 250
    order = pl.col("n").rank("ordinal", descending=down) - 1
    tile = (
        pl.when(order < (pl.len() % 4) * (pl.len() // 4 + 1))
        .then(order // (pl.len() // 4 + 1))
        .otherwise(pl.len() % 4 + (order - (pl.len() % 4) * (pl.len() // 4 + 1)) // (pl.len() // 4))
    )
    expected = [
        there.group_by("k", "n", "x").agg(pl.col("diff").sum()).filter(pl.col("diff") > 0).with_columns(it=tile + 1)
        for there in (t.filter(pl.col("version") == 0), t)
    ]
    columns = ["k", "n", "x", "it"]
    before, after = ({row for row in rows.select(columns).iter_rows()} for rows in expected)
    assert sorted(changed) == sorted(
        [*((*row, 1, -1) for row in before - after), *((*row, 1, 1) for row in after - before)]
    )


def test_what_is_read_where_functions_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row behind all others costs some rows of each operator: none sees changes at the cuts, but that which cuts."""
    rows = pl.DataFrame({"k": "a", "n": range(0, 8000, 2), "x": 1, "version": 0, "diff": 1})
    t = pl.concat([rows, frame("k n x", "(a,9001,5):+1@1")], how="vertical_relaxed")
    read = rows_read(monkeypatch)
    functions: dict[str, Any] = {
        "part": dd.ntile(4), "total": dd.sum("x"), "near": dd.count().range_between(-9, 0), "before": dd.lag("x"),
    }  # fmt: skip
    (log,) = folding.one_time_each(lambda t: {"out": t.group_by("k").over("n", **functions)}, t=t).values()
    changed = {row: diff for (row, time), diff in log.items() if time == (1,)}
    moved = [(n, cut + now) for cut, n in enumerate((2000, 4000, 6000)) for now in (2, 1)]
    assert changed == {("a", n, 1, part, n // 2 + 1, 5, 1): 1 if n == 2000 * part else -1 for n, part in moved} | {
        ("a", 9001, 5, 4, 4005, 1, 1): 1
    }
    first, later = [count for count in read if count >= 4000], [count for count in read if count < 4000]
    assert len(first) == 4  # with the operator that numbers copies
    assert 0 < sum(later) < 1500
