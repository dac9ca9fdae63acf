"""``dd report``: a run, or a range of runs, as one page of HTML."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from ddcore.base.errors import UsageError
from ddcore.cli.completion import run_numbers
from ddcore.cli.options import Call, argument, command, option, whole_number
from ddcore.cli.output import Output, write_file
from ddcore.text.wording import shown

if TYPE_CHECKING:
    from ddcore.io.ledger.ledger import Ledger
    from ddcore.io.ledger.records import RunRecord


@command("project")
def report(
    call: Call,
    a: int | None = argument("[RUN|A B]", "A run; with B the first of a range.", whole_number(1), complete=run_numbers),
    b: int | None = argument("B", "The last run of a range.", whole_number(1), complete=run_numbers),
    *,
    file: Path | None = option("FILE", "Write to FILE instead of report.html; - for stdout.", names=("--output", "-o")),
) -> int:
    """Write what a run did as one page of HTML: the newest run, RUN, or the runs A to B.

    The dataflow with the updates and the time of each operator, the differences by version and round, the growth of
    outputs and state, and the ingests. The page needs no network and has no script. It reads the ledger alone.
    """
    out = call.output
    settings = call.opened()
    from ddcore.cli.report_page import report_page
    from ddcore.io.reading.folded import ledger_of

    ledger = ledger_of(settings)
    runs = _runs(ledger, a, b)
    text = report_page(settings, ledger, runs)
    write_page(out, file, "report.html", text)
    return 0


def _runs(ledger: Ledger, first: int | None, last: int | None) -> list[RunRecord]:
    """The runs of a range, oldest first; the newest one without a range. UsageError where there is none."""
    newest = ledger.current_run()
    if newest is None:
        raise UsageError("there is no run yet", "fold what was ingested: ddcore run")
    if first is None:
        return [newest]
    end = first if last is None else last
    chosen = list(takewhile(lambda run: run.run >= first, ledger.runs_backwards(end)))
    if chosen:
        return chosen[::-1]
    what = f"run {first}" if last is None else f"runs {first} to {last}"
    from ddcore.io.ledger.records import RunRecord

    oldest = next(ledger.records(RunRecord))
    raise UsageError(f"{what}: there is none", f"there are runs {oldest.run} to {newest.run}; see: ddcore log")


def write_page(out: Output, file: Path | None, name: str, text: str) -> None:
    """Write a page to the file that a user named, or to ``name``; to stdout for ``-``. StorageError."""
    if file == Path("-"):
        out.stdout.write(text)
        return
    file = file or Path(name)
    write_file(file, text)
    out.say(f"wrote {shown(file)}")
