"""What Spark says of a failed job, in one line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from ddcore.errors import DdError

__all__ = ["is_of_spark", "run_job", "telling_line"]

Result = TypeVar("Result")

_TELLING = re.compile(r"^[\w.]*(Error|Exception): |crashed")
_LOST = re.compile(r"most recent failure: .*?\(TID.*?\): (.+)")
_NOISE = re.compile(r"^(?:Caused by)?: |(?:org|java)\.[a-z.]+\.(?=\w+(?:Error|Exception)\b)| Consider setting .*")


def run_job(job: Callable[[], Result]) -> Result:
    """Run a Spark job; what Spark says of its failure becomes one line, a DdError."""
    try:
        return job()
    except Exception as error:
        if not is_of_spark(error):
            raise
        again = "run it again: it goes on where it stopped (--debug shows Spark's output)"
        raise DdError(f"the Spark job failed: {telling_line(error)}", again) from error


def is_of_spark(error: Exception) -> bool:
    """Whether an error was raised by PySpark, or by the JVM behind it."""
    return type(error).__module__.startswith(("pyspark", "py4j"))


def telling_line(error: Exception) -> str:
    """The part of a Spark failure that says most: the last error a Python worker named, else why a task was lost, else
    what Java raised first.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    told = [line for line in lines if _TELLING.search(line)]
    lost = [found[1] for line in lines if (found := _LOST.search(line))]
    java = [line for line in lines if line.startswith(": ")]
    line = told[-1] if told else (lost or java or lines)[0]
    return _NOISE.sub("", line)[:300]
