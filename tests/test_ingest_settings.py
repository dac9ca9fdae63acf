"""The settings of an ingest: by the names of the command's options, as flags or as a table of dd.toml says them."""

from __future__ import annotations

import inspect
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from ingesting import Desk

from ddcore.base.errors import UsageError
from ddcore.cli.ingest import ingest as command
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.ingest_settings import FORMS, IngestSettings
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import ingest as job

OTHERS = {
    "input_name", "sources", "undo", "engine", "master", "skip_code", "as_json", "quiet", "project", "warehouse",
    "branch", "debug",
}  # fmt: skip
"""Parameters of the command that say nothing of sources and their rows."""

TABLE = """
op = "kind"
op_values = { insert = "A", delete = ["B", "C"] }
key = ["id", "day"]
order_by = ["ts"]
column = { id = "row.id", version = "at" }
label = ["2026-11-19"]
late = "move"
version = "next"
allow_gap = true
"""
FLAGS = {
    "op": "kind",
    "op_values": ["insert=A,delete=B", "delete=C"],
    "key": "id, day",
    "order_by": "ts",
    "column": ["id=row.id", "version=at"],
    "label": ["2026-11-19"],
    "late": "move",
    "version": "next",
    "allow_gap": True,
    "append": False,
    "format": None,
    "option": [],
}


def test_each_option_of_the_command_is_a_setting_by_its_name() -> None:
    options = {*inspect.signature(command).parameters} - OTHERS
    assert options == {*FORMS[1:], *(field.name for field in fields(IngestSettings))} - {"form"}


def test_flags_and_a_table_of_toml_say_the_same() -> None:
    by_table, by_flags = IngestSettings.of(tomllib.loads(TABLE)), IngestSettings.of(FLAGS)
    assert by_table == by_flags
    assert (by_flags.form, by_flags.op, by_flags.key, by_flags.order_by) == ("op", "kind", ("id", "day"), ("ts",))
    assert by_flags.column == {"id": "row.id", "version": "at"} and {*by_flags.op_values} == {"A", "B", "C"}
    assert (by_flags.late, by_flags.version, by_flags.allow_gap) == ("move", "next", True)
    by_flags.check("inline")
    assert IngestSettings.of({}) == IngestSettings() == IngestSettings.of({"append": False, "key": None, "label": []})
    assert IngestSettings.of({"diff": -1}).diff == -1


@pytest.mark.parametrize(
    ("options", "says", "hint"),
    [
        ({"appendd": True}, "appendd: ingest has no such option", "did you mean 'append'"),
        ({"form": "append"}, "form: ingest has no such option", "did you mean 'format'"),
        ({"snapshot": True, "append": True}, "--append and --snapshot: only one of them", "ddcore ingest --help"),
        ({"column": ["id"]}, "--column: 'id' is not OURS=THEIRS", "--column src=from_station"),
        ({"column": ["id=a", "id=b"]}, "--column: 'id' is named twice", "once"),
        ({"option": {"rowTag": ""}}, "--option: 'rowTag=' is not KEY=VALUE", "--option rowTag=row"),
        ({"op": "o", "op_values": ["other=A"]}, "--op-values: 'other=A' is not KIND=VALUE", "insert"),
        ({"key": "id"}, "--key: only for events", "--upsert"),
        ({"append": True, "order_by": ["ts"]}, "--order-by: only for events", "--upsert"),
        ({"upsert": True, "op_values": ["insert=A"]}, "--op-values without --op", "--op COLUMN"),
        ({"upsert": True, "diff": 1}, "--diff and --upsert: only one of them", "itself"),
        ({"late": "mov"}, "--late: 'mov' is none of refuse, move, restate", "did you mean 'move'"),
        ({"late": "move", "restate": "first"}, "--late move and --restate", "leave one of the two out"),
        ({"option": ["a=b"]}, "--option: only with --format", "--format NAME"),
        ({"format": "orc"}, "--format orc: only Spark reads it", "--engine spark"),
    ],
)
def test_what_cannot_be_is_refused_once(options: dict[str, Any], says: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        IngestSettings.of(options).check("inline")
    assert says in caught.value.message and hint in caught.value.hint


@pytest.mark.parametrize("form", ["snapshot", "upsert", "append"])
def test_what_another_command_took_in_before_the_lock_is_not_taken_in_again(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources are found before the lock is held, and again only if the ledger has changed until then."""
    desk = Desk(tmp_path)
    source = tmp_path / "a.csv"
    how: dict[str, Any] = {"key": ("src",)} if form == "upsert" else {}
    source.write_text("src,dst\n1,2\n")
    assert desk.ingest(str(source), form=form, **how).plus == 1

    def before(_: object) -> Ledger:
        return Ledger(Warehouse(desk.project.warehouse))

    monkeypatch.setattr(job, "found_ledger", before)
    again = desk.ingest(str(source), form=form, **how)
    assert (again.nothing_new, again.ingest) == (True, 1)
    assert desk.updates() == [(1, 2, 0, 1)]
