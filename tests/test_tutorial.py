"""The tutorial: each command and its output, in this environment, and from a wheel in an empty one."""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import build_wheel
import pages
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from trams import Command, Said

import ddcore as dd
from ddcore import sql
from ddcore.base.cache import cache_folder

PAGE = "tutorial.md"
STEPS = 43


def shell_blocks() -> list[str]:
    """What the page has the reader do before the first console: build the wheel, and install it."""
    return re.findall(r"^```sh\n(.*?)^```$", (pages.DOCS / PAGE).read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_each_command_prints_what_the_page_says(tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script of the night runs as cron would run it; here its environment is the one of the tests."""
    bikes = tmp_path / "bikes"
    program = bikes / ".venv" / "bin" / "ddcore"
    program.parent.mkdir(parents=True)
    ours = shlex.quote(str(Path(sys.executable).parent / "ddcore"))
    program.write_text(f'#!/bin/sh\nDDCORE_CACHE={shlex.quote(str(cache_folder()))} exec {ours} "$@"\n')
    program.chmod(0o755)
    pages.follow(PAGE, bikes, dd, monkeypatch, steps=STEPS)


def test_the_program_in_sql_gives_the_same_outputs() -> None:
    """At every version of random logs, with cycles among the parts."""
    page = (pages.DOCS / PAGE).read_text("utf-8")
    (text,) = re.findall(r"^```sql\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    (source,) = re.findall(r"^\$ cat program.py\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(compile(source, "program.py", "exec"), names)
    for seed in range(20):
        rng = random.Random(seed)
        print(f"seed {seed}")
        logs: dict[str, Any] = {
            "parts": log(rng, "assembly", "part"),
            "recalls": log(rng, "part", "notice"),
            "orders": log(rng, "customer", "bike"),
        }
        by_python, by_sql = dd.replay(names["program"], **logs), dd.replay(sql.program(text), **logs)
        assert by_python["calls"].height or seed, "a log that is empty shows nothing"
        for output in ("affected", "calls"):
            assert_frame_equal(by_python[output], by_sql[output], check_row_order=False)


def log(rng: random.Random, *columns: str) -> pl.DataFrame:
    """Rows of two columns that come at one version; some go at a later one."""
    rows = [(rng.choice("abcdef"), rng.choice("abcdef"), rng.randrange(3), 1) for _ in range(8)]
    gone = [(a, b, version + rng.randint(1, 2), -1) for a, b, version, _ in rows if rng.random() < 0.5]
    return pl.DataFrame(rows + gone, schema=[*columns, "version", "diff"], orient="row")


@pytest.mark.long
def test_from_a_wheel_in_an_empty_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page as it is written, with another home; pip takes the versions of libraries that CI has."""
    build, install = shell_blocks()
    assert build == "make wheel\n"
    command = [sys.executable, build_wheel.__file__, "--target", str(tmp_path / "dist")]  # what `make wheel` does
    subprocess.run(command, check=True)
    for name in [name for name in os.environ if name.startswith(("DDCORE_", "PYTHON", "JAVA", "VIRTUAL_ENV"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_CONSTRAINT", str(pages.DOCS.parent / "constraints.txt"))
    (tmp_path / "home").mkdir()
    subprocess.run(["bash", "-ec", install], cwd=tmp_path, check=True)
    bikes = tmp_path / "home" / "bikes"
    binaries = bikes / ".venv" / "bin"

    def call(*words: str) -> Said:
        done = subprocess.run([binaries / "ddcore", *words], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()

    pages.follow(PAGE, bikes, call, monkeypatch, steps=STEPS, binaries=binaries)
    assert not (tmp_path / "home" / ".cache" / "ddcore" / "kernels").exists(), "the wheel brings the kernels"
    shutil.rmtree(bikes / ".venv")


def test_the_first_table(tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def age(block: int) -> None:
        if block == 4:  # the first sync: nobody types so quickly that the files are as new as here
            for file in (tmp_path / "exports").rglob("*.csv"):
                os.utime(file, (1.7e9, 1.7e9 + 0.5))

    (tmp_path / "exports" / "sales").mkdir(parents=True)
    pages.follow("first-table.md", tmp_path, dd, monkeypatch, before=age, steps=19)
