"""Records: as frozen dataclasses are, for whoever compares, hashes, shows, copies, pickles or replaces one."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import pytest

from ddcore.base.record import record


@record
class Place:
    """Two fields, of which one is not compared and not shown."""

    name: str
    links: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def size(self) -> int:
        """How long the name is."""
        return len(self.name)


@dataclass(frozen=True)
class Plain:
    """The same by the standard library."""

    name: str
    links: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)


@record
class Stop(Place):
    """A record that inherits from one."""

    zone: int = 1


@record
class Nothing:
    """No fields."""


@record
class Shown:
    """Has a text and a hash of its own."""

    name: str

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __hash__(self) -> int:
        return 7


def test_a_record_is_as_a_frozen_dataclass() -> None:
    for kind in (Place, Plain):
        one, same, other = kind("a", {"b": 1}), kind("a"), kind("b")
        assert one == same != other and hash(one) == hash(same)
        assert len({one, same, other}) == 2
        assert repr(one) == f"{kind.__name__}(name='a')"
        assert replace(one, name="b") == other and copy(one) == one
        assert [part.name for part in fields(kind)] == ["name", "links"]
        assert pickle.loads(pickle.dumps(one)).links == {"b": 1}
    other_kind: object = Plain("a")
    assert Place("a") != other_kind
    assert Place("abc").size == 3


def test_records_inherit_from_records() -> None:
    assert Stop("a", zone=2) == Stop("a", {"x": 1}, 2) != Stop("a")
    assert Stop("a") != Place("a") and repr(Stop("a")) == "Stop(name='a', zone=1)"
    with pytest.raises(TypeError, match="cannot inherit frozen dataclass"):
        dataclass(frozen=True)(type("Sub", (Place,), {}))


def test_without_fields_and_with_methods_of_its_own() -> None:
    assert Nothing() == Nothing() and hash(Nothing()) == hash(Nothing()) and repr(Nothing()) == "Nothing()"
    assert repr(Shown("a")) == "<a>" and hash(Shown("b")) == 7 and Shown("a") == Shown("a") != Shown("b")
