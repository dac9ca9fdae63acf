"""The registry of operators: those of a dataflow, and what makes a collection in a program.

It lists nothing by hand. It is read from the modules of ``ddcore/operators`` and from the methods that programs call,
so a new operator is in it at once. Tests compare it with the reference, the random programs and the documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import isabstract, isfunction
from pkgutil import iter_modules
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

import ddcore
from ddcore import operators
from ddcore.operators.aggregates import Aggregate
from ddcore.operators.base import Operator
from ddcore.program.collection import Collection, GroupBy

__all__ = ["Public", "aggregates", "kinds", "public"]


@dataclass(frozen=True)
class Public:
    """A function with which programs make a collection: an operator, or a composition of several.

    ``name`` is how programs write it: ``join``, ``group_by.agg``, ``dd.iterate``. ``options`` are the choices of its
    keywords of a ``Literal`` type, such as the kinds of ``join``.
    """

    name: str
    function: Callable[..., Any]
    options: Mapping[str, tuple[str, ...]]


def kinds() -> dict[str, type[Operator]]:
    """The operators of a dataflow by the names of their classes. Imports all modules of that folder."""
    for module in iter_modules(operators.__path__, f"{operators.__name__}."):
        import_module(module.name)

    def below(kind: type[Operator]) -> list[type[Operator]]:
        return [item for child in kind.__subclasses__() for item in (child, *below(child))]

    own = (kind for kind in below(Operator) if kind.__module__.startswith(operators.__name__))  # not a benchmark's
    return {kind.__name__: kind for kind in own if not isabstract(kind) and hasattr(kind, "name")}


def public() -> dict[str, Public]:
    """What makes a collection in a program, by name: methods of a collection and of its groups, functions of ddcore."""
    functions = [*_methods(Collection, ""), *_methods(GroupBy, "group_by."), *_exported()]
    results = [(name, function, _hints(function)) for name, function in functions]
    return {
        name: Public(name, function, _options(hints))
        for name, function, hints in results
        if _mentions(hints.get("return"), Collection)
    }


def aggregates() -> dict[str, Callable[..., Any]]:
    """The functions of ddcore that make an aggregate of ``group_by().agg()``, by name: ``dd.sum``."""
    return {name: item for name, item in _exported() if _mentions(_hints(item).get("return"), Aggregate)}


def _methods(kind: type, prefix: str) -> list[tuple[str, Callable[..., Any]]]:
    """Public methods; static ones serve the functions of ddcore."""
    members = {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}
    return [
        (prefix + name, member) for name, member in members.items() if isfunction(member) and not name.startswith("_")
    ]


def _exported() -> list[tuple[str, Callable[..., Any]]]:
    return [(f"dd.{name}", item) for name in dir(ddcore) if isfunction(item := getattr(ddcore, name))]


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters and of the result. Names that only type checkers import are those of collections."""
    return get_type_hints(function, localns={"Collection": Collection, "GroupBy": GroupBy})


def _options(hints: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}


def _mentions(hint: Any, kind: type) -> bool:
    """Whether a type is ``kind`` or contains it, as ``dict[str, kind]`` does."""
    return (
        hint is kind
        or (hint is Self and kind is Collection)
        or any(_mentions(argument, kind) for argument in get_args(hint))
    )
