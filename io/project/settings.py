"""Settings that flags and the environment override: a flag, else a variable, else ``dd.toml``, else the default."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from ddcore.base.errors import UsageError
from ddcore.io.project.project import FILE_NAME
from ddcore.io.project.section import Section, quoted
from ddcore.io.storage import branches
from ddcore.io.storage.address import address_of, is_url
from ddcore.text.sizes import memory_size
from ddcore.text.wording import listed, meant, shown

ENGINES = ("spark", "inline")


class _Setting(NamedTuple):
    """The variable that overrides a setting, its section and its key in ``dd.toml``, and its default."""

    variable: str
    section: str
    key: str
    default: Any


_SETTINGS = {
    "warehouse": _Setting("DDCORE_WAREHOUSE", "project", "warehouse", "warehouse"),
    "engine": _Setting("DDCORE_ENGINE", "run", "engine", "spark"),
    "parallelism": _Setting("DDCORE_PARALLELISM", "run", "parallelism", None),
    "memory": _Setting("DDCORE_MEMORY", "run", "memory", None),
    "verify_every": _Setting("DDCORE_VERIFY_EVERY", "run", "verify_every", 0),
    "spark_master": _Setting("DDCORE_MASTER", "spark", "master", "local[*]"),
}
_BRANCH = "DDCORE_BRANCH"
_REMOTE = "SPARK_REMOTE"  # PySpark's own variable, for an address of Spark Connect
_DIGITS = re.compile(r"[0-9]{1,10}")


def overridable_settings(
    file: Path, sections: dict[str, Section], env: Mapping[str, str], flags: Mapping[str, str | int | None]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Their values by name, and where each comes from. Raises UsageError for a value that cannot be used."""
    settings, origin = {}, {}
    for name, (variable, section, key, default) in _SETTINGS.items():
        in_file = sections[section].text(key) if isinstance(default, str) else sections[section].table.get(key)
        layers = (("flag", flags.get(name)), (variable, env.get(variable) or None), (FILE_NAME, in_file))
        last = ("default", default)
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
        what = "the parallelism is a number of workers from 1 up"
        return _number(value, setting, range(1, 2**31), what, "for example: 4")
    if name == "memory" and value is not None:
        return _memory(value, setting)
    if name == "verify_every":
        return _number(value, setting, range(2**63), "must be a whole number from 0 up", "0 verifies nothing")
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


def _number(value: Any, setting: str, numbers: range, what: str, hint: str) -> int:
    number = int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else value
    if isinstance(number, bool) or not isinstance(number, int) or number not in numbers:
        raise UsageError(f"{setting}: {what}, not {quoted(value)}", hint)
    return number


def _memory(value: Any, setting: str) -> int:
    try:
        return memory_size(value)
    except ValueError as error:
        raise UsageError(f"{setting}: the memory {error}", "for example: 2GiB") from None
