"""``where``: the rows that meet a condition (sources: McSherry 2012, Where)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ddcore.base.digests import digest
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema
from ddcore.expressions import canonical, parsing
from ddcore.expressions.projections import Predicate
from ddcore.operators import arguments
from ddcore.operators.base import Keeping, Needs
from ddcore.traces.batch import Batch
from ddcore.traces.frames import values_of


@dataclass(frozen=True, eq=False)
class Where(Keeping):
    """The rows for which a predicate is true; null is not true."""

    name = "where"
    signs = "kept"
    predicate: Predicate

    @classmethod
    def of(cls, schema: Schema, predicates: Iterable[Any]) -> Where:
        """All of these conditions. Raises ProgramError."""
        exprs = []
        for predicate in arguments.flat(predicates):
            parsed = arguments.checked(parsing.parse, predicate, bare_string="sql")
            hint = "combine the columns with pl.all_horizontal or pl.any_horizontal"
            exprs.append(arguments.single(schema, parsed, "where", hint))
        text = digest(map(canonical.identity, exprs))
        return cls(schema, text, arguments.checked(Predicate, exprs, schema))

    def needs(self, columns: frozenset[str]) -> Needs:
        """These columns, and those of the condition."""
        return self.text, [columns | {*self.predicate.columns}]

    def apply(self, batch: Batch, source_line: str) -> Batch:
        """Raises ExpressionError."""
        mask = self.predicate.on_words(dict(zip(self.schema, batch.words, strict=True)), len(batch))
        if mask is None:
            mask = self.predicate.evaluate(values_of(batch, self.schema, self.predicate.columns))
        return batch if mask.all() else batch.take(np.flatnonzero(mask))
