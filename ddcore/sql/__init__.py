"""Programs of SQL: views, planned onto the collections that programs of Python are written in.

``program`` gives a function as :mod:`ddcore.planning.planner` and :mod:`ddcore.reference` call it. Only this package
imports sqlglot, and only when a program is SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from ddcore.base.errors import ProgramError
from ddcore.text.wording import kind_of

__all__ = ["load", "program"]


def load(file: str | PathLike[str]) -> Callable[..., dict[str, Any]]:
    """The program in a file of SQL. Raises ProgramError for one that cannot be read, and as :func:`program`."""
    if not isinstance(file, str | PathLike):
        raise ProgramError(f"a file of SQL has a path, not {kind_of(file)}", 'for example load("program.sql")')
    file = Path(file)
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode(errors="replace")
        place = f"{file.name}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
        raise ProgramError(f"{place}: this is no text in UTF-8", "save the file as text in UTF-8") from None
    except OSError as error:
        raise ProgramError(f"{file.name}: cannot be read: {error.strerror}", "make it readable for this user") from None
    return program(text, file.name)


def program(text: str, file: str = "program.sql") -> Callable[..., dict[str, Any]]:
    """The program function of SQL text: from inputs by name to a dict of the views that are not temporary.

    ``file`` names the text in messages and in plans. Raises ProgramError where the text is not SQL, or sqlglot is not
    installed; the function raises it for what the inputs' columns do not allow.
    """
    if not isinstance(text, str):
        raise ProgramError(f"{file}: a program of SQL is text, not {kind_of(text)}", "read a file with load(path)")
    try:
        from ddcore.sql.parsing import parse
    except ModuleNotFoundError as error:
        if error.name != "sqlglot":
            raise
        raise ProgramError(
            f"{file}: programs of SQL need sqlglot, which is not installed", "pip install 'ddcore[sql]'"
        ) from None
    from ddcore.sql.views import outputs

    statements, tables, source = parse(text.removeprefix("\ufeff"), file)

    def views(**inputs: Mapping[str, Any]) -> dict[str, Any]:
        return outputs(statements, tables, source, inputs)

    return views
