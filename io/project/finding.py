"""The project that a command, a variable or the working folder names."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from ddcore.base.errors import UsageError
from ddcore.io.project.file import read_project
from ddcore.io.project.project import FILE_NAME, Project
from ddcore.io.project.settings import path_of
from ddcore.io.storage.foreign_files import kind_of
from ddcore.text.wording import shown

IN_PYTHON = "dd.open"  # what names a project in Python; elsewhere an option or a variable does


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
        file = _named_file(path_of(str(start), origin), origin)
    elif env.get("DDCORE_PROJECT"):
        file = _named_file(path_of(env["DDCORE_PROJECT"], "DDCORE_PROJECT"), "DDCORE_PROJECT")
    else:
        file = _nearest_file(Path.cwd(), origin)
    return read_project(file, env, flags or {})


def _named_file(location: Path, setting: str) -> Path:
    file = location if location.name == FILE_NAME else location / FILE_NAME
    if not file.is_file():
        if kind := kind_of(file):
            raise _no_file(file, kind)
        what = f"there is no {FILE_NAME} in {location}" if location.is_dir() else f"{location} is not a project folder"
        raise UsageError(f"{setting}: {what}", _other_location(location, setting))
    return file.resolve()


def _other_location(location: Path, setting: str) -> str:
    """What to do where a named place is no project: a place below a project is mostly meant to be the project."""
    written = [parent for parent in location.parents if parent != Path()]
    around = location.absolute().parents if os.path.lexists(location) else ()
    if above := next((parent for parent in (*written, *around) if (parent / FILE_NAME).is_file()), None):
        return f"did you mean {_spelled(above, setting)}?"
    if os.path.lexists(location) and not location.is_dir():
        return f"name the folder of a project, in which there is a {FILE_NAME}"
    return f"make one with: ddcore init {shlex.quote(str(location))}"


def _spelled(folder: Path, setting: str) -> str:
    """How a folder is named there: as an argument, an option or a variable."""
    if setting == IN_PYTHON:
        return f"{setting}({json.dumps(str(folder), ensure_ascii=False)})"
    return f"{setting}{'=' if setting == 'DDCORE_PROJECT' else ' '}{shlex.quote(str(folder))}"


def _no_file(file: Path, kind: str) -> UsageError:
    return UsageError(f"{shown(file)}: {kind}, and not a file", "put the project's file there, or name another project")


def _nearest_file(folder: Path, origin: str) -> Path:
    for location in (folder, *folder.parents):
        if (location / FILE_NAME).is_file():
            return (location / FILE_NAME).resolve()
        if kind := kind_of(location / FILE_NAME):
            raise _no_file(location / FILE_NAME, kind)
    raise UsageError(
        f"no {FILE_NAME} in {folder} or any folder above it",
        'name its folder: dd.open("demo"); or make one, in a shell: ddcore init demo'
        if origin == IN_PYTHON
        else "go to a project, name one with --project DIR, or make one with: ddcore init DIR",
    )
