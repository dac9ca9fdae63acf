"""Which updates a worker consolidates before it sends them: those of arrangements where that leaves few of them.

To consolidate costs the sort that the receiver does in any case, so it pays where many updates go: those that add to
the totals of few keys. A key with many of the rows then weighs no more than any other.
"""

from __future__ import annotations

from ddcore.base.lazy import numpy as np
from ddcore.jobs.engines.messages import Message, taken
from ddcore.operators.arrangement import Arrangement
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.columns import Columns, Plain
from ddcore.traces.consolidation import arrange_all

_SLICES, _SLICE = 64, 256  # of updates that are looked at where it is not known whether it pays


class Consolidating:
    """What a worker knows of the arrangements that it sends updates for.

    ``removed``: by arrangement index, the share of the updates that went the last time that some were consolidated.
    """

    def __init__(self, budget: Budget = ALONE) -> None:
        self.removed: dict[int, float] = {}
        self._since: dict[int, int] = {}  # updates since some were looked at
        self._budget = budget

    def of(self, message: Message) -> Message:
        """The message, consolidated where that pays; it may have no updates left. Costs a sort of all, or of a few."""
        rows, arrangement, tuning = len(message), message.arrangement, self._budget.tuning
        if rows <= tuning.sent_rows or arrangement.passing:  # what passes is made of consolidated rows
            return message
        again = tuning.sent_again_rows
        if self.removed.get(arrangement.index, 0.0) < tuning.sent_share and rows > _SLICES * _SLICE:
            since = self._since.get(arrangement.index, again)
            self._since[arrangement.index] = rows if since >= again else since + rows
            if since < again:
                return message
            starts = np.arange(_SLICES) * (rows - _SLICE) // (_SLICES - 1)
            some = (starts[:, None] + np.arange(_SLICE)).ravel()
            self._consolidated(arrangement, taken(message.updates, some))
            if self.removed[arrangement.index] < tuning.sent_share:
                return message
        return Message(arrangement, message.rounds, self._consolidated(arrangement, message.updates))

    def _consolidated(self, arrangement: Arrangement, updates: Columns) -> Columns:
        """The updates that are left; notes how many are gone. Raises DiffOverflow."""
        run = arrange_all([updates], arrangement.width, arrangement.hashed, budget=self._budget)
        self.removed[arrangement.index] = 1 - len(run) / len(updates)
        columns = [*run.columns()]
        return Plain(columns[1:] if arrangement.hashed else columns, run.high)
