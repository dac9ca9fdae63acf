"""Folds by several workers without Spark: another function stands for its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ddcore.io.project.finding import find_project
from ddcore.jobs import replay
from ddcore.jobs.engines import exchange, one_task
from ddcore.jobs.spark import session, slots

InTasks = Callable[..., list[Any]]


def fold(folder: str, number: int, in_tasks: InTasks) -> None:
    """Fold a project with so many workers, in a thread each. This process can start no session of Spark any more."""

    @contextmanager
    def no_context(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(defaultParallelism=number)

    for module, name, value in (
        (exchange, "in_tasks", in_tasks), (one_task, "in_tasks", in_tasks), (exchange, "obstacle", lambda *_: ""),
        (exchange, "encryption", lambda *_: ""), (slots, "threads_of", lambda *_: 1),
        (session, "check", lambda: None), (session, "spark_context", no_context),
    ):  # fmt: skip
        setattr(module, name, value)
    replay.run(find_project(Path(folder), {}), engine="spark", parallelism=number)
