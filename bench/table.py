"""The table in ``docs/performance.md``, and those about others in ``docs/comparison.md``, each between two markers."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from bench.measure import Result
from bench.project import REPOSITORY
from ddcore.traces import sorts

DOCUMENT = REPOSITORY / "docs" / "performance.md"
COMPARISON = REPOSITORY / "docs" / "comparison.md"
BEGIN, END = "<!-- make bench: begin -->", "<!-- make bench: end -->"
OTHERS = (
    "PySpark",
    "Spark DataFrames",
    "the same, all those versions",
    "DuckDB",
    "Pathway",
    "crate, shared, 1",
    "crate, shared, one",
)
LIBRARIES = ("pyspark", "delta-spark", "deltalake", "polars", "numba", "numpy")


def write(results: Sequence[Result], document: Path = DOCUMENT, comparison: Path = COMPARISON) -> None:
    """Replace the text between the markers of both pages."""
    for page, table in ((document, rendered(results)), (comparison, compared(results))):
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


def compared(results: Sequence[Result]) -> str:
    """Markdown: the seconds of ours and of other systems, one row per result."""
    lines = ["| what | ours | peer | the peer's | ratio |", "|---|--:|---|--:|--:|"]
    for it in results:
        if it.unit == "s" and any(other in it.peer for other in OTHERS):
            ours, others = _quantity(it.ours, it.unit), _quantity(it.other, it.unit)
            lines.append(f"| {it.name} | {ours} | {it.peer} | {others} | {it.ratio:.2f} |")
    return "\n".join(lines)


def rendered(results: Sequence[Result]) -> str:
    """Markdown: one row per result, then a line about the machine."""
    lines = [
        "| what | ours | peer | the peer's | ratio | promised | peak MiB, ours / peer |",
        "|---|--:|---|--:|--:|--:|--:|",
    ]
    for it in results:
        promised = f"{it.limit:g}" if it.limit is not None else ""
        peaks = f"{it.ours_peak_mib:,.0f} / {it.peer_peak_mib:,.0f}" if it.ours_peak_mib and it.peer_peak_mib else ""
        ours, other = _quantity(it.ours, it.unit), _quantity(it.other, it.unit)
        figures = f"{ours} | {it.peer} | {other} | {it.ratio:.2f} | {promised} | {peaks}"
        lines.append(f"| {it.name} | {figures} |")
    runs = sorted({it.runs for it in results})
    return "\n".join([*lines, "", f"Medians of {' or '.join(map(str, runs))} runs each, in turn, on {machine()}."])


def _quantity(value: float, unit: str) -> str:
    """Seconds with two digits after the point, or three that count; other units without a point."""
    if unit == "s":
        return f"{value:.2f} s" if value >= 1 else f"{value:#.3g} s"
    return f"{value:,.0f} {unit}"


def machine() -> str:
    """Cores, as LLVM calls them, memory, the sort in use and versions; not its name."""
    from llvmlite import binding

    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    cores = f"{os.cpu_count()} cores ({binding.get_host_cpu_name()}, sort: {sorts.choice()})"
    return f"{cores} and {memory:.0f} GiB, Python {platform.python_version()}, {libraries}"
