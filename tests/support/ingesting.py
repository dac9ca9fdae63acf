"""What tests of ingest share: a project in a folder, sources in it, and what is in the warehouse afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from places import local

from ddcore.base.schema import parse_schema
from ddcore.io.delta.deltalog import named_files
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IngestRecord, RunRecord
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs.ingest import IngestReport, IngestSettings, ingest

EDGES = {"src": "int64", "dst": "int64"}

Update = tuple[Any, ...]


def settings_of(**settings: Any) -> IngestSettings:
    """Settings whose times may be plain numbers and tuples."""
    times = {
        name: time_of(settings[name]) for name in ("version", "restate") if not isinstance(settings.get(name, ""), str)
    }
    return IngestSettings(**settings | times)


class Desk:
    """A project whose one input is ``edges``, and a folder for sources."""

    def __init__(
        self, folder: Path, schema: Mapping[str, str] = EDGES, engine: str = "inline", **settings: Any
    ) -> None:
        self.folder, self.engine = folder, engine
        self.schema = parse_schema(schema)
        self.project = Project(
            root=folder, program="program.py:program", warehouse=folder / "warehouse", inputs={"edges": self.schema},
            **settings,
        )  # fmt: skip
        (folder / "dd.toml").write_text(
            '[project]\nprogram = "program.py:program"\n[inputs.edges]\nschema = {'
            + ", ".join(f'{name} = "{kind}"' for name, kind in schema.items()) + "}\n"
        )  # fmt: skip

    def source(self, name: str, *updates: Update, **more: Sequence[Any]) -> str:
        """A source of these updates (row, version, diff); its format follows from the name."""
        types = {name: kind.polars for name, kind in self.schema.items()}
        frame = pl.DataFrame(list(updates), {**types, "version": pl.Int64, "diff": pl.Int64}, orient="row")
        frame = frame.with_columns(pl.Series(name, values) for name, values in more.items())
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".csv"):
            frame.write_csv(path, quote_style="non_numeric")
        else:
            frame.write_parquet(path)
        return str(path)

    def ingest(self, *sources: str, engine: str = "", **settings: Any) -> IngestReport:
        """Ingest with these settings; a listener is none of them."""
        listener, engine = settings.pop("listener", None), engine or self.engine
        how = settings_of(**settings)
        return ingest(self.project, "edges", list(sources), how, engine=engine, listener=listener)

    @property
    def ledger(self) -> Ledger:
        return Ledger.load(Warehouse(self.project.warehouse), Writer())

    @property
    def log(self) -> ChangeLog:
        return ChangeLog(Warehouse(self.project.warehouse).input("edges"), self.schema, writer=Writer())

    def updates(self) -> list[Update]:
        """What readers see: the input's updates, each (row, version) once, sorted by version and row."""
        frame = self.log.collect(self.log.scan(self.ledger.input_table("edges")))
        names = [*self.schema, "version"]
        summed = frame.group_by(names).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
        return summed.sort("version", *self.schema, nulls_last=True).rows()

    def stray_files(self) -> list[str]:
        """Data files in the table's folder that no reader sees and no commit ever named."""
        live = named_files(self.log.folder)
        return [path.name for path in local(self.log.folder).glob("*ingest-*") if path.name not in live]

    def records(self) -> list[IngestRecord]:
        return list(self.ledger.ingests())

    def fold(self, version: int) -> None:
        """Let the ledger say that everything up to ``version`` is folded."""
        number = self.ledger.next_run()
        nothing: dict[str, Any] = {"inputs": {}, "outputs": {}, "tables": {}}
        self.ledger.append(
            RunRecord(number, "ab12", time_of(0), time_of(version), "inline", 1, rounds=1, took=0.1, **nothing)
        )

    def refold(self, first: int, last: int) -> None:
        """Let the ledger say that everything from ``first`` to ``last`` was folded again."""
        number = self.ledger.next_run()
        nothing: dict[str, Any] = {"inputs": {}, "outputs": {}, "tables": {}}
        self.ledger.append(
            RunRecord(number, "ab12", time_of(first), time_of(last), "inline", 1, rounds=1, took=0.1, **nothing)
        )
