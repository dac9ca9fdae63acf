"""One line for a failed Spark job, from what Spark says."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from ddcore.base.errors import DdError, ExpressionError, FoldError
from ddcore.jobs.failures import fold_errors, one_line
from ddcore.jobs.spark import session
from ddcore.jobs.spark.failures import telling_line
from ddcore.jobs.spark.gateway import _ending

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
    ('<RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n\tdetails = "no route"\n\tdebug = "x"\n>',
     "UNAVAILABLE: no route"),
    ("connection lost", "connection lost"),
    ("", "RuntimeError"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "expected"), SAID)
def test_the_line_that_says_most(said: str, expected: str) -> None:
    assert telling_line(RuntimeError(said)) == expected


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Mute(), "Mute"),
        (KeyError("x\ny"), r"KeyError: 'x\ny'"),
        (ValueError("two\nlines"), "ValueError: two lines"),
        (SystemExit(0), "SystemExit: 0"),
        (KeyboardInterrupt(), "interrupted"),
        (DdError("ours", "a hint"), "ours"),
        (ValueError("x" * 10_000), "ValueError: " + "x" * 300),
    ],
)
def test_any_error_in_one_line(error: BaseException, expected: str) -> None:
    assert one_line(error) == expected


@pytest.mark.parametrize(
    ("error", "leaves"),
    [
        (SystemExit(0), ExpressionError),
        (BaseException("odd"), ExpressionError),
        (MemoryError(), FoldError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (GeneratorExit(), GeneratorExit),
        (KeyError("a bug of ours"), KeyError),
        (FoldError("ours"), FoldError),
    ],
)
def test_what_leaves_a_fold(error: BaseException, leaves: type[BaseException]) -> None:
    with pytest.raises(leaves), fold_errors():
        raise error


ENDINGS = {
    "kill -9 $$": "killed by SIGKILL; ",
    "kill -15 $$": "killed by SIGTERM",
    "exit 137": "killed by SIGKILL; ",
    "exit 3": "exit code 3",
    "exit 0": "exit code 0",
}


@pytest.mark.parametrize(("command", "how"), ENDINGS.items())
def test_how_a_process_ended(command: str, how: str) -> None:
    with subprocess.Popen(["sh", "-c", command]) as process:
        assert _ending(process, 10).startswith(how)
    with subprocess.Popen(["sleep", "60"]) as process:
        assert _ending(process, 0.0) == ""
        process.kill()


@pytest.mark.parametrize(("value", "shown"), [("1", True), ("0", False), ("", False), (None, False)])
@pytest.mark.parametrize("start", ["spark_context", "spark"])
def test_debug_reaches_spark(start: str, value: str | None, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[Any] = []

    def launch(conf: Any, environment: Any, scratch: Any) -> None:
        launched.append("-Dddcore.log=warn" in conf["spark.driver.extraJavaOptions"])
        raise DdError("far enough")

    monkeypatch.setattr(session, "launch", launch)
    monkeypatch.setattr(session, "_is_callers", lambda: False)
    if value is None:
        monkeypatch.delenv("DDCORE_DEBUG", raising=False)
    else:
        monkeypatch.setenv("DDCORE_DEBUG", value)
    with pytest.raises(DdError, match="far enough"), getattr(session, start)({}, "local[1]"):
        pytest.fail("nothing was to be started")
    assert launched == [shown]
