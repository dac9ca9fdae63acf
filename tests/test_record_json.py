"""Records of the ledger as JSON: each kind, with all of its fields and with those alone that it must have."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from typing import Any

import pytest

from ddcore.io.delta.table_files import AddedFile, TableState
from ddcore.io.ledger import records
from ddcore.io.ledger.labels import Label
from ddcore.io.ledger.profiles import HeatRecord, LoopRecord, OperatorRecord, ProfileRecord
from ddcore.io.ledger.records import BrokenRecord, Source, from_json, to_json
from ddcore.io.ledger.summary import Input, Summary
from ddcore.io.ledger.workloads import Workload
from ddcore.io.project.times import Time

STATE = TableState(3, 2, 10, "beef")
COUNTS = {Time((4, 1)): (3, 2), Time((5, 0)): (0, 1)}
MOMENT = datetime(2026, 11, 26, 8, 30, tzinfo=UTC)
PROFILE = ProfileRecord(
    (OperatorRecord(1, "keyed", "join", reads=(2, 3), sent=5), OperatorRecord(2, "linear", "where")),
    (LoopRecord(1, 0, "reach", 100, prioritized=True),), HeatRecord(2, 1, ((0, -1, 7), (2, 0, 1))), 1.5,
)  # fmt: skip
VALUES: dict[str, Any] = {
    "int": 7, "str": "seven", "float": 0.25, "bool": True, "datetime": MOMENT, "Time": Time((4, 1)),
    "Time | None": Time((9,)), "Frontier": ((4, 1), (5, 0)), "Counts": COUNTS, "TableState": STATE,
    "TableState | None": STATE, "tuple[str, ...]": ("a", "b"), "tuple[str, ...] | None": (), "tuple[int, ...]": (1, 2),
    "tuple[Source, ...]": (Source("a.csv", "12:ff"), Source("t", "1:a", "9")),
    "Labels": ({4: Label("monday", MOMENT), 5: Label("tuesday")}, {0: Label("first")}), "Upstream": (6, "cafe"),
    "int | None": 0, "Mapping[str, int]": {"out": 3}, "Mapping[str, Input]": {"a": Input(Time((1,)), None, STATE)},
    "Mapping[str, Counts]": {"out": COUNTS}, "Mapping[str, TableState]": {"out": STATE},
    "Mapping[str, str]": {"out": "abc"}, "Mapping[str, tuple[int, ...]]": {"abc": (1, -(2**63))},
    "Mapping[str, tuple[AddedFile, ...]]": {"out": (AddedFile("f", 9, 2, "{}", {"day": "4"}),)},
    "Mapping[str, BrokenRecord]": {"none": BrokenRecord(Time((4, 1)), 2, 3)},
    "Mapping[str, Frontier]": {"out": ((4, 1), (5, 0))}, "ProfileRecord": PROFILE,
    "tuple[Workload, ...]": (Workload(1, 2, 3, 4, 0.5, 0.25, 0.125, 8),),
}  # fmt: skip


def made(kind: type[Any], *, whole: bool) -> Any:
    """A record with a value for each field, or for those without a default."""
    return kind(
        **{
            field.name: VALUES[str(field.type)]
            for field in fields(kind)
            if field.name not in records._WHEN_READ
            and (whole or (field.default is MISSING and field.default_factory is MISSING) or field.name == "at")
        }
    )


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("kind", records._KINDS)
def test_a_record_is_what_its_json_says(kind: str, whole: bool) -> None:
    record = made(records._KINDS[kind], whole=whole)
    text = json.dumps(to_json(record))
    assert from_json(kind, json.loads(text)) == record
    assert to_json(from_json(kind, json.loads(text))) == to_json(record), "written again, it is the same"


@pytest.mark.parametrize("kind", records._KINDS)
def test_only_what_is_not_as_by_default_is_written(kind: str) -> None:
    record = made(records._KINDS[kind], whole=False)
    needed = {field.name for field in fields(record) if field.default is field.default_factory is MISSING}
    assert {*to_json(record)} == needed | {"at"}
    whole = {*to_json(made(records._KINDS[kind], whole=True))}
    assert whole == {field.name for field in fields(record)} - {*records._WHEN_READ}


@pytest.mark.parametrize("whole", [False, True])
def test_a_summary_is_what_its_text_says(whole: bool) -> None:
    summary = made(Summary, whole=whole)
    assert Summary.from_json(summary.to_json()) == summary
    assert (summary.to_json() == "{}") is not whole


def test_a_field_that_nobody_knows_is_no_record() -> None:
    with pytest.raises(TypeError, match="colour"):
        from_json("undo", {**to_json(made(records.UndoRecord, whole=False)), "colour": "red"})
