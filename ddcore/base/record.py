"""Records: dataclasses that nothing changes, for what a command defines before it does any work.

The standard library compiles six methods of a frozen dataclass when it is defined, which takes up to half a
millisecond, and a command defines a hundred. Of a record only ``__init__`` is compiled: comparison, hash and text call
functions that all records share. That nobody assigns to a field is checked by the type checker alone.

Must not import anything heavy: all commands load this.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """A class as ``dataclasses.dataclass(frozen=True)`` makes it, for readers and for :mod:`dataclasses`.

    A record inherits from records, and no frozen dataclass from a record: the standard library refuses both.
    """
    own, made = {*vars(cls)}, dataclass(eq=False, repr=False)(cls)
    parts = fields(made)  # type: ignore[arg-type]
    methods = _methods([part.name for part in parts if part.compare], [part.name for part in parts if part.repr])
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return made


def _methods(compared: list[str], shown: list[str]) -> dict[str, Any]:
    """Comparison, hash and text of a record, by the names of its fields."""
    values = attrgetter(*compared) if compared else type

    def __eq__(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    return {"__eq__": __eq__, "__hash__": __hash__, "__repr__": __repr__}
