"""Processor time of one verification, by each way: ``python -m bench.verification`` prints a JSON object per line."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import polars as pl

from bench.project import REPOSITORY, SAMPLE_DATA, package_set
from ddcore.io.project.finding import find_project
from ddcore.io.project.project import Project
from ddcore.jobs import replay
from ddcore.jobs.ingest import ingest
from ddcore.jobs.verify import WAYS, Selection, Verification

COUNTS = 'def program(edges):\n    return {"counts": edges.group_by("src").agg(n=dd.count())}\n'
PAIRS = (
    'def program(edges):\n    pairs = edges.join(edges, on={"dst": "src"})\n'
    '    return {"pairs": pairs.group_by("src").agg(n=dd.count())}\n'
)
CLOSURE = (REPOSITORY / "examples" / "packages" / "program.py").read_text()
COMPONENTS = (REPOSITORY / "examples" / "wiki" / "program.py").read_text()
CASES = (  # name, program, input, rows at the last version
    ("counts", COUNTS, "edges", 103_689),
    ("pairs", PAIRS, "edges", 10_000),
    ("closure", CLOSURE, "dependencies", 7_049),
    ("components", COMPONENTS, "edges", 1_000),
)


def main() -> None:
    """Fold each program, and verify its outputs at the last version."""
    for name, program, source, rows in CASES:
        with tempfile.TemporaryDirectory() as folder:
            project = _project(Path(folder), program, source, rows)
            for by in reversed(WAYS):
                verification = Verification(project, by=by)
                outputs, begin = verification.outputs(), time.process_time()
                verdicts = list(verification.verdicts(verification.times(Selection(), outputs), outputs))
                seconds = round(time.process_time() - begin, 2)
                assert all(verdict.holds for verdict in verdicts), "an output is wrong"
                out = sum(verdict.rows for verdict in verdicts)
                print(json.dumps({"name": name, "by": by, "rows": rows, "out": out, "cpu_s": seconds}), flush=True)


def _project(folder: Path, program: str, source: str, rows: int) -> Project:
    """A project with one input, folded."""
    columns = ("src", "dst") if source == "edges" else ("package", "dependency")
    kind = "int64" if source == "edges" else "string"
    (folder / "program.py").write_text(f"from __future__ import annotations\nimport ddcore as dd\n{_body(program)}")
    schema = ", ".join(f'{column} = "{kind}"' for column in columns)
    (folder / "dd.toml").write_text(
        '[project]\nprogram = "program.py:program"\n[run]\nengine = "inline"\n'
        f"[inputs.{source}]\nschema = {{ {schema} }}\n"
    )
    project, file = find_project(folder, {}), package_set()
    if source == "edges":
        file = folder / "edges.parquet"
        edges = pl.read_parquet(SAMPLE_DATA / "wiki_vote" / "edges.parquet").head(rows)
        edges.with_columns(version=pl.lit(0), diff=pl.lit(1)).write_parquet(file)
    ingest(project, source, [str(file)], engine="inline")
    replay.run(project, engine="inline")
    return project


def _body(program: str) -> str:
    """A program without the lines that must come first in a file."""
    return program.replace("from __future__ import annotations\n", "")


if __name__ == "__main__":
    main()
