"""The statistics of inputs that the plan of a program in SQL was made with: a file beside the ledger.

They are counted once, when a run first reads an input, and then kept, so that the plan, and with it the state, is the
same one however much the input grows. Must not import anything heavy: every run reads them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ddcore.base.errors import StorageError
from ddcore.base.statistics import Statistics
from ddcore.io.project.project import Project
from ddcore.io.storage import store
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import Location

FILE = "_statistics.json"
"""In the ledger's folder: readers of Delta tables pass over such names, and branches have a copy."""


def are_used(project: Project) -> bool:
    """Whether joins are ordered by statistics: a program of Python says in what order it joins."""
    return project.is_sql or project.is_dbt


def kept_statistics(project: Project) -> dict[str, Statistics]:
    """The statistics by input; none where no run has counted them, or they are not used. StorageError."""
    file = _file(project)
    if not are_used(project) or not store.is_file(file):
        return {}
    with reporting(file, "read"):
        content = store.read(file)
    try:
        return {name: _statistics(values) for name, values in json.loads(content)["inputs"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(
            f"{file} does not hold statistics of inputs: {error}",
            "delete it: joins are in the order of the text then, or counted anew by ddcore run --full-refresh",
        ) from None


def keep_statistics(project: Project, statistics: Mapping[str, Statistics]) -> None:
    """Write the file, whole, and sync it. The caller holds the warehouse's lock. StorageError."""
    inputs = {name: {"rows": counted.rows, "distinct": dict(counted.distinct)} for name, counted in statistics.items()}
    file = _file(project)
    with reporting(file, "write"), store.new_file(file.parent, FILE) as new:
        with open(new.temporary, "wb") as content:
            content.write(json.dumps({"inputs": inputs}, indent=1).encode())
            content.flush()
            os.fsync(content.fileno())
        new.finish(file)
        store.sync(file.parent)
    failpoint("after-statistics")


def _file(project: Project) -> Location:
    return project.warehouse / "ledger" / FILE


def _statistics(body: Mapping[str, Any]) -> Statistics:
    return Statistics(int(body["rows"]), {name: int(values) for name, values in body["distinct"].items()})
