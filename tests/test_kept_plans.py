"""Plans in the cache folder: when a program is planned, and when what was planned before is taken."""

from __future__ import annotations

import io
import os
import pickle
import py_compile
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import folding
import polars as pl
import pytest
from programs import case
from seeds import nightly

from ddcore.base import cache
from ddcore.base.errors import DdError
from ddcore.cli.main import run_command
from ddcore.engine import session
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project import kept_plans
from ddcore.io.project.finding import find_project
from ddcore.io.project.kept_plans import KeptPlan, PlannedProgram, kept_plan, planned
from ddcore.io.project.program import Program, load
from ddcore.io.project.project import Project
from ddcore.io.storage.warehouse import Warehouse
from ddcore.planning import planner
from ddcore.planning.plan import Plan

TOML = """
[project]
program   = "program.py:program"
warehouse = "warehouse"

[run]
engine = "inline"

[time]
dims = ["version"]

[inputs.sales.schema]
shop = "string"
price = "int64"

[tests.nothing_is_free]
empty = "sales"
where = "price = 0"
"""
PROGRAM = """
import ddcore as dd
from ddcore import col
from rates import RATE


def program(sales: dd.Collection) -> dict[str, dd.Collection]:
    return {"totals": sales.group_by("shop").agg(total=dd.sum(col("price") * RATE))}
"""
SQL = "CREATE VIEW totals AS SELECT shop, sum(price) AS total FROM sales GROUP BY shop;"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of plans in a cache folder of its own, which is empty. Kernels stay in that of all tests."""
    monkeypatch.setattr(kept_plans, "cache_folder", lambda: tmp_path / "cache")
    for name in [name for name in os.environ if name.startswith("DDCORE_") and name != "DDCORE_CACHE"]:
        monkeypatch.delenv(name)
    return tmp_path / "cache" / "plans"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project of two modules."""
    path, home = [*sys.path], tmp_path / "shop"
    home.mkdir()
    (home / "dd.toml").write_text(TOML)
    (home / "program.py").write_text(PROGRAM)
    (home / "rates.py").write_text("RATE = 2\n")
    monkeypatch.chdir(home)
    yield home
    sys.path[:] = path
    forget()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The fingerprints of the programs that were planned, in order."""
    fingerprints: list[str] = []
    build = planner.build

    def counted(*arguments: Any, **settings: Any) -> Plan:
        plan = build(*arguments, **settings)
        fingerprints.append(plan.fingerprint)
        return plan

    monkeypatch.setattr(planner, "build", counted)
    return fingerprints


def forget() -> None:
    """Forget the project's modules, as a new process has not imported them."""
    for name in ("rates", "tables", "tables.shops"):
        sys.modules.pop(name, None)


def plan_of(home: Path) -> Plan:
    """The plan that a new process takes for the project as it is."""
    forget()
    project = find_project(home)
    return planned(project, kept_plan(project)).plan


def is_kept(home: Path) -> bool:
    return kept_plan(find_project(home)) is not None


def bring(home: Path, *rows: tuple[str, int], version: int = 0) -> None:
    frame = pl.DataFrame(rows, schema=["shop", "price"], orient="row").with_columns(version=version, diff=1)
    file = home / f"sales-{version}.parquet"
    frame.write_parquet(file)
    assert run_command(["ingest", "sales", str(file), "--project", str(home), "-q"]) == 0


def run(home: Path, *flags: str) -> int:
    forget()
    return run_command(["run", "--project", str(home), "-q", *flags])


def totals(home: Path) -> dict[str, int]:
    log = pl.read_delta(str(home / "warehouse" / "outputs" / "totals"))
    rows = log.group_by("shop", "total").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    return dict(rows.select("shop", "total").rows())


# -- unchanged ---------------------------------------------------------------------------------------------------------


def test_a_program_that_has_not_changed_is_planned_once(home: Path, built: list[str]) -> None:
    bring(home, ("north", 3), ("south", 4))
    assert run(home) == 0 and len(built) == 1
    assert run(home) == 0 and len(built) == 1, "nothing new"
    bring(home, ("north", 5), version=1)
    assert run(home) == 0 and len(built) == 1, "new rows"
    assert totals(home) == {"north": 16, "south": 8}
    assert run(home, "--dry-run") == 0 and run_command(["status", "--project", str(home)]) == 0
    assert len(built) == 1


def test_a_run_with_nothing_new_does_not_load_the_plan(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bring(home, ("north", 3))
    assert run(home) == 0
    monkeypatch.setattr(KeptPlan, "program", lambda _: pytest.fail("it is not needed"))
    assert run(home) == 0


def test_a_run_that_was_killed_is_given_up_where_nothing_else_is_new(home: Path) -> None:
    """It was that of another program, which was put back since."""
    bring(home, ("north", 3))
    assert run(home) == 0
    (home / "rates.py").write_text("RATE = 9\n")
    killed = {**os.environ, "DDCORE_FAILPOINT": "after-intent"}
    done = subprocess.run([sys.executable, "-m", "ddcore.cli.main", "run"], cwd=home, env=killed, check=False)
    assert done.returncode == -signal.SIGKILL
    (home / "rates.py").write_text("RATE = 2\n")
    assert is_kept(home)
    warehouse = Warehouse(home / "warehouse")
    assert Ledger.load(warehouse).open_intent() is not None
    assert run(home) == 0
    assert Ledger.load(warehouse).open_intent() is None


def test_commands_that_check_plan_anew(home: Path, built: list[str]) -> None:
    bring(home, ("north", 3))
    for command in (["run"], ["run", "--full-refresh"], ["plan"], ["verify"], ["verify", "--by", "reference"]):
        before = len(built)
        forget()
        assert run_command([*command, "--project", str(home)]) == 0
        assert len(built) > before, command
    assert len({*built}) == 1


def test_a_program_of_sql_is_kept(home: Path, built: list[str]) -> None:
    pytest.importorskip("sqlglot")
    (home / "dd.toml").write_text(TOML.replace("program.py:program", "program.sql"))
    (home / "program.sql").write_text(SQL)
    bring(home, ("north", 3))
    assert run(home) == 0 and run(home) == 0
    bring(home, ("north", 4), version=1)
    assert run(home) == 0 and len(built) == 1
    assert totals(home) == {"north": 7}
    (home / "program.sql").write_text(SQL.replace("sum(price)", "max(price)"))
    assert run(home) == 0 and len(built) == 2


def test_data_tests_hold_with_a_kept_plan(home: Path, built: list[str]) -> None:
    (home / "program.py").write_text(
        f'{PROGRAM}\n\n@dd.test\ndef few(totals):\n    return totals.where("total > 90")\n'
    )
    bring(home, ("north", 3))
    assert run(home) == 0
    bring(home, ("north", 40), version=1)
    assert run(home) == 0 and len(built) == 1
    bring(home, ("north", 9), version=2)
    assert run(home) == 4, "more than 90: the program's own test"
    assert run_command(["ingest", "sales", "--undo", "3", "--project", str(home), "-q"]) == 0
    bring(home, ("south", 0), version=3)
    assert run(home) == 4, "a price of 0: the test in dd.toml"
    assert len(built) == 1


@pytest.mark.sample(7)
@pytest.mark.parametrize("seed", nightly(range(60), 20))
def test_a_kept_plan_folds_as_the_plan_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random programs. Those with functions of their own are not kept."""
    drawn = case(seed)
    try:
        expected = folding.whole(drawn.program, **drawn.frames)
    except DdError:
        return

    def kept(*arguments: Any, **settings: Any) -> Plan:
        plan = planner.build(*arguments, **settings)
        content = kept_plans._pickled(PlannedProgram(plan, ()))
        assert content or "reduce" in drawn.source or "flat_map" in drawn.source, drawn.source
        program = KeptPlan(plan.fingerprint, plan.inputs, plan.dims, False, content).program()
        return plan if program is None else program.plan

    monkeypatch.setattr(session, "build", kept)
    actual = folding.whole(drawn.program, **drawn.frames)
    assert actual == expected, str(drawn)


# -- what decides a plan -----------------------------------------------------------------------------------------------


def edit(name: str, old: str, new: str) -> Callable[[Path, pytest.MonkeyPatch], None]:
    def change(home: Path, _: pytest.MonkeyPatch) -> None:
        text = (home / name).read_text()
        assert old in text
        (home / name).write_text(text.replace(old, new))

    return change


def add(name: str) -> Callable[[Path, pytest.MonkeyPatch], None]:
    return lambda home, _: (home / name).touch()


def variable(name: str, value: str) -> Callable[[Path, pytest.MonkeyPatch], None]:
    return lambda _, monkeypatch: monkeypatch.setenv(name, value)


def library(name: str) -> Callable[[Path, pytest.MonkeyPatch], None]:
    def change(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        right = kept_plans._version
        monkeypatch.setattr(kept_plans, "_version", lambda other: right(other) + "+" * (other == name))

    return change


def own_sources(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = kept_plans._python_files
    module = home.parent / "planner.py"
    module.write_text("# another release")
    monkeypatch.setattr(
        kept_plans, "_python_files", lambda location: [*right(location), (str(module), module.stat())]
    )  # fmt: skip
    monkeypatch.setattr(kept_plans, "_own_sources", kept_plans._own_sources.__wrapped__)  # as in another process


CHANGES = {
    "the program": edit("program.py", "dd.sum", "dd.max"),
    "a comment in it": edit("program.py", "return", "# to be exact\n    return"),
    "a module that it imports": edit("rates.py", "2", "3"),
    "a module that another may be hidden by": add("decimal.py"),
    "an input's columns": edit("dd.toml", "[inputs.sales.schema]", '[inputs.sales.schema]\nclerk = "string"'),
    "an input's types": edit("dd.toml", 'price = "int64"', 'price = "decimal(9,2)"'),
    "the dimensions": edit("dd.toml", '["version"]', '["day", "revision"]'),
    "a data test": edit("dd.toml", "price = 0", "price = 1"),
    "the line of a data test": edit("dd.toml", "[tests", "\n[tests"),
    "an output's settings": edit("dd.toml", "[tests", '[outputs.totals]\nkey = ["shop"]\n\n[tests'),
    "what operators read": variable("DDCORE_CHECK_FUNCTIONS", "1"),
    "a variable of tomorrow": variable("DDCORE_TOMORROW", "1"),
    "a variable of Polars": variable("POLARS_MAX_THREADS", "1"),
    "Polars": library("polars"),
    "NumPy": library("numpy"),
    "sqlglot": library("sqlglot"),
    "Python": lambda _, monkeypatch: monkeypatch.setattr(sys, "version", "3.99"),
    "this package": own_sources,
}


@pytest.mark.sample(12)
@pytest.mark.parametrize("what", CHANGES)
def test_a_change_plans_anew(what: str, home: Path, built: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plan_of(home)
    assert is_kept(home) and len(built) == 1
    CHANGES[what](home, monkeypatch)
    assert not is_kept(home)
    plan_of(home)
    assert len(built) == 2


@pytest.mark.parametrize(
    ("name", "text"), [("sales.csv", "shop,price\n"), ("notes.md", "# Notes\n"), ("2026-11-25/x", "")]
)
def test_data_beside_a_program_change_nothing(home: Path, name: str, text: str) -> None:
    plan_of(home)
    (home / name).parent.mkdir(exist_ok=True)
    (home / name).write_text(text)
    assert is_kept(home)


def test_settings_that_change_no_plan_change_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_of(home)
    for name, value in {
        "DDCORE_DEBUG": "1",
        "DDCORE_MEMORY": "2GiB",
        "DDCORE_PARALLELISM": "2",
        "DDCORE_WORKER_ROWS": "0",
        "EDITOR": "ed",
    }.items():
        monkeypatch.setenv(name, value)
    (home / "dd.toml").write_text(TOML + "\n[retention]\ndays = 3\n")
    assert is_kept(home)


def test_another_program_with_the_same_text_is_another(home: Path, tmp_path: Path) -> None:
    """Its functions and its messages name its own file."""
    plan_of(home)
    (tmp_path / "copy").mkdir()
    for file in home.glob("*.*"):
        (tmp_path / "copy" / file.name).write_text(file.read_text())
    assert not is_kept(tmp_path / "copy")


def test_modules_of_packages_count(home: Path) -> None:
    (home / "tables").mkdir()
    (home / "tables" / "__init__.py").write_text("from . import shops\n")
    (home / "tables" / "shops.py").write_text("RATE = 1\n")
    (home / "program.py").write_text(PROGRAM.replace("from rates", "from tables.shops"))
    plan_of(home)
    assert is_kept(home)
    (home / "tables" / "shops.py").write_text("RATE = 5\n")
    assert not is_kept(home)
    plan_of(home)
    (home / "tables" / "__init__.py").write_text("from . import shops  # and no others\n")
    assert not is_kept(home)


@pytest.mark.parametrize("module", ["rates", "tables.shops"])
def test_a_module_edited_twice_in_a_second_is_read_again(module: str, home: Path) -> None:
    """Python's own cache of modules compares their times in whole seconds."""
    file = home.joinpath(*module.split(".")).with_suffix(".py")
    file.parent.mkdir(exist_ok=True)
    (home / "program.py").write_text(PROGRAM.replace("from rates", f"from {module}"))
    file.write_text("RATE = 1\n")
    py_compile.compile(str(file))
    first, written = plan_of(home), file.stat()
    file.write_text("RATE = 5\n")
    os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))
    assert plan_of(home).fingerprint != first.fingerprint


def test_a_module_that_is_there_compiled_only_is_imported(home: Path) -> None:
    py_compile.compile(str(home / "rates.py"), cfile=str(home / "rates.pyc"))
    text = plan_of(home).fingerprint
    (home / "rates.py").unlink()
    assert plan_of(home).fingerprint == text
    assert sys.modules["rates"].__file__ == str(home / "rates.pyc")


# -- programs that read more than their text ---------------------------------------------------------------------------

READERS = {
    "a file": 'with open("rate.csv") as file:\n    RATE = int(file.read())',
    "a file by a library": 'import polars as pl\nRATE = pl.read_csv("rate.csv").height',
    "a file by a name": 'from polars import read_csv\nRATE = read_csv("rate.csv").height',
    "a file by another name": 'from polars import read_csv as frame\nRATE = frame("rate.csv").height',
    "a file of arrays": 'import numpy as np\nRATE = int(np.loadtxt("rate.csv"))',
    "a path": 'from pathlib import Path\nRATE = int(Path("rate.csv").read_text())',
    "the environment": 'import os\nRATE = int(os.environ.get("RATE", 1))',
    "the environment by name": 'from os import environ\nRATE = int(environ.get("RATE", 1))',
    "a library's library": "import polars as pl\nRATE = len(pl.config.os.environ)",
    "a library as a value": "import polars\nlibraries = [polars]\nRATE = len([libraries[0].col])",
    "a part of a library": "import numpy as np\nRATE = int(np.linalg.norm([1]))",
    "a library in another's name": "import ddcore.base.cache\nRATE = len(str(ddcore.base.cache.cache_folder()))",
    "today": "import datetime\nRATE = datetime.date.today().day",
    "now": "from datetime import datetime\nRATE = datetime.now().day + 1",
    "the time": "import time\nRATE = int(time.time())",
    "chance": "import random\nRATE = random.randint(1, 1)",
    "chance by arrays": "import numpy as np\nRATE = int(np.random.default_rng().integers(1, 2))",
    "the command": "import sys\nRATE = len(sys.argv) + 1",
    "a process": 'import subprocess\nRATE = len(subprocess.run(["true"]).args)',
    "another library": "import xml.dom\nRATE = 1",
    "a name made of text": 'RATE = getattr(1, "real")',
    "code made of text": 'RATE = eval("1")',
    "hidden attributes": "RATE = len(().__class__.__mro__)",
    "hashes": "RATE = hash(1)",
    "the terminal": 'print("planned")\nRATE = 1',
    "everything": "from ddcore import *  # noqa: F403\nRATE = 1",
    "a session": "import ddcore\nRATE = len(ddcore.Session.__name__)",
}


@pytest.mark.sample(18)
@pytest.mark.parametrize("what", READERS)
def test_a_program_that_may_read_more_is_planned_each_time(what: str, home: Path, built: list[str]) -> None:
    (home / "rate.csv").write_text("1")
    (home / "rates.py").write_text(READERS[what] + "\n")
    fingerprints = [plan_of(home).fingerprint, plan_of(home).fingerprint]
    assert built == fingerprints and not is_kept(home)


def test_a_program_sees_the_file_that_it_reads_change(home: Path) -> None:
    (home / "rate.csv").write_text("2")
    (home / "rates.py").write_text(READERS["a file"])
    bring(home, ("north", 3))
    assert run(home) == 0 and totals(home) == {"north": 6}
    (home / "rate.csv").write_text("5")
    assert run(home) == 0
    bring(home, ("south", 1), version=1)
    assert run(home) == 0 and run(home, "--to-version", "latest") == 0
    assert totals(home) == {"north": 15, "south": 5}


HARMLESS = {
    "tables": 'import polars as pl\nNAMES = pl.DataFrame({"shop": ["north"], "rate": [2]})\nRATE = NAMES["rate"][0]',
    "dates": "from datetime import date, timedelta\nRATE = (date(2026, 1, 3) - date(2026, 1, 1) + timedelta(0)).days",
    "numbers": "import math\nfrom decimal import Decimal\nRATE = int(math.sqrt(4) + int(Decimal(0)))",
    "arrays": "import numpy as np\nRATE = int(np.array([1, 2]).max())",
    "classes": "from dataclasses import dataclass\n\n\n@dataclass\nclass Rate:\n    of: int = 2\n\n\nRATE = Rate().of",
    "types": "from __future__ import annotations\nfrom typing import TYPE_CHECKING, Any\nRATE: Any = 2",
    "algorithms": "import ddcore.algorithms\nfrom ddcore.algorithms import components\nRATE = 2",
    "selectors": "import polars.selectors as cs\nfrom polars import selectors\nNUMBERS = cs.numeric()\nRATE = 2",
}


@pytest.mark.parametrize("what", HARMLESS)
def test_a_program_that_reads_nothing_else_is_kept(what: str, home: Path) -> None:
    (home / "rates.py").write_text(HARMLESS[what] + "\n")
    plan_of(home)
    assert is_kept(home)


def test_the_programs_of_this_repository_are_kept(tmp_path: Path) -> None:
    from real_data import REPOSITORY

    from ddcore.io.project.program_sources import self_contained

    programs = [*REPOSITORY.glob("examples/*/program.py"), *REPOSITORY.glob("bench/*_program.py")]
    assert len(programs) >= 6
    assert [file for file in programs if self_contained([file]) is None] == []


def test_a_user_s_function_stays_out_of_the_cache(home: Path, built: list[str], folder: Path) -> None:
    """A plan with one is built where it is needed; that nothing is new is known without it."""
    text = """
    def first(rows):
        return rows.select("group", total="price").group_by("group").agg(pl.col("total").sum())

    return {"totals": sales.group_by("shop").reduce(first, schema={"total": "int64"})}
"""
    body = PROGRAM[: PROGRAM.index("    return")] + text.lstrip("\n")
    (home / "program.py").write_text(body.replace("import ddcore as dd", "import ddcore as dd\nimport polars as pl"))
    bring(home, ("north", 3), ("north", 4))
    assert run(home) == 0 and len(built) == 1
    assert run(home) == 0 and len(built) == 1
    (entry,) = folder.iterdir()
    assert b"first" not in entry.read_bytes()
    bring(home, ("south", 5), version=1)
    assert run(home) == 0 and len(built) == 2
    assert totals(home) == {"north": 7, "south": 5}


# -- while it is planned -----------------------------------------------------------------------------------------------


def test_a_text_that_changes_while_it_is_planned_is_not_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the plan of a text that was there for a moment would be taken for that of the text before it."""

    def edited(project: Project) -> Program:
        (home / "rates.py").write_text("RATE = 9\n")
        return load(project)

    monkeypatch.setattr("ddcore.io.project.kept_plans.load", edited)
    plan_of(home)
    (home / "rates.py").write_text("RATE = 2\n")
    assert not is_kept(home)


def test_a_module_that_the_process_had_before_is_not_kept(home: Path) -> None:
    """Python imports it once: this process still has the earlier text."""
    first = plan_of(home)
    (home / "rates.py").write_text("RATE = 7\n")
    project = find_project(home)
    assert planned(project, kept_plan(project)).plan.fingerprint == first.fingerprint, "of the module as it was"
    assert not is_kept(home)
    assert plan_of(home).fingerprint != first.fingerprint
    assert is_kept(home)


def test_a_module_from_another_folder_is_not_kept(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the same name that comes first on the path is what Python imports."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "rates.py").write_text("RATE = 7\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(home), *sys.path])
    plan_of(home)
    assert not is_kept(home)


def test_processes_at_once(home: Path, folder: Path) -> None:
    environment = {**os.environ, "DDCORE_CACHE": str(folder.parent)}
    script = (
        "from ddcore.io.project.kept_plans import kept_plan, planned\n"
        "from ddcore.io.project.finding import find_project\n"
        "project = find_project()\n"
        "for _ in range(20):\n"
        "    print(planned(project, kept_plan(project)).plan.fingerprint)\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", script], cwd=home, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [process.communicate()[0].split() for process in running]
    assert [process.returncode for process in running] == [0] * 4
    assert {fingerprint for lines in said for fingerprint in lines} == {plan_of(home).fingerprint}
    assert len([*folder.iterdir()]) == 1, "no temporary file is left"


# -- entries that cannot be used ---------------------------------------------------------------------------------------


def damaged(content: bytes) -> dict[str, bytes]:
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 1
    return {"cut": content[:-1], "flipped": bytes(flipped), "empty": b"", "short": content[:40]}


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "short", "a folder"])
def test_a_damaged_entry_is_not_used(damage: str, home: Path, built: list[str], folder: Path) -> None:
    plan_of(home)
    (entry,) = folder.iterdir()
    if damage == "a folder":
        entry.unlink()
        entry.mkdir()
    else:
        entry.write_bytes(damaged(entry.read_bytes())[damage])
    assert not is_kept(home)
    assert plan_of(home).fingerprint == built[0] and len(built) == 2
    assert is_kept(home) or damage == "a folder", "it is replaced, where it can be"


class _Trap:
    def __reduce__(self) -> Any:
        return os.mkdir, ("trapped",)


@pytest.mark.parametrize("content", [pickle.dumps(_Trap()), b"no pickle", pickle.dumps(7)])
def test_a_pickle_of_other_things_is_not_loaded(
    content: bytes, home: Path, built: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_plans, "_pickled", lambda _: content)
    plan_of(home)
    assert is_kept(home)
    assert plan_of(home).fingerprint == built[0] and len(built) == 2
    assert not (home / "trapped").exists()


def test_a_folder_that_others_may_write_to_is_not_loaded_from(home: Path, built: list[str], folder: Path) -> None:
    plan_of(home)
    folder.chmod(0o777)
    assert not is_kept(home)
    assert plan_of(home).fingerprint == built[0] and len(built) == 2
    folder.chmod(0o700)
    assert is_kept(home), "only the look at the folder keeps it from being loaded"


def test_where_nothing_can_be_written_each_command_plans(home: Path, built: list[str], folder: Path) -> None:
    folder.parent.write_text("a file, where the folder should be")
    bring(home, ("north", 3))
    assert run(home) == 0 and run(home) == 0
    assert len(built) == 2 and totals(home) == {"north": 6}


def test_a_full_disk_leaves_no_part_of_an_entry(home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    plan_of(home)
    assert [*folder.iterdir()] == []


def test_what_a_plan_is_made_of_has_names_in_libraries(home: Path) -> None:
    """Classes of other modules would be loaded by name from wherever a later process finds them."""
    names: set[str] = set()

    class Listing(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            names.add(module.partition(".")[0])
            return super().find_class(module, name)

    Listing(io.BytesIO(kept_plans._pickled(PlannedProgram(plan_of(home), ())))).load()
    assert names <= kept_plans._TRUSTED and "ddcore" in names


def test_unused_plans_are_removed(home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "cache_folder", lambda: folder.parent)
    plan_of(home)
    (entry,) = folder.iterdir()
    os.utime(entry, (1, 1))
    assert is_kept(home) and entry.stat().st_mtime > 1, "it is noted that it was used"
    os.utime(entry, (1, 1))
    cache.remove_unused()
    assert not entry.exists()
