"""Types: their names, what they are in Polars and Arrow, and what foreign types widen to."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import time
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from ddcore.base.errors import ProgramError
from ddcore.base.schema import Type, check_names, parse_schema, parse_type, type_of

INTERVAL = "struct[months: int64, days: int64, microseconds: int64]"
NAMES = [
    "int64", "float64", "bool", "string", "binary", "date", "timestamp", "time", "interval",
    "decimal(10,2)", "decimal(38,38)", "list[string]", "map[string, int64]", "list[map[date, list[time]]]",
    "struct[city: string, zip: int64]", "list[struct[a: list[decimal(10,2)], \"b c\": timestamp]]",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_leads_to_the_type_and_back(name: str) -> None:
    assert str(parse_type(name)) == name
    assert parse_type(parse_type(name)) == parse_type(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_type_is_itself_in_polars(name: str) -> None:
    assert type_of(parse_type(name).polars) == parse_type(name)


@pytest.mark.parametrize("name", NAMES)
def test_polars_and_arrow_agree(name: str) -> None:
    kind = parse_type(name)
    assert pl.from_arrow(pa.array([], kind.arrow)).dtype == kind.polars  # type: ignore[union-attr]


def test_a_type_is_small_frozen_and_picklable() -> None:
    kind = parse_type("decimal( 10 , 2 )")
    assert kind == Type("decimal", 10, 2) and hash(kind) == hash(Type("decimal", 10, 2))
    assert pickle.loads(pickle.dumps(kind)) == kind and not hasattr(kind, "__dict__")


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (pl.Int8, "int64"),
        (pl.UInt32(), "int64"),
        (pl.UInt64(), "decimal(20,0)"),
        (pl.Float32(), "float64"),
        (pl.Datetime("ms"), "timestamp"),
        (pl.Datetime("ns", "Europe/Paris"), "timestamp"),
        (pl.Categorical(), "string"),
        (pl.Enum(["a", "b"]), "string"),
        (pl.Decimal(18, 18), "decimal(18,18)"),
        (pl.List(pl.Int8), "list[int64]"),
        (pl.Array(pl.Float32, 2), "list[float64]"),
        (
            pl.Struct({"a": pl.List(pl.Categorical), "b, c": pl.Datetime("ns")}),
            'struct[a: list[string], "b, c": timestamp]',
        ),
    ],
)
def test_foreign_types_widen(dtype: Any, name: str) -> None:
    assert str(type_of(dtype)) == name


@pytest.mark.parametrize(
    "dtype",
    [
        pl.Int128(), pl.UInt128(), pl.Struct({}), pl.Duration("us"),
        pl.Null(), pl.Object(), pl.List, pl.Struct,
    ],
)  # fmt: skip
def test_types_without_a_place_are_named_with_a_way_out(dtype: Any) -> None:
    with pytest.raises(ProgramError) as caught:
        type_of(dtype)
    assert str(dtype).partition("(")[0] in caught.value.message and "cast" in caught.value.hint


@pytest.mark.parametrize(
    "name",
    [
        "int",
        "decimal",
        "decimal(39,2)",
        "decimal(2,3)",
        "decimal(0,0)",
        "",
        3,
        None,
        "list",
        "list[]",
        "list[int64",
        "list[int64]]",
        "struct[]",
        "struct[a]",
        "struct[a: int64, a: string]",
        "struct[a b: int64]",
        "map[string]",
        "map[string, int64",
        "map[float64, int64]",
        "map[list[string], int64]",
        "list[string], int64",
        'struct["a: int64]',
    ],
)
def test_names_that_are_no_types_are_refused(name: Any) -> None:
    with pytest.raises(ProgramError):
        parse_type(name)


def test_a_schema_keeps_its_order_and_names_the_bad_column() -> None:
    assert list(parse_schema({"b": "int32", "a": Type("string")}).items()) == [
        ("b", Type("int64")),
        ("a", Type("string")),
    ]
    with pytest.raises(ProgramError, match="column src: there is no type 'in64'"):
        parse_schema({"src": "in64"})


def test_a_type_inside_is_named_by_its_path() -> None:
    for kind, path in {
        "list[in64]": "tags[]",
        "struct[zip: list[in64]]": "tags.zip[]",
        'list[struct["post code": in64]]': 'tags[]."post code"',
    }.items():
        with pytest.raises(ProgramError) as caught:
            parse_schema({"tags": kind})
        assert caught.value.message == f"column {path}: there is no type 'in64'"
    with pytest.raises(ProgramError, match=r"^column tags\[\].a: columns of type Int128 are not supported"):
        parse_schema({"tags": pl.List(pl.Struct({"a": pl.Int128}))})


def test_types_of_python_and_arrow() -> None:
    assert str(parse_type(list[list[str]])) == "list[list[string]]"
    nested = pa.list_(pa.struct({"a": pa.int32(), "b": pa.large_list(pa.dictionary(pa.int8(), pa.string()))}))
    assert str(parse_type(nested)) == "list[struct[a: int64, b: list[string]]]"
    maps = pa.list_(pa.struct({"a": pa.map_(pa.string(), pa.time32("s"))}))
    assert str(parse_type(maps)) == "list[struct[a: map[string, time]]]"
    kinds = (time, pa.uuid(), pa.month_day_nano_interval())
    assert [str(parse_type(kind)) for kind in kinds] == ["time", "uuid", "interval"]
    with pytest.raises(ProgramError, match=r"^column tags\[\]: columns of type Object \(extension types"):
        parse_schema({"tags": pa.list_(pa.json_())})


@pytest.mark.parametrize(
    ("name", "base", "stored"),
    [
        ("time", "int64", "int64"),
        ("uuid", "string", "string"),
        ("interval", INTERVAL, INTERVAL),
        ("map[uuid, list[time]]", "list[struct[key: string, value: list[int64]]]", "map[string, list[int64]]"),
        ("list[string]", "list[string]", "list[string]"),
    ],
)
def test_types_that_the_engine_and_tables_keep_as_others(name: str, base: str, stored: str) -> None:
    kind = parse_type(name)
    assert (str(kind.base), str(kind.stored)) == (base, stored)


@pytest.mark.parametrize("name", ["diff", "version", "_code"])
def test_reserved_names_are_refused(name: str) -> None:
    with pytest.raises(ProgramError, match=f"may not be called {name}"):
        check_names(parse_schema({"a": "int64", name: "int64"}), ("version",))


def test_names_that_only_some_operators_need_are_free() -> None:
    check_names(parse_schema({"group": "int64", "count": "int64", "row": "int64", "version": "int64"}), ("day",))


def test_importing_types_does_not_import_arrow() -> None:
    program = "import sys, ddcore.base.schema, ddcore.expressions.projections; print('pyarrow' in sys.modules)"
    there = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == "False"
