"""Random tests are repeatable: which seeds a variable chooses, and what a failure says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import seeds

REPOSITORY = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("text", "chosen", "few"),
    [
        ("", range(7, 47), range(7, 47)),
        ("2000", range(7, 2007), range(7, 87)),
        ("3", range(7, 10), range(7, 8)),
        ("0-60", range(60), range(2)),
        ("731-732", range(731, 732), range(731, 732)),
    ],
)
def test_a_number_or_a_range_chooses_seeds(
    text: str, chosen: range, few: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDCORE_SEEDS", text)
    assert (seeds.seeds(40, start=7), seeds.seeds(40, share=25, start=7)) == (chosen, few)


@pytest.mark.parametrize("text", ["x", "-3", "3-", "5-3", "5-5", "0", "1.5", "1-2-3"])
def test_what_is_neither_ends_the_run(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDCORE_SEEDS", text)
    with pytest.raises(pytest.UsageError, match="neither a number"):
        seeds.seeds(40)


def test_each_test_has_a_seed_of_its_own_that_the_base_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    for base in ("1", "1", "2"):
        monkeypatch.setenv("DDCORE_SEED", base)
        drawn.append([seeds.of_test(f"tests/test_a.py::test_{number}") for number in range(20)])
    assert drawn[0] == drawn[1] and len({*drawn[0], *drawn[2]}) > 35


class Case:
    """What :func:`seeds.leave_to_the_night` sees of a test."""

    def __init__(self, name: str, *marks: pytest.MarkDecorator, file: str = "test_a.py") -> None:
        self.name, self.path = name, Path(file)
        self.marks = {mark.name: mark.mark for mark in marks}

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marks.get(name)

    def add_marker(self, name: str) -> None:
        self.marks[name] = getattr(pytest.mark, name).mark


def drawn(base: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, set[int]]:
    """Of six families of nine, one of another file among them, the numbers of those that a run keeps."""
    monkeypatch.setenv("DDCORE_SEED", str(base))
    two, three = pytest.mark.sample(2), pytest.mark.sample(3, of="some")
    families = {
        "cases": [Case(f"test_cases[{n}]", two) for n in range(9)],
        "cases elsewhere": [Case(f"test_cases[{n}]", two, file="test_b.py") for n in range(9)],
        "tests": [Case(f"test_{n}", three) for n in range(9)],
        "long": [Case(f"test_long[{n}]", two, *[pytest.mark.long] * (n > 4)) for n in range(9)],
        "few": [Case(f"test_few[{n}]", pytest.mark.sample(10)) for n in range(9)],
        "others": [Case(f"test_others[{n}]") for n in range(9)],
    }
    cases: Any = [case for family in families.values() for case in family]
    seeds.leave_to_the_night(cases)
    return {name: {n for n, case in enumerate(family) if "long" not in case.marks} for name, family in families.items()}


def test_a_run_draws_so_many_of_a_family_and_another_run_others(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [drawn(base, monkeypatch) for base in range(60)]
    for kept in runs:
        assert [len(numbers) for numbers in kept.values()] == [2, 2, 3, 2, 9, 9]
    assert drawn(7, monkeypatch) == runs[7] != runs[8]
    for family, whole in (("cases", 9), ("cases elsewhere", 9), ("tests", 9), ("long", 5)):
        assert set[int]().union(*(kept[family] for kept in runs)) == {*range(whole)}, "none is left out for ever"
    assert any(kept["cases"] != kept["cases elsewhere"] for kept in runs)


def test_of_what_starts_spark_a_run_draws_so_many_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [path.name for path in Path(__file__).parent.glob("test_*.py") if "mark.spark" in path.read_text()]
    assert {f"test_{name}.py" for name in seeds.KINDS} <= {*files}
    monkeypatch.setenv("DDCORE_SEED", "1")
    always = pytest.mark.sample(1)
    cases: Any = [Case(f"test_{n}", pytest.mark.spark, file=file) for n in range(5) for file in files]
    named: Any = Case("test_named", pytest.mark.spark, always)
    seeds.leave_to_the_night([*cases, named])
    kept = [seeds.kind(case.path) for case in cases if "long" not in case.marks]
    assert Counter(kept) == seeds.ON_SPARK and "long" not in named.marks


def test_seeds_that_are_chosen_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDCORE_SEEDS", "3")
    assert {len(numbers) for numbers in drawn(1, monkeypatch).values()} == {9, 5}


FAILING = """
import random
from hypothesis import given, strategies as st

def test_a_drawn_seed(seed):
    assert False, f"drawn {random.Random(seed).random()}"

@given(st.integers(0, 10**9))
def test_an_example(number):
    with open("examples.txt", "a") as file:
        file.write(f"{number} ")

def test_a_chosen_seed():
    assert False
"""


@pytest.mark.long
def test_a_run_says_how_it_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((REPOSITORY / "tests" / "conftest.py").read_text())
    (tmp_path / "test_failing.py").write_text(FAILING)
    marks = "spark recovery docs unit sample(most)"
    (tmp_path / "pytest.ini").write_text("\n    ".join(["[pytest]\nmarkers =", *marks.split()]))

    environment = {name: value for name, value in os.environ.items() if name != "DDCORE_SEED"}

    def run(base: str, *arguments: str, caches: bool = False) -> tuple[str, str]:
        path = os.pathsep.join(map(str, (REPOSITORY / "tests" / "support", REPOSITORY / "tests", REPOSITORY / "tools")))
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", *(() if caches else ("-p", "no:cacheprovider")), *arguments],
            cwd=tmp_path, env=environment | {"PYTHONPATH": path} | ({"DDCORE_SEED": base} if base else {}), text=True,
            capture_output=True, check=False,
        )  # fmt: skip
        examples = tmp_path / "examples.txt"
        drawn = examples.read_text() if examples.exists() else ""
        examples.unlink(missing_ok=True)
        return ended.stdout, drawn

    out, examples = run("41")
    assert "to draw the same random tests again: DDCORE_SEED=41" in out, out
    again = "DDCORE_SEED=41 .venv/bin/python -m pytest -m '' 'test_failing.py::test_a_drawn_seed'"
    assert out.count("the same test with the same seed") == 1 and again in out, out
    line = next(line for line in out.splitlines() if "AssertionError: drawn" in line)
    out, same = run("41", "-k", "drawn or example")
    assert line in out and same == examples
    out, others = run("42", caches=True)
    assert line not in out and others != examples
    line = next(line for line in out.splitlines() if "AssertionError: drawn" in line)
    out, _ = run("", "--last-failed", caches=True)
    assert line in out and "DDCORE_SEED=42" in out
