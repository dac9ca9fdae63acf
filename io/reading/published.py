"""What a finished run published: its outputs, and the times at which the law is claimed for them.

The law: accumulate(output log, t) == program(accumulate(input logs, t)). The ledger knows where it need not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import tee
from typing import TYPE_CHECKING

from ddcore.base.errors import UsageError
from ddcore.base.lattice import Frontier, le
from ddcore.io.ledger.records import RunRecord
from ddcore.io.project.frontiers import close_both, corners, is_open, shown_frontier
from ddcore.io.project.times import Time, greatest, named
from ddcore.program.data_tests import is_test
from ddcore.text.wording import listed, meant

if TYPE_CHECKING:
    from ddcore.io.ledger.ledger import Ledger


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
    """The outputs of the program of a run, sorted, without those of data tests. The tables of outputs that it no longer
    has stay as they were.
    """
    return [name for name in _all_names(run) if not is_test(name)]


def verified_names(run: RunRecord) -> list[str]:
    """The outputs of the program of a run and of its data tests, sorted."""
    return sorted(_all_names(run), key=lambda name: (is_test(name), name))


def _all_names(run: RunRecord) -> list[str]:
    held = (table.removeprefix("outputs/") for table in run.tables if table.startswith("outputs/"))
    return sorted(run.definitions or held)


def check_output(run: RunRecord, name: str, inputs: Iterable[str]) -> None:
    """Raise UsageError, with the names there are, for an output that the run does not have; the collections of data
    tests are outputs here.
    """
    outputs = output_names(run)
    if name not in _all_names(run):
        hint = f"{name} is an input; only outputs can be shown" if name in inputs else ""
        raise UsageError(
            f"no output {name!r}; there are: {listed(outputs)}",
            hint or meant(name, _all_names(run)) or "after a change of the program: ddcore run",
        )


_ANY = -1  # instead of the number of a run


class Claims:
    """The times at which the law is claimed for the outputs of the last finished run; all others are refused here.

    Times at or beyond ``upper`` are not complete, and with one dimension there is no version before ``first``. The logs
    need not be exact at times that are not at or beyond ``since``. Since the run, inputs have changed at times at or
    beyond ``restated``. And a run that appended corrections left what was published before them, in the outputs that
    held something else than they should.
    """

    def __init__(self, ledger: Ledger, dims: tuple[str, ...]) -> None:
        upper = ledger.upper()
        assert upper is not None, "nothing is folded"
        self.dims, self.upper, self.since, self.restated = dims, upper, ledger.since(), ledger.restated()
        self.first = ledger.first_ingested()
        self._ledger = ledger
        self._runs = self._read()  # never advanced, but by copies

    def upper_of(self, outputs: Iterable[str]) -> Frontier:
        """The frontier of the times that are complete in any of some outputs: some may be ahead."""
        return reduce(close_both, (self._ledger.upper_of(output) or self.upper for output in outputs), self.upper)

    @property
    def least(self) -> Time | None:
        """With one dimension: the first version that can be read."""
        return greatest([self.first, self.since[0]]) if self.since and self.first is not None else self.first

    def doubt(self, time: Time, output: str) -> tuple[str, str]:
        """Why the law is not claimed for an output at a time, and what to do; two empty texts where it is."""
        what = named(time, self.dims)
        if is_open(time, self._ledger.upper_of(output) or self.upper):
            tops = " and ".join(named(top, self.dims) for top in corners(self.upper))
            return f"{what} is not yet complete: folded is {tops}", "which versions are waiting: ddcore status"
        if self.first is not None and len(time) == 1 and time < self.first:
            return f"{what} is before the first one, {self.first}", "the folded versions: ddcore log --versions"
        if self.since and not is_open(time, self.since):
            since = shown_frontier(self.since, self.dims)
            return f"{what} can no longer be read: the logs are exact from {since} on", "name a later one"
        if is_open(time, self.restated):
            changed = shown_frontier(self.restated, self.dims)
            return f"{what}: the inputs have changed from {changed} on since they were folded", "first: ddcore run"
        run = self._corrected(time, output)
        return ("", "") if run is None else self._published_before(run, what, output)

    def _published_before(self, run: RunRecord, what: str, output: str) -> tuple[str, str]:
        """The doubt about an output at a time that a run left as it was published before."""
        last = named(run.last, self.dims)
        said = f"{output} at {what} holds what was published before run {run.run}, whose corrections follow {last}"
        following = run.last[0] + 1
        if len(self.dims) == 1 and is_open((following,), self.upper):
            return said, f"publish them with: ddcore run --to-version {following}"
        return said, f"name a time after {last}"

    def _corrected(self, time: Time, output: str) -> RunRecord | None:
        """The newest run that left an output at a time as it was published before."""
        run = self._ledger.current_run()
        if run is None or (run.published_from is None and len(time) == 1 and time >= run.first):
            return None  # completed by the last run itself
        for run in self._of_outputs():
            first = run.published_from
            if output in run.anew or (first is None and len(time) == 1 and time >= run.first):
                return None
            if first is not None and run.outdated is not None and time == run.last:
                return run if f"outputs/{output}" in run.corrections else None  # compared at its last version
            concerned = run.outdated is None or output in run.outdated
            if first is not None and concerned and le(first, time) and le(time, run.last):
                return run
        return None

    def _of_outputs(self) -> Iterator[RunRecord]:
        """The runs whose updates the output logs hold, newest first. Reads the ledger from its end, as far as they are
        asked for, and once.

        A run that appends leaves the logs as the run before it left them, whatever base it folded from.
        """
        self._runs, runs = tee(self._runs)
        return runs

    def _read(self) -> Iterator[RunRecord]:
        number = _ANY
        for run in self._ledger.newest_first():
            if isinstance(run, RunRecord) and number in (run.run, _ANY):
                number = _ANY if run.published_from is not None else run.base
                yield run
