"""Joins that also look at rows without a partner: semi, anti, left, right and full.

They are programs of ``join``, ``distinct``, ``concat`` and ``negate``, so their arrangements are shared with others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import polars as pl

if TYPE_CHECKING:
    from ddcore.program.collection import Collection

__all__ = ["KINDS", "How", "anti", "equal", "full", "left", "right", "semi"]

How = Literal["inner", "semi", "anti", "left", "right", "full"]


def equal(left: str, right: str) -> pl.Expr:
    """Whether two columns hold the same key: a null is none, but nulls inside of lists and structs equal each other."""
    return pl.col(left).eq_missing(pl.col(right)) & pl.col(left).is_not_null()


def semi(rows: Collection, other: Collection, on: Mapping[str, str]) -> Collection:
    """The rows that have a partner, each with its own multiplicity: multiplicities of the partners do not count."""
    keys = other.select(**{mine: pl.col(theirs) for mine, theirs in on.items()})
    return rows.join(keys.distinct(), on=list(on))


def anti(rows: Collection, other: Collection, on: Mapping[str, str]) -> Collection:
    """The rows that have no partner; a row with a null in its key never has one."""
    return rows.concat(semi(rows, other, on).negate())


def left(rows: Collection, other: Collection, on: Mapping[str, str]) -> Collection:
    """All pairs, and the rows without a partner with nulls in place of one."""
    pairs = rows.join(other, on=on)
    return pairs.concat(_pad(anti(rows, other, on), pairs))


def right(rows: Collection, other: Collection, on: Mapping[str, str]) -> Collection:
    """All pairs, and the other's rows without a partner with nulls in place of one; the key is the other's there."""
    pairs = rows.join(other, on=on)
    return pairs.concat(_unmatched(rows, other, on, pairs))


def full(rows: Collection, other: Collection, on: Mapping[str, str]) -> Collection:
    """All pairs, and the rows of both without a partner."""
    pairs = rows.join(other, on=on)
    return pairs.concat(_pad(anti(rows, other, on), pairs), _unmatched(rows, other, on, pairs))


KINDS = {"semi": semi, "anti": anti, "left": left, "right": right, "full": full}


def _unmatched(rows: Collection, other: Collection, on: Mapping[str, str], pairs: Collection) -> Collection:
    """The other's rows without a partner, with its columns called as in the pairs."""
    mine_by_theirs = {theirs: mine for mine, theirs in on.items()}
    conditions = [equal(mine, mine_by_theirs[theirs]) for mine, theirs in on.items()]
    matching = rows.where(*conditions) if len(mine_by_theirs) < len(on) else rows
    unmatched = anti(other, matching, mine_by_theirs)
    values = [name for name in other.schema if name not in on.values()]
    names = dict(zip(pairs.columns[len(rows.columns) :], values, strict=True)) | dict(on)
    return _pad(unmatched.select(**{result: pl.col(name) for result, name in names.items()}), pairs)


def _pad(rows: Collection, like: Collection) -> Collection:
    """The rows with nulls in the columns that they lack."""
    schema = like.schema
    columns = {
        name: pl.col(name) if name in rows.schema else pl.lit(None, kind.polars) for name, kind in schema.items()
    }
    return rows.select(**columns)
