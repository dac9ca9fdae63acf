"""Taking turns, medians, and what a measurement is once it is taken."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

Figures = dict[str, float]
"""What one run gave, by name: seconds end in ``_s``, memory in ``_mib``."""

Side = Callable[[], Figures]


class Failed(Exception):
    """A benchmark that broke, or whose sides disagree about the result."""


class Skipped(Exception):
    """A benchmark that this machine lacks something for; the message says what."""


@dataclass(frozen=True)
class Result:
    """One comparison. Seconds are medians over ``runs`` runs of each side; ``limit`` is the greatest ratio promised."""

    name: str
    ours_s: float
    peer: str
    peer_s: float
    runs: int
    limit: float | None = None
    ours_cpu_s: float | None = None
    peer_cpu_s: float | None = None
    ours_peak_mib: float | None = None
    peer_peak_mib: float | None = None

    @property
    def ratio(self) -> float:
        """Ours over the peer's: below 1, ours is faster."""
        return self.ours_s / self.peer_s

    def line(self) -> str:
        """One JSON object, rounded to milliseconds; what has no value is left out."""
        fields = {**asdict(self), "ratio": self.ratio}
        order = ["name", "ours_s", "peer", "peer_s", "ratio", "limit", "ours_cpu_s", "peer_cpu_s"]
        order += ["ours_peak_mib", "peer_peak_mib", "runs"]
        present = {key: fields[key] for key in order if fields[key] is not None}
        return json.dumps({key: round(it, 3) if isinstance(it, float) else it for key, it in present.items()})


def in_turn(sides: Mapping[str, Side], rounds: int, least: Collection[str] = ()) -> dict[str, Figures]:
    """The median of every figure of every side. In a round each side runs once, so a noisy minute hits all alike.

    Of the sides named in ``least`` the smallest figures are taken: the kinder choice for a peer that noise hits harder.
    """
    runs: dict[str, list[Figures]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, run in sides.items():
            runs[name].append(run())
    return {name: _summary(taken, min if name in least else statistics.median) for name, taken in runs.items()}


def _summary(runs: Sequence[Figures], of: Callable[[list[float]], float]) -> Figures:
    return {figure: of([run[figure] for run in runs]) for figure in runs[0]}


def prompt_to_prompt(
    command: Sequence[object], cwd: Path, environment: Mapping[str, str] | None = None
) -> tuple[float, str]:
    """Seconds from starting ``command`` to its end, and its stdout. Failed, with its last words, if it fails."""
    words = [str(word) for word in command]
    started = time.perf_counter()
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    took = time.perf_counter() - started
    if done.returncode != 0:
        last_words = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise Failed(f"{' '.join(words)}: exit {done.returncode}\n{last_words}")
    return took, done.stdout
