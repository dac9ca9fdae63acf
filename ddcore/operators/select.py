"""``select``: new columns from each row (the patent's Select)."""

from __future__ import annotations

from dataclasses import dataclass

from ddcore import encoding
from ddcore.batch import Batch
from ddcore.expressions import Projection
from ddcore.frames import values_of
from ddcore.operators.base import Linear
from ddcore.schema import Schema

__all__ = ["Select"]


@dataclass(frozen=True, eq=False)
class Select(Linear):
    """Named expressions over rows of ``source``. Rows that become equal are not deduplicated."""

    name = "select"
    source: Schema
    projection: Projection

    def apply(self, batch: Batch, place: str) -> Batch:
        """Bare columns keep their words; only computed columns are decoded, evaluated and encoded."""
        projection = self.projection
        places = {name: number for number, name in enumerate(self.source)}
        computed = None
        if projection.columns is not None:
            computed = projection.computed(values_of(batch, self.source, projection.columns))
        words = []
        for name, kind in self.schema.items():
            if name in projection.renames:
                words.append(batch.words[places[projection.renames[name]]])
            else:
                assert computed is not None
                words.append(encoding.encode(computed[name], kind))
        return batch.of(words)
