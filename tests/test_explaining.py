"""Explanations: the rows that are named suffice for the row, and without any one of them it is not there.

The reference checks it, which shares no code with the engine. A few random programs always run; ``DDCORE_SEEDS``
chooses those of the long tests, as :mod:`seeds` says. A failure prints its program.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import folding
import numpy as np
import polars as pl
import pytest
from notation import dims_of
from programs import Case, case
from seeds import seeds

import ddcore as dd
from ddcore import col, reference
from ddcore.base.errors import DdError, Mismatch
from ddcore.base.schema import Schema, type_of
from ddcore.explaining import Causes, Explanation, Question, held, rows_with, trials
from ddcore.explaining.derivation import Derivation
from ddcore.planning.planner import build


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
        return Question(self.program, output, self.schemas, self.outputs[output]).explain(held(self.inputs), row)

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


def at(drawn: Case, time: tuple[int, ...]) -> dict[str, pl.DataFrame]:
    """The inputs of a random program at a time: rows and ``diff``."""
    dims, inputs = dims_of(drawn.frames), {}
    for name, frame in drawn.frames.items():
        columns = [column for column in frame.columns if column not in (*dims, "diff")]
        until = pl.all_horizontal(pl.col(dim) <= last for dim, last in zip(dims, time, strict=True))
        summed = frame.filter(until).group_by(columns, maintain_order=True).agg(pl.col("diff").sum())
        inputs[name] = summed.filter(pl.col("diff") != 0)
    return inputs


def at_the_end(drawn: Case) -> Subject:
    """A random program and its inputs at the last time."""
    return Subject(drawn.program, at(drawn, folding.grid(drawn.frames)[-1]))


def sum_of(
    one: Mapping[str, pl.DataFrame], other: Mapping[str, pl.DataFrame], sign: int = 1
) -> dict[str, pl.DataFrame]:
    """One collection and another for each input, added up."""
    sums = {}
    for name, frame in one.items():
        both = pl.concat([frame, other.get(name, frame.clear()).with_columns(pl.col("diff") * sign)])
        rows = both.group_by([c for c in frame.columns if c != "diff"], maintain_order=True).agg(pl.col("diff").sum())
        sums[name] = rows.filter(pl.col("diff") != 0)
    return sums


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


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(200, share=10))
def test_rows_of_random_programs(seed: int) -> None:
    check_random(seed)


def test_rows_of_a_few_random_programs() -> None:
    assert sum(check_random(seed) for seed in range(2, 4)) >= 2


def check_random_change(seed: int) -> bool:
    """The changes that are named move the rows of a key, and none of them can be left out."""
    drawn = case(seed)
    rng, times = random.Random(seed), folding.grid(drawn.frames)
    end = rng.choice(times[len(times) // 2 :])
    start = rng.choice([time for time in times if reference.precedes(time, end)])
    before = at(drawn, start)
    subject = Subject(drawn.program, at(drawn, end))
    try:
        old, new = subject.rows(before), subject.rows(subject.inputs)
    except DdError:
        return False
    moved = [(name, item) for name in subject.outputs for item in _moved(old[name], new[name])]
    if not moved:
        return False
    name, row = rng.choice(moved)
    flat = [column for column, kind in subject.outputs[name].items() if not kind.is_nested]
    key = row.select(flat[: rng.randint(1, 2)] or list(subject.outputs[name]))
    question = Question(drawn.program, name, subject.schemas, subject.outputs[name])
    changes = sum_of(subject.inputs, before, -1)
    causes = question.explain_change(held(before), changes, key)

    def is_moved(named: Mapping[str, pl.DataFrame]) -> bool:
        try:
            rows = subject.rows(sum_of(before, named))[name]
        except DdError:
            return False
        return _same(rows_with(rows, key), rows_with(new[name], key))

    note = f"output {name}, key {key.rows()}, from {start} to {end}, of\n{drawn}"
    assert is_moved(causes.inputs), f"{causes} does not move the rows; {note}"
    assert causes.inputs or _same(rows_with(old[name], key), rows_with(new[name], key))
    for of, frame in causes.inputs.items():
        for location in range(len(frame)):
            fewer = {**causes.inputs, of: pl.concat([frame[:location], frame[location + 1 :]])}
            assert not is_moved(fewer), f"row {location} of {of} can be left out of {causes}; {note}"
    return True


def _moved(old: pl.DataFrame, new: pl.DataFrame) -> list[pl.DataFrame]:
    """Rows that are new."""
    rows = [new[location].drop("diff") for location in range(len(new))]
    return [row for row in rows if rows_with(old, row).is_empty()]


def _same(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    return sorted(map(repr, one.rows())) == sorted(map(repr, other.rows()))


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(200, share=10))
def test_changes_of_random_programs(seed: int) -> None:
    check_random_change(seed)


def test_changes_of_a_few_random_programs() -> None:
    assert sum(check_random_change(seed) for seed in range(30, 35)) >= 1


# --- literal cases ----------------------------------------------------------------------------------------------------


def frame(columns: str, *rows: tuple[Any, ...]) -> pl.DataFrame:
    """Rows that occur once."""
    return pl.DataFrame([(*row, 1) for row in rows], schema=[*columns.split(), "diff"], orient="row")


def row_of(**values: Any) -> pl.DataFrame:
    return pl.DataFrame({name: [value] for name, value in values.items()})


def named(explanation: Explanation | Causes) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each input, sorted, without their counts."""
    return {name: sorted(rows.drop("diff").rows()) for name, rows in explanation.inputs.items()}


def steps(explanation: Explanation) -> set[tuple[str, tuple[int, ...], tuple[Any, ...]]]:
    """The derivation: operators, rounds and rows."""
    watch = explanation.derivation.watch
    return {
        (watch.node(node).operator.name, rounds, tuple(explanation.row((node, rounds, number)).values()))
        for node, rounds, number in explanation.derivation.supports
    }


EDGES = frame("a b", (1, 2), (2, 3), (3, 4), (1, 5), (5, 6), (6, 7), (7, 4), (8, 9))


def test_of_a_join_both_rows() -> None:
    subject = Subject(
        lambda left, right: {"out": left.join(right, on="k")},
        {"left": frame("k x", (1, 10), (2, 20)), "right": frame("k y", (1, 7), (1, 8), (2, 9))},
    )
    explanation = subject.check("out", row_of(k=1, x=10, y=8))
    assert named(explanation) == {"left": [(1, 10)], "right": [(1, 8)]}
    assert explanation.keeps_away == []


def test_of_a_join_between_the_row_and_an_interval_that_holds_its_value() -> None:
    subject = Subject(
        lambda rows, ends: {"out": rows.join_between(ends, "x", "a", "b", on={"k": "j"}, closed="left")},
        {
            "rows": frame("k x", (1, 10), (2, 20)),
            "ends": frame("j a b w", (1, 5, 10, 7), (1, 10, 12, 7), (1, 0, 99, 7), (1, 0, 99, 8), (2, 0, 99, 7)),
        },
    )
    explanation = subject.check("out", row_of(k=1, x=10, w=7))
    found = named(explanation)
    assert found["rows"] == [(1, 10)] and found["ends"] in ([(1, 10, 12, 7)], [(1, 0, 99, 7)])
    assert ("join_between", (), (1, 10, 7)) in steps(explanation)


def test_of_a_sum_all_rows_of_the_group_and_of_a_minimum_one() -> None:
    rows = frame("k x", (1, 5), (1, 3), (1, 4), (2, 9))
    sums = Subject(lambda rows: {"out": rows.group_by("k").agg(n=dd.sum("x"))}, {"rows": rows})
    assert named(sums.check("out", row_of(k=1, n=12))) == {"rows": [(1, 3), (1, 4), (1, 5)]}
    least = Subject(lambda rows: {"out": rows.group_by("k").agg(n=dd.min("x"))}, {"rows": rows})
    assert named(least.check("out", row_of(k=1, n=3))) == {"rows": [(1, 3)]}


def test_of_a_row_of_top_k_the_row_itself() -> None:
    rows = frame("k x", (1, 5), (1, 3), (1, 4), (2, 9))
    subject = Subject(lambda rows: {"out": rows.group_by("k").top_k(2, by="x")}, {"rows": rows})
    assert named(subject.check("out", row_of(k=1, x=4))) == {"rows": [(1, 4)]}


def test_of_distinct_and_concat_one_of_the_rows() -> None:
    subject = Subject(
        lambda left, right: {"out": left.concat(right).select("k").distinct()},
        {"left": frame("k x", (1, 10), (1, 11)), "right": frame("k x", (1, 12), (2, 20))},
    )
    (rows,) = named(subject.check("out", row_of(k=1))).values()
    assert len(rows) == 1
    assert named(subject.check("out", row_of(k=2))) == {"right": [(2, 20)]}


def reach(edges: dd.Collection, roots: dd.Collection) -> dict[str, dd.Collection]:
    start = roots.select("a")
    return {
        "out": start.iterate(lambda w: w.join(edges, on="a").select(a="b").concat(start).distinct()),
    }


def test_of_reachability_one_path_with_its_rounds() -> None:
    subject = Subject(reach, {"edges": EDGES, "roots": frame("a", (1,))})
    explanation = subject.check("out", row_of(a=4))
    assert named(explanation) == {"edges": [(1, 2), (2, 3), (3, 4)], "roots": [(1,)]}
    assert {(rounds, row) for name, rounds, row in steps(explanation) if name == "distinct"} == {
        ((0,), (2,)),
        ((1,), (3,)),
        ((2,), (4,)),
    }


def test_a_circle_does_not_hold_itself_up() -> None:
    edges = frame("a b", (1, 2), (2, 3), (3, 2))
    subject = Subject(reach, {"edges": edges, "roots": frame("a", (1,))})
    assert named(subject.check("out", row_of(a=2))) == {"edges": [(1, 2)], "roots": [(1,)]}


def test_through_a_loop_in_a_loop() -> None:
    def program(edges: dd.Collection, roots: dd.Collection) -> dict[str, dd.Collection]:
        """What is reached by paths, of which every other stretch goes backwards."""

        def there(w: dd.Collection) -> dd.Collection:
            return w.join(edges, on="a").select(a="b").concat(w).distinct()

        def and_back(w: dd.Collection) -> dd.Collection:
            far = w.iterate(there)
            return far.join(edges, on={"a": "b"}).select(a="a_right").concat(far).distinct()

        return {"out": roots.iterate(and_back)}

    edges = frame("a b", (1, 2), (2, 3), (9, 3), (9, 8), (7, 8), (5, 6))
    subject = Subject(program, {"edges": edges, "roots": frame("a", (1,))})
    explanation = subject.check("out", row_of(a=7))
    assert named(explanation) == {"edges": [(1, 2), (2, 3), (7, 8), (9, 3), (9, 8)], "roots": [(1,)]}
    rounds = {rounds for _, rounds, _ in steps(explanation)}
    assert {(0, 0), (0, 1), (1, 0)} <= rounds
    assert all(len(item) <= 2 for item in rounds)


def test_an_inspected_collection_inside_of_a_loop() -> None:
    def program(edges: dd.Collection, roots: dd.Collection) -> dict[str, dd.Collection]:
        def onward(w: dd.Collection) -> dd.Collection:
            return w.join(edges, on="a").select(a="b").inspect("seen").concat(w).distinct()

        return {"out": roots.iterate(onward)}

    subject = Subject(program, {"edges": EDGES, "roots": frame("a", (1,))})
    explanation = subject.check("seen", row_of(a=3, round=1))
    assert named(explanation) == {"edges": [(1, 2), (2, 3)], "roots": [(1,)]}


def test_a_loop_with_priorities() -> None:
    def program(edges: dd.Collection, roots: dd.Collection) -> dict[str, dd.Collection]:
        def onward(w: dd.Collection) -> dd.Collection:
            return w.join(edges, on="a").select(a="b").concat(w).distinct()

        return {"out": roots.iterate(onward, priority=-col("a"))}

    subject = Subject(program, {"edges": EDGES, "roots": frame("a", (1,), (8,))})
    assert named(subject.check("out", row_of(a=7))) == {"edges": [(1, 5), (5, 6), (6, 7)], "roots": [(1,)]}
    assert named(subject.check("out", row_of(a=9))) == {"edges": [(8, 9)], "roots": [(8,)]}


def test_of_an_anti_join_the_row_and_that_others_keep_rows_away() -> None:
    subject = Subject(
        lambda left, right: {"out": left.join(right, on="k", how="anti")},
        {"left": frame("k x", (1, 10), (2, 20)), "right": frame("k y", (1, 7))},
    )
    explanation = subject.check("out", row_of(k=2, x=20))
    assert named(explanation) == {"left": [(2, 20)]}
    assert [location.partition(":")[0] for location in explanation.keeps_away] == ["test_explaining.py"]


def test_a_row_that_a_kept_away_row_makes_possible() -> None:
    """Node 3 is good because 2, which would spoil it, is spoilt itself: no derivation of good rows alone has it."""

    def program(edges: dd.Collection, all_: dd.Collection) -> dict[str, dd.Collection]:
        spoilt = all_.join(edges.select(a="b", by="a"), on="a").select(a="a")
        twice = spoilt.join(edges, on="a").select(a="b").distinct()
        return {"out": all_.except_(twice).group_by().agg(n=dd.count())}

    subject = Subject(program, {"edges": frame("a b", (1, 2), (2, 3)), "all_": frame("a", (1,), (2,), (3,))})
    subject.check("out", row_of(n=2))


def test_trials_in_which_the_program_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the row (2,) its count is negative, which distinct refuses: such a trial counts as one without the
    row, and the others are tried each by itself.
    """
    subject = Subject(
        lambda rows, less: {"out": rows.concat(less.negate()).distinct().group_by().agg(n=dd.count())},
        {"rows": frame("a", (1,), (2,), (3,)), "less": frame("a", (2,))},
    )
    assert named(subject.check("out", row_of(n=2))) == {"rows": [(1,), (3,)]}
    everything = {"rows": np.arange(3), "less": np.arange(1)}
    monkeypatch.setattr(Derivation, "leaves", lambda self: everything)
    apart = spied(monkeypatch, trials.Trials, "folded_apart")
    assert named(subject.check("out", row_of(n=2))) == {"rows": [(1,), (2,), (3,)], "less": [(2,)]}
    assert apart


def test_where_the_candidates_do_not_suffice_all_rows_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(reach, {"edges": EDGES, "roots": frame("a", (1,))})
    monkeypatch.setattr(Derivation, "leaves", lambda self: {"edges": np.arange(1)})
    suffices = spied(monkeypatch, trials.Trials, "all_hold")
    explanation = subject.check("out", row_of(a=3))
    assert (named(explanation), suffices) == ({"edges": [(1, 2), (2, 3)], "roots": [(1,)]}, [False, True])


def spied(monkeypatch: pytest.MonkeyPatch, kind: Any, name: str) -> list[Any]:
    """The results of a method's calls from now on."""
    results: list[Any] = []
    method = getattr(kind, name)

    def call(*arguments: Any) -> Any:
        results.append(method(*arguments))
        return results[-1]

    monkeypatch.setattr(kind, name, call)
    return results


def test_many_candidates_are_removed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pl.DataFrame({"k": [1] * 3000, "x": list(range(3000)), "diff": [1] * 3000})
    subject = Subject(lambda rows: {"out": rows.group_by("k").agg(b=dd.any(col("x") >= 0))}, {"rows": rows})
    passes = spied(monkeypatch, trials.Trials, "without_each")
    assert len(named(subject.check("out", row_of(k=1, b=True)))["rows"]) == 1
    assert len(passes) < 10


def test_a_row_that_the_program_does_not_give() -> None:
    subject = Subject(reach, {"edges": EDGES, "roots": frame("a", (1,))})
    with pytest.raises(Mismatch, match=r"out has the row \{'a': 9\}, but the program does not give it"):
        subject.explain("out", row_of(a=9))


def test_changes_that_moved_a_row() -> None:
    before = {"edges": EDGES, "roots": frame("a", (1,))}
    changes = {
        "edges": frame("a b", (2, 3), (4, 8), (3, 9)).with_columns(diff=pl.Series([-1, 1, 1])),
        "roots": frame("a", (8,)).clear(),
    }
    subject = Subject(reach, before)
    question = Question(reach, "out", subject.schemas, subject.outputs["out"])
    causes = question.explain_change(held(before), changes, row_of(a=9))
    assert named(causes) == {"edges": [(4, 8)]}  # not (3, 9): with the edge to 3 gone it leads nowhere
    assert causes.all_changes == 3
    assert named(question.explain_change(held(before), changes, row_of(a=3))) == {"edges": [(2, 3)]}
    assert named(question.explain_change(held(before), changes, row_of(a=7))) == {}
