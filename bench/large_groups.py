"""Ten rows of a group of a million changed, against the same in a group of ten thousand: count, sum, min, top 10.

By `dd run` inline, whose state is on disk, and in a Session, whose state is in memory. Each version takes the least row
and the greatest away, so that no result stays as it was.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path

import polars as pl

from bench import large_groups_program
from bench.large_groups_engine import AGGREGATES, Group
from bench.measure import Figures, Result, Side, in_turn, prompt_costs, prompt_to_prompt
from bench.project import DDCORE, engine

SMALL, LARGE = 10_000, 1_000_000
SETTINGS = """\
[project]
program   = "program.py:{aggregate}"
warehouse = "warehouse"

[run]
engine = "inline"

[inputs.rows]
schema = {{ kind = "int64", value = "int64" }}
"""


def run(rounds: int, small: int = SMALL, large: int = LARGE) -> Iterator[Result]:
    """Each aggregate by each way, both sizes in turn; every result is compared with the rows."""
    for aggregate in AGGREGATES:
        with tempfile.TemporaryDirectory() as scratch:
            folders = {size: Path(scratch) / str(size) for size in (small, large)}
            stored = {size: Stored(folder, aggregate, size).change for size, folder in folders.items()}
            yield _compared("dd run inline", aggregate, stored, rounds)
        held = {size: partial(engine, "large_groups_engine", aggregate, size) for size in (small, large)}
        yield _compared("a fold in a Session", aggregate, held, rounds)


def _compared(way: str, aggregate: str, sides: Mapping[int, Side], rounds: int) -> Result:
    small, large = sides
    other, ours = in_turn({str(size): side for size, side in sides.items()}, rounds).values()
    return Result(
        f"{way}, ten of {large:,} rows of a group, {aggregate.replace('_', ' ')}",
        ours["s"],
        f"ours, ten of {small:,}",
        other["s"],
        rounds,
        ours_cpu_s=ours["cpu_s"],
        peer_cpu_s=other["cpu_s"],
    )


class Stored:
    """A project whose warehouse holds a group, which has changed once: a fold notes a large group for the next ones."""

    def __init__(self, folder: Path, aggregate: str, size: int) -> None:
        self._folder, self._aggregate, self._group, self._numbers = folder, aggregate, Group(size), count()
        folder.mkdir()
        shutil.copy(str(large_groups_program.__file__), folder / "program.py")
        (folder / "dd.toml").write_text(SETTINGS.format(aggregate=aggregate))
        self._ingest(self._group.load())
        prompt_to_prompt([DDCORE, "run"], folder)
        self.change()

    def change(self) -> Figures:
        """Ingest a change of ten rows, and fold it: the costs of the run alone."""
        self._ingest(self._group.change())
        costs = prompt_costs([DDCORE, "run"], self._folder)
        self._group.check(pl.read_delta(self._folder / "warehouse" / "outputs" / "result"), self._aggregate)
        return costs

    def _ingest(self, log: pl.DataFrame) -> None:
        file = self._folder / f"rows-{next(self._numbers)}.parquet"
        log.write_parquet(file)
        prompt_to_prompt([DDCORE, "ingest", "rows", file], self._folder)
