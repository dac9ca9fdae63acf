"""Sync: takes in what declared sources have that is new, and folds it: one process that holds the lock once.

Killed anywhere, it leaves what a killed ingest or a killed run leaves, and the next one finishes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import UsageError
from ddcore.io.ledger.freshness import Freshness, freshness
from ddcore.io.project.project import FILE_NAME, Project
from ddcore.io.storage import branches
from ddcore.jobs import predecessor, replay
from ddcore.jobs.engines import kept
from ddcore.jobs.fold import Listener
from ddcore.jobs.ingest import IngestReport, ingest
from ddcore.jobs.report import RunReport, result, spelled
from ddcore.jobs.warm import Warm

if TYPE_CHECKING:
    from ddcore.io.sources.snapshots import Snapshot
    from ddcore.io.sources.source import Source


@dataclass(frozen=True)
class SyncReport:
    """What a sync did: its ingests, of inputs with a declared source, its run, and how fresh the inputs are after it.

    ``took`` is in seconds.
    """

    ingests: tuple[IngestReport, ...]
    run: RunReport
    fresh: tuple[Freshness, ...] = field(default=())
    took: float = 0.0

    @property
    def nothing_new(self) -> bool:
        """Whether no source had anything new, and nothing was left to fold."""
        return self.run.nothing_new and all(report.nothing_new for report in self.ingests)

    def fields(self, dims: Sequence[str]) -> dict[str, Any]:
        """The fields of the JSON object."""
        return {
            "ingests": [spelled(vars(one), dims) for one in self.ingests],
            "run": result(self.run),
            "sources": [one.record for one in self.fresh],
            "nothing_new": self.nothing_new,
            "took": round(self.took, 3),
        }


def sync(
    project: Project,
    options: Mapping[str, Any] | None = None,
    *,
    engine: str = "spark",
    parallelism: int | None = None,
    inputs: Collection[str] | None = None,
    listener: Listener | None = None,
    tell: Callable[[IngestReport], None] = lambda report: None,
    warm: Warm | None = None,
    found: Mapping[str, Sequence[Source | Snapshot]] = MappingProxyType({}),
) -> SyncReport:
    """Ingest each declared source, in the order of ``dd.toml``, then fold what is not folded yet. Where another project
    ingests inputs, take over what it has before that.

    ``inputs``: only the sources of these. ``options`` are options of ``dd ingest``, by their names, which hold for all
    sources. ``tell`` is called with the report of each ingest when it is done. An ingest that fails ends the sync:
    nothing is folded, and what was taken in before stays. ``warm``: what an earlier sync left in memory;
    ``found``: sources of inputs that were found before, so that they are not opened again.

    Raises what :func:`ddcore.jobs.ingest.ingest` and :func:`ddcore.jobs.replay.run` raise.
    """
    if not project.sources and project.upstream is None:
        raise UsageError(
            f"{FILE_NAME} declares no source of any input",
            'declare one: [inputs.NAME] source = { path = "..." }; or use ddcore ingest and ddcore run',
        )
    start, said = time.monotonic(), options or {}
    wanted = {name: source for name, source in project.sources.items() if inputs is None or name in inputs}
    settings = {name: source.settings(said) for name, source in wanted.items()}
    for one in settings.values():
        one.check(engine)
    warehouse = project.tables
    branches.require(project.home, project.branch or branches.MAIN)  # a follower's may be deleted meanwhile
    warehouse.begin(project.root, new=any(one.new_warehouse for one in settings.values()))
    with kept(engine), predecessor.writing(warehouse, "ddcore sync", project.tuning) as held:
        reports = []
        if warm is not None:
            warm.recall(held[1])
        for name, source in wanted.items():
            report = ingest(
                project, name, source.locations, settings[name], engine=engine, listener=listener, held=held,
                found=found.get(name),
            )  # fmt: skip
            reports.append(report)
            tell(report)
        run = replay.run(project, engine=engine, parallelism=parallelism, listener=listener, held=held, warm=warm)
        fresh = tuple(freshness(project, held[1]))
    return SyncReport(tuple(reports), run, fresh, time.monotonic() - start)
