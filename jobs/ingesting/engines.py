"""Who reads the sources of an ingest and writes its files: this process, or the tasks of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ddcore.base.memory import reused_memory
from ddcore.io.project.project import Project
from ddcore.io.sources.intake import Intake, Part, frames_of, merge
from ddcore.io.sources.layouts import Layout
from ddcore.io.sources.source import Source

_BULK_BYTES = 256 << 20

Layouts = list[tuple[Source, Layout]]
Take = Callable[[Intake, Layouts], Part]


def taker(engine: str, project: Project, size: int) -> AbstractContextManager[Take]:
    """What reads and writes with an engine; ``size`` is the number of bytes to read."""
    return _spark(project, size) if engine == "spark" else nullcontext(_take_inline)


def _take_inline(intake: Intake, layouts: Layouts) -> Part:
    with reused_memory(), _one_allocator():
        return merge([intake.take("000", frames_of(layouts))])


@contextmanager
def _one_allocator() -> Iterator[None]:
    """Inside, Arrow takes its memory from where numpy does: what one frees another may use. Its own allocator
    gives pages back within milliseconds, and the system clears each of them again.
    """
    import pyarrow as pa

    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


@contextmanager
def session(project: Project) -> Iterator[None]:
    """A session of Spark, which those inside of it use, too."""
    from ddcore.jobs.spark.session import spark

    with spark(project.spark_conf, project.spark_master, project.parallelism):
        yield


@contextmanager
def _spark(project: Project, size: int) -> Iterator[Take]:
    from ddcore.jobs.spark.intake import take_by_spark
    from ddcore.jobs.spark.session import spark

    with spark(project.spark_conf, project.spark_master, project.parallelism, bulk=size >= _BULK_BYTES) as session:
        yield lambda intake, sources: merge(take_by_spark(session, intake, sources))
