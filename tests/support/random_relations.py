"""Random histories of a few small relations, for programs that a test names itself."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from programs import Case

__all__ = ["case_of", "random_relations"]


def random_relations(
    dice: random.Random, columns: Mapping[str, Sequence[str]], *, dims: int, rows: range, values: int, nulls: float
) -> dict[str, pl.DataFrame]:
    """Four versions of relations with two columns of numbers below ``values`` and one of text, all of them nullable.

    ``rows``: how many a version has; ``nulls``: the share of missing numbers. Equal rows come together, and with one
    dimension some leave later.
    """
    times, frames = {1: ("version",), 2: ("day", "revision")}[dims], {}
    for relation, names in columns.items():
        present, updates = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        for version in range(4):
            time = (version,) if dims == 1 else (version // 2, version % 2)
            for _ in range(dice.choice(rows)):
                if present and dice.random() < 0.3 and dims == 1:
                    row, diff = present.pop(dice.randrange(len(present))), -1
                else:
                    numbers = [None if dice.random() < nulls else dice.randrange(values) for _ in range(2)]
                    row, diff = (*numbers, dice.choice(["x", "x", "y", None])), 1
                    present.append(row)
                updates.append((*row, *time, diff))
        schema = dict(zip(names, (pl.Int64, pl.Int64, pl.String), strict=True))
        found = pl.DataFrame(updates, schema | dict.fromkeys((*times, "diff"), pl.Int64), orient="row")
        frames[relation] = found.group_by(*found.columns[:-1], maintain_order=True).agg(pl.col("diff").sum())
    return frames


def case_of(seed: int, source: str, frames: dict[str, pl.DataFrame]) -> Case:
    """The function ``program`` of this source over these histories."""
    scope: dict[str, Any] = {}
    exec(source, scope)
    return Case(seed, source, scope["program"], frames)
