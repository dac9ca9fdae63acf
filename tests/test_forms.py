"""Times of day, UUIDs, intervals and maps: from every kind of source, through runs, to commands and tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from folding import by_reference, randomly_cut, whole
from trams import Command, records

import ddcore as dd
from ddcore.base.errors import DataError, DdError
from ddcore.base.schema import parse_type
from ddcore.data import encoding
from ddcore.data.forms import canonical_uuids, interval_text, intervals_of, ordered
from ddcore.sql import program
from ddcore.text.cells import cell, plain

A, B = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-0000000000ff"
SCHEMA = {"at": "time", "id": "uuid", "span": "interval", "tags": "map[string, int64]"}
PROJECT = """
[project]
program = "program.py:program"
warehouse = "warehouse"
[run]
engine = "{engine}"
[inputs.rows]
schema = {{ at = "time", id = "uuid", span = "interval", tags = "map[string, int64]" }}
[outputs.passed]
table = true
"""
PROGRAM = """
import ddcore as dd

def program(rows):
    ends = rows.group_by("tags").agg(
        least=dd.min("at"), most=dd.max("at"), id=dd.min("id"), span=dd.max("span"), n=dd.count()
    )
    return {"passed": rows, "ends": ends, "ids": rows.select("id").distinct().join(rows, on="id")}
"""
ENGINES = ["inline", pytest.param("spark", marks=pytest.mark.spark)]


def interval(months: int = 0, days: int = 0, microseconds: int = 0) -> dict[str, int]:
    return {"months": months, "days": days, "microseconds": microseconds}


ROWS: list[dict[str, Any]] = [
    {"at": time(12, 30, 0, 5), "id": A, "span": interval(1, -2, 3_600_000_000), "tags": {"a": 1, "b": None}},
    {"at": time(0), "id": B, "span": interval(0, 30), "tags": {"a": 1, "b": None}},
    {"at": None, "id": None, "span": None, "tags": None},
    {"at": time(23, 59, 59, 999999), "id": B, "span": interval(), "tags": {}},
]
MAPS = [row["tags"] for row in ROWS]
PARTS, TAGS = ("days", "months", "microseconds"), pa.map_(pa.string(), pa.int64())
SHOWN = [
    ("12:30:00.000005", A, "1 mon -2 days +01:00:00", {"a": 1, "b": None}),
    ("00:00:00", B, "30 days", {"a": 1, "b": None}),
    (None, None, None, None),
    ("23:59:59.999999", B, "00:00:00", {}),
]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Both engines; a session of Spark is there for it."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    return str(request.param)


def project(folder: Path, engine: str) -> Path:
    (folder / "dd.toml").write_text(PROJECT.format(engine=engine))
    (folder / "program.py").write_text(PROGRAM)
    return folder


def parquet(folder: Path) -> list[str]:
    """Types of Arrow's own: nanoseconds, 16 bytes with UUIDs' mark, maps in another order of keys."""
    table = pa.table(
        {
            "at": pa.array([row["at"] for row in ROWS], pa.time64("us")).cast(pa.time64("ns")),
            "id": pa.array([row["id"] and bytes.fromhex(row["id"].replace("-", "")) for row in ROWS], pa.uuid()),
            "span": pa.array([row["span"] for row in ROWS], pa.struct(dict.fromkeys(PARTS, pa.int64()))),
            "tags": pa.array(
                [tags if tags is None else list(reversed(tags.items())) for tags in MAPS],
                pa.map_(pa.string(), pa.int32()),
            ),
        }
    )  # fmt: skip
    pq.write_table(table, folder / "rows.parquet")
    return ["rows.parquet"]


def delta(folder: Path) -> list[str]:
    """What Delta has: microseconds in a long, texts, a map."""
    table = pa.table(
        {
            "at": pa.array([row["at"] for row in ROWS], pa.time64("us")).cast(pa.int64()),
            "id": pa.array([row["id"] and row["id"].upper() for row in ROWS], pa.string()),
            "span": pa.array([text for _, _, text, _ in SHOWN], pa.string()),
            "tags": pa.array([tags if tags is None else list(tags.items()) for tags in MAPS], TAGS),
        }
    )  # fmt: skip
    write_deltalake(folder / "rows", table, mode="overwrite")
    return ["rows"]


def jsonl(folder: Path) -> list[str]:
    lines = [dict(zip(SCHEMA, row, strict=True)) for row in SHOWN]
    lines[1]["span"], lines[1]["id"] = "P30D", f"{{{B.replace('-', '')}}}"
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return ["rows.jsonl"]


SOURCES = {"parquet": parquet, "delta": delta, "jsonl": jsonl}


def shown(run: Command, *words: str) -> list[dict[str, Any]]:
    code, out, error = run(*words, "--json")
    assert code == 0, error
    return [record["row"] for record in records(out) if "row" in record]


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", SOURCES)
def test_from_sources_to_outputs(
    kind: str, engine: str, tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project(tmp_path, engine))
    for words in (["ingest", "rows", *SOURCES[kind](tmp_path), "--snapshot", "--version", "1"], ["run"]):
        code, _, errors = dd(*words)
        assert code == 0, errors
    wanted = [dict(zip(SCHEMA, row, strict=True)) for row in SHOWN]
    key = json.dumps
    assert sorted(shown(dd, "show", "passed"), key=key) == sorted(wanted, key=key)
    ends = {json.dumps(row["tags"]): row for row in shown(dd, "show", "ends")}
    both = ends['{"a": 1, "b": null}']
    assert both == {
        "tags": {"a": 1, "b": None}, "least": "00:00:00", "most": "12:30:00.000005", "id": B, "span": "30 days", "n": 2
    }  # fmt: skip
    assert len(shown(dd, "show", "ids")) == 3
    if engine == "spark":
        return
    # a second delivery of the same content changes nothing; then other updates
    assert dd("ingest", "rows", *SOURCES[kind](tmp_path), "--snapshot", "--version", "2")[0] == 0
    gone = {**ROWS[1], "tags": list(ROWS[1]["tags"].items()), "version": 3, "diff": -1}
    new = {"at": time(1), "id": A, "span": interval(12), "tags": [("z", 7)], "version": 3, "diff": 1}
    types = {
        "at": pa.time64("us"),
        "id": pa.string(),
        "span": parse_type("interval").arrow,
        "tags": TAGS,
    }
    fields = pa.schema([*types.items(), ("version", pa.int64()), ("diff", pa.int64())])
    pq.write_table(pa.Table.from_pylist([gone, new], fields), tmp_path / "more.parquet")
    assert dd("ingest", "rows", "more.parquet")[0] == 0
    assert dd("run")[0] == 0
    code, out, _ = dd("diff", "passed", "2", "3")
    assert (code, out[-3:]) == (0, [
        "   at        id                                    span     tags",
        f"-  00:00:00  {B}  30 days  {{a: 1, b: null}}",
        f"+  01:00:00  {A}  1 year   {{z: 7}}",
    ])  # fmt: skip
    code, out, _ = dd("explain", "passed", f"id={A.upper()}", "at=01:00:00")
    assert code == 0 and any("more.parquet" in line for line in out)
    for words in (["verify"], ["compact"], ["verify", "--by", "scratch"], ["doctor", "--deep"]):
        code, _, error = dd(*words)
        assert code == 0, (words, error)
    fields = {
        field.name: (str(field.type.type), field.metadata)
        for field in DeltaTable("warehouse/tables/passed").schema().fields[:2]
    }
    assert fields == {"at": ("long", {"ddcore.type": "time"}), "id": ("string", {"ddcore.type": "uuid"})}
    table = DeltaTable("warehouse/tables/passed").to_pyarrow_table().select([*SCHEMA]).to_pylist()
    assert {"at": 3_600_000_000, "id": A, "span": interval(12), "tags": [("z", 7)]} in table and len(table) == 4


KEYED = PROJECT.replace("[outputs.passed]", 'key = ["at", "id"]\n[outputs.passed]')


def test_upserts_by_keys_of_times_and_uuids(
    engine: str, tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project(tmp_path, engine))
    (tmp_path / "dd.toml").write_text(KEYED.format(engine=engine))
    rows: list[dict[str, Any]] = [dict(zip(SCHEMA, row, strict=True)) for row in (SHOWN[0], SHOWN[3])]
    for version, events in enumerate([rows, [{**rows[0], "tags": {"b": 2}}, {**rows[1], "op": "d"}]], 1):
        name = f"{version}.jsonl"
        (tmp_path / name).write_text("".join(json.dumps({"op": "u", **event}) + "\n" for event in events))
        code, _, error = dd("ingest", "rows", name, "--op", "op", "--version", str(version))
        assert code == 0, error
    assert dd("run")[0] == 0
    assert shown(dd, "show", "passed") == [{**rows[0], "tags": {"b": 2}}]


BAD = {
    "24:00:00": "is not a time of day such as 12:30:00",
    "9:00:00": "is not a time of day",
    "12:00:00.0000001": "is not a time of day",
}


@pytest.mark.parametrize("text", BAD)
def test_texts_that_are_no_times_are_refused(
    text: str, tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project(tmp_path, "inline"))
    (tmp_path / "dd.toml").write_text(PROJECT.format(engine="inline").replace(', tags = "map[string, int64]"', ""))
    (tmp_path / "x.csv").write_text(f"at,id,span,version,diff\n12:00:00,{A},P1D,0,1\n{text},,,0,1\n")
    code, _, error = dd("ingest", "rows", "x.csv")
    assert code == 1 and BAD[text] in error[0] and "(row 3)" in error[0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"id": "x"}, "column 'id': 'x' is not a UUID such as"),
        ({"span": "5 hours"}, "column 'span': '5 hours' is not an interval such as"),
        ({"tags": {"a": "b"}}, "column 'tags.a': 'b' is text, but the input declares int64 (line 1)"),
        ({"tags": [1]}, "column 'tags': "),
        ({"tags": {"a": 1.5}}, "column 'tags.a': 1.5 is not a whole number (line 1)"),
    ],
)
def test_lines_that_do_not_fit_are_refused(
    line: dict[str, Any], message: str, tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project(tmp_path, "inline"))
    (tmp_path / "x.jsonl").write_text(json.dumps({"at": None, "id": None, "span": None, "tags": None, **line}) + "\n")
    code, _, error = dd("ingest", "rows", "x.jsonl", "--version", "1", "--diff", "1")
    assert code == 1 and message in error[0], error


def test_a_key_that_occurs_twice_in_an_object_is_refused(
    tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project(tmp_path, "inline"))
    (tmp_path / "x.jsonl").write_text('{"at": null, "id": null, "span": null, "tags": {"a": 1, "a": 2}}\n')
    code, _, error = dd("ingest", "rows", "x.jsonl", "--version", "1", "--diff", "1")
    assert code == 1 and "column 'tags.a': the key occurs twice in one object (line 1)" in error[0]


# what PostgreSQL 15 prints for these intervals, and whether each is less than the next
SPANS = [
    (interval(-14), "-1 years -2 mons"),
    (interval(0, 0, -1_500_000), "-00:00:01.5"),
    (interval(), "00:00:00"),
    (interval(0, 0, 86_400_000_000), "24:00:00"),
    (interval(0, 2, -1_000_000), "2 days -00:00:01"),
    (interval(1, -2, 3_600_000_000), "1 mon -2 days +01:00:00"),
    (interval(0, 29), "29 days"),
    (interval(0, 0, 2_592_000_000_001), "720:00:00.000001"),
    (interval(13, 1, 14_706_700_000), "1 year 1 mon 1 day 04:05:06.7"),
    (interval(2**31 - 1), "178956970 years 7 mons"),
]


def test_intervals_are_written_and_ordered_as_in_postgresql() -> None:
    kind = parse_type("interval")
    values = pl.Series("x", [value for value, _ in SPANS], dtype=kind.polars)
    texts = values.to_frame().select(x=interval_text(pl.col("x")))["x"].to_list()
    assert texts == [text for _, text in SPANS] == [cell(value) for value, _ in SPANS] == [plain(v) for v, _ in SPANS]
    assert intervals_of(pl.Series(texts)).to_list() == values.to_list()
    assert ordered(values).arg_sort().to_list() == list(range(len(SPANS)))
    ranks, _ = encoding.rank_words(encoding.encode(values, kind), kind)
    assert ranks.tolist() == list(range(len(SPANS)))


def test_equally_long_intervals_are_different_values() -> None:
    spans = [interval(1), interval(0, 30), interval(0, 0, 30 * 86_400_000_000)]
    rows = pl.DataFrame({"span": pl.Series(spans, dtype=parse_type("interval").polars), "version": 0, "diff": 1})
    log = dd.replay(lambda rows: {"out": rows.group_by("span").agg(n=dd.count())}, rows=rows)["out"]
    assert len(log) == 3


@pytest.mark.parametrize(
    ("text", "usual"),
    [
        (A, A), (A.upper(), A), (f"{{{A}}}", A), (A.replace("-", ""), A),
        ("a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11", A),
        ("a0eebc999-c0b-4ef8-bb6d-6bb9bd380a11", None), (A[:-1], None), ("", None), (f"{A} ", None), (None, None),
    ],
)  # fmt: skip
def test_uuids_have_one_form(text: str | None, usual: str | None) -> None:
    assert canonical_uuids(pl.Series([text], dtype=pl.String)).to_list() == [usual]


def test_maps_are_equal_whatever_the_order_of_their_entries() -> None:
    kind = parse_type("map[string, list[time]]")
    series = pl.Series([{"b": [time(1)], "a": None}, {"a": None, "b": [time(1)]}, {}, None], dtype=kind.polars)
    words = encoding.encode(series, kind)
    assert words[0] == words[1] != words[2]
    back = encoding.decode(words, kind)
    assert back.dtype == kind.polars
    assert back.to_list() == [{"a": None, "b": [time(1)]}] * 2 + [{}, None]


def test_what_python_programs_do_with_them() -> None:
    rows = pl.DataFrame(
        {
            "at": [time(12, 30), None], "id": [A.upper(), B],
            "tags": pl.Series([{"a": 1}, {"a": 5, "b": 2}], dtype=pl.Map(pl.String, pl.Int64)), "version": 0, "diff": 1,
        }
    )  # fmt: skip

    def program(rows: dd.Collection) -> dict[str, dd.Collection]:
        tags = dd.col("tags").map
        return {
            "parts": rows.select(hour=dd.col("at").dt.hour(), a=tags.get("a"), names=tags.keys(), size=tags.len()),
            "later": rows.where(dd.col("at") > time(12)).select("id"),
        }

    session = dd.Session(program, {"rows": {"at": "time", "id": "uuid", "tags": "map[string, int64]"}})
    logs = session.fold({"rows": rows})
    assert logs["parts"].rows() == [(None, 5, ["a", "b"], 2, 0, 1), (12, 1, ["a"], 1, 0, 1)]
    assert logs["later"].rows() == [(A, 0, 1)]
    with pytest.raises(DataError, match="column id has x, which uuid does not hold exactly"):
        session.fold({"rows": rows.with_columns(id=pl.lit("x"), version=1)})


VIEWS = """
CREATE VIEW spans AS
SELECT id::uuid AS id, at - timestamp '2026-01-01' AS old, age(at, timestamp '2026-01-01') AS age, at::time AS clock,
       CASE WHEN n > 1 THEN interval '1 mon' ELSE make_interval(days => n) END AS step
FROM t;
CREATE VIEW late AS
SELECT id, max(old) AS oldest, min(step) AS least, count(*) AS n, max(clock) AS latest FROM spans
WHERE step <= '30 days' AND clock >= '06:00' GROUP BY id;
CREATE VIEW alike AS SELECT a.id, a.step, b.old FROM spans AS a JOIN spans AS b ON a.id = b.id AND a.clock = b.clock;
CREATE VIEW wanted AS SELECT id, old + step AS later FROM spans WHERE id <> 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11';
"""


@pytest.mark.parametrize("fold", [whole, randomly_cut])
def test_views_of_them_are_what_the_reference_gives(fold: Any) -> None:
    starts = [(ids, month) for ids in (A, B.upper(), A.replace("-", ""), None) for month in (1, 2, 12)]
    rows = [
        (ids, datetime(2026, month, 7 * n % 28 + 1, 5 * n % 24, tzinfo=UTC), n % 40, n % 3, 1)
        for n, (ids, month) in enumerate(starts * 3)
    ]
    rows += [(*row[:3], 3, -1) for row in rows[::4]]
    types: dict[str, Any] = {"id": pl.String, "at": pl.Datetime("us", "UTC"), "n": pl.Int64}
    types |= {"version": pl.Int64, "diff": pl.Int64}
    views, frame = program(VIEWS), pl.DataFrame(rows, types, orient="row")
    assert fold(views, t=frame) == by_reference(views, t=frame)
    session = dd.Session(views, {"t": {"id": "string", "at": "timestamp", "n": "int64"}})
    logs, kinds = session.fold({"t": frame}), {name: str(kind) for name, kind in session.plan.outputs["late"].items()}
    assert kinds == {"id": "uuid", "oldest": "interval", "least": "interval", "n": "int64", "latest": "time"}
    assert set(logs["late"]["id"].to_list()) <= {A, B, None}


@pytest.mark.parametrize("text", ["'x'", "concat(id, 'f')"])
def test_a_text_that_is_no_uuid_is_an_error(text: str) -> None:
    rows = pl.DataFrame({"id": [A], "version": 0, "diff": 1})
    with pytest.raises(DdError, match=r"no uuid|is no UUID"):
        dd.replay(program(f"CREATE VIEW o AS SELECT {text}::uuid AS v FROM t"), t=rows)


def test_the_reference_knows_uuids_of_inputs(tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project(tmp_path, "inline"))
    text = PROJECT.format(engine="inline").replace("program.py:program", "program.sql").partition("[outputs")[0]
    (tmp_path / "dd.toml").write_text(text)
    (tmp_path / "program.sql").write_text(
        f"CREATE VIEW other AS SELECT id, at, span + interval '1 day' AS span FROM rows WHERE id <> '{B.upper()}';"
    )
    assert dd("ingest", "rows", *jsonl(tmp_path), "--snapshot", "--version", "1")[0] == 0
    assert dd("run")[0] == 0
    assert shown(dd, "show", "other") == [{"id": A, "at": SHOWN[0][0], "span": "1 mon -1 days +01:00:00"}]
    code, _, error = dd("verify")
    assert code == 0, error
