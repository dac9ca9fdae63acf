"""OpenLineage events of runs, for the extra ``lineage``: START, then COMPLETE or FAIL, with inputs and outputs.

They go where OpenLineage's own settings say: its environment variables, or ``openlineage.yml``. A thread of its own
sends them. A run never fails because of them, and ends at most a moment later: an event that cannot be sent is dropped.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ddcore.base.version import __version__
from ddcore.program.data_tests import is_test
from ddcore.text.redaction import masked

if TYPE_CHECKING:
    from ddcore.base.schema import Schema
    from ddcore.io.ledger.records import RunRecord
    from ddcore.io.project.project import Project
    from ddcore.io.storage.warehouse import Warehouse
    from ddcore.planning.column_lineage import Source
    from ddcore.planning.plan import Plan

PRODUCER = f"urn:ddcore:{__version__}"
WAIT = 2.0  # seconds at the end of a run for events that are not sent yet
_FILE = "openlineage.yml"
_SIMPLE = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")

_logger = logging.getLogger("ddcore")


def is_configured() -> bool:
    """Whether OpenLineage's settings name a place for events, and its library is installed. Imports nothing."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    named = any(os.environ.get(name) for name in _SIMPLE)
    named = named or any(name.startswith("OPENLINEAGE__TRANSPORT") for name in os.environ)
    named = named or Path(_FILE).is_file() or Path("~/.openlineage", _FILE).expanduser().is_file()
    return named and find_spec("openlineage") is not None


class Lineage:
    """The events of one run. Without settings, or without the library, it does nothing."""

    def __init__(self, project: Project, plan: Plan, warehouse: Warehouse) -> None:
        self._queue: SimpleQueue[tuple[str, datetime, dict[str, Any]] | None] = SimpleQueue()
        self._thread: Thread | None = None
        if not is_configured():
            return
        of_branch = f"@{project.branch}" if project.branch else ""
        self._job = f"{project.root.resolve().name}.{project.program.rpartition(':')[2]}{of_branch}"
        self._inputs = {name: (_dataset(warehouse.input(name)), schema) for name, schema in plan.inputs.items()}
        outputs = {name: schema for name, schema in plan.outputs.items() if not is_test(name)}
        self._outputs = {name: (_dataset(warehouse.output(name)), schema) for name, schema in outputs.items()}
        self._plan = plan
        self._thread = Thread(target=self._send_all, name="ddcore lineage", daemon=True)
        self._thread.start()

    def start(self) -> None:
        """The run begins."""
        self._put("START")

    def complete(self, record: RunRecord) -> None:
        """The run is recorded."""
        rows_in = {name: sum(map(sum, counts.values())) for name, counts in record.inputs.items()}
        rows_out = {name: sum(map(sum, counts.values())) for name, counts in record.outputs.items()}
        self._put("COMPLETE", rows_in=rows_in, rows_out=rows_out)
        self._finish()

    def end(self) -> None:
        """A run of some outputs alone is recorded: a run of all of them tells what it did."""
        self._put("COMPLETE")
        self._finish()

    def fail(self, error: str) -> None:
        """The run ended with an error."""
        self._put("FAIL", error=masked(error))
        self._finish()

    def _put(self, state: str, **what: Any) -> None:
        if self._thread is not None:
            self._queue.put((state, datetime.now(UTC), what))

    def _finish(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(WAIT)
            if self._thread.is_alive():
                _logger.info("OpenLineage: an event is not sent after %s s", WAIT)

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _send_all(self) -> None:
        try:
            logging.getLogger("openlineage").addHandler(logging.NullHandler())  # it must not write to the terminal
            from openlineage.client import OpenLineageClient
            from openlineage.client.uuid import generate_new_uuid

            from ddcore.planning.column_lineage import column_lineage  # it imports all operators

            client, number = OpenLineageClient(), str(generate_new_uuid())
            self._columns = column_lineage(self._plan)
        except Exception as error:  # settings may be wrong in many ways
            _logger.info("OpenLineage: no events are sent: %s", masked(str(error)))
            return
        while (event := self._queue.get()) is not None:
            try:
                client.emit(self._event(number, *event))
            except Exception as error:
                _logger.info("OpenLineage: an event is not sent: %s", masked(str(error)))

    def _event(self, number: str, state: str, at: datetime, what: Mapping[str, Any]) -> Any:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import (
            error_message_run,
            input_statistics_input_dataset,
            output_statistics_output_dataset,
            processing_engine_run,
        )

        run: dict[str, Any] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(version=__version__, name="ddcore")
        }
        if "error" in what:
            run["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                message=what["error"], programmingLanguage="python"
            )
        rows_in, rows_out = what.get("rows_in", {}), what.get("rows_out", {})
        read = input_statistics_input_dataset.InputStatisticsInputDatasetFacet
        written = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        inputs = [
            InputDataset(*address, facets=_schema(schema), inputFacets=_statistics("input", read, rows_in, name))
            for name, (address, schema) in self._inputs.items()
        ]
        outputs = [
            OutputDataset(
                *address,
                facets=_schema(schema) | self._origins(name),
                outputFacets=_statistics("output", written, rows_out, name),
            )
            for name, (address, schema) in self._outputs.items()
        ]
        job = Job(namespace=os.environ.get("OPENLINEAGE_NAMESPACE") or "ddcore", name=self._job)
        return RunEvent(
            eventType=RunState[state],
            eventTime=at.isoformat(),
            run=Run(runId=number, facets=run),
            job=job,
            inputs=inputs,
            outputs=outputs,
            producer=PRODUCER,
        )

    def _origins(self, output: str) -> dict[str, Any]:
        """What the columns and the rows of an output come from."""
        from openlineage.client.facet_v2 import column_lineage_dataset as facet

        from ddcore.planning.column_lineage import DIRECT

        def fields(sources: Mapping[Source, set[str]]) -> list[facet.InputField]:
            return [
                facet.InputField(
                    *self._inputs[name][0],
                    column,
                    [facet.Transformation("DIRECT" if word in DIRECT else "INDIRECT", word) for word in sorted(words)],
                )
                for (name, column), words in sorted(sources.items())
            ]

        lineage, (_, schema) = self._columns[output], self._outputs[output]
        columns = {name: facet.Fields(fields(lineage.columns[name])) for name in schema}
        return {"columnLineage": facet.ColumnLineageDatasetFacet(columns, fields(lineage.rows))}


def _dataset(address: object) -> tuple[str, str]:
    """The namespace and the name of a table, by OpenLineage's rules: those of a bucket, or of this file system."""
    parts = urlsplit(str(address))
    if parts.scheme and parts.netloc:
        return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")
    return "file", str(Path(str(address)).resolve())


def _schema(schema: Schema) -> dict[str, Any]:
    from openlineage.client.facet_v2 import schema_dataset

    fields = [
        schema_dataset.SchemaDatasetFacetFields(name=name, type=str(kind), ordinal_position=number)
        for number, (name, kind) in enumerate(schema.items(), 1)
    ]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields=fields)}


def _statistics(side: str, facet: Any, rows: Mapping[str, int], name: str) -> dict[str, Any]:
    return {f"{side}Statistics": facet(rowCount=rows[name])} if name in rows else {}
