"""``dd sync`` of ``examples/shop``, killed after any durable step and called again: all is as if nothing had been.

Compared are the rows of every table that the ledger names, state and logs, as they are stored; the published tables;
and what readers see between the two commands, which is the shop before the hour or after a part of it.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest
from test_shop import EXAMPLE, bronze
from workshop import Workshop, assert_same, check_published, contents, is_same

from ddcore.io.ledger.ledger import Ledger

__all__ = ["bronze"]

Rows = dict[str, pl.DataFrame]


@dataclass(frozen=True)
class Hour:
    """A shop with an hour of changes that no sync has taken in. ``points``: those that the sync of it reaches;
    ``published``: what dashboards read after it.
    """

    base: Path
    points: tuple[str, ...]
    before: Rows
    after: Rows
    published: Rows


@pytest.fixture(scope="module")
def hour(workshop: Workshop, bronze: ModuleType) -> Hour:
    base = workshop.folder / "shop"
    shutil.copytree(EXAMPLE, base, ignore=shutil.ignore_patterns("bronze", "warehouse", "__pycache__"))
    bronze.make(base / "bronze", 60)
    workshop.done(base, "sync")
    bronze.add_hour(base / "bronze")
    before = contents(workshop.project(base))
    folder, log = copied(workshop, base), workshop.folder / "shop.log"
    ended = workshop.command(folder, "sync", DDCORE_FAILPOINT_LOG=str(log))
    assert ended.code == 0, ended
    locations = [line.split()[1] for line in log.read_text().splitlines()]
    points = tuple(f"{point}:{locations[: number + 1].count(point)}" for number, point in enumerate(locations))
    return Hour(base, points, before, contents(workshop.project(folder)), published(folder))


def copied(shop: Workshop, base: Path) -> Path:
    """A copy of a shop whose files are links, but for those that are written into."""
    shop.count += 1
    folder = shop.folder / f"copy-{shop.count}"

    def linked(source: str, target: str) -> None:
        is_written = Path(source).name in (".lock", "_last_checkpoint")
        (shutil.copyfile if is_written else os.link)(source, target)

    shutil.copytree(base, folder, copy_function=linked)
    return folder


def published(folder: Path) -> Rows:
    tables = sorted((folder / "warehouse" / "tables").iterdir())
    frames = {table.name: pl.read_delta(str(table)) for table in tables}
    return {name: frame.sort(frame.columns) for name, frame in frames.items()}


def kill(shop: Workshop, hour: Hour, point: str) -> None:
    folder = copied(shop, hour.base)
    project = shop.project(folder)
    ended = shop.command(folder, "sync", DDCORE_FAILPOINT=point)
    assert ended.code == -signal.SIGKILL, (point, ended)
    between = contents(project)
    for name, frame in between.items():  # each table is as before or as after, inputs one by one, all others together
        assert frame.equals(hour.before[name]) or frame.equals(hour.after[name]), (point, name)
    folded = {name: frame for name, frame in between.items() if not name.startswith("inputs/")}
    sides = ({name: side[name] for name in folded} for side in (hour.before, hour.after))
    assert any(is_same(folded, side) for side in sides), f"{point}: half of a run is visible"
    again = shop.command(folder, "sync")
    assert again.code == 0, (point, again)
    assert_same(contents(project), hour.after, point)
    assert_same(published(folder), hour.published, point)
    check_published(project, is_current=True)
    assert Ledger.load(shop.warehouse(folder)).open_intent() is None, point
    shop.remove(folder)


def test_the_sync_of_an_hour_reaches_many_places(hour: Hour) -> None:
    kinds = {point.partition(":")[0] for point in hour.points}
    assert {"after-lock", "after-ingest", "after-intent", "after-table", "after-run", "after-published"} <= kinds
    assert len(hour.points) > 100 and not is_same(hour.before, hour.after)


@pytest.mark.parametrize("sample", [1, pytest.param(None, marks=pytest.mark.long)], ids=["some", "all"])
def test_a_sync_that_is_killed_after_any_step_is_finished_by_the_next(
    sample: int | None, hour: Hour, workshop: Workshop, seed: int
) -> None:
    for point in random.Random(seed).sample(hour.points, sample or len(hour.points)):
        print(point)
        kill(workshop, hour, point)
