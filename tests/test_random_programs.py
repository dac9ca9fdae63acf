"""Random programs over random histories: the engine's logs are the reference's, diff for diff, whole and cut anywhere.

``DDCORE_SEEDS=2000`` runs that many, ``DDCORE_SEEDS=731-732`` a range. A failure prints a program one can paste; the
first failure also prints the smallest one that hypothesis finds from it.
"""

from __future__ import annotations

import inspect
import random
from dataclasses import replace
from typing import Any

import folding
import polars as pl
import pytest
from notation import DIMS, spell
from programs import Case, case
from seeds import nightly, seeds
from shrinking import smallest

import ddcore as dd
from ddcore import reference
from ddcore.base.errors import DdError, DiffOverflow, Diverged
from ddcore.base.tuning import DEFAULT, Tuning


def tuning_of(seed: int) -> Tuning:
    """Parts of a step with so few rows that a step of few has several, and some of the ways for many."""
    few = 1 + seed % 3
    tuning = Tuning(
        reduced_keys=few, joined_keys=few, joined_rows=few, looked_up_segments=few, packing_rows=few, waiting_rows=few,
        merged_rows=few, original_rows=few, recent_rows=few, unindexed_rows=few, forwarded_rows=few, indexed_rows=few,
        part_rows=few,
    )  # fmt: skip
    if seed % 2:  # histories as short as these count as long
        tuning = replace(tuning, long_history=1)
    if seed // 2 % 2:  # and groups as small as these get trees of partial results
        tuning = replace(tuning, large_group=few)
    if seed // 4 % 2:  # and every key of a join at totally ordered times is swept where that gives fewer pairs
        tuning = replace(tuning, swept_updates=0)
    if seed // 8 % 2:  # and sorted batches of so few rows stay packed
        tuning = replace(tuning, packed_rows=few)
    if seed // 8 % 4:  # and so few updates are no longer consolidated by the kernels for few
        tuning = replace(tuning, few_rows=seed % 7)
    if seed // 16 % 2:  # and keys with short histories are evaluated as all others are
        tuning = replace(tuning, short_history=0)
    return tuning


@pytest.mark.sample(6)
@pytest.mark.parametrize("seed", seeds(44))
def test_same_logs(seed: int) -> None:
    checked(seed, tuning_of(seed))


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", seeds(20))
def test_same_logs_with_all_tuning_values_at_their_least(seed: int) -> None:
    checked(seed, Tuning.least())


def checked(seed: int, tuning: Tuning) -> None:
    """Check the case of a seed; of the first that fails, find the smallest program that fails like it."""
    try:
        check(case(seed), tuning)
    except Exception as error:
        if not _SHRUNK:
            _SHRUNK.append(seed)
            error.add_note(f"the smallest program found that fails like it:\n{smallest(seed, failure_of)}")
        raise


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(64))
def test_same_logs_with_a_run_for_every_time(seed: int) -> None:
    drawn = case(seed)
    expected = outcome(folding.by_reference, drawn)
    compare(drawn, "a run for every time", expected, outcome(folding.one_time_each, drawn))
    compare(drawn, "compacted after every time", expected, outcome(folding.compacted, drawn))
    totals = outcome(folding.compacted, drawn, nonnegative=True)
    compare(drawn, "of totals, compacted after every time", expected, totals)


_SHRUNK: list[int] = []
"""The seed whose failure was shrunk: one in a session, because it takes a minute."""


def check(drawn: Case, tuning: Tuning = DEFAULT) -> None:
    with folding.planned_once():
        check_each_way(drawn, tuning)


def check_each_way(drawn: Case, tuning: Tuning) -> None:
    expected = outcome(folding.by_reference, drawn)
    compare(drawn, "whole", expected, outcome(folding.whole, drawn, tuning=None if tuning == DEFAULT else tuning))
    compare(drawn, "in threads", expected, outcome(folding.in_threads, drawn, tuning=tuning))
    compare(drawn, "cut at random", expected, outcome(folding.randomly_cut, drawn, seed=drawn.seed, tuning=tuning))
    compare(drawn, "fed early", expected, outcome(folding.fed_early, drawn, seed=drawn.seed, tuning=tuning))
    compare(drawn, "compacted", expected, outcome(folding.compacted, drawn, seed=drawn.seed, tuning=tuning))
    # The histories have no negative counts, so groups may have totals in the place of their rows.
    compare(drawn, "of totals", expected, outcome(folding.in_threads, drawn, nonnegative=True, tuning=tuning))
    ways = [folding.randomly_cut, folding.fed_early, folding.compacted]
    way = ways[drawn.seed % len(ways)]
    compare(
        drawn,
        f"of totals, {way.__name__}",
        expected,
        outcome(way, drawn, seed=drawn.seed, nonnegative=True, tuning=tuning),
    )


def failure_of(drawn: Case) -> type[Exception] | None:
    """The kind of error with which a case fails."""
    try:
        check(drawn)
    except Exception as error:
        return type(error)
    return None


@pytest.mark.long  # it takes ten seconds, and tests our tools
def test_failures_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this reference ``distinct`` keeps rows twice; a seed that finds it leads to a program of a few lines."""
    right = reference.NaiveCollection.distinct

    def wrong(rows: Any, allow_negative: bool = False) -> Any:
        once = right(rows, allow_negative)
        return reference.NaiveCollection(once.columns, ((row, min(rows.rows[row], 2)) for row in once.rows))

    monkeypatch.setattr(reference.NaiveCollection, "distinct", wrong)
    seed = next(seed for seed in range(100) if failure_of(case(seed)) and "iterate" in case(seed).source)
    small = smallest(seed, failure_of, seconds=600)
    assert failure_of(small) is failure_of(case(seed)) is AssertionError
    calls = [line for line in small.source.splitlines() if " = " in line]
    updates = sum(len(frame) for frame in small.frames.values())
    assert "distinct" in small.source
    assert (len(calls) <= 4, updates <= 4) == (True, True), f"seed {seed} shrinks to\n{small}"


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", nightly(range(20), 12))
def test_few_updates_far_apart(seed: int) -> None:
    """Of each key three updates, in three or four coordinates: joins of joins that no update and no pair lies at."""
    rng = random.Random(seed)
    coordinates = rng.choice([3, 3, 4])
    updates = []
    for k in range(12):
        times = [tuple(rng.randrange(3) for _ in range(coordinates)) for _ in range(3)]
        updates += [(k, rng.randrange(4), *time, 1) for time in times]
    columns = ["k", "v", *DIMS[coordinates], "diff"]
    words = pl.DataFrame(updates, schema=dict.fromkeys(columns, pl.Int64), orient="row")
    drawn = Case(seed, inspect.getsource(sparse), sparse, {"words": words})
    expected = folding.by_reference(sparse, words=words)
    compare(drawn, "whole", expected, folding.whole(sparse, words=words))
    compare(drawn, "in threads", expected, outcome(folding.in_threads, drawn))
    compare(drawn, "cut at random", expected, folding.randomly_cut(sparse, seed=seed, words=words))
    compare(drawn, "fed early", expected, folding.fed_early(sparse, seed=seed, words=words))


def sparse(words: Any) -> dict[str, Any]:
    halved = words.iterate(lambda w: w.select("k", v="v // 2").concat(words).distinct())
    return {
        "once": words.select("k").distinct(),
        "count": words.group_by("k").agg(n=dd.count(), least=dd.min("v")),
        "halved": halved.group_by("k").agg(s=dd.sum("v")),
    }


def outcome(fold: folding.Fold, drawn: Case, **how: Any) -> Any:
    """The logs, or the error the fold ended with. What the program must not raise comes with the program."""
    try:
        return fold(drawn.program, **drawn.frames, **how)
    except (Diverged, DiffOverflow) as error:
        return error
    except Exception as error:
        error.add_note(str(drawn))
        raise


def compare(drawn: Case, how: str, expected: Any, actual: Any) -> None:
    if isinstance(expected, DdError) or isinstance(actual, DdError):
        assert type(actual) is type(expected), f"{how}: engine {actual!r}, reference {expected!r}\n{drawn}"
        return
    assert actual.keys() == expected.keys()
    wrong = []
    for name, log in expected.items():
        only_engine = {key: diff for key, diff in actual[name].items() if log.get(key) != diff}
        only_reference = {key: diff for key, diff in log.items() if actual[name].get(key) != diff}
        if only_engine or only_reference:
            wrong.append(f"{name}: in engine, not in reference\n{spell(only_engine)}")
            wrong.append(f"{name}: in reference, not in engine\n{spell(only_reference)}")
    assert not wrong, "\n".join([f"{how}:", *wrong, str(drawn)])
