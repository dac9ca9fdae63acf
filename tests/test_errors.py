"""Errors of a user's own functions: told in one line whatever they are; and a signal is no such error."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import polars as pl
import pytest

import ddcore as dd
from ddcore.base.errors import ExpressionError, is_interrupt
from ddcore.text.wording import described, one_line

LOG = pl.DataFrame({"a": [1], "version": [0], "diff": [1]})


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Stop(BaseException):
    pass


class Halt(KeyboardInterrupt):
    pass


def raising(error: BaseException) -> Callable[[Any], NoReturn]:
    def fail(frame: Any) -> NoReturn:
        raise error

    return fail


def leaving(frame: Any) -> NoReturn:
    sys.exit(0)


FAILURES: list[tuple[Callable[[Any], NoReturn], str]] = [
    (raising(AssertionError()), "AssertionError"),  # as of an assert without a text
    (raising(ValueError()), "ValueError"),
    (raising(ValueError("\n")), "ValueError"),
    (raising(ValueError("one\ntwo")), "ValueError: one two"),
    (raising(Mute()), "Mute"),
    (raising(Stop("now")), "Stop: now"),
    (raising(KeyboardInterrupt()), "KeyboardInterrupt"),
    (raising(Halt()), "Halt"),
    (leaving, "SystemExit: 0"),
]


@pytest.mark.parametrize(("function", "says"), FAILURES)
def test_one_line_with_the_function_s_own(function: Any, says: str) -> None:
    line = function.__code__.co_firstlineno + 1
    programs: list[Callable[[Any], Any]] = [
        lambda t: {"out": t.flat_map(function, schema={"y": "int64"})},
        lambda t: {"out": t.group_by("a").reduce(function, {"y": "int64"})},
    ]
    for program in programs:
        with pytest.raises(ExpressionError) as caught:
            dd.replay(program, t=LOG)
        message = caught.value.message
        assert message.startswith("test_errors.py:") and message.endswith(f"failed at test_errors.py:{line}: {says}")
        assert "\n" not in message and caught.value.hint
        assert pickle.loads(pickle.dumps(caught.value)).message == message


def test_texts_of_errors() -> None:
    assert one_line(ValueError("a\n  b")) == "a b"
    assert (one_line(Mute()), described(Mute())) == ("Mute", "Mute")
    assert described(KeyError("k")) == "KeyError: 'k'"


def interrupted(function: Callable[[], Any]) -> bool:
    try:
        function()
    except BaseException as error:
        return is_interrupt(error)
    raise AssertionError("nothing was raised")


def test_a_signal_is_an_interrupt_in_a_user_s_function_too() -> None:
    """With Python's own handler, and with one that raises, as the command line sets it."""

    def slow(frame: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return [number for number in range(10**9) if number < 0]

    class Handlers:
        def stop(self, number: int, frame: Any) -> NoReturn:
            raise KeyboardInterrupt

    def fold() -> Any:
        return dd.replay(lambda t: {"out": t.flat_map(slow, schema={"y": "int64"})}, t=LOG)

    before = signal.getsignal(signal.SIGINT)
    for handler in (signal.default_int_handler, Handlers().stop):
        signal.signal(signal.SIGINT, handler)
        try:
            assert interrupted(fold)
        finally:
            signal.signal(signal.SIGINT, before)


def test_what_a_user_raises_is_none() -> None:
    for function, _ in FAILURES:
        assert not interrupted(lambda function=function: function(LOG))  # type: ignore[misc]
