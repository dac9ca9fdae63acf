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

__all__ = ["fold_errors", "is_of_spark", "run_job", "said", "telling_line"]

Result = TypeVar("Result")

_LONGEST = 300  # characters of another's message
_PROGRAM = "_ddcore_program"  # how the module of every program's file is called: see ddcore.io.program

_TELLING = re.compile(r"^[\w.]*(Error|Exception): |crashed")
_LOST = re.compile(r"most recent failure: .*?\(TID.*?\): (.+)")
_NOISE = re.compile(r"^(?:Caused by)?: |(?:org|java)\.[a-z.]+\.(?=\w+(?:Error|Exception)\b)| Consider setting .*")


@contextmanager
def fold_errors() -> Iterator[None]:
    """Inside, what a user's function raises leaves as an ExpressionError that names its line, whatever its class:
    ``SystemExit`` too, and errors that cannot be printed. Memory that ran out is a FoldError.

    KeyboardInterrupt and GeneratorExit come from outside, and pass; so do errors that no function of the user's is
    part of.
    """
    try:
        yield
    except (DdError, KeyboardInterrupt, GeneratorExit):
        raise
    except MemoryError as error:
        raise FoldError(
            f"the fold ran out of memory: {said(error)}",
            "fold fewer versions at a time with --to-version, or give it more memory",
        ) from error
    except BaseException as error:
        first, place = _of_user(error)
        if not place and isinstance(error, Exception):
            raise
        raise ExpressionError(
            f"{place or 'the program'}: the function failed: {said(first)}", "fix the function, then run again"
        ) from error


def said(error: BaseException) -> str:
    """An error in one line: its message where it is one of ours, else its class and what it says, if it can say it."""
    if isinstance(error, DdError):
        return error.message
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    try:
        text = " ".join(str(error).split())[:_LONGEST]
    except Exception:  # of the error's own __str__
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _of_user(error: BaseException) -> tuple[BaseException, str]:
    """The error that began in the user's program, of all that led to this one, and ``FILE:LINE`` there; or the error
    itself, and no place.
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
    """Run a Spark job; what Spark says of its failure becomes one line, a DdError."""
    try:
        return job()
    except Exception as error:
        if not is_of_spark(error):
            raise
        again = "run it again: it goes on where it stopped (--debug shows Spark's output)"
        raise DdError(f"the Spark job failed: {telling_line(error)}", again) from error


def is_of_spark(error: BaseException) -> bool:
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
    return _NOISE.sub("", line)[:_LONGEST]
