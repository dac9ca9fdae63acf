"""How the key codes of stored runs are spread: read from footers and from the bounds of files, not from rows.

Must not import the engine: the driver of a fold on Spark loads this module.
"""

from __future__ import annotations

from collections.abc import Sequence

from ddcore.io.datafile import DataFile, has_digests
from ddcore.io.layout import CODE
from ddcore.io.store import Place
from ddcore.io.tables import LiveFile
from ddcore.io.warehouse import REFRESH, reporting
from ddcore.libraries import numpy as np

__all__ = ["spread"]

_LARGE = 16 * 1024  # rows of a file whose row groups are looked at
_FOOTERS = 256  # that are read at most, of the largest files
_POINTS = 16  # codes of a file whose footer is not read


def spread(folder: Place, files: Sequence[LiveFile]) -> tuple[np.ndarray, np.ndarray]:
    """Codes of a table's rows and how many rows each stands for: int64[n], float64[n]. Raises StorageError.

    One code of each row group of the large files; other files count as evenly filled between their bounds.
    """
    codes, rows = [], []
    large = sorted((file for file in files if file.rows > _LARGE), key=lambda file: -file.rows)[:_FOOTERS]
    for file in large:
        if not has_digests(folder / file.path):
            continue
        with reporting(folder / file.path, "read", REFRESH):
            footer = DataFile(folder / file.path, REFRESH).metadata
        column = [footer.schema.column(number).path for number in range(len(footer.schema))].index(CODE)
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        codes += [group.column(column).statistics.min for group in groups]
        rows += [group.num_rows for group in groups]
    known = {file.path for file in large}
    for file in files:
        least, greatest = file.lower.get(CODE), file.upper.get(CODE)
        if file.path not in known and least is not None and greatest is not None:
            codes += [least + (greatest - least) * place // (_POINTS - 1) for place in range(_POINTS)]
            rows += [file.rows / _POINTS] * _POINTS
    return np.array(codes, dtype=np.int64), np.array(rows, dtype=np.float64)
