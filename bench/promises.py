"""What the benchmarks promise (``promises.toml``), compared with what they measure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

from bench.measure import Result

FILE = Path(__file__).with_name("promises.toml")
Figure = Literal["ratio", "peak MiB"]


@dataclass(frozen=True)
class Promise:
    """A row of a benchmark, and the greatest figure that it may have. The fields are those of ``promises.toml``."""

    name: str
    benchmarks: tuple[str, ...]
    what: str
    peer: str
    limit: float
    asked: float | None = None
    amount: float | None = None
    figure: Figure = "ratio"
    note: str = ""

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Promise:
        """From a table of the file. Raises TypeError for a key that is not known."""
        fields = dict(table)
        benchmark = fields.pop("benchmark")
        return cls(benchmarks=tuple([benchmark] if isinstance(benchmark, str) else benchmark), **fields)

    def measured(self, result: Result) -> float | None:
        """The figure of a result; None if it is another row."""
        if not (fnmatchcase(result.name, self.what) and fnmatchcase(result.peer, self.peer)):
            return None
        return result.ratio if self.figure == "ratio" else result.ours_peak_mib

    def verdict(self, figure: float | None) -> str:
        """In a word or two: kept, short of what was asked for, broken, or not measured."""
        if figure is None:
            return "not measured"
        if figure > self.limit:
            return "BROKEN"
        return "kept" if self.asked is None or figure <= self.asked else "short"


@cache
def promises() -> tuple[Promise, ...]:
    """All promises, in the order of the file."""
    return tuple(map(Promise.of, tomllib.loads(FILE.read_text("utf-8"))["promise"]))


def of_benchmark(benchmark: str) -> list[Promise]:
    """What one benchmark promises."""
    return [promise for promise in promises() if benchmark in promise.benchmarks]


def amount(name: str) -> float:
    """What the row of a promise without a peer is measured against."""
    (found,) = [promise.amount for promise in promises() if promise.name == name and promise.amount is not None]
    return found


def with_limit(benchmark: str, result: Result) -> Result:
    """A result with the ratio that is promised of it: what was asked for, where that is less than the limit."""
    for promise in of_benchmark(benchmark):
        if promise.figure == "ratio" and promise.measured(result) is not None:
            return replace(result, limit=promise.limit if promise.asked is None else promise.asked)
    return result


def benchmarks() -> list[str]:
    """The benchmarks that measure all promises, each once."""
    return list(dict.fromkeys(promise.benchmarks[0] for promise in promises()))


@dataclass(frozen=True)
class Line:
    """A promise with what was measured. ``why``: of a benchmark that was skipped or failed."""

    promise: Promise
    figure: float | None
    why: str = ""

    @property
    def is_broken(self) -> bool:
        """Whether the command fails: beyond the limit, or not measured by a benchmark that ran."""
        return self.promise.verdict(self.figure) == "BROKEN" or (self.figure is None and not self.why)


def compared(benchmark: str, results: Iterable[Result], why: str = "") -> list[Line]:
    """A line for each promise of a benchmark. Of several results that fit one the greatest figure counts."""
    results, lines = list(results), []
    for promise in of_benchmark(benchmark):
        figures = [figure for result in results if (figure := promise.measured(result)) is not None]
        lines.append(Line(promise, max(figures, default=None), "" if figures else why))
    return lines


def table(lines: Sequence[Line]) -> str:
    """Aligned columns: name, measured, limit, asked, verdict; below them why something was not measured or is short."""
    rows = [("promise", "measured", "limit", "asked", "verdict")]
    for line in lines:
        promise = line.promise
        verdict = f"skipped: {line.why}" if line.why else promise.verdict(line.figure)
        rows.append((promise.name, _number(line.figure), _number(promise.limit), _number(promise.asked), verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        f"{name:<{widths[0]}}  {measured:>{widths[1]}}  {limit:>{widths[2]}}  {asked:>{widths[3]}}  {verdict}"
        for name, measured, limit, asked, verdict in rows
    )


def _number(figure: float | None) -> str:
    return "" if figure is None else f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}"
