"""Times as columns: representatives of times beyond a frontier."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest

from ddcore.base import lattice
from ddcore.kernels import time_columns as kernels


def columns(times: list[tuple[int, ...]], dims: int) -> np.ndarray:
    return np.array(times, dtype=np.int64).reshape(len(times), dims).T


@pytest.mark.sample(70)
@pytest.mark.parametrize("seed", range(200))
def test_times_have_one_representative_where_no_time_left_tells_them_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dims, size = int(rng.integers(1, 4)), 4
    elements = lattice.frontier(tuple(map(int, row)) for row in rng.integers(0, size, (rng.integers(1, 4), dims)))
    times = list(product(range(size), repeat=dims))
    left = [time for time in product(range(size + 1), repeat=dims) if any(lattice.le(e, time) for e in elements)]
    actual = [tuple(row) for row in lattice.advance(columns(times, dims), columns(list(elements), dims)).T.tolist()]
    views: dict[tuple[bool, ...], tuple[int, ...]] = {}
    for time, representative in zip(times, actual, strict=True):
        assert lattice.le(time, representative)
        assert all(lattice.join(time, other) == lattice.join(representative, other) for other in left)
        assert all(lattice.le(time, other) == lattice.le(representative, other) for other in left)
        view = tuple(lattice.le(time, other) for other in left)
        assert views.setdefault(view, representative) == representative
    assert len(set(actual)) == len(views)


def test_an_empty_frontier_changes_no_time() -> None:
    times = columns([(1, 2), (0, 5)], 2)
    assert lattice.advance(times, columns([], 2)).tolist() == times.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_the_order_is_the_same_on_tuples_on_columns_in_polars_and_in_kernels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dims = int(rng.integers(1, 4))
    names = ["day", "revision", "batch"][:dims]
    order: Any = kernels.holds.py_func
    times = [tuple(map(int, row)) for row in rng.integers(0, 4, (50, dims))]
    elements = lattice.frontier(tuple(map(int, row)) for row in rng.integers(0, 4, (3, dims)))
    frame = pl.DataFrame(times, schema=names, orient="row")
    for until in elements:
        expected = [lattice.le(time, until) for time in times]
        assert frame.select(lattice.is_before(names, until)).to_series().to_list() == expected
        points = columns([until], dims)
        assert [bool(order(columns(times, dims), row, points, 0)) for row in range(len(times))] == expected
    expected = [any(lattice.le(element, time) for element in elements) for time in times]
    assert frame.select(lattice.is_beyond(names, elements)).to_series().to_list() == expected
    assert lattice.beyond(columns(times, dims), columns(list(elements), dims)).tolist() == expected
