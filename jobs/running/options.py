"""The arguments of a command that folds: of all its runs."""

from __future__ import annotations

from ddcore.base.record import record
from ddcore.io.project.project import Project
from ddcore.jobs.fold import Listener
from ddcore.jobs.running.next_run import Request
from ddcore.jobs.warm import Warm


@record
class Options:
    """What to fold, how, and who is told. ``select``: the words that name some outputs; ``parallelism`` forces the
    number of Spark workers; ``warm``: what earlier runs of this process left in memory.
    """

    project: Project
    request: Request
    engine: str
    parallelism: int | None
    listener: Listener | None
    select: tuple[str, ...]
    warm: Warm | None = None
