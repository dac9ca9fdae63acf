"""Memory that ran out, and limits on it: one line, as far as this process can still write one.

A Rust library that cannot allocate ends the process (SIGABRT), and some C libraries crash (SIGSEGV): no handler of
Python runs then. So a limit of address space that is too small for the libraries is refused before they are loaded,
and one that is nearly so is named at once.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Sequence

from ddcore.base.errors import UsageError
from ddcore.cli.output import Output
from ddcore.text.wording import one_line

_LEAST, _ENOUGH = 2 << 30, 4 << 30  # bytes of address space, mostly of mapped libraries and of stacks
_OUT = re.compile(
    "failed to map segment|cannot allocate memory|memory allocation|out of memory|can't start new thread|bad_alloc",
    re.I,
)
_LIGHT = ("init", "--version", "--show-completion", "--install-completion")  # as the first word
_RAISE = "raise it: ulimit -v unlimited; for folds in little memory there is: ddcore run --memory SIZE"


def check_limit(arguments: Sequence[str]) -> None:
    """Raise UsageError where the limit of address space is too small for the libraries; warn where it is close."""
    limit = _limit()
    is_light = not arguments or arguments[0] in _LIGHT or bool({"-h", "--help"} & {*arguments})
    if limit is None or limit >= _ENOUGH or is_light:
        return
    if limit < _LEAST:
        raise UsageError(
            f"the limit of memory is {limit >> 20:,} MiB of address space (ulimit -v), and the libraries need "
            f"{_LEAST >> 20:,} MiB to start",
            _RAISE,
        )
    Output().warn(
        f"the limit of memory is {limit >> 20:,} MiB of address space (ulimit -v), less than {_ENOUGH >> 20:,} MiB: "
        f"where it is reached, a library may end this process without a word. {_RAISE[0].upper()}{_RAISE[1:]}"
    )


def limit_text() -> str:
    """The limit of address space, for a message; empty without one."""
    limit = _limit()
    return "" if limit is None else f"; the limit is {limit >> 20:,} MiB of address space (ulimit -v)"


def ran_out(error: BaseException) -> bool:
    """Whether an error, or one that it came from, says so. A failed import may become a NameError."""
    return any(_says_so(link) for link in _chain(error))


def _says_so(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return isinstance(error, ImportError | RuntimeError | OSError) and _OUT.search(one_line(error)) is not None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen = list[BaseException]()
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__


def _limit() -> int | None:
    try:
        import resource
    except ImportError:  # not on this system
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft
