"""The tuning object: documented, and without effect on results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import folding
import pytest
import tuning
from programs import case
from seeds import nightly
from test_random_programs import compare, outcome, tuning_of
from warehouses import logs_of, project_of

import ddcore as dd
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.jobs import replay
from ddcore.planning.planner import build
from ddcore.traces.budget import ALONE


def test_the_page_has_the_settings_of_the_object() -> None:
    """And each says in which unit, and what for."""
    assert tuning.page(tuning.FILE.read_text("utf-8")) == tuning.FILE.read_text("utf-8")
    settings = Tuning.settings()
    assert [setting.name for setting in settings] == [field.name for field in fields(Tuning)]
    assert all(setting.unit and setting.meaning for setting in settings)
    assert len({setting.meaning for setting in settings}) == len(settings)


def test_the_least_values_are_no_more_than_the_defaults() -> None:
    least = Tuning.least()
    assert all(setting.least < setting.default for setting in Tuning.settings())
    assert all(getattr(least, setting.name) == setting.least for setting in Tuning.settings())
    assert Tuning() == DEFAULT
    assert repr(DEFAULT) == "Tuning()" and eval(repr(least)) == least


def test_a_page_that_is_out_of_date_is_made_again() -> None:
    text = tuning.FILE.read_text("utf-8")
    old = text.replace(f"{DEFAULT.file_rows:,}", "7")
    assert old != text and tuning.page(old) == text


# --- what tests need smaller is handed on -----------------------------------------------------------------------------

CHANGED = re.compile(
    r"""(?:setattr|delattr|object|patch)\([^()]*?["'](?:[\w.]*\.)?_[A-Z][A-Z0-9_]*["']"""  # by its name
    r"""|^[ \t]*(?:[\w.]+,[ ]*)*[a-z]\w*\._[A-Z][A-Z0-9_]*(?:,[ ]*[\w.]+)*[ ]*[+*-]?=(?!=)""",  # also in scripts
    re.MULTILINE,
)


def test_no_test_changes_a_private_constant() -> None:
    """It is a setting of the tuning, or an argument: what a test changes is a way to call the product."""
    files = [*Path(__file__).parent.rglob("*.py")]
    assert len(files) > 200
    found = {file.name: CHANGED.findall(file.read_text("utf-8")) for file in files}
    assert {name: changes for name, changes in found.items() if changes} == {}


@pytest.mark.parametrize("constant, others", [("_WAIT", "wait"), ("_MOST_BYTES", "Most_bytes")])
@pytest.mark.parametrize(
    "text",
    [
        "monkeypatch.setattr(lease, '{}', 10)",
        'with patch.setattr(\n    "ddcore.io.lease.{}", 10):',
        "mock.patch.object(lease, '{}', new=10)",
        "    lease.{} = 10",
        "lease.other, lease.{} = 10, 11",
        "lease.{}, lease.other = 10, 11",
    ],
)
def test_a_change_of_a_private_constant_is_found(text: str, constant: str, others: str) -> None:
    assert CHANGED.search(text.format(constant))
    assert not CHANGED.search(text.format(others))
    assert not CHANGED.search(f"assert lease.{constant} == 10")


# --- the budget goes wherever it is needed ----------------------------------------------------------------------------


class Refusing:
    """In the place of memory, threads and tuning of the budget that is used where none is handed."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} of a budget that nobody handed")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("threads of a budget that nobody handed")

    __hash__ = object.__hash__


@contextmanager
def no_default() -> Iterator[None]:
    """Inside, whoever was not handed a budget, and needs anything of it, fails."""
    before = {field.name: getattr(ALONE, field.name) for field in fields(ALONE)}
    try:
        for name in before:
            object.__setattr__(ALONE, name, Refusing())
        yield
    finally:
        for name, value in before.items():
            object.__setattr__(ALONE, name, value)


def test_a_budget_that_is_not_handed_refuses() -> None:
    with no_default(), pytest.raises(AssertionError, match="nobody handed"):
        list(ALONE.map(abs, range(9)))
    with no_default(), pytest.raises(AssertionError, match="nobody handed"):
        _ = ALONE.tuning.few_rows
    assert (ALONE.threads, ALONE.tuning) == (1, DEFAULT)


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", nightly(range(24), 5))
def test_every_step_of_a_fold_has_the_budget_of_its_session(seed: int) -> None:
    drawn = case(seed)
    expected = outcome(folding.by_reference, drawn)
    values = Tuning.least() if seed % 2 else tuning_of(seed)
    with no_default():
        compare(drawn, "in threads", expected, outcome(folding.in_threads, drawn, tuning=values))
        compare(drawn, "cut", expected, outcome(folding.randomly_cut, drawn, seed=seed, tuning=values))
        compare(drawn, "spilled", expected, outcome(spilled, drawn))


def spilled(program: Any, **frames: Any) -> folding.Logs:
    dims = folding.dims_of(frames)
    tight = replace(Tuning.least(), least_rows=3, row_bytes=2**60)
    session = dd.Session(program, folding._schemas(frames), dims, threads=2, memory="1MiB", tuning=tight)
    return {
        name: folding.reference.log_of(log, dims)
        for name, log in session.fold(frames, instants=folding.instants_of(frames)).items()
    }


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", nightly(range(0, 24, 3), 5))
def test_every_step_of_a_run_has_the_budget_of_its_project(seed: int, tmp_path: Path) -> None:
    drawn = case(seed, plain=True)
    project = replace(project_of(tmp_path / "p", drawn, tuning=Tuning.least()), memory=1 << 20 if seed % 2 else None)

    def runs(program: Any, **frames: Any) -> folding.Logs:
        times = folding.grid(frames)
        first = times[len(times) // 2]
        with no_default():
            if len(first) == 1:
                replay.run(project, last=dd_time(first), engine="inline", parallelism=2)
            replay.run(project, engine="inline", parallelism=2)
        return logs_of(project, build(program, project.inputs, project.dims).outputs)

    compare(drawn, "runs", outcome(folding.by_reference, drawn), outcome(runs, drawn))


def dd_time(time: tuple[int, ...]) -> Any:
    from ddcore.io.project.times import time_of

    return time_of(*time) if len(time) > 1 else time_of(time[0])
