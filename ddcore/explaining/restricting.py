"""Restrictions: some rows of a collection, named by the values of columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

import polars as pl

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, Type
from ddcore.data.encoding import NULL, decode, encode

_MOST = 16  # alternatives of a restriction


class Values:
    """Values that a column may have, as ascending words, int64[n]. Equal only to itself.

    If it ``grows``, others but null may be added.
    """

    def __init__(self, words: Iterable[int] = (), *, grows: bool = False) -> None:
        self.words, self.grows = np.array(sorted(words), dtype=np.int64), grows

    def __len__(self) -> int:
        return len(self.words)

    def add(self, words: np.ndarray) -> bool:
        """Add values; whether there were new ones."""
        more = np.union1d(self.words, words)
        grown, self.words = len(more) > len(self.words), more
        return grown

    def may_have(self, word: int) -> bool:
        """Whether a value is among them, or may come to be."""
        return word != NULL if self.grows else word in self.words

    def condition(self, name: str, kind: Type) -> pl.Expr:
        """Whether a column has one of the values; null is one like others, NaN equals itself."""
        values = decode(self.words[self.words != NULL], kind)
        conditions = [pl.col(name).is_null()] if len(values) < len(self.words) else []
        if kind.name == "float64" and values.is_nan().any():  # statistics of files do not cover NaN
            conditions.append(pl.col(name).is_nan())
            values = values.filter(~values.is_nan())
        if len(values) == 1:
            conditions.append(pl.col(name) == pl.lit(values[0], dtype=kind.polars))
        elif len(values):
            conditions.append(pl.col(name).is_in(values.implode()))
        return reduce(or_, conditions, pl.lit(value=False)).fill_null(value=False)


Alternative = frozenset[tuple[str, Values]]


@dataclass(frozen=True)
class Restriction:
    """The rows that meet one of the alternatives: all of its columns have one of its values.

    No alternative stands for no row; an empty one for all rows.
    """

    alternatives: frozenset[Alternative]

    @classmethod
    def to_row(cls, row: pl.DataFrame, schema: Schema) -> Restriction:
        """The rows with the values of the one row of a frame, in those of its columns that are neither lists nor
        structs. ``schema`` has the types of its columns.
        """
        flat = {name: kind for name, kind in schema.items() if name in row.columns and not kind.stored.is_nested}
        return cls(frozenset({frozenset((name, Values(encode(row[name], kind))) for name, kind in flat.items())}))

    @property
    def is_everything(self) -> bool:
        """Whether it leaves nothing out."""
        return frozenset() in self.alternatives

    def __or__(self, other: Restriction) -> Restriction:
        both = self.alternatives | other.alternatives
        least = frozenset(names for names in both if not any(fewer < names for fewer in both))
        return Restriction(least) if len(least) <= _MOST else EVERYTHING

    def through(self, columns: Mapping[str, str]) -> Restriction:
        """The restriction in terms of other columns, by name; what is said of columns without one is left out."""
        carried = (
            frozenset((columns[name], values) for name, values in alternative if name in columns)
            for alternative in self.alternatives
        )
        return reduce(or_, (Restriction(frozenset({name})) for name in carried), NOTHING)

    def narrowed(self, more: Iterable[tuple[str, Values]]) -> Restriction:
        """Of these rows those with these values too."""
        also = frozenset(more)
        return Restriction(frozenset(alternative | also for alternative in self.alternatives)) if also else self

    def mask(self, words: Sequence[np.ndarray], rows: int, schema: Schema) -> np.ndarray:
        """Which of some rows these are, given the words of all columns: bool[rows]."""
        by_name = dict(zip(schema, words, strict=True))
        mask = np.zeros(rows, dtype=bool)
        for alternative in self.alternatives:
            mask |= reduce(
                and_, (np.isin(by_name[name], values.words) for name, values in alternative), np.ones(rows, bool)
            )
        return mask

    def condition(self, schema: Schema) -> pl.Expr | None:
        """The restriction as an expression of Polars; None for all rows."""
        if self.is_everything:
            return None
        some = [alternative for alternative in self.alternatives if all(len(values) for _, values in alternative)]
        alternatives = (
            reduce(
                and_,
                (values.condition(name, schema[name]) for name, values in sorted(values_by_name, key=lambda at: at[0])),
            )
            for values_by_name in some
        )
        return reduce(or_, alternatives, pl.lit(value=False))

    @property
    def is_nothing(self) -> bool:
        """Whether it leaves all rows out, with the values that there are now."""
        return not any(all(len(values) for _, values in alternative) for alternative in self.alternatives)


NOTHING = Restriction(frozenset())
EVERYTHING = Restriction(frozenset({frozenset()}))
