"""Names from anywhere: of inputs, outputs, columns, programs, sources and warehouses.

Each is refused by one line before anything is written, or it works, and then no file is outside of the warehouse, no
statement about the ledger is another one, and no terminal obeys what is printed.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from seeds import nightly
from trams import Command

NAMES = [
    "..", ".", "", " ", "../up", "a/b", "/tmp/x", "a\\b", "..\\up",
    "a\0b", "a\nb", "a\rb", "a\tb", "\x1b[31mred\x1b[0m",
    "\x9b31m", "a\x07b", "'", '"', "a'b", 'a"b', "`",
    "a`; DROP TABLE x; --", "x' OR '1'='1", "%2e%2e", "%2e%2e%2fup", "a%41",
    "~", "~root", "$HOME", "$(id)", "-rf", "--help", "*", "?", "[a]",
    "{a,b}", "a b", "a,b", "a=b", "run=1", "a.b", "a:b",
    "_delta_log", "_staging", ".lock", ".hidden", "ledger", "state",
    "inputs", "outputs", "warehouse", "con", "NUL", "select",
    "version", "diff", "count", "null", "true", "Version", "DIFF",
    "_code", "\u202egnp", "a\u200bb", "\u0430", "é", "e\u0301",
    "^.*$", "^a$", "ﬁ", "名前", "🙂", "\ud800",
    "x" * 255, "x" * 256, "x" * 5000, "é" * 200, "__class__", "None", "def", "1", "1a", "\ufeff",
]  # fmt: skip
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

TOML = '[project]\nprogram = {program}\nwarehouse = {warehouse}\n[run]\nengine = "inline"\n' \
       '[inputs.{input}]\nschema = {{ {column} = "int64" }}\n'  # fmt: skip
PROGRAM = """import ddcore as dd

def program({input}):
    return {{{output!r}: {input}.select(**{{{column!r}: dd.col({source!r})}})}}
"""


def quoted(name: str) -> str:
    """A name as a TOML string, or as it is where no string can hold it."""
    return json.dumps(name.encode("utf-8", "replace").decode())


def write(folder: Path, **names: str) -> None:
    """A project with these names of ``program``, ``warehouse``, ``input``, ``column``, ``output`` and ``shown``."""
    plain = {"program": "program.py:program", "warehouse": "warehouse", "input": "t", "column": "a"} | names
    folder.mkdir()
    toml = {name: quoted(plain[name]) for name in ("program", "warehouse", "input", "column")}
    (folder / "dd.toml").write_text(TOML.format(**toml))
    given, column = plain["input"] if plain["input"].isidentifier() else "t", plain["column"]
    source = PROGRAM.format(
        input=given, output=names.get("output", "out"), column=names.get("shown", "b"), source=column
    )
    (folder / "program.py").write_text(source, errors="replace")
    header = '"' + column.replace('"', '""') + '"'
    (folder / "rows.csv").write_text(f"{header},version,diff\n1,0,1\n2,1,1\n", errors="replace")


def tree(folder: Path, *, without: Path) -> dict[str, int]:
    """All files below a folder but not below another one, with their sizes."""
    return {
        str(path): path.lstat().st_size
        for root, folders, files in os.walk(folder)
        for path in (Path(root, name) for name in files + folders)
        if not path.is_relative_to(without)
    }


def walk(folder: Path, dd: Command, output: str = "out", input: str = "t") -> list[int]:
    """The commands of a project, with a look at all that they print; their exit codes."""
    codes = []
    commands = [["ingest", input, "rows.csv"], ["run"], ["show", output], ["show", output, "--json"],
                ["diff", output, "0..1"], ["log"], ["log", "--json"], ["status"], ["status", "--json"], ["plan"],
                ["plan", "--format", "json"], ["verify"]]  # fmt: skip
    for command in commands:
        if command[0] in ("show", "diff"):
            options = [word for word in command[2:] if word.startswith("--")]
            rest = [word for word in command[2:] if word not in options]
            command = [command[0], *options, "--", output, *rest]  # noqa: PLW2901
        code, out, err = dd(*command)
        codes.append(code)
        assert code in (0, 1, 2), (command, code, err)
        text = "\n".join([*out, *err])
        assert not CONTROL.search(text), (command, text)
        assert "Traceback" not in text and "should not happen" not in text, (command, err)
        if code:
            assert len(err) == 2 and err[0].startswith("error: "), (command, err)
        elif "--json" in command:
            assert all(isinstance(json.loads(line), dict) for line in out)
    return codes


def check(tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch, **names: str) -> bool:
    """Whether a project with these names works; else it is refused before the warehouse has a run."""
    folder = tmp_path / "project"
    write(folder, **names)
    monkeypatch.chdir(folder)
    warehouse = folder / "warehouse"
    before = tree(tmp_path, without=warehouse)
    codes = walk(folder, dd, names.get("output", "out"), names.get("input", "t"))
    after = tree(tmp_path, without=warehouse)
    written = {path for path in after.keys() - before.keys() if "__pycache__" not in path}
    assert not written or "warehouse" in names, written
    works = codes[1] == 0
    if works:
        assert set(codes) == {0}, codes
        tables = {path.parent for path in warehouse.rglob("_delta_log")}
        assert all(table.resolve().is_relative_to(folder.resolve()) for table in tables)
    else:
        assert not (warehouse / "outputs").exists() and not (warehouse / "state").exists()
    return works


KINDS = ["output", "shown", "input", "column"]
SAMPLE = [
    "..",
    "a/b",
    "\x1b[31mred\x1b[0m",
    "*",
    "^.*$",
    " ",
    "a'b",
    "a`; DROP TABLE x; --",
    "%2e%2e",
    "ledger",
    "名前",
]


@pytest.mark.sample(1)
@pytest.mark.parametrize("what", nightly([*KINDS], 2))
def test_names_in_a_project(what: str, tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    works = []
    for number, name in enumerate(SAMPLE):
        (tmp_path / str(number)).mkdir()
        if check(tmp_path / str(number), dd, monkeypatch, **{what: name}):
            works.append(name)
    assert not {"\x1b[31mred\x1b[0m", "*" if what != "output" else ".."} & set(works)
    assert "ledger" in works


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(NAMES)))
@pytest.mark.parametrize("what", KINDS)
def test_every_name_in_a_project(
    what: str, number: int, tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(tmp_path, dd, monkeypatch, **{what: NAMES[number]})


@pytest.mark.parametrize("part", ["outputs/out", "inputs/t", "ledger", "."])
def test_links_in_a_warehouse_are_followed(
    part: str, tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write to the warehouse may move a table to another disk; no command follows a link to delete it."""
    folder = tmp_path / "project"
    write(folder)
    monkeypatch.chdir(folder)
    assert dd("ingest", "t", "rows.csv", "-q")[0] == 0
    assert dd("run", "--to-version", "0", "-q")[0] == 0
    location, elsewhere = folder / "warehouse" / part, tmp_path / "elsewhere"
    location.resolve().rename(elsewhere)
    (folder / "warehouse" / part).parent.joinpath(location.name).symlink_to(elsewhere)
    assert set(walk(folder, dd)) == {0}
    assert dd("run", "--full-refresh", "-q")[0] == 0
    assert location.is_symlink() and elsewhere.is_dir()
    assert dd("show", "out")[1][-2:] == ["1", "2"]
