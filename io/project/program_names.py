"""The names that a module of a program uses, and whether one of them may read more than the program's text.

What is not known to be harmless is not:

- a module may import those of its folder, this package, Polars, NumPy, and some of Python's own modules;
- of a library it may use what has a name there and is no module; the library itself must not become a value;
- it must not use the names in the lists below, whatever they belong to: most of them read files or the clock;
- nor ``open``, ``eval``, ``getattr``, ``print`` and the like, nor names that begin with two underscores.

An audit hook would see what Python opens, but not what Polars reads, and neither the clock nor the environment.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

Locate = Callable[[str], Path | None]
"""Gives the file of a module in the program's folder; None where there is none."""

_LIBRARIES = {
    "__future__", "abc", "bisect", "cmath", "collections", "collections.abc", "copy", "dataclasses", "datetime",
    "ddcore", "ddcore.algorithms", "decimal", "enum", "fractions", "functools", "heapq", "itertools", "json", "math",
    "numbers", "numpy", "operator", "polars", "polars.selectors", "re", "string", "textwrap", "typing",
    "typing_extensions", "unicodedata",
}  # fmt: skip
_BUILTINS = {
    "__import__", "breakpoint", "compile", "copyright", "credits", "delattr", "dir", "eval", "exec", "exit", "getattr",
    "globals", "hash", "help", "id", "input", "license", "locals", "open", "print", "quit", "setattr", "vars",
}  # fmt: skip
_CLOCKS = {"astimezone", "fromtimestamp", "localtime", "now", "timestamp", "today", "utcfromtimestamp", "utcnow"}
_RANDOM = {"random", "sample", "set_random_seed", "shuffle", "urandom"}
_READ = {
    "Config", "CredentialProvider", "DataSource", "SQLContext", "Session", "attrgetter", "build_info", "collect_all",
    "ctypeslib", "defer", "delete_iceberg", "deserialize", "environ", "fromfile", "fromregex", "genfromtxt",
    "get_include", "getenv", "import_module", "io", "load", "loadtxt", "memmap", "methodcaller", "modules", "open",
    "os", "plugins", "replay", "show_config", "show_versions", "sql", "sys", "thread_pool_size", "tofile",
    "using_string_cache",
}  # fmt: skip
_DENIED = _CLOCKS | _RANDOM | _READ
_PREFIXES = ("read_", "scan_", "sink_", "write_", "save", "CredentialProvider", "register_", "unregister_")
_NAMES = {"__name__", "__doc__", "__debug__", "__all__", "__init__", "__post_init__", "__version__"}


def is_harmless(source: bytes, package: str, locate: Locate) -> dict[str, Path] | None:
    """The modules of the program's folder that a module imports, by name; None where it may read something else.

    ``package``: the package that the module is in, else empty. Raises SyntaxError, ValueError.
    """
    reader = _Reader(package, locate)
    nodes = [*ast.walk(ast.parse(source))]
    fine = all([reader.imports(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)])
    return reader.neighbours if fine and all(map(reader.allows, nodes)) and reader.libraries_are_bases() else None


class _Reader:
    """Reads one module: its imports first, then its other names."""

    def __init__(self, package: str, locate: Locate) -> None:
        self._package, self._locate = package, locate
        self.neighbours: dict[str, Path] = {}
        self._libraries: dict[str, str] = {}  # the names that stand for libraries
        self._bases = 0  # uses of such names before a dot
        self._uses = 0

    # -- imports ------------------------------------------------------------------------------------------------------

    def imports(self, node: ast.Import | ast.ImportFrom) -> bool:
        """Note what an import brings; whether all of it is harmless."""
        if isinstance(node, ast.Import):
            return all([self._module(name.name, name.asname) for name in node.names])
        module = self._absolute(node)
        if self._neighbour(module):
            for name in node.names:
                self._neighbour(f"{module}.{name.name}")  # a module of the package, where there is one
            return not any(_is_denied(name.name) for name in node.names)
        return _is_library(module) and all([self._exported(module, name) for name in node.names])

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self._package.split(".") if self._package else []
        base = parts[: len(parts) - node.level + 1]
        return ".".join([*base, *([node.module] if node.module else [])])

    def _module(self, module: str, alias: str | None) -> bool:
        if self._neighbour(module):
            return True
        self._libraries[alias or module.partition(".")[0]] = module if alias else module.partition(".")[0]
        return _is_library(module)

    def _neighbour(self, module: str) -> bool:
        """Note a module of the program's folder and the packages around it; False where it is none."""
        parts, files = module.split("."), {}
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            file = self._locate(name)
            if file is None:
                return False
            files[name] = file
        self.neighbours |= files
        return True

    def _exported(self, module: str, name: ast.alias) -> bool:
        if name.name == "*" or _is_denied(name.name):
            return False
        inner = f"{module}.{name.name}"
        if _is_library(inner):
            self._libraries[name.asname or name.name] = inner
            return True
        return _is_value(module, name.name)

    # -- other names --------------------------------------------------------------------------------------------------

    def allows(self, node: ast.AST) -> bool:
        """Whether a part of the module, without the parts of that, is harmless."""
        if isinstance(node, ast.Name):
            self._uses += node.id in self._libraries
            return not _is_denied_builtin(node.id)
        if not isinstance(node, ast.Attribute):
            return True
        is_instant = node.attr == "now" and self._library(node.value) == "ddcore"  # of a version: no clock
        return (is_instant or not _is_denied(node.attr)) and self._attribute(node)

    def _attribute(self, node: ast.Attribute) -> bool:
        """Whether a name behind a dot is one that the library before it exports."""
        module = self._library(node.value)
        if module is None:
            return True
        self._bases += isinstance(node.value, ast.Name)
        if not isinstance(node.ctx, ast.Load):
            return False
        return _is_library(f"{module}.{node.attr}") or _is_value(module, node.attr)

    def _library(self, node: ast.expr) -> str | None:
        """The library that an expression stands for."""
        if isinstance(node, ast.Name):
            return self._libraries.get(node.id)
        if isinstance(node, ast.Attribute) and (base := self._library(node.value)) is not None:
            inner = f"{base}.{node.attr}"
            return inner if _is_library(inner) else None
        return None

    def libraries_are_bases(self) -> bool:
        """Whether each use of a library is followed by a name in it: of a value, any name could be taken later."""
        return self._uses == self._bases


def _is_value(module: str, name: str) -> bool:
    """Whether a library has this name, for something that is no module."""
    missing = object()
    value = getattr(importlib.import_module(module), name, missing)
    return value is not missing and not isinstance(value, ModuleType)


def _is_library(module: str) -> bool:
    """Whether the names of an installed module, without those that are denied, read only what they are given."""
    return module in _LIBRARIES or module.startswith("ddcore.algorithms.")


def _is_denied(name: str) -> bool:
    """Whether something of this name may read more than the program's text."""
    hidden = name.startswith("__") and name not in _NAMES
    return hidden or name in _DENIED or name.startswith(_PREFIXES)


def _is_denied_builtin(name: str) -> bool:
    """Whether a built-in function of this name may, or does something that only a program that is built anew can do."""
    return name in _BUILTINS or (name.startswith("__") and name not in _NAMES)
