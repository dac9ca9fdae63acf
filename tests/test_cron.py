"""The lines for crontab in ``docs/schedulers.md``, run as cron runs them: by /bin/sh, with four variables."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from trams import JOURNEYS, journeys

from ddcore.io.storage.warehouse import Warehouse

PAGE = Path(__file__).resolve().parent.parent / "docs" / "schedulers.md"
CRONTAB = re.compile(r"^ *[0-9*/]+ [0-9*/]+ [*] [*] [*] +(.+)$", flags=re.MULTILINE)
LINES = CRONTAB.findall(PAGE.read_text(encoding="utf-8"))


@pytest.fixture
def srv(tmp_path: Path, fresh: Path) -> Path:
    """The folder that the page calls ``/srv/trams``, with its environment, and the file that arrives."""
    home = tmp_path / "trams"
    shutil.move(fresh, home)
    (home / "links").mkdir()
    shutil.move(home / "data" / "links.csv", home / "links" / "1.csv")
    (home / ".venv").symlink_to(sys.prefix)
    starts = by_cron(".venv/bin/ddcore ingest starts data/starts.csv -q", home, f"cd {home} && ")
    assert (starts.returncode, starts.stdout) == (0, "")
    return home


def by_cron(line: str, home: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    """What cron does with a line. What is printed, it would mail."""
    cache = os.environ.get("DDCORE_CACHE")
    variables = {"SHELL": "/bin/sh", "PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"], "LOGNAME": "root"}
    return subprocess.run(
        ["/bin/sh", "-c", before + line.replace("/srv/trams", str(home))],
        env=variables if cache is None else variables | {"DDCORE_CACHE": cache},
        cwd=os.environ["HOME"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.mark.sample(1, of="runs")
def test_the_first_line_folds_what_is_new_and_prints_nothing(srv: Path) -> None:
    for _ in range(2):  # the second time nothing is new
        done = by_cron(LINES[0], srv)
        assert (done.returncode, done.stdout) == (0, "")
        assert journeys(srv) == JOURNEYS


@pytest.mark.sample(1, of="runs")
def test_while_another_run_holds_the_lock(srv: Path) -> None:
    """75 is a line in the mail; with the page's second line nothing is, and other failures still are."""
    first, second = LINES
    with Warehouse(srv / "warehouse").lock("ddcore run"):
        done = by_cron(first, srv)
        assert done.returncode == 75 and "is in use by ddcore run" in done.stdout
        done = by_cron(second, srv)
        assert (done.returncode, done.stdout) == (0, "")
        assert journeys(srv) == {}
    done = by_cron(second, srv)
    assert (done.returncode, done.stdout) == (0, "")
    assert journeys(srv) == JOURNEYS
    (srv / "links" / "2.csv").write_text("version,diff,src,dst,minutes\n6,1,Zoo,Lake,soon\n")
    for line in LINES:
        told = by_cron(line, srv).stdout
        assert told.startswith("error: ") and "soon" in told
    assert journeys(srv) == JOURNEYS


def test_a_short_path_does_not_find_the_command(srv: Path) -> None:
    """Why all lines for crontab name the environment. A percent sign would end the command."""
    assert by_cron("ddcore run -q", srv, f"cd {srv} && ").returncode == 127
    lines = [line for page in PAGE.parent.glob("*.md") for line in CRONTAB.findall(page.read_text(encoding="utf-8"))]
    assert len(lines) == 5 and len(LINES) == 2
    for line in lines:
        assert "%" not in line
        if "nightly.sh" in line:  # the tutorial's script, which names the environment; tests/test_tutorial.py runs it
            continue
        assert {*re.findall(r"(\S*)ddcore ", line)} == {".venv/bin/"}
