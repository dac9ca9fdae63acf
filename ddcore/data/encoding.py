"""Rows as int64 words: the encoding of values for the kernels.

Every value is one 64-bit word. Words are equal exactly if the values are, so kernels compare and move integers
only. Types of 64 bits are mapped one to one; strings, binaries, lists, structs and decimals of more than 18 digits get
an id in a process-wide :class:`~ddcore.data.pools.Pool`. A list is in its pool as the words of its elements, a struct
as the words of its fields, so that equality inside is equality of words too; a decimal as its 128 bits. A null is
the word ``NULL`` in every type, which costs int64 one value: -2**63.

Ids differ between processes. The *key code* (:func:`key_codes`), by which arrangements are sorted and divided between
workers, is the same in all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from ddcore import kernels
from ddcore.base.errors import DataError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, Type, is_direct
from ddcore.data import forms, nested, wide
from ddcore.data.arrow import series_of_numbers
from ddcore.data.casts import InexactCast, exact_cast
from ddcore.data.pools import Halves, Pool, Sequences, Strings, Words

NULL = -(2**63)
_NAN_WORD = 0x7FF8000000000000
_FEW, _SEVERAL = 4096, 2  # rows and columns of strings that are looked up together
_NULL_HASH = 0x9AE16A3B2F90404F - 2**64  # as in kernels.hashing


@dataclass(frozen=True)
class Pools:
    """The pools of one process: ids of values of the types that do not fit into a word.

    ``nested``: by type. ``wide``: of decimals with more than 18 digits.
    """

    strings: Strings = field(default_factory=Strings)
    binaries: Strings = field(default_factory=Strings)
    nested: dict[Type, Sequences] = field(default_factory=dict)
    wide: Halves = field(default_factory=Halves)


POOLS = Pools()


def encode(series: pl.Series, kind: Type) -> np.ndarray:
    """Words of a series: int64[n].

    Raises DataError for a value that the type does not hold, and for the one word that stands for null.
    """
    name = series.name
    if series.dtype != kind.polars or kind.name in ("time", "uuid"):
        try:
            series = exact_cast(series, kind)
        except InexactCast as error:
            raise DataError(f"column {name}{error.path} {error}", "cast it first") from None
    if kind.base is not kind:
        series, kind = forms.to_base(series, kind).alias(name), kind.base
    if kind.is_pooled:
        return _encode_pooled(series, kind)
    nulls = series.is_null().to_numpy() if series.null_count() else None
    if kind.name == "float64":
        words = words_of_floats(series.fill_null(0.0).to_numpy())
    else:
        physical = series if kind.name in ("int64", "bool") else series.to_physical()
        integers = physical if physical.dtype == pl.Int64 else physical.cast(pl.Int64)
        words = (integers if nulls is None else integers.fill_null(0)).to_numpy()
        if kind.name in ("int64", "timestamp") and len(words) and words.min() == NULL:
            raise DataError(
                f"column {name}: the {kind} value {NULL} is reserved", "use a value from -9223372036854775807 upwards"
            )
    if nulls is not None:
        words = np.where(nulls, NULL, words)
    return np.ascontiguousarray(words, dtype=np.int64)


def decode(words: np.ndarray, kind: Type, name: str = "") -> pl.Series:
    """The series of n values that :func:`encode` turned into ``words``."""
    if kind.base is not kind:
        return forms.from_base(decode(words, kind.base), kind).alias(name)
    nulls = words == NULL
    some = bool(np.count_nonzero(nulls))
    if kind.is_nested:
        return _decode_nested(words, ~nulls if some else None, kind).alias(name)
    safe = np.where(nulls, 0, words) if some else words
    if kind.is_pooled:
        series = _decode_pooled(safe, kind)
    elif kind.name == "float64":
        series = series_of_numbers(floats_of(safe))
    elif kind.name == "bool":
        series = series_of_numbers(safe != 0)
    elif kind.name == "date":
        series = series_of_numbers(safe).cast(pl.Int32).cast(pl.Date)
    elif kind.name == "timestamp":
        series = series_of_numbers(safe).cast(kind.polars)
    elif kind.name == "decimal":
        series = wide.decimals(wide.halves_of_words(safe), kind)
    else:
        series = series_of_numbers(safe)
    if some:
        series = series.zip_with(
            series_of_numbers(~nulls), pl.Series([None], dtype=series.dtype).new_from_index(0, len(series))
        )
    return series if series.name == name else series.alias(name)


def encode_columns(columns: Mapping[str, pl.Series], schema: Schema) -> dict[str, np.ndarray]:
    """Words of these columns of ``schema``. Raises DataError as :func:`encode` does."""
    texts = [name for name, column in columns.items() if _is_short_text(column, schema[name])]
    if len(texts) < _SEVERAL:
        return {name: encode(column, schema[name]) for name, column in columns.items()}
    ids = POOLS.strings.intern(pl.concat([columns[name].alias("") for name in texts]))
    cut = dict(zip(texts, np.split(ids, np.cumsum([len(columns[name]) for name in texts[:-1]])), strict=True))
    return {name: cut[name] if name in cut else encode(column, schema[name]) for name, column in columns.items()}


def _is_short_text(column: pl.Series, kind: Type) -> bool:
    """Whether a column is of so few strings that the calls cost more than they do: several become words at once."""
    return kind.name == "string" and column.dtype == pl.String and len(column) <= _FEW and not column.null_count()


def encode_frame(frame: pl.DataFrame, schema: Schema) -> list[np.ndarray]:
    """Words of the columns of ``schema``, in its order."""
    return list(encode_columns({name: frame[name] for name in schema}, schema).values())


def decode_frame(words: Sequence[np.ndarray], schema: Schema) -> pl.DataFrame:
    """The frame with the columns of ``schema`` that ``words`` (one array per column) stand for."""
    return pl.DataFrame(decode_columns(words, schema))


def decode_columns(words: Sequence[np.ndarray], schema: Schema) -> list[pl.Series]:
    """The columns of that frame."""
    texts = [number for number, kind in enumerate(schema.values()) if kind.name == "string"]
    rows = len(words[0]) if words else 0
    if len(texts) < _SEVERAL or not 0 < rows <= _FEW:
        return [decode(column, kind, name) for column, (name, kind) in zip(words, schema.items(), strict=True)]
    together = decode(np.concatenate([words[number] for number in texts]), Type("string"))
    positions = {number: position * rows for position, number in enumerate(texts)}
    return [
        together[positions[n] : positions[n] + rows].alias(name) if n in positions else decode(words[n], kind, name)
        for n, (name, kind) in enumerate(schema.items())
    ]


def key_codes(words: Sequence[np.ndarray], kinds: Sequence[Type], rows: int) -> np.ndarray:
    """Codes of ``rows`` keys: int64[rows], the same in every process and version.

    The word itself for a direct key, else a 64-bit hash of the values. Equal keys have equal codes; unequal keys may
    share a code when hashed, so code that groups by key code must also compare the key's words.
    """
    if is_direct(kinds):
        return words[0]
    codes = np.zeros(rows, dtype=np.int64)
    for column, kind in zip(words, kinds, strict=True):
        if kind.is_pooled:
            kernels.hashing.mix_pooled(codes, column, pool_of(kind).hashes)
        else:
            kernels.hashing.mix(codes, column)
    return codes


def rank_words(words: np.ndarray, kind: Type) -> tuple[np.ndarray, np.ndarray | None]:
    """Words whose integer order is the order of the values, and the table from ranks to words (or None).

    Fixed-width words are ordered as they are. Pooled words become positions among the distinct values present, strings
    in byte order, structs by their first field, then the next, lists by their first element, then the next, nulls
    inside before all values: O(n log n) comparisons.
    """
    if not kind.is_pooled:
        return words, None
    distinct, inverse = np.unique(words, return_inverse=True)
    present = distinct[distinct != NULL]
    values = decode(present, kind)
    order = (forms.ordered(values) if kind.name == "interval" else values).arg_sort().to_numpy()
    back = present[order]
    rank = np.empty(len(distinct), dtype=np.int64)
    rank[len(distinct) - len(present) :][order] = np.arange(len(present))
    if len(present) < len(distinct):
        rank[0] = NULL
    return rank[inverse], back


def pool_of(kind: Type) -> Pool[Any]:
    """The pool that holds values of a pooled type."""
    kind = kind.base
    if kind.is_nested:
        return _sequences_of(kind)
    if kind.is_wide:
        return POOLS.wide
    return POOLS.strings if kind.name == "string" else POOLS.binaries


def halves_of_ids(words: np.ndarray) -> np.ndarray:
    """The halves (n, 2) of decimals of more than 18 digits, by their words."""
    return POOLS.wide.halves(words)


def _sequences_of(kind: Type) -> Sequences:
    """One pool for all types that differ in names of fields only: tables of state may name them otherwise."""
    pools = POOLS.nested
    pool = pools.get(kind)
    if pool is None:
        pool = pools[kind] = pools.setdefault(_without_names(kind), Sequences())
    return pool


def _without_names(kind: Type) -> Type:
    if kind.element is not None:
        return replace(kind, element=_without_names(kind.element))
    fields = enumerate(kind.fields)
    return replace(kind, fields=tuple((str(position), _without_names(inner)) for position, (_, inner) in fields))


def _encode_pooled(series: pl.Series, kind: Type) -> np.ndarray:
    if series.null_count() == 0:
        return pool_of(kind).intern(_pooled_values(series, kind))
    present = series.is_not_null()
    words = np.full(len(series), NULL, dtype=np.int64)
    words[present.to_numpy()] = pool_of(kind).intern(_pooled_values(series.filter(present), kind))
    return words


def _pooled_values(series: pl.Series, kind: Type) -> pl.Series | Words | np.ndarray:
    """Values without nulls in the form that their pool takes."""
    if kind.is_wide:
        return wide.halves(series)
    if not kind.is_nested:
        return series if kind.name == "string" else series.bin.encode("hex")
    inside = [(encode(column, inner), inner) for column, inner in nested.parts(series, kind)]
    words = np.stack([column for column, _ in inside], axis=1).ravel()
    hashes = np.stack([_stable(column, inner) for column, inner in inside], axis=1).ravel()
    lengths = nested.lengths(series) if kind.element is not None else np.full(len(series), len(inside), dtype=np.int64)
    return Words(lengths, words, hashes)


def _stable(words: np.ndarray, kind: Type) -> np.ndarray:
    """Equal for equal values in every process: int64[n]."""
    if not kind.is_pooled:
        return words
    nulls = words == NULL
    if nulls.all():
        return np.full(len(words), _NULL_HASH)
    return np.where(nulls, _NULL_HASH, pool_of(kind).hashes[np.where(nulls, 0, words)])


def _decode_pooled(words: np.ndarray, kind: Type) -> pl.Series:
    if kind.is_wide:
        return wide.decimals(halves_of_ids(words), kind)
    pool = POOLS.strings if kind.name == "string" else POOLS.binaries
    text = pool.strings(words) if len(pool) else pl.Series([None] * len(words), dtype=pl.String)  # nulls only
    return text if kind.name == "string" else text.str.decode("hex")


def _decode_nested(words: np.ndarray, valid: np.ndarray | None, kind: Type) -> pl.Series:
    lengths, inside = _sequences_of(kind).sequences(words if valid is None else words[valid])
    if kind.element is not None:
        if valid is not None:
            present, lengths = lengths, np.zeros(len(words), dtype=np.int64)
            lengths[valid] = present
        return nested.lists(decode(inside, kind.element), lengths, valid)
    columns = inside.reshape(-1, len(kind.fields)).T
    if valid is not None:
        present, columns = columns, np.full((len(kind.fields), len(words)), NULL, dtype=np.int64)
        columns[:, valid] = present
    fields = zip(kind.fields, columns, strict=True)
    return nested.structs({name: decode(column, inner) for (name, inner), column in fields}, valid)


def words_of_floats(values: np.ndarray) -> np.ndarray:
    """Floats as integers in the same order; one NaN, above all numbers; one zero."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        bits = (values + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
    words = np.where(bits >= 0, bits, bits ^ np.int64(0x7FFFFFFFFFFFFFFF))
    return np.where(np.isnan(values), _NAN_WORD, words)


def floats_of(words: np.ndarray) -> np.ndarray:
    """The floats of :func:`words_of_floats`."""
    bits = np.where(words >= 0, words, words ^ np.int64(0x7FFFFFFFFFFFFFFF))
    return np.ascontiguousarray(bits).view(np.float64)
