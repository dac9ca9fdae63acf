"""Union, intersection and difference of multisets, as programs call them."""

from __future__ import annotations

from typing import Any

from ddcore.operators import arguments
from ddcore.operators.multiset import SIDE, Multiset
from ddcore.program.linear import C, aligned


def combine(operation: str, rows: C, other: Any, allow_negative: bool) -> C:
    """Two collections with the same columns by ``operation``: union, intersect or except_. Raises ProgramError."""
    sides = [
        side.select(**arguments.kept(rows.schema), **{SIDE: number})
        for number, side in enumerate((rows, aligned(rows, other, operation)))
    ]
    return sides[0].concat(sides[1])._add(Multiset.of(rows.schema, operation, allow_negative))
