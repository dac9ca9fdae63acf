"""Finding a project, with one clear line for all that can be wrong with its place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ddcore.base.errors import UsageError
from ddcore.io.project.finding import IN_PYTHON, find_project
from ddcore.io.project.project import Project
from ddcore.io.storage import branches
from ddcore.text.wording import advice, one_line


def project_at(
    folder: Path | None, flags: Mapping[str, str | int | None] | None = None, origin: str = "--project"
) -> Project:
    """The project in a folder, or the one that the environment and the working folder name; UsageError for none.

    ``flags`` are settings by name, ``origin`` is what named the folder. Refuses before any work what cannot go well,
    such as a path that no file can have.
    """
    from ddcore.io.delta.open_tables import location

    flags = flags or {}
    _check_path(origin, folder)
    in_python = origin == IN_PYTHON
    _check_path(f"{origin}: warehouse" if in_python else "--warehouse", flags.get("warehouse"))
    try:
        settings = find_project(folder, flags=flags, origin=origin)
    except RecursionError:
        raise UsageError("dd.toml: nested too deeply", "tables nest at most three levels: [spark] conf.NAME") from None
    except OSError as error:
        raise UsageError(f"{error.filename or 'the working folder'}: {error.strerror}", advice(error)) from None
    except (ValueError, RuntimeError) as error:
        # What Python refuses by itself: integers of thousands of digits, a NUL in a path, ~NAME of no user.
        hint = "look for very long numbers, and for a NUL or ~NAME in a path"
        raise UsageError(f"dd.toml or an environment variable: {one_line(error)}", hint) from None
    for name in ("program", "warehouse"):
        _check_path(f"dd.toml or an environment variable: {name}", getattr(settings, name))
    home = settings.warehouse
    if isinstance(home, Path) and home.exists() and not home.is_dir():
        option = 'dd.open(warehouse="DIR")' if in_python else "--warehouse DIR"
        raise UsageError(f"the warehouse {home} is not a folder", f"name another one: {option}")
    location(home)
    if settings.branch:
        named = f"{origin}: branch" if in_python else "--branch"
        setting = named if settings.origin["branch"] == "flag" else settings.origin["branch"]
        branches.require(settings.home, settings.branch, setting)
    return settings


def _check_path(origin: str, path: object) -> None:
    """Raises UsageError for a path that no file can have; None is no path."""
    text = "." if path is None else str(path)
    if not text:
        raise UsageError(f"{origin}: the path is empty", "is a variable of the shell unset?")
    if "\0" in text:
        raise UsageError(f"{origin}: {text!r} has a NUL character", "no path can have one")
    if text.startswith("~"):
        try:
            Path(text).expanduser()
        except RuntimeError:
            raise UsageError(f"{origin}: {text!r}: there is no such user", "write the folder's whole path") from None
