"""A program of SQL: its files, and the inputs that it declares by CREATE TABLE in place of ``dd.toml``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import Any

_TABLE = re.compile(r"\bCREATE\s+TABLE\b", re.IGNORECASE)


def files_of(root: Path, program: str) -> tuple[Path, ...]:
    """The files of a program of SQL in the order of their names: one, or those that a pattern stands for.

    A pattern for which there is no file is itself the file that does not exist.
    """
    if "*" not in program:
        return (root / program,)
    return tuple(root / name for name in sorted(glob(program, root_dir=root))) or (root / program,)


def add_declared_inputs(inputs: dict[str, Any], files: Sequence[Path], dialect: str) -> None:
    """Give ``inputs``, the tables of ``[inputs]``, the schemas of tables that the program declares and they lack.

    Those that both have are compared when the program is planned. A program without CREATE TABLE is not parsed. Raises
    ProgramError.
    """
    from ddcore import sql

    if not all(file.is_file() for file in files):
        return  # loading the program says so
    texts = sql.texts_of(files)
    if not any(_TABLE.search(text) for text in texts.values()):
        return
    known = {name.casefold(): name for name in inputs}
    for name, columns in sql.declared_inputs(texts, dialect).items():
        settings = inputs.setdefault(known.get(name.casefold(), name), {})
        if isinstance(settings, dict):
            settings.setdefault("schema", columns)
