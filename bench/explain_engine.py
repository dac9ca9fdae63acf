"""One explanation: ``python -m bench.explain_engine FOLDER OUTPUT COLUMN=NUMBER [--whole]``; prints a JSON object.

Seconds from opening the project to the explanation. With ``--whole`` nothing is left out of the inputs.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import polars as pl

from bench.measure import peak_mib
from ddcore.io.project.finding import find_project
from ddcore.io.project.times import time_of
from ddcore.jobs.explain import Explaining


def main(folder: str, output: str, key: str, *options: str) -> None:
    """Explain the one row with this key at version 0."""
    column, _, value = key.partition("=")
    begin, cpu = time.perf_counter(), time.process_time()
    explaining = Explaining(find_project(Path(folder), {}), output)
    if "--whole" in options:
        explaining.question = replace(explaining.question, restricts=False)
    (row,) = explaining.rows(time_of(0), pl.DataFrame({column: [int(value)]})).iter_slices(1)
    explanation = explaining.explanation(time_of(0), row.drop("diff"))
    figures = {
        "s": round(time.perf_counter() - begin, 3),
        "cpu_s": round(time.process_time() - cpu, 3),
        "peak_mib": round(peak_mib(), 1),
        "rows": sum(map(len, explanation.inputs.values())),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
