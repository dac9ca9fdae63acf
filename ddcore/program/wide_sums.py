"""Sums and means of decimals with more than 18 digits in ``agg`` and ``over``: operators around the aggregation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ddcore.base.schema import Schema
from ddcore.operators.wide_sums import FromLimbs, Limbs, Sum, is_summed

Collection = Any  # the one of ddcore.program.collection, which imports this module
W = TypeVar("W")


def aggregated(
    prepared: Collection,
    results: Sequence[W],
    part: Callable[[W], tuple[str, str, str | None]],
    other: Callable[[W, str, str], W],
    aggregate: Callable[[Collection, tuple[W, ...]], Collection],
) -> Collection:
    """The rows of an aggregation of ``prepared``.

    ``part``: of a result its name, its aggregate and its argument. ``other``: the result with another name and
    argument, as a sum. ``aggregate``: the aggregation with these results.
    """
    schema: Schema = prepared.schema
    wide = [result for result in results if _is_wide(part(result), schema)]
    if not wide:
        return aggregate(prepared, tuple(results))
    arguments = {str(part(result)[2]): None for result in wide}
    limbs = Limbs.of(schema, list(arguments))
    plain = [result for result in results if result not in wide]
    taken, sums, more = {part(result)[0] for result in results}, list[Sum](), list[W]()
    for result in wide:
        name, kind, argument = part(result)
        columns = limbs.cut[str(argument)]
        names = tuple(_free(f"{column} of {name}", taken) for column in columns)
        more += [other(result, new, column) for new, column in zip(names, columns, strict=True)]
        sums.append(Sum(name, kind, schema[str(argument)].scale, names[:-1], names[-1]))
    rows = aggregate(prepared._add(limbs), (*plain, *more))
    every = {part(result)[0] for result in results}
    internal = {name for total in sums for name in (*total.limbs, total.number)}
    first = [name for name in rows.schema if name not in internal and name not in every]
    return rows._add(FromLimbs.of(rows.schema, first, [part(result)[0] for result in results], sums))


def _is_wide(part: tuple[str, str, str | None], schema: Schema) -> bool:
    _, kind, argument = part
    return argument is not None and is_summed(kind, schema[argument])


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
