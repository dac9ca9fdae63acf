"""Tasks of Spark that write published tables: one job to sample the log of an output, and one to write.

The writing job reads the log by shares, sends each row to the task of its range, and where the change feed is divided
by key, changed rows on to the tasks of their keys. What tasks have written comes back as a line of JSON each; Spark
takes the answer of one attempt at a task, so a task that is repeated, or begun twice, is committed once.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import DdError
from ddcore.base.lazy import polars as pl
from ddcore.io.publishing.range_work import Answer, RangeWork, Reading
from ddcore.io.sources.spark import cores, error_of, text_of
from ddcore.jobs.spark.failures import run_job
from ddcore.jobs.spark.intake import settings_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ddcore.io.project.project import Project

Batches = Iterator["pa.RecordBatch"]
Row = tuple[int, bytes | None, str | None]  # the task that it is for; rows, or an answer

_COLUMNS = "task int, rows binary, answer string"
_SMALL = {"spark.sql.execution.arrow.maxRecordsPerBatch": "16"}  # a record has a mebibyte of rows


@contextmanager
def range_tasks(project: Project) -> Iterator[SparkTasks]:
    """Tasks in a session for the length of a ``with``: the one of before, if it is kept."""
    from ddcore.jobs.spark.session import spark

    with spark(project.spark_conf, project.spark_master, project.parallelism) as session:
        yield SparkTasks(session)


class SparkTasks:
    """The tasks of a session: :class:`ddcore.io.publishing.range_work.Tasks`."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    @property
    def slots(self) -> int:
        """How many run at a time."""
        return cores(self._session)

    def sampled(self, reading: Reading, columns: Sequence[str], every: int) -> list[pl.DataFrame]:
        """:meth:`Reading.sample` of all shares."""
        tasks = self._tasks(len(reading.shares), partial(_sampled, reading, tuple(columns), every))
        return [pl.read_ipc(io.BytesIO(row["rows"])) for row in self._collected(tasks)]

    def written(self, work: RangeWork) -> list[Answer]:
        """What all tasks have written. Raises the first error."""
        pieces = self._tasks(len(work.reading.shares), partial(_read, work))
        answers = self._owned(pieces, work).mapInArrow(partial(_by_task, partial(_written, work)), _COLUMNS)
        if work.feeds_apart:
            answers = self._owned(answers, work).mapInArrow(partial(_by_task, partial(_fed, work)), _COLUMNS)
        return [Answer.from_json(json.loads(row["answer"])) for row in self._collected(answers)]

    def _tasks(self, number: int, task: Callable[[int], Iterator[Row]]) -> DataFrame:
        return self._session.range(0, number, 1, number).mapInArrow(partial(_by_number, task), _COLUMNS)

    def _owned(self, rows: DataFrame, work: RangeWork) -> DataFrame:
        return rows.repartitionById(work.ranges, rows["task"])

    def _collected(self, rows: DataFrame) -> list[Mapping[str, Any]]:
        """All rows of a job. Raises the first error among them."""
        with settings_of(self._session, _SMALL):
            found: list[Mapping[str, Any]] = run_job(lambda: rows.toArrow().to_pylist())
        for row in found:
            if row["answer"] is not None and "error" in (answer := json.loads(row["answer"])):
                raise error_of(answer["error"])
        return found


# --- in the tasks -----------------------------------------------------------------------------------------------------


def _by_number(task: Callable[[int], Iterator[Row]], batches: Batches) -> Batches:
    """A task that gets its number."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from _as_batches(task(number))


def _by_task(task: Callable[[int, list[bytes]], Iterator[Row]], batches: Batches) -> Batches:
    """A task that gets rows for its number. Answers of tasks before it go on; after an error nothing is written."""
    bodies: dict[int, list[bytes]] = {}
    answers, failed = list[Row](), False
    for batch in batches:
        for row in batch.to_pylist():
            if row["answer"] is None:
                bodies.setdefault(row["task"], []).append(row["rows"])
            else:
                answers.append((row["task"], None, row["answer"]))
                failed |= "error" in json.loads(row["answer"])
    yield from _as_batches(iter(answers))
    for number, rows in () if failed else bodies.items():
        yield from _as_batches(task(number, rows))


def _as_batches(rows: Iterator[Row]) -> Batches:
    """Each row as a batch; an error as the last of them."""
    try:
        for row in rows:
            yield _batch(row)
    except DdError as error:
        yield _batch((0, None, json.dumps({"error": text_of(error)})))


def _batch(row: Row) -> pa.RecordBatch:
    import pyarrow as pa

    types = {"task": pa.int32(), "rows": pa.binary(), "answer": pa.string()}
    return pa.record_batch(
        {name: pa.array([value], kind) for (name, kind), value in zip(types.items(), row, strict=True)}
    )


def _sampled(reading: Reading, columns: Sequence[str], every: int, number: int) -> Iterator[Row]:
    buffer = io.BytesIO()
    reading.sample(number, columns, every).write_ipc(buffer)
    yield 0, buffer.getvalue(), None


def _read(work: RangeWork, number: int) -> Iterator[Row]:
    for task, body in work.read(number):
        yield task, body, None


def _written(work: RangeWork, number: int, bodies: Sequence[bytes]) -> Iterator[Row]:
    answer, sent = work.write(number, bodies)
    for task, body in sent:
        yield task, body, None
    yield number, None, json.dumps(answer.to_json())


def _fed(work: RangeWork, number: int, bodies: Sequence[bytes]) -> Iterator[Row]:
    yield number, None, json.dumps(work.feed(bodies).to_json())
