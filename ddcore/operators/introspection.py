"""What Python says of functions, classes and objects: their modules, their sources, what they read and hold."""

from __future__ import annotations

import copyreg
import dis
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from types import CodeType, FunctionType
from typing import Any

__all__ = [
    "allow_no_source", "attributes_of", "attributes_read", "globals_read", "has_source", "holds_more", "is_of_enum",
    "module_of", "reach_of",
]  # fmt: skip

# Functions of these libraries count by name; those of other installed libraries by source, without what that uses.
_KNOWN = {"ddcore", "numba", "numpy", "pandas", "polars", "pyarrow"}
_STANDARD = str(PurePath(inspect.__file__).parent)
_READS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_INSTALLED = {"site-packages", "dist-packages"}


@contextmanager
def allow_no_source() -> Iterator[None]:
    """Ignore a missing source: classes of a notebook or of generated code have none."""
    try:
        yield
    except (OSError, TypeError):
        return


def module_of(thing: Any) -> str:
    """The module of a function or class; for some compiled ones Python does not give it as text."""
    module = getattr(thing, "__module__", None)
    return module if isinstance(module, str) else repr(thing).partition("'")[2].rpartition(".")[0]


def reach_of(module: str, home: str) -> str:
    """The part of a module's functions that counts: the ``name``, the ``source``, or ``all`` that they use."""
    top = module.partition(".")[0]
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    installed = bool(_INSTALLED & {*PurePath(file).parts})
    if top in _KNOWN:
        return "name"
    if top in sys.stdlib_module_names and not installed and (not file or file.startswith(_STANDARD)):
        return "name"  # a file of the user's own may have a name of the standard library
    return "source" if installed and top not in (home, "__main__") else "all"


def globals_read(code: CodeType) -> set[str]:
    """Global names that a function, or one inside of it, reads."""
    read = {instruction.argval for instruction in dis.get_instructions(code) if instruction.opname in _READS}
    return read.union(*map(globals_read, _inner(code)))


def attributes_read(code: CodeType) -> set[str]:
    """Names that a function, or one inside of it, may read of an object."""
    return set(code.co_names).union(*map(attributes_read, _inner(code)))


def _inner(code: CodeType) -> list[CodeType]:
    return [value for value in code.co_consts if isinstance(value, CodeType)]


def has_source(code: CodeType) -> bool:
    """Whether Python finds the source of a function."""
    found = False
    with allow_no_source():
        found = bool(inspect.getsource(code))
    return found


def is_of_enum(value: Any) -> bool:
    """Whether an attribute of an enumeration is its machinery or a member, and no method of the user's."""
    return not (isinstance(value, FunctionType | staticmethod | classmethod | property) and _in_source(value))


def _in_source(value: Any) -> bool:
    inner = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
    return isinstance(inner, FunctionType) and inner.__module__ != "enum" and has_source(inner.__code__)


def holds_more(cls: type) -> bool:
    """Whether objects of a class hold more than Python attributes: as a subclass of dict does, or of datetime."""
    words = (cls.__dictoffset__ > 0) + (cls.__weakrefoffset__ > 0) + len(copyreg._slotnames(cls))  # type: ignore[attr-defined]
    return bool(cls.__itemsize__) or cls.__basicsize__ > object.__basicsize__ + 8 * words


def attributes_of(value: Any) -> dict[str, Any]:
    """The attributes of an object, also those in slots."""
    slots = copyreg._slotnames(type(value))  # type: ignore[attr-defined]
    return {name: getattr(value, name) for name in slots if hasattr(value, name)} | getattr(value, "__dict__", {})
