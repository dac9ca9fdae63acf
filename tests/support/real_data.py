"""Real inputs, in ``sample_data``, and the programs of ``examples/``."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

REPOSITORY = Path(__file__).resolve().parent.parent.parent
DATA = REPOSITORY / "sample_data"


def shared_data(*parts: str) -> Path:
    """A file or folder of ``sample_data``, whose README names its source: tests, benchmarks and examples share them."""
    path = DATA.joinpath(*parts)
    assert path.exists(), path
    return path


def example(name: str, function: str = "program") -> Callable[..., Any]:
    """A function of ``examples/NAME/program.py``."""
    file = REPOSITORY / "examples" / name / "program.py"
    spec = importlib.util.spec_from_file_location(f"example_{name}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    program: Callable[..., Any] = getattr(module, function)
    return program


def at(log: pl.DataFrame, version: int) -> pl.DataFrame:
    """The collection that a log accumulates to at ``version``: its rows and their ``count``."""
    row = [name for name in log.columns if name not in ("version", "diff")]
    rows = log.filter(pl.col("version") <= version).group_by(row).agg(count=pl.col("diff").sum())
    return rows.filter(pl.col("count") != 0)


def every_row_once(log: pl.DataFrame, version: int) -> set[Any]:
    """The rows at ``version``, in a set; fails where the count of a row is not one."""
    rows = at(log, version)
    assert rows["count"].eq(1).all(), rows.filter(pl.col("count") != 1)
    return set(rows.drop("count").rows())
