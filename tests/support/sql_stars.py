"""Random queries with stars, groups, joins and commas, in the words of PostgreSQL and in those that DuckDB needs.

DuckDB orders the columns of a star over USING otherwise, so its text names them: what a star stands for, and in which
order, is computed here, by PostgreSQL's rules and apart from ddcore's planner. The rows are DuckDB's.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from two_texts import both, texts

__all__ = ["SCHEMAS", "StarQuery"]

SCHEMAS: dict[str, dict[str, Any]] = {
    "x": {"a": pl.Int64, "b": pl.Int64, "c": pl.Int64},
    "y": {"c": pl.Int64, "d": pl.Int64, "b": pl.Int64},
    "z": {"d": pl.Int64, "a": pl.Int64},
    "w": {"b": pl.Decimal(10, 2), "e": pl.Int64},
}
_MOST_TABLES = 12
_SETS = ("UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")


@dataclass(frozen=True)
class _Column:
    """A column of FROM: its name, its table unless USING made it of two, and an expression of DuckDB for it."""

    name: str
    table: str
    text: str


@dataclass
class _Item:
    """Tables between two commas: a piece of FROM, what * stands for, and what each alias.* stands for."""

    text: str
    star: list[_Column]
    tables: dict[str, list[_Column]]


class StarQuery:
    """A query by a seed. With ``wrong`` there is a mistake in it, for which PostgreSQL refuses it.

    Attributes: ``ours`` and ``duckdb``, the text for ddcore and for DuckDB; ``width``, the number of columns;
    ``mistake``, nothing, or what the error must say. DuckDB takes an ON that names a table before a comma.
    """

    def __init__(self, rng: random.Random, *, wrong: bool = False) -> None:
        self.rng, self._aliases, self._mistake, self.mistake = rng, 0, wrong, ""
        self._bindings: dict[str, list[str]] = {}
        text, self.width = self._query(2)
        while self._mistake:  # there was no place for one
            self._aliases = 0
            text, self.width = self._query(2)
        self.ours, self.duckdb = texts(text)

    @property
    def view(self) -> str:
        """The query as a view whose columns have names of their own."""
        names = ", ".join(f"c{number}" for number in range(self.width))
        return f"CREATE VIEW result ({names}) AS {self.ours}"

    def _chance(self, share: float) -> bool:
        return self.rng.random() < share

    # -- queries ------------------------------------------------------------------------------------------------------

    def _query(self, depth: int) -> tuple[str, int]:
        """A query, and how many columns it has."""
        draw = self.rng.random()
        if depth and draw < 0.25:
            left, width = self._query(depth - 1)
            right = self._wide(depth - 1, width)
            if self._chance(0.2):  # a null of no type beside stars
                left, right, width = self._with_null(left, width), self._one_more(right), width + 1
            return f"({left}) {self.rng.choice(_SETS)} ({right})", width
        if depth and not self._bindings and draw < 0.35:
            return self._with(depth)
        items = self._from(depth)
        return self._grouped(items, depth) if draw < 0.65 else self._plain(items, depth)

    def _joined_around(self, item: _Item, around: _Column) -> _Item:
        """One more join, whose ON names the query around."""
        text, alias, names = self._table(0)
        own = [_Column(name, alias, f"{alias}.{name}") for name in names]
        head = self.rng.choice(("JOIN", "LEFT JOIN"))
        on = f"{alias}.{self.rng.choice(names)} {self.rng.choice(('=', '<'))} {around.table}.{around.name}"
        return _Item(f"{item.text} {head} {text} ON {on}", item.star + own, {**item.tables, alias: own})

    def _wide(self, depth: int, width: int) -> str:
        """A query with so many columns: what comes, if it fits, else a star or names over a subquery."""
        for _ in range(4):
            before = self._mistake, self._aliases
            text, count = self._query(depth)
            if count == width:
                return text
            self._mistake, self._aliases = before
        items = self._from(depth)
        text, count = self._plain(items, depth)
        self._aliases += 1
        alias, names = f"g{self._aliases}", self._names(max(count, width))
        if count < width:
            text = f"SELECT {', '.join([f'{alias}.*', *('0' for _ in range(width - count))])} FROM ({text}) AS {alias}"
            count = width
            self._aliases += 1
            alias = f"g{self._aliases}"
        picked = names[:width]
        keys = self.rng.sample(picked, width)
        columns = ", ".join(f"{alias}.{name}" for name in picked)
        star = both("*", columns) if count == width else columns
        text = f"SELECT {star} FROM ({text}) AS {alias} ({', '.join(names[:count])})"
        return text + (f" GROUP BY {', '.join(keys)}" if self._chance(0.6) else "")

    def _with_null(self, query: str, width: int) -> str:
        self._aliases += 1
        alias, names = f"n{self._aliases}", ", ".join(f"c{number}" for number in range(width))
        named = f"({query}) AS {alias} ({names})"
        return f"SELECT {both('*', names)}, NULL AS n FROM {named}"

    def _one_more(self, query: str) -> str:
        self._aliases += 1
        alias = f"n{self._aliases}"
        return f"SELECT {alias}.*, {self.rng.randrange(3)} AS more FROM ({query}) AS {alias}"

    def _with(self, depth: int) -> tuple[str, int]:
        """A binding that a query names once or several times."""
        wrong, self._mistake = self._mistake, False  # DuckDB does not read a binding that nothing names
        query, width = self._query(depth - 1)
        names, self._mistake = self._names(width), wrong
        self._bindings["bound"] = names
        outside, width = self._query(depth - 1)
        self._bindings.clear()
        return f"WITH bound ({', '.join(names)}) AS ({query}) {outside}", width

    def _plain(self, items: list[_Item], depth: int) -> tuple[str, int]:
        results, count = self._stars(items)
        text = f"SELECT {'DISTINCT ' if self._chance(0.2) else ''}{results} FROM {self._joined(items)}"
        text += self._where(items, depth)
        if self._chance(0.1):
            order = self.rng.sample(range(1, count + 1), count)
            text += f" ORDER BY {', '.join(map(str, order))} LIMIT {self.rng.randrange(5)}"
        return text, count

    def _stars(self, items: list[_Item]) -> tuple[str, int]:
        """What SELECT names: a star, that of a table, and perhaps a value before or behind."""
        columns = [column for item in items for column in item.star]
        text, count = both("*", ", ".join(column.text for column in columns)), len(columns)
        tables = [(alias, named) for item in items for alias, named in item.tables.items()]
        if self._chance(0.3):
            alias, named = self.rng.choice(tables)
            text, count = both(f"{alias}.*", ", ".join(column.text for column in named)), len(named)
        if self._chance(0.2):
            column = self.rng.choice(columns)
            parts = [text, f"{self._called(column, columns)} + 1"]
            self.rng.shuffle(parts)
            text, count = ", ".join(parts), count + 1
        return text, count

    def _grouped(self, items: list[_Item], depth: int) -> tuple[str, int]:
        columns = [column for item in items for column in item.star]
        chosen, star = columns, "*"
        if self._chance(0.3):
            alias, chosen = self.rng.choice([pair for item in items for pair in item.tables.items()])
            star = f"{alias}.*"
        keys = [str(number) for number in range(1, len(chosen) + 1)]
        if self._chance(0.8) and all(_has_name(column, columns) for column in chosen):
            keys = [self._called(column, columns) for column in chosen]
            if self._mistake and len(keys) > 1 and len({column.text for column in chosen}) == len(keys):
                del keys[self.rng.randrange(len(keys))]
                self._mistake, self.mistake = False, "neither a key of GROUP BY"
            elif self._chance(0.2):
                keys.append(self._called(self.rng.choice(columns), columns))
        self.rng.shuffle(keys)
        text, count = both(star, ", ".join(column.text for column in chosen)), len(chosen)
        if self._chance(0.3):
            number = self._called(self.rng.choice(columns), columns)
            text, count = f"{text}, {self.rng.choice(('count(*)', f'sum({number})'))} AS more", count + 1
        text = f"SELECT {'DISTINCT ' if self._chance(0.1) else ''}{text} FROM {self._joined(items)}"
        text += f"{self._where(items, depth)} GROUP BY {', '.join(keys)}"
        return text + (f" HAVING count(*) > {self.rng.randrange(3)}" if self._chance(0.2) else ""), count

    # -- names --------------------------------------------------------------------------------------------------------

    def _called(self, column: _Column, scope: Sequence[_Column]) -> str:
        """A column by its bare name, where that is clear and by chance, or with its table; without both, another."""
        if not _has_name(column, scope):
            column = self.rng.choice([item for item in scope if item.table] or [_Column("0", "", "0")])
        bare = not column.table or (_is_clear(column, scope) and self._chance(0.5))
        return both(column.name if bare else f"{column.table}.{column.name}", column.text)

    def _names(self, count: int) -> list[str]:
        """Names for columns, of which tables have some too."""
        return self.rng.sample(
            ["abcdef"[number] if number < 6 else f"c{number}" for number in range(max(count + 1, 6))], count
        )

    # -- FROM ---------------------------------------------------------------------------------------------------------

    @staticmethod
    def _joined(items: Iterable[_Item]) -> str:
        return ", ".join(item.text for item in items)

    def _from(self, depth: int, outer: Sequence[_Column] = ()) -> list[_Item]:
        items = [self._item(depth) for _ in range(self.rng.choice((1, 1, 2)))]
        if self._mistake and len(items) > 1 and self._chance(0.5):
            self._foreign(items)
        if self._chance(0.1):
            items.append(
                self._lateral([column for item in items for named in item.tables.values() for column in named])
            )
        return items

    def _foreign(self, items: list[_Item]) -> None:
        """A mistake: an ON that names a table before the comma."""
        text, alias, columns = self._table(0)
        before = next(iter(items[0].tables.values()))[0]
        items[-1] = _Item(
            f"{items[-1].text} JOIN {text} ON {alias}.{columns[0]} = {before.table}.{before.name}",
            items[-1].star + [_Column(name, alias, f"{alias}.{name}") for name in columns],
            {**items[-1].tables, alias: [_Column(name, alias, f"{alias}.{name}") for name in columns]},
        )
        self._mistake, self.mistake = False, "which a comma separates"

    def _lateral(self, columns: Sequence[_Column]) -> _Item:
        """A subquery that names a table before it."""
        text, alias, names = self._table(0)
        self._aliases += 1
        around, name = self.rng.choice(columns), f"l{self._aliases}"
        condition = f"{alias}.{self.rng.choice(names)} {self.rng.choice(('=', '<'))} {around.table}.{around.name}"
        own = [_Column(item, name, f"{name}.{item}") for item in names]
        return _Item(f"LATERAL (SELECT * FROM {text} WHERE {condition}) AS {name}", own, {name: own})

    def _item(self, depth: int) -> _Item:
        text, alias, names = self._table(depth)
        own = [_Column(name, alias, f"{alias}.{name}") for name in names]
        item = _Item(text, list(own), {alias: own})
        for _ in range(self.rng.choice((0, 1, 1, 2)) if self._aliases < _MOST_TABLES else 0):
            item = self._join(item, depth)
        return item

    def _join(self, item: _Item, depth: int) -> _Item:
        text, alias, names = self._table(depth)
        own = [_Column(name, alias, f"{alias}.{name}") for name in names]
        tables = {**item.tables, alias: own}
        side = self.rng.choice(("", "", "LEFT ", "RIGHT ", "FULL "))
        left = Counter(column.name for column in item.star)
        shared = [name for name in left if name in names]
        clear = [name for name in shared if left[name] == 1]
        draw = self.rng.random()
        if clear == shared and shared and draw < 0.35:
            head, condition, merged = f"NATURAL {side}JOIN", "", shared
        elif clear and draw < 0.7:
            merged = self.rng.sample(clear, self.rng.randint(1, len(clear)))
            head, condition = f"{side}JOIN", f" USING ({', '.join(merged)})"
        elif draw < 0.78:
            return _Item(f"{item.text} CROSS JOIN {text}", item.star + own, tables)
        else:
            columns = item.star + own
            condition = (
                f"{self._called(self.rng.choice(item.star), columns)} = {self._called(self.rng.choice(own), columns)}"
            )
            if self._chance(0.2) and side != "FULL ":
                condition += f" AND {self._simple(columns)}"
            if self._chance(0.05) and side != "FULL ":
                condition = "1 = 0"
            return _Item(f"{item.text} {side}JOIN {text} ON {condition}", columns, tables)
        pairs = [(next(c for c in item.star if c.name == n), next(c for c in own if c.name == n)) for n in merged]
        on = " AND ".join(f"{ours.text} = {other.text}" for ours, other in pairs)
        front = [_Column(ours.name, "", _merged(side, ours.text, other.text)) for ours, other in pairs]
        rest = [column for column in item.star + own if column.name not in merged]
        written = f"{item.text} {both(head, f'{side}JOIN')} {text}{both(condition, f' ON {on}')}"
        return _Item(written, front + rest, tables)

    def _table(self, depth: int) -> tuple[str, str, list[str]]:
        """A table or a subquery with its alias and the names of its columns."""
        self._aliases += 1
        alias = f"t{self._aliases}"
        if depth and self._chance(0.2):
            text, width = self._query(depth - 1)
            names = self._names(width)
            return f"({text}) AS {alias} ({', '.join(names)})", alias, names
        table = self.rng.choice([*SCHEMAS, *self._bindings])
        names = list(SCHEMAS.get(table, ())) or self._bindings[table]
        if self._chance(0.15):
            new = self._names(len(names))
            return f"{table} AS {alias} ({', '.join(new)})", alias, new
        return f"{table} AS {alias}", alias, names

    # -- conditions ---------------------------------------------------------------------------------------------------

    def _where(self, items: list[_Item], depth: int) -> str:
        columns = [column for item in items for column in item.star]
        parts = [self._condition(columns, depth) for _ in range(self.rng.choice((0, 0, 1, 2)))]
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def _simple(self, columns: Sequence[_Column]) -> str:
        column = self._called(self.rng.choice(columns), columns)
        other = self._called(self.rng.choice(columns), columns) if self._chance(0.4) else str(self.rng.randrange(4))
        return self.rng.choice(
            (f"{column} < {other}", f"{column} <> {other}", f"{column} IS NOT NULL", f"coalesce({column}, 0) = {other}")
        )

    def _condition(self, columns: Sequence[_Column], depth: int, most: int = 3) -> str:
        """A condition of WHERE, with no more columns before IN: ddcore refuses several in an OR."""
        draw = self.rng.random()
        if not depth or draw < 0.3:
            return self._simple(columns)
        if draw < 0.4:
            return f"({self._condition(columns, depth - 1, 1)} OR {self._simple(columns)})"
        clear = [entry for entry in columns if entry.table]
        if draw < 0.7 or not clear:
            negated = self.rng.choice(("", "", "NOT "))
            width = 1 if negated else min(self.rng.choice((1, 1, 2, 2, 3)), most)
            subjects = ", ".join(self._called(self.rng.choice(columns), columns) for _ in range(width))
            query = self._wide(depth - 1, width)
            return f"{f'({subjects})' if width > 1 else subjects} {negated}IN ({query})"
        around = self.rng.choice(clear)
        items = self._from(0)
        if self._chance(0.3) and not re.search("RIGHT|FULL|LATERAL", self._joined(items)):
            items[-1] = self._joined_around(items[-1], around)  # ddcore refuses it beside these
        inside = [column for item in items for column in item.star]
        own = self._called(self.rng.choice(inside), inside)
        sign = self.rng.choice(("=", "=", "<>", "<"))
        star = both("*", ", ".join(column.text for column in inside))
        asked = f"SELECT {star} FROM {self._joined(items)} WHERE {own} {sign} {around.table}.{around.name}"
        if sign == "=" and len(inside) == 1:
            return f"{self._called(self.rng.choice(columns), columns)} IN ({asked})"
        return f"{self.rng.choice(('', 'NOT '))}EXISTS ({asked})"


def _is_clear(column: _Column, scope: Sequence[_Column]) -> bool:
    """Whether the bare name of a column means it and no other."""
    return [item for item in scope if item.name == column.name] in ([column], [])


def _has_name(column: _Column, scope: Sequence[_Column]) -> bool:
    return bool(column.table) or _is_clear(column, scope)


def _merged(side: str, left: str, right: str) -> str:
    """The value of a column that USING makes of two."""
    return {"RIGHT ": right, "FULL ": f"coalesce({left}, {right})"}.get(side, left)
