"""Types of random queries that are neither numbers, texts, truths nor dates: UUIDs, intervals, times of day, unsigned
numbers, JSON, lists of texts, structs and maps. A table has a column of each, and queries compute with them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from datetime import time
from typing import TYPE_CHECKING, Any

import polars as pl
from two_texts import both

from ddcore.base.schema import interval_form, uuid_mark

if TYPE_CHECKING:
    from sql_tables import Named, Target

TABLE: dict[str, Any] = {
    "a": pl.Int64, "id": uuid_mark(), "e": interval_form(), "tod": pl.Time(), "w": pl.UInt64(), "j": pl.String(),
    "k": pl.List(pl.String), "z": pl.Struct({"x": pl.Int64, "y": pl.String}), "mp": pl.Map(pl.String, pl.Int64),
}  # fmt: skip
KINDS = {
    "id": "uuid", "e": "interval", "tod": "time", "w": "unsigned", "j": "json", "k": "texts", "z": "struct",
    "mp": "map",
}  # fmt: skip
ORDERED = ("uuid", "interval", "time", "unsigned")
"""Kinds whose values have an order."""
IDS = (
    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "00000000-0000-0000-0000-000000000001",
    "f" * 8 + "-ffff" * 3 + "-" + "f" * 12,
)
SPANS = ("1 mon", "7 days", "05:00:00", "-05:00:00", "00:00:00")
"""Sums of few of these are equal only where they are equally long: engines group what is equally long."""
JSONS = (
    '{"k": "x", "n": 3}', '{"k": null, "n": [1,{"k":"xy"}]}', '[1, "y", null]', "{}", '{"k": "", "n": -2}', '"x"',
    "null",
)  # fmt: skip
_SPAN = re.compile(r"([+-]?\d+) (year|mon|day)|([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?")


def value(rng: random.Random, kind: Any) -> Any:
    """A value of a type that no other table has."""
    if kind == uuid_mark():
        return rng.choice(IDS)
    if kind == interval_form():
        return span(rng.choice(SPANS))
    if kind == pl.Time:
        return rng.choice((time(0), time(8, 30), time(23, 59, 59, 999999), time(12, 0, 0, 5)))
    if kind == pl.UInt64:
        return rng.choice((0, 1, 2, 3, 2**63, 2**64 - 1))
    if kind == pl.Map:
        keys = sorted(rng.sample(("x", "y", ""), rng.randrange(3)))  # the order of keys is DuckDB's alone
        return {key: rng.choice((0, 1, None)) for key in keys}
    return {"x": rng.choice((0, 1, None)), "y": rng.choice(("x", "", None))}


def span(text: str) -> dict[str, int]:
    """The parts of an interval, from what PostgreSQL or DuckDB writes for it."""
    found = {"months": 0, "days": 0, "microseconds": 0}
    for number, unit, sign, hours, minutes, seconds, rest in _SPAN.findall(text):
        if unit:
            found["days" if unit == "day" else "months"] += int(number) * (12 if unit == "year" else 1)
        else:
            whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
            micros = whole * 10**6 + int((rest or "").ljust(6, "0")[:6])
            found["microseconds"] = -micros if sign == "-" else micros
    return found


class RandomTypes:
    """Values of these kinds, and what has the usual kinds of them. ``scope`` has the columns that may be used.

    ``results`` are the kinds that columns of queries may have, of which ``aggregates`` can be a group's; ``ordered``
    and ``joined`` are those that an order and an equality may be of.
    """

    def __init__(self, rng: random.Random, target: Target) -> None:
        self.rng, self.target = rng, target
        self.kinds = [kind for kind in KINDS.values() if target.has("types") and (kind != "map" or target.has("maps"))]
        self.results = [kind for kind in self.kinds if kind != "struct"]
        self.ordered = [kind for kind in ORDERED if kind in self.kinds]
        self.joined = self.kinds
        self.aggregates = {"int", "text", "decimal", "bool", "date", "moment", "float", "json", *self.ordered}
        self.aggregates |= {"list", "texts"} if target.has("aggregates") else set()

    def some(self, kind: str, scope: Sequence[Named]) -> str:
        """A column of a kind, or nothing."""
        fitting = [name for name, other in scope if other == kind]
        return self.rng.choice(fitting) if fitting else ""

    def any_of(self, kinds: Sequence[str], scope: Sequence[Named]) -> Named | None:
        """A column of one of these kinds."""
        fitting = [one for one in scope if one[1] in kinds]
        return self.rng.choice(fitting) if fitting else None

    def literal(self, kind: str) -> str:
        """A constant."""
        choices = {
            "uuid": [f"'{text}'::uuid" for text in IDS],
            "interval": [f"INTERVAL '{text}'" for text in ("1 month", "7 days", "5 hours")],
            "time": ["TIME '08:30:00'", "TIME '00:00:00'"],
            "unsigned": [self._wide(digits) for digits in ("9223372036854775808", "18446744073709551615", "3")],
            "json": [f"'{text}'" for text in JSONS],
            "texts": ["ARRAY['x', 'y']", "ARRAY['', NULL]"],
            "map": ["map {'x': 1}", "map {'x': NULL, 'y': 0}"],
        }
        return self.rng.choice(choices[kind])

    def _wide(self, digits: str) -> str:
        return (
            both(f"{digits}::decimal(20,0)", f"{digits}::ubigint")
            if self.target.engine == "duckdb"
            else f"{digits}::numeric(20,0)"
        )

    def value(self, kind: str, scope: Sequence[Named]) -> str:
        """What makes a value of one of these kinds from others, or nothing."""
        column = self.some(kind, scope)
        if kind == "interval":
            moment, other = self.some("moment", scope), self.some("moment", scope)
            choices = [
                f"({column} * {self.rng.choice((2, -1))})",
                f"(- {column})",
                f"({column} + {self.literal(kind)})",
            ] * bool(column)
            choices += [f"({moment} - {other})"] * bool(moment)
        elif kind == "time":
            moment = self.some("moment", scope)
            choices = [f"({column} {self.rng.choice('+-')} INTERVAL '90 minutes')"] * bool(column)
            choices += [f"CAST({moment} AS time)"] * bool(moment)
        elif kind == "uuid":
            text = self.some("text", scope)
            choices = [f"CAST(md5({text}) AS uuid)"] * bool(text) + [
                f"CAST(upper(CAST({column} AS text)) AS uuid)"
            ] * bool(column)
        elif kind == "unsigned":
            number = self.some("int", scope)
            choices = [f"({column} + {number})" for _ in "." if column and number]
        elif kind == "texts":
            text = self.some("text", scope)
            choices = [f"ARRAY[{text}, {self.rng.choice((text, 'NULL'))}]"] * bool(text)
        elif kind == "json":
            choices = []
        else:
            choices = []
        return self.rng.choice(choices) if choices else ""

    def numbers(self, scope: Sequence[Named]) -> list[str]:
        """Whole numbers that columns of these kinds have."""
        found = []
        if at := self.some("time", scope):
            found.append(f"CAST(extract({self.rng.choice(('hour', 'minute'))} FROM {at}) AS bigint)")
        if long := self.some("interval", scope):
            found.append(f"CAST(extract({self.rng.choice(('day', 'hour', 'month'))} FROM {long}) AS bigint)")
        if listed := self.some("texts", scope):
            found.append(self.length(listed))
        if pair := self.some("struct", scope):
            found.append(self.field(pair, "x"))
        if entries := self.some("map", scope):
            found += [f"{entries}['x']", f"cardinality({entries})"]
        if text := self.some("json", scope):
            found.append(f"length({self.part(text)})")
        return found

    def texts(self, scope: Sequence[Named]) -> list[str]:
        """Texts that columns of these kinds have."""
        found = [f"CAST({name} AS text)" for name, kind in scope if kind in ("uuid", "time", "unsigned")]
        found += [f"{name}[{self.rng.randrange(1, 3)}]" for name, kind in scope if kind == "texts"]
        found += [self.field(name, "y") for name, kind in scope if kind == "struct"]
        return found + [self.part(name) for name, kind in scope if kind == "json"]

    def length(self, listed: str) -> str:
        """How many elements a list has."""
        length = "len" if self.target.dialect == "duckdb" else "cardinality"
        return both(f"{length}({listed})", f"{'len' if self.target.engine == 'duckdb' else 'cardinality'}({listed})")

    def field(self, pair: str, name: str) -> str:
        """A field of a struct."""
        return f"({pair}).{name}"

    def part(self, text: str) -> str:
        """A part of JSON as text."""
        path = self.rng.choice(("->> 'k'", "->> 'n'", "->> 0", "-> 'n' -> 1 ->> 'k'", "-> 1"))
        if path == "-> 1":
            path = "->> 1"
        cast = "::json" if self.target.engine == "postgres" else ""
        return both(f"({text} {path})", f"({text}{cast} {path})")

    def condition(self, scope: Sequence[Named]) -> str:
        """A condition on a column of these kinds, or nothing where there is none."""
        found = self.any_of(self.kinds, scope)
        if found is None:
            return ""
        column, kind = found
        if self.rng.random() < 0.2 and kind != "struct":  # in PostgreSQL a struct of nulls is null, too
            return f"{column} IS {self.rng.choice(('', 'NOT '))}NULL"
        if kind in ORDERED:
            return self._comparison(column, kind, scope)
        if kind != "json" and self.rng.random() < 0.4:
            other = self.some(kind, scope) if self.rng.random() < 0.7 or kind == "struct" else self.literal(kind)
            return f"{column} {self.rng.choice(('=', '<>', 'IS DISTINCT FROM', 'IS NOT DISTINCT FROM'))} {other}"
        return {
            "json": f"{self.part(column)} {self.rng.choice(('=', '<>', '<'))} 'x'",
            "struct": f"{self.field(column, 'x')} = 1",
            "map": f"{column}['x'] = 1",
            "texts": self.rng.choice(
                [f"{column}[1] < 'y'"]
                + [f"'x' {sign}({column})" for sign in ("= ANY", "<> ALL") if self.target.has("any of lists")]
            ),
        }[kind]

    def _comparison(self, column: str, kind: str, scope: Sequence[Named]) -> str:
        draw = self.rng.random()
        if draw < 0.2 and kind != "interval":
            return f"{column} {self.rng.choice(('', 'NOT '))}IN ({self.literal(kind)}, {self.literal(kind)})"
        other = self.some(kind, scope) if draw < 0.5 else self.value(kind, scope) or self.literal(kind)
        if draw > 0.9:
            return f"{column} IS {self.rng.choice(('', 'NOT '))}DISTINCT FROM {other}"
        return f"{column} {self.rng.choice(('=', '<>', '<', '>=', '<=', '>'))} {other}"

    def aggregate(self, kind: str, value: str, where: str) -> str:
        """An aggregate of a kind of values of it, or of texts for a list of them."""
        name = self.rng.choice(("min", "max"))
        if kind == "texts":
            return f"array_agg(({value})[1] ORDER BY ({value})[1]{self.rng.choice(('', ' DESC'))}){where}"
        if kind == "uuid" and self.target.engine == "postgres":
            return both(f"{name}({value}){where}", f"CAST({name}(CAST({value} AS text)){where} AS uuid)")
        if kind == "unsigned":
            name = self.rng.choice(("min", "max", "sum"))
        return f"{name}({value}){where}"
