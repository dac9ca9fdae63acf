"""Places where a test may end the process the hard way, between two durable effects.

``DDCORE_FAILPOINT=after-intent`` kills the process (SIGKILL: no handler runs, nothing is flushed) the first time that
place is reached, ``after-table:3`` the third time. Unset, as it always is outside tests, a failpoint costs one
look-up. docs/storage.md lists the names.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

__all__ = ["VARIABLE", "failpoint"]

VARIABLE = "DDCORE_FAILPOINT"
_reached: Counter[str] = Counter()


def failpoint(name: str) -> None:
    """Kill this process if the environment asks for it at ``name``."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    place, _, times = wanted.partition(":")
    if place == name:
        _reached[name] += 1
        if _reached[name] >= int(times or 1):
            os.kill(os.getpid(), signal.SIGKILL)
