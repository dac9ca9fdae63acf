"""What a run reports, and the JSON object that commands end with.

Must not import anything heavy: the command line loads it at start-up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddcore.base.lattice import Frontier
from ddcore.io.ledger.version_names import VersionNames
from ddcore.io.project.frontiers import frontier_json
from ddcore.io.project.times import Time, json_time, least
from ddcore.io.publishing.published import Published

if TYPE_CHECKING:
    from ddcore.jobs.comparison import Comparison

# The version of the shape of every JSON line. It is raised by changes that break readers.
SCHEMA_VERSION = 1

Changes = dict[str, tuple[int, int]]  # by name: the sums of positive and of negative diffs


@dataclass
class RunReport:
    """What a run did. ``versions``: per folded time, the changes of each input and each output (plus, minus).

    ``run`` is the last run's number (0: no run), ``took`` is in seconds. A dry run has no outputs. Every time at or
    before ``last`` is complete; with several time dimensions ``upper`` is the frontier of all that are not.
    ``corrections`` counts updates that wait for the next version to be folded. ``publishes``: whether a run rewrites
    what was published, or lets it stay and appends the difference; None where it only goes on. ``changed``: what a
    change of the program did to each output that it concerns. ``notes`` are sentences for the user, ``warnings``
    those on keys and operators that dominate. ``stale_lock`` is the process that held the lock and ended without
    releasing it, and what became of its work. ``windows``: number, first and last time of each run. ``verified``: one
    object per output and time that was verified after it, as ``dd verify --json`` has it. ``broken``: one object per
    data test that is broken and only warns. ``published``: what became of the tables of outputs. ``comparison``: of a
    dry run after a change of the program, that beside the one of before. ``selected``: the outputs that it folded;
    empty where it folds all. ``without_rows``: the inputs of which no rows were ever taken in. ``left_out``: by
    input, the columns that its sources have and it does not. ``names``: the labels and instants of versions.
    """

    run: int = 0
    first: Time | None = None
    last: Time | None = None
    versions: list[tuple[Time, Changes, Changes]] = field(default_factory=list)
    rounds: int = 0
    took: float = 0.0
    engine: str = "spark"
    parallelism: int = 1
    nothing_new: bool = True
    dims: tuple[str, ...] = ("version",)
    upper: Frontier = ()
    corrections: int = 0
    publishes: str | None = None
    changed: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    selected: tuple[str, ...] = ()
    without_rows: list[str] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    stale_lock: dict[str, Any] | None = None
    windows: list[tuple[int, Time, Time]] = field(default_factory=list)
    verified: list[dict[str, Any]] = field(default_factory=list)
    broken: list[dict[str, Any]] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    comparison: Comparison | None = None
    names: VersionNames = field(default_factory=lambda: VersionNames(("version",)))

    @property
    def first_changed(self) -> Time | None:
        """The first version that an input or output changed at, as in the ledger; ``first`` may be less, 0."""
        changed = [version for version, inputs, outputs in self.versions if inputs or outputs]
        return least(changed) if changed else self.first


def result(report: RunReport, *, dry_run: bool = False) -> dict[str, Any]:
    """The fields of a run's JSON object."""
    return {
        "run": report.run,
        "first": json_time(report.first_changed, report.dims),
        "last": json_time(report.last, report.dims),
        **report.names.fields(report.last),
        **({"upper": frontier_json(report.upper, report.dims)} if len(report.dims) > 1 else {}),
        "versions": len(report.versions),
        **changes_by_name(*totals(report)),
        "corrections": report.corrections,
        "publishes": report.publishes,
        "changed_outputs": report.changed,
        "selected": list(report.selected),
        "notes": report.notes,
        "without_rows": report.without_rows,
        "left_out": report.left_out,
        "warnings": report.warnings,
        "broken_tests": report.broken,
        "rounds": report.rounds,
        "took": round(report.took, 3),
        "engine": report.engine,
        "parallelism": report.parallelism,
        "nothing_new": report.nothing_new,
        "dry_run": dry_run,
        "published": [vars(table) for table in report.published],
        **({} if report.comparison is None else {"comparison": report.comparison.fields()}),
        "stale_lock": report.stale_lock,
        "verified": report.verified,
    }


def json_line(command: str, fields: Mapping[str, Any]) -> str:
    """The JSON object that ends ``run`` and ``ingest``."""
    whole = {"schema_version": SCHEMA_VERSION, "command": command, **fields}
    return json.dumps(whole, ensure_ascii=False, allow_nan=False)


def spelled(fields: Mapping[str, Any], dims: Sequence[str]) -> dict[str, Any]:
    """The fields of an ingest's or an undo's report, as in its JSON object."""
    one = {name: json_time(fields[name], dims) for name in ("first", "last", "replaces") if name in fields}
    several = {"restates": frontier_json(fields["restates"], dims)} if "restates" in fields else {}
    return {**fields, **one, **several}


def totals(report: RunReport) -> tuple[Changes, Changes]:
    """The changes of inputs and of outputs, summed over all versions."""
    sums: tuple[Changes, Changes] = ({}, {})
    for _, *sides in report.versions:
        for total, changes in zip(sums, sides, strict=True):
            for name, (plus, minus) in changes.items():
                before = total.get(name, (0, 0))
                total[name] = (before[0] + plus, before[1] + minus)
    return sums


def changes_by_name(inputs: Changes, outputs: Changes) -> dict[str, dict[str, dict[str, int]]]:
    """Changes of inputs and outputs, as in the JSON object."""
    return {
        side: {name: {"plus": plus, "minus": minus} for name, (plus, minus) in changes.items()}
        for side, changes in (("inputs", inputs), ("outputs", outputs))
    }
