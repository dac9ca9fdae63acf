"""What stays in memory from one sync of a follower to the next. All of it is compared with the warehouse before use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddcore.io.publishing.commits import Snapshot
    from ddcore.io.state.hot import Hot
    from ddcore.io.storage.store import Place


@dataclass
class Warm:
    """``hot``: arrangements, where this process folds; ``tables``: published tables as their newest commits left them.

    Neither is loaded before the first fold: a follower that finds nothing new needs no engine.
    """

    tables: dict[Place, Snapshot] = field(default_factory=dict)
    hot: Hot | None = None

    def arrangements(self) -> Hot:
        """Those that are in memory."""
        if self.hot is None:
            from ddcore.io.state.hot import Hot

            self.hot = Hot()
        return self.hot

    def drop(self) -> None:
        """Forget everything, as after an error."""
        self.tables.clear()
        self.hot = None
