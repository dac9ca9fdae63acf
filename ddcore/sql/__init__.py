"""Programs of SQL: views, planned onto the collections that programs of Python are written in.

``program`` gives a function as :mod:`ddcore.planning.planner` and :mod:`ddcore.reference` call it. Only this package
imports sqlglot, and only when a program is SQL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from ddcore.base.errors import ProgramError
from ddcore.sql.dialect_names import DIALECTS
from ddcore.text.wording import kind_of, listed, meant


def load(*files: str | PathLike[str], dialect: str = "postgres") -> Callable[..., dict[str, Any]]:
    """The program in files of SQL, whose views may name each other across files. ``dialect``: as in :func:`program`.

    Raises ProgramError for a file that cannot be read, and as :func:`program`.
    """
    for file in files:
        if not isinstance(file, str | PathLike):
            raise ProgramError(f"a file of SQL has a path, not {kind_of(file)}", 'for example load("program.sql")')
    if not files:
        raise ProgramError("there is no file of SQL", 'for example load("program.sql")')
    return program_of(texts_of(map(Path, files)), dialect=dialect)


def texts_of(files: Iterable[Path]) -> dict[str, str]:
    """The texts of files by name; with their folders, where two have one name. Raises ProgramError."""
    files = list(files)
    counts = Counter(file.name for file in files)
    return {file.name if counts[file.name] == 1 else str(file): _text(file) for file in files}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode(errors="replace")
        where = f"{file.name}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
        raise ProgramError(f"{where}: this is no text in UTF-8", "save the file as text in UTF-8") from None
    except OSError as error:
        raise ProgramError(f"{file.name}: cannot be read: {error.strerror}", "make it readable for this user") from None


def program(text: str, file: str = "program.sql", dialect: str = "postgres") -> Callable[..., dict[str, Any]]:
    """The program function of SQL text: from inputs by name to a dict of the views that are not temporary.

    ``file`` names the text in messages and in plans. ``dialect``: postgres, spark, databricks or duckdb.
    Raises ProgramError where the text is not SQL, or sqlglot is not installed; the function raises it for
    what the inputs' columns do not allow.
    """
    if not isinstance(text, str):
        raise ProgramError(f"{file}: a program of SQL is text, not {kind_of(text)}", "read a file with load(path)")
    return program_of({file: text.removeprefix("\ufeff")}, dialect=dialect)


def program_of(
    texts: Mapping[str, str], heads: Mapping[str, str] | None = None, *, dialect: str = DIALECTS[0]
) -> Callable[..., dict[str, Any]]:
    """The program in texts, by the names of their files. ``heads``: what was put before some of them, which places in
    messages leave out.

    The function has the comments on views by name, what planning has left out, and what it decided about joins:
    ``comments``, ``notes`` and ``decisions``.
    Raises as :func:`program`.
    """
    parse = _parser(next(iter(texts)), dialect)
    from ddcore.sql.views import outputs

    statements, tables, source = parse(texts, dialect, heads)

    def views(**inputs: Mapping[str, Any]) -> dict[str, Any]:
        return outputs(statements, tables, source, inputs)

    views.comments = {view.name: view.comment for view in statements if view.comment}  # type: ignore[attr-defined]
    views.notes = source.notes  # type: ignore[attr-defined]
    views.decisions = source.decisions  # type: ignore[attr-defined]
    return views


def declared_inputs(texts: Mapping[str, str], dialect: str = "postgres") -> dict[str, dict[str, str]]:
    """The columns and types of the tables that ``CREATE TABLE`` declares in files, by name. Raises ProgramError."""
    parse = _parser(next(iter(texts)), dialect)
    from ddcore.sql.types import declared_type

    _, tables, source = parse(texts, dialect)
    return {
        table.name: {column.name: str(declared_type(source, column.args["kind"])) for column in table.columns}
        for table in tables
    }


def _parser(file: str, dialect: str) -> Callable[..., Any]:
    try:
        from ddcore.sql.parsing import parse
    except ModuleNotFoundError as error:
        if error.name != "sqlglot":
            raise
        raise ProgramError(
            f"{file}: programs of SQL need sqlglot, which is not installed", "pip install 'ddcore[sql]'"
        ) from None
    if dialect not in DIALECTS:
        raise ProgramError(
            f"{file}: unknown dialect {dialect!r}", meant(str(dialect), DIALECTS) or f"one of: {listed(DIALECTS)}"
        )
    return parse
