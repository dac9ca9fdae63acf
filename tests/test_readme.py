"""The README's example prints what the README says, and its command lines do what it says, without Java."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ddcore.cli import samples
from ddcore.io.project.project import Project

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def test_example_prints_what_the_readme_says() -> None:
    example = next(block for block in blocks("python") if "dd.replay" in block)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, str(README), "exec"), {"__name__": "readme"})
    assert printed.getvalue() == blocks("text")[0]
    assert len(example.splitlines()) <= 40


def test_the_first_page_says_what_to_install_and_which_engine_runs() -> None:
    """As the code has it: the default engine, and the one that dd init writes."""
    text = " ".join(README.read_text("utf-8").split())
    before = text.partition("## Folders")[0]
    assert "No package index has ddcore yet: `make wheel` in a clone builds it" in before
    default = inspect.signature(Project).parameters["engine"].default
    assert f"The default is `{default}`" in before and re.search(
        r'^engine = "inline"', inspect.getsource(samples), re.MULTILINE
    )
    assert '`engine = "inline"` in `dd.toml`, or `--engine inline`' in before


@pytest.mark.slow
def test_command_lines_show_what_the_readme_says(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DDCORE_") or "CACHE" in name}
    here = str(Path(sys.executable).parent)
    env = kept | {
        "PATH": here + os.pathsep + os.environ["PATH"],
        "JAVA_HOME": str(tmp_path / "no-java"),
        "NO_COLOR": "1",
    }
    ran = subprocess.run(
        ["bash", "-ec", blocks("sh")[0]], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith(blocks("text")[1]), ran.stdout


def test_readme_names_every_room_and_target() -> None:
    text, top = README.read_text("utf-8"), README.parent
    for room in ("cli", "jobs", "io", "ddcore", "examples", "sample_data", "tests", "bench", "tools", ".ci"):
        assert (top / room).is_dir()
        assert f"`{room}/`" in text
    targets = re.findall(r"^([a-z]+):", (top / "Makefile").read_text("utf-8"), flags=re.MULTILINE)
    assert set(re.findall(r"^    make (\w+)", text, flags=re.MULTILINE)) <= set(targets)
