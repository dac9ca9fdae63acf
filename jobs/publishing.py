"""Publishing: the tables with the present contents of outputs, after the run that changed these.

A run that is killed after its record and before a table is finished by the next one, which compares the run of each
table with the last. Where that is the same, one small file is read for each table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from ddcore.base.errors import Mismatch, StorageError, UsageError
from ddcore.base.record import record
from ddcore.base.schema import Schema
from ddcore.base.threads import available
from ddcore.io.publishing.published import Published

if TYPE_CHECKING:
    import polars as pl

    from ddcore.io.ledger.ledger import Ledger
    from ddcore.io.project.project import Project
    from ddcore.io.publishing.commits import Position, Snapshot
    from ddcore.io.publishing.range_work import Tasks
    from ddcore.io.storage.store import Location


def check_tables(project: Project, ledger: Ledger, outputs: Mapping[str, Schema]) -> None:
    """Raise UsageError for columns that an output with a table lacks, and for a folder that holds something else."""
    for name, address, there in tables_of(project, ledger):
        project.published[name].check(name, outputs[name])
        if there is not None and there.output != name:
            raise UsageError(f"{address} is the table of output {there.output}", f"name another folder for {name}")


def publish(
    project: Project, ledger: Ledger, known: dict[Location, Snapshot] | None = None, engine: str = "inline"
) -> list[Published]:
    """Bring the tables of outputs up to the last finished run; what was done. UsageError, StorageError; DdError where a
    job of Spark fails.

    ``known``: what an earlier call of this process knew of the tables, and what is known of them then. With the engine
    ``spark``, tasks write what is many rows.
    """
    tables = project.published
    if not tables or ledger.current_run() is None:
        return []
    from ddcore.io.publishing.publication import Publication
    from ddcore.io.publishing.together import publish_all

    tasks = None if engine == "inline" else partial(_tasks, project)
    publications = (Publication(project, ledger, name, tables[name], known=known, tasks=tasks) for name in tables)
    due = [publication for publication in publications if publication.is_due()]
    return publish_all(due, 1 if project.memory else available()) if due else []


def _tasks(project: Project) -> AbstractContextManager[Tasks]:
    from ddcore.jobs.spark.publishing import range_tasks

    return range_tasks(project)


def tables_of(project: Project, ledger: Ledger) -> Iterator[tuple[str, Location, Position | None]]:
    """The published tables: output, folder, and how far each is. Reads one small file for each."""
    for name, settings in project.published.items():
        from ddcore.io.publishing.commits import position
        from ddcore.io.publishing.publication import address_of

        address = address_of(ledger, name, settings)
        yield name, address, position(address)


@record
class TableVerdict:
    """Whether a published table holds what the output's log holds at the table's time.

    ``differing``: rows with ``diff``, above 0 where the table has too many, below where it lacks some. ``problem``: why
    it cannot be read; empty where it can.
    """

    output: str
    path: str
    differing: pl.DataFrame | None
    problem: str = ""

    @property
    def holds(self) -> bool:
        """Whether it can be read, and no row differs."""
        return self.differing is not None and self.differing.is_empty()


def verdicts(project: Project, ledger: Ledger, names: Iterable[str]) -> Iterator[TableVerdict]:
    """Verdicts on the tables of some outputs, against their logs. Reads all of both."""
    from ddcore.io.publishing.publication import Publication

    wanted = {*names}
    for name in (name for name in project.published if name in wanted):
        publication = Publication(project, ledger, name, project.published[name])
        try:
            yield TableVerdict(name, str(publication.folder), publication.differences())
        except StorageError as error:
            yield TableVerdict(name, str(publication.folder), None, error.message)


def mismatch(found: Iterable[TableVerdict]) -> Mismatch | None:
    """The error for tables that are not what the logs say; None where all are."""
    failed = [verdict for verdict in found if not verdict.holds]
    if not failed:
        return None
    first = failed[0]
    many = 0 if first.differing is None else len(first.differing)
    what = first.problem or f"{many} {'row differs' if many == 1 else 'rows differ'} from the output's log"
    more = f"; so are {len(failed) - 1} more tables" if len(failed) > 1 else ""
    return Mismatch(
        f"the table of {first.output} in {first.path} is not right: {what}{more}",
        "remove its folder: the next ddcore run makes the table again, from the log",
    )
