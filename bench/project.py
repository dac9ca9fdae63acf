"""A project on the package set in a folder of its own, and the `dd` command to measure on it."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from bench.measure import Figures, prompt_costs, prompt_to_prompt

REPOSITORY = Path(__file__).resolve().parent.parent
SAMPLE_DATA = REPOSITORY / "sample_data"
DDCORE = Path(sys.executable).with_name("ddcore")
"""The command."""
LAST_VERSION = 1493


def example_function(name: str, function: str) -> Callable[..., Any]:
    """A function of ``examples/NAME/program.py``."""
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "examples" / name / "program.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    program_function: Callable[..., Any] = getattr(module, function)
    return program_function


def engine(
    module: str, *arguments: object, environment: Mapping[str, str] | None = None, python: object = sys.executable
) -> Figures:
    """The figures that ``python -m bench.MODULE ARGUMENTS`` prints last, as a JSON object; in a process of its own."""
    _, stdout = prompt_to_prompt([python, "-m", f"bench.{module}", *arguments], REPOSITORY, environment)
    figures: Figures = json.loads(stdout.splitlines()[-1])
    return figures


def package_set() -> Path:
    """The package set's change log."""
    return SAMPLE_DATA / "package_sets" / "dependencies.parquet"


def accumulated(log: pl.DataFrame, version: int) -> pl.DataFrame:
    """The rows of a log of distinct rows at a version."""
    columns = [name for name in log.columns if name not in ("version", "diff")]
    present = log.filter(pl.col("version") <= version).group_by(columns).agg(pl.col("diff").sum())
    return present.filter(pl.col("diff") != 0).select(columns)


class Project:
    """A copy of ``examples/packages`` with the whole package set ingested."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        for name in ("program.py", "dd.toml"):
            shutil.copy(REPOSITORY / "examples" / "packages" / name, folder)
        self.ingest(package_set())
        self.version = LAST_VERSION
        self._rng = random.Random(0)
        log = pl.read_parquet(package_set()).group_by("package", "dependency").agg(pl.col("diff").sum())
        self._present = {*log.filter(pl.col("diff") != 0).select("package", "dependency").iter_rows()}

    def dd(self, *arguments: str, environment: dict[str, str] | None = None) -> float:
        """Seconds that ``dd ARGUMENTS`` takes in this project, from prompt to prompt."""
        return prompt_to_prompt([DDCORE, *arguments], self.folder, environment)[0]

    def costs(self, *arguments: str, environment: dict[str, str] | None = None) -> Figures:
        """What a command costs: seconds, processor time and peak memory."""
        return prompt_costs([DDCORE, *arguments], self.folder, environment)

    def ingest(self, source: Path) -> None:
        """Append a change log to the input."""
        self.dd("ingest", "dependencies", str(source), "--engine", "inline")

    def change_ten_rows(self) -> None:
        """Ingest one more version: five dependencies go, and five that others have are added."""
        self.version += 1
        removals = self._rng.sample(sorted(self._present), 5)
        self._present -= {*removals}
        additions: set[tuple[str, str]] = set()
        while len(additions) < 5:
            (package, _), (_, dependency) = self._rng.sample(sorted(self._present), 2)
            additions |= {(package, dependency)} - self._present - {*removals}
        self._present |= additions
        rows = [
            (*pair, self.version, diff) for pairs, diff in ((removals, -1), (additions, 1)) for pair in sorted(pairs)
        ]
        file = self.folder / f"changes-{self.version}.parquet"
        pl.DataFrame(rows, schema=["package", "dependency", "version", "diff"], orient="row").write_parquet(file)
        self.ingest(file)
