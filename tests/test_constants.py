"""Rows that a program spells out, and what rests on them: they hold from the least time on, whatever the inputs hold,
in every engine, however a history is cut into runs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sparkless
from folding import Fold
from notation import frame, log
from programs import Case
from seeds import nightly
from test_semantics import same
from warehouses import log_of, project_of, take_in

import ddcore as dd
from ddcore import reference
from ddcore.base.errors import ProgramError
from ddcore.io.project.program import load_plan, load_program
from ddcore.io.project.project import Project, RetentionSettings
from ddcore.io.project.times import time_of
from ddcore.jobs import compact, replay
from ddcore.jobs.verify import Selection, Verification
from ddcore.planning.planner import build
from ddcore.sql import program as sql

VIEWS = """
CREATE VIEW counted AS SELECT count(*) AS n, sum(x) AS total, min(x) AS least FROM t;
CREATE VIEW listed AS VALUES (1, 'a'), (2, 'b');
CREATE VIEW absent AS SELECT 1 NOT IN (SELECT x FROM t) AS it;
CREATE VIEW beside AS SELECT listed.column2 AS w, t.x FROM listed LEFT JOIN t ON t.x = listed.column1;
"""
# Nothing is there before version 2, and nothing at version 4.
ROWS = "1:+1@2 3:+2@3 1:-1,3:-2@4 2:+1@6"


def number(text: str) -> tuple[Any, ...]:
    return (int(text),)


# -- in one process ---------------------------------------------------------------------------------------------------


def test_a_count_over_an_empty_table_is_0(fold: Fold) -> None:
    logs = fold(sql(VIEWS), t=frame("x", ROWS, number))
    counts = [((0, None, None), 0), ((1, 1, 1), 2), ((3, 7, 1), 3), ((0, None, None), 4), ((1, 2, 2), 6)]
    expected: Counter[Any] = Counter()
    for (row, version), before in zip(counts, [None, *counts], strict=False):
        expected[row, (version,)] += 1
        if before is not None:
            expected[before[0], (version,)] -= 1
    same(logs["counted"], dict(expected))
    same(logs["listed"], {((1, "a"), (0,)): 1, ((2, "b"), (0,)): 1})
    same(logs["absent"], log("true:+1@0 true:-1,false:+1@2 false:-1,true:+1@4", lambda text: (text == "true",)))
    assert logs["beside"][("a", None), (0,)] == 1 and logs["beside"][("b", 2), (6,)] == 1


def test_with_several_dimensions_from_0_in_each(fold: Fold) -> None:
    logs = fold(sql(VIEWS), t=frame("x", "5:+1@(2,1) 5:-1@(3,4)", number))
    same(logs["listed"], {((1, "a"), (0, 0)): 1, ((2, "b"), (0, 0)): 1})
    same(
        logs["counted"],
        {
            ((0, None, None), (0, 0)): 1, ((0, None, None), (2, 1)): -1, ((1, 5, 5), (2, 1)): 1,
            ((1, 5, 5), (3, 4)): -1, ((0, None, None), (3, 4)): 1,
        },
    )  # fmt: skip


def test_a_program_without_inputs() -> None:
    program: Any = lambda: {"out": dd.constant({"w": ["a", "b", "b"]})}  # noqa: E731
    assert dd.replay(program)["out"].rows() == [("a", 0, 1), ("b", 0, 2)]
    assert reference.replay(program) == {"out": {(("a",), (0,)): 1, (("b",), (0,)): 2}}
    assert dd.replay(sql("CREATE VIEW one AS SELECT 1 AS n"))["one"].rows() == [(1, 0, 1)]


def test_inputs_without_a_row() -> None:
    nothing = frame("x", "1:+1@0", number).clear()
    assert dd.replay(sql(VIEWS), t=nothing)["counted"].rows() == [(0, None, None, 0, 1)]
    assert reference.replay(sql(VIEWS), t=nothing)["absent"] == {((True,), (0,)): 1}


def test_inside_a_loop(fold: Fold) -> None:
    def program(edges: Any) -> Any:
        def body(reached: Any) -> Any:
            start = dd.constant({"x": [1]})
            return reached.join(edges, on={"x": "a"}).select(x="b").concat(start).distinct()

        return {"out": dd.constant({"x": pl.Series([], dtype=pl.Int64)}).iterate(body)}

    edges = frame("a b", "(1,2):+1@1 (2,3):+1@2 (1,2):-1@3", lambda text: tuple(map(int, text.strip("()").split(","))))
    same(fold(program, edges=edges)["out"], log("1:+1@0 2:+1@1 3:+1@2 2:-1,3:-1@3", number))


def test_one_fold_of_a_session_has_them() -> None:
    session = dd.Session(sql("CREATE VIEW one AS VALUES (7)"), {"t": {"x": "int64"}})
    assert session.fold({}, upper=[(0,)])["one"].rows() == []
    assert session.fold({}, upper=[(1,)])["one"].rows() == [(7, 0, 1)]
    assert session.fold({}, upper=[(9,)])["one"].rows() == []


# -- what they are ----------------------------------------------------------------------------------------------------


def fingerprint(rows: Any) -> str:
    return build(lambda t: {"out": dd.constant(rows)}, {"t": {"x": "int64"}}).fingerprint


def test_they_are_a_part_of_the_program_but_not_their_order() -> None:
    assert fingerprint({"a": [1, 2, 2]}) == fingerprint(pl.DataFrame({"a": [2, 1, 2]}, schema={"a": pl.Int16}))
    others = [{"a": [1, 2]}, {"a": [1.0, 2.0, 2.0]}, {"b": [1, 2, 2]}, {"a": ["1", "2", "2"]}]
    assert len({fingerprint(other) for other in [{"a": [1, 2, 2]}, *others]}) == 5


def test_outside_of_a_program_there_is_none() -> None:
    with pytest.raises(ProgramError, match=r"test_constants\.py:\d+: constant is called outside of a program"):
        dd.constant({"a": [1]})


# -- in a warehouse ---------------------------------------------------------------------------------------------------

SOURCE = f'''
import ddcore as dd
from ddcore.sql import program as sql

VIEWS = """{VIEWS}"""


def program(t):
    kinds = dd.constant({{"x": [1, 3, 9], "n": [0, 0, 0]}}).concat(t.group_by("x").agg(n=dd.count()))
    return sql(VIEWS)(t=t) | {{"kinds": kinds.group_by("x").agg(n=dd.sum("n"))}}
'''
MORE = (
    SOURCE
    + """

original = program


def program(t):
    found = original(t)
    return found | {"twice": found["counted"].join(dd.constant({"times": [1, 2]}).with_columns(n=0), on="n")}
"""
)


def small(tmp_path: Path) -> tuple[Project, dict[str, pl.DataFrame]]:
    frames = {"t": frame("x", ROWS, number)}
    return project_of(tmp_path / "project", Case(0, SOURCE, lambda t: {}, frames)), frames


@pytest.fixture(params=nightly(["inline", "two tasks", "one task"], 2))
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    if request.param == "inline":
        return {"engine": "inline"}
    sparkless.install(monkeypatch)
    return {"engine": "spark", "parallelism": 1 if request.param == "one task" else 2}


def accumulated(found: Any, version: int) -> dict[Any, int]:
    total: Counter[Any] = Counter()
    for (row, time), diff in found.items():
        total[row] += diff if time[0] <= version else 0
    return {row: count for row, count in total.items() if count}


def require_the_law(project: Project, frames: dict[str, pl.DataFrame], first: int, last: int) -> None:
    expected = reference.replay(load_program(project), ("version",), **frames)
    for name, schema in load_plan(project).outputs.items():
        actual = reference.log_of(log_of(project, name, schema))
        for version in range(first, last + 1):
            assert accumulated(actual, version) == accumulated(expected[name], version), f"{name} at {version}"


@pytest.mark.sample(4, of="runs")
def test_runs_cut_anywhere(how: dict[str, Any], tmp_path: Path) -> None:
    project, frames = small(tmp_path)
    for last in (0, 3, 4, 6):
        replay.run(project, last=time_of(last), **how)
        require_the_law(project, frames, 0, last)
    assert all(
        verdict.holds for verdict in Verification(project, by="scratch").verdicts([time_of(4), time_of(6)], ["counted"])
    )


@pytest.mark.sample(4, of="runs")
def test_history_folded_again(how: dict[str, Any], tmp_path: Path) -> None:
    project, frames = small(tmp_path)
    replay.run(project, **how)
    late = frame("x", "1:+1@1 1:-1@3 9:+1@5", number)
    take_in(project, "t", late)
    frames["t"] = pl.concat([frames["t"], late])
    replay.run(project, **how)
    require_the_law(project, frames, 0, 6)
    replay.run(project, first=time_of(3), **how)
    require_the_law(project, frames, 0, 6)
    replay.run(project, full_refresh=True, **how)
    require_the_law(project, frames, 0, 6)


@pytest.mark.sample(4, of="runs")
def test_a_changed_program_is_filled_with_them(how: dict[str, Any], tmp_path: Path) -> None:
    project, frames = small(tmp_path)
    replay.run(project, last=time_of(4), **how)
    (project.root / "program.py").write_text(MORE)
    replay.run(project, **how)
    require_the_law(project, frames, 6, 6)
    replay.run(project, full_refresh=True, **how)
    require_the_law(project, frames, 0, 6)


@pytest.mark.sample(4, of="runs")
@pytest.mark.parametrize("changes", [False, True])
def test_history_that_was_given_up(tmp_path: Path, *, changes: bool) -> None:
    project, frames = small(tmp_path)
    project = replace(project, retention=RetentionSettings(auto=False, versions=3, days=0))
    replay.run(project, engine="inline", last=time_of(4))
    compact.compact(project, since=time_of(3))
    if changes:
        (project.root / "program.py").write_text(MORE)
    replay.run(project, engine="inline", corrections="rewrite" if changes else None)
    require_the_law(project, frames, 6 if not changes else 3, 6)
    replay.run(project, engine="inline", full_refresh=True)
    require_the_law(project, frames, 3, 6)
    logs = [log_of(project, name, schema) for name, schema in load_plan(project).outputs.items()]
    assert min(pl.concat([item.select("version") for item in logs])["version"]) == 3, "nothing is left of times before"


@pytest.mark.sample(4, of="runs")
def test_both_ways_to_verify_and_a_row_that_rests_on_nothing(tmp_path: Path, dd: Any) -> None:
    project, _ = small(tmp_path)
    replay.run(project, engine="inline")
    for way in ("reference", "scratch"):
        verification = Verification(replace(project, engine="inline"), by=way)
        outputs = verification.outputs()
        times = verification.times(Selection(every=1), outputs)
        assert time_of(4) in times and all(verdict.holds for verdict in verification.verdicts(times, outputs))
    code, said, _ = dd("explain", "counted", "n=0", "--at", "4", "--project", str(project.root))
    assert code == 0 and "row {n: 0, total: null, least: null} rests on 0 input rows:" in said
    assert any("constant" in line for line in said)
