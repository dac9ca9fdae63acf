"""What a finished run published: its outputs, and the times at which the law is claimed for them.

The law: accumulate(output log, t) == program(accumulate(input logs, t)). The ledger knows where it need not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddcore.errors import UsageError
from ddcore.io.times import Frontier, Time, coordinates, corners, is_open, named, shown_frontier
from ddcore.lattice import le
from ddcore.wording import listed, meant

if TYPE_CHECKING:
    from ddcore.io.ledger import Ledger
    from ddcore.io.records import RunRecord

__all__ = ["Claims", "check_output", "finished_run", "output_names"]


def finished_run(ledger: Ledger) -> RunRecord:
    """The last finished run. UsageError where nothing is folded yet."""
    run = ledger.current_run()
    if run is None:
        waiting = ledger.latest_ingested() is not None
        raise UsageError(
            f"nothing is folded yet in {ledger.warehouse.root}",
            "fold the waiting versions with: ddcore run" if waiting else "begin with: ddcore ingest INPUT SOURCE",
        )
    return run


def output_names(run: RunRecord) -> list[str]:
    """The outputs of a run, sorted."""
    return sorted(table.removeprefix("outputs/") for table in run.tables if table.startswith("outputs/"))


def check_output(run: RunRecord, name: str, inputs: Iterable[str]) -> None:
    """Raise UsageError, with the names there are, for an output that the run does not have."""
    outputs = output_names(run)
    if name not in outputs:
        hint = f"{name} is an input; only outputs can be shown" if name in inputs else ""
        raise UsageError(
            f"no output {name!r}; there are: {listed(outputs)}",
            hint or meant(name, outputs) or "after a change of the program: ddcore run --full-refresh",
        )


@dataclass(frozen=True)
class Claims:
    """The times at which the law is claimed for the outputs of the last finished run. Everything else is refused here.

    Times at or beyond ``upper`` are not complete, and with one dimension there is no version before ``first``. Logs are
    exact at times at or beyond ``since``. Inputs have changed at times at or beyond ``restated`` since they were
    folded. ``corrected``: from the first to the last time of each pair, the outputs hold what was published before
    corrections that follow after it.
    """

    dims: tuple[str, ...]
    upper: Frontier
    since: Frontier
    restated: Frontier
    first: Time | None
    corrected: Sequence[tuple[Time, Time]] = ()

    @classmethod
    def of(cls, ledger: Ledger, dims: tuple[str, ...]) -> Claims:
        """The claims of a ledger with a finished run. Reads the records of the runs that the last one continued, back
        to the first corrected one.
        """
        upper, run = ledger.upper(), ledger.current_run()
        assert upper is not None and run is not None
        corrected = []
        if run.published_from is not None or run.corrections:
            corrected = [
                (each.published_from, each.last)
                for each in ledger.lineage()
                if each.corrections and each.published_from is not None
            ]
        return cls(dims, upper, ledger.since(), ledger.restated(), ledger.first_ingested(), corrected)

    def doubt(self, time: Time) -> tuple[str, str]:
        """Why the law is not claimed at a time, and what to do; two empty texts where it is."""
        what = named(time, self.dims)
        if is_open(time, self.upper):
            tops = " and ".join(named(top, self.dims) for top in corners(self.upper))
            return f"{what} is not yet complete: folded is {tops}", "which versions are waiting: ddcore status"
        if isinstance(time, int) and isinstance(self.first, int) and time < self.first:
            return f"{what} is before the first one, {self.first}", "the folded versions: ddcore log --versions"
        if self.since and not is_open(time, self.since):
            since = shown_frontier(self.since, self.dims)
            return f"{what} can no longer be read: the logs are exact from {since} on", "name a later one"
        if is_open(time, self.restated):
            changed = shown_frontier(self.restated, self.dims)
            return f"{what}: the inputs have changed from {changed} on since they were folded", "first: ddcore run"
        for begin, end in self.corrected:
            if le(coordinates(begin), coordinates(time)) and le(coordinates(time), coordinates(end)):
                return (
                    f"{what} holds what was published before a correction that follows {named(end, self.dims)}",
                    f"verify a time after {named(end, self.dims)}",
                )
        return "", ""

    def check(self, time: Time, origin: str) -> None:
        """Raise UsageError, beginning with ``origin``, for a time at which the law is not claimed."""
        message, hint = self.doubt(time)
        if message:
            raise UsageError(f"{origin}: {message}", hint)
