"""Sums and means of decimals with more than 18 digits, from sums of whole numbers of 64 bits.

Before an aggregation each such argument is cut into *limbs*: its magnitude in four numbers of 32 bits, each with the
sign of the value. Sums of limbs are sums like any others, by kernels and as totals, and a retraction takes away what
its row has added. After the aggregation four sums are one number of 128 bits again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddcore.base.digests import digest
from ddcore.base.errors import DiffOverflow
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import MOST_DIGITS, Schema, Type
from ddcore.data import encoding
from ddcore.operators.base import Linear, Needs
from ddcore.text.wording import fresh
from ddcore.traces.batch import Batch

_LIMBS, _BITS = 4, 32
_LOW = (1 << _BITS) - 1
_MOST_LIMB = 2**62  # of a sum of limbs, so that what is carried from the limb below can be added
_INT64 = Type("int64")
_SUMMED = ("sum", "mean")


def is_summed(kind: str, argument: Type) -> bool:
    """Whether an aggregate of this type is computed from limbs."""
    return kind in _SUMMED and argument.is_wide


@dataclass(frozen=True)
class Sum:
    """One sum or mean: the column of its result, which of the two it is, the scale of its values, the columns with the
    sums of limbs and, of a mean, the column with the number of values.
    """

    result: str
    kind: str
    scale: int
    limbs: tuple[str, ...]
    number: str

    @property
    def type(self) -> Type:
        """The type of the result."""
        return Type("decimal", MOST_DIGITS, self.scale) if self.kind == "sum" else Type("float64")


@dataclass(frozen=True, eq=False)
class Limbs(Linear):
    """The rows with five more columns for each of ``cut``: the limbs of a decimal, and 1; all null where it is."""

    name = "limbs"
    inner = True
    signs = "kept"
    source: Schema
    cut: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, source: Schema, columns: Sequence[str]) -> Limbs:
        """Of some columns of a source."""
        names = fresh("_limb_", source)
        cut = {column: tuple(next(names) for _ in range(_LIMBS + 1)) for column in columns}
        schema = source | {name: _INT64 for more in cut.values() for name in more}
        return cls(schema, digest(list(columns), *map(list, cut.values())), source, cut)

    @property
    def carried(self) -> Mapping[str, str]:
        """All columns of the source."""
        return {name: name for name in self.source}

    def needs(self, columns: frozenset[str]) -> Needs:
        """Of a limb, its decimal."""
        reads = {name: column for column, names in self.cut.items() for name in names}
        return self.text, [frozenset(reads.get(name, name) for name in columns)]

    def apply(self, batch: Batch, source_line: str) -> Batch:
        """The words are those of the pool, cut."""
        words = dict(zip(self.source, batch.words, strict=True))
        more = [limb for column in self.cut for limb in _limbs(words[column])]
        return batch.of([*batch.words, *more])


def _limbs(words: np.ndarray) -> list[np.ndarray]:
    """The limbs of decimals, and ones: int64[n] each."""
    nulls = words == encoding.NULL
    some = bool(nulls.any())
    low, high = encoding.halves_of_ids(np.where(nulls, 0, words) if some else words).T
    negative = high < 0
    low = np.where(negative, -low, low).view(np.uint64)  # wraps around, as it has to
    high = np.where(negative, ~high + (low == 0), high).view(np.uint64)
    signs = np.where(negative, -1, 1)
    limbs = [(half >> np.uint64(shift) & np.uint64(_LOW)).astype(np.int64) for half in (low, high) for shift in (0, 32)]
    columns = [*(limb * signs for limb in limbs), np.ones(len(words), np.int64)]
    return [np.where(nulls, encoding.NULL, column) for column in columns] if some else columns


@dataclass(frozen=True, eq=False)
class FromLimbs(Linear):
    """The rows of an aggregation with its results in their order, of which ``sums`` are computed from limbs."""

    name = "from_limbs"
    inner = True
    signs = "kept"
    source: Schema
    sums: tuple[Sum, ...]
    named: tuple[str, ...]

    @classmethod
    def of(cls, source: Schema, named: Sequence[str], results: Sequence[str], sums: Sequence[Sum]) -> FromLimbs:
        """``named``: the columns before the results, which say of what rows they are."""
        columns = [*named, *results]
        types = {total.result: total.type for total in sums}
        schema = {name: types[name] if name in types else source[name] for name in columns}
        parts = [[total.result, total.kind, str(total.scale), list(total.limbs), total.number] for total in sums]
        return cls(schema, digest(list(columns), *parts), source, tuple(sums), tuple(named))

    @property
    def carried(self) -> Mapping[str, str]:
        """All columns but the sums."""
        sums = {total.result for total in self.sums}
        return {name: name for name in self.schema if name not in sums}

    def apply(self, batch: Batch, source_line: str) -> Batch:
        """Raises DiffOverflow for a sum that has more than 38 digits."""
        words = dict(zip(self.source, batch.words, strict=True))
        results = {total.result: self._result(total, words, source_line) for total in self.sums}
        return batch.of([results[name] if name in results else words[name] for name in self.schema])

    def _result(self, one: Sum, words: Mapping[str, np.ndarray], source_line: str) -> np.ndarray:
        limbs = [words[name] for name in one.limbs]
        if one.kind == "mean":
            return _means(limbs, words[one.number], one.scale)
        halves, beyond = _added(limbs)
        if beyond.any():
            row = int(beyond.argmax())
            of = [f"{name}={encoding.decode(words[name][row : row + 1], self.schema[name])[0]}" for name in self.named]
            where = f"{', '.join(of)}: " if of else ""
            raise DiffOverflow(f"{source_line}: {where}{one.result} has too many digits for {one.type}")
        return encoding.pool_of(one.type).intern(halves) if len(halves) else beyond.astype(np.int64)


def _added(limbs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of sums of limbs, as halves (n, 2), and which of them have more than 38 digits."""
    beyond = np.zeros(len(limbs[0]), dtype=bool)
    digits: list[np.ndarray] = []
    carry = np.zeros(len(limbs[0]), dtype=np.int64)
    for limb in limbs:
        vast = np.abs(limb) >= _MOST_LIMB
        beyond |= vast
        total = np.where(vast, 0, limb) + carry
        digits.append(total & _LOW)
        carry = total >> _BITS
    top = digits.pop() | carry << _BITS
    beyond |= (top >= 1 << (_BITS - 1)) | (top < -(1 << (_BITS - 1)))
    low, high = digits[0] | digits[1] << _BITS, digits[2] | top << _BITS
    most = 10**MOST_DIGITS
    least_low, least_high = np.uint64(-most % 2**64), -most >> 64
    most_low, most_high = np.uint64(most % 2**64), most >> 64
    unsigned = low.view(np.uint64)
    beyond |= (high > most_high) | ((high == most_high) & (unsigned >= most_low))
    beyond |= (high < least_high) | ((high == least_high) & (unsigned <= least_low))
    return np.stack([low, high], axis=1), beyond


def _means(limbs: Sequence[np.ndarray], numbers: np.ndarray, scale: int) -> np.ndarray:
    """The words of exact sums divided by numbers of values, each rounded once; null of no values."""
    totals = np.zeros(len(numbers), dtype=object)
    for source_line, limb in enumerate(limbs):
        totals += limb.astype(object) << (_BITS * source_line)
    some = np.flatnonzero(numbers)
    words = np.full(len(numbers), encoding.NULL)
    if len(some):
        quotients = totals[some] / (numbers[some].astype(object) * 10**scale)
        words[some] = encoding.words_of_floats(quotients.astype(np.float64))
    return words
