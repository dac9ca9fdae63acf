"""A schema that changes after an ingest: added columns are absorbed, anything else is refused with the way on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from ingesting import Desk
from warehouses import logs_of

from ddcore import reference
from ddcore.base.errors import DataError, StorageError
from ddcore.io.delta import column_types
from ddcore.io.logs.changed_columns import check_columns
from ddcore.io.project.program import load_program
from ddcore.jobs.replay import run
from ddcore.jobs.undo import undo
from ddcore.planning.planner import build

OLD = {"src": "int64", "dst": "int64"}
NEW = {"src": "int64", "note": "string", "dst": "int64", "tags": "list[int64]"}


def desk_with(folder: Path, schema: dict[str, str]) -> Desk:
    """The same project with another schema in dd.toml."""
    return Desk(folder, schema)


@pytest.fixture
def old(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path, OLD)
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1), (2, 3, 1, 1)))
    return desk


def columns(desk: Desk) -> list[str]:
    return [name for name, _ in column_types.columns(DeltaTable(str(desk.log.folder)))]


def test_narrow_types_are_names_of_the_wide_ones(old: Desk) -> None:
    """So this is no change of the schema, as docs/troubleshooting.md says; float64 would be one."""
    desk = desk_with(old.folder, {"src": "int32", "dst": "uint8"})
    desk.ingest(desk.source("b.parquet", (2**40, 3, 2, 1)))
    check_columns(desk.log)
    assert [row[0] for row in desk.updates()] == [1, 2, 2**40]
    with pytest.raises(StorageError, match="src has another type"):
        check_columns(desk_with(old.folder, {"src": "float32", "dst": "int64"}).log)


def test_added_columns_are_null_in_what_was_ingested_before(old: Desk) -> None:
    desk = desk_with(old.folder, NEW)
    assert desk.updates() == [(1, None, 2, None, 0, 1), (2, None, 3, None, 1, 1)], "a run needs no ingest first"
    check_columns(desk.log)
    before = DeltaTable(str(desk.log.folder)).protocol()
    desk.ingest(desk.source("b.parquet", (1, "x", 2, [7], 2, 1), (2, None, 3, None, 2, -1)))
    assert columns(desk) == ["src", "dst", "version", "diff", "note", "tags"]
    assert desk.updates() == [
        (1, None, 2, None, 0, 1), (2, None, 3, None, 1, 1), (1, "x", 2, [7], 2, 1), (2, None, 3, None, 2, -1)
    ]  # fmt: skip
    assert DeltaTable(str(desk.log.folder)).protocol().min_reader_version == before.min_reader_version
    others = pl.from_arrow(DeltaTable(str(desk.log.folder)).to_pyarrow_table())
    assert isinstance(others, pl.DataFrame) and others["note"].to_list().count(None) == 3
    undo(desk.project, 2)
    assert desk.updates() == [(1, None, 2, None, 0, 1), (2, None, 3, None, 1, 1)]


def test_sources_of_before_stay_known(old: Desk) -> None:
    """A scheduler ingests the whole folder again after the change."""
    grown = old.source("g.parquet", (5, 5, 0, 1))
    old.ingest(grown)
    desk, before = desk_with(old.folder, NEW), old.ledger.input_table("edges")
    report = desk.ingest(str(old.folder / "a.parquet"), grown)
    assert report.nothing_new and desk.ledger.input_table("edges") == before
    old.source("g.parquet", (5, 5, 0, 1), (6, 6, 1, 1))
    with pytest.raises(DataError, match=r"g\.parquet: the column 'note' is missing, which was added"):
        desk.ingest(grown)
    new = desk.source("b.parquet", (1, "x", 2, [7], 2, 1))
    report = desk.ingest(str(old.folder / "a.parquet"), new)
    assert report.rows == 1 and "left out, the same rows were ingested before" in report.notes[0]
    assert desk.ingest(new, str(old.folder / "a.parquet")).nothing_new


def test_a_source_that_had_the_column_all_along_is_known_without_it(old: Desk) -> None:
    wide = old.source("w.parquet", (5, 5, 0, 1), note=["x"])
    assert "columns left out: note" in old.ingest(wide).notes[0]
    desk = desk_with(old.folder, {**OLD, "note": "string"})
    assert desk.ingest(wide).nothing_new
    report = desk.ingest(wide, desk.source("c.parquet", (1, 2, None, 0, 1), (2, 3, None, 1, 1)), restate="first")
    assert report.removed == 3 and desk.updates() == [
        (1, 2, None, 0, 1), (5, 5, "x", 0, 1), (2, 3, None, 1, 1)
    ]  # fmt: skip


def test_a_source_without_an_added_column_is_refused(old: Desk) -> None:
    desk = desk_with(old.folder, NEW)
    with pytest.raises(DataError) as caught:
        desk.ingest(old.source("b.parquet", (3, 3, 2, 1)))
    assert "the column 'note' is missing" in caught.value.message and "--column note=COLUMN" in caught.value.hint
    assert columns(desk) == ["src", "dst", "version", "diff"], "a refused ingest changes nothing"
    undo(old.project, 1)
    old.ingest(old.source("c.parquet", (3, 3, 2, 1)))


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ({"src": "int64"}, "dst is in one of them only"),
        ({"src": "int64", "target": "int64"}, "dst is in one of them only"),
        ({"src": "int64", "dst": "string"}, "dst has another type"),
        ({"src": "int64", "dst": "list[int64]"}, "dst has another type"),
    ],
    ids=["dropped", "renamed", "retyped", "nested"],
)
def test_any_other_change_is_refused(old: Desk, schema: dict[str, str], what: str) -> None:
    desk, before = desk_with(old.folder, schema), old.updates()
    row: tuple[Any, ...] = tuple(1 if kind == "int64" else "x" if kind == "string" else [1] for kind in schema.values())
    source = desk.source("b.parquet", (*row, 2, 1))
    for refused in (lambda: check_columns(desk.log), lambda: desk.ingest(source), lambda: undo(desk.project, 1)):
        with pytest.raises(StorageError) as caught:
            refused()
        assert caught.value.message.endswith(what) and "restore the schema" in caught.value.hint
        assert "\n" not in caught.value.message
    assert old.updates() == before


def test_the_order_of_columns_may_change(old: Desk) -> None:
    desk = desk_with(old.folder, {"dst": "int64", "src": "int64"})
    assert desk.ingest(str(old.folder / "a.parquet")).nothing_new
    desk.ingest(desk.source("b.parquet", (9, 8, 2, 1)))
    assert old.updates()[-1] == (8, 9, 2, 1)


@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["after-columns", "after-table", "after-ingest"])
def test_killed_after_the_columns_were_added(old: Desk, point: str) -> None:
    desk = desk_with(old.folder, NEW)
    source = desk.source("b.parquet", (1, "x", 2, [7], 2, 1))
    command = [sys.executable, "-m", "ddcore.cli.main", "ingest", "edges", source, "--engine", "inline", "--project"]
    environment = {**os.environ, "DDCORE_FAILPOINT": point}
    done = subprocess.run([*command, str(desk.folder)], env=environment, capture_output=True, check=False)
    assert done.returncode == -9, done.stderr
    if point == "after-columns":
        reverted = desk_with(old.folder, OLD)
        reverted.ingest(reverted.source("c.parquet", (4, 4, 3, 1)))
        assert columns(reverted) == ["src", "dst", "version", "diff"]
        desk = desk_with(old.folder, NEW)
    assert desk.ingest(source).nothing_new is (point != "after-columns")
    assert (1, "x", 2, [7], 2, 1) in desk.updates()


def test_a_history_is_restated_across_the_change(old: Desk) -> None:
    desk = desk_with(old.folder, NEW)
    desk.ingest(desk.source("b.parquet", (2, "y", 3, [], 1, 1)), restate=1)
    assert desk.updates() == [(1, None, 2, None, 0, 1), (2, "y", 3, [], 1, 1)]
    undo(desk.project, 2)
    assert desk.updates() == [(1, None, 2, None, 0, 1), (2, None, 3, None, 1, 1)]
    desk.ingest(desk.source("c.parquet", (4, "z", 4, [1], 2, 1)))
    assert desk.updates()[-1] == (4, "z", 4, [1], 2, 1)


def test_a_run_over_a_changed_schema_keeps_the_law(old: Desk) -> None:
    """Without an ingest in between: what was stored reads as null."""
    (old.folder / "program.py").write_text("def program(edges):\n    return {'all': edges.select('src')}\n")
    run(old.project, engine="inline")
    desk = desk_with(old.folder, NEW)
    (desk.folder / "program.py").write_text(
        "def program(edges):\n    return {'all': edges.select('src'), 'notes': edges.select('note', 'tags')}\n"
    )
    run(desk.project, engine="inline", full_refresh=True)
    for updates in ([], [(1, "x", 2, [7], 2, 1), (2, None, 3, None, 2, -1)]):
        if updates:
            desk.ingest(desk.source("b.parquet", *updates))
            run(desk.project, engine="inline")
        program = load_program(desk.project)
        outputs = build(program, desk.project.inputs, desk.project.dims).outputs
        frame = desk.log.collect(desk.log.scan(desk.ledger.input_table("edges")))
        assert logs_of(desk.project, outputs) == reference.replay(program, ("version",), edges=frame)


def test_a_program_that_reads_an_added_column_goes_on(old: Desk) -> None:
    (old.folder / "program.py").write_text("def program(edges):\n    return {'all': edges.select('src')}\n")
    run(old.project, engine="inline")
    desk = desk_with(old.folder, NEW)
    (desk.folder / "program.py").write_text("def program(edges):\n    return {'all': edges.select('src', 'note')}\n")
    desk.ingest(desk.source("b.parquet", (1, "x", 2, [7], 2, 1)))
    run(desk.project, engine="inline")
    log = desk.ledger.table("outputs/all")
    assert log is not None
    frame = pl.from_arrow(DeltaTable(str(desk.project.warehouse / "outputs" / "all")).to_pyarrow_table())
    assert isinstance(frame, pl.DataFrame)
    assert sorted(frame.select("src", "note").rows(), key=repr) == [(1, "x"), (1, None), (2, None)]


USES_NO_NOTE = """
import ddcore as dd


def program(edges):
    reached = edges.select("src", "dst").join(edges.select(dst="src", then="dst"), on="dst")
    return {"pairs": reached, "degrees": edges.group_by("src").agg(n=dd.count(), largest=dd.max("dst"))}
"""


def test_an_added_column_that_nothing_uses_leaves_state_and_what_was_true_before(old: Desk, dd: Any) -> None:
    """The next run continues every arrangement; verify and explain answer for the versions of before."""
    (old.folder / "program.py").write_text(USES_NO_NOTE)
    run(old.project, engine="inline")
    before = old.ledger.current_run()
    desk = desk_with(old.folder, NEW)
    desk.ingest(desk.source("b.parquet", (1, "x", 2, [7], 2, 1), (2, None, 3, None, 2, -1)))
    where = ("--project", str(desk.folder))
    code, _, told = dd("run", "--engine", "inline", *where)
    assert code == 0 and len(told) == 1, told
    after = desk.ledger.current_run()
    assert before is not None and after is not None and after.base == before.run and not after.refresh
    assert before.arrangements and set(before.arrangements) == set(after.arrangements), "none is built anew"
    for version in ("0", "1", "2"):
        code, out, told = dd("verify", "--at", version, *where)
        assert code == 0 and [line.split()[0] for line in out] == ["holds", "holds"], (out, told)
    for version, n in (("1", 1), ("2", 2)):
        code, out, told = dd("explain", "degrees", "src=1", f"n={n}", "--at", version, *where)
        assert code == 0 and out[3] == f"row {{src: 1, n: {n}, largest: 2}} rests on {n} input row{'s'[: n > 1]}:", told
