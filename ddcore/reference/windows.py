"""Functions of rows in an order, each by its definition: which rows are in a frame, and what is computed of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import polars as pl

from ddcore.reference.aggregates import MEANINGS
from ddcore.reference.expressions import expression_of
from ddcore.reference.gathered import DEFINITIONS
from ddcore.reference.multiset import Multiset
from ddcore.reference.rows import NAN, Row, canonical, order_of

Ordered = tuple[int, bool, bool]
"""The place of a column in a row, whether it descends, whether nulls come first."""
_VALUES = ("lag", "lead", "first_value", "last_value", "nth_value")


def in_order(rows: Iterable[Row], order: Sequence[Ordered]) -> list[Row]:
    """Rows sorted by columns, the first of which decides first."""
    result = list(rows)
    for position, down, first in reversed(order):
        nulls = [row for row in result if row[position] is None]
        others = [row for row in result if row[position] is not None]
        others.sort(key=lambda row, position=position: order_of(row[position]), reverse=down)  # type: ignore[misc]
        result = nulls + others if first else others + nulls
    return result


class Partition:
    """The rows of a group in their order."""

    def __init__(self, rows: list[Row], order: Sequence[Ordered]) -> None:
        self.rows, self.order = rows, order
        values = [tuple(row[position] for position, _, _ in order) for row in rows]
        self.group = [0] * len(rows)
        for position in range(1, len(rows)):
            self.group[position] = self.group[position - 1] + (values[position] != values[position - 1])

    def peers(self, position: int) -> list[int]:
        """The rows that are equal in the order, itself among them."""
        return [other for other, group in enumerate(self.group) if group == self.group[position]]

    def frame(self, frame: Any, position: int) -> list[int]:
        """The rows in a row's frame."""
        if frame is None:
            everything = [other for other in range(len(self.rows)) if self.group[other] <= self.group[position]]
            return everything if self.order else [*range(len(self.rows))]
        rows = [
            other
            for other in range(len(self.rows))
            if (frame.start is None or self._is_from(frame.unit, frame.start, position, other, 1))
            and (frame.end is None or self._is_from(frame.unit, frame.end, position, other, -1))
        ]
        left_out = {
            "nothing": [],
            "row": [position],
            "peers": self.peers(position),
            "ties": [other for other in self.peers(position) if other != position],
        }[frame.exclude]
        return [other for other in rows if other not in left_out]

    def _is_from(self, unit: str, distance: Any, position: int, other: int, side: int) -> bool:
        """Whether another row is at this distance of a row or, with ``side`` 1 after it, with -1 before it."""
        if unit == "rows":
            return bool((other - position - distance) * side >= 0)
        if unit == "groups" or not distance:
            return (self.group[other] - self.group[position] - (distance if unit == "groups" else 0)) * side >= 0
        column, down, _ = self.order[0]
        value, of_other = self.rows[position][column], self.rows[other][column]
        if value is None or of_other is None:
            both = value is None and of_other is None
            return both or (self.group[other] - self.group[position]) * side > 0
        target = _moved(value, -distance if down else distance)
        if order_of(of_other) == order_of(target):
            return True
        later = bool(order_of(of_other) > order_of(target))
        return later == ((side > 0) != down)


def _moved(value: Any, distance: Any) -> Any:
    if isinstance(value, float):
        (total,) = canonical((value + float(distance),))
        return NAN if total is NAN else total
    return value + (distance if isinstance(distance, timedelta) else type(value)(distance))


def arguments_of(source: Multiset, functions: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The type of each function's argument, and for each row (argument, default), by the function's name."""
    types: dict[str, Any] = {}
    rows: list[dict[str, Any]] = [{} for _ in source.rows]
    for name, function in functions.items():
        argument = pl.lit(True) if function.expr is None else expression_of(function.expr)
        exprs = {"argument": argument}
        if getattr(function, "default", None) is not None:
            exprs["default"] = expression_of(function.default)
        kinds, values = source.map(exprs)
        types[name] = kinds["argument"]
        counted = (
            source.rows
            if getattr(function, "where", None) is None
            else source.where(expression_of(function.where)).rows
        )
        for row, known, of_row in zip(source.rows, rows, values, strict=True):
            argument, *default = canonical(of_row)
            known[name] = (argument if row in counted else None, default[0] if default else None)
    return types, rows


def type_of(function: Any, argument: Any) -> Any:
    """The type of a result."""
    if function.kind in MEANINGS:
        return MEANINGS[function.kind].dtype(argument)
    if function.kind in DEFINITIONS:
        return DEFINITIONS[function.kind].dtype(argument)
    if function.kind in _VALUES:
        return argument
    return pl.Float64() if function.kind in ("percent_rank", "cume_dist") else pl.Int64()


def result_of(function: Any, partition: Partition, position: int, values: list[tuple[Any, Any]], dtype: Any) -> Any:
    """The result in one row; ``values``: the argument and the default in each row of the partition."""
    kind = function.kind
    if kind in MEANINGS or kind in DEFINITIONS:
        frame = [values[other][0] for other in partition.frame(function.frame, position)]
        if function.distinct:
            frame = [*dict.fromkeys(frame)]
        if kind in MEANINGS:
            return MEANINGS[kind].value([(value, 1) for value in frame if value is not None], dtype)
        return _gathered_of(function, [fields for fields in frame if fields is not None])
    if kind in _VALUES:
        return _value_of(function, partition, position, values)
    return _number_of(function, partition, position)


def _gathered_of(function: Any, rows: list[tuple[Any, ...]]) -> Any:
    """An aggregate of tuples of fields, which lists without an order of their own have in this order."""
    values = [value for value, *_ in rows]
    is_sorted = function.kind in ("array_agg", "string_agg") and (function.options[0] or function.options[1])
    if is_sorted:
        return DEFINITIONS[function.kind].value([(fields, 1) for fields in rows], function.options)
    if function.kind == "array_agg":
        return tuple(values) or None
    if function.kind == "string_agg":
        texts = [value for value in values if value is not None]
        return function.options[2].join(texts) if texts else None
    return DEFINITIONS[function.kind].value([(fields, 1) for fields in rows], function.options)


def _number_of(function: Any, partition: Partition, position: int) -> Any:
    """What depends on the row's place alone."""
    number, peers, parts = len(partition.rows), partition.peers(position), function.number
    sizes = [number // parts + (part < number % parts) for part in range(min(number, parts))]
    return {
        "row_number": position + 1,
        "rank": peers[0] + 1,
        "dense_rank": partition.group[position] + 1,
        "percent_rank": peers[0] / (number - 1) if number > 1 else 0.0,
        "cume_dist": (peers[-1] + 1) / number,
        "ntile": next(part for part in range(len(sizes)) if position < sum(sizes[: part + 1])) + 1,
    }[function.kind]


def _value_of(function: Any, partition: Partition, position: int, values: list[tuple[Any, Any]]) -> Any:
    """The argument in another row."""
    counted = [other for other, (value, _) in enumerate(values) if value is not None or not function.ignore_nulls]
    if function.kind in ("lag", "lead"):
        if function.number == 0:
            return values[position][0]
        back = function.kind == "lag"
        side = [other for other in counted if (other < position if back else other > position)]
        side = side[::-1] if back else side
        return values[side[function.number - 1]][0] if function.number <= len(side) else values[position][1]
    frame = [other for other in partition.frame(function.frame, position) if other in counted]
    wanted = {"first_value": 0, "last_value": len(frame) - 1, "nth_value": function.number - 1}[function.kind]
    return values[frame[wanted]][0] if 0 <= wanted < len(frame) else None
