"""``dd log``: when versions were ingested and folded, by which program, and how much changed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import UsageError
from ddcore.cli.options import Call, command, flag, option, whole_number
from ddcore.cli.output import SCHEMA_VERSION, Output
from ddcore.cli.text import aligned
from ddcore.io.ledger.history import entries, folded_versions, history_table, run_entry, selected, spelled
from ddcore.io.project.times import span

if TYPE_CHECKING:
    from ddcore.io.ledger.ledger import Ledger
    from ddcore.io.ledger.version_names import VersionNames

ON_TERMINAL = 20  # entries that a terminal shows unless --limit says otherwise
_LINES = 1_000  # lines that are aligned with each other


@command("json project")
def log(
    call: Call,
    *,
    versions: bool = flag("One line per folded version instead of one per run and ingest."),
    operators: bool = flag(
        "What each operator of the newest run did: updates, time, memory, state. More runs: --limit."
    ),
    where: str | None = option(
        "SQL",
        "Only entries that meet this condition, in SQL, over their fields in JSON that are one value, and "
        "in_plus, in_minus, out_plus, out_minus: \"kind = 'run' AND took > 60\".",
    ),
    limit: int | None = option(
        "N",
        f"At most N entries; 0 for all. Default: {ON_TERMINAL} on a terminal, else all; with --operators 1.",
        whole_number(0),
    ),
) -> int:
    """List runs and ingests, newest first: when, which versions, how much changed, by which program."""
    from ddcore.io.reading.folded import ledger_of

    out = call.output
    opened = call.opened()
    ledger, dims = ledger_of(opened), opened.dims
    if operators:
        if versions or where is not None:
            other = "--versions" if versions else "--where"
            raise UsageError(f"--operators: it does not go with {other}", "leave one of the two out")
        return _tell_operators(out, ledger, ledger.version_names(dims), 1 if limit is None else limit)
    records = folded_versions(ledger) if versions else entries(ledger)
    if where is not None:
        records = selected(records, dims, where, versions=versions)
    limit = (ON_TERMINAL if out.on_terminal else 0) if limit is None else limit
    names, shown = ledger.version_names(dims), islice(records, limit or None)
    if out.json:
        for record in shown:
            if out.unread:
                break
            out.record(schema_version=SCHEMA_VERSION, **spelled(record, names))
        return 0
    if not _tell(out, shown, names):
        waits = versions and ledger.newest() is not None
        begin = "no ingest and no run yet; begin with: ddcore ingest INPUT SOURCE"
        empty = "nothing is folded yet; fold the waiting versions with: ddcore run" if waits else begin
        out.say(empty if where is None else "no entry meets the condition")
    elif not out.unread and next(records, None) is not None:
        out.rest("more")
    return 0


def _tell(out: Output, records: Iterator[dict[str, Any]], names: VersionNames) -> bool:
    """Entries as a table, aligned by parts, so that a long history takes no memory; whether there are any."""
    labelled, is_first = None, True
    while not out.unread and (part := list(islice(records, _LINES))):
        if is_first and len(part) == _LINES:  # more may follow: no more than this part is known
            labelled = any(names.labels(dim) for dim in range(len(names.dims)))
        table, right = history_table(part, names, labelled=labelled)
        labelled = "label" in table[0]
        lines = aligned(table, right, out.width, header=True)
        if is_first:
            out.data((lines[0], "dim"))
        for line in lines[1:]:
            out.data(line)
        is_first = False
    return not is_first


def _tell_operators(out: Output, ledger: Ledger, names: VersionNames, limit: int) -> int:
    from ddcore.cli.operators import listing, operators_json
    from ddcore.io.ledger.records import RunRecord

    runs = (record for record in ledger.newest_first() if isinstance(record, RunRecord))
    for number, run in enumerate(islice(runs, limit or None)):
        if out.unread:
            break
        if out.json:
            fields = spelled(run_entry(run), names)
            out.record(schema_version=SCHEMA_VERSION, **fields, **operators_json(run.profile))
            continue
        if number:
            out.data()
        window = span(run_entry(run)["first"], run.last, names.dims)
        what = f"{window}, {run.took:.1f}s, {run.engine} x{run.parallelism}"
        out.data((f"run {run.run}", "bold"), f"  {what}, program {run.fingerprint[:8]}")
        for line in listing(run, out.width):
            out.data(line)
    if not out.json and ledger.current_run() is None:
        out.say("no run yet: ddcore run")
    return 0
