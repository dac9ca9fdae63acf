"""The functions of programs that take several collections: ``dd.iterate``, ``dd.delta_join`` and ``dd.rows``.

They call the methods of the collections that they are given, so a program means the same to the planner and to the
reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddcore.base.errors import ProgramError
from ddcore.base.source_line import caller
from ddcore.program.collection import Collection
from ddcore.program.loops import DEFAULT_MAX_ROUNDS, AtLimit
from ddcore.text.wording import brief


def iterate(
    collections: Mapping[str, Collection],
    body: Callable[..., Mapping[str, Collection]],
    *,
    priority: Mapping[str, Any] | None = None,
    max_rounds: int = DEFAULT_MAX_ROUNDS,
    at_limit: AtLimit = "fail",
) -> dict[str, Collection]:
    """Several collections round one loop, until nothing changes: mutual recursion.

    ``body`` takes the collections by name and returns a dict with the same names, each with the columns it was given.
    The result holds the fixed points by name. ``priority`` gives integer expressions by name. Otherwise as
    :meth:`Collection.iterate`. Raises ProgramError.
    """
    if not isinstance(collections, Mapping) or not all(isinstance(name, str) for name in collections):
        raise ProgramError(
            f"{caller()}: iterate takes a dict of collections by name, not {brief(collections)}",
            'for example iterate({"odd": a, "even": b}, body)',
        )
    if not collections:
        raise ProgramError(
            f"{caller()}: iterate: there are no collections", 'for example iterate({"odd": a, "even": b}, body)'
        )
    first = next(iter(collections.values()))
    if not hasattr(first, "fixed_points"):
        raise ProgramError(f"{caller()}: iterate: {type(first).__name__} is no collection", "give it collections")
    if priority is not None and not isinstance(priority, Mapping):
        raise ProgramError(
            f"{caller()}: iterate: priority is {brief(priority)}", "give a dict of expressions by the collection's name"
        )
    return dict(type(first).fixed_points(collections, body, priority or {}, max_rounds, at_limit))


def delta_join(*relations: tuple[Collection, Sequence[str]]) -> Collection:
    """The rows of several collections that agree on the attributes they share; multiplicities multiply.

    Each relation is a collection and the names of its attributes, one per column: the triangles of a graph are
    ``dd.delta_join((edges, ["a", "b"]), (edges, ["b", "c"]), (edges, ["a", "c"]))``. A null agrees with nothing.
    The result has a column per attribute, in the order in which they first occur. No intermediate result is kept:
    each collection has an arrangement per key by which another one looks it up, shared with equal ones elsewhere.

    Cost: proportional to the partial matches of the updates. Raises ProgramError for fewer than two relations, names
    that do not fit the columns, attributes of several types, and a relation that shares no attribute with the others.
    """
    for number, relation in enumerate(relations):
        pair = isinstance(relation, tuple) and len(relation) == 2 and hasattr(relation[0], "delta_join")
        if not pair or not isinstance(relation[1], list | tuple) or not all(isinstance(n, str) for n in relation[1]):
            raise ProgramError(
                f"{caller()}: delta_join: relation {number + 1} is no pair of a collection and a list of names",
                'for example delta_join((edges, ["a", "b"]), (edges, ["b", "c"]))',
            )
    if len(relations) < 2:
        raise ProgramError(f"{caller()}: delta_join takes two relations or more", "use the collection as it is")
    return relations[0][0].delta_join(*relations)


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
    for number, attribute in enumerate(attributes, 1):
        if not hasattr(attribute, "columns"):
            raise ProgramError(f"{caller()}: rows: attribute {number} is {type(attribute).__name__}", example)
        if id not in attribute.columns:
            raise ProgramError(
                f"{caller()}: rows: attribute {number} has no column {id}; it has {', '.join(attribute.columns)}",
                "give the column of row ids as id=",
            )
        for name in attribute.columns:
            if name != id and taken.setdefault(name, number) != number:
                raise ProgramError(
                    f"{caller()}: rows: attributes {taken[name]} and {number} both have a column {name}",
                    "rename one of them with rename()",
                )
    if len(attributes) == 1:
        return attributes[0]
    if len(attributes) == 2:
        return attributes[0].join(attributes[1], on=id)
    return attributes[0].delta_join(*((attribute, list(attribute.columns)) for attribute in attributes))
