"""How kernels are compiled.

Every kernel has one explicit signature, so it is compiled once at set-up, kept in the user's cache folder and loaded
in milliseconds by every later process: see :mod:`ddcore.compiling.kernel_cache`. Only a process that compiles one
imports numba.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from ddcore.compiling import kernel_cache, linked_kernels
from ddcore.compiling.native import Array, Code, function_of, linked

INT, BOOL, VOID = "int64", "boolean", "void"
# Inputs are read-only so that read-only Arrow buffers can be passed.
IN1, IN2 = Array("int64", 1), Array("int64", 2)
OUT1, OUT2 = Array("int64", 1, writes=True), Array("int64", 2, writes=True)

_INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
Kind = Array | str


def kernel(returns: Kind | Sequence[Kind], *arguments: Kind) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for exactly these types, or load it from the cache; it runs without the GIL."""

    def decorate(function: Any) -> Any:
        if _INTERPRETED:
            return function
        name = f"{function.__module__.rsplit('.', 1)[-1]}.{function.__qualname__}"
        native = linked_kernels.function(name)
        if native is None:
            code = kernel_cache.load(name)
            if code is None:
                kernel_cache.announce()
                code, processor = _compiled(function, returns, arguments)
                kernel_cache.store(name, processor, code)
            native = linked(name, code)
        loaded: Any = function_of(name, native, arguments)
        loaded.py_func = function
        return loaded

    return decorate


def several(*kinds: Kind) -> tuple[Kind, ...]:
    """The type of a kernel that returns several values."""
    return kinds


class inline:
    """A small helper of kernels, compiled into each place that calls it.

    LLVM itself leaves such a function apart, because an array is some ten arguments to it. Each call of one then passes
    them in memory and counts references to its arrays by locked instructions, which takes longer than the few rows of a
    key.
    """

    forced = True

    def __init__(self, function: Callable[..., Any]) -> None:
        self.py_func = function

    def __call__(self, *arguments: Any) -> Any:
        """Call it without compiling it."""
        return self.py_func(*arguments)

    @property
    def _numba_type_(self) -> Any:
        """What numba takes this for, where it compiles a kernel that calls it: a function that it compiles as well."""
        return self._dispatcher._numba_type_

    @cached_property
    def _dispatcher(self) -> Any:
        return _dispatcher(self.py_func, self.forced)


class apart(inline):
    """A helper that is long, or seldom called: one function that its callers share."""

    forced = False


def _dispatcher(function: Callable[..., Any], inlined: bool = False) -> Any:
    """``inlined``: LLVM compiles it into its callers, however long it is."""
    import numba

    return numba.njit(nogil=True, error_model="numpy", inline="never", forceinline=inlined)(function)


def _compiled(
    function: Callable[..., Any], returns: Kind | Sequence[Kind], arguments: Sequence[Kind]
) -> tuple[Code, tuple[str, str, str]]:
    """A compiled kernel, and the processor that numba has compiled it for."""
    from numba.core import typeinfer

    result: Any = _numba_type(returns)
    dispatcher = _dispatcher(function)
    with typeinfer.register_dispatcher(dispatcher), _plain_loops():
        dispatcher.compile(result(*map(_numba_type, arguments)))
    (compiled,) = dispatcher.overloads.values()
    context, description = compiled.target_context, compiled.fndesc
    _, _, (objects, _) = compiled.library.serialize_using_object_code()
    environments = {context.get_env_name(description): compiled.environment}
    environments |= {each.env_name: each for each in compiled._find_referenced_environments() if each.consts}
    constants = {name: [str(constant) for constant in each.consts] for name, each in environments.items()}
    return Code(description.llvm_cpython_wrapper_name, constants, objects), context.codegen().magic_tuple()


@contextmanager
def _plain_loops() -> Iterator[None]:
    """Inside, LLVM does not vectorize loops: most are over the few rows of a key, or the few columns of a row, where
    the tests before the vectorized part take longer than the loop.
    """
    from numba import config

    before: Any = config.LOOP_VECTORIZE  # type: ignore[attr-defined]
    config.LOOP_VECTORIZE = 0  # type: ignore[attr-defined]
    try:
        yield
    finally:
        config.LOOP_VECTORIZE = before  # type: ignore[attr-defined]


def _numba_type(kind: Any) -> Any:
    from numba import types

    if isinstance(kind, Array):
        return types.Array(getattr(types, kind.dtype), kind.dims, "C", readonly=not kind.writes)
    if isinstance(kind, tuple):
        return types.Tuple([*map(_numba_type, kind)])  # type: ignore[no-untyped-call]
    return getattr(types, kind)
