"""Every recipe of docs/cookbook.md prints what the page says, and gives the logs of the definition."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pages import DOCS

import ddcore as dd
from ddcore import reference

PAGE = DOCS / "cookbook.md"
RECIPES = re.findall(
    r"^## (.+?)\n.*?^```python\n(.*?)^```\n\n```text\n(.*?)^```$",
    PAGE.read_text("utf-8"),
    flags=re.DOTALL | re.MULTILINE,
)


def test_every_section_of_the_page_is_a_recipe() -> None:
    titles = re.findall(r"^## (.+)$", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    assert [title for title, _, _ in RECIPES] == titles
    assert len(titles) >= 7


@pytest.mark.parametrize(
    ("code", "expected"), [recipe[1:] for recipe in RECIPES], ids=[recipe[0] for recipe in RECIPES]
)
def test_recipe_prints_what_the_page_says(
    code: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fold, calls = dd.replay, 0

    def replay(program: Any, **inputs: Any) -> dict[str, pl.DataFrame]:
        nonlocal calls
        calls += 1
        logs = fold(program, **inputs)
        by_definition = reference.replay(program, ("version",), **inputs)
        assert {name: reference.log_of(log) for name, log in logs.items()} == by_definition
        assert all(by_definition.values())  # a recipe without output shows nothing
        return logs

    monkeypatch.setattr(dd, "replay", replay)
    recipe = tmp_path / "recipe.py"
    recipe.write_text(code, "utf-8")
    runpy.run_path(str(recipe))
    assert capsys.readouterr().out == expected
    assert calls == 1


def test_recipes_are_formatted_and_have_no_unused_name(tmp_path: Path) -> None:
    for number, (_, code, _) in enumerate(RECIPES):
        (tmp_path / f"recipe{number}.py").write_text(code, "utf-8")
    for command in (
        ["format", "--check"],
        ["check", "--select", "E,F,W,I,B", "--config", "lint.isort.known-first-party=['ddcore']"],
    ):
        words = [sys.executable, "-m", "ruff", *command, "--isolated", "--line-length", "120", str(tmp_path)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
