"""dd.toml: what it may say, what overrides it, and how each mistake is told."""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path

import pytest

from ddcore.base.errors import ProgramError, UsageError
from ddcore.cli.main import run_command
from ddcore.io.project.finding import find_project
from ddcore.io.project.program import load_program
from ddcore.io.project.project import OutputSettings

TOML = """
[project]
program = "program.py:program"
[inputs.edges]
schema = { src = "int64", dst = "decimal(10,2)" }
[inputs.roots]
schema = { node = "string" }
[outputs.dists]
key = ["node"]
"""
PROGRAM = "def program(edges, roots):\n    return {'dists': roots}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("DDCORE_")]:
        monkeypatch.delenv(name)
    (tmp_path / "dd.toml").write_text(TOML)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def refused(folder: Path, toml: str) -> UsageError:
    (folder / "dd.toml").write_text(toml)
    with pytest.raises(UsageError) as caught:
        find_project()
    assert "\n" not in caught.value.message
    assert "dd.toml" in caught.value.message
    return caught.value


def test_a_project(folder: Path) -> None:
    project = find_project()
    assert project.root == folder
    assert project.warehouse == folder / "warehouse"
    assert {
        name: {column: str(kind) for column, kind in schema.items()} for name, schema in project.inputs.items()
    } == {
        "edges": {"src": "int64", "dst": "decimal(10,2)"},
        "roots": {"node": "string"},
    }
    assert project.outputs == {"dists": OutputSettings(key=("node",))}
    assert (project.dims, project.engine, project.parallelism) == (("version",), "spark", None)
    assert (project.spark_master, project.spark_conf) == ("local[*]", {})
    assert project.program_file == folder / "program.py"


def test_found_from_below(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(folder / "a" / "b")
    assert find_project().root == folder


def test_a_named_folder_is_not_searched_from(folder: Path) -> None:
    (folder / "a").mkdir()
    assert find_project(folder).root == find_project(folder / "dd.toml").root == folder
    with pytest.raises(UsageError, match=r"--project: there is no dd\.toml in"):
        find_project(folder / "a")
    with pytest.raises(UsageError, match="is not a project folder"):
        find_project(folder / "gone")
    with pytest.raises(UsageError, match="DDCORE_PROJECT: "):
        find_project(env={"DDCORE_PROJECT": str(folder / "a")})


def test_nothing_upwards(folder: Path) -> None:
    (folder / "dd.toml").unlink()
    with pytest.raises(UsageError, match=r"no dd\.toml in .* or any folder above it") as caught:
        find_project()
    assert "ddcore init" in caught.value.hint


def test_flag_environment_file_default(folder: Path) -> None:
    assert find_project().origin["warehouse"] == "default"
    (folder / "dd.toml").write_text(TOML.replace("[inputs.edges]", 'warehouse = "w1"\n[inputs.edges]', 1))
    assert (find_project().warehouse, find_project().origin["warehouse"]) == (folder / "w1", "dd.toml")
    env = {"DDCORE_WAREHOUSE": "w2", "DDCORE_ENGINE": "inline", "DDCORE_PARALLELISM": "3", "DDCORE_MASTER": "local[1]"}
    project = find_project(env=env)
    assert (project.warehouse, project.engine, project.parallelism) == (folder / "w2", "inline", 3)
    assert (project.spark_master, project.origin["parallelism"]) == ("local[1]", "DDCORE_PARALLELISM")
    project = find_project(env=env, flags={"warehouse": "w3", "engine": None})
    assert (project.warehouse, project.origin["warehouse"]) == (folder / "w3", "flag")
    assert project.engine == "inline"


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"DDCORE_ENGINE": "spak"}, "DDCORE_ENGINE: unknown engine 'spak'"),
        ({"DDCORE_PARALLELISM": "0"}, "DDCORE_PARALLELISM: the parallelism is a number of workers from 1 up, not '0'"),
        ({"DDCORE_PARALLELISM": "two"}, "not 'two'"),
        ({"DDCORE_WAREHOUSE": "gs://bucket/w"}, "DDCORE_WAREHOUSE: gs://bucket/w: gs:// is not supported"),
    ],
)
def test_wrong_environment(folder: Path, env: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_project(env=env)
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("old", "new", "says", "hint"),
    [
        ("[project]", "[projct]", "[projct]: unknown section", "did you mean 'project'?"),
        ("program =", "programm =", "[project] programm: unknown key", "did you mean 'program'?"),
        ('"program.py:program"', '"program.py"', "[project] program: must be FILE.py:FUNCTION", ""),
        ('"program.py:program"', "3", "[project] program: must be text, not 3", ""),
        ('program = "program.py:program"', "", "[project] program: is missing", "program.py:program"),
        ("[inputs.edges]", "[inputs.ed-ges]", "[inputs] 'ed-ges': a name has letters", ""),
        ("[inputs.edges]", '[inputs."../../etc"]', "[inputs] '../../etc': a name has letters", ""),
        ("[outputs.dists]", '[outputs."a/b"]', "[outputs] 'a/b': a name has letters", ""),
        ("[inputs.roots]", "[inputs.Edges]", "differs from 'edges' only by upper and lower case", ""),
        ("schema = { node", "shema = { node", "[inputs.roots] shema: unknown key", "did you mean 'schema'?"),
        ('{ node = "string" }', "{}", "[inputs.roots] schema: must be { column = type }", "src ="),
        ('node = "string"', 'node = "strin"', "[inputs.roots] schema.node: ", ""),
        ('node = "string"', "node = 7", "[inputs.roots] schema.node: ", ""),
        ('node = "string"', 'version = "int64"', "[inputs.roots] schema.version: this name is reserved", ""),
        ('node = "string"', 'diff = "int64"', "[inputs.roots] schema.diff: this name is reserved", ""),
        ('node = "string"', 'Version = "int64"', "[inputs.roots] schema.Version: this name is reserved", ""),
        ('node = "string"', '_code = "int64"', "[inputs.roots] schema._code: this name is reserved", ""),
        ('node = "string"', '"a b" = "int64"', "[inputs.roots] schema.a b: a column's name has none of", ""),
        ('node = "string"', 'a = "int64", A = "int64"', "only by upper and lower case", ""),
        ('key = ["node"]', 'key = "node"', "[outputs.dists] key: must be a list of names", ""),
        ('key = ["node"]', 'key = ["a", "a"]', "[outputs.dists] key: names something twice", ""),
        ('key = ["node"]', "keys = []", "[outputs.dists] keys: unknown key", "did you mean 'key'?"),
        ("[outputs.dists]", "[time]\ndims = []\n[outputs.dists]", "[time] dims: is empty", ""),
        ("[outputs.dists]", '[time]\ndims = ["diff"]\n[outputs.dists]', "'diff' cannot name a time dimension", ""),
        ("[outputs.dists]", '[time]\ndim = ["v"]\n[outputs.dists]', "[time] dim: unknown key", "did you mean 'dims'?"),
        ("[outputs.dists]", '[run]\nengine = "flink"\n[outputs.dists]', "unknown engine 'flink'", "spark, inline"),
        ("[outputs.dists]", "[run]\nparallelism = true\n[outputs.dists]", "the parallelism is a number", ""),
        ("[outputs.dists]", "[spark]\nconf = 3\n[outputs.dists]", "[spark] conf: must be", ""),
        ("[outputs.dists]", "[spark]\nconf = { a = { b = 3 } }\n[outputs.dists]", "conf.a: must be text", "dots"),
        ("[project]", "[project", "not valid TOML: ", ""),
    ],
)
def test_wrong_file(folder: Path, old: str, new: str, says: str, hint: str) -> None:
    assert old in TOML
    error = refused(folder, TOML.replace(old, new, 1))
    assert says in error.message
    assert hint in error.hint


HUGE = "9" * 5000


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[project]", "[project]\ndeep = " + "[" * 2000 + "]" * 2000, "nested too deeply"),
        ("[project]", "[project]\ndeep = " + "{a = " * 2000 + "1" + "}" * 2000, "nested too deeply"),
        ("[project]", f"[project]\nlong = {HUGE}", "cannot be read: Exceeds the limit"),
        ("[outputs.dists]", f"[run]\nparallelism = 0x{HUGE}\n[outputs.dists]", "not a very large int"),
        (
            "[outputs.dists]",
            "[run]\nparallelism = 99999999999\n[outputs.dists]",
            "the parallelism is a number of workers",
        ),
        ("[outputs.dists]", f"[spark]\nconf = {{ a = 0x{HUGE} }}\n[outputs.dists]", "conf.a: is a number of more than"),
        ('"program.py:program"', f"0x{HUGE}", "must be text, not a very large int"),
        ('"program.py:program"', f'"{"x" * 100_000}"', "FILE.sql, FOLDER/*.sql or dbt, not 'xxx"),
        ('"program.py:program"', '"a\\u0000.py:program"', "has a NUL character"),
        ("[inputs.edges]", 'warehouse = "~nosuchuser/w"\n[inputs.edges]', "there is no such user"),
        ("[inputs.edges]", 'warehouse = " "\n[inputs.edges]', "names no folder"),
    ],
)
def test_values_beyond_all_bounds_are_one_line(folder: Path, old: str, new: str, says: str) -> None:
    assert old in TOML
    error = refused(folder, TOML.replace(old, new, 1))
    assert says in error.message and len(error.message) < 400 and "\n" not in error.message


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"warehouse": ""}, "--warehouse: the value is empty"),
        ({"warehouse": "a\0b"}, "--warehouse: 'a\\x00b' has a NUL character"),
        ({"warehouse": "~nosuchuser"}, "--warehouse: '~nosuchuser': there is no such user"),
        ({"parallelism": "9" * 5000}, "the parallelism is a number of workers"),
    ],
)
def test_flags_that_name_nothing_are_one_line(folder: Path, flags: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_project(folder, {}, flags)
    assert says in caught.value.message and len(caught.value.message) < 400


@pytest.mark.parametrize("location", ["a\0b", "~nosuchuser"])
def test_a_project_folder_that_cannot_be_is_one_line(folder: Path, location: str) -> None:
    for named in ({"start": Path(location), "env": {}}, {"env": {"DDCORE_PROJECT": location}}):
        with pytest.raises(UsageError, match=r"NUL|no such user"):
            find_project(**named)


def test_a_warehouse_may_be_a_url_of_a_file(folder: Path) -> None:
    assert find_project(folder, {}, {"warehouse": "file:///a%20b/w"}).warehouse == Path("/a b/w")


def test_a_section_that_is_none(folder: Path) -> None:
    assert "project must be a section [project], not 3" in refused(folder, "project = 3").message


def test_spark_settings_become_text(folder: Path) -> None:
    settings = '[spark]\nmaster = "local[2]"\nconf = { "a.b" = "4g", n = 3, t = true }\n'
    (folder / "dd.toml").write_text(TOML + settings)
    project = find_project()
    assert (project.spark_master, project.spark_conf) == ("local[2]", {"a.b": "4g", "n": "3", "t": "true"})


def test_several_time_dimensions(folder: Path) -> None:
    (folder / "dd.toml").write_text(TOML + '[time]\ndims = ["day", "revision"]\n')
    assert find_project().dims == ("day", "revision")


def test_unknown_input(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"no input 'edgs' in dd\.toml; there are: edges, roots") as caught:
        find_project().input_schema("edgs")
    assert caught.value.hint == "did you mean 'edges'?"


# --- the program ------------------------------------------------------------------------------------------------------


def test_load_program(folder: Path) -> None:
    program = load_program(find_project())
    assert program.__name__ == "program"
    assert "program" not in sys.modules


def test_load_program_sees_the_newest_text(folder: Path) -> None:
    (folder / "program.py").write_text("def program(edges, roots):\n    return 1\n")
    assert load_program(find_project())(1, 2) == 1
    (folder / "program.py").write_text("def program(edges, roots):\n    return 2\n")
    assert load_program(find_project())(1, 2) == 2


def test_load_program_imports_its_neighbours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (folder / "neighbour_of_program.py").write_text("VALUE = 5\n")
    (folder / "program.py").write_text(
        "from neighbour_of_program import VALUE\ndef program(edges, roots):\n    return VALUE\n"
    )
    assert load_program(find_project())(1, 2) == 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def program(edges, roots:\n    pass\n", "program.py:1: the program does not import: SyntaxError: "),
        ("x = 1\nimport no_such_module\n", "program.py:2: the program does not import: ModuleNotFoundError: No module"),
        ("def f():\n    return {}['a']\nf()\n", "program.py:2: the program does not import: KeyError: 'a'"),
        ("raise SystemExit(3)\n", "program.py:1: the program does not import: SystemExit: 3"),
        ("def program(edges):\n    pass\n", "[inputs] has roots, which it has no parameter for"),
        (
            "def program(edges, root):\n    pass\n",
            "it has the parameters root, which [inputs] of dd.toml lacks; [inputs] has roots",
        ),
        ("def program(*inputs):\n    pass\n", "the parameter *inputs is not an input"),
    ],
)
def test_wrong_program(folder: Path, text: str, says: str) -> None:
    (folder / "program.py").write_text(text)
    with pytest.raises(ProgramError) as caught:
        load_program(find_project())
    assert says in caught.value.message
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("text", "names"), [("def progam(edges, roots):\n    pass\n", "progam"), ("program = 3\n", "none")]
)
def test_a_function_that_the_program_does_not_have(folder: Path, text: str, names: str) -> None:
    """As a file that is not there: dd.toml names it."""
    (folder / "program.py").write_text(text)
    with pytest.raises(UsageError) as caught:
        load_program(find_project())
    assert caught.value.message == f"program.py has no function 'program'; it has: {names}"
    assert caught.value.exit_code == 2


def test_a_wrong_neighbour_is_named_with_its_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (folder / "broken_neighbour.py").write_text("\n\nx = = 1\n")
    (folder / "program.py").write_text("import broken_neighbour\n")
    with pytest.raises(ProgramError, match=r"broken_neighbour\.py:3: the program does not import: SyntaxError"):
        load_program(find_project())


def test_what_the_program_raises_is_told_with_its_place(folder: Path) -> None:
    (folder / "program.py").write_text("def program(edges, roots):\n    x = 1\n    return x / 0\n")
    program = load_program(find_project())
    assert list(inspect.signature(program).parameters) == ["edges", "roots"]
    with pytest.raises(ProgramError, match=r"program\.py:3: the program fails: ZeroDivisionError: division by zero"):
        program(1, 2)


def test_close_matches_are_offered(folder: Path) -> None:
    (folder / "program.py").write_text("def progam(edges, roots):\n    pass\n")
    with pytest.raises(UsageError) as caught:
        load_program(find_project())
    assert caught.value.hint == "did you mean 'progam'?"
    (folder / "program.py").rename(folder / "programm.py")
    with pytest.raises(UsageError, match=r"there is no file program\.py") as missing:
        load_program(find_project())
    assert missing.value.hint == "did you mean 'programm.py'?"


# --- what no file and no number can be --------------------------------------------------------------------------------

NO_USER = "~no_such_user_anywhere"


def cut_short(text: str) -> str:
    return text if len(text) < 200 else text[:100]


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("x = " + "[" * 2000 + "]" * 2000, "dd.toml: nested too deeply"),
        ("x = " + "{a = " * 2000 + "1" + "}" * 2000, "dd.toml: nested too deeply"),
        (TOML + "[run]\nparallelism = " + "9" * 5000, "dd.toml: cannot be read: Exceeds the limit"),
        (TOML.replace("[inputs.edges]", 'warehouse = "a\\u0000b"\n[inputs.edges]', 1), "has a NUL character"),
        (TOML.replace("program.py", "pro\\u0000gram.py"), "has a NUL character"),
        (TOML.replace("[inputs.edges]", f'warehouse = "{NO_USER}/w"\n[inputs.edges]', 1), "there is no such user"),
        (TOML.replace("[inputs.edges]", 'warehouse = "a\\\\b"\n[inputs.edges]', 1), "cannot open tables below"),
        (TOML.replace("[inputs.edges]", 'warehouse = "a%20b"\n[inputs.edges]', 1), "cannot open tables below"),
    ],
    ids=cut_short,
)
@pytest.mark.parametrize("command", [["status"], ["run"], ["show", "dists"], ["log"]], ids=str)
def test_a_file_that_python_itself_refuses(
    toml: str, says: str, command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "dd.toml").write_text(toml)
    assert run_command(command) == 2
    lines = capsys.readouterr().err.splitlines()
    assert says in lines[0]
    assert len(lines) == 2
    assert sorted(path.name for path in folder.iterdir()) == ["dd.toml", "program.py"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["status", "--warehouse", "a\0b"], "error: --warehouse: 'a\\x00b' has a NUL character"),
        (["status", "--project", "a\0b"], "error: --project: 'a\\x00b' has a NUL character"),
        (["status", "--warehouse", f"{NO_USER}/w"], f"error: --warehouse: '{NO_USER}/w': there is no such user"),
        (["status", "--project", NO_USER], f"error: --project: '{NO_USER}': there is no such user"),
        (["run", "--parallelism", "9" * 5000], "error: invalid value for '--parallelism': '999"),
        (["show", "dists", "--limit", "9" * 5000], "error: invalid value for '--limit': '999"),
        (["log", "--limit", "-1"], "error: invalid value for '--limit': '-1' is not a whole number from 0 up"),
    ],
    ids=cut_short,
)
def test_options_that_no_file_and_no_number_can_be(
    arguments: list[str], says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith(says)
    assert len(err.splitlines()) == 2
    assert len(err) < 3000


def test_a_parallelism_of_thousands_of_digits_in_the_environment(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDCORE_PARALLELISM", "9" * 5000)
    assert run_command(["status"]) == 2
    err = capsys.readouterr().err
    assert (
        err.startswith("error: DDCORE_PARALLELISM: the parallelism is a number of workers from 1 up, not '999")
        and len(err) < 300
    )
