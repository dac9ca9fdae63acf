"""Kill commands at random moments and run them again, over and over: ``python tools/soak.py --cycles 300``.

The history of the package set (sample_data) is cut into pieces at random. Each piece is ingested and folded; now and
then an ingest is undone and repeated, or everything is folded anew. Every command may be killed with SIGKILL at a
random moment, the driver or one of Spark's Python workers, and is run again until it ends by itself. After each run all
output logs, and the input's, are compared row by row with those of one undisturbed run. One cycle is one kill.

Inline, the processes are forked from one that has imported everything, so that most moments lie in the work itself.

Prints a table. The exit code is 1 where a row was lost or is there twice, or a command ended in another way than it
should. The same ``--seed`` draws the same cuts, commands and victims; moments depend on the machine as well.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import polars as pl
from forks import Ended, Forks, forks

from ddcore.io.ledger.ledger import Ledger
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.finding import find_project
from ddcore.io.project.program import load_plan
from ddcore.io.project.project import Project
from ddcore.io.storage.warehouse import Warehouse

TOP = Path(__file__).resolve().parent.parent
HISTORY = TOP / "sample_data" / "package_sets" / "dependencies.parquet"
COMMAND = [str(Path(sys.executable).with_name("ddcore"))]
INPUT = "dependencies"
LIMIT = 300.0  # seconds for one command
ENGINES = {"inline": ("inline", 1), "spark, 1 worker": ("spark", 1), "spark, 2 workers": ("spark", 2)}
# How often each engine is drawn, and the first guess of how many seconds a run takes.
SHARES = {"inline": 0.965, "spark, 1 worker": 0.025, "spark, 2 workers": 0.01}
LENGTHS = {"inline": 1.0, "spark, 1 worker": 7.0, "spark, 2 workers": 12.0}
SPARED, UNDONE, REFRESHED, WORKER = 0.3, 0.15, 0.08, 0.4  # how often a command is not killed, and so on

Logs = dict[str, pl.DataFrame]


@dataclass
class Tally:
    """What the soak did, by engine, and the numbers of rows that were lost or are there more often than they should."""

    killed: Counter[str] = field(default_factory=Counter)
    workers: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)
    histories: int = 0
    compared: int = 0
    lost: int = 0
    twice: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def cycles(self) -> int:
        """The number of kills."""
        return self.killed.total()

    def table(self, seed: int, seconds: float) -> str:
        """The result as a Markdown table."""
        lines = [
            "| engine | kills | of these, Spark's Python workers | commands that ended |",
            "| --- | --- | --- | --- |",
        ]
        for name in ENGINES:
            lines.append(f"| {name} | {self.killed[name]} | {self.workers[name]} | {self.commands[name]} |")
        totals = self.killed.total(), self.workers.total(), self.commands.total()
        lines.append("| all | " + " | ".join(map(str, totals)) + " |")
        rows = {
            "cycles": f"{self.cycles:,}", "histories": f"{self.histories:,}", "rows compared": f"{self.compared:,}",
            "rows lost": f"{self.lost:,}", "rows twice": f"{self.twice:,}",
            "commands with a wrong end": f"{len(self.wrong):,}", "seed": str(seed), "minutes": f"{seconds / 60:.0f}",
        }  # fmt: skip
        return "\n".join([*lines, "", "| | |", "| --- | --- |", *(f"| {name} | {it} |" for name, it in rows.items())])


def logs_of(project: Project) -> Logs:
    """The input's log and every output log as readers see them, unconsolidated."""
    warehouse = Warehouse(project.warehouse)
    ledger, plan = Ledger.load(warehouse), load_plan(project)
    schemas = {f"inputs/{name}": schema for name, schema in plan.inputs.items()}
    schemas |= {f"outputs/{name}": schema for name, schema in plan.outputs.items()}
    logs = {}
    for name, schema in schemas.items():
        folder = warehouse.table(name)
        state = ledger.input_table(folder.name) if name.startswith("inputs/") else ledger.table(name)
        log = ChangeLog(folder, schema, plan.dims)
        logs[name] = log.collect(log.scan(state))
    return logs


def differences(actual: pl.DataFrame, expected: pl.DataFrame) -> tuple[int, int]:
    """How many updates of ``expected`` are missing in ``actual``, and how many are there that should not be, or more
    often than they should.
    """
    row = expected.columns
    both = pl.concat([actual.select(row).with_columns(_n=pl.lit(1)), expected.with_columns(_n=pl.lit(-1))])
    sums = both.group_by(row).agg(pl.col("_n").sum())["_n"]
    return int(-sums.filter(sums < 0).sum()), int(sums.filter(sums > 0).sum())


class Soak:
    """One project that commands are killed in, over and over."""

    def __init__(self, folder: Path, seed: int, processes: Forks, shares: Mapping[str, float] = SHARES) -> None:
        self.folder, self.rng, self.processes, self.shares = folder, random.Random(seed), processes, shares
        self.tally = Tally()
        self.lengths = {(name, kind): LENGTHS[name] for name in ENGINES for kind in ("run", "ingest")}
        self.history = pl.read_parquet(HISTORY)
        self.versions: list[int] = self.history["version"].unique().sort().to_list()  # some change nothing
        self.expected = self._undisturbed()

    def _undisturbed(self) -> Logs:
        project = self._project("undisturbed")
        for arguments in (["ingest", INPUT, str(HISTORY)], ["run"]):
            assert self._command(project, "inline", arguments, LIMIT, worker=False) == (0, "")
        logs = logs_of(project)
        shutil.rmtree(project.root)
        return logs

    def _project(self, name: str) -> Project:
        folder = self.folder / name
        shutil.copytree(TOP / "examples" / "packages", folder)
        return find_project(folder, {})

    def run(self, cycles: int) -> Tally:
        """Go through histories until so many commands were killed."""
        while self.tally.cycles < cycles and not self.tally.wrong:
            project = self._project("project")
            for arguments in self._commands(project):
                self._repeat(project, arguments, cycles)
                if arguments[0] == "run":
                    self._compare(project)
                if self.tally.wrong:
                    return self.tally
            self.tally.histories += 1
            print(
                f"history {self.tally.histories}: {self.tally.cycles} kills, {self.tally.lost} rows lost, "
                f"{self.tally.twice} twice", flush=True,
            )  # fmt: skip
            shutil.rmtree(project.root)
        return self.tally

    def _commands(self, project: Project) -> Iterator[list[str]]:
        """The commands of one history: pieces of it are ingested, and folded up to random versions."""
        cuts = sorted(self.rng.sample(self.versions[:-1], self.rng.randrange(1, 5)))
        folded = -1
        for number, (before, end) in enumerate(pairwise([-1, *cuts, self.versions[-1]])):
            source = project.root / f"piece-{number}.parquet"
            self.history.filter(pl.col("version").is_between(before + 1, end)).write_parquet(source)
            yield ["ingest", INPUT, str(source)]
            if self.rng.random() < UNDONE:
                yield ["ingest", "--undo", str(self._newest(project))]
                yield ["ingest", INPUT, str(source)]
            if self.rng.random() < 0.5 and end > folded + 1:
                folded = self.rng.randrange(folded + 1, end)
                yield ["run", "--to-version", str(folded)]
            if self.rng.random() < REFRESHED:
                yield ["run", "--full-refresh"]
            yield ["run"]
            folded = end

    def _newest(self, project: Project) -> int:
        return Ledger.load(Warehouse(project.warehouse)).next_ingest() - 1

    def _repeat(self, project: Project, arguments: Sequence[str], cycles: int) -> None:
        """Run a command until it ends by itself; until then it is killed."""
        killed = False
        while True:
            name = self.rng.choices(list(self.shares), list(self.shares.values()))[0]
            key, worker = (name, arguments[0]), ENGINES[name][0] == "spark" and self.rng.random() < WORKER
            spared = self.rng.random() < SPARED or self.tally.cycles >= cycles
            moment = LIMIT if spared else self.rng.uniform(0.05, 1.05 * self.lengths[key])
            began = time.monotonic()
            code, victim = self._command(project, name, arguments, moment, worker=worker)
            took = time.monotonic() - began
            print(f"{name}: {arguments[0]}, killed {victim or 'nothing'}, exit {code}, {took:.1f} s", flush=True)
            if victim:
                self.tally.killed[name] += 1
                self.tally.workers[name] += victim == "worker"
            if code == 0 or (killed and code == 2 and "--undo" in arguments):  # 2: the killed one had undone it
                self.tally.commands[name] += 1
                if not victim:
                    self.lengths[key] = 0.5 * self.lengths[key] + 0.5 * took
                return
            if not victim or code not in (-signal.SIGKILL, 1):
                self.tally.wrong.append(f"{name}: {' '.join(arguments)}: exit {code}")
                print(self.tally.wrong[-1], (self.folder / "err").read_text(), sep="\n", flush=True)
                return
            killed = True

    def _command(
        self, project: Project, name: str, arguments: Sequence[str], moment: float, *, worker: bool
    ) -> tuple[int, str]:
        """Run a command; if it has not ended by then, kill something of it. Its exit code, and what was killed."""
        engine, workers = ENGINES[name]
        words = [*arguments, "-q", "--project", str(project.root)]
        words += [] if "--undo" in arguments else ["--engine", engine]
        if engine == "inline":
            pid = self.processes.start(*words)
            ended = self.processes.wait(moment)
            if ended is None:
                os.kill(pid, signal.SIGKILL)
                return _code(self.processes.wait(LIMIT)), "driver"
            return ended.code, ""
        words += ["--parallelism", str(workers)] if arguments[0] == "run" else []
        with (self.folder / "err").open("wb") as errors:
            process = subprocess.Popen([*COMMAND, *words], stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
        victim = _kill(process, moment, worker=worker)
        return process.wait(LIMIT), victim

    def _compare(self, project: Project) -> None:
        """Count the rows that the logs lack or have too often, up to the version that is folded."""
        upper = Ledger.load(Warehouse(project.warehouse)).upper()
        assert upper is not None
        for name, log in logs_of(project).items():
            end = self._ingested(project) if name.startswith("inputs/") else upper[0][0] - 1
            expected = self.expected[name].filter(pl.col("version") <= end)
            lost, twice = differences(log, expected)
            self.tally.compared += len(expected)
            self.tally.lost += lost
            self.tally.twice += twice

    @staticmethod
    def _ingested(project: Project) -> int:
        latest = Ledger.load(Warehouse(project.warehouse)).latest_ingested()
        assert latest is not None
        return latest.version


def _code(ended: Ended | None) -> int:
    assert ended is not None, "a killed process does not end"
    return ended.code


def _kill(process: subprocess.Popen[bytes], moment: float, *, worker: bool) -> str:
    """SIGKILL the command, or one of its Spark workers, after so many seconds; says which, "" if it ended before."""
    try:
        process.wait(moment)
        return ""
    except subprocess.TimeoutExpired:
        pass
    deadline = time.monotonic() + 60
    while worker and time.monotonic() < deadline and process.poll() is None:
        for pid in descendants(process.pid):
            if "pyspark.worker" in command_of(pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                return "worker"
        time.sleep(0.02)
    if process.poll() is not None:
        return ""
    process.kill()
    return "driver"


def descendants(pid: int) -> Iterator[int]:
    """The processes that a process started, and those that these started."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            yield from descendants(child)
            yield child


def command_of(pid: int) -> str:
    """The command line of a process, empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description="Kill commands at random moments and run them again, over and over.")
    parser.add_argument("--cycles", type=int, default=300, help="how many kills (default: 300)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="default: drawn, and printed")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    os.environ.setdefault("DDCORE_WORKER_ROWS", "0")  # several workers for a few rows
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ddcore-soak-") as folder, forks(Path(folder)) as processes:
        tally = Soak(Path(folder), options.seed, processes).run(options.cycles)
    print(tally.table(options.seed, time.monotonic() - began))
    return int(bool(tally.lost or tally.twice or tally.wrong))


if __name__ == "__main__":
    sys.exit(main())
