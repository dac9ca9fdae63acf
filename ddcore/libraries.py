"""Libraries that are imported when they are first used: a run with nothing new builds the program and uses no array."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["numpy"]


class _Library(ModuleType):
    """Stands for a library: the first use of a name imports it, and copies its names."""

    def __getattr__(self, name: str) -> Any:
        module = import_module(self.__name__)
        vars(self).update(vars(module))
        return getattr(module, name)


if TYPE_CHECKING:
    import numpy
else:
    numpy = _Library("numpy")
