"""``dd.constant`` and ``dd.now``: collections that are made from no other one.

A program is called by the planner and by the naive evaluator. Such a collection has no other to be made from, so
whoever calls a program says what it is made by.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import DataError, ProgramError
from ddcore.base.source_line import caller
from ddcore.data.foreign_frames import as_frame
from ddcore.text.wording import kind_of

if TYPE_CHECKING:
    import polars as pl

    from ddcore.program.collection import Collection


@dataclass(frozen=True)
class Maker:
    """What collections that are made from no other one are made by: those of rows, and the one of ``dd.now``."""

    constant: Callable[[pl.DataFrame], Any]
    now: Callable[[], Any]


_MAKER: ContextVar[Maker | None] = ContextVar("maker", default=None)
_EXAMPLE = 'for example dd.constant(pl.DataFrame({"kind": ["open", "closed"]}))'


def constant(rows: Any) -> Collection:
    """A collection of these rows at every version, from the least one on, whatever the inputs hold.

    ``rows``: a frame (Polars, Arrow, pandas) or a dict of columns, without version and diff; equal rows count as often
    as they are there. They become part of the program: with other rows it is another program. Meant for some hundred
    rows; more are better off in an input. Raises ProgramError.
    """
    maker = _maker("constant")
    where = caller()
    try:
        frame = as_frame(rows, "")
    except (DataError, ProgramError):  # a collection, in whatever it is, refuses to be asked for its length
        raise ProgramError(f"{where}: constant: {kind_of(rows)} is no frame", _EXAMPLE) from None
    if not frame.columns:
        raise ProgramError(f"{caller()}: constant: the frame has no columns", _EXAMPLE)
    made: Collection = maker.constant(frame)
    return made


def now() -> Collection:
    """A collection of one row with one column, ``now``: the instant of the version, a timestamp.

    At a time of several dimensions it is the latest of the instants of its coordinates. A version without an instant
    has that of the version before. In a warehouse instants come with ingests (docs/version-names.md); ``dd.replay`` and
    ``Session.fold`` take them as ``instants=``. Raises ProgramError.
    """
    made: Collection = _maker("now").now()
    return made


def _maker(name: str) -> Maker:
    maker = _MAKER.get()
    if maker is None:
        raise ProgramError(f"{caller()}: {name} is called outside of a program", "call it in the program's function")
    return maker


def told(program: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The program with one more input, whose rows are the one of :func:`now`."""

    def with_input(**inputs: Any) -> Any:
        instants = inputs.pop(name)
        with making(_maker(name).constant, lambda: instants):
            return program(**inputs)

    signature, more = inspect.signature(program), inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
    parameters = [*signature.parameters.values()]
    if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters):  # programs of SQL take any inputs
        parameters.append(more)
    with_input.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_input


@contextmanager
def making(constant: Callable[[pl.DataFrame], Any], now: Callable[[], Any]) -> Iterator[None]:
    """Such collections of the program that is called meanwhile are made by these."""
    token = _MAKER.set(Maker(constant, now))
    try:
        yield
    finally:
        _MAKER.reset(token)
