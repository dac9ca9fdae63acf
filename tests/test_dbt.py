"""A dbt project as a program: its models, tests and descriptions, what is refused, and dbt's own results."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from real_data import REPOSITORY
from sql_duckdb import bag
from trams import Command

from ddcore.base.errors import DdError
from ddcore.io.project.finding import find_project
from ddcore.io.project.program import load, plan_of

EXAMPLE = REPOSITORY / "examples" / "dbt"
VERSIONS = ("dbt-core==1.10.*", "dbt-duckdb==1.9.*")
DATABASE = '"library"."main".'

LOAN, READER = "source.library.desk.loans", "source.library.desk.readers"
ALL_LOANS, LATE_LOANS = "model.library.stg_loans", "model.library.late_loans"
LATE = "select * from {stg_loans} where days > 28"
REMINDERS = (
    "with __dbt__cte__late_loans as (\n" + LATE + "\n) select r.name, count(*) as late\n"
    "from __dbt__cte__late_loans as l join {readers} as r on r.reader_id = l.reader_id group by r.name"
)
MODELS = {
    "stg_loans": ("staging", "view", [LOAN], "\nselect *, returned_on - lent_on as days\nfrom {loans}"),
    "late_loans": ("staging", "ephemeral", [ALL_LOANS], LATE),
    "reminders": ("marts", "table", [READER, LATE_LOANS], REMINDERS),
}
NOT_NULL = "\n\nselect loan_id\nfrom {stg_loans}\nwhere loan_id is null\n\n"


def written(text: str) -> str:
    """A query with the names of the database."""
    for name in ("loans", "readers", "stg_loans"):
        text = text.replace("{" + name + "}", f'{DATABASE}"{name}"')
    return text


def manifest() -> dict[str, Any]:
    """What dbt 1.10 writes, as far as it is read."""
    nodes: dict[str, Any] = {}
    for name, (folder, materialized, reads, code) in MODELS.items():
        relation = None if materialized == "ephemeral" else f'{DATABASE}"{name}"'
        nodes[f"model.library.{name}"] = {
            "unique_id": f"model.library.{name}", "resource_type": "model", "name": name, "alias": name,
            "relation_name": relation, "original_file_path": f"models/{folder}/{name}.sql", "language": "sql",
            "description": "",
            "config": {"materialized": materialized}, "depends_on": {"nodes": [*reads]}, "compiled_code": written(code),
            "checksum": {"name": "sha256", "checksum": hashlib.sha256(code.strip().encode()).hexdigest()},
        }  # fmt: skip
    nodes["model.library.reminders"]["description"] = "Readers who are late.\n"
    nodes["test.library.not_null.1"] = {
        "unique_id": "test.library.not_null.1", "resource_type": "test", "name": "not_null_stg_loans_loan_id",
        "alias": "not_null_stg_loans_loan_id", "relation_name": None, "original_file_path": "models/schema.yml",
        "config": {"severity": "ERROR", "fail_calc": "count(*)", "warn_if": "!= 0", "error_if": "!= 0"},
        "depends_on": {"nodes": ["model.library.stg_loans"]}, "compiled_code": written(NOT_NULL),
        "checksum": {"name": "none", "checksum": ""},
    }  # fmt: skip
    sources = {
        f"source.library.desk.{name}": {
            "unique_id": f"source.library.desk.{name}", "resource_type": "source", "source_name": "desk", "name": name,
            "identifier": name, "relation_name": f'{DATABASE}"{name}"',
        }
        for name in ("loans", "readers")
    }  # fmt: skip
    return {"metadata": {"adapter_type": "duckdb"}, "nodes": nodes, "sources": sources}


PROJECT = """
[project]
program = "dbt"
[dbt]
project = "library"
[run]
engine = "inline"
[inputs.loans]
schema = { loan_id = "int64", reader_id = "int64", lent_on = "date", returned_on = "date" }
[inputs.readers]
schema = { reader_id = "int64", name = "string" }
"""
LOANS = """version,diff,loan_id,reader_id,lent_on,returned_on
0,1,1,7,2026-01-01,2026-02-15
0,1,2,7,2026-01-01,2026-01-10
0,1,3,8,2026-01-01,
1,-1,3,8,2026-01-01,
1,1,3,8,2026-01-01,2026-03-01
"""


@pytest.fixture
def home(tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project over a dbt project that was compiled, with two versions of its inputs."""
    (tmp_path / "dd.toml").write_text(PROJECT)
    (tmp_path / "library" / "target").mkdir(parents=True)
    write(tmp_path, manifest())
    (tmp_path / "loans.csv").write_text(LOANS)
    (tmp_path / "readers.csv").write_text("version,diff,reader_id,name\n0,1,7,Ada\n0,1,8,Ben\n")
    monkeypatch.chdir(tmp_path)
    for name in ("loans", "readers"):
        assert dd("ingest", name, f"{name}.csv", "-q")[0] == 0
    return tmp_path


def write(home: Path, content: Any) -> None:
    (home / "library" / "target" / "manifest.json").write_text(json.dumps(content))


def test_models_are_views_and_tests_are_data_tests(home: Path, dd: Command) -> None:
    project = find_project(home)
    program = load(project)
    assert sorted(plan_of(program, project).outputs) == ["reminders", "tests.not_null_stg_loans_loan_id"]
    assert dict(program.comments) == {"reminders": "Readers who are late."}
    assert dd("run", "-q")[0] == 0
    code, out, _ = dd("diff", "reminders", "0", "1", "--json")
    assert code == 0
    rows = [json.loads(line) for line in out]
    assert [(one["row"], one["diff"]) for one in rows if "row" in one] == [({"name": "Ben", "late": 1}, 1)]
    assert dd("verify", "-q")[0] == 0


def test_a_broken_test_of_dbt_ends_the_run(home: Path, dd: Command) -> None:
    (home / "more.csv").write_text("version,diff,loan_id,reader_id,lent_on,returned_on\n2,1,,7,2026-01-01,\n")
    assert dd("ingest", "loans", "more.csv", "-q")[0] == 0
    code, _, err = dd("run")
    assert code == 4 and any("not_null_stg_loans_loan_id" in line for line in err)
    content = manifest()
    content["nodes"]["test.library.not_null.1"]["config"]["severity"] = "warn"
    write(home, content)
    code, _, err = dd("run")
    assert code == 0 and any(line.startswith("warning: ") and "not_null_stg_loans" in line for line in err)


def test_the_plan_is_kept_until_dbt_compiles_again(home: Path, dd: Command) -> None:
    assert dd("run", "-q")[0] == 0
    content = manifest()
    content["nodes"]["model.library.reminders"]["compiled_code"] = written(REMINDERS).replace("late\n", "n\n")
    write(home, content)
    _, out, _ = dd("plan")
    assert any("name string, n int64" in line for line in out)


def test_a_model_that_changed_since_is_refused(home: Path, dd: Command) -> None:
    file = home / "library" / "models" / "staging" / "stg_loans.sql"
    file.parent.mkdir(parents=True)
    file.write_text(MODELS["stg_loans"][3] + "\n")
    assert dd("run", "-q")[0] == 0, "dbt leaves blanks at the ends out"
    file.write_text(MODELS["stg_loans"][3] + " where true")
    code, _, err = dd("run")
    assert code == 1
    assert err[-2:] == [
        "error: library/models/staging/stg_loans.sql: has changed since dbt compiled it",
        "  compile the dbt project: dbt compile",
    ]


MODEL, TEST = "model.library.reminders", "test.library.not_null.1"
MARTS, STAGING, SCHEMA = "models/marts/reminders.sql", "models/staging/stg_loans.sql", "models/schema.yml"
COLUMNS = "there are: loan_id, reader_id, lent_on, returned_on"
ITSELF = written("select 1 as a from {loans}") + f' union all select a from {DATABASE}"reminders"'
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (MODEL, {"language": "python"}, f"{MARTS}: the language python is not supported"),
    (MODEL, {"config": {"materialized": "cube"}}, f"{MARTS}: materialized: cube is not supported"),
    (
        MODEL,
        {"depends_on": {"nodes": [READER, "snapshot.library.old"]}},
        f"{MARTS}: reading the snapshot library.old is not supported",
    ),
    (
        MODEL,
        {"compiled_code": ITSELF},
        f"{MARTS}: reads itself: it was compiled to add to the table that is there",
    ),
    (MODEL, {"compiled_code": None}, "library/target/manifest.json: reminders is not compiled"),
    (MODEL, {"alias": "stg_loans"}, f"{MARTS}: {STAGING} has the name stg_loans, too"),
    (MODEL, {"alias": "a b"}, f"{MARTS}: the name 'a b' is not supported"),
    (
        TEST,
        {"config": {"error_if": "> 10"}},
        f"{SCHEMA}: the test not_null_stg_loans_loan_id with error_if: > 10 is not supported",
    ),
    (
        READER,
        {"identifier": "people"},
        f"{MARTS}: reads the source desk.readers, and dd.toml has no input people",
    ),
    (
        ALL_LOANS,
        {"compiled_code": written("\nselect *,\n  none from {loans}")},
        f"{STAGING}:3:3: there is no column none; {COLUMNS}",
    ),
    (
        ALL_LOANS,
        {"compiled_code": written("select none from {loans}")},
        f"{STAGING}:1:8: there is no column none; {COLUMNS}",
    ),
]


@pytest.mark.sample(4)
@pytest.mark.parametrize("node, change, says", REFUSED, ids=[says for _, _, says in REFUSED])
def test_what_is_refused_is_told_with_its_file(
    node: str, change: dict[str, Any], says: str, home: Path, dd: Command
) -> None:
    content = manifest()
    content["nodes" if node in content["nodes"] else "sources"][node].update(change)
    write(home, content)
    code, _, err = dd("run")
    assert code != 0 and err[-2].removeprefix("error: ") == says


def test_an_adapter_that_is_no_dialect_here(home: Path, dd: Command) -> None:
    content = manifest()
    content["metadata"]["adapter_type"] = "snowflake"
    write(home, content)
    code, _, err = dd("run")
    assert code == 1
    assert err[-2] == "error: library/target/manifest.json: was compiled for snowflake, which is no dialect here"


def test_sources_and_models_of_one_name(home: Path) -> None:
    """A source whose model has its name gets the name of both."""
    content = manifest()
    model = copy.deepcopy(content["nodes"]["model.library.stg_loans"])
    model.update(
        original_file_path="models/loans.sql",
        unique_id="model.library.loans",
        alias="loans",
        relation_name='"library"."mart"."loans"',
    )
    model["compiled_code"] = written("select * from {loans}")
    model["config"]["materialized"] = "incremental"
    content["nodes"]["model.library.loans"] = model
    write(home, content)
    project = find_project(home)
    with pytest.raises(DdError, match=r"reads the source desk\.loans, and dd\.toml has no input desk_loans"):
        load(project)
    text = (home / "dd.toml").read_text()
    (home / "dd.toml").write_text(text.replace("[inputs.loans]", "[inputs.desk_loans]"))
    project = find_project(home)
    assert {*plan_of(load(project), project).outputs} == {"loans", "reminders", "tests.not_null_stg_loans_loan_id"}


def test_hooks_are_left_out_with_a_note(home: Path, dd: Command) -> None:
    content = manifest()
    content["nodes"][MODEL]["config"]["post-hook"] = [{"sql": "analyze"}]
    write(home, content)
    _, out, err = dd("plan")
    assert any(
        "models/marts/reminders.sql: post-hook means nothing here, and is left out" in line for line in out + err
    )


def test_a_project_that_is_not_compiled(home: Path, dd: Command) -> None:
    (home / "library" / "target" / "manifest.json").unlink()
    code, _, err = dd("run")
    assert code == 2
    assert err[-2:] == [
        "error: dd.toml: [dbt] project: there is no library/target/manifest.json",
        "  compile the dbt project: dbt compile; or name its folder: [dbt] project",
    ]


# --- dbt itself -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dbt() -> Path:
    """dbt and its DuckDB adapter, in an environment of their own; needs the network once."""
    location = REPOSITORY / "build" / "dbt-1.10"
    if not (location / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", location], check=True)
        subprocess.run([location / "bin" / "pip", "install", "--quiet", *VERSIONS], check=True)
        (location / "ready").touch()
    return location / "bin" / "dbt"


@pytest.mark.long
def test_the_example_equals_dbts_own_tables(
    dbt: Path, tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of three versions, dbt builds its tables in DuckDB from the same rows."""
    home = tmp_path / "library"
    shutil.copytree(EXAMPLE, home)
    monkeypatch.chdir(home)
    monkeypatch.setenv("DBT_SEND_ANONYMOUS_USAGE_STATS", "false")
    logs = _logs()
    for name, log in logs.items():
        log.write_csv(home / f"{name}.csv")
    for version in range(3):
        _fill(home / "library.duckdb", {name: _at(log, version) for name, log in logs.items()})
        subprocess.run([dbt, "build", "--full-refresh", "--profiles-dir", "."], check=version != 2, capture_output=True)
        if version == 0:
            for name in logs:
                assert dd("ingest", name, f"{name}.csv", "-q")[0] == 0
        assert dd("run", "-q", "--to-version", str(version))[0] == 0
        with duckdb.connect(str(home / "library.duckdb"), read_only=True) as con:
            for output in ("readers_of_subjects", "reminders", "popular"):
                other = pl.DataFrame(con.table(output).to_arrow_table())
                code, out, _ = dd("show", output, "--limit", "0", "--json")
                assert code == 0
                told = [one for one in map(json.loads, out) if "row" in one]
                rows = [tuple(one["row"][name] for name in other.columns) for one in told for _ in range(one["count"])]
                assert bag(rows) == bag(other.rows()), (version, output)


def _logs() -> dict[str, pl.DataFrame]:
    books = [(1, " Odes", "Poetry"), (2, "Rome", "history"), (3, "Elegies", "poetry"), (4, "Alps", "Travel")]
    loans = [
        (1, 1, 7, "2026-01-01", "2026-01-20", 0, 1), (2, 2, 7, "2026-01-01", "2026-03-01", 0, 1),
        (3, 1, 8, "2026-01-05", None, 0, 1), (3, 1, 8, "2026-01-05", None, 1, -1),
        (3, 1, 8, "2026-01-05", "2026-02-20", 1, 1), (4, 3, 9, "2026-02-01", None, 2, 1),
        (1, 1, 7, "2026-01-01", "2026-01-20", 2, -1),
    ]  # fmt: skip
    readers = [(7, "Ada", 0, 1), (8, "Ben", 0, 1), (9, "Cy", 0, 1)]
    columns: dict[str, tuple[list[str], list[Any]]] = {
        "books": (["book_id", "title", "subject"], [(*row, 0, 1) for row in books]),
        "readers": (["reader_id", "name"], readers),
        "loans": (["loan_id", "book_id", "reader_id", "lent_on", "returned_on"], loans),
    }
    return {
        name: pl.DataFrame(rows, [*names, "version", "diff"], orient="row") for name, (names, rows) in columns.items()
    }


def _at(log: pl.DataFrame, version: int) -> pl.DataFrame:
    names = [name for name in log.columns if name not in ("version", "diff")]
    rows = log.filter(pl.col("version") <= version).group_by(names).agg(pl.col("diff").sum())
    return rows.filter(pl.col("diff") > 0).select(names)


def _fill(database: Path, tables: dict[str, pl.DataFrame]) -> None:
    with duckdb.connect(str(database)) as con:
        for name, rows in tables.items():
            con.register("rows", rows.to_arrow())
            dates = ", ".join(f"{column}::date AS {column}" for column in rows.columns if column.endswith("_on"))
            chosen = f"* REPLACE ({dates})" if dates else "*"
            con.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT {chosen} FROM rows")
