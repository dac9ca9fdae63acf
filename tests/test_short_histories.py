"""Keys with short histories: one pass over each gives what the operator's definition says, at every time."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import product

import numpy as np
import pytest

from ddcore.kernels import aggregating, short_histories

SEEDS = 60
ROUNDS, KEYS = 3, 5
NULL = -(2**63)
AGGREGATES = {
    "distinct": (),
    "count": (aggregating.COUNT,),
    "least": (aggregating.MIN,),
    "greatest": (aggregating.MAX,),
    "all": (aggregating.COUNT, aggregating.SUM, aggregating.MIN, aggregating.MAX),
}

Time = tuple[int, ...]
Update = tuple[int, tuple[int, ...], Time, int]  # key, words, time, diff


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("loops", [0, 1, 2])
def test_the_output_is_right_at_every_time(loops: int, name: str) -> None:
    for seed in range(SEEDS):
        _replay(random.Random(f"{loops} {name} {seed}"), loops, AGGREGATES[name], f"seed {seed}")


def test_pending_times_are_those_where_the_output_is_not_right_yet() -> None:
    """A row at round 5 has its own output there; a lesser row at round 1 makes it wrong, a greater one does not."""
    held: list[Update] = [(0, (7,), (0, 5), 1)]
    least = (aggregating.MIN,)
    _, pending, _ = _pass(least, [*held, (0, (3,), (1, 1), 1)], held, {0: [(1, 1)]}, (1,))
    assert pending == [(0, (1, 5))]
    _, pending, _ = _pass(
        least, [(0, (2,), (0, 5), 1), (0, (3,), (1, 1), 1)], [(0, (2,), (0, 5), 1)], {0: [(1, 1)]}, (1,)
    )
    assert pending == [(0, (1, 5))]  # the row of round 1 has an output now, which round 5 has to take back
    _, pending, _ = _pass(least, [*held, (0, (9,), (0, 0), 1), (0, (8,), (1, 1), 1)], [
        (0, (9,), (0, 0), 1), (0, (9,), (0, 5), -1), (0, (7,), (0, 5), 1)], {0: [(1, 1)]}, (1,))  # fmt: skip
    assert pending == [(0, (1, 5))]


def test_a_new_key_is_evaluated_at_each_of_its_versions() -> None:
    """Also where the rows, whose times cause it, come in the order of their words."""
    rows: list[Update] = [(0, (5,), (2,), 1), (0, (7,), (1,), 1)]
    found, pending, rest = _pass((aggregating.MIN,), rows, [], {0: [(2,), (1,)]}, ())
    assert sorted(found) == [(0, (5,), (2,), 1), (0, (7,), (1,), 1), (0, (7,), (2,), -1)]
    assert not pending and not rest
    found, pending, rest = _pass((aggregating.MIN,), [rows[0], (0, (7,), (2,), 1)], [], {0: [(2,), (2,)]}, ())
    assert (found, pending, rest) == ([(0, (5,), (2,), 1)], [], [])


def test_rows_that_are_no_better_are_not_evaluated() -> None:
    held: list[Update] = [(0, (5,), (0, 2), 1)]
    for word, version, diff, is_evaluated in [
        (5, 1, 1, False),
        (9, 1, 2, False),
        (NULL, 1, 1, False),
        (4, 1, 1, True),  # a better one
        (9, 1, -1, True),  # which may be an error
    ]:
        new: list[Update] = [(0, (word,), (version, 3), diff)]
        assert _contested((aggregating.MIN,), new, held) == new * is_evaluated
    earlier: list[Update] = [(0, (9,), (1, 1), 1)]
    assert _contested((aggregating.MIN,), earlier, held) == earlier  # the key has no row there
    ending: list[Update] = [*held, (0, (5,), (3, 2), -1)]
    new = [(0, (9,), (1, 3), 1)]
    assert _contested((aggregating.MIN,), new, ending) == new  # the key has none from version 3 on


@pytest.mark.parametrize(
    "rows",
    [
        [(0, (i,), (0,), 1) for i in range(65)],  # a long history
        [(0, (1,), (0,), 2**41)],  # sums of such diffs may leave int64
        [(0, (1,), (0,), -1)],  # an error, which names key and time
    ],
    ids=["long", "large", "negative"],
)
def test_other_keys_are_left_to_the_general_way(rows: list[Update]) -> None:
    updates, pending, rest = _pass(
        (aggregating.COUNT,), [*rows, (1, (5,), (0,), 1)], [], {0: [(0,)], 1: [(0,)]}, (), False
    )
    assert rest == [0]
    assert [update[0] for update in updates] == [1]
    assert pending == []


def _replay(random_: random.Random, loops: int, kinds: tuple[int, ...], seed: str) -> None:
    """Updates come round by round, in two folds of two versions; what is pending is evaluated at its round."""
    inputs, outputs = list[Update](), list[Update]()
    rounds = list(product(range(ROUNDS), repeat=loops))
    for versions in (range(2), range(2, 4)):
        pending: dict[Time, dict[int, set[Time]]] = defaultdict(lambda: defaultdict(set))
        for now in rounds:
            seeds = pending.pop(now, defaultdict(set))
            new = [_update(random_, versions, now) for _ in range(random_.choice([0, 1, 2, 3]))]
            for key, _, time, _ in _contested(kinds, new, outputs):
                seeds[key].add(time)
            inputs += new
            if not seeds:
                continue
            updates, late, rest = _pass(kinds, inputs, outputs, {k: sorted(seeds[k]) for k in sorted(seeds)}, now)
            assert rest == []
            outputs += updates
            for key, time in late:
                assert time[1:] > now, f"{seed}: {time} at {now}"
                pending[time[1:]][key].add(time)
        assert not pending
        for key, time in product(range(KEYS), product(range(versions[-1] + 1), *[range(ROUNDS)] * loops)):
            right = _aggregate(kinds, _at(inputs, key, time))
            assert _at(outputs, key, time) == right, f"{seed}: key {key} at {time}"


def _update(random_: random.Random, versions: range, now: Time) -> Update:
    word = random_.choice([NULL, 1, 1, 2, 3])
    return random_.randrange(KEYS), (word,), (random_.choice(versions), *now), random_.choice([-1, 1, 1, 2])


def _contested(kinds: tuple[int, ...], new: list[Update], outputs: list[Update]) -> list[Update]:
    """The new updates of keys to evaluate: without those that cannot change a minimum or a maximum."""
    if kinds not in {(aggregating.MIN,), (aggregating.MAX,)} or not new:
        return new
    keys = sorted({update[0] for update in new})
    depth, ordered = len(new[0][2]), [update for key in keys for update in new if update[0] == key]
    starts, words, times, diffs = _rows(new, keys, 1, depth)
    offsets, o_words, o_times, o_diffs = _rows(outputs, keys, 1, depth)
    least = kinds == (aggregating.MIN,)
    rows = short_histories.contested(least, starts, words[0], times, diffs, offsets, o_words[0], o_times, o_diffs)
    return [ordered[row] for row in rows]


def _pass(  # noqa: PLR0917
    kinds: tuple[int, ...],
    inputs: list[Update],
    outputs: list[Update],
    seeds: dict[int, list[Time]],
    now: Time,
    allow: bool = True,
) -> tuple[list[Update], list[tuple[int, Time]], list[int]]:
    keys = list(seeds)
    history, before = _rows(inputs, keys, 1, 1 + len(now)), _rows(outputs, keys, len(kinds), 1 + len(now))
    at: list[Update] = [(k, (), time, 1) for k in keys for time in seeds[k]]
    offsets, _, times, _ = _rows(at, keys, 0, 1 + len(now))
    loops, numbers = np.array(now, np.int64), np.array(kinds, np.int64)
    rest, updates, pending = short_histories.reduce(
        64, loops, numbers, np.zeros_like(numbers), numbers, numbers, 0, allow, offsets, times, *history, *before
    )
    found = [(keys[k], tuple(map(int, words)), (int(v), *now), int(d)) for k, v, d, *words in updates.T]
    return found, [(keys[k], tuple(map(int, time))) for k, *time in pending.T], [keys[k] for k in rest]


def _rows(
    updates: list[Update], keys: list[int], width: int, depth: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Offsets, words, times and diffs of the keys' updates."""
    rows = [[update for update in updates if update[0] == key] for key in keys]
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    flat = [update for row in rows for update in row]
    words = np.array([update[1] for update in flat], np.int64).reshape(len(flat), width).T
    times = np.array([update[2] for update in flat], np.int64).reshape(len(flat), depth).T
    diffs = np.array([update[3] for update in flat], np.int64)
    return offsets, np.ascontiguousarray(words), np.ascontiguousarray(times), diffs


def _at(updates: list[Update], key: int, time: Time) -> dict[tuple[int, ...], int]:
    counts: dict[tuple[int, ...], int] = defaultdict(int)
    for other, words, when, diff in updates:
        if other == key and all(a <= b for a, b in zip(when, time, strict=True)):
            counts[words] += diff
    return {words: count for words, count in counts.items() if count}


def _aggregate(kinds: tuple[int, ...], group: dict[tuple[int, ...], int]) -> dict[tuple[int, ...], int]:
    """The rows that an aggregation gives for a group with counts, which may be negative."""
    positive = [word for (word,), count in group.items() if count > 0]
    total, values = sum(group.values()), [word for word in positive if word != NULL]
    linear = any(kind in (aggregating.COUNT, aggregating.SUM) for kind in kinds)
    extreme = any(kind in (aggregating.MIN, aggregating.MAX) for kind in kinds)
    if (linear and not total) or ((extreme or not kinds) and not positive):
        return {}
    results = {
        aggregating.COUNT: total,
        aggregating.SUM: sum(word * count for (word,), count in group.items() if word != NULL),
        aggregating.MIN: min(values, default=NULL),
        aggregating.MAX: max(values, default=NULL),
    }
    return {tuple(results[kind] for kind in kinds): 1}
