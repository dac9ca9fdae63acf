"""Bad input from the command line: what is said, with which exit code, and that nothing is lost or half visible.

One test for each thing that can be wrong, by name. Every refusal goes through :func:`refused`: two lines on stderr
(what happened, where and with which value; what to do next), nothing on stdout, and a warehouse that reads as before.
The details of each rule are tested where the rule lives: test_sources.py, test_ingest.py, test_cli_project.py.
"""

from __future__ import annotations

import gzip
import os
import re
import resource
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from trams import Command, records
from warehouses import last_closed

from ddcore.io.ledger.ledger import Ledger
from ddcore.io.storage.warehouse import Warehouse

Refused = Callable[..., tuple[str, str]]
PROCESS = [str(Path(sys.executable).with_name("ddcore"))]


@pytest.fixture
def refused(dd: Command) -> Refused:
    """Calls a command that must fail with ``code``; gives its error and its hint, and sees that nothing changed."""

    def call(code: int, *arguments: str) -> tuple[str, str]:
        before = visible()
        got, out, err = dd(*arguments)
        assert (got, out, len(err)) == (code, [], 2), err
        assert visible() == before
        assert err[0].startswith("error: ") and err[1].startswith("  ") and err[1].strip()
        return err[0].removeprefix("error: "), err[1].strip()

    return call


def visible(warehouse: Path = Path("warehouse")) -> Any:
    """What readers see: every table as the ledger names it, and inputs and outputs also as any Delta reader does."""
    if not warehouse.is_dir():
        return None
    ledger = Ledger.load(Warehouse(warehouse))
    run = ledger.current_run()
    tables = dict(run.tables) if run else {}
    seen = {}
    for folder in [*warehouse.glob("inputs/*"), *warehouse.glob("outputs/*")]:
        if (folder / "_delta_log").exists():
            table = DeltaTable(str(folder)).to_pyarrow_table()
            seen[folder.name] = sorted(map(repr, table.to_pylist()))
    return [(ingest.number, ingest.table.version) for ingest in ledger.ingests()], tables, seen, last_closed(ledger)


def journeys(dd: Command, *arguments: str) -> list[str]:
    return dd("show", "journeys", *arguments)[1]


HEAD = "version,diff,src,dst,minutes\n"


def csv(text: str, head: str = HEAD) -> str:
    Path("wrong.csv").write_text(head + text)
    return "wrong.csv"


# --- columns ----------------------------------------------------------------------------------------------------------


def test_missing_column(copied: Path, refused: Refused) -> None:
    error, hint = refused(1, "ingest", "links", csv("6,1,a,b\n", "version,diff,src,dst\n"))
    assert error == "wrong.csv: the column 'minutes' is missing; there are: version, diff, src, dst"
    assert "--column minutes=" in hint


def test_misspelt_column(copied: Path, refused: Refused) -> None:
    error, hint = refused(1, "ingest", "links", csv("6,1,a,b,2\n", "version,diff,src,dst,minuts\n"))
    assert "wrong.csv: the column 'minutes' is missing" in error
    assert hint == "did you mean 'minuts'? then say: --column minutes=minuts"


def test_missing_diff_column(copied: Path, refused: Refused) -> None:
    error, hint = refused(1, "ingest", "links", csv("6,a,b,2\n", "version,src,dst,minutes\n"))
    assert "wrong.csv: the column 'diff' is missing" in error and "--diff 1" in hint


def test_wrong_type(copied: Path, refused: Refused) -> None:
    error, _ = refused(1, "ingest", "links", csv("6,1,a,b,2\n6,1,a,b,long\n"))
    assert error == "wrong.csv: column 'minutes': 'long' is not a whole number (row 3)"
    wrong = {"version": [6], "diff": [1], "src": ["a"], "dst": ["b"], "minutes": [date(2026, 1, 31)]}
    pl.DataFrame(wrong).write_parquet("wrong.parquet")
    error, hint = refused(1, "ingest", "links", "wrong.parquet")
    assert error == "wrong.parquet: the column 'minutes' is Date, but the input declares int64"
    assert "cast it at the source" in hint


# --- versions and diffs -----------------------------------------------------------------------------------------------


def test_non_integer_diff(copied: Path, refused: Refused) -> None:
    error, _ = refused(1, "ingest", "links", csv("6,1.5,a,b,2\n"))
    assert error == "wrong.csv: column 'diff': '1.5' is not a whole number (row 2)"
    wrong = {"version": [6], "diff": [0.5], "src": ["a"], "dst": ["b"], "minutes": [2]}
    pl.DataFrame(wrong).write_parquet("wrong.parquet")
    assert refused(1, "ingest", "links", "wrong.parquet")[0].endswith(
        "column 'diff': 0.5 is not a whole number (row 1)"
    )


def test_overflowing_diff(copied: Path, refused: Refused) -> None:
    error, _ = refused(1, "ingest", "links", csv("6,9223372036854775808,a,b,2\n"))
    assert error == "wrong.csv: column 'diff': '9223372036854775808' does not fit into int64 (row 2)"


def test_diffs_that_overflow_together(copied: Path, refused: Refused) -> None:
    error, _ = refused(1, "ingest", "links", csv("6,9223372036854775807,a,b,2\n6,1,a,b,2\n"))
    assert "int64" in error and "a" in error


def test_a_count_that_overflows_in_the_fold(copied: Path, dd: Command, refused: Refused) -> None:
    """Each diff fits; their sum over two versions, and the count of a join's rows, do not."""
    Path("program.py").write_text(
        "def program(links, starts):\n"
        "    return {'journeys': links.join(links, on='src').select(stop='src', total=1)}\n"
    )
    assert dd("run", "--full-refresh", "-q")[0] == 0
    assert dd("ingest", "links", csv("6,5000000000,Zoo,Farm,2\n"), "-q")[0] == 0
    error, hint = refused(1, "run")
    assert "int64" in error and hint
    assert "5000000000" not in "".join(journeys(dd))


def test_negative_version(copied: Path, refused: Refused) -> None:
    error, hint = refused(1, "ingest", "links", csv("-6,1,a,b,2\n"))
    assert (error, hint) == ("wrong.csv: column 'version': '-6' is negative (row 2)", "times start at 0")


def test_version_already_folded(copied: Path, refused: Refused) -> None:
    error, hint = refused(1, "ingest", "links", csv("6,1,Zoo,Farm,2\n2,1,Zoo,Airport,20\n"))
    assert error == (
        "1 of 2 rows are late: version 5 is closed; "
        "the first is src='Zoo', dst='Airport', minutes=20 at version 2 in wrong.csv"
    )
    assert "--late move" in hint


# --- sources ----------------------------------------------------------------------------------------------------------


def parquet(rows: int = 1000) -> Path:
    frame = pl.DataFrame({"src": [f"stop {i * i}" for i in range(rows)]})
    frame = frame.with_columns(version=6, diff=1, dst=pl.lit("Zoo"), minutes=pl.int_range(rows))
    frame.write_parquet("wrong.parquet", row_group_size=100)
    return Path("wrong.parquet")


def test_unreadable_parquet(copied: Path, refused: Refused) -> None:
    Path("wrong.parquet").write_text("this is no Parquet file")
    assert refused(1, "ingest", "links", "wrong.parquet")[0].startswith("wrong.parquet: not a readable Parquet file: ")
    file = parquet()
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 3 : len(damaged) // 3 + 400] = bytes(400)
    file.write_bytes(damaged)
    assert refused(1, "ingest", "links", "wrong.parquet")[0].startswith("wrong.parquet: ")


@pytest.mark.parametrize("kept", [0, 3, 0.5, 0.99])
def test_truncated_parquet(copied: Path, refused: Refused, kept: float) -> None:
    file = parquet()
    whole = file.read_bytes()
    file.write_bytes(whole[: int(kept * len(whole)) if kept < 1 else int(kept)])
    assert refused(1, "ingest", "links", "wrong.parquet")[0].startswith("wrong.parquet: ")
    # and nothing of a good source that was named with it
    assert refused(1, "ingest", "links", csv("6,1,a,b,2\n"), "wrong.parquet")[0].startswith("wrong.parquet: ")


def test_empty_source(copied: Path, refused: Refused) -> None:
    assert "wrong.csv: no rows" in refused(1, "ingest", "links", csv(""))[0]
    assert "wrong.csv: an empty file" in refused(1, "ingest", "links", csv("", ""))[0]
    frame = pl.read_parquet(parquet()).clear()
    frame.write_parquet("wrong.parquet")
    assert "wrong.parquet: no rows" in refused(1, "ingest", "links", "wrong.parquet")[0]
    Path("nothing").mkdir()
    assert "no data file" in refused(1, "ingest", "links", "nothing")[0]


def test_no_version_column_and_no_rule(copied: Path, dd: Command, refused: Refused) -> None:
    error, hint = refused(1, "ingest", "links", csv("1,a,b,2\n", "diff,src,dst,minutes\n"))
    assert error == "wrong.csv: the column 'version' is missing; there are: diff, src, dst, minutes"
    assert "--version N" in hint and "--column version=COLUMN" in hint
    assert "--snapshot" not in hint, "rows with diffs are no snapshot"
    assert dd("ingest", "links", "wrong.csv", "--version", "6", "-q")[0] == 0


def test_a_source_of_another_form_is_told_the_option(copied: Path, refused: Refused) -> None:
    _, hint = refused(1, "ingest", "links", csv("a,b,2\n", "src,dst,minutes\n"))
    assert all(option in hint for option in ("--snapshot", "--append", "--version N"))
    _, hint = refused(1, "ingest", "links", csv("6;1;a;b;2\n", "version;diff;src;dst;minutes\n"))
    assert hint == "the header has no comma but ';': write the values with commas between them"
    Path("events.jsonl").write_text('{"op": "c", "before": null, "after": {"src": "a", "dst": "b", "minutes": 2}}\n')
    _, hint = refused(1, "ingest", "links", "events.jsonl")
    assert hint == "these are columns of Debezium's events; if the source holds such events, say: --debezium"
    error, hint = refused(1, "ingest", "links", csv("2026-11-16,1,a,b,2\n"))
    assert error == "wrong.csv: column 'version': '2026-11-16' is not a whole number (row 2)"
    assert hint == "versions are whole numbers; a date can be the name of one: --version N --label DATE"


def test_an_unknown_input_is_told_the_schema_that_the_source_looks_like(copied: Path, refused: Refused) -> None:
    Path("stops.csv").write_text('version,diff,stop,"zone no",opened,fee\n1,1,Zoo,3,2020-05-01,1.5\n1,1,Park,,,2\n')
    error, hint = refused(2, "ingest", "zones", "stops.csv")
    assert error == "no input 'zones' in dd.toml; there are: links, starts"
    line = 'schema = { stop = "string", "zone no" = "int64", opened = "date", fee = "float64" }'
    assert hint == f"add a section [inputs.zones] with its schema, which may be: {line}"
    assert tomllib.loads(line)["schema"]["zone no"] == "int64"
    pl.DataFrame({"stop": ["Zoo"], "tags": [["a"]], "n": [1]}, schema_overrides={"n": pl.Int32}).write_parquet(
        "s.parquet"
    )
    assert (
        'schema = { stop = "string", tags = "list[string]", n = "int64" }' in refused(2, "ingest", "x", "s.parquet")[1]
    )
    for source in ("cut.jsonl", "nowhere.csv", "s3://bucket/rows.csv"):
        Path("cut.jsonl").write_text('{"op": "c"\n')
        assert refused(2, "ingest", "x", source)[1] == "add an [inputs.x] section with its schema", source
    assert refused(2, "ingest", "linsk", "stops.csv")[1].startswith(
        "did you mean 'links'? or add a section [inputs.linsk]"
    )
    assert refused(2, "ingest", "linsk", "nowhere.csv")[1] == "did you mean 'links'?"


def test_missing_source(copied: Path, refused: Refused) -> None:
    error, _ = refused(2, "ingest", "links", "data/lnks.csv")
    assert "data/lnks.csv: there is no such file or folder" in error


# --- names ------------------------------------------------------------------------------------------------------------


def test_unknown_input(copied: Path, refused: Refused) -> None:
    error, hint = refused(2, "ingest", "linsk", "data/links.csv")
    assert error == "no input 'linsk' in dd.toml; there are: links, starts"
    assert "did you mean 'links'?" in hint


def test_an_input_that_only_the_program_knows(copied: Path, refused: Refused) -> None:
    Path("program.py").write_text("def program(links, stops):\n    return {'journeys': links}\n")
    error, hint = refused(1, "run")
    assert "it has the parameters stops, which [inputs] of dd.toml lacks" in error and hint


@pytest.mark.parametrize("command", [["show", "journey"], ["diff", "journey", "1..2"]])
def test_unknown_output(copied: Path, refused: Refused, command: list[str]) -> None:
    error, hint = refused(2, *command)
    assert (error, hint) == ("no output 'journey'; there are: journeys", "did you mean 'journeys'?")


def test_an_output_that_only_the_project_knows(copied: Path, refused: Refused) -> None:
    toml = Path("dd.toml")
    toml.write_text(toml.read_text().replace("[outputs.journeys]", "[outputs.jurneys]"))
    error, _ = refused(2, "run")
    assert error == "dd.toml has [outputs.jurneys] but the program returns journeys"


@pytest.mark.parametrize("command", [["show", "journeys", "--at", "6"], ["diff", "journeys", "1..6"]])
def test_unknown_version(copied: Path, refused: Refused, command: list[str]) -> None:
    error, hint = refused(2, *command)
    assert "version 6 is not yet complete: the last folded version is 5" in error and "ddcore status" in hint


# --- the program ------------------------------------------------------------------------------------------------------


def test_program_that_does_not_import(copied: Path, refused: Refused) -> None:
    Path("program.py").write_text("import no_such_module\n")
    error, _ = refused(1, "run")
    assert error.startswith("program.py:1: the program does not import: ModuleNotFoundError")
    Path("program.py").write_text("def program(links, starts:\n")
    assert refused(1, "run")[0].startswith("program.py:1: ")
    Path("program.py").unlink()
    error, hint = refused(2, "run")
    assert error == "dd.toml: [project] program: there is no file program.py" and "FILE.py:FUNCTION" in hint


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return 3", "the program returned int, not a dict of collections"),
        ("pass", "the program returned None, not a dict of collections"),
        ("return links", "the program returned Collection, not a dict of collections"),
        ("return {}", "the program returned an empty dict: it has no outputs"),
        ("return {'journeys': 3}", "the program's output 'journeys' is int, not a Collection"),
        ("return {'journeys': links.select('scr')}", "program.py:2: "),
        ("return 1 / 0", "program.py:2: the program fails: ZeroDivisionError"),
    ],
)
def test_program_that_returns_no_collection(copied: Path, refused: Refused, body: str, says: str) -> None:
    Path("program.py").write_text(f"def program(links, starts):\n    {body}\n")
    assert says in refused(1, "run")[0]


IN_A_FUNCTION = [
    ("assert not len(frame)", "AssertionError"),
    ("raise KeyError('k')", "KeyError: 'k'"),
    ("raise BaseException", "BaseException"),
    ("import sys; sys.exit(0)", "SystemExit: 0"),
    ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ("raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})", "Mute"),
]


@pytest.mark.parametrize(("body", "says"), IN_A_FUNCTION)
def test_program_that_leaves(copied: Path, dd: Command, refused: Refused, body: str, says: str) -> None:
    """Where the program is imported, where it is built, and in a function: an error with the line, never a success."""
    program = "def program(links, starts):\n"
    Path("program.py").write_text(f"frame = [1]\n{body}\n{program}    return {{'journeys': starts}}\n")
    assert refused(1, "run")[0] == f"program.py:2: the program does not import: {says}"
    Path("program.py").write_text(f"{program}    frame = [1]\n    {body}\n")
    assert refused(1, "run")[0] == f"program.py:3: the program fails: {says}"
    function = f"def split(frame):\n    {body}\n"
    call = "    return {'journeys': starts.flat_map(split, schema={'stop': 'string'})}\n"
    Path("program.py").write_text(function + program + call)
    error, _ = refused(1, "run", "--full-refresh")
    assert error == f"program.py:4: the function split failed at program.py:2: {says}"


def test_function_that_is_not_deterministic(copied: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    function = (
        "import time\nimport polars as pl\n"
        "def stamp(frame):\n    return frame.select('row', stop=pl.lit(time.perf_counter_ns()))\n"
    )
    call = "    return {'journeys': starts.flat_map(stamp, schema={'stop': 'int64'})}\n"
    Path("program.py").write_text(f"{function}def program(links, starts):\n{call}")
    monkeypatch.setenv("DDCORE_CHECK_FUNCTIONS", "1")
    error, hint = refused(1, "run", "--full-refresh")
    assert error.startswith(
        "program.py:6: flat_map: the function stamp gives different results for equal input: for the row"
    )
    assert "no clock" in hint


@pytest.mark.parametrize(
    ("aggregate", "says"),
    [
        ("dd.count()", "program.py:3: agg: the aggregate count has no name"),
        ("n=dd.mean('stop')", "program.py:3: agg(n=...): there is no mean of string"),
        ("n=dd.count(where='stp')", "program.py:3: agg(n=...), where=: there is no column stp"),
    ],
)
def test_wrong_aggregate(copied: Path, refused: Refused, aggregate: str, says: str) -> None:
    program = "import ddcore as dd\ndef program(links, starts):\n"
    Path("program.py").write_text(f"{program}    return {{'journeys': starts.group_by().agg({aggregate})}}\n")
    assert says in refused(1, "run")[0]


@pytest.mark.parametrize("name", ["a/b", "", ".x", "a\nb", "\x1b[1m", "n" * 300])
def test_output_that_no_folder_can_be_called(copied: Path, refused: Refused, name: str) -> None:
    Path("program.py").write_text(f"def program(links, starts):\n    return {{{name!r}: starts}}\n")
    for arguments in (["run"], ["run", "--full-refresh"]):
        error, _ = refused(1, *arguments)
        assert error.startswith("an output's name is also its folder's name: ") and error.isprintable()


@pytest.mark.parametrize(("columns", "says"), [("**{'a b': 'stop'}", "'a b'"), ("a='stop', A='stop'", "a and A")])
def test_output_with_a_column_that_no_table_has(copied: Path, refused: Refused, columns: str, says: str) -> None:
    Path("program.py").write_text(f"def program(links, starts):\n    return {{'journeys': starts.select({columns})}}\n")
    error, _ = refused(1, "run", "--full-refresh")
    assert error.startswith("output journeys: Delta tables") and says in error


def test_function_that_holds_an_open_file(copied: Path, refused: Refused) -> None:
    Path("program.py").write_text(
        "log = open('log', 'w')\n"
        "def split(frame):\n    print(frame, file=log)\n    return frame\n"
        "def program(links, starts):\n"
        "    return {'journeys': starts.flat_map(split, schema={'stop': 'string'})}\n"
    )
    error, hint = refused(1, "run")
    assert error.startswith("program.py:6: the function split: log is of type TextIOWrapper") and hint


def test_changed_program(copied: Path, dd: Command, refused: Refused) -> None:
    text = Path("program.py").read_text()
    Path("program.py").write_text(text.replace('col("minutes")', 'col("minutes") * 2'))
    code, _, err = dd("run")
    assert (code, err[0]) == (0, "the program has changed: kept 1 of 4 arrangements, built 3")
    assert "Zoo            14" in journeys(dd), "as it was published"
    assert dd("run", "--corrections", "rewrite", "-q") == (0, [], [])
    assert "Zoo            28" in journeys(dd)


def test_changed_schema_of_an_input(copied: Path, refused: Refused) -> None:
    text = Path("dd.toml").read_text()
    Path("dd.toml").write_text(text.replace('minutes = "int64"', 'minutes = "float64"'))
    Path("program.py").write_text("def program(links, starts):\n    return {'journeys': starts}\n")
    for command in (("run",), ("run", "--full-refresh")):
        error, hint = refused(1, *command)
        assert error.startswith("inputs/links has the columns (src string, ")
        assert "minutes float64" in error
        assert "restore the schema in dd.toml" in hint


# --- rows that never were, and loops that never end -------------------------------------------------------------------


def test_retraction_of_a_row_that_never_was(copied: Path, dd: Command, refused: Refused) -> None:
    error, hint = refused(1, "ingest", "links", csv("6,1,Zoo,Farm,2\n6,-1,Zoo,Airport,20\n"))
    assert error == (
        "wrong.csv: retracts src='Zoo', dst='Airport', minutes=20 at version 6, and the row does not exist: "
        "its count would be -1"
    )
    assert "nothing was ingested" in hint
    # twice as often as it is there, and before it is there
    assert "its count would be -1" in refused(1, "ingest", "links", csv("6,-2,Central,Market,3\n"))[0]
    assert "at version 6" in refused(1, "ingest", "links", csv("6,-1,Zoo,Farm,2\n7,1,Zoo,Farm,2\n"))[0]
    # it never becomes an insertion, nor a row that waits for one
    assert dd("ingest", "links", csv("7,1,Zoo,Airport,20\n"), "-q")[0] == 0
    assert dd("run", "-q")[0] == 0
    assert "Airport        34" in journeys(dd)


LOOP = """
import ddcore as dd
from ddcore import col

def program(links, starts):
    begin = starts.select("stop", total=0)

    def ride(journeys):
        onward = journeys.join(links, on={"stop": "src"})
        return onward.select(stop="dst", total=col("total") + col("minutes")).concat(begin).distinct()

    return {"journeys": begin.iterate(ride, max_rounds=40)}
"""


def test_a_loop_that_diverges(fresh: Path, dd: Command, refused: Refused) -> None:
    """Named with version, round and what still moves; its versions stay open, so that the data can be put right."""
    Path("program.py").write_text(LOOP)
    for name in ("links", "starts"):
        assert dd("ingest", name, f"data/{name}.csv", "-q")[0] == 0
    assert dd("run", "--to-version", "4", "-q")[0] == 0
    assert dd("run", "-q")[0] == 0
    assert dd("ingest", "links", csv("6,1,Zoo,Farm,2\n7,1,Harbour,Market,6\n"), "-q")[0] == 0
    before = journeys(dd)
    files = {path for path in fresh.glob("warehouse/[os]*/**/*.parquet")}
    for _ in range(2):
        error, hint = refused(1, "run")
        assert re.fullmatch(
            r"loop ride \(program.py:12\) did not reach a fixed point: "
            r"at version 7, round 40, \d+ differences still move",
            error,
        )
        assert "max_rounds" in hint
    assert {path for path in fresh.glob("warehouse/[os]*/**/*.parquet")} == files
    assert journeys(dd) == before and "at 5  9 rows" in before
    assert journeys(dd, "--at", "4")[1].startswith("at 4  ")
    failed = [record for record in records(dd("log", "--json")[1]) if record["kind"] == "failed"]
    assert [(item["first"], item["last"], item["error"]) for item in failed] == [(6, 7, error)] * 2
    assert error in dd("log")[1][1]
    assert records(dd("status", "--json")[1])[0]["unfinished"] is None
    # the versions before it, and then the one that was put right
    assert dd("run", "--to-version", "6", "-q")[0] == 0
    assert dd("ingest", "links", csv("7,-1,Harbour,Market,6\n"), "-q") == (0, [], [])
    assert dd("run", "-q")[0] == 0
    assert "Farm           16" in journeys(dd)


def test_a_loop_that_gets_more_rounds(copied: Path, dd: Command, refused: Refused) -> None:
    """The hint of the error leads on: with another limit the program is the same, and goes on from its state."""
    Path("program.py").write_text(LOOP.replace("max_rounds=40", "max_rounds=9"))
    assert dd("run", "--full-refresh", "-q")[0] == 0
    chain = ["Zoo", *(f"stop {number}" for number in range(9))]
    assert dd("ingest", "links", csv("".join(f"6,1,{a},{b},1\n" for a, b in pairwise(chain))), "-q")[0] == 0
    error, hint = refused(1, "run")
    assert "round 9" in error and "raise max_rounds=" in hint
    Path("program.py").write_text(LOOP)
    assert dd("run", "-q") == (0, [], [])
    found = journeys(dd)
    assert found[1] == "at 6  18 rows"
    assert dd("run", "--full-refresh", "-q")[0] == 0
    assert journeys(dd) == found


def test_a_failed_full_refresh_leaves_what_was_there(copied: Path, dd: Command, refused: Refused) -> None:
    before, text = journeys(dd), Path("program.py").read_text()
    Path("program.py").write_text(LOOP.replace("max_rounds=40", "max_rounds=2"))
    assert "did not reach a fixed point" in refused(1, "run", "--full-refresh")[0]
    assert journeys(dd) == before
    Path("program.py").write_text(text)
    assert dd("run")[2] == ["nothing new: version 5 is folded"]
    assert dd("ingest", "links", csv("6,1,Zoo,Farm,2\n"), "-q")[0] == 0
    assert dd("run", "-q")[0] == 0
    assert "Farm           16" in journeys(dd)


def test_a_row_that_makes_an_expression_fail(copied: Path, dd: Command, refused: Refused) -> None:
    assert dd("ingest", "links", csv("6,1,Zoo,Farm,9223372036854775807\n"), "-q")[0] == 0
    error, _ = refused(1, "run")
    assert "total" in error
    assert dd("ingest", "links", csv("6,-1,Zoo,Farm,9223372036854775807\n6,1,Zoo,Farm,2\n"), "-q")[0] == 0
    assert dd("run", "-q")[0] == 0
    assert "Farm           16" in journeys(dd)


# --- the warehouse ----------------------------------------------------------------------------------------------------


def test_warehouse_not_writable(fresh: Path, refused: Refused) -> None:
    # Not even root may make a folder here.
    ingest = ["ingest", "links", "data/links.csv"]
    error, hint = refused(1, *ingest, "--warehouse", "/proc/no_warehouse", "--new-warehouse")
    assert "--warehouse DIR" in hint
    assert error == "cannot create the warehouse /proc/no_warehouse: No such file or directory"
    (fresh / "warehouse").write_text("")
    assert refused(2, *ingest)[0] == f"the warehouse {fresh / 'warehouse'} is not a folder"


def test_a_second_run_at_the_same_time(copied: Path, dd: Command, refused: Refused) -> None:
    with Warehouse("warehouse").lock("ddcore run", run=2):
        for arguments in (["run"], ["run", "--full-refresh"], ["ingest", "starts", "data/starts.csv"]):
            error, hint = refused(75, *arguments)
            assert re.fullmatch(
                rf"warehouse {re.escape(str(copied))}/warehouse is in use by ddcore run "
                rf"\(host \S+, pid {os.getpid()}, since \S+, run 2\)",
                error,
            )
            assert "run the same command again" in hint
        code, out, _ = dd("status")
        assert code == 0
        assert any(line.startswith("in use by") and f"pid {os.getpid()}" in line for line in out)
        assert journeys(dd)[1] == "at 5  7 rows"


def many_links(path: Path, stops: int = 3000) -> None:
    """A sixth version that adds a line from the Zoo to every one of so many stops."""
    lines = [f"6,1,Zoo,stop {i * 7919 % stops} {'x' * (i % 50)},{i % 90}\n" for i in range(stops)]
    path.write_text(HEAD + "".join(lines))


def process(*arguments: str, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own; ``limit`` is the size at which files end, as on a full disk."""

    def narrow() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [*PROCESS, *arguments], preexec_fn=narrow, capture_output=True, text=True, check=False, timeout=600,
        env=dict(os.environ),  # as it is here: coverage changes that of a fork
    )  # fmt: skip


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.sample(1)
@pytest.mark.parametrize("limit", [200, 3_000, 20_000])
def test_full_disk_in_the_middle(copied: Path, dd: Command, limit: int) -> None:
    """No file beyond ``limit`` bytes: the disk is full in the ledger, in a commit, or in the middle of the data."""
    many_links(Path("many.csv"))
    assert dd("ingest", "links", "many.csv", "-q")[0] == 0
    before, undisturbed = visible()[:3], shutil.copytree(copied, copied.parent / "undisturbed")
    done = process("run", limit=limit)
    *_, error, hint = done.stderr.splitlines()  # before them, a thread of delta-rs may have its say
    assert (done.returncode, done.stdout) == (1, "")
    assert re.match(rf"error: cannot .* {re.escape(str(copied))}/warehouse/.*File too large", error)
    assert hint.strip()
    assert visible()[:3] == before
    assert journeys(dd)[1] == "at 5  7 rows"
    # there is room again: the next run finishes, and the logs are those of a run that nothing happened to
    assert dd("run", "-q") == (0, [], [])
    assert dd("run", "-q", "--project", str(undisturbed)) == (0, [], [])
    assert journeys(dd)[1] == "at 6  3,007 rows"
    assert visible()[2] == visible(undisturbed / "warehouse")[2]


@pytest.mark.usefixtures("unmeasured")
def test_full_disk_in_the_middle_of_an_ingest(copied: Path, dd: Command) -> None:
    many_links(Path("many.csv"))
    before = visible()
    done = process("ingest", "links", "many.csv", limit=5_000)
    error, hint = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert re.match(r"error: cannot write .*File too large", error) and hint.strip()
    assert visible() == before
    assert dd("ingest", "links", "many.csv", "-q")[0] == 0


@pytest.mark.parametrize("room", ["state", "outputs"])
def test_permission_error_in_the_middle(copied: Path, dd: Command, monkeypatch: pytest.MonkeyPatch, room: str) -> None:
    """Files may not be made in one room of the warehouse; root may do all, so the system call itself refuses."""
    from ddcore.io.parquet import datafile
    from ddcore.io.state import run_writer

    many_links(Path("many.csv"), 50)
    assert dd("ingest", "links", "many.csv", "-q")[0] == 0
    before = visible()[:3]

    def forbidden(real: Any) -> Any:
        def write(*arguments: Any, **options: Any) -> Any:
            path = next(argument for argument in arguments if isinstance(argument, Path))
            if room in path.parts:
                raise PermissionError(13, "Permission denied", str(path))
            return real(*arguments, **options)

        return write

    with monkeypatch.context() as patched:
        for module in (datafile, run_writer):
            patched.setattr(module, "write", forbidden(module.write))
        code, out, err = dd("run")
    assert (code, out, len(err)) == (1, [], 2)
    assert err[0].startswith("error: cannot ") and f"{copied}/warehouse/{room}" in err[0] and err[1].strip()
    assert visible()[:3] == before
    assert dd("run", "-q") == (0, [], [])
    assert journeys(dd)[1] == "at 6  57 rows"


@pytest.mark.parametrize(
    ("code", "name", "content", "says", "hint"),
    [
        (2, "a.xlsx", b"PK", "a.xlsx: files of this format are not read", "save the sheet as a CSV file"),
        (2, "a.zip", b"PK", "a.zip: files of this format are not read", "unpack it"),
        (2, "a.json", b"[{}]", "a.json: files of this format are not read", "jq -c '.[]' FILE.json > FILE.jsonl"),
        (2, "a.csvx", b"src", "a.csvx: cannot tell the format from the name", "name the file with one of .parquet"),
        (1, "a.jsonl", b'[\n{"src": "a"}]', "line 1 is not JSON: ", "jq -c '.[]' FILE.json > FILE.jsonl"),
        (1, "b.jsonl", b'[{"src": "a"}]', "line 1 is a list, not an object", "jq -c '.[]' FILE.json > FILE.jsonl"),
        (
            1,
            "c.jsonl",
            b'{"src": "a", "dst": "b", "minutes": 1, "version": 1, "diff": 1}\n{"src" "a"}',
            "c.jsonl: not a readable JSON lines file: line 2 is not JSON: Expecting ':' delimiter at character 8",
            "each line needs one JSON object",
        ),
        (
            1,
            "a.csv.gz",
            gzip.compress(bytes(range(256)) * 9, mtime=0)[:60],
            "a.csv.gz: not a readable CSV file: ",
            "cut off or damaged",
        ),
        (
            1,
            "a.jsonl.gz",
            gzip.compress(bytes(range(256)) * 9, mtime=0)[:60],
            "not a readable JSON lines",
            "cut off or damaged",
        ),
        (1, "d.csv", b" src,dst,minutes,version,diff\n", "the column 'src' is missing", "say: --column 'src= src'"),
    ],
)
def test_the_hint_on_a_file_is_one_that_helps(  # noqa: PLR0917
    code: int, name: str, content: bytes, says: str, hint: str, fresh: Path, refused: Refused
) -> None:
    Path(name).write_bytes(content)
    error, advice = refused(code, "ingest", "links", name)
    assert says in error and hint in advice
    assert "line 1 column" not in error


def test_an_unknown_input_gets_both_a_near_name_and_a_schema(fresh: Path, refused: Refused) -> None:
    assert refused(2, "ingest", "parts", "data/links.csv")[1] == (
        "did you mean 'starts'? or add a section [inputs.parts] with its schema, which may be: "
        'schema = { src = "string", dst = "string", minutes = "int64" }'
    )
