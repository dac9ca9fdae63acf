"""Places between two durable effects where a test may kill the process, stop it by a signal, or fill the disk.

``DDCORE_FAILPOINT=NAME`` acts when the process first reaches that place, ``NAME:3`` when it does so the third time.
``NAME=ACTION`` or ``NAME:3=ACTION`` says what happens there:

``kill``       SIGKILL: no handler runs, nothing is flushed; the default
``term``       SIGTERM
``int``        SIGINT
``halt``       SIGSTOP: the process goes on when it gets SIGCONT, and notices nothing
``full``       "no space left on device", there and at every place that is reached later
``full-once``  "no space left on device", there only

``DDCORE_FAILPOINT_LOG=FILE`` appends a line to the file for each place that is reached: the process and the place.
Outside tests both variables are unset, and a failpoint costs two look-ups. A new place needs a line in ``PLACES`` and
one in docs/storage.md; tests compare these with the calls.
"""

from __future__ import annotations

import errno
import os
import signal
from collections import Counter
from dataclasses import dataclass, field

from ddcore.base.errors import UsageError

VARIABLE = "DDCORE_FAILPOINT"
LOG_VARIABLE = "DDCORE_FAILPOINT_LOG"

# Every place, by the durable effect that it lies just after.
PLACES = {
    "after-warehouse": "the warehouse's folder was created",
    "after-lock": "the lock was taken, and its file names the process",
    "after-begin": "the ledger's table was created",
    "after-folder": "the folder of a new table was created",
    "after-create": "a table was created, or emptied because its columns changed",
    "after-write": "a data file was written under its temporary name",
    "after-file": "a data file got its final name",
    "after-columns": "an input's table got the columns that dd.toml added",
    "after-restore": "a table was restored to its state in the ledger, which another commit had changed",
    "after-properties": "a restored table got back its properties",
    "after-table": "a table was committed",
    "after-published": "the table with the present contents of an output was committed",
    "after-stray": "a file of an unfinished ingest was removed",
    "after-correction": "a file was removed that was only needed to find a correction",
    "after-aside": "a damaged table was renamed; in an object store, a step of beginning its log anew",
    "after-ledger-file": "a data file of the ledger got its final name",
    "after-statistics": "the statistics of inputs were written, by which joins of SQL are ordered",
    "after-intent": "the intent of a run was recorded in the ledger",
    "after-failure": "the failure of a run was recorded in the ledger",
    "after-run": "a finished run was recorded in the ledger",
    "after-part": "a finished run of some outputs alone was recorded in the ledger",
    "after-ingest": "an ingest was recorded in the ledger",
    "after-undo": "the undo of an ingest was recorded in the ledger",
    "after-compact": "a compaction was recorded in the ledger",
    "after-sweep": "a merged file of the ledger, or an old entry of its Delta log, was removed",
    "after-delete": "a data file that nothing needs was removed",
    "after-trim": "an old entry of a table's Delta log was removed",
    "after-drop": "a table of state that nothing needs was renamed, to be removed",
    "after-shared": "a table was shared with a branch that is being made",
    "after-branch": "a branch was made",
    "after-reader": "a warehouse got its identity as a reader of another one's inputs",
    "after-hold": "a reader's hold on the inputs of another warehouse was written there",
    "after-unbranch": "a branch was renamed, to be removed; in an object store, its note was deleted",
}

_SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT, "halt": signal.SIGSTOP}
_ACTIONS = (*_SIGNALS, "full", "full-once")


@dataclass
class _Past:
    """How often each place was reached, and whether the disk is full from now on. Of the process, as are the variables
    that say what happens, and the disk.
    """

    reached: Counter[str] = field(default_factory=Counter)
    is_full: bool = False


_past = _Past()


def failpoint(name: str) -> None:
    """Do what the environment variables say for this place.

    Raises OSError where the disk is to be full, UsageError for a variable that says nothing sensible.
    """
    assert name in PLACES, f"{name} is not in the table of failpoints"
    setting, log = os.environ.get(VARIABLE), os.environ.get(LOG_VARIABLE)
    if not (setting or log):
        return
    _past.reached[name] += 1
    if log:
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {name}\n")
    if not setting:
        return
    point, times, action = _parse(setting)
    is_there = point == name and _past.reached[name] == times
    if is_there and action in _SIGNALS:
        os.kill(os.getpid(), _SIGNALS[action])
    _past.is_full |= is_there and action == "full"
    if _past.is_full or (is_there and action == "full-once"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _parse(setting: str) -> tuple[str, int, str]:
    """The place, how often it is to be reached, and the action."""
    where, _, action = setting.partition("=")
    point, _, times = where.partition(":")
    action, times = action or "kill", times or "1"
    if point not in PLACES or action not in _ACTIONS or not times.isdecimal() or int(times) == 0:
        raise UsageError(
            f"{VARIABLE}={setting}: no such place or action", "places and actions are listed in docs/storage.md"
        )
    return point, int(times), action
