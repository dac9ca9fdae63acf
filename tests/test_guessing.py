"""The schema that JSON lines or events of Debezium look like, as an ingest into an unknown input proposes it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from trams import Command

from ddcore.base.schema import parse_schema


def proposed(dd: Command, *arguments: str) -> dict[str, Any]:
    code, _, err = dd("ingest", "fresh_input", *arguments)
    assert code == 2 and "which may be: " in err[1], err
    text = err[1].partition("which may be: ")[2].replace("}, and key", "}\nkey")
    return tomllib.loads(text)


def write(*objects: Any) -> None:
    Path("a.jsonl").write_text("".join(json.dumps(item) + "\n" for item in objects))


def test_types_of_json_lines_come_from_the_values(fresh: Path, dd: Command) -> None:
    write(
        {"id": 1, "name": "a", "at": "2026-01-01T10:00:00Z", "day": "2026-01-01", "fee": 1, "ok": None, "big": 2**70},
        {"id": 2, "late": "2026-01-01", "fee": 1.5, "ok": True, "none": None, "mixed": 1, "version": 3, "diff": 1},
        {"id": None, "late": "soon", "tags": ["x", None], "where": {"zip": "1", "n": None, "p": [1.5]}, "mixed": "a"},
        {"two words": 1, "odd": [1, "a"], "deep": {"a b": 1}, "empty": {}, "nothing": []},
    )
    schema = proposed(dd, "a.jsonl")["schema"]
    assert schema == {
        "id": "int64", "name": "string", "at": "timestamp", "day": "date", "fee": "float64", "ok": "bool",
        "late": "string", "none": "string", "tags": "list[string]",
        "where": "struct[zip: string, n: string, p: list[float64]]", "two words": "int64", "nothing": "list[string]",
    }  # fmt: skip
    parse_schema(schema)


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_is_proposed_for_json_lines_takes_them_in(wrapped: bool, fresh: Path, dd: Command) -> None:
    write({"id": 1, "name": "a", "where": {"zip": "1"}, "tags": [1]}, {"id": 2, "name": None, "day": "2026-01-01"})
    if wrapped:
        row = {"id": 1, "name": "a", "fee": 1.5}
        write({"key": {"id": 1}, "value": {"payload": {"op": "c", "after": row}}})
    options = ("--debezium",) if wrapped else ("--append",)
    found = proposed(dd, "a.jsonl", *options)
    if wrapped:
        assert found == {"schema": {"id": "int64", "name": "string", "fee": "float64"}, "key": ["id"]}
        write({"payload": {"op": "c", "after": row}})
    columns = ", ".join(f"{name} = {json.dumps(kind)}" for name, kind in found["schema"].items())
    key = f"\nkey = {json.dumps(found['key'])}" if wrapped else ""
    toml = Path("dd.toml")
    toml.write_text(f"{toml.read_text()}\n[inputs.fresh_input]\nschema = {{ {columns} }}{key}\n")
    code, _, err = dd("ingest", "fresh_input", "a.jsonl", *options)
    assert code == 0, err


def test_rows_of_debezium_are_proposed_without_their_envelope(fresh: Path, dd: Command) -> None:
    fields = [
        {"field": "score", "type": "double"},
        {"field": "note", "type": "string"},
        {"field": "id", "type": "int32"},
    ]
    schema = {"fields": [{"field": "after", "type": "struct", "fields": fields}]}
    payload = {"op": "d", "before": {"id": 1, "tags": [1]}, "after": None, "source": {"lsn": 7}, "ts_ms": 1}
    write({"schema": schema, "payload": payload},
          {"schema": schema, "payload": {"op": "c", "before": None, "after": {"id": 2, "score": None, "note": None}}},
          None)  # fmt: skip
    assert proposed(dd, "a.jsonl", "--debezium") == {"schema": {"id": "int64", "score": "float64", "note": "string"}}
    write({"op": "c", "after": {"id": 1, "note": None}})
    assert proposed(dd, "a.jsonl", "--debezium") == {"schema": {"id": "int64", "note": "string"}}
    row = {"id": 1, "name": "a"}
    pl.DataFrame({"op": ["c"], "before": [row], "after": [row], "ts_ms": [1]}).write_parquet("a.parquet")
    assert proposed(dd, "a.parquet", "--debezium") == {"schema": {"id": "int64", "name": "string"}}


def test_events_of_debezium_are_known_without_the_option(fresh: Path, dd: Command) -> None:
    row = {"id": 1, "name": "a"}
    pl.DataFrame({"op": ["c"], "before": [row], "after": [row]}).write_parquet("a.parquet")
    write({"payload": {"op": "c", "before": None, "after": row}}, {"payload": {"op": "d", "before": row}})
    for name in ("a.parquet", "a.jsonl"):
        for form in ((), ("--append",)):
            _, _, err = dd("ingest", "fresh_input", name, *form)
            assert err[1].endswith(
                'schema = { id = "int64", name = "string" }; as these are events of Debezium, say --debezium'
            ), err
    write({"op": "c", "id": 1})
    assert proposed(dd, "a.jsonl", "--append") == {"schema": {"op": "string", "id": "int64"}}


@pytest.mark.parametrize("name", ["value", "message"])
def test_events_as_text_in_a_column_are_looked_into(name: str, fresh: Path, dd: Command) -> None:
    texts = [json.dumps({"op": "c", "after": {"id": 1, "fee": fee}}) for fee in (1, 1.5)]
    pl.DataFrame({name: texts}).write_parquet("a.parquet")
    pl.DataFrame({name: texts}).write_csv("a.csv")
    for file in ("a.parquet", "a.csv"):
        assert proposed(dd, file, "--debezium") == {"schema": {"id": "int64", "fee": "float64"}}
    pl.DataFrame({name: ["{"]}).write_parquet("a.parquet")
    assert "which may be" not in dd("ingest", "fresh_input", "a.parquet", "--debezium")[2][1]


def test_the_column_of_operations_is_no_column_of_the_input(fresh: Path, dd: Command) -> None:
    write({"what": "I", "id": 1})
    assert proposed(dd, "a.jsonl", "--op", "what", "--key", "id") == {"schema": {"id": "int64"}}


def test_a_line_that_is_no_object_gives_no_schema(fresh: Path, dd: Command) -> None:
    Path("a.jsonl").write_text('{"id": 1}\n{"id"')
    _, _, err = dd("ingest", "fresh_input", "a.jsonl")
    assert re.search("add an .inputs.fresh_input. section with its schema$", err[1])
