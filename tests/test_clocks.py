"""Inputs whose versions end apart: a run warns, once and not every night, and names the way on."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake

INPUTS = ("orders", "people", "prices")
PROGRAM = """
import ddcore as dd


def program(orders, people, prices):
    whole = orders.concat(people, prices)
    return {"whole": whole.group_by("k").agg(n=dd.count())}
"""
FEED = {"delta.enableChangeDataFeed": "true"}


class Shop:
    """Three inputs, and the commands on them."""

    def __init__(self, folder: Path, dd: Any) -> None:
        self.folder, self.dd, self.rows = folder, dd, 0
        folder.mkdir()
        (folder / "program.py").write_text(PROGRAM)
        schemas = "".join(f'[inputs.{name}]\nschema = {{ k = "int64" }}\n' for name in INPUTS)
        (folder / "dd.toml").write_text(
            f'[project]\nprogram = "program.py:program"\n[run]\nengine = "inline"\n{schemas}'
        )

    def commits(self, number: int) -> None:
        """So many new commits of the table of orders."""
        for _ in range(number):
            self.rows += 1
            frame = pl.DataFrame({"k": [self.rows]}).to_arrow()
            write_deltalake(str(self.folder / "orders"), frame, mode="append", configuration=FEED)

    def feed(self, *options: str) -> None:
        self.ingest("orders", str(self.folder / "orders"), "--feed", *options)

    def put(self, name: str, versions: Sequence[int], *options: str) -> None:
        """New rows of an input, at versions that are a column; or with ``options``, without any."""
        self.rows += 1
        lines = [f"{self.rows}" if options else f"{self.rows},1,{version}" for version in versions]
        file = self.folder / f"{name}-{self.rows}.csv"
        file.write_text("\n".join(["k" if options else "k,diff,version", *lines]) + "\n")
        self.ingest(name, str(file), *options)

    def ingest(self, *words: str) -> None:
        code, _, err = self.dd("ingest", *words, "--project", str(self.folder))
        assert code == 0, err

    def run(self, *options: str) -> list[str]:
        """The warnings of a run: on stderr and in JSON they are the same."""
        code, out, err = self.dd("run", "--json", *options, "--project", str(self.folder))
        assert code == 0, err
        warnings = json.loads(out[-1])["warnings"]
        assert [f"warning: {warning}" for warning in warnings] == [line for line in err if line.startswith("warning: ")]
        return [warning for warning in warnings if "end at different versions" in warning]


@pytest.fixture
def shop(tmp_path: Path, dd: Any) -> Shop:
    return Shop(tmp_path / "shop", dd)


WORDS = (
    "inputs end at different versions: people, prices at 0, orders at 5; a run closes versions for all inputs, so rows "
    "that come later at versions up to 5 are late; give the commits of a delivery one version: ddcore ingest orders "
    "TABLE --feed --version next"
)


def test_a_table_counted_by_commits_beside_the_first_day_of_others(shop: Shop, dd: Any) -> None:
    shop.commits(6)
    shop.feed()
    shop.put("people", [0])
    shop.put("prices", [0])
    assert shop.run("--dry-run") == [WORDS], "before anything is closed"
    assert shop.run("-q") == [WORDS]
    (shop.folder / "late.csv").write_text("k,diff,version\n9,1,1\n")
    code, _, err = dd("ingest", "people", str(shop.folder / "late.csv"), "--project", str(shop.folder))
    assert code == 1 and "late: version 5 is closed" in err[0]


def test_the_recipe_ends_it(shop: Shop) -> None:
    """Each delivery is one version of every input, also where one of them has nothing new."""
    for night in range(3):
        shop.commits(4)
        shop.feed("--version", "next")
        shop.put("people", [0], "--append", "--version", "next")
        if night != 1:
            shop.put("prices", [0], "--append", "--version", str(night))
        assert shop.run("--dry-run") == [] and shop.run() == []


def test_a_reference_that_was_loaded_once_is_no_alarm(shop: Shop) -> None:
    shop.put("prices", [0])
    shop.put("orders", [0, 1, 3])
    shop.put("people", [1, 2, 3])
    assert shop.run() == []
    shop.put("orders", [4, 5])
    shop.put("people", [4])
    assert shop.run() == [], "no row at a version says that nothing changed there"
    assert shop.run("--full-refresh") == []


def test_histories_that_end_apart_are_told_once(shop: Shop) -> None:
    shop.put("prices", [0])
    shop.put("orders", [0, 1, 2, 3])
    shop.put("people", [0, 1])
    (line,) = shop.run()
    assert line.startswith("inputs end at different versions: people at 1, orders at 3; a run closes versions for all")
    assert line.endswith("give each delivery one version, the same for all inputs: --version, --label")
    shop.put("orders", [4])
    assert shop.run() == []


def test_examples_that_follow_a_table_say_its_version() -> None:
    """Without one its commits are the versions, beside which those of other inputs are late."""
    top = Path(__file__).resolve().parent.parent
    pages = [top / "README.md", *(top / "docs").glob("*.md"), *(top / "examples").rglob("*.py")]
    commands = re.findall(r"\b(?:dd|ddcore) ingest \S+ .*--feed.*", "\n".join(page.read_text() for page in pages))
    assert len(commands) > 1 and [command for command in commands if "--version" not in command] == []
