"""Time zones in SQL: what clocks show at an instant, and the instant at which they show it."""

from __future__ import annotations

import zoneinfo

import polars as pl
from sqlglot import exp

from ddcore.sql import macros
from ddcore.sql.types import TIMESTAMP
from ddcore.sql.values import Named, Rule, Value, Values, shared

_DAY = 86_400_000_000  # no clock skips more
_WITH_ZONE = (exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ)
_WITHOUT = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ)
_HINT = (
    "say which it is: ts::timestamptz AT TIME ZONE 'Europe/Paris' is what clocks show there at an instant, "
    "ts::timestamp AT TIME ZONE 'Europe/Paris' the instant at which they show it"
)


def zone_of(values: Values, node: exp.Expr) -> str:
    """The zone that a literal names. Raises ProgramError for any other."""
    zone = values.of(node.args["zone"]).literal
    if not isinstance(zone, str) or zone not in zoneinfo.available_timezones():
        values.source.refuse(node, "a time zone that is no literal name", "such as 'Europe/Paris' or 'UTC'")
    return zone


def in_zone(moment: pl.Expr, zone: str) -> pl.Expr:
    """What clocks in a zone show at an instant, as a timestamp."""
    return moment.dt.convert_time_zone(zone).dt.replace_time_zone(None).dt.replace_time_zone("UTC")


def from_zone(moment: pl.Expr, zone: str, *, first: bool = True) -> pl.Expr:
    """The instant at which clocks in a zone show a time: the ``first`` of two, or the last, and where they skip it, as
    far behind the gap as it is behind its begin. ``moment`` is named twice.
    """

    def instant(local: pl.Expr) -> pl.Expr:
        which = "earliest" if first else "latest"
        there = local.dt.replace_time_zone(None).dt.replace_time_zone(zone, ambiguous=which, non_existent="null")  # type: ignore[arg-type]
        return there.dt.convert_time_zone("UTC")

    skipped = instant((moment.dt.epoch("us") - _DAY).cast(TIMESTAMP.polars))
    later = (skipped.dt.epoch("us") + _DAY).cast(TIMESTAMP.polars)
    return pl.coalesce(instant(moment), later)


def _is_instant(values: Values, node: exp.Expr) -> bool:
    """Whether a timestamp has a zone in PostgreSQL. Raises ProgramError where the text does not tell."""
    inner = node.unnest()
    if isinstance(inner, exp.AtTimeZone):
        return not _is_instant(values, inner.this)
    if isinstance(inner, exp.Cast) and inner.to.this in (*_WITH_ZONE, *_WITHOUT):
        return inner.to.this in _WITH_ZONE
    if isinstance(inner, exp.Subquery) and inner.meta.get("name") == "now":
        return True
    values.source.refuse(node, "AT TIME ZONE of what may be an instant or a local time", _HINT)


def _at_time_zone(values: Values, node: exp.AtTimeZone) -> Value:
    """Of an instant what clocks show, of a local time the instant; of two instants PostgreSQL takes the last."""
    is_instant, zone = _is_instant(values, node.this), zone_of(values, node)
    value = values.moment(values.of(node.this))
    if is_instant:
        return Value(in_zone(value.expr, zone), TIMESTAMP, node)
    return Value(shared([value], lambda one: from_zone(one.expr, zone, first=False)), TIMESTAMP, node)


RULES: dict[type[exp.Expr], Rule] = {exp.AtTimeZone: _at_time_zone}
NAMED: dict[str, Named] = {"timezone": (2, macros.node_of(exp.AtTimeZone, "zone", "this"))}
