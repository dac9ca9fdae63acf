"""How the rows of a fold are spread over key codes: of new updates by samples of inputs, of stored ones by footers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import is_direct
from ddcore.data.encoding import encode, key_codes
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.inputs import input_log
from ddcore.io.state.codes import spread
from ddcore.jobs.fold import Fold
from ddcore.operators.arrangement import Arrangement

if TYPE_CHECKING:
    import polars as pl

    from ddcore.io.delta.table_files import LiveFile
    from ddcore.planning.column_lineage import ColumnLineage, Source

    Spread = tuple[np.ndarray, np.ndarray]  # codes, and how many rows each stands for: int64[n], float64[n]

_SLICES = 61  # a prime: of a file that is sorted several times over, slices at even distances meet other keys each time
# A window that has fewer than a fourth of the rows of its files, and not more than so many, is read as a whole.
_OUTSIDE, _WHOLE = 4, 20_000_000


def joined(spreads: Iterable[Spread]) -> Spread:
    """Several as one."""
    spreads = list(spreads)
    codes = np.concatenate([np.empty(0, np.int64), *(codes for codes, _ in spreads)])
    return codes, np.concatenate([np.empty(0, np.float64), *(rows for _, rows in spreads)])


class Samples:
    """How the rows of a fold are spread over the codes of arrangements; ``keys``: the columns that divide outputs.

    ``by_hash``: the arrangements whose hashed codes are wanted, too.
    """

    def __init__(self, fold: Fold, keys: Mapping[int, tuple[str, ...]], by_hash: Collection[Arrangement] = ()) -> None:
        self._fold, self._plan, self._keys, self._by_hash = fold, fold.plan, keys, by_hash
        self._stored: dict[int, Spread] = {}
        self._inputs = _Inputs(fold)

    def stored(self, arrangement: Arrangement) -> Spread:
        """The codes of what is stored of an arrangement."""
        if arrangement.index not in self._stored:
            stored, table = self._fold.stored, f"state/{arrangement.fingerprint}"
            self._stored[arrangement.index] = spread(stored.warehouse.table(table), stored.files.get(table, ()))
        return self._stored[arrangement.index]

    def key(self, arrangement: Arrangement) -> tuple[str, ...]:
        """The columns that divide the updates of an arrangement; of intervals one of their ends."""
        if arrangement.ends is not None:
            return arrangement.ends.columns[:1]
        return self._keys.get(arrangement.index, arrangement.key)

    def new(self, arrangement: Arrangement) -> Spread:
        """The codes of new updates by one key, as far as inputs have its columns as they are."""
        return joined(self._inputs.of(*source) for source in self.sources(arrangement))

    def reaching(self, group: Sequence[Arrangement]) -> int:
        """The rows of the window of all inputs that some arrangements depend on."""
        reads = self._plan.upstream(arrangement.node for arrangement in group)
        return sum(self._inputs.rows[name] for name, node in self._plan.sources.items() if node in reads)

    def sources(self, arrangement: Arrangement) -> list[tuple[str, tuple[str, ...]]]:
        """The inputs that have the columns of a key as they are, and what these are called there."""
        key = self.key(arrangement)
        if not is_direct([arrangement.collection[name] for name in key]) and arrangement not in self._by_hash:
            return []
        found = [self._sources(arrangement.node, column) for column in key]
        if len(found) == 1:  # perhaps of several columns of an input, as both ends of edges
            return [(name, (column,)) for name, column in sorted(found[0])]
        inputs = sorted(set.intersection(*({name for name, _ in sources} for sources in found))) if found else []
        return [
            (name, tuple(min(column for source, column in sources if source == name) for sources in found))
            for name in inputs
        ]

    def integers(self) -> Spread:
        """The values of all columns of integers of the inputs that something reads."""
        return joined(
            self._inputs.of(name, (column,))
            for name, schema in self._plan.inputs.items()
            for column, kind in schema.items()
            if kind.name == "int64" and column in self._plan.read[name]
        )

    def of(self, source: tuple[str, tuple[str, ...]]) -> Spread:
        """The codes of new updates of an input by these columns."""
        return self._inputs.of(*source)

    def _sources(self, node: int, column: str) -> list[Source]:
        """The columns of inputs of which a column of a node has the values as they are."""
        return [source for source, how in self._lineage[node].columns.get(column, {}).items() if "IDENTITY" in how]

    @cached_property
    def _lineage(self) -> Mapping[int, ColumnLineage]:
        from ddcore.planning.column_lineage import collection_lineage  # it imports all operators

        return collection_lineage(self._plan, [arrangement.node for arrangement in self._plan.arrangements])


class _Inputs:
    """Samples of the new updates of inputs, at most ``Tuning.sampled_rows`` of each, from all over its window.

    Files are often sorted, so their first rows would say nothing about the others. The rows of an input are the same
    for all its columns; each set of these is read once.
    """

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._spreads: dict[tuple[str, tuple[str, ...]], Spread] = {}

    def of(self, name: str, columns: tuple[str, ...]) -> Spread:
        """The codes of rows by these columns, and how many rows each stands for."""
        if (name, columns) not in self._spreads:
            self._spreads[name, columns] = self._read(name, columns)
        return self._spreads[name, columns]

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """At most how many rows of each input the window has."""
        return {name: sum(file.rows for file in self._files(name)[1]) for name in self._fold.plan.inputs}

    def _files(self, name: str) -> tuple[ChangeLog, list[LiveFile]]:
        """The log of an input, and its files that may have rows of the window."""
        fold = self._fold
        log = input_log(fold.stored.warehouse, fold.settings, name, fold.plan.inputs[name])
        files = [
            file for file in log.files(fold.inputs[name]) if fold.window.may_meet(file.lower, file.upper, log.dims)
        ]
        return log, files

    def _read(self, name: str, columns: tuple[str, ...]) -> Spread:
        """Rows of an input's window, in slices with even distances, and for how many each stands.

        Where most rows of the files are outside of the window, slices would miss it: then it is read as a whole, if it
        is not too large for that.
        """
        import polars as pl

        fold = self._fold
        most = fold.settings.tuning.sampled_rows
        log, files = self._files(name)
        rows = sum(file.rows for file in files)
        if not rows:
            return np.empty(0, np.int64), np.empty(0, np.float64)
        sample, weight = pl.concat(self._slices(log, files, rows, columns)), max(1.0, rows / most)
        if rows > most > _OUTSIDE * len(sample) and fold.rows <= _WHOLE:
            inside = log.collect(self._inside(log, log.scan_files(files), columns))
            every = max(1, len(inside) // most)
            sample, weight = inside.gather_every(every), float(every)
        kinds = [log.schema[column] for column in columns]
        words = [encode(sample[column], kind) for column, kind in zip(columns, kinds, strict=True)]
        return key_codes(words, kinds, len(sample)), np.full(len(sample), weight)

    def _inside(self, log: ChangeLog, rows: pl.LazyFrame, columns: Sequence[str]) -> pl.LazyFrame:
        """These columns of those of the rows that are in the window."""
        return rows.filter(self._fold.window.condition(log.dims)).select(*dict.fromkeys(columns))

    def _slices(
        self, log: ChangeLog, files: Sequence[LiveFile], rows: int, columns: Sequence[str]
    ) -> Iterator[pl.DataFrame]:
        most = self._fold.settings.tuning.sampled_rows
        distance = rows if rows <= most else -(-rows // _SLICES)
        ends = list(accumulate(file.rows for file in files))
        for at in range(0, rows, max(1, distance)):
            number = bisect_right(ends, at)
            end = min(at + distance, rows) if rows <= most else at + most // _SLICES
            for file, last in zip(files[number:], ends[number:], strict=True):
                start = last - file.rows
                if start >= end:
                    break
                scan = log.scan_files([file]).slice(max(0, at - start), min(end, last) - max(at, start))
                yield log.collect(self._inside(log, scan, columns))
