"""Settings that flags and the environment override: a flag, else a variable, else ``dd.toml``, else the default."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ddcore.base.errors import UsageError
from ddcore.io.project.project import FILE_NAME
from ddcore.io.project.section import Section, quoted
from ddcore.io.storage import branches
from ddcore.io.storage.address import address_of, is_url
from ddcore.text.sizes import memory_size
from ddcore.text.wording import listed, meant, shown

ENGINES = ("spark", "inline")

_VARIABLES = {
    "warehouse": "DDCORE_WAREHOUSE",
    "engine": "DDCORE_ENGINE",
    "parallelism": "DDCORE_PARALLELISM",
    "memory": "DDCORE_MEMORY",
    "verify_every": "DDCORE_VERIFY_EVERY",
    "spark_master": "DDCORE_MASTER",
}
_BRANCH = "DDCORE_BRANCH"
_REMOTE = "SPARK_REMOTE"  # PySpark's own variable, for an address of Spark Connect
_DIGITS = re.compile(r"[0-9]{1,10}")
_MOST_WORKERS = 2**31 - 1


def overridable_settings(
    file: Path, sections: dict[str, Section], env: Mapping[str, str], flags: Mapping[str, str | int | None]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Their values by name, and where each comes from. Raises UsageError for a value that cannot be used."""
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
    for name, variable in _VARIABLES.items():
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


def branch_setting(env: Mapping[str, str], flags: Mapping[str, str | int | None]) -> tuple[str, str]:
    """The branch that a command works on, empty for the warehouse itself, and what named it. Raises UsageError."""
    layers = (("--branch", flags.get("branch")), (_BRANCH, env.get(_BRANCH) or None))
    setting, name = next((layer for layer in layers if layer[1] is not None), ("default", branches.MAIN))
    if name != branches.MAIN:
        branches.check_name(str(name), setting)
    return ("" if name == branches.MAIN else str(name)), setting


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
        return Path(os.path.normpath(folder / path_of(value, setting)))
    return value


def path_of(text: str, setting: str) -> Path:
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
