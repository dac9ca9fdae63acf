"""Rooms: where modules are, and what they may import."""

from __future__ import annotations

import re
from pathlib import Path

import conftest
import pytest
import rooms

TOP = Path(__file__).parent.parent


@pytest.mark.long  # `make check` does it
def test_imports_go_downwards_and_in_no_circle() -> None:
    graph = rooms.imports(rooms.modules())
    assert len(graph) > 200
    assert rooms.upward(graph) == []
    assert rooms.circles(graph) == []


@pytest.mark.parametrize(
    ("source", "breach"),
    [
        ("from ddcore.engine.worker import Worker", "ddcore.engine is above ddcore.traces"),
        ("def f():\n    import ddcore.io.ledger.ledger", "ddcore.io.ledger is above ddcore.traces"),
        ("if TYPE_CHECKING:\n    from ddcore.jobs import report", "ddcore.jobs is above ddcore.traces"),
        ("import ddcore", "ddcore is above ddcore.traces"),
    ],
)
def test_an_import_of_a_room_above_is_a_breach(tmp_path: Path, source: str, breach: str) -> None:
    """At the top of a module, in a function, and for types alone."""
    known = rooms.modules()
    file = tmp_path / "spilling.py"
    file.write_text(source)
    graph = rooms.imports(known | {"ddcore.traces.spilling": file})
    assert [line.partition(": ")[2] for line in rooms.upward(graph)] == [breach]


def test_the_reference_shares_no_code_with_the_engine() -> None:
    """But errors, the rows that a program spells out, and what reads and names Polars' expressions."""
    graph = rooms.imports(rooms.modules())
    members = {name for name in graph if rooms.room(name) == "ddcore.reference"}
    assert len(members) > 10
    assert {other for name in members for other in graph[name]} - members == {
        "ddcore.base.errors", "ddcore.expressions.polars_json", "ddcore.expressions.syntax", "ddcore.expressions.texts",
        "ddcore.program.constants",
    }  # fmt: skip


def test_a_name_with_an_underscore_is_its_modules_own(tmp_path: Path) -> None:
    known = rooms.modules()
    assert rooms.private(known) == []
    file = tmp_path / "spilling.py"
    file.write_text("def f():\n    from ddcore.traces.trace import _Source, Trace\n")
    (line,) = rooms.private(known | {"ddcore.traces.spilling": file})
    assert line.startswith("ddcore.traces.spilling imports ddcore.traces.trace._Source: ")


def test_a_circle_is_named() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert rooms.circles(graph) == ["a imports b imports c imports a"]


def test_the_table_of_the_readme_has_every_room() -> None:
    text = (TOP / "README.md").read_text("utf-8")
    listed = {*re.findall(r"^\| `([a-z/]+)/` \|", text, flags=re.MULTILINE)}
    packages = {
        file.parent.relative_to(TOP).as_posix() for file in rooms.modules().values() if file.name == "__init__.py"
    }
    assert packages - listed == set()
    assert [name for name in sorted(listed) if not (TOP / name).is_dir()] == []


def test_lanes_name_files_that_exist() -> None:
    """A renamed file would fall into the lane ``unit`` in silence."""
    files = {file.stem for file in (TOP / "tests").glob("test_*.py")}
    assert (conftest.RECOVERY | conftest.DOCS) - files == set()
