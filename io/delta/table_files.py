"""The files of a Delta table, and a version of it as the ledger keeps it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A data file that is written and not yet visible, as a commit needs it. Can be sent between processes.

    ``path`` is relative to the table; ``stats`` is Delta's statistics as JSON text.
    """

    path: str
    size: int
    rows: int
    stats: str
    partition: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of one version of a table. ``lower`` and ``upper`` bound the columns that have statistics."""

    path: str
    size: int
    rows: int
    lower: Mapping[str, Any]
    upper: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TableState:
    """A version of a table as the ledger keeps it: the numbers of its live files and rows, and a digest.

    ``digest`` covers the columns, and the path, size, rows and integer bounds of every live file.
    """

    version: int
    files: int
    rows: int
    digest: str


def state_of(version: int, columns: Sequence[tuple[str, str]], files: Sequence[LiveFile]) -> TableState:
    """The state of a table for the ledger. Only integer bounds count: libraries all read those alike."""
    lines = [repr([*columns])]
    for file in files:
        bounds = [sorted((name, n) for name, n in side.items() if type(n) is int) for side in (file.lower, file.upper)]
        lines.append(repr((file.path, file.size, file.rows, *bounds)))
    digest = hashlib.blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()
    return TableState(version, len(files), sum(file.rows for file in files), digest)
