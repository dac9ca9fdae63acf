"""Floats of sources and change logs have one NaN and one zero, so that equal rows have equal bits."""

from __future__ import annotations

import polars as pl

from ddcore.base.lazy import numpy as np

_MINUS_ZERO = -(2**63)  # its bits


def one_nan_one_zero(values: pl.Series) -> pl.Series:
    """Floats of 64 bits without other NaNs and without -0.0. The same series where it has none, as most have."""
    for chunk in values.get_chunks():
        floats = chunk.fill_null(0.0).to_numpy() if chunk.null_count() else chunk.to_numpy()
        if np.isnan(floats).any() or (floats.view(np.int64) == _MINUS_ZERO).any():
            break
    else:
        return values
    ones = pl.when(values == 0.0).then(0.0).otherwise(values)  # not `values + 0.0`: Polars optimizes that away
    return pl.select(ones.alias(values.name)).to_series().fill_nan(float("nan"))
