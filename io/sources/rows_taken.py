"""The position of a file of rows, as the ledger keeps it: how far it was taken in, and what it was like then.

Such a file is recognised by its rows. Where it is as it was, and is read by the same rules, it need not be read.
"""

from __future__ import annotations

from typing import NamedTuple, Self


class RowsTaken(NamedTuple):
    """The position of a file of rows: the number of its ``last`` row, where rows have no times; its ``stamp`` when it
    was read, and the digest of the ``rules``, both empty where a later change might leave the stamp as it is.
    """

    last: int | None = None
    stamp: str = ""
    rules: str = ""

    @classmethod
    def of(cls, text: str) -> Self | None:
        """What a position says; None for one of another form."""
        head, _, rest = text.partition(" ")
        word, _, last = head.partition("-")
        stamp, _, rules = rest.partition(" ")
        return cls(int(last) if last else None, stamp, rules) if word == "rows" else None

    @property
    def text(self) -> str:
        """The position for the ledger."""
        if self.last is None and not self.stamp:
            return ""
        head = "rows" if self.last is None else f"rows-{self.last}"
        return f"{head} {self.stamp} {self.rules}" if self.stamp else head


def is_followed(text: str) -> bool:
    """Whether a position is that of a source which is not recognised by its rows, such as a Delta table."""
    return bool(text) and RowsTaken.of(text) is None
