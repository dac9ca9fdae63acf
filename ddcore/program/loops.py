"""Loops to a fixed point, of one collection or of several that depend on each other.

They are Fixed Point (sources: McSherry 2012).

All variables of a loop advance together: round i + 1 of each is the body's result for round i of all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any, Literal, get_args

from ddcore.base.errors import ProgramError
from ddcore.base.source_line import caller
from ddcore.expressions.parsing import parse
from ddcore.operators import arguments
from ddcore.operators.function_fingerprint import name_of
from ddcore.operators.priority import Priority
from ddcore.program.linear import C, aligned, beside
from ddcore.text.wording import brief, meant

AtLimit = Literal["fail", "return"]
DEFAULT_MAX_ROUNDS = 10_000


def fixed_point(rows: C, body: Callable[[C], C], priority: Any, max_rounds: int, at_limit: AtLimit) -> C:
    """The loop of ``Collection.iterate``: of one collection, which its body returns without a name."""
    arguments.require_function(body, "iterate")

    def only(variable: C) -> dict[str, C]:
        return {"variable": body(variable)}

    only.__name__ = name_of(body)
    priorities = {} if priority is None else {"variable": priority}
    return fixed_points({"variable": rows}, only, priorities, max_rounds, at_limit)["variable"]


def fixed_points(
    collections: Mapping[str, C],
    body: Callable[..., Mapping[str, C]],
    priority: Mapping[str, Any],
    max_rounds: int,
    at_limit: AtLimit,
) -> dict[str, C]:
    """The loop of :func:`ddcore.iterate` in the graph of its collections."""
    line = caller()
    arguments.require_function(body, "iterate")
    if isinstance(max_rounds, bool) or not isinstance(max_rounds, Integral) or max_rounds < 1:
        raise ProgramError(f"{line}: max_rounds is {brief(max_rounds)}", "give a whole number of at least 1")
    _check_parameters(body, collections)
    arguments.choice(at_limit, get_args(AtLimit), "iterate: at_limit")
    if priority and at_limit == "return":
        raise ProgramError(f"{line}: iterate: a priority and a limit at which to return", "leave one of them out")
    for name in priority:
        if name not in collections:
            raise ProgramError(
                f"{line}: iterate: priority for {name}, which is no collection of the loop",
                meant(name, collections) or f"name one of {', '.join(collections)}",
            )
    first = next(iter(collections.values()))
    graph, kind = first._graph, type(first)
    for collection in collections.values():
        beside(collection, first, "iterate")
    sources = [
        (collection._index, _priority(priority.get(name), collection)) for name, collection in collections.items()
    ]
    scope = graph.enter_loop(f"{name_of(body)} ({line})", (int(max_rounds), at_limit == "return"), sources)
    variables = {name: kind(graph, node) for name, node in zip(collections, scope.variables, strict=True)}
    try:
        results = body(**variables)
    except BaseException:
        scope.closed = True  # if a program goes on all the same, the loop has no result that it could use
        raise
    finally:
        graph.open.pop()
    if not isinstance(results, Mapping) or results.keys() != variables.keys():
        returned = ", ".join(results) if isinstance(results, Mapping) else type(results).__name__
        raise ProgramError(
            f"{line}: the body of iterate returned {returned or 'nothing'}, not {', '.join(variables)}",
            "return a dict with the collections of the loop",
        )
    ends = [_result(variable, results[name])._index for name, variable in variables.items()]
    leaves = graph.leave_loop(scope, *ends)
    return {name: kind(graph, leave) for name, leave in zip(variables, leaves, strict=True)}


def _check_parameters(body: Callable[..., Any], names: Mapping[str, Any]) -> None:
    """Raises ProgramError for a body that does not take the collections by name."""
    try:
        signature = inspect.signature(body)
    except (TypeError, ValueError):  # of a function that is not written in Python; it says itself what it takes
        return
    try:
        signature.bind(**names)
    except TypeError as error:
        raise ProgramError(
            f"{caller()}: the body of iterate takes {signature}, and the collections are {', '.join(names)}: {error}",
            "name the parameters after the collections, one each",
        ) from None


def _result(variable: C, returned: Any) -> C:
    """What a body returned for a variable, with its columns in the variable's order. Raises ProgramError."""
    result = beside(returned, variable, "the body of iterate")
    if result.schema != variable.schema:
        raise ProgramError(
            f"{caller()}: the body of iterate is given the columns {arguments.shown(variable.schema)} and returns"
            f" {arguments.shown(result.schema)}",
            "return the same names and types: use select() in the body, with cast() where a type differs",
        )
    return aligned(variable, result)


def _priority(value: Any, collection: C) -> Priority | None:
    if value is None:
        return None
    try:
        return Priority.of(parse(value, bare_string="column"), collection.schema)
    except ProgramError as error:
        raise ProgramError(f"{caller()}: iterate: {error.message}", error.hint) from None
