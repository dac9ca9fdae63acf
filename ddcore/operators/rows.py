"""``dd.rows``: attributes that belong to the same row ids, put side by side again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcore.base.errors import ProgramError
from ddcore.base.source_line import caller

if TYPE_CHECKING:
    from ddcore.program.collection import Collection

__all__ = ["rows"]


def rows(*attributes: Collection, id: str = "row_id") -> Collection:
    """The rows that have all of these attributes: the id, then the columns of each collection but its id.

    The attributes are collections with a column ``id``, such as those of :meth:`Collection.attributes`, also with fewer
    rows after a ``where``. Two are joined by ``join`` and more by ``delta_join``, so that nothing but the attributes is
    stored, each once, however many subsets are put together. Raises ProgramError.
    """
    example = 'for example dd.rows(parts["name"], parts["price"]) of parts = items.attributes()'
    if not attributes:
        raise ProgramError(f"{caller()}: rows takes one attribute or more", example)
    taken: dict[str, int] = {}
    for number, each in enumerate(attributes, 1):
        if not hasattr(each, "columns"):
            raise ProgramError(f"{caller()}: rows: attribute {number} is {type(each).__name__}", example)
        if id not in each.columns:
            raise ProgramError(
                f"{caller()}: rows: attribute {number} has no column {id}; it has {', '.join(each.columns)}",
                "give the column of row ids as id=",
            )
        for name in each.columns:
            if name != id and taken.setdefault(name, number) != number:
                raise ProgramError(
                    f"{caller()}: rows: attributes {taken[name]} and {number} both have a column {name}",
                    "rename one of them with rename()",
                )
    if len(attributes) == 1:
        return attributes[0]
    if len(attributes) == 2:
        return attributes[0].join(attributes[1], on=id)
    return attributes[0].delta_join(*((each, list(each.columns)) for each in attributes))
