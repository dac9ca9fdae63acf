"""Updates written as they are in design texts: ``cat:+1@(0,3)``, ``(k,1):-2,(k,2):+1@(1,1)``, ``a,b,c:+1@0 d:-1@1``.

A diff holds for all rows before it that have none yet, a time for all rows before it that have none yet. Rows are
words: a bare one is a row of one column, one in brackets a row of several; numbers are ints, ``null`` is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

DIMS = {
    1: ("version",),
    2: ("day", "revision"),
    3: ("region", "day", "revision"),
    4: ("source", "region", "day", "revision"),
}
TOKEN = re.compile(r"(?P<row>\([^()]*\)|[^\s,;:@()]+)|:(?P<diff>[+-]\d+)|@(?P<time>\([\d,]+\)|\d+)|[\s,;]+")


def atom(word: str) -> Any:
    if word == "null":
        return None
    if re.fullmatch(r"-?\d+", word):
        return int(word)
    return float(word) if re.fullmatch(r"-?\d+\.\d+|nan", word) else word


def word(text: str) -> tuple[Any, ...]:
    """``cat`` -> ("cat",); ``(k,1)`` -> ("k", 1)."""
    return tuple(atom(part.strip()) for part in text.strip("()").split(","))


def pair(text: str) -> tuple[Any, ...]:
    """An edge by its two ends: ``ab`` -> ("a", "b"); ``12`` -> (1, 2)."""
    return tuple(atom(letter) for letter in text)


def log(text: str, row: Callable[[str], tuple[Any, ...]] = word) -> dict[tuple[Any, Any], int]:
    """``{(row, time): diff}`` as ``reference.log_of`` gives it, from the notation."""
    found: dict[tuple[Any, Any], int] = {}
    undiffed, untimed = [], []
    end = 0
    for token in TOKEN.finditer(text):
        assert token.start() == end, f"cannot read {text[end:]!r}"
        end = token.end()
        if token["row"]:
            undiffed.append(row(token["row"]))
        elif token["diff"]:
            untimed += [(item, int(token["diff"])) for item in undiffed]
            undiffed = []
        elif token["time"]:
            for item, diff in untimed:
                update = (item, word(token["time"]))
                found[update] = found.get(update, 0) + diff
            untimed = []
    assert end == len(text) and not undiffed and not untimed, f"{text!r} ends in the middle"
    return found


def frame(columns: str, text: str, row: Callable[[str], tuple[Any, ...]] = word) -> pl.DataFrame:
    """The same updates as a frame; the number of coordinates says which of ``DIMS`` the time columns are."""
    updates = log(text, row)
    dims = DIMS[len(next(iter(updates))[1])]
    names = [*columns.split(), *dims, "diff"]
    assert all(len(names) == len(item) + len(time) + 1 for item, time in updates), f"rows of {text!r} have no {columns}"
    return pl.DataFrame(
        [(*item, *time, diff) for (item, time), diff in updates.items()],
        schema=names,
        orient="row",
        infer_schema_length=None,
    )


def dims_of(frames: Mapping[str, pl.DataFrame]) -> tuple[str, ...]:
    """The time columns that these frames have."""
    columns = next(iter(frames.values())).columns
    return next(dims for dims in reversed(DIMS.values()) if set(dims) <= set(columns))


def spell(updates: Mapping[tuple[Any, Any], int]) -> str:
    """The notation of a log, for messages: one update a line, by time."""
    lines = sorted(updates.items(), key=lambda item: (item[0][1], repr(item[0][0])))
    return "\n".join(f"  {row!r}:{diff:+d}@{time}" for (row, time), diff in lines) or "  nothing"
