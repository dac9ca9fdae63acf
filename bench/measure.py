"""Runs the sides of a benchmark in turn and takes medians."""

from __future__ import annotations

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

Figures = dict[str, float]
"""The figures of one run by name: seconds end in ``_s``, memory in ``_mib``."""

Side = Callable[[], Figures]

_BYTECODE = {
    "PYTHONDONTWRITEBYTECODE": ""
}  # modules of a checkout are kept compiled too, as those of installed packages


_POLL = 0.01  # seconds


class Failed(Exception):
    """A benchmark that broke, or whose sides disagree about the result."""


class Skipped(Exception):
    """A benchmark that needs something this machine lacks; the message says what."""


@dataclass(frozen=True)
class Result:
    """One comparison. ``ours`` and ``other`` are medians over ``runs`` runs of each side, in seconds or in ``unit``.
    ``limit`` is the greatest ratio promised, from ``promises.toml``: benchmarks leave it out.
    """

    name: str
    ours: float
    peer: str
    other: float
    runs: int
    limit: float | None = None
    unit: str = "s"
    ours_cpu_s: float | None = None
    peer_cpu_s: float | None = None
    ours_peak_mib: float | None = None
    peer_peak_mib: float | None = None
    ours_bytes_per_row: float | None = None

    @property
    def ratio(self) -> float:
        """Ours over the peer's: below 1, ours is faster."""
        return self.ours / self.other

    def line(self) -> str:
        """One JSON object, rounded to microseconds, without fields that have no value."""
        ours, other = (f"{side}_{self.unit.replace(' ', '_')}" for side in ("ours", "peer"))
        fields = {**asdict(self), "ratio": self.ratio, ours: self.ours, other: self.other}
        order = ["name", ours, "peer", other, "ratio", "limit", "ours_cpu_s", "peer_cpu_s"]
        order += ["ours_peak_mib", "peer_peak_mib", "ours_bytes_per_row", "runs"]
        present = {key: fields[key] for key in order if fields[key] is not None}
        return json.dumps({key: round(it, 6) if isinstance(it, float) else it for key, it in present.items()})


def in_turn(sides: Mapping[str, Side], rounds: int, least: Collection[str] = ()) -> dict[str, Figures]:
    """The median of every figure of every side. Each side runs once per round, so that noise affects all alike.

    For the sides in ``least`` it is the minimum instead: fairer to a peer that noise slows down more.
    """
    runs: dict[str, list[Figures]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, run in sides.items():
            runs[name].append(run())
    return {name: summary(figures, min if name in least else statistics.median) for name, figures in runs.items()}


def summary(runs: Sequence[Figures], of: Callable[[list[float]], float] = statistics.median) -> Figures:
    """The median of every figure of some runs, or another value ``of`` them."""
    return {figure: of([run[figure] for run in runs]) for figure in runs[0]}


def agree(figures: Mapping[str, Figures], *what: str) -> None:
    """Raise Failed unless all sides have the same figures of these names."""
    if len({tuple(side[name] for name in what) for side in figures.values()}) > 1:
        shown = {name: {item: side[item] for item in what} for name, side in figures.items()}
        raise Failed(f"the sides disagree: {shown}")


def peak_mib() -> float:
    """The most memory that this process has had, in MiB."""
    if peak := _peak_of("self"):
        return peak
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)


def _peak_of(process: int | str) -> float:
    """The most memory that a process has had, in MiB; 0 where nothing tells. On Linux ``ru_maxrss`` does not: it is at
    least that of the process which started it.
    """
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"^VmHWM:\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def prompt_costs(command: Sequence[object], cwd: Path, environment: Mapping[str, str] | None = None) -> Figures:
    """Seconds from starting ``command`` to its end, its processor time, user and system, and its peak memory.

    The processor time includes that of processes that it waited for; the peak is that of the process alone. Raises
    Failed.
    """
    words = [str(word) for word in command]
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            words,
            cwd=cwd,
            env=_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        peak = 0.0
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            peak = max(peak, _peak_of(process.pid))
            time.sleep(_POLL)
        _, status, usage = ended
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            output.seek(0)
            raise _ended(words, process.returncode, output.read().decode(errors="replace"))
    peak = peak or usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    return {"s": seconds, "cpu_s": usage.ru_utime + usage.ru_stime, "peak_mib": peak}


def polars_alone(cwd: Path) -> Figures:
    """The costs of Python starting and importing Polars: what every command that computes with frames needs."""
    return prompt_costs([sys.executable, "-c", "import polars"], cwd)


def prompt_to_prompt(
    command: Sequence[object], cwd: Path, environment: Mapping[str, str] | None = None
) -> tuple[float, str]:
    """Seconds from starting ``command`` to its end, and its stdout. Raises Failed with its last lines of output."""
    words = [str(word) for word in command]
    start = time.perf_counter()
    process = subprocess.run(
        words,
        cwd=cwd,
        env=_environment(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    if process.returncode != 0:
        raise _ended(words, process.returncode, process.stdout + process.stderr)
    return seconds, process.stdout


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, **_BYTECODE, **(more or {})}


def _ended(words: Sequence[str], code: int, output: str) -> Failed:
    last_lines = "\n".join(output.splitlines()[-20:])
    return Failed(f"{' '.join(words)}: exit {code}\n{last_lines}")
