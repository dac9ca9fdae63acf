"""Deliveries: what one block sends to the arrangements of others."""

from __future__ import annotations

from dataclasses import dataclass

from ddcore.operators.arrangement import Arrangement
from ddcore.operators.block import Rounds
from ddcore.traces.columns import Columns


@dataclass(frozen=True, slots=True)
class Delivery:
    """Updates on their way to an arrangement, all at these rounds; None: updates at times that this fold does not
    complete. Columns are in the order of :meth:`Arrangement.queued`.
    """

    arrangement: Arrangement
    rounds: Rounds | None
    updates: Columns
