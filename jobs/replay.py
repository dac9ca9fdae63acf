"""Replay: folds every version that was ingested and not yet folded, and makes the result visible all at once.

The order of things: intent into the ledger; the fold, which writes files nobody sees; one commit per table, state first and outputs last;
the run's record into the ledger. An intent without its record is finished first, over the same window, by whoever runs next: the fold is
deterministic, and a table that holds the run's files already is left as it is.

With nothing to fold this imports neither numba nor Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddcore.errors import DdError, ProgramChanged, UsageError
from ddcore.io.ledger import IntentRecord, Ledger, RunRecord, TableState
from ddcore.io.project import Project, load_program
from ddcore.io.warehouse import Warehouse

if TYPE_CHECKING:
    from ddcore.io.state import Gained, Stored
    from ddcore.plan import Plan

__all__ = ["Fold", "RunReport", "main", "run"]

Changes = dict[str, tuple[int, int]]
Listener = Callable[..., None]
REFRESH = "ddcore run --full-refresh"


@dataclass
class RunReport:
    """What a run did. ``versions``: per folded version, what each input brought and each output changed (plus, minus).

    ``run`` is the last run's number (0 where there was none), ``took`` is in seconds. A dry run knows of no outputs.
    """

    run: int = 0
    first: int | None = None
    last: int | None = None
    versions: list[tuple[int, Changes, Changes]] = field(default_factory=list)
    rounds: int = 0
    took: float = 0.0
    engine: str = "spark"
    width: int = 1
    nothing_new: bool = True


@dataclass(frozen=True)
class Fold:
    """One window of versions to be folded, and all that a worker needs to know for it."""

    plan: Plan
    stored: Stored
    first: int
    last: int
    inputs: Mapping[str, int | None]  # the Delta version of each input's table
    settings: Project
    quantiles: Mapping[str, Sequence[int]]
    width: int | None
    rows: int  # updates in the window, as ingest counted them


@dataclass(frozen=True)
class _Window:
    run: int
    first: int
    last: int
    refresh: bool
    known: bool  # the intent is in the ledger already


def run(
    project: Project,
    *,
    first: int | None = None,
    last: int | None = None,
    full_refresh: bool = False,
    dry_run: bool = False,
    engine: str | None = None,
    width: int | None = None,
    listener: Listener | None = None,
) -> RunReport:
    """Fold what is not folded yet, up to version ``last``.

    ``first`` may only be the next unfolded version. ``full_refresh`` folds everything again, from nothing, and replaces the outputs. ``width`` forces
    the number of Spark workers. Raises LockHeld, ProgramError, ProgramChanged, the FoldError family and StorageError; then nothing of the run is visible.
    """
    warehouse, dim = Warehouse(project.warehouse), project.dim
    engine = engine or project.engine
    report = RunReport(engine=engine, width=width or 1)
    started = time.perf_counter()
    if dry_run:
        _each_window(project, Ledger.load(warehouse), first, last, full_refresh, report, None)
        return report
    with warehouse.lock("ddcore run") as lock:
        ledger = Ledger.load(warehouse)

        def fold(plan: Plan, window: _Window) -> None:
            lock.note_run(window.run)
            _fold_window(project, ledger, plan, window, engine, width, dim, report, listener)

        _each_window(project, ledger, first, last, full_refresh, report, fold)
    report.took = time.perf_counter() - started
    return report


def _each_window(
    project: Project,
    ledger: Ledger,
    first: int | None,
    last: int | None,
    refresh: bool,
    report: RunReport,
    fold: Callable[[Plan, _Window], None] | None,
) -> None:
    """Fold an unfinished window first, then what is new; without ``fold`` only say what would be."""
    report.last = ledger.last_folded()
    plan = _plan(project)
    done = False
    while not done:
        window, done = _next_window(ledger, plan, first, last, refresh)
        if window is None:
            return
        report.nothing_new = False
        report.run, report.last = window.run, window.last
        report.first = window.first if report.first is None else report.first
        if fold is None:
            report.versions += _versions(ledger, project, window, {})
            return
        fold(plan, window)
        refresh = False


def _plan(project: Project) -> Plan:
    from ddcore.plan import build

    plan = build(load_program(project), project.inputs, project.dims)
    for name in project.outputs:
        if name not in plan.outputs:
            raise UsageError(
                f"dd.toml has [outputs.{name}] but the program returns {', '.join(plan.outputs)}",
                "name the section after an output, or remove it",
            )
    return plan


def _next_window(
    ledger: Ledger, plan: Plan, first: int | None, last: int | None, refresh: bool
) -> tuple[_Window | None, bool]:
    """The window to fold now, and whether it is the last one of this command."""
    intent, folded = ledger.open_intent(), ledger.last_folded()
    latest = ledger.latest_ingested(plan.inputs)
    if refresh:
        _check_range(first, None, last, latest)
        upto = latest if last is None else last
        return (None, True) if upto is None else (_Window(ledger.next_run(), 0, upto, True, False), True)
    if intent is not None:
        _check_program(intent.fingerprint, plan, f"run {intent.run}, which was not finished,")
        return _Window(intent.run, intent.first, intent.last, intent.refresh, True), False
    current = ledger.current_run()
    if current is not None:
        _check_program(current.fingerprint, plan, f"the state of run {current.run}")
    start = 0 if folded is None else folded + 1
    _check_range(first, start, last, latest)
    upto = latest if last is None else min(last, latest if latest is not None else last)
    if latest is None or upto is None or upto < start:
        return None, True
    return _Window(ledger.next_run(), start, upto, False, False), True


def _check_program(fingerprint: str, plan: Plan, what: str) -> None:
    if fingerprint != plan.fingerprint:
        raise ProgramChanged(
            f"the program changed: {what} was made by program {fingerprint[:12]}, this one is {plan.fingerprint[:12]}",
            f"put the program back, or make state and outputs anew: {REFRESH}",
        )


def _check_range(first: int | None, start: int | None, last: int | None, latest: int | None) -> None:
    if first is not None and start is not None and first != start:
        raise UsageError(
            f"--from-version {first}: the next version to fold is {start}; folding from elsewhere is not there yet",
            f"leave --from-version out, or fold everything again: {REFRESH}",
        )
    if last is not None and (latest is None or last > latest):
        known = "nothing was ingested yet" if latest is None else f"the latest ingested version is {latest}"
        raise UsageError(f"--to-version {last}: {known}", "ingest it first, or leave --to-version out")


def _fold_window(
    project: Project,
    ledger: Ledger,
    plan: Plan,
    window: _Window,
    engine: str,
    width: int | None,
    dim: str,
    report: RunReport,
    listener: Listener | None,
) -> None:
    started = time.perf_counter()
    warehouse = ledger.warehouse
    if not window.known:
        ledger.append(
            IntentRecord(window.run, plan.fingerprint, window.first, window.last, width or 1, engine, window.refresh)
        )
    before = None if window.refresh else ledger.current_run()
    fold = Fold(
        plan,
        _stored(warehouse, window.run, before),
        window.first,
        window.last,
        {name: ledger.input_version(name) for name in plan.inputs},
        project,
        before.quantiles if before else {},
        width,
        sum(plus + minus for _, came, _ in _versions(ledger, project, window, {}) for plus, minus in came.values()),
    )
    if listener:
        listener("fold", 0, None, f"versions {window.first}..{window.last}")
    gained, used = _engine(engine)(fold, listener)
    tables = _commit(warehouse, plan, window, before, ledger, gained)
    versions = _versions(ledger, project, window, gained.outputs)
    record = RunRecord(
        run=window.run, fingerprint=plan.fingerprint, first=window.first, last=window.last, engine=engine, width=used,
        rounds=gained.rounds, took=time.perf_counter() - started, inputs=_counts(versions, 1), outputs=_counts(versions, 2),
        tables=tables, quantiles=_quantiles(before, gained), refresh=window.refresh,
    )  # fmt: skip
    ledger.append(record)
    report.versions += versions
    report.rounds, report.width = max(report.rounds, gained.rounds), used


def _engine(name: str) -> Callable[[Fold, Listener | None], tuple[Gained, int]]:
    """The fold of an engine: takes a window, gives what it gained and the width it used."""
    if name == "inline":
        from ddcore.jobs.inline import fold

        return fold
    from ddcore.jobs.exchange import fold as on_spark

    return on_spark


def _stored(warehouse: Warehouse, run: int, before: RunRecord | None) -> Stored:
    from ddcore.io.state import Stored
    from ddcore.io.tables import live_files

    tables = before.tables if before else {}
    files = {
        name: live_files(warehouse.table(name), state.version)
        for name, state in tables.items()
        if name.startswith("state/")
    }
    return Stored(warehouse.root, run, files)


def _commit(
    warehouse: Warehouse, plan: Plan, window: _Window, before: RunRecord | None, ledger: Ledger, gained: Gained
) -> dict[str, TableState]:
    """Make every table hold the run: state first, outputs last. Doing it again changes nothing."""
    from ddcore.io import arrangements, tables
    from ddcore.io.changelog import ChangeLog
    from ddcore.io.state import owed_layout, owed_name, tables_of

    live = dict(before.tables) if before else {}
    layouts = dict(tables_of(plan))
    owed = {owed_name(block): owed_layout(block) for block in plan.blocks if block.op == "reduce"}

    def settle(name: str, files: Sequence[Any], *, overwrite: bool) -> None:
        base = live[name].version if name in live else None
        version = tables.commit(warehouse.table(name), files, window.run, base=base, overwrite=overwrite)
        live[name] = TableState(version, tuple(file.path for file in files), sum(file.rows for file in files))

    for name, layout in {**layouts, **owed}.items():
        files = gained.files.get(name, [])
        if files or name in live:
            if name not in live:
                arrangements.create(warehouse.table(name), layout, replace=window.refresh)
            if files or name in owed:  # wake-ups replace those of the run before, which have come due
                settle(name, files, overwrite=window.refresh or name in owed)
    for output, schema in plan.outputs.items():
        name = f"outputs/{output}"
        if name not in live:
            ChangeLog(warehouse.output(output), schema, plan.dims).create(replace=window.refresh)
        if gained.files.get(name) or name not in live:
            settle(name, gained.files.get(name, []), overwrite=window.refresh)
    return live


def _versions(
    ledger: Ledger, project: Project, window: _Window, outputs: Mapping[str, Mapping[int, tuple[int, int]]]
) -> list[tuple[int, Changes, Changes]]:
    """Per version of the window that changed anything, and its last: what inputs brought (as ingest counted it), what outputs changed."""
    came: dict[int, Changes] = {window.last: {}}
    for ingest in ledger.ingests():
        for version, (plus, minus) in ingest.counts.items():
            if window.first <= version <= window.last and ingest.input in project.inputs:
                known = came.setdefault(version, {}).get(ingest.input, (0, 0))
                came[version][ingest.input] = (known[0] + plus, known[1] + minus)
    went: dict[int, Changes] = {}
    for name, counts in outputs.items():
        for version, change in counts.items():
            went.setdefault(version, {})[name] = change
            came.setdefault(version, {})
    return [(version, came[version], went.get(version, {})) for version in sorted(came)]


def _counts(versions: Sequence[tuple[int, Changes, Changes]], side: int) -> dict[str, dict[int, tuple[int, int]]]:
    counts: dict[str, dict[int, tuple[int, int]]] = {}
    for each in versions:
        for name, change in (each[1] if side == 1 else each[2]).items():
            counts.setdefault(name, {})[each[0]] = change
    return counts


def _quantiles(before: RunRecord | None, gained: Gained) -> dict[str, tuple[int, ...]]:
    """Cuts of each arrangement: kept from the first run that had any, which is the one that loaded it."""
    kept: dict[str, tuple[int, ...]] = {name: tuple(cuts) for name, cuts in gained.quantiles.items()}
    return {**kept, **(dict(before.quantiles) if before else {})}


def main(arguments: Sequence[str] | None = None) -> int:
    """``spark-submit replay.py --project DIR [...]``: plain arguments; the master is whatever the submitter chose."""
    from ddcore.jobs.arguments import replay_arguments

    given = replay_arguments(arguments)
    try:
        report = run(**given)
    except DdError as error:
        import sys

        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    import json

    print(
        json.dumps({"run": report.run, "first": report.first, "last": report.last, "nothing_new": report.nothing_new})
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
