"""How kernels are compiled.

Every kernel has one explicit signature, so it is compiled once at set-up, kept in the user's cache folder and loaded
in milliseconds by every later process: see :mod:`ddcore.compiling.kernel_cache`. Processes that need the same missing
kernels at once, as those of the set-up or workers of one machine, share them. Only a process that compiles one imports
numba.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from threading import Lock
from typing import Any

from ddcore.compiling import compilation, kernel_cache, linked_kernels
from ddcore.compiling.native import Array, Code, function_of, linked, symbols_in

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
                native = _missing(name, functools.partial(_compiled, function, returns, arguments))
            else:
                native = linked(name, code)
        loaded: Any = function_of(name, native, arguments)
        loaded.py_func = function
        return loaded

    return decorate


def _missing(name: str, compiled: Callable[[], Code]) -> Callable[..., Any]:
    """A kernel that is compiled here and kept; where another process does that just now, at its first call, which waits
    for it.
    """
    with kernel_cache.claimed(name) as is_ours:
        if is_ours:
            kernel_cache.announce()
            return linked(name, _made(name, compiled))
    lock, found = Lock(), list[Callable[..., Any]]()

    def native(*values: Any) -> Any:
        with lock:
            if not found:
                kernel_cache.announce()
                with kernel_cache.claimed(name, wait=True):
                    found.append(linked(name, _made(name, compiled)))
        return found[0](*values)

    return native


def _made(name: str, compiled: Callable[[], Code]) -> Code:
    code = kernel_cache.load(name)  # another process may have made it meanwhile
    if code is None:
        code = compiled()
        kernel_cache.store(name, code)
    else:
        compilation.end()
    return code


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

    @cached_property
    def dispatcher(self) -> Any:
        """What numba compiles where a kernel calls the helper."""
        return _jit(self.py_func, inlined=self.forced)


class apart(inline):
    """A helper that is long, or seldom called: one function that its callers share."""

    forced = False


def _jit(function: Callable[..., Any], *signatures: Any, inlined: bool = False) -> Any:
    """``inlined``: LLVM compiles it into its callers, however long it is."""
    options = {"nogil": True, "error_model": "numpy", "inline": "never", "forceinline": inlined}
    return _numba().njit(*signatures, **options)(function)


@functools.lru_cache(maxsize=1)
def _numba() -> Any:
    """numba, which knows from then on what a helper is."""
    import numba
    from numba.extending import typeof_impl

    typeof: Any = numba.typeof
    typeof_impl.register(inline)(lambda helper, _: typeof(helper.dispatcher))
    return numba


def _compiled(function: Callable[..., Any], returns: Kind | Sequence[Kind], arguments: Sequence[Kind]) -> Code:
    """A compiled kernel: numba's LLVM code, as an object file for this processor."""
    from llvmlite import binding

    result: Any = _numba_type(returns)
    with _plain_loops():
        dispatcher = _jit(function, result(*map(_numba_type, arguments)))
    (text,) = dispatcher.inspect_llvm().values()
    triple, name, features = kernel_cache.target()
    machine = binding.Target.from_triple(triple).create_target_machine(
        cpu=name, features=features, opt=3, reloc="static" if triple.startswith("x86") else "default",
        codemodel="jitdefault", jit=True,
    )  # fmt: skip
    entry, environment = symbols_in(text)
    results = [returns] if isinstance(returns, Array) else [kind for kind in returns if isinstance(kind, Array)]
    constants = dict.fromkeys(kind.dtype for kind in results)
    return Code(entry, {environment: [*constants]}, machine.emit_object(binding.parse_assembly(text)))


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
