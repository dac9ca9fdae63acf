"""Ids of rows, and the hash of a row, as docs/programs.md specifies them."""

from __future__ import annotations

import functools
import math
import struct
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import polars as pl
import polars_hash as plh

from ddcore.base.errors import Diverged
from ddcore.reference.expressions import expression_of
from ddcore.reference.multiset import Multiset
from ddcore.reference.records import recorders
from ddcore.reference.rows import Row, require_int64, require_no_negative, row_order


def ids_of(collection: Multiset, bits: int, hash: Any, max_rounds: int) -> dict[Row, int]:
    """The id of each row. At round 0 all rows propose their hashes, at each later one those that have no id yet.

    A free id goes to the least row of those that propose it.
    """
    recorders[-1].keep(collection.rows)
    for row, count in collection.rows.items():
        require_no_negative("intern", row, [(row, require_int64(count))])
    owners: dict[int, Row] = {}
    waiting = list(collection.rows)
    for number in range(max_rounds):
        proposals: defaultdict[int, list[Row]] = defaultdict(list)
        for row, proposal in zip(waiting, hashes_of(collection, waiting, number, bits, hash), strict=True):
            proposals[proposal].append(row)
        free = {proposal: rows for proposal, rows in proposals.items() if proposal not in owners}
        owners |= {proposal: min(rows, key=row_order) for proposal, rows in free.items()}
        placed = set(owners.values())
        waiting = [row for row in waiting if row not in placed]
        if not waiting:
            return {row: proposal for proposal, row in owners.items()}
    raise Diverged("intern", (0, max_rounds), max_rounds, len(waiting))


def hashes_of(collection: Multiset, rows: Sequence[Row], number: int, bits: int, hash: Any) -> list[int]:
    """The hashes of rows at a round."""
    if hash is None:
        kinds = list(collection.columns.values())
        return [_row_hash(row, kinds, number) >> (64 - bits) for row in rows]
    numbered = collection.of(collection.columns | {"round": pl.Int64()}, (((*row, number), 1) for row in rows))
    _, hashes = numbered.map({"hash": expression_of(hash)})
    by_row = {row[:-1]: value for row, (value,) in zip(numbered.rows, hashes, strict=True)}
    return [by_row[row] for row in rows]


def _row_hash(row: Row, kinds: Sequence[pl.DataType], number: int) -> int:
    """64 bits of the values of a row and the number of a round."""
    state = number
    for value, kind in zip(row, kinds, strict=True):
        for part in _parts(value, kind, number):
            state = _scrambled(state * 0x9E3779B97F4A7C15 + part)
    return state


def _parts(value: Any, kind: pl.DataType, number: int) -> list[int]:
    """What a value is mixed in as: a decimal of more than 18 digits as two numbers of 64 bits, the lower one first."""
    if not isinstance(kind, pl.Decimal) or kind.precision <= 18:
        return [_value_hash(value, kind, number)]
    if value is None:
        return [_scrambled(-(2**63))] * 2
    whole = int(Fraction(value) * 10**kind.scale)
    return [_scrambled(whole), _scrambled(whole >> 64)]


def _scrambled(word: int) -> int:
    """The finalizer of splitmix64 (sources: Steele 2014)."""
    word %= 2**64
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return word ^ (word >> 31)


@functools.cache
def _value_hash(value: Any, kind: pl.DataType, number: int) -> int:
    if not isinstance(kind, pl.String | pl.Binary):
        return _scrambled(-(2**63) if value is None else _word(value, kind))
    if value is None:
        return 0x9AE16A3B2F90404F
    text = value if isinstance(kind, pl.String) else value.hex()
    hashed: int = pl.DataFrame({"text": [text]}).select(plh.col("text").nchash.xxh3_64(seed=number)).item()
    return hashed


def _word(value: Any, kind: pl.DataType) -> int:
    """A value of fixed width as an integer."""
    if isinstance(kind, pl.Float64):
        bits: int = 0x7FF8000000000000 if math.isnan(value) else struct.unpack("<q", struct.pack("<d", value))[0]
        return bits if bits >= 0 else bits ^ (2**63 - 1)
    if isinstance(kind, pl.Decimal):
        return int(value.scaleb(kind.scale))
    if isinstance(kind, pl.Date | pl.Datetime | pl.Time):
        return int(pl.Series([value], dtype=kind).to_physical().item())
    return int(value)
