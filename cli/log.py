"""``dd log``: when versions were ingested and folded, by which program, and how much changed."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from ddcore.base.errors import UsageError
from ddcore.cli.options import (
    DebugOption,
    JsonOption,
    ProjectOption,
    WarehouseOption,
    flag,
    open_project,
    option,
    whole_number,
)
from ddcore.cli.output import SCHEMA_VERSION, Output
from ddcore.cli.text import aligned, count
from ddcore.io.ledger.history import entries, folded_versions, history_table, run_entry, selected, spelled
from ddcore.io.project.times import span

if TYPE_CHECKING:
    from ddcore.io.ledger.ledger import Ledger
    from ddcore.io.ledger.version_names import VersionNames

__all__ = ["log"]

ON_TERMINAL = 20  # entries that a terminal shows unless --limit says otherwise


def log(
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
    as_json: JsonOption = False,
    project: ProjectOption = None,
    warehouse: WarehouseOption = None,
    debug: DebugOption = False,
) -> int:
    """List runs and ingests, newest first: when, which versions, how much changed, by which program."""
    from ddcore.io.reading.folded import ledger_of

    out = Output(json=as_json)
    opened = open_project(project, warehouse=warehouse)
    ledger, dims = ledger_of(opened), opened.dims
    if operators:
        if versions or where is not None:
            other = "--versions" if versions else "--where"
            raise UsageError(f"--operators: it does not go with {other}", "leave one of the two out")
        return _tell_operators(out, ledger, ledger.version_names(dims), 1 if limit is None else limit)
    records, names = folded_versions(ledger) if versions else entries(ledger), ledger.version_names(dims)
    if where is not None:
        records = selected(records, dims, where, versions=versions)
    limit = (ON_TERMINAL if out.on_terminal else 0) if limit is None else limit
    part = records[: limit or None]
    if out.json:
        for record in part:
            if out.unread:
                break
            out.record(schema_version=SCHEMA_VERSION, **spelled(record, names))
        return 0
    if not records and where is None:
        waits = versions and ledger.newest() is not None
        begin = "no ingest and no run yet; begin with: ddcore ingest INPUT SOURCE"
        out.say("nothing is folded yet; fold the waiting versions with: ddcore run" if waits else begin)
        return 0
    if not records:
        out.say("no entry meets the condition")
        return 0
    table, right = history_table(part, names)
    for place, line in enumerate(aligned(table, right, out.width, header=True)):
        out.data((line, "" if place else "dim"))
    if len(records) > len(part):
        out.rest(f"{count(len(records) - len(part))} more")
    return 0


def _tell_operators(out: Output, ledger: Ledger, names: VersionNames, limit: int) -> int:
    from ddcore.cli.operators import listing, operators_json

    for place, run in enumerate(islice(sorted(ledger.runs(), key=lambda run: -run.run), limit or None)):
        if out.unread:
            break
        if out.json:
            fields = spelled(run_entry(run), names)
            out.record(schema_version=SCHEMA_VERSION, **fields, **operators_json(run.profile))
            continue
        if place:
            out.data()
        window = span(run_entry(run)["first"], run.last, names.dims)
        what = f"{window}, {run.took:.1f}s, {run.engine} x{run.parallelism}"
        out.data((f"run {run.run}", "bold"), f"  {what}, program {run.fingerprint[:8]}")
        for line in listing(run, out.width):
            out.data(line)
    if not out.json and ledger.current_run() is None:
        out.say("no run yet: ddcore run")
    return 0
