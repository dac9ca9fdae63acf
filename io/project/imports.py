"""Modules beside a program, imported from their text.

Python takes a ``.pyc`` for a module's text if both name the same size and the same second. A second edit within that
second would go unnoticed, and the plan of the text before would be kept for the new one.
"""

from __future__ import annotations

import sys
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from types import CodeType

from ddcore.base.record import record


class _TextLoader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        file = self.get_filename(fullname)
        return self.source_to_code(self.get_data(file), file)


_LOADERS = (  # as Python's own, but for the text
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (_TextLoader, SOURCE_SUFFIXES),
    (SourcelessFileLoader, BYTECODE_SUFFIXES),
)


@record
class _FolderHook:
    """An entry of ``sys.path_hooks``, for a folder and its packages, but for libraries that are installed there."""

    folder: Path

    def __call__(self, path: str) -> FileFinder:
        folder = Path(path)
        if not folder.is_relative_to(self.folder) or "site-packages" in folder.relative_to(self.folder).parts:
            raise ImportError(path)
        return FileFinder(path, *_LOADERS)


def import_beside(folder: Path) -> None:
    """Let this process import the modules of a program's folder, from their text."""
    hook = _FolderHook(folder)
    if hook not in sys.path_hooks:
        sys.path_hooks.insert(0, hook)
        sys.path_importer_cache.pop(str(folder), None)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
