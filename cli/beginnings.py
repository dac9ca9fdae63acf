"""The project that ``dd init --from`` makes of files and tables: each is an input, with its schema and source."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddcore.cli.samples import Sample

if TYPE_CHECKING:
    from ddcore.io.sources.guessing import Guess

_ENDING = re.compile(r"(\.(parquet|csv|jsonl|ndjson|gz|delta))+$")
_HEAD = """\
# What this project folds: https://toml.io. Everything here can be overridden by DDCORE_... and by flags.

[project]
program   = "program.sql"
warehouse = "warehouse"            # inputs, state, outputs and the ledger live here

[run]
engine = "inline"                  # small data: this process, no JVM. Without this line: Spark
"""
_FORMS = {
    "log": "a change log: rows with a version and a diff",
    "append": "rows to insert; files that come later are taken in by the next sync",
    "snapshot": "the whole content: what has changed in it since is taken in",
    "debezium": "events of Debezium",
}


def sample_of(paths: Sequence[str], folder: Path) -> Sample:
    """The files of a project in ``folder`` over these sources. DdError for one that cannot be read."""
    from ddcore.io.sources.guessing import guess

    sections, views, names = [_HEAD], [], list[str]()
    for path in paths:
        full_path = path if "://" in path else os.path.abspath(os.path.expanduser(path))
        found = guess([full_path], ("version",))
        name = _name(path, names)
        names.append(name)
        sections.append("\n".join(_section(name, full_path, found, folder)) + "\n")
        views.append(f"CREATE VIEW {name}_now AS SELECT * FROM {name};\n")
        sections.append(f"[outputs.{name}_now]\ntable = true                       # also a plain table: "
                        f"warehouse/tables/{name}_now\n")  # fmt: skip
    files = {
        "dd.toml": "\n".join(sections),
        "program.sql": "-- Each view is an output. These show the inputs as they are: replace them by your own.\n\n"
        + "\n".join(views),
        ".gitignore": "warehouse/\n",
    }
    return Sample(files, ("ddcore sync", f"ddcore show {names[0]}_now --limit 10", "ddcore status"))


def _name(path: str, taken: Sequence[str]) -> str:
    """The name of an input: that of the file or the folder, without its ending and what a glob stands for."""
    steps = (re.split(r"[*?\[]", _ENDING.sub("", step))[0] for step in reversed(re.split(r"[/\\]", path)))
    words = next(filter(None, (re.findall(r"[A-Za-z0-9]+", step) for step in steps)), ["rows"])
    name = "_".join(words).lower()
    name = f"input_{name}" if name[0].isdigit() else name
    number = 2
    unique = name
    while unique in taken:
        unique, number = f"{name}_{number}", number + 1
    return unique


def _section(name: str, path: str, found: Guess, folder: Path) -> Iterator[str]:
    from ddcore.io.sources.guessing import schema_line

    renamed = dict(_renamed(list(found.schema)))
    schema = {renamed.get(column, column): kind for column, kind in found.schema.items()}
    form = _form(path, found)
    yield f"[inputs.{name}]"
    yield schema_line(schema)
    if found.key:
        yield f"key = {json.dumps([renamed.get(column, column) for column in found.key])}"
    options = [f"path = {json.dumps(_relative(path, folder))}"]
    options += [f"{form} = true"] if form != "log" else []
    if renamed:
        pairs = ", ".join(f"{ours} = {json.dumps(other)}" for other, ours in renamed.items())
        options.append(f"column = {{ {pairs} }}")
    yield f"source = {{ {', '.join(options)} }}   # {_FORMS[form]}"


def _form(path: str, found: Guess) -> str:
    if found.is_events:
        return "debezium"
    if "diff" in found.columns:
        return "log"
    is_one = found.is_table or (os.path.isfile(path) and "version" not in found.columns)
    return "snapshot" if is_one else "append"


def _relative(path: str, folder: Path) -> str:
    """A path from the project's folder, where it is below it."""
    if "://" in path:
        return path
    root = os.path.abspath(folder)
    return os.path.relpath(path, root) if os.path.commonpath([root, path]) == root else path


def _renamed(columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Columns that no input can have, and the names for them: letters, digits and ``_``, each once."""
    taken = {column.casefold() for column in columns if _is_usable(column)}
    seen = set[str]()
    for column in columns:
        if _is_usable(column) and column.casefold() not in seen:
            seen.add(column.casefold())
            continue
        base = re.sub(r"[^A-Za-z0-9_]+", "_", column).strip("_") or "column"
        name, number = base, 2
        while name.casefold() in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name.casefold())
        yield column, name


def _is_usable(column: str) -> bool:
    from ddcore.io.project.column_names import NOT_IN_COLUMNS

    reserved = column.startswith("_") or column.casefold() in ("version", "diff")
    return not reserved and column.isprintable() and not NOT_IN_COLUMNS & set(column)
