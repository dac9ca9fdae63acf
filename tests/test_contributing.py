"""CONTRIBUTING.md: its files and names exist, and its operator and its command work as it says."""

from __future__ import annotations

import re
import sys
from datetime import date
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import folding
import polars as pl
import programs
import pytest
import registry
from choices import Choices
from notation import frame, log
from test_semantics import same
from trams import Command

from ddcore import reference
from ddcore.base import errors
from ddcore.base.errors import ProgramError
from ddcore.cli.main import COMMANDS
from ddcore.operators import aggregates
from ddcore.planning.planner import build
from ddcore.program.collection import Collection

TOP = Path(__file__).resolve().parent.parent
PAGE = (TOP / "CONTRIBUTING.md").read_text("utf-8")
CODE = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
OPERATOR, METHOD, NAIVE, WRITER, RULE, MEANING, COMMAND = CODE


def test_the_files_and_names_exist() -> None:
    files = {name for name in re.findall(r"`([\w./-]+/[\w.-]*|[A-Z]+\.md)`", PAGE)}
    assert {
        "ddcore/reference/collection.py",
        "cli/main.py",
        "io/sources/source.py",
        "tests/support/programs.py",
        "CHANGELOG.md",
    } <= files
    assert [name for name in sorted(files) if not (TOP / name).exists()] == []
    pairs = re.findall(r"`([\w/]+\.py)`'s ((?:`\w+`(?:, | and )?)+)", PAGE)
    named = [(file, name) for file, names in pairs for name in re.findall(r"\w+", names) if name != "and"]
    named += [(file, name) for name, file in re.findall(r"`(\w+)` (?:in|of) `([\w/]+\.py)`", PAGE)]
    assert len(named) > 12
    assert [(file, name) for file, name in named if not re.search(rf"\b{name}\b", (TOP / file).read_text())] == []


def test_it_is_linked() -> None:
    assert "(CONTRIBUTING.md)" in (TOP / "README.md").read_text()
    assert "(../CONTRIBUTING.md)" in (TOP / "docs" / "README.md").read_text()


def as_file(code: str, name: str) -> CodeType:
    """The code of a file in the package, so that an error has the line of the user; pyproject.toml names its folder."""
    code = "from __future__ import annotations\n" + code.replace("from __future__ import annotations\n", "")
    return compile(code, str(Path(errors.__file__).parent / "of_a_page" / name), "exec", dont_inherit=True)


@pytest.fixture
def at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator of the page, added as it says."""
    module = ModuleType("ddcore.operators.at_least")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where dataclasses look names up
    exec(as_file(OPERATOR, "operators/at_least.py"), vars(module))
    scope = {**vars(module), "Collection": Collection}
    exec(as_file(METHOD, "collection.py"), scope)
    naive = dict(vars(reference.collection))
    exec(as_file(NAIVE, "collection.py"), naive)
    monkeypatch.setattr(Collection, "at_least", scope["at_least"], raising=False)
    monkeypatch.setattr(reference.NaiveCollection, "at_least", naive["naive_at_least"], raising=False)


def words(text: str) -> Any:
    return frame("k", text)


@pytest.mark.usefixtures("at_least")
def test_the_operator_has_its_logs(fold: Any) -> None:
    """T03: neither update alone gives a row."""
    actual = fold(lambda words: {"out": words.at_least(2)}, words=words("k:+1@(1,0) k:+1@(0,1)"))
    same(actual["out"], log("k:+1@(1,1)"))


@pytest.mark.usefixtures("at_least")
def test_the_operator_goes_round_loops_and_is_in_the_registry(fold: Any) -> None:
    def program(words: Any) -> Any:
        return {"out": words.iterate(lambda w: w.concat(words).at_least(2).concat(words))}

    same(fold(program, words=words("a:+1,b:+2@0 a:+1@1 b:-1@2"))["out"], log("a:+2,b:+3@0 a:+1@1 b:-1@2"))
    assert "at_least" in registry.public()
    with pytest.raises(ProgramError, match=r"test_contributing\.py:\d+: at_least: times is 0"):
        build(lambda words: {"out": words.at_least(0)}, {"words": {"k": "string"}})


@pytest.mark.usefixtures("at_least")
def test_the_generator_writes_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "GENERATORS", dict(programs.GENERATORS))
    programs._pool.cache_clear()
    exec(as_file(WRITER, "programs.py"), dict(vars(programs)) | {"writes": programs.writes})
    try:
        drawn = next(
            case for seed in range(200) if ".at_least(" in (case := programs.drawn(Choices.of_seed(seed), seed)).source
        )
    finally:
        programs._pool.cache_clear()
    assert folding.whole(drawn.program, **drawn.frames) == folding.by_reference(drawn.program, **drawn.frames)


def test_the_aggregate_has_its_values(fold: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, meaning = dict(vars(aggregates)), dict(vars(reference.aggregates))
    exec(as_file(RULE, "aggregates.py"), rule)
    exec(as_file(MEANING, "aggregates.py"), meaning)
    monkeypatch.setitem(aggregates.AGGREGATES, "earliest", rule["EARLIEST"])
    monkeypatch.setitem(reference.MEANINGS, "earliest", meaning["EARLIEST"])
    days = frame("k n", "(a,3):+1@0 (a,2):+1@1 (a,2):-1@2").with_columns(d=pl.date(2026, 11, "n")).drop("n")
    days = days.select("k", "d", "version", "diff")
    actual = fold(lambda days: {"out": days.group_by("k").agg(first=rule["earliest"]("d"))}, days=days)["out"]
    second, third = (("a", date(2026, 11, day)) for day in (2, 3))
    same(actual, {(third, (0,)): 1, (third, (1,)): -1, (second, (1,)): 1, (second, (2,)): -1, (third, (2,)): 1})
    with pytest.raises(ProgramError, match=r"test_contributing\.py:\d+: "):
        build(lambda t: {"out": t.group_by().agg(first=rule["earliest"]("n"))}, {"t": {"n": "int64"}})


def test_the_command_runs(here: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("ddcore.cli.inputs")
    exec(as_file(COMMAND, "inputs.py"), vars(module))
    monkeypatch.setitem(sys.modules, "ddcore.cli.inputs", module)
    monkeypatch.setitem(COMMANDS, "inputs", ("List the inputs of the project.", COMMANDS["log"][1]))
    code, lines, err = dd("inputs")
    assert (code, err) == (0, [])
    assert lines == ["links: src string, dst string, minutes int64", "starts: stop string"]
    assert '"input":"starts"' in dd("inputs", "--json")[1][1].replace(" ", "")
