"""The distinct values of integers, by sorting them."""

from __future__ import annotations

from ddcore.base.lazy import numpy as np


def distinct(values: np.ndarray) -> np.ndarray:
    """Distinct values, ascending: int64[n] to int64[m]. O(n log n).

    ``numpy.unique`` puts them into a hash table first, which takes longer than to sort them.
    """
    ascending = np.sort(values)
    is_first = np.ones(len(ascending), dtype=np.bool_)
    is_first[1:] = ascending[1:] != ascending[:-1]
    firsts: np.ndarray = ascending[is_first]
    return firsts
