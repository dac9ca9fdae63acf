"""Libraries that are imported when they are first used: a run with nothing new uses neither arrays nor frames."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["numpy", "obstore", "polars", "pyarrow"]


class _Library(ModuleType):
    """Stands for a library: the first use of a name imports it, and copies its names."""

    def __getattr__(self, name: str) -> Any:
        module = import_module(self.__name__)
        vars(self).update(vars(module))
        return getattr(module, name)


if TYPE_CHECKING:
    import numpy
    import obstore
    import polars
    import pyarrow
else:
    numpy = _Library("numpy")
    obstore = _Library("obstore")
    polars = _Library("polars")
    pyarrow = _Library("pyarrow")
