"""Failures of Spark in one line: what explains why a job failed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from ddcore.base.errors import DdError
from ddcore.jobs.failures import LONGEST
from ddcore.text.redaction import masked

Result = TypeVar("Result")

_TELLING = re.compile(r"^[\w.]*(Error|Exception): |crashed")
_LOST = re.compile(r"most recent failure: .*?\(TID.*?\): (.+)")
_CONNECTION = re.compile(r"status = StatusCode\.(\w+)\s+details = \"(.*)\"")  # of a Spark Connect server
_BARRIER = "failed barrier ResultStage"
_NOISE = re.compile(r"^(?:Caused by)?: |(?:org|java)\.[a-z.]+\.(?=\w+(?:Error|Exception)\b)| Consider setting .*")


class TaskLost(DdError):
    """One of several tasks that exchange messages has failed, or its executor is gone. Spark repeats none of them.

    ``text``: all that Spark says of it.
    """

    def __init__(self, message: str, hint: str = "", text: str = "") -> None:
        super().__init__(message, hint)
        self.text = text or message


def run_job(job: Callable[[], Result]) -> Result:
    """Run a Spark job. If it fails, raise a DdError with the one line of Spark's message that explains it.

    Spark has repeated what it can repeat by then. TaskLost: all tasks may begin again.
    """
    try:
        return job()
    except Exception as error:
        if not is_of_spark(error):
            raise
        again = "run it again: it continues where it stopped (--debug shows Spark's output)"
        message = f"the Spark job failed: {telling_line(error)}"
        if _BARRIER in str(error):
            raise TaskLost(message, again, masked(str(error))) from error
        raise DdError(message, again) from error


def is_of_spark(error: BaseException) -> bool:
    """Whether an error was raised by PySpark, or by the JVM or the server behind it."""
    return type(error).__module__.startswith(("pyspark", "py4j", "grpc"))


def telling_line(error: Exception) -> str:
    """The line of a Spark failure that explains it: the last error of a Python worker, else why a task was lost, else
    the first error of Java. If a connection failed: its status.
    """
    if connection := _CONNECTION.search(masked(str(error))):
        return f"{connection[1]}: {connection[2]}"[:LONGEST]
    lines = [line.strip() for line in masked(str(error)).splitlines() if line.strip()] or [type(error).__name__]
    errors = [line for line in lines if _TELLING.search(line)]
    losses = [match[1] for line in lines if (match := _LOST.search(line))]
    java = [line for line in lines if line.startswith(": ")]
    line = errors[-1] if errors else (losses or java or lines)[0]
    return _NOISE.sub("", line)[:LONGEST]
