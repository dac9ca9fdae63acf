"""One task of the barrier stage of a fold by several workers.

The workers look for each other before anything else: what takes long, loading the engine and compiling kernels, comes
while they do. So a worker that hangs at any later moment is missed by the others.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable

from ddcore.io.storage import scratch
from ddcore.jobs.engines.meeting import meeting
from ddcore.jobs.engines.peers import PeerLost
from ddcore.jobs.engines.protocol import Report, SharedFold, Unreachable

_DEFERENCE = 1.0  # seconds in which the failure of another worker, which is the cause, becomes known first


def work(shared: bytes, threads: int) -> Report:
    """Fold a part in so many threads. Raises PeerLost and Unreachable, with which Spark ends all tasks of the stage."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    number = context.partitionId()
    host = context.getTaskInfos()[number].address.rpartition(":")[0]
    return fold_part(pickle.loads(shared), number, host, context.allGather, threads)


def fold_part(
    shared: SharedFold, number: int, host: str, gather: Callable[[str], list[str]], threads: int = 1
) -> Report:
    """Fold as one of several workers; see :func:`~ddcore.jobs.engines.meeting.meeting` for ``host`` and ``gather``.

    Raises PeerLost if another worker is gone, Unreachable if they have not found each other.
    """
    settings = shared.fold.settings
    with meeting(number, host, shared.credentials, gather, settings.tuning) as peers:
        from ddcore.jobs.engines.workers import Member

        budget = scratch.budget(settings.memory, threads, settings.tuning)
        try:
            with budget.held():
                return Member(shared, number, peers, budget).fold()
        except (PeerLost, Unreachable):
            time.sleep(_DEFERENCE)
            raise
