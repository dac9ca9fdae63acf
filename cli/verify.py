"""``dd verify``: whether the outputs are what the program gives for its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import UsageError
from ddcore.cli.completion import one_of, output_names, version_names
from ddcore.cli.options import (
    LIMIT,
    ON_TERMINAL,
    OR_BEFORE,
    SELECT,
    VERTICAL,
    Call,
    argument,
    command,
    option,
    whole_number,
)
from ddcore.cli.output import SCHEMA_VERSION, Output, Progress
from ddcore.cli.text import cell, count, laid_out, plain
from ddcore.io.ledger.labels import label_text
from ddcore.io.project.times import json_time, named
from ddcore.text.wording import listed, meant

if TYPE_CHECKING:
    from ddcore.io.project.project import Project
    from ddcore.jobs.publishing import TableVerdict
    from ddcore.jobs.verify import Selection, Verdict, Verification, Way


@command("engine master parallelism json quiet project")
def verify(
    call: Call,
    outputs: list[str] | None = argument("[OUTPUT]...", "The outputs. Default: all.", complete=output_names),
    *,
    at: list[str] | None = option(
        "V",
        "At this version: a number, latest, an offset: -1, a label, or a date: yesterday. A..B: at A, and at "
        "each later one up to B at which something changed. With several time dimensions: day=7,revision=1. May be "
        "repeated. Default: the last folded one.",
        str,
        complete=version_names,
    ),
    select: list[str] | None = SELECT,
    or_before: bool = OR_BEFORE,
    last: int | None = option("N", "At the last N versions at which something changed.", whole_number(1)),
    every: int | None = option(
        "N",
        "At every version that N divides, without those at which nothing changed since the one before.",
        whole_number(1),
    ),
    by: str | None = option(
        "reference|scratch",
        "What to compare with: the naive evaluator, or a fold from nothing. Default: reference where the "
        "inputs have at most 1,000 rows.",
        complete=one_of("reference", "scratch"),
    ),
    scratch_folder: Path | None = option(
        "DIR", "Where scratch keeps its tables while it works. Default: the system's folder for temporary files."
    ),
    limit: int | None = LIMIT,
    vertical: bool = VERTICAL,
) -> int:
    """Verify that outputs are what the program gives for its inputs, computed anew, at some versions.

    One line per output and version. Exits with 3 where rows differ, and lists them with both counts; --limit is per
    output and version. Takes no lock and writes nothing into the warehouse.
    """
    out = call.output
    settings = call.opened()
    way = _way(by)
    if scratch_folder is not None and not scratch_folder.is_dir():
        raise UsageError(f"--scratch-folder: {scratch_folder} is not a folder", "name one that exists")
    if outputs and select:
        raise UsageError("--select: outputs are named as well", "leave one of the two out")
    from ddcore.cli.notices import listener, notices
    from ddcore.jobs import publishing
    from ddcore.jobs.verify import Verification, mismatch

    with out.claimed(), out.progress() as progress, notices(out, progress):
        listen = listener(out, progress, settings.engine)
        verification = Verification(settings, by=way, scratch=scratch_folder, listener=listen)
        names = verification.selected(select) if select else verification.outputs(outputs or ())
        selection = _selection(verification, names, at or (), last or 0, every or 0, or_before=or_before)
        times = verification.times(selection, names, "--at" if at else "verify", strict=bool(outputs))
        for note in verification.left_out(times, names):
            out.say(note)
        found = verification.verdicts(times, names)
        verdicts = tell_verdicts(out, progress, settings, found, out.data, limit=limit, vertical=vertical)
        tables = [*publishing.verdicts(settings, verification.ledger, names)]
    for table in tables:
        _tell_table(out, table)
    if not verdicts:
        out.say("nothing to verify: no such version has changed anything")
    if error := mismatch(verdicts, settings.dims) or publishing.mismatch(tables):
        raise error
    return 0


def _tell_table(out: Output, verdict: TableVerdict) -> None:
    """One line, or one JSON record, for a published table."""
    many = 0 if verdict.differing is None else len(verdict.differing)
    if out.json:
        fields = {"table": verdict.output, "path": verdict.path, "holds": verdict.holds, "differing": many}
        out.record(schema_version=SCHEMA_VERSION, **fields, problem=verdict.problem or None)
    elif not (out.quiet and verdict.holds):
        word, color = ("holds", "green") if verdict.holds else ("differs", "red")
        what = "" if verdict.holds else f": {verdict.problem or f'{count(many)} differ'}"
        out.data((word, color), f"{' ' * (9 - len(word))}the table of {verdict.output}{what}")


def _way(text: str | None) -> Way | None:
    from ddcore.jobs.verify import WAYS

    for way in WAYS:
        if way == text:
            return way
    if text is not None:
        raise UsageError(f"--by: there is no {text!r:.60}", meant(text, WAYS) or f"one of: {listed(WAYS)}")
    return None


def _selection(
    verification: Verification, outputs: Sequence[str], at: Sequence[str], last: int, every: int, *, or_before: bool
) -> Selection:
    """The times that the options name. UsageError for one that cannot be read, and for options of one dimension only
    where there are several.
    """
    from ddcore.io.ledger.readable import Readable
    from ddcore.io.project.frontiers import nothing_closed
    from ddcore.io.project.times import example
    from ddcore.jobs.verify import Selection

    dims, claims = verification.plan.dims, verification.claims
    readable = Readable(dims, claims.since or nothing_closed(dims), claims.upper_of(outputs), verification.names)
    for name, value in (("--last", last), ("--every", every)):
        if value and len(dims) > 1:
            raise UsageError(
                f"{name} {value}: dd.toml has the time dimensions {', '.join(dims)}", f"say: --at {example(dims)}"
            )
    times, ranges = [], []
    for text in at:
        if ".." in text and len(dims) == 1:
            begin, _, end = text.partition("..")
            first = readable.time(begin, "--at", begins=True) if begin.strip() else claims.least
            final = readable.time(end.strip() or "latest", "--at", or_before=or_before)
            assert first is not None, "something is folded"
            if first > final:
                raise UsageError(f"--at {text}: the first version is after the last", "both ends are inclusive")
            ranges.append((first, final))
        else:
            times.append(readable.time(text, "--at", or_before=or_before))
    return Selection(times, ranges, last, every)


def tell_verdicts(
    out: Output, progress: Progress, project: Project, found: Iterable[Verdict], write: Callable[..., None], *,
    limit: int | None, vertical: bool = False,
) -> list[Verdict]:  # fmt: skip
    """Say each verdict when it is found, with the rows that differ: at most ``limit``, 0 for all, None for a screen."""
    verdicts = []
    for verdict in found:
        progress.wipe()
        verdicts.append(verdict)
        _tell_verdict(out, project, verdict, write)
        _tell_rows(out, project, verdict, limit, write, vertical=vertical)
    return verdicts


def _tell_verdict(out: Output, project: Project, verdict: Verdict, write: Callable[..., None]) -> None:
    """One line, or one JSON record, for a verdict. With ``quiet`` only where the law does not hold."""
    if out.json:
        from ddcore.jobs.verify import fields_of

        out.record(schema_version=SCHEMA_VERSION, **fields_of(verdict, project.dims))
    elif not (out.quiet and verdict.holds):
        word, color = ("holds", "green") if verdict.holds else ("differs", "red")
        rows = f"{count(verdict.rows)} {'row' if verdict.rows == 1 else 'rows'}"
        if not verdict.holds:
            rows = f"{count(len(verdict.differing))} differ, {rows} expected"
        what = f"{verdict.output} at {named(verdict.time, project.dims)}"
        what += f" ({label_text(verdict.names['label'])})" if verdict.names["label"] else ""
        write((word, color), f"{' ' * (9 - len(word))}{what}  {rows}  by {verdict.by} in {verdict.took:.1f}s")


def _tell_rows(
    out: Output, project: Project, verdict: Verdict, limit: int | None, write: Callable[..., None], *, vertical: bool
) -> None:
    """The rows that differ, with both counts, at most ``limit`` (0: all; None: as many as a terminal shows)."""
    if out.json:
        names = verdict.differing.columns[:-2]
        for *row, expected, actual in _first(verdict, limit or 0):
            fields = {name: plain(value) for name, value in zip(names, row, strict=True)}
            time = {"version" if len(project.dims) == 1 else "time": json_time(verdict.time, project.dims)}
            out.record(output=verdict.output, **time, row=fields, expected=expected, actual=actual)
        return
    if verdict.holds:
        return
    part = list(_first(verdict, (ON_TERMINAL if out.on_terminal else 0) if limit is None else limit))
    cells = [[*map(cell, row[:-2]), count(row[-2]), count(row[-1])] for row in part]
    columns = verdict.differing
    numbers = [number for number, dtype in enumerate(columns.dtypes) if dtype.is_numeric()]
    for _, line in laid_out(columns.columns, cells, numbers, out.width, vertical=vertical):
        write(f"  {line}")
    if len(verdict.differing) > len(part):
        out.rest(f"{count(len(verdict.differing) - len(part))} more")


def _first(verdict: Verdict, limit: int) -> Iterable[tuple[Any, ...]]:
    return (verdict.differing.head(limit) if limit else verdict.differing).iter_rows()
