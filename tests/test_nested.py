"""Columns of lists and structs: equality inside them, their codes and order, what is refused, and the way from a source
to what the commands show."""

from __future__ import annotations

import datetime
import math
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from folding import by_reference, randomly_cut, whole
from ingesting import Desk
from polars import col
from seeds import nightly
from trams import Command, records

import ddcore as dd
from ddcore.base.errors import DataError, ExpressionError, ProgramError
from ddcore.base.schema import parse_schema, parse_type, type_of
from ddcore.cli.text import cell, plain
from ddcore.data import encoding, pools
from ddcore.io.delta.tables import live_files
from ddcore.io.delta.writer import Writer
from ddcore.io.logs.changed_columns import check_columns
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.digests import Digest, digests, row_hashes
from ddcore.io.state import arrangements
from ddcore.io.state.layout import Layout, create
from ddcore.traces.consolidation import arrange

NAN = float("nan")
ADDRESS = "struct[city: string, zip: int64, at: list[float64]]"


def rows_of(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(map(one, row)) for row in frame.iter_rows()]


def one(value: Any) -> Any:
    """A value as a dictionary can hold it: one NaN and one zero, lists apart from structs."""
    if isinstance(value, list):
        return ("list", *map(one, value))
    if isinstance(value, dict):
        return ("struct", *map(one, value.values()))
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def order(value: Any) -> Any:
    """Where a value stands: null before all, NaN above all numbers, lists and structs by their parts in turn."""
    if value is None:
        return (0,)
    if isinstance(value, list | dict):
        return (1, tuple(map(order, value.values() if isinstance(value, dict) else value)))
    if isinstance(value, float):
        return (1, (1, 0.0) if math.isnan(value) else (0, value))
    return (1, value.encode() if isinstance(value, str) else value)


LEAVES: list[tuple[pl.DataType, list[Any]]] = [
    (pl.Int64(), [0, 1, -1, 2**63 - 1]),
    (pl.Float64(), [0.0, -0.0, NAN, -1.5, math.inf]),
    (pl.String(), ["", "a", "ab", "é"]),
    (pl.Binary(), [b"", b"\0", b"\xff"]),
    (pl.Boolean(), [True, False]),
    (pl.Date(), [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)]),
    (pl.Datetime("us", "UTC"), [datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC)]),
    (pl.Decimal(10, 2), [Decimal("1.00"), Decimal("-2.50")]),
]


def drawn(rng: random.Random, depth: int) -> tuple[pl.DataType, Callable[[], Any]]:
    """A random type, and a function that draws values of it."""
    if depth == 0 or rng.random() < 0.3:
        kind, values = rng.choice(LEAVES)
        return kind, lambda: rng.choice([*values, None])
    if rng.random() < 0.5:
        inner, value = drawn(rng, depth - 1)
        return pl.List(inner), lambda: None if rng.random() < 0.2 else [value() for _ in range(rng.randint(0, 3))]
    fields = [(name, *drawn(rng, depth - 1)) for name in "xyz"[: rng.randint(1, 3)]]
    struct = pl.Struct({name: kind for name, kind, _ in fields})
    return struct, lambda: None if rng.random() < 0.2 else {name: value() for name, _, value in fields}


def column(seed: int, length: int = 30) -> tuple[pl.Series, random.Random]:
    rng = random.Random(seed)
    while not (made := drawn(rng, 3))[0].is_nested():
        pass
    return pl.Series("v", [made[1]() for _ in range(length)], dtype=made[0]), rng


@pytest.fixture
def empty_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "POOLS", encoding.Pools())


# Words, codes and order


@pytest.mark.sample(60)
@pytest.mark.parametrize("mask", [-1, 1, 0])
@pytest.mark.parametrize("seed", range(60))
def test_words_are_equal_exactly_where_values_are(seed: int, mask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where most values have one hash."""
    real = pools.Sequences._hash
    monkeypatch.setattr(encoding, "POOLS", encoding.Pools())
    monkeypatch.setattr(pools.Sequences, "_hash", lambda self, values: real(self, values) & mask)
    series, _ = column(seed)
    kind = type_of(series.dtype)
    words = encoding.encode(series, kind)
    back = encoding.decode(words, kind, "v")
    assert back.dtype == series.dtype and rows_of(back.to_frame()) == rows_of(series.to_frame())
    pairs = {(one(value), int(word)) for value, word in zip(series.to_list(), words, strict=True)}
    assert len(pairs) == len({value for value, _ in pairs}) == len({word for _, word in pairs})
    assert (encoding.encode(back, kind) == words).all()


@pytest.mark.parametrize("inner", ["map[int64, int64]", "list[map[int64, int64]]", "struct[a: map[int64, int64]]"])
@pytest.mark.parametrize("values", [[], [None, None], [{}], [{}, None], [{"k": None}]])
def test_maps_of_maps_may_be_null_in_all_rows(inner: str, values: list[Any]) -> None:
    kind = parse_schema({"v": f"map[string, {inner}]"})["v"]
    series = pl.Series("v", values, dtype=kind.polars)
    back = encoding.decode(encoding.encode(series, kind), kind, "v")
    assert back.dtype == series.dtype and back.to_list() == series.to_list()


@pytest.mark.parametrize("seed", range(40))
def test_codes_do_not_depend_on_what_a_process_has_seen(
    seed: int, empty_pools: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    series, rng = column(seed)
    kind, shuffled = type_of(series.dtype), rng.sample(range(30), 30)
    codes = encoding.key_codes([encoding.encode(series, kind)], [kind], 30)
    monkeypatch.setattr(encoding, "POOLS", encoding.Pools())
    encoding.encode(pl.Series(["another"]), parse_type("string"))
    again = encoding.key_codes([encoding.encode(series.gather(shuffled), kind)], [kind], 30)
    assert (again == codes[shuffled]).all()


def test_codes_are_those_of_every_release() -> None:
    """Stored arrangements are sorted by these."""
    series = pl.Series(
        [{"a": 1, "b": ["x", None]}, {"a": None, "b": []}, None],
        dtype=pl.Struct({"a": pl.Int64, "b": pl.List(pl.String)}),
    )
    kind = type_of(series.dtype)
    codes = encoding.key_codes([encoding.encode(series, kind)], [kind], 3)
    assert codes.tolist() == [-5266493831364635142, 8902811408262390105, -749792998721194301]


@pytest.mark.parametrize("seed", range(60))
def test_order(seed: int) -> None:
    """Of the rows of a log, and of those that top_k takes where its columns leave a choice."""
    series, _ = column(seed)
    frame = pl.DataFrame({"v": series, "k": 1, "version": 0, "diff": 1})
    log = dd.replay(lambda rows: {"out": rows}, rows=frame)["out"]
    distinct = {one(value): value for value in series.to_list()}.values()
    assert [one(value) for value in log["v"].to_list()] == [one(value) for value in sorted(distinct, key=order)]
    first = dd.replay(lambda rows: {"out": rows.distinct().group_by().top_k(2, "k")}, rows=frame)["out"]
    nulls_last = sorted(distinct, key=lambda value: (value is None, order(value)))
    assert {one(value) for value in first["v"].to_list()} == {one(value) for value in nulls_last[:2]}


# Programs


@pytest.mark.sample(5)
@pytest.mark.parametrize("seed", nightly(range(40), 25))
def test_every_operator_that_takes_them(seed: int) -> None:
    series, rng = column(seed, 12)
    updates = {
        "k": [rng.randrange(3) for _ in range(12)],
        "v": series,
        "version": [rng.randrange(3) for _ in range(12)],
    }
    frame = pl.DataFrame(updates).with_columns(diff=1)
    gone = frame.sample(4, seed=seed).with_columns(col("version") + 2, diff=-1)
    is_list = isinstance(series.dtype, pl.List)

    def program(rows: Any) -> dict[str, Any]:
        logs = {
            "rows": rows,
            "distinct": rows.select("v").distinct(),
            "groups": rows.group_by("v").agg(n=dd.count(), least=dd.min("k")),
            "values": rows.group_by("k").agg(n=dd.count_distinct("v"), some=dd.any(col("v").is_null())),
            "pairs": rows.join(rows.rename({"k": "j"}), on="v"),
            "full": rows.join(rows.select(k=col("k") + 1, other="v"), on="k", how="full"),
            "less": rows.select("v").except_(rows.where(col("k") == 1).select("v")),
            "loop": rows.select("k", "v").iterate(
                lambda w: w.select(k=(col("k") + 1) % 3, v="v").concat(rows).distinct()
            ),
            "first": rows.group_by("k").reduce(
                lambda of: of.group_by("group", maintain_order=True).agg(v=col("v").first(), n=col("count").sum()),
                {"v": series.dtype, "n": "int64"},
            ),
        }
        return logs | ({"elements": rows.flat_map(e=col("v"))} if is_list else {})

    history = pl.concat([frame, gone])
    expected = by_reference(program, rows=history)
    assert whole(program, rows=history) == expected
    assert randomly_cut(program, rows=history, seed=seed) == expected


def test_values_inside_are_equal_as_they_are_outside() -> None:
    values = [{"f": 0.0, "l": [NAN]}, {"f": -0.0, "l": [NAN]}, {"f": None, "l": None}, {"f": None, "l": None}, None]
    frame = pl.DataFrame({"s": values, "version": 0, "diff": 1})
    log = dd.replay(lambda rows: {"out": rows.group_by("s").agg(n=dd.count())}, rows=frame)["out"]
    assert Counter(rows_of(log.select("s", "n"))) == Counter(
        {(None, 1): 1, (("struct", None, None), 2): 1, (("struct", 0.0, ("list", "nan")), 2): 1}
    )


def test_a_null_key_matches_nothing_and_a_null_inside_one_does() -> None:
    frame = pl.DataFrame({"l": [[None], [], None], "version": 0, "diff": 1}, schema_overrides={"l": pl.List(pl.Int64)})
    log = dd.replay(lambda rows: {"out": rows.select("l", m="l").join(rows, on={"l": "l", "m": "l"})}, rows=frame)[
        "out"
    ]
    assert log["l"].to_list() == [[], [None]]


def test_parts_in_expressions() -> None:
    frame = pl.DataFrame({"t": [["a", None], [], None], "s": [{"x": 1}, {"x": None}, None], "version": 0, "diff": 1})
    log = dd.replay(
        lambda rows: {
            "out": rows.select(n=col("t").list.len(), x=col("s").struct.field("x"), b=pl.struct(c="t", d=pl.lit(1)))
        },
        rows=frame,
    )["out"]
    assert log.select("n", "x", "b").rows() == [
        (None, None, {"c": None, "d": 1}),
        (0, None, {"c": [], "d": 1}),
        (2, 1, {"c": ["a", None], "d": 1}),
    ]


ROWS = pl.DataFrame({"k": [1, 2], "s": [{"x": 1.0}, {"x": 2.0}], "l": [["a"], []], "version": 0, "diff": 1})


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda rows: rows.group_by("k").agg(n=dd.min("s")), r"there is no min of struct\[x: float64\]"),
        (lambda rows: rows.group_by("k").agg(n=dd.sum("l")), r"there is no sum of list\[string\]"),
        (lambda rows: rows.group_by("k").top_k(1, "l"), r"top_k: l is list\[string\]: lists and structs have no order"),
        (lambda rows: rows.join(rows.select(l=col("k")), on="l"), r"join: l is list\[string\] and l is int64"),
        (lambda rows: rows.concat(rows.with_columns(l=pl.concat_list("k"))), r"concat: columns differ"),
        (lambda rows: rows.where(col("l") < col("l")), r"compares lists or structs, which have no order"),
        (lambda rows: rows.select(n=pl.max_horizontal("s", "s")), r"compares lists or structs, which have no order"),
        (lambda rows: rows.select(n=pl.concat_list("k") + pl.concat_list("k")), r"overflow cannot be detected"),
        (lambda rows: rows.select(n=col("s").struct.field("y")), r"y"),
        (lambda rows: rows.flat_map(s=col("s")), r"is Struct\(\{'x': Float64\}\), not a list"),
        (lambda rows: rows.select(n=pl.lit([])), r"columns of type Null are not supported"),
    ],
)
def test_what_is_refused_when_the_program_is_built(program: Any, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        dd.replay(lambda rows: {"out": program(rows)}, rows=ROWS)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda rows: rows.select(s=pl.struct(a=col("k") * 2**62)), r"as_struct.* in the row k=2"),
        (
            lambda rows: rows.select(s=pl.concat_list(-(col("k") * 2**61) * 2)),
            r"is -9223372036854775808, which int64 .*k=2",
        ),
        (
            lambda rows: rows.group_by("k").reduce(
                lambda of: of.select("group", l=pl.struct(a=pl.concat_list(pl.lit("x")))),
                {"l": "struct[a: list[int64]]"},
            ),
            r"returned a column that does not fit: l\.a\[\] is String, not int64",
        ),
    ],
)
def test_values_that_do_not_fit_are_named(program: Any, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        dd.replay(lambda rows: {"out": program(rows)}, rows=ROWS)


def test_extension_types_are_refused_with_their_path() -> None:
    inner = pa.struct({"a": pa.json_()})
    table = pa.table({"t": pa.nulls(1, pa.list_(inner)), "version": [0], "diff": [1]})
    with pytest.raises(ProgramError, match=r"input rows: column t\[\]\.a: columns of type Object \(ext"):
        dd.replay(lambda rows: {"out": rows}, rows=table)


def test_frames_of_other_widths_and_orders_are_exact() -> None:
    schemas = {"rows": {"s": "struct[a: int64, b: list[decimal(10,2)]]"}}
    session = dd.Session(lambda rows: {"out": rows}, schemas)
    frame = pl.DataFrame({"s": [{"b": [Decimal("1.50")], "a": 7}], "version": 0, "diff": 1}).with_columns(
        s=col("s").cast(pl.Struct({"b": pl.Array(pl.Decimal(4, 2), 1), "a": pl.Int8}))
    )
    assert session.fold({"rows": frame})["out"]["s"].to_list() == [{"a": 7, "b": [Decimal("1.50")]}]
    with pytest.raises(DataError, match="column s is"):
        session.fold(
            {
                "rows": frame.select(col("s").struct.field("a"), "version", "diff").select(
                    s=pl.struct("a"), version=1, diff=1
                )
            }
        )


# Sources, digests and what the commands show


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(40))
def test_digests_tell_values_apart_and_nothing_else(seed: int) -> None:
    series, rng = column(seed)
    kind, key = type_of(series.dtype), bytes(range(16))
    series = encoding.decode(encoding.encode(series, kind), kind, "v")  # one NaN, one zero
    frame = pl.DataFrame({"v": series, "version": 0, "diff": 1})

    def digests_of(updates: pl.DataFrame) -> dict[Any, Digest]:
        return digests(updates, ["version"], row_hashes(updates, ["version"], key))

    single = [digests_of(frame[i : i + 1]) for i in range(len(frame))]
    by_value = {(one(value), str([*digest.values()])) for value, digest in zip(series.to_list(), single, strict=True)}
    assert len(by_value) == len({value for value, _ in by_value}) == len({digest for _, digest in by_value})
    shuffled = frame[rng.sample(range(30), 30)]
    assert digests_of(shuffled) == digests_of(frame)


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(25))
def test_tables_hold_values_of_every_type(seed: int, tmp_path: Path) -> None:
    """A change log, and the state of an operator: what is read is what was written, whatever the process has pooled."""
    series, _ = column(seed)
    kind = type_of(series.dtype)
    series = encoding.decode(encoding.encode(series, kind), kind, "v")
    log = ChangeLog(tmp_path / "log", {"v": kind}, writer=Writer())
    frame = pl.DataFrame({"v": series, "version": range(len(series)), "diff": 1})
    table = log.append(frame, 1, base=None)
    again = log.collect(log.scan(table)).sort("version")
    assert again["v"].dtype == series.dtype and rows_of(again) == rows_of(frame)
    check_columns(log)

    layout = Layout({"v": kind}, ("v",), ("version",))
    words = [encoding.encode(series, kind)]
    times = [np.arange(len(series))]
    run = arrange(encoding.key_codes(words, [kind], len(series)), words, times, np.ones(len(series), dtype=np.int64))
    create(Writer(), tmp_path / "state", layout)
    for number in (1, 2):
        files = [arrangements.write_run(tmp_path / "state", number, "0", run, layout)]
        state = arrangements.commit(Writer(), tmp_path / "state", files, number, base=None)
        (stored,) = arrangements.open_runs(tmp_path / "state", live_files(tmp_path / "state", state), layout)
        stored.locate(np.sort(run.codes))
        assert (stored.decompress().codes == run.codes).all() and (stored.decompress().words == run.words).all()


def test_cells_and_json() -> None:
    value = {
        "city": "O\x1bslo",
        "at": [1.5, NAN, None],
        "day": datetime.date(2024, 2, 29),
        "raw": b"\x01",
        "on": [True],
    }
    assert cell(value) == '{city: "O\\u001bslo", at: [1.5, nan, null], day: 2024-02-29, raw: 0x01, on: [true]}'
    assert plain(value) == {
        "city": "O\x1bslo", "at": [1.5, "NaN", None], "day": "2024-02-29", "raw": "01", "on": [True],
    }  # fmt: skip
    assert cell([]) == "[]" and cell(["null", None]) == '["null", null]'
    assert cell(["x" * 2000]).endswith("… (2,004 characters)")


PROGRAM = """
import ddcore as dd
from ddcore import col


def program(people: dd.Collection) -> dict[str, dd.Collection]:
    return {
        "people": people,
        "places": people.group_by("address").agg(n=dd.count()),
        "tags": people.flat_map(tag=col("tags")).select("tag").distinct(),
    }
"""
PEOPLE = pa.schema(
    {
        "tags": pa.large_list(pa.string()),
        "address": pa.struct(
            {"zip": pa.int32(), "at": pa.list_(pa.float32(), 2), "city": pa.dictionary(pa.int8(), pa.string())}
        ),
        "version": pa.int64(),
        "diff": pa.int8(),
    }
)  # other widths than the input's, and another order of fields
OSLO = {"city": "Oslo", "zip": 1, "at": [0.0, NAN]}
UPDATES = [
    (["a", None], OSLO, 0, 1),
    ([], None, 0, 1),
    (None, {"city": None, "zip": None, "at": None}, 0, 1),
    (["a", None], OSLO | {"at": [-0.0, NAN]}, 1, -1),
    (["a", "b"], OSLO, 1, 1),
]


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an input of nested columns, and a source for it."""
    (tmp_path / "dd.toml").write_text(
        '[project]\nprogram = "program.py:program"\n[run]\nengine = "inline"\n[inputs.people.schema]\n'
        f'tags = "list[string]"\naddress = "{ADDRESS}"\n[outputs.places]\nkey = ["address"]\n'
    )
    (tmp_path / "program.py").write_text(PROGRAM)
    rows = [dict(zip(PEOPLE.names, row, strict=True)) for row in UPDATES]
    pq.write_table(pa.Table.from_pylist(rows, schema=PEOPLE), tmp_path / "people.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_from_a_file_to_the_screen(people: Path, dd: Command) -> None:
    assert dd("ingest", "people", "people.parquet")[0] == 0
    assert records(dd("ingest", "people", "people.parquet")[1])[-1]["nothing_new"]
    assert dd("run", "--to-version", "0")[0] == dd("run")[0] == 0
    heading = f"people (tags list[string], address {ADDRESS})"
    assert dd("show", "people")[1] == [
        heading, "at 1  3 rows", "",
        "tags        address",
        "null        {city: null, zip: null, at: null}",
        "[]          null",
        '["a", "b"]  {city: "Oslo", zip: 1, at: [0.0, nan]}',
    ]  # fmt: skip
    assert dd("diff", "people", "0", "1")[1][3:] == [
        "   tags         address",
        '-  ["a", null]  {city: "Oslo", zip: 1, at: [0.0, nan]}',
        '+  ["a", "b"]   {city: "Oslo", zip: 1, at: [0.0, nan]}',
    ]
    head, _, *rows = records(dd("show", "people", "--json")[1])
    assert head["schema"] == {"tags": "list[string]", "address": ADDRESS}
    oslo = {"city": "Oslo", "zip": 1, "at": [0.0, "NaN"]}
    assert [row["row"] for row in rows] == [
        {"tags": None, "address": {"city": None, "zip": None, "at": None}},
        {"tags": [], "address": None},
        {"tags": ["a", "b"], "address": oslo},
    ]
    assert [r["diff"] for r in records(dd("diff", "places", "..0", "--json")[1])[2:]] == [1, 1, 1]
    only = records(dd("diff", "places", "0", "1", "--json")[1])[1]
    assert {name: only[name] for name in ("from", "to", "plus", "minus")} == {"from": 0, "to": 1, "plus": 0, "minus": 0}
    assert dd("diff", "tags", "0", "1")[1][3:] == ["   tag", "-  null", "+  b"]


def test_a_delta_table_gets_in(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    desk = Desk(tmp_path, {"tags": "list[string]", "address": ADDRESS})
    rows = [dict(zip(PEOPLE.names, row, strict=True)) for row in UPDATES]
    plain_types = [pa.field(name, pa.int64()) for name in ("version", "diff")]
    kinds = [pa.field(name, kind.arrow) for name, kind in desk.schema.items()]
    table = pa.Table.from_pylist(rows, schema=pa.schema([*kinds, *plain_types]))
    write_deltalake(str(tmp_path / "table"), table)
    desk.ingest(str(tmp_path / "table"))
    expected = Counter({(one(tags), one(address), version): diff for tags, address, version, diff in UPDATES})
    assert {tuple(map(one, row[:-1])): row[-1] for row in desk.updates()} == expected
    pq.write_table(table, tmp_path / "again.parquet")
    assert desk.ingest(str(tmp_path / "again.parquet")).nothing_new


INNER = {"city": pa.string(), "zip": pa.int64(), "at": pa.list_(pa.float64())}
TAGS, PLACE = pa.list_(pa.string()), pa.struct(INNER)


@pytest.mark.parametrize(
    ("tags", "address", "message"),
    [
        ((TAGS, ["a"]), (PLACE, {"zip": -(2**63)}), "column 'address.zip': -9223372036854775808 is reserved (row 2)"),
        ((pa.list_(pa.int64()), [1]), (PLACE, None), "the column 'tags[]' is Int64, but the input declares string"),
        ((pa.string(), "a"), (PLACE, None), "the column 'tags' is String, but the input declares list[string]"),
        ((TAGS, []), (pa.struct({"city": pa.string()}), None), "the column 'address' lacks the field 'zip'"),
        (
            (TAGS, []),
            (pa.struct(INNER | {"a": pa.int8()}), None),
            "the column 'address' has the field 'a', which the input does not declare",
        ),
        (
            (TAGS, []),
            (pa.struct(INNER | {"zip": pa.duration("s")}), None),
            "the column 'address.zip' is Duration(time_unit='ms'), but the input declares int64",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(tags: Any, address: Any, message: str, tmp_path: Path) -> None:
    desk = Desk(tmp_path, {"tags": "list[string]", "address": ADDRESS})
    columns = {"tags": pa.array([None, tags[1]], tags[0]), "address": pa.array([None, address[1]], address[0])}
    pq.write_table(pa.table({**columns, "version": [0, 0], "diff": [1, 1]}), tmp_path / "x.parquet")
    with pytest.raises(DataError) as caught:
        desk.ingest(str(tmp_path / "x.parquet"))
    assert message in caught.value.message and not desk.records() and not desk.stray_files()


def test_dates_beyond_the_calendar_inside_a_list_are_found_in_their_row(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {"days": "list[struct[day: date]]"})
    days = pa.array(
        [[], [{"day": 0}, {"day": 1}], [{"day": 2}, {"day": 10**9}]], pa.list_(pa.struct({"day": pa.int32()}))
    )
    days = days.cast(pa.list_(pa.struct({"day": pa.date32()})))
    pq.write_table(pa.table({"days": days, "version": [0] * 3, "diff": [1] * 3}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"column 'days\[\]\.day': 1000000000 days from 1970-01-01 .* \(row 3\)"):
        desk.ingest(str(tmp_path / "x.parquet"))


def test_text_holds_no_lists(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {"tags": "list[string]"})
    (tmp_path / "x.csv").write_text("tags,version,diff\na,0,1\n")
    with pytest.raises(
        DataError, match=r"the column 'tags' is declared as list\[string\], which is not read from text"
    ):
        desk.ingest(str(tmp_path / "x.csv"))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("list[strin]", "[]: there is no type 'strin'"),
        ("struct[a: int64, A: int64]", "Delta tables take a and A for the same field"),
        ('struct[\\"a b\\": int64]', "Delta tables do not take the field name 'a b'"),
    ],
)
def test_types_that_dd_toml_may_not_have(kind: str, message: str, people: Path, dd: Command) -> None:
    toml = (people / "dd.toml").read_text()
    (people / "dd.toml").write_text(toml.replace('"list[string]"', f'"{kind}"'))
    code, _, errors = dd("run")
    assert code == 2 and "inputs.people" in errors[0] and message in errors[0]


def test_a_field_name_that_no_table_takes_is_refused_in_an_output(people: Path, dd: Command) -> None:
    (people / "program.py").write_text(
        PROGRAM.replace(
            '"people": people,', '"people": people.select(s=dd.pl.struct(**{"a b": col("tags")})),'
        ).replace("import ddcore as dd", "import ddcore as dd\nimport polars\ndd.pl = polars")
    )
    dd("ingest", "people", "people.parquet")
    code, _, errors = dd("run")
    assert code == 1 and "output people: column s: Delta tables do not take the field name 'a b'" in errors[0]


def test_fields_on_the_way_may_be_called_anything(people: Path, dd: Command) -> None:
    """State on disk is looked up by the next run, whatever a table thinks of the names."""
    (people / "program.py").write_text(
        "import polars as pl\nfrom ddcore import col\n\n\ndef program(people):\n"
        '    inner = pl.struct(col("tags").alias("[]"))\n'
        '    odd = people.select(s=pl.struct(col("tags").alias("a b"), A="tags", a=inner))\n'
        '    return {"places": odd.distinct().select(n=col("s").struct.field("a b").list.len())}\n'
    )
    assert dd("ingest", "people", "people.parquet")[0] == 0
    assert dd("run", "--to-version", "0")[0] == dd("run")[0] == 0
    assert [row["row"]["n"] for row in records(dd("show", "places", "--json")[1])[2:]] == [None, 0, 2]
    assert records(dd("diff", "places", "0", "1", "--key", "", "--json")[1])[1]["plus"] == 0


@pytest.mark.spark
def test_on_spark(people: Path, dd: Command, spark: Any) -> None:
    """Ingest of a Delta table, a run by several workers, and the stored tables, as Spark sees them."""
    rows = [dict(zip(PEOPLE.names, row, strict=True)) for row in UPDATES]
    pq.write_table(
        pa.Table.from_pylist(rows, schema=PEOPLE.set(1, PEOPLE.field(1).with_type(PLACE))), people / "s.parquet"
    )
    spark.read.parquet(str(people / "s.parquet")).write.format("delta").save(str(people / "table"))
    assert dd("ingest", "people", "table", "--engine", "spark")[0] == 0
    assert dd("run", "--engine", "spark", "--parallelism", "2", "--to-version", "0")[0] == 0
    assert dd("run", "--engine", "spark", "--parallelism", "2")[0] == 0
    table = spark.read.format("delta").load(str(people / "warehouse/outputs/people"))
    summed = Counter[Any]()
    for row in table.collect():
        address = row.address and tuple(one(item) for item in row.address)
        summed[one(row.tags), address] += row["diff"]
    assert {key: n for key, n in summed.items() if n} == {
        (("list", "a", "b"), ("Oslo", 1, ("list", 0.0, "nan"))): 1,
        (("list",), None): 1,
        (None, (None, None, None)): 1,
    }
    assert records(dd("diff", "tags", "0", "1", "--json")[1])[2:] == [
        {"row": {"tag": None}, "diff": -1},
        {"row": {"tag": "b"}, "diff": 1},
    ]
