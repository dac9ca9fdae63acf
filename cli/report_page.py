"""The page of ``dd report``: what runs did, from their records in the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from ddcore.cli.charts import bars, curve, heat_map, share
from ddcore.cli.operators import numbers_of
from ddcore.cli.page import Html, figure, page, scrolling, section, svg_inline, table, tag, tiles
from ddcore.cli.text import cell, count, duration, size
from ddcore.io.ledger.history import moment
from ddcore.io.ledger.profiles import HeatRecord, OperatorRecord, ProfileRecord
from ddcore.io.project.times import Time, least, span
from ddcore.io.project.times import shown as shown_time

if TYPE_CHECKING:
    from ddcore.io.ledger.ledger import Ledger
    from ddcore.io.ledger.records import IngestRecord, RunRecord
    from ddcore.io.project.project import Project

_OPERATORS = 200  # in the table; a drawing has all
_RUNS = 200
_INGESTS = 200
_OUTPUTS = 24
_BARS = 20  # runs that are drawn as bars
_DRAWN = 400  # boxes of a drawing that a browser shows well


def report_page(project: Project, ledger: Ledger, runs: Sequence[RunRecord]) -> str:
    """The page for some runs, oldest first, at least one. Cost: that of the records and of the drawing's layout."""
    newest = runs[-1]
    name = project.root.resolve().name
    title = f"{name}: run {newest.run}" if len(runs) == 1 else f"{name}: runs {runs[0].run} to {newest.run}"
    profile = combined(runs)
    parts = [_head(title, project, runs, profile), *_warnings(profile)]
    parts += [_dataflow(profile), _operators(profile), _heat(profile.heat, project.dims)]
    parts += _outputs(ledger, runs, project.dims)
    parts.append(_growth(_leading_to(ledger, runs)))
    parts.append(_ingests(ledger, runs, project.dims))
    if len(runs) > 1:
        parts.append(_runs_table(runs, project.dims))
    return page(title, *parts)


def combined(runs: Sequence[RunRecord]) -> ProfileRecord:
    """What the operators of the newest program did in all runs of it, and the differences of all runs.

    Memory is that of the run with most.
    """
    from ddcore.jobs.running.profiles import merged

    profiles = [run.profile for run in runs if run.fingerprint == runs[-1].fingerprint]
    newest = runs[-1].profile
    sums = {operator.number: operator for operator in newest.operators}
    for profile in profiles[:-1]:
        for operator in profile.operators:
            if operator.number in sums:
                sums[operator.number] = _sum(sums[operator.number], operator)
    return ProfileRecord(tuple(sums.values()), newest.loops, merged(run.profile.heat for run in runs))


def _sum(a: OperatorRecord, b: OperatorRecord) -> OperatorRecord:
    heavier = a if a.key_rows >= b.key_rows else b
    return replace(
        a,
        taken=a.taken + b.taken,
        sent=a.sent + b.sent,
        seconds=a.seconds + b.seconds,
        memory=max(a.memory, b.memory),
        rows_read=a.rows_read + b.rows_read,
        bytes_read=a.bytes_read + b.bytes_read,
        rows_written=a.rows_written + b.rows_written,
        bytes_written=a.bytes_written + b.bytes_written,
        key=heavier.key,
        key_rows=a.key_rows + b.key_rows if a.key == b.key else heavier.key_rows,
    )


# --- parts of the page ------------------------------------------------------------------------------------------------


def _head(title: str, project: Project, runs: Sequence[RunRecord], profile: ProfileRecord) -> Html:
    newest = runs[-1]
    changed_in = _totals([counts for run in runs for counts in run.inputs.values()])
    changed_out = _totals([counts for run in runs for counts in run.outputs.values()])
    took, rounds = sum(run.took for run in runs), max(run.rounds for run in runs)
    written = sum(operator.bytes_written for operator in profile.operators)
    read = sum(operator.bytes_read for operator in profile.operators)
    changed = [time for run in runs for counts in run.inputs.values() for time in counts]  # a first run begins at 0
    versions = span(least(changed) if changed else runs[0].first, newest.last, project.dims)
    engine = f"{newest.engine}, {newest.parallelism} worker{'' if newest.parallelism == 1 else 's'}"
    about = f"{moment(newest.at).replace('T', ' ')}, program {newest.fingerprint[:8]} ({project.program})"
    tops = [
        ("versions" if len(project.dims) == 1 else "times", versions, ""),
        ("updates in", f"+{count(changed_in[0])}", f"-{count(changed_in[1])}"),
        ("updates out", f"+{count(changed_out[0])}", f"-{count(changed_out[1])}"),
        ("time", duration(took), f"{engine}"),
        ("rounds", count(rounds), "at most in one run" if len(runs) > 1 else ""),
        ("written", size(written), f"read {size(read)}"),
    ]
    return tag("header", tag("h1", title), tag("p", about, class_="dim"), tiles(tops))


def _totals(counts: Sequence[object]) -> tuple[int, int]:
    sides = [side for several in counts if isinstance(several, dict) for side in several.values()]
    return sum(plus for plus, _ in sides), sum(minus for _, minus in sides)


def _warnings(profile: ProfileRecord) -> Iterator[Html]:
    from ddcore.jobs.running.profiles import warnings

    for warning in warnings(profile):
        yield tag("p", warning, class_="warning", role="note")


def _dataflow(profile: ProfileRecord) -> Html:
    from ddcore.drawing.diagram import Box, Diagram, Edge, Frame
    from ddcore.drawing.svg import Note, svg

    about = (
        "Each box is an operator with its line in the program, the updates that it took in and sent, and its time; "
        "the bar is its part of the time. Dashed orange lines lead to the next round of a loop."
    )
    if len(profile.operators) > _DRAWN:
        return section("Dataflow", f"{count(len(profile.operators))} operators are too many for a drawing.")
    boxes = {
        operator.number: Box(operator.kind, operator.title, [], (), operator.loop, operator.number)
        for operator in profile.operators
    }
    total = sum(operator.seconds for operator in profile.operators) or 1.0
    edges = [
        Edge(boxes[number], boxes[operator.number], feedback)
        for operator in profile.operators
        for numbers, feedback in ((operator.reads, False), (operator.feedback, True))
        for number in numbers
    ]
    frames = [
        Frame(loop.number, loop.parent, loop.name, loop.max_rounds, loop.returns, loop.prioritized)
        for loop in profile.loops
    ]
    notes = {
        operator.number: Note(tuple(_lines(operator)), _told(operator), operator.seconds / total)
        for operator in profile.operators
    }
    drawing = svg(Diagram(list(boxes.values()), edges, frames), "the dataflow of the program", notes)
    return section("Dataflow", about, scrolling(svg_inline(drawing), "dataflow"))


def _lines(operator: OperatorRecord) -> Iterator[str]:
    if operator.source_line:
        yield operator.source_line
    sides = [f"{count(operator.taken)} in"] if operator.kind != "input" else []
    sides += [f"{count(operator.sent)} out"] if operator.kind != "output" else []
    yield f"{', '.join(sides)}, {duration(operator.seconds)}"


def _told(operator: OperatorRecord) -> str:
    lines = [f"{operator.number} {operator.named}", f"{count(operator.taken)} updates in, {count(operator.sent)} out"]
    lines.append(f"{duration(operator.seconds)}, {size(operator.memory)} in memory")
    lines.append(f"state: {count(operator.rows_read)} rows read, {count(operator.rows_written)} written")
    return "\n".join([*lines, *([f"heaviest key: {operator.key}"] if operator.key else [])])


def _operators(profile: ProfileRecord) -> Html:
    total = sum(operator.seconds for operator in profile.operators) or 1.0
    slowest = sorted(profile.operators, key=lambda operator: -operator.seconds)[:_OPERATORS]
    rows = []
    for slow in slowest:
        taken, sent, took, *state = numbers_of(slow)
        name, source_line = f"{slow.number} {slow.title}", tag("span", slow.source_line, class_="mono")
        rows.append([name, source_line, took, share(slow.seconds / total), taken, sent, *state, slow.key or ""])
    headers = ["operator", "from", "time", "", "in", "out", "memory", "state read", "written", "heaviest key"]
    if not any(row[-1] for row in rows):
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    about = "Slowest first. State is in rows and in bytes of its files; what an output writes is its log."
    return section("Operators", about, table(headers, rows, right=(2, 4, 5, 6, 7, 8), label="operators"))


def _heat(heat: HeatRecord, dims: Sequence[str]) -> Html:
    first = sorted({version for version, _, _ in heat.cells})
    rounds = sorted({current for _, current, _ in heat.cells})
    if not first:
        return section("Differences", "There were no differences.")
    across = list(range(first[0], first[-1] + 1, heat.versions)) if len(first) > 1 else first
    down = [*([-1] if rounds[0] < 0 else []), *range(0, rounds[-1] + 1, heat.rounds)]
    cells = {
        (across.index(version), down.index(current)): number
        for version, current, number in heat.cells
    }  # fmt: skip
    named_rounds = ["outside loops" if start < 0 else _range(start, heat.rounds) for start in down]
    picture = heat_map(
        f"differences by {dims[0]} and round", [_range(start, heat.versions) for start in across], named_rounds, cells
    )
    about = (
        f"The updates that arrangements and outputs gained, by {dims[0]} (across) and by round of the loop (down). "
        "A stronger colour is more. A column that reaches far down is a version whose change went through many rounds."
    )
    listed = [
        [_range(version, heat.versions), "outside" if current < 0 else _range(current, heat.rounds), count(number)]
        for version, current, number in sorted(heat.cells, key=lambda cell: -cell[2])[:_OPERATORS]
    ]
    numbers = tag(
        "details",
        tag("summary", "As a table"),
        table([dims[0], "round", "differences"], listed, right=(2,), label="differences by version and round"),
    )
    return section("Differences by version and round", about, scrolling(picture, "differences"), numbers)


def _range(first: int, width: int) -> str:
    return str(first) if width == 1 else f"{first}–{first + width - 1}"


def _outputs(ledger: Ledger, runs: Sequence[RunRecord], dims: Sequence[str]) -> Iterator[Html]:
    """How many rows each output has after each version of the runs, and before them."""
    first = runs[0]
    begun = ledger.rows_before(first)
    rows, points = dict(begun), dict[str, dict[Time, int]]()
    for run in runs:
        if run.refresh:
            rows, points = {}, {}
        elif run.folds_again and run is not first:
            rows = ledger.rows_before(run)
        for name, counts in run.outputs.items():
            known = {
                time: several
                for time, several in points.get(name, {}).items()
                if not run.folds_again or time < run.first
            }
            for time in sorted(counts):
                rows[name] = rows.get(name, 0) + counts[time][0] - counts[time][1]
                known[time] = rows[name]
            points[name] = known
    pictures = []
    for name in sorted({*rows, *points})[:_OUTPUTS]:
        curved = [(shown_time(time, dims), number) for time, number in sorted(points.get(name, {}).items())]
        if name in begun and len(dims) == 1 and first.first.version > 0 and not any(run.refresh for run in runs):
            curved.insert(0, (shown_time(Time([first.first.version - 1]), dims), begun[name]))
        if curved:
            caption = f"{name}: {count(curved[-1][1])} rows after {curved[-1][0]}"
            pictures.append(figure(caption, curve(f"rows of {name} by {dims[0]}", curved)))
    if pictures:
        yield section(
            "Outputs",
            "The number of rows of each output after each version.",
            tag("div", *pictures, class_="multiples"),
        )


def _leading_to(ledger: Ledger, runs: Sequence[RunRecord]) -> Sequence[RunRecord]:
    """The runs, or those before a single one with it."""
    if len(runs) > 1:
        return runs
    return list(islice(ledger.runs_backwards(runs[0].run), _BARS))[::-1]


def _growth(runs: Sequence[RunRecord]) -> Html:
    """Rows of inputs' logs, outputs' logs and state after each run."""
    kinds = {"outputs": "updates in logs of outputs", "state": "updates in state"}
    pictures = []
    for folder, what in kinds.items():
        points = [
            (f"run {run.run}", sum(s.rows for name, s in run.tables.items() if name.startswith(f"{folder}/")))
            for run in runs
        ]
        caption = f"{what}: {count(points[-1][1])} after run {runs[-1].run}"
        drawn = bars(what, points) if len(points) <= _BARS else curve(what, points)
        pictures.append(figure(caption, drawn))
    tables = sorted(runs[-1].tables.items(), key=lambda entry: -entry[1].rows)[:_OPERATORS]
    rows = [[tag("span", name, class_="mono"), count(state.rows), count(state.files)] for name, state in tables]
    listed = tag(
        "details",
        tag("summary", f"Tables after run {runs[-1].run}"),
        table(["table", "updates", "files"], rows, right=(1, 2), label="tables"),
    )
    about = "What is stored after each run. Compaction merges files, and gives history up where dd.toml says so."
    return section("Growth", about, tag("div", *pictures, class_="multiples"), listed)


def _ingests(ledger: Ledger, runs: Sequence[RunRecord], dims: Sequence[str]) -> Html:
    """The ingests with versions that the runs folded, newest first."""
    low, high = runs[0].first, runs[-1].last
    inputs = {name for run in runs for name in run.program_inputs}
    ingests: list[IngestRecord] = []
    for name in inputs:
        index = ledger.ingest_index(name)
        ingests += ledger.ingests_at(index, index.between(low[0], high[0]))
    ingests = [ingest for ingest in ingests if ingest.last >= low and ingest.first <= high]
    rows = [_ingest(ingest, dims) for ingest in sorted(ingests, key=lambda ingest: -ingest.number)]
    if not rows:
        return section("Sources", "No ingest has versions that these runs folded.")
    about = "The ingests whose versions these runs folded, newest first."
    if len(rows) > _INGESTS:
        about += f" {count(len(rows) - _INGESTS)} more are in the ledger: ddcore log."
    headers = ["ingest", "when", "input", "sources", dims[0] if len(dims) == 1 else "times", "inserts", "deletes"]
    return section("Sources", about, table(headers, rows[:_INGESTS], right=(5, 6), label="ingests"))


def _ingest(ingest: IngestRecord, dims: Sequence[str]) -> list[str]:
    plus, minus = _totals([dict(ingest.all_counts)])
    sources = ", ".join(cell(source.name) for source in ingest.sources[:5])
    more = f" and {count(len(ingest.sources) - 5)} more" if len(ingest.sources) > 5 else ""
    when = moment(ingest.at)[:16].replace("T", " ")
    times = span(ingest.first, ingest.last, dims)
    return [str(ingest.number), when, ingest.input, sources + more, times, f"+{count(plus)}", f"-{count(minus)}"]


def _runs_table(runs: Sequence[RunRecord], dims: Sequence[str]) -> Html:
    most = max(run.took for run in runs) or 1.0
    rows = []
    for run in list(reversed(runs))[:_RUNS]:
        inputs = _totals([dict(counts) for counts in run.inputs.values()])
        outputs = _totals([dict(counts) for counts in run.outputs.values()])
        rows.append([
            str(run.run), moment(run.at)[:16].replace("T", " "), span(run.first, run.last, dims),
            duration(run.took), share(run.took / most), f"+{count(inputs[0])} -{count(inputs[1])}",
            f"+{count(outputs[0])} -{count(outputs[1])}", count(run.rounds),
            f"{run.engine} x{run.parallelism}", run.fingerprint[:8],
        ])  # fmt: skip
    headers = ["run", "when", "versions", "time", "", "in", "out", "rounds", "engine", "program"]
    return section("Runs", "Newest first.", table(headers, rows, right=(3, 5, 6, 7), label="runs"))
