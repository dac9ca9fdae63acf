"""One line for a failed Spark job, from what Spark says."""

from __future__ import annotations

import pytest

from ddcore.jobs.failures import telling_line

LOST = "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0 in "
PYTHON = '  File "tasks.py", line 3, in step\nValueError: not this row\n\n\tat org.apache.spark.Runner.run'
SAID = [
    (f"call o5.\n: org.apache.spark.SparkException: {LOST}stage 0.0 (TID 0) (h executor 1): boom\nTraceback:\n{PYTHON}",
     "ValueError: not this row"),
    (f"call o5.\n: org.apache.spark.SparkException: {LOST}stage 0.0 (TID 0) (h executor 1): java.io.IOException: full",
     "IOException: full"),
    ("call.\nCaused by: org.apache.spark.SparkException: Python worker (crashed). Consider setting it",
     "SparkException: Python worker (crashed)."),
    ("An error occurred while calling o59.count.\n: org.apache.spark.SparkException: no more\n\tat org.apache.spark.X",
     "SparkException: no more"),
    ("connection lost", "connection lost"),
    ("", "RuntimeError"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "told"), SAID)
def test_the_line_that_says_most(said: str, told: str) -> None:
    assert telling_line(RuntimeError(said)) == told
