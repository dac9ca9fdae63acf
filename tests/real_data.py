"""Real inputs, which lie beside the repository and not in it, and the programs of ``examples/``."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = REPOSITORY.parent / "shared" / "data"


def shared_data(*parts: str) -> Path:
    """A file or folder of ``../shared/data``. Without it the test fails in CI, and is skipped elsewhere."""
    path = DATA.joinpath(*parts)
    if not path.exists():
        missing = f"needs {'/'.join(parts)} from ../shared/data, beside the repository; it is not there"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(missing)
        pytest.skip(missing)
    return path


def example(name: str, function: str = "program") -> Callable[..., Any]:
    """A function of ``examples/NAME/program.py``."""
    file = REPOSITORY / "examples" / name / "program.py"
    spec = importlib.util.spec_from_file_location(f"example_{name}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., Any] = getattr(module, function)
    return found


def at(log: pl.DataFrame, version: int) -> pl.DataFrame:
    """The collection that a log accumulates to at ``version``: its rows and their ``count``."""
    row = [name for name in log.columns if name not in ("version", "diff")]
    rows = log.filter(pl.col("version") <= version).group_by(row).agg(count=pl.col("diff").sum())
    return rows.filter(pl.col("count") != 0)


def every_row_once(log: pl.DataFrame, version: int) -> set[Any]:
    """The rows at ``version``, in a set; fails where a row is there more than once, or less than never."""
    rows = at(log, version)
    assert rows["count"].eq(1).all(), rows.filter(pl.col("count") != 1)
    return set(rows.drop("count").rows())
