"""Hot arrangements: what folds of one process have read of stored state, and added to it, for the next of its folds.

A file of state never changes, and its name ends in a digest of it. So what is in memory of a table holds as long as the
table has these very files, whoever wrote to the warehouse in between: another run, a compaction, an undo or a run that
failed half way leave a table with other files, and then it is opened anew.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from ddcore.io.parquet.datafile import has_digests

if TYPE_CHECKING:
    from ddcore.io.state.fold_result import FoldResult, Stored
    from ddcore.traces.budget import Budget
    from ddcore.traces.sorted_batch import SortedBatch
    from ddcore.traces.trace import Trace


class _Arranged(NamedTuple):
    """The updates of a table that has these ``files``: ``opened`` lie in some of them, ``settled`` are in memory."""

    files: frozenset[str]
    opened: list[SortedBatch]
    settled: list[SortedBatch]

    def memory(self) -> int:
        """The bytes that it takes. O(batches)."""
        return sum(batch.memory() for batch in (*self.opened, *self.settled))


class Hot:
    """Batches by table, those that were used last at the end. For folds in one thread, one after the other."""

    def __init__(self) -> None:
        self._tables: OrderedDict[tuple[str, str], _Arranged] = OrderedDict()

    def __len__(self) -> int:
        """How many tables there are something of."""
        return len(self._tables)

    def memory(self) -> int:
        """The bytes that all of it takes. O(batches)."""
        return sum(arranged.memory() for arranged in self._tables.values())

    def clear(self) -> None:
        """Drop everything."""
        self._tables.clear()

    def drop_others(self, stored: Stored) -> None:
        """Drop tables that have other files now than those that are known: their memory, and the space of files that
        were deleted.
        """
        root, known = str(stored.warehouse.root), self._tables
        for of, table in [*known]:
            if of != root or known[of, table].files != _paths(stored, table):
                del known[of, table]

    def recall(self, stored: Stored, table: str, trace: Trace) -> bool:
        """Give a trace what is known of a table; False where that is nothing."""
        arranged = self._tables.get((str(stored.warehouse.root), table))
        if arranged is None or arranged.files != _paths(stored, table):
            return False
        trace.recall(arranged.opened, arranged.settled)
        return True

    def keep(self, stored: Stored, table: str, trace: Trace, gained: FoldResult) -> None:
        """Keep what a fold has opened of a table, and what it added, for the files that the table will have then."""
        batches = trace.known()
        if batches is None:
            return
        merged = gained.merged.get(table, ())
        files = _paths(stored, table).difference(merged) | {file.path for file in gained.files.get(table, ())}
        key, folder = (str(stored.warehouse.root), table), stored.warehouse.table(table)
        before = self._tables.get(key)
        if not all(has_digests(folder / path) for path in (files if before is None else files - before.files)):
            self._tables.pop(key, None)  # another program wrote one, and may write it again
            return
        is_used = before is None or files != before.files or trace.was_read
        self._tables[key] = _Arranged(files, *batches)
        if is_used:
            self._tables.move_to_end(key)

    def evict(self, budget: Budget) -> None:
        """Drop what was used least recently, until the rest takes its share of the memory at most, and the process is
        not short of it.
        """
        memory, left = budget.memory, self.memory()
        most = memory.part(budget.tuning.hot_share, budget.tuning.hot_bytes)
        while self._tables and (left > most or memory.is_short()):
            _, arranged = self._tables.popitem(last=False)
            left -= arranged.memory()


def _paths(stored: Stored, table: str) -> frozenset[str]:
    return frozenset(file.path for file in stored.files.get(table, ()))
