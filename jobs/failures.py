"""What Spark says of a failed job, in one line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from ddcore.errors import DdError

__all__ = ["is_of_spark", "run_job", "telling_line"]

Result = TypeVar("Result")

_TELLING = re.compile(r"^[\w.]*(Error|Exception): |crashed")


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
    """The line of a Spark failure that says most: the last error a Python worker named, else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    told = [line for line in lines if _TELLING.search(line)]
    return (told or lines)[-1 if told else 0][:300]
