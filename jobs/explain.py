"""Explaining rows of an output: which input rows they rest on, which changes of inputs moved them.

Reads the logs of the inputs and folds in this process; takes no lock and writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcore.base.errors import UsageError
from ddcore.base.instants import NOW, now_at
from ddcore.base.schema import Type
from ddcore.explaining import Causes, Explanation, Inputs, Question, held, rows_with
from ddcore.explaining.restricting import Restriction
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.program import load_program
from ddcore.io.project.times import Time
from ddcore.jobs.failures import fold_errors
from ddcore.jobs.running.instants import known
from ddcore.jobs.verify import Verification
from ddcore.program.constants import told

if TYPE_CHECKING:
    from ddcore.base.schema import Schema
    from ddcore.io.delta.table_files import TableState
    from ddcore.io.ledger.records import IngestRecord
    from ddcore.io.project.project import Project

_TOLD = 100  # ingests of shared times, whose files are read to tell them apart


@dataclass(frozen=True)
class Origin:
    """Where an input row comes from: the last time at which it was added, and the ingests that can have added it then.

    One ingest where the log still tells them apart. Which of an ingest's sources had the row is not recorded.
    """

    time: Time
    ingests: tuple[IngestRecord, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources of these ingests, each once. One of them had the row."""
        return tuple(dict.fromkeys(source.name for record in self.ingests for source in record.sources))


class Explaining:
    """The warehouse as the last finished run left it, and its program. Raises as :class:`Verification`."""

    def __init__(self, project: Project, output: str) -> None:
        self.verification = Verification(project)
        self.verification.outputs([output])
        self.output, self.plan, self.names = output, self.verification.plan, self.verification.names
        schema = self.plan.outputs[output]
        self.schemas, program = dict(self.plan.inputs), load_program(project)
        self.instants = ""  # the name of one more input, with the instant of the version
        if self.plan.uses_now:
            self.instants = next(name for n in count() if (name := f"{NOW}{n or ''}") not in self.plan.inputs)
            self.schemas[self.instants] = {NOW: Type("timestamp")}
            program = told(program, self.instants)
        self.question = Question(program, output, self.schemas, schema, tuning=project.tuning)

    @property
    def schema(self) -> Schema:
        """The columns of the output."""
        return self.question.schema

    def require(self, time: Time, origin: str) -> None:
        """UsageError for a time at which the output need not be what the program gives for the inputs."""
        doubt, hint = self.verification.claims.doubt(time, self.output)
        if doubt:
            raise UsageError(f"{origin}: {doubt}", hint)

    def rows(self, time: Time, key: pl.DataFrame) -> pl.DataFrame:
        """The rows of the output with this key, and ``diff``, their counts; sorted."""
        log, state = self.verification.output_log(self.output)
        return rows_with(log.between(None, time, state, self._named(key)), key).sort(list(self.schema))

    def explanation(self, time: Time, row: pl.DataFrame) -> Explanation:
        """Input rows on which one row of the output rests. Raises the errors of the program."""
        with fold_errors():
            return self.question.explain(self._at(time), row)

    def check_explanation(self, time: Time, row: pl.DataFrame, explanation: Explanation) -> tuple[bool, bool, bool]:
        """Whether the explanation of a row suffices, whether it is minimal, and whether the row is there with all
        input rows but the named ones: each folded from nothing.
        """
        with fold_errors():
            return self.question.check(self._at(time), row, explanation.inputs)

    def moved(self, start: Time | None, end: Time, key: pl.DataFrame) -> pl.DataFrame:
        """How the rows of the output with this key changed: rows and ``diff``, sorted."""
        log, state = self.verification.output_log(self.output)
        return rows_with(log.between(start, end, state, self._named(key)), key).sort("diff", *self.schema)

    def causes(self, start: Time | None, end: Time, key: pl.DataFrame) -> Causes:
        """The changes of inputs from ``start`` to ``end`` that moved the rows with this key."""
        nothing = {name: pl.DataFrame(schema=_columns(schema)) for name, schema in self.schemas.items()}
        changes = {log.folder.name: log.between(start, end, state) for log, state in self.verification.inputs()}
        if self.instants:
            changes[self.instants] = self._instants_between(start, end)
        with fold_errors():
            return self.question.explain_change(held(nothing) if start is None else self._at(start), changes, key)

    def origins(self, name: str, rows: pl.DataFrame, after: Time | None, until: Time) -> list[Origin | None]:
        """Where rows of an input come from: for each row the last time after one time, and at or before another, at
        which its count changed in the same direction as ``diff``.
        """
        if name == self.instants:  # no ingest brought the row
            return [None] * len(rows)
        log, state = next((log, state) for log, state in self.verification.inputs() if log.folder.name == name)
        named = rows.select([name for name, kind in log.schema.items() if not kind.stored.is_nested]).unique()
        updates = _named_in(log, log.scan(state).filter(_changed(log, after, until)), named)
        lasts: list[Time | None] = []
        for at in range(len(rows)):
            own = _alike(updates, rows[at]).sort(log.dims)
            lasts.append(Time(own.select(log.dims).row(-1)) if len(own) else None)
        records: dict[Time, list[IngestRecord]] = {time: [] for time in lasts if time is not None}
        for record in self.verification.ledger.ingests(name):
            for time in record.counts.keys() & records.keys():
                records[time].append(record)
        tagged = _tagged(log, state, records, named)
        return [
            None if time is None else Origin(time, _narrowed(records[time], tagged, rows[at], log.dims, time))
            for at, time in enumerate(lasts)
        ]

    def _at(self, time: Time) -> Inputs:
        """The inputs at a time; of their logs only the rows that are asked for are loaded."""
        logs = {log.folder.name: (log, state) for log, state in self.verification.inputs()}

        def read(name: str, rows: pl.Expr | None) -> pl.DataFrame:
            if name == self.instants:
                return held({name: self._instants_between(None, time)})(name, rows)
            log, state = logs[name]
            return log.between(None, time, state, rows)

        return read

    def _instants_between(self, start: Time | None, end: Time) -> pl.DataFrame:
        """How the row of the instant changed: ``diff`` -1 and 1."""
        instants = known(self.verification.ledger, self.plan)
        sides = [None if time is None else now_at(instants, time) for time in (start, end)]
        rows = [(now, diff) for now, diff in zip(sides, (-1, 1), strict=True) if now is not None]
        return pl.DataFrame([] if sides[0] == sides[1] else rows, _columns(self.schemas[self.instants]), orient="row")

    def _named(self, key: pl.DataFrame) -> pl.Expr | None:
        return Restriction.to_row(key, self.schema).condition(self.schema)


def _columns(schema: Schema) -> Mapping[str, Any]:
    return {name: kind.polars for name, kind in schema.items()} | {"diff": pl.Int64()}


def _changed(log: ChangeLog, after: Time | None, until: Time) -> pl.Expr:
    weight = log.counts_at(until) if after is None else log.counts_at(until) - log.counts_at(after)
    return weight != 0


def _named_in(log: ChangeLog, updates: pl.LazyFrame, named: pl.DataFrame) -> pl.DataFrame:
    """Those of the updates whose rows have the values of one of the named ones."""
    if named.columns:
        updates = updates.join(named.lazy(), on=named.columns, how="semi", nulls_equal=True)
    return log.collect(updates).select(*log.schema, *log.dims, "diff")


def _alike(updates: pl.DataFrame, row: pl.DataFrame) -> pl.DataFrame:
    """Those of the updates that have this row and a ``diff`` of the same sign."""
    return rows_with(updates, row.drop("diff")).filter(pl.col("diff").sign() == row["diff"].sign()[0])


def _tagged(
    log: ChangeLog, state: TableState | None, records: Mapping[Time, Sequence[IngestRecord]], named: pl.DataFrame
) -> dict[int, pl.DataFrame]:
    """By ingest the updates in its files, of ingests that share a time with others. Without those of which files are
    gone since compaction merged them, and without all where they are many.
    """
    files = {file.path: file for file in log.files(state)}
    shared = {ingest.number: ingest for several in records.values() if len(several) > 1 for ingest in several}
    told = [record for record in shared.values() if record.files and files.keys() >= set(record.files)]
    if len(told) > _TOLD:
        return {}
    return {
        record.number: _named_in(log, log.scan_files([files[path] for path in record.files]), named) for record in told
    }


def _narrowed(
    records: Sequence[IngestRecord], tagged: Mapping[int, pl.DataFrame], row: pl.DataFrame, dims: Sequence[str],
    time: Time,
) -> tuple[IngestRecord, ...]:  # fmt: skip
    """Those of the ingests with updates at a time that can have had this row."""
    sign = 0 if row["diff"][0] > 0 else 1
    then = pl.all_horizontal(pl.col(name) == at for name, at in zip(dims, time, strict=True))
    return tuple(
        record
        for record in records
        if record.counts[time][sign]
        and (record.number not in tagged or len(_alike(tagged[record.number].filter(then), row)))
    )
