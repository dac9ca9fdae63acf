"""What a superstep without work costs, of workers in processes without Spark."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from functools import partial

from bench.measure import Figures, Result, in_turn, prompt_to_prompt
from bench.project import REPOSITORY

ASKED = 0.003  # seconds of a superstep without work, of four workers


def run(rounds: int) -> Iterator[Result]:
    """A thousand exchanges in which nobody sends an update."""
    idle = in_turn({"4": partial(figures_of, 4)}, rounds)["4"]["s"]
    yield Result("1,000 supersteps without work, 4 workers", idle, "3 ms for each", 1000 * ASKED, rounds)


def figures_of(*arguments: object, environment: Mapping[str, str] | None = None) -> Figures:
    """What ``bench.superstep_engine`` prints."""
    command = [sys.executable, "-m", "bench.superstep_engine", *map(str, arguments)]
    figures: Figures = json.loads(prompt_to_prompt(command, REPOSITORY, environment)[1].splitlines()[-1])
    return figures
