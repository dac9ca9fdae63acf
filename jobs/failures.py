"""Failures of a fold in one line: what a user's function raised, and what Spark says of a failed job."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from ddcore.errors import DdError, ExpressionError, FoldError
from ddcore.wording import shown

__all__ = ["fold_errors", "is_of_spark", "one_line", "run_job", "telling_line"]

Result = TypeVar("Result")

_LONGEST = 300  # characters of a message that is not ours
_PROGRAM = "_ddcore_program"  # the name of the module of every program's file begins so: see ddcore.io.program

_TELLING = re.compile(r"^[\w.]*(Error|Exception): |crashed")
_LOST = re.compile(r"most recent failure: .*?\(TID.*?\): (.+)")
_NOISE = re.compile(r"^(?:Caused by)?: |(?:org|java)\.[a-z.]+\.(?=\w+(?:Error|Exception)\b)| Consider setting .*")


@contextmanager
def fold_errors() -> Iterator[None]:
    """Turn any error of a user's function, ``SystemExit`` included, into an ExpressionError that names its line.

    MemoryError becomes a FoldError. KeyboardInterrupt, GeneratorExit and errors without a frame in the user's program
    pass unchanged.
    """
    try:
        yield
    except (DdError, KeyboardInterrupt, GeneratorExit):
        raise
    except MemoryError as error:
        raise FoldError(
            f"the fold ran out of memory: {one_line(error)}",
            "fold fewer versions at a time with --to-version, or give it more memory",
        ) from error
    except BaseException as error:
        first, place = _of_user(error)
        if not place and isinstance(error, Exception):
            raise
        raise ExpressionError(
            f"{place or 'the program'}: the function failed: {one_line(first)}", "fix the function, then run again"
        ) from error


def one_line(error: BaseException) -> str:
    """An error in one line: the message of a DdError; else its class, and its text if it can be printed."""
    if isinstance(error, DdError):
        return error.message
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    try:
        text = " ".join(str(error).split())[:_LONGEST]
    except Exception:  # the error's own __str__ failed
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _of_user(error: BaseException) -> tuple[BaseException, str]:
    """The first error in the chain of causes that was raised in the user's program, with its ``FILE:LINE``.

    If there is none: the error itself and an empty place.
    """
    chain: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in chain:
        chain.append(each)
        each = each.__cause__ or each.__context__
    for one in reversed(chain):
        places = [
            f"{shown(Path(frame.f_code.co_filename))}:{line}"
            for frame, line in traceback.walk_tb(one.__traceback__)
            if str(frame.f_globals.get("__name__")).startswith(_PROGRAM) and frame.f_code.co_filename[0] != "<"
        ]
        if places:
            return one, places[-1]
    return error, ""


def run_job(job: Callable[[], Result]) -> Result:
    """Run a Spark job. If it fails, raise a DdError with the one line of Spark's message that explains it."""
    try:
        return job()
    except Exception as error:
        if not is_of_spark(error):
            raise
        again = "run it again: it continues where it stopped (--debug shows Spark's output)"
        raise DdError(f"the Spark job failed: {telling_line(error)}", again) from error


def is_of_spark(error: BaseException) -> bool:
    """Whether an error was raised by PySpark, or by the JVM behind it."""
    return type(error).__module__.startswith(("pyspark", "py4j"))


def telling_line(error: Exception) -> str:
    """The line of a Spark failure that explains it: the last error of a Python worker, else why a task was lost, else
    the first error of Java.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    errors = [line for line in lines if _TELLING.search(line)]
    losses = [match[1] for line in lines if (match := _LOST.search(line))]
    java = [line for line in lines if line.startswith(": ")]
    line = errors[-1] if errors else (losses or java or lines)[0]
    return _NOISE.sub("", line)[:_LONGEST]
