"""``now()`` is the instant of the version that is folded: rows leave a window at the version at which they are too old,
in every engine, however a history is cut into runs.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
import sparkless
from folding import Fold, instants_of
from notation import DIMS
from seeds import nightly
from sql_duckdb import bag
from test_join_between import counted
from warehouses import log_of
from workshop import Workshop, assert_same, contents, is_same

import ddcore as dd
from ddcore import col, reference
from ddcore.base.errors import LateUpdate, ProgramError, UsageError
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.finding import find_project
from ddcore.io.project.kept_plans import kept_plan
from ddcore.io.project.program import load_plan, load_program
from ddcore.io.project.project import Project, RetentionSettings
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import compact, replay
from ddcore.jobs.verify import Selection, Verification
from ddcore.sql import program as sql

TIME = pl.Datetime("us", "UTC")
SCHEMA: dict[str, Any] = {"k": pl.Int64, "ts": TIME, "version": pl.Int64, "diff": pl.Int64}


def day(number: float) -> datetime:
    return datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=number)


def updates(*rows: tuple[int, float, int, int]) -> pl.DataFrame:
    return pl.DataFrame([(k, day(ts), version, diff) for k, ts, version, diff in rows], SCHEMA, orient="row")


ROWS = updates((1, 0, 0, 1), (2, 2, 1, 1), (3, 8, 2, 1), (2, 2, 3, -1), (4, 19, 4, 1), (5, 9, 4, 1))
INSTANTS = {0: day(0), 1: day(2), 2: day(8), 3: day(9), 4: day(19)}

# -- in one process ---------------------------------------------------------------------------------------------------


def recent(t: Any) -> dict[str, Any]:
    since = dd.now().select(since=col("now") - timedelta(days=7))
    return {"recent": t.join_between(since, "ts", lower="since", closed="none"), "clock": dd.now()}


def changes(log: pl.DataFrame) -> list[tuple[Any, ...]]:
    return log.drop("ts").rows()


def test_rows_leave_at_the_version_at_which_they_are_too_old() -> None:
    logs = dd.replay(recent, instants=INSTANTS, t=ROWS)
    assert changes(logs["recent"]) == [
        (1, 0, 1), (2, 1, 1), (1, 2, -1), (3, 2, 1), (2, 3, -1), (3, 4, -1), (4, 4, 1),
    ]  # fmt: skip
    now = [(day(0), 0, 1), (day(0), 1, -1), (day(2), 1, 1), (day(2), 2, -1), (day(8), 2, 1), (day(8), 3, -1)]
    assert logs["clock"].rows() == [*now, (day(9), 3, 1), (day(9), 4, -1), (day(19), 4, 1)]


@pytest.mark.parametrize("dialect", ["postgres", "duckdb"])
def test_the_age_of_one_moment_is_that_at_the_day_of_the_version(dialect: str) -> None:
    text = "CREATE VIEW o AS SELECT k, extract(day FROM age(ts)) AS days, extract(hour FROM age(ts)) AS hours FROM t"
    rows = updates((1, 0.25, 0, 1), (2, 2, 1, 1))
    log = dd.replay(sql(text, dialect=dialect), instants={0: day(0.5), 1: day(2.75)}, t=rows)["o"]
    assert log.rows() == [(1, 0, -6, 0, 1), (1, 0, -6, 1, -1), (1, 1, 18, 1, 1), (2, 0, 0, 1, 1)]


@pytest.mark.sample(5)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_law_also_where_times_are_not_ordered(fold: Fold, dims: int) -> None:
    names = DIMS[dims]
    times = [tuple((seed * (axis + 3) + 5 * axis) % 4 for axis in range(dims)) for seed in range(12)]
    begin, rows = datetime(2024, 2, 28, 18, tzinfo=UTC), list[tuple[Any, ...]]()
    rows += [(n, begin + timedelta(hours=n), *time, 1) for n, time in enumerate(times)]
    rows += [(n, ts, *(item + 1 for item in rest[:-1]), -1) for n, ts, *rest in rows[::3]]
    frame = pl.DataFrame(rows, ["k", "ts", *names, "diff"], orient="row")

    def program(t: Any) -> dict[str, Any]:
        until = dd.now().select(until=col("now") - timedelta(hours=3))
        kept = t.join_between(until, "ts", upper="until")
        looped = kept.select("k").iterate(lambda ks: ks.select(k="k // 2").concat(kept.select("k")).distinct())
        return {"kept": kept, "clock": dd.now(), "looped": looped}

    expected = reference.replay(program, names, instants_of({"t": frame}), t=frame)
    assert fold(program, t=frame) == expected
    assert any(diff < 0 for diff in expected["clock"].values())


def test_a_window_that_moves_costs_the_rows_that_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    session = dd.Session(
        sql("CREATE VIEW o AS SELECT k FROM t WHERE ts > now() - INTERVAL '7 days'"),
        {"t": {"k": "int64", "ts": "timestamp"}},
    )
    many = pl.DataFrame({"k": range(20_000), "version": 0, "diff": 1}).with_columns(
        ts=pl.lit(day(0)) + pl.duration(minutes="k")
    )
    session.fold({"t": many}, instants={0: day(0)})
    read = counted(monkeypatch)
    log = session.fold({}, instants={1: day(7) + timedelta(minutes=9)})["o"]
    assert sorted(log["k"]) == list(range(10)) and set(log["diff"]) == {-1}
    assert sum(read) < 200


def test_what_has_no_instant_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"uses now\(\), and neither version 0, at which t has a row"):
        dd.replay(recent, t=ROWS)
    with pytest.raises(ProgramError, match=r"neither version 0, at which t has a row"):
        dd.replay(recent, instants={1: day(0)}, t=ROWS)
    assert dd.replay(recent, instants={0: day(0)}, t=ROWS)["clock"].rows() == [(day(0), 0, 1)]
    for instants, what in (
        ([day(0)], "no dict of instants"), ({0: "2026"}, "at 0 is no datetime"), ({"x": day(0)}, "'x' is no version"),
    ):  # fmt: skip
        with pytest.raises(ProgramError, match=what):
            dd.replay(recent, instants=instants, t=ROWS)
    with pytest.raises(ProgramError, match="there is no time dimension 'c'"):
        dd.Session(recent, {"t": {"k": "int64", "ts": "timestamp"}}, ("a", "b")).fold({}, instants={"c": {}})
    with pytest.raises(ProgramError, match=r"test_now\.py:\d+: now is called outside of a program"):
        dd.now()


def test_instants_of_folded_versions_stay() -> None:
    session = dd.Session(recent, {"t": {"k": "int64", "ts": "timestamp"}})
    session.fold({"t": ROWS.filter(pl.col("version") < 2)}, upper=[(2,)], instants={0: day(0), 1: day(2)})
    with pytest.raises(LateUpdate, match=r"instants: one changes at \(1,\)"):
        session.fold({}, upper=[(3,)], instants={1: day(3)})
    log = session.fold({}, upper=[(3,)], instants={1: day(2), 2: day(8)})["clock"]
    assert log.rows() == [(day(2), 2, -1), (day(8), 2, 1)]


# -- SQL --------------------------------------------------------------------------------------------------------------

QUERIES = [
    "SELECT k FROM t WHERE ts > now() - INTERVAL '7 days'",
    "SELECT k FROM t WHERE ts BETWEEN now() - INTERVAL '7 days' AND now() + INTERVAL '1 hour'",
    "SELECT k, CAST(current_date AS VARCHAR) AS d FROM t WHERE ts >= current_date - INTERVAL '7 days'",
    "SELECT CASE WHEN ts < now() - INTERVAL '2 days' THEN 'old' ELSE 'new' END AS age, count(*) AS n FROM t GROUP BY 1",
    "SELECT date_trunc('week', now()) AS w, count(*) AS n FROM t",
    "SELECT k FROM t a WHERE EXISTS (SELECT 1 FROM t b WHERE b.ts < a.ts AND b.ts > now() - INTERVAL '8 days')",
    "SELECT a.k, b.k AS j FROM t a LEFT JOIN t b ON a.k < b.k AND b.ts > now() - INTERVAL '9 days'",
    "SELECT k, count(*) AS n FROM t GROUP BY k, now() HAVING max(ts) > now() - INTERVAL '3 days'",
    "WITH old AS (SELECT * FROM t WHERE ts <= now() - INTERVAL '7 days') SELECT count(*) AS n FROM old",
    "SELECT k, row_number() OVER (ORDER BY ts) AS r FROM t WHERE ts + INTERVAL '4 days' >= now()",
]


@pytest.mark.sample(4)
@pytest.mark.parametrize("query", QUERIES)
def test_sql_equals_duckdb_at_the_instant_of_each_version(query: str) -> None:
    dialect = "duckdb" if "VARCHAR" in query else "postgres"
    views = sql(f"CREATE VIEW o AS {query}", dialect=dialect)
    log = dd.replay(views, instants=INSTANTS, t=ROWS)["o"]
    assert reference.log_of(log) == reference.replay(views, ("version",), INSTANTS, t=ROWS)["o"]
    for version, instant in INSTANTS.items():
        at = f"TIMESTAMPTZ '{instant.isoformat()}'"
        text = query.replace("now()", at).replace("current_date", f"CAST({at} AS DATE)")
        here = ROWS.filter(pl.col("version") <= version).group_by("k", "ts").agg(pl.col("diff").sum())
        rows = log.filter(pl.col("version") <= version)
        left = rows.group_by(rows.columns[:-2]).agg(pl.col("diff").sum()).filter(pl.col("diff") > 0)
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("t", here.filter(pl.col("diff") > 0).drop("diff").to_arrow())
            other = bag(connection.execute(text).fetchall())
        own = [row[:-1] for row in left.rows() for _ in range(row[-1])]
        assert bag(own) == other, f"version {version}"


@pytest.mark.parametrize(
    ("dialect", "text"),
    [("postgres", "localtimestamp"), ("postgres", "transaction_timestamp()"), ("postgres", "CURRENT_TIMESTAMP"),
     ("spark", "now()"), ("spark", "current_timestamp"), ("databricks", "now()"), ("databricks", "getdate()"),
     ("duckdb", "now()"), ("duckdb", "get_current_timestamp()"), ("duckdb", "current_localtimestamp()")],
)  # fmt: skip
def test_the_forms_of_each_dialect(dialect: str, text: str) -> None:
    log = dd.replay(sql(f"CREATE VIEW o AS SELECT {text} AS n", dialect=dialect), instants=INSTANTS, t=ROWS)["o"]
    assert log.rows()[-1] == (day(19), 4, 1)


@pytest.mark.parametrize(
    ("dialect", "text"), [("postgres", "current_date"), ("spark", "current_date()"), ("spark", "curdate()"),
                          ("duckdb", "today()")],
)  # fmt: skip
def test_the_day_in_each_dialect(dialect: str, text: str) -> None:
    log = dd.replay(sql(f"CREATE VIEW o AS SELECT {text} AS n", dialect=dialect), instants=INSTANTS, t=ROWS)["o"]
    assert log.rows()[-1] == (day(19).date(), 4, 1)


def test_columns_have_the_names_of_the_functions() -> None:
    views = sql("CREATE VIEW o AS SELECT now(), current_date FROM t")
    assert dd.replay(views, instants=INSTANTS, t=ROWS)["o"].columns == ["now", "current_date", "version", "diff"]


@pytest.mark.parametrize("text", ["current_timestamp(3)", "current_time", "localtime"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ProgramError, match=r"1:\d+: this form of the clock is not supported"):
        dd.replay(sql(f"CREATE VIEW o AS SELECT {text} AS n FROM t"), t=ROWS)


# -- in a warehouse ---------------------------------------------------------------------------------------------------

TOML = """
[project]
program = "views.sql"
warehouse = "warehouse"
[run]
engine = "inline"
[inputs.t.schema]
k = "int64"
ts = "timestamp"
"""
VIEWS = """
CREATE VIEW recent AS SELECT k FROM t WHERE ts > now() - INTERVAL '7 days';
CREATE VIEW ages AS SELECT ts < now() - INTERVAL '2 days' AS old, count(*) AS n FROM t GROUP BY 1;
"""
MORE = VIEWS + "CREATE VIEW days AS SELECT k, current_date - CAST(ts AS DATE) AS d FROM t;"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "dd.toml").write_text(TOML)
    (tmp_path / "views.sql").write_text(VIEWS)
    return find_project(tmp_path, {})


@pytest.fixture(params=nightly(["inline", "two tasks", "one task"], 2))
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    if request.param == "inline":
        return {"engine": "inline"}
    sparkless.install(monkeypatch)
    return {"engine": "spark", "parallelism": 1 if request.param == "one task" else 2}


def ingest(dd: Any, project: Project, version: int, *more: str, rows: pl.DataFrame = ROWS) -> None:
    """The updates of a version, by the command."""
    file = project.root / f"{version}.csv"
    rows.filter(pl.col("version") == version).drop("version").with_columns(
        ts=pl.col("ts").dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    ).write_csv(file)
    code, _, said = dd("ingest", "t", str(file), "--version", str(version), *more, "--project", str(project.root))
    assert code == 0, said


def ingest_all(dd: Any, project: Project, last: int = 4, first: int = 0) -> None:
    for version in range(first, last + 1):
        label = INSTANTS[version].strftime("%Y-%m-%dT%H:%M")
        ingest(dd, project, version, "--label", label)


def require_the_law(project: Project, first: int, last: int, instants: Any = None, rows: pl.DataFrame = ROWS) -> None:
    expected = reference.replay(load_program(project), ("version",), instants or INSTANTS, t=rows)
    for name, schema in load_plan(project).outputs.items():
        actual = reference.log_of(log_of(project, name, schema))
        for version in range(first, last + 1):
            assert accumulated(actual, version) == accumulated(expected[name], version), f"{name} at {version}"


def accumulated(log: Any, version: int) -> dict[Any, int]:
    total: Counter[Any] = Counter()
    for (row, time), diff in log.items():
        total[row] += diff if time[0] <= version else 0
    return {row: count for row, count in total.items() if count}


def verified(project: Project) -> list[bool]:
    results = []
    for way in ("reference", "scratch"):
        verification = Verification(replace(project, engine="inline"), by=way)
        outputs = verification.outputs()
        times = verification.times(Selection(every=1), outputs)
        results += [verdict.holds for verdict in verification.verdicts(times, outputs)]
    return results


@pytest.mark.sample(6, of="runs")
def test_runs_cut_anywhere(how: dict[str, Any], project: Project, dd: Any) -> None:
    ingest_all(dd, project, 3)
    for last in (1, 2, 3):
        replay.run(project, last=time_of(last), **how)
        require_the_law(project, 0, last)
    ingest_all(dd, project, 4, first=4)
    replay.run(project, **how)
    require_the_law(project, 0, 4)
    assert all(verified(project)) and len(verified(project)) > 8
    replay.run(project, first=time_of(2), **how)
    require_the_law(project, 0, 4)
    replay.run(project, full_refresh=True, **how)
    require_the_law(project, 0, 4)
    assert replay.run(project, **how).nothing_new


@pytest.mark.sample(6, of="runs")
def test_a_changed_program(how: dict[str, Any], project: Project, dd: Any) -> None:
    ingest_all(dd, project)
    replay.run(project, last=time_of(3), **how)
    (project.root / "views.sql").write_text(MORE)
    replay.run(project, **how)
    require_the_law(project, 4, 4)
    replay.run(project, full_refresh=True, **how)
    require_the_law(project, 0, 4)


@pytest.mark.sample(6, of="runs")
def test_a_version_that_gets_another_date_is_folded_again(project: Project, dd: Any) -> None:
    ingest_all(dd, project)
    replay.run(project)
    rows = pl.concat([ROWS, updates((6, 8.5, 4, 1))])
    ingest(dd, project, 4, "--restate", "4", "--label", "2026-03-16", rows=rows)
    replay.run(project)
    require_the_law(project, 0, 4, {**INSTANTS, 4: day(15)}, rows)
    assert all(verified(project))


@pytest.mark.sample(6, of="runs")
def test_instants_that_changed_without_a_row(project: Project, dd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever changed the instant of a folded version: the run sees it by the digest of those it folded."""
    ingest_all(dd, project)
    replay.run(project, last=time_of(1))
    replay.run(project, last=time_of(2))
    replay.run(project)
    names = Ledger.version_names
    other = {**INSTANTS, 2: day(12)}

    def changed(ledger: Ledger, dims: Any, inputs: Any = None) -> Any:
        found = names(ledger, dims, inputs)
        found._moments[0][2] = "2026-03-13T00:00:00"
        return found

    monkeypatch.setattr(Ledger, "version_names", changed)
    report = replay.run(project)
    assert not report.nothing_new and report.windows[0][1] == time_of(2)
    require_the_law(project, 0, 4, other)
    assert replay.run(project).nothing_new


def test_versions_without_an_instant(project: Project, dd: Any) -> None:
    """The date of a file is the instant of the last version in it."""
    file = project.root / "all.csv"
    file.write_text("k,ts,version,diff\n1,2026-03-01T00:00:00Z,0,1\n2,2026-03-03T00:00:00Z,1,1\n")
    assert dd("ingest", "t", str(file), "--project", str(project.root))[0] == 0
    with pytest.raises(UsageError, match="neither version 0, at which t has rows, nor one before it has an instant"):
        replay.run(project)


def test_a_program_of_python_is_planned_once(project: Project, dd: Any) -> None:
    """``dd.now`` is no clock; and a kept plan knows that instants count."""
    (project.root / "program.py").write_text(
        "from datetime import timedelta\n\nimport ddcore as dd\nfrom ddcore import col\n\n\ndef program(t):\n"
        '    since = dd.now().select(since=col("now") - timedelta(days=7))\n'
        '    return {"recent": t.join_between(since, "ts", lower="since", closed="none")}\n'
    )
    (project.root / "dd.toml").write_text(TOML.replace("views.sql", "program.py:program"))
    project = find_project(project.root, {})
    ingest_all(dd, project)
    replay.run(project, last=time_of(3))
    kept = kept_plan(project)
    assert kept is not None and kept.uses_now
    replay.run(project)
    require_the_law(project, 0, 4)
    assert replay.run(project).nothing_new


@pytest.mark.sample(6, of="runs")
def test_history_that_was_given_up(project: Project, dd: Any) -> None:
    project = replace(project, retention=RetentionSettings(auto=False, versions=3, days=0))
    ingest_all(dd, project)
    replay.run(project, last=time_of(3))
    compact.compact(project, since=time_of(2))
    replay.run(project)
    require_the_law(project, 2, 4)
    replay.run(project, full_refresh=True)
    require_the_law(project, 2, 4)
    assert all(verified(project))


@pytest.mark.sample(6, of="runs")
def test_a_row_rests_on_the_instant_of_its_version(project: Project, dd: Any) -> None:
    (project.root / "views.sql").write_text(VIEWS.replace("SELECT k FROM", "SELECT k, ts FROM"))
    ingest_all(dd, project)
    replay.run(project)
    where = ["--project", str(project.root)]
    code, said, wrong = dd("explain", "recent", "k=3", "--at", "2", "--check", *where)
    assert code == 0 and any("rests on 2 input rows" in line for line in said), (said, wrong)
    assert any("now" in line and "2026-03-09" in line for line in said), said
    assert "checked: without any one of them it is gone" in said
    code, said, wrong = dd("explain", "recent", "3", "4", "k=3", *where)
    assert code == 0 and any("now" in line and "2026-03-10" in line for line in said), said


# -- killed -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Killable:
    """A project whose versions 0 and 1 are folded, and the places that runs of one more version after the other reach;
    ``rows``: those of all tables before and after each of these runs.
    """

    base: Path
    points: tuple[tuple[int, str], ...]
    rows: dict[int, dict[str, pl.DataFrame]]


@pytest.fixture(scope="module")
def killable(workshop: Workshop) -> Killable:
    base = workshop.folder / "moving"
    base.mkdir()
    (base / "dd.toml").write_text(TOML)
    (base / "views.sql").write_text(VIEWS)
    for version, instant in INSTANTS.items():
        rows = ROWS.filter(pl.col("version") == version).drop("version")
        rows.with_columns(ts=pl.col("ts").dt.strftime("%Y-%m-%dT%H:%M:%SZ")).write_csv(base / f"{version}.csv")
        label = instant.strftime("%Y-%m-%dT%H:%M")
        workshop.done(base, "ingest", "t", f"{version}.csv", "--version", str(version), "--label", label)
    workshop.done(base, "run", "--to-version", "1")
    folder, points, tables = workshop.copy(base), list[tuple[int, str]](), {1: contents(workshop.project(base))}
    for version in (2, 3, 4):
        log = workshop.folder / f"moving-{version}.log"
        ended = workshop.command(folder, "run", "--to-version", str(version), DDCORE_FAILPOINT_LOG=str(log))
        assert ended.code == 0, ended
        locations = [line.split()[1] for line in log.read_text().splitlines()]
        points += [(version, f"{point}:{locations[: at + 1].count(point)}") for at, point in enumerate(locations)]
        tables[version] = contents(workshop.project(folder))
    return Killable(base, tuple(points), tables)


@pytest.mark.sample(6, of="runs")
def test_runs_can_be_killed_in_the_midst_of_a_version_whose_rows_leave_and_between_two(killable: Killable) -> None:
    for version in (2, 4):
        gone = killable.rows[version]["outputs/recent"].filter(pl.col("version") == version, pl.col("diff") < 0)
        assert len(gone)
        points = {point.partition(":")[0] for number, point in killable.points if number == version}
        assert {"after-intent", "after-file", "after-table", "after-run"} <= points


@pytest.mark.sample(6, of="runs")
@pytest.mark.parametrize("sample", [1, pytest.param(25, marks=pytest.mark.long)])
def test_a_window_that_moves_is_as_if_nothing_had_been_killed(
    sample: int, killable: Killable, workshop: Workshop, seed: int
) -> None:
    """SIGKILL after any durable step of a run: nothing of it is seen, or all, and the next runs leave the same logs."""
    for version, point in random.Random(seed).sample(killable.points, sample):
        folder = workshop.copy(killable.base)
        project = workshop.project(folder)
        for last in (2, 3, 4):
            arguments = ("run", "--to-version", str(last))
            if last == version:
                killed = workshop.command(folder, *arguments, DDCORE_FAILPOINT=point)
                assert killed.code == -signal.SIGKILL, (version, point, killed)
                between = contents(project)
                assert any(is_same(between, killable.rows[side]) for side in (version - 1, version)), (version, point)
            assert workshop.command(folder, *arguments).code == 0, (version, point)
            assert_same(contents(project), killable.rows[last], (version, point))
        require_the_law(project, 0, 4)
        assert Ledger.load(Warehouse(project.warehouse)).open_intent() is None
        workshop.remove(folder)


@pytest.mark.spark
def test_spark_with_several_workers_leaves_what_one_process_leaves(project: Project, spark: Any, dd: Any) -> None:
    """The versions at which rows leave are folded by two workers, from the state that one process left."""
    ingest_all(dd, project)
    replay.run(project, last=time_of(1))
    how: dict[str, Any] = {"engine": "spark", "parallelism": 2}
    replay.run(project, **how)
    require_the_law(project, 0, 4)
    runs = [(run.engine, run.parallelism) for run in Ledger.load(Warehouse(project.warehouse)).lineage()]
    assert ("spark", 2) in runs and len(runs) == 2
    assert replay.run(project, **how).nothing_new


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("point", ["after-intent", "after-file", "after-table", "after-table:3"])
def test_a_killed_run_on_spark_is_finished_by_the_next(point: str, project: Project, dd: Any) -> None:
    """Several workers in a JVM of its own; version 2 takes a row out of the window. The next run is Spark's, too."""
    ingest_all(dd, project)
    replay.run(project, last=time_of(1))
    program = Path(sys.executable).with_name("ddcore")
    command = [str(program), "run", "-q", "--engine", "spark", "--parallelism", "2", "--project", str(project.root)]
    environment = {**os.environ, "DDCORE_MASTER": "local[2]"}
    killed = subprocess.run(
        [*command, "--to-version", "2"], env={**environment, "DDCORE_FAILPOINT": point}, check=False, timeout=600
    )
    ledger = Ledger.load(Warehouse(project.warehouse))
    assert len(list(ledger.lineage())) == 1
    if point == "after-file":  # it was a task that was killed: the run ends, and says so
        assert killed.returncode == 1 and ledger.open_intent() is None
    else:
        assert killed.returncode == -signal.SIGKILL and ledger.open_intent() is not None
    subprocess.run(command, env=environment, check=True, timeout=600)
    require_the_law(project, 0, 4)
    assert replay.run(project).nothing_new
