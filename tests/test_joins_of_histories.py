"""Joins of long histories: updates meet the rows that are there at their time, with the reference's differences."""

from __future__ import annotations

import random
from typing import Any

import folding
import numpy as np
import polars as pl
import pytest

import ddcore as dd
from ddcore import kernels
from ddcore.base.errors import DiffOverflow
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.operators import join

SCHEMA = {"k": pl.Int64, "w": pl.String, "v": pl.Int64, "version": pl.Int64, "diff": pl.Int64}


def history(seed: int, versions: int, diffs: tuple[int, ...] = (1, -1, 1, -1, 2, -2)) -> pl.DataFrame:
    """Few rows of few keys, null among them, each inserted and retracted again and again, also below 0."""
    rng = random.Random(seed)
    rows = [(rng.choice([1, 1, 1, 2, None]), rng.choice(["x", "x", "y", None]), rng.randrange(4)) for _ in range(8)]
    updates = [(*rng.choice(rows), rng.randrange(versions), rng.choice(diffs)) for _ in range(6 * versions)]
    return pl.DataFrame(updates, schema=SCHEMA, orient="row")


def program(left: Any, right: Any) -> dict[str, Any]:
    """A self-join, joins on one and on two columns, of an input and of what others have changed."""
    once = right.distinct(allow_negative=True)
    return {
        "self": left.join(left.select("k", other="v"), on="k"),
        "one": left.join(right, on="k"),
        "two": left.join(once, on=["k", "w"]),
        "three": dd.delta_join((left, ["a", "b", "c"]), (right, ["a", "b", "d"]), (left, ["a", "e", "d"])),
    }


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(12))
def test_histories_of_many_versions(seed: int) -> None:
    tuning = Tuning(swept_updates=seed % 4, joined_pairs=DEFAULT.joined_pairs if seed % 3 else 5)
    frames = {"left": history(seed, 5 + 2 * seed), "right": history(seed + 100, 5 + 2 * seed)}
    expected = folding.by_reference(program, **frames)
    folds: list[tuple[folding.Fold, dict[str, Any]]] = [
        (folding.whole, {}),
        (folding.in_threads, {}),
        (folding.randomly_cut, {"seed": seed}),
        (folding.fed_early, {"seed": seed}),
    ]
    for fold, how in folds:
        assert fold(program, tuning=tuning, **frames, **how) == expected, f"seed {seed}, {fold.__name__}"


def outages(versions: int) -> pl.DataFrame:
    """Of one key, each row for two versions only."""
    rows = [(1, "x", v, v + end, 1 - end) for v in range(versions) for end in (0, 2)]
    updates = [(k, w, v, at, 1 if at == v else -1) for k, w, v, at, _ in rows]
    return pl.DataFrame(updates, schema=SCHEMA, orient="row")


def counted(monkeypatch: pytest.MonkeyPatch, frame: pl.DataFrame) -> int:
    """How many pairs the self-join of a history makes."""
    numbers: list[int] = []
    right = join.Pairs.of

    def of(pairs: Any, words: Any) -> Any:
        numbers.append(len(pairs.diffs))
        return right(pairs, words)

    monkeypatch.setattr(join.Pairs, "of", of)
    log = dd.replay(lambda rows: {"out": rows.join(rows.select("k", other="v"), on="k")}, rows=frame)["out"]
    versions = frame["v"].max()
    assert isinstance(versions, int)
    assert log.filter(pl.col("version") <= versions)["diff"].sum() == 4
    return sum(numbers)


def test_pairs_are_those_of_rows_present_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many versions have twice as many pairs, where all updates with all others were four times as many."""
    few, many = (counted(monkeypatch, outages(versions)) for versions in (100, 200))
    assert many < 2.1 * few < 100 * 12 * 2.1


@pytest.mark.parametrize("long", [0, 10**9])
def test_diffs_beyond_int64_stay_exact(long: int) -> None:
    """Products that int64 does not hold, and cancel in the end; counts that wrap around are not accumulated."""
    tuning = Tuning(swept_updates=long)
    large = 2**40
    left = pl.DataFrame([(1, "x", 1, v, large * (-1) ** v) for v in range(6)], schema=SCHEMA, orient="row")
    right = pl.DataFrame(
        [(1, "x", 2, 0, 2**23), (1, "x", 3, 1, -(2**23)), (1, "x", 4, 2, 7)], schema=SCHEMA, orient="row"
    )
    both = {"left": left, "right": right}
    paired = lambda left, right: {"out": left.join(right, on="k").select("k").where("k > 0")}  # noqa: E731
    with pytest.raises(DiffOverflow):
        folding.whole(paired, tuning=tuning, **both)
    right = right.with_columns(version=pl.lit(0, pl.Int64))
    both = {"left": left, "right": right}
    expected = folding.by_reference(paired, **both)
    assert expected["out"]
    assert folding.whole(paired, tuning=tuning, **both) == expected


def test_sizes_of_products_beyond_int64_are_unfit() -> None:
    frame = pl.DataFrame([(1, "x", 1, v, 2**40) for v in range(3)], schema=SCHEMA, orient="row")
    columns = [frame[name].to_numpy() for name in ("v", "version", "diff")]
    words, times, diffs = columns[0].reshape(1, -1).copy(), columns[1].reshape(1, -1).copy(), columns[2].copy()
    zero, three, none = (np.array(item) for item in ([0], [3], []))
    none = none.astype("int64")
    sizes = kernels.joining.sweep(
        zero, three, words, times, diffs, 0, zero, three, words, times, diffs, none
    )[0]  # fmt: skip
    assert list(sizes) == [2**62]
    few = diffs // 2**40
    assert list(kernels.joining.sweep(zero, three, words, times, few, 0, zero, three, words, times, few, none)[0]) == [
        5
    ]
