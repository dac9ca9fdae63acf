"""A call with a stack of hundreds of megabytes: Polars descends an expression by recursion, a thousand levels deep."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
_STACK = 512 << 20  # bytes of address space; memory is used as far as a call descends


def call(function: Callable[[], Result]) -> Result:
    """What ``function`` returns, computed in a thread with a large stack; raises what it raises.

    Where no such thread can be had (``ulimit -v``), it is called with the stack that there is. Ctrl-C ends the waiting.
    """
    returned: list[Result] = []
    raised: list[BaseException] = []
    context = contextvars.copy_context()

    def work() -> None:
        try:
            returned.append(context.run(function))
        except BaseException as error:  # raised again by the caller
            raised.append(error)

    thread = threading.Thread(target=work, name="deep stack", daemon=True)
    before = threading.stack_size(_STACK)
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        return function()
    finally:
        threading.stack_size(before)
    thread.join()
    if raised:
        raise raised[0]
    return returned[0]
