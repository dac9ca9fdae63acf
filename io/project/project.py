"""A project: the settings of ``dd.toml``, of the environment and of the flags.

A setting comes from a flag, else from an environment variable ``DDCORE_...``, else from ``dd.toml``, else from the
default; ``Project.origin`` says which. Every mistake in the file is a :class:`UsageError` that names the file, the key
and, where there is one, the closest valid name.

This module reads no table, runs no program and starts no process.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ddcore.base.errors import DdError, ProgramError, UsageError
from ddcore.base.schema import Schema, Type, check_pattern, parse_type
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.io.project.declared import DeclaredSource, declared_source
from ddcore.io.project.output_tables import TableSettings, output_table
from ddcore.io.project.section import Section, quoted
from ddcore.io.project.sql_inputs import add_declared_inputs, files_of
from ddcore.io.storage.address import Place, address_of, is_url
from ddcore.io.storage.foreign_files import kind_of
from ddcore.io.storage.store import UNREADABLE
from ddcore.program import data_tests
from ddcore.program.data_tests import DataTest
from ddcore.sql.dialect_names import DIALECTS
from ddcore.text.redaction import keep_secret
from ddcore.text.sizes import memory_size
from ddcore.text.wording import listed, meant, one_line, shown

__all__ = ["ENGINES", "FILE_NAME", "OutputSettings", "Project", "Retention", "find_project"]

FILE_NAME = "dd.toml"
IN_PYTHON = "dd.open"  # what names a project in Python; elsewhere an option or a variable does
ENGINES = ("spark", "inline")

# The keys of each section. [inputs], [outputs] and [tests] have one table per name.
_SECTIONS: dict[str, tuple[str, ...]] = {
    "project": ("program", "warehouse", "dialect"),
    "time": ("dims",),
    "inputs": (),
    "outputs": (),
    "tests": (),
    "run": ("engine", "parallelism", "memory", "verify_every"),
    "spark": ("master", "conf"),
    "compaction": ("auto",),
    "retention": ("versions", "days", "history"),
}
# Settings that flags and the environment may override: name -> environment variable.
_ENVIRONMENT = {
    "warehouse": "DDCORE_WAREHOUSE",
    "engine": "DDCORE_ENGINE",
    "parallelism": "DDCORE_PARALLELISM",
    "memory": "DDCORE_MEMORY",
    "verify_every": "DDCORE_VERIFY_EVERY",
    "spark_master": "DDCORE_MASTER",
}
_REMOTE = "SPARK_REMOTE"  # PySpark's own variable, for an address of Spark Connect
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIGITS = re.compile(r"[0-9]{1,10}")
_PROGRAM = re.compile(r"(?P<file>.+\.py):(?P<function>[A-Za-z_][A-Za-z0-9_]*)|.+\.sql")
# Delta on protocol (1,2) takes none of these in a column name.
NOT_IN_COLUMNS = set(" ,;{}()\n\t=`.\0")
_LEAST_OF_ENVIRONMENT = 8  # characters of a secret there: many other programs' switches are called TOKEN or KEY
_MOST_WORKERS = 2**31 - 1
_OF_TESTS = ("severity", "from_version")
_KINDS_OF_TESTS = {"empty": ("empty", "where"), "unique": ("unique", "of", "where"), "agree": ("agree", "by")}
_LONGEST_RETENTION = 2**40


@dataclass(frozen=True)
class OutputSettings:
    """The settings in ``[outputs.NAME]``: ``key`` names the columns by which ``diff`` pairs a delete with an insert;
    ``table`` says where its present contents are published.
    """

    key: tuple[str, ...] = ()
    table: TableSettings | None = None


@dataclass(frozen=True)
class Retention:
    """What ``[compaction]`` and ``[retention]`` say: whether runs compact by themselves; from how many versions back a
    run can be continued (None: from the runs of a week); for how many days files of inputs and outputs stay after they
    were replaced; how many versions of history can be read (None: all).
    """

    auto: bool = True
    versions: int | None = None
    days: float = 7
    history: int | None = None


@dataclass(frozen=True)
class Project:
    """One project, every setting resolved. Paths are absolute.

    ``keys``: for inputs that have a key, the columns in which no two rows may be equal. ``ignored``: columns of sources
    that are left out on purpose, by input. ``tests``: those of the file;
    a program may have more. ``dialect``: that of a program of SQL.
    ``memory``: the bytes that each process that folds should stay below; None for no limit. ``verify_every``: a run
    verifies the versions it divides; 0 for none.

    ``tuning``: what no setting changes; tests give others.

    ``origin`` maps a setting's name to where its value came from: ``"flag"``, the name of an environment variable,
    ``"dd.toml"`` or ``"default"``.
    """

    root: Path
    program: str
    warehouse: Place
    dims: tuple[str, ...] = ("version",)
    inputs: Mapping[str, Schema] = field(default_factory=dict)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignored: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sources: Mapping[str, DeclaredSource] = field(default_factory=dict)
    outputs: Mapping[str, OutputSettings] = field(default_factory=dict)
    tests: tuple[DataTest, ...] = ()
    dialect: str = DIALECTS[0]
    engine: str = "spark"
    parallelism: int | None = None
    memory: int | None = None
    verify_every: int = 0
    spark_master: str = field(default="local[*]", repr=False)
    spark_conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    retention: Retention = Retention()
    origin: Mapping[str, str] = field(default_factory=dict)
    tuning: Tuning = field(default=DEFAULT, repr=False)

    @property
    def file(self) -> Path:
        """The project's ``dd.toml``."""
        return self.root / FILE_NAME

    @property
    def program_file(self) -> Path:
        """The file part of ``program``."""
        return self.root / (self.program if self.is_sql else self.program.rpartition(":")[0])

    @property
    def program_files(self) -> tuple[Path, ...]:
        """``program_file``, or the files that it stands for: ``views/*.sql``."""
        return files_of(self.root, self.program) if self.is_sql else (self.program_file,)

    @property
    def is_sql(self) -> bool:
        """Whether the program is SQL, which has no function."""
        return self.program.endswith(".sql")

    @property
    def program_function(self) -> str:
        """The function part of ``program``."""
        return self.program.rpartition(":")[2]

    def input_schema(self, name: str) -> Schema:
        """The schema of input ``name``. UsageError, with the names of all inputs, for an unknown one."""
        if name not in self.inputs:
            raise UsageError(
                f"no input {name!r} in {shown(self.file)}; there are: {listed(self.inputs)}",
                meant(name, self.inputs) or f"add an [inputs.{name}] section with its schema",
            )
        return self.inputs[name]


def find_project(
    start: Path | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, str | int | None] | None = None,
    origin: str = "--project",
) -> Project:
    """The project of ``start``, which ``origin`` named, else of ``DDCORE_PROJECT``, else of the nearest folder upwards.

    A named folder must contain ``dd.toml`` itself. Only the search from the working folder goes upwards, so that a
    misspelt ``--project`` in a crontab never folds another project. ``flags`` are settings by name; None is unset.
    """
    env = os.environ if env is None else env
    if start is not None:
        file = _named_file(_path(str(start), origin), origin)
    elif env.get("DDCORE_PROJECT"):
        file = _named_file(_path(env["DDCORE_PROJECT"], "DDCORE_PROJECT"), "DDCORE_PROJECT")
    else:
        file = _nearest_file(Path.cwd(), origin)
    return _read(file, env, flags or {})


def _named_file(place: Path, setting: str) -> Path:
    file = place if place.name == FILE_NAME else place / FILE_NAME
    if not file.is_file():
        if kind := kind_of(file):
            raise _no_file(file, kind)
        what = f"there is no {FILE_NAME} in {place}" if place.is_dir() else f"{place} is not a project folder"
        raise UsageError(f"{setting}: {what}", _other_place(place, setting))
    return file.resolve()


def _other_place(place: Path, setting: str) -> str:
    """What to do where a named place is no project: a place below a project is mostly meant to be the project."""
    written = [parent for parent in place.parents if parent != Path()]
    around = place.absolute().parents if os.path.lexists(place) else ()
    if above := next((each for each in (*written, *around) if (each / FILE_NAME).is_file()), None):
        return f"did you mean {_spelled(above, setting)}?"
    if os.path.lexists(place) and not place.is_dir():
        return f"name the folder of a project, in which there is a {FILE_NAME}"
    return f"make one with: ddcore init {shlex.quote(str(place))}"


def _spelled(folder: Path, setting: str) -> str:
    """How a folder is named there: as an argument, an option or a variable."""
    if setting == IN_PYTHON:
        return f"{setting}({json.dumps(str(folder), ensure_ascii=False)})"
    return f"{setting}{'=' if setting == 'DDCORE_PROJECT' else ' '}{shlex.quote(str(folder))}"


def _no_file(file: Path, kind: str) -> UsageError:
    return UsageError(f"{shown(file)}: {kind}, and not a file", "put the project's file there, or name another project")


def _nearest_file(folder: Path, origin: str) -> Path:
    for place in (folder, *folder.parents):
        if (place / FILE_NAME).is_file():
            return (place / FILE_NAME).resolve()
        if kind := kind_of(place / FILE_NAME):
            raise _no_file(place / FILE_NAME, kind)
    raise UsageError(
        f"no {FILE_NAME} in {folder} or any folder above it",
        'name its folder: dd.open("demo"); or make one, in a shell: ddcore init demo'
        if origin == IN_PYTHON
        else "go to a project, name one with --project DIR, or make one with: ddcore init DIR",
    )


# --- reading the file -------------------------------------------------------------------------------------------------


def _read(file: Path, env: Mapping[str, str], flags: Mapping[str, str | int | None]) -> Project:
    text = _text(file)
    sections = _sections(file, _parse(file, text))
    keep_secret((name, value) for name, value in env.items() if len(value) >= _LEAST_OF_ENVIRONMENT)
    keep_secret(sections["spark"].table)
    dims = _dims(sections["time"])
    settings, origin = _settings(file, sections, env, flags)
    _, *parameters = str(settings["spark_master"]).split(";")  # of a Spark Connect server, such as its token
    keep_secret((name, value) for name, _, value in (parameter.partition("=") for parameter in parameters))
    program = sections["project"].text("program")
    if program is None:
        raise sections["project"].wrong("program", "is missing", 'say program = "program.py:program"')
    if not _PROGRAM.fullmatch(program):
        raise sections["project"].wrong(
            "program", f"must be FILE.py:FUNCTION, FILE.sql or FOLDER/*.sql, not {quoted(program)}"
        )
    dialect = _dialect(sections["project"], program)
    if program.endswith(".sql"):
        add_declared_inputs(sections["inputs"].table, files_of(file.parent, program), dialect)
    return Project(
        root=file.parent,
        program=program,
        dialect=dialect,
        dims=dims,
        inputs=_inputs(sections["inputs"], dims),
        keys=_keys(sections["inputs"]),
        ignored=_ignored(sections["inputs"]),
        sources=_sources(sections["inputs"]),
        outputs=_outputs(sections["outputs"]),
        tests=_tests(sections["tests"], dims, text),
        spark_conf=_spark_conf(sections["spark"]),
        retention=_retention(sections["compaction"], sections["retention"]),
        origin={"program": FILE_NAME, **origin},
        **settings,
    )


def _dialect(section: Section, program: str) -> str:
    """The dialect of a program of SQL, which names are those of ``ddcore.sql``."""
    dialect = section.text("dialect")
    if dialect is None:
        return DIALECTS[0]
    if dialect not in DIALECTS:
        raise section.wrong(
            "dialect", f"unknown dialect {quoted(dialect)}", meant(dialect, DIALECTS) or f"one of: {listed(DIALECTS)}"
        )
    if not program.endswith(".sql"):
        raise section.wrong("dialect", "is that of a program of SQL", f"this program is {program}: leave dialect out")
    return dialect


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{shown(file)}: cannot be read: {one_line(error)}", "save the file as text in UTF-8"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{shown(file)}: cannot be read: {error.strerror}", UNREADABLE.get(error.errno or 0, "")
        ) from None


def _parse(file: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{shown(file)}: not valid TOML: {one_line(error)}", "see: https://toml.io") from None
    except RecursionError:
        raise UsageError(
            f"{shown(file)}: nested too deeply", "tables nest at most three levels: [spark] conf.NAME"
        ) from None
    except ValueError as error:  # a number of more digits than Python reads
        raise UsageError(f"{shown(file)}: cannot be read: {one_line(error)}", "look for a very long number") from None


def _sections(file: Path, tables: dict[str, Any]) -> dict[str, Section]:
    for name in tables:
        if name not in _SECTIONS:
            raise UsageError(
                f"{shown(file)}: [{name}]: unknown section",
                meant(name, _SECTIONS) or f"the sections are: {listed(_SECTIONS)}",
            )
    sections = {name: Section(file, name, tables.get(name, {})) for name in _SECTIONS}
    for name, keys in _SECTIONS.items():
        if keys:
            sections[name].only(keys)
    return sections


def _dims(section: Section) -> tuple[str, ...]:
    dims = section.names("dims")
    if dims is None:
        return ("version",)
    if not dims:
        raise section.wrong("dims", "is empty", 'say dims = ["version"]')
    for dim in dims:
        if not _IDENTIFIER.fullmatch(dim) or dim == "diff" or dim.startswith("_"):
            raise section.wrong(
                "dims", f"{dim!r} cannot name a time dimension", "use letters, digits and _; not 'diff'"
            )
    return dims


def _inputs(section: Section, dims: tuple[str, ...]) -> dict[str, Schema]:
    inputs: dict[str, Schema] = {}
    for name, table in section.table.items():
        _check_name(section, name)
        one = Section(section.file, f"inputs.{name}", table)
        one.only(("schema", "key", "ignore", "source"))
        inputs[name] = _schema(one, dims)
    _check_case(section, inputs)
    return inputs


def _ignored(section: Section) -> dict[str, tuple[str, ...]]:
    """The columns of sources that inputs leave out on purpose."""
    named = {
        name: Section(section.file, f"inputs.{name}", table).names("ignore") for name, table in section.table.items()
    }
    return {name: columns for name, columns in named.items() if columns}


def _sources(section: Section) -> dict[str, DeclaredSource]:
    declared = {
        name: declared_source(Section(section.file, f"inputs.{name}", table), section.file.parent)
        for name, table in section.table.items()
    }
    return {name: source for name, source in declared.items() if source is not None}


def _keys(section: Section) -> dict[str, tuple[str, ...]]:
    """The keys of the inputs that have one, whose schemas are checked."""
    keys: dict[str, tuple[str, ...]] = {}
    for name, table in section.table.items():
        one = Section(section.file, f"inputs.{name}", table)
        key = one.names("key")
        if key is None:
            continue
        if not key:
            raise one.wrong("key", "names no column", "leave it out where rows may have anything in common")
        for column in key:
            if column not in table["schema"]:
                raise one.wrong("key", f"there is no column {column!r}", meant(column, table["schema"]))
            if parse_type(table["schema"][column]).is_nested:
                raise one.wrong("key", f"the column {column!r} is a list or struct", "name columns of plain types")
        keys[name] = key
    return keys


def _schema(section: Section, dims: tuple[str, ...]) -> Schema:
    columns = section.table.get("schema")
    if not isinstance(columns, dict) or not columns:
        what = "is missing" if columns is None else f"must be {{ column = type }}, not {quoted(columns)}"
        raise section.wrong("schema", what, 'say schema = { src = "int64", dst = "int64" }')
    schema: Schema = {}
    reserved = {name.casefold() for name in (*dims, "diff")}  # Delta tables ignore case
    for column, kind in columns.items():
        if column.casefold() in reserved or column.startswith("_"):
            raise section.wrong(
                f"schema.{column}",
                "this name is reserved, in capitals too, as are all time columns, diff and names that begin with _",
                "rename it here; ingest reads a column of another name with: --column OURS=THEIRS",
            )
        if not column or NOT_IN_COLUMNS & set(column) or not column.isprintable():
            raise section.wrong(
                f"schema.{column}",
                f"a column's name has none of {' '.join(sorted(NOT_IN_COLUMNS))!r} and no control characters",
                "rename it here; ingest reads a column of another name with: --column OURS=THEIRS",
            )
        try:
            check_pattern(column)
            schema[column] = parse_type(kind)
            check_fields(schema[column])
        except (DdError, TypeError, AttributeError) as error:
            what = error.message if isinstance(error, DdError) else f"must be the name of a type, not {quoted(kind)}"
            hint = error.hint if isinstance(error, DdError) else ""
            raise section.wrong(
                f"schema.{column}", what, hint or "types are int64, string, decimal(10,2), ..."
            ) from None
    _check_case(section, schema)
    return schema


def check_fields(kind: Type) -> None:
    """Raise ProgramError for a struct, also inside others, with a field name that a Delta table cannot have."""
    known: dict[str, str] = {}
    for name, _ in kind.fields:
        if not name or NOT_IN_COLUMNS & set(name) or not name.isprintable():
            raise ProgramError(
                f"Delta tables do not take the field name {ascii(name)[:60]}",
                "rename the field, with letters, digits and _",
            )
        first = known.setdefault(name.casefold(), name)
        if first != name:
            raise ProgramError(f"Delta tables take {first} and {name} for the same field", "rename one of them")
    for _, inner in kind.inner:
        check_fields(inner)


def _outputs(section: Section) -> dict[str, OutputSettings]:
    outputs: dict[str, OutputSettings] = {}
    for name, table in section.table.items():
        _check_name(section, name)
        one = Section(section.file, f"outputs.{name}", table)
        one.only(("key", "table"))
        outputs[name] = OutputSettings(one.names("key") or (), output_table(one, section.file.parent))
    _check_case(section, outputs)
    return outputs


def _tests(section: Section, dims: tuple[str, ...], text: str) -> tuple[DataTest, ...]:
    """The tests of a file with this text."""
    tests = []
    for name, table in section.table.items():
        _check_name(section, name)
        line, file = _line(text, name), shown(section.file)
        try:
            one = _test(Section(section.file, f"tests.{name}", table), name, dims)
        except UsageError as error:
            message = error.message.replace(f"{file}: [tests", f"{file}:{line}: [tests", 1)
            raise UsageError(message, error.hint) from None
        tests.append(replace(one, place=f"{FILE_NAME}:{line}"))
    _check_case(section, section.table)
    return tuple(tests)


def _test(section: Section, name: str, dims: tuple[str, ...]) -> DataTest:
    kinds = [kind for kind in _KINDS_OF_TESTS if kind in section.table]
    if len(kinds) != 1:
        what = f"has {listed(kinds)}: a test is one of them" if kinds else "does not say what it tests"
        raise UsageError(
            f"{shown(section.file)}: [{section.name}] {what}",
            'say empty = "OUTPUT", or of = "OUTPUT" and unique = ["COLUMN"], or agree = [{ of = "OUTPUT" }, ...]',
        )
    section.only((*_KINDS_OF_TESTS[kinds[0]], *_OF_TESTS))
    severity, start = section.text("severity") or data_tests.ERROR, section.table.get("from_version", 0)
    if severity not in data_tests.SEVERITIES:
        raise section.wrong(
            "severity", f"unknown: {quoted(severity)}",
            meant(severity, data_tests.SEVERITIES) or f"one of: {listed(data_tests.SEVERITIES)}",
        )  # fmt: skip
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise section.wrong("from_version", f"must be the number of a version, from 0 up, not {quoted(start)}")
    if start and len(dims) > 1:
        raise section.wrong("from_version", f"the times here have the dimensions {listed(dims)}", "leave it out")
    return DataTest(name, _check(section, kinds[0]), severity, start)


def _line(text: str, name: str) -> int:
    """The line at which a test's section begins; 1 where it is written in another way."""
    heading = re.search(rf"""^[ \t]*\[\s*tests\s*\.\s*["']?{name}["']?\s*\]""", text, flags=re.MULTILINE)
    return text.count("\n", 0, heading.start()) + 1 if heading else 1


def _check(section: Section, kind: str) -> data_tests.Check:
    where = section.text("where") or ""
    if kind == "empty":
        return data_tests.Empty(section.text("empty") or "", where)
    if kind == "unique":
        return data_tests.Unique(_of(section), _some(section, "unique"), where)
    sides = section.table["agree"]
    if not isinstance(sides, list) or len(sides) != 2 or not all(isinstance(side, dict) for side in sides):
        raise section.wrong(
            "agree", f"must be a list of two sides, not {quoted(sides)}",
            'say agree = [{ of = "OUTPUT", sum = "COLUMN" }, { of = "OTHER", sum = "COLUMN" }]',
        )  # fmt: skip
    left, right = (_side(Section(section.file, section.name, side)) for side in sides)
    return data_tests.Agree((left, right), _some(section, "by") if "by" in section.table else ())


def _side(section: Section) -> data_tests.Side:
    section.only(("of", "sum", "where"))
    return data_tests.Side(_of(section), section.text("sum") or "", section.text("where") or "")


def _of(section: Section) -> str:
    of = section.text("of")
    if of is None:
        raise section.wrong("of", "is missing", "name an input or an output of the program")
    return of


def _some(section: Section, key: str) -> tuple[str, ...]:
    names = section.names(key)
    if not names:
        raise section.wrong(key, "names no column", 'say which, for example ["id"]')
    return names


def _spark_conf(section: Section) -> dict[str, str]:
    conf = section.table.get("conf", {})
    if not isinstance(conf, dict):
        raise section.wrong("conf", f"must be {{ name = value }}, not a {type(conf).__name__}")  # it may hold a secret
    settings = {}
    for key, value in conf.items():
        if not isinstance(value, str | int | float):
            kind = "a table" if isinstance(value, dict) else f"a {type(value).__name__}"
            raise section.wrong(f"conf.{key}", f"must be text, a number or true/false, not {kind}",
                                "quote names that have dots in them")  # fmt: skip
        if isinstance(value, int) and abs(value) >= 2**64:
            raise section.wrong(f"conf.{key}", "is a number of more than 64 bits", "quote it if it is intended")
        settings[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return settings


def _retention(compaction: Section, retention: Section) -> Retention:
    auto = compaction.table.get("auto", True)
    if not isinstance(auto, bool):
        raise compaction.wrong("auto", f"must be true or false, not {quoted(auto)}")
    settings: dict[str, Any] = {"auto": auto}
    for key, value in retention.table.items():
        kinds = (int, float) if key == "days" else (int,)
        if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value <= _LONGEST_RETENTION:
            what = "a number of days" if key == "days" else "a number of versions"
            raise retention.wrong(key, f"must be {what} from 0 up, not {quoted(value)}", "leave it out for the default")
        settings[key] = value
    return Retention(**settings)


def _check_name(section: Section, name: str) -> None:
    # The name becomes a folder of the warehouse and must not lead out of it.
    if not _IDENTIFIER.fullmatch(name):
        raise section.wrong(repr(name), "a name has letters, digits and _ only, and does not begin with a digit",
                            f"for example: [{section.name}.links]")  # fmt: skip


def _check_case(section: Section, names: Iterable[str]) -> None:
    # Spark and some file systems ignore case.
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            raise section.wrong(name, f"differs from {seen[name.lower()]!r} only by upper and lower case")
        seen[name.lower()] = name


# --- flag > environment > dd.toml > default ---------------------------------------------------------------------------


def _settings(
    file: Path, sections: dict[str, Section], env: Mapping[str, str], flags: Mapping[str, str | int | None]
) -> tuple[dict[str, Any], dict[str, str]]:
    file_settings: dict[str, Any] = {
        "warehouse": sections["project"].text("warehouse"),
        "engine": sections["run"].text("engine"),
        "parallelism": sections["run"].table.get("parallelism"),
        "memory": sections["run"].table.get("memory"),
        "verify_every": sections["run"].table.get("verify_every"),
        "spark_master": sections["spark"].text("master"),
    }
    default: dict[str, Any] = {
        "warehouse": "warehouse",
        "engine": "spark",
        "parallelism": None,
        "memory": None,
        "verify_every": 0,
        "spark_master": "local[*]",
    }
    settings, origin = {}, {}
    for name, variable in _ENVIRONMENT.items():
        layers = (("flag", flags.get(name)), (variable, env.get(variable) or None), (FILE_NAME, file_settings[name]))
        last = ("default", default[name])
        if name == "spark_master" and env.get(_REMOTE):
            last = (_REMOTE, env[_REMOTE])
        where, value = next((layer for layer in layers if layer[1] is not None), last)
        origin[name] = where
        if where == "flag" and isinstance(value, str) and not value.strip():
            raise UsageError(f"--{name.replace('spark_', '')}: the value is empty", "is a variable not set?")
        setting = {"flag": "--" + name.replace("spark_", ""), FILE_NAME: f"{shown(file)}: {name}"}.get(where, where)
        settings[name] = _check_setting(
            name, value, setting, file.parent if where in (FILE_NAME, "default") else Path.cwd()
        )
    return settings, origin


def _check_setting(name: str, value: Any, setting: str, folder: Path) -> Any:
    if name == "engine" and value not in ENGINES:
        raise UsageError(
            f"{setting}: unknown engine {quoted(value)}", meant(value, ENGINES) or f"one of: {listed(ENGINES)}"
        )
    if name == "parallelism" and value is not None:
        return _parallelism(value, setting)
    if name == "memory" and value is not None:
        return _memory(value, setting)
    if name == "verify_every":
        return _verify_every(value, setting)
    if name == "warehouse":
        if not value.strip():
            raise UsageError(f"{setting}: names no folder", "is a variable not set?")
        if value.startswith("file://"):
            value = unquote(value.removeprefix("file://").removeprefix("localhost"))
        if is_url(value):
            return address_of(value, setting)
        return Path(os.path.normpath(folder / _path(value, setting)))
    return value


def _path(text: str, setting: str) -> Path:
    """A path from the user; UsageError for one that no file system can have."""
    if "\0" in text:
        raise UsageError(
            f"{setting}: {quoted(text)} has a NUL character", "check the script or variable that built the path"
        )
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UsageError(f"{setting}: {quoted(text)}: there is no such user", "write the home folder out") from None


def _verify_every(value: Any, setting: str) -> int:
    number = int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else value
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise UsageError(f"{setting}: must be a whole number from 0 up, not {quoted(value)}", "0 verifies nothing")
    return number


def _memory(value: Any, setting: str) -> int:
    try:
        return memory_size(value)
    except ValueError as error:
        raise UsageError(f"{setting}: the memory {error}", "for example: 2GiB") from None


def _parallelism(value: Any, setting: str) -> int:
    number = int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else value
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= _MOST_WORKERS:
        raise UsageError(
            f"{setting}: the parallelism is a number of workers from 1 up, not {quoted(value)}", "for example: 4"
        )
    return number
