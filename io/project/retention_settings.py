"""The settings of ``[compaction]`` and ``[retention]``; :mod:`ddcore.io.upkeep.retention` acts on them."""

from __future__ import annotations

from ddcore.base.record import record


@record
class RetentionSettings:
    """Whether runs compact by themselves; from how many versions back a run can be continued (None: from the runs of a
    week); for how many days files of inputs and outputs stay after they were replaced; how many versions of history can
    be read (None: all).
    """

    auto: bool = True
    versions: int | None = None
    days: float = 7
    history: int | None = None
