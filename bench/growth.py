"""Bounded growth: many runs of one version each over data whose size stays the same, in one process.

A graph of 500 nodes loses one edge and gets another in every version. The history is ingested once, then each version
is folded by a run of its own, with compaction as it comes. What grows with the number of runs shows.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from html import escape
from pathlib import Path

import polars as pl

from bench.project import REPOSITORY
from ddcore.io.project.finding import find_project
from ddcore.io.project.times import time_of
from ddcore.jobs import ingest, replay

EVERY = 100  # runs between two rows of the table
_AROUND = 50  # so many runs before and after the hundredth stand for it: one in ten compacts
_NODES, _EDGES = 500, 2_000
_PORTION = 100  # versions of one ingest
PROGRAM = """
import ddcore as dd


def program(edges):
    degrees = edges.group_by("src").agg(degree=dd.count())
    return {"degrees": degrees, "largest": degrees.group_by().agg(degree=dd.max("degree"))}
"""
SETTINGS = """
[project]
program = "program.py:program"
warehouse = "warehouse"
[inputs.edges.schema]
src = "int64"
dst = "int64"
[run]
engine = "inline"
[retention]
days = 0
"""


@dataclass(frozen=True)
class Sample:
    """The warehouse after ``runs`` runs. Seconds are means of the runs since the sample before: from start to end, and
    of the processor. Files of tables and of their Delta logs are counted apart.
    """

    runs: int
    seconds: float
    cpu: float
    state_bytes: int
    all_bytes: int
    state: int
    outputs: int
    inputs: int
    ledger: int
    logs: int


def measure(runs: int, tell: Callable[[Sample], None]) -> tuple[list[Sample], Costs, Costs]:
    """Fold ``runs`` versions one by one; ``tell`` gets each sample at once. Also what the last runs cost, and those
    around the hundredth.

    These are runs of a second warehouse with the same history. They take turns with the last runs of the first, so that
    whatever else the machine does is the same for both.
    """
    samples, costs = list[Sample](), list[Costs]()
    with tempfile.TemporaryDirectory() as scratch:
        old = _Warehouse(Path(scratch) / "old", runs)
        new = _Warehouse(Path(scratch) / "new", runs)
        young: list[Costs] = [new.fold() for _ in range(100 - _AROUND)]
        for version in range(1, runs + 1):
            costs.append(old.fold())
            if version > runs - 2 * _AROUND:
                young.append(new.fold())
            if version % EVERY == 0:
                samples.append(_sample(version, _mean(costs[-EVERY:]), old.folder))
                tell(samples[-1])
    return samples, _mean(costs[-2 * _AROUND :]), _mean(young[-2 * _AROUND :])


@dataclass(frozen=True)
class Costs:
    """Seconds of a run: from start to end, and of the processor."""

    seconds: float
    cpu: float


class _Warehouse:
    """A warehouse with a history of so many versions, of which version 0 is folded. ``folder``: its tables."""

    def __init__(self, folder: Path, versions: int) -> None:
        folder.mkdir()
        (folder / "program.py").write_text(PROGRAM)
        (folder / "dd.toml").write_text(SETTINGS)
        self._project, self._next, self.folder = find_project(folder, {}), 0, folder / "warehouse"
        for number, portion in enumerate(_history(versions)):
            source = folder / f"edges-{number}.parquet"
            portion.write_parquet(source)
            ingest.ingest(self._project, "edges", [str(source)], engine="inline")
        self.fold()

    def fold(self) -> Costs:
        """Fold one more version."""
        start, worked = time.perf_counter(), time.process_time()
        replay.run(self._project, last=time_of(self._next))
        self._next += 1
        return Costs(time.perf_counter() - start, time.process_time() - worked)


def _mean(costs: Sequence[Costs]) -> Costs:
    return Costs(statistics.mean(cost.seconds for cost in costs), statistics.mean(cost.cpu for cost in costs))


def _history(versions: int) -> Iterator[pl.DataFrame]:
    """Edges at version 0, then a lost and a new one at each version; in portions."""
    rng, rows = random.Random(0), list[tuple[int, int, int, int]]()
    edges = [(rng.randrange(_NODES), rng.randrange(_NODES)) for _ in range(_EDGES)]
    rows += [(*edge, 0, 1) for edge in edges]
    for version in range(1, versions + 1):
        location = rng.randrange(_EDGES)
        rows.append((*edges[location], version, -1))
        edges[location] = rng.randrange(_NODES), rng.randrange(_NODES)
        rows.append((*edges[location], version, 1))
        if version % _PORTION == 0 or version == versions:
            yield pl.DataFrame(rows, schema=["src", "dst", "version", "diff"], orient="row")
            rows = []


def _sample(runs: int, costs: Costs, warehouse: Path) -> Sample:
    sizes, counts = dict.fromkeys(("state", "all"), 0), dict.fromkeys(("state", "outputs", "inputs", "ledger"), 0)
    logs = 0
    for location, _, names in os.walk(warehouse):
        part = Path(location).relative_to(warehouse).parts[:1]
        for name in names:
            size = (Path(location) / name).stat().st_size
            sizes["all"] += size
            sizes["state"] += size * (part == ("state",))
            if location.endswith("_delta_log"):
                logs += 1
            elif part:
                counts[part[0]] += 1
    files = counts["state"], counts["outputs"], counts["inputs"], counts["ledger"]
    return Sample(runs, costs.seconds, costs.cpu, sizes["state"], sizes["all"], *files, logs)


def table(samples: list[Sample]) -> str:
    """The samples as lines of text: about ten of them."""
    step = max(1, len(samples) // 10)
    chosen = {0, *range(step - 1, len(samples), step), len(samples) - 1}
    heads = [field.name.replace("_", " ") for field in fields(Sample)]
    rows = [heads]
    for index, sample in enumerate(samples):
        if index in chosen:
            rows.append([f"{value:.3f}" if isinstance(value, float) else f"{value:,}" for value in astuple(sample)])
    widths = [max(len(row[index]) for row in rows) for index in range(len(heads))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


# --- the picture ------------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _LEFT, _TOP = 640, 120, 70, 30


def draw(samples: list[Sample], file: Path = REPOSITORY / "docs" / "growth.svg") -> None:
    """Three panels over the number of runs: seconds of a run, bytes, files."""
    panels = [
        ("seconds of a run (mean of 100): elapsed, processor", ("seconds", "cpu")),
        ("kilobytes: all, state", ("all_bytes", "state_bytes")),
        ("files: state, outputs, inputs, ledger, Delta logs", ("state", "outputs", "inputs", "ledger", "logs")),
    ]
    height = len(panels) * (_HEIGHT + 60) + _TOP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + _LEFT + 30} {height}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]
    for number, (title, names) in enumerate(panels):
        scale = 1000 if "bytes" in names[0] else 1
        parts.append(_panel(samples, title, names, scale, _TOP + number * (_HEIGHT + 60)))
    file.write_text("\n".join([*parts, "</svg>"]) + "\n", encoding="utf-8")


_COLORS = ("#1f5fa8", "#c0552b", "#3a8f4d", "#8250a0", "#777777")


def _panel(samples: list[Sample], title: str, names: tuple[str, ...], scale: int, top: int) -> str:
    most = max(getattr(sample, name) for sample in samples for name in names) / scale or 1
    last = samples[-1].runs
    bottom = top + _HEIGHT
    lines = [f'<text x="{_LEFT}" y="{top - 8}" font-weight="bold">{escape(title)}</text>']
    for share in (0, 0.5, 1):
        y = bottom - share * _HEIGHT
        label = f"{share * most:.2f}" if most < 10 else f"{share * most:,.0f}"
        lines.append(f'<path d="M{_LEFT} {y:.1f}h{_WIDTH}" stroke="#dddddd"/>')
        lines.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for share in (0, 0.5, 1):
        x = _LEFT + share * _WIDTH
        lines.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{share * last:,.0f}</text>')
    for name, color in zip(names, _COLORS, strict=False):
        points = " ".join(
            f"{_LEFT + sample.runs / last * _WIDTH:.1f},{bottom - getattr(sample, name) / scale / most * _HEIGHT:.1f}"
            for sample in samples
        )
        lines.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>')
    for index, (name, color) in enumerate(zip(names, _COLORS, strict=False)):
        x, label = _LEFT + index * 120, escape(name.replace("_", " "))
        lines.append(f'<text x="{x}" y="{bottom + 34}" fill="{color}">{label}</text>')
    return "\n".join(lines)


def main(runs: int) -> None:
    """Measure, print the table, and draw the picture after a whole measurement."""
    print("\t".join(field.name for field in fields(Sample)), flush=True)
    samples, last, hundredth = measure(runs, lambda sample: print(*astuple(sample), sep="\t", flush=True))
    print(table(samples))
    print(
        f"the last {2 * _AROUND} runs take {last.seconds / hundredth.seconds:.2f} x the time, "
        f"{last.cpu / hundredth.cpu:.2f} x the processor time of {2 * _AROUND} runs around the hundredth"
    )
    draw(samples)
