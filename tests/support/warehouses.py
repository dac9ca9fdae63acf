"""Projects on disk for tests: a drawn program with its histories ingested, and the logs that runs leave behind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from folding import Logs, type_name
from notation import dims_of
from programs import Case

from ddcore import reference
from ddcore.base.lattice import frontier
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IngestRecord, Source
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.updates import accumulate_counts
from ddcore.io.project.finding import find_project
from ddcore.io.project.frontiers import is_open
from ddcore.io.project.project import Project
from ddcore.io.project.times import Time, greatest, least, time_of
from ddcore.io.storage.warehouse import Warehouse


def project_of(folder: Path, drawn: Case, *, ingested: bool = True, tuning: Tuning = DEFAULT) -> Project:
    """A project of a drawn case, which folds inline; its inputs' history is in the warehouse unless told otherwise."""
    dims = dims_of(drawn.frames)
    lines = ["[project]", 'program = "program.py:program"', 'warehouse = "warehouse"', "[run]", 'engine = "inline"']
    lines += ["[time]", f"dims = [{', '.join(map(json.dumps, dims))}]"]
    for name, frame in drawn.frames.items():
        columns = {c: type_name(t) for c, t in frame.schema.items() if c not in (*dims, "diff")}
        lines += [f"[inputs.{name}.schema]", *(f'{column} = "{kind}"' for column, kind in columns.items())]
    folder.mkdir(parents=True)
    (folder / "program.py").write_text(drawn.source)
    (folder / "dd.toml").write_text("\n".join(lines) + "\n")
    tuning = replace(tuning, fed_rows=min(4, tuning.fed_rows))  # several workers read a part each, as few as rows are
    project = replace(find_project(folder, {}), tuning=tuning)
    for name, frame in drawn.frames.items() if ingested else ():
        take_in(project, name, frame)
    return project


def last_closed(ledger: Ledger, input: str | None = None) -> Time | None:
    """The last version that accepts no more rows (of an input), where times have one dimension."""
    upper = ledger.open_from(input)
    return None if upper is None else time_of(upper[0][0] - 1)


def take_in(project: Project, name: str, frame: pl.DataFrame) -> None:
    """Updates into an input's log, as an ingest leaves them; late ones at their own times."""
    warehouse = Warehouse(project.warehouse)
    warehouse.create()
    ledger = Ledger.load(warehouse, Writer())
    log = ChangeLog(warehouse.input(name), project.input_schema(name), project.dims, ledger.writer)
    number, dims = ledger.next_ingest(), project.dims
    table = log.append(frame, number, base=ledger.input_table(name))
    counts, upper = accumulate_counts(frame, dims), ledger.open_from(name)
    late = frontier(time for time in counts if upper is not None and not is_open(time, upper))
    record = IngestRecord(
        number, name, (Source("test", f"{0:032x}:{number:x}"),), least(counts), greatest(counts), len(frame), counts,
        (), table, dims=dims if len(dims) > 1 else (), restates=late, columns=tuple(project.input_schema(name)),
    )  # fmt: skip
    ledger.append(record)


def logs_of(project: Project, outputs: Any) -> Logs:
    """The output logs that readers see."""
    return {name: reference.log_of(log_of(project, name, schema), project.dims) for name, schema in outputs.items()}


def log_of(project: Project, name: str, schema: Any) -> pl.DataFrame:
    """One output log that readers see."""
    warehouse = Warehouse(project.warehouse)
    log = ChangeLog(warehouse.output(name), schema, project.dims)
    return log.collect(log.scan(Ledger.load(warehouse).table(f"outputs/{name}")))
