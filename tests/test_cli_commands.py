"""The commands on a project as `init` makes it, in this process and without a JVM."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from trams import records

from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IntentRecord
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse

NO_ENDS = {"from": None, "to": None}  # no version at either end has a label, or an instant


def date_of(file: Path) -> str:
    return datetime.fromtimestamp(int(file.stat().st_mtime), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- ingest and run ---------------------------------------------------------------------------------------------------


def test_from_nothing_to_folded(fresh: Path, dd: Any) -> None:
    code, out, err = dd("ingest", "links", "data/links.csv")
    assert code == 0
    assert re.fullmatch(r"ingest=1 input=links versions=1\.\.5 in=\+10/-2 rows=12 took=\d+\.\ds", err[0])
    assert [(r["schema_version"], r["command"], r["nothing_new"]) for r in records(out)] == [(1, "ingest", False)]
    assert dd("ingest", "starts", "data/starts.csv")[0] == 0
    code, out, err = dd("run")
    assert code == 0
    assert err[:5] == [
        "version=1 in=+6/-0 out=+6/-0",
        "version=2 in=+2/-0 out=+3/-2",
        "version=3 in=+1/-1 out=+1/-1",
        "version=4 in=+0/-1 out=+0/-2",
        "version=5 in=+2/-0 out=+2/-0",
    ]
    assert re.fullmatch(r"run=1 versions=1\.\.5 in=\+11/-2 out=\+12/-5 rounds=\d+ took=\d+\.\ds", err[5])
    (result,) = records(out)
    assert result["outputs"] == {"journeys": {"plus": 12, "minus": 5}}
    assert (result["last"], result["engine"], result["nothing_new"]) == (5, "inline", False)


def test_run_one_version_says_it_all_in_one_line(copied: Path, dd: Any) -> None:
    (copied / "six.csv").write_text("diff,src,dst,minutes\n1,Zoo,Airport,20\n")
    assert dd("ingest", "links", "six.csv", "--version", "6")[0] == 0
    code, _, err = dd("run")
    assert code == 0
    assert len(err) == 1
    assert re.fullmatch(r"version=6 in=\+1/-0 out=\+1/-0 rounds=\d+ took=\d+\.\ds", err[0])


def test_run_json(fresh: Path, dd: Any) -> None:
    dd("ingest", "links", "data/links.csv", "-q")
    dd("ingest", "starts", "data/starts.csv", "-q")
    code, out, _ = dd("run", "--json")
    lines = records(out)
    assert code == 0
    assert [line["version"] for line in lines[:-1]] == [1, 2, 3, 4, 5]
    assert lines[1]["outputs"] == {"journeys": {"plus": 3, "minus": 2}}
    assert lines[-1]["command"] == "run"


def test_quiet_success_says_nothing(copied: Path, dd: Any) -> None:
    (copied / "six.csv").write_text("diff,src,dst,minutes\n1,Zoo,Airport,20\n")
    assert dd("ingest", "links", "six.csv", "--version", "6", "-q") == (0, [], [])
    assert dd("run", "-q") == (0, [], [])
    assert dd("run", "-q") == (0, [], [])


def test_nothing_new(copied: Path, dd: Any) -> None:
    code, out, err = dd("run")
    assert (code, err) == (0, ["nothing new: version 5 is folded"])
    assert records(out)[0]["nothing_new"] is True
    assert dd("run", "--skip-code", "99")[0] == 99
    shutil.copy("data/links.csv", "copy.csv")
    code, out, err = dd("ingest", "links", "copy.csv")
    assert (code, err) == (0, ["nothing new: ingest 1 took in the same rows"])
    assert dd("ingest", "links", "copy.csv", "--skip-code", "99", "-q") == (99, [], [])


READERS = [["run"], ["run", "--dry-run"], ["run", "--to-version", "3"], ["diff", "journeys", "1..2"],
           ["show", "journeys"], ["log"], ["log", "--json"], ["status"], ["run", "--full-refresh"]]  # fmt: skip


@pytest.mark.parametrize("command", READERS, ids=" ".join)
@pytest.mark.parametrize("state", ["missing", "empty", "elsewhere", "unmounted", "link"])
def test_a_missing_or_empty_warehouse_is_none(state: str, command: list[str], fresh: Path, dd: Any) -> None:
    """Nothing that reads or folds takes it for a new one, or makes anything."""
    location = fresh / "warehouse"
    says = {
        "missing": f"the folder {location} is missing",
        "empty": "the folder has no ledger",
        "elsewhere": f"the folder {fresh / 'mispelt'} is missing",
        "unmounted": "the folder has no ledger",
        "link": f"{location} is a link that leads nowhere",
    }[state]
    if state == "empty":
        location.mkdir()
    elif state == "elsewhere":
        location = fresh / "mispelt" / "folder"
    elif state == "unmounted":
        location = fresh / "mount"
        location.mkdir()
    elif state == "link":
        location.symlink_to(fresh / "nowhere")
    before = sorted(fresh.rglob("*"))
    code, out, err = dd(*command, "--warehouse", str(location))
    assert (code, out) == (1, [])
    assert err == [
        f"error: there is no warehouse in {location}: {says}",
        "  check the path and whether its file system is mounted; a new warehouse begins with: "
        "ddcore ingest INPUT SOURCE, or ddcore sync where dd.toml declares sources",
    ]
    assert sorted(file for file in fresh.rglob("*") if "__pycache__" not in str(file)) == before


def test_only_an_ingest_begins_a_warehouse_and_elsewhere_only_when_told(fresh: Path, dd: Any, tmp_path: Path) -> None:
    """An unmounted path looks like a folder that is missing or empty: nothing is ingested into that by default."""
    mount, empty = tmp_path / "mount", tmp_path / "empty"
    empty.mkdir()
    for location in (mount, mount / "warehouse", empty, empty / "warehouse"):
        code, _, err = dd("ingest", "links", "data/links.csv", "-q", "--warehouse", str(location))
        assert code == 1
        assert err[0].startswith(f"error: there is no warehouse in {location}: the folder ")
        assert "file system is mounted" in err[1]
        assert "--new-warehouse" in err[1]
        assert (mount.exists(), list(empty.iterdir())) == (False, [])
    ingest = ["ingest", "links", "data/links.csv", "--warehouse", str(mount)]
    assert dd(*ingest, "--new-warehouse")[0] == 0
    assert dd(*ingest)[2] == ["nothing new: ingest 1 took in the same rows"], "it is there now"
    assert dd("ingest", "links", "data/links.csv")[0] == 0, "in the project's folder it needs no word"
    assert (fresh / "warehouse" / "ledger").is_dir()


EMPTY = [
    ["run", "--warehouse", ""], ["run", "--project", ""], ["run", "--master", ""], ["run", "--engine", ""],
    ["ingest", "links", ""], ["ingest", "links", "data/links.csv", " "], ["ingest", "", "data/links.csv"],
    ["ingest", "links", "data/links.csv", "--warehouse", ""], ["ingest", "links", "data/links.csv", "--column", ""],
    ["ingest", "links", "data/links.csv", "--late", ""], ["show", ""], ["show", "journeys", "--at", ""],
    ["diff", "", "1", "2"], ["diff", "journeys", "", ""], ["diff", "journeys", "", "2"], ["diff", "journeys", "1", ""],
    ["log", "--warehouse", ""], ["status", "--project", ""], ["init", ""], ["doctor", "--project", ""],
    ["run", "--to-version", ""], ["run", "--from-version", ""], ["run", "--parallelism", ""],
    ["run", "--skip-code", ""],
]  # fmt: skip


@pytest.mark.parametrize("arguments", EMPTY, ids=" ".join)
def test_what_an_unset_variable_leaves_is_refused(arguments: list[str], copied: Path, dd: Any) -> None:
    code, out, err = dd(*arguments)
    assert (code, out) == (2, [])
    assert err[0].startswith("error: ")
    assert len(err) <= 2


def test_empty_environment_variables_count_as_not_set(here: Path, dd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PROJECT", "WAREHOUSE", "ENGINE", "PARALLELISM", "MASTER", "DEBUG"):
        monkeypatch.setenv(f"DDCORE_{name}", "")
    code, out, _ = dd("status", "--json")
    assert (code, records(out)[0]["warehouse"]) == (0, str(here / "warehouse"))


def test_nothing_new_starts_no_engine_and_no_jvm(copied: Path) -> None:
    code = (
        "import sys; from ddcore.cli.main import run_command; code = run_command(['run', '--engine', 'spark']);"
        "heavy = [n for n in ('numba', 'pyspark', 'py4j', 'pandas') if n in sys.modules]; sys.exit(code or str(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=600)
    assert done.stderr == "nothing new: version 5 is folded\n[]\n"


def test_dry_run_writes_nothing(copied: Path, dd: Any) -> None:
    (copied / "six.csv").write_text("diff,src,dst,minutes\n1,Zoo,Airport,20\n")
    dd("ingest", "links", "six.csv", "--version", "6")
    code, out, err = dd("run", "--dry-run")
    assert code == 0
    assert err == ["version=6 in=+1/-0", "would fold 1 version, 6..6, in=+1/-0; nothing was written"]
    assert records(out)[-1]["dry_run"] is True
    assert records(dd("status", "--json")[1])[0]["waiting"] == [6]


def test_windows(fresh: Path, dd: Any) -> None:
    dd("ingest", "links", "data/links.csv", "-q")
    dd("ingest", "starts", "data/starts.csv", "-q")
    assert dd("run", "--to-version", "9")[2][0] == "error: --to-version: version 9 was not ingested: the last one is 5"
    assert dd("run", "--from-version", "3")[2][0].startswith("error: --from-version 3 would leave out version 1")
    assert dd("run", "--from-version", "1", "--to-version", "2", "-q") == (0, [], [])
    code, _, err = dd("run", "--from-version", "2", "--to-version", "2")
    assert (code, err[0]) == (0, "folded again from nothing, through version 2: outputs are rewritten")
    assert dd("run", "--to-version", "-1", "-q") == (0, [], [])
    assert records(dd("status", "--json")[1])[0]["folded"] == 4
    assert dd("run", "--to-version", "latest", "-q") == (0, [], [])
    assert records(dd("status", "--json")[1])[0]["folded"] == 5
    assert dd("run", "--to-version", "day=1")[0] == 2


# --- what ingest refuses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["linsk", "data/links.csv"], 2, "no input 'linsk' in dd.toml; there are: links, starts"),
        (["links", "data/gone.csv"], 2, "data/gone.csv: there is no such file or folder"),
        (["links", "data/starts.csv"], 1, "data/starts.csv: "),
        (["links", "README.md"], 2, "README.md: cannot tell the format"),
        (["links", "gs://bucket/x.parquet"], 2, "only files and folders can be read"),
        (["links", "data/links.csv", "--late", "mov"], 2, "--late: 'mov' is none of refuse, move"),
        (["links", "data/links.csv", "--column", "src"], 2, "--column: 'src' is not OURS=THEIRS"),
        (["links", "data/links.csv", "--column", "src=a", "--column", "src=b"], 2, "--column: 'src' is named twice"),
        (["links", "data/links.csv", "--engine", "flink"], 2, "--engine: unknown engine 'flink'"),
        (["links", "data/links.csv", "--version", "-1"], 2, "--version: version is -1, which is negative"),
    ],
)
def test_ingest_refuses(fresh: Path, dd: Any, arguments: list[str], code: int, says: str) -> None:
    got, out, err = dd("ingest", *arguments)
    assert (got, out) == (code, [])
    assert err[0].startswith("error: ")
    assert says in err[0]
    assert len(err) <= 2
    assert not (fresh / "warehouse" / "inputs").exists() or not list((fresh / "warehouse" / "inputs").rglob("*.json"))


def test_late_rows_are_refused_or_moved(copied: Path, dd: Any) -> None:
    (copied / "late.csv").write_text("version,diff,src,dst,minutes\n2,1,Zoo,Airport,20\n")
    code, _, err = dd("ingest", "links", "late.csv")
    assert code == 1
    assert "late" in err[0] or "folded" in err[0] or "closed" in err[0]
    assert "--late move" in err[1]
    code, out, err = dd("ingest", "links", "late.csv", "--late", "move")
    assert code == 0
    assert records(out)[0]["moved"] == 1
    assert dd("run", "-q") == (0, [], [])
    assert records(dd("status", "--json")[1])[0]["folded"] == 6


def test_renamed_columns(fresh: Path, dd: Any) -> None:
    (fresh / "other.csv").write_text("day,a,b,minutes\n1,Zoo,Airport,20\n")
    columns = [word for text in ("version=day", "src=a", "dst=b") for word in ("--column", text)]
    code, out, _ = dd("ingest", "links", "other.csv", "--diff", "1", *columns)
    assert (code, records(out)[0]["plus"]) == (0, 1)


def test_what_the_program_prints_is_not_data(copied: Path, dd: Any) -> None:
    (copied / "program.py").write_text("print('hello')\n" + (copied / "program.py").read_text())
    code, out, err = dd("run")
    assert code == 0
    assert err[0] == "hello"
    assert len(records(out)) == 1


# --- diff -------------------------------------------------------------------------------------------------------------


def test_diff_pairs_by_the_key_of_the_project(here: Path, dd: Any) -> None:
    assert dd("diff", "journeys", "1", "latest") == (
        0,
        [
            "journeys (stop string, total int64)",
            "1..5  +4 -3",
            "",
            "   stop           total",
            "~  Bridge        7 -> 6",
            "~  Harbour     13 -> 11",
            "+  Lighthouse        18",
            "~  Zoo          7 -> 14",
        ],
        [],
    )


def test_diff_without_key(here: Path, dd: Any) -> None:
    assert dd("diff", "journeys", "2..3", "--key", "")[1] == [
        "journeys (stop string, total int64)",
        "2..3  +1 -1",
        "",
        "   stop  total",
        "-  Zoo       7",
        "+  Zoo      14",
    ]


def test_diff_json(here: Path, dd: Any) -> None:
    schema = {"stop": "string", "total": "int64"}
    assert records(dd("diff", "journeys", "-3..-2", "--json")[1]) == [
        {"schema_version": 1, "output": "journeys", "schema": schema},
        {"from": 2, "to": 3, "label": NO_ENDS, "instant": NO_ENDS, "plus": 1, "minus": 1},
        {"row": {"stop": "Zoo", "total": 7}, "diff": -1},
        {"row": {"stop": "Zoo", "total": 14}, "diff": 1},
    ]
    assert records(dd("diff", "journeys", "2", "3", "--json", "--key", "stop")[1])[2:] == [
        {"before": {"stop": "Zoo", "total": 7}, "after": {"stop": "Zoo", "total": 14}, "count": 1}
    ]


def test_diff_from_nothing_and_backwards(here: Path, dd: Any) -> None:
    assert dd("diff", "journeys", "..1")[1][1] == "..1  +6 -0"
    assert dd("diff", "journeys", "0", "1")[1][1] == "0..1  +6 -0"
    assert dd("diff", "journeys", "5..4")[1] == [
        "journeys (stop string, total int64)",
        "5..4  +0 -2",
        "",
        "   stop        total",
        "-  Harbour        11",
        "-  Lighthouse     18",
    ]


def test_diff_stat(here: Path, dd: Any) -> None:
    assert dd("diff", "journeys", "1..", "--stat")[1] == [
        "journeys (stop string, total int64)",
        "1..5  +4 -3",
        "",
        "version  inserted  deleted",
        "      2        +3       -2",
        "      3        +1       -1",
        "      4        +0       -2",
        "      5        +2       -0",
    ]
    steps = records(dd("diff", "journeys", "3..1", "--stat", "--json")[1])[2:]
    none = {"label": None, "instant": None}
    assert steps == [{"version": 3, **none, "plus": 1, "minus": 1}, {"version": 2, **none, "plus": 2, "minus": 3}]


def test_diff_limit(here: Path, dd: Any) -> None:
    code, out, err = dd("diff", "journeys", "1..5", "--limit", "1")
    assert (code, len(out)) == (0, 5)
    assert err == ["... and 3 more; all of them with --limit 0"]
    assert len(records(dd("diff", "journeys", "1..5", "--limit", "1", "--json")[1])) == 3


def test_diff_exit_code(here: Path, dd: Any) -> None:
    assert dd("diff", "journeys", "1..5", "--exit-code")[0] == 3
    code, out, _ = dd("diff", "journeys", "5..5", "--exit-code")
    assert (code, out[1:]) == (0, ["5..5  +0 -0"])


@pytest.mark.parametrize(
    ("arguments", "says", "hint"),
    [
        (["journey", "1..2"], "no output 'journey'; there are: journeys", "did you mean 'journeys'?"),
        (["journeys", "1..9"], "B: version 9 is not yet complete: the last folded version is 5", "ddcore status"),
        (["journeys", "0..0"], "version 0 is before the first one, 1", "1..5"),
        (["journeys", "1"], "diff needs two versions", "A B or A..B"),
        (["journeys", "1", "x"], "'x' is not a version", "a number, a label"),
        (["journeys", "1..2", "--key", "stp"], "--key: journeys has no column 'stp'", "did you mean 'stop'?"),
        (["journeys", "1..2", "--limit", "-5"], "'-5' is not a whole number from 0 up", "ddcore diff --help"),
    ],
)
def test_diff_refuses(here: Path, dd: Any, arguments: list[str], says: str, hint: str) -> None:
    code, out, err = dd("diff", *arguments)
    assert (code, out, len(err)) == (2, [], 2)
    assert says in err[0]
    assert hint in err[1]


def test_a_wrong_key_in_the_project(copied: Path, dd: Any) -> None:
    (copied / "dd.toml").write_text((copied / "dd.toml").read_text().replace('key = ["stop"]', 'key = ["stp"]'))
    assert dd("diff", "journeys", "1..2")[2] == [
        "error: dd.toml: [outputs.journeys] key: journeys has no column 'stp'; it has: stop, total",
        "  did you mean 'stop'?",
    ]


# --- show, log, status ------------------------------------------------------------------------------------------------


def test_show(here: Path, dd: Any) -> None:
    assert dd("show", "journeys", "--at", "-1") == (
        0,
        [
            "journeys (stop string, total int64)",
            "at 4  5 rows",
            "",
            "stop     total",
            "Bridge       6",
            "Central      0",
            "Market       3",
            "Park         5",
            "Zoo         14",
        ],
        [],
    )


def test_show_json_and_limit(here: Path, dd: Any) -> None:
    _, out, err = dd("show", "journeys", "--json", "--limit", "1")
    assert records(out) == [
        {"schema_version": 1, "output": "journeys", "schema": {"stop": "string", "total": "int64"}},
        {"at": 5, "label": None, "instant": date_of(here / "data/links.csv"), "rows": 7},
        {"row": {"stop": "Bridge", "total": 6}, "count": 1},
    ]
    assert err == []
    assert dd("show", "journeys", "--limit", "2")[2] == ["... and 5 more; all of them with --limit 0"]


def test_show_counts_what_is_there_more_than_once(copied: Path, dd: Any) -> None:
    (copied / "program.py").write_text(
        "def program(links, starts):\n    return {'journeys': links.select(stop='src').concat(starts)}\n"
    )
    assert dd("run", "--full-refresh", "-q") == (0, [], [])
    out = dd("show", "journeys", "--at", "1")[1]
    assert out[3:5] == ["stop     count", "Bridge       1"]
    assert "Central      3" in out


def test_an_output_may_have_a_column_called_count(copied: Path, dd: Any) -> None:
    (copied / "program.py").write_text(
        "import ddcore as dd\n"
        "def program(links, starts):\n"
        "    counts = links.group_by('src').agg(count=dd.count()).where(dd.col('src') == 'Park')\n"
        "    return {'journeys': counts.concat(counts)}\n"
    )
    (copied / "dd.toml").write_text((copied / "dd.toml").read_text().replace('key = ["stop"]', 'key = ["src"]'))
    assert dd("run", "--full-refresh", "-q") == (0, [], [])
    assert dd("show", "journeys")[1][3:] == ["src   count  times", "Park      2      2"]
    assert records(dd("show", "journeys", "--json")[1])[2:] == [{"row": {"src": "Park", "count": 2}, "count": 2}]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["journeys", "--at", "6"], "--at: version 6 is not yet complete: the last folded version is 5"),
        (["journeys", "--at", "0"], "journeys: version 0 is before the first one, 1"),
        (["links"], "no output 'links'; there are: journeys"),
    ],
)
def test_show_refuses(here: Path, dd: Any, arguments: list[str], says: str) -> None:
    code, out, err = dd("show", *arguments)
    assert (code, out) == (2, [])
    assert says in err[0]


def test_nothing_folded(fresh: Path, dd: Any) -> None:
    dd("ingest", "links", "data/links.csv", "-q")
    code, _, err = dd("show", "journeys")
    assert code == 2
    assert "nothing is folded yet" in err[0]
    assert "ddcore run" in err[1]
    assert "ddcore run" in dd("diff", "journeys", "1..2")[2][1]
    assert dd("log", "--versions") == (0, [], ["nothing is folded yet; fold the waiting versions with: ddcore run"])
    for since in ("-1", "latest", "3"):
        code, _, err = dd("compact", "--since", since)
        assert (code, err[0].startswith("error: nothing is folded yet")) == (2, True)


def test_log(here: Path, dd: Any) -> None:
    code, out, err = dd("log")
    assert (code, err, len(out)) == (0, [], 4)
    assert re.match(
        r"run 1 +\d{4}-\d\d-\d\d \d\d:\d\dZ +1\.\.5 +\+11 -2 +\+12 -5 +program \w{8}, \d+\.\ds, \d+ rounds, inline x1",
        out[1],
    )
    assert out[3].startswith("ingest 1")
    assert "links from" in out[3]
    assert [record["kind"] for record in records(dd("log", "--json")[1])] == ["run", "ingest", "ingest"]
    assert dd("log", "--limit", "1")[2] == ["... and more; all of them with --limit 0"]


def test_log_versions(here: Path, dd: Any) -> None:
    _, out, _ = dd("log", "--versions")
    assert [line.split()[0] for line in out] == ["version", "5", "4", "3", "2", "1"]
    lines = records(dd("log", "--versions", "--json")[1])
    assert lines[-1]["outputs"] == {"journeys": {"plus": 6, "minus": 0}}


def test_status(copied: Path, dd: Any) -> None:
    (copied / "more.csv").write_text("version,diff,src,dst,minutes\n6,1,Zoo,Airport,20\n8,1,Zoo,Farm,20\n")
    dd("ingest", "links", "more.csv", "-q")
    code, out, err = dd("status")
    assert (code, err) == (0, [])
    assert out[0].split() == ["project", str(copied)]
    assert out[2].startswith("folded     through version 5  (run 1, ")
    assert out[3] == "waiting    2 versions, 6..8  (ddcore run)"
    (links,) = [line for line in out if line.startswith("input") and "links" in line]
    assert links.split()[2:6] == ["8", "2", "14", "2"]
    assert links.endswith("src, dst, minutes")
    (record,) = records(dd("status", "--json")[1])
    assert (record["schema_version"], record["waiting"], record["holder"]) == (1, [6, 8], None)
    assert {table["kind"] for table in record["tables"]} == {"input", "output", "state"}


def test_status_names_tables_of_state_by_operator_and_line(copied: Path, dd: Any) -> None:
    lines = (copied / "program.py").read_text().splitlines()
    line_of = {word: next(at for at, line in enumerate(lines, 1) if word in line) for word in ("join(", "agg(")}
    out = dd("status", "--state")[1]
    uses = sorted(line.rpartition("  ")[2] for line in out if line.startswith("state"))
    assert uses == [
        f"agg program.py:{line_of['agg(']}: its result",
        f"agg program.py:{line_of['agg(']}: rows of select by stop",
        f"join program.py:{line_of['join(']}: input links by src",
        f"join program.py:{line_of['join(']}: rows of variable by stop",
    ]
    (record,) = records(dd("status", "--json")[1])
    states = [table for table in record["tables"] if table["kind"] == "state"]
    assert sorted(f"{state['operator']} {state['source_line']}: {state['holds']}" for state in states) == uses


def test_status_sums_state_up_in_one_line(copied: Path, dd: Any) -> None:
    (state,) = [line for line in dd("status")[1] if line.startswith("state")]
    found = re.fullmatch(r"state   (\d+) tables, (\d+) updates in (\d+) files, .+  \(ddcore status --state\)", state)
    (record,) = records(dd("status", "--json")[1])
    tables = [table for table in record["tables"] if table["kind"] == "state"]
    sums = (sum(table[name] for table in tables) for name in ("rows", "files"))
    assert found is not None and [*map(int, found.groups())] == [len(tables), *sums]


def test_status_of_a_program_that_cannot_be_planned_names_no_operators(copied: Path, dd: Any) -> None:
    (copied / "program.py").write_text("def program(links, starts):\n    return {}\n")
    code, out, err = dd("status", "--state")
    assert (code, err) == (0, [])
    assert "state of" not in "\n".join(out)
    assert len([line for line in out if line.startswith("state")]) == 4


def test_status_of_nothing_folded(fresh: Path, dd: Any) -> None:
    dd("ingest", "links", "data/links.csv", "-q")
    code, out, _ = dd("status")
    assert code == 0
    assert "folded     nothing yet" in out


def test_an_unfinished_run_is_told(copied: Path, dd: Any) -> None:
    warehouse = Warehouse(copied / "warehouse")
    with warehouse.lock("test"):
        ledger = Ledger.load(warehouse, Writer())
        run = ledger.current_run()
        assert run is not None
        ledger.append(IntentRecord(2, run.fingerprint, time_of(6), time_of(6), 1, "inline"))
    assert "unfinished  run 2, versions 6..6; the next run resumes it" in dd("status")[1]
    assert "not finished" in dd("log")[1][1]


def test_the_environment_is_told(here: Path, dd: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copytree("warehouse", tmp_path / "elsewhere")
    monkeypatch.setenv("DDCORE_WAREHOUSE", str(tmp_path / "elsewhere"))
    assert "(from DDCORE_WAREHOUSE)" in dd("status")[1][1]


@pytest.mark.parametrize("command", ["run", "log", "status"])
def test_other_dimensions_than_the_warehouse_has_are_refused(command: str, copied: Path, dd: Any) -> None:
    (copied / "dd.toml").write_text((copied / "dd.toml").read_text() + '\n[time]\ndims = ["day", "revision"]\n')
    code, out, err = dd(command)
    assert (code, out) == (2, [])
    assert "[time] dims = ['day', 'revision'], but the times in" in err[0] and "have one dimension" in err[0]
    assert "restore dims" in err[1]


def test_an_input_without_rows_is_named_until_it_has_some(fresh: Path, dd: Any) -> None:
    note = "note: input starts has no rows yet, and folded versions accept no new rows: ddcore ingest starts SOURCE"
    line = "no rows    starts  (ddcore ingest starts SOURCE)"
    assert dd("ingest", "links", "data/links.csv", "-q")[0] == 0
    assert line in dd("status")[1]
    assert note in dd("run", "--dry-run")[2]
    assert dd("run", "--to-version", "4", "-q") == (0, [], [])
    assert dd("run")[2][-1] == dd("run")[2][-1] == note
    assert records(dd("run", "--json")[1])[-1]["without_rows"] == ["starts"]
    assert dd("ingest", "starts", "data/starts.csv", "--late", "restate", "-q")[0] == 0
    code, out, err = dd("run", "--json")
    assert (code, records(out)[-1]["without_rows"]) == (0, []) and note not in err
    assert line not in dd("status")[1]


def test_versions_that_never_were(here: Path, dd: Any) -> None:
    assert dd("run", "--from-version", "99")[2] == [
        "error: --from-version 99: version 5 is folded, and no later one was ingested",
        "  name a version to fold again from, or ingest this one first",
    ]
    assert dd("compact", "--since", "99")[2] == [
        "error: --since version 99 is not yet complete: since is version 0, upper is version 6",
        "  name a folded version: ddcore log --versions",
    ]
