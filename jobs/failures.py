"""Failures of a fold in one line: what a user's function raised, and where."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ddcore.base.errors import DdError, ExpressionError, FoldError
from ddcore.text.redaction import masked
from ddcore.text.wording import shown

LONGEST = 300  # characters of a message that is not ours
_PROGRAM = "_ddcore_program"  # the name of the module of every program's file begins so: see ddcore.io.project.program


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
        raise out_of_memory(one_line(error)) from error
    except BaseException as error:
        first, line = _of_user(error)
        if not line and isinstance(error, Exception):
            raise
        if not line and type(error).__module__ == "pyo3_runtime":  # a panic of Rust is not an Exception
            raise FoldError(f"a library failed: {one_line(error)}", "this should not happen: see --debug") from error
        raise ExpressionError(
            f"{line or 'the program'}: the function failed: {one_line(first)}", "fix the function, then run again"
        ) from error


def out_of_memory(what: str) -> FoldError:
    """The error of a fold for which a process had too little memory."""
    return FoldError(
        f"the fold ran out of memory: {what}",
        "say how much there is, for example --memory 2GiB: what does not fit then goes to temporary files",
    )


def one_line(error: BaseException) -> str:
    """An error in one line: the message of a DdError; else its class, and its text if it can be printed."""
    if isinstance(error, DdError):
        return error.message
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    try:
        text = " ".join(masked(str(error)).split())[:LONGEST]  # masked first: a cut could leave half a secret
    except Exception:  # the error's own __str__ failed
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _of_user(error: BaseException) -> tuple[BaseException, str]:
    """The first error in the chain of causes that was raised in the user's program, with its ``FILE:LINE``.

    If there is none: the error itself and an empty place.
    """
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    for one in reversed(chain):
        lines = [
            f"{shown(Path(frame.f_code.co_filename))}:{line}"
            for frame, line in traceback.walk_tb(one.__traceback__)
            if str(frame.f_globals.get("__name__")).startswith(_PROGRAM) and frame.f_code.co_filename[0] != "<"
        ]
        if lines:
            return one, lines[-1]
    return error, ""
