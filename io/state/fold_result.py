"""The stored state that a fold starts from and what it adds, in the form in which the driver and its tasks exchange it.

Must not import the engine: the driver of a fold on Spark uses this module before it loads the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ddcore.base.record import record
from ddcore.engine.large_groups import LargeGroups
from ddcore.engine.profile import Profile
from ddcore.io.delta.table_files import AddedFile, LiveFile
from ddcore.io.ledger.workloads import Workload
from ddcore.io.logs.updates import Counts, merge_counts
from ddcore.io.storage.warehouse import Warehouse


@record
class Stored:
    """The warehouse, the live files of its state, by table name as in ``Warehouse.relative``, and the large groups.

    Can be sent between processes.
    """

    warehouse: Warehouse
    run: int
    files: Mapping[str, Sequence[LiveFile]]
    groups: LargeGroups = field(default_factory=LargeGroups)


@dataclass
class FoldResult:
    """What one worker added in a fold.

    ``files`` by table; ``merged``: paths of earlier files, by table, whose rows are in those now; ``outputs``: rows
    (plus, minus) by output and time; ``rounds`` of loops; ``groups``: the large groups after the fold; ``profile``:
    what its operators did; ``sent``: bytes between workers; ``why``: so many workers, in words. ``took``: seconds by
    the clock; ``worked``: of these, outside of exchanges. ``load``: what the workers of a fold on Spark took.
    """

    files: dict[str, list[AddedFile]] = field(default_factory=dict)
    merged: dict[str, list[str]] = field(default_factory=dict)
    outputs: dict[str, Counts] = field(default_factory=dict)
    rounds: int = 0
    groups: LargeGroups = field(default_factory=LargeGroups)
    profile: Profile = field(default_factory=Profile)
    sent: int = 0
    why: str = ""
    took: float = 0.0
    worked: float = 0.0
    load: Workload | None = None

    def absorb(self, other: FoldResult) -> None:
        """Add the gains of another worker of the same fold."""
        for table, files in other.files.items():
            self.files.setdefault(table, []).extend(files)
        for table, paths in other.merged.items():
            self.merged.setdefault(table, []).extend(paths)
        for name, counts in other.outputs.items():
            self.outputs[name] = merge_counts([self.outputs.get(name, {}), counts])
        self.rounds = max(self.rounds, other.rounds)
        self.worked += other.worked
        self.groups.absorb(other.groups)
        self.profile.absorb(other.profile)
