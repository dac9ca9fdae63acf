"""The project of a ``dd.toml``.

Every mistake in the file is a :class:`UsageError` that names the file, the key and, where there is one, the closest
valid name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddcore.base.errors import UsageError
from ddcore.io.project.declared_tests import declared_tests
from ddcore.io.project.inputs import input_ignored, input_keys, input_schemas, input_sources, inputs_stored
from ddcore.io.project.output_tables import output_table
from ddcore.io.project.project import FILE_NAME, MANIFEST, OutputSettings, Project, RetentionSettings, Upstream
from ddcore.io.project.section import IDENTIFIER, Section, quoted
from ddcore.io.project.settings import branch_setting, overridable_settings, path_of
from ddcore.io.project.sql_inputs import add_declared_inputs, files_of
from ddcore.io.storage import branches
from ddcore.io.storage.address import Location
from ddcore.io.storage.store import UNREADABLE
from ddcore.sql.dialect_names import DIALECTS
from ddcore.text.redaction import keep_secret
from ddcore.text.wording import listed, meant, one_line, shown

# The keys of each section. [inputs], [outputs] and [tests] have one table per name.
_SECTIONS: dict[str, tuple[str, ...]] = {
    "project": ("program", "warehouse", "dialect"),
    "time": ("dims",),
    "inputs": (),
    "outputs": (),
    "tests": (),
    "dbt": ("project",),
    "run": ("engine", "parallelism", "memory", "verify_every", "hook"),
    "spark": ("master", "conf"),
    "compaction": ("auto",),
    "retention": ("versions", "days", "history"),
}
_PROGRAM = re.compile(r"(?P<file>.+\.py):(?P<function>[A-Za-z_][A-Za-z0-9_]*)|.+\.sql")
_FROM = "from"
_LEAST_OF_ENVIRONMENT = 8  # characters of a secret there: many other programs' switches are called TOKEN or KEY
_LONGEST_RETENTION = 2**40


def read_project(file: Path, env: Mapping[str, str], flags: Mapping[str, str | int | None]) -> Project:
    """The project of this file, with the environment and the flags that override it. Raises UsageError."""
    text = _text(file)
    sections = _sections(file, _parse(file, text))
    keep_secret((name, value) for name, value in env.items() if len(value) >= _LEAST_OF_ENVIRONMENT)
    keep_secret(sections["spark"].table)
    upstream = _upstream(sections["inputs"])
    dims = _dims(sections["time"]) if upstream is None else _dims_of(sections["time"], upstream)
    settings, origin = overridable_settings(file, sections, env, flags)
    branch, of_branch = branch_setting(env, flags)
    if branch:
        settings["warehouse"] = branches.address_of(settings["warehouse"], branch)
        origin["branch"] = "flag" if of_branch.startswith("-") else of_branch
    _, *parameters = str(settings["spark_master"]).split(";")  # of a Spark Connect server, such as its token
    keep_secret((name, value) for name, _, value in (parameter.partition("=") for parameter in parameters))
    program = sections["project"].text("program")
    if program is None:
        raise sections["project"].wrong("program", "is missing", 'say program = "program.py:program"')
    if program == "dbt":
        program = str(Path(sections["dbt"].text("project") or ".", MANIFEST))
    elif not _PROGRAM.fullmatch(program):
        raise sections["project"].wrong(
            "program", f"must be FILE.py:FUNCTION, FILE.sql, FOLDER/*.sql or dbt, not {quoted(program)}"
        )
    dialect = _dialect(sections["project"], program)
    if program.endswith(".sql"):
        add_declared_inputs(sections["inputs"].table, files_of(file.parent, program), dialect)
    own = sections["inputs"]
    if upstream is not None:
        own = _own(own, upstream, settings["warehouse"])
    inputs = input_schemas(own, dims)
    others = upstream or Project(file.parent, program, settings["warehouse"])  # which has none
    return Project(
        root=file.parent,
        program=program,
        dialect=dialect,
        dims=dims,
        inputs={**others.inputs, **inputs},
        stored={**others.stored, **inputs_stored(own, inputs, dims)},
        keys={**others.keys, **input_keys(own)},
        ignored={**others.ignored, **input_ignored(own)},
        sources=input_sources(own),
        outputs=_outputs(sections["outputs"], branch),
        tests=declared_tests(sections["tests"], dims, text),
        spark_conf=_spark_conf(sections["spark"]),
        retention=_retention(sections["compaction"], sections["retention"]),
        hook=_hook(sections["run"], branch),
        branch=branch,
        upstream=Upstream(others.root, others.warehouse, frozenset(others.inputs)) if upstream else None,
        origin={"program": FILE_NAME, **origin},
        **settings,
    )


def _upstream(section: Section) -> Project | None:
    """The project whose inputs are read, as ``[inputs] from`` names it; its settings are those of its file alone."""
    if not isinstance(section.table.get(_FROM), str):  # an input may have this name
        return None
    text = section.text(_FROM)
    assert text is not None
    upstream = section.file.parent / path_of(text, f"{shown(section.file)}: [inputs] {_FROM}")
    file = (upstream if upstream.name == FILE_NAME else upstream / FILE_NAME).resolve()
    if not file.is_file():
        raise section.wrong(
            _FROM, f"there is no {FILE_NAME} in {file.parent}", "name the folder of the project that ingests the inputs"
        )
    if file == section.file.resolve():
        raise section.wrong(_FROM, "names this project itself", "name the folder of the one that ingests the inputs")
    if isinstance(above := _parse(file, _text(file)).get("inputs", {}), dict) and isinstance(above.get(_FROM), str):
        raise section.wrong(
            _FROM, f"{file.parent} reads its inputs from {above[_FROM]}", "name the project that ingests them"
        )
    return read_project(file, {}, {})


def _dims_of(section: Section, upstream: Project) -> tuple[str, ...]:
    """The time dimensions of the inputs, which the file may repeat."""
    if section.names("dims") is not None and _dims(section) != upstream.dims:
        raise section.wrong(
            "dims", f"the inputs are those of {upstream.root}, whose times are {list(upstream.dims)}", "leave dims out"
        )
    return upstream.dims


def _own(section: Section, upstream: Project, warehouse: Location) -> Section:
    """The inputs that are declared beside those of another project. UsageError for one that both declare, and for one
    warehouse of both.
    """
    own = Section(section.file, section.name, {name: of for name, of in section.table.items() if name != _FROM})
    known = {name.casefold() for name in upstream.inputs}
    for name in own.table:
        if name.casefold() in known:
            raise section.wrong(
                name, f"{upstream.root} has this input, and it is read from there", "give this one another name"
            )
    if warehouse == upstream.warehouse:
        raise section.wrong(
            _FROM, f"both projects have the warehouse {warehouse}", 'give this one its own: [project] warehouse = "..."'
        )
    return own


def _dialect(section: Section, program: str) -> str:
    """The dialect of a program of SQL, which names are those of ``ddcore.sql``."""
    dialect = section.one_of("dialect", DIALECTS)
    if "dialect" in section.table and not program.endswith(".sql"):
        raise section.wrong("dialect", "is that of a program of SQL", f"this program is {program}: leave dialect out")
    return dialect


def _hook(section: Section, branch: str) -> tuple[str, ...]:
    """The command that gets the JSON object of each run; none on a branch, whose runs concern nobody else."""
    words = section.table.get("hook", [])
    are_words = isinstance(words, list) and all(isinstance(word, str) and "\0" not in word for word in words)
    if are_words and (not words or words[0].strip()):
        return () if branch else tuple(words)
    raise section.wrong("hook", f"must be a command as a list of words, not {quoted(words)}", 'say ["./notify.sh"]')


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
        if not IDENTIFIER.fullmatch(dim) or dim == "diff" or dim.startswith("_"):
            raise section.wrong(
                "dims", f"{dim!r} cannot name a time dimension", "use letters, digits and _; not 'diff'"
            )
    return dims


def _outputs(section: Section, branch: str) -> dict[str, OutputSettings]:
    """The settings of outputs. The tables of a branch are in its own folder, whatever place the file names."""
    outputs: dict[str, OutputSettings] = {}
    for name, one in section.named():
        section.check_name(name)
        one.only(("key", "table", "tags"))
        table = output_table(one, section.file.parent)
        outputs[name] = OutputSettings(
            one.names("key") or (),
            replace(table, address=None) if table and branch else table,
            one.names("tags") or (),
        )
    section.check_case(outputs)
    return outputs


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


def _retention(compaction: Section, retention: Section) -> RetentionSettings:
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
    return RetentionSettings(**settings)
