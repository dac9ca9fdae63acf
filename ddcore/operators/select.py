"""``select``: new columns from each row (sources: McSherry 2012, Select)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from ddcore.base.digests import Part, digest
from ddcore.base.errors import ExpressionError, ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema
from ddcore.base.source_line import caller
from ddcore.data import encoding
from ddcore.expressions.projections import Projection
from ddcore.operators import arguments
from ddcore.operators.base import Linear, Needs
from ddcore.traces.batch import Batch
from ddcore.traces.frames import values_of


@dataclass(frozen=True, eq=False)
class Select(Linear):
    """Named expressions over rows of ``source``. Rows that become equal are not deduplicated."""

    name = "select"
    signs = "kept"
    source: Schema
    projection: Projection
    texts: Mapping[str, Part]

    @classmethod
    def of(cls, source: Schema, exprs: Mapping[str, pl.Expr], where: str = "select") -> Select:
        """The expressions by the names of their results. Raises ProgramError."""
        if not exprs:
            raise ProgramError(f"{caller()}: {where}() leaves no column", "name at least one column")
        projection = arguments.checked(Projection, exprs, source)
        texts = arguments.texts_by_name(exprs, projection.renames)
        return cls(projection.schema, digest([*texts.values()]), source, projection, texts)

    @classmethod
    def only(cls, source: Schema, columns: Iterable[Any], named: Mapping[str, Any]) -> Select:
        """What ``select`` is given. Raises ProgramError."""
        return cls.of(source, arguments.named_expressions(source, "select", columns, named))

    @classmethod
    def beside(cls, source: Schema, columns: Iterable[Any], named: Mapping[str, Any]) -> Select:
        """All columns, and what ``with_columns`` is given. Raises ProgramError."""
        more = arguments.named_expressions(source, "with_columns", columns, named)
        return cls.of(source, arguments.kept(source) | more, "with_columns")

    @classmethod
    def without(cls, source: Schema, columns: Iterable[Any]) -> Select:
        """All columns but those that ``drop`` is given. Raises ProgramError."""
        dropped = arguments.column_names(source, "drop", columns)
        return cls.of(source, {name: pl.col(name) for name in source if name not in dropped}, "drop")

    @classmethod
    def renamed(cls, source: Schema, names: Mapping[str, str] | Callable[[str], str]) -> Select:
        """All columns, with the names that ``rename`` is given. Raises ProgramError."""
        if not isinstance(names, Mapping):
            arguments.require_function(names, "rename", "a dict or a function")
        new = names if isinstance(names, Mapping) else {name: names(name) for name in source}
        for old, name in new.items():
            arguments.require(source, old, "rename")
            if not isinstance(name, str):
                raise ProgramError(f"{caller()}: rename: {old} cannot be called {name!r}", "a name is text")
        exprs: dict[str, pl.Expr] = {}
        for name, expr in arguments.kept(source).items():
            arguments.set_once(exprs, new.get(name, name), expr, "rename")
        return cls.of(source, exprs, "rename")

    @property
    def carried(self) -> Mapping[str, str]:
        """Bare columns."""
        return self.projection.renames

    def needs(self, columns: frozenset[str]) -> Needs:
        """The columns that the expressions read, in any order of the source."""
        if all(self.projection.renames.get(name) == name for name in columns):
            return "", [columns]
        return digest([self.texts[name] for name in sorted(columns)]), [
            frozenset().union(*(self.projection.reads[name] for name in columns))
        ]

    def narrowed(self, source: Schema) -> Select:
        """The operator for rows that lack some columns: without the results that are these columns."""
        projection = self.projection.without(
            name for name, column in self.projection.renames.items() if column not in source
        )
        texts = {name: self.texts[name] for name in projection.schema}
        return Select(projection.schema, digest([*texts.values()]), source, projection, texts)

    def constants(self) -> dict[str, int]:
        """The columns that have the same value in all rows, and the word of that."""
        if not self.projection.constants:
            return {}
        nothing = pl.DataFrame(
            {name: [None] for name in self.source}, schema={name: kind.polars for name, kind in self.source.items()}
        )
        try:
            values = self.projection.computed(nothing)
        except ExpressionError:  # of another column, on nulls
            return {}
        return {name: int(encoding.encode(values[name], self.schema[name])[0]) for name in self.projection.constants}

    def apply(self, batch: Batch, source_line: str) -> Batch:
        """Bare columns keep their words; only computed columns are decoded, evaluated and encoded, unless they are
        computed on words.
        """
        projection, words = self.projection, dict(zip(self.source, batch.words, strict=True))
        computed: dict[str, np.ndarray] = {}
        if projection.columns is not None:
            computed = projection.on_words(words, len(batch)) or self._encoded(batch, projection.columns)
        renames = projection.renames
        return batch.of([words[renames[name]] if name in renames else computed[name] for name in self.schema])

    def _encoded(self, batch: Batch, columns: list[str]) -> dict[str, np.ndarray]:
        """The words of the computed columns."""
        frame = self.projection.computed(values_of(batch, self.source, columns))
        return {column.name: encoding.encode(column, self.schema[column.name]) for column in frame}
