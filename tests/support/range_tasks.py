"""Tasks that write published tables in this process, and a command that has every table written by tasks.

``python range_tasks.py FOLDER here`` publishes by tasks in its own process, ``python range_tasks.py FOLDER MASTER`` by
those of Spark. Both print the published tables as JSON.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from ddcore.base.errors import DdError
from ddcore.base.tuning import Tuning
from ddcore.io.project.finding import find_project
from ddcore.io.project.project import Project
from ddcore.io.publishing.range_work import Answer, RangeWork, Reading
from ddcore.jobs import publishing, replay


class Here:
    """Tasks in this process, of which some are done twice: Spark repeats tasks, and takes the answer of one attempt."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.works, self.slots = rng, list[RangeWork](), rng.randrange(1, 5)

    def sampled(self, reading: Reading, columns: Sequence[str], every: int) -> list[pl.DataFrame]:
        return [reading.sample(number, columns, every) for number in range(len(reading.shares))]

    def written(self, work: RangeWork) -> list[Answer]:
        self.works.append(work)
        pieces = [piece for number in range(len(work.reading.shares)) for piece in work.read(number)]
        answers, sent = list[Answer](), list[tuple[int, bytes]]()
        for number in range(work.ranges):
            bodies = [body for location, body in pieces if location == number]
            for _ in range(self.rng.choice([1, 1, 2])):
                self.rng.shuffle(bodies)
                answer, more = work.write(number, bodies)
                attempt = Answer.from_json(json.loads(json.dumps(answer.to_json()))), list(more)
            answers.append(attempt[0])
            sent += attempt[1]
        if work.feeds_apart:
            answers += [work.feed([body for location, body in sent if location == n]) for n in range(work.ranges)]
        else:
            assert not sent
        return answers

    @contextmanager
    def begun(self, _: Project) -> Iterator[Here]:
        yield self


def tuned(project: Project) -> Project:
    """With files of few rows, all written by tasks."""
    tuning = Tuning(published_rows=4, shared_rows=1, task_rows=8)
    object.__setattr__(project, "tuning", tuning)
    return project


def publish_here(tasks: Here) -> None:
    """From now on these tasks publish what this process folds."""
    publish: Any = publishing.publish
    modules: list[Any] = [publishing, replay]
    modules[0]._tasks = tasks.begun
    modules[1].publish = lambda project, ledger, known, _: publish(project, ledger, known, "spark")


def main() -> int:
    folder, master = sys.argv[1:]
    if master == "here":
        publish_here(Here(random.Random(0)))
    engine = "inline" if master == "here" else "spark"
    project = tuned(find_project(Path(folder), {**os.environ, "DDCORE_MASTER": master}))
    try:
        report = replay.run(project, engine=engine)
    except DdError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    print(json.dumps([vars(table) for table in report.published]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
