"""The window of a run: which values ``--from-version``, ``--to-version`` and ``--to`` may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcore.cli.versions import version_number
from ddcore.errors import UsageError
from ddcore.io.times import Time, coordinates, example, greatest, parse, shown

if TYPE_CHECKING:
    from ddcore.io.ledger import Ledger
    from ddcore.io.project import Project

__all__ = ["window"]


def window(
    project: Project, first: str | None, last: str | None, to: str | None = None
) -> tuple[Time | None, Time | None]:
    """The first and the last version to fold, both inclusive; None leaves an end to the ledger.

    The first can only be the next unfolded version: folding a version again would be restatement, which is not
    supported, and no version may be left out. ``to`` is the last one too; with several time dimensions the only one of
    the three. UsageError for anything else, and for a version that was not ingested.
    """
    if first is None and last is None and to is None:
        return None, None
    if last is not None and to is not None:
        raise UsageError(f"--to-version {last} and --to {to} say the same", "leave one of the two out")
    _check_options(project.dims, {"--from-version": first, "--to-version": last})
    from ddcore.io.ledger import Ledger
    from ddcore.io.warehouse import Warehouse

    warehouse = Warehouse(project.warehouse)
    warehouse.check()
    ledger = Ledger.load(warehouse)
    ledger.check_dims(project.dims)
    ingested = ledger.latest_ingested()
    if ingested is None:
        raise UsageError("no version was ingested yet", "begin with: ddcore ingest INPUT SOURCE")
    if isinstance(ingested, int):
        option, end = ("--to-version", last) if to is None else ("--to", to)
        return None, _versions(ledger, ingested, project.dims[0], first, (option, end))
    assert to is not None
    return None, _time(to, project.dims, ingested)


def _check_options(dims: tuple[str, ...], options: dict[str, str | None]) -> None:
    """Refuse the options that are for one dimension only."""
    for option, text in options.items():
        if text is not None and len(dims) > 1:
            raise UsageError(
                f"{option} {text}: dd.toml has the time dimensions {', '.join(dims)}", f"say: --to {example(dims)}"
            )


def _time(text: str, dims: tuple[str, ...], ingested: Time) -> Time:
    end = ingested if text.strip() == "latest" else parse(text, dims, "--to")
    if greatest([end, ingested]) != ingested:
        raise UsageError(
            f"--to: {shown(end, dims)} was not ingested: the greatest coordinates are {shown(ingested, dims)}",
            "say --to latest",
        )
    return end


def _versions(ledger: Ledger, ingested: int, dim: str, first: str | None, last: tuple[str, str | None]) -> int | None:
    """The last version to fold. The first is checked only: one that passes is where the ledger begins anyway."""
    option, text = last
    start = None if first is None else version_number(first, ingested, "--from-version", dim)
    end = None if text is None else version_number(text, ingested, option, dim)
    if start is not None:
        upper = ledger.upper()
        waiting = [coordinates(time)[0] for record in ledger.waiting() for time in record.counts]
        _check_first(start, -1 if upper is None else upper[0][0] - 1, waiting)
    if end is not None and end > ingested:
        raise UsageError(
            f"{option}: version {end} was not ingested: the last one is {ingested}", f"say {option} latest"
        )
    if start is not None and end is not None and start > end:
        raise UsageError(f"--from-version {start} is after {option} {end}", "both ends are inclusive")
    return end


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
