"""The window of a run: which values ``--from-version`` and ``--to-version`` may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcore.cli.versions import version_number
from ddcore.errors import UsageError

if TYPE_CHECKING:
    from ddcore.io.project import Project

__all__ = ["window"]


def window(project: Project, first: str | None, last: str | None) -> tuple[int | None, int | None]:
    """The first and the last version to fold, both inclusive; None leaves an end to the ledger.

    The first can only be the next unfolded version: folding a version again would be restatement, which is not
    supported, and no version may be left out. UsageError for anything else, and for a version that was not ingested.
    """
    if first is None and last is None:
        return None, None
    from ddcore.io.ledger import Ledger
    from ddcore.io.warehouse import Warehouse

    warehouse = Warehouse(project.warehouse)
    warehouse.check()
    ledger = Ledger.load(warehouse)
    ingested = ledger.latest_ingested()
    if ingested is None:
        raise UsageError("no version was ingested yet", "begin with: ddcore ingest INPUT SOURCE")
    start = None if first is None else version_number(first, ingested, "--from-version")
    end = None if last is None else version_number(last, ingested, "--to-version")
    if start is not None:
        folded = ledger.last_folded()
        _check_first(start, -1 if folded is None else folded, [v for r in ledger.waiting() for v in r.counts])
    if end is not None and end > ingested:
        raise UsageError(
            f"--to-version: version {end} was not ingested: the last one is {ingested}", "say --to-version latest"
        )
    if start is not None and end is not None and start > end:
        raise UsageError(f"--from-version {start} is after --to-version {end}", "both ends are inclusive")
    return None, end  # a first version that passed is where the ledger begins anyway


def _check_first(start: int, folded: int, ingested: list[int]) -> None:
    following = min((version for version in ingested if version > folded), default=folded + 1)
    if start <= folded:
        raise UsageError(
            f"--from-version {start}: versions up to {folded} are folded; restatement is not supported",
            f"the next version to fold is {following}; to fold everything anew: ddcore run --full-refresh",
        )
    if start > following:
        raise UsageError(
            f"--from-version {start} would leave out version {following}, which is not folded",
            f"say --from-version {following}, or leave it to the ledger: ddcore run",
        )
