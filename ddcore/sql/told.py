"""What planning decided about the joins of a FROM, for ``dd plan``: their order, and what is met before them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from ddcore.sql.join_conditions import Condition
from ddcore.sql.names import Column, types
from ddcore.sql.source import Source, shown


@dataclass
class Joins:
    """The tables of a FROM, as they are put together.

    A collection is known by the names of the tables whose columns it has. One without such columns is left out.
    """

    source: Source
    columns: list[Column]
    texts: dict[str, str] = field(default_factory=dict)
    """By the name of a table, what it is joined with so far."""
    met: list[str] = field(default_factory=list)
    orders: list[str] = field(default_factory=list)

    def joined(self, rows: Any, other: Any, how: str, conditions: Iterable[Condition]) -> None:
        """Two collections become one."""
        left, right = self._names(rows), self._names(other)
        if not left or not right:
            return
        on = " AND ".join(map(self._condition, conditions))
        inner = self._text(right)
        brackets = f"({inner})" if " JOIN " in inner else inner
        text = f"{self._text(left)} {how} {brackets}{f' ON {on}' if on else ''}"
        same = {*left, *right} | {name for name, one in self.texts.items() if one in (self._text(left), inner)}
        self.texts |= dict.fromkeys(same, text)

    def order(self, collections: Iterable[Any], rows: float, written: float) -> None:
        """An order by size, the rows between its joins, and those between the joins as they are written."""
        names = " ".join(",".join(self._names(collection)) or "?" for collection in collections)
        self.orders.append(f"{names} (rows between the joins: about {rows:,.0f}, as written {written:,.0f})")

    def filtered(self, rows: Any, conditions: Sequence[Condition]) -> None:
        """Conditions that are met by a table before it is joined."""
        names = self._names(rows)
        if len(names) == 1 and names[0] not in self.texts:
            self.met += [f"{self._condition(condition)} on {names[0]}" for condition in conditions]

    def absorb(self, other: Joins) -> None:
        """Joins in parentheses are a part of these."""
        self.texts |= other.texts
        self.met += other.met
        self.orders += other.orders

    def tell(self, node: exp.Expr) -> None:
        """Keep what was decided about the FROM of a query, once nothing is left to join."""
        for text in dict.fromkeys(self.texts.values()):
            self.source.decide(node, "joined", text)
            for decision in self.orders:
                self.source.decide(node, "in the order", decision)
            for decision in self.met:
                self.source.decide(node, "before the joins", decision)
            self.met, self.orders = [], []

    def _condition(self, condition: Condition) -> str:
        if condition.equal is None:
            return shown(condition.node)
        names = {
            column.key: f"{column.table}.{column.name}" if column.table else column.name for column in self.columns
        }
        return " = ".join(names.get(key, key) for key in condition.equal)

    def _text(self, names: Sequence[str]) -> str:
        return next((self.texts[name] for name in names if name in self.texts), names[0])

    def _names(self, rows: Any) -> list[str]:
        keys = types(rows)
        return list(dict.fromkeys(column.table for column in self.columns if column.key in keys and column.table))
