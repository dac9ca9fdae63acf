"""``explain`` on the tram project, on the demo's, and what it says to mistakes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pages
import pytest
from trams import records

from ddcore.io.logs.changelog import ChangeLog

TOP = Path(__file__).resolve().parent.parent


def inputs_of(lines: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (line["input"], *line["row"].values(), line.get("version"))
        for line in lines
        if "input" in line and "row" in line and "step" not in line
    ]


def test_a_row_through_a_loop(here: Path, dd: Any) -> None:
    code, out, err = dd("explain", "journeys", "stop=Lighthouse", "--at", "3")
    assert (code, err) == (0, [])
    assert out[:4] == [
        "journeys (stop string, total int64)",
        "at 3",
        "",
        'row {stop: "Lighthouse", total: 19} rests on 5 input rows:',
    ]
    assert [line.split("  ")[-2].strip() for line in out[4:9]] == [
        "version 1",
        "version 1",
        "version 2",
        "version 2",
        "version 1",
    ]
    assert out[10].split("  ")[1] == '{stop: "Lighthouse", total: 19}'
    assert {line.rpartition("  ")[2] for line in out[10:]} >= {
        "round 0",
        "round 1",
        "round 2",
        "round 3",
        "input links",
    }
    assert all(line.startswith("    ") for line in out[11:])


@pytest.fixture
def shop(tmp_path: Path, dd: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sum over 64 rows, of which 30 come in version 1."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(
        "import ddcore as dd\n\n\ndef program(sales):\n"
        "    return {'total': sales.group_by('shop').agg(total=dd.sum('amount'))}\n"
    )
    (tmp_path / "dd.toml").write_text(
        '[project]\nprogram = "program.py:program"\n[run]\nengine = "inline"\n'
        '[inputs.sales]\nschema = { shop = "string", amount = "int64" }\n'
    )
    rows = "".join(f"a,{amount},{int(amount > 34)},1\n" for amount in range(1, 65))
    (tmp_path / "sales.csv").write_text(f"shop,amount,version,diff\n{rows}")
    assert dd("ingest", "sales", "sales.csv", "-q")[0] == 0
    assert dd("run", "-q")[0] == 0
    return tmp_path


def test_many_input_rows_are_counted_and_some_are_shown(shop: Path, dd: Any) -> None:
    code, out, err = dd("explain", "total", "shop=a")
    assert (code, err) == (0, [])
    assert out[3] == 'row {shop: "a", total: 2080} rests on 64 input rows:'
    assert out[4].startswith('  sales  {shop: "a", amount: 1}') and out[23].startswith(
        '  sales  {shop: "a", amount: 20}'
    )
    assert out[24] == "  ... and 44 more of sales; all of them with --all"
    assert out[-1] == "  ... and 25 more steps; all of them with --all", "one of the group, and 64 of its rows"
    code, out, err = dd("explain", "total", "shop=a", "--all")
    assert len([line for line in out if line.startswith("  sales")]) == 64
    assert len([line for line in out if "input sales" in line]) == 64 and "more" not in "\n".join(out)
    code, out, err = dd("explain", "total", "0", "1", "shop=a")
    assert out[-1] == "  ... and 10 more of sales; all of them with --all"
    assert len(dd("explain", "total", "0", "1", "shop=a", "--all")[1]) == len(out) + 9
    assert len(inputs_of(records(dd("explain", "total", "shop=a", "--json")[1]))) == 64, "JSON is complete"


def test_json_has_every_step(here: Path, dd: Any) -> None:
    code, out, err = dd("explain", "journeys", "stop=Market", "--at", "3", "--json", "--check")
    assert (code, err) == (0, [])
    head, at, row, *lines, checks = records(out)
    assert (head["schema_version"], head["output"]) == (1, "journeys")
    assert (at["at"], at["rows"], at["label"]) == (3, 1, None)
    assert row == {"row": {"stop": "Market", "total": 3}, "count": 1, "rests_on": 2}
    assert inputs_of(lines) == [("links", "Central", "Market", 3, 1), ("starts", "Central", 1)]
    steps = {line["step"]: line for line in lines if "step" in line}
    assert steps[0]["row"] == row["row"]
    assert {number for step in steps.values() for number in step["made_of"]} == {*steps} - {0}
    assert {step["input"] for step in steps.values() if not step["made_of"]} == {"links", "starts"}
    assert all(step["source_line"].startswith("program.py:") for step in steps.values() if step["made_of"])
    assert checks == {"suffices": True, "minimal": True, "there_without": False}


def test_what_moved_a_row(here: Path, dd: Any) -> None:
    code, out, err = dd("explain", "journeys", "3", "4", "stop=Lighthouse")
    assert (code, err) == (0, [])
    assert out[1:4] == ["3..4  stop=Lighthouse", "", '-  {stop: "Lighthouse", total: 19}']
    assert out[5] == "moved by 1 of 1 changed input rows:"
    assert out[6].startswith('  -  links  {src: "Bridge", dst: "Harbour", minutes: 6}  version 4  ')
    assert dd("explain", "journeys", "3..4", "stop=Lighthouse")[1] == out
    lines = records(dd("explain", "journeys", "-2", "-1", "stop=Lighthouse", "--json")[1])
    assert lines[1] == {"from": 3, "to": 4, "rows": 1}
    assert inputs_of(lines) == [("links", "Bridge", "Harbour", 6, 4)]
    assert [line["diff"] for line in lines[2:]] == [-1, -1]


def test_from_before_everything(here: Path, dd: Any) -> None:
    lines = records(dd("explain", "journeys", "..5", "stop=Market", "--json")[1])
    assert inputs_of(lines) == [("links", "Central", "Market", 3, 1), ("starts", "Central", 1)]


def test_a_row_that_did_not_change(here: Path, dd: Any) -> None:
    code, _, err = dd("explain", "journeys", "3", "4", "stop=Market")
    assert (code, err) == (0, ["no row with stop=Market changed between these versions"])


def test_only_what_the_row_can_depend_on_is_read(here: Path, dd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One way through the trams' links, not all that there are."""
    read: dict[str, list[int]] = {}
    between = ChangeLog.between

    def spied(log: ChangeLog, *arguments: Any) -> Any:
        frame = between(log, *arguments)
        read.setdefault(log.folder.name, []).append(len(frame))
        return frame

    monkeypatch.setattr(ChangeLog, "between", spied)
    assert dd("explain", "journeys", "stop=Market", "--at", "3")[0] == 0
    assert (max(read["links"]), max(read["starts"])) == (1, 1)  # of seven links


def test_of_several_sources_it_does_not_claim_one(fresh: Path, dd: Any) -> None:
    header, many = "diff,src,dst,minutes\n", fresh / "many"
    many.mkdir()
    for at in range(5):
        (many / f"f{at}.csv").write_text(f"{header}1,A{at},B{at},{at}\n")
    for name, row in {"x": "-1,A3,B3,3", "y": "1,A3,B3,8", "z": "1,A4,B4,8"}.items():
        Path(f"{name}.csv").write_text(f"{header}{row}\n")
    Path("start.csv").write_text("diff,stop\n1,A3\n")
    for name, source, version in (
        ("links", "many", 1),
        ("starts", "start.csv", 1),
        *(("links", f"{x}.csv", 2) for x in "xyz"),
    ):
        assert dd("ingest", name, source, "--version", str(version), "-q")[0] == 0
    assert dd("run", "-q")[0] == 0

    def links(*arguments: str) -> list[str]:
        code, out, err = dd("explain", "journeys", *arguments, "stop=B3")
        assert code == 0, err
        return [line.partition("  version ")[2] for line in out if "links  " in line and "  version " in line]

    some = "one of 5 sources of ingest 1: many/f0.csv, many/f1.csv, many/f2.csv and 2 more"
    assert links("--at", "1") == [f"1  {some}"]
    assert links("1", "2") == ["2  x.csv", "2  y.csv"]  # of three ingests at version 2
    _, out, _ = dd("explain", "journeys", "stop=B3", "--at", "1", "--json")
    (origin,) = [line for line in records(out) if line.get("input") == "links" and "step" not in line]
    assert (origin["ingests"], origin["sources"]) == ([1], [f"many/f{at}.csv" for at in range(5)])
    assert dd("compact")[0] == 0  # one file holds the rows of all ingests
    assert links() == ["2  one of 2 sources of ingests 4, 5: y.csv, z.csv"]


def test_several_rows(here: Path, copied: Path, dd: Any) -> None:
    (copied / "program.py").write_text(
        "def program(links, starts):\n"
        '    return {"journeys": links.select("src", "dst").where("src <> \'x\'"), "all": starts.select(one="1")}\n'
    )
    assert dd("run", "--project", str(copied), "--full-refresh", "-q")[0] == 0
    where = ["--project", str(copied)]
    rows = [line for line in dd("show", "journeys", *where)[1] if line.startswith("Central")]
    code, out, err = dd("explain", "journeys", "src=Central", "--limit", "1", *where)
    assert code == 0
    assert len([line for line in out if "rests on" in line]) == 1
    assert err == [f"... and {len(rows) - 1} more rows with src=Central; all of them with --limit 0"]
    code, out, err = dd("explain", "journeys", "src=Central", "--limit", "0", *where)
    assert (len([line for line in out if "rests on" in line]), err) == (len(rows), [])


@pytest.mark.parametrize(
    ("arguments", "says", "hint"),
    [
        (
            "journeys",
            "explain journeys names no row",
            "say which one by values of its columns, which are stop, total: ",
        ),
        (
            "journeys Zoo",
            "explain journeys names no row: 'Zoo' is no COLUMN=VALUE",
            "say which one by values of its columns, which are stop, total: ddcore explain journeys stop=Zoo",
        ),
        ("journeys stop=Zoo 1", "'1' is no COLUMN=VALUE", "two versions are written before the row"),
        ("journeys stop=Nowhere", "journeys has no row with stop=Nowhere at version 5", "rows that are there: "),
        ("journeys stp=Zoo", "journeys has no column 'stp'; it has: stop, total", "did you mean 'stop'?"),
        ("journeys stop=Zoo stp=Zoo", "journeys has no column 'stp'; it has: stop, total", "did you mean 'stop'?"),
        ("journeys total=far", "total=far: 'far' is no int64", "as `ddcore show journeys` prints it"),
        ("journeys total=1.5", "total=1.5: '1.5' is no int64", "as `ddcore show journeys` prints it"),
        ("journeys stop=Zoo stop=Park", "stop has two values: 'Zoo' and 'Park'", "give one"),
        ("journeys 3 stop=Zoo", "explain takes two versions, or none, got '3'", "the row at one version: --at 3"),
        ("journeys 1 2 3 stop=Zoo", "explain takes two versions, not 3: 1 2 3", "say A B or A..B"),
        ("journeys 3 4 stop=Zoo --at 3", "explain takes two versions or --at, not both", "leave one of them out"),
        ("journeys 3 9 stop=Zoo", "B: version 9 is not yet complete: the last folded version is 5", "which versions"),
        ("journeys stop=Zoo --at 9", "--at: version 9 is not yet complete: the last folded version is 5", "which"),
        ("journey stop=Zoo", "no output 'journey'; there are: journeys", "did you mean 'journeys'?"),
        ("links src=Zoo", "no output 'links'; there are: journeys", "links is an input; only outputs can be shown"),
    ],
)
def test_mistakes(arguments: str, says: str, hint: str, here: Path, dd: Any) -> None:
    code, out, err = dd("explain", *arguments.split())
    assert (code, out, err[0]) == (2, [], f"error: {says}")
    assert err[1].strip().startswith(hint)


def test_values_of_every_type(tmp_path: Path, dd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dd.toml").write_text(
        '[project]\nprogram = "p.py:program"\n[run]\nengine = "inline"\n[inputs.rows]\n'
        'schema = { w = "string", f = "float64", m = "decimal(10,2)", d = "date", t = "timestamp", b = "bool" }\n'
    )
    (tmp_path / "p.py").write_text('def program(rows):\n    return {"out": rows.where("f < 9")}\n')
    (tmp_path / "rows.csv").write_text(
        "w,f,m,d,t,b\nnull,0.5,3.10,2024-02-29,2024-02-29T01:02:03Z,true\n,1.5,4.00,2024-03-01,2024-03-01T00:00:00Z,false\n"
    )
    monkeypatch.chdir(tmp_path)
    done = dd("ingest", "rows", "rows.csv", "--append", "-q")
    assert done[0] == 0, done
    assert dd("run", "-q")[0] == 0
    for word in ('w="null"', "f=0.5", "m=3.10", "m=3.1", "d=2024-02-29", "t=2024-02-29 01:02:03Z", "b=true"):
        lines = records(dd("explain", "out", word, "--json")[1])
        assert [line["row"]["w"] for line in lines if "input" in line and "step" not in line] == ["null"], word
    for word in ("w=x", "f=0.25", "d=2024-02-28"):
        assert dd("explain", "out", word)[0] == 2, word
    assert dd("explain", "out", "t=2024-02-29 01:02:04Z")[2][1].endswith("A B 't=2024-02-29 01:02:04Z'"), (
        "for the shell"
    )
    assert dd("explain", "out", "b=yes")[2][0] == "error: b=yes: 'yes' is no bool"


def test_several_time_dimensions(tmp_path: Path, dd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dd.toml").write_text(
        '[project]\nprogram = "p.py:program"\n[run]\nengine = "inline"\n[time]\ndims = ["day", "revision"]\n'
        '[inputs.sales]\nschema = { shop = "string", n = "int64" }\n'
    )
    (tmp_path / "p.py").write_text(
        "import ddcore as dd\n\n\ndef program(sales):\n"
        '    return {"totals": sales.group_by("shop").agg(total=dd.sum("n"))}\n'
    )
    (tmp_path / "sales.csv").write_text(
        "shop,n,day,revision,diff\nA,4,0,0,1\nA,5,1,0,1\nA,4,0,1,-1\nA,7,0,1,1\nB,1,0,0,1\n"
    )
    monkeypatch.chdir(tmp_path)
    assert dd("ingest", "sales", "sales.csv", "-q")[0] == 0
    assert dd("run", "-q")[0] == 0
    lines = records(dd("explain", "totals", "shop=A", "--at", "day=1,revision=1", "--json")[1])
    came = [(*line["row"].values(), line["time"]) for line in lines if "input" in line and "step" not in line]
    assert came == [("A", 5, {"day": 1, "revision": 0}), ("A", 7, {"day": 0, "revision": 1})]
    code, out, err = dd("explain", "totals", "day=1,revision=0", "day=1,revision=1", "shop=A")
    assert (code, err) == (0, [])
    assert out[1] == "day=1,revision=0..day=1,revision=1  shop=A"
    assert out[6] == "moved by 2 of 2 changed input rows:"
    assert [line.split()[:2] for line in out[7:]] == [["-", "sales"], ["+", "sales"]]


def test_the_page_shows_what_the_commands_print(tmp_path: Path, dd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The project that `make demo` leaves, folded in this process."""
    demo = tmp_path / "demo"
    (demo / "data").mkdir(parents=True)
    for name in ("dd.toml", "program.py"):
        shutil.copy(TOP / "examples/outages" / name, demo)
    for file in (TOP / "sample_data").glob("*.parquet"):
        shutil.copy(file, demo / "data")
    monkeypatch.chdir(demo)
    monkeypatch.setenv("DDCORE_ENGINE", "inline")
    for part in (1, 2):
        for name in ("dependencies", "incidents"):
            assert dd("ingest", name, f"data/{name}-{part}.parquet", "-q")[0] == 0
    assert dd("run", "-q")[0] == 0
    pages.follow("explain.md", tmp_path, dd, monkeypatch, steps=5)
