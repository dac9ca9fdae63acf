"""The ends of intervals, as columns of a collection, and which workers own values in an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from ddcore.base.digests import digest
from ddcore.base.errors import ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.record import record
from ddcore.base.source_line import caller
from ddcore.data.encoding import NULL
from ddcore.operators import arguments

Closed = Literal["both", "left", "right", "none"]

_MOST = 2**63 - 1


@record
class Ends:
    """The columns of an interval's ends, of which one may be missing, and which ends belong to it.

    ``open_nulls``: a null end is none; otherwise an interval with one holds nothing.
    """

    lower: str | None
    upper: str | None
    closed: str
    open_nulls: bool

    @classmethod
    def of(cls, lower: str | None, upper: str | None, closed: Closed, open_nulls: bool) -> Ends:
        """What ``join_between`` is given. Raises ProgramError."""
        where = "join_between"
        if lower is None and upper is None:
            raise ProgramError(f"{caller()}: {where}: there is neither lower nor upper", "name a column of intervals")
        names = [None if end is None else arguments.names_of([end], where)[0] for end in (lower, upper)]
        kind = arguments.choice(closed, get_args(Closed), f"{where}: closed")
        return cls(names[0], names[1], kind, arguments.flag(open_nulls, f"{where}: open_nulls"))

    @property
    def text(self) -> str:
        """Equal for equal ends in every process and release."""
        return digest(self.lower or "", self.upper or "", self.closed, str(self.open_nulls))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that there are."""
        return tuple(name for name in (self.lower, self.upper) if name is not None)

    def bounds(self, words: Mapping[str, np.ndarray], rows: int) -> tuple[np.ndarray, np.ndarray]:
        """For intervals the word after which each begins, and the last word in it: int64[rows] each. It holds nothing
        where the first is not less than the second. No interval holds null, the least word.
        """
        after, to = np.full(rows, NULL), np.full(rows, _MOST)
        nulls = np.zeros(rows, dtype=bool)
        for name, bound, back in (
            (self.lower, after, self.closed in ("both", "left")),
            (self.upper, to, self.closed in ("left", "none")),
        ):
            if name is not None:
                known = words[name] != NULL
                bound[known] = words[name][known] - back
                nulls |= ~known
        if not self.open_nulls:
            to[nulls] = NULL
        return after, to

    def owners(
        self, words: Mapping[str, np.ndarray], rows: int, boundaries: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The first and the last worker that may own a value in each interval, where the next one begins at each of
        some words, ``boundaries``; of an interval that holds nothing any one worker, twice: int64[rows] both.
        """
        starts = np.array(boundaries, dtype=np.int64)
        after, to = self.bounds(words, rows)
        first = np.searchsorted(starts, np.minimum(after, _MOST - 1) + 1, side="right")
        return first, np.maximum(first, np.searchsorted(starts, to, side="right"))
