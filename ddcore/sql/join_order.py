"""The order in which the tables of a FROM are joined, from what is known of their rows.

What is minimised is the sum of the rows of the collections between the first join and the last: each is arranged, so it
is state, and a change at one table costs the rows of it that change. Each order begins with one table and takes the
next that makes the fewest rows; one without an equality only if there is no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ddcore.program.estimates import Estimate

__all__ = ["GAIN", "Equality", "Order", "ordered"]

GAIN = 2
"""How many times fewer rows another order than that of the text must have."""
_MOST_STARTS = 12
"""Of more tables only the smallest begin an order."""


@dataclass(frozen=True)
class Equality:
    """A condition that a value of some tables equals one of others: the tables, by number, and their columns."""

    left: frozenset[int]
    right: frozenset[int]
    left_columns: frozenset[str]
    right_columns: frozenset[str]

    def between(self, joined: set[int], table: int) -> tuple[frozenset[str], frozenset[str]] | None:
        """Its columns of the tables joined so far and of the next one; None where it is none between these."""
        if self.right == {table} and self.left <= joined:
            return self.left_columns, self.right_columns
        if self.left == {table} and self.right <= joined:
            return self.right_columns, self.left_columns
        return None


@dataclass(frozen=True)
class Order:
    """Tables by number, and the rows of the collections between."""

    tables: tuple[int, ...]
    rows: float


def ordered(
    tables: Sequence[Estimate], equalities: Sequence[Equality], others: Sequence[frozenset[int]]
) -> tuple[Order, Order]:
    """The order of the text, and the best one that is found. ``others``: the tables of each condition that is no
    equality. O(tables^3 conditions) at most.
    """
    joins = _Joins(tables, equalities, others)
    connected = {table for equality in equalities for table in (*equality.left, *equality.right)}.union(*others)
    starts = sorted(connected or range(len(tables)), key=lambda table: (tables[table].rows, table))[:_MOST_STARTS]
    as_written = joins.order(0, by_size=False)
    found = min((joins.order(start, by_size=True) for start in sorted(starts)), key=lambda order: order.rows)
    return as_written, min(as_written, found, key=lambda order: order.rows)


@dataclass(frozen=True)
class _Joins:
    tables: Sequence[Estimate]
    equalities: Sequence[Equality]
    others: Sequence[frozenset[int]]

    def order(self, start: int, *, by_size: bool) -> Order:
        """The order that begins with a table: by size, or as the text has it."""
        order, joined, left = [start], {start}, [table for table in range(len(self.tables)) if table != start]
        so_far, total = self.tables[start], 0.0
        while left:
            candidates = list(self._candidates(so_far, joined, left))
            (_, _, table), so_far = min(
                candidates, key=lambda candidate: candidate[0] if by_size else (candidate[0][0], candidate[0][2])
            )
            order.append(table)
            joined.add(table)
            left.remove(table)
            total += so_far.rows if left else 0.0
        return Order(tuple(order), total)

    def _candidates(
        self, so_far: Estimate, joined: set[int], left: Iterable[int]
    ) -> Iterator[tuple[tuple[int, float, int], Estimate]]:
        """The tables that may be next, each with its rank, and what is joined with it: by an equality, by another
        condition, or by none.
        """
        for table in left:
            pairs = [pair for one in self.equalities if (pair := one.between(joined, table)) is not None]
            joined_keys, table_keys = (
                (frozenset().union(*side) for side in zip(*pairs, strict=True)) if pairs else ((), ())
            )
            both = so_far.joined(self.tables[table], [*joined_keys], [*table_keys])
            met = [tables for tables in self.others if table in tables and tables <= {*joined, table}]
            for _ in met:
                both = both.filtered()
            yield (0 if pairs else 1 if met else 2, both.rows, table), both
