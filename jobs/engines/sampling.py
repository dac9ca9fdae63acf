"""How the rows of a fold are spread over key codes: of new updates by samples of inputs, of stored ones by footers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from ddcore.base.errors import DataError, ExpressionError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, Type, is_direct
from ddcore.data.encoding import decode, encode, key_codes
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.inputs import input_log
from ddcore.io.state.codes import spread
from ddcore.jobs.fold import Fold
from ddcore.operators.arrangement import Arrangement

if TYPE_CHECKING:
    import polars as pl

    from ddcore.expressions.projections import Projection
    from ddcore.io.delta.table_files import LiveFile
    from ddcore.planning.column_lineage import Origins

    Column: TypeAlias = "str | _Computed"
    Source = tuple[str, tuple[Column, ...]]  # an input, and columns that it has or that are computed from its own
    Spread = tuple[np.ndarray, np.ndarray]  # codes, and how many rows each stands for: int64[n], float64[n]

_SLICES = 61  # a prime: of a file that is sorted several times over, slices at even distances meet other keys each time
# A window that has fewer than a fourth of the rows of its files, and not more than so many, is read as a whole.
_OUTSIDE, _WHOLE = 4, 20_000_000
_SEVERAL, _CHAIN = 8, 16  # sources of a column, and computations one after the other, that are followed


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
        self._known: dict[tuple[int, str], list[tuple[str, Column]]] = {}

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
        """The codes of new updates by one key, as far as its columns are, or are computed from, those of one input."""
        return joined(self._inputs.of(*source) for source in self.sources(arrangement))

    def reaching(self, group: Sequence[Arrangement]) -> int:
        """The rows of the window of all inputs that some arrangements depend on."""
        reads = self._plan.upstream(arrangement.node for arrangement in group)
        return sum(self._inputs.rows[name] for name, node in self._plan.sources.items() if node in reads)

    def sources(self, arrangement: Arrangement) -> list[Source]:
        """The inputs that have the columns of a key, or those that it is computed from, and what these are there."""
        key = self.key(arrangement)
        if not is_direct([arrangement.collection[name] for name in key]) and arrangement not in self._by_hash:
            return []
        return _together([self._sources(arrangement.node, column) for column in key])

    def alike(self, kinds: Collection[Type]) -> Spread:
        """The values of all columns of the inputs that something reads and that have one of these types; or of
        integers, if there are none.
        """
        columns = [
            (kind, (name, (column,)))
            for name, schema in self._plan.inputs.items()
            for column, kind in schema.items()
            if column in self._plan.read[name]
        ]
        found = [source for kind, source in columns if kind in kinds]
        found = found or [source for kind, source in columns if kind.name == "int64"]
        return joined(self._inputs.of(*source) for source in found)

    def of(self, source: Source) -> Spread:
        """The codes of new updates of an input by these columns."""
        return self._inputs.of(*source)

    def _sources(self, node: int, column: str, chain: int = 0) -> list[tuple[str, Column]]:
        """The columns of inputs, as they are or computed, of which a column of a node has the values."""
        origins = sorted(self._origins.of(node, column))
        return [source for origin in origins for source in self._first(*origin, chain)][:_SEVERAL]

    def _first(self, node: int, column: str, chain: int) -> list[tuple[str, Column]]:
        """The same of a column that no node before has. In a loop it may depend on itself, which is left out."""
        from ddcore.operators.select import Select  # it imports the kernels

        if (node, column) in self._known:
            return self._known[node, column]
        found = self._known[node, column] = []
        operator = self._plan.nodes[node].operator
        if node in self._names:
            found.append((self._names[node], column))
        elif isinstance(operator, Select) and chain < _CHAIN:
            (before,) = self._plan.nodes[node].inputs
            reads = sorted(operator.projection.reads[column])
            for name, columns in _together([self._sources(before, read, chain + 1) for read in reads]):
                found.append((name, _Computed(operator.projection, column, dict(zip(reads, columns, strict=True)))))
        return found

    @cached_property
    def _names(self) -> Mapping[int, str]:
        return {node: name for name, node in self._plan.sources.items()}

    @cached_property
    def _origins(self) -> Origins:
        from ddcore.planning.column_lineage import Origins  # it imports all operators

        return Origins(self._plan, [arrangement.node for arrangement in self._plan.arrangements])


def _together(columns: Sequence[Sequence[tuple[str, Column]]]) -> list[Source]:
    """The inputs that have all of some columns. One alone is perhaps several columns of an input, as both ends of
    edges; of more the first is taken.
    """
    if len(columns) == 1:
        return [(name, (column,)) for name, column in columns[0]]
    inputs = sorted(set.intersection(*({name for name, _ in sources} for sources in columns))) if columns else []
    return [
        (name, tuple(next(column for source, column in sources if source == name) for sources in columns))
        for name in inputs
    ]


@dataclass(frozen=True, eq=False)
class _Computed:
    """A column that a projection computes from columns of an input; ``reads``: these, by their names there."""

    projection: Projection
    name: str
    reads: Mapping[str, Column]

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns of the input that it is computed from."""
        return frozenset().union(*map(_columns, self.reads.values()))


def _columns(column: Column) -> frozenset[str]:
    return column.columns if isinstance(column, _Computed) else frozenset((column,))


@dataclass(frozen=True)
class _Rows:
    """A sample of an input's rows."""

    frame: pl.DataFrame
    schema: Schema
    _known: dict[Column, np.ndarray] = field(default_factory=dict)

    def words(self, column: Column) -> np.ndarray:
        """Of a column. Raises ExpressionError and DataError for a value that has none."""
        if column not in self._known:
            self._known[column] = self._words(column)
        return self._known[column]

    def _words(self, column: Column) -> np.ndarray:
        import polars as pl

        if not isinstance(column, _Computed):
            return encode(self.frame[column], self.schema[column])
        values = [decode(self.words(read), self.kind(read), name) for name, read in column.reads.items()]
        return encode(column.projection.computed_one(column.name, pl.DataFrame(values)), self.kind(column))

    def kind(self, column: Column) -> Type:
        """The type of a column."""
        return column.projection.schema[column.name] if isinstance(column, _Computed) else self.schema[column]


class _Inputs:
    """Samples of the new updates of inputs, at most ``Tuning.sampled_rows`` of each, from all over its window.

    Files are often sorted, so their first rows would say nothing about the others. The rows of an input are the same
    for all its columns; each set of these is read once.
    """

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._spreads: dict[Source, Spread] = {}

    def of(self, name: str, columns: tuple[Column, ...]) -> Spread:
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

    def _read(self, name: str, columns: tuple[Column, ...]) -> Spread:
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
        read = sorted(frozenset().union(*map(_columns, columns)))
        sample, weight = pl.concat(self._slices(log, files, rows, read)), max(1.0, rows / most)
        if rows > most > _OUTSIDE * len(sample) and fold.rows <= _WHOLE:
            inside = log.collect(self._inside(log, log.scan_files(files), read))
            every = max(1, len(inside) // most)
            sample, weight = inside.gather_every(every), float(every)
        known = _Rows(sample, log.schema)
        try:
            words = [known.words(column) for column in columns]
        except (ExpressionError, DataError):  # of a row that the program perhaps leaves out before
            return np.empty(0, np.int64), np.empty(0, np.float64)
        return key_codes(words, [*map(known.kind, columns)], len(sample)), np.full(len(sample), weight)

    def _inside(self, log: ChangeLog, rows: pl.LazyFrame, columns: Sequence[str]) -> pl.LazyFrame:
        """These columns of those of the rows that are in the window."""
        return rows.filter(self._fold.window.condition(log.dims)).select(*columns)

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
