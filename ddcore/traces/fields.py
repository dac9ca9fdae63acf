"""Fields: the places of columns in a packed integer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ddcore.base.lazy import numpy as np

HALF_BITS = 32
_LOWER = 2**HALF_BITS - 1


@dataclass(frozen=True, slots=True)
class Field:
    """The place of a column, or of a half of it, in a packed integer, by the least and the greatest value there."""

    column: int
    least: int
    most: int
    half: str = ""  # upper or lower; empty: the whole column
    bits: int = -1  # computed

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", (self.most - self.least).bit_length())

    def of(self, column: np.ndarray) -> np.ndarray:
        """What is packed of a column; ``least`` is to be taken away."""
        if not self.half:
            return column
        return column >> HALF_BITS if self.half == "upper" else lower_half(column)


def lower_half(column: np.ndarray) -> np.ndarray:
    """The lower half of each value, which is not negative."""
    lower: np.ndarray = column & _LOWER
    return lower


def shifts(fields: Sequence[Field]) -> list[tuple[Field, int]]:
    """The fields and by how many bits each is shifted up; the lowest first."""
    shifts = accumulate((field.bits for field in reversed(fields)), initial=0)
    return list(zip(reversed(fields), shifts, strict=False))
