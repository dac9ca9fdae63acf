"""Data is never code: every place that turns bytes into code or objects is listed here, with the reason why it may."""

from __future__ import annotations

import ast
import io
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trams import Command

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("ddcore", "io", "jobs", "cli")

# Names that, called or imported, run code or build objects that their input chooses.
WORDS = {
    "eval", "exec", "compile", "__import__", "import_module", "spec_from_file_location", "exec_module", "run_path",
    "runpy", "marshal", "shelve", "dill", "joblib", "cloudpickle", "pickle", "loads_pickle", "read_pickle",
    "Unpickler", "allow_pickle", "deserialize", "from_json_expr", "PyExtensionType", "yaml", "system", "popen",
    "CDLL", "Popen",
}  # fmt: skip
# Methods of these names are harmless on some modules: re.compile, platform.system, pl's list.eval.
HARMLESS = {("re", "compile"), ("list", "eval")}

PLACES = {
    "ddcore/text/notebook.py system": "a word in a style sheet: the font and the theme of the reader's system",
    "cli/main.py import_module": "the module of a command, whose names stand there",
    "ddcore/base/source_line.py compile": "IPython's list of cells, asked for the name of one",
    "ddcore/__init__.py import_module": "the package's own modules, by the fixed names of its public classes",
    "ddcore/kernels/__init__.py import_module": "the same, for its kernels",
    "ddcore/expressions/polars_json.py deserialize": "expressions, from JSON that this process made of them",
    "ddcore/base/lazy.py import_module": "libraries, by the fixed names in that file",
    "ddcore/text/notebook.py import_module": "a module of the package, by a fixed name",
    "jobs/setup.py import_module": "the package's own kernels",
    "ddcore/base/cache.py import_module": "the version of numba and of llvmlite, by two fixed names",
    "ddcore/compiling/native.py pickle": "constants inside of compiled kernels, which are code",
    "ddcore/compiling/native.py exec_module": "three extension modules of numba; kernels are its caller's",
    "ddcore/base/memory.py CDLL": "the C library of this process",
    "ddcore/compiling/linking.py CDLL": "the same",
    "ddcore/compiling/linked_kernels.py CDLL": "the same; kernels are code, from a folder of the user alone",
    "io/project/kept_plans.py pickle": "plans of this user's programs, from a folder that nobody else can change",
    "io/project/kept_plans.py Unpickler": "the same: it loads names of this package and of a few libraries only",
    "io/project/program_names.py import_module": "libraries, by the fixed names in that file",
    "io/project/program.py compile": "the user's program: a file that dd.toml names, and code by definition",
    "io/project/program.py exec": "the same",
    "io/project/program.py spec_from_file_location": "the same",
    "jobs/engines/one_task.py pickle": "the plan, which the driver sent to its own task by Spark",
    "jobs/engines/barrier_task.py pickle": "the same",
    "cli/hook.py Popen": "the project's hook: a command that dd.toml names",
    "jobs/spark/gateway.py Popen": "Spark's Java process",
    "jobs/spark/stage.py pickle": "what the tasks of our own stage return, by Spark",
    "jobs/spark/shipping.py cloudpickle": "writes the plan for Spark's tasks; reads nothing",
    "jobs/spark/shipping.py import_module": "the package's own four names",
}


def words_in(tree: ast.AST) -> Iterator[str]:
    """The words of a module that are in WORDS: names, attributes, imports, keyword arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in WORDS:
            yield node.id
        elif isinstance(node, ast.Attribute) and node.attr in WORDS:
            owner = getattr(node.value, "id", getattr(node.value, "attr", ""))
            if (owner, node.attr) not in HARMLESS:
                yield node.attr
        elif isinstance(node, ast.keyword) and node.arg in WORDS:
            yield node.arg
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            yield from (part for name in names for part in name.split(".") if part in WORDS)


def test_every_place_that_runs_what_it_reads_is_known() -> None:
    found = set()
    for folder in FOLDERS:
        for file in (ROOT / folder).rglob("*.py"):
            location = file.relative_to(ROOT).as_posix()
            found |= {f"{location} {word}" for word in words_in(ast.parse(file.read_text()))}
    assert found == set(PLACES)


@pytest.mark.parametrize(
    "code",
    ["import pickle", "from pickle import loads", "np.load(f, allow_pickle=True)", "eval(x)", "builtins.exec(x)",
     "pd.read_pickle(x)", "pl.Expr.deserialize(x)", "importlib.import_module(x)", "os.system(x)"],
)  # fmt: skip
def test_the_search_finds_each_way(code: str) -> None:
    assert list(words_in(ast.parse(code)))


class Bomb:
    """Whoever unpickles it creates the file ``exploded``."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("exploded",)


def bombs_of_pickle() -> list[bytes]:
    return [pickle.dumps(Bomb(), protocol=protocol) for protocol in (0, 2, 5)]


def bombs() -> Iterator[bytes]:
    """A pickle, bare and where a library might look for one."""
    yield from bombs_of_pickle()
    plain = pa.table({"src": ["a"], "dst": ["b"], "minutes": [1], "version": [6], "diff": [1]})
    extension = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickle.dumps(Bomb(), 0)}
    schema = pa.schema([field.with_metadata(extension) for field in plain.schema], {"pandas": pickle.dumps(Bomb(), 0)})
    for table in (plain.replace_schema_metadata({"pandas": pickle.dumps(Bomb(), 0)}), plain.cast(schema)):
        sink = io.BytesIO()
        pq.write_table(table, sink)
        yield sink.getvalue()
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(plain.cast(schema))
    yield sink.getvalue()


def plant(bomb: bytes, dd: Command, every: int) -> None:
    """Put a bomb in place of a source, and of files of the warehouse, one after another; then call commands."""
    Path("bomb.parquet").write_bytes(bomb)
    dd("ingest", "links", "bomb.parquet")
    Path("more.csv").write_text("version,diff,src,dst,minutes\n7,1,Harbour,Mill,1\n")
    dd("ingest", "links", "more.csv")
    files = sorted(file for file in Path("warehouse").rglob("*") if file.is_file())
    for file in files[::every]:
        kept = file.read_bytes()
        file.write_bytes(bomb)
        for command in (["run"], ["show", "journeys"], ["log"]):
            dd(*command)
        file.write_bytes(kept)
    assert not Path("exploded").exists()
    pickle.loads(bombs_of_pickle()[0])
    assert Path("exploded").exists(), "the bomb works"


@pytest.mark.parametrize("number", [1, 4])
def test_no_pickle_in_data_is_loaded(number: int, copied: Path, dd: Command) -> None:
    plant(list(bombs())[number], dd, every=9)


@pytest.mark.long
@pytest.mark.parametrize("number", range(6))
def test_no_pickle_in_any_file_is_loaded(number: int, copied: Path, dd: Command) -> None:
    plant(list(bombs())[number], dd, every=1)
