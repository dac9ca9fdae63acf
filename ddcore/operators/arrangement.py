"""Arrangements as a plan has them: the index of a collection by key, without its rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ddcore.base.schema import Schema, Type, is_direct
from ddcore.traces.batch import Batch

if TYPE_CHECKING:
    from ddcore.traces.sorted_batch import SortedBatch

__all__ = ["Arrangement"]


@dataclass(frozen=True)
class Arrangement:
    """An index of one collection by key columns, stored for as long as the program exists.

    ``collection``: the columns as the collection has them; ``times`` names the coordinates; ``fingerprint`` names its
    table. Block ``block`` updates it; ``listeners`` are the other blocks that read it and are notified.
    A ``transient`` one consolidates and forwards updates and stores nothing; ``output`` is then its output log, if any.
    """

    index: int
    node: int
    collection: Schema
    key: tuple[str, ...]
    times: tuple[str, ...]
    fingerprint: str
    block: int
    listeners: tuple[int, ...] = ()
    transient: bool = False
    output: str = ""

    @cached_property
    def schema(self) -> Schema:
        """Key columns, then value columns."""
        columns = self.collection
        return {name: columns[name] for name in self.key} | {n: t for n, t in columns.items() if n not in self.key}

    @cached_property
    def key_types(self) -> list[Type]:
        """Types of the key columns."""
        return [self.collection[name] for name in self.key]

    @cached_property
    def direct(self) -> bool:
        """Whether the key is its own code and not stored among the words."""
        return is_direct(self.key_types)

    @cached_property
    def key_words(self) -> int:
        """How many words of a sorted batch are the key's."""
        return 0 if self.direct else len(self.key)

    @cached_property
    def values(self) -> list[str]:
        """Names of the value columns."""
        return [name for name in self.collection if name not in self.key]

    @cached_property
    def stored_order(self) -> list[int]:
        """For each column of the schema, its number in the collection."""
        columns = list(self.collection)
        return [columns.index(name) for name in self.schema]

    @cached_property
    def collection_order(self) -> list[int]:
        """For each column of the collection, its number in the schema."""
        columns = list(self.schema)
        return [columns.index(name) for name in self.collection]

    def batch_of(self, batch: SortedBatch) -> Batch:
        """The updates of a sorted batch as a batch of the arranged collection."""
        batch = batch.widen()
        columns = [batch.codes, *batch.words] if self.direct else list(batch.words)
        return Batch([columns[number] for number in self.collection_order], list(batch.times), batch.diffs, batch.high)
