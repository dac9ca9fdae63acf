"""Bytes of state on disk: six joins on shared arrangements of attributes, and the same with arrangements of their own.

``python -m bench.shared_arrangements`` prints one JSON object. The warehouse is that of ``dd run --engine inline``.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

import polars as pl

from bench.measure import prompt_to_prompt
from bench.project import DDCORE

ROWS = 100_000
PAIRS = ("ab", "ac", "ad", "bc", "bd", "cd")
PROJECT = """[project]
program = "program.py:program"
warehouse = "warehouse"
[run]
engine = "inline"
[inputs.wide.schema]
a = "int64"
b = "int64"
c = "string"
d = "float64"
"""
PROGRAM = """import ddcore as dd
from ddcore import col


def program(wide):
    parts, joined = wide.attributes(), {{}}
    for number, (a, b) in enumerate({pairs}):
        pair = dd.rows(parts[a]{apart}, parts[b]{apart})
        joined[a + b] = pair.group_by().agg(n=dd.count())
    return joined
"""
APART = '.where(col("row_id") >= -number - 1)'
"""Always true, and another node of the dataflow for each pair: its arrangements cannot be shared."""


def main() -> None:
    """Run both programs on the same rows."""
    with tempfile.TemporaryDirectory() as scratch:
        rows = Path(scratch) / "wide.parquet"
        wide().write_parquet(rows)
        sizes = {name: size(Path(scratch) / name, rows, apart) for name, apart in (("shared", ""), ("apart", APART))}
    ratio = round(sizes["apart"] / sizes["shared"], 2)
    print(json.dumps({"rows": ROWS, **{f"{name}_bytes": size for name, size in sizes.items()}, "ratio": ratio}))


def wide() -> pl.DataFrame:
    """Rows of four columns."""
    rng = random.Random(1)
    rows = [(i, rng.randrange(2**40), f"{rng.randrange(2**60):x}", rng.random(), 0, 1) for i in range(ROWS)]
    return pl.DataFrame(rows, schema=["a", "b", "c", "d", "version", "diff"], orient="row")


def size(folder: Path, rows: Path, apart: str) -> int:
    """The bytes of the state's data files after a run."""
    folder.mkdir()
    (folder / "dd.toml").write_text(PROJECT)
    (folder / "program.py").write_text(PROGRAM.format(pairs=list(PAIRS), apart=apart))
    for command in (["ingest", "wide", str(rows)], ["run"]):
        prompt_to_prompt([DDCORE, *command], folder)
    return sum(file.stat().st_size for file in (folder / "warehouse" / "state").rglob("*.parquet"))


if __name__ == "__main__":
    main()
