"""How the key codes of stored runs are spread: read from footers and from the bounds of files, not from rows.

Must not import the engine: the driver of a fold on Spark loads this module.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

from ddcore.base.lazy import numpy as np
from ddcore.io.delta.table_files import LiveFile
from ddcore.io.parquet import datafile
from ddcore.io.state.layout import CODE
from ddcore.io.storage import store
from ddcore.io.storage.reporting import REFRESH, reporting
from ddcore.io.storage.store import Location

_LARGE = 16 * 1024  # rows of a file whose footer is looked at
_FOOTERS = 256  # that are read at most, of the largest files
_POINTS = 16  # codes of a file whose footer is not read


def spread(folder: Location, files: Sequence[LiveFile]) -> tuple[np.ndarray, np.ndarray]:
    """Codes of a table's rows and how many rows each stands for: int64[n], float64[n]. Raises StorageError.

    One code of every 16,384 rows of the large files; other files count as evenly filled between their bounds.
    """
    codes, rows = [], []
    large = sorted((file for file in files if file.rows > _LARGE), key=lambda file: -file.rows)[:_FOOTERS]
    for file in large:
        if datafile.has_digests(folder / file.path):
            some, numbers = sample(folder / file.path, REFRESH)
            codes += some.tolist()
            rows += numbers.tolist()
    known = {file.path for file in large}
    for file in files:
        least, greatest = file.lower.get(CODE), file.upper.get(CODE)
        if file.path not in known and least is not None and greatest is not None:
            codes += [least + (greatest - least) * point // (_POINTS - 1) for point in range(_POINTS)]
            rows += [file.rows / _POINTS] * _POINTS
    return np.array(codes, dtype=np.int64), np.array(rows, dtype=np.float64)


def sample(path: Location, hint: str) -> tuple[np.ndarray, np.ndarray]:
    """Codes of a file of state, the first of every 16,384 rows, and how many rows each stands for: int64[n] each.

    Reads the footer. Raises StorageError.
    """
    with reporting(path, "read", hint):
        note = json.loads(datafile.note_of(store.mapped(path), datafile.RUN, hint))
    codes = np.frombuffer(base64.b64decode(note["top"]), np.int64)
    rows = np.full(len(codes), note["step"], np.int64)
    rows[-1:] = sum(note["rows"]) - rows[:-1].sum()
    return codes, np.maximum(rows, 1)
