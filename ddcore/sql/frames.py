"""WINDOW and the frames of OVER: which rows around a row a function looks at."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlglot import exp

from ddcore.operators.frame import Frame
from ddcore.sql.names import is_named
from ddcore.sql.source import Source, parts, shown
from ddcore.sql.values import Interval, Values
from ddcore.text.wording import listed, meant

_EXCLUDED = {"CURRENT ROW": "row", "GROUP": "peers", "TIES": "ties", "NO OTHERS": "nothing"}
_FARTHEST = 2**40  # rows: more than there are


def windows_in(nodes: Any) -> list[exp.Window]:
    """The windows in parts of a SELECT, not those of subqueries."""

    def inside(node: exp.Expr) -> Any:
        return () if isinstance(node, exp.Query | exp.Window) else node.iter_expressions()

    return [node for node in parts(nodes, inside) if isinstance(node, exp.Window)]


def resolved(source: Source, select: exp.Select) -> None:
    """Writes what WINDOW names into the windows that name it."""
    definitions = list(select.args.get("windows") or [])
    order = select.args.get("order")
    nodes = [*select.expressions, *(order.expressions if order else []), *filter(None, [select.args.get("qualify")])]
    for number, definition in enumerate(definitions):  # each may name those before it
        _resolve(source, definition, definitions[:number])
    for window in windows_in(nodes):
        _resolve(source, window, definitions)


def _resolve(source: Source, window: exp.Window, definitions: list[exp.Window]) -> None:
    name = window.args.get("alias")
    if name is None:
        return
    base = next((definition for definition in definitions if is_named(name, definition.this.name)), None)
    if base is None:
        names = [definition.this.name for definition in definitions]
        raise source.error(
            window, f"there is no window {name.name}" + (f"; there are: {listed(names)}" if names else ""),
            meant(name.name, names) or "name it: WINDOW w AS (PARTITION BY ... ORDER BY ...)",
        )  # fmt: skip
    own = [key for key in ("partition_by", "order", "spec") if window.args.get(key)]
    if "partition_by" in own or ("order" in own and base.args.get("order")) or (own and base.args.get("spec")):
        raise source.error(
            window, f"{shown(window)} changes what the window {name.name} says", "write the whole window in OVER (...)"
        )
    for key in {"partition_by", "order", "spec"} - {*own}:
        value = base.args.get(key)
        window.set(key, [part.copy() for part in value] if isinstance(value, list) else value and value.copy())
    window.set("alias", None)


def frame_of(values: Values, window: exp.Window) -> Frame | None:
    """The frame that a window names. Raises ProgramError."""
    spec = window.args.get("spec")
    if spec is None:
        return None
    source, unit = values.source, str(spec.args.get("kind") or "RANGE").lower()
    end = spec.args.get("end") or "CURRENT ROW"
    first = _end(values, window, unit, spec.args.get("start"), spec.args.get("start_side"))
    last = _end(values, window, unit, end, spec.args.get("end_side"))
    exclude = spec.args.get("exclude")
    excluded = _EXCLUDED.get(exclude.name.upper() if isinstance(exclude, exp.Expr) else str(exclude or "NO OTHERS"))
    if excluded is None:
        source.refuse(window, "this EXCLUDE")
    sides = _side(spec.args.get("start"), spec.args.get("start_side")), _side(end, spec.args.get("end_side"))
    if sides[0] > sides[1]:
        raise source.error(window, f"the frame of {shown(window)} ends before it begins", "name the earlier end first")
    return Frame(unit, first, last, excluded)


def _side(end: Any, side: Any) -> int:
    return 0 if end == "CURRENT ROW" else -1 if side == "PRECEDING" else 1


def _end(values: Values, window: exp.Window, unit: str, end: Any, side: Any) -> Any:
    """How far from the current row a frame goes; None: as far as the partition."""
    if end in ("UNBOUNDED", "CURRENT ROW"):
        return None if end == "UNBOUNDED" else 0
    source = values.source
    distance = values.of(end).literal if isinstance(end, exp.Expr) else None
    if unit != "range" and (isinstance(distance, bool) or not isinstance(distance, int)):
        source.refuse(window, f"a frame of {unit} by what is no whole number")
    if isinstance(distance, Interval):
        if distance.months:
            source.refuse(window, "a frame of months", "write days: INTERVAL '30 days'")
        distance = timedelta(days=distance.days, microseconds=distance.microseconds)
    if distance is None or isinstance(distance, bool | str):
        source.refuse(window, "a frame by what is no literal number or interval")
    if distance < type(distance)(0):
        raise source.error(
            window, f"the frame of {shown(window)} has a negative distance", "write PRECEDING or FOLLOWING"
        )
    if unit != "range":
        distance = min(distance, _FARTHEST)
    return -distance if side == "PRECEDING" else distance
