"""The summary of a ledger's rows up to one of them: what most commands need, so that they need not read the others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from ddcore.base import as_json
from ddcore.base.as_json import Forms, mapped, nested
from ddcore.base.lattice import Frontier
from ddcore.io.delta.table_files import TableState
from ddcore.io.ledger.records import FRONTIER, TIME
from ddcore.io.project import frontiers
from ddcore.io.project.times import Time


@dataclass(frozen=True, slots=True)
class Input:
    """An input after all ingests: its least and greatest version (None if all were undone) and its table.

    With several time dimensions: the least and the greatest coordinates of its times.
    """

    first: Time | None
    last: Time | None
    table: TableState


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary of all rows up to one. Its size does not grow with the ledger. Rows are referred to by their ``entry``.

    ``head``: the Delta version of the ledger that added the row. ``runs``, ``ingests``: the greatest numbers so
    far; ``ended``: that of finished and given-up runs. ``run``: the row of the last finished run; ``folded``: its
    last version. ``intent``: the row of the unfinished run. ``waiting``: no ingest before this row has a version
    that is not folded, unless it was undone or its row is in ``open``. ``dims`` and ``upper``: with several time
    dimensions, their names, and the frontier after the last finished run; without them no row has these two.
    ``compact``: the row of the last compaction, if no run came after it. ``since``: as in its record. ``restated``:
    the least closed times at which ingests changed an input; the next run folds again from there. ``labels``:
    whether any ingest gave labels. ``part``: the row of the last run of some outputs alone, if no run of all came
    after it. ``rows``: those of each output after the last finished run, of outputs that have had any.
    """

    head: int = 0
    runs: int = 0
    ended: int = 0
    ingests: int = 0
    run: int | None = None
    folded: Time | None = None
    intent: int | None = None
    waiting: int = 0
    open: tuple[int, ...] = ()
    inputs: Mapping[str, Input] = field(default_factory=dict)
    dims: tuple[str, ...] = ()
    upper: Frontier = ()
    compact: int | None = None
    since: Frontier = ()
    restated: Frontier = ()
    labels: bool = False
    part: int | None = None
    rows: Mapping[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> Frontier | None:
        """The frontier after the last finished run: the outputs are complete at all times that are not at or beyond it.
        None where nothing is folded.
        """
        return self.upper or (None if self.folded is None else frontiers.up_to(self.folded))

    def to_json(self) -> str:
        """The text in the ledger's column ``summary``."""
        return json.dumps(as_json.written(self, _FORMS), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Summary:
        """The summary that a text says."""
        return as_json.read(cls, json.loads(text), _FORMS)


_FORMS: Forms = {
    "folded": TIME,
    "inputs": mapped(nested(Input, {"first": TIME, "last": TIME, "table": nested(TableState)})),
    **dict.fromkeys(("upper", "since", "restated"), FRONTIER),
}
