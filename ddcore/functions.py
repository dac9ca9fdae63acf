"""User functions as text: what a fingerprint must see of a function, so that another function never passes for it.

The text covers the function's source, what it captured, and the functions and constants of its own module that it
names. It does not cover what those reach through other modules: a library is taken to mean the same tomorrow.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import pickle
import textwrap
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

import polars as pl

__all__ = ["name_of", "text_of"]

_PLAIN = (int, float, str, bytes, bool, type(None))
_CONSTANTS = (*_PLAIN, list, tuple, set, frozenset, dict, pl.Expr, pl.DataFrame, pl.Series, functools.partial)


def name_of(function: Any) -> str:
    """What to call a function in messages."""
    return getattr(function, "__name__", type(function).__name__).replace("<lambda>", "lambda")


def text_of(function: Any) -> str:
    """A text that differs where two functions may differ.

    The same in every process, wherever the function's file lies.
    """
    return "\n".join(_texts(function, set()))


def _texts(value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, pl.Expr):
        from ddcore.expressions import canonical

        yield canonical(value)
    elif isinstance(value, FunctionType):
        if id(value) not in seen:
            seen.add(id(value))
            yield from _function(value, seen)
    elif isinstance(value, list | tuple | set | frozenset):
        parts = ["\n".join(_texts(part, seen)) for part in value]
        yield f"{type(value).__name__} {sorted(parts) if isinstance(value, set | frozenset) else parts}"
    elif isinstance(value, dict):
        yield f"dict {[['; '.join(_texts(part, seen)) for part in pair] for pair in value.items()]}"
    elif isinstance(value, _PLAIN):
        yield repr(value)
    elif hasattr(value, "func") and hasattr(value, "keywords"):  # functools.partial
        for part in (value.func, value.args, value.keywords):
            yield from _texts(part, seen)
    elif isinstance(value, MethodType):
        yield from _texts((value.__self__, value.__func__), seen)
    else:
        yield f"{type(value).__module__}.{type(value).__qualname__} {_contents(value)}"


def _contents(value: Any) -> str:
    """What any other object holds: never its repr, which leaves out most of a large frame and may be an address."""
    try:
        return hashlib.sha256(pickle.dumps(value, protocol=5)).hexdigest()
    except Exception:  # what cannot be pickled is known by its type
        return ""


def _function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    code = function.__code__
    try:
        yield textwrap.dedent(inspect.getsource(function)).strip()
        if code.co_name == "<lambda>":  # the last column tells two of them on one line apart
            yield str(max((end or 0 for *_, end in code.co_positions()), default=0))
    except (OSError, TypeError):
        yield _code(code)
    yield from _texts((function.__defaults__, function.__kwdefaults__), seen)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        yield name
        try:
            yield from _texts(cell.cell_contents, seen)
        except ValueError:  # not filled yet: a function that names itself
            yield "itself"
    for name in sorted(_names(code)):
        value = function.__globals__.get(name)
        mine = isinstance(value, FunctionType) and value.__module__ == function.__module__
        if mine or (value is not None and isinstance(value, _CONSTANTS) and not name.startswith("__")):
            yield name
            yield from _texts(value, seen)


def _names(code: CodeType) -> set[str]:
    """Global names that a function, or one inside of it, may read."""
    inner = (value for value in code.co_consts if isinstance(value, CodeType))
    return set(code.co_names).union(*(_names(each) for each in inner))


def _code(code: CodeType) -> str:
    """What a function without a source does: its byte code and constants, nested functions included."""
    constants = [
        _code(value) if isinstance(value, CodeType) else "\n".join(_texts(value, set())) for value in code.co_consts
    ]  # a frozenset among them is in another order in every process
    return f"{code.co_code.hex()} {code.co_names} {constants}"
