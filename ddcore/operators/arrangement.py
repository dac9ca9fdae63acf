"""Arrangements as a plan has them: the index of a collection by key, without its rows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, cached_property

from ddcore.base.lazy import numpy as np
from ddcore.base.record import record
from ddcore.base.schema import Schema, Type, is_direct
from ddcore.operators.ends import Ends
from ddcore.traces.batch import Batch
from ddcore.traces.columns import Columns, Plain
from ddcore.traces.sorted_batch import SortedBatch

_SHARED = 1 << 14  # zeros


@record
class Arrangement:
    """An index of one collection by key columns, stored for as long as the program exists.

    ``collection``: the columns as the collection has them; ``times`` names the coordinates; ``fingerprint`` names its
    table. Block ``block`` updates it; ``listeners`` are the other blocks that read it and are notified.
    A ``transient`` one consolidates and forwards updates and stores nothing; ``output`` is then its output log, if any.
    A ``passing`` one has the updates of one position for the step of its block, sorted by key, and stores nothing.
    One with ``ends`` has intervals without keys: several workers may own values in one, and each of these has it.
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
    passing: bool = False
    ends: Ends | None = None

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

    @cached_property
    def keyed(self) -> Arrangement:
        """As it is if it is not transient, with codes of its key: for updates that are stored."""
        return replace(self, transient=False) if self.transient else self

    @cached_property
    def width(self) -> int:
        """How many words an update of a sorted batch has."""
        return len(self.values if self.direct and not self.transient else self.collection)

    @cached_property
    def hashed(self) -> list[Type]:
        """The types of the key columns whose hash is the key code; none where the code is the key, or always 0."""
        return [] if self.direct or self.transient else self.key_types

    @cached_property
    def queued_types(self) -> list[Type | None]:
        """The types of the columns of :meth:`queued`, up to the words; None: a number that is no word."""
        return [None, *self.collection.values()] if self.transient or not self.key else list(self.schema.values())

    def queued(self, batch: Batch) -> Plain:
        """Updates of the collection in the order of a sorted batch: code, unless it is a hash, words, times, diff.

        A code that is the key comes in the place of the key's word. A transient arrangement is not looked up by key, so
        its codes are 0.
        """
        words = batch.words
        if self.transient or not self.key:
            return Plain([_zeros(len(batch)), *words, *batch.times, batch.diffs], batch.high)
        return Plain([*(words[number] for number in self.stored_order), *batch.times, batch.diffs], batch.high)

    def updates(self, queued: Columns) -> Batch:
        """Updates of the collection, as they were before :meth:`queued`."""
        *columns, diffs = queued
        width = len(self.collection)
        if self.transient or not self.key:
            return Batch(columns[1 : 1 + width], columns[1 + width :], diffs, queued.high)
        return Batch([columns[number] for number in self.collection_order], columns[width:], diffs, queued.high)

    def batch_of(self, batch: SortedBatch) -> Batch:
        """The updates of a sorted batch as a batch of the arranged collection."""
        wide = batch.decompress()
        if self.transient:
            return Batch(list(wide.words), list(wide.times), wide.diffs, wide.high)
        columns = [wide.codes, *wide.words] if self.direct else list(wide.words)
        return Batch([columns[number] for number in self.collection_order], list(wide.times), wide.diffs, wide.high)


def _zeros(rows: int) -> np.ndarray:
    """Zeros: int64[n]. Of few rows all that wait share them."""
    return _shared_zeros()[:rows] if rows <= _SHARED else np.zeros(rows, dtype=np.int64)


@cache
def _shared_zeros() -> np.ndarray:
    zeros = np.zeros(_SHARED, dtype=np.int64)
    zeros.flags.writeable = False
    return zeros
