"""Sums of floats: the exact sum of value times count, rounded once, whatever the values and the counts.

Checked against Python's fractions. ``DDCORE_SEEDS=731-732`` runs those seeds.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import folding
import polars as pl
import pytest
from seeds import seeds

import ddcore as dd

Part = tuple[float, int]
GREATEST, LEAST = 1.7976931348623157e308, 5e-324
COUNTS = [1, 1, 1, 2, -1, 3, 2**31, -(2**40), 2**62, -(2**62), 2**63 - 1, -(2**63)]


def exact(parts: Iterable[Part]) -> float:
    """The sum of value times count, by its definition."""
    present = [(value, count) for value, count in parts if count]
    special = [value * math.copysign(1, count) for value, count in present if not math.isfinite(value)]
    if special:
        return sum(special)
    total = sum((Fraction(value) * count for value, count in present), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def draw(rng: random.Random) -> float:
    """A float of any size: small integers, powers of two and their neighbours, subnormals, and any bits at all."""
    sign, any_bits = rng.choice([-1, 1]), struct.unpack("d", rng.randbytes(8))[0]
    drawn: float = rng.choice(
        [
            sign * rng.choice([0.0, LEAST, GREATEST, 2.2250738585072014e-308, 2.0**1023]),
            sign * math.nextafter(2.0 ** rng.randint(-1070, 1022), rng.choice([0.0, math.inf])),
            sign * rng.randrange(2**52) * LEAST,  # subnormal
            float(rng.randint(-5, 5)),
            rng.uniform(-1, 1) * 1e16,
            sign * 2.0 ** rng.randint(890, 1023),
            any_bits,
            any_bits if math.isfinite(any_bits) else 1.0,
        ]
    )
    return drawn


def parts_of(rng: random.Random) -> list[Part]:
    """Values with counts; most of them cancel at least in part."""
    parts = [(draw(rng), rng.choice(COUNTS)) for _ in range(rng.randint(1, 6))]
    for value, count in list(parts):
        if rng.random() < 0.6 and count != -(2**63):
            parts.append((rng.choice([value, -value]), rng.choice([-count, count])))
    rng.shuffle(parts)
    return parts


def sums(rows: Any) -> dict[str, Any]:
    return {"out": rows.group_by("k").agg(s=dd.sum("v"), n=dd.max("k"), allow_negative=True)}


def alone(rows: Any) -> dict[str, Any]:
    """One aggregate: large groups are swept."""
    return {"out": rows.select("k", "v").group_by("k").agg(s=dd.sum("v"), allow_negative=True)}


def frame_of(groups: Iterable[tuple[int, Iterable[Part]]]) -> pl.DataFrame:
    """Updates at version 0: a group for each list of parts."""
    rows = [(k, value, 0, count) for k, parts in groups for value, count in parts]
    schema = {"k": pl.Int64, "v": pl.Float64, "version": pl.Int64, "diff": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def by_group(log: dict[Any, int], version: int = 0) -> dict[int, float]:
    """What holds at a version, by group."""
    total = {row: 0 for row, _ in log}
    for (row, (at,)), diff in log.items():
        total[row] += diff if at <= version else 0
    return {row[0]: row[1] for row, diff in total.items() if diff}


def same(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def merged(parts: Iterable[Part]) -> list[Part]:
    """Counts of equal values added up, as a collection has them; -0.0 is 0.0."""
    counts: dict[str, int] = {}
    for value, count in parts:
        counts[repr(value + 0.0)] = counts.get(repr(value + 0.0), 0) + count
    return [(float(value), count) for value, count in counts.items()]


def is_there(parts: Iterable[Part]) -> bool:
    """Whether the group is one: its counts do not add up to 0, and each row's diff is an int64."""
    rows = merged(parts)
    return sum(count for _, count in rows) != 0 and all(-(2**63) <= count < 2**63 for _, count in rows)


def test_sums_are_those_of_fractions() -> None:
    groups = {seed: parts_of(random.Random(seed)) for seed in seeds(64) for seed in range(20 * seed, 20 * seed + 20)}
    groups = {seed: parts for seed, parts in groups.items() if is_there(parts)}
    actual = by_group(folding.whole(alone, rows=frame_of(groups.items()))["out"])
    assert len(actual) == len(groups)
    wrong = [seed for seed, parts in groups.items() if not same(actual[seed], exact(merged(parts)))]
    assert not wrong, f"seeds {wrong[:5]}: {[(groups[s], actual[s], exact(merged(groups[s]))) for s in wrong[:3]]}"


def test_a_signalling_nan_is_nan() -> None:
    signalling = struct.unpack("d", (0x7FF0000000000001).to_bytes(8, "little"))[0]
    actual = by_group(folding.whole(alone, rows=frame_of([(0, [(signalling, 2), (1.0, 1)])]))["out"])
    assert math.isnan(actual[0])


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(12))
def test_large_groups_that_change_at_many_versions(seed: int) -> None:
    """Swept: what comes and goes, infinities among it, leaves no trace in later sums."""
    rng = random.Random(seed)
    updates = []
    for _ in range(120):
        value, come = draw(rng), rng.randrange(30)
        value = rng.choice([value, math.inf, -math.inf, math.nan]) if rng.random() < 0.1 else value
        count = rng.choice([1, 1, 2, -1, 2**50])
        updates.append((0, value, come, count))
        if rng.random() < 0.9:
            updates.append((0, value, rng.randint(come, 30), -count))
    updates += [(0, 0.0, 0, 2**60)]  # the counts never add up to 0
    schema = {"k": pl.Int64, "v": pl.Float64, "version": pl.Int64, "diff": pl.Int64}
    rows = pl.DataFrame(updates, schema=schema, orient="row")
    expected = folding.by_reference(alone, rows=rows)
    assert folding.whole(alone, rows=rows) == expected, f"seed {seed}"
    assert folding.randomly_cut(alone, rows=rows, seed=seed) == expected, f"seed {seed}"
    for version in sorted({version for _, _, version, _ in updates}):
        parts = merged((value, count) for _, value, at, count in updates if at <= version)
        actual = by_group(expected["out"], version)[0]
        assert same(actual, exact(parts)), f"seed {seed}, version {version}"


@pytest.mark.sample(14)
@pytest.mark.parametrize(
    ("parts", "total"),
    [
        ([(2.0**899, 2), (-(2.0**900), 1), (1e-300, 1)], 1e-300),
        ([(1.5, -(2**62)), (1.5, -(2**62) + 1), (2.5, 1)], -1.5 * (2**63 - 1) + 2.5),
        ([(0.5, -(2**63)), (LEAST, 1)], -(2.0**62)),
        ([(GREATEST, 3), (-GREATEST, 2)], GREATEST),
        ([(GREATEST, 2**62), (-GREATEST, 2**62 - 1), (1.0, 5)], GREATEST),
        ([(GREATEST, 2), (1.0, 1)], math.inf),
        ([(-GREATEST, 2**63 - 1)], -math.inf),
        ([(GREATEST, 1), (2.0**969, 1), (LEAST, 1)], GREATEST),
        ([(GREATEST, 1), (2.0**970, 1)], math.inf),  # half of the last bit: to even, which is past the end
        ([(GREATEST, 1), (2.0**970, 1), (-LEAST, 1)], GREATEST),
        ([(LEAST, 2**63 - 1)], LEAST * (2**63 - 1)),
        ([(1.0, 1), (2.0**-53, 1), (LEAST, 1)], 1.0 + 2.0**-52),
        ([(1.0, 1), (2.0**-53, 1), (-LEAST, 1)], 1.0),
        ([(1.0 + 2.0**-52, 1), (2.0**-53, 1)], 1.0 + 2.0**-51),
        ([(-0.0, 3)], 0.0),
        ([(1e308, 1), (-1e308, 1), (1.0, 1), (-1.0, 2), (1.0, 2)], 1.0),
        ([(math.inf, 1), (-math.inf, 1), (1.0, 1)], math.nan),
        ([(math.inf, 2**62), (1.0, -5)], math.inf),
        ([(math.inf, -1), (1.0, 5)], -math.inf),
        ([(math.nan, 1), (math.inf, 1)], math.nan),
    ],
)
@pytest.mark.parametrize("program", [sums, alone])
def test_one_sum(program: Any, parts: list[Part], total: float) -> None:
    """By the reference, in a small group, and in one that is swept."""
    assert same(exact(parts), total)
    rows = frame_of([(0, parts)])
    padding = [(0, 0.0, version, 1 if version % 2 else 2) for version in range(60)]
    swept = pl.concat(
        [pl.DataFrame(padding, schema=rows.schema, orient="row"), rows.with_columns(version=pl.lit(60, pl.Int64))]
    )
    for fold, history, version in [
        (folding.by_reference, rows, 0), (folding.whole, rows, 0), (folding.whole, swept, 60),
    ]:  # fmt: skip
        assert same(by_group(fold(program, rows=history)["out"], version)[0], total), fold
