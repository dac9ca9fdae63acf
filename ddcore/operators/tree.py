"""Trees of partial results: how a group of a million rows is evaluated again without reading a million rows.

The rows of a *large* group are divided among 65,536 buckets by their hash. Each bucket has a partial result: a few rows
that stand for all of its rows. Those of 256 buckets have one in turn, and the group is evaluated over the 256 of these.
So a changed row costs a bucket, and twice 256 partial results. Each level is a reduction like others, with its own
arrangement and pending times, so it is right at all times; groups that are not large never reach it.

Which groups are large is no part of a plan: a fold is told, and notes the ones that have become large for the next.

An operator joins in with :meth:`ddcore.operators.reduction.Reduction.tree`, which gives a :class:`Tree`: the columns
that decide the bucket of a row, the reduction of a bucket to a few rows, the same of partial results, and the reduction
of the partial results of the whole. The rest (routes, growth, state, pending times) is the same for all. Windows over
ordered rows would give the column of the order with buckets by its ranges in place of hashes, as a level the first and
last rows and the totals of a bucket, and as the root a pass over those in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ddcore.base.digests import digest
from ddcore.base.lazy import numpy as np
from ddcore.base.record import record
from ddcore.base.schema import Schema, Type, is_direct
from ddcore.data.encoding import key_codes
from ddcore.operators.base import Keyed, Linear, Operator
from ddcore.text.wording import fresh
from ddcore.traces.batch import Batch

_BITS, _LEVEL_BITS = 16, 8  # of the number of a bucket; of one level


@dataclass(frozen=True, eq=False)
class Spread(Operator):
    """The rows of large groups, with the number of their bucket in the column ``bucket``: of equal rows the same.

    ``keys``: the columns of the group; ``hashed``: those that decide the bucket.
    """

    name = "spread"
    inner = in_tree = True
    source: Schema
    keys: tuple[str, ...]
    hashed: tuple[str, ...]

    @classmethod
    def of(cls, source: Schema, keys: Sequence[str], hashed: Sequence[str], text: str) -> Spread:
        """For groups of rows with the schema ``source`` by ``keys``."""
        return cls({**source, next(fresh("_bucket_", source)): Type("int64")}, text, source, tuple(keys), tuple(hashed))

    @property
    def bucket(self) -> str:
        """The name of the column of buckets."""
        return [*self.schema][-1]

    def spread(self, batch: Batch, large: np.ndarray) -> Batch:
        """The updates of groups with these key codes, int64[m], ascending. Linear, and a search in ``large``."""
        codes = self._codes(batch, self.keys)
        source_line = np.minimum(np.searchsorted(large, codes), len(large) - 1)
        rows = batch.take(large[source_line] == codes)
        hashes = self._codes(rows, self.hashed)
        if is_direct([self.source[name] for name in self.hashed]):
            hashes = key_codes([hashes, hashes], [Type("int64"), Type("int64")], len(rows))
        bucket = (hashes.view(np.uint64) >> np.uint64(64 - _BITS)).view(np.int64)
        return rows.of([*rows.words, bucket])

    def _codes(self, batch: Batch, columns: Sequence[str]) -> np.ndarray:
        words = dict(zip(self.source, batch.words, strict=True))
        return key_codes([words[name] for name in columns], [self.source[name] for name in columns], len(batch))


@dataclass(frozen=True, eq=False)
class Bucket(Linear):
    """Partial results with the bucket of the next level in place of their own; without one, where it is the group."""

    name = "bucket"
    inner = in_tree = True
    position: int

    @classmethod
    def of(cls, source: Schema, bucket: str, text: str, *, last: bool) -> Bucket:
        """For rows with the schema ``source``, which has the column ``bucket``."""
        schema = {name: kind for name, kind in source.items() if not (last and name == bucket)}
        return cls(schema, text, [*source].index(bucket))

    @property
    def carried(self) -> Mapping[str, str]:
        """The columns before the bucket."""
        return {name: name for name in [*self.schema][: self.position]}

    def apply(self, batch: Batch, source_line: str) -> Batch:
        """Linear."""
        before, bucket, after = (
            batch.words[: self.position],
            batch.words[self.position],
            batch.words[self.position + 1 :],
        )
        if len(self.schema) < len(batch.words):
            return batch.of([*before, *after])
        return batch.of([*before, bucket >> _LEVEL_BITS, *after])


Level = Callable[[Schema, tuple[str, ...], str], Keyed]
"""The operator of a level, for rows with a schema, in groups by columns of which the last is the bucket; with a text
for its fingerprint.
"""


@record
class Tree:
    """The operators between the rows of a reduction and the partial results of its large groups, in their order.

    ``root`` is the reduction of those: its groups and results are those of the whole.
    """

    spread: Spread
    leaf: Keyed
    coarser: Bucket
    branch: Keyed
    bare: Bucket
    root: Keyed

    @classmethod
    def over(  # noqa: PLR0917
        cls,
        source: Schema,
        keys: Sequence[str],
        hashed: Sequence[str],
        text: str,
        leaf: Level,
        branch: Level,
        root: Keyed,
    ) -> Tree:
        """The tree of groups by ``keys`` of rows with the schema ``source``; ``hashed`` decide the bucket of a row, and
        ``text`` names the whole.
        """
        text = digest("tree", text)
        spread = Spread.of(source, keys, hashed, text)
        inside = (*keys, spread.bucket)
        leaves = leaf(spread.schema, inside, digest(text, "leaf"))
        coarser = Bucket.of(leaves.schema, spread.bucket, digest(text, "coarser"), last=False)
        branches = branch(coarser.schema, inside, digest(text, "branch"))
        bare = Bucket.of(branches.schema, spread.bucket, digest(text, "bare"), last=True)
        return cls(spread, leaves, coarser, branches, bare, root)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the group."""
        return self.spread.keys

    @property
    def levels(self) -> Sequence[Operator]:
        """Each operator's input is the one before it."""
        return self.spread, self.leaf, self.coarser, self.branch, self.bare
