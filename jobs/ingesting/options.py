"""The options of an ingest that its steps ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ddcore.io.ledger.labels import Labels
from ddcore.io.project.times import Time

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """What an ingest may do with rows at closed times and versions far beyond others, what it calls versions; and
    the ``key`` of the input, and the columns of sources to ``ignore``, without a note.
    """

    late: str = "refuse"
    restate: Time | str | None = None
    allow_gap: bool = False
    label: Mapping[int, str] = field(default_factory=dict)
    labels: Labels = ()
    key: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
