"""The pictures of the README, as SVG: the demo's service map, its dataflow and a diff. A test compares them."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path

import polars as pl
from service_map import service_map

from ddcore.cli.main import run_command
from ddcore.drawing.svg import NAMESPACE

TOP = Path(__file__).resolve().parent.parent
FOLDER = TOP / "docs" / "pictures"
DIFF = ("blast_radius", "23", "24")  # what the correction of the map changes
OUTAGE = 13  # the data lake is slow, and the map has a wrong row
WRONG = ("auth", "reports")
_LINE, _CHARACTER, _MARGIN = 18, 8.45, 16
_STYLE = """\
svg.terminal { --page: #f6f8fa; --ink: #1f2328; --dim: #59636e; --plus: #116329; --minus: #b31d28; --change: #7d4e00; }
@media (prefers-color-scheme: dark) { svg.terminal { --page: #161b22; --ink: #e6edf3; --dim: #9198a1; --plus: #56d364;
  --minus: #ff7b72; --change: #e3b341; } }
.terminal text { font: 14px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; }
.terminal text { fill: var(--ink); } .terminal .dim { fill: var(--dim); } .terminal .plus { fill: var(--plus); }
.terminal .minus { fill: var(--minus); } .terminal .change { fill: var(--change); }
.terminal rect { fill: var(--page); }
"""


def main() -> None:
    """Write the pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pictures():
        (FOLDER / name).write_text(text, encoding="utf-8")


def pictures() -> Iterator[tuple[str, str]]:
    """The name and the text of each picture, the same on every machine."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "outages")
        shutil.copytree(TOP / "examples" / "outages", project, ignore=shutil.ignore_patterns("__pycache__", "demo.sh"))
        where = ["--project", str(project)]
        for part in ("1", "2"):
            for name in ("dependencies", "incidents"):
                source = TOP / "sample_data" / f"{name}-{part}.parquet"
                _said("ingest", name, str(source), "--engine", "inline", "--quiet", *where)
        _said("run", "--engine", "inline", "--quiet", *where)
        yield "map.svg", _map(where)
        yield "plan.svg", _said("plan", "--format", "svg", *where)
        yield "diff.svg", terminal(f"dd diff {' '.join(DIFF)}", _said("diff", *DIFF, *where))


def _map(where: list[str]) -> str:
    """The service map at the outage, and whom it affects by the output of the demo."""
    log = pl.read_parquet(TOP / "sample_data" / "dependencies-1.parquet").filter(pl.col("version") <= OUTAGE)
    counts = log.group_by("service", "needs").agg(pl.col("diff").sum())
    needs = counts.filter(pl.col("diff") > 0).select("service", "needs").sort("service", "needs").rows()
    records = map(json.loads, _said("show", "affected", "--at", str(OUTAGE), "--json", *where).splitlines())
    affected = {record["row"]["service"]: record["row"]["distance"] for record in records if "row" in record}
    return service_map(needs, affected, WRONG, f"version {OUTAGE}: data_lake is slow")


def _said(*words: str) -> str:
    """What a command prints on stdout. RuntimeError where it fails."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = run_command(words)
    if code:
        raise RuntimeError(f"ddcore {' '.join(words)}: exit code {code}")
    return out.getvalue()


def terminal(command: str, text: str) -> str:
    """A command and what it printed, as a terminal shows it, in SVG."""
    lines = [f"$ {command}", *text.rstrip().splitlines()]
    width = max(map(len, lines)) * _CHARACTER + 2 * _MARGIN
    height = len(lines) * _LINE + 2 * _MARGIN - 6
    parts = [
        f'<svg xmlns="{NAMESPACE}" class="terminal" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" role="img" xml:space="preserve">',
        f"<title>{escape(command)}</title>",
        f"<style>\n{_STYLE}</style>",
        '<rect width="100%" height="100%" rx="8"/>',
    ]
    styles = {"+": "plus", "-": "minus", "~": "change", "$": "dim"}
    for number, line in enumerate(lines, 1):
        y = _MARGIN + number * _LINE - 6
        parts.append(f'<text class="{styles.get(line[:1], "")}" x="{_MARGIN}" y="{y}">{escape(line)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    main()
