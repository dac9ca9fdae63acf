"""What P machines would take, computed from what was measured here and from the figures of a network.

Measured without Spark: processor time, bytes and supersteps of one worker over two sizes and of four workers. From
these follow the fixed part of a worker, the work for an edge, and what a byte costs that is sent. What Spark adds is
measured by two executors that have next to nothing to do. Two workers with edges, which are not among all these, are
computed too and compared with what they take: without Spark their processor time, and on two executors of one core
the seconds by the clock, of the whole command and from when all workers are there.

Seconds by the clock can be computed only where both cores are free: if one worker has less than nine tenths of a core
to itself, they are printed and not judged. Otherwise ``docs/performance.md`` gets the tables.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench import table
from bench.cluster import folded as by_executors
from bench.measure import Failed, Figures, Result, in_turn, prompt_costs
from bench.parallelism import make_project
from bench.project import REPOSITORY
from bench.superstep import figures_of
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.storage.warehouse import Warehouse

EDGES = int(os.environ.get("DDCORE_BENCH_EDGES", "10_000_000"))
FEWER = 4  # so many times
IDLE = 10_000  # edges of executors that have next to nothing to do
SIZES = (50_000_000, 200_000_000, 1_000_000_000)
MACHINES = (4, 16, 64)
BANDWIDTH = 1e9  # bytes a second, from and to each machine at once
LATENCY = 0.0002  # seconds until a message of nothing is there
MESSAGE = 25e-6  # seconds of processor time of each side of a message: docs/decisions/spark.md
MOST_WRONG = 0.15
FREE = 0.9  # of a core, that a worker must have to itself
BEGIN, END = "<!-- scale_model: begin -->", "<!-- scale_model: end -->"


@dataclass(frozen=True)
class Model:
    """Seconds of processor time: ``start`` of a process with the engine in it, ``fixed`` of a fold whatever its size,
    ``edge`` and ``byte`` for each, ``read`` for each edge of these; ``bytes`` sent for an edge if all updates left
    their worker; ``supersteps``.

    Of Spark, seconds by the clock: ``around`` the workers, for executors, planning and commits; ``meeting``, in which
    workers find each other, once the last has come: they read meanwhile.
    """

    start: float
    fixed: float
    edge: float
    byte: float
    bytes: float
    supersteps: float
    read: float = 0.0
    around: float = 0.0
    meeting: float = 0.0

    def sent(self, edges: int, machines: int) -> float:
        """Bytes from all to all: of evenly divided keys 1/P stay with their worker."""
        return self.bytes * edges * (machines - 1) / machines

    def work(self, edges: int, machines: int) -> float:
        """Seconds of processor time of each worker in its fold, where all have as much to do."""
        messages = 2 * (machines - 1) * self.supersteps * MESSAGE
        return self.fixed + messages + (self.edge * edges + self.byte * self.sent(edges, machines)) / machines

    def seconds(self, edges: int, machines: int) -> float:
        """By the clock, from when all workers are there and have a core each, until they are done."""
        if machines == 1:
            return self.work(edges, 1)
        waiting = self.supersteps * LATENCY + max(0.0, self.meeting - self.read * edges / machines)
        return self.work(edges, machines) + waiting + self.sent(edges, machines) / machines / BANDWIDTH

    def with_spark(self, idle: Figures, edges: int = IDLE) -> Model:
        """The model with what Spark adds, by the ``s`` and ``fold_s`` of two executors with so few edges."""
        met = replace(self, meeting=0.0).seconds(edges, 2)
        return replace(self, around=idle["s"] - idle["fold_s"], meeting=max(0.0, idle["fold_s"] - met))


def model_of(start: float, few: Figures, one: Figures, four: Figures, edges: int = EDGES) -> Model:
    """The model of one worker over an ``FEWER``-th of the edges and over all, and of four workers. Raises Failed."""
    more = (one["cpu_s"] - few["cpu_s"]) / (edges - edges // FEWER)
    # Where caches hold the few edges, so many more take more than as many times the work.
    fixed = max(0.0, one["cpu_s"] - more * edges)
    edge = (one["cpu_s"] - fixed) / edges
    if more <= 0:
        raise Failed(f"{FEWER} times the edges take {one['cpu_s']:.2f} s, and not more than {few['cpu_s']:.2f} s")
    messages = 4 * 2 * 3 * four["supersteps"] * MESSAGE
    byte = max(0.0, four["cpu_s"] - 4 * fixed - edge * edges - messages) / four["bytes"]
    return Model(start, fixed, edge, byte, four["bytes"] / edges * 4 / 3, four["supersteps"], one["read_s"] / edges)


def run(rounds: int) -> Iterator[Result]:
    """Measure, compare with two workers, compute. Raises Failed where a comparison is wrong by too much."""
    medians = measured(rounds)
    model = model_of(medians["start"]["cpu_s"], medians["few"], medians["1"], medians["4"])
    model = model.with_spark(medians["idle"])
    print(model, file=sys.stderr)
    comparisons = list(compared(model, medians, rounds))
    yield from comparisons
    free = medians["1"]["cpu_s"] / medians["1"]["s"]
    if is_free := free >= FREE:
        write(comparisons, model)
    else:
        print(f"one worker had {free:.0%} of a core: seconds by the clock say nothing", file=sys.stderr)
    for result in comparisons:
        if abs(result.ratio - 1) > MOST_WRONG and (is_free or result.unit != "s"):
            raise Failed(f"{result.name}: {result.ours:.2f}, and {result.other:.2f} measured")
    for edges in SIZES:
        for machines in MACHINES:
            name = f"computed: search, {edges:,} edges, {machines} machines"
            one = model.seconds(edges, 1)
            yield Result(name, model.seconds(edges, machines), "computed: 1 machine", one, rounds)


def measured(rounds: int) -> dict[str, Figures]:
    """The medians of all that is measured, in turn."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = {edges: Path(scratch) / str(edges) for edges in (EDGES, EDGES // FEWER, IDLE)}
        for edges, folder in folders.items():
            folder.mkdir()
            make_project(folder, edges // 5, edges)
        start = [sys.executable, "-c", "from ddcore.jobs.engines import workers"]
        sides = {"few": partial(folded, folders[EDGES // FEWER], 1)}
        sides |= {str(number): partial(folded, folders[EDGES], number) for number in (1, 2, 4)}
        sides["start"] = partial(prompt_costs, start, REPOSITORY)
        sides |= {"idle": partial(on_spark, folders[IDLE]), "executors": partial(on_spark, folders[EDGES])}
        return in_turn(sides, rounds)


def folded(folder: Path, number: int) -> Figures:
    """What :mod:`bench.superstep_engine` prints of a fold by so many workers, and the seconds in which they read."""
    shutil.rmtree(folder / "warehouse", ignore_errors=True)
    shutil.copytree(folder / "ingested", folder / "warehouse")
    figures = figures_of(folder, number, environment={"DDCORE_WORKER_ROWS": "0"})
    record = Ledger.load(Warehouse(folder / "warehouse")).current_run()
    assert record is not None
    return {**figures, "read_s": sum(cost.seconds for cost in record.profile.operators if cost.kind == "input")}


def on_spark(folder: Path) -> Figures:
    """Seconds of two executors, of which each is a worker however few the edges are."""
    before = os.environ.get("DDCORE_WORKER_ROWS")
    os.environ["DDCORE_WORKER_ROWS"] = "0"
    try:
        return by_executors(folder, 2)
    finally:
        os.environ.pop("DDCORE_WORKER_ROWS")
        if before is not None:
            os.environ["DDCORE_WORKER_ROWS"] = before


def compared(model: Model, medians: Mapping[str, Figures], rounds: int) -> Iterator[Result]:
    """What is computed for two workers beside what they took, which the model has not seen."""
    two, executors, name = medians["2"], medians["executors"], f"computed: search, {EDGES:,} edges"
    yield Result(
        f"{name}, each of 2 workers", model.work(EDGES, 2), "measured", two["cpu_s"] / 2, rounds,
        unit="s of processor time",
    )  # fmt: skip
    seconds = model.seconds(EDGES, 2)
    yield Result(f"{name}, 2 executors once they run", seconds, "measured", executors["fold_s"], rounds)
    yield Result(f"{name}, 2 executors, whole command", model.around + seconds, "measured", executors["s"], rounds)


def write(comparisons: list[Result], model: Model) -> None:
    """The tables, between their markers in the document."""
    before, _, rest = table.DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    table.DOCUMENT.write_text(f"{before}{BEGIN}\n{rendered(comparisons, model)}\n{END}{after}", encoding="utf-8")


def rendered(comparisons: list[Result], model: Model) -> str:
    """Markdown: the figures of the model, what was compared, and what is computed."""
    figures = {
        "a worker, whatever it does, beside the start of Python": f"{model.fixed:.2f} s of processor time",
        "Python and the engine": f"{model.start:.2f} s of processor time",
        "an edge": f"{model.edge * 1e6:.2f} µs of processor time, {model.read * 1e6:.2f} of it to read",
        "a byte that is sent": f"{model.byte * 1e9:.0f} ns of processor time",
        "bytes for an edge, if all left their worker": f"{model.bytes:.1f}",
        "supersteps": f"{model.supersteps:.0f}",
        "Spark, before all workers are there and after": f"{model.around:.1f} s",
        "until workers have met, once all are there": f"{model.meeting:.2f} s",
    }
    lines = ["| measured | |", "| --- | --: |", *(f"| {name} | {figure} |" for name, figure in figures.items())]
    lines += ["", "| computed, and measured to compare | computed | measured | |", "| --- | --: | --: | --: |"]
    for it in comparisons:
        lines.append(f"| {it.name.removeprefix('computed: ')} | {it.ours:.2f} s | {it.other:.2f} s | {it.ratio:.2f} |")
    lines += ["", f"| computed, once workers run | 1 machine | {' | '.join(f'{n} machines' for n in MACHINES)} |"]
    lines.append("| --- |" + " --: |" * (1 + len(MACHINES)))
    for edges in SIZES:
        seconds = (f"{model.seconds(edges, machines):.2g}" for machines in (1, *MACHINES))
        lines.append(f"| {edges // 1_000_000:,} million edges | {' | '.join(f'{float(s):g} s' for s in seconds)} |")
    return "\n".join(lines)
