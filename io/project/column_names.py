"""The names of columns and fields that a Delta table can have."""

from __future__ import annotations

from ddcore.base.errors import ProgramError
from ddcore.base.schema import Type

# Delta on protocol (1,2) takes none of these in a column name.
NOT_IN_COLUMNS = set(" ,;{}()\n\t=`.\0")


def check_fields(kind: Type) -> None:
    """Raise ProgramError for a struct, also inside others, with a field name that a Delta table cannot have."""
    known: dict[str, str] = {}
    for name, _ in kind.fields:
        if not name or NOT_IN_COLUMNS & set(name) or not name.isprintable():
            raise ProgramError(
                f"Delta tables do not take the field name {ascii(name)[:60]}",
                "rename the field, with letters, digits and _",
            )
        first = known.setdefault(name.casefold(), name)
        if first != name:
            raise ProgramError(f"Delta tables take {first} and {name} for the same field", "rename one of them")
    for _, inner in kind.inner:
        check_fields(inner)
