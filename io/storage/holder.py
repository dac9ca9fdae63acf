"""The process that holds the lock of a warehouse, as messages name it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds the lock, as the lock says. ``run`` is 0 until its run has a number."""

    host: str
    pid: int
    since: str
    command: str
    run: int = 0

    def __str__(self) -> str:
        run = f", run {self.run}" if self.run else ""
        return f"{self.command} (host {self.host}, pid {self.pid}, since {self.since}{run})"


def this_process(command: str, run: int) -> Holder:
    """This process, as the holder of a lock that it takes now."""
    since = datetime.now(UTC).isoformat(timespec="milliseconds")
    return Holder(socket.gethostname(), os.getpid(), since, command, run)


def is_alive(pid: int) -> bool:
    """Whether a process of this host runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
