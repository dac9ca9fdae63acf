"""The files of which a program consists, where nothing else decides its plan.

A program of SQL is its files of SQL, one of dbt the manifest and the models. A program of Python is its file, the
modules that it imports from its folder, and those that these import. It counts as *self-contained* if it cannot read
anything else while it is built: no other file, no clock, no environment, no random number.
:mod:`ddcore.io.project.program_names` judges that by the text.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, all_suffixes
from pathlib import Path

from ddcore.base.errors import ProgramError
from ddcore.base.record import record


@record
class Sources:
    """Files with a digest of their text, and the folders where modules were looked for, with a digest of what could be
    imported there; by path. ``modules``: the names under which Python keeps the modules, by file.
    """

    files: Mapping[str, str]
    folders: Mapping[str, str]
    modules: Mapping[str, str]

    def are_current(self) -> bool:
        """Whether the files and the folders are as they were. Reads the files."""
        try:
            return all(_file_digest(Path(path)) == digest for path, digest in self.files.items()) and all(
                _folder_digest(Path(path)) == digest for path, digest in self.folders.items()
            )
        except OSError:
            return False

    def any_imported(self) -> bool:
        """Whether this process has one of the modules already: perhaps with an earlier text."""
        return any(name in sys.modules for name in self.modules.values())

    def were_imported(self) -> bool:
        """Whether the modules that this process has are those of the files; one that it lacks was not needed."""
        for path, name in self.modules.items():
            file = getattr(sys.modules.get(name), "__file__", path)
            if not isinstance(file, str) or os.path.realpath(file) != path:
                return False
        return True


def self_contained(files: Sequence[Path]) -> Sources | None:
    """The sources of a program; None where something else might decide its plan, or they cannot be read.

    For Python, the libraries that the program imports are imported.
    """
    files = [file.resolve() for file in files]
    try:
        if files[0].suffix == ".sql":
            return Sources({str(file): _file_digest(file) for file in files}, {}, {})
        if files[0].suffix == ".json":
            from ddcore.io.project.dbt import sources_of

            return Sources({str(file): _file_digest(file) for file in sources_of(files[0])}, {}, {})
        return _closure(files[0])
    except (OSError, ValueError, SyntaxError, RecursionError, ProgramError):
        return None


def _file_digest(file: Path) -> str:
    return hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()


def _folder_digest(folder: Path) -> str:
    """A digest of the names under which something can be imported from a folder."""
    return hashlib.blake2b("\0".join(sorted(_importable(folder))).encode(), digest_size=16).hexdigest()


def _importable(folder: Path) -> Iterator[str]:
    suffixes = tuple(all_suffixes())
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(suffixes):
                yield entry.name
            elif entry.name.isidentifier() and entry.name != "__pycache__" and entry.is_dir():
                yield f"{entry.name}/"


# -- what a module imports ---------------------------------------------------------------------------------------------


def _closure(main: Path) -> Sources | None:
    """The main file and all modules beside it that it imports, directly or not."""
    from ddcore.io.project.program_names import is_harmless

    root, waiting = main.parent, {main: ""}
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    modules: dict[str, str] = {}
    while waiting:
        file, name = waiting.popitem()
        content = file.read_bytes()
        files[str(file)] = hashlib.blake2b(content, digest_size=16).hexdigest()
        folders[str(file.parent)] = _folder_digest(file.parent)
        if name:
            modules[str(file)] = name
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        neighbours = is_harmless(content, package, lambda module: _located(root, module))
        if neighbours is None:
            return None
        for module, location in neighbours.items():
            if str(location) not in files:
                waiting[location] = module
    return Sources(files, folders, modules)


def _located(root: Path, module: str) -> Path | None:
    """The file of a module in a program's folder; None where the folder has none of that name.

    Raises ValueError for one that is not a plain file of Python below the folder.
    """
    location = root
    for part in module.split("."):
        if (location / part / "__init__.py").is_file():
            location = location / part
            continue
        if any((location / f"{part}{suffix}").exists() for suffix in (*EXTENSION_SUFFIXES, ".pyc")):
            raise ValueError(f"{module} is compiled")
        file = location / f"{part}.py"
        if not file.is_file():
            return None
        return _plain(root, file) if module.endswith(part) else None
    return _plain(root, location / "__init__.py")


def _plain(root: Path, file: Path) -> Path:
    real = file.resolve()
    if real != file or not real.is_relative_to(root):
        raise ValueError(f"{file} is a link")
    return file
