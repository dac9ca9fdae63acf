"""Terminal sessions in the pages of ``docs/``: every command is run, and its output compared with the page."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from trams import Command

__all__ = ["DOCS", "blocks_of", "follow"]

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


def blocks_of(page: str) -> list[str]:
    """The console blocks of a page, such as ``times.md``."""
    return re.findall(r"^```console\n(.*?)^```$", (DOCS / page).read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def follow(
    page: str,
    folder: Path,
    dd: Command,
    monkeypatch: pytest.MonkeyPatch,
    *,
    steps: int,
    before: Callable[[int], None] | None = None,
    binaries: Path = Path(sys.executable).parent,
) -> None:
    """Run the commands of a page in order, in an empty folder; ``before`` is called with the number of each block.

    The page has so many ``steps``. A file that ``cat`` shows and that does not exist is written first. Seconds, bytes,
    process ids and moments may differ. Scripts find the programs of ``binaries`` first.
    """
    monkeypatch.chdir(folder)
    done = 0
    for number, block in enumerate(blocks_of(page)):
        if before is not None:
            before(number)
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, expected = step.partition("\n")
            said = _run(line, expected, dd, monkeypatch, binaries)
            own, other = list(map(_stable, said)), list(map(_stable, expected.splitlines()))
            assert own == other, f"{line}: {own} is not {other}"
            done += 1
    assert done == steps


def _run(line: str, expected: str, dd: Command, monkeypatch: pytest.MonkeyPatch, binaries: Path) -> list[str]:
    """The lines that one command of a page prints."""
    command, _, word = line.partition(" | grep ")
    words = shlex.split(command)
    if words[0] == "cd":
        monkeypatch.chdir(words[1])
        return []
    if words[0] == "cat":
        if not Path(words[1]).exists():
            Path(words[1]).write_text(expected)
        return Path(words[1]).read_text().splitlines()
    if words[0] != "ddcore" or re.search("[>&;]", line):
        environment = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", line], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            text=True, timeout=600,
        )  # fmt: skip
        killed = ["Killed"] if done.returncode == -signal.SIGKILL else []  # a shell at a terminal says so
        return done.stdout.splitlines() + killed
    _, out, err = dd(*words[1:], *(["-q"] if words[1] == "init" and not expected else []))
    return [item for item in [*out, *err] if not item.startswith("{") and word in item]


def _stable(line: str) -> str:
    """A line without what differs from run to run."""
    line = re.sub(r"(took=|in |, )\d+\.\ds", r"\g<1>0.0s", re.sub(r" *[\d,.]+ (bytes|kB|B)\b", " 0 bytes", line))
    line = re.sub(r"^(project|warehouse)( +)/\S+", r"\1\2/here", re.sub(r" +size  columns", "  size  columns", line))
    line = re.sub(r"(program|by program|is) [0-9a-f]{8,12}\b", r"\1 0", line)
    line = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z)", "then", line)
    line = re.sub(r"host \S+, pid \d+", "host here, pid 1", line)
    line = re.sub(r"\S*/(trams|stops)(?=[: ]|$)", r"\1", line)  # the folder of the example
    return re.sub(r"\S*/?(trams|shop)/", r"\1/", line)
