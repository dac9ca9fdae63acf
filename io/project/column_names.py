"""The names of columns and fields that a Delta table can have."""

from __future__ import annotations

from collections.abc import Iterable

from ddcore.base.errors import ProgramError
from ddcore.base.schema import Type

# Delta on protocol (1,2) takes none of these in a column name.
NOT_IN_COLUMNS = set(" ,;{}()\n\t=`.\0")


def check_names(names: Iterable[str], noun: str, taken: Iterable[str] = ()) -> None:
    """Raise ProgramError for names that a Delta table cannot have, beside those that are ``taken``: case does not count
    there. ``noun``: what they name.
    """
    known = {name.casefold(): name for name in taken}
    for name in names:
        if not name or NOT_IN_COLUMNS & set(name) or not name.isprintable():
            raise ProgramError(
                f"Delta tables do not take the {noun} name {ascii(name)[:60]}",
                f"rename the {noun}, with letters, digits and _",
            )
        first = known.setdefault(name.casefold(), name)
        if first != name:
            raise ProgramError(f"Delta tables take {first} and {name} for the same {noun}", "rename one of them")


def check_fields(kind: Type) -> None:
    """Raise ProgramError for a struct, also inside others, with a field name that a Delta table cannot have."""
    check_names((name for name, _ in kind.fields), "field")
    for _, inner in kind.inner:
        check_fields(inner)
