"""Verification: accumulate(output log, t) == program(accumulate(input logs, t)), the law, at some complete times.

The right side is computed from nothing, in one of two ways. ``reference``: the naive evaluator, which shares no code
with the engine; Python over rows. ``scratch``: the engine, on the accumulated inputs as a single version, in a
temporary warehouse without stored state. That finds damaged state and errors in what is carried from run to run, but no
error that the engine makes on a single version too.

Takes no lock, as no reader does, and writes nothing into the warehouse.
"""

from __future__ import annotations

import tempfile
import time as clock
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from ddcore.base import deep_stack
from ddcore.base.errors import FoldError, Mismatch, ProgramChanged, UsageError
from ddcore.base.instants import instant_of, now_at
from ddcore.base.schema import Schema, uuid_mark
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.inputs import check_input, input_log
from ddcore.io.project.frontiers import Window, corners, nothing_closed, up_to
from ddcore.io.project.program import load_plan, load_program
from ddcore.io.project.times import Time, json_time, named
from ddcore.io.reading.published import Claims, check_output, finished_run, verified_names
from ddcore.io.sources.intake import shown as shown_row
from ddcore.io.state.fold_result import Stored
from ddcore.io.storage import scratch
from ddcore.io.storage.reporting import REFRESH, reporting
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import engines
from ddcore.jobs.failures import fold_errors
from ddcore.jobs.fold import Fold, Listener
from ddcore.jobs.running import instants

if TYPE_CHECKING:
    from ddcore.io.delta.table_files import TableState
    from ddcore.io.project.project import Project
    from ddcore.jobs.report import RunReport
    from ddcore.planning.plan import Plan

Way = Literal["reference", "scratch"]
WAYS: tuple[Way, ...] = ("reference", "scratch")
SMALL = 1_000  # rows of the inputs up to which the reference is the default: seconds, as docs/verification.md shows
EXPECTED, ACTUAL = "expected count", "actual count"  # no column of a table has a space in its name


@dataclass(frozen=True)
class Selection:
    """Which times to verify; with nothing chosen, the greatest complete ones.

    ``times``: these. ``ranges``: the first version of each, and the later ones up to its last at which an input or
    output changed. ``last``: so many of the versions at which one changed. ``every``: the versions divisible by it,
    without those at which nothing changed since the one before. The last three need one time dimension.
    """

    times: Sequence[Time] = ()
    ranges: Sequence[tuple[Time, Time]] = ()
    last: int = 0
    every: int = 0


@dataclass(frozen=True)
class Verdict:
    """Whether the law holds for one output at one time.

    ``rows``: of the collection that the program gives. ``differing``: the rows whose counts differ, with the columns
    EXPECTED and ACTUAL, sorted; none where the law holds. ``took``: seconds, for all outputs at this time.
    ``names``: the label and the instant of the time, as in JSON.
    """

    output: str
    time: Time
    by: Way
    rows: int
    differing: pl.DataFrame
    took: float
    names: Mapping[str, Any]

    @property
    def holds(self) -> bool:
        """Whether no row differs."""
        return self.differing.is_empty()


def fields_of(verdict: Verdict, dims: Sequence[str]) -> dict[str, Any]:
    """The fields of a verdict's JSON object."""
    return {
        "output": verdict.output,
        "version" if len(dims) == 1 else "time": json_time(verdict.time, dims),
        **verdict.names,
        "by": verdict.by,
        "holds": verdict.holds,
        "rows": verdict.rows,
        "differing": len(verdict.differing),
        "took": round(verdict.took, 3),
    }


def mismatch(verdicts: Iterable[Verdict], dims: Sequence[str]) -> Mismatch | None:
    """The error for those verdicts by which the law does not hold; None where it holds by all."""
    failed = [verdict for verdict in verdicts if not verdict.holds]
    if not failed:
        return None
    first, number = failed[0], len(failed[0].differing)
    row = first.differing.row(0, named=True)
    counts = f"{row.pop(EXPECTED)} expected, {row.pop(ACTUAL)} in the log"
    more = f"; so are {len(failed) - 1} more outputs and times" if len(failed) > 1 else ""
    return Mismatch(
        f"{first.output} at {named(first.time, dims)} is not what the program gives for its inputs: "
        f"{number} {'row differs' if number == 1 else 'rows differ'}, the first is {shown_row(row)}: {counts}{more}",
        f"the runs stay recorded; {REFRESH}, and report it: no run should leave such an output",
    )


def after_run(project: Project, report: RunReport, every: int, listener: Listener | None = None) -> Iterator[Verdict]:
    """Verdicts for the windows of a run that has just been recorded, of all outputs.

    With one time dimension at the versions of the windows that ``every`` divides, without those at which nothing
    changed since the one before. With several at the last time of each run whose number it divides. Loads nothing where
    there is none. Adds each verdict to ``report.verified``. Raises as :class:`Verification`.
    """
    times: set[Time] = set()
    for run, first, last in report.windows:
        if len(project.dims) == 1:
            times.update(_multiples((time for time, _, _ in report.versions if first <= time <= last), every, last))
        elif run % every == 0:
            times.add(last)
    if times:
        verification = Verification(project, listener=listener)
        outputs = verification.outputs()
        claimed = [time for time in sorted(times) if verification.claimed(time, outputs)]
        for verdict in verification.verdicts(claimed, outputs):
            report.verified.append(fields_of(verdict, project.dims))
            yield verdict


class Verification:
    """The warehouse as the last finished run left it, to be verified at some times.

    ``scratch``: where a folder for temporary tables is created; by default the system's folder for such. Raises
    UsageError where nothing is folded, ProgramChanged where the program is another than the folded one, StorageError.
    """

    def __init__(
        self, project: Project, *, by: Way | None = None, scratch: Path | None = None, listener: Listener | None = None
    ) -> None:
        self.project, self.by, self.scratch, self.listener = project, by, scratch, listener
        self.warehouse = project.tables
        self.warehouse.check()
        self.ledger = Ledger.load(self.warehouse)
        self.ledger.check_dims(project.dims)
        self.run = finished_run(self.ledger)
        self.claims, self.names = Claims(self.ledger, project.dims), self.ledger.version_names(project.dims)
        self.plan = load_plan(project)
        self._holds_spark = False
        self._check_program()
        for name in self.plan.inputs:
            check_input(self.ledger, project, name)

    def _check_program(self) -> None:
        if self.run.fingerprint != self.plan.fingerprint:
            raise ProgramChanged(
                f"the program changed: the outputs were made by program {self.run.fingerprint[:12]}, this one is "
                f"{self.plan.fingerprint[:12]}",
                "put the program back to verify what it made, or go on with this one: ddcore run",
            )

    def outputs(self, names: Sequence[str] = ()) -> list[str]:
        """All outputs and the collections of data tests, or these. UsageError for one that does not exist."""
        for name in names:
            check_output(self.run, name, self.project.inputs)
        return list(dict.fromkeys(names)) or verified_names(self.run)

    def selected(self, texts: Sequence[str]) -> list[str]:
        """The outputs that the texts of ``--select`` name. UsageError."""
        from ddcore.io.project.program import load, outputs_named

        names = outputs_named(load(self.project), self.project, self.plan, texts)
        return [name for name in self.outputs() if name in names]

    def times(
        self, selection: Selection, outputs: Sequence[str], origin: str = "verify", *, strict: bool = False
    ) -> list[Time]:
        """The times that a selection names, in order. UsageError, beginning with ``origin``, for one at which the law
        is claimed for none of the outputs; ``strict``: not for each of them.
        """
        chosen: set[Time] = {*selection.times, *(first for first, _ in selection.ranges)}
        for time in sorted({*chosen, *(last for _, last in selection.ranges)}):
            self._check(time, outputs, origin, strict=strict)
        if selection.ranges or selection.last or selection.every:
            chosen |= set(self._changed_in(selection, outputs))
        elif not chosen:
            tops = corners(self.claims.upper)
            chosen = {time for time in tops if self.claimed(time, outputs)}
            if not chosen or strict:
                self._check(tops[-1], outputs, origin, strict=strict)
        return sorted(chosen)

    def claimed(self, time: Time, outputs: Sequence[str]) -> list[str]:
        """Those outputs for which the law is claimed at a time."""
        return [output for output in outputs if not self.claims.doubt(time, output)[0]]

    def left_out(self, times: Sequence[Time], outputs: Sequence[str]) -> Iterator[str]:
        """A sentence on each output that is not verified at all of the times that :meth:`times` chose."""
        for output in outputs:
            doubts = [message for time in times if (message := self.claims.doubt(time, output)[0])]
            if doubts:
                more = f"; also at {len(doubts) - 1} of the times before" if len(doubts) > 1 else ""
                yield f"left out: {doubts[-1]}{more}"

    def _check(self, time: Time, outputs: Sequence[str], origin: str, *, strict: bool) -> None:
        doubts = [doubt for output in outputs if (doubt := self.claims.doubt(time, output))[0]]
        if doubts and (strict or len(doubts) == len(outputs)):
            raise UsageError(f"{origin}: {doubts[0][0]}", doubts[0][1])

    def _changed_in(self, selection: Selection, outputs: Sequence[str]) -> Iterator[Time]:
        """The versions of a selection that follow from those at which something changed. Reads the versions of the
        inputs' and of these outputs' logs.
        """
        (dim,) = self.plan.dims
        logs = [*self.inputs(), *(self.output_log(name) for name in outputs)]
        known = pl.concat([log.collect(log.scan(state).select(dim).unique()) for log, state in logs])
        times = (Time([version]) for version in sorted(set(known[dim])))
        changed = [time for time in times if self.claimed(time, outputs)]
        for first, last in selection.ranges:
            yield from (time for time in changed if first < time <= last)
        yield from changed[-selection.last :] if selection.last else ()
        if selection.every:
            multiples = _multiples(changed, selection.every, *corners(self.claims.upper))
            yield from (time for time in multiples if self.claimed(time, outputs))

    def verdicts(self, times: Sequence[Time], outputs: Sequence[str]) -> Iterator[Verdict]:
        """One verdict per time and output for which the law is claimed then. Raises the errors of the program, with the
        time, StorageError, and UsageError where there is no folder that all machines of a cluster share.

        Cost, per time: a scan of the logs, and the evaluation of the program on the inputs as of that time.
        """
        with ExitStack() as stack:
            for number, time in enumerate(times):
                start = clock.perf_counter()
                if self.listener:
                    self.listener("verify", number, len(times), named(time, self.plan.dims))
                expected, _, by = self._evaluated(time, stack)
                took = clock.perf_counter() - start
                names = self.names.fields(time)
                for output in self.claimed(time, outputs):
                    log, state = self.output_log(output)
                    differing = _differing(expected[output], log.between(None, time, state))
                    yield Verdict(output, time, by, len(expected[output]), differing, took, names)

    def _evaluated(self, time: Time, stack: ExitStack) -> tuple[dict[str, pl.DataFrame], int, Way]:
        """What the program gives for the inputs at a time, how many rows these have, and the way it was found."""
        inputs = {log.folder.name: log.between(None, time, state) for log, state in self.inputs()}
        rows = sum(map(len, inputs.values()))
        by = self.by or ("reference" if rows <= SMALL else "scratch")
        with self._naming(time, by):
            now = now_at(instants.known(self.ledger, self.plan), time) if self.plan.uses_now else None
            expected = self._by_reference(inputs, now) if by == "reference" else self._from_scratch(inputs, now, stack)
        return expected, rows, by

    @contextmanager
    def _naming(self, time: Time, by: Way) -> Iterator[None]:
        """Say in errors of the program at which time it fails."""
        try:
            with fold_errors():
                yield
        except FoldError as error:
            error.message = f"on the inputs at {named(time, self.plan.dims)}, by {by}: {error.message}"
            raise

    def inputs(self) -> Iterator[tuple[ChangeLog, TableState | None]]:
        """The logs of the program's inputs, and their states in the ledger."""
        for name, schema in self.plan.inputs.items():
            yield input_log(self.warehouse, self.project, name, schema), self.ledger.input_table(name)

    def output_log(self, name: str) -> tuple[ChangeLog, TableState | None]:
        """The log of an output, and its state in the ledger."""
        log = ChangeLog(self.warehouse.output(name), self.plan.outputs[name], self.plan.dims)
        return log, self.ledger.output_table(name)

    def _by_reference(self, inputs: Mapping[str, pl.DataFrame], now: int | None) -> dict[str, pl.DataFrame]:
        from ddcore import reference

        columns = {
            name: {column: kind.polars for column, kind in schema.items()} for name, schema in self.plan.outputs.items()
        }
        instant = None if now is None else instant_of(now)
        inputs = {name: _marked(frame, self.plan.inputs[name]) for name, frame in inputs.items()}
        return deep_stack.call(lambda: reference.outputs_of(load_program(self.project), inputs, columns, instant))

    def _from_scratch(
        self, inputs: Mapping[str, pl.DataFrame], now: int | None, stack: ExitStack
    ) -> dict[str, pl.DataFrame]:
        """The outputs of one fold over one version, the inputs, in a warehouse of its own."""
        self._hold_spark(stack)
        parent = self.scratch or Path(tempfile.gettempdir())
        with (
            reporting(parent, "verify in", "name another folder with: --scratch-folder DIR"),
            tempfile.TemporaryDirectory(prefix="ddcore-verify-", dir=self.scratch or scratch.folder()) as folder,
        ):
            return _fold_once(Warehouse(folder), self.project, self.plan, inputs, now)

    def _hold_spark(self, stack: ExitStack) -> None:
        """Keep one JVM for all folds of the command."""
        if self.project.engine == "inline" or self._holds_spark:
            return
        from ddcore.jobs.spark.settings import is_this_machine

        project = self.project
        if self.scratch is None and not is_this_machine(project.spark_master):
            raise UsageError(
                f"the master {project.spark_master} is a cluster's, which needs a folder that all its machines share",
                "name one with: --scratch-folder DIR, or use: --engine inline",
            )
        stack.enter_context(engines.hold(project))
        self._holds_spark = True


def _fold_once(
    warehouse: Warehouse, project: Project, plan: Plan, inputs: Mapping[str, pl.DataFrame], now: int | None
) -> dict[str, pl.DataFrame]:
    """The outputs of a fold of one version, made at ``now``, in an empty warehouse, whose tables it writes. Rows and
    ``diff``.
    """
    dims, lower = plan.dims, nothing_closed(plan.dims)
    time = Time(lower[0])
    writer = Writer()  # nobody else knows the warehouse
    logs = {name: input_log(warehouse, project, name, schema, writer) for name, schema in plan.inputs.items()}
    tables = {
        name: log.append(inputs[name].with_columns(pl.lit(0).alias(dim) for dim in dims), 1, base=None)
        for name, log in logs.items()
    }
    rows = sum(map(len, inputs.values()))
    stored, window = Stored(warehouse, 1, {}), Window(lower, up_to(time))
    moved = () if now is None else ((now, time, 1),)
    fold = Fold(plan, stored, window, tables, project, project.parallelism, rows, time, instants=moved)
    gained, _ = engines.load(project.engine, project)(fold, None)
    outputs = {}
    for name, schema in plan.outputs.items():
        log = ChangeLog(warehouse.output(name), schema, dims, writer)
        log.create()
        state = log.commit(gained.files.get(f"outputs/{name}", []), 1, base=None)
        outputs[name] = log.between(None, time, state)
    return outputs


def _differing(expected: pl.DataFrame, actual: pl.DataFrame) -> pl.DataFrame:
    """The rows whose counts in two collections differ, with both counts, sorted. Both have the count in ``diff``."""
    names = [name for name in expected.columns if name != "diff"]
    zero = pl.lit(0, pl.Int64)
    sides = (
        expected.select(*names, pl.col("diff").alias(EXPECTED), zero.alias(ACTUAL)),
        actual.select(*names, zero.alias(EXPECTED), pl.col("diff").alias(ACTUAL)),
    )
    counts = pl.concat(sides).group_by(names).agg(pl.col(EXPECTED).sum(), pl.col(ACTUAL).sum())
    return counts.filter(pl.col(EXPECTED) != pl.col(ACTUAL)).sort(names)


def _multiples(versions: Iterable[Time], every: int, last: Time) -> Iterator[Time]:
    """The least multiple of ``every`` at or after each version, none after ``last``."""
    multiples = (Time([-(-version.version // every) * every]) for version in versions)
    return (version for version in multiples if version <= last)


def _marked(frame: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """Rows of an input in which texts that are UUIDs are marked so: nothing else tells the reference."""
    uuids = [name for name, kind in schema.items() if kind.name == "uuid" and name in frame.columns]
    return frame.with_columns(pl.col(name).ext.to(uuid_mark()) for name in uuids)
