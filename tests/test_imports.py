"""What a command imports: the modules that must not be loaded, because loading them takes longer than its work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ddcore.cli.main import run_command
from ddcore.compiling.linked_kernels import image_file

COMPILER = ("numba", "llvmlite", "pandas", "pydantic", "pyspark", "py4j", "rich")
ENGINE = (*COMPILER, "numpy", "pyarrow", "ddcore.engine.worker", "ddcore.engine.session")
FRAMES = (*ENGINE, "polars", "deltalake", "ddcore.planning.plan", "ddcore.planning.planner", "ddcore.operators")
ALL = (*ENGINE, "polars", "deltalake", "ddcore.io.ledger.ledger", "ddcore.planning.planner")

# Runs a command, and then prints the modules that it has loaded.
COMMAND = """
import sys
from ddcore.cli.main import run_command
code = run_command(sys.argv[1:])
print(*sorted(sys.modules), file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which all versions are folded."""
    project = tmp_path_factory.mktemp("imports") / "trams"
    where = ["--project", str(project), "--quiet"]
    assert run_command(["init", str(project), "--quiet"]) == 0
    for name in ("links", "starts"):
        assert run_command(["ingest", name, str(project / "data" / f"{name}.csv"), "--engine", "inline", *where]) == 0
    assert run_command(["run", "--engine", "inline", *where]) == 0
    return project


def loaded(arguments: Sequence[str], cwd: Path) -> set[str]:
    """The modules that a process has loaded at the end of a command."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {*done.stderr.splitlines()[-1].split()}


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        ("--help", ALL),
        ("run --help", ALL),
        ("run", FRAMES),
        ("run --engine inline --parallelism 1", FRAMES),
        ("run --dry-run", FRAMES),
        ("status", ENGINE),
        ("status --json", ENGINE),
        ("diff journeys 3 4", ENGINE),
        ("diff journeys 3 4 --stat --json", ENGINE),
        ("show journeys --limit 3", ENGINE),
        ("log", ENGINE),
        ("ingest links data/links.csv --engine inline", COMPILER),  # known, so nothing new
        ("run --full-refresh --engine inline", COMPILER),
    ],
)
def test_a_command_imports_only_what_it_needs(folded: Path, arguments: str, unwanted: tuple[str, ...]) -> None:
    assert sorted(loaded(arguments.split(), folded) & {*unwanted}) == []


def test_an_ingest_and_a_run_with_rows_import_no_compiler(folded: Path) -> None:
    rows = folded / "more.csv"
    rows.write_text("src,dst,minutes,version,diff\nMuseum,Lighthouse,3,90,1\n")
    assert sorted(loaded(["ingest", "links", str(rows), "--engine", "inline"], folded) & {*COMPILER}) == []
    modules = loaded(["run", "--engine", "inline"], folded)
    assert {"ddcore.engine.worker", "ddcore.kernels.look_up", "numba._dynfunc"} <= modules, (
        "it folds, by compiled kernels"
    )
    has_image = (file := image_file()) is not None and file.exists()
    assert sorted(modules & {*COMPILER}) == ([] if has_image else ["llvmlite"]), "kernels that are linked need no LLVM"
    assert sorted(modules & {"deltalake", "arro3", "email.parser"}) == [], "the tables' newest commits are enough"


def test_an_upsert_and_empty_lines_of_json_import_no_compiler(folded: Path) -> None:
    """Nor pandas, which PyArrow imports where it makes an array of Python's values, an empty one too."""
    rows, lines = folded / "again.csv", folded / "none.jsonl"
    rows.write_text("src,dst,minutes\nMuseum,Gallery,4\n")
    lines.write_text('\n\n{"src": "Harbour", "dst": "Museum", "minutes": 4}\n')
    for arguments in (f"--upsert --key src,dst {rows}", f"--append {lines}"):
        command = ["ingest", "links", *arguments.split(), "--engine", "inline"]
        assert sorted(loaded(command, folded) & {*COMPILER}) == [], arguments


SESSION = """
import sys
import polars as pl
import ddcore as dd
log = pl.DataFrame({"a": ["x", None], "n": [1, 2], "f": [0.5, None], "version": [0, 1], "diff": [1, 1]})
[out] = dd.replay(lambda t: {"out": t.group_by("a").agg(n=dd.sum("n"), f=dd.max("f"))}, t=log).values()
print(len(out), *sorted(sys.modules))
"""


def test_a_fold_in_this_process_imports_no_pyarrow() -> None:
    """Frames come in and go out by Polars; PyArrow is 25 MiB of memory, and 20 ms."""
    rows, *modules = subprocess.run(
        [sys.executable, "-c", SESSION], capture_output=True, text=True, check=True
    ).stdout.split()
    assert rows == "2"
    assert sorted({*modules} & {"pandas", "pyarrow"}) == []


def test_the_versions_of_compilers_are_those_of_their_metadata() -> None:
    """They are read from names of folders, and are part of the name of the folder of compiled kernels."""
    from importlib import metadata

    from ddcore.base import cache

    assert [cache.version_of(name) for name in ("numba", "llvmlite")] == list(
        map(metadata.version, ("numba", "llvmlite"))
    )
    assert cache.version_of("json") == __import__("json").__version__, "without metadata"


def test_a_module_that_is_loaded_is_seen(folded: Path) -> None:
    """The tests above can fail: what they look for has these names where it is loaded."""
    done = subprocess.run(
        [sys.executable, "-c", "import numba, pandas, pydantic, rich\n" + COMMAND, "--help"],
        cwd=folded, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert {"numba", "pandas", "pydantic", "rich", "numpy", "llvmlite"} <= {*done.stderr.splitlines()[-1].split()}


def test_no_module_beside_the_entry_file_hides_one_of_python() -> None:
    """spark-submit runs ``cli/main.py``, and Python then looks for modules in its folder first."""
    import ddcore.cli

    names = {file.stem for file in Path(ddcore.cli.__path__[0]).glob("*.py")} - {"__init__"}
    assert "main" in names and not names & sys.stdlib_module_names
