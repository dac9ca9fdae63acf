"""Dataclasses as JSON and back: a field that has its default is left out, and lists become tuples.

Must not import anything heavy: every command reads records of the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")

Form = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""How a value is written, and read."""
Forms = Mapping[str, Form]
"""By the name of a field; others are as JSON has them."""

_PLAIN: Forms = {}


def written(one: Any, forms: Forms = _PLAIN, without: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a dataclass for JSON, in their order, ``without`` some."""
    kind: Any = type(one)
    return {
        name: forms[name][0](value) if name in forms else value
        for name, default in _defaults(kind)
        if name not in without and (value := getattr(one, name)) != default
    }


def read(kind: type[T], body: Mapping[str, Any], forms: Forms = _PLAIN) -> T:
    """The dataclass that :func:`written` wrote. Raises TypeError for missing and unknown fields."""
    return kind(
        **{
            name: forms[name][1](value) if name in forms else tuple(value) if isinstance(value, list) else value
            for name, value in body.items()
        }
    )


def nested(kind: type[Any], forms: Forms = _PLAIN) -> Form:
    """The form of a dataclass inside of another one."""
    return lambda one: written(one, forms), lambda body: read(kind, body, forms)


def mapped(form: Form) -> Form:
    """The form of a mapping of such values by text."""
    write, read = form
    return (
        lambda values: {name: write(value) for name, value in values.items()},
        lambda values: {name: read(value) for name, value in values.items()},
    )


def each_of(form: Form) -> Form:
    """The form of a tuple of such values."""
    write, read = form
    return lambda values: [*map(write, values)], lambda values: tuple(map(read, values))


@cache
def _defaults(kind: type[Any]) -> list[tuple[str, Any]]:
    """The fields, each with its default; MISSING where it has none, or has another one each time."""
    return [
        (field.name, field.default_factory() if field.default_factory in (dict, list) else field.default)
        for field in fields(kind)
    ]
