"""Places between two durable effects where a test may kill the process.

``DDCORE_FAILPOINT=after-intent`` kills the process (SIGKILL: no handler runs, nothing is flushed) when it first reaches
that place, ``after-table:3`` when it does so the third time. Outside tests the variable is unset, and a failpoint costs
one look-up. docs/storage.md lists the names.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

__all__ = ["VARIABLE", "failpoint"]

VARIABLE = "DDCORE_FAILPOINT"
_reached: Counter[str] = Counter()


def failpoint(name: str) -> None:
    """Kill this process if the environment variable names this place."""
    setting = os.environ.get(VARIABLE)
    if not setting:
        return
    place, _, times = setting.partition(":")
    if place == name:
        _reached[name] += 1
        if _reached[name] >= int(times or 1):
            os.kill(os.getpid(), signal.SIGKILL)
