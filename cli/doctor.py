"""``dd doctor``: what this machine and this project lack, with a hint what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ddcore.cli.options import Call, command, flag
from ddcore.cli.output import SCHEMA_VERSION, Output
from ddcore.cli.text import aligned
from ddcore.text.redaction import masked

if TYPE_CHECKING:
    from ddcore.io.project.project import Project
    from ddcore.jobs.doctor import Check

_COLORS = {"ok": "green", "note": "yellow", "fail": "red"}


@command("json project")
def doctor(
    call: Call,
    *,
    deep: bool = flag("Read every byte of the warehouse, 1 GB/s, and compare its digests."),
) -> int:
    """Check Java, the jars of Spark and Delta, the warehouse, the lock, the kernels, and which program `dd` is here.

    Of the warehouse: that every file of inputs, outputs, state and ledger is there, with its size, footer and row
    count; and what killed commands left behind. Exits with 1 when a check fails, and says how to fix it.
    """
    from ddcore.jobs.doctor import checks

    out = call.output
    results = [
        replace(check, message=masked(check.message), hint=masked(check.hint))
        for check in checks(lambda: _project(call), deep=deep)
    ]
    if out.json:
        for check in results:
            out.record(schema_version=SCHEMA_VERSION, **vars(check))
    else:
        _tell(out, results)
    return int(any(check.state == "fail" for check in results))


def _project(call: Call) -> Project | None:
    """The project, or None where the working folder is in none and neither option nor variable names one."""
    import os

    from ddcore.io.project.project import FILE_NAME

    here = Path.cwd()
    explicit = call.project is not None or os.environ.get("DDCORE_PROJECT")
    if not explicit and not any((folder / FILE_NAME).is_file() for folder in (here, *here.parents)):
        return None
    return call.opened()


def _tell(out: Output, results: list[Check]) -> None:
    lines = aligned([[check.state, check.name, check.message] for check in results])
    for check, line in zip(results, lines, strict=True):
        out.data((check.state, _COLORS[check.state]), line[len(check.state) :])
        if check.hint and check.state != "ok":
            out.data(f"      {check.hint}")
