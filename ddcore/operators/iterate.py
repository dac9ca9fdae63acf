"""``iterate``: a loop to a fixed point, of one collection or of several that depend on each other (the patent's Fixed
Point).

All variables of a loop advance together: round i + 1 of each is what the body made of round i of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ddcore.errors import ProgramError
from ddcore.functions import name_of
from ddcore.graph import caller

if TYPE_CHECKING:
    from ddcore.collection import Collection

__all__ = ["DEFAULT_MAX_ROUNDS", "fixed_points", "iterate"]

DEFAULT_MAX_ROUNDS = 10_000


def iterate(
    collections: Mapping[str, Any], body: Callable[..., Mapping[str, Any]], *, max_rounds: int = DEFAULT_MAX_ROUNDS
) -> dict[str, Any]:
    """Several collections round one loop, until nothing changes: mutual recursion.

    ``body`` takes the collections by name and returns a dict with the same names, each with the columns it was given.
    The result holds the fixed points by name. Otherwise as :meth:`Collection.iterate`. Raises ProgramError.
    """
    if not collections:
        raise ProgramError(
            f"{caller()}: iterate: there are no collections", 'for example iterate({"odd": a, "even": b}, body)'
        )
    first = next(iter(collections.values()))
    return dict(type(first).fixed_points(collections, body, max_rounds))


def fixed_points(
    collections: Mapping[str, Collection],
    body: Callable[..., Mapping[str, Collection]],
    max_rounds: int,
) -> dict[str, Collection]:
    """The loop of :func:`iterate` in the graph of its collections."""
    place = caller()
    if max_rounds < 1:
        raise ProgramError(f"{place}: max_rounds is {max_rounds}", "give at least 1")
    first = next(iter(collections.values()))
    graph, kind = first._graph, type(first)
    scope = graph.enter_loop(f"{name_of(body)} ({place})", max_rounds, *(each._index for each in collections.values()))
    variables = {name: kind(graph, node) for name, node in zip(collections, scope.variables, strict=True)}
    try:
        results = body(**variables)
    finally:
        graph.open.pop()
    if not isinstance(results, Mapping) or results.keys() != variables.keys():
        found = ", ".join(results) if isinstance(results, Mapping) else type(results).__name__
        raise ProgramError(
            f"{place}: the body of iterate returned {found or 'nothing'}, not {', '.join(variables)}",
            "return a dict with the collections of the loop",
        )
    aligned = [variable._aligned(results[name], "the body of iterate") for name, variable in variables.items()]
    leaves = graph.leave_loop(scope, *aligned)
    return {name: kind(graph, leave) for name, leave in zip(variables, leaves, strict=True)}
