"""Random tests are repeatable: which seeds a variable chooses, and what a failure says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def test_a_run_says_how_it_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((REPOSITORY / "tests" / "conftest.py").read_text())
    (tmp_path / "test_failing.py").write_text(FAILING)
    marks = "spark recovery docs unit sample(most)"
    (tmp_path / "pytest.ini").write_text("\n    ".join(["[pytest]\nmarkers =", *marks.split()]))

    def run(base: str, *arguments: str) -> tuple[str, str]:
        path = os.pathsep.join(map(str, (REPOSITORY / "tests" / "support", REPOSITORY / "tests", REPOSITORY / "tools")))
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
            cwd=tmp_path, env=os.environ | {"PYTHONPATH": path, "DDCORE_SEED": base}, text=True, capture_output=True,
            check=False,
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
    out, others = run("42")
    assert line not in out and others != examples
