"""The readings of the last seven days of a million: each version has a new day, and a day leaves the window.

Against the same with the bound joined with every row, and against itself with a tenth of the rows; by `dd run` inline,
whose state is on disk, and in a Session, whose state is in memory.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import polars as pl

from bench import moving_filter_program
from bench.measure import Figures, Result, Side, in_turn, prompt_costs, prompt_to_prompt
from bench.moving_filter_engine import Readings
from bench.project import DDCORE, engine

ROWS = 1_000_000
SETTINGS = """\
[project]
program   = "program.py:{plan}"
warehouse = "warehouse"

[run]
engine = "inline"

[inputs.readings]
schema = {{ ts = "timestamp", id = "int64", value = "int64" }}
"""


def run(rounds: int, rows: int = ROWS) -> Iterator[Result]:
    """Both ways; the output is compared with the readings after every version."""
    sides = {"ours": ("by_order", rows), "pairs": ("by_pairs", rows), "tenth": ("by_order", rows // 10)}
    with tempfile.TemporaryDirectory() as scratch:
        stored = {name: Stored(Path(scratch) / name, *side).change for name, side in sides.items()}
        yield from _compared("dd run inline", stored, rounds, rows)
    held = {name: partial(engine, "moving_filter_engine", *side) for name, side in sides.items()}
    yield from _compared("a fold in a Session", held, rounds, rows)


def _compared(way: str, sides: Mapping[str, Side], rounds: int, rows: int) -> Iterator[Result]:
    figures = in_turn(sides, rounds)
    ours = figures["ours"]
    name = f"{way}, a filter moves by a day of {rows:,} rows"
    peers = {"pairs": "ours, each row joined with the bound", "tenth": f"ours, of {rows // 10:,} rows"}
    for peer, title in peers.items():
        other = figures[peer]
        yield Result(name, ours["s"], title, other["s"], rounds, ours_cpu_s=ours["cpu_s"], peer_cpu_s=other["cpu_s"])


class Stored:
    """A project whose warehouse holds the readings, and one version after them."""

    def __init__(self, folder: Path, plan: str, rows: int) -> None:
        self._folder, self._readings = folder, Readings(rows)
        folder.mkdir()
        shutil.copy(str(moving_filter_program.__file__), folder / "program.py")
        (folder / "dd.toml").write_text(SETTINGS.format(plan=plan))
        self._ingest(self._readings.load())
        prompt_to_prompt([DDCORE, "run"], folder)
        self.change()

    def change(self) -> Figures:
        """Ingest a day, and fold it: the costs of the run alone."""
        self._ingest(self._readings.change())
        costs = prompt_costs([DDCORE, "run"], self._folder)
        self._readings.check(pl.read_delta(self._folder / "warehouse" / "outputs" / "recent"))
        return costs

    def _ingest(self, log: pl.DataFrame) -> None:
        file = self._folder / f"readings-{self._readings.version}.parquet"
        log.write_parquet(file)
        prompt_to_prompt([DDCORE, "ingest", "readings", file], self._folder)
